"""
The asyncio driver: starts performers, feeds their answers to the machine, and yields what each step did.

Theory of operation. In each step the machine computes what the event leads to, the journal keeps and commits
it, and its requests are started. The effects are for the caller. So nothing is done or seen that a restart
would not know of. All events wait in one inbox: answers of performers, notices of tools, inputs from outside.
The driver decides nothing: the order of the inbox and the machine do.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, final

import attrs

from ..effects import Effect
from ..effects.errors import AnswerRefused, ArgumentError, NoPerformer, WorldError
from ..effects.events import Answer, Entered, Event, ModelStreamed, joined
from ..effects.notices import RunStarted
from ..effects.requests import AskApproval, Cancel, Request, RunTool, SetTimer, orders_in
from ..performers.answers import answer_fault, check_answer, failed_answer
from ..performers.base import (
    LEAVING,
    Clock,
    PassThroughNotice,
    PerformContext,
    Performers,
    SystemClock,
    no_full_result,
    noop,
)
from ..performers.logs import FaultLog, Redact, listens, warn, write
from ..performers.stores.base import Store
from .core.machine import Machine, Step, error_line, ignored, is_deadline

if TYPE_CHECKING:
    from ..performers.telemetry.run_trace import RunTrace


@final
class Overtaken(Exception):  # no error: its name says what became of the step
    """A step is not kept: the events *by* come first, and its event then leads to another one."""

    def __init__(self, by: tuple[Event, ...]) -> None:
        super().__init__(by)
        self.by = by


class StepSink(Protocol):
    """Keeps the steps of a driver; `SessionLog` is one."""

    async def keep(self, step: Step, /) -> int | None:
        """
        Keep *step*, and then commit it; the number of the latest entry, None without a journal.

        Raises `Overtaken` for a step that is not to be kept.
        """
        ...

    async def flush(self) -> None:
        """Keep the pieces of a stream that were held back so far."""
        ...


@attrs.define(eq=False)
class Unkept:
    """Commits steps to *machine*, and keeps none of them: a `StepSink` without a journal."""

    machine: Machine

    async def keep(self, step: Step, /) -> int | None:
        """Commit *step*."""
        self.machine.commit(step)
        return None

    async def flush(self) -> None:
        """Nothing is held back."""


def _always(_: object) -> bool:
    return True


class Hold(Enum):
    """Which requests are held back: none, those of a run just taken over, or all."""

    NOTHING = auto()
    # Inputs that came before the takeover are applied first: one of them may cancel the request.
    AT_FIRST = auto()
    # While the driver drains: the next owner begins them.
    ALL = auto()


@final
@attrs.define(eq=False)
class RunningRequest:
    """A *request* that *task* performs; *stops* is set once it was cancelled."""

    request: Request
    task: asyncio.Future[Answer | None]
    resting: Callable[[Any], bool] | None
    stops: bool = attrs.field(default=False, init=False)

    def cancel(self) -> None:
        """Cancel the task. Work that has not begun does not begin, unless it is lasting."""
        self.stops = True
        if self.resting is None:
            # The answer says that it was cancelled, and comes through the inbox like any other.
            self.task.cancel()
        else:
            # Another process may have begun this work, and only its own journal knows how far it came. One
            # turn of the loop lets the performer start. Then the cancel reaches it, and it stops what that
            # journal shows.
            asyncio.get_running_loop().call_soon(self.task.cancel)


@final
class Inbox:
    """
    A queue of events with one reader. Putting never blocks, and may be done from the event loop only.

    *admits* says whether an event may be applied now, and for None whether the run may end here: a caller
    that cannot show more yet has it wait, and calls `room` later. What stands before an input from outside is
    let in with it. Neighbouring pieces of one stream come out as one event: a fast model costs one step for
    many deltas.
    """

    def __init__(self, admits: Callable[[Event | PassThroughNotice | None], bool] = _always) -> None:
        self.admits = admits
        self.waiting: deque[Event | PassThroughNotice] = deque()
        self._news = asyncio.Event()
        self.closed = False
        # What it was closed for, if anything went wrong.
        self.error: BaseException | None = None
        # How many of those that wait, from the first on, are let in whatever *admits* says; None for all.
        self._urgent: int | None = 0
        # Whether the reader is to look at the driver's state.
        self._woken = False

    def put(self, event: Event | PassThroughNotice) -> None:
        """Add *event* behind the others."""
        self.waiting.append(event)
        self._news.set()

    def post(self, event: Event) -> None:
        """Add *event* of a person, and let it in with all that stands before it."""
        self.put(event)
        if self._urgent is not None:
            self._urgent = len(self.waiting)

    def again(self, *events: Event) -> None:
        """Put *events* before all others, and let them in."""
        self.waiting.extendleft(reversed(events))
        if self._urgent is not None:
            self._urgent += len(events)
        self._news.set()

    def hurry(self) -> None:
        """Let all events in from now on."""
        self._urgent = None
        self._news.set()

    def room(self) -> None:
        """Ask again whether the first event is let in."""
        self._news.set()

    def wake(self) -> None:
        """Let `get` return None where no event waits, so that the reader looks at the driver's state."""
        self._woken = True
        self._news.set()

    def close(self, error: BaseException | None = None) -> None:
        """Give out no event any more; the driver raises *error*. Only the first call counts."""
        if not self.closed:
            self.closed, self.error = True, error
        self._news.set()

    async def get(self) -> Event | PassThroughNotice | None:
        """The next event; None when it is closed, or woken while empty."""
        # Closed comes first: what is left in the queue is journaled, or the next owner asks for it anew.
        while not self.closed:
            # Do not await when an event is let in already: each piece of a stream would pay for it.
            if not self.waiting:
                if self._woken:
                    self._woken = False
                    return None
            elif self._urgent is None or self._urgent > 0 or self.admits(self.waiting[0]):
                break
            self._news.clear()
            await self._news.wait()
        else:
            return None
        first = self.waiting.popleft()
        if self._urgent:
            self._urgent -= 1
        # A wake is for a reader that finds nothing: this one looks behind its event.
        self._woken = False
        return self._gathered(first) if isinstance(first, ModelStreamed) else first

    async def settle(self, *, inputs: bool = True) -> None:
        """Wait until the latest effects were shown; with *inputs* not where one of a person came."""
        while not (self.closed or self._urgent is None or (inputs and self._urgent) or self.admits(None)):
            self._news.clear()
            await self._news.wait()

    def _gathered(self, first: ModelStreamed) -> ModelStreamed:
        # Only what follows without a gap: a repeated or lost piece must stay an event of its own, which the
        # machine can refuse.
        run = [first]
        expected = first.before + first.count
        while self.waiting:
            following = self.waiting[0]
            if not isinstance(following, ModelStreamed) or following.before != expected:
                break
            if following.request != first.request:
                break
            expected += following.count
            run.append(following)
            self.waiting.popleft()
            if self._urgent:
                self._urgent -= 1
        return joined(run)


@final
@attrs.define(kw_only=True, eq=False)
class Driver:
    """
    Drives one *machine* with *performers*. One caller at a time may iterate `steps`, or call `next`.

    *journal* keeps the steps; *session* and *store* are for logs and performers. *full_result* finds the full
    text of truncated results. *rested* is called each time the run rests. *entry* is the number of the
    journal's entry that the latest effects come from, None without a journal. *redact* takes the
    secrets out of what is logged. With *raises*, what the host's code raises ends the work, and `next` raises
    it. *trace* makes the spans of the run, where they are wanted.

    A performer with a method ``resting(request)`` does lasting work, such as a child agent with a journal of
    its own: it may rest, it may answer None to go on later, and it is begun even to be stopped.
    """

    machine: Machine
    performers: Performers
    session: str = ""
    journal: StepSink = attrs.field(default=attrs.Factory(lambda self: Unkept(self.machine), takes_self=True))
    clock: Clock = attrs.field(factory=SystemClock)
    inbox: Inbox = attrs.field(factory=Inbox)
    full_result: Callable[[str], Awaitable[str | None]] = no_full_result
    store: Store | None = None
    rested: Callable[[], None] = noop
    entry: int | None = None
    redact: Redact | None = None
    raises: bool = False
    trace: RunTrace | None = None
    _work: dict[str, RunningRequest] = attrs.field(factory=dict, init=False)
    # Lasting work that answered None: no task has it, and its request is still open.
    _left: dict[str, Request] = attrs.field(factory=dict, init=False)
    # True when all requests of the last event have begun. Before that it is unknown whether the run rests.
    _begun: bool = attrs.field(default=False, init=False)
    _held: dict[str, Request] = attrs.field(factory=dict, init=False)
    _hold: Hold = attrs.field(default=Hold.NOTHING, init=False)
    # Logs a step; made when the run begins, as is what takes the failures of performers.
    _log: StepLog | None = attrs.field(default=None, init=False)
    _faults: FaultLog = attrs.field(factory=FaultLog, init=False)

    def post(self, event: Event) -> None:
        """Add an event from outside: an approval, an interrupt, a prompt. Never blocks."""
        self.inbox.post(event)

    def drain(self) -> None:
        """Begin nothing more: `steps` ends when the running work has ended and is applied."""
        self._hold = Hold.ALL
        # No reader is waited for, and none may come: what is running ends, and its answers are applied.
        self.inbox.hurry()
        # `next` may wait for an event that never comes: it looks at `_drained` when woken.
        self.inbox.wake()

    @property
    def unbegun(self) -> tuple[str, ...]:
        """The open requests for work that no process has begun."""
        # Questions and timers change nothing in the world, so the next owner begins them again in any case.
        held = {name for name, one in self._held.items() if not isinstance(one, AskApproval | SetTimer)}
        return tuple([name for name in self.machine.state.open if name in held])

    @property
    def resting(self) -> bool:
        """Whether the run waits only for people, also where a child does, and its reader for more."""
        return self._begun and self._quiet and self.inbox.admits(None)

    @property
    def _quiet(self) -> bool:
        """Whether no event waits, and all work waits for people."""
        return not self.inbox.waiting and all(map(self._idle, self._work.values()))

    async def _rests(self) -> bool:
        """Whether a quiet run rests, once its reader has seen why: it may answer a question at once."""
        await self.inbox.settle()
        return self.resting

    def _idle(self, work: RunningRequest) -> bool:
        """Whether *work* waits for people."""
        if work.resting is not None:
            # A cancelled child still has to end its run; the driver waits for that answer.
            return not work.stops and work.resting(work.request)
        # A deadline that has passed fires at once: a worker that was started for it must not leave before.
        timer = work.request
        return (
            isinstance(timer, SetTimer)
            and timer.due > self.clock.now()
            and is_deadline(timer, self.machine.state)
        )

    @property
    def _drained(self) -> bool:
        """Whether a driver that drains has no event and no work left, but for questions and timers."""
        # A child that rests counts as work here: it drains by itself, and its task must end first.
        idle = all(isinstance(work.request, AskApproval | SetTimer) for work in self._work.values())
        return idle and not self.inbox.waiting

    async def steps(
        self, first: tuple[Effect, ...], *, wait: bool = False
    ) -> AsyncGenerator[tuple[Effect, ...], None]:
        """
        Perform and yield *first*, then the effects of each step.

        It ends when the run is over, is drained, or rests and *wait* is false. *first* are the effects of the
        run's beginning, or the requests to repeat when it is taken over. Leaving early cancels all work and
        waits for it to end. Raises `StoreConflict` where another process drives the session now, and
        `ArgumentError` or `AnswerRefused` where an approver's answer is no decision, or cannot be taken.
        """
        try:
            effects = self.begin(first)
            while effects is not None:
                yield effects
                effects = await self.next(wait=wait)
        finally:
            await self.end()

    def begin(self, first: tuple[Effect, ...]) -> tuple[Effect, ...] | None:
        """Perform *first*, as `steps` says; they are returned to be shown, None where the inbox is closed."""
        run = self.machine.memory.run
        ends = partial(self._raise, asyncio.get_running_loop()) if self.raises else None
        self._faults = FaultLog(session=self.session, run=run, redact=self.redact, ends=ends)
        if self.trace is not None:
            self._faults = attrs.evolve(self._faults, ids=self.trace.ids)
        if (log := step_log(self.session, self.machine, self.trace)) is not None:
            self._log = log
            log("RunOpened" if any(isinstance(each, RunStarted) for each in first) else "TakenOver", first)
        if self.trace is not None:
            self.trace.step(None, first)
        self._begun = False
        if self.inbox.waiting and self._hold is Hold.NOTHING:
            # Inputs from before the takeover may cancel what *first* would begin: they come first.
            self._hold = Hold.AT_FIRST
        if not (self.machine.state.open or self.machine.done):
            # Its beginning failed where it was opened.
            self.inbox.put(Entered(at=self.clock.now()))
        return self._performed(first)

    async def next(  # noqa: C901, PLR0912  # a call of its own for a part of it is paid for with each step
        self, *, wait: bool
    ) -> tuple[Effect, ...] | None:
        """The effects of the next step; None where the run goes no further here, as `steps` says."""
        if (self.machine.done or self._hold is not Hold.NOTHING) and await self._is_over():
            return None
        self._begun = True
        if self._quiet and await self._rests():
            # A question may stay open for days: the run is rows in a store until then.
            if not wait:
                return None
            if self.trace is not None:
                self.trace.rest(self.clock.now())
            # A child's driver wakes its parent's, which may rest now as well.
            self.rested()
        event = await self.inbox.get()
        self._begun = False
        if event is None:
            # Closed, or woken to look at `resting` again.
            return self._performed(())
        # No step: a notice of a child or of a delayed request.
        if isinstance(event, PassThroughNotice):
            return (event,)
        # Written ahead: no request of this event starts before the journal has the event. A crash in between
        # repeats a request that never began; the other order would repeat a payment.
        try:
            step = self.machine.step(event)
        except Exception as error:  # noqa: BLE001  # a bug of ours, of any kind
            step = self._failure(event, error)
        # Ignored events change nothing, so the journal can do without them.
        if not ignored(step.effects):
            try:
                self.entry = await self.journal.keep(step)
            except Overtaken as overtaken:
                self.inbox.again(*overtaken.by, event)
                return self._performed(())
        if self._log is not None:
            self._log(type(event).__name__, step.effects)
        if self.trace is not None:
            self.trace.step(event, step.effects)
        if self.inbox.closed:
            self._performed(step.effects)
        else:
            self._perform(step.effects)
        # Also of a step after which no other follows: it is stored, and has to be told.
        return step.effects

    def _performed(self, effects: tuple[Effect, ...]) -> tuple[Effect, ...] | None:
        """Begin the requests in *effects*, which are returned to be shown; None where the inbox is closed."""
        # Closed while the step was journaled, or before. The next owner begins its requests; those of a run
        # that drains join the held ones, for `unbegun`.
        closed = self.inbox.closed
        if not closed or self._hold is Hold.ALL:
            # Started before they are shown: a subscriber that is slow must not delay the work.
            self._perform(effects)
        if self.inbox.error is not None:
            raise self.inbox.error
        return None if closed else effects

    def leave(self) -> None:
        """Let `next` return None, without a further step; the run stays as it is journaled."""
        self.inbox.close()

    async def end(self) -> None:
        """Stop the work, wait until it has stopped, and keep what was streamed."""
        # `LEAVING` tells a child that it is left and not interrupted: interrupted, it would end its run.
        tasks = [work.task for work in self._work.values()]
        for task in tasks:
            task.cancel(LEAVING)
        # Waited for: a tool that still writes a file would race the next owner of the session.
        await asyncio.gather(*tasks, return_exceptions=True)
        # Pieces of a stream that cannot be kept now are lost, as in a crash: the request is repeated.
        with suppress(WorldError):
            await self.journal.flush()
        if self.trace is not None:
            self.trace.rest(self.clock.now())

    def _failure(self, event: Event, error: Exception) -> Step:
        """The end of the run with *error*, which a handler raised on *event*."""
        # Raised, it would leave a session that fails in this way each time it is gone on with.
        state, kind = self.machine.state.label, type(event).__name__
        about = {"session": self.session, "run": self.machine.memory.run, "event_type": kind, "state": state}
        warn("a handler failed", error, self.redact, level=logging.ERROR, **about)
        return self.machine.failure(event, error_line(error))

    def _perform(self, effects: tuple[Effect, ...]) -> None:
        # Notices and records need nothing done: the machine has applied them, the caller shows them.
        for order in orders_in(effects):
            if isinstance(order, Cancel):
                # Never held back, also while draining: work under way has to stop when it is told to.
                self._cancel(order.request)
            elif self._hold is Hold.NOTHING:
                self._start(order)
            else:
                self._held[order.id] = order

    async def _is_over(self) -> bool:
        """Whether no step follows here; begins what was held back at first, where it may begin now."""
        if self.machine.done:
            # What follows the run begins once its end was seen.
            await self.inbox.settle(inputs=False)
            return True
        if self._hold is Hold.ALL:
            return self._drained
        # After a step: it may have withdrawn a request that is held back. Inputs from before the takeover
        # come first.
        if not self.inbox.waiting:
            # Emptied first: `_perform` must start them now and not hold them again.
            self._hold, held = Hold.NOTHING, self._held
            self._held = {}
            self._perform(tuple(held.values()))
        return False

    def _cancel(self, request: str) -> None:
        if self._hold is not Hold.ALL and (left := self._left.pop(request, None)) is not None:
            # This work answered None, so it has no task to cancel. Only the child's journal knows how far it
            # came. It is started again here; `work.cancel()` below stops it.
            self._start(left)
        if (held := self._held.get(request)) is not None:
            self._drop(held)
        if (work := self._work.get(request)) is not None:
            work.cancel()

    def _drop(self, held: Request) -> None:
        """Drop a request that is held back: it never begins, unless its work is lasting."""
        # The machine waits for an answer of each request that it made, also of one that it cancelled.
        if self._resting(held) is None:
            del self._held[held.id]
            if (answer := failed_answer(held, asyncio.CancelledError(), self.clock.now())) is not None:
                self.inbox.put(answer)
        elif self._hold is not Hold.ALL:
            # It may have begun in a process that is gone. `_cancel` finds it running, and stops it.
            del self._held[held.id]
            self._start(held)

    def _resting(self, request: Request) -> Callable[[Any], bool] | None:
        """The method of lasting work that says whether it rests; None for any other work."""
        return getattr(self.performers.get(type(request)), "resting", None)

    def _start(self, request: Request) -> None:
        performer = self.performers.get(type(request))
        # The history and the settings as they are now: the machine may move on while the work goes on.
        if performer is not None:
            scene = PerformContext(
                session=self.session,
                run=self.machine.memory.run,
                config=self.machine.config,
                history=self.machine.memory.history,
                clock=self.clock,
                # Pieces take the same queue as the answer, so the end cannot overtake them.
                emit=self.inbox.put,
                full_result=self.full_result,
                store=self.store,
                state=self.machine.state,
                memory=self.machine.memory,
                faults=self._faults,
            )
            if self.trace is None:
                task = asyncio.ensure_future(performer(request, scene))
            else:
                variables = self.trace.began(request, scene)
                task = variables.run(asyncio.ensure_future, performer(request, scene))
            # Stored before the task can run: `_ended` looks it up.
            self._work[request.id] = RunningRequest(request, task, self._resting(request))
            # A callback and not a wrapper: a task cancelled before its first step runs no line of its own,
            # and its request would stay open for ever.
            task.add_done_callback(partial(self._ended, request))
        # A question without an approver waits for `post`, from here or from another process.
        elif not isinstance(request, AskApproval):
            # Raised and not answered: it is a mistake of the setup, and the model can do nothing about it.
            raise NoPerformer(type(request).__name__)

    def _ended(self, request: Request, task: asyncio.Future[Answer | None]) -> None:
        work = self._work.pop(request.id)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        now = self.clock.now()
        answer: Event | None
        if isinstance(request, AskApproval):
            error = error or answer_fault(request, task.result(), self.machine.config)
            # An approver that answers `True` is a mistake of the host, and no person's no. The question stays
            # open for an approver that works.
            if isinstance(error, ArgumentError | AnswerRefused):
                self.inbox.close(error)
                return
        # A bug in a performer becomes an answer, too: it must not end the run, nor keep the request open.
        if error is not None:
            if not task.cancelled():
                self._raised(request, error)
            answer = failed_answer(request, error, now)
        elif task.result() is None and work.resting is not None:
            # A child that was drained. Its questions stay open, and the next owner goes on with it.
            self._left[request.id], answer = request, None
        else:
            answer = check_answer(request, task.result(), now, partial(self._raised, request))
        if answer is None:
            # One request fewer is running, so the run may rest now: the reader has to look.
            self.inbox.wake()
        else:
            self.inbox.put(answer)

    def _raised(self, request: Request, error: BaseException) -> None:
        """Log that the performer of *request* raised *error*, or end the work with it."""
        about = {"request": type(request).__name__}
        fault = "a performer raised"
        if isinstance(request, RunTool | AskApproval):
            about |= {"tool": request.tool, "call": request.call}
        if isinstance(request, AskApproval):
            fault = "an approver raised"
        self._faults.raised(fault, error, **about)

    def _raise(self, loop: asyncio.AbstractEventLoop, error: BaseException, log: Callable[[], None]) -> None:
        """Have `next` raise *error*, unless it raises another one: this one is logged then."""
        # Before the answer that is made of it comes, which would be journaled.
        with suppress(RuntimeError):  # a thread that has no loop
            if asyncio.get_running_loop() is loop:
                self._close_with(error, log)
                return
        try:
            loop.call_soon_threadsafe(self._close_with, error, log)
        except RuntimeError:  # the loop is closed, and with it the run
            log()

    def _close_with(self, error: BaseException, log: Callable[[], None]) -> None:
        if self.inbox.closed:
            log()
        else:
            self.inbox.close(error)


# Takes the name of what led to a step, and its effects.
StepLog = Callable[[str, tuple[Effect, ...]], None]


def step_log(session: str, machine: Machine, trace: RunTrace | None = None) -> StepLog | None:
    """
    What logs the steps of one run; None where no line of it would be read.

    Pieces of a stream are logged at debug level, all else at info. A line has the ids of *trace*, if any.
    """
    if not listens(logging.INFO):
        return None
    whose, numbers = {"session": session, "run": machine.memory.run}, count(1)

    def step(cause: str, effects: tuple[Effect, ...]) -> None:
        # Types only: contents may hold secrets, and the journal has them.
        about = {
            **whose,
            **({} if trace is None else trace.ids),
            "step": next(numbers),
            "event_type": cause,
            "state": machine.state.label,
            "effects": [type(effect).__name__ for effect in effects],
        }
        write(logging.DEBUG if cause == ModelStreamed.__name__ else logging.INFO, "step", about)

    return step
