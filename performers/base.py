"""
The seam between the loop and the world: what a performer is given and what it owes.

A performer is an async callable that does the work of one request and returns its one answer. It never
raises for what the world did wrong: that is an answer too. When it is cancelled it stops the work as soon as
it can and still returns its answer, so that what was really used and done is known.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, final

import attrs

from ..effects import (
    AgentNoticed,
    Answer,
    CacheMissed,
    Config,
    DecodeOutput,
    Event,
    History,
    OutputDecoded,
    RequestDelayed,
    SetTimer,
    TimerFired,
)
from ..effects.errors import WorldError
from .logs import FaultLog, write
from .steady import LOGGED_FROM, LOOK_EVERY, SLEW, elapsed, wall_time

if TYPE_CHECKING:
    from ..states.context import Memory
    from ..states.state import State
    from .stores.base import Store

# The message of a cancellation that only detaches: no caller waits for the answer any more, and the run goes
# on later, perhaps in another process. A cancellation without it is a person's decision to stop the work.
LEAVING = "leaving"

# Notices that a performer passes through: they go to subscribers and change nothing.
PassThroughNotice = AgentNoticed | RequestDelayed | CacheMissed

# Finds the whole result of a call by its id; None where there is none.
FullResult = Callable[[str], Awaitable[str | None]]

R_contra = TypeVar("R_contra", contravariant=True)


class Clock(Protocol):
    """Where time comes from: `now` in seconds since the epoch, never going back within a process."""

    def now(self) -> float:
        """The time, in seconds since the epoch."""
        ...

    async def sleep_until(self, due: float) -> None:
        """Return when `now` is at or past *due*."""
        ...


@final
class SystemClock:
    """
    The wall clock of the machine, or the clock of *store* where that has one (`Store.keeps_time`).

    All clocks of a process show the same time, which does not jump where a clock is set: see `SteadyTime`.
    """

    __slots__ = ("_steady", "_store")

    def __init__(self, store: Store | None = None) -> None:
        self._store = store if store is not None and store.keeps_time else None
        self._steady = wall_time if self._store is None else self._store.steady_time

    def now(self) -> float:
        """The time, in seconds since the epoch."""
        # Inline, since each step calls this.
        looked_at, then, ahead = self._steady.anchor
        passed = elapsed() - looked_at
        most = passed * SLEW
        return then + passed + (ahead if -most <= ahead <= most else most if ahead > 0 else -most)

    async def sleep_until(self, due: float) -> None:
        """Return when `now` is at or past *due*."""
        # A sleep may end a little early: the loop rounds to its clock's resolution, and the machine would ask
        # again at once for a time that has not come. And the loop's clock may stand still while the machine
        # is suspended, so no sleep is long.
        while due > self.now():
            await self.look()
            await asyncio.sleep(min(due - self.now(), LOOK_EVERY))

    async def look(self) -> None:
        """Read the clock, at most once a minute; where the store fails, the next call tries again."""
        steady, began = self._steady, elapsed()
        if began < steady.look_at:
            return
        # Other sessions skip this look while it is under way. They must not skip the first one: before it the
        # time may be hours off.
        steady.look_at = began + LOOK_EVERY if steady.looked else began
        try:
            shown = time.time() if self._store is None else await self._store.time()
        except WorldError:
            return
        ended, now = elapsed(), self.now()
        # The store read its clock at about half of the round trip.
        shown += (ended - began) / 2
        ahead = shown - now
        self._log(ahead)
        first = self._store is not None and not steady.looked
        steady.anchor = (ended, shown, 0.0) if first else (ended, now, ahead)
        steady.looked, steady.look_at = True, ended + LOOK_EVERY

    def _log(self, ahead: float) -> None:
        steady, off = self._steady, abs(ahead) > LOGGED_FROM
        if off and not steady.logged:
            fault = "the wall clock was set; this process goes on by its own time"
            if self._store is not None:
                fault = "the clock of the store was set; this process goes on by its own time"
                if not steady.looked:
                    fault = "the wall clock is off; deadlines are judged by the clock of the store"
            write(logging.WARNING, fault, {"ahead": round(ahead, 3)})
        steady.logged = off


def clock_of(clock: Clock, store: Store | None) -> Clock:
    """The clock of a session in *store*, whose agent has *clock*; a clock that the host made stays."""
    return SystemClock(store) if isinstance(clock, SystemClock) else clock


async def look_at(clock: Clock) -> None:
    """Update *clock*, if that is due, before a deadline is judged by it."""
    if isinstance(clock, SystemClock):
        await clock.look()


async def undecoded(request: DecodeOutput, scene: PerformContext) -> OutputDecoded:
    """Take an output that fits its schema: the class that was asked for is known to another process."""
    return OutputDecoded(at=scene.clock.now(), request=request.id)


async def sleep(request: SetTimer, scene: PerformContext) -> TimerFired:
    """Perform `SetTimer` by the session's clock."""
    await scene.clock.sleep_until(request.due)
    return TimerFired(at=scene.clock.now(), request=request.id)


def noop(*_: object) -> None:
    """Do nothing: the default of a callback that no caller gave."""


async def no_full_result(_: str) -> None:
    """The full results of a run that has none."""


@final
@attrs.frozen(kw_only=True)
class PerformContext:
    """
    The surroundings of a request: its session and run, the history it may read, and its way to report.

    *emit* takes the events that come before the answer, such as `ModelStreamed`, and `PassThroughNotice`s;
    it never blocks. *full_result* finds the whole result of a call by its id, of which the history may hold
    the beginning and the end; None where there is none. *store* keeps the session, if any does. *state* and
    *memory* are the run's own as the work begins; None outside a run. *faults* takes failures of the host's
    code.
    """

    session: str
    run: str
    config: Config
    history: History
    clock: Clock
    emit: Callable[[Event | PassThroughNotice], None]
    full_result: FullResult = no_full_result
    store: Store | None = None
    state: State | None = None
    memory: Memory | None = None
    faults: FaultLog = attrs.field(
        default=attrs.Factory(lambda self: FaultLog(session=self.session, run=self.run), takes_self=True)
    )


class Performer(Protocol[R_contra]):
    """Does the work of one kind of request."""

    async def __call__(self, request: R_contra, scene: PerformContext, /) -> Answer | None:
        """
        Perform *request* and return its one answer.

        None leaves it to another process, for a question, or to later, for a child.
        """
        ...


# The performer of each type of request. Without one for `AskApproval`, questions wait for `Driver.post`.
Performers = Mapping[type, Performer[Any]]
