"""
Pieces of a streamed answer, and the rope that gathers them.

A wire turns bytes into pieces. Pieces fold: one by one, in batches or merged, the result is the same, so a
network chunk can be one step and a journal can keep one merged event for a whole stream.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

import attrs

from .history import Log


@final
@attrs.frozen
class TextPiece:
    """A bit of text."""

    text: str


@final
@attrs.frozen
class ReasoningPiece:
    """A bit of thinking, the *signature* that closes it, or *redacted* thinking, whole."""

    text: str = ""
    signature: str = ""
    redacted: str = ""


@final
@attrs.frozen
class CallPiece:
    """
    A bit of the tool call number *index* of this answer, counted from 0 by the wire's parser.

    *wire_id* and *name* stand in its first piece, *arguments* is appended.
    """

    index: int
    wire_id: str = ""
    name: str = ""
    arguments: str = ""


# Everything a wire's parser can say while an answer streams.
Piece = TextPiece | ReasoningPiece | CallPiece


def _close(run: list[Piece]) -> Piece:
    """One piece for a *run* of neighbours that belong together, joined once and not pairwise."""
    first = run[0]
    if len(run) == 1:
        return first
    if isinstance(first, TextPiece):
        return TextPiece("".join([piece.text for piece in run if isinstance(piece, TextPiece)]))
    if isinstance(first, ReasoningPiece):
        thoughts = [piece for piece in run if isinstance(piece, ReasoningPiece)]
        return ReasoningPiece("".join([piece.text for piece in thoughts]), thoughts[-1].signature)
    calls = [piece for piece in run if isinstance(piece, CallPiece)]
    return CallPiece(
        first.index,
        next((piece.wire_id for piece in calls if piece.wire_id), ""),
        next((piece.name for piece in calls if piece.name), ""),
        "".join([piece.arguments for piece in calls]),
    )


def _same_part(old: Piece, new: Piece) -> bool:
    if isinstance(old, ReasoningPiece):
        return isinstance(new, ReasoningPiece) and not (old.signature or old.redacted or new.redacted)
    return isinstance(old, TextPiece) and isinstance(new, TextPiece)


def merged(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """
    The shortest tuple of pieces that folds to the same answer: neighbours joined, calls gathered.

    A call's pieces are gathered where the call began, so calls whose pieces arrive interleaved come out
    whole. Merging what is merged changes nothing.
    """
    runs: list[list[Piece]] = []
    calls: dict[int, list[Piece]] = {}
    for piece in pieces:
        if isinstance(piece, CallPiece) and piece.index in calls:
            calls[piece.index].append(piece)
        elif runs and _same_part(runs[-1][-1], piece):
            runs[-1].append(piece)
        else:
            runs.append([piece])
            if isinstance(piece, CallPiece):
                calls[piece.index] = runs[-1]
    return tuple([_close(run) for run in runs])


@final
@attrs.frozen(eq=False, repr=False)
class Rope:  # noqa: PLW1641  # equal by content, which no hash should walk
    """
    The pieces of one answer so far, by reference as `History` is; *count* is how many have arrived.

    *count* is what the wire sent, not what is kept: a merged piece stands for many. Two ropes are equal
    when they arrived at the same count and fold to the same pieces.
    """

    log: Log[Piece]
    length: int = 0
    count: int = 0

    @classmethod
    def of(cls, pieces: Iterable[Piece] = (), count: int = 0) -> Rope:
        """A new rope of *pieces* that stand for *count* arrived ones."""
        kept = list(pieces)
        return cls(Log(kept), len(kept), count)

    def extend(self, pieces: tuple[Piece, ...], count: int) -> Rope:
        """This rope and *pieces*, which stand for *count* arrived ones."""
        log = self.log
        if len(log.items) != self.length:
            log = Log(log.items[: self.length])
        log.items.extend(pieces)
        return Rope(log, self.length + len(pieces), self.count + count)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The merged pieces."""
        return merged(self.log.items[: self.length])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rope):
            return NotImplemented
        return self.count == other.count and self.pieces == other.pieces

    def __repr__(self) -> str:
        return f"<Rope of {self.count} pieces>"
