"""The chat-completions dialect without a network: events, pieces, endings, request bodies, refusals."""

from __future__ import annotations

import gc
import json
import random
import weakref
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwheel.effects.config import Config, ModelSpec, ToolSpec
from turnwheel.effects.events import Failure
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
from turnwheel.performers.base import PerformContext, SystemClock
from turnwheel.performers.models.body import MAX_EVENT, EventSplitter
from turnwheel.performers.models.errors import (
    MAX_FAILURE_TEXT,
    refusal,
    retry_after,
    stream_error,
)
from turnwheel.performers.models.openai import ChatParser, ChatWire, ServerQuirks
from turnwheel.performers.models.wire import AnswerEnd, Broken, Complete

# Events


def events_of(parts: list[bytes]) -> list[tuple[bytes, bytes]]:
    """The events of a stream that arrives in *parts*."""
    splitter = EventSplitter()
    return [event for part in parts for event in splitter.feed(part)] + splitter.end()


STREAMS: dict[str, tuple[bytes, list[tuple[bytes, bytes]]]] = {
    "one": (b"data: a\n\n", [(b"", b"a")]),
    "several": (b"data: a\n\ndata: b\n\ndata: c\n\n", [(b"", b"a"), (b"", b"b"), (b"", b"c")]),
    "no space": (b"data:a\n\n", [(b"", b"a")]),
    "one space only is taken off": (b"data:  a\n\n", [(b"", b" a")]),
    "cr": (b"data: a\r\rdata: b\r\r", [(b"", b"a"), (b"", b"b")]),
    "crlf": (b"data: a\r\n\r\ndata: b\r\n\r\n", [(b"", b"a"), (b"", b"b")]),
    "crlf, several lines": (b"data: a\r\ndata: b\r\n\r\n", [(b"", b"a\nb")]),
    "mixed": (b"data: a\r\n\ndata: b\r\r\ndata: c\n\r", [(b"", b"a"), (b"", b"b"), (b"", b"c")]),
    "named": (b"event: error\ndata: a\n\ndata: b\n\n", [(b"error", b"a"), (b"", b"b")]),
    "several lines": (b"data: a\ndata: b\n\n", [(b"", b"a\nb")]),
    "comments": (b": hello\n\ndata: a\n: there\n\n:\n\n", [(b"", b"a")]),
    "other fields": (b"id: 1\nretry: 5\nwhat\ndata: a\n\n", [(b"", b"a")]),
    "byte order mark": (b"\xef\xbb\xbfdata: a\n\ndata: b\n\n", [(b"", b"a"), (b"", b"b")]),
    "byte order mark in the middle": (b"data: a\n\n\xef\xbb\xbfdata: b\n\n", [(b"", b"a")]),
    "a name without data": (b"event: ping\n\ndata: a\n\n", [(b"", b"a")]),
    "empty data": (b"data\n\n", [(b"", b"")]),
    "no last blank line": (b"data: a\n\ndata: b\n", [(b"", b"a"), (b"", b"b")]),
    "no last line end": (b"data: a\n\ndata: b", [(b"", b"a"), (b"", b"b")]),
    "nothing": (b"", []),
    "blank lines": (b"\n\n\n\ndata: a\n\n\n\n", [(b"", b"a")]),
}


@pytest.mark.parametrize("name", STREAMS)
def test_events_do_not_depend_on_the_split(name: str) -> None:
    """Whole, in any two parts and byte by byte, a stream has the same events."""
    stream, expected = STREAMS[name]
    assert events_of([stream]) == expected
    assert events_of([stream[i : i + 1] for i in range(len(stream))]) == expected
    for cut in range(len(stream)):
        assert events_of([stream[:cut], stream[cut:]]) == expected


@given(
    st.lists(st.sampled_from([b"data: ", b"a", b"\n", b"\n\n", b"\r", b":", b"event: x", b"\xef\xbb\xbf"]))
)
def test_any_stream_splits_the_same_everywhere(tokens: list[bytes]) -> None:
    """Whatever a stream holds, the quick way and the slow way through it agree."""
    stream = b"".join(tokens)
    assert (
        events_of([stream]) == events_of(tokens) == events_of([stream[i : i + 1] for i in range(len(stream))])
    )


@pytest.mark.parametrize("part", [b"x" * 65_536, b"data: " + b"x" * 65_536 + b"\n"])
def test_an_event_without_an_end_is_refused(part: bytes) -> None:
    """Neither a line nor an event of many lines is kept without bounds; what came before it counts."""
    splitter = EventSplitter()
    assert splitter.feed(b"data: before\n\n" + part) == [(b"", b"before")]
    assert not any(splitter.feed(part) for _ in range(2 + MAX_EVENT // 65_536))
    assert splitter.oversized
    assert splitter.end() == []


# Pieces and endings


def chunk(delta: object = None, finish: str | None = None, /, **more: object) -> bytes:
    """One event of a stream with *delta*."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return event({"id": "c", "object": "chat.completion.chunk", "choices": [choice], **more})


def event(value: object) -> bytes:
    """*value* as one event."""
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def calls(*bits: dict[str, Any]) -> bytes:
    """One event with *bits* of calls."""
    return chunk({"tool_calls": list(bits)})


def bit(index: int | None, wire_id: str | None, name: str | None, arguments: object) -> dict[str, Any]:
    """A bit of a call, without what is None."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    head = {key: value for key, value in (("index", index), ("id", wire_id)) if value is not None}
    return {**head, "type": "function", "function": function}


DONE = b"data: [DONE]\n\n"
STOP = chunk({}, "stop")
TOOLS = chunk({}, "tool_calls")
USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
USED = Usage(input=7, output=5)


NOTHING = Usage()


def ended(stop: StopReason = StopReason.END_TURN, usage: Usage = NOTHING, sequence: str = "") -> Complete:
    """A complete ending."""
    return Complete(stop=stop, usage=usage, sequence=sequence)


A, B = CallPiece(0, "a", "f", '{"x":1}'), CallPiece(1, "b", "g", "{}")
TOOL_USE = ended(StopReason.TOOL_USE)

ANSWERS: dict[str, tuple[bytes, list[Piece], AnswerEnd]] = {
    "text": (
        chunk({"content": "Hel"}) + chunk({"content": "lo"}) + STOP + DONE,
        [TextPiece("Hello")],
        ended(),
    ),
    "not ascii": (chunk({"content": "grüß 😀"}) + STOP + DONE, [TextPiece("grüß 😀")], ended()),
    "raw utf-8": (
        'data: {"choices":[{"delta":{"content":"grüß 😀"},"finish_reason":"stop"}]}\n\n'.encode(),
        [TextPiece("grüß 😀")],
        ended(),
    ),
    "content null": (chunk({"role": "assistant", "content": None}) + STOP + DONE, [], ended()),
    "no [DONE]": (chunk({"content": "a"}) + STOP, [TextPiece("a")], ended()),
    "no last blank line": ((chunk({"content": "a"}) + STOP).rstrip(), [TextPiece("a")], ended()),
    "keepalives": (b": hi\n\n" + chunk({"content": "a"}) + b": hi\n\n" + STOP, [TextPiece("a")], ended()),
    "finish not repeated": (
        chunk({"content": "a"}, "stop") + chunk({}, None) + DONE,
        [TextPiece("a")],
        ended(),
    ),
    "unknown finish": (chunk({"content": "a"}, "wow") + DONE, [TextPiece("a")], ended(StopReason.UNKNOWN)),
    "no finish": (chunk({"content": "a"}) + DONE, [TextPiece("a")], ended(StopReason.UNKNOWN)),
    "length": (chunk({"content": "a"}, "length") + DONE, [TextPiece("a")], ended(StopReason.MAX_TOKENS)),
    "filtered": (chunk({}, "content_filter") + DONE, [], ended(StopReason.REFUSAL)),
    "refusal": (
        chunk({"refusal": "I "}) + chunk({"refusal": "won't"}) + STOP + DONE,
        [TextPiece("I won't")],
        ended(StopReason.REFUSAL),
    ),
    "empty refusal": (chunk({"content": "a", "refusal": ""}) + STOP, [TextPiece("a")], ended()),
    "after [DONE]": (
        chunk({"content": "a"}) + STOP + DONE + chunk({"content": "b"}),
        [TextPiece("a")],
        ended(),
    ),
    "empty choices": (event({"choices": []}) + chunk({"content": "a"}) + STOP, [TextPiece("a")], ended()),
    "no choices": (event({"moderation": {}}) + chunk({"content": "a"}) + STOP, [TextPiece("a")], ended()),
    "other choices": (
        event({"choices": [{"index": 1, "delta": {"content": "b"}, "finish_reason": "length"}]})
        + event(
            {"choices": [{"index": 0, "delta": {"content": "a"}}, {"index": 1, "delta": {"content": "b"}}]}
        )
        + STOP,
        [TextPiece("a")],
        ended(),
    ),
    "a torn line": (
        chunk({"content": "a"}) + b'data: {"choices":[{"del\nevent: ping\ndata: {"type": "ping"}\n\n' + STOP,
        [TextPiece("a")],
        ended(),
    ),
    "odd values": (
        b'data: 5\n\ndata: null\n\ndata: []\n\ndata: "x"\n\n'
        + event(
            {
                "choices": [
                    None,
                    5,
                    {"delta": 5},
                    {"delta": {"content": 5, "tool_calls": [5, {"function": 5}]}},
                ]
            }
        )
        + event({"choices": {"a": 1}, "usage": [1]})
        + STOP,
        [],
        ended(),
    ),
    "half a surrogate pair": (
        b'data: {"choices":[{"delta":{"content":"a\\ud83d"},"finish_reason":"stop"}]}\n\n',
        [TextPiece("a�")],
        ended(),
    ),
    "usage behind": (STOP + event({"choices": [], "usage": USAGE}) + DONE, [], ended(usage=USED)),
    "usage on a choice's chunk": (chunk({}, "stop", usage=USAGE) + DONE, [], ended(usage=USED)),
    "usage null": (chunk({}, "stop", usage=USAGE) + chunk({}, None, usage=None), [], ended(usage=USED)),
    "usage in x_groq": (chunk({}, "stop", x_groq={"usage": USAGE}), [], ended(usage=USED)),
    "usage in a choice": (
        event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": USAGE}]}),
        [],
        ended(usage=USED),
    ),
    "usage on every chunk": (
        chunk({}, None, usage={"prompt_tokens": 7}) + chunk({}, "stop", usage=USAGE),
        [],
        ended(usage=USED),
    ),
    "usage in detail": (
        chunk(
            {},
            "stop",
            usage={
                **USAGE,
                "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 2},
                "completion_tokens_details": {"reasoning_tokens": 4},
            },
        ),
        [],
        ended(usage=Usage(input=7, output=5, cached=3, cache_write=2, reasoning=4)),
    ),
    "reasoning beside the output": (
        chunk(
            {},
            "stop",
            usage={**USAGE, "total_tokens": 16, "completion_tokens_details": {"reasoning_tokens": 4}},
        ),
        [],
        ended(usage=Usage(input=7, output=9, reasoning=4)),
    ),
    "odd usage": (
        chunk({}, "stop", usage={"prompt_tokens": "7", "completion_tokens": -5, "prompt_tokens_details": 5}),
        [],
        ended(),
    ),
    "reasoning_content": (
        chunk({"reasoning_content": "hm"}) + chunk({"content": "a", "reasoning_content": None}) + STOP,
        [ReasoningPiece("hm"), TextPiece("a")],
        ended(),
    ),
    "reasoning twice": (
        chunk(
            {
                "content": "",
                "reasoning": "hm",
                "reasoning_details": [{"type": "reasoning.text", "text": "hm"}],
            }
        )
        + chunk({"content": "", "reasoning_details": [{"type": "reasoning.text", "signature": "s1"}]})
        + STOP,
        [ReasoningPiece("hm", "s1")],
        ended(),
    ),
    "thinking_blocks": (
        chunk({"reasoning_content": "hm", "thinking_blocks": [{"type": "thinking", "thinking": "hm"}]})
        + chunk(
            {"reasoning_content": "", "thinking_blocks": [{"thinking": "", "signature": "s1"}], "content": ""}
        )
        + chunk({"thinking_blocks": [{"thinking": "more", "signature": "s2"}]})
        + STOP,
        [ReasoningPiece("hm", "s1"), ReasoningPiece("more", "s2")],
        ended(),
    ),
    "redacted thinking": (
        chunk({"reasoning_content": "", "thinking_blocks": [{"type": "redacted_thinking", "data": "d1"}]})
        + chunk({"thinking_blocks": [{"thinking": "hm", "signature": "s1"}, {"type": "redacted_thinking"}]})
        + chunk({"content": "a"})
        + STOP,
        [ReasoningPiece(redacted="d1"), ReasoningPiece("hm", "s1"), TextPiece("a")],
        ended(),
    ),
    "redacted beside readable thinking": (
        chunk({"reasoning_content": "hm", "thinking_blocks": [{"type": "redacted_thinking", "data": "d1"}]})
        + STOP,
        [ReasoningPiece("hm"), ReasoningPiece(redacted="d1")],
        ended(),
    ),
    "content list": (
        chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]})
        + chunk({"content": [{"type": "text", "text": "a"}, {"type": "reference", "reference_ids": [1]}]})
        + STOP,
        [ReasoningPiece("hm"), TextPiece("a")],
        ended(),
    ),
    "a call": (
        calls(bit(0, "a", "f", ""))
        + calls(bit(0, None, None, '{"x"'))
        + calls(bit(0, None, None, ":1}"))
        + TOOLS,
        [A],
        TOOL_USE,
    ),
    "a call with finish stop": (calls(bit(0, "a", "f", '{"x":1}')) + STOP, [A], ended()),
    "parallel calls": (
        calls(bit(0, "a", "f", ""))
        + calls(bit(0, None, None, '{"x":1}'))
        + calls(bit(1, "b", "g", "{}"))
        + TOOLS,
        [A, B],
        TOOL_USE,
    ),
    "interleaved calls": (
        calls(bit(0, "a", "f", ""), bit(1, "b", "g", ""))
        + calls(bit(1, None, None, "{"), bit(0, None, None, '{"x"'))
        + calls(bit(0, None, None, ":1}"), bit(1, None, None, "}"))
        + TOOLS,
        [A, B],
        TOOL_USE,
    ),
    "indexes not from 0": (
        calls(bit(5, "a", "f", '{"x":1}'), bit(9, "b", "g", "{}")) + TOOLS,
        [A, B],
        TOOL_USE,
    ),
    "no index": (calls(bit(None, "a", "f", '{"x":1}'), bit(None, "b", "g", "{}")) + TOOLS, [A, B], TOOL_USE),
    "no index, in bits": (
        calls(bit(None, "a", "f", '{"x"'))
        + calls(bit(None, None, None, ":1}"))
        + calls(bit(None, "b", "g", "{}"))
        + TOOLS,
        [A, B],
        TOOL_USE,
    ),
    "one index, other ids": (
        calls(bit(0, "a", "f", '{"x":1}')) + calls(bit(0, "b", "g", "{}")) + TOOLS,
        [A, B],
        TOOL_USE,
    ),
    "one index, other ids, in bits": (
        calls(bit(0, "a", "f", ""))
        + calls(bit(0, "b", "f", ""))
        + calls(bit(0, "a", None, "{}"), bit(0, "b", None, "{}"))
        + TOOLS,
        [CallPiece(0, "a", "f", "{}"), CallPiece(1, "b", "f", "{}")],
        TOOL_USE,
    ),
    "one index, no ids": (
        calls(bit(0, "", "f", "{}")) + calls(bit(0, "", "f", "{}")) + calls(bit(0, "", "g", "")) + TOOLS,
        [CallPiece(0, "", "f", "{}"), CallPiece(1, "", "f", "{}"), CallPiece(2, "", "g", "")],
        TOOL_USE,
    ),
    "id and name repeated": (
        calls(bit(0, "a", "f", '{"x"'))
        + calls(bit(0, "a", "f", ":1}"))
        + calls(bit(0, "a", "f", ""))
        + TOOLS,
        [A],
        TOOL_USE,
    ),
    "duplicate ids": (
        calls(bit(0, "a", "f", "{}"), bit(1, "a", "f", "{}")) + TOOLS,
        [CallPiece(0, "a", "f", "{}"), CallPiece(1, "a", "f", "{}")],
        TOOL_USE,
    ),
    "a late id": (calls(bit(0, None, "f", "")) + calls(bit(0, "a", None, '{"x":1}')) + TOOLS, [A], TOOL_USE),
    "no arguments": (calls(bit(0, "a", "f", "")) + TOOLS, [CallPiece(0, "a", "f", "")], TOOL_USE),
    "arguments as an object": (
        calls(bit(0, "a", "f", {"x": 1})) + TOOLS,
        [CallPiece(0, "a", "f", '{"x": 1}')],
        TOOL_USE,
    ),
    "arguments that are no json": (
        calls(bit(0, "a", "f", '{"x": unquoted')) + chunk({}, "length"),
        [CallPiece(0, "a", "f", '{"x": unquoted')],
        ended(StopReason.MAX_TOKENS),
    ),
    "a call and its finish": (
        chunk({"content": None, "tool_calls": [bit(None, "a", "f", '{"x":1}')]}, "tool_calls") + DONE,
        [A],
        TOOL_USE,
    ),
    "function_call": (
        chunk({"function_call": {"name": "f", "arguments": ""}})
        + chunk({"function_call": {"arguments": "{}"}})
        + chunk({}, "function_call"),
        [CallPiece(0, "", "f", "{}")],
        TOOL_USE,
    ),
    "a matched stop": (
        event({"choices": [{"delta": {"content": "a"}, "finish_reason": "stop", "stop_reason": "END"}]}),
        [TextPiece("a")],
        ended(StopReason.STOP_SEQUENCE, sequence="END"),
    ),
    "another stop_reason": (
        event({"choices": [{"delta": {"content": "a"}, "finish_reason": "stop", "stop_reason": "end_turn"}]}),
        [TextPiece("a")],
        ended(),
    ),
    "not streamed": (
        (
            b' \n {"object":"chat.completion","choices":[{"index":0,"message":{"content":"a",'
            b'"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\\"x\\":1}"}}]},'
            b'"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":7,"completion_tokens":5}}\n'
        ),
        [TextPiece("a"), A],
        ended(StopReason.TOOL_USE, USED),
    ),
}


def cut(message: str, failure: Failure = Failure.CUT, usage: Usage | None = None) -> Broken:
    """A broken ending."""
    return Broken(failure=failure, message=message, usage=usage)


NO_END = cut("the stream ended without a finish reason or [DONE]")
ANSWERS.update(
    {
        "empty": (b"", [], cut("the answer is empty")),
        "only white space": (b"\r\n \n", [], cut("the answer is empty")),
        "only [DONE]": (DONE, [], cut("the answer holds nothing; it began with 'data: [DONE]\\n\\n'")),
        "a web page": (
            b"<html>hi</html>",
            [],
            cut("the answer holds nothing; it began with '<html>hi</html>'"),
        ),
        "no end": (chunk({"content": "a"}), [TextPiece("a")], NO_END),
        "torn at the end": (chunk({"content": "a"}) + STOP[:-20], [TextPiece("a")], NO_END),
        "an error": (
            chunk({"content": "a"}, None, usage=USAGE)
            + event({"error": {"message": "boom", "code": "500"}})
            + STOP,
            [TextPiece("a")],
            cut("error in the stream: boom", usage=USED),
        ),
        "an error and a finish": (
            chunk({"content": "a"}, "length")
            + chunk({}, None, error={"code": 429, "message": "slow down"})
            + DONE,
            [TextPiece("a")],
            cut("error in the stream: slow down", Failure.RATE_LIMIT),
        ),
        "a named error event": (
            b'event: error\ndata: {"message":"busy","type":"overloaded_error"}\n\n',
            [],
            cut("error in the stream: busy", Failure.OVERLOADED),
        ),
        "a named error event of plain text": (
            b"event: error\ndata: out of cheese\n\n",
            [],
            cut("error in the stream: out of cheese"),
        ),
        "finish error": (
            chunk({"content": "a"}, "error"),
            [TextPiece("a")],
            cut("the provider ended the answer with an error"),
        ),
        "an error in a list": (
            b'[{"error":{"code":503,"message":"down"}}]',
            [],
            cut("error in the stream: down"),
        ),
        "json that is cut": (
            b'{"choices":[{"me',
            [],
            cut('the answer holds nothing; it began with \'{"choices":[{"me\''),
        ),
    }
)


def read(parts: list[bytes]) -> tuple[list[Piece], AnswerEnd]:
    """The pieces and the ending of an answer that arrives in *parts*."""
    parser = ChatParser(stops=("END",))
    pieces = [piece for part in parts for piece in parser.feed(part)]
    ending = parser.end()
    if isinstance(ending, Complete):
        pieces += ending.pieces
        ending = ended(ending.stop, ending.usage, ending.sequence)
    return pieces, ending


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_read(name: str) -> None:
    """Its merged pieces and its ending are what the server meant."""
    body, pieces, ending = ANSWERS[name]
    found, found_ending = read([body])
    assert list(merged(found)) == pieces
    assert found_ending == ending


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_does_not_depend_on_the_split(name: str) -> None:
    """In any two parts, byte by byte and at random splits, it is read the same."""
    body, _, _ = ANSWERS[name]
    whole, rng = read([body]), random.Random(name)
    assert read([body[i : i + 1] for i in range(len(body))]) == whole
    for at in range(len(body)):
        assert read([body[:at], body[at:]]) == whole
    for _ in range(20):
        cuts = sorted(rng.choices(range(len(body) + 1), k=8))
        assert read([body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]) == whole


@pytest.mark.parametrize("ending", ["\r\n", "\r"])
@pytest.mark.parametrize(
    "name", [name for name in ANSWERS if "web page" not in name and "[DONE]" not in name]
)
def test_an_answer_does_not_depend_on_the_line_ends(name: str, ending: str) -> None:
    """With other line ends it is read the same."""
    body, _, _ = ANSWERS[name]
    assert read([body.replace(b"\n", ending.encode())]) == read([body])


@given(
    st.lists(
        st.binary(max_size=40) | st.sampled_from([b"data: ", b"\n\n", STOP, DONE, b"{", b'{"choices":['])
    )
)
def test_no_bytes_crash_the_parser(parts: list[bytes]) -> None:
    """Whatever comes, there is an ending."""
    _, ending = read(parts)
    assert isinstance(ending, Complete | Broken)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "text", "function"]), inner)
    ),
    max_leaves=8,
)
FIELDS = [
    "content",
    "refusal",
    "tool_calls",
    "function_call",
    "reasoning",
    "thinking_blocks",
    "reasoning_details",
]


@given(st.dictionaries(st.sampled_from(FIELDS), JSON), JSON, JSON, st.booleans())
def test_no_json_crashes_the_parser(  # drawn by Hypothesis, by name
    delta: object,
    usage: object,
    error: object,
    broken: bool,  # noqa: FBT001  # as above
) -> None:
    """Any value may stand in any field."""
    more = {"usage": usage} | ({"error": error} if broken else {})
    _, ending = read([chunk(delta, "stop", **more)])
    assert isinstance(ending, Broken if broken and error else Complete)


def test_an_oversized_event_ends_the_answer() -> None:
    """Garbage without an end is not kept, and what comes behind it is not read."""
    parser = ChatParser()
    for _ in range(2 + MAX_EVENT // 65_536):
        assert parser.feed(b"x" * 65_536) == []
    assert parser.feed(STOP + DONE) == []
    assert parser.end() == cut(f"an event of the stream is larger than {MAX_EVENT} bytes")


def test_a_whole_answer_outlives_its_connection() -> None:
    """A reset behind the finish reason does not void the answer; one before it does."""
    reset = cut("reset", Failure.CONNECTION)
    finished, open_ = ChatParser(), ChatParser()
    finished.feed(chunk({"content": "a"}) + STOP)
    open_.feed(chunk({"content": "a"}, None, usage=USAGE))
    assert finished.end(reset) == ended()
    assert open_.end(reset) == cut("reset", Failure.CONNECTION, USED)
    done = ChatParser()
    done.feed(chunk({"content": "a"}) + DONE)
    assert done.end(reset) == ended(StopReason.UNKNOWN)


# Request bodies

READ = ToolSpec(
    name="read", description='Read a "file"', schema='{"type":"object","properties":{"p":{"type":"string"}}}'
)
WRITE = ToolSpec(name="write")
PLAIN = Config(model=ModelSpec(name="openai:m", max_output=None))


ASKED = CallModel(id="r-1", model="openai:m", view=Conversation(revision=0, length=1))


def scene_of(history: History, config: Config = PLAIN) -> PerformContext:
    """A scene over *history*."""
    return PerformContext(
        session="s", run="r", config=config, history=history, clock=SystemClock(), emit=lambda _: None
    )


def body_of(
    *messages: Message, config: Config = PLAIN, wire: ChatWire | None = None, asked: CallModel = ASKED
) -> dict[str, Any]:
    """The decoded body of a request for *messages*, or for what *asked* views of them."""
    if isinstance(asked.view, Conversation):
        asked = attrs.evolve(asked, view=Conversation(revision=0, length=len(messages)))
    if asked.model == ASKED.model:
        asked = attrs.evolve(asked, model=config.model.name)
    post = (wire or ChatWire()).encode(asked, scene_of(History.of(*messages), config))
    assert post.path == "/chat/completions"
    body: dict[str, Any] = json.loads(post.body)
    return body


def assistant(*parts: Part) -> Message:
    """An assistant's message."""
    return Message(role=Role.ASSISTANT, parts=(*parts, Finish(reason=StopReason.END_TURN)))


def call(number: int, wire_id: str, arguments: str = '{"p": "x"}') -> ToolCall:
    """A call of `read`."""
    return ToolCall(id=f"r-{number}", wire_id=wire_id, name="read", arguments=arguments)


def results(*of: ToolCall) -> Message:
    """The message with the results *of* calls."""
    parts = [ToolResult(call=c.id, wire_id=c.wire_id, name=c.name, content=f"got {c.id}") for c in of]
    return Message(role=Role.TOOL, parts=tuple(parts))


def test_a_body_says_all_that_was_asked() -> None:
    """Model, system prompt, tools, limits and the wish to stream stand where the API has them."""
    config = Config(
        model=ModelSpec(name="openai:m", max_output=100, temperature=0.5), tools=(READ, WRITE), stop=("END",)
    )
    asked = attrs.evolve(ASKED, tools=("read",), system="Be kind.", instructions="Now.")
    assert body_of(user("hi"), config=config, asked=asked) == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be kind.\n\nNow."}, {"role": "user", "content": "hi"}],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "read",
                    "description": 'Read a "file"',
                    "parameters": {"type": "object", "properties": {"p": {"type": "string"}}},
                },
            }
        ],
        "max_tokens": 100,
        "temperature": 0.5,
        "stop": ["END"],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_body_leaves_out_what_was_not_asked() -> None:
    """Without tools, prompt or limits there is no key for them."""
    assert body_of(user("hi")) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@pytest.mark.parametrize(
    ("system", "instructions", "expected"),
    [
        ("Be kind.", "", "Be kind."),
        ("", "Now.", "Now."),
        ("Be kind.", " ", "Be kind."),
        ("Be kind.\n", "Now.", "Be kind.\n\n\nNow."),
    ],
)
def test_a_system_prompt_begins_the_same_in_every_request(
    system: str, instructions: str, expected: str
) -> None:
    """It is one message, since many models take one only, and what changes stands behind what does not."""
    body = body_of(user("hi"), asked=attrs.evolve(ASKED, system=system, instructions=instructions))
    assert body["messages"] == [{"role": "system", "content": expected}, {"role": "user", "content": "hi"}]


REASONING = ["openai:gpt-5-mini", "openai:o3", "o4-mini", "openai:openai/o1", "openai:ft:o4-mini:org::id"]
PLAIN_MODELS = ["openai:gpt-4.1", "openai:gpt-5-chat-latest", "openai:qwen3:8b", "openai:gpt-oss:20b"]


@pytest.mark.parametrize("name", REASONING)
def test_a_reasoning_model_is_not_sent_what_it_refuses(name: str) -> None:
    """It takes another name for the limit and no temperature."""
    body = body_of(user("hi"), config=Config(model=ModelSpec(name=name, max_output=9, temperature=1.0)))
    assert body["max_completion_tokens"] == 9
    assert body.keys().isdisjoint({"max_tokens", "temperature", "reasoning_effort"})


@pytest.mark.parametrize(
    ("tokens", "effort"),
    [(1, "low"), (4_096, "low"), (4_097, "medium"), (16_384, "medium"), (16_385, "high")],
)
@pytest.mark.parametrize("name", REASONING)
def test_a_reasoning_model_is_told_how_much_to_think(name: str, tokens: int, effort: str) -> None:
    """It takes a word where we have a number of tokens."""
    asked = attrs.evolve(ASKED, thinking=tokens)
    assert (
        body_of(user("hi"), config=Config(model=ModelSpec(name=name)), asked=asked)["reasoning_effort"]
        == effort
    )


@pytest.mark.parametrize("name", PLAIN_MODELS)
def test_another_model_is_not_told_how_much_to_think(name: str) -> None:
    """Nobody knows what its server would make of it."""
    spec = ModelSpec(name=name, max_output=9, temperature=1.0)
    body = body_of(user("hi"), config=Config(model=spec), asked=attrs.evolve(ASKED, thinking=5_000))
    assert (body["max_tokens"], body["temperature"]) == (9, 1.0)
    assert body.keys().isdisjoint({"max_completion_tokens", "reasoning_effort"})


def test_a_model_that_a_run_was_switched_to_is_asked_its_own_way() -> None:
    """Its own limit and temperature go out; one that is not configured is asked as the first one is."""
    config = Config(
        model=ModelSpec(name="openai:m", max_output=100, temperature=0.5),
        models=(ModelSpec(name="openai:n", max_output=None), ModelSpec(name="openai:o3", max_output=7)),
    )
    sent = {
        name: body_of(user("hi"), config=config, asked=attrs.evolve(ASKED, model=name))
        for name in ("openai:n", "openai:o3", "openai:x")
    }
    keys = {"model", "max_tokens", "max_completion_tokens", "temperature"}
    assert [{key: value for key, value in body.items() if key in keys} for body in sent.values()] == [
        {"model": "n"},
        {"model": "o3", "max_completion_tokens": 7},
        {"model": "x", "max_tokens": 100, "temperature": 0.5},
    ]


@pytest.mark.parametrize(
    ("name", "prefix", "wire"),
    [
        ("openai:gpt-5", "openai", "gpt-5"),
        ("qwen3:8b", "openai", "qwen3:8b"),
        ("openai:qwen3:8b", "openai", "qwen3:8b"),
        ("m", "openai", "m"),
        ("local:qwen3:8b", "local", "qwen3:8b"),
        ("openai:m", "local", "openai:m"),
    ],
)
def test_only_the_wire_is_cut_off_a_models_name(name: str, prefix: str, wire: str) -> None:
    """A colon may be part of a model's own name."""
    body = body_of(user("hi"), config=Config(model=ModelSpec(name=name)), wire=ChatWire(prefix=prefix))
    assert body["model"] == wire


def test_calls_and_results_are_messages_of_their_own() -> None:
    """One message with the calls, one message for each result, tied by the wire's ids."""
    a, b = call(1, "wa"), call(2, "wb", "not json")
    body = body_of(user("hi"), assistant(Text(text="ok"), a, b), results(a, b), assistant())
    assert body["messages"][1:] == [
        {
            "role": "assistant",
            "content": "ok",
            "tool_calls": [
                {"id": "wa", "type": "function", "function": {"name": "read", "arguments": '{"p": "x"}'}},
                {"id": "wb", "type": "function", "function": {"name": "read", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "wa", "content": "got r-1"},
        {"role": "tool", "tool_call_id": "wb", "content": "got r-2"},
    ]


def test_a_message_that_says_nothing_is_not_sent_empty() -> None:
    """Providers refuse one: the model's is left out, a user's and a tool's say that there is nothing."""
    a = call(1, "wa")
    empty = ToolResult(call=a.id, wire_id=a.wire_id, name=a.name, content="\n")
    thought = assistant(Reasoning(text="hm", signature="s"), Text(text=" "))
    silent = Message(role=Role.TOOL, parts=(empty,))
    sent = body_of(user(""), thought, assistant(Text(text=" "), a), silent, assistant(), user("hi"))[
        "messages"
    ]
    assert [(message["role"], message["content"]) for message in sent] == [
        ("user", "(nothing)"),
        ("assistant", None),
        ("tool", "(nothing)"),
        ("user", "hi"),
    ]


def test_a_word_of_the_models_stands_between_a_tool_and_a_user_where_it_must() -> None:
    """Mistral's servers refuse the two side by side; others need nothing."""
    a = call(1, "wa")
    history = [user("hi"), assistant(a), results(a), user("and?"), user("well?")]
    plain, bridged = (
        [
            message["role"]
            for message in body_of(*history, wire=ChatWire(ServerQuirks(bridged=bridged)))["messages"]
        ]
        for bridged in (False, True)
    )
    assert plain == ["user", "assistant", "tool", "user", "user"]
    assert bridged == ["user", "assistant", "tool", "assistant", "user", "user"]


def test_ids_are_unique_on_the_wire() -> None:
    """Empty, repeated and colliding ids of providers are replaced, alike in call and result."""
    made = [call(1, "x"), call(2, "x"), call(3, ""), call(4, "call00005"), call(5, "a b"), call(6, "y" * 41)]
    body = body_of(assistant(*made[:2]), results(*made[:2]), assistant(*made[2:]), results(*made[2:]))
    sent = [c["id"] for message in body["messages"] for c in message.get("tool_calls", ())]
    answered = [message["tool_call_id"] for message in body["messages"] if message["role"] == "tool"]
    assert sent == answered == ["x", "call00001", "call00002", "call00005", "call00004", "call00006"]
    assert all(message["content"] is None for message in body["messages"] if message["role"] == "assistant")


@pytest.mark.parametrize("arguments", ["", "[]", "null", '{"a":', '{"a": NaN}', "[" * 100_000])
def test_arguments_that_are_no_object_go_back_as_an_empty_one(arguments: str) -> None:
    """Providers refuse a conversation that holds them."""
    body = body_of(assistant(call(1, "a", arguments)))
    assert body["messages"][0]["tool_calls"][0]["function"]["arguments"] == "{}"


ATTACHED: list[tuple[Binary, dict[str, Any]]] = [
    (
        Binary(media_type="image/png", data=b"\x89P"),
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVA="}},
    ),
    (
        Binary(media_type="application/pdf", data=b"%", name="a.pdf"),
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JQ=="}},
    ),
    (
        Binary(media_type="", data=b"%"),
        {
            "type": "file",
            "file": {"filename": "attachment", "file_data": "data:application/octet-stream;base64,JQ=="},
        },
    ),
    (
        Binary(media_type="Audio/WAV; codecs=1", data=b"R"),
        {"type": "input_audio", "input_audio": {"data": "Ug==", "format": "wav"}},
    ),
    (
        Binary(media_type="audio/mpeg", data=b"R"),
        {"type": "input_audio", "input_audio": {"data": "Ug==", "format": "mp3"}},
    ),
    (
        Binary(media_type="audio/ogg", data=b"R", name="a.ogg"),
        {"type": "file", "file": {"filename": "a.ogg", "file_data": "data:audio/ogg;base64,Ug=="}},
    ),
    (
        Binary(media_type="text/csv", data="a,ü\n".encode(), name="a.csv"),
        {"type": "text", "text": "a.csv:\na,ü\n"},
    ),
    (Binary(media_type="text/plain", data=b"\xff"), {"type": "text", "text": "text/plain:\n\ufffd"}),
    (
        Binary(media_type="image/png", data=b"", name="a.png"),
        {"type": "text", "text": "[attachment a.png, which is empty]"},
    ),
]


@pytest.mark.parametrize(("file", "part"), ATTACHED)
def test_an_attachment_is_a_part_of_a_users_content(file: Binary, part: dict[str, Any]) -> None:
    """Text goes as text, pictures and sounds as such, all else as a file."""
    sent = Message(role=Role.USER, parts=(Text(text="see"), file, Text(text=" ")))
    assert body_of(sent)["messages"] == [{"role": "user", "content": [{"type": "text", "text": "see"}, part]}]


def test_an_attachment_of_a_models_is_named_only() -> None:
    """There is no part for it."""
    file = Binary(media_type="application/pdf", data=b"%", name="a.pdf")
    assert body_of(assistant(Text(text="here: "), file))["messages"] == [
        {"role": "assistant", "content": "here: [attachment a.pdf]"}
    ]


def test_the_files_of_results_follow_all_results_of_the_batch() -> None:
    """A tool's message holds text only, and nothing may stand between two: a user brings the files."""
    a, b, c = call(1, "wa"), call(2, "wb"), call(3, "wc")
    image = Binary(media_type="image/png", data=b"\x89P")
    answered = results(a, b, c)
    first, second, third = answered.results
    parts = (attrs.evolve(first, files=(image, image)), second, attrs.evolve(third, files=(image,)))
    sent = body_of(assistant(a, b, c), attrs.evolve(answered, parts=parts), user("go on"))["messages"]
    assert [message["role"] for message in sent] == ["assistant", "tool", "tool", "tool", "user", "user"]
    label = {"type": "text", "text": "Files of read:"}
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVA="}}
    assert sent[4]["content"] == [label, picture, picture, label, picture]


def test_a_name_that_a_model_made_up_can_be_sent_back() -> None:
    """Providers refuse the sight of it."""
    named = [attrs.evolve(call(n, ""), name=name) for n, name in enumerate(("a.b c", "ü" * 99, "fine-1_A"))]
    calls_sent = body_of(assistant(*named))["messages"][0]["tool_calls"]
    assert [each["function"]["name"] for each in calls_sent] == ["a_b_c", "_" * 64, "fine-1_A"]


SIGNED, UNSIGNED = Reasoning(text="hm", signature="s1"), Reasoning(text="so")
SAID, HIDDEN = Text(text="so"), Reasoning(text="", redacted="d1")
THOUGHTS: list[tuple[str, tuple[Part, ...], dict[str, Any]]] = [
    (
        "reasoning_content",
        (SIGNED,),
        {"thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "s1"}]},
    ),
    ("reasoning_content", (UNSIGNED,), {}),
    ("reasoning_content", (UNSIGNED, call(1, "a")), {"reasoning_content": "so"}),
    ("reasoning", (UNSIGNED, UNSIGNED, call(1, "a")), {"reasoning": "soso"}),
    (
        "reasoning_details",
        (SIGNED,),
        {"reasoning_details": [{"type": "reasoning.text", "text": "hm", "signature": "s1"}]},
    ),
    (
        "reasoning_details",
        (UNSIGNED, call(1, "a")),
        {"reasoning_details": [{"type": "reasoning.text", "text": "so"}]},
    ),
    (
        "reasoning_content",
        (HIDDEN, UNSIGNED, SIGNED, call(1, "a")),
        {
            "thinking_blocks": [
                {"type": "redacted_thinking", "data": "d1"},
                {"type": "thinking", "thinking": "hm", "signature": "s1"},
            ]
        },
    ),
    ("reasoning_details", (HIDDEN, call(1, "a")), {}),
    ("reasoning", (SIGNED, HIDDEN), {}),
    ("reasoning", (SIGNED, HIDDEN, call(1, "a")), {"reasoning": "hm"}),
    ("", (SIGNED, UNSIGNED, HIDDEN, call(1, "a")), {}),
]


@pytest.mark.parametrize(("field", "parts", "expected"), THOUGHTS)
def test_thinking_goes_back_where_the_server_takes_it(
    field: str, parts: tuple[Part, ...], expected: dict[str, Any]
) -> None:
    """Signed and redacted thinking where it can be proven, other with calls, each under its server's name."""
    message = body_of(assistant(*parts, SAID), wire=ChatWire(ServerQuirks(field)))["messages"][0]
    assert {
        key: value for key, value in message.items() if key not in {"role", "content", "tool_calls"}
    } == expected


def test_half_a_surrogate_pair_can_be_sent() -> None:
    """A character that no encoding has does not stop the request."""
    assert body_of(user("a\ud83d"))["messages"] == [{"role": "user", "content": "a?"}]


def contents(wire: ChatWire, history: History) -> list[str]:
    """What *wire* sends of *history*, message by message."""
    request = attrs.evolve(ASKED, view=Conversation(revision=0, length=len(history)))
    return [
        message["content"] for message in json.loads(wire.encode(request, scene_of(history)).body)["messages"]
    ]


def tamper(history: History) -> None:
    """Change a message under the hands of whoever read it: never done, and so never noticed."""
    history.log.items[0] = user("changed")


def test_a_message_is_encoded_once() -> None:
    """A later request is made of the bytes of the earlier ones; only another log is read anew."""
    wire, history = ChatWire(), History.of(user("one"))
    assert contents(wire, history) == ["one"]
    tamper(history)
    longer = history.append(user("two"))
    assert contents(wire, longer) == ["one", "two"]
    assert contents(wire, history) == ["one"]
    assert contents(wire, history.append(user("three"))) == ["changed", "three"]
    assert contents(wire, longer.append(user("four"))) == ["one", "two", "four"]


def test_the_least_recently_used_conversation_is_forgotten() -> None:
    """Of more conversations than are kept, the one that was silent longest is encoded again."""
    wire, first, second, third = ChatWire(keep=2), *(History.of(user("said")) for _ in range(3))
    for history in (first, second, first, third):
        assert contents(wire, history) == ["said"]
    for history in (first, second, third):
        tamper(history)
    assert contents(wire, first) == contents(wire, third) == ["said"]
    assert contents(wire, second) == ["changed"]


def test_a_conversation_that_is_gone_is_not_held() -> None:
    """Keeping what was encoded does not keep the conversation alive."""
    wire, history = ChatWire(), History.of(user("said"))
    contents(wire, history)
    log = weakref.ref(history.log)
    del history
    gc.collect()
    assert log() is None


def test_a_transcript_is_one_message() -> None:
    """What is to be summarised comes as one text, calls and results shortened, with its own system prompt."""
    made = call(1, "a", '{"p": "' + "x" * 546 + '"}')
    file = Binary(media_type="text/csv", data=b"1", name="a.csv")
    long = ToolResult(
        call="r-1", wire_id="a", name="read", content="y" * 2_500, outcome=Outcome.ERROR, files=(file,)
    )
    history = [
        user("hi"),
        assistant(Reasoning(text="hm"), Text(text="ok"), made),
        Message(role=Role.TOOL, parts=(long,)),
        Message(role=Role.USER, parts=(Binary(media_type="image/png", data=b""),)),
        assistant(),
        user("not this"),
    ]
    system, asked = body_of(
        *history,
        asked=attrs.evolve(
            ASKED,
            view=Transcript(revision=0, length=5, limit=10_000),
            purpose=Purpose.SUMMARY,
            instructions="Summarise.",
        ),
    )["messages"]
    assert system == {"role": "system", "content": "Summarise."}
    assert asked["role"] == "user"
    assert asked["content"] == "\n\n".join([
        "<conversation>",
        "[user]\nhi",
        '[assistant]\nok\n[calls read] {"p": "'
        + "x" * 228
        + " [... 85 characters cut ...] "
        + "x" * 233
        + '"}',
        "[tool]\n[result of read, error] "
        + "y" * 984
        + " [... 532 characters cut ...] "
        + "y" * 984
        + "\n[attachment a.csv]",
        "[user]\n[attachment image/png, which is empty]",
        "</conversation>",
    ])  # fmt: skip


# Refusals

REFUSALS: list[tuple[int, str, Failure, str]] = [
    (400, '{"error":{"message":"bad","type":"invalid_request_error"}}', Failure.BAD_REQUEST, "http 400: bad"),
    (401, '{"error":{"message":"who?","code":"invalid_api_key"}}', Failure.AUTH, "http 401: who?"),
    (402, '{"error":{"message":"no money"}}', Failure.AUTH, "http 402: no money"),
    (403, '{"detail":"no"}', Failure.AUTH, "http 403: no"),
    (404, '{"error":"model not found"}', Failure.NOT_FOUND, "http 404: model not found"),
    (408, "", Failure.TIMEOUT, "http 408 without a message"),
    (413, '{"error":{"type":"request_too_large","message":"big"}}', Failure.OVERFLOW, "http 413: big"),
    (422, '{"detail":[{"msg":"m","loc":["x"]}]}', Failure.BAD_REQUEST, 'http 422: [{"msg":"m","loc":["x"]}]'),
    (429, '{"error":{"message":"slow","type":"tokens"}}', Failure.RATE_LIMIT, "http 429: slow"),
    (429, '{"error":{"message":"pay","code":"insufficient_quota"}}', Failure.AUTH, "http 429: pay"),
    (
        429,
        '{"error":{"message":"Request too large for m on tokens per min (TPM): Limit 30","type":"tokens"}}',
        Failure.OVERFLOW,
        "http 429: Request too large for m on tokens per min (TPM): Limit 30",
    ),
    (
        429,
        '{"error":{"message":"Rate limit reached for m on tokens per min (TPM)","type":"tokens"}}',
        Failure.RATE_LIMIT,
        "http 429: Rate limit reached for m on tokens per min (TPM)",
    ),
    (500, "<html>\n  <b>oops</b>\n</html>", Failure.SERVER, "http 500: <html> <b>oops</b> </html>"),
    (500, '[{"error":{"code":500,"message":"gem"}}]', Failure.SERVER, "http 500: gem"),
    (502, '{"error":{"message":"up","metadata":{"raw":"down"}}}', Failure.SERVER, "http 502: up: down"),
    (503, '{"error":{"message":"busy","code":"overloaded"}}', Failure.OVERLOADED, "http 503: busy"),
    (
        529,
        '{"type":"error","error":{"type":"overloaded_error","message":"o"}}',
        Failure.OVERLOADED,
        "http 529: o",
    ),
    (400, '{"error":{"code":"tool_use_failed","message":"odd call"}}', Failure.CUT, "http 400: odd call"),
    (
        418,
        "[" * 100_000,
        Failure.BAD_REQUEST,
        "http 418: " + "[" * MAX_FAILURE_TEXT + "... (100000 characters)",
    ),
    (307, "", Failure.BAD_REQUEST, "http 307: redirected to 'https://there'; give that as the base URL"),
]


@pytest.mark.parametrize(("status", "body", "failure", "message"), REFUSALS)
def test_a_refusal_is_classified(status: int, body: str, failure: Failure, message: str) -> None:
    """Status first, then what the body names, then its wording."""
    broken = refusal(status, {"location": "https://there"}, body.encode(), now=0.0)
    assert (broken.failure, broken.message) == (failure, message)


WORDINGS = [
    "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "prompt too long; exceeded max context length by 5 tokens",
    "This endpoint's maximum context length is 163840 tokens.",
    "The total length of all messages is too long.",
    "litellm.ContextWindowExceededError: oops",
    "input length and `max_tokens` exceed context limit: 1 + 2 > 2",
    "The input token count (9) exceeds the maximum number of tokens allowed (8)",
    "Input is too long for requested model.",
    "the request exceeds the available context size. try increasing the context size",
    "This model's maximum prompt length is 131072 but the request contains 150000 tokens.",
    "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    "Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)",
    "The number of tokens to keep from the initial prompt is greater than the context length.",
    "the model is loaded with context length of only 4096 tokens, which is not enough",
    "prompt token count of 130000 exceeds the limit of 128000",
    "InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]",
    "The input (210000 tokens) is longer than the model's context length (200000 tokens).",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000",
    "Input validation error: `inputs` must have less than 4095 tokens. Given: 5000",
    "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192",
    "invalid params, context window exceeds limit (2013)",
    "Prompt has 5000 tokens, but the configured context size is 4096 tokens",
    "Prompt exceeds max length",
    "context length exceeded",
]


@pytest.mark.parametrize("wording", WORDINGS)
def test_a_conversation_that_is_too_long_is_recognised(wording: str) -> None:
    """Whoever says it, with an HTTP status or in a stream."""
    body = json.dumps({"error": {"message": wording, "code": 400}}).encode()
    assert refusal(400, {}, body, now=0.0).failure is Failure.OVERFLOW
    assert stream_error(json.loads(body)).failure is Failure.OVERFLOW


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        ({"code": 400, "message": "m"}, Failure.BAD_REQUEST),
        ({"code": "400"}, Failure.BAD_REQUEST),
        ({"type": "invalid_request_error"}, Failure.BAD_REQUEST),
        ({"type": "invalid_request_error", "code": "tool_use_failed", "status_code": 400}, Failure.CUT),
        ({"code": 429}, Failure.RATE_LIMIT),
        ({"code": 529}, Failure.OVERLOADED),
        ({"type": "overloaded_error"}, Failure.OVERLOADED),
        ({"code": "401"}, Failure.AUTH),
        ({"code": 502}, Failure.CUT),
        ({"code": "server_error"}, Failure.CUT),
        ({"code": None}, Failure.CUT),
        ("boom", Failure.CUT),
        (5, Failure.CUT),
    ],
)
def test_an_error_in_a_stream_is_classified(error: object, failure: Failure) -> None:
    """By name, by number, and where neither says more than "broken" it is a cut stream."""
    assert stream_error({"error": error}).failure is failure


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"llm_provider-retry-after": "9"}, 9.0),
        ({"retry-after": "soon", "llm_provider-retry-after": "9"}, 9.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 60.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:10 GMT"}, 0.0),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
    ],
)
def test_a_wish_to_wait_is_read(headers: dict[str, str], seconds: float | None) -> None:
    """In seconds, milliseconds or as a date, counted from now; nonsense is no wish."""
    assert retry_after(headers, now=40.0) == seconds


def test_a_character_torn_over_two_deltas_is_whole_again() -> None:
    """Halves are joined within their part, in text and in arguments; what stays alone is U+FFFD."""
    parser = ChatParser()
    got: list[Piece] = []
    for delta in (
        r'{"content":"ok \ud83d"}',
        r'{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{\"a\":\"\ud83d"}}]}',
        r'{"content":"\ude00 fine \ud83d"}',
        r'{"tool_calls":[{"index":0,"function":{"arguments":"\ude00\"}"}}]}',
    ):
        got += parser.feed(b'data: {"choices":[{"index":0,"delta":%b}]}\n\n' % delta.encode())
    parser.feed(b"data: [DONE]\n\n")
    ending = parser.end()
    assert isinstance(ending, Complete)

    pieces = merged([*got, *ending.pieces])
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextPiece)) == "ok 😀 fine \ufffd"
    assert [piece.arguments for piece in pieces if isinstance(piece, CallPiece)] == ['{"a":"😀"}']


def test_tools_that_are_all_withdrawn_are_named_and_may_not_be_called() -> None:
    """Some proxies refuse calls in a conversation where there are no tools; a summary has none."""
    config = attrs.evolve(PLAIN, tools=(ToolSpec(name="look"),))
    body = body_of(user("go"), config=config)
    assert ([tool["function"]["name"] for tool in body["tools"]], body["tool_choice"]) == (["look"], "none")
    offered = body_of(user("go"), config=config, asked=attrs.evolve(ASKED, tools=("look",)))
    assert "tool_choice" not in offered
    summary = attrs.evolve(ASKED, view=Transcript(revision=0, length=1, limit=1_000), purpose=Purpose.SUMMARY)
    assert "tools" not in body_of(user("go"), config=config, asked=summary)
