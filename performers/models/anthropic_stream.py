"""
The parser of the Messages dialect, sans-I/O: bytes of one answer in, pieces and an ending out.

Theory of operation. An answer is a message of blocks. Each block has an index, a start that says what it is,
deltas that say the rest, and a stop; what a delta says is told by its own type. Of the blocks only text,
thinking and ``tool_use`` are ours: the provider's own tools (``server_tool_use``, ``mcp_tool_use`` and their
results) ran at the provider, and what else there is or will be is passed over by name.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, final

from ...effects.messages import StopReason
from ...effects.pieces import (
    CallPiece,
    Piece,
    ReasoningPiece,
    TextPiece,
)
from ...effects.usage import Usage
from ...effects.validators import clean
from .body import BodyParser
from .errors import stream_error
from .lenient_json import (
    as_object,
    first_label,
    first_text,
    number,
    objects,
)
from .wire import AnswerEnd, Broken, Complete

if TYPE_CHECKING:
    from .lenient_json import Object

STOPS: dict[str, StopReason] = {
    "end_turn": StopReason.END_TURN,
    "tool_use": StopReason.TOOL_USE,
    "max_tokens": StopReason.MAX_TOKENS,
    "model_context_window_exceeded": StopReason.MAX_TOKENS,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "refusal": StopReason.REFUSAL,
}
"""
What a `stop_reason` means; all others are `UNKNOWN`.

So is ``pause_turn``: the provider wants to go on with a tool of its own, of which nothing is kept here. None
was asked for, so who sees this warning uses a proxy that adds some.
"""

COUNTS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
"""The numbers of a usage, each the total so far."""


@final
class _Block:
    """
    A block under way.

    *ours* is false for what is passed over. A call has its *number* and its *input*, the arguments that stood
    in its start, until better ones come. Thinking is *torn* when its signature cannot be for what stands
    before it: after other pieces came in between, or another signature.
    """

    __slots__ = ("begun", "input", "number", "ours", "torn")

    def __init__(self, *, ours: bool = True, number: int | None = None) -> None:
        self.ours = ours
        self.number = number
        self.input = ""
        self.begun = False
        self.torn = False


@final
class MessagesParser(BodyParser):
    """Reads one answer. No bytes make it raise."""

    def __init__(self) -> None:
        super().__init__()
        self._blocks: dict[int, _Block] = {}  # the open ones, by their index
        self._calls = 0
        self._thought: _Block | None = None  # whose unsigned thinking is the last that was said
        self._answered = False
        self._stop = StopReason.UNKNOWN
        self._sequence = ""
        self._counts: dict[str, int] = {}

    @property
    def usage(self) -> Usage | None:
        """What the answer said it used so far, or None."""
        if not self._counts:
            return None  # a proxy opens with zeros where its own upstream tells at the end only
        plain, output, cached, write = [self._counts.get(name, 0) for name in COUNTS]
        # This API counts what is cached beside the input.
        return Usage(
            input=plain + cached + write,
            output=output,
            cached=cached,
            cache_write=write,
            reasoning=self._counts.get("thinking_tokens", 0),
        )

    def _ending(self, cut: Broken | None, pieces: tuple[Piece, ...]) -> AnswerEnd:
        if self.done and self._answered:
            usage = self.usage or Usage()
            return Complete(stop=self._stop, usage=usage, sequence=self._sequence, pieces=pieces)
        return cut or self._nothing("message_stop" if self._answered else "")

    def _chunk(self, chunk: Object, pieces: list[Piece]) -> None:
        match chunk.get("type"):
            case "content_block_delta":
                self._delta(chunk.get("index"), chunk.get("delta"), pieces)
            case "content_block_start":
                self._begin(chunk.get("index"), as_object(chunk.get("content_block")), pieces)
            case "content_block_stop":
                self._close(chunk.get("index"), pieces)
            case "message_start":
                self._close_all(pieces)
                self._message(as_object(chunk.get("message")))
            case "message_delta":
                self._message(as_object(chunk.get("delta")))
                self._count(chunk)
            case "message_stop":
                self._finish(pieces)
            case "message":
                for index, block in enumerate(objects(chunk.get("content"))):
                    self._begin(index, block, pieces)
                self._message(chunk)
                self._finish(pieces)
            case kind if kind == "error" or chunk.get("error"):
                self._fail(stream_error(chunk))
            case _:
                pass  # a ping, or what was invented since

    def _message(self, message: Object) -> None:
        self._answered = True
        self._count(message)
        if reason := first_text(message, "stop_reason"):
            self._stop = STOPS.get(reason, StopReason.UNKNOWN)
            self._sequence = clean(first_label(message, "stop_sequence"))

    def _finish(self, pieces: list[Piece]) -> None:
        self._close_all(pieces)
        self.done = True

    def _count(self, holder: Object) -> None:
        usage = as_object(holder.get("usage"))
        details = as_object(usage.get("output_tokens_details"))
        told = {name: number(usage, name) for name in COUNTS}
        told["thinking_tokens"] = number(details, "thinking_tokens")
        if usage:
            # What is left out, null or 0 was told before: some servers know all of it at the end only.
            self._counts |= {name: count for name, count in told.items() if count}

    # Blocks

    def _begin(self, index: object, start: Object, pieces: list[Piece]) -> None:
        self._answered = True
        self._close(index, pieces)  # where an index is used again, its block is over
        block = _Block()
        match start.get("type"):
            case "text":
                self._say(first_text(start, "text"), pieces)
            case "thinking":
                self._think(block, first_text(start, "thinking"), pieces)
                self._sign(block, first_text(start, "signature"), pieces)
            case "redacted_thinking":
                self._thought = None
                pieces.append(ReasoningPiece(redacted=first_text(start, "data")))
            case "tool_use":
                block = self._call(start, pieces)
            case _:
                block.ours = False
        if isinstance(index, int):
            self._blocks[index] = block

    def _call(self, start: Object, pieces: list[Piece]) -> _Block:
        block = _Block(number=self._calls)
        self._calls += 1
        self._thought = None
        if given := start.get("input"):
            block.input = json.dumps(given, ensure_ascii=False)
        pieces.append(CallPiece(self._calls - 1, first_label(start, "id"), first_label(start, "name")))
        return block

    def _close(self, index: object, pieces: list[Piece]) -> None:
        block = self._blocks.pop(index, None) if isinstance(index, int) else None
        if block is not None and block.number is not None and block.input:
            pieces.append(CallPiece(block.number, arguments=block.input))

    def _close_all(self, pieces: list[Piece]) -> None:
        for index in list(self._blocks):
            self._close(index, pieces)

    def _delta(self, index: object, delta: object, pieces: list[Piece]) -> None:
        block = self._blocks.get(index) if isinstance(index, int) else None
        if block is None:
            block = _Block()  # its start was lost: what a delta says does not depend on it, but for calls
        if not isinstance(delta, dict) or not block.ours:
            return
        kind = delta.get("type")
        if kind == "text_delta":  # nearly every chunk there is
            text = delta.get("text")
            if text and isinstance(text, str):
                self._thought = None
                pieces.append(TextPiece(text))
        elif kind == "input_json_delta":
            self._argue(block, first_text(delta, "partial_json"), pieces)
        elif kind == "thinking_delta":
            self._think(block, first_text(delta, "thinking"), pieces)
        elif kind == "signature_delta":
            self._sign(block, first_text(delta, "signature"), pieces)
        # All others say nothing here: citations, and what was invented since.

    def _say(self, text: str, pieces: list[Piece]) -> None:
        if text:
            self._thought = None
            pieces.append(TextPiece(text))

    def _argue(self, block: _Block, bit: str, pieces: list[Piece]) -> None:
        if bit and block.number is not None:
            self._thought = None
            block.input = ""
            pieces.append(CallPiece(block.number, arguments=bit))

    def _think(self, block: _Block, text: str, pieces: list[Piece]) -> None:
        if text:
            block.torn |= self._thought is not block and (block.begun or self._thought is not None)
            block.begun = True
            self._thought = block
            pieces.append(ReasoningPiece(text))

    def _sign(self, block: _Block, signature: str, pieces: list[Piece]) -> None:
        whole = self._thought is (block if block.begun else None)
        if signature and whole and not block.torn:
            pieces.append(ReasoningPiece(signature=signature))
        if signature:
            block.torn = True
            self._thought = None
