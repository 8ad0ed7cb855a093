"""Decode the bytes of a terminal into text and named keys."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final, final

PASTES_ON, PASTES_OFF = "\x1b[?2004h", "\x1b[?2004l"
"""Turn bracketed paste on and off, so that a line end in a paste does not count as Enter."""

_BEGIN, _END = "\x1b[200~", "\x1b[201~"

_KEY_PARTS = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1bO.|\x1b[^\[O]|[\x00-\x1a\x1c-\x1f\x7f]|[^\x00-\x1f\x7f]+"
)
_UNFINISHED = re.compile(r"\x1b(\[[0-?]*|O)?\Z")


@final
class EditKey(StrEnum):
    """A key that edits or ends a line."""

    ENTER = "enter"
    NEWLINE = "newline"
    END_OF_INPUT = "end_of_input"
    LEFT = "left"
    RIGHT = "right"
    WORD_LEFT = "word_left"
    WORD_RIGHT = "word_right"
    HOME = "home"
    END = "end"
    UP = "up"
    DOWN = "down"
    BACKSPACE = "backspace"
    DELETE = "delete"
    DELETE_WORD = "delete_word"
    DELETE_BEFORE = "delete_before"
    DELETE_BEHIND = "delete_behind"


_NAMES: Final = {
    "\r": EditKey.ENTER,
    "\n": EditKey.ENTER,
    "\x1b\r": EditKey.NEWLINE,
    "\x1b\n": EditKey.NEWLINE,
    "\x04": EditKey.END_OF_INPUT,
    "\x01": EditKey.HOME,
    "\x02": EditKey.LEFT,
    "\x05": EditKey.END,
    "\x06": EditKey.RIGHT,
    "\x08": EditKey.BACKSPACE,
    "\x7f": EditKey.BACKSPACE,
    "\x0b": EditKey.DELETE_BEHIND,
    "\x0e": EditKey.DOWN,
    "\x10": EditKey.UP,
    "\x15": EditKey.DELETE_BEFORE,
    "\x17": EditKey.DELETE_WORD,
    "\x1b\x7f": EditKey.DELETE_WORD,
    "\x1bb": EditKey.WORD_LEFT,
    "\x1bf": EditKey.WORD_RIGHT,
    "\x1b[1;3D": EditKey.WORD_LEFT,
    "\x1b[1;5D": EditKey.WORD_LEFT,
    "\x1b[1;3C": EditKey.WORD_RIGHT,
    "\x1b[1;5C": EditKey.WORD_RIGHT,
    "\x1b[1~": EditKey.HOME,
    "\x1b[7~": EditKey.HOME,
    "\x1b[4~": EditKey.END,
    "\x1b[8~": EditKey.END,
    "\x1b[3~": EditKey.DELETE,
    **{
        f"\x1b{opens}{letter}": key
        for opens in "[O"
        for letter, key in {
            "A": EditKey.UP,
            "B": EditKey.DOWN,
            "C": EditKey.RIGHT,
            "D": EditKey.LEFT,
            "H": EditKey.HOME,
            "F": EditKey.END,
        }.items()
    },
}
"""The sequences of terminals, readline and Emacs for each key; others are ignored."""


@final
class KeyDecoder:
    """Decodes bytes in pieces of any size."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""

    def feed(self, data: bytes) -> Iterator[EditKey | str]:
        """The keys and texts in *data*, after the bytes that came before."""
        text = self._rest + self._decode(data)
        self._rest = ""
        while text:
            before, begins, after = text.partition(_BEGIN)
            yield from self._typed(before, last=not begins)
            if not begins:
                return
            pasted, ends, text = after.partition(_END)
            # The rest of the paste is still to come.
            if not ends:
                self._rest = begins + after
                return
            yield pasted.replace("\r\n", "\n").replace("\r", "\n")

    def _typed(self, text: str, *, last: bool) -> Iterator[EditKey | str]:
        if last and (cut := _UNFINISHED.search(text)) is not None:
            # A lone Escape has no meaning here, so it can wait for the rest of its sequence.
            text, self._rest = text[: cut.start()], cut[0]
        for part in _KEY_PARTS.findall(text):
            if part in _NAMES:
                yield _NAMES[part]
            elif part[0] >= " " and part[0] != "\x7f":
                yield part
