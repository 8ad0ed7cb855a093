"""Find the step where a run went wrong, replace it in a fork, and compare. A scripted model: no key."""

import asyncio

from turnwheel import Agent, MemoryStore, Rule, tool
from turnwheel.effects import CallModel, ToolFinished
from turnwheel.engine import bisect, replay
from turnwheel.testing import ScriptedModel, calls, says

REFUNDS: list[int] = []


@tool(side_effect="read_only")
def price(order: str) -> str:
    """The price of an order."""
    return f"{order}: 999.00 EUR"  # a dot in the wrong place


@tool
def refund(cents: int) -> str:
    """Give money back."""
    REFUNDS.append(cents)
    return f"refunded {cents} cents"


async def main() -> None:
    """Refund too much, then run a fork in which the price is right."""
    store = MemoryStore()
    model = ScriptedModel(
        *(calls(("price", {"order": "A7"})), calls(("refund", {"cents": 99_900})), says("It is refunded.")),
        *(calls(("refund", {"cents": 999})), says("It is refunded.")),  # the fork reads another price
    )
    agent = Agent(
        tools=[price, refund],
        rules=[Rule("allow", "refund")],
        store=store,
        performers={CallModel: model},
    )
    session = agent.session("ticket")
    await session.run("Refund order A7.")

    steps = [step async for step in replay(store, "ticket")]
    for step in steps:
        print(f"{step.number:>2} {step.label:<10} {type(step.event or step.entry).__name__}")
    wrong = next(step for step in steps if isinstance(step.event, ToolFinished))

    fork = await session.fork("what-if", at=wrong.number, instead="A7: 9.99 EUR")
    await fork.resume()
    print(f"refunded: {REFUNDS[0]}, and in the fork: {REFUNDS[1:]}")

    found = await bisect(store, "ticket", "what-if")
    if found is not None and found.one is not None:
        print(f"they differ at step {found.one['number']}, in {', '.join(found.where)}")


if __name__ == "__main__":
    asyncio.run(main())
