"""The test of the tests: each deliberate mistake is found, and nothing is found where there is none."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "tests" / "mutants"
RUNS = 1_500
"""Runs enough to find each mutant that playing finds; most are found within ten."""

SESSIONS = 250
"""The same for mistakes around a run."""

AROUND = "engine/"
BARE = {"engine/machine.py", "engine/transition.py"}
"""Where those are, but for two files; the others are found by a bare machine, which is quicker."""


def read(path: Path) -> list[dict[str, Any]]:
    """The mutants in *path*."""
    found: list[dict[str, Any]] = tomllib.loads(path.read_text("utf-8"))["mutant"]
    return found


MUTANTS = [mutant for path in sorted(HERE.glob("*.toml")) for mutant in read(path)]


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
    """The hunt for the mistakes that this session of tests asks for."""

    def __init__(self, jobs: list[dict[str, Any]]) -> None:
        self._over: dict[str, Queue[dict[str, Any]]] = {one["name"]: Queue() for one in jobs}
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "hunt.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, args=(json.dumps(jobs),))
        self._reader.start()

    def _read(self, jobs: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(jobs)
        self._process.stdin.close()
        for line in self._process.stdout:
            over = json.loads(line)
            self._over[over["name"]].put(over)
        self._process.stdout.close()

    def over(self, name: str) -> dict[str, Any]:
        """What became of the job *name*; waits for it."""
        while self._reader.is_alive():
            try:
                return self._over[name].get(timeout=0.5)
            except Empty:
                continue
        return self._over[name].get_nowait()

    def close(self) -> None:
        """End it, whatever is left."""
        self._process.terminate()
        self._reader.join()
        self._process.wait()


@pytest.fixture(scope="module")
def hunt(request: pytest.FixtureRequest) -> Iterator[Hunt]:
    """A hunt for what the tests of this file ask for that are going to run, in their order."""
    asked = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    jobs = [found.params["asked"] for found in asked if found is not None]
    hunting = Hunt(jobs)
    yield hunting
    hunting.close()


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


def test_mutants_are_told_apart() -> None:
    """Each has a name of its own, and changes one thing in a file that says it once."""
    names = [mutant["name"] for mutant in MUTANTS]
    assert sorted(set(names)) == sorted(names)
    assert [mutant["name"] for mutant in MUTANTS if mutant["old"] == mutant["new"]] == []
    texts = {mutant["file"]: (ROOT / mutant["file"]).read_text("utf-8") for mutant in MUTANTS}
    stale = [one["name"] for one in MUTANTS if texts[one["file"]].count(one["old"]) != 1]
    assert stale == [], "these files have changed, or say it more than once: write the old text anew"
