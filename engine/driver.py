"""
The asyncio driver: yields effects, has them performed, feeds back what happened. It decides nothing.

Order of things in a step: the event moves the machine, the journal keeps it, what follows from it is
performed, and then it is shown. So nothing is done or seen that a restart would not know of.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, final

import attrs

from ..effects import is_request
from ..effects.errors import NoPerformer, WorldError
from ..effects.notices import AgentNoticed
from ..effects.performers.base import LEAVING, Clock, Performer, Scene, SystemClock
from ..effects.requests import AskApproval, Cancel, Request, RunAgent, SetTimer
from ..states.state import Confirming
from .failures import answer_for, checked
from .inbox import Inbox
from .log import StepLog
from .transition import ignored

if TYPE_CHECKING:
    from ..effects import Effect
    from ..effects.events import Answer, Event
    from .machine import Machine

Performers = Mapping[type, Performer[Any]]
"""Who performs what, by type of request. Without one for `AskApproval`, questions wait for `Driver.post`."""


class Keeper(Protocol):
    """Where a driver writes down what happens; `Journal` is one, over a store."""

    async def applied(self, event: Event, label: str) -> None:
        """Keep *event*, which led to the state *label*, before anything that follows from it is done."""
        ...

    async def flush(self) -> None:
        """Keep what was held back."""
        ...


@final
@attrs.frozen(eq=False)
class Work:
    """A *request* that is being performed, by *task*."""

    request: Request
    task: asyncio.Future[Answer | None]

    def cancel(self) -> None:
        """
        Ask it to stop. Work that has not begun does not begin.

        A child is let begin, which is reading its journal: it may have been at work before, in a process
        that is gone, and what it used is in there.
        """
        if isinstance(self.request, RunAgent):
            asyncio.get_running_loop().call_soon(self.task.cancel)
        else:
            self.task.cancel()


@final
@attrs.define(kw_only=True, eq=False)
class Driver:
    """
    Drives one *machine* with *performers*. One at a time may iterate `effects`.

    *journal* keeps what happens, where it is to be kept; *session* names it in logs and to performers.
    """

    machine: Machine
    performers: Performers
    session: str = ""
    journal: Keeper | None = None
    clock: Clock = attrs.field(factory=SystemClock)
    inbox: Inbox = attrs.field(factory=Inbox)
    _work: dict[str, Work] = attrs.field(factory=dict, init=False)

    def post(self, event: Event) -> None:
        """Put in an event from outside: an approval, an interrupt, a prompt. Never blocks."""
        self.inbox.put(event)

    async def leave(self) -> None:
        """Stop the work, wait until it has stopped, and end `effects`; the run stays as it is kept."""
        self.inbox.close()
        await self._stop()

    @property
    def resting(self) -> bool:
        """Whether nothing goes on until somebody posts an event: all that is open are questions."""
        if self.inbox:
            return False
        state = self.machine.state
        deadlines = isinstance(state, Confirming) and state.batch.rests
        return all(deadlines and isinstance(work.request, SetTimer) for work in self._work.values())

    async def effects(self, first: tuple[Effect, ...], *, wait: bool = False) -> AsyncGenerator[Effect, None]:
        """
        Perform and yield *first*, then the effects of every step.

        It ends when the run is over, or rests and *wait* is false. *first* is what `Machine.advance` gave
        when the run began, or what is to be done again when a run is taken over. Leaving early cancels all
        work and waits for it to end; the journal knows what was open. Raises `StoreConflict` where another
        process went on with the session.
        """
        log = StepLog(self.session, self.machine)
        effects = first
        try:
            # Left while an event was being kept: what follows from it is for whoever goes on.
            while not self.inbox.closed:
                self._perform(effects)
                for effect in effects:
                    yield effect
                if self.machine.done or (self.resting and not wait):
                    return
                event = await self.inbox.get()
                if event is None or isinstance(event, AgentNoticed):
                    effects = () if event is None else (event,)
                    continue
                effects = self.machine.advance(event)
                await self._keep(event, effects)
                log.step(event, effects)
        finally:
            await self._stop()
            if self.journal is not None:
                with suppress(WorldError):  # what is lost is what a crash would lose
                    await self.journal.flush()

    async def _keep(self, event: Event, effects: tuple[Effect, ...]) -> None:
        if self.journal is not None and not ignored(effects):
            await self.journal.applied(event, self.machine.state.label)

    def _perform(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            if is_request(effect):
                self._start(effect)
            elif isinstance(effect, Cancel) and (work := self._work.get(effect.request)) is not None:
                work.cancel()

    def _start(self, request: Request) -> None:
        performer = self.performers.get(type(request))
        if performer is not None:
            scene = Scene(
                session=self.session,
                run=self.machine.memory.run,
                config=self.machine.config,
                history=self.machine.memory.history,
                clock=self.clock,
                emit=self.inbox.put,
            )
            task = asyncio.ensure_future(performer(request, scene))
            self._work[request.id] = Work(request, task)
            task.add_done_callback(partial(self._ended, request))
        elif not isinstance(request, AskApproval):
            raise NoPerformer(type(request).__name__)

    def _ended(self, request: Request, task: asyncio.Future[Answer | None]) -> None:
        # A callback and not a wrapper: a task cancelled before its first step runs no line of its own.
        del self._work[request.id]
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        now = self.clock.now()
        answer = checked(request, task.result(), now) if error is None else answer_for(request, error, now)
        if answer is None:
            self.inbox.nudge()  # nobody works on it any more: the run may rest now
        else:
            self.inbox.put(answer)

    async def _stop(self) -> None:
        tasks = [work.task for work in self._work.values()]
        for task in tasks:
            task.cancel(LEAVING)
        await asyncio.gather(*tasks, return_exceptions=True)
