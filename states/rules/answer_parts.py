"""Reading a model's answer: which of its calls are kept, and the parts of its message."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from ...effects.messages import Part, Reasoning, StopReason, Text, ToolCall
from ...effects.pieces import CallPiece, Piece, ReasoningPiece
from .schema import arguments_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Ends after which calls may run. A finish reason is no reliable sign of calls, in either direction, so
# calls that are there win over an `END_TURN`; after a cut or a refusal none of them can be trusted.
TRUSTED = frozenset({StopReason.TOOL_USE, StopReason.END_TURN, StopReason.UNKNOWN})


# Calls of one answer that are kept: more than any provider documents, and few enough to look at each.
MAX_CALLS = 128


@final
@attrs.frozen
class Wishes:
    """The calls of an answer: *kept* ones enter the history, *dropped* ones were never made."""

    kept: tuple[CallPiece, ...]
    dropped: tuple[CallPiece, ...]


def wishes(pieces: Iterable[Piece], stop: StopReason, offered: tuple[str, ...]) -> Wishes:
    """Sort the calls among *pieces*, which are merged, by how the answer ended."""
    # After a trusted end every named call is kept, so that the model learns what was wrong with it; only
    # where the model claims to be finished is a call to a tool that was not offered taken for the
    # provider's own (some proxies show their server tools that way) and dropped. After any other end only
    # whole calls are kept: a cut-off argument may still be valid JSON for something the model never meant.
    kept: list[CallPiece] = []
    dropped: list[CallPiece] = []
    for piece in pieces:
        if isinstance(piece, CallPiece):
            wanted = len(kept) < MAX_CALLS and _keep(piece, stop, offered)
            (kept if wanted else dropped).append(piece)
    return Wishes(tuple(kept), tuple(dropped))


def _keep(piece: CallPiece, stop: StopReason, offered: tuple[str, ...]) -> bool:
    if not piece.name:
        return False
    if stop in TRUSTED:
        return stop is StopReason.TOOL_USE or piece.name in offered
    return piece.name in offered and bool(piece.arguments) and arguments_of(piece.arguments) is not None


def parts_of(pieces: Iterable[Piece], calls: Mapping[int, ToolCall]) -> tuple[Part, ...]:
    """
    The parts of the assistant message, in the order they began; *calls* are the kept ones by their index.
    """
    # Empty where there is neither text nor a call: providers reject such a message when it is sent back.
    parts: list[Part] = []
    for piece in pieces:
        if isinstance(piece, CallPiece):
            if piece.index in calls:
                parts.append(calls[piece.index])
        elif isinstance(piece, ReasoningPiece):
            parts.append(Reasoning(text=piece.text, signature=piece.signature, redacted=piece.redacted))
        elif piece.text:
            parts.append(Text(text=piece.text))
    return tuple(parts) if any(isinstance(part, Text | ToolCall) for part in parts) else ()
