"""Recorded answers of real providers, on both wires: whatever the splits, what is read is what was said."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from turnwheel.effects.config import Config, ModelSpec
from turnwheel.effects.events import (
    Event,
    Failure,
    ModelFailed,
    ModelFinished,
    ModelStreamed,
)
from turnwheel.effects.history import History
from turnwheel.effects.messages import StopReason, user
from turnwheel.effects.pieces import (
    CallPiece,
    Piece,
    ReasoningPiece,
    TextPiece,
    merged,
)
from turnwheel.effects.requests import CallModel, Conversation
from turnwheel.effects.usage import Usage
from turnwheel.performers import AnthropicMessages, HTTPModel, OpenAIChat
from turnwheel.performers.base import PassThroughNotice, PerformContext, SystemClock
from turnwheel.performers.models.anthropic import MessagesParser
from turnwheel.performers.models.openai import ChatParser
from turnwheel.performers.models.wire import (
    AnswerEnd,
    Broken,
    Complete,
    Parser,
)
from turnwheel.states.rules.answer_parts import wishes
from turnwheel.states.rules.schema import arguments_of
from turnwheel.testing.wire_rules import reading_faults

Emitted = Event | PassThroughNotice

BESIDE = Path(__file__).parents[2] / "shared" / "wire"
BODIES = Path(os.environ.get("TURNWHEEL_WIRE", BESIDE))
CUTS = 20


@attrs.frozen
class Dialect:
    """How one dialect is read; before *ends* have come an answer is not over."""

    parser: Callable[[], Parser]
    performer: Callable[[str, str], HTTPModel]
    model: str
    ends: tuple[bytes, ...]


DIALECTS = {
    "openai-chat": Dialect(ChatParser, OpenAIChat, "openai:any", (b'"finish_reason":"', b"data: [DONE]")),
    "anthropic-messages": Dialect(MessagesParser, AnthropicMessages, "anthropic:any", (b"message_stop",)),
}

STOPS = {
    "stop": StopReason.END_TURN,
    "end_turn": StopReason.END_TURN,
    "tool_calls": StopReason.TOOL_USE,
    "tool_use": StopReason.TOOL_USE,
    "length": StopReason.MAX_TOKENS,
    "max_tokens": StopReason.MAX_TOKENS,
    "refusal": StopReason.REFUSAL,
    "pause_turn": StopReason.UNKNOWN,
    None: StopReason.UNKNOWN,
}


no_bodies = pytest.mark.skip(reason=f"no recorded bodies in {BODIES}: set TURNWHEEL_WIRE to where they are")


def expected_of(path: Path) -> dict[str, Any]:
    """What the recording says was said."""
    told: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return told


def recorded(wanted: Callable[[dict[str, Any]], bool] = lambda _: True) -> list[Any]:
    """The recorded bodies that are *wanted* as pytest parameters, or one that skips and says why."""
    found = [path for path in sorted(BODIES.rglob("*.expected.json")) if wanted(expected_of(path))]
    if not found:
        return [pytest.param(BODIES, marks=no_bodies)]
    return [pytest.param(path, id=path.name.removesuffix(".expected.json")) for path in found]


def dialect_of(path: Path) -> Dialect:
    """The dialect of the recording at *path*."""
    return DIALECTS[expected_of(path)["dialect"]]


@attrs.frozen
class Said:
    """An answer in the terms of the recordings."""

    text: str
    thinking: str
    calls: list[tuple[str, str, str]]
    signatures: list[str]
    redacted: list[str]

    @classmethod
    def of(cls, pieces: list[Piece]) -> Said:
        """What *pieces* say."""
        parts = merged(pieces)
        thoughts = [part for part in parts if isinstance(part, ReasoningPiece)]
        return cls(
            "".join([part.text for part in parts if isinstance(part, TextPiece)]),
            "".join([thought.text for thought in thoughts]),
            [(part.wire_id, part.name, part.arguments) for part in parts if isinstance(part, CallPiece)],
            [thought.signature for thought in thoughts if thought.signature],
            [thought.redacted for thought in thoughts if thought.redacted],
        )

    @classmethod
    def expected(cls, path: Path) -> Said:
        """What the recording at *path* says was said."""
        told = expected_of(path)
        calls = [(call["id"], call["name"], call["arguments"]) for call in told["tool_calls"]]
        if told["dialect"] == "openai-chat":
            text = (told["text"] or "") + (told["refusal"] or "")
            return cls(text, told["thinking"] or "", calls, told["thinking_signatures"], [])
        thoughts = told["thinking"]
        return cls(
            told["text"],
            "".join([thought["thinking"] for thought in thoughts]),
            calls,
            [thought["signature"] for thought in thoughts],
            told["redacted_thinking"],
        )


def expected_usage(path: Path) -> Usage:
    """The recorded usage in our words."""
    told = expected_of(path)["usage"] or {}
    if "input_tokens" in told:
        cached, write = told.get("cache_read_input_tokens", 0), told.get("cache_creation_input_tokens", 0)
        return Usage(
            input=told["input_tokens"] + cached + write,
            output=told["output_tokens"],
            cached=cached,
            cache_write=write,
            reasoning=told.get("output_tokens_details", {}).get("thinking_tokens", 0),
        )
    prompt, completion = told.get("prompt_tokens_details") or {}, told.get("completion_tokens_details") or {}
    reasoning = completion.get("reasoning_tokens") or 0
    beside = reasoning if path.parent.name == "xai" else 0  # xAI does not count it in the output
    return Usage(
        input=told.get("prompt_tokens", 0),
        output=told.get("completion_tokens", 0) + beside,
        cached=prompt.get("cached_tokens") or 0,
        cache_write=prompt.get("cache_write_tokens") or 0,
        reasoning=reasoning,
    )


def error_of(path: Path) -> str:
    """The message of the error in the recorded stream, or nothing; what an SDK refused by itself is none."""
    for line in bytes_of(path).splitlines() if expected_of(path)["error"] else ():
        chunk = json.loads(line[6:]) if line.startswith(b"data: {") else {}
        if chunk.get("error"):
            return str(chunk["error"]["message"])
    return ""


def check_ending(path: Path, ending: AnswerEnd | ModelFinished | ModelFailed) -> None:
    """Hold *ending* against the recording."""
    told = expected_of(path)
    if message := error_of(path):
        assert isinstance(ending, Broken | ModelFailed)
        assert message[:400] in ending.message
        return
    assert isinstance(ending, Complete | ModelFinished)
    assert ending.stop is (StopReason.REFUSAL if told.get("refusal") else STOPS[told["stop_reason"]])
    if told["usage"]:
        assert ending.usage == expected_usage(path)


def bytes_of(path: Path) -> bytes:
    """The recorded body."""
    return path.with_name(path.name.replace(".expected.json", ".sse")).read_bytes()


def read(parser: Parser, body: bytes) -> tuple[list[Piece], AnswerEnd]:
    """All pieces and the ending of *body*."""
    pieces = parser.feed(body)
    ending = parser.end()
    return pieces + list(ending.pieces if isinstance(ending, Complete) else ()), ending


@pytest.mark.parametrize("path", recorded())
def test_a_recorded_body_is_read_whole(path: Path) -> None:
    """In one part it says what the recording says."""
    pieces, ending = read(dialect_of(path).parser(), bytes_of(path))
    assert Said.of(pieces) == Said.expected(path)
    check_ending(path, ending)


@pytest.mark.parametrize("path", recorded())
def test_a_recorded_body_is_read_at_any_split(path: Path) -> None:
    """Byte by byte and at random splits it gives the same pieces and the same ending."""
    assert reading_faults(dialect_of(path).parser, bytes_of(path)) == []


@pytest.mark.parametrize("path", recorded())
def test_a_recorded_body_that_stops_anywhere_is_never_a_whole_answer_by_mistake(path: Path) -> None:
    """Before its end has come, a cut body is a failure, with a prefix of the pieces."""
    body, dialect = bytes_of(path), dialect_of(path)
    whole, _ = read(dialect.parser(), body)
    limit = min([at for mark in dialect.ends if (at := body.find(mark)) >= 0], default=len(body))
    for cut in random.Random(path.name).choices(range(limit), k=CUTS):
        pieces, ending = read(dialect.parser(), body[:cut])
        assert isinstance(ending, Broken)
        assert pieces == whole[: len(pieces)]


# What is not ours is never run


def runnable(path: Path) -> list[str]:
    """The names of the recorded calls that a loop runs which offered all of them, but for the provider's."""
    pieces, ending = read(dialect_of(path).parser(), bytes_of(path))
    if isinstance(ending, Broken):
        return []  # a failed answer is dropped whole
    calls = [piece for piece in pieces if isinstance(piece, CallPiece) and piece.name]
    offered = tuple({piece.name for piece in calls if not piece.wire_id.startswith("srvtoolu_")})
    kept = wishes(merged(pieces), ending.stop, offered).kept
    return [piece.name for piece in kept if arguments_of(piece.arguments) is not None]


def has_unusable_arguments(told: dict[str, Any]) -> bool:
    """Whether the recording has calls whose arguments are no JSON."""
    return any(call["arguments"] and call["arguments_parsed"] is None for call in told["tool_calls"])


def has_server_tools(told: dict[str, Any]) -> bool:
    """Whether the provider ran tools of its own, which LiteLLM shows as ordinary calls."""
    ids = [call["id"] or "" for call in told["tool_calls"]]
    return bool(told.get("server_tool_calls")) or any(wire_id.startswith("srvtoolu_") for wire_id in ids)


@pytest.mark.parametrize("path", recorded(has_unusable_arguments))
def test_a_recorded_call_without_whole_arguments_is_not_run(path: Path) -> None:
    """Neither what a model wrote wrong nor what a cut left over; no SDK mends it for us."""
    assert runnable(path) == []


@pytest.mark.parametrize("path", recorded(has_server_tools))
def test_a_recorded_tool_of_the_providers_is_not_run(path: Path) -> None:
    """It ran there: it is no call of ours, by whichever name and wire it comes."""
    assert runnable(path) == []


@pytest.mark.parametrize(
    "path",
    recorded(
        lambda told: told["tool_calls"] and not (has_unusable_arguments(told) or has_server_tools(told))
    ),
)
def test_a_recorded_call_is_run(path: Path) -> None:
    """All others are, whatever the stop reason says."""
    told = expected_of(path)
    assert runnable(path) == [call["name"] for call in told["tool_calls"] if not error_of(path)]


# Over HTTP


@asynccontextmanager
async def serving(head: bytes, parts: list[bytes]) -> AsyncGenerator[str, None]:
    """A server that answers with *head* and then *parts*, each as an HTTP chunk."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head + b"transfer-encoding: chunked\r\n\r\n")
        for part in parts:
            writer.write(b"%x\r\n%b\r\n" % (len(part), part))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


async def ask(dialect: Dialect, url: str) -> tuple[list[Emitted], ModelFinished | ModelFailed]:
    """What the performer of *dialect* makes of the answer at *url*."""
    events: list[Emitted] = []
    request = CallModel(id="run-1", model=dialect.model, view=Conversation(revision=0, length=1))
    scene = PerformContext(
        session="s",
        run="run",
        config=Config(model=ModelSpec(name=dialect.model)),
        history=History.of(user("hello")),
        clock=SystemClock(),
        emit=events.append,
    )
    model = dialect.performer(url, "key")
    ending = await model(request, scene)
    await model.aclose()
    assert isinstance(ending, ModelFinished | ModelFailed)
    return events, ending


@pytest.mark.parametrize("path", recorded())
async def test_a_recorded_body_is_read_over_http(path: Path) -> None:
    """Through a real connection it says the same, in events that count their pieces."""
    body, rng = bytes_of(path), random.Random(path.name)
    cuts = sorted({*rng.choices(range(1, len(body)), k=rng.randrange(30))})
    parts = [body[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    async with serving(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n", parts) as url:
        events, ending = await ask(dialect_of(path), url)
    pieces: list[Piece] = []
    for event in events:
        assert isinstance(event, ModelStreamed)
        assert (event.before, event.count) == (len(pieces), len(event.pieces))
        pieces += event.pieces
    if isinstance(ending, ModelFinished):
        pieces += ending.pieces
    assert Said.of(pieces) == Said.expected(path)
    check_ending(path, ending)


REFUSALS = {
    "anthropic-400-04": (Failure.BAD_REQUEST, "does not support effort level"),
    "anthropic-401-10": (Failure.AUTH, "invalid x-api-key"),
    "anthropic-404-01": (Failure.NOT_FOUND, "claude-sonet-4-5"),
    "deepseek-400-19": (Failure.OVERFLOW, "maximum context length is 1048565"),
    "mistral-401-13": (Failure.AUTH, "Invalid API Key"),
    "openai-400-07": (Failure.BAD_REQUEST, "does not support 'developer'"),
    "openai-400-25": (Failure.BAD_REQUEST, "Error while downloading"),
    "openai-400-28": (Failure.BAD_REQUEST, "'stop' is not supported"),
    "perplexity-400-22": (Failure.OVERFLOW, "total length of all messages"),
    "perplexity-401-16": (Failure.AUTH, "Invalid API key provided"),
}

OF_THE_BODY = {"content-length", "content-encoding", "transfer-encoding", "connection"}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", REFUSALS)
async def test_a_recorded_refusal_is_an_answer(name: str, dialect: str) -> None:
    """Status, headers and body of a real error give the failure and its message, on either wire."""
    path = BODIES / "errors" / f"{name}.error.json"
    if not path.exists():
        pytest.skip(f"no recorded errors in {BODIES}: set TURNWHEEL_WIRE to where they are")
    told = json.loads(path.read_text("utf-8"))
    headers = [
        f"{key}: {value}\r\n" for key, value in told["headers"].items() if key.lower() not in OF_THE_BODY
    ]
    head = f"HTTP/1.1 {told['status']} No\r\n{''.join(headers)}"
    async with serving(head.encode(), [told["body_text"].encode()]) as url:
        events, ending = await ask(DIALECTS[dialect], url)
    failure, message = REFUSALS[name]
    assert isinstance(ending, ModelFailed)
    assert (ending.failure, ending.retry_after, events) == (failure, None, [])
    assert message in ending.message
    assert ("or pass api_key" in ending.message) == (failure is Failure.AUTH)
