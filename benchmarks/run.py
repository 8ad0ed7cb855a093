"""
turnwheel's benchmark: the cost of a step, beside a loop written by hand in the same run.

``python benchmarks/run.py [--quick] [--json FILE] [--floor PYTHON]``. Contenders take turns, each in a
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
from importlib import metadata
from operator import itemgetter
from pathlib import Path

from packaging.requirements import Requirement

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


@dataclass(frozen=True)
class Sizes:
    """The arguments of each measure, and the number of repetitions."""

    repetitions: int
    per_round: tuple[int, int]
    per_delta: tuple[int, ...]
    growth: tuple[int, ...]
    kept: tuple[int, int]
    pure: tuple[int, int]
    store: tuple[int, int, int, int]
    long: int
    waiting: int


WAITING = (
    ("one at rest", "bytes", "rests", "4,000"),
    ("one in a run that waits", "bytes", "waits", ""),
    ("CPU while all wait", "%", "idle", ""),
)
"""The rows of sessions that wait: name, unit, figure and bar."""

FULL = Sizes(
    7,
    (50, 3),
    (2_000, 2_000, 20_000, 100_000),
    (10, 100, 400),
    (10, 1_000),
    (1_000, 20_000),
    (300, 200, 50, 100_000),
    5_000,
    1_000,
)
QUICK = Sizes(3, (20, 2), (100, 500, 2_000), (10, 50), (10, 50), (200, 2_000), (50, 50, 5, 1_000), 300, 100)


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
    pythons = {"floor": floor, "turnwheel": sys.executable}

    def add(who: str, what: str, figures: Figures) -> None:
        results.setdefault((who, what), []).append(figures)

    with server() as url, tempfile.TemporaryDirectory(prefix="bench-") as cache:
        imports(cache)  # fills the cache
        for number in range(sizes.repetitions):
            for what in ("per_round", "per_delta", "growth", "kept"):
                if what == "kept" and number:
                    continue  # the bytes are the same in each repetition
                for who in random.sample(sorted(pythons), len(pythons)):
                    started = ("-m", "benchmarks.worker", who, what, url, json.dumps(getattr(sizes, what)))
                    add(who, what, figures_of(*started, python=pythons[who]))
            add("turnwheel", "pure", figures_of("-m", "benchmarks.pure", *map(str, sizes.pure)))
            add("turnwheel", "store", figures_of("-m", "benchmarks.store", *map(str, sizes.store)))
            add("turnwheel", "import", imports(cache))
            if not number:  # it takes half a minute, and its bar is far away
                add("turnwheel", "long", figures_of("-m", "benchmarks.long", str(sizes.long)))
                add("turnwheel", "waiting", figures_of("-m", "benchmarks.waiting", str(sizes.waiting)))
            if not number:  # the calls are the same in each repetition
                for name, measure in counted().items():
                    add("turnwheel", name, measure)
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


class Report:
    """Makes the rows of the table from *results*."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self.rows: list[Row] = []

    def beside(self, name: str, unit: str, what: str, key: str, bar: str = "") -> None:
        """Add our figure *key* of the measure *what* beside the floor's."""
        ours = [figures[key] for figures in self._results["turnwheel", what]]
        floor = [figures[key] for figures in self._results["floor", what]]
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
        values = [value(figures) for figures in self._results["turnwheel", what]]
        self.rows.append(Row(name, unit, statistics.median(values), bar=bar))


def rows_of(results: Results, sizes: Sizes) -> list[Row]:
    """The whole table."""
    report = Report(results)
    report.beside("tool round", "µs", "per_round", "memory", "1.2x")
    report.beside("tool round, kept in SQLite", "µs", "per_round", "durable")
    report.alone(
        "the same, to one in memory",
        "x",
        lambda figures: figures["durable"] / figures["memory"],
        "per_round",
        "1.6",
    )
    alone, *replies = sizes.per_delta
    for size in replies:
        report.beside(f"delta, of {size:,}", "µs", "per_delta", str(size), "1.2x")
    report.beside(f"delta, of {alone:,} arriving one by one", "µs", "per_delta", "alone", "1.2x")
    for size in sizes.growth:
        report.beside(f"round, of {size:,}", "µs", "growth", str(size))
    report.beside("added to a round by each before it", "µs", "growth", "slope", "0.3x")
    early, late = sizes.kept
    report.beside(f"kept of round {early:,}", "bytes", "kept", "early")
    report.beside(f"kept of round {late:,}", "bytes", "kept", "late")
    report.alone(
        f"round {late:,}, to round {early:,}",
        "x",
        lambda figures: figures["late"] / figures["early"],
        "kept",
        "1.05",
    )
    report.beside("written per round, pages and all", "bytes", "kept", "written")
    report.alone("store: append, waiting for the disk", "µs", lambda figures: figures["append"], "store")
    report.alone("store: appends of one session", "/s", lambda figures: figures["alone"], "store")
    _, many, size, listed = sizes.store
    report.alone(
        f"store: appends of {many} sessions at once", "/s", lambda figures: figures["together"], "store"
    )
    report.alone("store: commits for each of those", "", lambda figures: figures["commits"], "store")
    report.alone(f"store: an older file of {size} MB", "s", lambda figures: figures["upgrade"], "store")
    report.alone(f"store: 50 of {listed:,} sessions", "ms", lambda figures: figures["page"], "store")
    report.alone(f"store: all {listed:,} sessions", "s", lambda figures: figures["all"], "store")
    report.alone(
        "store: the loop at a stretch, for that", "ms", lambda figures: figures["held"], "store", "20 ms"
    )
    report.alone("store: an append meanwhile", "ms", lambda figures: figures["waited"], "store")
    session = f"session of {sizes.long:,} rounds"
    report.alone(f"{session}: load", "ms", itemgetter("load"), "long", "50 ms")
    report.alone("the same, without a checkpoint", "ms", itemgetter("whole"), "long")
    report.alone("the same, and every message", "ms", itemgetter("read"), "long")
    for name in ("fork", "why", "export"):
        report.alone(f"{session}: {name}", "ms", itemgetter(name), "long")
    for _, what in [key for key in results if key[1].startswith("calls: ")]:
        (figures,) = results["turnwheel", what]
        report.alone(what, "", lambda figures: figures["calls"], what, f"{figures['bound']:,.0f}")
    for name, unit, key, bar in WAITING:
        report.alone(f"{sizes.waiting:,} sessions: {name}", unit, itemgetter(key), "waiting", bar)
    report.alone("machine: tool round", "µs", lambda figures: figures["round"], "pure")
    report.alone("machine: step of one delta", "µs", lambda figures: figures["delta"], "pure")
    report.alone("machine: delta, 50 in a step", "µs", lambda figures: figures["batched"], "pure")
    report.alone("fold: entry of a journal", "µs", lambda figures: figures["entry"], "pure")
    report.alone("import httpx", "s", lambda figures: figures["httpx"], "import")
    report.alone("import turnwheel after it", "s", lambda figures: figures["turnwheel"], "import", "0.12 s")
    report.rows.append(Row("distributions installed", "", float(distributions()), bar="15"))
    return report.rows


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
