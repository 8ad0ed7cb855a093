"""
One process of a life: forked, and then killed with -9, or frozen, or left alone.

A process comes to the moment at which it ends by itself, which is exact; an instant comes from outside, which
is anywhere. One that is frozen is as one that hangs in a swap, a pause or a debugger: others go on in its
place, and when it wakes it does not know.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import select
import signal
import traceback
from pathlib import Path
from typing import Final, NoReturn, final

import attrs

from .points import PAGE, Points, counted, pointed_statements
from .torture_life import Life
from .torture_script import Script

LONGEST = 30.0
"""Seconds after which a process hangs; a life takes a hundredth of that."""

FROZEN: Final = b"frozen\n"
"""What a process says before it freezes."""


@final
@attrs.frozen
class At:
    """A process kills itself at the moment with this *number*, from 1."""

    number: int

    def __str__(self) -> str:
        return str(self.number)


@final
@attrs.frozen
class After:
    """A process is killed when this *share* has passed of the time that an undisturbed one takes."""

    share: float

    def __str__(self) -> str:
        return f"{self.share:.3f}"


@final
@attrs.frozen
class Frozen:
    """A process freezes at the moment with this *number*, and wakes when all others are over."""

    number: int

    def __str__(self) -> str:
        return f"z{self.number}"


End = At | After | Frozen
"""How a process ends that is not left alone."""


@final
@attrs.frozen(kw_only=True)
class Death:
    """
    How a process ended, after so many *moments*, the *latest* of that name.

    It may have been *killed*, or be *frozen* only. *fault* is what went wrong with it, as a traceback.
    """

    killed: bool = False
    frozen: bool = False
    moments: int
    latest: str
    fault: str = ""

    def __str__(self) -> str:
        end = "killed" if self.killed else "frozen" if self.frozen else "ended"
        return f"{end} after moment {self.moments}, {self.latest!r}"

    @property
    def raised(self) -> str:
        """What was raised, of the traceback that *fault* is."""
        return self.fault.strip().rpartition("\n")[2]


@final
@attrs.frozen
class Process:
    """
    The process with this *number* of the life of *script* in *folder*, and its *end*.

    *names* is where those of its moments go, if anywhere.
    """

    script: Script
    folder: Path
    number: int
    end: End | None = None
    names: Path | None = None

    def begin(self) -> Running:
        """Fork it."""
        shared = mmap.mmap(-1, PAGE)
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            self._be(shared, writing)
        os.close(writing)
        return Running(self, pid, reading, shared)

    def _be(self, shared: mmap.mmap, writing: int) -> NoReturn:
        """Be that process, which counts in *shared* and tells *writing* what goes wrong."""

        def last() -> None:
            if isinstance(self.end, Frozen):
                os.write(writing, FROZEN)
            os.kill(os.getpid(), signal.SIGSTOP if isinstance(self.end, Frozen) else signal.SIGKILL)

        number = self.end.number if isinstance(self.end, At | Frozen) else 0
        # One that sleeps while it has the lock of a file keeps all others from writing: they are told so.
        points = Points(shared, number, last, room=isinstance(self.end, Frozen))
        pointed_statements(points)
        try:
            asyncio.run(Life(self.script, self.folder, self.number, points).live())
            if self.names is not None:
                self.names.write_text("\n".join(points.names), "utf-8")
        except BaseException:  # noqa: BLE001  # it must not go on as the process it was forked from
            os.write(writing, traceback.format_exc().encode())
        finally:
            os._exit(0)


@final
@attrs.frozen
class Running:
    """A *process* that was begun: its *pid*, where it is *reading* what it says, and what it counts in."""

    process: Process
    pid: int
    reading: int
    shared: mmap.mmap

    def ended(self, seconds: float = 0.0) -> Death:
        """How it ended, or that it is frozen; *seconds* is how long it takes where nobody disturbs it."""
        end = self.process.end
        said = self._said(seconds * end.share if isinstance(end, After) else LONGEST)
        if said == FROZEN:
            os.waitpid(self.pid, os.WUNTRACED)
            moments, latest = counted(self.shared)
            return Death(frozen=True, moments=moments, latest=latest)
        os.close(self.reading)
        _, status = os.waitpid(self.pid, 0)
        moments, latest = counted(self.shared)
        self.shared.close()
        if said is None and not isinstance(end, After):
            said = f"process {self.process.number} hangs after moment {moments}, {latest!r}".encode()
        fault = (said or b"").decode(errors="replace")
        return Death(killed=os.WIFSIGNALED(status), moments=moments, latest=latest, fault=fault)

    def woken(self) -> Death:
        """How it ended once it was woken."""
        os.kill(self.pid, signal.SIGCONT)
        return self.ended()

    def _said(self, seconds: float) -> bytes | None:
        """What it says until it ends or freezes; None, and killed, where that takes longer than *seconds*."""
        said = b""
        while select.select([self.reading], [], [], seconds)[0]:
            more = os.read(self.reading, PAGE)
            said += more
            if not more or said == FROZEN:  # the pipe is closed when the process ends, however that comes
                return said
        os.kill(self.pid, signal.SIGKILL)
        return None
