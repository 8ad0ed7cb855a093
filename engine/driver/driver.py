"""
The asyncio driver: yields effects, has them performed, feeds back what happened. It decides nothing.

Order of things in a step: the event moves the machine, the journal keeps it, what follows from it is
performed, and then it is shown. So nothing is done or seen that a restart would not know of.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, final

import attrs

from ...effects import is_request
from ...effects.errors import NoPerformer, WorldError
from ...effects.requests import (
    AskApproval,
    Cancel,
    Request,
    RunAgent,
    SetTimer,
)
from ...performers.base import (
    LEAVING,
    Clock,
    PassThroughNotice,
    PerformContext,
    Performer,
    SystemClock,
    no_full_result,
    noop,
)
from ...states.state import Confirming
from ..transition import ignored
from .answers import check_answer, failed_answer
from .inbox import Inbox
from .step_log import StepLog

if TYPE_CHECKING:
    from ...effects import Effect
    from ...effects.events import Answer, Event
    from ..machine import Machine

Performers = Mapping[type, Performer[Any]]
"""Who performs what, by type of request. Without one for `AskApproval`, questions wait for `Driver.post`."""


def _never(_: str) -> bool:
    """No child waits for people."""
    return False


class EventSink(Protocol):
    """Where a driver writes down what happens; `SessionLog` is one."""

    async def applied(self, event: Event, label: str, effects: tuple[Effect, ...], /) -> None:
        """
        Keep *event*, which led to the state *label* with *effects*, before anything that follows is done.
        """
        ...

    async def flush(self) -> None:
        """Keep what was held back."""
        ...


class Hold(Enum):
    """What is not begun: nothing, what follows from what was said before a run was taken over, or all."""

    NOTHING = auto()
    AT_FIRST = auto()
    ALL = auto()


@final
@attrs.define(eq=False)
class RunningRequest:
    """A *request* that is being performed, by *task*; *stops* once it was told to stop."""

    request: Request
    task: asyncio.Future[Answer | None]
    stops: bool = attrs.field(default=False, init=False)

    def cancel(self) -> None:
        """
        Ask it to stop. Work that has not begun does not begin.

        A child is let begin, which is reading its journal: it may have been at work before, in a process
        that is gone, and what it used is in there.
        """
        self.stops = True
        if isinstance(self.request, RunAgent):
            asyncio.get_running_loop().call_soon(self.task.cancel)
        else:
            self.task.cancel()


@final
@attrs.define(kw_only=True, eq=False)
class Driver:
    """
    Drives one *machine* with *performers*. One at a time may iterate `effects`.

    *journal* keeps what happens, where it is to be kept; *session* names it in logs and to performers, for
    which *whole* finds whole results. *child_rests* says of a call whether the child that is at work for it
    waits for people and for nothing else; *rested* is told each time this driver does.
    """

    machine: Machine
    performers: Performers
    session: str = ""
    journal: EventSink | None = None
    clock: Clock = attrs.field(factory=SystemClock)
    inbox: Inbox = attrs.field(factory=Inbox)
    whole: Callable[[str], Awaitable[str | None]] = no_full_result
    child_rests: Callable[[str], bool] = _never
    rested: Callable[[], None] = noop
    _work: dict[str, RunningRequest] = attrs.field(factory=dict, init=False)
    _left: dict[str, RunAgent] = attrs.field(factory=dict, init=False)
    _begun: bool = attrs.field(default=False, init=False)
    _held: dict[str, Request] = attrs.field(factory=dict, init=False)
    _hold: Hold = attrs.field(default=Hold.NOTHING, init=False)

    def post(self, event: Event) -> None:
        """Put in an event from outside: an approval, an interrupt, a prompt. Never blocks."""
        self.inbox.put(event)

    def drain(self) -> None:
        """Begin nothing any more: `effects` ends when what is at work has come to its end and is applied."""
        self._hold = Hold.ALL
        self.inbox.nudge()

    @property
    def unbegun(self) -> tuple[str, ...]:
        """The open requests for work that is held back: nobody has begun them."""
        held = {name for name, one in self._held.items() if not isinstance(one, AskApproval | SetTimer)}
        return tuple([name for name in self.machine.state.open if name in held])

    async def leave(self) -> None:
        """Stop the work, wait until it has stopped, and end `effects`; the run stays as it is kept."""
        self.inbox.close()
        await self._stop()

    @property
    def resting(self) -> bool:
        """
        Whether nothing goes on until somebody posts an event: all that is open are questions.

        They may be children's. While what follows from an event is still to be begun, it is not known yet.
        """
        return self._begun and not self.inbox and all(self._idle(work) for work in self._work.values())

    def _idle(self, work: RunningRequest) -> bool:
        """Whether *work* is waiting for people; who was told to stop is about to."""
        if isinstance(work.request, RunAgent):
            return not work.stops and self.child_rests(work.request.call)
        # The only timers beside a question are the deadlines of questions.
        return isinstance(work.request, SetTimer) and isinstance(self.machine.state, Confirming)

    @property
    def _drained(self) -> bool:
        """Whether nothing is to be begun any more, and all that is at work waits for people or for a time."""
        idle = all(isinstance(work.request, AskApproval | SetTimer) for work in self._work.values())
        return self._hold is Hold.ALL and idle and not self.inbox

    async def effects(self, first: tuple[Effect, ...], *, wait: bool = False) -> AsyncGenerator[Effect, None]:
        """
        Perform and yield *first*, then the effects of every step.

        It ends when the run is over, is drained, or rests and *wait* is false. *first* is what
        `Machine.advance` gave when the run began, or what is to be done again when a run is taken over: what
        was said before that is applied before any of it is begun. Leaving early cancels all work and waits
        for it to end; the journal knows what was open. Raises `StoreConflict` where another process went on
        with the session.
        """
        log = StepLog(self.session, self.machine)
        self._begun = False
        if self.inbox and self._hold is Hold.NOTHING:
            self._hold = Hold.AT_FIRST
        effects = first
        try:
            # Left while an event was being kept: what follows from it is for whoever goes on.
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
                await self._keep(event, effects)
                log.step(event, effects)
            if self._hold is Hold.ALL:
                self._perform(effects)
        finally:
            await self._stop()
            if self.journal is not None:
                with suppress(WorldError):  # what is lost is what a crash would lose
                    await self.journal.flush()

    async def _keep(self, event: Event, effects: tuple[Effect, ...]) -> None:
        if self.journal is not None and not ignored(effects):
            await self.journal.applied(event, self.machine.state.label, effects)

    def _perform(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            if is_request(effect) and self._hold is not Hold.NOTHING:
                self._held[effect.id] = effect
            elif is_request(effect):
                self._start(effect)
            elif isinstance(effect, Cancel):
                self._cancel(effect.request)

    def _release(self) -> None:
        """Begin what was held back at first, once nothing is left that was said before."""
        if self._hold is Hold.AT_FIRST and not self.inbox:
            self._hold, held = Hold.NOTHING, self._held
            self._held = {}
            self._perform(tuple(held.values()))

    def _cancel(self, request: str) -> None:
        if self._hold is not Hold.ALL and (left := self._left.pop(request, None)) is not None:
            self._start(left)  # what became of it is for whoever runs it to say
        if (held := self._held.get(request)) is not None:
            self._give_up(held)
        if (work := self._work.get(request)) is not None:
            work.cancel()

    def _give_up(self, held: Request) -> None:
        """
        What is *held* back is not wanted any more, and so never begins.

        A child may have been at work before, in a process that is gone: it begins, and is then told to stop.
        """
        if not isinstance(held, RunAgent):
            del self._held[held.id]
            if (answer := failed_answer(held, asyncio.CancelledError(), self.clock.now())) is not None:
                self.inbox.put(answer)
        elif self._hold is not Hold.ALL:
            del self._held[held.id]
            self._start(held)

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
                full_result=self.whole,
            )
            task = asyncio.ensure_future(performer(request, scene))
            self._work[request.id] = RunningRequest(request, task)
            task.add_done_callback(partial(self._ended, request))
        elif not isinstance(request, AskApproval):
            raise NoPerformer(type(request).__name__)

    def _ended(self, request: Request, task: asyncio.Future[Answer | None]) -> None:
        # A callback and not a wrapper: a task cancelled before its first step runs no line of its own.
        del self._work[request.id]
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        now = self.clock.now()
        answer = (
            check_answer(request, task.result(), now) if error is None else failed_answer(request, error, now)
        )
        if answer is None:
            if isinstance(request, RunAgent):
                self._left[request.id] = request
            self.inbox.nudge()  # nobody works on it any more: the run may rest now
        else:
            self.inbox.put(answer)

    async def _stop(self) -> None:
        tasks = [work.task for work in self._work.values()]
        for task in tasks:
            task.cancel(LEAVING)
        await asyncio.gather(*tasks, return_exceptions=True)
