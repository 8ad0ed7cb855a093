"""A long day in one process: nothing is left of it, and what would be is found."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from itertools import groupby
from pathlib import Path

import attrs
import pytest

from provers.choices import Seeded
from provers.soak.__main__ import (
    Rest,
    faults,
    main,
    slope,
)
from provers.soak.service import FlakyStore, Service
from turnwheel.engine.session.session import Session
from turnwheel.performers.stores.memory import MemoryStore

pytestmark = [pytest.mark.prover, pytest.mark.timeout(600)]

RESTS = tuple([Rest(turns=number * 1_000, blocks=50_000, threads=2, files=9) for number in range(1, 11)])
"""A day of which nothing is left."""

BEFORE, AFTER = Rest(turns=0, threads=1, files=6), Rest(turns=10_000, threads=1, files=6)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="what a process has is read from /proc")
def test_nothing_is_left_of_a_long_day() -> None:
    """Sessions that are watched, steered, interrupted, cancelled and left, over stores that fail."""
    small = ("--turns", "1500", "--sessions", "100", "--at-once", "50")
    found = subprocess.run(
        [sys.executable, "-m", "provers.soak", *small],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.endswith("nothing is left of it\n")
    for what in ("run", "watch", "steer", "interrupt", "cancel", "break", "close", "both", "StoreError"):
        assert f"{what} " in found.stdout


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("--turns 0", "argument --turns: needs a whole number, at least 10, not '0'"),
        ("--sessions 0", "argument --sessions: needs a whole number, at least 1, not '0'"),
        ("--turns 200", "--at-once: at most a tenth of the turns, 20, "),
    ],
)
def test_a_day_on_which_nothing_happens_is_refused(
    asked: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a line that says what a day needs."""
    with pytest.raises(SystemExit) as ended:
        main(asked.split())
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


async def test_a_conversation_that_begins_anew_has_a_name_of_its_own() -> None:
    """So that what is kept by name grows with the conversations, and is seen."""
    store = FlakyStore(MemoryStore(), Seeded(1), 0)
    service = Service((store,), Seeded(1))
    names = [service.fresh()]
    while len(set(names)) < 3:
        names.append(await service.use(names[-1], store))
    await service.close()
    assert [name for name, _ in groupby(names)] == ["s0", "s1", "s2"]


def test_a_day_of_which_nothing_is_left_has_no_faults() -> None:
    """What the others below are compared with; what a turn leaves once is no growth."""
    assert list(faults(RESTS, BEFORE, AFTER)) == []
    filled = [attrs.evolve(rest, blocks=60_000) for rest in RESTS[1:]]
    assert list(faults([RESTS[0], *filled], BEFORE, AFTER)) == []


LEFT = [
    ("blocks", [attrs.evolve(rest, blocks=rest.turns) for rest in RESTS], "each turn leaves 1.000 blocks"),
    ("bytes", [attrs.evolve(rest, resident=rest.turns * 2_000) for rest in RESTS], "leaves 2000 bytes"),
    (
        "objects",
        [attrs.evolve(rest, objects=Counter({Session: rest.turns})) for rest in RESTS],
        "of turnwheel.engine.session.session.Session 4,000 became 10,000",
    ),
    ("task", [*RESTS[:-1], attrs.evolve(RESTS[-1], tasks=1)], "1 tasks"),
    ("timer", [*RESTS[:-1], attrs.evolve(RESTS[-1], timers=1)], "1 timers"),
    ("garbage", [*RESTS[:-1], attrs.evolve(RESTS[-1], garbage=1)], "1 objects that cannot be collected"),
    ("file", [*RESTS[:-1], attrs.evolve(RESTS[-1], files=10)], "threads and files were"),
]


@pytest.mark.parametrize(("rests", "says"), [each[1:] for each in LEFT], ids=[each[0] for each in LEFT])
def test_what_is_left_is_found(rests: list[Rest], says: str) -> None:
    """Whatever it is, and it is said what."""
    found = "\n".join(faults(rests, BEFORE, AFTER))
    assert says in found


def test_what_is_left_when_all_is_closed_is_found() -> None:
    """A thread, or a file."""
    (found,) = faults(RESTS, BEFORE, attrs.evolve(AFTER, threads=2))
    assert found.startswith("there were 1 threads and 6 files, left are ")


def test_a_slope_is_that_of_the_line_through_the_points() -> None:
    """By least squares, so that one outlier is no growth."""
    assert slope([(0, 1), (1, 3), (2, 5)]) == 2.0
    assert slope([(0, 0), (1, 9), (2, 0)]) == 0.0
