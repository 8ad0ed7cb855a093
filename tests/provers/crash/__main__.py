"""
Kill everywhere: a session is ended with -9 at every moment, and whoever goes on has to keep every promise.

A life is one session with everything in it, lived through by processes that are forked once everything is
imported. They are killed just before and just after each entry of each life, at every moment of the first
one, and at drawn moments and instants of all, also while they recover; afterwards the store is held against
what the world noted. See `killing.life` for what is lived through, `killing.cases` for how it is ended, and
`killing.checks` for what must hold.

    python -m provers.crash                   10,000 kills
    python -m provers.crash --kills 500 --seed 7
    python -m provers.crash --again 0:137,4   one case: life 0, killed at moments 137 and then 4
    python -m provers.crash --again 0:z137    the same, frozen there and woken when all is over
    python -m provers.crash --again 0:d137+5  told to leave there, and killed 5 moments later
    python -m provers.crash --at "pay: begun" every moment of life 0 that is called so
    python -m provers.crash --moments 0       the moments of life 0
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import mmap
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from functools import partial
from itertools import count, islice, zip_longest
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from provers.choices import (
    Seeded,
    chance,
    pick,
    weighted,
)
from provers.crash.cases import (
    SCRIPTS,
    Case,
    Lived,
    Undisturbed,
    lived,
    undisturbed,
)
from provers.crash.life import Life
from provers.crash.points import PAGE, Points
from provers.crash.process import (
    After,
    At,
    Drained,
    End,
    Frozen,
)
from provers.options import NOTHING, NothingTried, whole
from turnwheel.effects.messages import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from provers.choices import Choices

HOW: dict[str, Callable[[int], End]] = {"killed": At, "frozen": Frozen, "drained": Drained}
"""What may become of a process at a moment."""

MOST = 4
"""Processes of one life that are killed, at most."""

TELL = 2_000
"""After so many kills each time it says how far it is."""

SOON = 30
"""Moments in which a recovery is about its business, and after which it is a run like any other."""

OTHERS = 6
"""For each case that is drawn, so many that are not: so 10,000 kills are enough for all of those."""

DOZEN = 12
"""So many are drawn before that, so that there are some however few kills are asked for."""

BATCH = 200
"""Cases that are handed to the workers at once."""

REPORT = """\
{edges gone through:,} of {edges:,} moments just before and after an entry, of {different lives:,} lives
{kills:,} kills in {lives:,} lives: {at moments:,} at moments, {at instants:,} at instants
{in a recovery:,} of them in a recovery, {process:,} processes, {entries:,} entries
{woken:,} processes frozen and woken when others had gone on: {late:,} told so, the rest with nothing to do
{drained:,} processes drained
{tool:,} starts of tools, {unknown:,} calls told of as perhaps run
{kept:,} answers of models kept, {lost:,} asked for again
{asked:,} questions put, {accepted:,} inputs accepted"""
"""What was done."""

Found = tuple[Counter[str], str]
"""What was counted in a case, and what is wrong with it, empty for nothing."""


# Which cases there are


Alone = dict[int, Undisturbed]
"""The lives that there are to live, by number, where nobody disturbs them."""


def cases(asked: argparse.Namespace, alone: Alone) -> Iterator[Case]:
    """
    The edges of the first life of those *alone*; then all others, and in turn with them drawn cases.

    Those others are the edges of the other lives, one of each in turn, and then all else of the first life.
    Where moments *at* something are *asked* for, those alone.
    """
    first, undisturbed = next(iter(alone.items()))
    if asked.at:
        numbers = [number for number, name in enumerate(undisturbed.moments, 1) if asked.at in name]
        yield from [Case(script=first, ends=(HOW[asked.how](number),)) for number in numbers]
        return
    own, *more = [edges(life, lived) for life, lived in alone.items()]
    yield from own
    others = [case for turn in zip_longest(*more) for case in turn if case is not None]
    inside = [number for number, name in enumerate(undisturbed.moments, 1) if not is_edge(name)]
    others += [Case(script=first, ends=(At(number),)) for number in inside]
    for number in count():
        if number >= DOZEN:
            yield from others[(number - DOZEN) * OTHERS : (number - DOZEN + 1) * OTHERS]
        yield drawn(Seeded(asked.seed * 1_000_003 + number), alone)


def edges(life: int, alone: Undisturbed) -> list[Case]:
    """The kills just before and just after each entry of *life*, which nobody disturbs *alone*."""
    numbers = [number for number, name in enumerate(alone.moments, 1) if is_edge(name)]
    return [Case(script=life, ends=(At(number),)) for number in numbers]


def is_edge(moment: str) -> bool:
    """Whether at this *moment* a journal is as it will be found, just before a write or just after."""
    return moment.startswith("append") and moment.endswith(("before", "after"))


def drawn(choices: Choices, alone: Alone) -> Case:
    """A case as *choices* draw it, of one of the lives that nobody disturbs *alone*."""
    script = pick(choices, tuple(alone))
    most = len(alone[script].moments)
    ends = [_end(choices, {"any": 45, "instant": 30, "frozen": 12, "drained": 13}, most)]
    while len(ends) < MOST and chance(choices, 45):
        ends.append(_end(choices, {"soon": 45, "any": 15, "instant": 15, "frozen": 10, "drained": 15}, most))
    return Case(script=script, ends=tuple(ends))


def _end(choices: Choices, kinds: dict[str, int], most: int) -> End:
    number = 1 + choices.below(most)
    match weighted(choices, kinds):
        case "soon":
            return At(1 + choices.below(SOON))
        case "instant":
            return After((1 + choices.below(999)) / 1_000)
        case "frozen":
            return Frozen(number)
        case "drained":
            return Drained(number, choices.below(SOON) if chance(choices, 40) else 0)
        case _:
            return At(number)


# Living through them


def _alone(script: int, folder: Path) -> Undisturbed:
    return undisturbed(script, Path(tempfile.mkdtemp(dir=folder)))


def _tried(work: tuple[Case, Undisturbed], folder: Path) -> Found:
    """Live through a case, in a folder of its own, which is gone if nothing is wrong."""
    case, alone = work
    where = Path(tempfile.mkdtemp(dir=folder))
    found = lived(case, where, alone)
    if found.faults:
        return counted(found), f"{found}\n  see it again: --again {found.again}; what remains: {where}"
    shutil.rmtree(where)
    return counted(found), ""


def counted(found: Lived) -> Counter[str]:
    """What is worth counting in a case."""
    counts: Counter[str] = Counter(lives=1)
    for number, (end, death) in enumerate(zip(found.case.ends, found.deaths, strict=False)):
        if death.killed:
            counts["kills"] += 1
            counts["at instants" if isinstance(end, After) else "at moments"] += 1
            counts["in a recovery"] += number > 0
    counts["drained"] = sum(death.drained for death in found.deaths)
    counts["woken"] = len(found.woken)
    counts["late"] = sum(bool(death.fault) for death in found.woken.values())
    counts.update([str(note["kind"]) for note in found.remains.notes])
    for trail in found.remains.trails.values():
        counts["unknown"] += sum(outcome is Outcome.UNKNOWN for outcome in trail.told.values())
        counts["lost"] += trail.lost.total()
        counts["kept"] += sum(map(len, trail.answers.values()))
        counts["entries"] += len(trail.open) - 1
    return counts


def report(counts: Counter[str], seconds: float) -> str:
    """What was done, in words."""
    said = REPORT.format_map(defaultdict(int, counts))
    return f"{said}\n{seconds:.0f} s, {counts['kills'] / seconds:.1f} kills a second"


def every(asked: argparse.Namespace, folder: Path) -> str:
    """
    Live through as many cases as were *asked* for, and say what was done; what is wrong with one of them.

    It ends with the first that something is wrong with. Raises `NothingTried` where there is none.
    """
    counts: Counter[str] = Counter()
    told = TELL
    began = time.monotonic()
    with get_context("fork").Pool(asked.workers) as pool:
        lives = range(asked.first, asked.first + 1 if asked.at else asked.beyond)
        alone = dict(zip(lives, pool.map(partial(_alone, folder=folder), lives, 1), strict=True))
        wrong = "\n".join([f"life {life}: {fault}" for life in lives for fault in alone[life].faults])
        todo = cases(asked, alone)
        around = {case for life in lives for case in edges(life, alone[life])}
        counts.update({"different lives": len(lives), "edges": len(around)})
        while counts["kills"] < asked.kills and not wrong:
            batch = islice(todo, min(BATCH, asked.kills - counts["kills"]))
            work = [(case, alone[case.script]) for case in batch]
            if not work:
                break
            counts["edges gone through"] += len(around.intersection(case for case, _ in work))
            around.difference_update(case for case, _ in work)
            for found, wrong in pool.imap_unordered(partial(_tried, folder=folder), work, 4):
                counts.update(found)
                if wrong:
                    break
            if counts["kills"] >= told:
                print(f"{counts['kills']:,} kills ...", flush=True)  # it takes minutes
                told += TELL
    if not (wrong or counts["lives"]):
        msg = f"no moment of life {asked.first} is called {asked.at!r}: see --moments {asked.first}"
        raise NothingTried(msg)
    print(report(counts, time.monotonic() - began))  # the report
    return wrong


def once(case: Case, folder: Path) -> str:
    """
    Live through *case* alone, and say what came of it; what is wrong with it, tracebacks and all.

    Raises `NothingTried` where all was over before any of it came.
    """
    alone = _alone(case.script, folder.parent)
    found = lived(case, folder, alone)
    print(found)  # the report
    if case.ends and not found.faults and not any(death.came for death in found.deaths):
        msg = f"nobody was disturbed: life {case.script} is over after moment {len(alone.moments)}"
        raise NothingTried(msg)
    return "\n".join(found.faults)


def warm_up(folder: Path) -> None:
    """Live a life in this process, so that those that are forked from it find everything ready."""
    asyncio.run(Life(SCRIPTS[0], folder, 1, Points(mmap.mmap(-1, PAGE))).live())
    while threading.active_count() > 1:  # the store's, which ends by itself; nobody forks beside a thread
        time.sleep(0.001)
    gc.collect()
    gc.freeze()


def case_of(text: str) -> Case:
    """The case that is written as *text*; an error of the command line where there is none such."""
    try:
        case = Case.read(text)
    except ValueError:
        case = None
    if case is None or not case.possible:
        msg = (
            f"needs a life, 0 to {len(SCRIPTS) - 1}, and how its processes end, moments from 1 on"
            f" or shares of the time, such as 0:137,z4,0.250,d9+2; not {text!r}"
        )
        raise argparse.ArgumentTypeError(msg)
    return case


def asked_for(arguments: Sequence[str] | None) -> argparse.Namespace:
    """What is asked for by *arguments*; ends where that is nothing that can be done."""
    life = whole(0, len(SCRIPTS) - 1)
    parser = argparse.ArgumentParser(prog="provers.crash", description="Kill everywhere.")
    parser.add_argument("--kills", type=whole(1), default=10_000, help="how often, at least")
    parser.add_argument("--seed", type=int, default=0, help="what draws the cases behind the first")
    parser.add_argument("--lives", type=whole(1), help="how many different lives there are; all, if not said")
    parser.add_argument("--first", type=life, default=0, help="the first of them")
    parser.add_argument("--at", metavar="MOMENT", help="only at moments of the first whose names have this")
    parser.add_argument("--how", choices=HOW, default="killed", help="what becomes of a process there")
    parser.add_argument("--workers", type=whole(1), default=os.cpu_count() or 1, help="cases at once")
    parser.add_argument("--again", type=case_of, metavar="CASE", help="this case alone, such as 0:137,4")
    parser.add_argument("--moments", type=life, metavar="LIFE", help="say which moments a life has")
    asked = parser.parse_args(arguments)
    asked.beyond = len(SCRIPTS) if asked.lives is None else asked.first + asked.lives
    if asked.beyond > len(SCRIPTS):
        parser.error(f"--lives: from {asked.first} on there are {len(SCRIPTS) - asked.first} of them")
    return asked


def main(arguments: Sequence[str] | None = None) -> None:
    """
    Kill as often as asked for, and say what was found.

    The exit code is 1 where something is wrong, and 2 where nothing was tried.
    """
    asked = asked_for(arguments)
    folder = Path(tempfile.mkdtemp(prefix="turnwheel-torture-"))
    wrong = ""
    try:
        warm_up(Path(tempfile.mkdtemp(dir=folder)))
        wrong = done(asked, folder)
    except NothingTried as nothing:
        print(f"nothing was tried: {nothing}")  # as above
        sys.exit(NOTHING)
    finally:
        if not wrong:
            shutil.rmtree(folder)
    print(wrong or "every promise was kept")  # the report
    sys.exit(bool(wrong))


def done(asked: argparse.Namespace, folder: Path) -> str:
    """Do what is *asked* for, in *folder*; what is wrong."""
    if asked.moments is not None:
        names = _alone(asked.moments, folder).moments
        print("\n".join([f"{number:4} {name}" for number, name in enumerate(names, 1)]))  # the report
        return ""
    if asked.again is not None:
        return once(asked.again, Path(tempfile.mkdtemp(dir=folder)))
    return every(asked, folder)


if __name__ == "__main__":
    main()
