"""Processes that are killed with -9 at every moment: those that follow keep every promise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from turnwheel.testing.killing.cases import Case
from turnwheel.testing.killing.process import After, At, Drained, Frozen


def run(*arguments: str, folder: Path) -> str:
    """What killing says where nothing is wrong; in a process of its own, since who forks has no threads."""
    found = subprocess.run(
        [sys.executable, "-m", "turnwheel.testing.torture", *arguments],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def test_a_session_survives_being_killed_around_every_entry_of_its_journal(tmp_path: Path) -> None:
    """Its own and its child's; and then at drawn moments and instants, also while it recovers."""
    said = run("--kills", "200", "--lives", "2", folder=tmp_path)
    assert said.endswith("every promise was kept\n")
    counts = [int(count.replace(",", "")) for count in re.findall(r"\d[\d,]*", said)]
    kills, _, at_moments, at_instants, recovering = counts[:5]
    assert kills >= 200
    assert kills == at_moments + at_instants
    assert at_moments > 188
    assert recovering > 0
    assert list(tmp_path.iterdir()) == []  # where nothing is wrong, nothing is left


def test_a_case_can_be_seen_again(tmp_path: Path) -> None:
    """The same moments of the same life, and what each process came to."""
    found = re.search(r"(\d+) pay: begun\n", run("--moments", "0", folder=tmp_path))
    assert found is not None
    said = run("--again", f"0:{found[1]},3", folder=tmp_path)
    assert f"process 1: killed after moment {found[1]}, 'pay: begun'\n" in said
    assert "process 2: killed after moment 3, " in said
    assert "process 3: over after moment " in said


@pytest.mark.parametrize("how", ["frozen", "drained"])
def test_processes_that_sleep_or_are_to_leave_lose_nothing_either(how: str, tmp_path: Path) -> None:
    """Before a tool that must not run twice, while it runs, and behind it."""
    said = run("--how", how, "--at", "pay: ", folder=tmp_path)
    assert "0 kills in 9 lives" in said
    assert said.endswith("every promise was kept\n")


def test_a_life_has_everything_in_it(tmp_path: Path) -> None:
    """What is to be survived happens in the life that is gone through moment by moment."""
    said = run("--moments", "0", folder=tmp_path)
    for moment in (
        "peek: begun",
        "put: begun",
        "pay: begun",
        "burn: begun",
        "ask about pay",
        "say steer: before",
        "say third: before",
        "order control: before",
        "order give up: before",
        "interrupted",
        "timer: set",
        "hook pre_compact: asked",
        "hook stop: asked",
        "model turn: streams",
        "model summary: answered",
        "told RunEnded",
    ):
        assert f" {moment}\n" in said, moment
    assert re.search(r"append \d+ of s\.\w+-\d+: before", said)  # a child's


def test_what_was_ordered_of_a_session_that_rests_is_done_by_whoever_goes_on(tmp_path: Path) -> None:
    """A changed setting, a call that is given up, and an interrupt: each kept once it was accepted."""
    said = run("--first", "4", "--at", "order ", folder=tmp_path)
    assert "6 kills in 6 lives" in said
    assert said.endswith("every promise was kept\n")


def test_a_case_is_written_as_it_is_read() -> None:
    """A life, and the moments and instants at which its processes are killed."""
    case = Case(script=3, ends=(Frozen(12), At(4), After(0.25), Drained(9), Drained(9, 2)))
    assert str(case) == "3:z12,4,0.250,d9,d9+2"
    assert Case.read("3:z12,4,0.250,d9,d9+2") == case
    assert Case.read("7") == Case(script=7, ends=())
