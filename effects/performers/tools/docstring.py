"""
What a docstring says to a model: its first paragraph, and a text for each parameter.

Google-style sections and reST fields are read. A docstring in neither manner is fine, too: what is not found
is left out, and nothing here raises.
"""

from __future__ import annotations

import inspect
import re

_SECTION = re.compile(r"([A-Z][a-z]+(?: [A-Za-z][a-z]+)?):\s*")
"""A heading of a Google-style section, such as ``Args:`` or ``Returns:``."""

_ARGUMENTS = frozenset({"Args", "Arguments", "Parameters"})

_ENTRY = re.compile(r"(\w+)\s*(?:\(.*?\))?\s*:\s*(.*)")
"""``path (str): where it is``, the type being optional."""

_FIELD = re.compile(r":(?:param|parameter|arg|argument)\s+(?:[^:]*\s)?(\w+)\s*:\s*(.*)")
"""``:param str path: where it is``, the type being optional."""

_ANY_FIELD = re.compile(r":\w+[^:]*:")
"""``:returns:`` and the like, which end the first paragraph."""


def parse(doc: str | None) -> tuple[str, dict[str, str]]:
    """The first paragraph of *doc* on one line, and the descriptions of its parameters by name."""
    lines = inspect.cleandoc(doc or "").splitlines()
    return _summary(lines), _fields(lines) | _section(lines)


def _summary(lines: list[str]) -> str:
    """The lines before the first empty one, section or field, as one."""
    kept: list[str] = []
    for line in lines:
        if not line.strip() or _SECTION.fullmatch(line) or _ANY_FIELD.match(line):
            break
        kept.append(line.strip())
    return " ".join(kept)


def _fields(lines: list[str]) -> dict[str, str]:
    """The reST fields: each goes on over the indented lines below it."""
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in lines:
        if match := _FIELD.fullmatch(line.rstrip()):
            current = found.setdefault(match[1], [])
            current.append(match[2])
        elif current is not None and line[:1].isspace():
            current.append(line.strip())
        else:
            current = None
    return _joined(found)


def _section(lines: list[str]) -> dict[str, str]:
    """The Google-style section: entries at its indentation, each going on over deeper lines."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for depth, line in _entries(lines):
        match = _ENTRY.fullmatch(line)
        if depth == 0 and match:
            current = found.setdefault(match[1], [])
            current.append(match[2])
        else:
            current.append(line)
    return _joined(found)


def _entries(lines: list[str]) -> list[tuple[int, str]]:
    """The filled lines of the arguments section, each with its depth below the section's indentation."""
    body: list[str] = []
    inside = False
    for line in lines:
        if not line.strip():
            continue
        if not line[0].isspace():
            heading = _SECTION.fullmatch(line)
            inside = heading is not None and heading[1] in _ARGUMENTS
        elif inside:
            body.append(line)
    # What stands deeper than the shallowest line goes on with the entry above it.
    base = min((_indent(line) for line in body), default=0)
    return [(_indent(line) - base, line.strip()) for line in body]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _joined(found: dict[str, list[str]]) -> dict[str, str]:
    return {name: " ".join(filter(None, texts)) for name, texts in found.items()}
