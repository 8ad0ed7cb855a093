"""
Anthropic's Messages, and every server that speaks them: requests out, one streamed answer in.

Theory of operation. `MessagesWire` makes a request's body of messages that were encoded before: roles take
turns, and each turn is a list of content blocks. `MessagesParser` reads an answer, which is a message of
blocks. Each block has an index, a start that gives its type, deltas and a stop; each delta names its own
type. The calls of the provider's own tools (``server_tool_use``, ``mcp_tool_use`` and their results) and the
citations of texts are kept as they came, and go back to the model that made them. Unknown blocks are passed
over.
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
from ...effects.history import CallPiece, Piece, ReasoningPiece, TextPiece
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
from ...effects.usage import Usage
from ...effects.validators import clean
from ..base import PerformContext
from . import encoding
from .body import MAX_DETAIL, STOPS, WHOLE_ENDS, BodyParser
from .encoding import BEGIN_TEXT, text_part, to_json
from .errors import stream_error
from .http import Endpoint, HTTPModel, HTTPOptions
from .lenient_json import Object, as_object, first_label, first_text, number, objects, shorten_id
from .provider_tools import (
    INCOMPLETE,
    RESULT_BLOCK,
    SERVER_CALLS,
    CitedText,
    SaidPart,
    SentBlock,
    block_call,
    cited,
    input_of,
    said_parts,
)
from .providers import MIN_BUDGET, PROVIDERS
from .transport import Client
from .wire import cut_short

# What stands before the first colon of a model's name to choose this wire; it is not sent.
ANTHROPIC_PREFIX = "anthropic"

# The first version of the models that decide for themselves how much they think.
# They refuse a number of tokens and a temperature, and take a word for how much thinking is wanted.
ADAPTIVE = (4, 7)

# The user's words where the model spoke last.
# Newer models refuse to go on with their own words, older ones do where these end in white space.
CONTINUE_TEXT = "Continue."

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
        # Behind a model's own words, too: then the user says something, which begins a turn.
        may_think = mark.thought or mark.asked or mark.role == _ASSISTANT
        options = _options(request, model, scene.config, may_think=may_think)
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

    def parser(self, scene: PerformContext) -> MessagesParser:  # noqa: ARG002  # parsers of other wires need it
        """A new parser for one answer."""
        return MessagesParser()


@final
@attrs.frozen
class _MessagesMark(encoding.BufferMark):
    """
    Where the buffer stands behind a message: *end* is behind its last block, *role* says whose turn it is.

    *before* is behind the last block of the user's turn before this one, or 0. *newest* is the time of the
    newest message so far, *called* are the tools that were called. *asked*: the user said something that no
    model has answered yet; *thought*: the model's latest answer to the user began with thinking.
    """

    role: bytes = b""
    before: int = 0
    newest: float = -inf
    called: tuple[str, ...] = ()
    asked: bool = True
    thought: bool = True


@final
class _EncodedMessages(encoding.EncodedConversation[_MessagesMark]):
    """The messages of one log as JSON, the last one open."""

    def __init__(self, prefix: str, model: str) -> None:
        super().__init__(_MessagesMark(), model)
        self._prefix = prefix

    def add(self, message: Message) -> None:
        """Encode *message* into the turn of its speaker."""
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
        if place.role == _ASSISTANT:
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
        parts = self._answered(message)
        if not parts:
            return
        if self.place.role != _USER:
            self._move(asked=True)
            self._say(_USER, [text_block(CONTINUE_TEXT if self.place.role else BEGIN_TEXT)])
        if self.place.asked:
            self._move(asked=False, thought=isinstance(parts[0], Reasoning))
        self._say(_ASSISTANT, [self._block(part) for part in parts])

    def _answered(self, message: Message) -> list[SaidPart]:
        """The parts of *message* that can go back: there may be none, and the last one is never a thought."""
        # A signature is checked against the conversation before it, and each provider takes its own only.
        # Thinking of another wire, or of a message that was put before a newer one, would get the whole
        # request refused.
        own = message.model.startswith(f"{self._prefix}:") or not _OTHER_WIRE.match(message.model)
        proven = own and message.at >= self.place.newest
        said: Iterable[Part | SaidPart] = message.parts
        if any(isinstance(part, Citation | ProviderCall) for part in said):
            said = said_parts(message, self.opaque_of)
        parts = [
            part
            for part in said
            if isinstance(part, ToolCall | Binary | SentBlock | CitedText)
            or (isinstance(part, Text) and part.text.strip())
            or (isinstance(part, Reasoning) and proven and (part.signature or part.redacted))
        ]
        # The API refuses a turn of the model that ends in thinking, as an answer that was cut does.
        while parts and isinstance(parts[-1], Reasoning):
            parts.pop()
        return parts

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


# An answer: pieces and an ending out of bytes.

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
    # The sources of a text, and where it stands in the text of the answer.
    sources: list[Object] = attrs.Factory(list)
    begin: int = 0
    end: int = 0


@final
class MessagesParser(BodyParser):
    """Reads one answer. No bytes make it raise."""

    last = "message_stop"

    def __init__(self) -> None:
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
        self._provided: dict[str, tuple[str, str]] = {}

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
                if self._after_text:
                    # Ends the text before: the blocks of a comment and of an output are not one text.
                    self._say(ReasoningPiece(), pieces)
                block.sources += objects(start.get("citations"))
                if text := first_text(start, "text"):
                    self._told += len(text)
                    block.end = self._told
                    self._say(TextPiece(text), pieces)
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
                named = first_label(block.start, "name"), arguments
                self._provided[first_text(block.start, "id")] = named
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
                pieces.append(TextPiece(text))
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
