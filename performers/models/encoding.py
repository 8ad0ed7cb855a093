"""
The encoding that all dialects share: JSON, names and ids that every provider takes, and what is kept.

Theory of operation. A message is encoded when a request first reaches it. The result is kept under the
identity of the history's log, whose prefix never changes. Only where old results are cleared from another
message on does the encoder go back: to the first message that looks different now.
"""

from __future__ import annotations

import base64
import json
import logging
import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, chain, count, repeat
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Self, TypeVar
from weakref import WeakKeyDictionary

import attrs
import msgspec

from ...effects.config import AUTO_CHOICE, NO_CHOICE, REQUIRED_CHOICE, Config, ModelSpec, ToolKind, ToolSpec
from ...effects.errors import ConfigError
from ...effects.history import History, Log, clear_results, is_cleared_when_old
from ...effects.messages import (
    Binary,
    Citation,
    Finish,
    Message,
    Part,
    ProviderCall,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    user,
)
from ...effects.requests import CallModel, Purpose, Transcript
from ...states.rules.token_estimates import CHARACTERS_PER_TOKEN
from ..base import PerformContext
from ..logs import write
from .extras import headers_of, object_of, with_extras
from .lenient_json import SIGNED_ID, Object, as_object, decoded
from .wire import HTTPRequest

# The headers of a request that asks for a streamed answer.
HEADERS = {"content-type": "application/json", "accept": "text/event-stream"}

# Conversations whose encoded messages are kept, the least recently used going first.
# At a typical 100 KB each that is 100 MB. One that went is encoded again when it speaks again.
MAX_KEPT = 1_000

# Characters of a call's id: OpenAI refuses longer ones, though other providers make them.
MAX_ID = 40

# Characters of a tool's name, alike.
MAX_NAME = 64

# Up to how many tokens of thinking an effort stands for; more is ``high``.
# Where an API takes a word, the steps lie between those that proxies translate the words to.
EFFORTS = ((4_096, "low"), (16_384, "medium"))

# The way out where a server has no form for a budget of thinking.
SAY_HOW = "leave thinking out, or say it in extra_body, or in OpenAIChat(thinking=...)"

# The text of a message without any: most providers refuse an empty one.
EMPTY_TEXT = "(nothing)"

# The user's words where a conversation begins with the model, or with nothing, which APIs refuse.
BEGIN_TEXT = "Begin."

# The user's words where the model spoke last, as in an answer that was paused and goes on with another model.
# Newer models of Anthropic's refuse to go on with their own words, older ones do where these end in white
# space.
CONTINUE_TEXT = "Continue."

# Makes the fields of a body that ask a model for so many tokens of thinking; none where it takes none.
ThinkingForm = Callable[[str, int], Mapping[str, object]]

# No more headers, or no more fields of a body.
NONE: Mapping[str, Any] = MappingProxyType({})

# Fields of a body that are no settings.
OWN_FIELDS = frozenset({"messages", "model", "stream", "stream_options", "system", "tool_choice", "tools"})

# The ids of calls that providers take; all of them take those that are made here.
CALL_ID = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_ID}}}")

# Names of sessions that are told to providers. Longer ones are refused, and others may be a person's address.
TOLD_SESSION = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")

_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")

_encode = msgspec.json.Encoder().encode


@attrs.frozen
class BufferMark:
    """How things stand behind a message: its *end* in the buffer, and all that what follows depends on."""

    end: int = 0


P = TypeVar("P", bound=BufferMark)


def to_json(value: object) -> bytes:
    """*value* as JSON; half a surrogate pair, which is no character, becomes a question mark."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def arguments_of(call: ToolCall) -> str:
    """The arguments of *call* as the model wrote them, or none where they are no JSON object."""
    return call.arguments if isinstance(decoded(call.arguments, msgspec.json.decode), dict) else "{}"


def tool_name(name: str) -> str:
    """*name*, which a model may have made up, in characters that providers take."""
    return _NO_NAME.sub("_", name)[:MAX_NAME] or "_"


def effort(tokens: int) -> str:
    """The word for thinking as much as *tokens*."""
    return next((word for limit, word in EFFORTS if tokens <= limit), "high")


def tool_fields(
    request: CallModel, config: Config, tool: Callable[[ToolSpec], bytes], named: Callable[[str], Object]
) -> list[bytes]:
    """
    The fields of a body for the tools of *request*, in the form that OpenAI's wires share.

    The provider's own stand first, as they were configured. *tool* encodes each of the others, and *named* is
    the choice of the tool with that name.
    """
    names, spec = frozenset(request.tools), config.spec(request.model)
    tools = [each for each in config.tools if each.name in names]
    provided = provider_specs(request, spec) if spec.provider_tools else []
    choice = choice_of(request) if (tools or provided) and request.tool_choice else ""
    if not tools and request.purpose is Purpose.TURN and withdraws_tools(config, spec):
        # Some proxies refuse calls in a conversation where no tool is offered, so all are listed with a
        # choice of none.
        tools, choice = [each for each in config.tools if each.kind is not ToolKind.OUTPUT], NO_CHOICE
    if not (tools or provided):
        return []
    word = choice in {AUTO_CHOICE, NO_CHOICE, REQUIRED_CHOICE}
    chosen = b',"tool_choice":' + to_json(choice if word else named(choice)) if choice else b""
    return [chosen, b',"tools":[', b",".join([*provided, *map(tool, tools)]), b"]"]


def withdraws_tools(config: Config, spec: ModelSpec) -> bool:
    """
    Whether a request that offers none of the tools of *config* withdraws them from the model of *spec*.

    The tool of an output is never withdrawn: where it is not offered, the output is asked for in another way.
    """
    return spec.tool_choice == NO_CHOICE or any(each.kind is not ToolKind.OUTPUT for each in config.tools)


def provider_specs(request: CallModel, spec: ModelSpec) -> list[bytes]:
    """The specs of the provider's own tools that go with *request* to the model of *spec*."""
    if request.purpose is not Purpose.TURN or not spec.provider_tools:
        return []
    return [text.encode("utf-8", "replace") for text in spec.provider_tools]


def system_text(request: CallModel) -> str:
    """The system prompt of *request*, and behind it what is said for this request only."""
    system, more = request.system, request.instructions
    if not more.strip():
        return system if system.strip() else ""
    return f"{system}\n\n{more}" if system.strip() else more


def choice_of(request: CallModel) -> str:
    """The choice of tools that *request* asks for; empty where the tool is not offered."""
    choice = request.tool_choice
    return choice if choice in {AUTO_CHOICE, REQUIRED_CHOICE} or choice in request.tools else ""


def media_type(part: Binary) -> str:
    """The media type of *part*, without parameters."""
    return part.media_type.partition(";")[0].strip().lower()


def attachment_note(part: Binary) -> str:
    """The text that stands for *part* where it cannot be sent itself."""
    return f"[attachment {part.name or part.media_type}{'' if part.data else ', which is empty'}]"


def said_or_nothing(text: str) -> str:
    """*text*, or what stands for one that says nothing."""
    return text if text.strip() else EMPTY_TEXT


def plain_text(message: Message) -> str:
    """All texts of *message*, and the names of what is attached to it."""
    parts = [part for part in message.parts if isinstance(part, Text | Binary)]
    return "".join([part.text if isinstance(part, Text) else attachment_note(part) for part in parts])


def content_of(
    message: Message, text: Callable[[str], Object], attached: Callable[[Binary], Object]
) -> str | list[Object]:
    """
    A user's or system's content, in the form that OpenAI's wires share.

    It is plain text, or a list of parts by *text* and *attached* where something is attached.
    """
    if message.role is not Role.USER or not any(isinstance(part, Binary) for part in message.parts):
        return said_or_nothing(plain_text(message))
    return [text(part.text) if isinstance(part, Text) else attached(part) for part in said_in(message)]


def as_user(text: str) -> dict[str, Any]:
    """*text* as the user's message, in the form that OpenAI's wires share."""
    return {"role": "user", "content": text}


def text_of_file(part: Binary) -> str | None:
    """*part* as text where it is empty or holds text; None where its bytes are to be sent."""
    if not part.data:  # an empty attachment gets the whole request refused
        return attachment_note(part)
    kind = media_type(part)
    if not kind.startswith("text/"):
        return None
    return f"{part.name or kind}:\n{part.data.decode('utf-8', 'replace')}"


def in_base64(part: Binary) -> str:
    """The bytes of *part* as text."""
    return base64.b64encode(part.data).decode()


def data_url(part: Binary) -> str:
    """*part* as a URL that holds its bytes."""
    return f"data:{media_type(part) or 'application/octet-stream'};base64,{in_base64(part)}"


# Parts of messages that the dialects write alike.


def text_part(text: str) -> dict[str, Any]:
    """*text* as a part of a message, which providers refuse where it is nothing but white space."""
    return {"type": "text", "text": text}


def thinking_part(thought: Reasoning) -> dict[str, str]:
    """*thought* as Anthropic's API sent it, and proxies of it."""
    if thought.redacted:
        return {"type": "redacted_thinking", "data": thought.redacted}
    return {"type": "thinking", "thinking": thought.text, "signature": thought.signature}


def said_in(message: Message) -> list[Text | Binary]:
    """The texts that *message* has, but for blank ones, and what is attached to it."""
    said = [part for part in message.parts if isinstance(part, Text | Binary)]
    return [part for part in said if isinstance(part, Binary) or part.text.strip()]


class EncodedConversation(ABC, Generic[P]):
    """
    The messages of one log, one behind the other in one buffer. A dialect says how one is added.

    *place* is behind the last of them. It holds all that the next one depends on, so it can be gone back to.
    They are shown to *model*; *own* says whether it made the one that is being added.

    No two calls have the same id on the wire, and each has one that matches *call_id*. Providers repeat their
    ids, leave them empty or make them long, and then refuse to see them.
    """

    own: bool

    def __init__(self, start: P, model: str = "", call_id: re.Pattern[str] = CALL_ID) -> None:
        self.model = model
        self.buffer = bytearray()
        self.place = start
        self._places = [start]  # the first is before all messages
        self._cleared = 0
        self._call_id = call_id
        self._ids: dict[str, str] = {}  # our id of a call to the one it has on the wire
        self._used: set[str] = set()

    @abstractmethod
    def add(self, message: Message) -> None:
        """Encode *message* into `buffer`, and move `place` behind it."""

    def opaque_of(self, part: Reasoning | ToolCall | ProviderCall | Citation) -> Object:
        """The provider's own fields of *part*, where the model that is asked made them; else none."""
        return as_object(decoded(part.opaque)) if self.own and part.opaque else {}

    def id_of_call(self, call: ToolCall) -> str:
        """The id of *call*, made when it is first met: what is encoded again has the ids it had."""
        if (known := self._ids.get(call.id)) is not None:
            return known
        wire_id = call.wire_id
        signed = self.own and self._call_id is CALL_ID and SIGNED_ID in wire_id
        # Numbered and not random: the same history has to give the same bytes, or no provider's cache would
        # know it.
        if not (signed or self._call_id.fullmatch(wire_id)) or wire_id in self._used:
            made = (f"call{number:05}" for number in count(len(self._used)))
            wire_id = next(one for one in made if one not in self._used)
        self._used.add(wire_id)
        self._ids[call.id] = wire_id
        return wire_id

    def id_of_result(self, result: ToolResult) -> str:
        """The id of the call that *result* answers."""
        return self._ids.get(result.call) or result.wire_id or result.call

    def until(self, history: History, length: int, before: int = 0) -> P:
        """
        The place behind the first *length* messages; those not met before are encoded now.

        Those before index *before* are encoded as they are shown when they are old.
        """
        if before != self._cleared:
            self._clear(history.log, before)
        begun = len(self._places) - 1
        for index, message in enumerate(history.slice(begun, length), begun):
            self.own = message.model == self.model
            self.add(clear_results(message) if index < before else message)
            self._places.append(self.place)
        return self._places[length]

    def _clear(self, log: Log[Message], before: int) -> None:
        """Go back to the first message that is shown otherwise, old results being those before *before*."""
        first, last = sorted((self._cleared, before))
        self._cleared = before
        # The log has all messages that were ever encoded, also where this history is shorter: a fork shares
        # it.
        for index in range(first, min(last, len(self._places) - 1)):
            if any(map(is_cleared_when_old, log.items[index].parts)):
                del self._places[index + 1 :]
                self.place = self._places[-1]
                del self.buffer[self.place.end :]
                break


E = TypeVar("E", bound=EncodedConversation[Any])


def told_session(scene: PerformContext) -> str | None:
    """The session of *scene*, for a provider's own records; None where its name is not to be told."""
    return scene.session if TOLD_SESSION.fullmatch(scene.session) else None


class EncodingWire(ABC, Generic[E]):
    """
    The half of a wire that encodes: a dialect says how a request is made of encoded messages.

    *prefix* is taken off the names of models. The messages of *limit* conversations are kept as *make* began
    them for a model, by their logs; a log that is gone takes its own along.
    """

    path: ClassVar[str]
    own_fields: ClassVar[frozenset[str]] = OWN_FIELDS

    _extra: Mapping[str, object] = NONE

    def __init__(self, make: Callable[[str], E], prefix: str, limit: int) -> None:
        self._make = make
        self._prefix = f"{prefix}:"
        self._limit = limit
        self._kept: WeakKeyDictionary[Log[Message], E] = WeakKeyDictionary()
        # Each warning of a model is logged once.
        self._warned: set[tuple[str, str]] = set()

    def adding(self, extra_body: Mapping[str, object]) -> Self:
        """This wire, whose requests have the settings of *extra_body*, too."""
        if own := sorted(self.own_fields & extra_body.keys()):
            msg = f"extra_body must leave the wire's own fields to it; got {own}"
            raise ConfigError(msg)
        self._extra = extra_body
        return self

    @abstractmethod
    def _body(self, request: CallModel, model: str, scene: PerformContext, shown: E, mark: Any) -> bytes:  # noqa: ANN401  # the mark of an E
        """The body of *request* to *model*, with the messages of *shown* up to *mark*."""

    def encode(self, request: CallModel, scene: PerformContext) -> HTTPRequest:
        """The HTTP request that asks for the answer to *request*, streamed."""
        view, history = request.view, scene.history
        if isinstance(view, Transcript):  # sent only once, so it is not kept
            shown = self._make(request.model)
            text = transcript(history.slice(0, view.length), view.limit)
            mark = shown.until(History.of(user(text)), 1)
        else:
            shown = self._of(history.log, request.model)
            mark = shown.until(history, view.length, view.cleared)
        body = self._body(request, request.model.removeprefix(self._prefix), scene, shown, mark)
        spec, headers = scene.config.spec(request.model), HEADERS
        if spec.extra_headers or spec.session_field:
            headers = {**HEADERS, **headers_of(spec, scene.session)}
        return HTTPRequest(path=self.path, headers=headers, body=body)

    def check(self, spec: ModelSpec) -> None:
        """Raise `ConfigError` where requests to the model of *spec* cannot have one of its settings."""
        if own := sorted(self.own_fields & object_of(spec.extra_body).keys()):
            msg = f"extra_body of {spec.name!r} must leave the wire's own fields to it; got {own}"
            raise ConfigError(msg)
        headers_of(spec, "")  # a variable that is not set, or does not fit into a header
        if problem := self._unsendable(spec, spec.name.removeprefix(self._prefix)):
            msg = f"{spec.name!r}: {problem}"
            raise ConfigError(msg)

    def _unsendable(self, spec: ModelSpec, model: str) -> str:  # noqa: ARG002  # those of dialects need both
        """Why requests to *model* cannot have a setting of *spec*; empty where they can have all."""
        return ""

    def _thinking(self, form: ThinkingForm, model: str, tokens: int) -> Mapping[str, object]:
        """The fields that ask *model* for so many *tokens* of thinking; a warning where there are none."""
        fields = form(model, tokens)
        if not fields:
            self._warn("a budget of thinking is not sent", model, tokens=tokens, fix=SAY_HOW)
        return fields

    def _warn(self, text: str, model: str, **about: object) -> None:
        """Say *text* about *model* in the log, once."""
        if (text, model) not in self._warned:
            self._warned.add((text, model))
            write(logging.WARNING, text, {"model": model, **about})

    def _with_extras(self, options: dict[str, Any], spec: ModelSpec, scene: PerformContext) -> dict[str, Any]:
        """*options* and the fields that the host, the spec and the session's name add to a body."""
        if not (self._extra or spec.extra_body or spec.session_field):
            return options
        return with_extras({**options, **self._extra}, spec, scene.session)

    def _of(self, log: Log[Message], model: str) -> E:
        """What *model* is shown of *log*, as it is kept, or a new one; the least recently used makes room."""
        kept = self._kept.pop(log, None)
        if kept is None or kept.model != model:
            kept = self._make(model)
        self._kept[log] = kept  # at the end again, so that the order is that of use
        while len(self._kept) > self._limit:
            del self._kept[next(iter(self._kept))]
        return kept


# A conversation as one text, for a model that summarises it.

# Characters of a call's arguments that are shown: enough to see what was called with what.
ARGUMENTS_SHOWN = 500

# Characters of a tool's result that are shown: the gist; whole results are what made it too long.
RESULT_SHOWN = 2_000

BEGIN, END = "<conversation>", "</conversation>"

BETWEEN = "\n\n"

_MARK = 80  # characters that are enough to say what is left out


def transcript(messages: Iterable[Message], limit: int | None = None) -> str:
    """
    All *messages* in one text inside a ``<conversation>`` tag, calls and results shortened.

    It has at most *limit* estimated tokens, None for any number. The beginning, where the task and an earlier
    summary stand, and the end, where the work stands, are what is kept then.
    """
    shown = [(message.role, "\n".join(filter(None, map(_line, message.parts)))) for message in messages]
    blocks = [f"[{role}]\n{lines}" for role, lines in shown if lines]
    text = _framed(blocks)
    if limit is None or len(text) <= (most := max(limit, 1) * CHARACTERS_PER_TOKEN):
        return text
    return shorten_middle(_framed(_without_middle(blocks, most - len(_framed(())))), most)


def shorten_middle(text: str, limit: int) -> str:
    """The beginning and the end of *text*, in *limit* characters, with a mark that says what is missing."""
    if len(text) <= limit:
        return text
    kept = limit - len(_cut(len(text)))
    if kept <= 0:
        return text[: max(limit, 0)]
    end = kept // 2
    return text[: kept - end] + _cut(len(text) - kept) + text[len(text) - end :]


def _cut(characters: int) -> str:
    return f" [... {characters:,} characters cut ...] "


def _framed(blocks: Iterable[str]) -> str:
    return BETWEEN.join([BEGIN, *blocks, END])


def _without_middle(blocks: Sequence[str], room: int) -> list[str]:
    """
    The *blocks* of the beginning and of the end that have *room*, and a mark between them.

    No block takes more than a quarter of it, or of few blocks its share, so that one that is large does not
    take the place of all around it; but the first, which may be an earlier summary, may take a half.
    """
    room -= _MARK + len(BETWEEN)
    most = room // min(len(blocks) or 1, 4)
    limits = chain([max(most, room // 2)], repeat(most))
    short = [
        shorten_middle(block, limit - len(BETWEEN)) for block, limit in zip(blocks, limits, strict=False)
    ]
    costs = [len(block) + len(BETWEEN) for block in short]
    begin = _fitting(costs, room // 2)
    end = len(short) - _fitting(reversed(costs[begin:]), room - sum(costs[:begin]))
    missing = blocks[begin:end]
    if not missing:
        return short
    mark = f"[... {len(missing):,} messages of {sum(map(len, missing)):,} characters left out ...]"
    return [*short[:begin], mark, *short[end:]]


def _fitting(costs: Iterable[int], room: int) -> int:
    """How many of *costs*, taken one after the other, have *room*."""
    return bisect_right(list(accumulate(costs)), room)


def _line(part: Part) -> str:
    match part:
        case Text():
            return part.text
        case ToolCall():
            return f"[calls {part.name}] {shorten_middle(part.arguments, ARGUMENTS_SHOWN)}"
        case ToolResult():
            failed = f", {part.outcome}" if part.is_error else ""
            shown = f"[result of {part.name}{failed}] {shorten_middle(part.content, RESULT_SHOWN)}"
            return "\n".join([shown, *map(attachment_note, part.files)])
        case Binary():
            return attachment_note(part)
        case ProviderCall():
            return f"[the provider called {part.name}] {shorten_middle(part.arguments, ARGUMENTS_SHOWN)}"
        case Reasoning() | Citation() | Finish():
            # A summary of thinking would pass for what the model answered.
            return ""
