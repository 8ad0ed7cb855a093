"""No tracked file is a leftover of a tool or of an editor."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from house.source import ROOT
from support.checkout import tracked

# Files whose presence alone says something.
EMPTY = re.compile(r"(^|/)(py\.typed|__init__\.py)$")
LEFTOVER = re.compile(r"(\.orig|\.rej|\.sw[a-p]|\.bak|\.tmp|~)$|(^|/)(\.DS_Store|\.#[^/]*|#[^/]*#)$")


def test_no_tracked_file_is_ignored() -> None:
    # With .gitignore alone: a person's own ignore file holds for that person.
    assert tracked("--cached", "--ignored", "--exclude-per-directory=.gitignore") == []


def test_no_tracked_file_is_empty_for_no_reason() -> None:
    paths = [path for path in tracked() if (ROOT / path).is_file()]
    assert [path for path in paths if not (ROOT / path).stat().st_size and not EMPTY.search(path)] == []


def test_no_tracked_file_is_a_backup() -> None:
    assert [path for path in tracked() if LEFTOVER.search(path)] == []


def test_a_folder_without_git_skips_the_tests_of_tracked_files(tmp_path: Path) -> None:
    with pytest.raises(pytest.skip.Exception, match="this folder has no"):
        tracked(root=tmp_path)


def test_a_checkout_that_git_refuses_skips_the_tests_of_tracked_files(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: missing", "utf-8")
    with pytest.raises(pytest.skip.Exception, match="it refuses: fatal: not a git repository"):
        tracked(root=tmp_path)
