"""The asyncio driver: its steps, how it stops and rests, and performers that fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Any

import attrs
import pytest
from provers.tasks import turns
from structlog.testing import capture_logs
from support.patience import PATIENCE

from turnwheel.effects import Effect
from turnwheel.effects.config import ChildSpec, Config, ModelSpec, Policy, Retries, ToolSpec
from turnwheel.effects.errors import ArgumentError, NoPerformer, StoreError
from turnwheel.effects.events import (
    AgentFinished,
    ApprovalGiven,
    Approve,
    Deny,
    Event,
    Failure,
    Interrupted,
    ModelFinished,
    ModelStreamed,
    ToolFinished,
    UserSent,
)
from turnwheel.effects.history import CallPiece, TextPiece
from turnwheel.effects.messages import Outcome, StopReason
from turnwheel.effects.notices import TextDelta, ToolStarted
from turnwheel.effects.requests import (
    AskApproval,
    CallModel,
    RunAgent,
    RunTool,
    SetTimer,
)
from turnwheel.effects.usage import Spent, Usage
from turnwheel.engine.core.machine import Machine, Step, ignored
from turnwheel.engine.driver import Driver, Inbox, Unkept
from turnwheel.engine.journal.encoding import encode_entry
from turnwheel.engine.journal.entries import Stepped
from turnwheel.performers.base import PerformContext, sleep
from turnwheel.states import State, streaming
from turnwheel.testing.clocks import AutoClock, ManualClock
from turnwheel.testing.scripted import ScriptedModel, ScriptedTools, calls, fails, says, stalls

CONFIG = Config(
    model=ModelSpec(name="scripted"),
    tools=(
        ToolSpec(name="look", side_effect="read_only"),
        ToolSpec(name="write"),
        ToolSpec(name="hire", kind="agent", approval="never"),
    ),
    children=(ChildSpec(name="kid"),),
    retries=Retries(base=1.0, jitter=0.0),
)
AT = 100.0
FULL = StoreError("no space left")
HIRES = calls(("hire", {"agent": "kid", "prompt": "go"}))


def driver_of(model: Any, **settings: Any) -> Driver:
    """A driver whose model is *model*; other performers stand in *settings* by their kind."""
    kinds: dict[str, type] = {"tool": RunTool, "approver": AskApproval, "timer": SetTimer, "child": RunAgent}
    performers = {kind: settings.pop(name) for name, kind in kinds.items() if name in settings}
    machine = Machine.start(CONFIG, "go", run="r")
    if "journal" in settings:
        settings["journal"].machine = machine
    return Driver(machine=machine, performers={CallModel: model, **performers}, **settings)


async def driven(driver: Driver, *, anew: bool = True, **settings: bool) -> list[Effect]:
    async with asyncio.timeout(PATIENCE):
        return [effect async for effect in told(driver, anew=anew, **settings)]


async def told(driver: Driver, *, anew: bool = True, **settings: bool) -> AsyncGenerator[Effect, None]:
    """The effects of *driver*, one by one."""
    first = driver.machine.advance(at=AT) if anew else ()
    async with aclosing(driver.steps(first, **settings)) as steps:
        async for effects in steps:
            for effect in effects:
                yield effect


# Steps


class Recorder(Unkept):
    """A journal that keeps every applied event as it is."""

    def __init__(self) -> None:
        super().__init__(Machine.start(CONFIG, "go", run="r"))
        self.entries: list[bytes] = []

    async def keep(self, step: Step, /) -> int | None:
        assert step.event is not None
        self.entries.append(encode_entry(Stepped(event=step.event, label=step.state.label)))
        return await super().keep(step)


async def test_pieces_that_wait_together_are_one_step() -> None:
    async def burst(request: CallModel, scene: PerformContext) -> ModelFinished:
        for before in range(100):
            piece = (TextPiece("x"),)
            scene.emit(ModelStreamed(at=AT, request=request.id, before=before, count=1, pieces=piece))
        return ModelFinished(at=AT, request=request.id, stop=StopReason.END_TURN, usage=Usage(input=1))

    recorder = Recorder()
    shown = [
        effect for effect in await driven(driver_of(burst, journal=recorder)) if isinstance(effect, TextDelta)
    ]
    assert (len(shown), len(recorder.entries)) == (100, 2)


async def test_events_that_do_not_apply_are_not_journaled() -> None:
    recorder = Recorder()
    driver = driver_of(ScriptedModel(says("hi")), journal=recorder)
    driver.post(ToolFinished(at=AT, request="unknown", content=""))
    effects = await driven(driver)
    assert sum(ignored((effect,)) for effect in effects) == 1
    assert not any(b"unknown" in entry for entry in recorder.entries)


def piece(before: int, text: str, request: str = "r-1", more: int = 0) -> ModelStreamed:
    """The piece *text* of the answer to *request*, and *more* behind it that are not told one by one."""
    pieces = (TextPiece(text),)
    return ModelStreamed(at=AT + before, request=request, before=before, count=1 + more, pieces=pieces)


STOP = Interrupted(at=AT)


@pytest.mark.parametrize(
    ("came", "taken"),
    [
        ([piece(0, "a"), piece(1, "b", more=2), piece(4, "c")], ["abc"]),
        ([piece(0, "a"), piece(0, "b")], ["a", "b"]),
        ([piece(0, "a"), piece(2, "b"), piece(3, "c")], ["a", "bc"]),
        ([piece(0, "a"), piece(1, "b", "r-2"), piece(2, "c")], ["a", "b", "c"]),
        ([piece(0, "a"), piece(1, "b", "r-2")], ["a", "b"]),
        ([piece(0, "a"), STOP, piece(1, "b")], ["a", "stop", "b"]),
        ([STOP, piece(0, "a"), piece(1, "b")], ["stop", "ab"]),
    ],
    ids=["follow", "repeated", "a gap", "two answers", "another answer", "a stop between", "a stop before"],
)
async def test_only_pieces_that_follow_each_other_in_one_answer_are_one_event(
    came: list[Event], taken: list[str]
) -> None:
    inbox = Inbox()
    for event in came:
        inbox.put(event)
    found = [await inbox.get() for _ in taken]
    texts = [
        "".join(one.text for one in event.pieces if isinstance(one, TextPiece))
        if isinstance(event, ModelStreamed)
        else "stop"
        for event in found
    ]
    assert texts == taken
    counted = [event.count for event in came if isinstance(event, ModelStreamed)]
    assert sum(event.count for event in found if isinstance(event, ModelStreamed)) == sum(counted)
    assert len(inbox.waiting) == 0


async def test_an_inbox_that_is_closed_gives_out_nothing_of_what_waits_however_often_it_is_asked() -> None:
    inbox, empty = Inbox(), Inbox()
    inbox.put(STOP)
    assert len(inbox.waiting) == 1
    for each in (inbox, empty):
        each.close()
        async with asyncio.timeout(PATIENCE):
            assert [await each.get() for _ in range(3)] == [None] * 3
    assert len(inbox.waiting) == 1


def test_an_input_may_be_posted_before_there_is_an_event_loop() -> None:
    driver = driver_of(ScriptedModel())
    driver.post(STOP)
    assert len(driver.inbox.waiting) == 1


async def test_an_inbox_that_is_woken_gives_out_nothing_once() -> None:
    inbox = Inbox()
    inbox.wake()
    assert await inbox.get() is None
    waits = asyncio.ensure_future(inbox.get())
    await turns(3)
    assert not waits.done()
    inbox.put(STOP)
    assert await waits is STOP


async def test_an_event_waits_until_it_is_admitted_and_an_input_with_all_before_it_does_not() -> None:
    room: list[object] = []
    inbox = Inbox(room.__contains__)
    more, last = UserSent(at=AT, id="more", text="more"), Interrupted(at=AT)
    inbox.put(last)
    waits = asyncio.ensure_future(inbox.get())
    await turns(3)
    assert not waits.done()
    room.append(last)
    inbox.room()
    assert await waits is last
    room.clear()
    inbox.put(last)
    inbox.post(more)
    inbox.put(last)
    assert [await inbox.get(), await inbox.get()] == [last, more]
    waits = asyncio.ensure_future(inbox.get())
    await turns(3)
    assert not waits.done()
    inbox.hurry()
    assert await waits is last


@pytest.mark.parametrize("how", ["room", "post", "hurry", "close"])
async def test_what_was_shown_is_settled_once_there_is_room_or_none_is_waited_for(how: str) -> None:
    room: list[object] = []
    inbox = Inbox(room.__contains__)
    settles = asyncio.ensure_future(inbox.settle())
    inbox.put(STOP)
    await turns(3)
    assert not settles.done()
    if how == "room":
        room.append(None)
    ways: dict[str, Callable[[], None]] = {
        "room": inbox.room,
        "post": lambda: inbox.post(STOP),
        "hurry": inbox.hurry,
        "close": inbox.close,
    }
    ways[how]()
    async with asyncio.timeout(PATIENCE):
        await settles


async def test_a_driver_that_is_woken_tells_and_journals_nothing() -> None:
    journals = Recorder(), Recorder()
    for woken, journal in enumerate(journals):
        driver = driver_of(ScriptedModel(says("hi")), journal=journal)
        if woken:
            driver.inbox.wake()
        assert None not in await driven(driver)
    assert len(journals[0].entries) == len(journals[1].entries)


async def test_an_interrupt_from_before_the_takeover_comes_before_the_first_request() -> None:
    model = ScriptedModel(says("hi"))
    driver = driver_of(model)
    driver.post(STOP)
    async for _ in told(driver):
        await turns(3)
    assert driver.machine.done
    assert model.requests == []


# Stopping


async def test_leaving_early_ends_the_work() -> None:
    driver = driver_of(ScriptedModel(stalls("hm")))
    before = asyncio.all_tasks()
    async with aclosing(told(driver)) as effects:
        async for effect in effects:
            if isinstance(effect, TextDelta):
                break
    assert before == asyncio.all_tasks()


async def test_work_that_is_cancelled_before_it_began_still_answers() -> None:
    """An interrupt that comes with the answer that starts a tool does not leave the run waiting."""

    async def at_once(request: CallModel, scene: PerformContext) -> ModelFinished:
        call = (CallPiece(0, "a", "look", "{}"),)
        usage = Usage(input=1)
        scene.emit(
            ModelFinished(at=AT, request=request.id, stop=StopReason.TOOL_USE, usage=usage, pieces=call)
        )
        scene.emit(Interrupted(at=AT))
        return ModelFinished(at=AT, request="unknown", stop=StopReason.END_TURN, usage=Usage())

    driver = driver_of(at_once, tool=ScriptedTools(look=str))
    await driven(driver)
    assert driver.machine.done
    assert driver.machine.memory.history[-1].results[0].outcome is Outcome.CANCELLED


# What is logged


async def test_each_step_is_logged_with_types_and_no_contents() -> None:
    with capture_logs() as lines:
        await driven(driver_of(ScriptedModel(says("secret")), session="s"))
    steps = [line for line in lines if line["event"] == "step"]
    assert [(line["step"], line["event_type"], line["state"], line["log_level"]) for line in steps] == [
        (1, "RunOpened", "streaming", "info"),
        (2, "ModelStreamed", "streaming", "debug"),
        (3, "ModelFinished", "done", "info"),
    ]
    assert {(line["session"], line["run"]) for line in steps} == {("s", "r")}
    assert steps[1]["effects"] == ["TextDelta"]
    assert "secret" not in str(lines)


async def test_a_handler_that_fails_is_logged_with_what_it_failed_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Any:
        raise KeyError

    driver = driver_of(ScriptedModel(stalls("")), session="s")
    driver.post(Interrupted(at=AT))
    with capture_logs() as lines:
        async for _ in told(driver):
            monkeypatch.setattr(streaming, "handle", broken)
    (line,) = [line for line in lines if line["event"] == "a handler failed"]
    assert (line["event_type"], line["state"], line["session"]) == ("Interrupted", "streaming", "s")
    assert (line["log_level"], line["error"]) == ("error", "KeyError")
    assert "in broken\n" in line["exception"]


# Performers that fail


@pytest.mark.parametrize("fault", [ValueError("bug"), ArgumentError("bug"), asyncio.CancelledError(), None])
async def test_a_performer_of_tools_that_fails_is_a_crashed_tool(fault: BaseException | None) -> None:
    """One that raises, and one that answers with something else: the run goes on."""

    async def broken(_: RunTool, __: PerformContext) -> Any:  # wrong on purpose
        if fault is not None:
            raise fault

    driver = driver_of(ScriptedModel(calls(("look", {})), says("sorry")), tool=broken)
    await driven(driver)
    history = driver.machine.memory.history
    assert history[2].results[0].outcome in {Outcome.CRASHED, Outcome.CANCELLED}
    assert fault is not None or "answered" in history[2].results[0].content
    assert history[-1].text == "sorry"


async def test_an_effect_without_a_performer_is_an_error_that_guesses_why() -> None:
    driver = Driver(machine=Machine.start(CONFIG, "go"), performers={})
    with pytest.raises(NoPerformer, match="no performer for CallModel: was one left out"):
        await driven(driver)


# Resting


def test_a_driver_that_was_not_driven_yet_does_not_rest() -> None:
    assert not driver_of(ScriptedModel()).resting


async def test_a_question_without_an_approver_rests_until_its_answer_is_posted() -> None:
    driver = driver_of(ScriptedModel(calls(("write", {})), says("ok")), tool=ScriptedTools(write=str))
    machine = driver.machine
    await driven(driver)
    assert machine.state.label == "confirming"
    driver.post(ApprovalGiven(at=AT, request=machine.state.open[0], decision=Deny(message="no")))
    await driven(driver, anew=False)
    assert machine.done


async def test_a_caller_that_waits_hears_each_time_a_run_rests() -> None:
    labels: list[str] = []

    def rested() -> None:
        labels.append(machine.state.label)
        assert driver.resting
        driver.post(ApprovalGiven(at=AT, request=machine.state.open[0], decision=Approve()))
        assert not driver.resting

    model = ScriptedModel(calls(("write", {}), ("write", {})), says("ok"))
    driver = driver_of(model, tool=ScriptedTools(write=str), rested=rested)
    machine = driver.machine
    await driven(driver, wait=True)
    assert labels == ["confirming", "confirming"]
    assert machine.done


async def test_a_driver_that_drains_begins_nothing_also_where_inputs_wait() -> None:
    model = ScriptedModel(says("hi"))
    driver = driver_of(model)
    driver.drain()
    driver.post(UserSent(at=AT, id="more", text="more"))
    await driven(driver, wait=True)
    assert model.requests == []
    assert driver.unbegun == driver.machine.state.open != ()


async def test_a_question_that_is_due_is_none_to_rest_on() -> None:
    """Its timer fires at once, and the run goes on."""
    clock, seen = ManualClock(AT), list[bool]()

    def rested() -> None:
        for seconds in (0.0, 59.0, 1.0):
            clock.move(seconds)
            seen.append(driver.resting)

    asks = attrs.evolve(CONFIG, policy=Policy(answer_within=60.0))
    driver = Driver(
        machine=Machine.start(asks, "go", run="r"),
        performers={CallModel: ScriptedModel(calls(("write", {})), says("ok")), SetTimer: sleep},
        clock=clock,
        rested=rested,
    )
    await driven(driver, wait=True)
    assert seen == [True, True, False]
    assert driver.machine.memory.history[-1].text == "ok"


def at_work(*tools: str) -> tuple[Machine, tuple[Effect, ...]]:
    """A machine that waits for a call of each of *tools*, and the effects by which it does."""
    machine = Machine.start(CONFIG, "go", run="r")
    machine.advance(at=AT)
    pieces = tuple([CallPiece(number, "w", tool, "{}") for number, tool in enumerate(tools)])
    stop = StopReason.TOOL_USE
    return machine, machine.advance(
        ModelFinished(at=AT, request="r-1", stop=stop, usage=Usage(), pieces=pieces)
    )


async def test_a_question_that_was_not_asked_is_no_work_that_did_not_begin() -> None:
    """The next owner asks it in any case, and need not be told."""
    machine, first = at_work("write")
    driver = Driver(machine=machine, performers={})
    driver.drain()
    async with asyncio.timeout(PATIENCE):
        assert [effects async for effects in driver.steps(first)] == [first]
    assert (machine.state.label, driver.unbegun) == ("confirming", ())


async def test_work_that_began_behind_what_waited_at_a_takeover_has_begun() -> None:
    machine, first = at_work("look")
    seen = list[tuple[str, ...]]()

    async def look(request: RunTool, _: PerformContext) -> ToolFinished:
        seen.append(driver.unbegun)
        return ToolFinished(at=AT, request=request.id, content="seen")

    driver = Driver(machine=machine, performers={RunTool: look, CallModel: ScriptedModel(says("ok"))})
    driver.post(UserSent(at=AT, id="more", text="more"))
    async with asyncio.timeout(PATIENCE):
        assert [
            effect async for effects in driver.steps(first) for effect in effects if ignored((effect,))
        ] == []
    assert seen == [()]


async def test_nothing_begins_where_the_run_was_left_while_its_step_was_kept() -> None:
    """Who goes on with it begins that."""
    began = list[str]()

    class Leaving(Recorder):
        async def keep(self, step: Step, /) -> int | None:
            number = await super().keep(step)
            if isinstance(step.event, ModelFinished):
                driver.inbox.close()
            return number

    def look(request: RunTool, _: PerformContext) -> asyncio.Future[Any]:
        began.append(request.tool)
        return asyncio.get_running_loop().create_future()

    driver = driver_of(ScriptedModel(calls(("look", {}))), tool=look, journal=Leaving())
    await driven(driver)
    assert (driver.machine.state.label, began) == ("executing", [])


class Kid:
    """Performs a child that rests the first *rests* times, and then works until it is stopped."""

    def __init__(self, rests: int) -> None:
        self.rests = rests
        self.begun = 0
        self.at_rest = set[str]()

    def resting(self, request: RunAgent) -> bool:
        return request.call in self.at_rest

    async def __call__(self, request: RunAgent, scene: PerformContext) -> AgentFinished | None:
        self.begun += 1
        if self.begun <= self.rests:
            return None
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
        at, spent = scene.clock.now(), Spent(seconds=2.0)
        return AgentFinished(
            at=at, request=request.id, content="stopped", outcome=Outcome.CANCELLED, spent=spent
        )


async def test_a_child_that_was_left_to_later_is_run_again_to_be_stopped() -> None:
    kid = Kid(1)
    driver = driver_of(ScriptedModel(HIRES), child=kid)
    await driven(driver)
    assert (driver.machine.state.label, driver.resting) == ("dispatching", True)
    driver.post(Interrupted(at=AT))
    await driven(driver, anew=False)
    assert driver.machine.done
    assert [result.content for result in driver.machine.memory.history[-1].results] == ["stopped"]
    assert driver.machine.memory.spent.seconds == 2.0
    assert kid.begun == 2


async def test_a_run_rests_when_its_child_says_that_it_does() -> None:
    kid, rested = Kid(0), list[str]()
    driver = driver_of(
        ScriptedModel(HIRES),
        child=kid,
        rested=lambda: rested.append("rested"),
    )
    async with asyncio.timeout(PATIENCE):
        async for effect in told(driver):
            if isinstance(effect, RunAgent):
                assert not driver.resting  # the child is still to be begun
                asyncio.get_running_loop().call_soon(kid.at_rest.add, effect.call)
                asyncio.get_running_loop().call_soon(driver.inbox.wake)
    assert driver.machine.state.label == "dispatching"
    assert rested == []  # it is over, since no caller waits


@pytest.mark.parametrize("fault", [ArgumentError("no decision"), ValueError("broken")])
async def test_an_approver_that_is_wrongly_made_ends_the_steps_and_one_that_fails_says_no(
    fault: Exception,
) -> None:
    async def approve(*_: object) -> Any:
        raise fault

    model = ScriptedModel(calls(("write", {})), says("well"))
    driver = driver_of(model, approver=approve, tool=ScriptedTools(write=str))
    if isinstance(fault, ArgumentError):
        with pytest.raises(ArgumentError, match="no decision"):
            await driven(driver)
        # The question stays open, for an approver that works.
        assert (driver.machine.state.label, len(driver.machine.state.open)) == ("confirming", 1)
        return
    await driven(driver)
    assert [one.outcome for one in driver.machine.memory.history[2].results] == [Outcome.DENIED]


# What waited at a takeover cancels what would be begun


async def dispatching() -> tuple[Machine, tuple[Effect, ...]]:
    """A machine that waits for a child, and the request by which it does."""
    driver = driver_of(ScriptedModel(HIRES), child=Kid(1))
    effects = await driven(driver)
    assert driver.machine.state.label == "dispatching"
    return driver.machine, tuple([effect for effect in effects if isinstance(effect, RunAgent)])


async def test_a_tool_that_is_cancelled_before_its_takeover_never_begins() -> None:
    machine, first = at_work("look")
    began = list[str]()

    def look(request: RunTool, _: PerformContext) -> asyncio.Future[Any]:
        began.append(request.tool)
        return asyncio.get_running_loop().create_future()

    performers: dict[type, Any] = {RunTool: look}
    driver = Driver(machine=machine, performers=performers)
    driver.post(STOP)
    async with asyncio.timeout(PATIENCE):
        async for _ in driver.steps(first):
            await turns(3)
    assert (machine.done, began) == (True, [])
    assert [one.outcome for one in machine.memory.history[-1].results] == [Outcome.CANCELLED]


async def test_a_child_that_is_cancelled_before_its_takeover_is_begun_to_be_stopped() -> None:
    """Only its own journal knows how far it came."""
    machine, first = await dispatching()
    kid = Kid(0)
    driver = Driver(machine=machine, performers={RunAgent: kid})
    driver.post(STOP)
    async with asyncio.timeout(PATIENCE):
        async for _ in driver.steps(first):
            await turns(3)
    assert (machine.done, kid.begun) == (True, 1)
    assert [one.content for one in machine.memory.history[-1].results] == ["stopped"]


async def test_a_child_that_is_cancelled_while_its_driver_drains_is_left_to_the_next_owner() -> None:
    machine, first = await dispatching()
    kid = Kid(0)
    driver = Driver(machine=machine, performers={RunAgent: kid})
    driver.drain()
    driver.post(STOP)
    async with asyncio.timeout(PATIENCE):
        async for _ in driver.steps(first, wait=True):
            await turns(3)
    assert (machine.done, kid.begun) == (False, 0)
    assert driver.unbegun == machine.state.open != ()


async def test_a_child_that_was_left_to_later_is_not_begun_again_while_its_driver_drains() -> None:
    kid = Kid(1)
    driver = driver_of(ScriptedModel(HIRES), child=kid)
    await driven(driver)
    driver.drain()
    driver.post(STOP)
    await driven(driver, anew=False, wait=True)
    assert (driver.machine.done, kid.begun) == (False, 1)


async def test_a_performer_that_raises_is_logged_and_one_that_is_cancelled_is_not() -> None:
    async def broken(_: RunTool, __: PerformContext) -> Any:
        raise faults.pop()

    faults: list[BaseException] = [asyncio.CancelledError(), ValueError("bug")]
    two = calls(("look", {}), ("look", {}))
    with capture_logs() as lines:
        await driven(driver_of(ScriptedModel(two, says("sorry")), tool=broken, session="s"))
    told = [line for line in lines if line["event"] == "a performer raised"]
    assert [(line["request"], line["session"]) for line in told] == [("RunTool", "s")]
    assert faults == []


async def test_a_reader_that_leaves_is_not_told_what_its_work_did_while_it_stopped() -> None:
    async def stubborn(*_: object) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("stopped")
            msg = "while it stopped"
            raise ZeroDivisionError(msg)

    ended = list[str]()
    driver = driver_of(ScriptedModel(calls(("look", {}))), tool=stubborn)
    async with asyncio.timeout(PATIENCE), aclosing(told(driver)) as effects:
        async for effect in effects:
            if isinstance(effect, ToolStarted):
                await turns(3)
                break
    assert ended == ["stopped"]


async def test_a_driver_that_is_left_ends_its_steps_and_applies_nothing_more() -> None:
    driver, left = driver_of(ScriptedModel(stalls("hm"))), list[State]()
    async with asyncio.timeout(PATIENCE):
        async for effect in told(driver, wait=True):
            if isinstance(effect, TextDelta):
                left.append(driver.machine.state)
                driver.leave()
    assert left == [driver.machine.state]


# When a step begins and when it is told


async def test_a_request_is_under_way_when_it_is_told() -> None:
    model = ScriptedModel(says("hi"))
    async for effect in told(driver_of(model)):
        if isinstance(effect, CallModel):
            await turns(3)
            assert model.requests == [effect]


async def test_a_run_that_was_opened_and_has_not_begun_begins() -> None:
    driver = driver_of(ScriptedModel(says("hi")))
    await driven(driver, anew=False)
    assert driver.machine.memory.history[-1].text == "hi"


async def test_a_wait_before_another_try_is_none_to_rest_on() -> None:
    model = ScriptedModel(fails(Failure.OVERLOADED), says("hi"))
    driver = driver_of(model, timer=sleep, clock=AutoClock(AT))
    await driven(driver)
    assert driver.machine.memory.history[-1].text == "hi"


async def test_a_run_does_not_rest_on_a_question_while_a_tool_is_at_work() -> None:
    may, parallel = asyncio.Event(), attrs.evolve(CONFIG, policy=Policy(concurrency="parallel"))

    async def look(request: RunTool, _: PerformContext) -> ToolFinished:
        await may.wait()
        return ToolFinished(at=AT, request=request.id, content="seen")

    model = ScriptedModel(calls(("look", {}), ("write", {})))
    machine = Machine.start(parallel, "go", run="r")
    driver = Driver(machine=machine, performers={CallModel: model, RunTool: look})
    seen = list[bool]()
    async for effect in told(driver):
        if isinstance(effect, AskApproval):
            await turns(3)
            seen.append(driver.resting)
            may.set()
    assert (seen, machine.state.label, driver.resting) == ([False], "confirming", True)


async def test_a_driver_that_drains_waits_for_the_work_that_has_begun() -> None:
    async def look(request: RunTool, _: PerformContext) -> ToolFinished:
        driver.drain()
        await turns(5)
        return ToolFinished(at=AT, request=request.id, content="seen")

    model = ScriptedModel(calls(("look", {})))
    driver = driver_of(model, tool=look)
    await driven(driver, wait=True)
    assert [one.content for one in driver.machine.memory.history[-1].results] == ["seen"]
    assert (len(model.requests), driver.unbegun) == (1, driver.machine.state.open)
