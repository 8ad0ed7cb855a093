"""
The chat-completions dialect: a request's body out of what was already encoded.

Theory of operation. A message is encoded once, when a request first reaches it, and its bytes are kept under
the identity of the history's log, whose prefix never changes. All messages of a log stand in one buffer, so
the body of a request is three pieces joined: what is asked, a slice of that buffer, and the tools.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, final
from weakref import WeakKeyDictionary

import msgspec

from ...messages import Binary, Message, Reasoning, Role, Text, ToolCall
from ...requests import Transcript
from .openai_stream import ChatParser
from .transcript import transcript
from .wire import Post

if TYPE_CHECKING:
    from ...config import Config, ToolSpec
    from ...history import History, Log
    from ...messages import ToolResult
    from ...requests import CallModel
    from ..base import Scene

WIRES = frozenset({"openai"})
"""What may stand before the first colon of a model's name to choose this wire; it is not sent."""

MAX_KEPT = 1_000
"""
Conversations whose encoded messages are kept, the least recently used going first.

At a typical 100 KB each that is 100 MB. One that went is encoded again when it speaks again.
"""

REASONING_MODELS = ("gpt-5", "o1", "o3", "o4")
"""Models, by how their names begin, that refuse ``max_tokens`` and ``temperature``."""

_HEADERS = {"content-type": "application/json", "accept": "text/event-stream"}

_encode = msgspec.json.Encoder().encode


@final
class ChatWire:
    """
    OpenAI's chat completions, as two dozen servers speak it.

    *thoughts* is the field that thinking goes back in: ``reasoning_details`` with its signatures, any other
    as text, with signed thinking in ``thinking_blocks`` instead. Where it is empty, no thinking goes back.
    The encoded messages of *keep* conversations are kept.
    """

    def __init__(self, thoughts: str = "reasoning_content", keep: int = MAX_KEPT) -> None:
        self._thoughts = thoughts
        self._keep = keep
        self._kept: WeakKeyDictionary[Log[Message], _Encoded] = WeakKeyDictionary()

    def encode(self, request: CallModel, scene: Scene) -> Post:
        """The HTTP request that asks for the answer to *request*, streamed."""
        config = scene.config
        if isinstance(request.view, Transcript):
            system = request.instructions
            text = transcript(scene.history.slice(0, request.view.length))
            messages = memoryview(to_json({"role": "user", "content": text}))
        else:
            system = "\n\n".join(filter(None, (config.system, request.instructions)))
            messages = self._messages(scene.history, request.view.length)
        parts = [b'{"model":', to_json(wire_name(request.model)), b',"messages":[']
        if system:
            parts += [to_json({"role": "system", "content": system}), b"," if messages else b""]
        end = b',"stream":true,"stream_options":{"include_usage":true}}'
        with messages:  # the buffer it looks into cannot grow until it is released
            rest = (*_tools(request, config), *_options(request, config), end)
            body = b"".join([*parts, messages, b"]", *rest])
        return Post(path="/chat/completions", headers=_HEADERS, body=body)

    def parser(self, scene: Scene) -> ChatParser:
        """A new parser for one answer."""
        return ChatParser(scene.config.stop)

    def _messages(self, history: History, length: int) -> memoryview:
        kept = self._kept.pop(history.log, None) or _Encoded(self._thoughts)
        self._kept[history.log] = kept  # at the end again: the order is the order of use
        while len(self._kept) > self._keep:
            del self._kept[next(iter(self._kept))]
        return kept.until(history, length)


@final
class _Encoded:
    """The messages of one log as JSON, joined by commas; *ends* says where each ends."""

    def __init__(self, thoughts: str) -> None:
        self._thoughts = thoughts
        self._buffer = bytearray()
        self._ends: list[int] = []
        self._ids: dict[str, str] = {}  # our id of a call to the one it has on the wire
        self._used: set[str] = set()

    def until(self, history: History, length: int) -> memoryview:
        """The first *length* messages; those not met before are encoded now."""
        for message in history.slice(len(self._ends), length):
            for encoded in [to_json(value) for value in self._wire_messages(message)]:
                self._buffer += b"," + encoded if self._buffer else encoded
            self._ends.append(len(self._buffer))
        return memoryview(self._buffer)[: self._ends[length - 1] if length else 0]

    def _wire_messages(self, message: Message) -> list[dict[str, Any]]:
        if message.role is Role.TOOL:
            return [self._result(result) for result in message.results]
        if message.role is Role.ASSISTANT:
            return [self._assistant(message)]
        return [{"role": message.role.value, "content": _content(message)}]

    def _result(self, result: ToolResult) -> dict[str, Any]:
        wire_id = self._ids.get(result.call) or result.wire_id or result.call
        return {"role": "tool", "tool_call_id": wire_id, "content": result.content}

    def _assistant(self, message: Message) -> dict[str, Any]:
        calls = [self._call(call) for call in message.calls]
        # Null beside calls and empty otherwise: every server takes these two, no other pair.
        value: dict[str, Any] = {"role": "assistant", "content": _plain(message) or (None if calls else "")}
        if calls:
            value["tool_calls"] = calls
        value.update(self._thinking(message, calling=bool(calls)))
        return value

    def _call(self, call: ToolCall) -> dict[str, Any]:
        wire_id = call.wire_id
        if not wire_id or wire_id in self._used:
            wire_id = call.id  # providers repeat their ids and leave them empty, then refuse to see it
        while wire_id in self._used:
            wire_id += "_"
        self._used.add(wire_id)
        self._ids[call.id] = wire_id
        function = {"name": call.name, "arguments": call.arguments if _is_object(call.arguments) else "{}"}
        return {"id": wire_id, "type": "function", "function": function}

    def _thinking(self, message: Message, *, calling: bool) -> dict[str, Any]:
        thoughts = [part for part in message.parts if isinstance(part, Reasoning)]
        signed = [thought for thought in thoughts if thought.signature]
        wanted = thoughts if calling else signed  # unsigned, it matters in the turns that call tools only
        if not wanted or not self._thoughts:
            return {}
        if self._thoughts == "reasoning_details":
            return {"reasoning_details": [_detail(thought) for thought in wanted]}
        if signed:
            return {"thinking_blocks": [_block(thought) for thought in signed]}
        return {self._thoughts: "".join([thought.text for thought in wanted])}


def wire_name(model: str) -> str:
    """What *model* is called on the wire: ``openai:gpt-5`` is ``gpt-5``, and ``qwen3:8b`` stays as it is."""
    wire, colon, name = model.partition(":")
    return name if colon and wire in WIRES else model


def to_json(value: object) -> bytes:
    """*value* as JSON; half a surrogate pair, which is no character, becomes a question mark."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def _detail(thought: Reasoning) -> dict[str, str]:
    signed = {"signature": thought.signature} if thought.signature else {}
    return {"type": "reasoning.text", "text": thought.text, **signed}


def _block(thought: Reasoning) -> dict[str, str]:
    return {"type": "thinking", "thinking": thought.text, "signature": thought.signature}


def _plain(message: Message) -> str:
    said = [part for part in message.parts if isinstance(part, Text | Binary)]
    return "".join([part.text if isinstance(part, Text) else _named(part) for part in said])


def _content(message: Message) -> str | list[dict[str, Any]]:
    """A user's or system's content: plain text, or a list of parts where something is attached."""
    if message.role is not Role.USER or not any(isinstance(part, Binary) for part in message.parts):
        return _plain(message)
    return [
        {"type": "text", "text": part.text} if isinstance(part, Text) else _attached(part)
        for part in message.parts
        if isinstance(part, Text | Binary)
    ]


def _named(part: Binary) -> str:
    return f"[attachment {part.name or part.media_type}]"


def _attached(part: Binary) -> dict[str, Any]:
    url = f"data:{part.media_type};base64,{base64.b64encode(part.data).decode()}"
    if part.media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": part.name or "attachment", "file_data": url}}


def _is_object(arguments: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(arguments), dict)
    except (ValueError, RecursionError):
        return False


def _tools(request: CallModel, config: Config) -> list[bytes]:
    offered = frozenset(request.tools)
    tools = [_tool(tool) for tool in config.tools if tool.name in offered]
    return [b',"tools":[', b",".join(tools), b"]"] if tools else []


def _tool(tool: ToolSpec) -> bytes:
    parts = to_json(tool.name), to_json(tool.description), tool.schema.encode("utf-8", "replace")
    return b'{"type":"function","function":{"name":%b,"description":%b,"parameters":%b}}' % parts


def _options(request: CallModel, config: Config) -> list[bytes]:
    # A proxy's name for a model has the provider's in front of it.
    reasons = wire_name(request.model).rpartition("/")[2].startswith(REASONING_MODELS)
    options: dict[str, Any] = {}
    if config.model.max_output is not None:
        options["max_completion_tokens" if reasons else "max_tokens"] = config.model.max_output
    if config.model.temperature is not None and not reasons:
        options["temperature"] = config.model.temperature
    if config.stop:
        options["stop"] = config.stop
    return [b",", _encode(options)[1:-1]] if options else []
