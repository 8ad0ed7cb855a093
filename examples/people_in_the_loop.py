"""A hook, a rule, and two questions that people answer out of order. A scripted model: no key."""

import asyncio

from turnwheel import Agent, Approve, Deny, Hook, HookAnswer, HookCall, MemoryStore, Policy, Rule, hook, tool
from turnwheel.effects import CallModel
from turnwheel.engine import explain
from turnwheel.testing import ScriptedModel, calls, says


@tool(resources=("account:{account}",))
def pay(account: str, cents: int) -> str:
    """Pay from an account."""
    return f"paid {cents} cents from {account}"


@hook(Hook.PRE_TOOL_USE, tool="pay")
def at_most_a_hundred(about: HookCall) -> HookAnswer | None:
    """Lower a payment that is too high, instead of a denial."""
    if int(about.arguments["cents"]) <= 100:
        return None
    return HookAnswer(arguments={**about.arguments, "cents": 100})


async def main() -> None:
    """Ask about two payments at once, and answer the second question first."""
    store = MemoryStore()
    model = ScriptedModel(
        calls(("pay", {"account": "rent", "cents": 900}), ("pay", {"account": "food", "cents": 5})),
        says("The rent is paid, the food is not."),
    )
    agent = Agent(
        tools=[pay],
        hooks=[at_most_a_hundred],
        rules=[Rule("deny", "pay", where={"account": "savings"})],
        policy=Policy(concurrency="parallel", on_denial="go_on"),
        store=store,
        performers={CallModel: model},
    )
    session = agent.session("household")
    resting = await session.run("Pay the rent and the food.")
    for question in resting.waiting:
        print(question.tool, question.arguments)

    rent, food = resting.waiting
    elsewhere = agent.session("household")  # as in another process
    await elsewhere.approve(food.id, Deny("not from this account"), by="Ann")
    await session.approve(rent.id, Approve({"account": "rent", "cents": 90}), by="Bob")
    print((await session.resume()).text)

    for moment in (await explain(store, "household", rent.call)).moments:
        print(f"{moment.what}: {moment.text}")


if __name__ == "__main__":
    asyncio.run(main())
