"""The line that a person is typing: its text, its cursor and its history."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, final

from rich.cells import cell_len

from ..terminal.sanitize import clean
from .key_decoder import EditKey

_FIRST_WORD, _LAST_WORD = re.compile(r"\A\s*\S*"), re.compile(r"\S*\s*\Z")

MOST_ROWS = 8
"""The most rows shown of a long line, around the cursor."""


@final
class LineEditor:
    """
    A *text* with a *caret* before one of its characters, or at its end.

    *before* is the history for the arrow keys. *started* is the time of the first character, in seconds of
    *clock*.
    """

    def __init__(self, before: list[str], clock: Callable[[], float]) -> None:
        self.text = ""
        self.caret = 0
        self.started = 0.0
        self._before = before
        self._clock = clock
        self._back = 0
        self._draft = ""

    def put(self, text: str) -> None:
        """Insert *text* at the caret."""
        if not self.text:
            self.started = self._clock()
        self.text = self.text[: self.caret] + text + self.text[self.caret :]
        self.caret += len(text)

    def press(self, key: EditKey) -> None:
        """Apply *key*, which does not end the line."""
        if key in {EditKey.UP, EditKey.DOWN}:
            self._recall(1 if key is EditKey.UP else -1)
        elif key is EditKey.NEWLINE:
            self.put("\n")
        elif key in _DELETIONS:
            self._delete(_DELETIONS[key](self.text, self.caret))
        elif key in _MOVES:
            self.caret = _MOVES[key](self.text, self.caret)

    def take(self) -> str:
        """Return the whole text, add it to the history, and clear the line."""
        text = self.text
        self.clear()
        if text.strip() and self._before[-1:] != [text]:
            self._before.append(text)
        return text

    def clear(self) -> None:
        """Clear the line."""
        self.text, self.caret, self._back, self._draft = "", 0, 0, ""

    def _delete(self, until: int) -> None:
        first, last = sorted((self.caret, until))
        self.text = self.text[:first] + self.text[last:]
        self.caret = first

    def _recall(self, steps: int) -> None:
        """Go *steps* back in the history as far as it reaches; the unfinished line is kept."""
        back = min(max(0, self._back + steps), len(self._before))
        if back == self._back:
            return
        if self._back == 0:
            self._draft = self.text
        self._back = back
        self.text = self._before[-back] if back else self._draft
        self.caret = len(self.text)
        # The person picks this text now, so it may answer a question that is open now.
        self.started = self._clock()


def _left(text: str, caret: int) -> int:
    """One character to the left, with its combining marks."""
    caret = max(0, caret - 1)
    while caret > 0 and text[caret] != "\n" and not cell_len(text[caret]):
        caret -= 1
    return caret


def _right(text: str, caret: int) -> int:
    caret = min(len(text), caret + 1)
    while caret < len(text) and text[caret] != "\n" and not cell_len(text[caret]):
        caret += 1
    return caret


def _word_left(text: str, caret: int) -> int:
    return caret - len(_LAST_WORD.findall(text[:caret])[0])


def _word_right(text: str, caret: int) -> int:
    return caret + len(_FIRST_WORD.findall(text[caret:])[0])


_MOVES: Final[Mapping[EditKey, Callable[[str, int], int]]] = {
    EditKey.LEFT: _left,
    EditKey.RIGHT: _right,
    EditKey.WORD_LEFT: _word_left,
    EditKey.WORD_RIGHT: _word_right,
    EditKey.HOME: lambda text, caret: text.rfind("\n", 0, caret) + 1,
    EditKey.END: lambda text, caret: end if (end := text.find("\n", caret)) >= 0 else len(text),
}
"""The position that each key moves to."""

_DELETIONS: Final[Mapping[EditKey, Callable[[str, int], int]]] = {
    EditKey.BACKSPACE: _left,
    EditKey.DELETE: _right,
    EditKey.DELETE_WORD: _word_left,
    EditKey.DELETE_BEFORE: _MOVES[EditKey.HOME],
    EditKey.DELETE_BEHIND: _MOVES[EditKey.END],
}
"""The position up to which each key deletes."""


def lay_out(text: str, caret: int, width: int) -> tuple[list[str], int, int]:
    """
    *text* in rows of at most *width* columns, with the row and column of the *caret*.

    Control characters are shown as codes. Of more than `MOST_ROWS` rows, those around the caret are shown.
    """
    rows, row, column = [""], 0, 0
    for index, char in enumerate(text):
        shown = "    " if char == "\t" else clean(char)
        if char == "\n" or cell_len(rows[-1] + shown) > width:
            rows.append("")
        if index == caret:
            row, column = _caret_position(rows, char)
        if char != "\n":
            rows[-1] += shown
    if caret >= len(text):
        if cell_len(rows[-1]) >= width:
            rows.append("")
        row, column = len(rows) - 1, cell_len(rows[-1])
    first = max(0, min(row - MOST_ROWS // 2, len(rows) - MOST_ROWS))
    return rows[first : first + MOST_ROWS], row - first, column


def _caret_position(rows: list[str], char: str) -> tuple[int, int]:
    """The caret before *char*: at the end of the last row, or, before a line end, of the row above it."""
    if char == "\n":
        return len(rows) - 2, cell_len(rows[-2])
    return len(rows) - 1, cell_len(rows[-1])
