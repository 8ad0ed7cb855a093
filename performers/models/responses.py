"""
OpenAI's Responses, and every server that speaks them: requests out, one streamed answer in.

Theory of operation. `ResponsesWire` sends the whole conversation with each request, as a list of items, and
asks the provider to store nothing. `ResponsesParser` (`responses_stream.py`) reads an answer, which is a list
of items, too. Items that the conversation cannot express, such as encrypted reasoning, are kept as they came
(`Reasoning.opaque`). They go back to the model that made them, in the order of its answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Unpack, final

import attrs

from ...effects.config import ModelSpec, ToolSpec
from ...effects.messages import (
    Binary,
    Citation,
    Message,
    ProviderCall,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from ...effects.output import OutputMode, OutputSpec
from ...effects.requests import CallModel
from ..base import PerformContext
from . import encoding
from .encoding import BEGIN_TEXT, CONTINUE_TEXT, said_or_nothing, to_json
from .http import Endpoint, HTTPModel, HTTPOptions
from .lenient_json import Object
from .openai import AskToThink
from .providers import PROVIDERS, ServerQuirks, quirks_of, reasons, sampling_problem
from .responses_stream import AT, ResponsesParser
from .transport import Client

# The part of a model's name before its first colon, by which this wire is chosen; it is not sent.
RESPONSES_PREFIX = "openai-responses"

# What is asked for besides the answer: without it, reasoning could not be sent back to a provider that stores
# nothing.
ENCRYPTED = "reasoning.encrypted_content"

# What is sent in the place of a conversation without items, which the API refuses.
_BEGIN = to_json(encoding.as_user(BEGIN_TEXT))


@final
class OpenAIResponses(HTTPModel):
    """
    Performs `CallModel` with OpenAI's Responses, or any server that speaks them at *base_url*.

    *api_key* defaults to the environment's ``OPENAI_API_KEY``; where that is empty too, none is sent.
    *prefix* is what the names of its models begin with, and is not sent. *thinking* makes the fields that ask
    for so many tokens of thinking, in place of OpenAI's form. *client* and *options* are those of
    `HTTPModel`. *extra_headers* and *extra_body* go along with each request.
    """

    def __init__(  # noqa: PLR0913  # each is a setting of its own
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        client: Client = None,
        *,
        prefix: str = RESPONSES_PREFIX,
        thinking: AskToThink | None = None,
        extra_headers: Mapping[str, str] = encoding.NONE,
        extra_body: Mapping[str, object] = encoding.NONE,
        **options: Unpack[HTTPOptions],
    ) -> None:
        row = PROVIDERS[RESPONSES_PREFIX]
        url = row.at(base_url)
        quirks = quirks_of(RESPONSES_PREFIX, url)
        if thinking is not None:
            quirks = attrs.evolve(quirks, thinking=lambda _, tokens: thinking(tokens))
        headers = {**row.headers(row.key(api_key)), **extra_headers}
        keyless = row.lacks_key(headers, url, base_url)
        endpoint = Endpoint(base_url=url, headers=headers, login=row.login, keyless=keyless)
        super().__init__(ResponsesWire(quirks, prefix).adding(extra_body), endpoint, client, **options)


@final
class ResponsesWire(encoding.EncodingWire["_EncodedInput"]):
    """
    OpenAI's Responses, without anything that the provider stores.

    *prefix* is taken off the names of models. The encoded messages of *keep* conversations are kept.
    """

    path = "/responses"
    # Each would make the provider keep the conversation, or answer later than it is listened to.
    own_fields = encoding.OWN_FIELDS | {
        *("background", "conversation", "input", "instructions", "previous_response_id", "store"),
    }

    def __init__(
        self,
        quirks: ServerQuirks = PROVIDERS[RESPONSES_PREFIX].quirks,
        prefix: str = RESPONSES_PREFIX,
        keep: int = encoding.MAX_KEPT,
    ) -> None:
        self._quirks = quirks
        super().__init__(_EncodedInput, prefix, keep)

    def _body(
        self,
        request: CallModel,
        model: str,
        scene: PerformContext,
        shown: _EncodedInput,
        mark: _InputMark,
    ) -> bytes:
        system = encoding.system_text(request)
        head = [b'{"model":', to_json(model)]
        head += [b',"instructions":', to_json(system)] if system else []
        tail = [
            *encoding.tool_fields(request, scene.config, _tool, _chosen),
            b",",
            to_json(self._options(request, model, scene))[1:-1],
        ]
        end = b',"store":false,"stream":true,"stream_options":{"include_obfuscation":false}}'
        with memoryview(shown.buffer) as buffer, buffer[mark.begin : mark.end] as items:
            go_on = b"," + to_json(encoding.as_user(CONTINUE_TEXT)) if mark.spoke else b""
            return b"".join([*head, b',"input":[', items if mark.end else _BEGIN, go_on, b"]", *tail, end])

    def _options(self, request: CallModel, model: str, scene: PerformContext) -> dict[str, Any]:
        config = scene.config
        spec, thinks = config.spec(request.model), reasons(model)
        options: dict[str, Any] = {
            "include": [ENCRYPTED],
            "max_output_tokens": request.max_output or spec.max_output,
            "temperature": None if thinks else spec.temperature,
            "top_p": None if thinks else spec.top_p,
        }
        if self._quirks.session:
            options[self._quirks.session] = encoding.told_session(scene)
        if request.thinking is not None:
            options |= self._thinking(self._quirks.thinking, model, request.thinking)
        if config.stop:
            self._warn("stop sequences are not sent: Responses have none", model, stop=[*config.stop])
        options = self._with_extras(options, spec, scene)
        if config.output is not None and request.output is OutputMode.NATIVE:
            # Beside what the host says of the text itself, such as `verbosity`.
            options["text"] = {**(options.get("text") or {}), "format": _format(config.output)}
        if isinstance(more := options["include"], list) and ENCRYPTED not in more:
            options["include"] = [ENCRYPTED, *more]
        return {name: value for name, value in options.items() if value is not None}

    def _unsendable(self, spec: ModelSpec, model: str) -> str:
        if spec.seed is not None:
            return "OpenAI's Responses have no seed; leave it out"
        return sampling_problem(spec, model)

    def parser(self, scene: PerformContext) -> ResponsesParser:  # noqa: ARG002  # parsers of other wires need it
        """A new parser for one answer."""
        return ResponsesParser()


@final
@attrs.frozen
class _InputMark(encoding.BufferMark):
    """
    Where a message ends, and where what the model needs of the conversation *begin*s.

    That is at the latest item of a compaction, which stands for all that came before it. *spoke*: the last
    items are the model's.
    """

    begin: int = 0
    spoke: bool = False


@final
class _EncodedInput(encoding.EncodedConversation[_InputMark]):
    """The messages of one log as items in JSON, joined by commas."""

    def __init__(self, model: str) -> None:
        super().__init__(_InputMark(), model)

    def add(self, message: Message) -> None:
        """Encode *message*, which may be none, one or several items."""
        begin, calling = self.place.begin, False
        items, speaks = self._items(message), message.role is Role.ASSISTANT
        if items and speaks and self.place.spoke:
            items = [encoding.as_user(CONTINUE_TEXT), *items]
        for item in items:
            calling = calling or item.get("type") == "function_call"
            if item.get("type") == "compaction" and not calling:  # else a result would have no call
                begin = len(self.buffer) + bool(self.buffer)
            encoded = to_json(item)
            self.buffer += b"," + encoded if self.buffer else encoded
        self.place = _InputMark(len(self.buffer), begin, spoke=speaks if items else self.place.spoke)

    def _items(self, message: Message) -> list[Object]:
        if message.role is Role.ASSISTANT:
            return self._answer(message)
        if message.role is Role.TOOL:
            return [self._result(result) for result in message.results]
        return [{"role": message.role.value, "content": encoding.content_of(message, _input_text, _attached)}]

    def _result(self, result: ToolResult) -> Object:
        text = said_or_nothing(result.content)
        output = [_input_text(text), *map(_attached, result.files)] if result.files else text
        return {"type": "function_call_output", "call_id": self.id_of_result(result), "output": output}

    def _answer(self, message: Message) -> list[Object]:
        """The items of *message*, in the order in which the model began them, where that is known."""
        placed: list[_Placed] = []
        message_item: _Placed | None = None  # the message so far, whose own fields come behind it
        at, said = -1, 0
        for before, part in pairwise((None, *message.parts)):
            match part:
                case Text() | Binary():
                    text = part.text if isinstance(part, Text) else encoding.attachment_note(part)
                    if message_item is None:
                        message_item = _Placed(at, {"role": "assistant", "content": ""})
                        placed.append(message_item)
                    # Behind a citation the same text goes on.
                    message_item.say(text, said, begins=isinstance(before, Text))
                    said += len(text) if isinstance(part, Text) else 0
                case Citation():
                    if message_item is not None and (sent := self.opaque_of(part)):
                        message_item.cite(part, sent)
                case ToolCall():
                    own = self._own(part)
                    at = own.at if own.item.get("type") == "function_call" else at
                    placed.append(_Placed(at, self._call(part, own)))
                case Reasoning() | ProviderCall():
                    own = self._own(part)
                    if own.item.get("type") != "message":
                        at = own.at
                        placed.append(own)
                    elif message_item is not None:
                        message_item.complete(own)
                        message_item = None
                case _:
                    pass
        placed.sort(key=lambda each: each.at)
        return _sendable([each.item for each in placed if each.item])

    def _own(self, part: Reasoning | ToolCall | ProviderCall) -> _Placed:
        """The item that *part* was, with its place among the others; an empty one where it is not ours."""
        item = self.opaque_of(part)
        at = item.pop(AT, None)
        return _Placed(at, item) if isinstance(at, int) else _Placed(-1, {})

    def _call(self, call: ToolCall, own: _Placed) -> Object:
        return own.item | {
            "type": "function_call",
            "call_id": self.id_of_call(call),
            "name": encoding.tool_name(call.name),
            "arguments": encoding.arguments_of(call),
        }


@final
@attrs.define(eq=False)
class _Placed:
    """
    An item of an answer, *at* its place among the others.

    A message has *texts*, the last of which *begin*s there in the text of the answer.
    """

    at: int
    item: Object
    begin: int = 0
    texts: list[Object] = attrs.Factory(list)

    def say(self, text: str, at: int, *, begins: bool) -> None:
        """Add *text* to the message, which *begins* another one, or goes on *at* a place of the answer."""
        self.item["content"] += text
        if begins or not self.texts:
            self.begin = at
            self.texts.append({"type": "output_text", "text": "", "annotations": []})
        self.texts[-1]["text"] += text

    def cite(self, source: Citation, sent: Object) -> None:
        """Add the annotation of *source*, which was *sent*, to the last text."""
        if "start_index" in sent:
            sent |= {"start_index": source.start - self.begin, "end_index": source.end - self.begin}
        self.texts[-1]["annotations"].append(sent)

    def complete(self, own: _Placed) -> None:
        """Make this the message that *own* has the fields of, without blank texts, which are refused."""
        texts = [text for text in self.texts if text["text"].strip()]
        self.at, self.item = own.at, {"role": "assistant", "content": texts, **own.item}


def _sendable(items: list[Object]) -> list[Object]:
    """*items* without those that are refused: a blank message, and reasoning that nothing follows."""
    kept = [item for item in items if item.get("role") != "assistant" or _text_of(item).strip()]
    # An answer that was cut ends so, or one whose calls were left out.
    while kept and kept[-1].get("type") == "reasoning":
        kept.pop()
    return kept


def _text_of(item: Object) -> str:
    content: str | list[Object] = item["content"]
    return content if isinstance(content, str) else "".join([part["text"] for part in content])


def _input_text(text: str) -> Object:
    return {"type": "input_text", "text": text}


def _attached(part: Binary) -> Object:
    """The part that *part* is: text as text, sounds by their names, and what else has none as a file."""
    kind = encoding.media_type(part)
    if (text := encoding.text_of_file(part)) is not None:
        return _input_text(text)
    if kind.startswith("image/"):
        return {"type": "input_image", "image_url": encoding.data_url(part), "detail": "auto"}
    if kind.startswith(("audio/", "video/")):
        return _input_text(encoding.attachment_note(part))
    name = part.name or "attachment"
    return {"type": "input_file", "filename": name, "file_data": encoding.data_url(part)}


def _format(output: OutputSpec) -> Object:
    schema = json.loads(output.strict_schema)
    return {"type": "json_schema", "name": output.name, "schema": schema, "strict": True}


def _chosen(name: str) -> Object:
    return {"type": "function", "name": name}


def _tool(tool: ToolSpec) -> bytes:
    # Unless it is told otherwise, this API makes schemas strict, which few are.
    parts = to_json(tool.name), to_json(tool.description), tool.schema.encode("utf-8", "replace")
    return b'{"type":"function","name":%b,"description":%b,"parameters":%b,"strict":false}' % parts
