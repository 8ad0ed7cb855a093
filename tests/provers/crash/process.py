"""
One process of a life: forked, and then killed with -9, frozen, drained, or left alone.

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

from provers.crash.life import Life
from provers.crash.points import (
    PAGE,
    Points,
    counted,
    pointed_statements,
)
from provers.crash.script import Script

LONGEST = 30.0
"""Seconds after which a process hangs; a life takes a hundredth of that."""

DRAINED: Final = 3
"""The exit code of a process that was drained, which may have left something."""

FROZEN: Final = b"frozen\n"
"""What a process says before it freezes."""


@final
@attrs.frozen
class At:
    """A process kills itself at the moment with this *number*, from 1."""

    number: int

    def __str__(self) -> str:
        return str(self.number)

    @property
    def possible(self) -> bool:
        """Whether that may come."""
        return self.number >= 1


@final
@attrs.frozen
class After:
    """A process is killed when this *share* has passed of the time that an undisturbed one takes."""

    share: float

    def __str__(self) -> str:
        return f"{self.share:.3f}"

    @property
    def possible(self) -> bool:
        """Whether that may come."""
        return self.share > 0.0


@final
@attrs.frozen
class Frozen:
    """A process freezes at the moment with this *number*, and wakes when all others are over."""

    number: int

    def __str__(self) -> str:
        return f"z{self.number}"

    @property
    def possible(self) -> bool:
        """Whether that may come."""
        return self.number >= 1


@final
@attrs.frozen
class Drained:
    """A process is told at the moment with this *number* to leave, and may be killed *then* moments later."""

    number: int
    then: int = 0

    def __str__(self) -> str:
        return f"d{self.number}" + (f"+{self.then}" if self.then else "")

    @property
    def possible(self) -> bool:
        """Whether that may come."""
        return self.number >= 1 and self.then >= 0


End = At | After | Frozen | Drained
"""How a process ends that is not left alone."""


@final
@attrs.frozen(kw_only=True)
class Death:
    """
    How a process ended, after so many *moments*, the *latest* of that name.

    It may have been *killed*, or *drained*, or be *frozen* only. *fault* is what went wrong with it, as a
    traceback.
    """

    killed: bool = False
    drained: bool = False
    frozen: bool = False
    moments: int
    latest: str
    fault: str = ""

    def __str__(self) -> str:
        ends = {"killed": self.killed, "frozen": self.frozen, "drained": self.drained}
        end = next((end for end, came in ends.items() if came), "over")
        return f"{end} after moment {self.moments}, {self.latest!r}"

    @property
    def came(self) -> bool:
        """Whether it did not simply come to the end."""
        return self.killed or self.drained or self.frozen

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
        code = 0
        points = Points(shared)
        try:
            life = Life(self.script, self.folder, self.number, points)
            self._arrange(points, life, writing)
            pointed_statements(points)
            code = 0 if asyncio.run(life.live()) else DRAINED
            if self.names is not None:
                self.names.write_text("\n".join(points.names), "utf-8")
        except BaseException:  # noqa: BLE001  # it must not go on as the process it was forked from
            os.write(writing, traceback.format_exc().encode())
        finally:
            os._exit(code)

    def _arrange(self, points: Points, life: Life, writing: int) -> None:
        """Have *points* see to it that *life* ends as it is to."""

        def kill() -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        def freeze() -> None:
            os.write(writing, FROZEN)
            os.kill(os.getpid(), signal.SIGSTOP)

        match self.end:
            case At(number):
                points.at(number, kill)
            case Frozen(number):
                # While it has the lock of a file nobody else can write: they are told so, and that is all.
                points.at(number, freeze, room=True)
            case Drained(number, then):
                points.at(number, life.drain)
                if then:
                    points.at(number + then, kill)
            case _:
                pass


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
        code = os.waitstatus_to_exitcode(status)
        return Death(killed=code < 0, drained=code == DRAINED, moments=moments, latest=latest, fault=fault)

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
