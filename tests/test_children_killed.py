"""Three children at once, killed with their parent: the next process goes on with all of them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from turnwheel import SQLiteStore
from turnwheel.engine.journal.fold import fold
from turnwheel.engine.machine import Machine

Starts = Callable[..., "subprocess.Popen[str]"]

PROGRAM = Path(__file__).with_name("three_children.py")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Where the sessions of a test are."""
    return tmp_path / "sessions.db"


@pytest.fixture
def start(store: Path) -> Iterator[Starts]:
    """Starts the program over *store*; what is left of it is killed."""
    started: list[subprocess.Popen[str]] = []

    def process(*arguments: str) -> subprocess.Popen[str]:
        made = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(store), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(os.environ),
        )
        started.append(made)
        return made

    yield process
    for made in started:
        with made:
            made.kill()


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What *process* says when it has come to its end."""
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def stored(store: Path) -> dict[str, Machine]:
    """The machine of each session."""

    async def load() -> dict[str, Machine]:
        kept, found = SQLiteStore(store), dict[str, Machine]()
        for info in await kept.list():
            machine = fold(await kept.load(info.session), info.session).machine
            assert machine is not None
            found[info.session] = machine
        await kept.close()
        return found

    return asyncio.run(load())


REFUSED = (
    "Not started: there is only 85 of 700 tokens left for 'c'. "
    "The rest is set aside for agents at work; ask again when they are done."
)
RESULTS = [["ok", "a dug"], ["ok", "b dug"], ["error", REFUSED]]


def test_of_three_children_two_come_to_their_end_and_one_is_refused(start: Starts, store: Path) -> None:
    """What happens where nobody kills anything."""
    assert finish(start()) == {"text": "done", "total": 830, "guessed": 0, "results": RESULTS}
    assert [machine.done for machine in stored(store).values()] == [True, True, True]


@pytest.mark.parametrize("moment", ["tool", "model"])
def test_children_that_are_killed_with_their_parent_go_on_with_it(
    moment: str, start: Starts, store: Path
) -> None:
    """Each where it was, within what was set aside for it: nothing is overspent, and the refusal stands."""
    first = start(moment)
    assert first.stdout is not None
    for _ in "ab":
        assert first.stdout.readline(), "it ended before it was killed"
    first.kill()
    first.wait()
    left = stored(store)
    assert len(left) == 3
    assert not any(machine.done for machine in left.values())

    found = finish(start())
    assert (found["text"], found["results"]) == ("done", RESULTS)
    assert found["total"] - found["guessed"] == 830
    assert found["total"] <= 1_500
    machines = stored(store)
    children = [machine for name, machine in machines.items() if name != "s"]
    assert all(machine.done for machine in machines.values())
    assert sum(machine.memory.spent.usage.total for machine in children) == found["total"] - 30
    assert finish(start())["results"][:3] == RESULTS  # a run of its own, over all that was said
