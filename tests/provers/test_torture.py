"""Processes that are killed with -9 at every moment: those that follow keep every promise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from argparse import Namespace
from itertools import islice
from pathlib import Path

import pytest

from provers.crash.__main__ import cases, main
from provers.crash.cases import Case, Undisturbed
from provers.crash.process import (
    After,
    At,
    Drained,
    Frozen,
)

pytestmark = [pytest.mark.prover, pytest.mark.timeout(600)]


def run(*arguments: str, folder: Path, code: int = 0) -> str:
    """What killing says, which ends with *code*; in a process of its own, since who forks has no threads."""
    found = subprocess.run(
        [sys.executable, "-m", "provers.crash", *arguments],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == code, found.stdout + found.stderr
    return found.stdout


def test_a_session_survives_being_killed_around_every_entry_of_its_journal(tmp_path: Path) -> None:
    """Its own and its child's; and then at drawn moments and instants, also while it recovers."""
    said = run("--kills", "240", "--lives", "1", folder=tmp_path)
    assert said.endswith("every promise was kept\n")
    counts = [int(count.replace(",", "")) for count in re.findall(r"\d[\d,]*", said)]
    edges, _, _, kills, _, at_moments, at_instants, recovering = counts[:8]
    assert edges >= 200
    assert kills >= 240
    assert kills == at_moments + at_instants
    assert at_moments > 200
    assert recovering > 0
    assert list(tmp_path.iterdir()) == []  # where nothing is wrong, nothing is left


@pytest.mark.parametrize("life", ["0", "2", "3"], ids=["native", "tool", "prompted"])
def test_a_run_comes_to_its_output_whoever_goes_on_with_it(life: str, tmp_path: Path) -> None:
    """Killed before and behind each look at an output, however the model is asked for it."""
    said = run("--first", life, "--at", "output: ", folder=tmp_path)
    kills = re.search(r"(\d+) kills in (\d+) lives", said)
    assert kills is not None
    # The runs that end by themselves are two, each goes on once; the outputs of the last one are wrong twice.
    assert int(kills[1]) == 14
    assert said.endswith("every promise was kept\n")


def test_a_case_can_be_seen_again(tmp_path: Path) -> None:
    """The same moments of the same life, and what each process came to."""
    # Later moments move by the clock: what is noted in passing is committed with what comes next.
    moment = re.search(r"(\d+) append 0 of s: after\n", run("--moments", "0", folder=tmp_path))
    assert moment is not None
    said = run("--again", f"0:{moment[1]},3", folder=tmp_path)
    assert f"process 1: killed after moment {moment[1]}, 'append 0 of s: after'\n" in said
    assert "process 2: killed after moment 3, " in said
    assert "process 3: over after moment " in said


@pytest.mark.parametrize("how", ["frozen", "drained"])
def test_processes_that_sleep_or_are_to_leave_lose_nothing_either(how: str, tmp_path: Path) -> None:
    """Before a tool that must not run twice, while it runs, and behind it."""
    moments = re.findall(r"pay: (\w+)", run("--moments", "0", folder=tmp_path))
    assert (moments.count("before"), moments.count("done")) == (3, 3)
    said = run("--how", how, "--at", "pay: ", folder=tmp_path)
    # While one call runs, a worker that contends opens the store, which has moments of its own.
    lives = re.search(r"0 kills in (\d+) lives", said)
    assert lives is not None
    assert int(lives[1]) > 9
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
        "output: asked",
        "output: judged",
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


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("--kills 0", "argument --kills: needs a whole number, at least 1, not '0'"),
        ("--lives 99", "--lives: from 0 on there are 36 of them"),
        ("--first 36", "argument --first: needs a whole number, 0 to 35, not '36'"),
        ("--moments 99", "argument --moments: needs a whole number, 0 to 35, not '99'"),
        ("--workers 0", "argument --workers: needs a whole number, at least 1, not '0'"),
        ("--again 99:3", "argument --again: needs a life, 0 to 35, "),
        ("--again 0:0", "argument --again: needs a life, 0 to 35, "),
        ("--again 0:z0", "argument --again: needs a life, 0 to 35, "),
        ("--again x", "argument --again: needs a life, 0 to 35, "),
    ],
)
def test_what_cannot_be_tried_is_refused(asked: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is done, in a line that says what there is."""
    with pytest.raises(SystemExit) as ended:
        main(asked.split())
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (("--at", "nosuch"), "no moment of life 0 is called 'nosuch'"),
        (("--again", "0:5000"), "nobody was disturbed: life 0 is over after moment "),
    ],
)
def test_where_nothing_was_tried_nothing_is_said_to_be_well(
    asked: tuple[str, str], told: str, tmp_path: Path
) -> None:
    """Nobody was killed, and so no promise was put to the test."""
    said = run(*asked, folder=tmp_path, code=2)
    assert told in said
    assert "every promise" not in said
    assert list(tmp_path.iterdir()) == []


def test_the_entries_of_every_life_are_gone_through() -> None:
    """Each of them just before and just after; those of the first life come before all else."""
    moments = ("load s", "append 0 of s: before", "append 0 of s: before, commit", "append 0 of s: after")
    alone = {life: Undisturbed(moments=moments, seconds=1.0, shapes=[], faults=[]) for life in range(36)}
    found = list(islice(cases(Namespace(at="", seed=0), alone), 120))
    assert [str(case) for case in found[:2]] == ["0:2", "0:4"]
    assert {f"{life}:{number}" for life in alone for number in (2, 4)} <= {str(case) for case in found}
    assert {"0:1", "0:3"} <= {str(case) for case in found}


def test_a_case_is_written_as_it_is_read() -> None:
    """A life, and the moments and instants at which its processes are killed."""
    case = Case(script=3, ends=(Frozen(12), At(4), After(0.25), Drained(9), Drained(9, 2)))
    assert str(case) == "3:z12,4,0.250,d9,d9+2"
    assert Case.read("3:z12,4,0.250,d9,d9+2") == case
    assert Case.read("7") == Case(script=7, ends=())
