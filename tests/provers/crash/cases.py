"""
The lives there are, and how they are ended: each by one process after another.

The first process begins, each of the others goes on where one was killed, drained or is frozen, and the last
is left alone. What was frozen wakes then, when everything is over.
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import final

import attrs

from provers.crash.checks import gentle_faults, life_faults
from provers.crash.process import (
    After,
    At,
    Death,
    Drained,
    End,
    Frozen,
    Process,
    Running,
)
from provers.crash.script import TITLE, Asks, Script
from provers.crash.trail import Remains, Shape
from turnwheel.effects.config import Concurrency, OnLost
from turnwheel.effects.output import OutputMode

TOLD = ("turnwheel.effects.errors.StoreConflict: ", "turnwheel.effects.errors.UnknownRequest: ")
"""What a process is told that wakes when others went on: that they did, or that its answer comes late."""

DURABLE = {11, 20, 31}
"""The lives of which each entry waits for the disk: few, since it makes them slow."""

ASKED = 2
"""The third of the lives in which a person is asked what becomes of a tool that may have run."""

OUTPUTS = (OutputMode.NATIVE, None, OutputMode.TOOL, OutputMode.PROMPTED)
"""How models are asked for an output, in four lives in turn."""

STREAMED = {0, 1}
"""Of four lives those whose models answer on the wire of Responses."""

SCRIPTS = tuple(
    [
        Script(
            durability="power" if number in DURABLE else "process",
            concurrency=concurrency,
            asks=asks,
            elsewhere=elsewhere,
            titles=titles,
            on_lost=OnLost.ASK if number % 3 == ASKED else OnLost.REPORT,
            renamed=number % 2 == 1,
            late=number % 3 == 1,
            output=OUTPUTS[number % 4],
            streamed=number % 4 in STREAMED,
        )
        for number, (concurrency, asks, elsewhere, titles) in enumerate(
            itertools.product(Concurrency, Asks, (False, True), ("inline", "model"))
        )
    ]
)
"""The lives there are; the first is the plainest."""


@final
@attrs.frozen(kw_only=True)
class Case:
    """The life with the number *script*, and the *ends* of its processes, one after another."""

    script: int
    ends: tuple[End, ...]

    def __str__(self) -> str:
        return f"{self.script}:{','.join(map(str, self.ends))}"

    @classmethod
    def read(cls, text: str) -> Case:
        """The case that is written as *text*, such as ``0:z12,137,0.250``."""
        script, _, ends = text.partition(":")
        return cls(script=int(script), ends=tuple([_end(end) for end in ends.split(",") if end]))

    @property
    def possible(self) -> bool:
        """Whether there is such a life, and its processes end at a moment or an instant that may come."""
        return 0 <= self.script < len(SCRIPTS) and all(end.possible for end in self.ends)

    @property
    def gentle(self) -> bool:
        """Whether all its processes are only drained."""
        return all(isinstance(end, Drained) and not end.then for end in self.ends)


def _end(text: str) -> End:
    if text.startswith("z"):
        return Frozen(int(text[1:]))
    if text.startswith("d"):
        number, _, then = text[1:].partition("+")
        return Drained(int(number), int(then or 0))
    return After(float(text)) if "." in text else At(int(text))


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
    """
    What came of a *case*: the *deaths* of its processes, what *remains*, and the *faults* of that.

    *woken* are the deaths of those that were frozen, by their numbers.
    """

    case: Case
    deaths: list[Death]
    woken: dict[int, Death]
    remains: Remains
    faults: list[str]

    def __str__(self) -> str:
        ends = [f"  process {number}: {death}" for number, death in enumerate(self.deaths, 1)]
        ends += [
            f"  woken {number}: {death}, {death.raised or 'well'}" for number, death in self.woken.items()
        ]
        faults = [
            fault.strip().rpartition("\n")[2] for fault in self.faults
        ]  # of a traceback, what was raised
        return "\n".join([f"case {self.case}", *ends, *faults])

    @property
    def again(self) -> Case:
        """The case that is as near to this one as can be repeated: instants became the next moments."""
        ends = [
            At(death.moments + 1) if isinstance(end, After) else end
            for death, end in zip(self.deaths, self.case.ends, strict=False)
        ]
        return Case(script=self.case.script, ends=tuple(ends))


def undisturbed(number: int, folder: Path) -> Undisturbed:
    """The life with this *number*, lived in *folder* from beginning to end."""
    began = time.monotonic()
    names = folder / "moments"
    death = Process(SCRIPTS[number], folder, 1, names=names).begin().ended()
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
    frozen: dict[int, Running] = {}
    for number, end in enumerate((*case.ends, None), 1):
        running = Process(script, folder, number, end).begin()
        deaths.append(running.ended(alone.seconds))
        if deaths[-1].frozen:
            frozen[number] = running
        elif not deaths[-1].killed and not deaths[-1].drained:
            break
    woken = {number: running.woken() for number, running in frozen.items()}
    remains = Remains.read(folder)
    faults = [death.fault for death in deaths if death.fault]
    faults += [death.fault for death in woken.values() if death.fault and not death.raised.startswith(TOLD)]
    # A model is asked for a title in the background, once: that one may be lost.
    title = TITLE[script.titles] if script.titles == "inline" else ""
    faults = faults or list(life_faults(remains, alone.shapes, title, overtaken=bool(woken)))
    if not woken and remains.of("refused"):
        faults.append("a process is refused, although all before it are gone")
    faults += gentle_faults(remains) if case.gentle else []
    return Lived(case=case, deaths=deaths, woken=woken, remains=remains, faults=faults)
