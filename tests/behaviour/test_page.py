"""The page of behaviours is what the list and the tests say, and each behaviour is shown."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
FILES = ("tests/behaviour/page.py", "tests/behaviour/behaviours.toml", "tests/behaviour/test_events.py")


def checked(root: Path, *arguments: str) -> list[str]:
    command = [sys.executable, str(root / FILES[0]), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == ("", bool(done.stdout))
    return done.stdout.splitlines()


def test_every_behaviour_is_shown_by_a_test_and_the_page_says_so() -> None:
    assert checked(ROOT, "--check") == []


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small checkout with one file of tests, whose page is written, and only the behaviours they show."""
    for folder in ("tests/behaviour", "docs"):
        (tmp_path / folder).mkdir(parents=True)
    for file in FILES:
        shutil.copy2(ROOT / file, tmp_path / file)
    areas = (ROOT / FILES[1]).read_text("utf-8").split("[[area]]\n")
    [events] = [area for area in areas if area.startswith('name = "Events and watchers"')]
    (tmp_path / FILES[1]).write_text(f"[[area]]\n{events}", "utf-8")
    assert checked(tmp_path) == []
    return tmp_path


@pytest.mark.parametrize(
    ("file", "old", "new", "faults"),
    [
        (
            FILES[1],
            'key = "watchers-never-hold-up-a-run"',
            'key = "a-watcher-knows-everything"',
            ["no test shows 'a-watcher-knows-everything'", "which is not in the list", "is stale"],
        ),
        (
            FILES[1],
            'key = "watchers-never-hold-up-a-run"',
            'key = "one-run-in-four-vocabularies"',
            [
                "'one-run-in-four-vocabularies' stands in the list 2 times",
                "which is not in the list",
                "is stale",
            ],
        ),
        (
            FILES[2],
            '@pytest.mark.behaviour("one-run-in-four-vocabularies")\n',
            "",
            ["no test shows", "mark it", "is stale"],
        ),
        (FILES[2], "test_others_read_", "test_all_read_", ["is stale: run make behaviours"]),
        (
            "docs/behaviours.md",
            "# Behaviours",
            "# Behavior",
            ["docs/behaviours.md is stale: run make behaviours"],
        ),
    ],
)
def test_what_is_wrong_is_said(checkout: Path, file: str, old: str, new: str, faults: list[str]) -> None:
    text = (checkout / file).read_text("utf-8")
    assert old in text
    (checkout / file).write_text(text.replace(old, new), "utf-8")

    found = checked(checkout, "--check")
    for fault in faults:
        assert [fault in line for line in found].count(True) >= 1, found
    assert all(any(fault in line for fault in faults) for line in found)
