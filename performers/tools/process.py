"""
A process with its children: bounded in time and in output, and ended with its caller.

It leads a session of its own, so that its process group is everything it started, and a signal reaches them
all. Only a child that starts a session itself gets away, as a daemon does on purpose.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast, final

import attrs

from ..worker_pool import finish

# Bytes kept of what a program says: as much as a result may have, and room to say how it ended.
MAX_OUTPUT = 990_000

# Seconds between SIGTERM and SIGKILL.
TERM_GRACE = 0.5

# Seconds between two looks whether a group is gone: the system reports the end of a child, not of a
# grandchild.
_POLL = 0.02

# Seconds we read on after the end, where a process that left the group keeps the output open.
_DRAIN = 0.5

# The descriptor of a process's error stream.
_ERRORS = 2

# Seconds before the output of a running program is reported, and between two reports. Most programs have
# ended by then, and their result says all.
REPORTS_AFTER = 2.0
REPORTS_EVERY = 0.25

# Bytes of one report, the last ones: a program may write faster than a person reads.
MAX_REPORT = 4_000


@final
@attrs.frozen
class ProcessEnd:
    """
    How a process ended: *code* as `subprocess` has it, negative for a signal; None where time ran out.

    *errors* is the text of its error stream, where that was not one with its *output*.
    """

    output: str
    code: int | None
    errors: str = ""


async def run(  # noqa: PLR0913  # what a program is given, and its bounds; most of it with a default
    command: Sequence[str],
    *,
    cwd: Path,
    keep: int,
    seconds: float | None = None,
    given: bytes | None = None,
    descriptors: Sequence[int] = (),
    report: Callable[[str], None] | None = None,
) -> ProcessEnd:
    """
    Run *command* to its end, for *seconds* at most, or for all the time it wants.

    It inherits *descriptors*, and reads what it is *given*. Without that it reads nothing, and both output
    streams are one. Of each stream *keep* bytes are kept, half from its beginning and half from its end. It
    gets a process group of its own, and what is left of that group is ended when the command has ended, when
    time is up, and when we are cancelled. From `REPORTS_AFTER` on *report* is called with the lines that it
    writes, of many at once with the last `MAX_REPORT` bytes. Raises `OSError` where the process cannot be
    started. The argument of a `CancelledError` is the `ProcessEnd` with the output until then.
    """
    reporter = None if report is None else _Reporter(report)
    listener, cancelled = _Listener(keep, reporter), False
    starting = asyncio.get_running_loop().subprocess_exec(
        lambda: listener,
        *command,
        stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if given is None else subprocess.PIPE,
        cwd=cwd,
        pass_fds=descriptors,
        start_new_session=True,
    )
    try:
        # Cancelled in the middle of this, asyncio kills the process and knows nothing of its children, which
        # may have begun. So the start is awaited to its end.
        transport, _ = await finish(starting)
        if given is not None:
            stdin = cast("asyncio.WriteTransport", transport.get_pipe_transport(0))
            # Not drained: a command that does not read it must not hold us up.
            stdin.write(given)
            stdin.close()
        # The exit is awaited and not the end of the output: a child in the background may hold that open.
        await asyncio.wait({listener.exited}, timeout=seconds)
        code = transport.get_returncode() if listener.exited.done() else None
    except asyncio.CancelledError:
        code, cancelled = None, True
    finally:
        if reporter is not None:
            reporter.end()
        await listener.end()
    end = ProcessEnd(listener.output.text(), code, listener.errors.text())
    if cancelled:
        # Not of a class of its own: `asyncio.timeout` takes only a `CancelledError` itself for its own.
        raise asyncio.CancelledError(end)
    return end


@final
class _Listener(asyncio.SubprocessProtocol):
    """Keeps the output of a process, and resolves its futures at its end."""

    def __init__(self, keep: int, reporter: _Reporter | None) -> None:
        loop = asyncio.get_running_loop()
        self._reporter = reporter
        self._transport: asyncio.SubprocessTransport | None = None  # once it has started
        self.exited: asyncio.Future[None] = loop.create_future()
        self._closed: asyncio.Future[None] = loop.create_future()
        self.output = _Kept(keep)
        self.errors = _Kept(keep)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Know the process that has started."""
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Keep *data*, with what else came that way."""
        (self.errors if fd == _ERRORS else self.output).add(data)
        if self._reporter is not None:
            self._reporter.add(data)

    def process_exited(self) -> None:
        """Tell that the process is over; others of its group may not be."""
        self.exited.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # the end is all we ask for
        """Tell that no process has the output open any more."""
        self._closed.set_result(None)

    async def end(self) -> None:
        """Leave nothing of the process, if it has started."""
        if self._transport is None:
            return
        try:
            # The process has ended, but not its children: a server in the background would outlive its agent.
            await _end_group(self._transport.get_pid())
            await asyncio.wait({self._closed}, timeout=_DRAIN)
        finally:
            self._transport.close()


@final
class _Reporter:
    """Calls *report* with the lines of a running program, each once and at intervals."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._data = bytearray()
        self._cut = False
        self._timer = self._loop.call_later(REPORTS_AFTER, self._tick)

    def add(self, data: bytes) -> None:
        """Keep *data* for the next report; of too much its end."""
        self._data += data
        self._cut = self._cut or len(self._data) > MAX_REPORT
        del self._data[:-MAX_REPORT]

    def end(self) -> None:
        """Report no more: what the program wrote is in its result."""
        self._timer.cancel()

    def _tick(self) -> None:
        self._timer = self._loop.call_later(REPORTS_EVERY, self._tick)
        # A progress bar returns to the beginning of its line and never ends it.
        lines = self._data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        # Half a line may be half a secret: its name here, and its value in another report.
        self._data = lines.pop()
        if self._cut and lines:
            del lines[0]
            self._cut = False
        if text := b"\n".join(lines).decode(errors="replace").strip("\n"):
            self._report(text)


@final
class _Kept:
    """The beginning and the end of a stream, *keep* bytes of it together."""

    # The end matters most: compilers and tests say there what went wrong. The beginning says what was run.

    def __init__(self, keep: int) -> None:
        self._half = keep // 2
        self._data = bytearray()
        self._cut = 0

    def add(self, data: bytes) -> None:
        """Keep *data*, and cut what is too much out of the middle."""
        self._data += data
        excess = len(self._data) - 2 * self._half
        if excess > 0:
            del self._data[self._half : self._half + excess]
            self._cut += excess

    def text(self) -> str:
        """What was kept, with a count of what was not."""
        if not self._cut:
            return self._data.decode(errors="replace")
        head, tail = self._data[: self._half], self._data[self._half :]
        note = f"\n[... {self._cut:,} bytes cut ...]\n"
        return head.decode(errors="replace") + note + tail.decode(errors="replace")


async def _end_group(group: int) -> None:
    """End what is left of *group*: with SIGTERM, and after `TERM_GRACE` or when we are cancelled, SIGKILL."""
    try:
        if _signal(group, signal.SIGTERM):
            for _ in range(round(TERM_GRACE / _POLL)):
                await asyncio.sleep(_POLL)
                if not _signal(group, 0):
                    return
    finally:
        _signal(group, signal.SIGKILL)


def _signal(group: int, number: int) -> bool:
    """Send signal *number* to *group*; whether a process is left in it."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # a member of another user's, or on macOS a zombie
        pass
    return True
