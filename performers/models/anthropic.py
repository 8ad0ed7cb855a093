"""
Anthropic's Messages, and every server that speaks them: requests out, one streamed answer in.

Theory of operation. `MessagesWire` makes a request's body of messages that were encoded before: roles take
turns, and each turn is a list of content blocks. `MessagesParser` (`anthropic_stream.py`) reads an answer,
which is a message of blocks.

An answer that the provider paused is sent last and as it came: then the provider goes on with it. The call of
its own tool that it stopped at has no result yet, and the next answer begins with that. So the blocks of a
paused answer are held, and enter the buffer with the message behind it: together with an answer that goes on,
else without such a call, which would be refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from math import inf
from typing import Any, Unpack, final

import attrs

from ...effects.config import (
    AUTO_CHOICE,
    DEFAULT_OUTPUT_TOKENS,
    NO_CHOICE,
    REQUIRED_CHOICE,
    Config,
    ModelSpec,
    ToolSpec,
)
from ...effects.messages import (
    Binary,
    Citation,
    Message,
    Part,
    ProviderCall,
    Reasoning,
    Role,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
)
from ...effects.output import OutputMode
from ...effects.requests import CallModel, Conversation
from ..base import PerformContext
from . import encoding
from .anthropic_stream import MessagesParser
from .encoding import BEGIN_TEXT, CONTINUE_TEXT, text_part, to_json
from .http import Endpoint, HTTPModel, HTTPOptions
from .provider_tools import CitedText, SaidPart, SentBlock, paired, said_parts
from .providers import MIN_BUDGET, PROVIDERS
from .transport import Client

# What stands before the first colon of a model's name to choose this wire; it is not sent.
ANTHROPIC_PREFIX = "anthropic"

# The first version of the models that decide for themselves how much they think.
# They refuse a number of tokens and a temperature, and take a word for how much thinking is wanted.
ADAPTIVE = (4, 7)

_USER, _ASSISTANT = b"user", b"assistant"
_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?!\d)(?:[-.](\d{1,2})(?!\d))?")
_OTHER_WIRE = re.compile(r"[a-z-]+:")

# The version of the API, which names its shape and not the newest of its features.
API_VERSION = "2023-06-01"


@final
class AnthropicMessages(HTTPModel):
    """
    Performs `CallModel` with Anthropic's Messages, or any server that speaks them at *base_url*.

    *api_key* defaults to the environment's ``ANTHROPIC_API_KEY``; where that is empty too, none is sent.
    *prefix* is what the names of its models begin with, and is not sent. *client* and *options* are those of
    `HTTPModel`. *betas* are features that are asked for by name. *extra_headers* and *extra_body* go along
    with each request.
    """

    def __init__(  # noqa: PLR0913  # each is a setting of its own
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        client: Client = None,
        *,
        prefix: str = ANTHROPIC_PREFIX,
        betas: Sequence[str] = (),
        extra_headers: Mapping[str, str] = encoding.NONE,
        extra_body: Mapping[str, object] = encoding.NONE,
        **options: Unpack[HTTPOptions],
    ) -> None:
        row = PROVIDERS[ANTHROPIC_PREFIX]
        key, url = row.key(api_key), row.at(base_url)
        headers = {"anthropic-version": API_VERSION, **row.headers(key)}
        headers |= {"anthropic-beta": ",".join(betas)} if betas else {}
        # A token of another kind goes along as a header.
        keyless = url == row.address and not (key or extra_headers)
        endpoint = Endpoint(
            base_url=url, headers={**headers, **extra_headers}, login=row.login, keyless=keyless
        )
        super().__init__(MessagesWire(prefix).adding(extra_body), endpoint, client, **options)


# A request: its body out of what was already encoded.


@final
class MessagesWire(encoding.EncodingWire["_EncodedMessages"]):
    """
    Anthropic's Messages.

    *prefix* is taken off the names of models. The encoded messages of *keep* conversations are kept.
    """

    path = "/messages"

    def __init__(self, prefix: str = ANTHROPIC_PREFIX, keep: int = encoding.MAX_KEPT) -> None:
        super().__init__(partial(_EncodedMessages, prefix), prefix, keep)

    def _body(
        self,
        request: CallModel,
        model: str,
        scene: PerformContext,
        shown: _EncodedMessages,
        mark: _MessagesMark,
    ) -> bytes:
        again = isinstance(request.view, Conversation)  # a text that is sent only once is not worth caching
        options = _options(request, model, scene.config, may_think=mark.may_think)
        if session := encoding.told_session(scene):
            options["metadata"] = {"user_id": session}
        options = self._with_extras(options, scene.config.spec(request.model), scene)
        head = [
            to_json({"model": model, "stream": True} | options)[:-1],
            *_system(request, again=again),
            *_tools(request, scene.config, mark.called),
        ]
        return shown.body(head, mark, again=again)

    def _unsendable(self, spec: ModelSpec, model: str) -> str:
        if spec.seed is not None:
            return "Anthropic's Messages have no seed; leave it out"
        # Extended thinking takes no temperature, and no answer that must call a tool.
        if spec.thinking is not None and spec.tool_choice not in {"", AUTO_CHOICE, NO_CHOICE}:
            return "it cannot think before a call that tool_choice forces; leave out thinking or tool_choice"
        if spec.temperature is not None and (spec.thinking is not None or claude_version(model) >= ADAPTIVE):
            return "it takes no temperature where it thinks; leave it out"
        return ""

    def parser(self, scene: PerformContext) -> MessagesParser:
        """A new parser for one answer."""
        last = scene.history[-1] if scene.history else None
        return MessagesParser(last.provider_calls if last and last.stop is StopReason.PAUSED else ())


@final
@attrs.frozen
class _MessagesMark(encoding.BufferMark):
    """
    Where the buffer stands behind a message: *end* is behind its last block, *role* says whose turn it is.

    *before* is behind the last block of the user's turn before this one, or 0. *newest* is the time of the
    newest message so far, *called* are the tools that were called. *asked*: the user said something that no
    model has answered yet; *thought*: the model's latest answer to the user began with thinking. *paused* is
    what the model said so far in an answer that may go on.
    """

    role: bytes = b""
    before: int = 0
    newest: float = -inf
    called: tuple[str, ...] = ()
    asked: bool = True
    thought: bool = True
    paused: tuple[SaidPart, ...] = ()

    @property
    def may_think(self) -> bool:
        """Whether the next answer may begin with thinking: an earlier part of its turn has to, too."""
        if self.paused and self.asked:
            return isinstance(self.paused[0], Reasoning)
        # Behind a model's own words, too: then the user says something, which begins a turn.
        return self.thought or self.asked or self.role == _ASSISTANT


@final
class _EncodedMessages(encoding.EncodedConversation[_MessagesMark]):
    """The messages of one log as JSON, the last one open."""

    def __init__(self, prefix: str, model: str) -> None:
        super().__init__(_MessagesMark(), model)
        self._prefix = prefix

    def add(self, message: Message) -> None:
        """Encode *message* into the turn of its speaker."""
        if self.place.paused and not (message.role is Role.ASSISTANT and self.own):
            self._turn(self.place.paused)
        if message.role is Role.ASSISTANT:
            self._answer(message)
        elif message.role is Role.TOOL:
            self._say(_USER, [result_block(one, self.id_of_result(one)) for one in message.results])
        else:
            self._ask(message)
        if message.at > self.place.newest:
            self._move(newest=message.at)

    def body(self, head: list[bytes], place: _MessagesMark, *, again: bool) -> bytes:
        """A body of *head* and the messages up to *place*, marked where they will be sent *again*."""
        if not place.end:
            return b"".join((*head, b',"messages":[', _users(BEGIN_TEXT), b"]}"))
        # Two marks: up to the first, the provider has the request before this one in its cache; up to the
        # second it writes this one. With one alone it would find no entry where a turn has many blocks.
        mark, tail = CACHE_MARK if again else b"", b"}]}"
        if place.paused:
            tail += b',{"role":"assistant","content":[%b]}' % b",".join(map(self._block, place.paused))
        elif place.role == _ASSISTANT:
            tail += b"," + _users(CONTINUE_TEXT)
        before, end = max(place.before - 1, 0), place.end - 1  # in front of the braces
        # Views and not slices: the buffer holds the whole conversation. They have to be gone before it grows.
        with memoryview(self.buffer) as buffer, buffer[:before] as first, buffer[before:end] as rest:
            parts = first, mark if before else b"", rest, mark, tail
            return b"".join((*head, b',"messages":[', *parts, b"]}"))

    def _ask(self, message: Message) -> None:
        blocks = [
            text_block(part.text) if isinstance(part, Text) else to_json(_attached(part))
            for part in encoding.said_in(message)
        ]
        if blocks and self.place.role != _USER:  # behind results it is a remark within the turn
            self._move(asked=True)
        self._say(_USER, blocks)

    def _answer(self, message: Message) -> None:
        parts = [*self.place.paused, *self._answered(message)]
        if self.own and message.stop is StopReason.PAUSED and not message.calls:
            held = _sendable(paired(parts, goes_on=True))
            # Without a block of the provider's work there is nothing that it could go on with.
            if any(isinstance(part, SentBlock) for part in held):
                self._open_turn()
                self._move(paused=tuple(held))
                return
        self._turn(parts)

    def _turn(self, parts: Iterable[SaidPart]) -> None:
        """Encode *parts*, which are all that the model says in a row."""
        if self.place.paused:
            self._move(paused=())
        if not (said := _sendable(paired(parts))):
            return
        self._open_turn()
        if self.place.asked:
            self._move(asked=False, thought=isinstance(said[0], Reasoning))
        self._say(_ASSISTANT, [self._block(part) for part in said])

    def _open_turn(self) -> None:
        """Let the user speak before the model does."""
        if self.place.role != _USER:
            self._move(asked=True)
            self._say(_USER, [text_block(CONTINUE_TEXT if self.place.role else BEGIN_TEXT)])

    def _answered(self, message: Message) -> list[SaidPart]:
        """The parts of *message* that can go back; there may be none."""
        # A signature is checked against the conversation before it, and each provider takes its own only.
        # Thinking of another wire, or of a message that was put before a newer one, would get the whole
        # request refused.
        own = message.model.startswith(f"{self._prefix}:") or not _OTHER_WIRE.match(message.model)
        proven = own and message.at >= self.place.newest
        said: Iterable[Part | SaidPart] = message.parts
        if any(isinstance(part, Citation | ProviderCall) for part in said):
            said = said_parts(message, self.opaque_of)
        return [
            part
            for part in said
            if isinstance(part, ToolCall | Binary | SentBlock | CitedText)
            or (isinstance(part, Text) and part.text.strip())
            or (isinstance(part, Reasoning) and proven and (part.signature or part.redacted))
        ]

    def _block(self, part: SaidPart) -> bytes:
        match part:
            case SentBlock():
                return to_json(part.block)
            case CitedText():
                return to_json(text_part(part.text) | {"citations": part.citations})
            case Reasoning():
                return to_json(encoding.thinking_part(part))
            case Text():
                return text_block(part.text)
            case Binary():
                return text_block(encoding.attachment_note(part))
            case ToolCall():
                if (name := encoding.tool_name(part.name)) not in self.place.called:
                    self._move(called=(*self.place.called, name))
                parts = to_json(self.id_of_call(part)), to_json(name), encoding.arguments_of(part).encode()
                return b'{"type":"tool_use","id":%b,"name":%b,"input":%b}' % parts

    def _say(self, role: bytes, blocks: list[bytes]) -> None:
        if not blocks:
            return
        last = self.place
        if last.role == role:
            self.buffer += b","
        else:
            self.buffer += b'%b{"role":"%b","content":[' % (b"]}," if last.role else b"", role)
        self.buffer += b",".join(blocks)
        before = last.end if (last.role, role) == (_USER, _ASSISTANT) else last.before
        self._move(end=len(self.buffer), role=role, before=before)

    def _move(self, **changes: Any) -> None:  # noqa: ANN401  # fields of a place
        self.place = attrs.evolve(self.place, **changes)


def _sendable(parts: list[SaidPart]) -> list[SaidPart]:
    """*parts* without thinking at their end: the API refuses a turn of the model that ends so."""
    while parts and isinstance(parts[-1], Reasoning):
        parts.pop()
    return parts


def _users(text: str) -> bytes:
    return b'{"role":"user","content":[%b]}' % text_block(text)


def _system(request: CallModel, *, again: bool) -> list[bytes]:
    blocks = [text_block(text) for text in (request.system, request.instructions) if text.strip()]
    # Only behind the system prompt: the instructions may differ from project to project, and what is cached
    # is the beginning that all sessions of an agent share.
    if again and request.system.strip():
        blocks[0] = marked(blocks[0])
    return [b',"system":[', b",".join(blocks), b"]"] if blocks else []


def _tools(request: CallModel, config: Config, called: Iterable[str]) -> list[bytes]:
    offered, spec = frozenset(request.tools), config.spec(request.model)
    tools = [tool_block(tool) for tool in config.tools if tool.name in offered]
    provided = encoding.provider_specs(request, spec)
    if tools or (provided and not encoding.withdraws_tools(config, spec)):
        chosen = encoding.choice_of(request)
        choice = b',"tool_choice":' + to_json(_choice(chosen)) if chosen else b""
        # The provider's own stand first, as they were configured, so the mark is on one of ours.
        marks = [*tools[:-1], marked(tools[-1])] if tools else []
        return [choice, b',"tools":[', b",".join([*provided, *marks]), b"]"]
    # A request may withdraw all tools. The API refuses calls in a conversation where there are no
    # tools, even those that were made before, so each that was called is named once more.
    there_were = [b'{"name":%b,"input_schema":{"type":"object"}}' % to_json(name) for name in called]
    there_were = [*provided, *there_were]
    return [b',"tool_choice":{"type":"none"},"tools":[', b",".join(there_were), b"]"] if there_were else []


def _choice(choice: str) -> dict[str, str]:
    if choice == AUTO_CHOICE:
        return {"type": "auto"}
    return {"type": "any"} if choice == REQUIRED_CHOICE else {"type": "tool", "name": choice}


def _options(request: CallModel, model: str, config: Config, *, may_think: bool) -> dict[str, Any]:
    spec, adaptive = config.spec(request.model), claude_version(model) >= ADAPTIVE
    limit = request.max_output or spec.max_output or DEFAULT_OUTPUT_TOKENS
    options: dict[str, Any] = {}
    # The API refuses thinking before a call that it forces, also where a person asked for thinking later.
    may_think = (adaptive or may_think) and encoding.choice_of(request) in {"", AUTO_CHOICE}
    if request.thinking is not None and may_think:
        tokens = max(request.thinking, MIN_BUDGET)
        # Thinking counts against the output, and the API refuses a limit that leaves nothing for the answer.
        limit += tokens if limit <= tokens else 0
        if adaptive:
            options["thinking"] = {"type": "adaptive", "display": "summarized"}
            options["output_config"] = {"effort": encoding.effort(request.thinking)}
        else:
            options["thinking"] = {"type": "enabled", "budget_tokens": tokens}
    elif spec.temperature is not None and not adaptive:
        options["temperature"] = spec.temperature
    if spec.top_p is not None:
        options["top_p"] = spec.top_p
    if config.output is not None and request.output is OutputMode.NATIVE:
        form = {"type": "json_schema", "schema": json.loads(config.output.strict_schema)}
        options["output_config"] = {**options.get("output_config", {}), "format": form}
    return options | {"max_tokens": limit} | ({"stop_sequences": config.stop} if config.stop else {})


def claude_version(model: str) -> tuple[int, int]:
    """The version in the name of *model*: ``claude-opus-4-7`` is 4.7; 0.0 where there is none."""
    found = _VERSION.search(model)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)


# Content blocks: parts of messages, results and tools as JSON.

# What stands before the closing brace of a block up to which the provider shall cache.
CACHE_MARK = b',"cache_control":{"type":"ephemeral"}'

# The pictures that the API takes.
ACCEPTED_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})


def marked(block: bytes) -> bytes:
    """*block* with the mark up to which the provider shall cache."""
    return block[:-1] + CACHE_MARK + b"}"


def text_block(text: str) -> bytes:
    """*text*, which the API refuses where it is nothing but white space."""
    return to_json(text_part(text))


def result_block(result: ToolResult, wire_id: str) -> bytes:
    """*result* with its files; those of an error are named only, since the API takes text alone there."""
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": wire_id}
    content = [text_part(result.content)] if result.content.strip() else []
    if result.is_error:
        content += [text_part(encoding.attachment_note(file)) for file in result.files]
        return to_json(block | {"is_error": True, "content": content or [text_part(result.outcome)]})
    content += [_attached(file) for file in result.files]
    return to_json(block | {"content": content} if content else block)


@lru_cache(maxsize=1024)
def tool_block(tool: ToolSpec) -> bytes:
    """*tool* as the model sees it."""
    schema = tool.schema.encode("utf-8", "replace")
    if "type" not in (properties := json.loads(tool.schema)):
        schema = to_json({"type": "object"} | properties)  # other providers let it be left out
    described = b'"description":%b,' % to_json(tool.description) if tool.description else b""
    return b'{"name":%b,%b"input_schema":%b}' % (to_json(tool.name), described, schema)


def _attached(part: Binary) -> dict[str, Any]:
    """*part* as a picture or a document, or named in text where the API takes neither."""
    kind = encoding.media_type(part)
    if part.data and kind in ACCEPTED_IMAGES:
        return {"type": "image", "source": _base64(kind, part)}
    title = {"title": part.name} if part.name else {}
    if part.data and kind == "application/pdf":
        return {"type": "document", "source": _base64(kind, part)} | title
    if kind.startswith("text/") and (text := part.data.decode("utf-8", "replace")).strip():
        source = {"type": "text", "media_type": "text/plain", "data": text}
        return {"type": "document", "source": source} | title
    return text_part(encoding.attachment_note(part))


def _base64(kind: str, part: Binary) -> dict[str, str]:
    return {"type": "base64", "media_type": kind, "data": encoding.in_base64(part)}
