"""
OpenAI's chat completions, and every server that speaks them: requests out, one streamed answer in.

Theory of operation. `ChatWire` makes a request's body of messages that were encoded before. `ChatParser`
reads an answer: chunks with a choice each, and a choice has a delta of text, thinking or calls. The stream is
judged at its end: by its finish reason, by ``[DONE]``, or by an error in its middle.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Unpack, final

import attrs

from ...effects.config import ModelSpec, ToolSpec
from ...effects.errors import ConfigError
from ...effects.history import Piece, ReasoningPiece, TextPiece
from ...effects.messages import Binary, Citation, Message, Reasoning, Role, StopReason, ToolCall
from ...effects.output import OutputMode, OutputSpec
from ...effects.requests import CallModel
from ...effects.usage import Usage
from ...effects.validators import clean
from ..base import PerformContext
from . import encoding
from .body import STOPS, WHOLE_ENDS, BodyParser
from .call_assembler import CallAssembler, signature_of
from .encoding import CONTINUE_TEXT, MAX_KEPT, plain_text, said_or_nothing, text_part, to_json
from .errors import stream_error
from .http import Endpoint, HTTPModel, HTTPOptions
from .lenient_json import (
    Object,
    as_object,
    first_text,
    number,
    objects,
    shorten_label,
)
from .provider_tools import annotation
from .providers import (
    UNKNOWN_SERVER,
    ServerQuirks,
    chat_provider,
    host_of,
    quirks_of,
    reasons,
    sampling_problem,
)
from .transport import Client
from .wire import Broken, cut_short

# What stands before the first colon of a model's name to choose this wire; it is not sent.
OPENAI_PREFIX = "openai"

# What a model is made to say where a server lets no user speak right behind a tool.
BRIDGE = "OK."

# The sounds that have a part of their own, and what the API calls them.
AUDIO = {f"audio/{kind}": "wav" for kind in ("wav", "wave", "x-wav")} | {
    "audio/mp3": "mp3",
    "audio/mpeg": "mp3",
}


# Makes the fields of a body that ask for so many tokens of thinking.
AskToThink = Callable[[int], Mapping[str, object]]


@final
class OpenAIChat(HTTPModel):
    """
    Performs `CallModel` with OpenAI's chat completions, or any server that speaks them at *base_url*.

    *prefix* is what the names of its models begin with, and is not sent. It chooses the row of `PROVIDERS`:
    its address, its key in the environment and its differences; another prefix is asked as ``openai`` is.
    Where *api_key* and the environment have none, no key is sent.

    *thinking* makes the fields that ask for so many tokens of thinking, in place of the provider's form.
    *betas* are features of Anthropic's that a proxy is asked for. *extra_headers* and *extra_body* go along
    with each request. *client* and *options* are those of `HTTPModel`.
    """

    def __init__(  # noqa: PLR0913  # each is a setting of its own
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        client: Client = None,
        *,
        prefix: str = OPENAI_PREFIX,
        thinking: AskToThink | None = None,
        betas: Sequence[str] = (),
        extra_headers: Mapping[str, str] = encoding.NONE,
        extra_body: Mapping[str, object] = encoding.NONE,
        **options: Unpack[HTTPOptions],
    ) -> None:
        row = chat_provider(prefix)
        url = row.at(base_url)
        headers, quirks = row.headers(row.key(api_key)), quirks_of(prefix, url)
        if thinking is not None:
            quirks = attrs.evolve(quirks, thinking=lambda _, tokens: thinking(tokens))
        if betas and not quirks.betas:
            msg = f"betas: {host_of(url)} has none; leave them out, or say it in extra_headers or extra_body"
            raise ConfigError(msg)
        headers |= {**({quirks.betas: ",".join(betas)} if betas else {}), **extra_headers}
        keyless = row.lacks_key(headers, url, base_url)
        endpoint = Endpoint(base_url=url, headers=headers, login=row.login, keyless=keyless)
        super().__init__(ChatWire(quirks, prefix).adding(extra_body), endpoint, client, **options)


# A request: its body out of what was already encoded.


@final
class ChatWire(encoding.EncodingWire["_EncodedChat"]):
    """
    OpenAI's chat completions, as two dozen servers speak it, each with its own *quirks*.

    *prefix* is taken off the names of models. The encoded messages of *keep* conversations are kept.
    """

    path = "/chat/completions"

    def __init__(
        self, quirks: ServerQuirks = UNKNOWN_SERVER, prefix: str = OPENAI_PREFIX, keep: int = MAX_KEPT
    ) -> None:
        self._quirks = quirks
        super().__init__(partial(_EncodedChat, quirks), prefix, keep)

    def _body(
        self, request: CallModel, model: str, scene: PerformContext, shown: _EncodedChat, mark: _ChatMark
    ) -> bytes:
        system = encoding.system_text(request)
        head = [b'{"model":', to_json(model), b',"messages":[']
        if system:
            head += [to_json({"role": "system", "content": system}), b"," if mark.end else b""]
        tail = [
            b"," + to_json(encoding.as_user(CONTINUE_TEXT)) if mark.role == "assistant" else b"",
            b"]",
            *encoding.tool_fields(request, scene.config, _tool, _chosen),
            *self._options(request, model, scene),
        ]
        end = b',"stream":true,"stream_options":{"include_usage":true}}'
        if not self._quirks.stream_options:
            end = b',"stream":true}'
        # A view and not a slice: the buffer holds the whole conversation, and cannot grow until it is
        # released.
        with memoryview(shown.buffer) as buffer, buffer[: mark.end] as messages:
            return b"".join([*head, messages, *tail, end])

    def _options(self, request: CallModel, model: str, scene: PerformContext) -> list[bytes]:
        config = scene.config
        spec, thinks = config.spec(request.model), reasons(model)
        options: Object = {
            # Reasoning models refuse the old name; most other servers know no other.
            "max_completion_tokens" if thinks else "max_tokens": request.max_output or spec.max_output,
            "temperature": None if thinks else spec.temperature,
            "top_p": None if thinks else spec.top_p,
            self._quirks.seed: spec.seed,
            "stop": config.stop or None,
        }
        if self._quirks.session:
            options[self._quirks.session] = encoding.told_session(scene)
        if config.output is not None and request.output is OutputMode.NATIVE:
            options["response_format"] = _response_format(config.output)
        if request.thinking is not None:
            options |= self._thinking(self._quirks.thinking, model, request.thinking)
        options = self._with_extras(options, spec, scene)
        given = {name: value for name, value in options.items() if value is not None}
        return [b",", to_json(given)[1:-1]] if given else []

    def _unsendable(self, spec: ModelSpec, model: str) -> str:
        return sampling_problem(spec, model)

    def parser(self, scene: PerformContext) -> ChatParser:
        """A new parser for one answer."""
        return ChatParser(scene.config.stop)


@final
@attrs.frozen
class _ChatMark(encoding.BufferMark):
    """Where a message ends, and the *role* of the last one on the wire."""

    role: str = ""


@final
class _EncodedChat(encoding.EncodedConversation[_ChatMark]):
    """The messages of one log as JSON, joined by commas."""

    def __init__(self, quirks: ServerQuirks, model: str) -> None:
        super().__init__(_ChatMark(), model, quirks.call_id)
        self._quirks = quirks

    def add(self, message: Message) -> None:
        """Encode *message*, which may be none, one or several on the wire."""
        if message.role is Role.ASSISTANT:
            self._answer(message)
        elif message.role is Role.TOOL:
            self._results(message)
        else:
            self._add(
                {"role": message.role.value, "content": encoding.content_of(message, text_part, _attached)}
            )

    def _add(self, value: dict[str, Any]) -> None:
        role: str = value["role"]
        if self.place.role == role == "assistant":
            self._add(encoding.as_user(CONTINUE_TEXT))
        # Mistral refuses a user right behind a tool, which is where a steer stands and where files of
        # results go.
        if self._quirks.bridged and (self.place.role, role) == ("tool", "user"):
            self._add({"role": "assistant", "content": BRIDGE})
        encoded = to_json(value)
        self.buffer += b"," + encoded if self.buffer else encoded
        self.place = _ChatMark(len(self.buffer), role)

    def _results(self, message: Message) -> None:
        files: list[dict[str, Any]] = []  # in a user's message of their own: a tool's is text only
        for result in message.results:
            wire_id, content = self.id_of_result(result), said_or_nothing(result.content)
            self._add({"role": "tool", "tool_call_id": wire_id, "content": content})
            if result.files:
                files += [text_part(f"Files of {result.name}:"), *map(_attached, result.files)]
        if files:
            self._add({"role": "user", "content": files})

    def _answer(self, message: Message) -> None:
        calls, text = [self._call(call) for call in message.calls], plain_text(message)
        if not calls and not text.strip():
            return  # an empty message is refused, and says nothing
        value: dict[str, Any] = {"role": "assistant", "content": text if text.strip() else None}
        if calls:
            value["tool_calls"] = calls
        self._add(value | self._thinking(message, calling=bool(calls)))

    def _call(self, call: ToolCall) -> dict[str, Any]:
        function = {"name": encoding.tool_name(call.name), "arguments": encoding.arguments_of(call)}
        return self.opaque_of(call) | {"id": self.id_of_call(call), "type": "function", "function": function}

    def _thinking(self, message: Message, *, calling: bool) -> dict[str, Any]:
        thoughts = [part for part in message.parts if isinstance(part, Reasoning)]
        proven = [thought for thought in thoughts if thought.signature or thought.redacted]
        field = self._quirks.thoughts
        # Without a signature, it matters in the turns that call tools only; elsewhere it would be paid for
        # again.
        value: object = "".join([thought.text for thought in thoughts]) if calling else ""
        if field == "reasoning_details":
            value = [
                {"type": "reasoning.text", "text": thought.text}
                | ({"signature": thought.signature} if thought.signature else {})
                for thought in (thoughts if calling else proven)
                if thought.text or thought.signature
            ]
        # A proxy of Anthropic's (LiteLLM) needs signed thinking back as it came, or its upstream refuses the
        # call.
        elif field == "reasoning_content" and proven:
            field, value = "thinking_blocks", [encoding.thinking_part(thought) for thought in proven]
        said: dict[str, Any] = {field: value} if field and value else {}
        ids = {call.wire_id: self.id_of_call(call) for call in message.calls}
        for opaque in map(self.opaque_of, thoughts):
            for detail in objects(opaque.pop("reasoning_details", None)):
                # It may name the call that it belongs to, which may have another id here.
                named = {"id": wire_id} if (wire_id := ids.get(first_text(detail, "id"))) else {}
                said.setdefault("reasoning_details", []).append(detail | named)
            said |= opaque
        return said


def _attached(part: Binary) -> dict[str, Any]:
    """The part that *part* is: text as text, and what else has no part of its own as a file."""
    kind = encoding.media_type(part)
    if (text := encoding.text_of_file(part)) is not None:
        return text_part(text)
    if kind in AUDIO:
        return {
            "type": "input_audio",
            "input_audio": {"data": encoding.in_base64(part), "format": AUDIO[kind]},
        }
    url = encoding.data_url(part)
    if kind.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": part.name or "attachment", "file_data": url}}


def _chosen(name: str) -> Object:
    return {"type": "function", "function": {"name": name}}


def _response_format(output: OutputSpec) -> object:
    schema = json.loads(output.strict_schema)
    return {"type": "json_schema", "json_schema": {"name": output.name, "schema": schema, "strict": True}}


def _tool(tool: ToolSpec) -> bytes:
    parts = to_json(tool.name), to_json(tool.description), tool.schema.encode("utf-8", "replace")
    return b'{"type":"function","function":{"name":%b,"description":%b,"parameters":%b}}' % parts


# An answer: pieces and an ending out of bytes.

# What a `finish_reason` means, in lower case; all others are `UNKNOWN`. None is a reliable sign of calls.
FINISHES: dict[str, StopReason] = {
    **STOPS,
    "stop": StopReason.END_TURN,
    "eos": StopReason.END_TURN,
    "tool_calls": StopReason.TOOL_USE,
    "function_call": StopReason.TOOL_USE,
    "length": StopReason.MAX_TOKENS,
    "model_length": StopReason.MAX_TOKENS,
    "content_filter": StopReason.REFUSAL,
}


@final
class ChatParser(BodyParser):
    """Reads one answer. *stops* are the stop sequences that were asked for. No bytes make it raise."""

    last = "a finish reason or [DONE]"

    def __init__(self, stops: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._stops = stops
        self._calls = CallAssembler()
        self._refused = False
        self._finish = ""
        self._cited: set[Citation] = set()
        self._usage: Object | None = None

    @property
    def usage(self) -> Usage | None:
        """The usage that the answer reported so far, or None."""
        return None if self._usage is None else usage_of(self._usage)

    def _rest(self) -> list[Piece]:
        return self._calls.rest()

    def _stop(self) -> StopReason | Broken | None:
        # An answer that has its finish reason is whole, whatever happened to the connection afterwards:
        # several servers drop it without [DONE].
        if not self._finish and not (self.done and self._answered):
            return None
        # OpenRouter ends an answer so when its upstream failed in the middle.
        if self._finish == "error":
            return cut_short("the provider ended the answer with an error")
        # A call would run without the arguments that were meant for it.
        if self._calls.torn:
            return cut_short("arguments came without the name of their call")
        if self._refused:
            return StopReason.REFUSAL
        if self._sequence:
            return StopReason.STOP_SEQUENCE
        return FINISHES.get(self._finish, StopReason.UNKNOWN)

    def _chunk(self, chunk: Object, pieces: list[Piece]) -> None:
        if chunk.get("error") or chunk.get("object") == "error":
            self._count(chunk)
            self._fail(stream_error(chunk))
            return
        if not self._response and "id" in chunk:
            self._introduce(chunk)
        choices = chunk.get("choices") or ()
        # By their classes, here and below, and not by `objects`: each chunk and each bit of a call pays for
        # it.
        for choice in choices if choices.__class__ is list else ():
            # One answer is asked for. Some proxies send several all the same, and their texts must not mix.
            if choice.__class__ is dict and not choice.get("index"):
                self._choice(choice, pieces)
        # Asked for by `in`, which is no call: what is rare must cost nothing in every delta.
        if "usage" in chunk:
            self._count(chunk)
        if "x_groq" in chunk:
            self._count(as_object(chunk["x_groq"]))

    def _choice(self, choice: Object, pieces: list[Piece]) -> None:
        delta: Any = choice.get("delta") or choice.get("message")
        if delta.__class__ is dict:
            self._answered = True
            self._delta(delta, pieces)
        if finish := choice.get("finish_reason"):
            self._finish = finish.lower() if isinstance(finish, str) else type(finish).__name__
            self._ended = FINISHES.get(self._finish) in WHOLE_ENDS
            pieces += self._rest()
            # vLLM and SGLang name the stop sequence that was met; OpenAI does not.
            met = choice.get("stop_reason") or choice.get("matched_stop")
            if isinstance(met, str) and (met in self._stops or self._finish == "stop_sequence"):
                self._sequence = met if met in self._stops else clean(shorten_label(met))
        if "usage" in choice:
            self._count(choice)

    def _delta(self, delta: Object, pieces: list[Piece]) -> None:
        content = delta.get("content")
        # Nearly every chunk is this one, so it is looked at with as few calls as can be.
        if content.__class__ is str and len(delta) == 1:
            if content:
                pieces.append(TextPiece(content))
            return
        if not THOUGHTS.isdisjoint(delta):
            pieces += reasoning_pieces(delta)
        if content:
            pieces += content_pieces(content)
        refusal = delta.get("refusal")
        if refusal and isinstance(refusal, str):
            self._refused = True
            pieces.append(TextPiece(refusal))
        if "tool_calls" in delta or "function_call" in delta:
            pieces += self._calls.read(delta)
        if "annotations" in delta:
            pieces += self._sources(objects(delta["annotations"]))
        if "extra_content" in delta and (signed := signature_of(delta)):
            pieces.append(ReasoningPiece(opaque=signed))

    def _sources(self, annotations: Iterable[Object]) -> Iterator[Citation]:
        for source in map(annotation, annotations):
            # Some servers list all of them again with each delta.
            if (source.url or source.title) and source not in self._cited:
                self._cited.add(source)
                yield source

    def _count(self, holder: Object) -> None:
        # Each is the total so far, so the last one counts.
        if usage := holder.get("usage"):
            self._usage = as_object(usage) or self._usage


# The fields that thinking comes in.
THOUGHTS = frozenset({"reasoning_content", "reasoning", "thinking_blocks", "reasoning_details"})


def reasoning_pieces(delta: Object) -> list[ReasoningPiece]:
    """
    The thinking in *delta*, once, though some servers say it two or three times over.

    ``reasoning_content`` (DeepSeek, LiteLLM, vLLM) or ``reasoning`` (OpenRouter, Groq, Ollama) is the text;
    ``thinking_blocks`` (LiteLLM) and ``reasoning_details`` (OpenRouter) repeat it and bring the signatures.
    """
    text = first_text(delta, "reasoning_content", "reasoning")
    pieces = [
        _thought(block) for block in objects(delta.get("thinking_blocks") or delta.get("reasoning_details"))
    ]
    # A block that repeats the text adds its signature: both together would say it twice.
    if text and not any(piece.text for piece in pieces):
        pieces.insert(0, ReasoningPiece(text))
    return [piece for piece in pieces if piece != ReasoningPiece()]


def _thought(block: Object) -> ReasoningPiece:
    if block.get("type") == "redacted_thinking":
        return ReasoningPiece(redacted=first_text(block, "data"))
    if block.get("type") == "reasoning.encrypted":
        return ReasoningPiece(opaque=to_json({"reasoning_details": [block]}).decode())
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


def usage_of(sent: Object) -> Usage:
    """The usage that was *sent*, in our words; a count that is missing or no number is 0."""
    prompt = as_object(sent.get("prompt_tokens_details") or sent.get("input_tokens_details"))
    completion = as_object(sent.get("completion_tokens_details") or sent.get("output_tokens_details"))
    total_input = number(sent, "prompt_tokens", "input_tokens")
    output = number(sent, "completion_tokens", "output_tokens")
    reasoning = number(completion, "reasoning_tokens")
    if reasoning and number(sent, "total_tokens") == total_input + output + reasoning:
        # xAI counts the thinking beside the output, and its total is the only thing that shows it.
        output += reasoning
    cached = number(prompt, "cached_tokens") or number(sent, "prompt_cache_hit_tokens")
    written = number(prompt, "cache_write_tokens", "cache_creation_tokens")
    written = written or number(sent, "cache_creation_input_tokens")
    return Usage(input=total_input, output=output, cached=cached, cache_write=written, reasoning=reasoning)
