"""Parsers of provider streams: any bytes, cut anywhere, give the pieces and the end that the server meant."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, assert_never

import attrs
import pytest
from hypothesis import given, strategies as st

from turnwheel.effects.events import Failure
from turnwheel.effects.history import CallPiece, Piece, ReasoningPiece, TextPiece, merged
from turnwheel.effects.messages import Citation, ProviderCall, StopReason
from turnwheel.effects.usage import Usage
from turnwheel.performers.models.anthropic_stream import MessagesParser
from turnwheel.performers.models.body import MAX_EVENT, EventSplitter
from turnwheel.performers.models.lenient_json import MAX_LABEL, MAX_NUMBER
from turnwheel.performers.models.openai import ChatParser, content_pieces
from turnwheel.performers.models.responses_stream import ResponsesParser
from turnwheel.performers.models.wire import AnswerEnd, Broken, Complete, Parser
from turnwheel.testing.wire_rules import reading_faults

PARSERS: dict[str, Callable[[], Parser]] = {
    "openai": partial(ChatParser, stops=("END",)),
    "anthropic": MessagesParser,
    "openai-responses": ResponsesParser,
}
each_dialect = pytest.mark.parametrize("dialect", PARSERS)

# Events


def events_of(parts: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
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
    "a comment inside": (b"event: x\ndata: a\n: there\ndata: b\n\n", [(b"x", b"a\nb")]),
    "other fields": (b"id: 1\nretry: 5\nwhat\ndata: a\n\n", [(b"", b"a")]),
    "one other field": (b"retry: 5000\ndata: a\n\n", [(b"", b"a")]),
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
def test_a_stream_has_the_same_events_at_any_split(name: str) -> None:
    stream, expected = STREAMS[name]
    assert events_of([stream]) == expected
    bytewise = [stream[at : at + 1] for at in range(len(stream))]
    assert events_of(bytewise) == expected
    assert events_of(part for byte in bytewise for part in (byte, b"")) == expected
    assert [at for at in range(len(stream)) if events_of([stream[:at], stream[at:]]) != expected] == []


@given(
    st.lists(st.sampled_from([b"data: ", b"a", b"\n", b"\n\n", b"\r", b":", b"event: x", b"\xef\xbb\xbf"]))
)
def test_the_quick_way_through_a_stream_and_the_slow_one_agree(tokens: list[bytes]) -> None:
    stream = b"".join(tokens)
    bytewise = [stream[at : at + 1] for at in range(len(stream))]
    assert events_of([stream]) == events_of(tokens) == events_of(bytewise)


HALF = b"x" * (MAX_EVENT // 2 - 1)  # a line of data counts as one byte more
LARGEST: dict[str, tuple[bytes, list[tuple[bytes, bytes]]]] = {
    "line": (b":" + b"x" * (MAX_EVENT - 1), []),
    "line of data": (b"data: " + b"x" * (MAX_EVENT - 6), [(b"", b"x" * (MAX_EVENT - 6))]),
    "event": (b"data: " + HALF + b"\ndata: " + HALF, [(b"", HALF + b"\n" + HALF)]),
}


@pytest.mark.parametrize("before", [b"", b"data: before\n\n"])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("name", LARGEST)
def test_neither_a_line_nor_an_event_is_kept_without_bounds(name: str, parts: int, before: bytes) -> None:
    largest, events = LARGEST[name]
    begin, after = [(b"", b"before")] * (before != b""), b"\n\ndata: after\n\n"

    def cut(middle: bytes) -> list[bytes]:
        return [before + middle + after] if parts == 1 else [before + middle, after]

    assert events_of(cut(largest)) == [*begin, *events, (b"", b"after")]
    splitter = EventSplitter()
    assert [event for part in cut(largest + b"x") for event in splitter.feed(part)] == begin
    assert splitter.oversized
    assert splitter.feed(b"data: after\n\n") == splitter.end() == []


def test_a_line_that_does_not_end_is_not_kept_without_bounds() -> None:
    splitter = EventSplitter()
    splitter.feed(b"x" * MAX_EVENT)
    assert not splitter.oversized
    splitter.feed(b"x")
    assert splitter.oversized


# Answers


def openai_line(word: str, rest: str) -> bytes:
    if word == "done":
        return b"data: [DONE]\n\n"
    if word == "event":
        return b"data: %b\n\n" % json.dumps(json.loads(rest)).encode()
    delta, finish = (json.loads(rest), None) if word == "delta" else ({}, rest)
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return chunk({"id": "c", "object": "chat.completion.chunk", "choices": [choice]})


def chunk(value: object) -> bytes:
    return b"data: %b\n\n" % json.dumps(value).encode()


def event(kind: str, fields: dict[str, Any]) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def stream_of(dialect: str, *lines: str) -> bytes:
    """The bytes of *lines*, which are written as the head of each file in answers/ says."""
    stream = b""
    for line in lines:
        word, _, rest = line.partition(" ")
        if word in {"|", "|-"}:
            stream += rest.encode() + b"\n" * (word == "|")
        elif dialect == "openai":
            stream += openai_line(word, rest)
        else:
            stream += event(word, json.loads(rest or "{}"))
    return stream


def answers() -> list[Any]:
    found: list[Any] = []
    for dialect in PARSERS:
        text = (Path(__file__).parent / "answers" / f"{dialect}.txt").read_text("utf-8")
        for case in text.split("\n=== ")[1:]:
            name, *lines = case.rstrip("\n").split("\n")
            at = lines.index("---")
            stream = stream_of(dialect, *lines[:at])
            found.append(pytest.param(dialect, stream, lines[at + 1 :], id=f"{dialect}: {name}"))
    return found


def read(dialect: str, *parts: bytes) -> tuple[list[Piece], AnswerEnd]:
    parser = PARSERS[dialect]()
    pieces = [piece for part in parts for piece in parser.feed(part)]
    ending = parser.end()
    if isinstance(ending, Complete):
        pieces += ending.pieces
        ending = attrs.evolve(ending, pieces=())
    return pieces, ending


def in_words(pieces: Iterable[Piece], ending: AnswerEnd) -> list[str]:
    lines: list[str] = []
    for piece in pieces:
        match piece:
            case TextPiece():
                lines.append(f"{'another ' if piece.begins else ''}text {piece.text}")
            case ReasoningPiece():
                lines.append(f"thinking {filled(piece)}")
            case CallPiece():
                said = f"call {piece.index} id={piece.wire_id} name={piece.name} {piece.arguments}"
                lines.append(f"{said} {piece.opaque}".rstrip())
            case ProviderCall():
                lines.append(f"provider {filled(piece)}")
            case Citation():
                lines.append(f"source {filled(piece)}")
            case _:
                assert_never(piece)
    used = ending.usage and filled(ending.usage)
    if isinstance(ending, Complete):
        how = [f"ends {ending.stop}", used, ending.sequence and f"sequence={ending.sequence}"]
    else:
        how = [f"fails {ending.failure}: {ending.message}", used]
    return [*lines, " ".join(word for word in how if word)]


def filled(value: attrs.AttrsInstance) -> str:
    return " ".join(f"{name}={given}" for name, given in attrs.asdict(value).items() if given)


each_answer = pytest.mark.parametrize(("dialect", "stream", "expected"), answers())


@each_answer
def test_an_answer_is_read(dialect: str, stream: bytes, expected: list[str]) -> None:
    pieces, ending = read(dialect, stream)
    assert "\n".join(in_words(merged(pieces), ending)) == "\n".join(expected)
    calls = [piece for piece in pieces if isinstance(piece, CallPiece)]
    for told in ([call.index for call in calls if call.name], [call.index for call in calls if call.wire_id]):
        assert len(told) == len({*told}), "the name or the id of a call is told twice"


@each_answer
def test_an_answer_is_the_same_at_any_split_and_with_any_line_ends(
    dialect: str, stream: bytes, expected: list[str]
) -> None:
    whole = read(dialect, stream)
    assert reading_faults(PARSERS[dialect], stream) == []  # byte by byte, and at random splits
    assert [at for at in range(len(stream)) if read(dialect, stream[:at], stream[at:]) != whole] == []
    if "it began with" not in expected[-1]:  # there the message quotes the line ends
        for line_end in (b"\r\n", b"\r"):
            assert read(dialect, stream.replace(b"\n", line_end)) == whole


def cut(message: str, failure: Failure = Failure.CUT, usage: Usage | None = None) -> Broken:
    return Broken(failure=failure, message=message, usage=usage)


@each_dialect
@pytest.mark.parametrize("body", [b"", b"\r\n \n"])
def test_an_empty_answer_is_a_failure(body: bytes, dialect: str) -> None:
    assert read(dialect, body) == ([], cut("the answer is empty"))


def test_a_delta_that_holds_nothing_is_no_answer_and_an_empty_text_is_no_piece() -> None:
    pieces, ending = read("openai", stream_of("openai", "delta {}", "done"))
    assert (pieces, isinstance(ending, Broken)) == ([], True)
    pieces, ending = read("openai", stream_of("openai", 'delta {"content": ""}', "done"))
    assert (pieces, isinstance(ending, Complete)) == ([], True)
    assert content_pieces("") == content_pieces([]) == []


def test_a_signature_without_a_thought_is_a_piece() -> None:
    assert content_pieces([{"type": "thinking", "signature": "s"}]) == [ReasoningPiece("", "s")]


END = {
    "openai": stream_of("openai", "finish stop", "done"),
    "anthropic": stream_of(
        "anthropic", 'message_delta {"delta": {"stop_reason": "end_turn"}}', "message_stop"
    ),
    "openai-responses": stream_of(
        "openai-responses", 'response.completed {"response": {"status": "completed"}}'
    ),
}
BEGUN = {
    "openai": stream_of(
        "openai", 'event {"choices": [{"delta": {"content": "a"}}], "usage": {"prompt_tokens": 7}}'
    ),
    "anthropic": stream_of(
        "anthropic",
        'message_start {"message": {"usage": {"input_tokens": 7}}}',
        'content_block_start {"index": 0, "content_block": {"type": "text", "text": "a"}}',
        'content_block_stop {"index": 0}',
    ),
    "openai-responses": stream_of(
        "openai-responses",
        'response.created {"response": {"usage": {"input_tokens": 7}}}',
        'response.output_text.delta {"item_id": "m", "output_index": 0, "content_index": 0, "delta": "a"}',
    ),
}
TOKENS = [
    b"data: ",
    b"event: error\n",
    b"\n\n",
    b"{",
    b"[1]",
    b'{"choices":[',
    b'{"type":"response.output_item.done","item":{"type":"reasoning","encrypted_content":"e","id":[',
    b'{"type":"response.completed","response":{"output":[{"type":"function_call"},{"type":"x"},',
    *END.values(),
    *BEGUN.values(),
]


@each_dialect
@given(parts=st.lists(st.binary(max_size=40) | st.sampled_from(TOKENS)))
def test_no_bytes_crash_a_parser(dialect: str, parts: list[bytes]) -> None:
    _, ending = read(dialect, *parts)
    assert isinstance(ending, Complete | Broken)


@each_dialect
def test_a_whole_answer_outlives_its_connection(dialect: str) -> None:
    reset, finished, open_ = cut("reset", Failure.CONNECTION), PARSERS[dialect](), PARSERS[dialect]()
    finished.feed(BEGUN[dialect] + END[dialect])
    open_.feed(BEGUN[dialect])
    used = Usage(input=7)
    # Of the two beginnings, one has an id.
    response = "c" if dialect == "openai" else ""
    assert finished.end(reset) == Complete(stop=StopReason.END_TURN, usage=used, response=response)
    assert open_.usage == used
    assert open_.end(reset) == cut("reset", Failure.CONNECTION, used)


@each_dialect
def test_an_answer_that_stops_early_is_none(dialect: str) -> None:
    stream = BEGUN[dialect] + END[dialect]
    last = {
        "openai": b'"finish_reason": "stop"}]}',
        "anthropic": b'"message_stop"}',
        "openai-responses": b'"status": "completed"}}',
    }[dialect]
    whole = stream.index(last) + len(last)
    endings = [read(dialect, stream[:at])[1] for at in range(len(stream))]
    assert [isinstance(ending, Complete) for ending in endings] == [at >= whole for at in range(len(stream))]


def test_a_chat_that_is_done_outlives_its_connection_without_a_finish_reason() -> None:
    parser = ChatParser()
    parser.feed(stream_of("openai", 'delta {"content": "a"}', "done"))
    assert parser.end(cut("reset", Failure.CONNECTION)) == Complete(
        stop=StopReason.UNKNOWN, usage=Usage(), response="c"
    )


# What servers call their counts, and what these count in our words.
USAGES: dict[str, tuple[dict[str, object], Usage]] = {
    "openai": (
        {
            "prompt_tokens": 70,
            "completion_tokens": 50,
            "total_tokens": 120,
            "prompt_tokens_details": {"cached_tokens": 30, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 40},
        },
        Usage(input=70, output=50, cached=30, reasoning=40),
    ),
    "the names of the newer api": (
        {
            "input_tokens": 70,
            "output_tokens": 50,
            "total_tokens": 120,
            "input_tokens_details": {"cached_tokens": 30},
            "output_tokens_details": {"reasoning_tokens": 40},
        },
        Usage(input=70, output=50, cached=30, reasoning=40),
    ),
    "deepseek": (
        {
            "prompt_tokens": 70,
            "completion_tokens": 50,
            "prompt_cache_hit_tokens": 30,
            "prompt_cache_miss_tokens": 40,
        },
        Usage(input=70, output=50, cached=30),
    ),
    "deepseek, in both forms": (
        {"prompt_tokens": 70, "prompt_tokens_details": {"cached_tokens": 30}, "prompt_cache_hit_tokens": 30},
        Usage(input=70, cached=30),
    ),
    "openrouter": (
        {"prompt_tokens": 70, "prompt_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 20}},
        Usage(input=70, cached=30, cache_write=20),
    ),
    "litellm": (
        {
            "prompt_tokens": 70,
            "prompt_tokens_details": {"cached_tokens": 30, "cache_creation_tokens": 20},
            "cache_creation_input_tokens": 20,
            "cache_read_input_tokens": 30,
        },
        Usage(input=70, cached=30, cache_write=20),
    ),
    "a proxy that tells of writing beside the details": (
        {
            "prompt_tokens": 70,
            "prompt_tokens_details": {"cached_tokens": 30},
            "cache_creation_input_tokens": 20,
        },
        Usage(input=70, cached=30, cache_write=20),
    ),
    "xai counts thinking beside the output": (
        {
            "prompt_tokens": 70,
            "completion_tokens": 50,
            "total_tokens": 160,
            "completion_tokens_details": {"reasoning_tokens": 40},
        },
        Usage(input=70, output=90, reasoning=40),
    ),
    "whole numbers as floats": ({"prompt_tokens": 70.0, "completion_tokens": 1.0}, Usage(input=70, output=1)),
    "one token of each": ({"prompt_tokens": 1, "completion_tokens": 1}, Usage(input=1, output=1)),
    "a second name for what the first has as null": (
        {"prompt_tokens": None, "input_tokens": 70, "completion_tokens": 0, "output_tokens": 50},
        Usage(input=70, output=50),
    ),
    "the most that is believed": ({"prompt_tokens": MAX_NUMBER}, Usage(input=MAX_NUMBER)),
    "more than is believed": ({"prompt_tokens": MAX_NUMBER + 1, "completion_tokens": 7.5}, Usage()),
    "no numbers": ({"prompt_tokens": True, "completion_tokens": "50"}, Usage()),
}


@pytest.mark.parametrize("server", USAGES)
def test_the_tokens_of_each_server_are_counted(server: str) -> None:
    sent, counted = USAGES[server]
    parser = ChatParser()
    parser.feed(chunk({"choices": [], "usage": sent}))
    assert parser.usage == counted


# Arguments of calls, full of what JSON opens, closes, quotes and hides.
WORDS = st.text('{}[]"\\: a', max_size=4)
VALUES = WORDS | st.integers() | st.dictionaries(WORDS, WORDS, max_size=2)
ARGUMENTS = st.dictionaries(WORDS, VALUES, max_size=3).map(lambda sent: f" {json.dumps(sent)}")


@given(st.data())
def test_calls_of_one_tool_are_told_apart_wherever_their_arguments_are_cut(data: st.DataObject) -> None:
    sent = data.draw(st.lists(ARGUMENTS, min_size=2, max_size=3))
    parser, pieces = ChatParser(), list[Piece]()
    for arguments in sent:
        cuts = sorted(data.draw(st.sets(st.integers(1, len(arguments) - 1), max_size=6)))
        for start, stop in pairwise([0, *cuts, len(arguments)]):
            # One index, no ids, and the name with every bit: only the arguments tell.
            bit = {"index": 0, "function": {"name": "f", "arguments": arguments[start:stop]}}
            pieces += parser.feed(chunk({"choices": [{"delta": {"tool_calls": [bit]}}]}))
    assert merged(pieces) == tuple([CallPiece(at, name="f", arguments=one) for at, one in enumerate(sent)])


def test_the_arguments_of_a_start_are_told_when_the_block_closes() -> None:
    parser, start = MessagesParser(), {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}
    opened = parser.feed(event("content_block_start", {"index": 0, "content_block": start}))
    assert opened == [CallPiece(0, "a", "f")]
    assert parser.feed(event("content_block_stop", {"index": 0})) == [CallPiece(0, arguments='{"x": 1}')]


def test_no_tokens_and_tokens_that_are_not_known_yet_differ() -> None:
    parser, none = MessagesParser(), {"input_tokens": 0, "output_tokens": 0}
    assert parser.usage is None
    parser.feed(event("message_start", {"message": {"usage": none}}))
    assert parser.usage is None
    parser.feed(event("message_delta", {"delta": {}, "usage": none}))
    assert parser.usage == Usage()


def test_the_id_of_a_block_that_is_longer_than_any_is_cut() -> None:
    start = {"type": "tool_use", "id": "x" * MAX_LABEL + "y", "name": "f"}
    pieces = MessagesParser().feed(event("content_block_start", {"index": 0, "content_block": start}))
    assert pieces == [CallPiece(0, "x" * MAX_LABEL + "...", "f")]


def test_a_character_torn_over_two_deltas_is_whole_again() -> None:
    pieces, ending = read(
        "openai",
        stream_of(
            "openai",
            r'delta {"content": "ok \ud83d"}',
            r'delta {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{\"a\":\"\ud83d"}}]}',  # noqa: E501  # a line of a stream
            r'delta {"content": "\ude00 fine \ud83d"}',
            r'delta {"tool_calls": [{"index": 0, "function": {"arguments": "\ude00\"}"}}]}',
            "done",
        ),
    )
    assert isinstance(ending, Complete)
    joined = merged(pieces)
    assert "".join(piece.text for piece in joined if isinstance(piece, TextPiece)) == "ok 😀 fine \ufffd"
    assert [piece.arguments for piece in joined if isinstance(piece, CallPiece)] == ['{"a":"😀"}']


@pytest.mark.parametrize(
    ("bits", "second"), [((r"\ud83d", r"\ude00 fine"), "😀 fine"), ((r"\ud83d",), "\ufffd")]
)
def test_a_text_that_begins_with_a_torn_character_is_told_as_another_one(
    bits: tuple[str, ...], second: str
) -> None:
    deltas = [
        f'content_block_delta {{"index": 1, "delta": {{"type": "text_delta", "text": "{bit}"}}}}'
        for bit in bits
    ]
    pieces, ending = read(
        "anthropic",
        stream_of(
            "anthropic",
            'message_start {"message": {}}',
            'content_block_start {"index": 0, "content_block": {"type": "text", "text": "one"}}',
            'content_block_stop {"index": 0}',
            'content_block_start {"index": 1, "content_block": {"type": "text", "text": ""}}',
            *deltas,
            'message_delta {"delta": {"stop_reason": "end_turn"}}',
            "message_stop",
        ),
    )
    assert isinstance(ending, Complete)
    # Watchers do not see an empty text.
    shown = [piece for piece in (*pieces, *ending.pieces) if isinstance(piece, TextPiece) and piece.text]
    assert shown == [TextPiece("one"), TextPiece(second, begins=True)]


def test_a_character_torn_in_thinking_is_whole_again_and_a_half_that_stays_alone_is_told() -> None:
    pieces, ending = read(
        "openai",
        stream_of(
            "openai",
            r'delta {"reasoning_content": "so \ud83d"}',
            r'delta {"content": "hm"}',
            r'delta {"reasoning_content": "\ude00 it is \ud83d"}',
            "done",
        ),
    )
    assert isinstance(ending, Complete)
    whole = merged([*pieces, *ending.pieces])
    assert (
        "".join([piece.text for piece in whole if isinstance(piece, ReasoningPiece)]) == "so 😀 it is \ufffd"
    )
    assert "".join([piece.text for piece in whole if isinstance(piece, TextPiece)]) == "hm"


def test_a_call_whose_arguments_come_before_deltas_is_written_as_it_was_sent() -> None:
    pieces, ending = read(
        "anthropic",
        stream_of(
            "anthropic",
            'message_start {"message": {}}',
            r'content_block_start {"index": 0, "content_block": {"type": "tool_use", "id": "a", "name": "f", "input": {"x": "gr\u00fc\u00df"}}}',  # noqa: E501  # a line of a stream
            'content_block_stop {"index": 0}',
            'message_delta {"delta": {"stop_reason": "tool_use"}}',
            "message_stop",
        ),
    )
    assert isinstance(ending, Complete)
    assert [piece.arguments for piece in merged(pieces) if isinstance(piece, CallPiece)] == [
        '{"x": "gr\u00fc\u00df"}'
    ]


def test_a_stop_sequence_that_was_asked_for_is_told_as_it_was() -> None:
    stop = "x" * 2_000
    parser = ChatParser(stops=(stop,))
    parser.feed(stream_of("openai", json_event(stop), "done"))
    ending = parser.end()
    assert isinstance(ending, Complete)
    assert (ending.stop, ending.sequence) == (StopReason.STOP_SEQUENCE, stop)


def json_event(stop: str) -> str:
    choice = {"delta": {"content": "a"}, "finish_reason": "stop", "stop_reason": stop}
    return f"event {json.dumps({'choices': [choice]})}"
