"""
The Messages dialect: a request's body out of what was already encoded.

Theory of operation. All messages of a log stand in one buffer, encoded once, and the last one is left open,
since what its speaker says next is joined to it: here a user and a model take turns, and a tool's results are
the user's. So a request's messages are a slice of that buffer and the end of the last one. Nothing in it
depends on what comes later, and the provider finds what it cached
if it is told where to look: the marks are on the last tool, on the system prompt (behind which stands what is
meant for one request only), at the end of what is sent, and where the request before this one ended.

Thinking goes back as it came, with the proof that it was thought, which a model that calls tools is refused
without. The proof is for all that stood before it, so after a compaction, which puts a newer message before
older ones, the thinking of the older ones is left out; and so is what models of other wires thought.
"""

from __future__ import annotations

import re
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, final

import attrs

from ...history import History
from ...messages import Binary, Message, Reasoning, Role, Text, ToolCall, user
from ...model import DEFAULT_OUTPUT_TOKENS
from ...requests import Transcript
from .anthropic_blocks import (
    MARK,
    attached_block,
    bare_tool_block,
    call_block,
    marked,
    result_block,
    text_block,
    thought_block,
    tool_block,
)
from .anthropic_stream import MessagesParser
from .encoding import HEADERS, MAX_KEPT, CallIds, Encoded, Kept, effort, named, to_json, tool_name, wire_name
from .transcript import transcript
from .wire import Post

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...config import Config
    from ...requests import CallModel
    from ..base import Scene

PREFIX = "anthropic"
"""What stands before the first colon of a model's name to choose this wire; it is not sent."""

MIN_THINKING = 1_024
"""The least tokens of thinking that the API takes."""

ADAPTIVE = (4, 7)
"""
The first version of the models that decide for themselves how much they think.

They refuse a number of tokens and a temperature, and take a word for how much thinking is wanted.
"""

OPENING = "Begin."
"""What the user says where a conversation begins with the model, or with nothing, which the API refuses."""

GO_ON = "Continue."
"""
What the user says where the model spoke last.

Newer models refuse to go on with what they said, older ones do where it ends in white space.
"""

_Said = Text | Reasoning | ToolCall | Binary
"""What a model's message says."""

_USER, _ASSISTANT = b"user", b"assistant"
_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?!\d)(?:[-.](\d{1,2})(?!\d))?")
_OTHER_WIRE = re.compile(r"[a-z]+:")


@final
class MessagesWire:
    """
    Anthropic's Messages.

    *prefix* is taken off the names of models. The encoded messages of *keep* conversations are kept.
    """

    def __init__(self, prefix: str = PREFIX, keep: int = MAX_KEPT) -> None:
        self._prefix = prefix
        self._kept = Kept(partial(_Encoded, prefix), keep)

    def encode(self, request: CallModel, scene: Scene) -> Post:
        """The HTTP request that asks for the answer to *request*, streamed."""
        view, history = request.view, scene.history
        again = not isinstance(view, Transcript)  # what is sent only once is not worth caching
        if isinstance(view, Transcript):
            encoded = _Encoded(self._prefix)
            place = encoded.until(History.of(user(transcript(history.slice(0, view.length), view.limit))), 1)
        else:
            encoded = self._kept.of(history.log)
            place = encoded.until(history, view.length, view.cleared)
        model = wire_name(request.model, self._prefix)
        options = _options(request, model, scene.config, may_think=place.may_think)
        head = [
            to_json({"model": model, "stream": True} | options)[:-1],
            *_system(request, again=again),
            *_tools(request, scene.config, place.called),
        ]
        return Post(path="/messages", headers=HEADERS, body=encoded.body(head, place, again=again))

    def parser(self, scene: Scene) -> MessagesParser:  # noqa: ARG002  # parsers of other wires need it
        """A new parser for one answer."""
        return MessagesParser()


@final
@attrs.frozen
class _Place:
    """
    Where the buffer stands behind a message: *end* is behind its last block, *role* says whose turn it is.

    *before* is behind the last block of the user's turn before this one, or 0. *newest* is the time of the
    newest message so far, *called* are the tools that were called. *asked*: the user said something that no
    model has answered yet; *thought*: the model's latest answer to the user began with thinking.
    """

    end: int = 0
    role: bytes = b""
    before: int = 0
    newest: float = -inf
    called: tuple[str, ...] = ()
    asked: bool = True
    thought: bool = True

    @property
    def may_think(self) -> bool:
        """Whether a model that is given tokens to think may think from here on."""
        # Behind a model's own words, too: then the user says something, which begins a turn.
        return self.thought or self.asked or self.role == _ASSISTANT


@final
class _Encoded(Encoded[_Place]):
    """The messages of one log as JSON, the last one open."""

    def __init__(self, prefix: str) -> None:
        super().__init__(_Place())
        self._prefix = prefix
        self._ids = CallIds()

    def add(self, message: Message) -> None:
        """Encode *message* into the turn of its speaker."""
        if message.role is Role.ASSISTANT:
            self._answer(message)
        elif message.role is Role.TOOL:
            self._say(_USER, [result_block(one, self._ids.of(one)) for one in message.results])
        else:
            self._ask(message)
        if message.at > self.place.newest:
            self._move(newest=message.at)

    def body(self, head: list[bytes], place: _Place, *, again: bool) -> bytes:
        """A body of *head* and the messages up to *place*, marked where they will be sent *again*."""
        if not place.end:
            return b"".join((*head, b',"messages":[', _users(OPENING), b"]}"))
        mark, tail = MARK if again else b"", b"}]}"
        if place.role == _ASSISTANT:
            tail += b"," + _users(GO_ON)
        before, end = max(place.before - 1, 0), place.end - 1  # in front of the braces
        # What looks into the buffer has to be gone before it grows.
        with memoryview(self.buffer) as buffer, buffer[:before] as first, buffer[before:end] as rest:
            parts = first, mark if before else b"", rest, mark, tail
            return b"".join((*head, b',"messages":[', *parts, b"]}"))

    def _ask(self, message: Message) -> None:
        blocks = [
            text_block(part.text) if isinstance(part, Text) else attached_block(part)
            for part in message.parts
            if isinstance(part, Binary) or (isinstance(part, Text) and part.text.strip())
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
            self._say(_USER, [text_block(GO_ON if self.place.role else OPENING)])
        if self.place.asked:
            self._move(asked=False, thought=isinstance(parts[0], Reasoning))
        self._say(_ASSISTANT, [self._block(part) for part in parts])

    def _answered(self, message: Message) -> list[_Said]:
        """The parts of *message* that can go back: there may be none, and the last one is never a thought."""
        proven = message.at >= self.place.newest and self._is_own(message.model)
        parts: list[_Said] = []
        for part in message.parts:
            match part:
                case Reasoning():
                    if proven and (part.signature or part.redacted):
                        parts.append(part)
                case Text():
                    if part.text.strip():
                        parts.append(part)
                case ToolCall() | Binary():
                    parts.append(part)
                case _:
                    pass  # why it ended
        while parts and isinstance(parts[-1], Reasoning):
            parts.pop()
        return parts

    def _is_own(self, model: str) -> bool:
        return model.startswith(f"{self._prefix}:") or not _OTHER_WIRE.match(model)

    def _block(self, part: _Said) -> bytes:
        match part:
            case Reasoning():
                return thought_block(part)
            case Text():
                return text_block(part.text)
            case Binary():
                return text_block(named(part))
            case ToolCall():
                if (name := tool_name(part.name)) not in self.place.called:
                    self._move(called=(*self.place.called, name))
                return call_block(part, self._ids.new(part))

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
    if again and request.system.strip():
        blocks[0] = marked(blocks[0])
    return [b',"system":[', b",".join(blocks), b"]"] if blocks else []


def _tools(request: CallModel, config: Config, called: Iterable[str]) -> list[bytes]:
    offered = frozenset(request.tools)
    tools = [tool_block(tool) for tool in config.tools if tool.name in offered]
    if tools:
        return [b',"tools":[', b",".join([*tools[:-1], marked(tools[-1])]), b"]"]
    # The API refuses calls in a conversation where there are no tools, even those that were made before.
    there_were = [bare_tool_block(name) for name in called]
    return [b',"tool_choice":{"type":"none"},"tools":[', b",".join(there_were), b"]"] if there_were else []


def _options(request: CallModel, model: str, config: Config, *, may_think: bool) -> dict[str, Any]:
    spec, adaptive = config.spec(request.model), _version(model) >= ADAPTIVE
    limit = request.max_output or spec.max_output or DEFAULT_OUTPUT_TOKENS
    options: dict[str, Any] = {}
    if request.thinking is not None and (adaptive or may_think):
        tokens = max(request.thinking, MIN_THINKING)
        limit += tokens if limit <= tokens else 0  # they are a part of the output
        if adaptive:
            options["thinking"] = {"type": "adaptive", "display": "summarized"}
            options["output_config"] = {"effort": effort(request.thinking)}
        else:
            options["thinking"] = {"type": "enabled", "budget_tokens": tokens}
    elif spec.temperature is not None and not adaptive:
        options["temperature"] = spec.temperature
    options["max_tokens"] = limit
    if config.stop:
        options["stop_sequences"] = config.stop
    return options


def _version(model: str) -> tuple[int, int]:
    """The version in the name of *model*: ``claude-opus-4-7`` is 4.7; 0.0 where there is none."""
    found = _VERSION.search(model)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)
