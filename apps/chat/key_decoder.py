"""What the bytes of a terminal mean: text that was typed or pasted, and keys by their names."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final, final

PASTES_ON, PASTES_OFF = "\x1b[?2004h", "\x1b[?2004l"
"""Ask a terminal to say what was pasted, so that the line ends in it are not taken for Enter."""

_BEGIN, _END = "\x1b[200~", "\x1b[201~"

_PARTS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1bO.|\x1b[^\[O]|[\x00-\x1a\x1c-\x1f\x7f]|[^\x00-\x1f\x7f]+")
_UNFINISHED = re.compile(r"\x1b(\[[0-?]*|O)?\Z")


@final
class Key(StrEnum):
    """A key that does something to a line."""

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
    "\r": Key.ENTER,
    "\n": Key.ENTER,
    "\x1b\r": Key.NEWLINE,
    "\x1b\n": Key.NEWLINE,
    "\x04": Key.END_OF_INPUT,
    "\x01": Key.HOME,
    "\x02": Key.LEFT,
    "\x05": Key.END,
    "\x06": Key.RIGHT,
    "\x08": Key.BACKSPACE,
    "\x7f": Key.BACKSPACE,
    "\x0b": Key.DELETE_BEHIND,
    "\x0e": Key.DOWN,
    "\x10": Key.UP,
    "\x15": Key.DELETE_BEFORE,
    "\x17": Key.DELETE_WORD,
    "\x1b\x7f": Key.DELETE_WORD,
    "\x1bb": Key.WORD_LEFT,
    "\x1bf": Key.WORD_RIGHT,
    "\x1b[1;3D": Key.WORD_LEFT,
    "\x1b[1;5D": Key.WORD_LEFT,
    "\x1b[1;3C": Key.WORD_RIGHT,
    "\x1b[1;5C": Key.WORD_RIGHT,
    "\x1b[1~": Key.HOME,
    "\x1b[7~": Key.HOME,
    "\x1b[4~": Key.END,
    "\x1b[8~": Key.END,
    "\x1b[3~": Key.DELETE,
    **{
        f"\x1b{opens}{letter}": key
        for opens in "[O"
        for letter, key in {
            "A": Key.UP,
            "B": Key.DOWN,
            "C": Key.RIGHT,
            "D": Key.LEFT,
            "H": Key.HOME,
            "F": Key.END,
        }.items()
    },
}
"""What terminals send for them, with the keys of readline and Emacs; anything else is passed over."""


@final
class KeyDecoder:
    """Reads bytes as they come, however they were cut."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""

    def feed(self, data: bytes) -> Iterator[Key | str]:
        """What *data*, behind what came before, says: keys, and text as it was typed or pasted."""
        text = self._rest + self._decode(data)
        self._rest = ""
        while text:
            before, begins, after = text.partition(_BEGIN)
            yield from self._typed(before, last=not begins)
            if not begins:
                return
            pasted, ends, text = after.partition(_END)
            if not ends:
                self._rest = begins + after
                return
            yield pasted.replace("\r\n", "\n").replace("\r", "\n")

    def _typed(self, text: str, *, last: bool) -> Iterator[Key | str]:
        if last and (cut := _UNFINISHED.search(text)) is not None:
            # A lone Escape means nothing here, so it can wait for what may follow.
            text, self._rest = text[: cut.start()], cut[0]
        for part in _PARTS.findall(text):
            if part in _NAMES:
                yield _NAMES[part]
            elif part[0] >= " " and part[0] != "\x7f":
                yield part
