"""
The asyncio driver: yields effects, has them performed, feeds back what happened. It decides nothing.

Theory of operation. In each step the event moves the machine, the journal keeps the event, its requests are
performed, and then the effects are shown. So nothing is done or seen that a restart would not know of. Events
wait in an inbox; answers of performers, notices of tools and inputs from outside all come through it.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, assert_never, final

import attrs

from ..effects import is_request
from ..effects.errors import NoPerformer, WorldError
from ..effects.events import (
    AgentFinished,
    Answer,
    ApprovalGiven,
    Deny,
    Event,
    Failure,
    HookAnswered,
    InstructionsRead,
    ModelFailed,
    ModelFinished,
    ModelStreamed,
    TimerFired,
    ToolFinished,
    joined,
)
from ..effects.hooks import HookSaid
from ..effects.messages import Outcome
from ..effects.requests import (
    AskApproval,
    CallModel,
    Cancel,
    FireHook,
    ReadInstructions,
    Request,
    RunAgent,
    RunTool,
    SetTimer,
)
from ..performers.base import (
    LEAVING,
    Clock,
    PassThroughNotice,
    PerformContext,
    Performer,
    SystemClock,
    no_full_result,
    noop,
)
from ..states.rules import model_messages
from ..states.state import Confirming
from .transition import ignored

if TYPE_CHECKING:
    from ..effects import Effect
    from .machine import Machine

Performers = Mapping[type, Performer[Any]]
"""The performer of each type of request. Without one for `AskApproval`, questions wait for `Driver.post`."""


class EventSink(Protocol):
    """Where a driver writes down what happens; `SessionLog` is one."""

    async def applied(self, event: Event, label: str, effects: tuple[Effect, ...], /) -> None:
        """
        Keep *event*, which led to the state *label* with *effects*, before anything that follows is done.
        """
        ...

    async def flush(self) -> None:
        """Keep the pieces of a stream that were held back."""
        ...


class Hold(Enum):
    """Which requests are not begun: none, those from before a run was taken over, or all."""

    NOTHING = auto()
    AT_FIRST = auto()
    ALL = auto()


@final
@attrs.define(eq=False)
class RunningRequest:
    """A *request* that is being performed, by *task*; *stops* once it was told to stop."""

    request: Request
    task: asyncio.Future[Answer | None]
    resting: Callable[[Any], bool] | None
    stops: bool = attrs.field(default=False, init=False)

    def cancel(self) -> None:
        """Ask it to stop. Work that has not begun does not begin."""
        self.stops = True
        if self.resting is None:
            self.task.cancel()
        else:
            # Lasting work may have been done before, in a process that is gone, and only its own journal
            # knows how much. So it is let begin, which is to read that journal, and is stopped then.
            asyncio.get_running_loop().call_soon(self.task.cancel)


@final
@attrs.define(kw_only=True, eq=False)
class Driver:
    """
    Drives one *machine* with *performers*. One caller at a time may iterate `effects`.

    *journal* keeps what happens, if there is one; *session* names it in logs and to performers, for which
    *full_result* finds the full text of truncated results. *rested* is called each time the run rests.

    A performer that has a method ``resting(request)`` does lasting work, such as a child agent with a journal of
    its own: it may rest, may be left for later (it answers None), and is begun even to be stopped.
    """

    machine: Machine
    performers: Performers
    session: str = ""
    journal: EventSink | None = None
    clock: Clock = attrs.field(factory=SystemClock)
    inbox: Inbox = attrs.field(factory=lambda: Inbox())
    full_result: Callable[[str], Awaitable[str | None]] = no_full_result
    rested: Callable[[], None] = noop
    _work: dict[str, RunningRequest] = attrs.field(factory=dict, init=False)
    _left: dict[str, Request] = attrs.field(factory=dict, init=False)
    _begun: bool = attrs.field(default=False, init=False)
    _held: dict[str, Request] = attrs.field(factory=dict, init=False)
    _hold: Hold = attrs.field(default=Hold.NOTHING, init=False)

    def post(self, event: Event) -> None:
        """Put in an event from outside: an approval, an interrupt, a prompt. Never blocks."""
        self.inbox.put(event)

    def drain(self) -> None:
        """Begin nothing more: `effects` ends when the work under way has ended and is applied."""
        self._hold = Hold.ALL
        self.inbox.wake()

    @property
    def unbegun(self) -> tuple[str, ...]:
        """The open requests for work that is held back: no process has begun them."""
        held = {name for name, one in self._held.items() if not isinstance(one, AskApproval | SetTimer)}
        return tuple([name for name in self.machine.state.open if name in held])

    async def leave(self) -> None:
        """Stop the work, wait until it has stopped, and end `effects`; the run stays as it is kept."""
        self.inbox.close()
        await self._stop()

    @property
    def resting(self) -> bool:
        """Whether nothing goes on until an event is posted: all that is open are questions, a child's too."""
        # Between an event and the requests that follow from it, it is not known yet.
        return self._begun and not self.inbox and all(self._idle(work) for work in self._work.values())

    def _idle(self, work: RunningRequest) -> bool:
        """Whether *work* waits for people."""
        if work.resting is not None:
            return not work.stops and work.resting(work.request)
        # The only timers beside a question are the deadlines of questions.
        return isinstance(work.request, SetTimer) and isinstance(self.machine.state, Confirming)

    @property
    def _drained(self) -> bool:
        """Whether nothing more is to be begun, and all that is at work waits for people or for a time."""
        idle = all(isinstance(work.request, AskApproval | SetTimer) for work in self._work.values())
        return self._hold is Hold.ALL and idle and not self.inbox

    async def effects(self, first: tuple[Effect, ...], *, wait: bool = False) -> AsyncGenerator[Effect, None]:
        """
        Perform and yield *first*, then the effects of every step.

        It ends when the run is over, is drained, or rests and *wait* is false. *first* is what
        `Machine.advance` gave when the run began, or what is to be done again when a run is taken over.
        Leaving early cancels all work and waits for it to end; the journal knows what was open. Raises
        `StoreConflict` where another process went on with the session.
        """
        log = StepLog(self.session, self.machine)
        self._begun = False
        if self.inbox and self._hold is Hold.NOTHING:
            # Inputs that came before the run was taken over may stop what *first* would begin: they come first.
            self._hold = Hold.AT_FIRST
        effects = first
        try:
            # Closed while an event was being kept: what follows from it is for the next owner.
            while not self.inbox.closed:
                self._perform(effects)
                for effect in effects:
                    yield effect
                if self.machine.done or self._drained:
                    return
                self._release()
                self._begun = True
                if self.resting:
                    if not wait:
                        return
                    self.rested()
                event = await self.inbox.get()
                self._begun = False
                if event is None or isinstance(event, PassThroughNotice):
                    effects = () if event is None else (event,)
                    continue
                effects = self.machine.advance(event)
                # Written ahead: nothing that follows from the event is begun before the journal has it.
                if self.journal is not None and not ignored(effects):
                    await self.journal.applied(event, self.machine.state.label, effects)
                log.step(event, effects)
            if self._hold is Hold.ALL:
                self._perform(effects)
        finally:
            await self._stop()
            if self.journal is not None:
                with suppress(WorldError):  # what is lost is what a crash would lose
                    await self.journal.flush()

    def _perform(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            if is_request(effect) and self._hold is not Hold.NOTHING:
                self._held[effect.id] = effect
            elif is_request(effect):
                self._start(effect)
            elif isinstance(effect, Cancel):
                self._cancel(effect.request)

    def _release(self) -> None:
        """Begin what was held back at first, once no input from before is left."""
        if self._hold is Hold.AT_FIRST and not self.inbox:
            self._hold, held = Hold.NOTHING, self._held
            self._held = {}
            self._perform(tuple(held.values()))

    def _cancel(self, request: str) -> None:
        if self._hold is not Hold.ALL and (left := self._left.pop(request, None)) is not None:
            # It was left for later, so no task is there to cancel. What became of it is its own to say: it is
            # begun again, only to be stopped.
            self._start(left)
        if (held := self._held.get(request)) is not None:
            self._give_up(held)
        if (work := self._work.get(request)) is not None:
            work.cancel()

    def _give_up(self, held: Request) -> None:
        """Drop a request that is held back: it never begins, unless its work is lasting."""
        if self._resting(held) is None:
            del self._held[held.id]
            if (answer := failed_answer(held, asyncio.CancelledError(), self.clock.now())) is not None:
                self.inbox.put(answer)
        elif self._hold is not Hold.ALL:
            # It may have been at work in a process that is gone: it begins, and is then told to stop.
            del self._held[held.id]
            self._start(held)

    def _resting(self, request: Request) -> Callable[[Any], bool] | None:
        """The method of lasting work that says whether it rests; None for any other work."""
        return getattr(self.performers.get(type(request)), "resting", None)

    def _start(self, request: Request) -> None:
        performer = self.performers.get(type(request))
        if performer is not None:
            scene = PerformContext(
                session=self.session,
                run=self.machine.memory.run,
                config=self.machine.config,
                history=self.machine.memory.history,
                clock=self.clock,
                emit=self.inbox.put,
                full_result=self.full_result,
            )
            task = asyncio.ensure_future(performer(request, scene))
            self._work[request.id] = RunningRequest(request, task, self._resting(request))
            # A callback and not a wrapper: a task cancelled before its first step runs no line of its own.
            task.add_done_callback(partial(self._ended, request))
        elif not isinstance(request, AskApproval):
            raise NoPerformer(type(request).__name__)

    def _ended(self, request: Request, task: asyncio.Future[Answer | None]) -> None:
        work = self._work.pop(request.id)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        now = self.clock.now()
        answer: Event | None
        if error is not None:
            answer = failed_answer(request, error, now)
        elif task.result() is None and work.resting is not None:
            # Left for later: its questions are open, and it goes on when they are answered.
            self._left[request.id], answer = request, None
        else:
            answer = check_answer(request, task.result(), now)
        if answer is None:
            self.inbox.wake()  # one request fewer is at work: the run may rest now
        else:
            self.inbox.put(answer)

    async def _stop(self) -> None:
        tasks = [work.task for work in self._work.values()]
        for task in tasks:
            task.cancel(LEAVING)
        await asyncio.gather(*tasks, return_exceptions=True)


@final
class Inbox:
    """
    A queue of events with one reader. Putting never blocks, and may be done from the event loop only.

    Pieces of one stream that wait next to each other come out as one event: however many deltas have been
    read from the network, they are one step.
    """

    def __init__(self) -> None:
        self._waiting: deque[Event | PassThroughNotice] = deque()
        self._reader: asyncio.Future[None] | None = None
        self.closed = False
        self._woken = False

    def put(self, event: Event | PassThroughNotice) -> None:
        """Add *event* behind the others."""
        self._waiting.append(event)
        self._set()

    def wake(self) -> None:
        """Let the reader look around, although there is nothing to read."""
        self._woken = True
        self._set()

    def close(self) -> None:
        """Give out nothing any more."""
        self.closed = True
        self._set()

    def _set(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    async def get(self) -> Event | PassThroughNotice | None:
        """The next event; waits for one. None when it is closed, or when it is woken where there is none."""
        while not (self._waiting or self.closed or self._woken):
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        self._woken = False
        if self.closed or not self._waiting:
            return None
        first = self._waiting.popleft()
        return self._gathered(first) if isinstance(first, ModelStreamed) else first

    def _gathered(self, first: ModelStreamed) -> ModelStreamed:
        run = [first]
        expected = first.before + first.count
        while self._waiting:
            following = self._waiting[0]
            if not isinstance(following, ModelStreamed) or following.before != expected:
                break
            if following.request != first.request:
                break
            expected += following.count
            run.append(following)
            self._waiting.popleft()
        return joined(run)


ANSWERS: dict[type[Request], tuple[type[Event], ...]] = {
    CallModel: (ModelFinished, ModelFailed),
    RunTool: (ToolFinished,),
    AskApproval: (ApprovalGiven,),
    FireHook: (HookAnswered,),
    ReadInstructions: (InstructionsRead,),
    RunAgent: (AgentFinished,),
    SetTimer: (TimerFired,),
}
"""The events that answer each type of request."""


def check_answer(request: Request, answer: Answer | None, at: float) -> Event | None:
    """
    *answer* to *request*; a failure where it is not one, so that no run waits for ever for a broken performer.

    None is an answer to a question only: this approver leaves it to another one.
    """
    if answer is None and isinstance(request, AskApproval):
        return None
    if isinstance(answer, ANSWERS[type(request)]) and answer.request == request.id:
        return _honest(request, answer)
    fault = TypeError(f"the performer of {type(request).__name__} answered {request.id} with {answer!r}")
    return failed_answer(request, fault, at)


def failed_answer(  # noqa: PLR0911  # one return for each kind of request
    request: Request, error: BaseException, at: float
) -> Event | None:
    """
    The answer that stands for *error*, raised by the performer of *request*; None where the request dies.
    """
    cancelled = isinstance(error, asyncio.CancelledError)
    match request:
        case CallModel():
            failure = Failure.CANCELLED if cancelled else Failure.INTERNAL
            return ModelFailed(at=at, request=request.id, failure=failure, message=_error_text(error))
        case RunTool():
            content, outcome = _work(error, cancelled=cancelled)
            return _honest(request, ToolFinished(at=at, request=request.id, content=content, outcome=outcome))
        case RunAgent():
            content, outcome = _work(error, cancelled=cancelled)
            return AgentFinished(at=at, request=request.id, content=content, outcome=outcome)
        case AskApproval():
            # No person said yes, so a broken approver is a no.
            message = f"The approver failed: {_error_text(error)}"
            return (
                None
                if cancelled
                else ApprovalGiven(at=at, request=request.id, decision=Deny(message=message))
            )
        case FireHook():
            said = tuple([HookSaid(name=name, fault=_error_text(error)) for name in request.names])
            return None if cancelled else HookAnswered(at=at, request=request.id, said=said)
        case ReadInstructions():
            faults = (f"the instructions cannot be read: {_error_text(error)}",)
            return None if cancelled else InstructionsRead(at=at, request=request.id, text="", faults=faults)
        case SetTimer():
            # A clock that fails: late or early is better than never.
            return None if cancelled else TimerFired(at=at, request=request.id)
        case _:
            assert_never(request)


def _honest(request: Request, answer: Answer) -> Answer:
    """*answer* to *request*; where an earlier try may have done the work, one that failed says so, too."""
    if not isinstance(request, RunTool) or not isinstance(answer, ToolFinished) or not request.again:
        return answer
    match answer.outcome:
        case Outcome.OK | Outcome.UNKNOWN:
            return answer
        case Outcome.CANCELLED:
            outcome = Outcome.UNKNOWN
        case outcome:
            pass
    return attrs.evolve(answer, outcome=outcome, content=model_messages.run_again(answer.content))


def _work(error: BaseException, *, cancelled: bool) -> tuple[str, Outcome]:
    if cancelled:
        return model_messages.CANCELLED, Outcome.CANCELLED
    return f"Tool execution crashed: {_error_text(error)}", Outcome.CRASHED


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def logger(session: str) -> Any:  # noqa: ANN401  # whatever structlog was configured with
    """
    The log of *session*, or None: a library logs nothing before its host called `structlog.configure`.
    """
    # A host that has not imported structlog has not configured it, and need not wait for the import.
    structlog = sys.modules.get("structlog")
    if structlog is None or not structlog.is_configured():
        return None
    return structlog.get_logger("turnwheel").bind(session=session)


@final
class StepLog:
    """
    Writes the steps of one run, bound to its session and run.

    Pieces of a stream are written at debug level, everything else at info.
    """

    __slots__ = ("_log", "_machine", "_number")

    def __init__(self, session: str, machine: Machine) -> None:
        self._machine = machine
        self._number = 0
        self._log = logger(session)
        if self._log is not None:
            self._log = self._log.bind(run=machine.memory.run)

    def step(self, event: Event, effects: tuple[Effect, ...]) -> None:
        """Write that *event* was applied and gave *effects*."""
        self._number += 1
        if self._log is None:
            return
        say = self._log.debug if isinstance(event, ModelStreamed) else self._log.info
        say(
            "step",
            step=self._number,
            event_type=type(event).__name__,
            state=self._machine.state.label,
            effects=[type(effect).__name__ for effect in effects],
        )
