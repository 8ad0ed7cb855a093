"""The asyncio driver adds nothing: what it does, a synchronous loop of twenty lines does too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import Any

import pytest

from turnwheel.effects import Effect, is_request
from turnwheel.effects.config import ChildSpec, Config, ModelSpec, Retries, ToolSpec
from turnwheel.effects.errors import NoPerformer
from turnwheel.effects.events import (
    AgentFinished,
    ApprovalGiven,
    Approve,
    Deny,
    Event,
    Failure,
    Interrupted,
    ModelFailed,
    ModelFinished,
    ModelStreamed,
    TimerFired,
    ToolFinished,
    UserSent,
)
from turnwheel.effects.messages import Outcome, Role, StopReason
from turnwheel.effects.notices import (
    AnswerDropped,
    DoneReason,
    RunEnded,
    TextDelta,
)
from turnwheel.effects.pieces import CallPiece, TextPiece
from turnwheel.effects.requests import (
    AskApproval,
    CallModel,
    Request,
    RunAgent,
    RunTool,
    SetTimer,
)
from turnwheel.effects.usage import Spent, Usage
from turnwheel.engine.agent import sleep
from turnwheel.engine.driver import Driver
from turnwheel.engine.journal.encoding import encode_entry
from turnwheel.engine.journal.entries import Stepped
from turnwheel.engine.journal.fold import fold
from turnwheel.engine.machine import Machine, drive
from turnwheel.engine.session.session_log import SessionLog
from turnwheel.engine.transition import ignored
from turnwheel.performers.base import PerformContext, Performer
from turnwheel.performers.stores.memory import MemoryStore
from turnwheel.states.state import Done
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.scripted import (
    ScriptedModel,
    ScriptedTools,
    calls,
    fails,
    says,
    stalls,
)

CONFIG = Config(
    model=ModelSpec(name="scripted"),
    tools=(ToolSpec(name="look", side_effect="read_only"), ToolSpec(name="write")),
    retries=Retries(base=1.0, jitter=0.0),
)
AT = 100.0

World = Callable[[Request], list[Event]]


def the_world() -> World:
    """A world in which a model fails once, calls two tools, is allowed one of them, and answers."""
    usage = Usage(input=7, output=3)
    two_calls = (CallPiece(0, "a", "look", "{}"), CallPiece(1, "b", "write", "{}"))

    def streamed(request: str, before: int, *texts: str) -> ModelStreamed:
        pieces = tuple([TextPiece(text) for text in texts])
        return ModelStreamed(at=AT, request=request, before=before, count=len(pieces), pieces=pieces)

    models: list[Callable[[str], list[Event]]] = [
        lambda id_: [ModelFailed(at=AT, request=id_, failure=Failure.SERVER, message="boom")],
        lambda id_: [
            streamed(id_, 0, "let me "),
            streamed(id_, 1, "see"),
            ModelFinished(at=AT, request=id_, stop=StopReason.TOOL_USE, usage=usage, pieces=two_calls),
        ],
        lambda id_: [
            streamed(id_, 0, "all ", "done"),
            ModelFinished(at=AT, request=id_, stop=StopReason.END_TURN, usage=usage),
        ],
    ]

    def answer(request: Request) -> list[Event]:
        match request:
            case CallModel():
                return models.pop(0)(request.id)
            case RunTool():
                return [ToolFinished(at=AT, request=request.id, content=request.tool, seconds=0.5)]
            case AskApproval():
                return [ApprovalGiven(at=AT, request=request.id, decision=Approve())]
            case SetTimer():
                return [TimerFired(at=request.due, request=request.id)]
            case _:
                raise AssertionError(request)

    return answer


def synchronous(world: World) -> tuple[list[Effect], list[bytes]]:
    """A loop without an event loop: performs, journals, feeds back."""
    machine = Machine.start(CONFIG, "go", run="r")
    effects: list[Effect] = []
    journal: list[bytes] = []
    waiting: list[Event] = []
    engine = drive(machine, at=AT)
    step = next(engine)
    while True:
        effects.extend(step)
        for effect in step:
            if is_request(effect):
                waiting.extend(world(effect))
        if isinstance(machine.state, Done):
            return effects, journal
        event = waiting.pop(0)
        step = engine.send(event)
        journal.append(encode_entry(Stepped(event=event, label=machine.state.label)))


class Recorder:
    """A journal that keeps every applied event as it is."""

    def __init__(self) -> None:
        self.entries: list[bytes] = []

    async def applied(self, event: Event, label: str, *_: object) -> None:
        """Keep *event*."""
        self.entries.append(encode_entry(Stepped(event=event, label=label)))

    async def flush(self) -> None:
        """Nothing is held back."""


async def asynchronous(world: World) -> tuple[list[Effect], list[bytes]]:
    """The same script through `Driver`."""

    async def perform(request: Request, scene: PerformContext) -> Any:  # the answers of four kinds
        *before, last = world(request)
        for event in before:
            scene.emit(event)
            while driver.inbox:  # noqa: ASYNC110  # let each piece be its own step, as in the loop above
                await asyncio.sleep(0)
        return last

    machine = Machine.start(CONFIG, "go", run="r")
    recorder = Recorder()
    performers = dict.fromkeys((CallModel, RunTool, AskApproval, SetTimer), perform)
    driver = Driver(
        machine=machine,
        performers=performers,
        journal=recorder,
        clock=AutoClock(AT),
    )
    return [effect async for effect in driver.effects(machine.advance(at=AT))], recorder.entries


async def test_the_driver_and_a_synchronous_loop_give_equal_journals_and_effects() -> None:
    """What keeps policy out of the driver: the same script gives the same bytes."""
    assert synchronous(the_world()) == await asynchronous(the_world())


async def test_a_journal_folds_to_the_machine_that_wrote_it() -> None:
    """State, memory and history come back from the store, and stream pieces are one entry."""
    store = MemoryStore()
    log = SessionLog("one", store)
    await log.read()
    await log.post(UserSent(at=AT, id="s", text="go"))
    first = await log.open_run("r", CONFIG, AT)
    machine = log.state.machine
    assert machine is not None
    performers: dict[type, Performer[Any]] = {
        CallModel: ScriptedModel(calls(("look", {}), text="one two"), says("a b c")),
        RunTool: ScriptedTools(look=str),
    }
    driver = Driver(machine=machine, performers=performers, journal=log, clock=AutoClock(AT))

    async for _ in driver.effects(first):
        pass

    entries = await store.load("one")
    assert machine == fold(entries, "one").machine
    assert len(entries) == 7  # posted, opened, pieces, finished, tool, pieces, finished


async def test_pieces_that_wait_together_are_one_step() -> None:
    """However many deltas were read, they are one event, and every one of them is shown."""

    async def burst(request: CallModel, scene: PerformContext) -> ModelFinished:
        for before in range(100):
            piece = (TextPiece("x"),)
            scene.emit(ModelStreamed(at=AT, request=request.id, before=before, count=1, pieces=piece))
        return ModelFinished(at=AT, request=request.id, stop=StopReason.END_TURN, usage=Usage(input=1))

    machine = Machine.start(CONFIG, "go")
    recorder = Recorder()
    driver = Driver(machine=machine, performers={CallModel: burst}, journal=recorder)

    shown = [
        effect async for effect in driver.effects(machine.advance(at=AT)) if isinstance(effect, TextDelta)
    ]

    assert len(shown) == 100
    assert len(recorder.entries) == 2


async def test_events_that_do_not_apply_are_not_journaled() -> None:
    """Late, repeated and foreign events leave no trace but a notice."""
    machine = Machine.start(CONFIG, "go")
    recorder = Recorder()
    driver = Driver(machine=machine, performers={CallModel: ScriptedModel(says("hi"))}, journal=recorder)
    driver.post(ToolFinished(at=AT, request="nobody", content=""))

    effects = [effect async for effect in driver.effects(machine.advance(at=AT))]

    assert sum(ignored((effect,)) for effect in effects) == 1
    assert not any(b"nobody" in entry for entry in recorder.entries)


async def test_leaving_early_ends_the_work_and_does_not_hang() -> None:
    """Whoever stops iterating leaves no task behind."""
    machine = Machine.start(CONFIG, "go")
    driver = Driver(machine=machine, performers={CallModel: stalls_model()})
    before = asyncio.all_tasks()

    async with aclosing(driver.effects(machine.advance(at=AT))) as effects:
        async for effect in effects:
            if isinstance(effect, TextDelta):
                break

    assert before == asyncio.all_tasks()


def stalls_model() -> ScriptedModel:
    """A model that says a word and then nothing."""
    return ScriptedModel(stalls("hm"))


async def test_an_interrupt_keeps_what_was_read() -> None:
    """The partial text is in the history and the run ends interrupted."""
    machine = Machine.start(CONFIG, "go")
    driver = Driver(machine=machine, performers={CallModel: stalls_model()})

    ended: RunEnded | None = None
    async for effect in driver.effects(machine.advance(at=AT)):
        if isinstance(effect, TextDelta):
            driver.post(Interrupted(at=AT))
        if isinstance(effect, RunEnded):
            ended = effect

    assert ended is not None
    assert DoneReason.INTERRUPTED is ended.reason
    assert machine.memory.history[-1].text == "hm"


@pytest.mark.parametrize("fault", [ValueError("bug"), asyncio.CancelledError()])
async def test_a_tool_performer_that_raises_is_a_crashed_tool(fault: BaseException) -> None:
    """A bug in a performer is an answer, and the run goes on."""

    async def broken(_: RunTool, __: PerformContext) -> ToolFinished:
        raise fault

    machine = Machine.start(CONFIG, "go")
    model = ScriptedModel(calls(("look", {})), says("sorry"))
    driver = Driver(machine=machine, performers={CallModel: model, RunTool: broken})

    async for _ in driver.effects(machine.advance(at=AT)):
        pass

    results = next(message for message in machine.memory.history if message.role is Role.TOOL).results
    assert results[0].outcome in {Outcome.CRASHED, Outcome.CANCELLED}
    assert machine.memory.history[-1].text == "sorry"


async def test_work_that_is_cancelled_before_it_began_still_answers() -> None:
    """An interrupt that comes with the answer that starts a tool does not leave the run waiting."""
    machine = Machine.start(CONFIG, "go")

    async def at_once(request: CallModel, scene: PerformContext) -> ModelFinished:
        scene.emit(
            ModelFinished(
                at=AT,
                request=request.id,
                stop=StopReason.TOOL_USE,
                usage=Usage(input=1),
                pieces=(CallPiece(0, "a", "look", "{}"),),
            )
        )
        scene.emit(Interrupted(at=AT))
        return ModelFinished(at=AT, request="nobody's", stop=StopReason.END_TURN, usage=Usage())

    driver = Driver(machine=machine, performers={CallModel: at_once, RunTool: ScriptedTools(look=str)})
    async with asyncio.timeout(5):
        async for _ in driver.effects(machine.advance(at=AT)):
            pass

    assert isinstance(machine.state, Done)
    assert machine.memory.history[-1].results[0].outcome is Outcome.CANCELLED


async def test_an_approver_that_raises_is_a_no() -> None:
    """An error is never taken for consent."""

    async def broken(_: AskApproval, __: PerformContext) -> ApprovalGiven:
        msg = "the window is gone"
        raise RuntimeError(msg)

    machine = Machine.start(CONFIG, "go")
    model = ScriptedModel(calls(("write", {})), says("ok"))
    tools = ScriptedTools(write=str)
    driver = Driver(machine=machine, performers={CallModel: model, AskApproval: broken, RunTool: tools})

    async for _ in driver.effects(machine.advance(at=AT)):
        pass

    assert tools.ran == []
    assert Outcome.DENIED is machine.memory.history[2].results[0].outcome
    assert "the window is gone" in machine.memory.history[2].results[0].content


async def test_a_question_that_nobody_performs_rests_until_it_is_posted() -> None:
    """Without an approver the driver returns; an answer posted meanwhile is taken up."""
    machine = Machine.start(CONFIG, "go")
    model = ScriptedModel(calls(("write", {})), says("ok"))
    driver = Driver(machine=machine, performers={CallModel: model, RunTool: ScriptedTools(write=str)})

    async for _ in driver.effects(machine.advance(at=AT)):
        pass
    assert machine.state.label == "confirming"

    driver.post(ApprovalGiven(at=AT, request=machine.state.open[0], decision=Deny(message="no")))
    async for _ in driver.effects(()):
        pass
    assert isinstance(machine.state, Done)


async def test_an_effect_that_nobody_performs_is_an_error_that_guesses_why() -> None:
    """A driver without a model says so."""
    machine = Machine.start(CONFIG, "go")
    driver = Driver(machine=machine, performers={})

    with pytest.raises(NoPerformer, match="no performer for CallModel: was one left out"):
        async for _ in driver.effects(machine.advance(at=AT)):
            pass


async def test_a_failed_stream_is_dropped_and_waits_are_on_the_clock() -> None:
    """A retry sleeps by the clock it was given, and nothing of a failed answer is in the history."""
    clock = AutoClock(AT)
    machine = Machine.start(CONFIG, "go")
    model = ScriptedModel(
        fails(Failure.OVERLOADED),
        fails(Failure.RATE_LIMIT, retry_after=7.0),
        fails(Failure.CUT, after="half"),
    )
    driver = Driver(machine=machine, performers={CallModel: model, SetTimer: sleep}, clock=clock)

    effects = [effect async for effect in driver.effects(machine.advance(at=AT))]

    assert clock.slept == [1.0, 7.0]
    assert any(isinstance(effect, AnswerDropped) for effect in effects)
    assert [message.text for message in machine.memory.history] == ["go"]


# Children


TEAM = Config(
    model=ModelSpec(name="scripted"),
    tools=(
        ToolSpec(name="look", side_effect="read_only"),
        ToolSpec(name="hire", kind="agent", approval="never"),
    ),
    children=(ChildSpec(name="kid"),),
)
HIRES = calls(("hire", {"agent": "kid", "prompt": "go"}))


class Kid:
    """Performs a child that rests the first *rests* times, and then works until it is told to stop."""

    def __init__(self, rests: int) -> None:
        self.rests = rests
        self.begun = 0
        self.at_rest = set[str]()

    def resting(self, request: RunAgent) -> bool:
        return request.call in self.at_rest

    async def __call__(self, request: RunAgent, scene: PerformContext) -> AgentFinished | None:
        """Leave it to later, or work until it is told to stop."""
        self.begun += 1
        if self.begun <= self.rests:
            return None
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
        return AgentFinished(
            at=scene.clock.now(),
            request=request.id,
            content="stopped",
            outcome="cancelled",
            spent=Spent(seconds=2.0),
        )


async def test_a_run_rests_where_a_child_is_left_to_later() -> None:
    """Nobody works on it any more, whatever else was at work."""
    machine = Machine.start(TEAM, "go")
    driver = Driver(machine=machine, performers={CallModel: ScriptedModel(HIRES), RunAgent: Kid(1)})
    async with asyncio.timeout(5):
        async for _ in driver.effects(machine.advance(at=AT)):
            pass
    assert (machine.state.label, driver.resting) == ("dispatching", True)


async def test_a_child_that_was_left_to_later_is_run_again_to_be_stopped() -> None:
    """What became of it is its own answer, with what it used."""
    machine, kid = Machine.start(TEAM, "go"), Kid(1)
    driver = Driver(machine=machine, performers={CallModel: ScriptedModel(HIRES), RunAgent: kid})
    async with asyncio.timeout(5):
        async for _ in driver.effects(machine.advance(at=AT)):
            pass
        driver.post(Interrupted(at=AT))
        async for _ in driver.effects(()):
            pass
    assert isinstance(machine.state, Done)
    assert [result.content for result in machine.memory.history[-1].results] == ["stopped"]
    assert machine.memory.spent.seconds == 2.0
    assert kid.begun == 2


async def test_a_run_rests_when_its_child_says_that_it_does() -> None:
    """A driver is told so of children by whoever knows; a nudge lets it look."""
    machine, kid = Machine.start(TEAM, "go"), Kid(0)
    rested: list[str] = []
    driver = Driver(
        machine=machine,
        performers={CallModel: ScriptedModel(HIRES), RunAgent: kid},
        rested=lambda: rested.append("told"),
    )
    async with asyncio.timeout(5):
        async for effect in driver.effects(machine.advance(at=AT)):
            if isinstance(effect, RunAgent):
                assert not driver.resting  # what follows is still to be begun
                asyncio.get_running_loop().call_soon(kid.at_rest.add, effect.call)
                asyncio.get_running_loop().call_soon(driver.inbox.wake)
    assert machine.state.label == "dispatching"
    assert rested == []  # it is over, since nobody waits


async def test_who_waits_is_told_each_time_a_run_rests() -> None:
    """And goes on when an answer comes."""
    machine, told = Machine.start(CONFIG, "go"), list[str]()

    def rested() -> None:
        told.append(machine.state.label)
        assert driver.resting
        driver.post(ApprovalGiven(at=AT, request=machine.state.open[0], decision=Approve()))
        assert not driver.resting

    performers: dict[type, Performer[Any]] = {
        CallModel: ScriptedModel(calls(("write", {}), ("write", {})), says("ok")),
        RunTool: ScriptedTools(write=str),
    }
    driver = Driver(machine=machine, performers=performers, rested=rested)
    async with asyncio.timeout(5):
        async for _ in driver.effects(machine.advance(at=AT), wait=True):
            pass
    assert told == ["confirming", "confirming"]
    assert machine.done
