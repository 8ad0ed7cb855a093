"""The performer for OpenAI's chat completions and everybody who speaks them."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, final
from urllib.parse import urlsplit

import attrs

from ...effects.messages import (
    Binary,
    Reasoning,
    Role,
    Text,
)
from ...effects.requests import Purpose, Transcript
from .encoding import (
    HEADERS,
    MAX_KEPT,
    CallIds,
    EncodedCache,
    EncodedConversation,
    attachment_note,
    effort,
    is_json_object,
    media_type,
    to_json,
    tool_name,
    wire_name,
)
from .http import (
    ANSWER_SECONDS,
    MAX_ANSWER,
    Endpoint,
    HTTPModel,
    Timeouts,
    api_key_from,
)
from .openai_stream import ChatParser
from .throttle import MAX_CONCURRENT
from .transcript import transcript
from .wire import HTTPRequest

if TYPE_CHECKING:
    import httpx

    from ...effects.config import Config, ToolSpec
    from ...effects.messages import Message, ToolCall, ToolResult
    from ...effects.requests import CallModel
    from ..base import PerformContext

# The chat-completions dialect: a request's body out of what was already encoded.


OPENAI_PREFIX = "openai"
"""What stands before the first colon of a model's name to choose this wire; it is not sent."""

REASONING_MODELS = ("gpt-5", "o1", "o3", "o4")
"""
Models, by how their names begin, that take a word on how much to think, but no ``max_tokens`` and no
``temperature``.
"""

NON_REASONING = ("gpt-5-chat",)
"""Models that are named like those and do not reason."""

EMPTY_TEXT = "(nothing)"
"""The text of a message without any: most providers refuse an empty one."""

BRIDGE = "OK."
"""What a model is made to say where a server lets no user speak right behind a tool."""

AUDIO = {
    "audio/wav": "wav",
    "audio/wave": "wav",
    "audio/x-wav": "wav",
    "audio/mp3": "mp3",
    "audio/mpeg": "mp3",
}
"""The sounds that have a part of their own, and what the API calls them."""


@final
@attrs.frozen
class ServerQuirks:
    """
    What the servers of this dialect differ in.

    *thoughts* is the field that thinking goes back in: as text, but for ``reasoning_details``, which hold
    signatures, too. Those who take ``reasoning_content`` get what was signed or redacted in
    ``thinking_blocks`` instead. Where it is empty, no thinking goes back. *bridged*: no user may speak right
    behind a tool, so the model is made to say a word there.
    """

    thoughts: str = "reasoning_content"
    bridged: bool = False


@final
class ChatWire:
    """
    OpenAI's chat completions, as two dozen servers speak it, each with its own *habits*.

    *prefix* is taken off the names of models. The encoded messages of *keep* conversations are kept. How much
    to think is told to the `REASONING_MODELS`, as a word; no other model of this dialect is told.
    """

    def __init__(
        self, habits: ServerQuirks = ServerQuirks(), prefix: str = OPENAI_PREFIX, keep: int = MAX_KEPT
    ) -> None:
        self._prefix = prefix
        self._kept = EncodedCache(lambda: _EncodedChat(habits), keep)

    def encode(self, request: CallModel, scene: PerformContext) -> HTTPRequest:
        """The HTTP request that asks for the answer to *request*, streamed."""
        model = wire_name(request.model, self._prefix)
        system = "\n\n".join([text for text in (request.system, request.instructions) if text.strip()])
        parts = [b'{"model":', to_json(model), b',"messages":[']
        view, history = request.view, scene.history
        if isinstance(view, Transcript):
            text = transcript(history.slice(0, view.length), view.limit)
            messages = memoryview(to_json({"role": "user", "content": text}))
        else:
            encoded = self._kept.of(history.log)
            place = encoded.until(history, view.length, view.cleared)
            messages = memoryview(encoded.buffer)[: place.end]
        if system:
            parts += [to_json({"role": "system", "content": system}), b"," if messages else b""]
        end = b',"stream":true,"stream_options":{"include_usage":true}}'
        with messages:  # the buffer it looks into cannot grow until it is released
            rest = (*_tools(request, scene.config), *_options(request, model, scene.config), end)
            body = b"".join([*parts, messages, b"]", *rest])
        return HTTPRequest(path="/chat/completions", headers=HEADERS, body=body)

    def parser(self, scene: PerformContext) -> ChatParser:
        """A new parser for one answer."""
        return ChatParser(scene.config.stop)


@final
@attrs.frozen
class _ChatMark:
    """Where a message ends, and the *role* of the last one on the wire."""

    end: int = 0
    role: str = ""


@final
class _EncodedChat(EncodedConversation[_ChatMark]):
    """The messages of one log as JSON, joined by commas."""

    def __init__(self, habits: ServerQuirks) -> None:
        super().__init__(_ChatMark())
        self._habits = habits
        self._ids = CallIds()

    def add(self, message: Message) -> None:
        """Encode *message*, which may be none, one or several on the wire."""
        for value in self._wire_messages(message):
            self._add(value)

    def _add(self, value: dict[str, Any]) -> None:
        role: str = value["role"]
        if self._habits.bridged and (self.place.role, role) == ("tool", "user"):
            self._add({"role": "assistant", "content": BRIDGE})
        encoded = to_json(value)
        self.buffer += b"," + encoded if self.buffer else encoded
        self.place = _ChatMark(len(self.buffer), role)

    def _wire_messages(self, message: Message) -> list[dict[str, Any]]:
        if message.role is Role.TOOL:
            return [*map(self._result, message.results), *_files(message)]
        if message.role is Role.ASSISTANT:
            return self._assistant(message)
        return [{"role": message.role.value, "content": _content(message)}]

    def _result(self, result: ToolResult) -> dict[str, Any]:
        return {"role": "tool", "tool_call_id": self._ids.of(result), "content": _said(result.content)}

    def _assistant(self, message: Message) -> list[dict[str, Any]]:
        calls, text = [self._call(call) for call in message.calls], _plain(message)
        if not calls and not text.strip():
            return []  # an empty message is refused, and nothing is lost without it
        value: dict[str, Any] = {"role": "assistant", "content": text if text.strip() else None}
        if calls:
            value["tool_calls"] = calls
        return [value | self._thinking(message, calling=bool(calls))]

    def _call(self, call: ToolCall) -> dict[str, Any]:
        arguments = call.arguments if is_json_object(call.arguments) else "{}"
        function = {"name": tool_name(call.name), "arguments": arguments}
        return {"id": self._ids.new(call), "type": "function", "function": function}

    def _thinking(self, message: Message, *, calling: bool) -> dict[str, Any]:
        thoughts = [part for part in message.parts if isinstance(part, Reasoning)]
        proven = [thought for thought in thoughts if thought.signature or thought.redacted]
        field = self._habits.thoughts
        if field == "reasoning_details":
            said = thoughts if calling else proven
            wanted = [thought for thought in said if thought.text or thought.signature]
            return {field: [_detail(thought) for thought in wanted]} if wanted else {}
        if field == "reasoning_content" and proven:
            return {"thinking_blocks": [_block(thought) for thought in proven]}
        text = "".join([thought.text for thought in thoughts])
        # Without a signature, it matters in the turns that call tools only.
        return {field: text} if field and text and calling else {}


def _detail(thought: Reasoning) -> dict[str, str]:
    signed = {"signature": thought.signature} if thought.signature else {}
    return {"type": "reasoning.text", "text": thought.text, **signed}


def _block(thought: Reasoning) -> dict[str, str]:
    if thought.redacted:
        return {"type": "redacted_thinking", "data": thought.redacted}
    return {"type": "thinking", "thinking": thought.text, "signature": thought.signature}


def _said(text: str) -> str:
    return text if text.strip() else EMPTY_TEXT


def _plain(message: Message) -> str:
    said = [part for part in message.parts if isinstance(part, Text | Binary)]
    return "".join([part.text if isinstance(part, Text) else attachment_note(part) for part in said])


def _content(message: Message) -> str | list[dict[str, Any]]:
    """A user's or system's content: plain text, or a list of parts where something is attached."""
    if message.role is not Role.USER or not any(isinstance(part, Binary) for part in message.parts):
        return _said(_plain(message))
    return [
        _text(part.text) if isinstance(part, Text) else _attached(part)
        for part in message.parts
        if isinstance(part, Binary) or (isinstance(part, Text) and part.text.strip())
    ]


def _files(message: Message) -> list[dict[str, Any]]:
    """The user's message with the files of a batch's results, if there are any: a tool's own is text only."""
    content: list[dict[str, Any]] = []
    for result in message.results:
        if result.files:
            content += [_text(f"Files of {result.name}:"), *map(_attached, result.files)]
    return [{"role": "user", "content": content}] if content else []


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _attached(part: Binary) -> dict[str, Any]:
    """The part that *part* is: text as text, and what else has no part of its own as a file."""
    kind = media_type(part)
    if not part.data:
        return _text(attachment_note(part))
    if kind.startswith("text/"):
        return _text(f"{part.name or kind}:\n{part.data.decode('utf-8', 'replace')}")
    data = base64.b64encode(part.data).decode()
    if kind in AUDIO:
        return {"type": "input_audio", "input_audio": {"data": data, "format": AUDIO[kind]}}
    url = f"data:{kind or 'application/octet-stream'};base64,{data}"
    if kind.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": part.name or "attachment", "file_data": url}}


def _tools(request: CallModel, config: Config) -> list[bytes]:
    offered = frozenset(request.tools)
    tools = [_tool(tool) for tool in config.tools if tool.name in offered]
    if tools or not config.tools or request.purpose is not Purpose.TURN:
        return [b',"tools":[', b",".join(tools), b"]"] if tools else []
    # All are withdrawn: some proxies refuse calls in a conversation where there are no tools.
    there_were = [_tool(tool) for tool in config.tools]
    return [b',"tool_choice":"none","tools":[', b",".join(there_were), b"]"]


def _tool(tool: ToolSpec) -> bytes:
    parts = to_json(tool.name), to_json(tool.description), tool.schema.encode("utf-8", "replace")
    return b'{"type":"function","function":{"name":%b,"description":%b,"parameters":%b}}' % parts


def _options(request: CallModel, model: str, config: Config) -> list[bytes]:
    spec, reasons = config.spec(request.model), _reasons(model)
    limit = spec.max_output if request.max_output is None else request.max_output
    options: dict[str, Any] = {}
    if limit is not None:
        options["max_completion_tokens" if reasons else "max_tokens"] = limit
    if spec.temperature is not None and not reasons:
        options["temperature"] = spec.temperature
    if request.thinking is not None and reasons:
        options["reasoning_effort"] = effort(request.thinking)
    if config.stop:
        options["stop"] = config.stop
    return [b",", to_json(options)[1:-1]] if options else []


def _reasons(model: str) -> bool:
    # A proxy's name for a model has the provider's in front of it, a tuned one's begins with how it was made.
    name = model.rpartition("/")[2].removeprefix("ft:")
    return name.startswith(REASONING_MODELS) and not name.startswith(NON_REASONING)


OPENAI = "https://api.openai.com/v1"
"""Where models are asked when no other address is given."""

OPENAI_KEY = "OPENAI_API_KEY"
"""The environment variable that holds the key when none is given."""

FIRST_BYTE = 300.0
"""Seconds until an answer begins: a reasoning model may think for minutes before its first byte."""

IDLE = 120.0
"""Seconds between two bytes of an answer: some servers are silent while a model thinks between calls."""

QUIRKS = {
    "api.openai.com": ServerQuirks(thoughts=""),
    "api.groq.com": ServerQuirks(thoughts="reasoning"),
    "api.mistral.ai": ServerQuirks(thoughts="", bridged=True),
    "openrouter.ai": ServerQuirks(thoughts="reasoning_details"),
}
"""What servers do differently, by host."""


@final
class OpenAIChat(HTTPModel):
    """
    Performs `CallModel` with OpenAI's chat completions, or any server that speaks them at *base_url*.

    *api_key* defaults to the environment's ``OPENAI_API_KEY``; where that is empty too, none is sent. A
    *client* of the caller's is used with its own settings, but for the timeouts, and never closed. Without
    one, one is made when it is first needed, and `aclose` closes it. Timeouts are in seconds, None for ever.
    *prefix* is what the names of models begin with that are asked here, and is not sent. At most *limit*
    requests are under way at a time, None for any number. Of an answer, at most *max_answer* bytes are read.
    """

    def __init__(  # noqa: PLR0913  # each is a setting of its own
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        client: httpx.AsyncClient | None = None,
        *,
        connect_timeout: float | None = 10.0,
        first_byte_timeout: float | None = FIRST_BYTE,
        idle_timeout: float | None = IDLE,
        answer_timeout: float | None = ANSWER_SECONDS,
        prefix: str = OPENAI_PREFIX,
        limit: int | None = MAX_CONCURRENT,
        max_answer: int = MAX_ANSWER,
    ) -> None:
        url = (base_url or OPENAI).rstrip("/")
        key = api_key_from(api_key, OPENAI_KEY)
        endpoint = Endpoint(
            base_url=url,
            headers={"authorization": f"Bearer {key}"} if key else {},
            login=f"set {OPENAI_KEY} or pass api_key",
        )
        timeouts = Timeouts(
            connect=connect_timeout, first_byte=first_byte_timeout, idle=idle_timeout, answer=answer_timeout
        )
        wire = ChatWire(QUIRKS.get(_host(url), ServerQuirks()), prefix)
        super().__init__(wire, endpoint, timeouts, client, limit, max_answer)


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:  # a broken address: asking it says so
        return ""
