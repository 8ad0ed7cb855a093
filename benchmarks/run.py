"""
turnwheel's benchmark: the cost of a step, beside a loop written by hand in the same run.

``python -m benchmarks.run [--quick] [--json FILE] [--floor PYTHON]``. Contenders take turns, each in a
process of its own. Each repetition gives a ratio, and the table shows the median of these. So a busy machine
slows both sides of a ratio.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from operator import itemgetter
from pathlib import Path

from packaging.requirements import Requirement

from .work import FAST, FLOOR, OURS

ROOT = Path(__file__).resolve().parent.parent
Figures = dict[str, float]
"""The figures of one process, by name."""

Results = dict[tuple[str, str], list[Figures]]
"""The figures of each contender in each measure, one entry for each repetition."""

IMPORT = """
import json, time
begun = time.process_time()
import httpx
there = time.process_time()
from turnwheel import Agent, SQLiteStore, tool
print(json.dumps({"httpx": there - begun, "turnwheel": time.process_time() - there}))
"""


# CPU of the interpreter's start is taken off: what is left is what the command line adds.
COMMAND = """
import json, resource, subprocess, sys
def cpu(*words):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
commands = {"help": ["--help"], "sessions": ["sessions", "--store", "no such file"]}
for words in commands.values():
    cpu("-m", "turnwheel.apps.cli", *words)
bare = cpu("-c", "")
print(json.dumps({name: cpu("-m", "turnwheel.apps.cli", *words) - bare for name, words in commands.items()}))
"""


@dataclass(frozen=True)
class Sizes:
    """The arguments of each measure, and the number of repetitions."""

    repetitions: int
    per_round: tuple[int, int]
    traced: tuple[int, int]
    per_delta: tuple[int, ...]
    growth: tuple[int, ...]
    together: tuple[int, int, int]
    kept: tuple[int, int]
    pure: tuple[int, int]
    store: tuple[int, int, int]
    long: int
    waiting: int


FULL = Sizes(
    5,
    (50, 3),
    (50, 15),
    (2_000, 2_000, 20_000, 100_000),
    (10, 100, 400),
    (200, 10, 20),
    (10, 1_000),
    (1_000, 20_000),
    (300, 200, 100_000),
    5_000,
    1_000,
)
QUICK = Sizes(
    3,
    (20, 2),
    (20, 5),
    (100, 500, 2_000),
    (10, 50),
    (20, 5, 20),
    (10, 50),
    (200, 2_000),
    (50, 50, 1_000),
    300,
    100,
)

BESIDE = {
    "per_round": (FLOOR, OURS, FAST),
    "traced": (OURS,),
    "per_delta": (FLOOR, OURS, FAST),
    "growth": (FLOOR, OURS),
    "together": (FLOOR, OURS, FAST),
    "kept": (FLOOR, OURS),
}
"""The contenders of each measure of `benchmarks.worker`."""

BARRED = 20_000
"""The deltas of the answer that has a bar by aiohttp."""

REPEATED = {
    "together": 3,  # it takes long, and says the same of thousands of rounds
    "kept": 1,  # the bytes are the same in each repetition
}
"""The measures that are not taken in each repetition."""


@dataclass(frozen=True)
class Row:
    """One line of the table; *ratio* is ours to the floor's, and should not exceed *bar*."""

    name: str
    unit: str
    ours: float
    floor: float | None = None
    ratio: float | None = None
    spread: tuple[float, float] | None = None
    bar: str = ""

    def cells(self) -> tuple[str, ...]:
        """The cells of this line."""
        spread = f"{self.spread[0]:.2f}..{self.spread[1]:.2f}" if self.spread else ""
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        floor = "" if self.floor is None else shown(self.floor)
        return self.name, self.unit, shown(self.ours), floor, ratio, spread, self.bar


def shown(value: float) -> str:
    """*value* with three digits or more."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


# Running


@contextlib.contextmanager
def server() -> Generator[str, None, None]:
    """Start a model that answers until the block ends; yield its address."""
    command = [sys.executable, "-m", "benchmarks.server"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.stdin.close()


def output_of(*arguments: str, python: str = sys.executable, **environment: str) -> str:
    """What *python* prints with *arguments*. A failure ends the benchmark."""
    env = {**os.environ, **environment}
    done = subprocess.run(
        [python, *arguments], cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(arguments)[:100]} failed: see above")
    return done.stdout


def figures_of(*arguments: str, python: str = sys.executable, **environment: str) -> Figures:
    """The figures that *python* prints with *arguments*."""
    figures: Figures = json.loads(output_of(*arguments, python=python, **environment))
    return figures


def imports(cache: str) -> Figures:
    """CPU of `import httpx`, and of `import turnwheel` after it, with bytecode in *cache*."""
    # Without bytecode this would measure the compiler, so writing it must not be switched off.
    return figures_of("-c", IMPORT, PYTHONDONTWRITEBYTECODE="", PYTHONPYCACHEPREFIX=cache)


def commands(cache: str) -> Figures:
    """CPU of short commands beyond that of a bare interpreter, with bytecode in *cache*."""
    return figures_of("-c", COMMAND, PYTHONDONTWRITEBYTECODE="", PYTHONPYCACHEPREFIX=cache)


def counted() -> dict[str, Figures]:
    """The calls of each measure of `benchmarks.calls`, and their bound."""
    counts = json.loads(output_of("-m", "benchmarks.calls"))
    return {
        f"calls: {name}": {"calls": sum(measure["calls"].values()), "bound": measure["bound"]}
        for name, measure in counts.items()
    }


def collect(sizes: Sizes, floor: str) -> Results:
    """Run all measures, in turns; the Python *floor* runs the floor."""
    results: Results = {}
    pythons = {FLOOR: floor, OURS: sys.executable, FAST: sys.executable}

    def add(who: str, what: str, figures: Figures) -> None:
        results.setdefault((who, what), []).append(figures)

    with server() as url, tempfile.TemporaryDirectory(prefix="bench-") as cache:
        imports(cache)  # fills the cache
        for number in range(sizes.repetitions):
            for what, contenders in BESIDE.items():
                if number >= REPEATED.get(what, sizes.repetitions):
                    continue
                for who in random.sample(contenders, len(contenders)):
                    started = ("-m", "benchmarks.worker", who, what, url, json.dumps(getattr(sizes, what)))
                    add(who, what, figures_of(*started, python=pythons[who]))
            add(OURS, "pure", figures_of("-m", "benchmarks.pure", *map(str, sizes.pure)))
            add(OURS, "store", figures_of("-m", "benchmarks.store", *map(str, sizes.store)))
            add(OURS, "import", imports(cache))
            add(OURS, "command", commands(cache))
            if not number:  # it takes half a minute, and its bar is far away
                add(OURS, "long", figures_of("-m", "benchmarks.long", str(sizes.long)))
                add(OURS, "waiting", figures_of("-m", "benchmarks.waiting", str(sizes.waiting)))
            if not number:  # the calls are the same in each repetition
                for name, measure in counted().items():
                    add(OURS, name, measure)
            print(f"repetition {number + 1} of {sizes.repetitions}", file=sys.stderr)
    return results


def distributions() -> int:
    """The number of distributions that `pip install turnwheel` installs, itself included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted: list[str] = project["dependencies"]
    found: set[str] = {project["name"]}
    while wanted:
        requirement = Requirement(wanted.pop())
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            found.add(name)
            wanted += metadata.requires(name) or ()
    return len(found)


# Reading


def quotient(above: str, below: str, figures: Figures) -> float:
    """The figure *above* as a multiple of the one *below*."""
    return figures[above] / figures[below]


class Report:
    """Makes the rows of the table from *results*."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self.rows: list[Row] = []

    def measures(self, prefix: str) -> list[tuple[str, list[Figures]]]:
        """Our measures whose names begin with *prefix*, and the figures of each."""
        return [
            (what, figures)
            for (who, what), figures in self._results.items()
            if who == OURS and what.startswith(prefix)
        ]

    def beside(self, name: str, unit: str, what: str, key: str, bar: str = "", who: str = OURS) -> None:
        """Add the figure *key* of the measure *what*, of the contender *who*, beside the floor's."""
        ours = [figures[key] for figures in self._results[who, what]]
        floor = [figures[key] for figures in self._results[FLOOR, what]]
        ratios = [mine / theirs for mine, theirs in zip(ours, floor, strict=True) if theirs > 0]
        spread = (min(ratios), max(ratios)) if len(ratios) > 1 else None
        ratio = statistics.median(ratios) if ratios else None
        self.rows.append(
            Row(name, unit, statistics.median(ours), statistics.median(floor), ratio, spread, bar)
        )

    def alone(
        self, name: str, unit: str, value: Callable[[Figures], float], what: str, bar: str = ""
    ) -> None:
        """Add a figure that the floor does not have."""
        values = [value(figures) for figures in self._results[OURS, what]]
        self.rows.append(Row(name, unit, statistics.median(values), bar=bar))


def rows_of(results: Results, sizes: Sizes) -> list[Row]:
    """The whole table."""
    report = Report(results)
    steps(report, sizes)
    growing(report, sizes)
    stores(report, sizes)
    sessions(report, sizes)
    parts(report)
    return report.rows


def steps(report: Report, sizes: Sizes) -> None:
    """Add what a round and a delta cost, by either library, and many sessions at once."""
    report.beside("tool round", "µs", "per_round", "memory", "1.2x")
    report.beside("tool round, by aiohttp", "µs", "per_round", "memory", "0.65x", FAST)
    report.beside("tool round, kept in SQLite", "µs", "per_round", "durable")
    to_memory = partial(quotient, "durable", "memory")
    report.alone("the same, to one in memory", "x", to_memory, "per_round", "1.6")
    report.alone(
        "tool round with telemetry, to one without", "x", partial(quotient, "on", "off"), "traced", "1.25"
    )
    alone, *replies = sizes.per_delta
    for size in replies:
        report.beside(f"delta, of {size:,}", "µs", "per_delta", str(size), "1.2x")
    for size in replies:
        bar = "0.7x" if size == BARRED else ""
        report.beside(f"delta, of {size:,}, by aiohttp", "µs", "per_delta", str(size), bar, FAST)
    report.beside(f"delta, of {alone:,} arriving one by one", "µs", "per_delta", "alone", "1.2x")
    many, rounds, _ = sizes.together
    at_once = f"{many} sessions at once, of {rounds} rounds"
    report.beside(at_once, "s", "together", "cpu", "0.5x")
    report.beside(f"{at_once}, by aiohttp", "s", "together", "cpu", "0.2x", FAST)


def growing(report: Report, sizes: Sizes) -> None:
    """Add what a long conversation costs, in time and in bytes."""
    for size in sizes.growth:
        report.beside(f"round, of {size:,}", "µs", "growth", str(size))
    report.beside("added to a round by each before it", "µs", "growth", "slope", "0.3x")
    early, late = sizes.kept
    report.beside(f"kept of round {early:,}", "bytes", "kept", "early")
    report.beside(f"kept of round {late:,}", "bytes", "kept", "late")
    report.alone(
        f"round {late:,}, to round {early:,}", "x", partial(quotient, "late", "early"), "kept", "1.05"
    )
    report.beside("written per round, pages and all", "bytes", "kept", "written")


def stores(report: Report, sizes: Sizes) -> None:
    """Add what the store does by itself."""
    _, many, listed = sizes.store
    for name, unit, key, bar in (
        ("append, waiting for the disk", "µs", "append", ""),
        ("appends of one session", "/s", "alone", ""),
        (f"appends of {many} sessions at once", "/s", "together", ""),
        ("commits for each of those", "", "commits", ""),
        (f"50 of {listed:,} sessions", "ms", "page", ""),
        (f"all {listed:,} sessions", "s", "all", ""),
        ("the loop at a stretch, for that", "ms", "held", "20 ms"),
        ("an append meanwhile", "ms", "waited", ""),
    ):
        report.alone(f"store: {name}", unit, itemgetter(key), "store", bar)


def sessions(report: Report, sizes: Sizes) -> None:
    """Add what is done with a long session, and what many cost that wait."""
    session = f"session of {sizes.long:,} rounds"
    for name, key, bar in (
        (f"{session}: load", "load", "50 ms"),
        ("the same, without a checkpoint", "whole", ""),
        ("the same, and every message", "read", ""),
        (f"{session}: a page of 50 steps from its middle", "page", ""),
        (f"{session}: fork", "fork", ""),
        (f"{session}: why", "why", ""),
        (f"{session}: export", "export", ""),
    ):
        report.alone(name, "ms", itemgetter(key), "long", bar)
    for name, unit, key, bar in (
        ("one at rest", "bytes", "rests", "4,000"),
        ("one in a run that waits", "bytes", "waits", ""),
        ("CPU while all wait", "%", "idle", ""),
    ):
        report.alone(f"{sizes.waiting:,} sessions: {name}", unit, itemgetter(key), "waiting", bar)


def parts(report: Report) -> None:
    """Add the calls of a step, the machine by itself, and what installing and importing cost."""
    for what, (figures,) in report.measures("calls: "):
        report.alone(what, "", itemgetter("calls"), what, f"{figures['bound']:,.0f}")
    for name, key in (
        ("machine: tool round", "round"),
        ("machine: step of one delta", "delta"),
        ("machine: delta, 50 in a step", "batched"),
        ("fold: entry of a journal", "entry"),
    ):
        report.alone(name, "µs", itemgetter(key), "pure")
    report.alone("import httpx", "s", itemgetter("httpx"), "import")
    report.alone("import turnwheel after it", "s", itemgetter("turnwheel"), "import", "0.12 s")
    report.alone("turnwheel --help", "s", itemgetter("help"), "command", "0.15 s")
    report.alone("turnwheel sessions, of none", "s", itemgetter("sessions"), "command", "0.25 s")
    report.rows.append(Row("distributions installed", "", float(distributions()), bar="15"))


def table(rows: list[Row]) -> str:
    """*rows* as a Markdown table."""
    heads = ("", "unit", "turnwheel", "floor", "ratio", "min..max", "bar")
    lines = [heads, *[row.cells() for row in rows]]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = [
        "| " + " | ".join([cell.ljust(width) for cell, width in zip(line, widths, strict=True)]) + " |"
        for line in lines
    ]
    rule = "|" + "|".join(["-" * (width + 2) for width in widths]) + "|"
    return "\n".join([texts[0], rule, *texts[1:]])


def main() -> None:
    """Measure, print the table, and write the raw figures if `--json` names a file."""
    parser = argparse.ArgumentParser(description="Measure a step of turnwheel, beside a hand-written loop.")
    parser.add_argument("--quick", action="store_true", help="use small sizes, only to see it run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure of every process")
    parser.add_argument(
        "--floor", metavar="PYTHON", default=sys.executable, help="run the floor with this Python"
    )
    asked = parser.parse_args()
    sizes = QUICK if asked.quick else FULL
    begun = time.monotonic()
    results = collect(sizes, asked.floor)
    print(table(rows_of(results, sizes)))
    where = f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores"
    load, *_ = os.getloadavg()
    print(f"\n{sizes.repetitions} repetitions in {time.monotonic() - begun:.0f} s; {where}, load {load:.1f}")
    if asked.json:
        raw = [{"who": who, "what": what, "figures": each} for (who, what), each in results.items()]
        asked.json.write_text(json.dumps(raw, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
