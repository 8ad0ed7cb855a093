"""Summarise tool calls and their results for the screen."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from ...effects.messages import Outcome
from ...states.rules.schema import arguments_of
from .sanitize import (
    CUT,
    clean,
    first_lines,
    one_line,
)

MINUTE = 60

PREVIEW = 24
"""Lines shown of the text that a call would write."""

COMMAND = 60
"""Lines shown of a command: more, since a person should not approve an unseen one."""

MAX_DIFFED = 200_000
"""Bytes of a file up to which a change is shown as a diff."""

ESSENTIAL = {
    "read": ("path",),
    "write": ("path",),
    "edit": ("path",),
    "ls": ("path",),
    "glob": ("pattern", "path"),
    "grep": ("pattern", "path", "glob"),
    "bash": ("command",),
}
"""The arguments that summarise a call of a built-in tool; other tools show all of theirs."""

PREVIEWED = frozenset({"write", "edit"})
"""Tools whose preview shows the text they would write, but not the path."""

RESULT_UNITS = {"read": "line", "ls": "entry", "glob": "file", "grep": "match"}
"""The unit of a result's lines, for tools whose number of lines says enough."""

_PLURALS = {"entry": "entries", "match": "matches"}

Line = tuple[str, str]
"""A line of a preview: its sign (``+``, ``-``, ``$`` or a blank) and its text."""


def plain(value: object) -> str:
    """*value* for a person: a string as it is, the rest as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def essence(tool: str, arguments: str, width: int) -> str:
    """The essential arguments of a call of *tool*, on a line of at most *width* columns."""
    values = arguments_of(arguments) or {}
    if not values:
        return one_line(arguments, width) if arguments.strip() not in {"", "{}"} else ""
    if tool in ESSENTIAL:
        return one_line(" ".join(plain(values[name]) for name in ESSENTIAL[tool] if name in values), width)
    return one_line(" ".join(f"{name}={plain(value)}" for name, value in values.items()), width)


def number(count: int, what: str) -> str:
    """*count* of *what*, such as ``1 file`` or ``1,200 files``."""
    return f"{count:,} {what if count == 1 else _PLURALS.get(what, what + 's')}"


def outcome_summary(tool: str, outcome: Outcome, content: str, width: int) -> str:
    """The outcome of a call on a line of at most *width* columns."""
    lines = [line for line in content.splitlines() if line.strip()]
    if not lines:
        return "no output"
    if outcome is not Outcome.OK:
        return one_line(content, width)
    if tool in RESULT_UNITS:
        notes = [line for line in lines if line.startswith("[")]
        count = number(len(lines) - len(notes), RESULT_UNITS[tool])
        return one_line(" ".join([count, *notes]) if len(notes) < len(lines) else notes[0], width)
    if tool == "bash":
        return _of_command(lines, width)
    more = f" (+{number(len(lines) - 1, 'line')})" if len(lines) > 1 else ""
    return one_line(lines[0], width - len(more)) + more


def _of_command(lines: list[str], width: int) -> str:
    """The last output line of a command, and its exit code unless that is 0."""
    *output, code = lines
    ended = "" if code == "[exit code 0]" else f" {code}"
    if not output:
        return one_line(f"no output{ended}", width)
    more = f" ({number(len(output), 'line')})" if len(output) > 1 else ""
    return one_line(output[-1], width - len(more) - len(ended)) + more + ended


def preview(tool: str, arguments: str, cwd: Path) -> list[Line]:
    """The preview of a call for its approval; a change of a file below *cwd* as a diff."""
    values = arguments_of(arguments) or {}
    if tool == "bash" and "command" in values:
        return _listed("$", plain(values["command"]), COMMAND) + _fields(values, {"command"})
    if tool == "edit" and {"old", "new"} <= values.keys():
        removed = _listed("-", plain(values["old"]), PREVIEW // 2)
        return (
            removed
            + _listed("+", plain(values["new"]), PREVIEW // 2)
            + _fields(values, {"path", "old", "new"})
        )
    if tool == "write" and "content" in values:
        return _written(plain(values.get("path", "")), plain(values["content"]), cwd)
    return _fields(values, set()) if values else _listed(" ", arguments, PREVIEW)


def _listed(sign: str, text: str, limit: int) -> list[Line]:
    lines, more = first_lines(text, limit)
    return [(sign, line) for line in lines] + _beyond(more)


def _beyond(more: int) -> list[Line]:
    return [(" ", f"... {number(more, 'more line')}")] if more else []


def _fields(values: Mapping[str, object], shown: set[str]) -> list[Line]:
    return [
        line
        for name, value in values.items()
        if name not in shown
        for line in _listed(" ", f"{name}: {plain(value)}", PREVIEW)
    ]


def _written(path: str, content: str, cwd: Path) -> list[Line]:
    """The changed lines of an existing file, or the lines of a new one."""
    before = _text(path, cwd)
    if before is None:
        return _listed("+", content, PREVIEW)
    changes = difflib.unified_diff(before.splitlines(), content.splitlines(), n=1, lineterm="")
    # The first two lines name the files.
    lines: list[Line] = [
        (" ", CUT) if line[0] == "@" else (line[0], clean(line[1:])) for line in islice(changes, 2, None)
    ]
    if not lines:
        return [(" ", "nothing changes")]
    if lines[0] == (" ", CUT):
        del lines[0]
    return lines[:PREVIEW] + _beyond(max(0, len(lines) - PREVIEW))


def _text(path: str, cwd: Path) -> str | None:
    """The text of the file at *path*, if it is below *cwd*, small and text."""
    try:
        real = (cwd / path).resolve()
        # The model chose the path: do not read a file elsewhere, or a link to one, for a preview.
        if not real.is_relative_to(cwd.resolve()) or not real.is_file() or real.stat().st_size > MAX_DIFFED:
            return None
        return real.read_text("utf-8")
    except (OSError, ValueError, RuntimeError):
        return None


def duration(seconds: float) -> str:
    """*seconds* in a fitting unit: ``3 ms``, ``1.2 s``, ``2 min 5 s``."""
    if seconds < 1:
        return f"{max(1, round(seconds * 1000))} ms"
    if seconds < MINUTE:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), MINUTE)
    return f"{minutes} min {rest} s"
