"""The Messages dialect without a network, and then with one: pieces, endings, request bodies, refusals."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwheel.effects.config import Config, ModelSpec, ToolSpec
from turnwheel.effects.errors import ConfigError
from turnwheel.effects.events import (
    Event,
    Failure,
    ModelFailed,
    ModelFinished,
    ModelStreamed,
)
from turnwheel.effects.history import History
from turnwheel.effects.messages import (
    Binary,
    Finish,
    Message,
    Outcome,
    Part,
    Reasoning,
    Role,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
    user,
)
from turnwheel.effects.pieces import (
    CallPiece,
    Piece,
    ReasoningPiece,
    TextPiece,
    merged,
)
from turnwheel.effects.requests import (
    CallModel,
    Conversation,
    Purpose,
    Transcript,
)
from turnwheel.effects.usage import Usage
from turnwheel.performers import AnthropicMessages
from turnwheel.performers.base import PassThroughNotice, PerformContext, SystemClock
from turnwheel.performers.models.anthropic import MessagesParser, MessagesWire
from turnwheel.performers.models.body import MAX_EVENT, MAX_UNSTREAMED
from turnwheel.performers.models.errors import refusal, stream_error
from turnwheel.performers.models.wire import AnswerEnd, Broken, Complete
from turnwheel.testing.wire_rules import messages_faults, reading_faults

# Pieces and endings


def event(kind: str, **fields: object) -> bytes:
    """One event of a stream, named as its *kind*."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def start(index: object, kind: str, **fields: object) -> bytes:
    """The start of a block."""
    return event("content_block_start", index=index, content_block={"type": kind, **fields})


def delta(index: object, kind: str, **fields: object) -> bytes:
    """A bit of a block."""
    return event("content_block_delta", index=index, delta={"type": kind, **fields})


def stop(index: object) -> bytes:
    """The end of a block."""
    return event("content_block_stop", index=index)


def text(index: int, *bits: str) -> bytes:
    """A block of text in *bits*."""
    deltas = [delta(index, "text_delta", text=bit) for bit in bits]
    return b"".join([start(index, "text", text=""), *deltas, stop(index)])


def thinking(index: int, signature: str, *bits: str) -> bytes:
    """A block of thinking in *bits*."""
    deltas = [delta(index, "thinking_delta", thinking=bit) for bit in bits]
    signed = delta(index, "signature_delta", signature=signature)
    return b"".join([start(index, "thinking", thinking="", signature=""), *deltas, signed, stop(index)])


def call_start(index: int, wire_id: str, name: str) -> bytes:
    """The start of a call."""
    return start(index, "tool_use", id=wire_id, name=name, input={})


def bit(index: object, partial: object) -> bytes:
    """A bit of a call's arguments."""
    return delta(index, "input_json_delta", partial_json=partial)


def tool(index: int, wire_id: str, name: str, *bits: str) -> bytes:
    """A call whose arguments come in *bits*."""
    return b"".join([call_start(index, wire_id, name), *[bit(index, one) for one in bits], stop(index)])


def close(reason: str | None, sequence: str | None = None, **usage: object) -> bytes:
    """The end of an answer."""
    how = {"stop_reason": reason, "stop_sequence": sequence}
    return event("message_delta", delta=how, usage=usage or None) + event("message_stop")


def begin(**usage: object) -> bytes:
    """The beginning of an answer."""
    return event("message_start", message={"role": "assistant", "content": [], "usage": usage})


def ended(reason: StopReason = StopReason.END_TURN, sequence: str = "", **usage: int) -> Complete:
    """A complete ending."""
    return Complete(stop=reason, usage=Usage(**usage), sequence=sequence)


def cut(message: str, failure: Failure = Failure.CUT, usage: Usage | None = None) -> Broken:
    """A broken ending."""
    return Broken(failure=failure, message=message, usage=usage)


BEGIN, END = begin(), close("end_turn")
TOOLS = close("tool_use")
A, B = CallPiece(0, "a", "f", '{"x":1}'), CallPiece(1, "b", "g", "{}")
TOOL_USE = ended(StopReason.TOOL_USE)
OVERLOADED = event("error", error={"type": "overloaded_error", "message": "Overloaded"})
NO_END = cut("the stream ended without message_stop")

ANSWERS: dict[str, tuple[bytes, list[Piece], AnswerEnd]] = {
    "text": (BEGIN + text(0, "Hel", "", "lo") + END, [TextPiece("Hello")], ended()),
    "text in its start": (
        BEGIN + start(0, "text", text="Hel") + delta(0, "text_delta", text="lo") + END,
        [TextPiece("Hello")],
        ended(),
    ),
    "two texts": (BEGIN + text(0, "a") + text(1, "b") + END, [TextPiece("ab")], ended()),
    "not ascii": (BEGIN + text(0, "grüß 😀") + END, [TextPiece("grüß 😀")], ended()),
    "half a surrogate pair": (BEGIN + text(0, "a\ud83d") + END, [TextPiece("a\ufffd")], ended()),
    "no text": (BEGIN + text(0) + END, [], ended()),
    "nothing said": (BEGIN + END, [], ended()),
    "pings": (
        event("ping") + BEGIN + b'event: ping\ndata: {"type": "ping"}\n\n' + text(0, "a") + END,
        [TextPiece("a")],
        ended(),
    ),
    "no last blank line": ((BEGIN + text(0, "a") + END).rstrip(), [TextPiece("a")], ended()),
    "after message_stop": (BEGIN + text(0, "a") + END + text(1, "b"), [TextPiece("a")], ended()),
    "an error after message_stop": (BEGIN + END + OVERLOADED, [], ended()),
    "[DONE] instead of message_stop": (
        BEGIN
        + text(0, "a")
        + event("message_delta", delta={"stop_reason": "end_turn"})
        + b"data: [DONE]\n\n",
        [TextPiece("a")],
        ended(),
    ),
    "thinking": (
        BEGIN + thinking(0, "s1", "h", "m") + text(1, "a") + END,
        [ReasoningPiece("hm", "s1"), TextPiece("a")],
        ended(),
    ),
    "thinking that is not shown": (
        BEGIN + thinking(0, "s1") + thinking(1, "s2") + text(2, "a") + END,
        [ReasoningPiece("", "s1"), ReasoningPiece("", "s2"), TextPiece("a")],
        ended(),
    ),
    "thinking in its start": (
        BEGIN + start(0, "thinking", thinking="hm", signature="s1") + stop(0) + END,
        [ReasoningPiece("hm", "s1")],
        ended(),
    ),
    "thinking between calls": (
        BEGIN + thinking(0, "s1", "hm") + tool(1, "a", "f", '{"x":1}') + thinking(2, "s2", "so") + TOOLS,
        [ReasoningPiece("hm", "s1"), A, ReasoningPiece("so", "s2")],
        TOOL_USE,
    ),
    "redacted thinking": (
        BEGIN
        + thinking(0, "s1", "hm")
        + start(1, "redacted_thinking", data="r1")
        + stop(1)
        + start(2, "redacted_thinking", data="r2")
        + stop(2)
        + thinking(3, "s3", "so")
        + END,
        [
            ReasoningPiece("hm", "s1"),
            ReasoningPiece(redacted="r1"),
            ReasoningPiece(redacted="r2"),
            ReasoningPiece("so", "s3"),
        ],
        ended(),
    ),
    "thinking without a signature": (
        BEGIN
        + start(0, "thinking")
        + delta(0, "thinking_delta", thinking="hm")
        + stop(0)
        + text(1, "a")
        + END,
        [ReasoningPiece("hm"), TextPiece("a")],
        ended(),
    ),
    "a signature behind redacted thinking": (
        BEGIN
        + start(0, "thinking")
        + delta(0, "thinking_delta", thinking="hm")
        + start(1, "redacted_thinking", data="r1")
        + thinking(2, "s2")
        + END,
        [ReasoningPiece("hm"), ReasoningPiece(redacted="r1"), ReasoningPiece("", "s2")],
        ended(),
    ),
    "a second signature": (
        BEGIN
        + start(0, "thinking")
        + delta(0, "thinking_delta", thinking="hm")
        + delta(0, "signature_delta", signature="s1")
        + delta(0, "signature_delta", signature="s2")
        + END,
        [ReasoningPiece("hm", "s1")],
        ended(),
    ),
    "a signature of torn thinking": (
        BEGIN
        + start(0, "thinking")
        + start(1, "text", text="")
        + delta(0, "thinking_delta", thinking="h")
        + delta(1, "text_delta", text="a")
        + delta(0, "thinking_delta", thinking="m")
        + delta(0, "signature_delta", signature="s1")
        + END,
        [ReasoningPiece("h"), TextPiece("a"), ReasoningPiece("m")],
        ended(),
    ),
    "a signature of the second of two thoughts": (
        BEGIN
        + start(0, "thinking")
        + delta(0, "thinking_delta", thinking="hm")
        + stop(0)
        + thinking(1, "s2", "so")
        + END,
        [ReasoningPiece("hmso")],
        ended(),
    ),
    "a call": (
        BEGIN + tool(0, "a", "f", "", '{"x"', ":1}") + close("tool_use"),
        [A],
        TOOL_USE,
    ),
    "parallel calls": (
        BEGIN + tool(0, "a", "f", '{"x":1}') + tool(1, "b", "g", "{}") + TOOLS,
        [A, B],
        TOOL_USE,
    ),
    "interleaved calls": (
        BEGIN
        + call_start(0, "a", "f")
        + call_start(1, "b", "g")
        + bit(1, "{")
        + bit(0, '{"x"')
        + bit(0, ":1}")
        + bit(1, "}")
        + stop(1)
        + stop(0)
        + TOOLS,
        [A, B],
        TOOL_USE,
    ),
    "an index used again": (
        BEGIN + tool(0, "a", "f", '{"x":1}') + tool(0, "b", "g", "{}") + TOOLS,
        [A, B],
        TOOL_USE,
    ),
    "an index used again, no stop": (
        BEGIN + call_start(0, "a", "f") + bit(0, '{"x":1}') + call_start(0, "b", "g") + bit(0, "{}") + TOOLS,
        [A, B],
        TOOL_USE,
    ),
    "duplicate ids": (
        BEGIN + tool(0, "a", "f", "{}") + tool(1, "a", "f", "{}") + TOOLS,
        [CallPiece(0, "a", "f", "{}"), CallPiece(1, "a", "f", "{}")],
        TOOL_USE,
    ),
    "no arguments": (BEGIN + tool(0, "a", "f", "") + TOOLS, [CallPiece(0, "a", "f")], TOOL_USE),
    "arguments in the start": (
        BEGIN + start(0, "tool_use", id="a", name="f", input={"x": 1}) + stop(0) + TOOLS,
        [CallPiece(0, "a", "f", '{"x": 1}')],
        TOOL_USE,
    ),
    "arguments in the start, no stop": (
        BEGIN + start(0, "tool_use", id="a", name="f", input={"x": 1}) + TOOLS,
        [CallPiece(0, "a", "f", '{"x": 1}')],
        TOOL_USE,
    ),
    "arguments in the starts of one index": (
        BEGIN
        + start(0, "tool_use", id="a", name="f", input={"x": 1})
        + start(0, "tool_use", id="b", name="g", input={"x": 2})
        + BEGIN
        + TOOLS,
        [CallPiece(0, "a", "f", '{"x": 1}'), CallPiece(1, "b", "g", '{"x": 2}')],
        TOOL_USE,
    ),
    "arguments in the start and after it": (
        BEGIN + start(0, "tool_use", id="a", name="f", input={"x": 2}) + bit(0, '{"x":1}') + stop(0) + TOOLS,
        [A],
        TOOL_USE,
    ),
    "arguments that are cut off": (
        BEGIN + tool(0, "a", "f", '{"x"', ": 1") + close("max_tokens"),
        [CallPiece(0, "a", "f", '{"x": 1')],
        ended(StopReason.MAX_TOKENS),
    ),
    "the provider's own tools": (
        BEGIN
        + start(0, "server_tool_use", id="srvtoolu_1", name="web_search", input={})
        + bit(0, '{"query": "x"}')
        + stop(0)
        + start(1, "web_search_tool_result", tool_use_id="srvtoolu_1", content=[{"type": "x"}])
        + stop(1)
        + start(2, "mcp_tool_use", id="mcptoolu_1", name="f", input={"x": 1})
        + stop(2)
        + text(3, "found")
        + close("pause_turn"),
        [TextPiece("found")],
        ended(StopReason.UNKNOWN),
    ),
    "what was invented since": (
        BEGIN
        + event("content_block_news", index=0)
        + start(0, "compaction", content=None)
        + delta(0, "text_delta", text="not said")
        + stop(0)
        + start(1, "text", text="", citations=[])
        + delta(1, "citations_delta", citation={"cited_text": "x"})
        + delta(1, "text_delta", text="a")
        + delta(1, "news_delta", text="x")
        + stop(1)
        + close("news"),
        [TextPiece("a")],
        ended(StopReason.UNKNOWN),
    ),
    "blocks whose starts were lost": (
        BEGIN + delta(0, "text_delta", text="a") + bit(1, '{"x":1}') + stop(7) + END,
        [TextPiece("a")],
        ended(),
    ),
    "a torn line": (
        BEGIN
        + b'event: content_block_start\ndata: {"type":"content_block_start","index":1,"content\n'
        + b'event: ping\ndata: {"type": "ping"}\n\n'
        + text(2, "a")
        + END,
        [TextPiece("a")],
        ended(),
    ),
    "an answer begun anew": (
        BEGIN + call_start(0, "a", "f") + bit(0, "{") + BEGIN + bit(0, "}") + text(0, "a") + END,
        [CallPiece(0, "a", "f", "{"), TextPiece("a")],
        ended(),
    ),
    "odd values": (
        BEGIN
        + b'data: 5\n\ndata: null\n\ndata: []\n\ndata: "x"\n\ndata: {"type":{}}\n\n'
        + event("content_block_start", index=[0], content_block=5)
        + start(1.5, "tool_use", id=5, name=["f"], input="x")
        + delta([0], "text_delta", text=5)
        + event("content_block_delta", index=0, delta=5)
        + bit({}, 5)
        + stop({})
        + event("message_start", message=5)
        + event("message_delta", delta=5, usage=[1])
        + END,
        [CallPiece(0)],
        ended(),
    ),
    "usage": (
        begin(input_tokens=7, cache_creation_input_tokens=2, cache_read_input_tokens=3, output_tokens=1)
        + close("end_turn", output_tokens=5, output_tokens_details={"thinking_tokens": 4}),
        [],
        ended(input=12, output=5, cached=3, cache_write=2, reasoning=4),
    ),
    "usage told at the end": (
        begin(input_tokens=0, output_tokens=0) + close("end_turn", input_tokens=7, output_tokens=5),
        [],
        ended(input=7, output=5),
    ),
    "usage that grew": (
        begin(input_tokens=7, output_tokens=1)
        + close("end_turn", input_tokens=9, output_tokens=5, cache_read_input_tokens=None),
        [],
        ended(input=9, output=5),
    ),
    "odd usage": (
        begin(input_tokens="7", output_tokens=-5) + close("end_turn", output_tokens=[]),
        [],
        ended(),
    ),
    "a matched stop": (
        BEGIN + text(0, "a") + close("stop_sequence", "END"),
        [TextPiece("a")],
        ended(StopReason.STOP_SEQUENCE, "END"),
    ),
    "refusal": (
        BEGIN + text(0, "No") + close("refusal"),
        [TextPiece("No")],
        ended(StopReason.REFUSAL),
    ),
    "a full window": (BEGIN + close("model_context_window_exceeded"), [], ended(StopReason.MAX_TOKENS)),
    "no stop reason": (BEGIN + text(0, "a") + close(None), [TextPiece("a")], ended(StopReason.UNKNOWN)),
    "not streamed": (
        b" \n "
        + json.dumps(
            {
                "type": "message",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s1"},
                    {"type": "text", "text": "a"},
                    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"q": 1}},
                    {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
                    {"type": "tool_use", "id": "b", "name": "g", "input": {}},
                ],
                "stop_reason": "tool_use",
                "usage": {"input_tokens": 7, "output_tokens": 5},
            }
        ).encode(),
        [
            ReasoningPiece("hm", "s1"),
            TextPiece("a"),
            CallPiece(0, "a", "f", '{"x": 1}'),
            CallPiece(1, "b", "g"),
        ],
        ended(StopReason.TOOL_USE, input=7, output=5),
    ),
    "empty": (b"", [], cut("the answer is empty")),
    "only white space": (b"\r\n \n", [], cut("the answer is empty")),
    "only message_stop": (
        b'data: {"type":"message_stop"}\n\n',
        [],
        cut('the answer holds nothing; it began with \'data: {"type":"message_stop"}\\n\\n\''),
    ),
    "a web page": (b"<html>hi</html>", [], cut("the answer holds nothing; it began with '<html>hi</html>'")),
    "json that is cut": (b'{"type":"me', [], cut('the answer holds nothing; it began with \'{"type":"me\'')),
    "no end": (BEGIN + text(0, "a"), [TextPiece("a")], NO_END),
    "a reason and no end": (
        begin(input_tokens=7) + event("message_delta", delta={"stop_reason": "end_turn"}),
        [],
        cut("the stream ended without message_stop", usage=Usage(input=7)),
    ),
    "cut in a call": (
        BEGIN + call_start(0, "a", "f") + bit(0, "{}"),
        [CallPiece(0, "a", "f", "{}")],
        NO_END,
    ),
    "an error": (
        begin(input_tokens=7) + text(0, "a") + OVERLOADED + END,
        [TextPiece("a")],
        cut("error in the stream: Overloaded", Failure.OVERLOADED, Usage(input=7)),
    ),
    "an error without a name": (
        BEGIN + b'data: {"type":"error","error":{"type":"api_error","message":"boom"}}\n\n',
        [],
        cut("error in the stream: boom"),
    ),
    "an error without a type": (
        BEGIN + b'data: {"error":{"type":"rate_limit_error","message":"slow"}}\n\n',
        [],
        cut("error in the stream: slow", Failure.RATE_LIMIT),
    ),
    "an error of plain text": (
        b"event: error\ndata: out of cheese\n\n",
        [],
        cut("error in the stream: out of cheese"),
    ),
    "an error that is not streamed": (
        b'{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 > 8"}}',
        [],
        cut("error in the stream: prompt is too long: 9 > 8", Failure.OVERFLOW),
    ),
}


def read(*parts: bytes) -> tuple[list[Piece], AnswerEnd]:
    """The pieces and the ending of an answer that arrives in *parts*."""
    parser = MessagesParser()
    pieces = [piece for part in parts for piece in parser.feed(part)]
    ending = parser.end()
    if isinstance(ending, Complete):
        pieces += ending.pieces
        ending = Complete(stop=ending.stop, usage=ending.usage, sequence=ending.sequence)
    return pieces, ending


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_read(name: str) -> None:
    """Its merged pieces and its ending are what the server meant."""
    body, pieces, ending = ANSWERS[name]
    found, found_ending = read(body)
    assert list(merged(found)) == pieces
    assert found_ending == ending


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_does_not_depend_on_the_split(name: str) -> None:
    """Byte by byte, in any two parts and at random splits it is read the same."""
    body, _, _ = ANSWERS[name]
    assert reading_faults(MessagesParser, body) == []
    whole = read(body)
    assert [at for at in range(len(body)) if read(body[:at], body[at:]) != whole] == []


@pytest.mark.parametrize("ending", ["\r\n", "\r"])
@pytest.mark.parametrize("name", ANSWERS.keys() - {"only message_stop"})
def test_an_answer_does_not_depend_on_the_line_ends(name: str, ending: str) -> None:
    """With other line ends it is read the same."""
    body, _, _ = ANSWERS[name]
    assert read(body.replace(b"\n", ending.encode())) == read(body)


@given(
    st.lists(
        st.binary(max_size=40)
        | st.sampled_from(
            [b"data: ", b"event: error\n", b"\n\n", BEGIN, END, TOOLS, text(0, "a"), b"{", b"[1]"]
        )
    )
)
def test_no_bytes_crash_the_parser(parts: list[bytes]) -> None:
    """Whatever comes, there is an ending."""
    _, ending = read(*parts)
    assert isinstance(ending, Complete | Broken)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "text", "x"]), inner)
    ),
    max_leaves=8,
)
KINDS = [
    "message_start",
    "message_delta",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "ping",
    "news",
]
FIELDS = ["index", "message", "delta", "usage", "content_block"]
INNER = st.dictionaries(
    st.sampled_from(
        ["type", "text", "thinking", "signature", "data", "id", "name", "input", "partial_json", "usage"]
    ),
    JSON
    | st.sampled_from(["text", "thinking", "redacted_thinking", "tool_use", "text_delta", "input_json_delta"])
    | st.sampled_from(["thinking_delta", "signature_delta"]),
)
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(KINDS), st.dictionaries(st.sampled_from(FIELDS), st.integers(0, 1) | JSON | INNER)
    )
)


@given(EVENTS)
def test_no_json_crashes_the_parser(events: list[tuple[str, dict[str, Any]]]) -> None:
    """Any value may stand in any field, and the answer goes on behind it."""
    pieces, ending = read(BEGIN, *[event(kind, **fields) for kind, fields in events], text(9, "end"), END)
    assert isinstance(ending, Complete)
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextPiece)).endswith("end")


def test_an_oversized_event_ends_the_answer() -> None:
    """Garbage without an end is not kept, and what comes behind it is not read."""
    parser = MessagesParser()
    for _ in range(2 + MAX_EVENT // 65_536):
        assert parser.feed(b"x" * 65_536) == []
    assert parser.feed(BEGIN + END) == []
    assert parser.end() == cut(f"an event of the stream is larger than {MAX_EVENT} bytes")


def test_an_oversized_answer_that_is_not_streamed_is_not_kept() -> None:
    """Nor is one JSON object without an end."""
    parser = MessagesParser()
    for _ in range(2 + MAX_UNSTREAMED // 1_048_576):
        assert parser.feed(b"{" * 1_048_576) == []
    assert parser.end() == cut(f"an unstreamed answer is larger than {MAX_UNSTREAMED} bytes")


def test_a_whole_answer_outlives_its_connection() -> None:
    """A reset behind the last event does not void the answer; one before it does, and says what was used."""
    reset = cut("reset", Failure.CONNECTION)
    finished, open_ = MessagesParser(), MessagesParser()
    finished.feed(BEGIN + text(0, "a") + END)
    open_.feed(begin(input_tokens=7) + text(0, "a"))
    assert finished.end(reset) == ended()
    assert open_.usage == Usage(input=7)
    assert open_.end(reset) == cut("reset", Failure.CONNECTION, Usage(input=7))


# Request bodies

READ = ToolSpec(
    name="read", description='Read a "file"', schema='{"type":"object","properties":{"p":{"type":"string"}}}'
)
WRITE = ToolSpec(name="write", schema='{"properties":{}}')
SPEC = ModelSpec(name="anthropic:claude-sonnet-4-5", max_output=None)
PLAIN = Config(model=SPEC, tools=(READ, WRITE))
ASKED = CallModel(id="r-1", model=SPEC.name, view=Conversation(revision=0, length=1), tools=("read", "write"))
MARK = {"cache_control": {"type": "ephemeral"}}


def scene_of(history: History, config: Config = PLAIN) -> PerformContext:
    """A scene over *history*."""
    return PerformContext(
        session="s", run="r", config=config, history=history, clock=SystemClock(), emit=lambda _: None
    )


def body_of(
    *messages: Message, config: Config = PLAIN, wire: MessagesWire | None = None, asked: CallModel = ASKED
) -> dict[str, Any]:
    """The decoded body of a request for *messages*, or for what *asked* views of them; the API takes it."""
    if isinstance(asked.view, Conversation):
        asked = attrs.evolve(asked, view=Conversation(revision=0, length=len(messages)))
    post = (wire or MessagesWire()).encode(asked, scene_of(History.of(*messages), config))
    assert post.path == "/messages"
    assert messages_faults(post.body) == []
    body: dict[str, Any] = json.loads(post.body)
    return body


def unmarked(value: Any) -> Any:
    """*value* without the cache markers in it."""
    if isinstance(value, dict):
        return {key: unmarked(inner) for key, inner in value.items() if key != "cache_control"}
    return [unmarked(inner) for inner in value] if isinstance(value, list) else value


def sent(*messages: Message, wire: MessagesWire | None = None) -> Any:
    """The messages of a request for *messages*, without cache markers."""
    return unmarked(body_of(*messages, wire=wire)["messages"])


def assistant(*parts: Part, model: str = SPEC.name, at: float = 0.0) -> Message:
    """An assistant's message."""
    end = Finish(reason=StopReason.END_TURN)
    return Message(role=Role.ASSISTANT, parts=(*parts, end), model=model, at=at)


def call(number: int, wire_id: str, arguments: str = '{"p": "x"}', name: str = "read") -> ToolCall:
    """A call of `read`."""
    return ToolCall(id=f"r-{number}", wire_id=wire_id, name=name, arguments=arguments)


def result(of: ToolCall, content: str = "got it", outcome: Outcome = Outcome.OK, *files: Binary) -> Message:
    """The message with the result *of* one call."""
    one = ToolResult(
        call=of.id, wire_id=of.wire_id, name=of.name, content=content, outcome=outcome, files=files
    )
    return Message(role=Role.TOOL, parts=(one,))


def said(text: str) -> dict[str, Any]:
    """A block of *text*."""
    return {"type": "text", "text": text}


def users(*content: dict[str, Any]) -> dict[str, Any]:
    """A message of the user's on the wire."""
    return {"role": "user", "content": list(content)}


def models(*content: dict[str, Any]) -> dict[str, Any]:
    """A message of the model's on the wire."""
    return {"role": "assistant", "content": list(content)}


def used(wire_id: str, name: str = "read", **arguments: object) -> dict[str, Any]:
    """A call on the wire."""
    return {"type": "tool_use", "id": wire_id, "name": name, "input": arguments}


def got(wire_id: str, *content: dict[str, Any], **more: object) -> dict[str, Any]:
    """A result on the wire."""
    return {"type": "tool_result", "tool_use_id": wire_id, **more, "content": list(content)}


HI, OK = user("hi"), assistant(Text(text="ok"))
SIGNED, HIDDEN = Reasoning(text="hm", signature="s1"), Reasoning(text="", redacted="r1")
UNSIGNED, UNSEEN = Reasoning(text="so"), Reasoning(text="", signature="s2")
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s1"}
CALL = call(1, "wa")
PNG = Binary(media_type="image/png", data=b"\x89P", name="a.png")
PDF = Binary(media_type="application/pdf", data=b"%", name="a.pdf")
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVA="}}

CONVERSATIONS: dict[str, tuple[list[Message], list[dict[str, Any]]]] = {
    "turns": ([HI, OK, user("go")], [users(said("hi")), models(said("ok")), users(said("go"))]),
    "several of a user's": (
        [HI, user("there"), OK, HI],
        [users(said("hi"), said("there")), models(said("ok")), users(said("hi"))],
    ),
    "the system's": (
        [Message(role=Role.SYSTEM, parts=(Text(text="be kind"),)), HI],
        [users(said("be kind"), said("hi"))],
    ),
    "no text": (
        [HI, assistant(Text(text=" \n")), user(""), OK, user(" "), user("go")],
        [users(said("hi")), models(said("ok")), users(said("go"))],
    ),
    "an assistant's at the beginning": (
        [OK, HI],
        [users(said("Begin.")), models(said("ok")), users(said("hi"))],
    ),
    "nothing": ([user(" ")], [users(said("Begin."))]),
    "an answer to nothing": (
        [user(" "), OK, HI],
        [users(said("Begin.")), models(said("ok")), users(said("hi"))],
    ),
    "an assistant's at the end": (
        [HI, assistant(Text(text="ok "))],
        [users(said("hi")), models(said("ok ")), users(said("Continue."))],
    ),
    "two assistant's": (
        [HI, OK, assistant(Text(text="so")), HI],
        [
            users(said("hi")),
            models(said("ok")),
            users(said("Continue.")),
            models(said("so")),
            users(said("hi")),
        ],
    ),
    "calls": (
        [
            HI,
            assistant(Text(text="ok "), CALL, call(2, "wb", "{}")),
            Message(role=Role.TOOL, parts=(*result(CALL).parts, *result(call(2, "wb")).parts)),
            OK,
            HI,
        ],
        [
            users(said("hi")),
            models(said("ok "), used("wa", p="x"), used("wb")),
            users(got("wa", said("got it")), got("wb", said("got it"))),
            models(said("ok")),
            users(said("hi")),
        ],
    ),
    "text behind results": (
        [HI, assistant(CALL), result(CALL), user("faster")],
        [users(said("hi")), models(used("wa", p="x")), users(got("wa", said("got it")), said("faster"))],
    ),
    "errors": (
        [
            HI,
            assistant(CALL),
            result(CALL, "oops", Outcome.CRASHED, PNG),
            assistant(call(2, "wb")),
            result(call(2, "wb"), "", Outcome.DENIED),
        ],
        [
            users(said("hi")),
            models(used("wa", p="x")),
            users(got("wa", said("oops"), said("[attachment a.png]"), is_error=True)),
            models(used("wb", p="x")),
            users(got("wb", said("denied"), is_error=True)),
        ],
    ),
    "files of a result": (
        [HI, assistant(CALL), result(CALL, "a picture", Outcome.OK, PNG)],
        [users(said("hi")), models(used("wa", p="x")), users(got("wa", said("a picture"), IMAGE))],
    ),
    "an empty result": (
        [HI, assistant(CALL), result(CALL, "")],
        [users(said("hi")), models(used("wa", p="x")), users({"type": "tool_result", "tool_use_id": "wa"})],
    ),
    "attachments": (
        [
            user(
                "see",
                files=(
                    PNG,
                    PDF,
                    Binary(media_type="text/csv; charset=utf-8", data="ä,b".encode()),
                    Binary(media_type="Image/SVG+xml", data=b"<svg>", name="a.svg"),
                    Binary(media_type="image/png", data=b""),
                    Binary(media_type="text/plain", data=b" ", name="b.txt"),
                ),
            ),
        ],
        [
            users(
                said("see"),
                IMAGE,
                {
                    "type": "document",
                    "source": {"type": "base64", "media_type": "application/pdf", "data": "JQ=="},
                    "title": "a.pdf",
                },
                {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "ä,b"}},
                said("[attachment a.svg]"),
                said("[attachment image/png, which is empty]"),
                said("[attachment b.txt]"),
            )
        ],
    ),
    "an assistant's attachment": (
        [HI, assistant(Text(text="here:"), PNG), HI],
        [users(said("hi")), models(said("here:"), said("[attachment a.png]")), users(said("hi"))],
    ),
    "thinking": (
        [HI, assistant(SIGNED, HIDDEN, UNSEEN, Text(text="ok"), CALL), result(CALL)],
        [
            users(said("hi")),
            models(
                THOUGHT,
                {"type": "redacted_thinking", "data": "r1"},
                {"type": "thinking", "thinking": "", "signature": "s2"},
                said("ok"),
                used("wa", p="x"),
            ),
            users(got("wa", said("got it"))),
        ],
    ),
    "thinking between": (
        [HI, assistant(SIGNED, Text(text="ok"), UNSEEN, CALL), result(CALL)],
        [
            users(said("hi")),
            models(
                THOUGHT,
                said("ok"),
                {"type": "thinking", "thinking": "", "signature": "s2"},
                used("wa", p="x"),
            ),
            users(got("wa", said("got it"))),
        ],
    ),
    "thinking without a proof": (
        [HI, assistant(UNSIGNED, Text(text="ok")), HI],
        [users(said("hi")), models(said("ok")), users(said("hi"))],
    ),
    "thinking at the end": (
        [HI, assistant(Text(text="ok"), SIGNED, HIDDEN), HI],
        [users(said("hi")), models(said("ok")), users(said("hi"))],
    ),
    "nothing but thinking": ([HI, assistant(SIGNED), user("so?")], [users(said("hi"), said("so?"))]),
    "thinking of another wire": (
        [
            HI,
            assistant(SIGNED, Text(text="ok"), model="openai:gpt-5"),
            HI,
            assistant(SIGNED, Text(text="ok"), model="claude-x"),
            HI,
        ],
        [
            users(said("hi")),
            models(said("ok")),
            users(said("hi")),
            models(THOUGHT, said("ok")),
            users(said("hi")),
        ],
    ),
    "thinking from before a compaction": (
        [
            user("Summary", at=9.0),
            assistant(SIGNED, Text(text="ok"), at=5.0),
            user("so", at=10.0),
            assistant(SIGNED, Text(text="ok"), at=11.0),
            HI,
        ],
        [
            users(said("Summary")),
            models(said("ok")),
            users(said("so")),
            models(THOUGHT, said("ok")),
            users(said("hi")),
        ],
    ),
    "half a surrogate pair": ([user("a\ud83d")], [users(said("a?"))]),
}


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation_is_encoded(name: str) -> None:
    """User and model take turns, results stand first, and nothing goes back that the API refuses."""
    messages, expected = CONVERSATIONS[name]
    assert sent(*messages) == expected


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_longer_conversation_begins_as_it_did(name: str) -> None:
    """At each length it is the same whether it was reached step by step or at once: so it can be cached."""
    messages, _ = CONVERSATIONS[name]
    wire, history = MessagesWire(), History.of(*messages)
    for length in range(1, len(messages) + 1):
        asked = attrs.evolve(ASKED, view=Conversation(revision=0, length=length))
        assert wire.encode(asked, scene_of(history)) == MessagesWire().encode(asked, scene_of(history))


def test_a_body_says_all_that_was_asked() -> None:
    """Model, system prompt, tools, limits and the wish to stream stand where the API has them."""
    config = Config(
        model=attrs.evolve(SPEC, max_output=100, temperature=0.5), tools=(READ, WRITE), stop=("END",)
    )
    asked = attrs.evolve(ASKED, tools=("read",), system="Be kind.", instructions="Now.")
    assert body_of(HI, config=config, asked=asked) == {
        "model": "claude-sonnet-4-5",
        "system": [{**said("Be kind."), **MARK}, said("Now.")],
        "messages": [users({**said("hi"), **MARK})],
        "tools": [
            {
                "name": "read",
                "description": 'Read a "file"',
                "input_schema": {"type": "object", "properties": {"p": {"type": "string"}}},
                **MARK,
            }
        ],
        "max_tokens": 100,
        "temperature": 0.5,
        "stop_sequences": ["END"],
        "stream": True,
    }


def test_a_body_leaves_out_what_was_not_asked() -> None:
    """Without tools or a prompt there is no key for them; a limit the API must have."""
    assert body_of(HI, asked=attrs.evolve(ASKED, tools=(), instructions=" ")) == {
        "model": "claude-sonnet-4-5",
        "messages": [users({**said("hi"), **MARK})],
        "max_tokens": 16_384,
        "stream": True,
    }


def test_instructions_alone_are_not_cached() -> None:
    """They are for one request."""
    assert body_of(HI, asked=attrs.evolve(ASKED, instructions="Now."))["system"] == [said("Now.")]


def test_a_schema_gets_its_type_where_it_has_none() -> None:
    """Other providers take a schema without one."""
    read, write = body_of(HI)["tools"]
    assert read["input_schema"] == {"type": "object", "properties": {"p": {"type": "string"}}}
    assert write == {"name": "write", "input_schema": {"type": "object", "properties": {}}, **MARK}


@pytest.mark.parametrize(
    ("name", "wire"),
    [("anthropic:claude-x", "claude-x"), ("claude-x", "claude-x"), ("openai:m", "openai:m"), ("m:1", "m:1")],
)
def test_only_the_wire_is_cut_off_a_models_name(name: str, wire: str) -> None:
    """A colon may be part of a model's own name."""
    assert body_of(HI, asked=attrs.evolve(ASKED, model=name))["model"] == wire


def test_a_model_is_asked_as_it_is_configured() -> None:
    """Another model than the first has settings of its own."""
    other = ModelSpec(name="anthropic:claude-haiku-4-5", max_output=7, temperature=0.1)
    config = Config(model=SPEC, models=(other,))
    body = body_of(HI, config=config, asked=attrs.evolve(ASKED, model=other.name))
    assert (body["max_tokens"], body["temperature"]) == (7, 0.1)


def marks(*messages: Message) -> list[tuple[int, int]]:
    """Where the cache markers stand in a request for *messages*: message and block, the last one as -1."""
    found = [
        (number, index - len(message["content"]))
        for number, message in enumerate(body_of(*messages)["messages"])
        for index, block in enumerate(message["content"])
        if "cache_control" in block
    ]
    assert len(found) <= 2
    return found


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([HI], [(0, -1)]),
        ([HI, user("there")], [(0, -1)]),
        ([HI, OK, HI], [(0, -1), (2, -1)]),
        ([HI, OK, HI, OK, HI], [(2, -1), (4, -1)]),
        ([HI, assistant(CALL), result(CALL)], [(0, -1), (2, -1)]),
        ([HI, assistant(CALL), result(CALL), user("faster")], [(0, -1), (2, -1)]),
        ([HI, OK, user("see", files=(PNG,))], [(0, -1), (2, -1)]),
        ([HI, OK], [(0, -1), (1, -1)]),
        ([OK], [(0, -1), (1, -1)]),
    ],
)
def test_a_conversation_is_cached_up_to_its_end_and_its_last_end(
    messages: list[Message], expected: list[tuple[int, int]]
) -> None:
    """So a request finds what the one before it stored, and stores for the next."""
    assert marks(*messages) == expected


def test_ids_are_such_as_the_api_takes() -> None:
    """Empty, repeated, colliding and odd ids of providers are replaced, alike in call and result."""
    made = [
        call(number, wire_id) for number, wire_id in enumerate(["x", "x", "", "a.b:0", "x" * 50, "call00002"])
    ]
    history = [message for one in made for message in (HI, assistant(one), result(one))]
    messages = sent(*history)
    ids = [block["id"] for message in messages for block in message["content"] if block["type"] == "tool_use"]
    answered = [
        block["tool_use_id"]
        for message in messages
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    assert ids == answered
    assert len(set(ids)) == len(made)
    assert ids[0] == "x"


@pytest.mark.parametrize(
    "arguments", ["", "[]", "null", '{"a":', '{"a": NaN}', '{"a":"\ud83d"}', "[" * 100_000]
)
def test_arguments_that_are_no_object_go_back_as_an_empty_one(arguments: str) -> None:
    """Providers refuse a conversation that holds them."""
    made = call(1, "a", arguments)
    assert sent(HI, assistant(made), result(made))[1] == models(used("a"))


def test_arguments_go_back_as_they_were_written() -> None:
    """No number is rounded, and no key is put elsewhere: what a provider cached stays the same."""
    made = call(1, "a", '{ "b": 1.0, "a": 12345678901234567890123 }')
    post = MessagesWire().encode(
        attrs.evolve(ASKED, view=Conversation(revision=0, length=3)),
        scene_of(History.of(HI, assistant(made), result(made))),
    )
    assert b'"input":{ "b": 1.0, "a": 12345678901234567890123 }' in post.body


@pytest.mark.parametrize(("name", "expected"), [("functions.read", "functions_read"), ("é" * 99, "_" * 64)])
def test_a_made_up_name_of_a_tool_is_one_that_the_api_takes(name: str, expected: str) -> None:
    """A model may call what is not there, and under any name."""
    made = call(1, "a", "{}", name)
    assert sent(HI, assistant(made), result(made))[1] == models(used("a", expected))


def test_calls_are_declared_where_no_tools_are_offered() -> None:
    """The API refuses a conversation with calls and no tools; none of them can be called now."""
    body = body_of(HI, assistant(CALL), result(CALL), asked=attrs.evolve(ASKED, tools=()))
    assert body["tools"] == [{"name": "read", "input_schema": {"type": "object"}}]
    assert body["tool_choice"] == {"type": "none"}


THINKING: list[tuple[str, int, int | None, dict[str, Any]]] = [
    (
        "claude-sonnet-4-5",
        2_000,
        4_000,
        {"thinking": {"type": "enabled", "budget_tokens": 2_000}, "max_tokens": 4_000},
    ),
    (
        "claude-sonnet-4-5",
        2_000,
        2_000,
        {"thinking": {"type": "enabled", "budget_tokens": 2_000}, "max_tokens": 4_000},
    ),
    (
        "claude-sonnet-4-20250514",
        1,
        500,
        {"thinking": {"type": "enabled", "budget_tokens": 1_024}, "max_tokens": 1_524},
    ),
    (
        "claude-3-7-sonnet-latest",
        9_000,
        None,
        {"thinking": {"type": "enabled", "budget_tokens": 9_000}, "max_tokens": 16_384},
    ),
    (
        "eu/claude-opus-4.6",
        2_000,
        4_000,
        {"thinking": {"type": "enabled", "budget_tokens": 2_000}, "max_tokens": 4_000},
    ),
    ("smart", 2_000, 4_000, {"thinking": {"type": "enabled", "budget_tokens": 2_000}, "max_tokens": 4_000}),
    (
        "claude-opus-4-7",
        4_096,
        9_000,
        {
            "thinking": {"type": "adaptive", "display": "summarized"},
            "output_config": {"effort": "low"},
            "max_tokens": 9_000,
        },
    ),
    (
        "claude-sonnet-5",
        9_000,
        9_000,
        {
            "thinking": {"type": "adaptive", "display": "summarized"},
            "output_config": {"effort": "medium"},
            "max_tokens": 18_000,
        },
    ),
    (
        "claude-fable-5-1",
        20_000,
        64_000,
        {
            "thinking": {"type": "adaptive", "display": "summarized"},
            "output_config": {"effort": "high"},
            "max_tokens": 64_000,
        },
    ),
]


@pytest.mark.parametrize(("name", "tokens", "limit", "expected"), THINKING)
def test_thinking_is_asked_for_as_the_model_takes_it(
    name: str, tokens: int, limit: int | None, expected: dict[str, Any]
) -> None:
    """By tokens, within those of the output, or by a word; and without a temperature."""
    config = Config(model=ModelSpec(name=f"anthropic:{name}", max_output=limit, temperature=0.5))
    body = body_of(
        HI, config=config, asked=attrs.evolve(ASKED, model=config.model.name, thinking=tokens, tools=())
    )
    assert body == {"model": name, "stream": True, "messages": [users({**said("hi"), **MARK})]} | expected


@pytest.mark.parametrize(("name", "expected"), [("claude-opus-4-6", 0.5), ("claude-opus-4-8", None)])
def test_a_temperature_is_sent_where_it_is_taken(name: str, expected: float | None) -> None:
    """Newer models refuse it."""
    config = Config(model=ModelSpec(name=name, temperature=0.5))
    assert body_of(HI, config=config, asked=attrs.evolve(ASKED, model=name)).get("temperature") == expected


THOUGHTFUL = assistant(SIGNED, CALL)
AGAIN = call(2, "wb")
LOOPS: list[tuple[list[Message], bool]] = [
    ([HI, OK, HI], True),
    ([HI, THOUGHTFUL, result(CALL)], True),
    ([HI, assistant(HIDDEN, CALL), result(CALL)], True),
    ([HI, THOUGHTFUL, result(CALL), assistant(AGAIN), result(AGAIN)], True),
    ([HI, THOUGHTFUL, result(CALL), user("faster"), assistant(AGAIN), result(AGAIN)], True),
    ([HI, assistant(CALL), result(CALL)], False),
    ([HI, assistant(CALL), result(CALL), user("faster")], False),
    ([HI, assistant(CALL), result(CALL), assistant(SIGNED, AGAIN), result(AGAIN)], False),
    ([HI, assistant(Text(text="ok"), SIGNED, CALL), result(CALL)], False),
    ([HI, assistant(UNSIGNED, CALL), result(CALL)], False),
    ([HI, assistant(SIGNED, CALL, model="openai:m"), result(CALL)], False),
    ([HI, assistant(CALL), result(CALL), OK, HI], True),
    ([HI, assistant(CALL), result(CALL), OK], True),
    ([HI, assistant(CALL), result(CALL), OK, assistant(SIGNED, AGAIN), result(AGAIN)], True),
    ([OK], True),
]


@pytest.mark.parametrize(("messages", "may_think"), LOOPS)
def test_a_turn_that_began_without_thinking_goes_on_without(messages: list[Message], may_think: bool) -> None:  # noqa: FBT001  # a row of the table
    """Older models refuse to begin in the middle of a turn with tools; newer ones do not mind."""
    older = attrs.evolve(ASKED, thinking=2_000)
    newer = attrs.evolve(older, model="anthropic:claude-opus-4-8")
    assert ("thinking" in body_of(*messages, asked=older)) is may_think
    assert "thinking" in body_of(*messages, asked=newer)


def test_a_transcript_is_one_message() -> None:
    """What is to be summarised comes as one text, with its own prompt, and is not worth caching."""
    asked = attrs.evolve(
        ASKED,
        view=Transcript(revision=0, length=2, limit=10_000),
        purpose=Purpose.SUMMARY,
        system="",
        instructions="Summarise.",
        tools=(),
    )
    body = body_of(HI, assistant(SIGNED, Text(text="ok"), CALL), user("not this"), asked=asked)
    shown = '<conversation>\n\n[user]\nhi\n\n[assistant]\nok\n[calls read] {"p": "x"}\n\n</conversation>'
    assert body["messages"] == [users(said(shown))]
    assert body["system"] == [said("Summarise.")]
    assert "tools" not in body


TEXTS = st.text(max_size=3) | st.sampled_from(["", " ", "ok "])
FILES = st.builds(
    Binary,
    media_type=st.sampled_from(["image/png", "image/bmp", "text/plain", "application/pdf", ""]),
    data=st.binary(max_size=3),
    name=st.text(max_size=2),
)
ASKING = st.builds(
    lambda texts, files: Message(role=Role.USER, parts=(*[Text(text=one) for one in texts], *files)),
    st.lists(TEXTS, max_size=2),
    st.lists(FILES, max_size=2),
)
PARTS = st.lists(
    st.builds(Text, text=TEXTS)
    | st.builds(
        Reasoning, text=TEXTS, signature=st.sampled_from(["", "s"]), redacted=st.sampled_from(["", "r"])
    )
    | FILES
    | st.builds(
        call, st.integers(), st.sampled_from(["", "a", "b:c"]), st.sampled_from(["", "{}", "[]"]), TEXTS
    ),
    max_size=4,
)


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Any conversation in which each call has its result behind it."""
    messages: list[Message] = []
    for _ in range(draw(st.integers(1, 5))):
        messages += draw(st.lists(ASKING, max_size=2))
        numbered = [
            attrs.evolve(part, id=f"r-{len(messages)}-{at}") if isinstance(part, ToolCall) else part
            for at, part in enumerate(draw(PARTS))
        ]
        said_ = assistant(*numbered, model=draw(st.sampled_from(["anthropic:m", "openai:m", ""])))
        messages.append(said_)
        if said_.calls:
            outcomes, files = st.sampled_from([Outcome.OK, Outcome.ERROR]), st.lists(FILES, max_size=1)
            results = [result(one, draw(TEXTS), draw(outcomes), *draw(files)).parts[0] for one in said_.calls]
            messages.append(Message(role=Role.TOOL, parts=tuple(results)))
    return [user("first"), *messages] if draw(st.booleans()) else [*messages, user("last")]


@given(conversations(), st.none() | st.just(2_000), st.sampled_from(["claude-sonnet-4-5", "claude-opus-4-8"]))
def test_the_api_takes_any_conversation(messages: list[Message], tokens: int | None, model: str) -> None:
    """Whatever was said, by whomever and how often in a row."""
    body_of(*messages, asked=attrs.evolve(ASKED, thinking=tokens, model=model))


# What is kept


def contents(wire: MessagesWire, history: History) -> list[str]:
    """What *wire* sends of *history*, text by text."""
    request = attrs.evolve(ASKED, view=Conversation(revision=0, length=len(history)))
    messages = json.loads(wire.encode(request, scene_of(history)).body)["messages"]
    return [block["text"] for message in messages for block in message["content"]]


def test_a_message_is_encoded_once() -> None:
    """A later request is made of the bytes of the earlier ones; only another log is read anew."""
    wire, history = MessagesWire(), History.of(user("one"))
    assert contents(wire, history) == ["one"]
    history.log.items[0] = user("changed")  # never done, and so never noticed
    longer = history.append(user("two"))
    assert contents(wire, longer) == ["one", "two"]
    assert contents(wire, history) == ["one"]
    assert contents(wire, history.append(user("three"))) == ["changed", "three"]
    assert contents(wire, longer.append(user("four"))) == ["one", "two", "four"]


def test_the_least_recently_used_conversation_is_forgotten() -> None:
    """Of more conversations than are kept, the one that was silent longest is encoded again."""
    wire, histories = MessagesWire(keep=2), [History.of(user("said")) for _ in range(3)]
    first, second, third = histories
    for history in (first, second, first, third):
        assert contents(wire, history) == ["said"]
    for history in histories:
        history.log.items[0] = user("changed")
    assert contents(wire, first) == contents(wire, third) == ["said"]
    assert contents(wire, second) == ["changed"]


def test_a_conversation_that_is_gone_is_not_held() -> None:
    """Keeping what was encoded does not keep the conversation alive."""
    wire, history = MessagesWire(), History.of(user("said"))
    contents(wire, history)
    log = weakref.ref(history.log)
    del history
    gc.collect()
    assert log() is None


# Refusals


def error(kind: str, message: str) -> dict[str, Any]:
    """An error as the API sends it."""
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


REFUSALS: list[tuple[int, str, str, Failure]] = [
    (400, "invalid_request_error", "max_tokens: 9 > 8", Failure.BAD_REQUEST),
    (400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum", Failure.OVERFLOW),
    (
        400,
        "invalid_request_error",
        "input length and `max_tokens` exceed context limit: 1 + 2 > 2",
        Failure.OVERFLOW,
    ),
    (401, "authentication_error", "invalid x-api-key", Failure.AUTH),
    (402, "billing_error", "no money", Failure.AUTH),
    (400, "billing_error", "no money", Failure.AUTH),
    (403, "permission_error", "not yours", Failure.AUTH),
    (404, "not_found_error", "model: claude-sonet", Failure.NOT_FOUND),
    (413, "request_too_large", "Request exceeds the maximum size", Failure.OVERFLOW),
    (429, "rate_limit_error", "slow down", Failure.RATE_LIMIT),
    (500, "api_error", "Internal server error", Failure.SERVER),
    (504, "timeout_error", "took too long", Failure.TIMEOUT),
    (529, "overloaded_error", "Overloaded", Failure.OVERLOADED),
]


@pytest.mark.parametrize(("status", "kind", "message", "failure"), REFUSALS)
def test_a_refusal_is_classified(status: int, kind: str, message: str, failure: Failure) -> None:
    """By its status, by its name and by its wording."""
    broken = refusal(status, {"retry-after": "7"}, json.dumps(error(kind, message)).encode(), now=0.0)
    assert broken == Broken(failure=failure, message=f"http {status}: {message}", retry_after=7.0)


@pytest.mark.parametrize(("status", "kind", "message", "failure"), REFUSALS)
def test_an_error_in_a_stream_is_classified(status: int, kind: str, message: str, failure: Failure) -> None:
    """There is no status in a stream, and an error that says no more than that has cut it."""
    expected = Failure.CUT if failure is Failure.SERVER else failure
    assert status
    assert stream_error(error(kind, message)) == cut(f"error in the stream: {message}", expected)


# Over a connection


async def asked_over_http(
    answer: bytes, monkeypatch: pytest.MonkeyPatch, api_key: str | None = "k1"
) -> tuple[bytes, list[Event | PassThroughNotice], ModelFinished | ModelFailed]:
    """The head of the request that a server saw that answers with *answer*, and what came of it."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "from the environment")
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        await writer.drain()
        writer.close()

    events: list[Event | PassThroughNotice] = []
    scene = attrs.evolve(scene_of(History.of(HI)), emit=events.append)
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        model = AnthropicMessages(f"http://127.0.0.1:{port}/v1/", api_key)
        ending = await model(ASKED, scene)
        await model.aclose()
    assert isinstance(ending, ModelFinished | ModelFailed)
    return heads[0], events, ending


async def test_a_model_is_asked_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the path of the API, with its version and the key; the answer is streamed."""
    body = begin(input_tokens=7) + text(0, "Hel", "lo") + close("end_turn", output_tokens=5)
    head, events, ending = await asked_over_http(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + body, monkeypatch
    )
    lines = head.decode().lower().split("\r\n")
    assert lines[0] == "post /v1/messages http/1.1"
    assert {"x-api-key: k1", "anthropic-version: 2023-06-01", "content-type: application/json"} <= set(lines)
    assert not [line for line in lines if line.startswith(("authorization:", "anthropic-beta:"))]
    pieces = [piece for event in events if isinstance(event, ModelStreamed) for piece in event.pieces]
    assert merged(pieces) == (TextPiece("Hello"),)
    assert isinstance(ending, ModelFinished)
    assert (ending.stop, ending.usage) == (StopReason.END_TURN, Usage(input=7, output=5))


async def test_a_refused_key_says_where_to_set_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's key is used where none is given."""
    body = json.dumps(error("authentication_error", "invalid x-api-key")).encode()
    head, _, ending = await asked_over_http(
        b"HTTP/1.1 401 Unauthorized\r\nconnection: close\r\n\r\n" + body, monkeypatch, None
    )
    assert b"x-api-key: from the environment" in head.lower()
    assert isinstance(ending, ModelFailed)
    assert ending.failure is Failure.AUTH
    assert ending.message == "http 401: invalid x-api-key; set ANTHROPIC_API_KEY or pass api_key"


async def test_no_key_is_sent_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy may ask for none."""
    head, _, _ = await asked_over_http(b"HTTP/1.1 500 Oops\r\nconnection: close\r\n\r\n", monkeypatch, "")
    assert b"x-api-key" not in head.lower()


def test_a_key_that_no_header_can_hold_is_refused() -> None:
    """Before anything is asked, and without showing it."""
    with pytest.raises(ConfigError, match="check api_key or ANTHROPIC_API_KEY"):
        AnthropicMessages(api_key="sk\n1")
