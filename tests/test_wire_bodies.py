"""Recorded answers of real providers: whatever the splits, what is read is what was said."""

from __future__ import annotations

import asyncio
import json
import os
import random
from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest

from turnwheel.effects.config import Config, ModelSpec
from turnwheel.effects.events import Event, Failure, ModelFailed, ModelFinished, ModelStreamed
from turnwheel.effects.history import History
from turnwheel.effects.messages import StopReason, user
from turnwheel.effects.notices import AgentNoticed
from turnwheel.effects.performers.base import Scene, SystemClock
from turnwheel.effects.performers.models import OpenAIChat
from turnwheel.effects.performers.models.errors import refusal
from turnwheel.effects.performers.models.openai_stream import ChatParser
from turnwheel.effects.performers.models.wire import Broken, Complete, Ending
from turnwheel.effects.pieces import CallPiece, Piece, ReasoningPiece, TextPiece, merged
from turnwheel.effects.requests import CallModel, Conversation
from turnwheel.effects.usage import Usage

Emitted = Event | AgentNoticed

BESIDE = Path(__file__).parents[2] / "shared" / "wire"
BODIES = Path(os.environ.get("TURNWHEEL_WIRE", BESIDE))
SPLITS = 20

STOPS = {
    "stop": StopReason.END_TURN,
    "tool_calls": StopReason.TOOL_USE,
    "length": StopReason.MAX_TOKENS,
    None: StopReason.UNKNOWN,
}


def recorded() -> list[Any]:
    """Each recorded body as a pytest parameter, or one that skips and says why."""
    found = [
        path
        for path in sorted(BODIES.rglob("*.expected.json"))
        if expected_of(path)["dialect"] == "openai-chat"
    ]
    if not found:
        return [pytest.param(BODIES, marks=no_bodies)]
    return [pytest.param(path, id=path.name.removesuffix(".expected.json")) for path in found]


def expected_of(path: Path) -> dict[str, Any]:
    """What the recording says was said."""
    told: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return told


no_bodies = pytest.mark.skip(reason=f"no recorded bodies in {BODIES}: set TURNWHEEL_WIRE to where they are")


@attrs.frozen
class Said:
    """An answer in the terms of the recordings."""

    text: str
    thinking: str
    calls: list[tuple[str, str, str]]
    signatures: list[str]

    @classmethod
    def of(cls, pieces: list[Piece]) -> Said:
        """What *pieces* say."""
        parts = merged(pieces)
        return cls(
            "".join([p.text for p in parts if isinstance(p, TextPiece)]),
            "".join([p.text for p in parts if isinstance(p, ReasoningPiece)]),
            [(p.wire_id, p.name, p.arguments) for p in parts if isinstance(p, CallPiece)],
            [p.signature for p in parts if isinstance(p, ReasoningPiece) if p.signature],
        )

    @classmethod
    def expected(cls, path: Path) -> Said:
        """What the recording at *path* says was said."""
        told = expected_of(path)
        calls = [(call["id"], call["name"], call["arguments"]) for call in told["tool_calls"]]
        return cls(
            (told["text"] or "") + (told["refusal"] or ""),
            told["thinking"] or "",
            calls,
            told["thinking_signatures"],
        )


def expected_usage(path: Path) -> Usage:
    """The recorded usage in our words."""
    told = expected_of(path)["usage"] or {}
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


def check_ending(path: Path, ending: Ending | ModelFinished | ModelFailed) -> None:
    """Hold *ending* against the recording."""
    told = expected_of(path)
    if told["error"]:
        assert isinstance(ending, Broken | ModelFailed)
        assert told["error"]["message"] in ending.message
        return
    assert isinstance(ending, Complete | ModelFinished)
    assert ending.stop is (StopReason.REFUSAL if told["refusal"] else STOPS[told["stop_reason"]])
    if told["usage"]:
        assert ending.usage == expected_usage(path)


def bytes_of(path: Path) -> bytes:
    """The recorded body."""
    return path.with_name(path.name.replace(".expected.json", ".sse")).read_bytes()


def split_at_random(body: bytes, rng: random.Random) -> list[bytes]:
    """*body* in up to thirty parts."""
    cuts = sorted(rng.choices(range(len(body)), k=rng.randrange(30)))
    return [body[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(body)], strict=True)]


def read(parts: list[bytes]) -> tuple[list[Piece], Ending]:
    """All pieces and the ending of a body that arrives in *parts*."""
    parser = ChatParser()
    pieces = [piece for part in parts for piece in parser.feed(part)]
    ending = parser.end()
    return pieces + list(ending.pieces if isinstance(ending, Complete) else ()), ending


@pytest.mark.parametrize("path", recorded())
def test_a_recorded_body_is_read_whole(path: Path) -> None:
    """In one part it says what the recording says."""
    pieces, ending = read([bytes_of(path)])
    assert Said.of(pieces) == Said.expected(path)
    check_ending(path, ending)


@pytest.mark.parametrize("path", recorded())
def test_a_recorded_body_is_read_byte_by_byte(path: Path) -> None:
    """Split at every byte it gives the same pieces and the same ending."""
    body = bytes_of(path)
    assert read([body[i : i + 1] for i in range(len(body))]) == read([body])


@pytest.mark.parametrize("path", recorded())
def test_a_recorded_body_is_read_at_random_splits(path: Path) -> None:
    """Wherever it is split it gives the same pieces and the same ending."""
    body, rng = bytes_of(path), random.Random(path.name)
    for _ in range(SPLITS):
        assert read(split_at_random(body, rng)) == read([body])


@pytest.mark.parametrize("path", recorded())
def test_a_recorded_body_that_stops_anywhere_is_never_a_whole_answer_by_mistake(path: Path) -> None:
    """Before the finish reason has come, a cut body is a failure, with a prefix of the pieces."""
    body = bytes_of(path)
    whole, _ = read([body])
    ends = [at for mark in (b'"finish_reason":"', b"data: [DONE]") if (at := body.find(mark)) >= 0]
    limit = min(ends, default=len(body))
    rng = random.Random(path.name)
    for cut in rng.choices(range(limit), k=SPLITS):
        pieces, ending = read([body[:cut]])
        assert isinstance(ending, Broken)
        assert pieces == whole[: len(pieces)]


async def post_recorded(path: Path) -> tuple[list[Emitted], ModelFinished | ModelFailed]:
    """What the performer makes of the body when a real server sends it in HTTP chunks."""
    parts = [part for part in split_at_random(bytes_of(path), random.Random(path.name)) if part]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        for part in parts:
            writer.write(b"%x\r\n%b\r\n" % (len(part), part))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    events: list[Emitted] = []
    request = CallModel(id="run-1", model="openai:any", view=Conversation(revision=0, length=1))
    scene = Scene(
        session="s",
        run="run",
        config=Config(model=ModelSpec(name="openai:any")),
        history=History.of(user("hello")),
        clock=SystemClock(),
        emit=events.append,
    )
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        model = OpenAIChat(f"http://127.0.0.1:{port}/v1", "key")
        ending = await model(request, scene)
        await model.aclose()
    assert isinstance(ending, ModelFinished | ModelFailed)
    return events, ending


@pytest.mark.parametrize("path", recorded())
async def test_a_recorded_body_is_read_over_http(path: Path) -> None:
    """Through a real connection it says the same, in events that count their pieces."""
    events, ending = await post_recorded(path)
    pieces: list[Piece] = []
    for event in events:
        assert isinstance(event, ModelStreamed)
        assert (event.before, event.count) == (len(pieces), len(event.pieces))
        pieces += event.pieces
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


@pytest.mark.parametrize("name", REFUSALS)
def test_a_recorded_refusal_is_classified(name: str) -> None:
    """Status, headers and body of a real error give the failure and its message."""
    path = BODIES / "errors" / f"{name}.error.json"
    if not path.exists():
        pytest.skip(f"no recorded errors in {BODIES}: set TURNWHEEL_WIRE to where they are")
    told = json.loads(path.read_text("utf-8"))
    headers = httpx.Headers(told["headers"])
    broken = refusal(told["status"], headers, told["body_text"].encode(), now=0.0)
    failure, message = REFUSALS[name]
    assert broken.failure is failure
    assert message in broken.message
    assert broken.retry_after is None
