"""
Make text of models and tools safe for a terminal.

Such text may hold escape sequences that a terminal obeys. They can move the cursor, rewrite a question that a
person is about to approve, or set the clipboard. So each character that a terminal does not simply draw is
shown as its code. The rest of the text does not change. In JSON it is written as an escape, so that the JSON
says the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from rich.cells import cell_len, set_cell_size

ALLOWED_CONTROLS = "\n\t"
"""Control characters that stay."""

CUT = "..."
"""Marks a cut."""

TAB_WIDTH = 4
"""Columns between two tab stops in a text that is shown exactly."""

HIDDEN = "(hidden)"
"""Takes the place of a secret."""

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
_NAME_CODES = _CODES | {ord(control): _code(ord(control)) for control in ALLOWED_CONTROLS}

# What sets colours and erases the rest of a row, as `ls` and `grep` do. Nothing is hidden by it here.
_COLORS = re.compile("\x1b\\[[0-9;:]*[mK]")

# All that a terminal draws nothing for, the joiners and selectors of emoji among them.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def clean(text: str) -> str:
    """*text* with control characters as codes; line ends and tabs stay."""
    return text.replace("\r\n", "\n").translate(_CODES)


def without_colors(text: str) -> str:
    """*text* without the escape sequences that only colour it, as programs write them to a terminal."""
    return _COLORS.sub("", text)


def exact(text: str) -> str:
    """*text* with codes for all that a terminal obeys or does not draw; line ends stay, tabs are blanks."""
    return _UNSEEN.sub(lambda unseen: _code(ord(unseen[0])), text).expandtabs(TAB_WIDTH)


def whole_name(text: str) -> str:
    """*text* with control characters as codes, line ends and tabs among them: a name, and all of it."""
    return text.translate(_NAME_CODES)


def in_escapes(line: bytes) -> bytes:
    """*line*, which is JSON, with escapes for characters that a terminal obeys or draws nothing for."""
    # Most are plain: JSON has escapes for all controls of ASCII but this one. (`json.dumps` for it, too.)
    if line.isascii() and b"\x7f" not in line:
        return line
    return _UNSEEN.sub(_escape, line.decode()).encode()


def _escape(unseen: re.Match[str]) -> str:
    # In units of UTF-16: the escapes of JSON have four digits.
    units = unseen[0].encode("utf-16-be", "surrogatepass").hex()
    return re.sub("....", r"\\u\g<0>", units)


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


def without_password(text: str) -> str:
    """*text*, with the password (or the only word of the login) hidden if it is an address with one."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return text
    secret = parts.username if parts.password is None else parts.password
    return text if secret is None else text.replace(f"{secret}@", f"{HIDDEN}@", 1)
