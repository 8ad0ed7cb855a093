"""What the fields of a chat-completions delta say, whoever sent it: thoughts, content parts, calls, usage."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, final

from ...pieces import CallPiece, Piece, ReasoningPiece, TextPiece
from ...usage import Usage
from .loose import an_object, first_text, number, objects, word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .loose import Object


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
    prompt = an_object(told.get("prompt_tokens_details") or told.get("input_tokens_details"))
    completion = an_object(told.get("completion_tokens_details") or told.get("output_tokens_details"))
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
class _Call:
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
class CallGatherer:
    """
    Tells which call of an answer a bit of a call belongs to, and numbers the calls from 0.

    The wire's ``index`` does that job in OpenAI's own streams only. Elsewhere it is missing (Mistral) or 0
    for every call (Ollama, Gemini), so a new id, or a name behind whole arguments, begins a new call too.
    """

    def __init__(self) -> None:
        self._count = 0
        self._last: _Call | None = None
        self._by_index: dict[object, _Call] = {}
        self._by_id: dict[str, _Call] = {}

    def read(self, delta: Object) -> list[Piece]:
        """The pieces of the calls in *delta*."""
        pieces: list[Piece] = []
        for bit in objects(delta.get("tool_calls")):
            self._take(bit, an_object(bit.get("function")), pieces)
        # The field of 2023, of one call without an id.
        if legacy := delta.get("function_call"):
            self._take({"index": "function_call"}, an_object(legacy), pieces)
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
            call = _Call(self._count)
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
            named = word(new_id or ""), word(new_name or "")
            pieces.append(CallPiece(call.number, *named, arguments or ""))

    def _find(self, index: object, wire_id: str) -> _Call | None:
        call = self._last
        if index is not None:
            call = self._by_index.get(index)
        elif wire_id:
            call = self._by_id.get(wire_id)
        if call is not None and wire_id and call.id and wire_id != call.id:
            return self._by_id.get(wire_id)
        return call

    @staticmethod
    def _begins(call: _Call, name: str, arguments: str | None) -> bool:
        return call.name not in {"", name} or (bool(arguments) and call.is_whole())
