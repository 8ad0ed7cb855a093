"""The test of the tests: each deliberate mistake is found by the player, and none where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HERE = Path(__file__).resolve().parent / "mutants"
MUTANTS: list[dict[str, str]] = tomllib.loads((HERE / "mutants.toml").read_text("utf-8"))["mutant"]
ROOMS = ("effects", "engine", "states", "testing", "diagrams")
RUNS = 1_500
"""Enough to find each mutant; most are found within ten."""

SESSIONS = 250
"""The same for mistakes around a run."""

AROUND = "engine/"
BARE = {"engine/machine.py", "engine/transition.py"}
"""Where those are, but for two files; the others are found by a bare machine, which is quicker."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, compiled files included, since compiling it again would take longest."""
    package = tmp_path_factory.mktemp("template") / "turnwheel"
    package.mkdir()
    for path in ROOT.glob("*.py"):
        shutil.copy2(path, package)
    for room in ROOMS:
        shutil.copytree(ROOT / room, package / room, ignore=shutil.ignore_patterns("*.svg", "*.png"))
    return package


def hunted(package: Path, runs: int, sessions: int, *kind: str) -> subprocess.CompletedProcess[str]:
    """What playing *package* found in so many *runs* of a machine and plays of *sessions*."""
    return subprocess.run(
        [sys.executable, str(HERE / "hunt.py"), str(runs), str(sessions), *kind],
        env={**os.environ, "PYTHONPATH": str(package.parent), "PYTHONSAFEPATH": "1"},
        cwd=package.parent,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_there_is_nothing_to_find_where_nothing_is_wrong(template: Path) -> None:
    """The package as it is keeps every promise."""
    found = hunted(template, RUNS, SESSIONS)
    assert (found.returncode, found.stdout.strip()) == (0, "every promise was kept"), found.stderr


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant["name"] for mutant in MUTANTS])
def test_a_mistake_is_found(mutant: dict[str, str], template: Path, tmp_path: Path) -> None:
    """Playing finds what is wrong, and says it; it does not just crash."""
    package = tmp_path / "turnwheel"
    shutil.copytree(template, package, copy_function=os.link)
    path = package / mutant["file"]
    text = path.read_text("utf-8")
    assert text.count(mutant["old"]) == 1, f"{mutant['file']} has changed: write {mutant['old']!r} anew"
    path.unlink()
    path.write_text(text.replace(mutant["old"], mutant["new"]), "utf-8")
    around = mutant["file"].startswith(AROUND) and mutant["file"] not in BARE
    found = hunted(package, RUNS, SESSIONS if around else 0, mutant.get("kind", ""))
    assert found.returncode == 1, f"not found: {mutant['name']}"
    assert found.stdout.strip(), found.stderr
