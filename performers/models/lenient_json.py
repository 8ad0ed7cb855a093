"""
Characters that a server tore in two.

A server that cuts its text by UTF-16 units sends a character outside the basic plane as two halves, each in a
delta of its own. A half is no character: it is held back until the other one comes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, final

import attrs

from ...effects.history import CallPiece, Piece, ReasoningPiece, TextPiece
from ...effects.messages import Citation, ProviderCall

# Decoded JSON of unknown make: every look at it says what it expects and bears anything else.


# A JSON object.
Object = dict[str, Any]

# The largest number that is believed: no answer has a thousand times the tokens of the largest window.
MAX_NUMBER = 1_000_000_000

# Characters of a word that are kept: the id of a call, the name of a tool, a stop sequence that was met.
MAX_LABEL = 1_000


def decoded(data: str | bytes, decode: Callable[[str | bytes], object] = json.loads) -> object:
    """
    What *decode* makes of the JSON *data*, or None.

    The standard library's is the lenient one: it takes NaN and half a surrogate pair.
    """
    try:
        return decode(data)
    except (ValueError, RecursionError):
        return None


def as_object(value: object) -> Object:
    """*value* where it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[Object]:
    """The objects in *value*, where that is a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def first_text(holder: Object, *keys: str) -> str:
    """The first of *keys* that is a text and not empty, else an empty one."""
    for key in keys:
        value = holder.get(key)
        if value and isinstance(value, str):
            return value
    return ""


def first_label(holder: Object, *keys: str) -> str:
    """As `first_text`, for what is a word: of a longer one the beginning, with a mark."""
    return shorten_label(first_text(holder, *keys))


def shorten_label(text: str) -> str:
    """*text*, or its beginning with a mark where it is longer than any word."""
    return text if len(text) <= MAX_LABEL else f"{text[:MAX_LABEL]}..."


def number(holder: Object, *keys: str) -> int:
    """The first of *keys* that is a whole number above 0 and can be believed, else 0."""
    for key in keys:
        # Asked for by `in`, which is no call: of all these names, a server has two or three.
        if key not in holder:
            continue
        value = holder[key]
        # True is an int to Python, and some servers send whole numbers as floats.
        if isinstance(value, int | float) and value is not True and 0 < value <= MAX_NUMBER and not value % 1:
            return int(value)
    return 0


# Stands in the id of a call where a proxy (LiteLLM) puts a model's thought behind it.
SIGNED_ID = "__thought__"


def shorten_id(text: str) -> str:
    """The id of a call, as `shorten_label` does it; a thought in it stays whole."""
    return text if SIGNED_ID in text else shorten_label(text)


_HIGH = ("\ud800", "\udbff")


def _joined(text: str) -> str:
    """*text* with pairs of halves as the characters they are, and what stays alone as U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@final
class SurrogateJoiner:
    """Joins the halves in the pieces of one answer; a half belongs to text, to thinking or to one call."""

    def __init__(self) -> None:
        self._held: dict[object, str] = {}
        self._begins = False  # a text has begun that only half a character has come of

    def join(self, pieces: list[Piece]) -> list[Piece]:
        """*pieces* with whole characters only; a half at the end of a part waits for the next call."""
        return [self._mended(piece) for piece in pieces]

    def rest(self) -> list[Piece]:
        """What is left when the answer is over: halves that stayed alone, which no other came for."""
        # Half a character at the end of a call's arguments leaves them no JSON: the call fails on its own.
        left = [key for key in self._held if not isinstance(key, int)]
        self._held.clear()
        lone = TextPiece("\ufffd", self._begins)
        return [lone if key is TextPiece else ReasoningPiece("\ufffd") for key in left]

    def _mended(self, piece: Piece) -> Piece:
        match piece:
            case TextPiece():
                text = self._take(TextPiece, piece.text)
                # The flag goes on the first text that is not empty: watchers do not see an empty one.
                begins = piece.begins or self._begins
                self._begins = begins and not text
                return TextPiece(text, begins and bool(text))
            case ReasoningPiece():
                text = self._take(ReasoningPiece, piece.text)
                return ReasoningPiece(text, _joined(piece.signature), _joined(piece.redacted), piece.opaque)
            case CallPiece():
                arguments = self._take(piece.index, piece.arguments)
                named = _joined(piece.wire_id), _joined(piece.name)
                return CallPiece(piece.index, *named, arguments, piece.opaque)
            case ProviderCall() | Citation():  # whole, each in one chunk
                fields: dict[str, Any] = attrs.asdict(piece)
                fields |= {name: _joined(value) for name, value in fields.items() if isinstance(value, str)}
                return piece.__class__(**fields)

    def _take(self, key: object, text: str) -> str:
        text = self._held.pop(key, "") + text
        if text and _HIGH[0] <= text[-1] <= _HIGH[1]:
            self._held[key] = text[-1]
            text = text[:-1]
        return _joined(text)
