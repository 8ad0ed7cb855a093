"""
All of many small worlds: every place they can get to, and every way between them.

Each world is searched to its end over the real machine: answers with some calls, tools that fail or not, a
person who says yes, always or no, failures of the model; interrupts and processes that are lost, at any time.
In some worlds there are hooks, deadlines, steers, changed settings, calls that are given up, a window that
fills up, another model that takes over, results that are left out, circles, or children who share a budget.
Every promise is checked on every way and at every place, see `always`; from everywhere the end can be
reached, and every row of the table is taken. What is found is told as a test, with the shortest way there is.

    python -m provers.model_check               the search
    python -m provers.model_check --only steer  of those worlds that have this in their name
    python -m provers.model_check --runs 10000  and so many random runs of larger worlds

It says how far it is where somebody watches. It ends with 1 where something is found, and with 2 where there
was nothing to try.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from contextlib import nullcontext
from functools import partial
from multiprocessing import Pool
from typing import TYPE_CHECKING

from provers.model_check.atlas import worlds
from provers.model_check.search import Proof, search
from provers.simulation.player import play
from provers.simulation.watched import PromiseBroken, Row
from turnwheel.states.table import LEGAL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from provers.model_check.worlds import World

FAULT = 200
"""Letters that are told of what was found elsewhere, too."""


def proved(world: World) -> Proof | str:
    """What a search of *world* saw; or, as a test to paste, what it found."""
    try:
        return search(world)
    except PromiseBroken as broken:
        return str(broken)


def prove(
    asked: Sequence[World], processes: int, told: Callable[[int], None] = lambda _: None
) -> list[Proof | str]:
    """
    What was seen in each of the worlds that were *asked* for, or found, by so many *processes*.

    After each, *told* is how many are over.
    """
    seen: dict[int, Proof | str] = {}
    with Pool(processes) if processes > 1 else nullcontext() as pool:
        each = map if pool is None else pool.imap_unordered
        for number, one in each(_numbered, enumerate(asked)):
            seen[number] = one
            told(len(seen))
    return [seen[number] for number in range(len(asked))]


def _numbered(asked: tuple[int, World]) -> tuple[int, Proof | str]:
    number, world = asked
    return number, proved(world)


def main(arguments: Sequence[str] | None = None) -> None:
    """Search all small worlds, then play as many runs as asked for, and say what was seen."""
    parser = argparse.ArgumentParser(prog="provers.model_check", description="Look for a broken promise.")
    parser.add_argument("--runs", type=at_least(0), default=0, help="random runs to play after the search")
    parser.add_argument("--first", type=at_least(0), default=0, help="the seed of the first of them")
    parser.add_argument("--only", default="", help="search only worlds that have this in their name")
    parser.add_argument(
        "--processes", type=at_least(1), default=os.cpu_count() or 1, help="how many search at a time"
    )
    asked = parser.parse_args(arguments)
    searched = [world for world in worlds() if asked.only in world.name]
    if not searched:
        parser.error(f"no world has {asked.only!r} in its name, so nothing was tried: see proving/atlas.py")
    began = time.monotonic()
    seen = prove(searched, asked.processes, partial(_tell, len(searched)))
    found = {world.name: one for world, one in zip(searched, seen, strict=True) if isinstance(one, str)}
    if found:
        print(findings(found))  # the report
        sys.exit(1)
    proofs = [one for one in seen if not isinstance(one, str)]
    rows = frozenset[Row]().union(*[proof.rows for proof in proofs])
    print(f"{report(proofs, rows)}\n{time.monotonic() - began:.0f} s")  # the report
    for seed in range(asked.first, asked.first + asked.runs):
        rows |= play(seed).rows
    if asked.runs:
        print(f"{asked.runs} runs: {len(rows)} rows")  # the report
    if not asked.only and rows != LEGAL:
        print("\n".join(f"not taken: {_said(row)}" for row in LEGAL - rows))  # the report
        sys.exit(1)


def at_least(least: int) -> Callable[[str], int]:
    """Reads a whole number that is *least* or more, or says what is wrong with it."""

    def number(text: str) -> int:
        if not re.fullmatch("[0-9]{1,9}", text) or int(text) < least:
            msg = f"{text!r} is no whole number from {least} to 999999999"
            raise argparse.ArgumentTypeError(msg)
        return int(text)

    return number


def _tell(all_: int, over: int) -> None:
    """Say that so many of *all_* worlds are *over*, on a line of its own, if anybody watches."""
    if sys.stderr.isatty():
        end = "\n" if over == all_ else ""
        print(f"\r{over} of {all_} worlds", end=end, file=sys.stderr, flush=True)  # progress


def findings(found: Mapping[str, str]) -> str:
    """All that was *found*, by the world's name: the shortest as a test to paste, of others what is wrong."""
    first, *others = sorted(found, key=lambda name: len(found[name]))
    faults = {name: found[name].splitlines()[0].removeprefix("# ")[:FAULT] for name in others}
    rest = [f"# in {name!r} too: {fault}" for name, fault in faults.items()]
    return "\n".join([found[first], "", f"# found in {first!r}, see it again with --only", *rest])


def report(proofs: Sequence[Proof], rows: frozenset[Row]) -> str:
    """What was seen, in numbers."""
    states, ways = sum(one.states for one in proofs), sum(one.ways for one in proofs)
    farthest = max(proofs, key=lambda one: one.length)
    largest = max(proofs, key=lambda one: one.states)
    absorbed, over = sum(one.absorbed for one in proofs), sum(one.taken_over for one in proofs)
    compared = sum(one.compared for one in proofs)
    return "\n".join(
        [
            f"{len(proofs)} worlds: {states:,} states, {ways:,} ways between them",
            f"{len(rows)} of {len(LEGAL)} rows of the table were taken",
            f"the farthest state is {farthest.length} ways from its beginning",
            f"the largest world, {largest.name}, has {largest.states:,} states",
            f"{absorbed:,} events came late, again or where they do not belong, and changed nothing",
            f"{over:,} times a run was taken over where it was left, and every state was written and read",
            f"{compared:,} states were compared with those that were taken for the same",
        ]
    )


def _said(row: Row) -> str:
    state, event, target = row
    return f"{state} {event.__name__} {target}"


if __name__ == "__main__":
    main()
