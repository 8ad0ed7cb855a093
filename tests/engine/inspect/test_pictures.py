"""Pictures of a session: who asked whom, also where hooks, children and withdrawn questions take part."""

from __future__ import annotations

from typing import Any, cast

import attrs
import pytest

from turnwheel import Agent, ChildSpec, Deny, Hook, HookAnswer, HookCall, MemoryStore, hook, tool
from turnwheel.diagrams import Party, Said, Took
from turnwheel.display.rendering import line_of
from turnwheel.effects import CallModel, events
from turnwheel.effects.config import Config, ModelSpec, Steering, ToolSpec
from turnwheel.effects.errors import ArgumentError
from turnwheel.effects.history import CallPiece, TextPiece
from turnwheel.effects.hooks import HookSpec
from turnwheel.effects.messages import Outcome, StopReason
from turnwheel.effects.records import SetModel
from turnwheel.effects.requests import AskApproval, FireHook, RunTool
from turnwheel.effects.usage import Usage
from turnwheel.engine import replay
from turnwheel.engine.inspect.pictures import picture_of, said_in, took_in
from turnwheel.engine.inspect.replay import ReplayedStep, replayed
from turnwheel.engine.journal.encoding import encode_entry
from turnwheel.engine.journal.entries import Entry, Posted, RunOpened, Stepped
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


def played(*entries: Entry) -> list[ReplayedStep]:
    return [*replayed([encode_entry(entry) for entry in entries], "s")]


SENT = events.UserSent(at=1.0, id="p", text="Look")
SETTINGS = Config(
    model=ModelSpec(name="m"),
    models=(ModelSpec(name="n"),),
    tools=(ToolSpec(name="look", approval="never"), ToolSpec(name="pay")),
)
OPENED = RunOpened(at=2.0, run="r", config=SETTINGS)
WISHES = events.ModelFinished(
    at=4.0,
    request="r-1",
    stop=StopReason.TOOL_USE,
    usage=Usage(),
    pieces=(CallPiece(0, "w", "look", '{"path": "\x9b"}'),),
)


def test_what_a_person_says_is_drawn_once_whether_or_not_it_waited() -> None:
    """Each way of saying something has its own words."""
    steer = events.UserSteered(at=3.0, id="s", text="left", how=Steering.WHEN_DONE)
    change = events.ControlReceived(at=3.5, id="c", change=SetModel(model="n"))
    steps = played(
        Posted(event=SENT),
        OPENED,
        Posted(event=steer),
        Stepped(event=steer, label="streaming"),
        Stepped(event=change, label="streaming"),
        Stepped(event=WISHES, label="executing"),
        Stepped(event=events.CallCancelled(at=5.0, call="r-2"), label="executing"),
        Posted(event=events.Interrupted(at=6.0)),
        Stepped(event=events.Interrupted(at=6.0), label="executing.stopping"),
        Stepped(event=events.Interrupted(at=7.0), label="done"),
    )
    assert [words(one) for one in said_in(steps)] == [
        'person tells machine: "Look"',
        "machine asks model: m",
        'person tells machine: steer "left"',
        f"person tells machine: {line_of(change)}",
        'model tells machine: call look {"path": "\\u009b"}',
        'machine asks tools: look {"path": "\\u009b"}',
        "person tells machine: cancel",
        "machine tells tools: cancel",
        "person tells machine: interrupt",
        "person tells machine: interrupt",
        "machine tells person: ends: interrupted",
    ]


def test_a_name_of_an_approver_is_escaped() -> None:
    asks = attrs.evolve(WISHES, pieces=(CallPiece(0, "w", "pay", "{}"),))
    entries = (Posted(event=SENT), OPENED, Stepped(event=asks, label="confirming"))
    (request,) = [one.id for one in played(*entries)[-1].effects if isinstance(one, AskApproval)]
    given = events.ApprovalGiven(at=5.0, request=request, decision=Deny(), by="a\x1bnn")
    steps = played(*entries, Stepped(event=given, label="streaming"))
    assert "person tells machine: no (a\\u001bnn)" in map(words, said_in(steps))
    steps = played(*entries, Stepped(event=attrs.evolve(given, by=""), label="streaming"))
    assert "person tells machine: no" in map(words, said_in(steps))


def test_a_request_takes_from_its_step_to_its_answer_and_an_open_one_has_no_end() -> None:
    steps = played(Posted(event=SENT), OPENED, Stepped(event=WISHES, label="executing"))
    assert took_in(steps) == (
        Took(Party.MODEL, "m", 2.0, end=4.0),
        Took(Party.TOOLS, 'look {"path": "\\u009b"}', 4.0, end=None),
    )
    assert took_in([]) == ()


def test_each_picture_shows_what_it_is_of() -> None:
    steps = played(Posted(event=SENT), OPENED)
    assert 'lit" data-state="streaming"' in picture_of(steps)
    assert 'lit" data-state' not in picture_of([])
    assert ">&quot;Look&quot;<" in picture_of(steps, "sequence")
    assert "<title>How long calls took</title>" in picture_of(steps, "calls")


def test_a_kind_of_picture_that_there_is_not_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"^kind must be one of path, sequence, calls; got 'pie'$"):
        picture_of([], cast("Any", "pie"))


def test_who_says_the_same_twice_is_drawn_twice() -> None:
    stop = events.Interrupted(at=6.0)
    stops = Stepped(event=stop, label="streaming.stopping"), Stepped(event=stop, label="done")
    for entries in (stops, (Posted(event=stop), *stops)):
        told = [words(one) for one in said_in(played(Posted(event=SENT), OPENED, *entries))]
        assert told.count("person tells machine: interrupt") == 2


def test_names_of_models_and_hooks_are_escaped_and_an_answer_of_nothing_says_how_it_ended() -> None:
    settings = Config(model=ModelSpec(name="m\x1bx"), hooks=(HookSpec(name="h\x1b", hook=Hook.STOP),))
    beginning = Posted(event=SENT), RunOpened(at=2.0, run="r", config=settings)
    empty = attrs.evolve(WISHES, stop=StopReason.MAX_TOKENS, pieces=())
    assert [words(one) for one in said_in(played(*beginning, Stepped(event=empty, label="done")))][1:3] == [
        "machine asks model: m\\u001bx",
        "model tells machine: max_tokens",
    ]
    says_all = Stepped(
        event=attrs.evolve(WISHES, stop=StopReason.END_TURN, pieces=(TextPiece("All."),)),
        label="thinking.ending",
    )
    (request,) = [one.id for one in played(*beginning, says_all)[-1].effects if isinstance(one, FireHook)]
    ends = Stepped(event=events.HookAnswered(at=5.0, request=request), label="done")
    assert [words(one) for one in said_in(played(*beginning, says_all, ends))][2:5] == [
        'model tells machine: "All."',
        "machine asks hooks: stop: h\\u001b",
        "hooks tells machine: HookAnswered",
    ]


def test_of_a_tool_that_failed_its_text_is_drawn() -> None:
    entries = (Posted(event=SENT), OPENED, Stepped(event=WISHES, label="executing"))
    (request,) = [one.id for one in played(*entries)[-1].effects if isinstance(one, RunTool)]
    failed = events.ToolFinished(at=5.0, request=request, content="no", outcome=Outcome.ERROR)
    steps = played(*entries, Stepped(event=failed, label="streaming"))
    assert 'tools tells machine: "no"' in map(words, said_in(steps))
