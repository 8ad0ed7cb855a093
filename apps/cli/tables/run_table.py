"""`turnwheel runs`: print the runs of a session as a tree."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from ....effects.errors import UnknownRun
from ....engine.inspect.run_tree import RunInfo
from ...terminal.sanitize import clean
from ...terminal.screen import INDENT, Screen
from ...terminal.spend_format import cell, figures
from .columns import show
from .session_table import UNFINISHED, age

RUN_HEADINGS = ("run", "", "state", "tokens", "cost", "began", "prompt")

RUN_NUMBERS = ("tokens", "cost")
"""The right-aligned columns."""

HERE, HEAD = "here", "head"
"""Marks the run where the session stands, and each other run without a next one."""

START = "start"
"""The name of the beginning of a session, before its first run."""


def branches(runs: Sequence[RunInfo]) -> Iterator[tuple[int, RunInfo | None]]:
    """
    *runs* in the order of the tree, each with its depth; None stands for the beginning.

    The runs up to where the session stands are not indented; a side branch is. The beginning is listed if
    several runs start there, or if the session stands there.
    """
    below: dict[str, list[RunInfo]] = {}
    for run in runs:
        below.setdefault(run.parent, []).append(run)
    if len(below.get("", ())) > 1 or not any(run.current for run in runs):
        yield 0, None
    way = _path_here(runs)
    waiting = list(_indented(below.get("", ()), 0, way))
    while waiting:
        depth, run = waiting.pop()
        yield depth, run
        waiting += _indented(below.get(run.run, ()), depth, way)


def _path_here(runs: Sequence[RunInfo]) -> set[str]:
    """The runs from the beginning to where the session stands."""
    known = {run.run: run for run in runs}
    here = next((run for run in runs if run.current), None)
    way: set[str] = set()
    while here is not None and here.run not in way:
        way.add(here.run)
        here = known.get(here.parent)
    return way


def _indented(runs: Sequence[RunInfo], depth: int, way: set[str]) -> Iterator[tuple[int, RunInfo]]:
    """The siblings *runs* with their depths, for a stack: the last one is printed first."""
    if runs:
        main = next((run for run in runs if run.run in way), runs[-1])
        yield depth, main
        yield from ((depth + 1, run) for run in reversed(runs) if run is not main)


def listing(runs: Sequence[RunInfo], screen: Screen, state: str = UNFINISHED) -> None:
    """Print *runs* in columns; *state* is that of the session, if its run is unfinished."""
    stands = any(run.current for run in runs)
    rows = [
        (START, "" if stands else HERE, *[""] * (len(RUN_HEADINGS) - 2))
        if run is None
        else _cells(depth, run, state if run.current else UNFINISHED)
        for depth, run in branches(runs)
    ]
    show(RUN_HEADINGS, rows, screen, RUN_NUMBERS)


def _cells(depth: int, run: RunInfo, unfinished: str) -> tuple[str, ...]:
    """
    The cells of *run*, with *unfinished* as its state before its end.

    A copied run shows no cost, since the original session paid for it.
    """
    used = ("copied", "") if run.copied else (f"{run.spent.usage.total:,}", cell(run.spent))
    return (
        INDENT * depth + clean(run.run),
        HERE if run.current else HEAD if run.head else "",
        unfinished if run.reason is None else f"done: {run.reason}",
        *used,
        age(time.time() - run.at),
        run.prompt,
    )


def as_plain(run: RunInfo) -> dict[str, object]:
    """*run* as JSON data; *at* is in seconds since the epoch."""
    return {
        "run": run.run,
        "parent": run.parent,
        "prompt": run.prompt,
        "at": run.at,
        "reason": None if run.reason is None else run.reason.value,
        "head": run.head,
        "here": run.current,
        "copied": run.copied,
        **figures(run.spent),
    }


def resolve_run(name: str, runs: Sequence[RunInfo]) -> str:
    """
    The id of the run that *name* is or begins; empty for the beginning.

    Raises `UnknownRun` if none or several match.
    """
    there = [run.run for run in runs]
    if name == START or name in there:
        return "" if name == START else name
    found = [run for run in there if run.startswith(name)] if name else []
    if len(found) != 1:
        raise UnknownRun(name, tuple(found or there))
    return found[0]
