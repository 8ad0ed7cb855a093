"""
One streamed answer of Anthropic's Messages, read as pieces.

Theory of operation. An answer is a message of blocks. Each block has an index, a start that gives its type,
deltas and a stop; each delta names its own type. The calls of the provider's own tools (``server_tool_use``,
``mcp_tool_use`` and their results) and the citations of texts are kept as they came, and go back to the model
that made them. Unknown blocks are passed over.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import final

import attrs

from ...effects.history import CallPiece, Piece, ReasoningPiece, TextPiece
from ...effects.messages import ProviderCall, StopReason
from ...effects.usage import Usage
from ...effects.validators import clean
from .body import MAX_DETAIL, STOPS, WHOLE_ENDS, BodyParser
from .encoding import to_json
from .errors import stream_error
from .lenient_json import Object, as_object, first_label, first_text, number, objects, shorten_id
from .provider_tools import INCOMPLETE, RESULT_BLOCK, SERVER_CALLS, block_call, cited, input_of
from .wire import cut_short

# The numbers of a usage, each the total so far.
COUNTS = (
    *("input_tokens", "output_tokens"),
    *("cache_read_input_tokens", "cache_creation_input_tokens", "thinking_tokens"),
)


@final
@attrs.define(eq=False)
class _Block:
    """
    A block under way.

    *ours* is false for what is passed over. A call has its *number* and its *input*, the arguments that stood
    in its start, until better ones come. Thinking is *torn* when its signature cannot be for what stands
    before it: after other pieces came in between, or another signature.
    """

    ours: bool = True
    number: int | None = None
    input: str = ""
    torn: bool = False
    # The start of a call of the provider's own tool, and its input as it comes.
    start: Object = attrs.Factory(dict)
    bits: list[str] = attrs.Factory(list)
    # A text that has not been told, and is another one than the one before.
    begins: bool = False
    # The sources of a text, and where it stands in the text of the answer.
    sources: list[Object] = attrs.Factory(list)
    begin: int = 0
    end: int = 0


@final
class MessagesParser(BodyParser):
    """
    Reads one answer. No bytes make it raise.

    *paused* are calls of the provider's own tools whose results may come now: the answer before was paused.
    """

    last = "message_stop"

    def __init__(self, paused: Iterable[ProviderCall] = ()) -> None:
        super().__init__()
        self._blocks: dict[int, _Block] = {}  # the open ones, by their index
        self._calls = 0
        self._call = _Block()  # the last call that was begun
        self._after_text = False  # the last block of ours was text
        self._thought: _Block | None = None  # whose unsigned thinking is the last that was said
        self._reason = StopReason.UNKNOWN
        self._counts: dict[str, int] = {}
        self._id = ""
        self._told = 0  # characters of text
        # The calls of the provider's tools that have no result yet: their names and arguments, by their ids.
        self._provided: dict[str, tuple[str, str]] = {
            call.id: (call.name, call.arguments) for call in paused if call.status == INCOMPLETE
        }
        self._carried = {*self._provided}  # the ids of those that the answer before made

    @property
    def usage(self) -> Usage | None:
        """The usage that the answer reported so far, or None."""
        if not self._counts:
            # A proxy whose own upstream counts at the end only opens with zeros. "No tokens" and "not known
            # yet" have to differ, since the loop estimates the second.
            return None
        plain, output, cached, write, thinking = [self._counts.get(name, 0) for name in COUNTS]
        # This API counts cached tokens beside the input, OpenAI counts them in it.
        total = plain + cached + write
        return Usage(input=total, output=output, cached=cached, cache_write=write, reasoning=thinking)

    def _stop(self) -> StopReason | None:
        return self._reason if self.done and self._answered else None

    def _rest(self) -> list[Piece]:
        calls, self._provided = self._provided, {}
        return [
            ProviderCall(id=wire_id, name=name, arguments=arguments, status=INCOMPLETE)
            for wire_id, (name, arguments) in calls.items()
            # Only an answer that is paused again hands on what it did not call: a result may still come.
            if wire_id not in self._carried or self._reason is StopReason.PAUSED
        ]

    def _chunk(self, chunk: Object, pieces: list[Piece]) -> None:
        match chunk.get("type"):
            case "content_block_delta":
                self._delta(chunk.get("index"), chunk.get("delta"), pieces)
            case "content_block_start":
                self._begin(chunk.get("index"), as_object(chunk.get("content_block")), pieces)
            case "content_block_stop":
                self._close([chunk.get("index")], pieces)
            case "message_start":
                self._close([*self._blocks], pieces)
                self._open(as_object(chunk.get("message")))
            case "message_delta":
                self._message(as_object(chunk.get("delta")))
                self._count(chunk, final=True)
                self._close([*self._blocks] if self._ended else [], pieces)
            case "message_stop":
                self._close([*self._blocks], pieces)
                self.done = True
            case "message":
                for index, block in enumerate(objects(chunk.get("content"))):
                    self._begin(index, block, pieces)
                self._message(chunk)
                self._close([*self._blocks], pieces)
                self.done = True
            case kind if kind == "error" or chunk.get("error"):
                self._fail(stream_error(chunk))
            case _:
                pass  # a ping, or what was invented since

    def _open(self, message: Object) -> None:
        before, self._id = self._id, first_text(message, "id") or self._id
        if before and before != self._id:
            self._fail(cut_short("a second answer began in the stream of the first"))
        else:
            self._call = _Block()
            self._message(message)

    def _message(self, message: Object) -> None:
        self._answered = True
        self._introduce(message)
        self._count(message)
        if reason := first_text(message, "stop_reason"):
            self._reason = STOPS.get(reason, StopReason.UNKNOWN)
            self._ended = self._reason in WHOLE_ENDS
            self._sequence = clean(first_label(message, "stop_sequence"))
            if self._reason is StopReason.REFUSAL:
                self._detail = _why_refused(as_object(message.get("stop_details")))

    def _count(self, holder: Object, *, final: bool = False) -> None:
        usage = as_object(holder.get("usage"))
        details = as_object(usage.get("output_tokens_details"))
        told = usage | {"thinking_tokens": details.get("thinking_tokens")}
        # Each is the total so far. A number that is missing or null came earlier: some servers send all of
        # them in the end only, others only those that changed. A 0 says "not known yet" until the end.
        known = [name for name in COUNTS if number(told, name) or (final and told.get(name) == 0)]
        self._counts |= {name: number(told, name) for name in known}

    # Blocks

    def _begin(self, index: object, start: Object, pieces: list[Piece]) -> None:
        self._answered = True
        # Some proxies number the blocks of every message from 0: where an index comes again, its block is
        # over.
        self._close([index], pieces)
        block = _Block(begin=self._told, end=self._told)
        match start.get("type"):
            case "text":
                # The blocks of a comment and of an output are not one text.
                block.begins = self._after_text
                block.sources += objects(start.get("citations"))
                if text := first_text(start, "text"):
                    self._told += len(text)
                    block.end = self._told
                    self._say(TextPiece(text, block.begins), pieces)
                    block.begins = False
            case "thinking":
                self._think(block, first_text(start, "thinking"), pieces)
                self._sign(block, first_text(start, "signature"), pieces)
            case "redacted_thinking":
                self._say(ReasoningPiece(redacted=first_text(start, "data")), pieces)
            case "tool_use":
                # Some servers send the arguments here, whole, and no deltas. Others send them here and as
                # deltas: so these wait until the block closes, and are forgotten with its first delta.
                given = json.dumps(start["input"], ensure_ascii=False) if start.get("input") else ""
                block = self._call = _Block(number=self._calls, input=given)
                wire_id = shorten_id(first_text(start, "id"))
                self._say(CallPiece(self._calls, wire_id, first_label(start, "name")), pieces)
                self._calls += 1
            case str(kind) if kind in SERVER_CALLS:
                block.start = start
            case str(kind) if kind.endswith(RESULT_BLOCK):
                self._close([other for other, open_ in self._blocks.items() if open_.start], pieces)
                named = self._provided.pop(first_text(start, "tool_use_id"), ("", ""))
                self._say(block_call(start, *named), pieces)
            case _:
                block.ours = False
        self._after_text = start.get("type") == "text" or (self._after_text and not block.ours)
        if isinstance(index, int):
            self._blocks[index] = block

    def _close(self, indexes: Iterable[object], pieces: list[Piece]) -> None:
        for index in indexes:
            block = self._blocks.pop(index, None) if isinstance(index, int) else None
            if block is None:
                continue
            if block.number is not None and block.input:
                pieces.append(CallPiece(block.number, arguments=block.input))
            elif block.start:
                given, arguments = input_of(block.bits, block.start)
                opaque = to_json({**block.start, "input": given}).decode()
                self._say(ReasoningPiece(opaque=opaque), pieces)
                wire_id = first_text(block.start, "id")
                self._provided[wire_id] = first_label(block.start, "name"), arguments
                self._carried.discard(wire_id)
            if block.sources:
                pieces += [cited(source, block.begin, block.end) for source in block.sources]
                self._after_text = False

    def _delta(self, index: object, delta: object, pieces: list[Piece]) -> None:
        block = self._blocks.get(index) if isinstance(index, int) else None
        if block is None:
            # Its start was lost. A delta names its own type; the arguments of a call are taken for the last
            # one's, which runs with all of them or, where they are too many, not at all.
            block = self._call if as_object(delta).get("type") == "input_json_delta" else _Block()
        if not isinstance(delta, dict) or not block.ours:
            return
        kind = delta.get("type")
        # Nearly every chunk is one of text, so this branch is first, and calls nothing.
        if kind == "text_delta":
            text = delta.get("text")
            if text and isinstance(text, str):
                if self._thought is not None:
                    self._tear()
                pieces.append(TextPiece(text, block.begins))
                block.begins = False
                self._told += len(text)
                block.end = self._told
        elif kind == "input_json_delta":
            self._write(block, first_text(delta, "partial_json"), pieces)
        elif kind == "thinking_delta":
            self._think(block, first_text(delta, "thinking"), pieces)
        elif kind == "signature_delta":
            self._sign(block, first_text(delta, "signature"), pieces)
        elif kind == "citations_delta":
            # Told when the block closes, since they come before its text.
            block.sources += objects([delta.get("citation")])
        # All others say nothing here, such as what was invented since.

    def _write(self, block: _Block, bit: str, pieces: list[Piece]) -> None:
        """Read *bit* of the arguments of a call, ours or the provider's."""
        if bit and block.number is not None:
            block.input = ""
            self._say(CallPiece(block.number, arguments=bit), pieces)
        elif block.start:
            block.bits.append(bit)

    def _say(self, piece: Piece, pieces: list[Piece]) -> None:
        self._tear()
        pieces.append(piece)

    def _tear(self) -> None:
        """No signature that comes from now on is for the thinking so far."""
        if self._thought is not None:
            self._thought.torn = True
            self._thought = None

    def _think(self, block: _Block, text: str, pieces: list[Piece]) -> None:
        if text:
            if self._thought is not block:
                block.torn |= self._thought is not None
                self._tear()
                self._thought = block
            pieces.append(ReasoningPiece(text))

    def _sign(self, block: _Block, signature: str, pieces: list[Piece]) -> None:
        # A signature is for all the thinking of its block and for no other. One that arrives behind thinking
        # that was torn is dropped: sent back, it would not match, and the provider refuses the request.
        if signature:
            if not block.torn and (self._thought is None or self._thought is block):
                pieces.append(ReasoningPiece(signature=signature))
            block.torn = True
            self._tear()


def _why_refused(details: Object) -> str:
    """The category of a refusal, and its explanation, where *details* have them."""
    told = [first_text(details, "category"), first_text(details, "explanation")]
    return ": ".join(filter(None, told))[:MAX_DETAIL]
