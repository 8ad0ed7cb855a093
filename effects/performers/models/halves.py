"""
Characters that a server tore in two.

A server that cuts its text by UTF-16 units sends a character outside the basic plane as two halves, each in a
delta of its own. A half is no character: it is held back until the other one comes.
"""

from __future__ import annotations

from typing import final

from ...pieces import CallPiece, Piece, ReasoningPiece, TextPiece

_HIGH = ("\ud800", "\udbff")


def _joined(text: str) -> str:
    """*text* with pairs of halves as the characters they are, and what stays alone as U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@final
class Halves:
    """Joins the halves in the pieces of one answer; a half belongs to text, to thinking or to one call."""

    def __init__(self) -> None:
        self._held: dict[object, str] = {}

    def join(self, pieces: list[Piece]) -> list[Piece]:
        """*pieces* with whole characters only; a half at the end of a part waits for the next call."""
        return [self._mended(piece) for piece in pieces]

    def rest(self) -> list[Piece]:
        """What is left when the answer is over: halves that stayed alone, which no other came for."""
        left = [key for key in self._held if not isinstance(key, int)]
        self._held.clear()
        return [TextPiece("\ufffd") if key is TextPiece else ReasoningPiece("\ufffd") for key in left]

    def _mended(self, piece: Piece) -> Piece:
        match piece:
            case TextPiece():
                return TextPiece(self._take(TextPiece, piece.text))
            case ReasoningPiece():
                text = self._take(ReasoningPiece, piece.text)
                return ReasoningPiece(text, _joined(piece.signature), _joined(piece.redacted))
            case CallPiece():
                arguments = self._take(piece.index, piece.arguments)
                return CallPiece(piece.index, _joined(piece.wire_id), _joined(piece.name), arguments)

    def _take(self, key: object, text: str) -> str:
        text = self._held.pop(key, "") + text
        if text and _HIGH[0] <= text[-1] <= _HIGH[1]:
            self._held[key] = text[-1]
            text = text[:-1]
        return _joined(text)
