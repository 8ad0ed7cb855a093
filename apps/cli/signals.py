"""What Ctrl-C and kill mean while a session is at work."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, final

from .exit_codes import Exit

if TYPE_CHECKING:
    from ...engine.session.session import Session

DRAIN_SECONDS = 10.0
"""Seconds that what is at work has to come to its end: those who end processes mostly wait longer."""

MAX_INTERRUPTS = 2
"""Interrupts that a run itself answers; one more and we leave without it."""


def _noop(_: str) -> None:
    """Nobody is told."""


@final
class Signals:
    """
    Ctrl-C interrupts the run, once more leaves its work behind; to be terminated leaves the run unfinished.

    `ended_by` says what ended the task that called `heeded`, where it was a signal. To be terminated lets
    what is at work come to its end, which *say* is told in words; once more does not. Where no run is under
    way either ends that task at once, unless *idle* does something else about Ctrl-C.
    """

    def __init__(self, idle: Callable[[], None] | None = None, say: Callable[[str], None] = _noop) -> None:
        self.ended_by: Exit | None = None
        self.failure: BaseException | None = None
        self._idle = idle or partial(self._end, Exit.INTERRUPTED)
        self._say = say
        self._session: Session | None = None
        self._interrupts = 0
        self._ignores_ctrl_c = False
        self._task: asyncio.Task[object] | None = None
        self._asking: set[asyncio.Task[None]] = set()

    async def guard(self, work: Callable[[], Awaitable[Exit]]) -> Exit:
        """What *work* returns, or the signal that ended it."""
        try:
            with self._handlers():
                return await work()
        except asyncio.CancelledError:
            if self.ended_by is None:
                raise
            return self.ended_by

    @contextmanager
    def _handlers(self) -> Generator[None]:
        """Listen, on behalf of the current task; raise what kept an interrupt from being posted."""
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        loop.add_signal_handler(signal.SIGTERM, self._terminate)
        loop.add_signal_handler(signal.SIGHUP, self._end, Exit.HUNG_UP)
        try:
            yield
        except asyncio.CancelledError:
            if self.failure is not None:
                raise self.failure from None
            raise
        finally:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.remove_signal_handler(number)

    def interrupts(self, session: Session) -> None:
        """From now on, Ctrl-C interrupts the run of *session*."""
        self._session = session

    def new_run(self) -> None:
        """Another run begins, which nobody has interrupted."""
        self._interrupts = 0

    @contextmanager
    def ignore_ctrl_c(self) -> Generator[None]:
        """Ctrl-C is meant for another program that has the terminal."""
        self._ignores_ctrl_c = True
        try:
            yield
        finally:
            self._ignores_ctrl_c = False

    def hang_up(self) -> None:
        """The terminal is gone, whether or not a signal says so, too."""
        self._end(Exit.HUNG_UP)

    def _end(self, code: Exit) -> None:
        self.ended_by = self.ended_by or code
        if self._task is not None:
            self._task.cancel()

    def _terminate(self) -> None:
        """Let the run come to where it can be left, or leave it as it is where that was asked for before."""
        if self.ended_by is not None or self._session is None or not self._session.running:
            self._end(Exit.TERMINATED)
            return
        self.ended_by = Exit.TERMINATED
        self._say(
            f"terminated: what is at work may end, within {DRAIN_SECONDS:g} s; once more leaves it at once"
        )
        self._start(self._session.drain(DRAIN_SECONDS))

    def _interrupt(self) -> None:
        """Interrupt the run, or end where there is none that could heed it."""
        if self._ignores_ctrl_c:
            return
        if self._session is None or not self._session.running:
            self._idle()
            return
        self._interrupts += 1
        if self._interrupts > MAX_INTERRUPTS:
            self._end(Exit.INTERRUPTED)
            return
        self._start(self._session.interrupt())

    def _start(self, wish: Coroutine[Any, Any, None]) -> None:
        asking = asyncio.ensure_future(wish)
        self._asking.add(asking)  # the event loop itself holds a task but weakly
        asking.add_done_callback(self._asked)

    def _asked(self, asking: asyncio.Task[None]) -> None:
        """What could not be done ends the work: whoever asked must not wait for nothing."""
        self._asking.discard(asking)
        if not asking.cancelled() and (error := asking.exception()) is not None:
            self.failure = error
            if self._task is not None:
                self._task.cancel()
