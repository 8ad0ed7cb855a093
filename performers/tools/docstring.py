"""What a docstring says to a model: its first paragraph, and a text for each parameter."""

from __future__ import annotations

import inspect
import re
from textwrap import dedent

# The first paragraph ends at an empty line, a Google-style heading such as ``Returns:``, or a reST field.
_END_OF_SUMMARY = re.compile(r"^(?:\s*$|[A-Z][a-z]+(?: [A-Za-z][a-z]+)?:\s*$|:\w+[^:\n]*:)", re.MULTILINE)

# The lines below ``Args:``, which are indented or empty.
_SECTION = re.compile(r"^(?:Args|Arguments|Parameters):[ \t]*((?:\n(?:[ \t].*)?)*)$", re.MULTILINE)

# ``path (str): where it is``, the type being optional; what follows belongs to it up to the next one.
_ENTRY = re.compile(r"^(\w+)[ \t]*(?:\(.*?\))?[ \t]*:", re.MULTILINE)

# ``:param str path: where it is``, the type being optional, and the indented lines below it.
_FIELD = re.compile(
    r"^:(?:param|parameter|arg|argument)[ \t]+(?:[^:\n]*[ \t])?(\w+)[ \t]*:(.*(?:\n[ \t].*)*)", re.MULTILINE
)


def parse_docstring(doc: str | None) -> tuple[str, dict[str, str]]:
    """The first paragraph of *doc* on one line, and the descriptions of its parameters by name."""
    text = inspect.cleandoc(doc or "")
    described: list[tuple[str, str]] = _FIELD.findall(text)
    for section in _SECTION.findall(text):
        _, *parts = _ENTRY.split(dedent(section))
        described += zip(parts[::2], parts[1::2], strict=True)
    summary = _END_OF_SUMMARY.split(text, maxsplit=1)[0]
    return _on_one_line(summary), {name: _on_one_line(told) for name, told in described}


def _on_one_line(text: str) -> str:
    return " ".join(filter(None, map(str.strip, text.splitlines())))
