"""
The rules that real providers enforce, for tests of a wire: an encoder's requests, a parser's reading.

`chat_faults`, `responses_faults` and `messages_faults` list what OpenAI's chat completions and Responses and
Anthropic's messages refuse in a request, by their references and error messages. They know nothing of
turnwheel's encoders, so they hold for any encoder. `reading_faults` is for parsers of any dialect.
"""

from __future__ import annotations

import base64
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..effects.history import Piece, TextPiece, merged
from ..performers.models.lenient_json import Object, as_object, objects
from ..performers.models.provider_tools import RESULT_BLOCK, SERVER_CALLS
from ..performers.models.wire import AnswerEnd, Complete, Parser

# The id of a call at OpenAI; behind a proxy (LiteLLM), a model's thought may follow.
CHAT_ID = re.compile(r"\S{1,40}(__thought__\S+)?")

# The id of a call at Mistral.
MISTRAL_ID = re.compile(r"[a-zA-Z0-9]{9}")

# The id of a call at Anthropic, and behind the same proxy.
MESSAGES_ID = re.compile(r"[a-zA-Z0-9_-]+(__thought__\S+)?")

# The name of a tool; Anthropic accepts longer ones, too.
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

DATA_URL = re.compile(r"data:[\w.+-]+/[\w.+-]+;base64,(.+)", re.DOTALL)

# The images that Anthropic accepts.
IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})

# The types of thinking blocks at Anthropic.
THINKING = frozenset({"thinking", "redacted_thinking"})

# The least thinking tokens that a request to Anthropic may ask for.
LEAST_THINKING = 1_024

# The most cache markers in one request to Anthropic.
MARKERS = 4

# Characters of a value that a fault shows.
MAX_SHOWN = 200

# Random splits that a body is read at.
SPLITS = 20


# OpenAI's chat completions


def chat_faults(body: bytes, call_id: re.Pattern[str] = CHAT_ID) -> list[str]:
    """
    What a server of chat completions refuses in the request *body*; empty if it accepts it.

    *call_id* is what the ids of calls look like there.
    """
    request, faults = _decoded(body)
    messages = objects(request.get("messages"))
    faults += _common(request, messages)
    faults += _chat_order(messages)
    faults += [f"message {n}: {fault}" for n, one in enumerate(messages) for fault in _chat_message(one)]
    ids = [str(call.get("id")) for message in messages for call in objects(message.get("tool_calls"))]
    faults += _ids(ids, call_id)
    own = [tool for tool in objects(request.get("tools")) if tool.get("type", "function") == "function"]
    faults += _names(as_object(tool.get("function")).get("name") for tool in own)
    if {"max_tokens", "max_completion_tokens"} <= request.keys():
        faults.append("both max_tokens and max_completion_tokens")
    return faults


def _chat_order(messages: Sequence[Object]) -> Iterator[str]:
    """The system prompt comes first, and results stand right behind their calls."""
    waiting: list[object] = []
    for number, message in enumerate(messages):
        role = message.get("role")
        if role == "system" and number:
            yield f"message {number} is the system's and not the first"
        if role == "tool":
            if message.get("tool_call_id") not in waiting:
                yield f"message {number} answers {message.get('tool_call_id')!r}; open are {waiting}"
            else:
                waiting.remove(message.get("tool_call_id"))
            continue
        if waiting:
            yield f"message {number} comes before the results of {waiting}"
        waiting = [call.get("id") for call in objects(message.get("tool_calls"))]
    if waiting:
        yield f"the calls {waiting} have no results"
    if messages and messages[-1].get("role") == "assistant":
        yield "the last message is the assistant's"


def _chat_message(message: Object) -> Iterator[str]:
    role, content, calls = message.get("role"), message.get("content"), message.get("tool_calls")
    if role not in {"system", "user", "assistant", "tool"}:
        yield f"the role is {role!r}"
    elif role == "user" and isinstance(content, list):
        if not content:
            yield "its content is an empty list"
        yield from (f"the part {_shown(part)}" for part in objects(content) if not _is_part(part))
    elif not _says(content) and not (role == "assistant" and content is None and calls):
        yield f"its content is {content!r}"
    if role == "assistant":
        if calls is not None and not objects(calls):
            yield f"its calls are {calls!r}"
        for call in objects(calls):
            yield from _chat_call(call)


def _chat_call(call: Object) -> Iterator[str]:
    function = as_object(call.get("function"))
    if call.get("type") != "function":
        yield f"a call of type {call.get('type')!r}"
    yield from _names([function.get("name")], once=False)
    if not _is_object_text(function.get("arguments")):
        yield f"the arguments {function.get('arguments')!r} are no JSON object"


def _is_part(part: Object) -> bool:
    match part:
        case {"type": "text", "text": text}:
            return _says(text)
        case {"type": "image_url", "image_url": {"url": url}}:
            return _is_data_url(url, "data:image/")
        case {"type": "file", "file": {"file_data": data, "filename": name}}:
            return _is_data_url(data) and _says(name)
        case {"type": "input_audio", "input_audio": {"data": data, "format": "wav" | "mp3"}}:
            return _is_base64(data)
        case _:
            return False


# OpenAI's Responses

# The fields of a conversation that the provider stores.
STORED = ("background", "conversation", "previous_response_id")


def responses_faults(body: bytes) -> list[str]:
    """The faults of the request *body* for a server of Responses, which is to store nothing of it."""
    request, faults = _decoded(body)
    items = objects(request.get("input"))
    faults += _common(request, items, "input")
    if request.get("store") is not False:
        faults.append("it is stored")
    faults += [f"it has {name}" for name in STORED if name in request]
    if not _says(request.get("instructions", "-")):
        faults.append(f"the instructions are {request.get('instructions')!r}")
    faults += _responses_order(items)
    faults += [f"item {n}: {fault}" for n, one in enumerate(items) for fault in _responses_item(one)]
    ids = [str(item.get("call_id")) for item in items if item.get("type") == "function_call"]
    faults += _ids(ids, CHAT_ID)
    own = [tool for tool in objects(request.get("tools")) if tool.get("type", "function") == "function"]
    faults += _names(tool.get("name") for tool in own)
    return faults


def _responses_order(items: Sequence[Object]) -> Iterator[str]:
    """Each call has one result, somewhere behind it, and reasoning has something of its answer behind it."""
    waiting: list[object] = []
    for number, item in enumerate(items):
        if item.get("type") == "function_call":
            waiting.append(item.get("call_id"))
        if item.get("type") == "function_call_output":
            if item.get("call_id") not in waiting:
                yield f"item {number} answers {item.get('call_id')!r}; open are {waiting}"
            else:
                waiting.remove(item.get("call_id"))
        after = items[number + 1] if number + 1 < len(items) else {}
        if item.get("type") == "reasoning" and (not after or _is_input(after)):
            yield f"item {number} is reasoning that nothing follows"
    if waiting:
        yield f"the calls {waiting} have no results"
    if items and not _is_input(items[-1]):
        yield "the last item is the model's"


def _is_input(item: Object) -> bool:
    return item.get("role") in {"user", "system"} or item.get("type") == "function_call_output"


def _responses_item(item: Object) -> Iterator[str]:
    kind = item.get("type")
    if kind == "function_call":
        yield from _names([item.get("name")], once=False)
        if not _is_object_text(item.get("arguments")):
            yield f"the arguments {item.get('arguments')!r} are no JSON object"
    elif kind == "function_call_output":
        yield from _input_content(item.get("output"))
    elif kind == "reasoning":
        if not (item.get("id") and (item.get("encrypted_content") or item.get("content"))):
            yield "it is reasoning without encrypted content"
    elif item.get("role") in {"user", "system"}:
        yield from _input_content(item.get("content"))
    elif item.get("role") == "assistant":
        content = item.get("content")
        parts = [content] if isinstance(content, str) else [_output_text(part) for part in objects(content)]
        if not parts or not all(map(_says, parts)):
            yield f"its content is {_shown(content)}"
    elif not kind or "role" in item:  # others are what the provider did itself, as it came
        yield f"it is {_shown(item)}"


def _output_text(part: Object) -> object:
    return part.get("text") if part.get("type") == "output_text" else None


def _input_content(content: object) -> Iterator[str]:
    if isinstance(content, list) and content:
        yield from (f"the part {_shown(part)}" for part in objects(content) if not _is_input_part(part))
    elif not _says(content):
        yield f"its content is {content!r}"


def _is_input_part(part: Object) -> bool:
    match part:
        case {"type": "input_text", "text": text}:
            return _says(text)
        case {"type": "input_image", "image_url": url, "detail": str()}:
            return _is_data_url(url, "data:image/")
        case {"type": "input_file", "file_data": data, "filename": name}:
            return _is_data_url(data) and _says(name)
        case _:
            return False


# Anthropic's messages


def messages_faults(body: bytes) -> list[str]:
    """What Anthropic's messages API refuses in the request *body*; empty if it accepts it."""
    request, faults = _decoded(body)
    messages = objects(request.get("messages"))
    faults += _common(request, messages)
    faults += _messages_settings(request)
    faults += _messages_order(messages)
    for number, message in enumerate(messages):
        goes_on = message is messages[-1] and message.get("role") == "assistant"
        faults += [f"message {number}: {fault}" for fault in _messages_message(message, goes_on=goes_on)]
    uses = [block for message in messages for block in _blocks(message) if block.get("type") == "tool_use"]
    faults += _ids([str(use.get("id")) for use in uses], MESSAGES_ID)
    # A provider's toolset may have no name.
    own = [tool for tool in objects(request.get("tools")) if "name" in tool or "type" not in tool]
    faults += _names(tool.get("name") for tool in own)
    if (found := body.count(b'"cache_control":{')) > MARKERS:
        faults.append(f"{found} cache markers")
    return faults


def _messages_settings(request: Object) -> Iterator[str]:
    limit, system = request.get("max_tokens"), request.get("system")
    if not isinstance(limit, int) or limit < 1:
        yield f"max_tokens is {limit!r}"
    blocks = [{"text": system}] if isinstance(system, str) else objects(system)
    if system is not None and not (blocks and all(_says(block.get("text")) for block in blocks)):
        yield f"the system prompt is {_shown(system)}"
    thinking = as_object(request.get("thinking"))
    if thinking.get("type") == "enabled":
        if not _has_thought(objects(request.get("messages"))):
            yield "thinking, and the last calls come without any"
        budget = thinking.get("budget_tokens")
        if not isinstance(budget, int) or not isinstance(limit, int) or not LEAST_THINKING <= budget < limit:
            yield f"{budget!r} tokens of thinking in {limit!r} of output"
        if request.get("temperature", 1) != 1:
            yield f"thinking with a temperature of {request.get('temperature')!r}"


def _has_thought(messages: Sequence[Object]) -> bool:
    """Whether thinking stands before the first of the calls that the model continues from."""
    calling = False
    for message in reversed(messages):
        kinds = [block.get("type") for block in _blocks(message)]
        if message.get("role") == "user" and "tool_result" not in kinds:
            break
        if THINKING.intersection(kinds[:1]):
            return True
        calling = True
    return not calling


def _messages_order(messages: Sequence[Object]) -> Iterator[str]:
    """
    User and assistant take turns, and results stand first behind their calls.

    The user is last, or an assistant that the provider paused in the middle of work with its own tools.
    """
    waiting: list[object] = []
    for number, message in enumerate(messages):
        expected = "assistant" if number % 2 else "user"
        if message.get("role") != expected:
            yield f"message {number} is not the {expected}'s but {message.get('role')!r}"
        blocks = _blocks(message)
        answered = [block.get("tool_use_id") for block in blocks if block.get("type") == "tool_result"]
        if sorted(map(str, answered)) != sorted(map(str, waiting)):
            yield f"message {number} has the results {answered}, due are {waiting}"
        if any(block.get("type") != "tool_result" for block in blocks[: len(answered)]):
            yield f"message {number} has something before its results"
        waiting = [block.get("id") for block in blocks if block.get("type") == "tool_use"]
    if waiting:
        yield f"the calls {waiting} have no results"
    if messages and messages[-1].get("role") == "assistant" and not _server_calls(messages[-1]):
        yield "the last message is the assistant's"


def _server_calls(message: Object) -> list[str]:
    """The ids of the calls of the provider's own tools in *message*."""
    return [str(block.get("id")) for block in _blocks(message) if block.get("type") in SERVER_CALLS]


def _messages_message(message: Object, *, goes_on: bool) -> Iterator[str]:
    blocks, role = _blocks(message), str(message.get("role"))
    if not blocks:
        yield f"its content is {message.get('content')!r}"
    yield from (f"the block {_shown(block)}" for block in blocks if not _is_block(block, role))
    if blocks and blocks[-1].get("type") in THINKING:
        yield "it ends with thinking"
    ran = _server_calls(message)
    found = [
        str(block.get("tool_use_id")) for block in blocks if str(block.get("type")).endswith(RESULT_BLOCK)
    ]
    if not Counter(found) <= Counter(ran) or (not goes_on and len(found) < len(ran)):
        yield f"the provider ran {ran}, with results for {found}"


def _is_block(block: Object, role: str) -> bool:  # noqa: PLR0911  # one return for each kind
    match role, block:
        case _, {"type": "text", "text": text}:
            return _says(text)
        case "assistant", {"type": "thinking", "thinking": str(), "signature": proof}:
            return _says(proof)
        case "assistant", {"type": "redacted_thinking", "data": data}:
            return _says(data)
        case "assistant", {"type": "tool_use", "input": dict()}:
            return not [*_names([block.get("name")], once=False)]
        case "assistant", {"type": str(kind)} if kind in SERVER_CALLS or kind.endswith(RESULT_BLOCK):
            return isinstance(block.get("input", block.get("content")), dict | list)
        case "user", {"type": "tool_result"}:
            return _is_result(block)
        case _:
            return role == "user" and _is_file(block)


def _is_result(block: Object) -> bool:
    content, failed = block.get("content"), block.get("is_error")
    if isinstance(content, list):
        kinds = {"text"} if failed else {"text", "image", "document"}
        parts = objects(content)
        return bool(content) and all(part.get("type") in kinds and _is_block(part, "user") for part in parts)
    return _says(content) or (content in {None, ""} and not failed)


def _is_file(block: Object) -> bool:
    match block:
        case {"type": "image", "source": {"type": "base64", "data": data, "media_type": media}}:
            return _is_base64(data) and media in IMAGE_TYPES
        case {"type": "document", "source": {"type": "base64", "data": data, "media_type": media}}:
            return _is_base64(data) and media == "application/pdf"
        case {"type": "document", "source": {"type": "text", "data": text, "media_type": "text/plain"}}:
            return _says(text)
        case _:
            return False


def _blocks(message: Object) -> list[Object]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else objects(content)


# Rules of all


def _decoded(body: bytes) -> tuple[Object, list[str]]:
    try:
        return as_object(json.loads(body.decode(), parse_constant=_refuse)), []
    except ValueError as error:
        return {}, [f"the body is no JSON: {error}"]


def _refuse(constant: str) -> Any:  # noqa: ANN401  # what the decoder asks for
    raise ValueError(constant)


def _common(request: Object, messages: Sequence[Object], field: str = "messages") -> Iterator[str]:
    if not _says(request.get("model")):
        yield f"the model is {request.get('model')!r}"
    if request.get("stream") is not True:
        yield "it is not streamed"
    if not messages or len(messages) != len(request[field]):
        yield f"the {field} {'are' if field == 'messages' else 'is'} {_shown(request.get(field))}"
    if not request.get("tools", True):
        yield "an empty list of tools"


def _names(names: Iterable[object], *, once: bool = True) -> Iterator[str]:
    met: set[object] = set()
    for name in names:
        if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
            yield f"the tool's name {name!r}"
        if once and name in met:
            yield f"two tools called {name!r}"
        met.add(name)


def _ids(ids: Sequence[str], allowed: re.Pattern[str]) -> Iterator[str]:
    for wire_id in sorted(set(ids)):
        if not allowed.fullmatch(wire_id):
            yield f"the call's id {wire_id!r}"
        if ids.count(wire_id) > 1:
            yield f"{ids.count(wire_id)} calls have the id {wire_id!r}"


def _says(text: object) -> bool:
    return isinstance(text, str) and bool(text.strip())


def _is_object_text(text: object) -> bool:
    try:
        return isinstance(text, str) and isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _is_base64(text: object) -> bool:
    try:
        return isinstance(text, str) and bool(base64.b64decode(text, validate=True))
    except ValueError:
        return False


def _is_data_url(url: object, start: str = "data:") -> bool:
    found = DATA_URL.fullmatch(url) if isinstance(url, str) and url.startswith(start) else None
    return found is not None and _is_base64(found[1])


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


# Parsers


def reading_faults(parser: Callable[[], Parser], body: bytes) -> list[str]:
    """
    What new parsers from *parser* read wrong in *body* when the network cuts it elsewhere.

    They read it whole, byte by byte and at random splits, which are the same in each run. At some splits the
    body ends: then they raise nothing and have read a beginning of the whole.
    """
    expected = _read(parser(), [body])
    faults: list[str] = []
    if _read(parser(), [body[at : at + 1] for at in range(len(body))]) != expected:
        faults.append("byte by byte it reads something else")
    rng = random.Random(len(body))  # noqa: S311  # it draws splits, it keeps no secret
    for _ in range(SPLITS):
        cuts = sorted(rng.choices(range(len(body) + 1), k=rng.randrange(1, 30)))
        parts = [body[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(body)], strict=True)]
        if _read(parser(), parts) != expected:
            faults.append(f"split at {cuts} it reads something else")
        begun = _text_of(_read(parser(), [body[: cuts[0]]])[0])
        if not _text_of(expected[0]).startswith(begun):
            faults.append(f"stopped at {cuts[0]} it reads what is not there: {begun!r}")
    return faults


def _read(parser: Parser, parts: Iterable[bytes]) -> tuple[tuple[Piece, ...], AnswerEnd]:
    """The merged pieces of a body that arrives in *parts*, and its ending without pieces."""
    pieces = [piece for part in parts for piece in parser.feed(part)]
    ending = parser.end()
    if isinstance(ending, Complete):
        pieces += ending.pieces
        ending = Complete(stop=ending.stop, usage=ending.usage, sequence=ending.sequence)
    return merged(pieces), ending


def _text_of(pieces: Iterable[Piece]) -> str:
    return "".join([piece.text for piece in pieces if isinstance(piece, TextPiece)])
