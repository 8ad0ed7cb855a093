"""No tracked file is a leftover of a tool or of an editor."""

from __future__ import annotations

import re
import subprocess

import pytest
from house.source import ROOT

# Files whose presence alone says something.
EMPTY = re.compile(r"(^|/)(py\.typed|__init__\.py)$")
LEFTOVER = re.compile(r"(\.orig|\.rej|\.sw[a-p]|\.bak|\.tmp|~)$|(^|/)(\.DS_Store|\.#[^/]*|#[^/]*#)$")


def tracked(*options: str) -> list[str]:
    """The paths that `git ls-files` prints with *options*."""
    if not (ROOT / ".git").exists():
        pytest.skip("only git knows which files are tracked, and this checkout has no .git")
    # A checkout may belong to another user, as in a container.
    command = ("git", "-c", "safe.directory=*", "ls-files", "-z", *options)
    result = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return result.stdout.split("\0")[:-1]


def test_no_tracked_file_is_ignored() -> None:
    # With .gitignore alone: a person's own ignore file holds for that person.
    assert tracked("--cached", "--ignored", "--exclude-per-directory=.gitignore") == []


def test_no_tracked_file_is_empty_for_no_reason() -> None:
    paths = [path for path in tracked() if (ROOT / path).is_file()]
    assert [path for path in paths if not (ROOT / path).stat().st_size and not EMPTY.search(path)] == []


def test_no_tracked_file_is_a_backup() -> None:
    assert [path for path in tracked() if LEFTOVER.search(path)] == []
