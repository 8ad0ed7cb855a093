"""The test of the tests: each deliberate mistake is found, and nothing is found where there is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
import zlib
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RUNS = 1_500
"""Runs enough to find each mutant that playing finds; most are found within ten."""

SESSIONS = 250
"""The same for mistakes around a run."""

AROUND = "engine/"
BARE = {"engine/machine.py"}
"""Where those are, but for one file; the others are found by a bare machine, which is quicker."""


def read(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads(path.read_text("utf-8"))["mutant"]
    return found


MUTANTS = [mutant for path in sorted(HERE.glob("*.toml")) for mutant in read(path)]


SAMPLE = 60
"""How many mutants of unchanged files are hunted beside those of changed ones."""


def git(*arguments: str) -> list[str]:
    """The lines that git answers; none where this is no checkout."""
    asked = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    return asked.stdout.splitlines() if asked.returncode == 0 else []


def changed() -> frozenset[str]:
    """The files that changed in the last day of the history, and those that are not committed."""
    before = git("rev-list", "-1", "--before=1 day ago", "HEAD")
    return frozenset([*git("diff", "--name-only", before[0])] if before else git("ls-files"))


def chosen(how: str, today: int | None = None) -> frozenset[str]:
    """
    The names of the mutants to hunt: ``all``, or those of ``changed`` files and a sample of the others.

    The sample moves on each day, so every mutant is hunted every week or so.
    """
    names = [mutant["name"] for mutant in MUTANTS]
    if how == "all":
        return frozenset(names)
    files = changed()
    others = sorted(
        [one["name"] for one in MUTANTS if one["file"] not in files],
        key=lambda name: zlib.crc32(name.encode()),
    )
    day = int(time.time() // 86_400) if today is None else today
    first = day * SAMPLE % len(others) if others else 0
    sample = [*others, *others][first : first + min(SAMPLE, len(others))]
    return frozenset([*[one["name"] for one in MUTANTS if one["file"] in files], *sample])


def wanted(items: list[pytest.Item], how: str) -> list[pytest.Item]:
    """Those of *items* that hunt for what is chosen, and the finders that these need."""
    names = chosen(how) if how != "none" else frozenset[str]()
    tests = [job(one) for one in MUTANTS if one["name"] in names]
    sound = {f"sound: {one['tests']}" if "tests" in one else "sound: playing" for one in tests}
    kept: list[pytest.Item] = []
    for item in items:
        call = getattr(item, "callspec", None)
        if call is None or call.params["asked"]["name"] in {*names, *sound}:
            kept.append(item)
    return kept


def job(mutant: dict[str, Any]) -> dict[str, Any]:
    """What is done to find *mutant*: what it says itself, else playing."""
    around = mutant["file"].startswith(AROUND) and mutant["file"] not in BARE
    plays = {"plays": (RUNS, SESSIONS if around else 0, mutant.get("kind", ""))}
    return mutant if "tests" in mutant else {**plays, **mutant}


SOUND = {
    finder: {"name": f"sound: {finder}", "tests": finder}
    for finder in sorted({mutant["tests"] for mutant in MUTANTS if "tests" in mutant})
} | {"playing": {"name": "sound: playing", "plays": (RUNS, SESSIONS)}}
"""What is to find mistakes, where there are none."""


class Hunt:
    """The hunt for the mistakes that this session of tests asks for, in a process beside it."""

    def __init__(self, jobs: list[dict[str, Any]], processes: int) -> None:
        self._over: dict[str, dict[str, Any]] = {}
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115  # open as long as the hunt goes on
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "hunt.py"), str(processes)],
            stdin=subprocess.PIPE,
            stdout=self._said,
            text=True,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(jobs))
        self._process.stdin.close()
        self._read = 0

    def over(self, name: str) -> dict[str, Any]:
        """What became of the job *name*; waits for it."""
        while name not in self._over:
            ended = self._process.poll() is not None
            self._look()
            assert name in self._over or not ended, "the hunt is over, and nobody hunted this"
            time.sleep(0.05)
        return self._over[name]

    def _look(self) -> None:
        self._said.seek(self._read)
        *lines, _ = self._said.read().split("\n")  # the last one is not written to its end
        self._read += sum(len(line.encode()) + 1 for line in lines)
        self._over |= {over["name"]: over for over in map(json.loads, lines)}

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._said.close()


HUNTS: list[Hunt] = []
"""The one hunt, once it was begun."""


def begin(items: list[pytest.Item], *, beside: bool) -> None:
    """Hunt for what those *items* ask for that are tests of this file, in their order, *beside* others."""
    asked = [getattr(item, "callspec", None) for item in items]
    jobs = [found.params["asked"] for found in asked if found is not None]
    cores = os.cpu_count() or 1
    HUNTS.append(Hunt(jobs, max(1, cores - 1) if beside else cores))


def end() -> None:
    while HUNTS:
        HUNTS.pop().close()


@pytest.fixture
def hunt() -> Hunt:
    """The hunt; tests/conftest.py begins it as soon as it is known what is asked for."""
    [hunting] = HUNTS
    return hunting


@pytest.mark.parametrize("asked", list(SOUND.values()), ids=list(SOUND))
def test_there_is_nothing_to_find_where_nothing_is_wrong(asked: dict[str, Any], hunt: Hunt) -> None:
    """The package as it is keeps every promise."""
    over = hunt.over(asked["name"])
    assert over["code"] == 0, over["said"]


@pytest.mark.parametrize("asked", [job(one) for one in MUTANTS], ids=[one["name"] for one in MUTANTS])
def test_a_mistake_is_found(asked: dict[str, Any], hunt: Hunt) -> None:
    """What is to find it does, and says what is wrong; it does not just crash."""
    over = hunt.over(asked["name"])
    assert over["code"] == 1, f"not found: {over['said']}"
    assert over["said"]


def test_every_mutant_is_hunted_in_turn() -> None:
    days = len(MUTANTS) // SAMPLE + 2
    assert frozenset[str]().union(*[chosen("changed", day) for day in range(days)]) == chosen("all")


def test_mutants_are_told_apart() -> None:
    """Each has a name of its own, and changes one thing in a file that says it once."""
    names = [mutant["name"] for mutant in MUTANTS]
    assert sorted(set(names)) == sorted(names)
    assert [mutant["name"] for mutant in MUTANTS if mutant["old"] == mutant["new"]] == []
    texts = {mutant["file"]: (ROOT / mutant["file"]).read_text("utf-8") for mutant in MUTANTS}
    stale = [one["name"] for one in MUTANTS if texts[one["file"]].count(one["old"]) != 1]
    assert stale == [], "these files have changed, or say it more than once: write the old text anew"
