"""Show what a call changes in a file: a diff with line numbers, and some lines around each change."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final, final

import attrs

from .sanitize import CUT, exact

UNCHANGED_AROUND = 3
"""Unchanged lines shown before and after a change."""

MAX_DIFFED = 200_000
"""Bytes of a file up to which a change is shown as a diff."""

SAME = "|"
"""The sign of a line that goes on, or stays as it is."""

_HUNK: Final = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")


@final
@attrs.frozen
class PreviewLine:
    """
    A line of a preview: its *sign*, its *text* and its *number* in a file, None for no number.

    The sign is the card's own: without one, a line is a field or a remark. A text never has a line without a
    sign but its first one, so it can forge neither.
    """

    sign: str
    text: str
    number: int | None = None


def file_change(tool: str, values: Mapping[str, object], cwd: Path | None) -> list[PreviewLine] | None:
    """
    What a call of *tool* with the arguments *values* changes in a file below *cwd*, as a diff.

    None where the call changes no such file, or it is not known how. An edit that was made already is shown
    as it was made.
    """
    path = values.get("path", "")
    before = None if cwd is None or not isinstance(path, str) else _text(path, cwd)
    if before is None:
        return None
    if tool == "write" and isinstance(content := values.get("content"), str):
        return _diff(before, content)
    old, new = values.get("old"), values.get("new")
    if tool != "edit" or not (isinstance(old, str) and isinstance(new, str) and old):
        return None
    every = values.get("all") is True
    if before.count(old) == 1 or (every and old in before):
        return _diff(before, before.replace(old, new))
    if old not in before and new and before.count(new) == 1:
        return _diff(before.replace(new, old), before)
    return None


def _diff(before: str, after: str) -> list[PreviewLine]:
    """The changed lines, each with its number: in the new text, or in the old one if it is removed."""
    lines: list[PreviewLine] = []
    old = new = 0
    if before.endswith("\n") and after.endswith("\n"):  # no line stands behind the last line end
        before, after = before[:-1], after[:-1]
    changes = difflib.unified_diff(before.split("\n"), after.split("\n"), n=UNCHANGED_AROUND, lineterm="")
    for change in islice(changes, 2, None):  # the first two lines name the files
        if (hunk := _HUNK.fullmatch(change)) is not None:
            lines += [PreviewLine("", CUT)] if lines else []
            old, new = int(hunk[1]), int(hunk[2])
            continue
        sign, text = change[0].replace(" ", SAME), exact(change[1:])
        lines.append(PreviewLine(sign, text, old if sign == "-" else new))
        old += sign != "+"
        new += sign != "-"
    return lines or [PreviewLine("", "nothing changes")]


def numbered(lines: tuple[PreviewLine, ...]) -> Iterator[tuple[str, PreviewLine]]:
    """Each of *lines*, with its number in a column as wide as the widest one; empty where none has one."""
    widest = max((len(str(line.number)) for line in lines if line.number is not None), default=0)
    for line in lines:
        number = "" if line.number is None else str(line.number)
        yield f"{number:>{widest}} " if widest else "", line


def _text(path: str, cwd: Path) -> str | None:
    """The text of the file at *path*, if it is below *cwd*, small and text."""
    try:
        real = (cwd / path).resolve()
        # The model chose the path: do not read a file elsewhere, or a link to one, for a preview.
        if not real.is_relative_to(cwd.resolve()) or not real.is_file() or real.stat().st_size > MAX_DIFFED:
            return None
        # Line ends as they are: a change of them is a change.
        return real.read_bytes().decode("utf-8")
    except (OSError, ValueError, RuntimeError):
        return None
