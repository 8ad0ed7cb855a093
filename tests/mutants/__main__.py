"""
Hunts the mistakes that a machine can make in the package, and says how many of them the tests find.

    python -m mutants [--sample N] [--seed S] [--only TEXT] [ROOM_OR_FILE...]

A mutant is found when a test fails, or takes far too long. First it runs all tests once, to know which run
each line; that is kept until a file of the package or of the tests changes. Ends with 1 where a room's score
is below its bar.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path

import attrs

from . import covering
from .mutations import Mutant, mutants_of

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "mutants"
TESTS = ("-p", "no:randomly", "-p", "no:cacheprovider")

# The share of a room's mutants that must be found.
BARS = {"states": 0.95, "engine": 0.95, "performers": 0.90}

# Seconds of tests that a mutant is hunted with, at first; one that lives on, with the second number. Seconds
# are those that the tests took while their lines were noted, which is twice the time or more.
FIRST, SECOND = 10.0, 120.0


def survivors() -> dict[str, str]:
    """The mutants that no test can find, and why."""
    listed = tomllib.loads(Path(__file__).with_name("survivors.toml").read_text("utf-8"))
    return {one["name"]: one["why"] for one in listed.get("survivor", [])}


def files_of(places: Iterable[str]) -> list[Path]:
    """The files of the package in *places*: rooms, folders or files."""
    there = [ROOT / place for place in places]
    return sorted({path for one in there for path in ([one] if one.is_file() else one.rglob("*.py"))})


def digests(names: Iterable[str]) -> dict[str, str]:
    """What each of these files of the checkout has in it, as a digest."""
    return {
        name: hashlib.sha256((ROOT / name).read_bytes()).hexdigest()[:16]
        for name in sorted(names)
        if (ROOT / name).is_file() and not name.startswith("tests/mutants/")
    }


def is_test(name: str) -> bool:
    """Whether this file has tests, and nothing that other files use."""
    return name.startswith("tests/") and name.rpartition("/")[2].startswith("test_")


def lines_of_tests() -> tuple[covering.Lines, Mapping[str, float]]:
    """
    Which tests run each line, and how long each test takes.

    They are noted anew where a file has changed: by the tests of that file alone where it has nothing else.
    """
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "*.py", "*.txt", "*.toml"],
        capture_output=True,
        text=True,
        check=True,
    )
    now = digests(listed.stdout.splitlines())
    folder, noted = CACHE / "lines", CACHE / "lines" / "files.json"
    before = json.loads(noted.read_text("utf-8")) if noted.exists() else {}
    changed = {name for name in {*now, *before} if now.get(name) != before.get(name)}
    if not changed:
        return covering.read(folder)
    again = sorted(changed)
    if not before or not all(is_test(name) for name in changed):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        again = []
    print("noting which lines each test runs", *again, flush=True)
    covering.forget(folder, again)
    there = [name for name in again if name in now]
    if there or not again:
        cores = "auto" if not again else "0"
        pytest(
            "-n", cores, "-p", "mutants.covering", f"--lines={folder}", "--timeout=600", *there, quiet=True
        )
    noted.write_text(json.dumps(now), "utf-8")
    return covering.read(folder)


def pytest(*arguments: str, quiet: bool = False) -> None:
    """Run pytest; some tests may fail, which is for others to judge."""
    command = [sys.executable, "-m", "pytest", "-q", *TESTS, *arguments]
    out = subprocess.DEVNULL if quiet else None
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    subprocess.run(command, check=False, cwd=ROOT, stdout=out, env=environment)


def chosen_tests(
    mutant: Mutant, lines: covering.Lines, seconds: Mapping[str, float], most: float
) -> tuple[str, ...]:
    """The tests to hunt *mutant* with, the likeliest first, which take at most so many seconds in all."""
    of_file = lines.get(mutant.file, {})
    # Outside of a function no test runs the line; those that run others of its file come near it.
    there = mutant.lines if mutant.function else of_file
    tests = {test for line in there for test in of_file.get(line, ())}
    mirrored = f"tests/{mutant.file.partition('/')[0]}/"
    cases: dict[str, list[str]] = {}
    for test in sorted(tests, key=lambda test: (not test.startswith(mirrored), seconds.get(test, 0.0))):
        cases.setdefault(test.partition("[")[0], []).append(test)
    # One case of each test before the second of any: cases of one test find the same things.
    found: list[str] = []
    spent = 0.0
    for test in chain.from_iterable(zip_longest(*cases.values())):
        if test is not None and spent + seconds.get(test, 0.0) <= most:
            found.append(test)
            spent += seconds.get(test, 0.0)
    return tuple(found)


def ordered(mutant: Mutant, tests: Sequence[str], seconds: float) -> dict[str, object]:
    """The hunt for *mutant* with *tests*, which take so many *seconds*, as JSON has it."""
    plain = {**attrs.asdict(mutant), "lines": sorted(mutant.lines)}
    return {"mutant": plain, "tests": tests, "seconds": seconds}


def hunt(mutants: Sequence[Mutant], most: float, hunters: int) -> dict[str, dict[str, object]]:
    """What became of each of *mutants*, by its name."""
    lines, seconds = lines_of_tests()
    order = []
    for one in mutants:
        tests = chosen_tests(one, lines, seconds, most)
        order.append(ordered(one, tests, sum(seconds.get(test, 0.0) for test in tests)))
    asked, found = CACHE / "order.json", CACHE / "found.jsonl"
    asked.write_text(json.dumps(order), "utf-8")
    found.unlink(missing_ok=True)
    hunting = ["-p", "mutants.hunting", f"--hunt={asked}", f"--found={found}", f"--hunters={hunters}"]
    pytest("-n", "0", "-s", "--timeout=30", *hunting, quiet=True)
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
    parser.add_argument("--hunters", type=int, default=os.cpu_count() or 1, help="so many at a time")
    asked = parser.parse_args()
    made = [
        one for path in files_of(asked.places) for one in mutants_of(ROOT, path) if asked.only in one.name
    ]
    mutants = random.Random(asked.seed).sample(made, min(asked.sample or len(made), len(made)))
    known = survivors()
    hunted = [one for one in mutants if one.name not in known]
    print(f"hunting {len(hunted)} of {len(made)} mutants; {len(known)} are known to live on", flush=True)
    over = hunt(hunted, FIRST, asked.hunters)
    alive = [one for one in hunted if over.get(one.name, {}).get("code", 0) == 0]
    print(f"{len(alive)} live on; they are hunted with more tests", flush=True)
    over |= hunt(alive, SECOND, asked.hunters) if alive else {}
    alive = [one for one in alive if over.get(one.name, {}).get("code", 0) == 0]
    for one in sorted(alive, key=lambda one: one.name):
        print(f"lives: {one.name} (line {min(one.lines)}, {over.get(one.name, {}).get('tests', 0)} tests)")
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
