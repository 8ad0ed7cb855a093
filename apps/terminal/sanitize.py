"""
Make text of models and tools safe for a terminal.

Such text may hold escape sequences that a terminal obeys. They can move the cursor, rewrite a question that a
person is about to approve, or set the clipboard. So each character that a terminal does not simply draw is
shown as its code. The rest of the text does not change.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len, set_cell_size

ALLOWED_CONTROLS = "\n\t"
"""Control characters that stay."""

CUT = "..."
"""Marks a cut."""

# Other formats (the joiners of emoji and of Indic scripts among them) only change how neighbours are drawn.
# These turn around the order in which a line is read, so that it is not what it seems, or hide in it.
_DECEIVING = (
    *range(0x200E, 0x2010),
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
    0x2028,
    0x2029,
    0x061C,
    0xFEFF,
    *range(0xE0000, 0xE0080),
)


def _code(point: int) -> str:
    if point <= 0xFF:  # noqa: PLR2004  # what two hex digits can say
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point <= 0xFFFF else f"\\U{point:08x}"  # noqa: PLR2004  # and four


def _shown_as_code() -> Iterator[int]:
    yield from (point for point in (*range(0x20), *range(0x7F, 0xA0)) if chr(point) not in ALLOWED_CONTROLS)
    yield from range(0xD800, 0xE000)
    yield from _DECEIVING


_CODES = {point: _code(point) for point in _shown_as_code()}


def clean(text: str) -> str:
    """*text* with control characters as codes; line ends and tabs stay."""
    return text.replace("\r\n", "\n").translate(_CODES)


def one_line(text: str, limit: int) -> str:
    """*text*, cleaned, on one line of at most *limit* columns; dots at its end mark a cut."""
    flat = clean(" ".join(text.split()))
    if cell_len(flat) <= limit:
        return flat
    return set_cell_size(flat, max(0, limit - len(CUT))).rstrip() + CUT


def first_lines(text: str, limit: int) -> tuple[list[str], int]:
    """The first *limit* lines of *text*, cleaned, and the number of the others."""
    lines = clean(text).splitlines()
    return lines[:limit], max(0, len(lines) - limit)
