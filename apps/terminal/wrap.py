"""Wrap running text at spaces, since a terminal would break it in the middle of a word."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import final

from rich.cells import cell_len

MAX_HELD_WORD = 40
"""Characters of a word held back until its end has come."""

_TEXT_PARTS = re.compile(r"\n|[^\S\n]+|\S+")


@final
class Wrap:
    """
    Fits text that comes in pieces to *width* columns. A word is held back until its end has come.

    Scripts with wide characters have no spaces to break at, so they are not held back.
    """

    def __init__(self, width: Callable[[], int]) -> None:
        self._width = width
        self._column = 0
        self._gap = ""
        self._word = ""

    def feed(self, text: str) -> str:
        """The text that can be shown after *text* has come."""
        out: list[str] = []
        for part in _TEXT_PARTS.findall(text):
            if part.isspace():
                out.append(self._placed())
                self._gap += part
            else:
                self._word += part
                # Long words and wide characters would otherwise delay the stream.
                if len(self._word) > MAX_HELD_WORD or cell_len(self._word) > len(self._word):
                    out.append(self._placed())
            if part == "\n":
                out.append(part)
                self._gap, self._column = "", 0
        return "".join(out)

    def end(self) -> str:
        """The word held back; the next text begins on a line of its own."""
        out = self._placed()
        self._gap, self._column = "", 0
        return out

    def _placed(self) -> str:
        """The word, after its space or on the next line."""
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
