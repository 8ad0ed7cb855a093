"""
Answers as providers send them, in all dialects, for servers of a test: streamed, in one piece, or refused.

>>> said = Said(text=("Hel", "lo"))
>>> b"".join(DIALECTS["openai"].events(said))
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, final

import attrs

from turnwheel.performers import AnthropicMessages, HTTPModel, OpenAIChat, OpenAIResponses
from turnwheel.performers.models.anthropic_stream import MessagesParser
from turnwheel.performers.models.openai import ChatParser
from turnwheel.performers.models.responses_stream import ResponsesParser
from turnwheel.performers.models.wire import Parser

DONE = b"data: [DONE]\n\n"


@final
@attrs.frozen(kw_only=True)
class Wish:
    """A tool call with its *arguments* in the bits they are sent in."""

    id: str = "call_0"
    name: str = "look"
    arguments: tuple[str, ...] = ("{}",)


@final
@attrs.frozen(kw_only=True)
class Said:
    """What an answer says, in the bits it is sent in; *cut* by its limit, or at its end."""

    thinking: tuple[str, ...] = ()
    signature: str = ""
    text: tuple[str, ...] = ()
    calls: tuple[Wish, ...] = ()
    cut: bool = False
    read: int = 12
    wrote: int = 7


def event(value: object, name: str = "") -> bytes:
    """*value* as one event of a stream, with a *name* where there is one; half a character is escaped."""
    head = f"event: {name}\n".encode() if name else b""
    try:
        data = json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        data = json.dumps(value).encode()
    return b"%bdata: %b\n\n" % (head, data)


# Chat completions


def chat_chunk(delta: object, finish: str | None = None, **more: object) -> dict[str, Any]:
    """A chunk with one *delta*."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice], **more}


def chat_bit(index: int, arguments: str, wish: Wish | None = None) -> dict[str, Any]:
    """The delta of a bit of call number *index*; the first one names the *wish*."""
    function = {"arguments": arguments} if wish is None else {"name": wish.name, "arguments": arguments}
    named = {} if wish is None else {"id": wish.id, "type": "function"}
    return {"tool_calls": [{"index": index, **named, "function": function}]}


def chat_events(said: Said) -> list[bytes]:
    """*said* as a stream of chat completions, event by event."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": bit} for bit in said.thinking]
    deltas += [{"content": bit} for bit in said.text]
    for index, wish in enumerate(said.calls):
        deltas.append(chat_bit(index, "", wish))
        deltas += [chat_bit(index, bit) for bit in wish.arguments]
    finish = "length" if said.cut else "tool_calls" if said.calls else "stop"
    chunks = [*map(chat_chunk, deltas), chat_chunk({}, finish), chat_usage(said)]
    return [*map(event, chunks), DONE]


def chat_usage(said: Said) -> dict[str, Any]:
    """The chunk that tells what *said* used."""
    used = {
        "prompt_tokens": said.read,
        "completion_tokens": said.wrote,
        "total_tokens": said.read + said.wrote,
    }
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [], "usage": used}


def chat_whole(said: Said) -> bytes:
    """*said* as one object."""
    message: dict[str, Any] = {"role": "assistant", "content": "".join(said.text)}
    if said.thinking:
        message["reasoning_content"] = "".join(said.thinking)
    if said.calls:
        message["tool_calls"] = [
            {
                "id": wish.id,
                "type": "function",
                "function": {"name": wish.name, "arguments": "".join(wish.arguments)},
            }
            for wish in said.calls
        ]
    finish = "length" if said.cut else "tool_calls" if said.calls else "stop"
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return json.dumps({**chat_usage(said), "object": "chat.completion", "choices": [choice]}).encode()


def chat_error(kind: str, message: str) -> dict[str, Any]:
    """An error, as the body of a refusal or in the middle of a stream."""
    return {"error": {"message": message, "type": kind, "param": None, "code": kind}}


# Messages


def _named(value: dict[str, Any]) -> bytes:
    return event(value, value["type"])


def messages_block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[bytes]:
    """The events of block number *index*."""
    return [
        _named({"type": "content_block_start", "index": index, "content_block": start}),
        *[_named({"type": "content_block_delta", "index": index, "delta": delta}) for delta in deltas],
        _named({"type": "content_block_stop", "index": index}),
    ]


def messages_blocks(said: Said) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """The blocks of *said*: how each begins, and the deltas that follow."""
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if said.thinking:
        deltas = [{"type": "thinking_delta", "thinking": bit} for bit in said.thinking]
        signed = [{"type": "signature_delta", "signature": said.signature}] if said.signature else []
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, deltas + signed))
    if said.text:
        deltas = [{"type": "text_delta", "text": bit} for bit in said.text]
        blocks.append(({"type": "text", "text": ""}, deltas))
    for wish in said.calls:
        deltas = [{"type": "input_json_delta", "partial_json": bit} for bit in wish.arguments]
        blocks.append(({"type": "tool_use", "id": wish.id, "name": wish.name, "input": {}}, deltas))
    return blocks


def messages_stop(said: Said) -> str:
    """Why *said* ended."""
    return "max_tokens" if said.cut else "tool_use" if said.calls else "end_turn"


def messages_events(said: Said) -> list[bytes]:
    """*said* as a stream of messages, event by event."""
    begun: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [],
        "stop_reason": None,
    }
    used = {"input_tokens": said.read, "output_tokens": 1}
    ended = {"stop_reason": messages_stop(said), "stop_sequence": None}
    return [
        _named({"type": "message_start", "message": {**begun, "usage": used}}),
        _named({"type": "ping"}),
        *[
            each
            for index, (start, deltas) in enumerate(messages_blocks(said))
            for each in messages_block(index, start, *deltas)
        ],
        _named({"type": "message_delta", "delta": ended, "usage": {"output_tokens": said.wrote}}),
        _named({"type": "message_stop"}),
    ]


def messages_whole(said: Said) -> bytes:
    """*said* as one object."""
    content: list[dict[str, Any]] = []
    if said.thinking:
        content.append({"type": "thinking", "thinking": "".join(said.thinking), "signature": said.signature})
    if said.text:
        content.append({"type": "text", "text": "".join(said.text)})
    for wish in said.calls:
        given = json.loads("".join(wish.arguments))
        content.append({"type": "tool_use", "id": wish.id, "name": wish.name, "input": given})
    used = {"input_tokens": said.read, "output_tokens": said.wrote}
    about = {"id": "msg_1", "type": "message", "role": "assistant", "content": content, "usage": used}
    return json.dumps({**about, "stop_reason": messages_stop(said), "stop_sequence": None}).encode()


def messages_error(kind: str, message: str) -> dict[str, Any]:
    """An error, as the body of a refusal or in the middle of a stream."""
    return {"type": "error", "error": {"type": kind, "message": message}}


# Responses


def responses_items(said: Said) -> list[dict[str, Any]]:
    """The items of *said*, as they are when they are done."""
    items: list[dict[str, Any]] = []
    if said.thinking:
        summary = [{"type": "summary_text", "text": "".join(said.thinking)}]
        items.append({"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "ZQ=="})
    if said.text:
        content = [{"type": "output_text", "text": "".join(said.text), "annotations": []}]
        about = {"id": "msg_1", "status": "completed", "role": "assistant"}
        items.append({"type": "message", **about, "content": content})
    for number, wish in enumerate(said.calls):
        about = {"id": f"fc_{number}", "call_id": wish.id, "name": wish.name, "status": "completed"}
        items.append({"type": "function_call", **about, "arguments": "".join(wish.arguments)})
    return items


def responses_deltas(said: Said, item: dict[str, Any]) -> list[dict[str, Any]]:
    """The deltas of *item*."""
    match item:
        case {"type": "reasoning"}:
            kind, bits = "reasoning_summary_text", said.thinking
        case {"type": "message"}:
            kind, bits = "output_text", said.text
        case _:
            kind, bits = "function_call_arguments", said.calls[int(item["id"].removeprefix("fc_"))].arguments
    return [{"type": f"response.{kind}.delta", "item_id": item["id"], "delta": bit} for bit in bits]


def responses_events(said: Said) -> list[bytes]:
    """*said* as a stream of responses, event by event."""
    empty = {"summary": [], "encrypted_content": "", "content": [], "arguments": "", "status": "in_progress"}
    events: list[dict[str, Any]] = []
    for index, item in enumerate(responses_items(said)):
        begun = {**item, **{name: value for name, value in empty.items() if name in item}}
        place = {"output_index": index}
        events.append({"type": "response.output_item.added", **place, "item": begun})
        deltas = [{**delta, **place} for delta in responses_deltas(said, item)]
        events += [
            *deltas,
            *[{**delta, "type": _done(str(delta["type"])), "delta": None} for delta in deltas[-1:]],
        ]
        events.append({"type": "response.output_item.done", **place, "item": item})
    whole = responses_answer(said)
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    return [
        _named({"type": "response.created", "response": begun}),
        *map(_named, events),
        _named({"type": f"response.{whole['status']}", "response": whole}),
    ]


def _done(kind: str) -> str:
    """The type of the event that ends the deltas of *kind*."""
    return f"{kind.removesuffix('delta')}done"


def responses_answer(said: Said) -> dict[str, Any]:
    """*said* as the object that a stream ends with."""
    used = {"input_tokens": said.read, "output_tokens": said.wrote, "total_tokens": said.read + said.wrote}
    why = {"incomplete_details": {"reason": "max_output_tokens"}} if said.cut else {}
    status = "incomplete" if said.cut else "completed"
    about = {"id": "resp_1", "object": "response", "status": status, **why}
    return {**about, "output": responses_items(said), "usage": used}


def responses_whole(said: Said) -> bytes:
    """*said* as one object."""
    return json.dumps(responses_answer(said)).encode()


def responses_error(kind: str, message: str) -> dict[str, Any]:
    """An error, as the body of a refusal or in the middle of a stream."""
    return {"type": "error", "error": {"message": message, "type": kind, "param": None, "code": kind}}


# All


@final
@attrs.frozen(kw_only=True)
class Dialect:
    """
    A dialect: who asks in it and reads it, and how what was said looks in it.

    *events* are of a stream, *whole* is an answer in one piece, *error* one in either; *begun* are the events
    that come before anything is said.
    """

    name: str
    performer: Callable[..., HTTPModel]
    parser: Callable[[], Parser]
    events: Callable[[Said], list[bytes]]
    whole: Callable[[Said], bytes]
    error: Callable[[str, str], dict[str, Any]]
    begun: int

    @property
    def model(self) -> str:
        """The name of a model that is asked in it."""
        return f"{self.name}:m"

    def stream(self, said: Said) -> bytes:
        """All events of *said*."""
        return b"".join(self.events(said))


DIALECTS = {
    each.name: each
    for each in (
        Dialect(
            name="openai",
            performer=OpenAIChat,
            parser=ChatParser,
            events=chat_events,
            whole=chat_whole,
            error=chat_error,
            begun=1,
        ),
        Dialect(
            name="anthropic",
            performer=AnthropicMessages,
            parser=MessagesParser,
            events=messages_events,
            whole=messages_whole,
            error=messages_error,
            begun=2,
        ),
        Dialect(
            name="openai-responses",
            performer=OpenAIResponses,
            parser=ResponsesParser,
            events=responses_events,
            whole=responses_whole,
            error=responses_error,
            begun=1,
        ),
    )
}
"""All dialects, by the prefix of their models."""

SPEECHES = (
    Said(text=("Hel", "lo", ", world")),
    Said(text=("grüß ", "dich 😀, ", "東京\n\n", "\ttab \u2028 line")),
    Said(thinking=("Let me ", "see."), signature="c2lnbmVk", text=("Yes.",)),
    Said(text=("I look.",), calls=(Wish(arguments=('{"pa', 'th": "a', '.txt"}')),)),
    Said(calls=tuple([Wish(id=f"c{n}", arguments=(f'{{"path": "{n}"}}',)) for n in range(3)])),
    Said(
        calls=(
            Wish(id="", arguments=("",)),
            Wish(id="", name="other", arguments=('{"a": [1, {"b": null}]}',)),
        )
    ),
    Said(text=("It was to be lon",), cut=True),
    Said(text=("torn \ud83d", "\ude00 apart"), thinking=("\ud83d", "\ude00")),
    Said(),
)
"""Some of all that answers say."""


def seeds() -> list[tuple[str, bytes]]:
    """Bodies with the names of their dialects: all `SPEECHES`, streamed and in one piece, and errors."""
    found: list[tuple[str, bytes]] = []
    for name, dialect in DIALECTS.items():
        broken = dialect.error("overloaded_error", "Overloaded, try again")
        begun = b"".join(dialect.events(SPEECHES[0])[:-3])
        found += [(name, dialect.stream(said)) for said in SPEECHES]
        found += [(name, dialect.whole(said)) for said in SPEECHES if _can_be_whole(said)]
        found += [(name, begun + event(broken, "error")), (name, json.dumps(broken).encode())]
    return found


def _can_be_whole(said: Said) -> bool:
    return all("".join(wish.arguments) for wish in said.calls)
