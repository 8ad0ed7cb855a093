"""
How a life is lived and ended: processes that are forked, killed with -9, and followed by others.

A process is killed at the moment with some number, to which it comes itself, or at any instant, from outside.
The next one goes on until it is killed in turn, and the last is left alone.
"""

from __future__ import annotations

import asyncio
import itertools
import mmap
import os
import select
import signal
import time
import traceback
from pathlib import Path
from typing import NoReturn, final

import attrs

from ..effects.policy import Concurrency
from .points import PAGE, Points, counted, pointed_statements
from .torture_checks import life_faults
from .torture_life import TITLE, Asks, Life, Script
from .torture_trail import Remains, Shape

LONGEST = 30.0
"""Seconds after which a process hangs; a life takes a tenth of one."""

DURABLE = {11, 20, 31}
"""The lives of which each entry waits for the disk: few, since it makes them slow."""

SCRIPTS = tuple(
    [
        Script(
            durability="power" if number in DURABLE else "process",
            concurrency=concurrency,
            asks=asks,
            elsewhere=elsewhere,
            titles=titles,
            renamed=number % 2 == 1,
            late=number % 3 == 1,
        )
        for number, (concurrency, asks, elsewhere, titles) in enumerate(
            itertools.product(Concurrency, Asks, (False, True), ("inline", "model"))
        )
    ]
)
"""The lives there are; the first is the plainest."""


@final
@attrs.frozen
class At:
    """A process is killed at the moment with this *number*, from 1."""

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


Kill = At | After


@final
@attrs.frozen(kw_only=True)
class Case:
    """The life with the number *script*, and how its processes end, one after another."""

    script: int
    kills: tuple[Kill, ...]

    def __str__(self) -> str:
        return f"{self.script}:{','.join(map(str, self.kills))}"

    @classmethod
    def read(cls, text: str) -> Case:
        """The case that is written as *text*, such as ``0:137,0.250``."""
        script, _, kills = text.partition(":")
        each = [After(float(kill)) if "." in kill else At(int(kill)) for kill in kills.split(",") if kill]
        return cls(script=int(script), kills=tuple(each))


@final
@attrs.frozen(kw_only=True)
class Death:
    """How a process ended: whether it was *killed*, after so many *moments*, and the name of the *latest*."""

    killed: bool
    moments: int
    latest: str
    fault: str = ""


@final
@attrs.frozen(kw_only=True)
class Undisturbed:
    """
    A life that nobody disturbs: its *moments*, how many *seconds* it takes, and what is said in it.

    *faults* are what is wrong with it already.
    """

    moments: tuple[str, ...]
    seconds: float
    shapes: list[Shape]
    faults: list[str]


@final
@attrs.frozen(kw_only=True)
class Lived:
    """What came of a *case*: the *deaths* of its processes, what *remains*, and what is wrong with that."""

    case: Case
    deaths: list[Death]
    remains: Remains
    faults: list[str]

    def __str__(self) -> str:
        ends = [f"  process {number}: {_told(death)}" for number, death in enumerate(self.deaths, 1)]
        faults = [
            fault.strip().rpartition("\n")[2] for fault in self.faults
        ]  # of a traceback, what was raised
        return "\n".join([f"case {self.case}", *ends, *faults])

    @property
    def again(self) -> Case:
        """The case that is as near to this one as can be repeated: instants became the next moments."""
        kills = [
            At(death.moments + isinstance(kill, After))
            for death, kill in zip(self.deaths, self.case.kills, strict=False)
        ]
        return Case(script=self.case.script, kills=tuple(kills))


def _told(death: Death) -> str:
    end = "killed" if death.killed else "ended"
    return f"{end} after moment {death.moments}, {death.latest!r}"


def undisturbed(number: int, folder: Path) -> Undisturbed:
    """The life with this *number*, lived in *folder* from beginning to end."""
    began = time.monotonic()
    names = folder / "moments"
    death = _process(Process(SCRIPTS[number], folder, 1, names=names))
    seconds = time.monotonic() - began
    moments = tuple(names.read_text("utf-8").splitlines()) if names.exists() else ()
    names.unlink(missing_ok=True)
    remains = Remains.read(folder)
    title = TITLE[SCRIPTS[number].titles]
    faults = [death.fault] if death.fault else list(life_faults(remains, remains.shapes, title))
    return Undisturbed(moments=moments, seconds=seconds, shapes=remains.shapes, faults=faults)


def lived(case: Case, folder: Path, alone: Undisturbed) -> Lived:
    """What comes of *case* in *folder*, where nobody disturbs it *alone*."""
    script = SCRIPTS[case.script]
    deaths: list[Death] = []
    for number, kill in enumerate((*case.kills, None), 1):
        deaths.append(_process(Process(script, folder, number, kill), alone.seconds))
        if not deaths[-1].killed:
            break
    remains = Remains.read(folder)
    faults = [death.fault for death in deaths if death.fault]
    # A model is asked for a title in the background, once: that one may be lost.
    title = TITLE[script.titles] if script.titles == "inline" else ""
    faults = faults or list(life_faults(remains, alone.shapes, title))
    return Lived(case=case, deaths=deaths, remains=remains, faults=faults)


@final
@attrs.frozen
class Process:
    """The process with this *number* of the life of *script* in *folder*; *names* is where its moments go."""

    script: Script
    folder: Path
    number: int
    kill: Kill | None = None
    names: Path | None = None

    def be(self, shared: mmap.mmap, writing: int) -> NoReturn:
        """Be that process, which counts in *shared* and tells *writing* what goes wrong."""
        last = self.kill.number if isinstance(self.kill, At) else None
        points = Points(shared, last, kept=self.names is not None)
        pointed_statements(points)
        try:
            asyncio.run(Life(self.script, self.folder, self.number, points).live())
            if self.names is not None:
                self.names.write_text("\n".join(points.names), "utf-8")
        except BaseException:  # noqa: BLE001  # it must not go on as the process it was forked from
            os.write(writing, traceback.format_exc().encode())
        finally:
            os._exit(0)


def _process(process: Process, seconds: float = 0.0) -> Death:
    """Let *process* live until it is over or it is killed; *seconds* is how long it takes alone."""
    shared = mmap.mmap(-1, PAGE)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        process.be(shared, writing)
    os.close(writing)
    patience = seconds * process.kill.share if isinstance(process.kill, After) else LONGEST
    # The pipe is closed when the process ends, however that comes.
    over, _, _ = select.select([reading], [], [], patience)
    if not over:
        os.kill(pid, signal.SIGKILL)
    fault = b"".join(iter(lambda: os.read(reading, PAGE), b"")).decode(errors="replace")
    os.close(reading)
    _, status = os.waitpid(pid, 0)
    moments, latest = counted(shared)
    shared.close()
    if not (over or isinstance(process.kill, After)):
        fault = f"process {process.number} hangs after moment {moments}, {latest!r}"
    return Death(killed=os.WIFSIGNALED(status), moments=moments, latest=latest, fault=fault)
