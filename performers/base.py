"""
The seam between the loop and the world: what a performer is given and what it owes.

A performer is an async callable that does the work of one request and returns its one answer. It never
raises for what the world did wrong: that is an answer too. When it is cancelled it stops the work as soon as
it can and still returns its answer, so that what was really used and done is known.
"""

from __future__ import annotations

import asyncio
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, final

import attrs

from ..effects import AgentNoticed, Answer, Config, Event, History, RequestDelayed, SetTimer, TimerFired

if TYPE_CHECKING:
    from ..states.context import Memory
    from ..states.state import State
    from .stores.base import Store

# The message of a cancellation that only detaches: no caller waits for the answer any more, and the run goes
# on later, perhaps in another process. A cancellation without it is a person's decision to stop the work.
LEAVING = "leaving"

# Notices that a performer passes through: they go to subscribers and change nothing.
PassThroughNotice = AgentNoticed | RequestDelayed

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
    The real clock: the epoch time of its creation plus what the monotonic clock says has passed.

    So it never goes back; where the monotonic clock stands still while a machine sleeps, it lags by that.
    """

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        """The time, in seconds since the epoch."""
        return self._offset + time.monotonic()

    async def sleep_until(self, due: float) -> None:
        """Return when `now` is at or past *due*."""
        # A sleep may end a little early: the loop rounds to its clock's resolution, and the machine would ask
        # again at once for a time that has not come.
        while (wait := due - self.now()) > 0:  # noqa: ASYNC110  # time is awaited, not an event
            await asyncio.sleep(wait)


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
    *memory* are the run's own as the work begins; None outside a run.
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


def logger(session: str) -> Any:  # noqa: ANN401  # whatever structlog was configured with
    """The log of *session*, or None: a library logs nothing before its host called `structlog.configure`."""
    # A host that has not imported structlog has not configured it, and need not wait for the import.
    structlog = sys.modules.get("structlog")
    if structlog is None or not structlog.is_configured():
        return None
    return structlog.get_logger("turnwheel").bind(session=session)


def warn(session: str, fault: str, error: BaseException, **about: str) -> None:
    """Log a warning that code raised *error*: *fault*, what it is *about*, and the traceback."""
    if (log := logger(session)) is not None:
        # The frames and the type, not the text: that may hold a secret, and is redacted where it is kept.
        frames = "".join(traceback.format_tb(error.__traceback__))
        log.warning(fault, error=type(error).__name__, traceback=frames, **about)


def warn_blocked(session: str, fault: str, about: dict[str, str], seconds: float) -> None:
    """Log a warning that the host's code, as *fault* and *about* say, kept the event loop for *seconds*."""
    if (log := logger(session)) is not None:
        log.warning(fault, seconds=round(seconds, 3), **about)
