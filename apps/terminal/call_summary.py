"""Summarise tool calls and their results for the screen."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Set as AbstractSet
from pathlib import Path
from typing import final

import attrs

from ...effects.messages import Outcome
from ...states.rules.schema import arguments_of
from .diff_view import SAME, PreviewLine, file_change
from .sanitize import exact, one_line, without_colors

MINUTE = 60

PREVIEW = 24
"""Lines shown of the text that a call would write."""

COMMAND = 60
"""Lines shown of a command: more, since a person should not approve an unseen one."""

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

SEARCHING = frozenset({"ls", "glob", "grep"})
"""Tools that look into the working directory where no path is given."""

OUTCOME_WORDS = {Outcome.TIMED_OUT: "timed out", Outcome.UNKNOWN: "may have run"}
"""The words of outcomes whose value is not a word for a person."""

CHANGE = (("-", "old"), ("+", "new"))
"""The signs of the two texts of a change."""

LONGEST_PATH = 4_096
"""Characters of a path that is shown whole: a system takes no longer one."""

LEADS_TO, FURTHER = "=", SAME
"""The sign of the place that a path leads to, and that of a text that goes on after a line end."""

_WORD_WITHIN = 80
"""Characters of a result in which the word of its outcome may stand."""

_NAME = re.compile(r"[A-Za-z0-9_.-]+")


@final
@attrs.frozen
class PreviewPart:
    """A part of a preview: its *lines*, and how many rows of a screen are shown of it; None for all."""

    lines: tuple[PreviewLine, ...]
    rows: int | None = None


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
    if outcome is not Outcome.OK:
        return failed_summary(outcome, content, width)
    lines = [line for line in without_colors(content).splitlines() if line.strip()]
    if not lines:
        return "no output"
    if tool in RESULT_UNITS:
        notes = [line for line in lines if line.startswith("[")]
        count = number(len(lines) - len(notes), RESULT_UNITS[tool])
        return one_line(" ".join([count, *notes]) if len(notes) < len(lines) else notes[0], width)
    if tool == "bash":
        return _of_command(lines, width)
    more = f" (+{number(len(lines) - 1, 'line')})" if len(lines) > 1 else ""
    return one_line(lines[0], width - len(more)) + more


def failed_summary(outcome: Outcome, content: str, width: int) -> str:
    """The *content* of a call that did not succeed, behind a word for its *outcome* unless it has that."""
    content = without_colors(content)
    word = OUTCOME_WORDS.get(outcome, outcome.value)
    beginning = content[:_WORD_WITHIN].lower()
    # The reason of a denial is a person's own text, in which the word may stand for anything.
    says = beginning.startswith(word) if outcome is Outcome.DENIED else word in beginning
    return one_line(content if says else f"{word}: {content}" if content.strip() else word, width)


def _of_command(lines: list[str], width: int) -> str:
    """The last output line of a command, and its exit code unless that is 0."""
    *output, code = lines
    ended = "" if code == "[exit code 0]" else f" {code}"
    if not output:
        return one_line(f"no output{ended}", width)
    more = f" ({number(len(output), 'line')})" if len(output) > 1 else ""
    return one_line(output[-1], width - len(more) - len(ended)) + more + ended


def preview(tool: str, arguments: str, cwd: Path | None, *, headed: bool = False) -> list[PreviewPart]:
    """
    The preview of a call for its approval; a change of a file below *cwd* as a diff.

    *headed*: its path stands in a heading already. Without *cwd*, no path is looked up.
    """
    values = arguments_of(arguments) or {}
    path = [] if headed else _fields(values, {"path"} & values.keys())
    path += [_leads_to(real) for real in _real_path(tool, values, cwd)]
    if tool == "bash" and "command" in values:
        command = _listed("$", plain(values["command"]), COMMAND)
        return [command, *_fields(values, values.keys() - {"command"})]
    change = _changes(tool, values, cwd)
    if tool == "edit" and {"old", "new"} <= values.keys():
        change = change or [_listed(sign, plain(values[name]), PREVIEW // 2) for sign, name in CHANGE]
        return [*path, *change, *_fields(values, values.keys() - {"path", "old", "new"})]
    if tool == "write" and "content" in values:
        change = change or [_listed("+", plain(values["content"]), PREVIEW)]
        return [*path, *change, *_fields(values, values.keys() - {"path", "content"})]
    if not values and arguments.strip() not in {"", "{}"}:
        return [_listed(FURTHER, arguments, PREVIEW)]
    return [*path, *_fields(values, values.keys() - {"path"})]


def _changes(tool: str, values: Mapping[str, object], cwd: Path | None) -> list[PreviewPart]:
    """The change of a file that a call makes, if it is known."""
    lines = file_change(tool, values, cwd)
    return [] if lines is None else [PreviewPart(tuple(lines), PREVIEW)]


def change_preview(tool: str, arguments: str, cwd: Path | None) -> PreviewPart | None:
    """The change of a file that a call of *tool* makes; None where it makes none, or it is not known."""
    return next(iter(_changes(tool, arguments_of(arguments) or {}, cwd)), None)


def _listed(sign: str, text: str, limit: int) -> PreviewPart:
    lines = exact(text.removesuffix("\n")).split("\n") if text else []
    return PreviewPart(tuple([PreviewLine(sign, line) for line in lines]), limit)


def _fields(values: Mapping[str, object], names: AbstractSet[str]) -> list[PreviewPart]:
    """Those of *values* that have one of *names*, in their order."""
    return [_field(name, plain(value)) for name, value in values.items() if name in names]


def _field(name: str, value: str) -> PreviewPart:
    # A name that is no word could look like another field with its value.
    label = name if _NAME.fullmatch(name) else json.dumps(name)
    if name == "path":
        value = value.replace("\t", r"\x09")
    first, *more = exact(f"{label}: {value}").split("\n")
    rows = _rows_of_path(value) if name == "path" else PREVIEW
    return PreviewPart((PreviewLine("", first), *[PreviewLine(FURTHER, line) for line in more]), rows)


def _rows_of_path(path: str) -> int | None:
    return None if len(path) <= LONGEST_PATH else PREVIEW


def _leads_to(real: str) -> PreviewPart:
    return PreviewPart((PreviewLine(LEADS_TO, real),), _rows_of_path(real))


def _real_path(tool: str, values: Mapping[str, object], cwd: Path | None) -> list[str]:
    """Where the path of a call of a built-in *tool* leads, unless it says so itself."""
    path = values.get("path", "." if tool in SEARCHING else None)
    if cwd is None or tool not in ESSENTIAL or not isinstance(path, str):
        return []
    try:
        real = str((cwd / path).resolve())
    except (OSError, ValueError, RuntimeError):  # the call will fail of it
        return []
    return [] if real == path else [exact(real.replace("\n", r"\x0a").replace("\t", r"\x09"))]


def duration(seconds: float) -> str:
    """*seconds* in a fitting unit: ``3 ms``, ``1.2 s``, ``2 min 5 s``."""
    if seconds < 1:
        return f"{max(1, round(seconds * 1000))} ms"
    if seconds < MINUTE:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), MINUTE)
    return f"{minutes} min {rest} s"
