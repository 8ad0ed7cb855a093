"""Breaking running text at its spaces, where a terminal would break it in the middle of a word."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import final

from rich.cells import cell_len

MAX_HELD_WORD = 40
"""Characters of a word that are held back until its end has come."""

_TEXT_PARTS = re.compile(r"\n|[^\S\n]+|\S+")


@final
class Wrap:
    """
    Fits text that comes in bits to *width* columns. A word is held back until its end has come.

    Scripts with wide characters have no spaces to break at and are passed on at once.
    """

    def __init__(self, width: Callable[[], int]) -> None:
        self._width = width
        self._column = 0
        self._gap = ""
        self._word = ""

    def feed(self, text: str) -> str:
        """What can be shown once *text* has come."""
        out: list[str] = []
        for part in _TEXT_PARTS.findall(text):
            if part.isspace():
                out.append(self._placed())
                self._gap += part
            else:
                self._word += part
                if len(self._word) > MAX_HELD_WORD or cell_len(self._word) > len(self._word):
                    out.append(self._placed())
            if part == "\n":
                out.append(part)
                self._gap, self._column = "", 0
        return "".join(out)

    def end(self) -> str:
        """What was held back; the next text begins on a line of its own."""
        out = self._placed()
        self._gap, self._column = "", 0
        return out

    def _placed(self) -> str:
        """The word, behind its gap or on the next line."""
        if not self._word:
            return ""
        word, gap = self._word, self._gap
        self._word, self._gap = "", ""
        columns, width = cell_len(word), max(1, self._width())
        before = self._column + cell_len(gap.expandtabs())
        if self._column and before + columns > width:
            self._column = columns % width
            return f"\n{word}"
        self._column = (before + columns) % width if before + columns > width else before + columns
        return gap + word
