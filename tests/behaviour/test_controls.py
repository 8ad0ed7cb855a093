"""What a person does to a run that is under way, or left: stop it, stop a part of it, change its settings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from turnwheel import (
    ChildSpec,
    DoneReason,
    HookCall,
    Limits,
    ModelSpec,
    PermissionMode,
    Price,
    SetMode,
    SetModel,
    SetThinking,
    ToolContext,
    hook,
    tool,
)
from turnwheel.effects.errors import (
    ArgumentError,
    ConfigError,
    SessionClosed,
    UnknownCall,
)
from turnwheel.effects.events import Failure, ModelFailed, ModelStreamed
from turnwheel.effects.notices import (
    AgentNoticed,
    ApprovalRequested,
    ApprovalWithdrawn,
    CompactionStarted,
    HookAsked,
    InterruptRequested,
    RetryScheduled,
    RunEnded,
    RunStarted,
    SettingChanged,
    TextDelta,
    ToolOutput,
    ToolStarted,
)
from turnwheel.effects.pieces import CallPiece, TextPiece
from turnwheel.effects.requests import CallModel
from turnwheel.effects.usage import Usage
from turnwheel.performers.base import PerformContext
from turnwheel.testing.scripted import (
    Reply,
    calls,
    fails,
    says,
    stalls,
)

if TYPE_CHECKING:
    from behaviour.conftest import Stage

    from turnwheel import Session
    from turnwheel.testing.clocks import ManualClock

AROUND = calls(("look", {}), ("dig", {}), ("pay", {}), ("look", {}))


def interrupts(session: Session) -> Callable[[object], Any]:
    """A reaction that interrupts *session*."""
    return lambda _: session.interrupt()


# An interrupt


@pytest.mark.behaviour("an-interrupt-keeps-what-was-read")
async def test_the_answer_is_cut_and_the_next_run_goes_on_over_what_was_read(stage: Stage) -> None:
    """The calls in it were not whole, so they were never made."""
    half = (
        TextPiece("Once upon"),
        CallPiece(0, "w0", "look", '{"at": "a"}'),
        CallPiece(1, "w1", "put", '{"val'),
    )
    session = stage.session(Reply(pieces=half, stalls=True), says("a time"))
    result = await stage.play(session, "tell", on={TextDelta: interrupts(session)})

    assert (result.reason, result.text, stage.ran) == (DoneReason.INTERRUPTED, "Once upon", [])
    await session.run("go on")
    assert stage.shown(2) == ["user: tell", "assistant: Once upon", "user: go on"]


@pytest.mark.behaviour("an-interrupt-stops-the-tools")
async def test_what_runs_is_stopped_and_nothing_behind_it_starts(stage: Stage) -> None:
    """What has run keeps its result, each other call has one that says so, and the model is left alone."""
    session = stage.session(AROUND, says("as you like"))
    result = await stage.play(session, on={ToolOutput: interrupts(session)})

    assert (result.reason, stage.asked) == (DoneReason.INTERRUPTED, 1)
    assert stage.ran == ["look", "dig", "dig was stopped"]
    assert stage.said(session)[2:] == ["tool: saw | Cancelled | Cancelled | Cancelled"]
    assert stage.order(InterruptRequested, RunEnded) == ["InterruptRequested", "RunEnded"]
    await session.run("go on")
    assert stage.shown(2)[2:] == ["tool: saw | Cancelled | Cancelled | Cancelled", "user: go on"]


@pytest.mark.behaviour("an-interrupt-stops-the-tools")
async def test_what_a_tool_did_before_it_noticed_is_its_result(stage: Stage) -> None:
    """The run waits for what it says: it may have done something worth telling."""

    @tool(approval="never")
    async def save(context: ToolContext[Any]) -> str:
        """Save, and do not leave it half done."""
        context.progress("saving")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "saved after all"
        return "saved"

    session = stage.session(calls(("save", {}), ("look", {})), tools=[save, *stage.tools])
    result = await stage.play(session, on={ToolOutput: interrupts(session)})
    assert result.reason is DoneReason.INTERRUPTED
    assert stage.said(session)[-1] == "tool: saved after all | Cancelled"


@pytest.mark.behaviour("a-second-interrupt-waits-for-nothing")
@pytest.mark.parametrize(("side_effect", "outcome"), [("read_only", "cancelled"), ("unsafe", "unknown")])
async def test_of_a_tool_that_does_not_stop_it_is_said_that_it_may_have_run(
    stage: Stage, side_effect: Any, outcome: str
) -> None:
    """Unless it only reads, and so has done nothing."""
    enough = asyncio.Event()

    @tool(side_effect=side_effect, approval="never", timeout=None)
    async def drone(context: ToolContext[Any]) -> None:
        """Go on and on."""
        while not enough.is_set():
            context.progress("on and on")
            try:
                await enough.wait()
            except asyncio.CancelledError:
                continue

    session = stage.session(
        calls(("drone", {}), ("look", {})), says("never mind"), tools=[drone, *stage.tools]
    )
    result = await stage.play(session, on={ToolOutput: interrupts(session)})
    enough.set()

    assert (result.reason, len(stage.seen(InterruptRequested))) == (DoneReason.INTERRUPTED, 1)
    assert stage.outcomes(session) == [f"drone: {outcome}", "look: cancelled"]
    assert (await session.run("again")).text == "never mind"


@pytest.mark.behaviour("a-second-interrupt-waits-for-nothing")
async def test_an_answer_that_does_not_stop_is_not_waited_for(stage: Stage) -> None:
    """What was read of it is kept as if it had ended there."""

    async def deaf(request: CallModel, scene: PerformContext) -> ModelFailed:
        with suppress(asyncio.CancelledError):
            await say("Once ", 0, request, scene)
        await say("upon ", 1, request, scene)
        raise AssertionError

    async def say(word: str, before: int, request: CallModel, scene: PerformContext) -> None:
        pieces = (TextPiece(word),)
        scene.emit(ModelStreamed(at=0.0, request=request.id, before=before, count=1, pieces=pieces))
        await asyncio.Event().wait()

    session = stage.session(performers={CallModel: deaf})
    result = await stage.play(session, on={TextDelta: interrupts(session)})
    assert (result.reason, result.text) == (DoneReason.INTERRUPTED, "Once upon ")
    assert stage.order(TextDelta, InterruptRequested, RunEnded) == [
        *("TextDelta", "InterruptRequested", "TextDelta", "RunEnded")
    ]


@hook("pre_tool_use")
async def ponder(_: HookCall) -> None:
    """Take for ever."""
    await asyncio.Event().wait()


SCOUT = calls(("run_agent", {"agent": "scout", "prompt": "look"}), ("look", {}))


@pytest.mark.behaviour("an-interrupt-ends-a-run-wherever-it-is")
@pytest.mark.parametrize(
    ("replies", "settings", "at", "outcomes"),
    [
        ([stalls("Once")], {}, TextDelta, []),
        ([fails(Failure.SERVER)], {}, RetryScheduled, []),
        ([calls(("dig", {}), ("look", {}))], {}, ToolOutput, ["dig: cancelled", "look: cancelled"]),
        ([calls(("pay", {}), ("look", {}))], {}, ApprovalRequested, ["pay: cancelled", "look: cancelled"]),
        (
            [calls(("put", {}), ("look", {}))],
            {"hooks": [ponder]},
            HookAsked,
            ["put: cancelled", "look: cancelled"],
        ),
        (
            [SCOUT, stalls("I see")],
            {"children": [ChildSpec(name="scout")]},
            AgentNoticed,
            ["run_agent: cancelled", "look: cancelled"],
        ),
    ],
    ids=["an answer", "a retry", "a tool", "a question", "a hook", "a child"],
)
async def test_whatever_it_waits_for_is_given_up_and_the_next_run_begins_well(
    stage: Stage,
    wall: ManualClock,
    replies: list[Reply],
    settings: dict[str, Any],
    at: type,
    outcomes: list[str],
) -> None:
    """Each call has its result, nothing is left at work, and the conversation can go on."""
    before = asyncio.all_tasks()
    session = stage.session(*replies, says("hello again"), clock=wall, **settings)

    async def stop(notice: Any) -> None:
        if not isinstance(notice, AgentNoticed) or isinstance(notice.notice, TextDelta):
            await session.interrupt()

    result = await stage.play(session, on={at: stop}, wait=True)

    assert result.reason is DoneReason.INTERRUPTED
    assert stage.outcomes(session) == outcomes
    assert asyncio.all_tasks() == before
    assert (await session.run("again")).text == "hello again"
    assert wall.now() == 100.0


@pytest.mark.behaviour("an-interrupt-ends-a-run-wherever-it-is")
async def test_a_conversation_that_is_being_shortened_stays_as_it_is(stage: Stage) -> None:
    """What the summary used up to then is in the account."""
    model = ModelSpec(name="scripted", window=100)
    session = stage.session(
        says("a long story " * 15, usage=Usage(input=60, output=30)), says("so"), model=model
    )
    await session.run("tell " * 40)
    said = stage.said(session)
    stage.held = (2,)
    result = await stage.play(session, "and?", on={CompactionStarted: interrupts(session)})

    assert (result.reason, result.spent.turns, stage.asked) == (DoneReason.INTERRUPTED, 0, 1)
    assert stage.said(session) == [*said, "user: and?"]


@pytest.mark.behaviour("an-interrupt-ends-a-run-wherever-it-is")
async def test_a_run_that_rests_is_stopped_when_somebody_goes_on_with_it(stage: Stage) -> None:
    """Also in another process; its question cannot be answered any more."""
    async with stage.session(calls(("pay", {}), ("look", {}))) as session:
        await session.run("go")
    async with stage.session() as session:
        await session.interrupt()
    async with stage.session(says("hello again")) as session:
        result = await stage.play(session, None)
        assert (result.reason, result.waiting, stage.ran) == (DoneReason.INTERRUPTED, (), [])
        assert stage.outcomes(session) == ["pay: cancelled", "look: cancelled"]
        assert len(stage.seen(ApprovalWithdrawn)) == 1
        assert (await session.run("again")).text == "hello again"


@pytest.mark.behaviour("an-interrupt-ends-a-run-wherever-it-is")
async def test_without_a_run_an_interrupt_does_nothing(stage: Stage) -> None:
    """Nor does it wait for one to come."""
    session = stage.session(says("hello"))
    await session.interrupt()
    assert (await session.run("go")).reason is DoneReason.END_TURN


# One call


@pytest.mark.behaviour("one-call-can-be-given-up")
@pytest.mark.parametrize(
    ("number", "results"),
    [
        (0, "Cancelled | saw b | saw c"),
        (1, "dig done | Cancelled | saw c"),
        (2, "dig done | saw b | Cancelled"),
    ],
    ids=["the running one", "the next", "the last"],
)
async def test_a_call_that_a_person_gives_up_is_cancelled_and_the_run_goes_on(
    stage: Stage, number: int, results: str
) -> None:
    """Whether it has started or not; the others run as if nothing had happened."""
    session = stage.session(calls(("dig", {}), ("look", {"at": "b"}), ("look", {"at": "c"})), says("done"))

    async def cancel(_: ToolOutput) -> None:
        await session.cancel(session.history[-1].calls[number].id)
        if number:
            stage.release()

    result = await stage.play(session, on={ToolOutput: cancel})
    assert (result.text, stage.shown(2)[-1]) == ("done", f"tool: {results}")


@pytest.mark.behaviour("one-call-can-be-given-up")
async def test_a_question_about_a_call_that_was_given_up_is_taken_back(stage: Stage) -> None:
    """Nobody has denied anything, so what stands behind it runs."""
    session = stage.session(calls(("pay", {}), ("look", {})), says("done"))
    result = await stage.play(session, on={ApprovalRequested: lambda one: session.cancel(one.call)})
    assert (result.text, stage.ran) == ("done", ["look"])
    assert stage.outcomes(session) == ["pay: cancelled", "look: ok"]
    assert len(stage.seen(ApprovalWithdrawn)) == 1


@pytest.mark.behaviour("one-call-can-be-given-up")
async def test_a_call_that_is_not_under_way_cannot_be_given_up(stage: Stage) -> None:
    """The error names those that are."""
    session = stage.session(calls(("look", {}), ("pay", {})), says("done"))
    with pytest.raises(UnknownCall, match="no call 'x' under way; there are: none"):
        await session.cancel("x")
    resting = await session.run("go")
    over = session.history[-1].calls[0].id
    for wrong in ("x", over, resting.waiting[0].id):
        with pytest.raises(UnknownCall, match=f"there are: '{resting.waiting[0].call}'"):
            await session.cancel(wrong)


# Settings


@pytest.mark.behaviour("settings-change-under-way")
async def test_a_changed_model_and_its_budget_to_think_hold_from_the_next_request_on(stage: Stage) -> None:
    """In this run, in those after it, and in another process."""
    models = [ModelSpec(name="other", thinking=100)]
    session = stage.session(calls(("dig", {})), says("done"), models=models)

    async def change(_: ToolOutput) -> None:
        await session.control(SetModel(model="other"))
        await session.control(SetThinking(tokens=2_000))
        stage.release()

    await stage.play(session, on={ToolOutput: change})
    await session.close()
    asked = [(request.model, request.thinking) for request in stage.model.requests]
    assert asked == [("scripted", None), ("other", 2_000)]
    assert [notice.change for notice in stage.seen(SettingChanged)] == [
        SetModel(model="other"),
        SetThinking(tokens=2_000),
    ]

    session = stage.session(says("hello"), says("again"), models=models)
    await stage.play(session, "again")
    await session.control(SetThinking(tokens=None))
    await stage.play(session, "and again")
    asked = [(request.model, request.thinking) for request in stage.model.requests]
    assert asked == [("other", 2_000), ("other", None)]
    assert [notice.model for notice in stage.seen(RunStarted)] == ["scripted", "other", "other"]


@pytest.mark.behaviour("settings-change-under-way")
async def test_a_change_before_the_first_run_and_one_while_it_rests_hold(stage: Stage) -> None:
    """Nothing needs to be under way; a changed mode is for calls that nobody was asked about yet."""
    session = stage.session(calls(("pay", {}), ("pay", {"amount": 2})), says("done"))
    await session.control(SetModel(model="other"))
    resting = await session.run("go")
    await session.control(SetMode(mode=PermissionMode.BYPASS))
    await session.approve(resting.waiting[0].id)
    result = await session.resume()
    assert (result.text, stage.ran) == ("done", ["pay 1", "pay 2"])
    assert [request.model for request in stage.model.requests] == ["other", "other"]


@pytest.mark.behaviour("settings-change-under-way")
@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (SetModel(model=" "), ConfigError, "a model has a name"),
        (SetModel(model="other"), ConfigError, "the limit in USD needs a price for 'other'"),
        (SetThinking(tokens=0), ConfigError, "a number of tokens above 0"),
        ("other", ArgumentError, "change must be SetModel"),
    ],
)
async def test_a_change_that_cannot_be_made_is_refused_at_once(
    stage: Stage, change: Any, error: type[Exception], said: str
) -> None:
    """And everything stays as it is."""
    model = ModelSpec(name="scripted", price=Price(input=1, output=1))
    session = stage.session(says("done"), model=model, limits=Limits(usd=1))
    with pytest.raises(error, match=said):
        await session.control(change)
    assert (await session.run("go")).text == "done"
    assert stage.model.requests[0].model == "scripted"


# Leaving


@pytest.mark.behaviour("a-run-that-is-left-can-be-resumed")
@pytest.mark.parametrize("how", ["close", "cancel", "drop"])
async def test_whoever_leaves_stops_the_work_and_somebody_else_goes_on(stage: Stage, how: str) -> None:
    """Nothing is left at work; the model is asked again, and what it had said is void."""
    before = asyncio.all_tasks()
    session = stage.session(calls(("look", {})), stalls("half an answ"))
    watched = session.subscribe()
    running = asyncio.ensure_future(session.run("go"))
    async for notice in watched:
        if isinstance(notice, TextDelta):
            break
    if how == "close":
        await session.close()
        with pytest.raises(SessionClosed):
            await running
    else:
        running.cancel()
        await asyncio.wait({running})
        await session.close()
    assert asyncio.all_tasks() == before

    other = await stage.session(says("a whole answer")).load()
    assert other.unfinished
    assert (await other.resume()).text == "a whole answer"
    assert stage.shown(1) == ["user: go", "assistant: [look]", "tool: saw"]
    assert stage.ran == ["look"]


@pytest.mark.behaviour("a-run-that-is-left-can-be-resumed")
@pytest.mark.parametrize(
    ("name", "again", "outcome"),
    [("dig", ["dig", "dig was stopped", "dig"], "ok"), ("build", ["build", "build was stopped"], "unknown")],
)
async def test_a_tool_that_was_left_at_work_is_run_again_where_that_is_safe(
    stage: Stage, name: str, again: list[str], outcome: str
) -> None:
    """Otherwise the model is told that it may have run."""
    await stage.leave(stage.session(calls((name, {}), ("look", {}))), "go", ToolOutput)
    stage.release()
    session = stage.session(says("I see"))
    result = await stage.play(session, None)

    assert (result.text, stage.ran) == ("I see", [*again, "look"])
    assert stage.outcomes(session) == [f"{name}: {outcome}", "look: ok"]
    assert [notice.tool for notice in stage.seen(ToolStarted)] == ["look"]
