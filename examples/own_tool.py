"""An agent with your own tools, which asks before it pays. It needs OPENAI_API_KEY, or a base_url."""

import asyncio
import sys

from turnwheel import Agent, Approve, Deny, SQLiteStore, tool
from turnwheel.effects import ApprovalRequested, ConfigError, RunFailed, TextDelta


@tool(side_effect="read_only")
def balance(account: str) -> int:
    """
    The balance of an account, in cents.

    Args:
        account: The account's name.
    """
    return {"rent": 120_000, "food": 4_550}.get(account, 0)


@tool(side_effect="unsafe", timeout=10)
def pay(account: str, cents: int) -> str:
    """Pay from an account."""
    return f"paid {cents} cents from {account}"


async def main() -> None:
    """Run once, and answer each question at the keyboard."""
    async with Agent(tools=[balance, pay], store=SQLiteStore("agent.db")) as agent:
        session = agent.session("household")
        async for notice in session.stream("Pay the rent, if there is enough for it."):
            match notice:
                case TextDelta(text=text):
                    print(text, end="", flush=True)
                case ApprovalRequested(request=request, tool=name, arguments=arguments):
                    yes = await asyncio.to_thread(input, f"\n{name} {arguments}? [y/n] ") == "y"
                    await session.approve(request, Approve() if yes else Deny())
                case _:
                    pass
        session.result().raise_for_error()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except (ConfigError, RunFailed) as error:  # no key, or no connection: it says what to do
        sys.exit(str(error))
