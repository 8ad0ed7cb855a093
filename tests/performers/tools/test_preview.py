"""The file that a call would write, as an approver sees it before."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwheel.performers.tools.builtin import builtin_tools
from turnwheel.performers.tools.preview import MAX_PREVIEWED, FilePreview, file_preview


def previewed(place: Path, path: str) -> FilePreview | None:
    return file_preview(builtin_tools(), "write", {"path": path, "content": "x"}, place, ())


@pytest.mark.parametrize(
    ("content", "before"),
    [
        (b"one\r\ntwo\n", "one\r\ntwo\n"),
        (b"\xff\xfe", None),
        (b"x" * MAX_PREVIEWED, "x" * MAX_PREVIEWED),
        (b"x" * (MAX_PREVIEWED + 1), None),
    ],
)
def test_a_file_that_is_there_has_a_size_and_its_text(
    content: bytes, before: str | None, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    seen = previewed(tmp_path, "a.txt")
    assert seen == FilePreview(path=str(tmp_path / "a.txt"), before=before, size=len(content))


def test_a_file_that_is_not_there_has_neither(tmp_path: Path) -> None:
    assert previewed(tmp_path, "new/a.txt") == FilePreview(path=str(tmp_path / "new" / "a.txt"))


def test_what_cannot_be_read_is_no_new_file(tmp_path: Path) -> None:
    """An approver who read "a new file" would not know that something is there."""
    (tmp_path / "folder").mkdir()
    seen = previewed(tmp_path, "folder")
    assert seen is not None
    assert (seen.size, seen.problem) == (None, "Is a directory")


def test_a_path_that_the_tools_may_not_touch_is_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "secret").write_text("x")
    assert previewed(tmp_path / "inside", "../secret") is None
