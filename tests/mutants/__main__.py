"""
Hunts the mistakes that a machine can make in the package, and says how many of them the tests find.

    python -m mutants [--sample N] [--seed S] [--only TEXT] [--seconds N] [--tests FOLDER] [ROOM_OR_FILE...]

A mutant is found when a test fails, or takes far too long. The first time it runs all tests once, to know
which run each line; later only those of changed files. Ends with 1 where a room's score is below its bar.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path, PurePosixPath

import attrs

from . import noted
from .mutations import Mutant, mutants_of

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "mutants"

# The share of a room's mutants that must be found.
BARS = {"states": 0.95, "display": 0.95, "engine": 0.95, "performers": 0.90}

# Seconds of tests that a mutant is hunted with, at first; one that lives on, with the second number, if no
# other is asked for. They are those that the tests took while their lines were noted, twice the time or more.
FIRST, SECOND = 10.0, 120.0

# So many times likelier is a test to find a mutant for each folder that it has in common with the file.
NEARER = 10

# Tests below which those that ran anything in the file are tried, too.
FEW = 20


def survivors() -> dict[str, str]:
    """The mutants that no test can find, and why."""
    listed = tomllib.loads(Path(__file__).with_name("survivors.toml").read_text("utf-8"))
    return {one["name"]: one["why"] for one in listed.get("survivor", [])}


def files_of(places: Iterable[str]) -> list[Path]:
    """The files of the package in *places*: rooms, folders or files."""
    there = [ROOT / place for place in places]
    return sorted({path for one in there for path in ([one] if one.is_file() else one.rglob("*.py"))})


def chosen_tests(
    mutant: Mutant, lines: noted.Lines, seconds: Mapping[str, float], most: float
) -> tuple[str, ...]:
    """The tests to hunt *mutant* with, the likeliest first, which take at most so many seconds in all."""
    of_file = lines.get(mutant.file, {})
    # Outside of a function no test runs the line: those come near it that run lines with the name it gives.
    there = mutant.lines if mutant.function else _of_name(mutant)
    ran = {test for line in there for test in of_file.get(line, ())}
    tests = _likeliest(ran, mutant.file, seconds)
    # What is kept once it was made, or runs in a thread or another process, is noted for few tests or none.
    if len(tests) < FEW:
        others = {test for each in of_file.values() for test in each} or _of_folder(mutant, seconds)
        tests += _likeliest(others - ran, mutant.file, seconds)
    found: list[str] = []
    spent = 0.0
    for test in tests:
        if spent + seconds.get(test, 0.0) <= most:
            found.append(test)
            spent += seconds.get(test, 0.0)
    return tuple(found)


def _of_folder(mutant: Mutant, tests: Iterable[str]) -> set[str]:
    """Those of *tests* that are about the folder of *mutant*, in whose file there is no function at all."""
    folder = PurePosixPath("tests", mutant.file).parent.as_posix()
    return {test for test in tests if test.startswith(f"{folder}/")}


def _likeliest(tests: Iterable[str], file: str, seconds: Mapping[str, float]) -> list[str]:
    """The *tests* of the package's *file*: those that bear its name, near ones, quick ones come first."""
    folder, own = ["tests", *file.split("/")[:-1]], f"test_{PurePosixPath(file).stem}"
    cases: Counter[str] = Counter()
    prices: dict[str, tuple[bool, float]] = {}
    for test in sorted(tests, key=lambda test: seconds.get(test, 0.0)):
        path, _, name = test.partition("::")
        called = f"{path}::{name.partition('[')[0]}"
        # The cases of one test find much the same, so each is a worse bargain than the one before it.
        cases[called] += 1
        price = seconds.get(test, 0.0) * math.log2(1 + cases[called]) / NEARER ** _shared(folder, path)
        prices[test] = not PurePosixPath(path).stem.startswith(own), price
    return sorted(prices, key=lambda test: prices[test])


def _shared(folder: Sequence[str], path: str) -> int:
    """How many folders from the top of *folder* the file at *path* is in, too."""
    both = takewhile(lambda pair: pair[0] == pair[1], zip(folder, path.split("/"), strict=False))
    return sum(1 for _ in both)


def _of_name(mutant: Mutant) -> list[int]:
    """The lines of the file with the name that the statement of *mutant* gives."""
    text = (ROOT / mutant.file).read_text("utf-8").splitlines()
    name = re.match(r"\s*(\w*)", text[min(mutant.lines) - 1])
    named = re.compile(rf"\b{name[1]}\b" if name else "")
    return [number for number, line in enumerate(text, 1) if named.search(line)]


def ordered(mutant: Mutant, tests: Sequence[str], seconds: float, *, anew: bool = False) -> dict[str, object]:
    """The hunt for *mutant* with *tests*, which take so many *seconds*, as JSON has it; see `Job`."""
    plain = {**attrs.asdict(mutant), "lines": sorted(mutant.lines)}
    return {"mutant": plain, "tests": tests, "seconds": seconds, "anew": anew}


def hunt(
    mutants: Sequence[Mutant], lines: noted.Lines, seconds: Mapping[str, float], most: float, hunters: int
) -> dict[str, dict[str, object]]:
    """What became of each of *mutants*, by its name, with so many seconds of tests at *most*."""
    order = []
    for one in mutants:
        tests = chosen_tests(one, lines, seconds, most)
        spent = sum(seconds.get(test, 0.0) for test in tests)
        order.append(ordered(one, tests, spent, anew=most > FIRST))
    asked, found = CACHE / "order.json", CACHE / "found.jsonl"
    asked.write_text(json.dumps(order), "utf-8")
    found.unlink(missing_ok=True)
    hunting = ["-p", "mutants.hunting", f"--hunt={asked}", f"--found={found}", f"--hunters={hunters}"]
    noted.run_pytest("-n", "0", "-s", "--timeout=30", *hunting)
    over = [json.loads(line) for line in found.read_text("utf-8").splitlines()] if found.exists() else []
    return {one["name"]: one for one in over}


def main() -> int:
    """Make the mutants, hunt them, print those that live on and the score of each room."""
    parser = argparse.ArgumentParser(
        prog="mutants", description="Makes mistakes and has the tests find them."
    )
    parser.add_argument("places", nargs="*", default=list(BARS), help="rooms, folders or files")
    parser.add_argument("--sample", type=int, help="so many of them only")
    parser.add_argument("--seed", type=int, default=0, help="which")
    parser.add_argument("--only", default="", help="those with this in their name")
    parser.add_argument("--seconds", type=float, default=SECOND, help="of tests, for one that lives on")
    parser.add_argument("--tests", default="tests", help="the folder of the tests that hunt")
    parser.add_argument("--hunters", type=int, default=os.cpu_count() or 1, help="so many at a time")
    asked = parser.parse_args()
    made = [
        one for path in files_of(asked.places) for one in mutants_of(ROOT, path) if asked.only in one.name
    ]
    mutants = random.Random(asked.seed).sample(made, min(asked.sample or len(made), len(made)))
    known = survivors()
    hunted = [one for one in mutants if one.name not in known]
    print(f"hunting {len(hunted)} of {len(made)} mutants; {len(known)} are known to live on", flush=True)
    notes = CACHE / "-".join(["lines", *PurePosixPath(asked.tests).parts[1:]])
    lines, seconds = noted.lines_of_tests(notes, asked.tests.rstrip("/"))
    over = hunt(hunted, lines, seconds, FIRST, asked.hunters)
    alive = [one for one in hunted if over.get(one.name, {}).get("code", 0) == 0]
    print(f"{len(alive)} live on; they are hunted with more tests", flush=True)
    over |= hunt(alive, lines, seconds, asked.seconds, asked.hunters) if alive else {}
    alive = [one for one in alive if over.get(one.name, {}).get("code", 0) == 0]
    for one in sorted(alive, key=lambda one: one.name):
        tried = over.get(one.name, {}).get("tests", 0)
        there = len(chosen_tests(one, lines, seconds, sys.float_info.max))
        print(f"lives: {one.name} (line {min(one.lines)}, {tried} of {there} tests)")
    unclear = [one for one in hunted if over.get(one.name, {}).get("code") == 70]
    for one in unclear:
        print(f"not hunted: {one.name}")
    return report(mutants, alive, known)


def report(mutants: Sequence[Mutant], alive: Sequence[Mutant], known: Mapping[str, str]) -> int:
    """Print the score of each room; 1 where one is below its bar."""
    all_of = Counter(one.file.partition("/")[0] for one in mutants)
    left = Counter(one.file.partition("/")[0] for one in alive)
    equal = Counter(one.file.partition("/")[0] for one in mutants if one.name in known)
    below = False
    for room, count in sorted(all_of.items()):
        score = 1 - (left[room] + equal[room]) / count
        bar = BARS.get(room, 0.0)
        # A sample may lie below the score of all; this far it does so once in a thousand.
        margin = 3 * math.sqrt(bar * (1 - bar) / count)
        below |= score < bar - margin
        print(f"{room}: {score:.1%} of {count} are found (bar {bar:.0%}); {equal[room]} listed as equivalent")
    return int(below)


if __name__ == "__main__":
    sys.exit(main())
