"""Turn Ctrl-C, SIGTERM and SIGHUP into an interrupt, a drain or an end of the work."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, final

from ..cli.exit_codes import Exit

if TYPE_CHECKING:
    from ...engine.session.session import Session

DRAIN_SECONDS = 10.0
"""Seconds for open work to end after SIGTERM; service managers usually wait longer before they kill."""

MAX_INTERRUPTS = 2
"""Interrupts that the run itself handles; the next one leaves at once."""


def _noop(_: str) -> None:
    """Discard a message."""


@final
class Signals:
    """
    Handles the signals of one command.

    Ctrl-C interrupts the run; after `MAX_INTERRUPTS` it leaves at once. SIGTERM lets open work end, with a
    message to *say*; a second one leaves at once. Without a run, both end the task that called `guard`,
    unless *idle* handles Ctrl-C. `ended_by` is the exit code of the signal that ended the task.
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
        """Run *work* with the handlers set; returns its exit code, or that of the signal that ended it."""
        try:
            with self._handlers():
                return await work()
        except asyncio.CancelledError:
            if self.ended_by is None:
                raise
            return self.ended_by

    @contextmanager
    def _handlers(self) -> Generator[None]:
        """Set the handlers for the current task; raise the failure of an interrupt that could not be sent."""
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._ctrl_c)
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
        """Let Ctrl-C interrupt the run of *session* from now on."""
        self._session = session

    def new_run(self) -> None:
        """Count interrupts anew, since another run begins."""
        self._interrupts = 0

    @contextmanager
    def ignore_ctrl_c(self) -> Generator[None]:
        """Ignore Ctrl-C while another program has the terminal."""
        self._ignores_ctrl_c = True
        try:
            yield
        finally:
            self._ignores_ctrl_c = False

    def hang_up(self) -> None:
        """End the work because the terminal is closed, with or without a SIGHUP."""
        self._end(Exit.HUNG_UP)

    def _end(self, code: Exit) -> None:
        self.ended_by = self.ended_by or code
        if self._task is not None:
            self._task.cancel()

    def _terminate(self) -> None:
        """Drain the run; the second time, or without a run, end at once."""
        if self.ended_by is not None or self._session is None or not self.running:
            self._end(Exit.TERMINATED)
            return
        self.ended_by = Exit.TERMINATED
        self._say(
            f"terminated: open work may end within {DRAIN_SECONDS:g} s; a second signal leaves it at once"
        )
        self._start(self._session.drain(DRAIN_SECONDS))

    @property
    def running(self) -> bool:
        """Whether there is a run to interrupt."""
        return self._session is not None and self._session.running

    @property
    def runs_elsewhere(self) -> bool:
        """Whether there is an unfinished run that this process does not work on."""
        return self._session is not None and not self.running and self._session.unfinished

    def _ctrl_c(self) -> None:
        """Interrupt the run; without one call `idle`."""
        if self._ignores_ctrl_c:
            return
        if self.running:
            self.interrupt()
        else:
            self._idle()

    def interrupt(self) -> None:
        """Interrupt the run; after `MAX_INTERRUPTS` leave at once."""
        if self._session is None:
            return
        self._interrupts += 1
        if self._interrupts > MAX_INTERRUPTS:
            self._end(Exit.INTERRUPTED)
            return
        self._start(self._session.interrupt())

    def interrupt_elsewhere(self) -> None:
        """Ask the process that works on the run to interrupt it."""
        if self._session is not None:
            self._start(self._session.interrupt())

    def _start(self, request: Coroutine[Any, Any, None]) -> None:
        asking = asyncio.ensure_future(request)
        self._asking.add(asking)  # the event loop holds tasks only weakly
        asking.add_done_callback(self._asked)

    def _asked(self, asking: asyncio.Task[None]) -> None:
        """End the work if an interrupt failed, or the person would wait for nothing."""
        self._asking.discard(asking)
        if not asking.cancelled() and (error := asking.exception()) is not None:
            self.failure = error
            if self._task is not None:
                self._task.cancel()
