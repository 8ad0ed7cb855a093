"""Pictures of a session: who asked whom, also where hooks, children and withdrawn questions take part."""

from __future__ import annotations

from typing import Any

from turnwheel import Agent, ChildSpec, Deny, Hook, HookAnswer, HookCall, MemoryStore, hook, tool
from turnwheel.diagrams import Party, Said
from turnwheel.effects import CallModel
from turnwheel.engine import replay
from turnwheel.engine.inspect.pictures import picture_of, said_in, took_in
from turnwheel.testing import AutoClock, ScriptedModel, calls, says


@tool(side_effect="unsafe")
async def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


@hook(Hook.PRE_TOOL_USE, tool="pay")
def modest(about: HookCall) -> HookAnswer | None:
    """Lower a payment."""
    return HookAnswer(arguments={"cents": 5}) if int(about.arguments["cents"]) > 5 else None


async def a_store() -> MemoryStore:
    """With a session that hires a child, asks twice, is answered once, and is interrupted."""
    store = MemoryStore()
    model = ScriptedModel(
        calls(("run_agent", {"agent": "kid", "prompt": "Look around"})),
        says("All is quiet."),
        calls(("pay", {"cents": 900})),
        calls(("pay", {"cents": 3})),
    )
    performers: Any = {CallModel: model}
    kid = ChildSpec(name="kid", description="looks around")
    agent = Agent(
        model="m",
        tools=[pay],
        hooks=[modest],
        children=[kid],
        store=store,
        clock=AutoClock(),
        performers=performers,
    )
    async with agent.session("s") as session:
        await session.run("Pay")
        await session.approve(session.waiting[0].id, Deny("too much"), by="ann")
        await session.resume()
        await session.interrupt()
        await session.resume()
    return store


def words(one: Said) -> str:
    return f"{one.source} {'asks' if one.asks else 'tells'} {one.target}: {one.text}"


async def test_a_sequence_has_children_hooks_and_the_questions_that_were_withdrawn() -> None:
    steps = [step async for step in replay(await a_store(), "s")]
    assert [words(one) for one in said_in(steps)] == [
        'person tells machine: "Pay"',
        "machine asks model: m",
        'model tells machine: call run_agent {"agent": "kid", "prompt": "Look around"}',
        'machine asks children: kid "Look around"',
        'children tells machine: "All is quiet."',
        "machine asks model: m",
        'model tells machine: call pay {"cents": 900}',
        "machine asks hooks: pre_tool_use: modest",
        r'hooks tells machine: modest arguments="{\"cents\": 5}"',
        'machine asks person: pay {"cents": 5}',
        'person tells machine: no "too much" (ann)',
        "machine asks model: m",
        'model tells machine: call pay {"cents": 3}',
        "machine asks hooks: pre_tool_use: modest",
        "hooks tells machine: modest",
        'machine asks person: pay {"cents": 3}',
        "person tells machine: interrupt",
        "machine tells person: withdrawn",
        "machine tells person: ends: interrupted",
    ]
    drawn = picture_of(steps, "sequence")
    assert [party for party in Party if f">{party}</text>" not in drawn] == [Party.TOOLS]


async def test_a_name_with_what_a_terminal_would_act_on_is_escaped() -> None:
    child = "k\x1bid"
    wish = calls(("run_agent", {"agent": child, "prompt": "Look"}))
    performers: Any = {CallModel: ScriptedModel(wish, says("Quiet."), says("Done."))}
    store = MemoryStore()
    agent = Agent(model="m", children=[ChildSpec(name=child)], store=store, performers=performers)
    async with agent.session("s") as session:
        await session.run("Go")
    steps = [step async for step in replay(store, "s")]
    (asked,) = [one.text for one in said_in(steps) if one.target is Party.CHILDREN]
    assert asked == 'k\\u001bid "Look"'


async def test_no_withdrawn_question_stays_open() -> None:
    steps = [step async for step in replay(await a_store(), "s")]
    assert [one.name for one in took_in(steps) if one.end is None] == []
