"""Processes that are killed with -9 at every moment: those that follow keep every promise."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from turnwheel.testing.torture_cases import After, At, Case

ROOT = Path(__file__).resolve().parent.parent
MUTANTS: list[dict[str, str]] = tomllib.loads(
    (ROOT / "tests" / "mutants" / "torture.toml").read_text("utf-8")
)["mutant"]
QUICK = ("an unsafe tool is run again", "the end of a tool is written with what comes next")
"""The mistakes that are tried here, of those in the list."""

ROOMS = ("effects", "engine", "states", "testing", "diagrams")


def tortured(*arguments: str, folder: Path, package: Path | None = None) -> subprocess.CompletedProcess[str]:
    """What comes of it, in a process of its own: to fork one that has threads is asking for trouble."""
    path = {} if package is None else {"PYTHONPATH": str(package.parent), "PYTHONSAFEPATH": "1"}
    return subprocess.run(
        [sys.executable, *(arguments or ("-m", "turnwheel.testing.torture"))],
        env={**os.environ, "TMPDIR": str(folder), **path},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def run(*arguments: str, folder: Path) -> str:
    """What it says where nothing is wrong."""
    found = tortured("-m", "turnwheel.testing.torture", *arguments, folder=folder)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def test_a_session_survives_being_killed_around_every_entry_of_its_journal(tmp_path: Path) -> None:
    """Its own and its child's; and then at drawn moments and instants, also while it recovers."""
    said = run("--kills", "165", "--lives", "2", folder=tmp_path)
    assert said.endswith("every promise was kept\n")
    counts = [int(count.replace(",", "")) for count in re.findall(r"\d[\d,]*", said)]
    kills, _, at_moments, at_instants, recovering = counts[:5]
    assert kills >= 165
    assert kills == at_moments + at_instants
    assert at_moments > 152
    assert recovering > 0
    assert list(tmp_path.iterdir()) == []  # where nothing is wrong, nothing is left


def test_a_case_can_be_seen_again(tmp_path: Path) -> None:
    """The same moments of the same life, and what each process came to."""
    said = run("--again", "0:119,3", folder=tmp_path)
    again = run("--again", "0:119,3", folder=tmp_path)
    assert again == said
    assert "process 1: killed after moment 119, 'pay: begun'" in said
    assert "process 2: killed after moment 3, " in said
    assert "process 3: ended after moment " in said


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
        "timer: set",
        "hook pre_compact: asked",
        "hook stop: asked",
        "model turn: streams",
        "model summary: answered",
        "told RunEnded",
    ):
        assert f" {moment}\n" in said, moment
    assert re.search(r"append \d+ of s\.\w+-\d+: commit", said)  # a child's


def test_a_case_is_written_as_it_is_read() -> None:
    """A life, and the moments and instants at which its processes are killed."""
    case = Case(script=3, kills=(At(12), After(0.25)))
    assert str(case) == "3:12,0.250"
    assert Case.read("3:12,0.250") == case
    assert Case.read("7") == Case(script=7, kills=())


@pytest.mark.parametrize("name", QUICK)
def test_a_mistake_is_found(name: str, tmp_path: Path) -> None:
    """Killing finds what is wrong, and says how to see it again."""
    mutant = next(mutant for mutant in MUTANTS if mutant["name"] == name)
    package = tmp_path / "turnwheel"
    package.mkdir()
    for path in ROOT.glob("*.py"):
        shutil.copy2(path, package)
    for room in ROOMS:
        shutil.copytree(ROOT / room, package / room, ignore=shutil.ignore_patterns("*.svg"))
    wrong = package / mutant["file"]
    text = wrong.read_text("utf-8")
    assert text.count(mutant["old"]) == 1, f"{mutant['file']} has changed: write {mutant['old']!r} anew"
    wrong.write_text(text.replace(mutant["old"], mutant["new"]), "utf-8")
    found = tortured(*shlex.split(mutant["tests"]), folder=tmp_path, package=package)
    assert found.returncode == 1, found.stdout
    assert "see it again: --again 0:" in found.stdout
