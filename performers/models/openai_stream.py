"""
The parser of the chat-completions dialect, sans-I/O: bytes of one answer in, pieces and an ending out.

Theory of operation. An answer is chunks with a choice each, and a choice has a delta of text, thinking or
calls. The stream is judged at its end: by its finish reason, by ``[DONE]``, by an error in its middle.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, final

from ...effects.events import Failure
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
    first_text,
    number,
    objects,
    shorten_label,
)
from .wire import AnswerEnd, Broken, Complete

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .lenient_json import Object

# What the fields of a chat-completions delta say, whoever sent it: thoughts, content parts, calls, usage.


def reasoning_pieces(delta: Object) -> Sequence[Piece]:
    """
    The thinking in *delta*, once, though some servers say it two or three times over.

    ``reasoning_content`` (DeepSeek, LiteLLM, vLLM) or ``reasoning`` (OpenRouter, Groq, Ollama) is the text;
    ``thinking_blocks`` (LiteLLM) and ``reasoning_details`` (OpenRouter) repeat it and bring the signatures.
    """
    text = first_text(delta, "reasoning_content", "reasoning")
    pieces = [
        _thought(block) for block in objects(delta.get("thinking_blocks") or delta.get("reasoning_details"))
    ]
    if text and not pieces:
        return [ReasoningPiece(text)]
    if text and len(pieces) == 1:
        [only] = pieces
        return [ReasoningPiece(text), only] if only.redacted else [ReasoningPiece(text, only.signature)]
    return [piece for piece in pieces if piece.text or piece.signature or piece.redacted]


def _thought(block: Object) -> ReasoningPiece:
    if block.get("type") == "redacted_thinking":
        return ReasoningPiece(redacted=first_text(block, "data"))
    return ReasoningPiece(first_text(block, "thinking", "text", "summary"), first_text(block, "signature"))


def content_pieces(content: object) -> list[Piece]:
    """The pieces of a ``content``: a string, or Mistral's list of text and thinking parts."""
    if isinstance(content, str):
        return [TextPiece(content)] if content else []
    pieces: list[Piece] = []
    for part in objects(content):
        thinking = first_text(part, "thinking")
        thinking = thinking or "".join([first_text(bit, "text") for bit in objects(part.get("thinking"))])
        signature = first_text(part, "signature")
        if thinking or signature:
            pieces.append(ReasoningPiece(thinking, signature))
        elif text := first_text(part, "text", "refusal"):
            pieces.append(TextPiece(text))
    return pieces


def usage_of(told: Object) -> Usage:
    """The *told* usage in our words; what is missing or no number counts as nothing."""
    prompt = as_object(told.get("prompt_tokens_details") or told.get("input_tokens_details"))
    completion = as_object(told.get("completion_tokens_details") or told.get("output_tokens_details"))
    total_input = number(told, "prompt_tokens", "input_tokens")
    output = number(told, "completion_tokens", "output_tokens")
    reasoning = number(completion, "reasoning_tokens")
    if reasoning and number(told, "total_tokens") == total_input + output + reasoning:
        output += reasoning  # xAI counts the thinking beside the output
    return Usage(
        input=total_input,
        output=output,
        cached=number(prompt, "cached_tokens") or number(told, "prompt_cache_hit_tokens"),
        cache_write=number(prompt, "cache_write_tokens", "cache_creation_tokens")
        or number(told, "cache_creation_input_tokens"),
        reasoning=reasoning,
    )


_OUTSIDE = re.compile(r'["{}]')  # what matters outside of a string
_WITHIN = re.compile(r'["\\]')  # and in it


@final
class _OpenCall:
    """
    A call under way.

    Some servers repeat the name with every bit, so whether the arguments are whole is asked as often as there
    are bits. So each bit is looked at once, and all together only where no object is open any more.
    """

    __slots__ = ("_depth", "_escaped", "_quoted", "_seen", "_whole", "arguments", "id", "name", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        # Of the arguments that were seen: how many objects are open at their end, whether a string is, and
        # whether that ends in a backslash. And whether they are whole; None where they never will be.
        self._seen = 0
        self._depth = 0
        self._quoted = self._escaped = False
        self._whole: bool | None = False

    def is_whole(self) -> bool:
        """Whether the arguments so far are a JSON object, so that more of them cannot belong here."""
        new = self.arguments[self._seen :]
        if not new or self._whole is None:
            return bool(self._whole)
        self._seen = len(self.arguments)
        closed = [self._look(bit) for bit in new]
        may_be = self._whole or any(closed)
        self._whole = False
        if may_be and not self._depth:
            # What is closed and no object will not become one.
            self._whole = _is_object("".join(self.arguments)) or None
        return bool(self._whole)

    def _look(self, bit: str) -> bool:
        """Look at one more *bit*; whether an object was closed in it."""
        at, closed = int(self._escaped), False
        self._escaped = False
        while mark := (_WITHIN if self._quoted else _OUTSIDE).search(bit, at):
            at = mark.end()
            match mark[0]:
                case '"':
                    self._quoted = not self._quoted
                case "\\":
                    self._escaped = at == len(bit)
                    at += 1
                case "{":
                    self._depth += 1
                case _:
                    self._depth -= 1
                    closed = True
        return closed


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


@final
class CallAssembler:
    """
    Tells which call of an answer a bit of a call belongs to, and numbers the calls from 0.

    The wire's ``index`` does that job in OpenAI's own streams only. Elsewhere it is missing (Mistral) or 0
    for every call (Ollama, Gemini), so a new id, or a name behind whole arguments, begins a new call too.
    """

    def __init__(self) -> None:
        self._count = 0
        self._last: _OpenCall | None = None
        self._by_index: dict[object, _OpenCall] = {}
        self._by_id: dict[str, _OpenCall] = {}

    def read(self, delta: Object) -> list[Piece]:
        """The pieces of the calls in *delta*."""
        pieces: list[Piece] = []
        for bit in objects(delta.get("tool_calls")):
            self._take(bit, as_object(bit.get("function")), pieces)
        # The field of 2023, of one call without an id.
        if legacy := delta.get("function_call"):
            self._take({"index": "function_call"}, as_object(legacy), pieces)
        return pieces

    def _take(self, bit: Object, function: Object, pieces: list[Piece]) -> None:
        wire_id, name = first_text(bit, "id"), first_text(function, "name")
        arguments = function.get("arguments")
        if arguments and not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)  # Ollama's own habit: an object
        if not (wire_id or name or arguments):
            return
        index = bit.get("index")
        index = index if isinstance(index, int | str) else None
        call = self._find(index, wire_id)
        if call is None or (name and self._begins(call, name, arguments)):
            call = _OpenCall(self._count)
            self._count += 1
        self._last = call
        if index is not None:
            self._by_index[index] = call
        new_id, new_name = not call.id and wire_id, not call.name and name
        if new_id:
            call.id = wire_id
            self._by_id[wire_id] = call
        if new_name:
            call.name = name
        if arguments:
            call.arguments.append(arguments)
        if new_id or new_name or arguments:
            # What is too long for a word tells calls apart all the same, but is not kept.
            named = shorten_label(new_id or ""), shorten_label(new_name or "")
            pieces.append(CallPiece(call.number, *named, arguments or ""))

    def _find(self, index: object, wire_id: str) -> _OpenCall | None:
        call = self._last
        if index is not None:
            call = self._by_index.get(index)
        elif wire_id:
            call = self._by_id.get(wire_id)
        if call is not None and wire_id and call.id and wire_id != call.id:
            return self._by_id.get(wire_id)
        return call

    @staticmethod
    def _begins(call: _OpenCall, name: str, arguments: str | None) -> bool:
        return call.name not in {"", name} or (bool(arguments) and call.is_whole())


FINISHES: dict[str, StopReason] = {
    "stop": StopReason.END_TURN,
    "end_turn": StopReason.END_TURN,
    "eos": StopReason.END_TURN,
    "tool_calls": StopReason.TOOL_USE,
    "tool_use": StopReason.TOOL_USE,
    "function_call": StopReason.TOOL_USE,
    "length": StopReason.MAX_TOKENS,
    "max_tokens": StopReason.MAX_TOKENS,
    "model_length": StopReason.MAX_TOKENS,
    "model_context_window_exceeded": StopReason.MAX_TOKENS,
    "content_filter": StopReason.REFUSAL,
    "refusal": StopReason.REFUSAL,
    "stop_sequence": StopReason.STOP_SEQUENCE,
}
"""What a `finish_reason` means, in lower case; all others are `UNKNOWN`. None is a reliable sign of calls."""


@final
class ChatParser(BodyParser):
    """Reads one answer. *stops* are the stop sequences that were asked for. No bytes make it raise."""

    def __init__(self, stops: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._stops = stops
        self._calls = CallAssembler()
        self._answered = False
        self._refused = False
        self._finish = ""
        self._sequence = ""
        self._usage: Object | None = None

    @property
    def usage(self) -> Usage | None:
        """What the answer said it used so far, or None."""
        return None if self._usage is None else usage_of(self._usage)

    def _ending(self, cut: Broken | None, pieces: tuple[Piece, ...]) -> AnswerEnd:
        # An answer that has its finish reason is whole, whatever happened to the connection afterwards.
        if self._finish == "error":
            return Broken(failure=Failure.CUT, message="the provider ended the answer with an error")
        if self._finish or (self.done and self._answered):
            usage = self.usage or Usage()
            return Complete(stop=self._stop(), usage=usage, sequence=self._sequence, pieces=pieces)
        if cut is not None and not self.done:
            return cut
        return self._nothing("a finish reason or [DONE]" if self._answered else "")

    def _chunk(self, chunk: Object, pieces: list[Piece]) -> None:
        if chunk.get("error") or chunk.get("object") == "error":
            self._count(chunk)
            self._fail(stream_error(chunk))
            return
        for choice in objects(chunk.get("choices")):
            # Only one answer is asked for; others that came all the same are not mixed into it.
            if not choice.get("index"):
                self._choice(choice, pieces)
        self._count(chunk)
        if groq := chunk.get("x_groq"):
            self._count(as_object(groq))

    def _choice(self, choice: Object, pieces: list[Piece]) -> None:
        delta = as_object(choice.get("delta") or choice.get("message"))
        if delta:
            self._answered = True
            self._delta(delta, pieces)
        if finish := choice.get("finish_reason"):
            self._finish = finish.lower() if isinstance(finish, str) else type(finish).__name__
            met = choice.get("stop_reason") or choice.get("matched_stop")
            if isinstance(met, str) and (met in self._stops or self._finish == "stop_sequence"):
                self._sequence = met if met in self._stops else clean(shorten_label(met))
        self._count(choice)

    def _delta(self, delta: Object, pieces: list[Piece]) -> None:
        content = delta.get("content")
        if content.__class__ is str and len(delta) == 1:  # nearly every chunk there is
            if content:
                pieces.append(TextPiece(content))
            return
        pieces += reasoning_pieces(delta)
        pieces += content_pieces(content)
        refusal = delta.get("refusal")
        if refusal and isinstance(refusal, str):
            self._refused = True
            pieces.append(TextPiece(refusal))
        pieces += self._calls.read(delta)

    def _count(self, holder: Object) -> None:
        if usage := holder.get("usage"):  # what is told is the total so far, so the last word counts
            self._usage = as_object(usage) or self._usage

    def _stop(self) -> StopReason:
        if self._refused:
            return StopReason.REFUSAL
        if self._sequence:
            return StopReason.STOP_SEQUENCE
        return FINISHES.get(self._finish, StopReason.UNKNOWN)
