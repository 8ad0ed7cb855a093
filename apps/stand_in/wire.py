"""
The stand-in's part of the chat-completions dialect: request types, and the shapes of an answer.

Only the fields that the script needs are read. Usage numbers are estimates: a token is four characters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, final

import attrs
import msgspec

SHORTEST_PIECE, LONGEST_PIECE = 3, 8
"""Characters of a piece, about those of a model's token."""

TOKEN_CHARACTERS = 4


class WirePart(msgspec.Struct):
    """A part of a message's content; only text is read."""

    type: str
    text: str = ""


class Function(msgspec.Struct):
    """The function a call names, with its arguments as JSON text."""

    name: str
    arguments: str = ""


class MadeCall(msgspec.Struct):
    """A tool call of an earlier answer."""

    function: Function
    id: str = ""


class WireMessage(msgspec.Struct):
    """A message of the conversation, as it is on the wire."""

    role: str
    content: str | list[WirePart] | None = None
    tool_calls: list[MadeCall] | None = None
    tool_call_id: str = ""

    @property
    def text(self) -> str:
        """All text of the content."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""

    @property
    def size(self) -> int:
        """Characters of text, names and arguments."""
        calls = (call.function for call in self.tool_calls or ())
        return len(self.text) + sum(len(call.name) + len(call.arguments) for call in calls)


class OfferedFunction(msgspec.Struct):
    """The *name* of a tool and the JSON Schema of its *parameters*."""

    name: str
    parameters: dict[str, object] | None = None


class Offer(msgspec.Struct):
    """A tool that the script may call."""

    function: OfferedFunction


@final
@attrs.frozen(kw_only=True)
class ScriptedCall:
    """A tool call to make; *arguments* is JSON text."""

    id: str
    name: str
    arguments: str


@final
@attrs.frozen(kw_only=True)
class ScriptedAnswer:
    """The stand-in's next answer: *text*, then *calls*. Without calls it is the final one."""

    text: str
    calls: tuple[ScriptedCall, ...] = ()

    @property
    def size(self) -> int:
        """Characters of text, names and arguments."""
        return len(self.text) + sum(len(call.name) + len(call.arguments) for call in self.calls)


class StreamOptions(msgspec.Struct):
    """The stream options that are read."""

    include_usage: bool = False


class ChatRequest(msgspec.Struct):
    """The part of a chat-completions request that is read."""

    model: str
    messages: Annotated[list[WireMessage], msgspec.Meta(min_length=1)]
    tools: list[Offer] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None


def models(names: Sequence[str]) -> object:
    """The list of models."""
    about = {"object": "model", "created": 0, "owned_by": "scripted stand-in"}
    return {"object": "list", "data": [{"id": name, **about} for name in names]}


def usage(messages: Sequence[WireMessage], step: ScriptedAnswer) -> dict[str, int]:
    """The usage of answering *messages* with *step*."""
    prompt = sum(message.size for message in messages) // TOKEN_CHARACTERS
    answer = step.size // TOKEN_CHARACTERS
    return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}


def completion(about: Mapping[str, object], step: ScriptedAnswer, used: Mapping[str, int]) -> object:
    """The answer as one object."""
    message: dict[str, object] = {"role": "assistant", "content": step.text or None}
    if step.calls:
        message["tool_calls"] = [_call(call, call.arguments) for call in step.calls]
    choice = {"index": 0, "message": message, "finish_reason": _finish(step)}
    return {**about, "object": "chat.completion", "choices": [choice], "usage": used}


def chunks(
    about: Mapping[str, object], step: ScriptedAnswer, used: Mapping[str, int] | None
) -> Iterator[Mapping[str, object]]:
    """The answer as stream events; *used* comes last in a chunk of its own, unless it is None."""
    asked: dict[str, object] = {} if used is None else {"usage": None}
    head = {**about, "object": "chat.completion.chunk"}
    for delta in _deltas(step):
        yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}], **asked}
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": _finish(step)}], **asked}
    if used is not None:
        yield {**head, "choices": [], "usage": used}


def _deltas(step: ScriptedAnswer) -> Iterator[Mapping[str, object]]:
    yield {"role": "assistant", "content": ""}
    for piece in pieces(step.text):
        yield {"content": piece}
    for index, call in enumerate(step.calls):
        yield {"tool_calls": [{"index": index, **_call(call, "")}]}
        for piece in pieces(call.arguments):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _call(call: ScriptedCall, arguments: str) -> dict[str, object]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _finish(step: ScriptedAnswer) -> str:
    return "tool_calls" if step.calls else "stop"


def pieces(text: str) -> Iterator[str]:
    """*text* in pieces, cut before a space if one is near, as tokens are."""
    start = 0
    while start < len(text):
        end = start + LONGEST_PIECE
        if end < len(text):
            space = text.rfind(" ", start + SHORTEST_PIECE, end + 1)
            end = space if space > 0 else end
        yield text[start:end]
        start = end
