"""Recorded answers of real servers, on all wires: at any split, what is read is what the server said."""

from __future__ import annotations

import json
import os
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest

from turnwheel.effects.config import Config, ModelSpec
from turnwheel.effects.events import Event, Failure, ModelFailed, ModelFinished, ModelStreamed
from turnwheel.effects.history import CallPiece, History, Piece, ReasoningPiece, TextPiece, merged
from turnwheel.effects.messages import Message, Role, StopReason, ToolCall, user
from turnwheel.effects.requests import CallModel, Conversation
from turnwheel.effects.usage import Usage
from turnwheel.performers.base import PassThroughNotice, PerformContext, SystemClock
from turnwheel.performers.models.anthropic import AnthropicMessages
from turnwheel.performers.models.anthropic_stream import MessagesParser
from turnwheel.performers.models.http import HTTPModel
from turnwheel.performers.models.openai import ChatParser, OpenAIChat
from turnwheel.performers.models.responses import OpenAIResponses, ResponsesWire
from turnwheel.performers.models.responses_stream import ResponsesParser
from turnwheel.performers.models.wire import AnswerEnd, Broken, Complete, Parser
from turnwheel.states.rules.schema import arguments_of
from turnwheel.states.streaming import parts_of, wishes
from turnwheel.testing.wire_rules import reading_faults

BESIDE = Path(__file__).resolve().parents[4] / "shared" / "wire"
BODIES = Path(os.environ.get("TURNWHEEL_WIRE", BESIDE))
# Streams of Responses, with the head of each HTTP answer beside it. Their last event says the answer again.
STREAMS_BESIDE = BESIDE.parent / "prototypes" / "connected" / "streams"
STREAMS = Path(os.environ.get("TURNWHEEL_RESPONSES", STREAMS_BESIDE))
CUTS = 20


@attrs.frozen
class Dialect:
    """How one dialect is read; before *ends* have come an answer is not over."""

    parser: Callable[[], Parser]
    performer: Callable[..., HTTPModel]
    model: str
    ends: tuple[bytes, ...]


DIALECTS = {
    "openai-chat": Dialect(ChatParser, OpenAIChat, "openai:any", (b'"finish_reason":"', b"data: [DONE]")),
    "anthropic-messages": Dialect(MessagesParser, AnthropicMessages, "anthropic:any", (b"message_stop",)),
    "openai-responses": Dialect(
        ResponsesParser, OpenAIResponses, "openai-responses:any", (b"response.completed",)
    ),
}
STOPS = {
    "stop": StopReason.END_TURN,
    "end_turn": StopReason.END_TURN,
    "tool_calls": StopReason.TOOL_USE,
    "tool_use": StopReason.TOOL_USE,
    "length": StopReason.MAX_TOKENS,
    "max_tokens": StopReason.MAX_TOKENS,
    "refusal": StopReason.REFUSAL,
    "pause_turn": StopReason.PAUSED,
    None: StopReason.UNKNOWN,
}
no_bodies = pytest.mark.skip(reason=f"no recorded bodies in {BODIES}: set TURNWHEEL_WIRE to where they are")


no_streams = pytest.mark.skip(reason=f"no streams in {STREAMS}: set TURNWHEEL_RESPONSES to where they are")


def recorded() -> list[Any]:
    """The recorded bodies as pytest parameters, or one that skips and says why."""
    found = sorted(BODIES.rglob("*.expected.json"))
    return [pytest.param(path, id=path.name.removesuffix(".expected.json")) for path in found] or [
        pytest.param(BODIES, marks=no_bodies)
    ]


def streams(pattern: str = "*-responses-*.head") -> list[Any]:
    """The recorded streams of Responses, as `recorded` has the other bodies."""
    found = sorted(STREAMS.glob(pattern))
    return [pytest.param(path, id=path.stem) for path in found] or [pytest.param(STREAMS, marks=no_streams)]


Said = tuple[str, str, list[tuple[str, str, str]], list[str], list[str]]
"""The text of an answer, its thinking, its calls, and the signatures and redacted parts of its thinking."""


def said_by(pieces: list[Piece]) -> Said:
    parts = merged(pieces)
    thoughts = [part for part in parts if isinstance(part, ReasoningPiece)]
    return (
        "".join([part.text for part in parts if isinstance(part, TextPiece)]),
        "".join([thought.text for thought in thoughts]),
        [(part.wire_id, part.name, part.arguments) for part in parts if isinstance(part, CallPiece)],
        [thought.signature for thought in thoughts if thought.signature],
        [thought.redacted for thought in thoughts if thought.redacted],
    )


def last_of(body: bytes) -> dict[str, Any]:
    """The answer, or the error, in the last event of a *body* of Responses."""
    lines = [line[6:] for line in body.splitlines() if line.startswith(b"data: {")]
    event: dict[str, Any] = json.loads(lines[-1] if lines else body)
    answer: dict[str, Any] = event.get("response", event)
    return answer


def said_last(answer: dict[str, Any]) -> dict[str, Any]:
    """What the *answer* of the last event of Responses says, in the words of an ``expected.json``."""
    items = answer.get("output", [])
    calls = [item for item in items if item["type"] == "function_call"]
    parts = [part for item in items if item["type"] == "message" for part in item["content"]]
    thoughts = [
        part["text"]
        for item in items
        if item["type"] == "reasoning"
        for part in item.get("summary") or item.get("content") or []
    ]
    return {
        "dialect": "openai-responses",
        "text": "".join([part["text"] for part in parts]),
        "thinking": "\n\n".join(thoughts),
        "tool_calls": [
            {
                "id": call["call_id"],
                "name": call["name"],
                "arguments": call["arguments"],
                "arguments_parsed": json.loads(call["arguments"]),
            }
            for call in calls
        ],
        "stop_reason": "tool_calls" if calls else "stop",
        "usage": answer.get("usage"),
        "error": answer.get("error"),
    }


@attrs.frozen
class Recording:
    """A recorded *body*, what the recording says that it says, and the *status* that it came with."""

    path: Path
    body: bytes
    says: dict[str, Any]
    status: int = 200

    @classmethod
    def at(cls, path: Path) -> Recording:
        if path.suffix == ".head":
            body = path.with_suffix(".sse").read_bytes()
            return cls(path, body, said_last(last_of(body)), int(path.read_text("utf-8").split()[1]))
        body = path.with_name(path.name.replace(".expected.json", ".sse")).read_bytes()
        return cls(path, body, json.loads(path.read_text("utf-8")))

    @property
    def dialect(self) -> Dialect:
        return DIALECTS[self.says["dialect"]]

    @property
    def said(self) -> Said:
        says = self.says
        calls = [(call["id"], call["name"], call["arguments"]) for call in says["tool_calls"]]
        thoughts = says["thinking"]
        if says["dialect"] == "openai-responses":
            return says["text"], says["thinking"], calls, [], []
        if says["dialect"] == "openai-chat":
            text = (says["text"] or "") + (says["refusal"] or "")
            return text, thoughts or "", calls, says["thinking_signatures"], []
        signatures = [thought["signature"] for thought in thoughts]
        thinking = "".join([thought["thinking"] for thought in thoughts])
        return says["text"], thinking, calls, signatures, says["redacted_thinking"]

    @property
    def usage(self) -> Usage:
        used = self.says["usage"] or {}
        if self.says["dialect"] == "openai-responses":
            return Usage(
                input=used["input_tokens"],
                output=used["output_tokens"],
                cached=used.get("input_tokens_details", {}).get("cached_tokens", 0),
                reasoning=used.get("output_tokens_details", {}).get("reasoning_tokens", 0),
            )
        if "input_tokens" in used:
            cached, write = used.get("cache_read_input_tokens", 0), used.get("cache_creation_input_tokens", 0)
            return Usage(
                input=used["input_tokens"] + cached + write,
                output=used["output_tokens"],
                cached=cached,
                cache_write=write,
                reasoning=used.get("output_tokens_details", {}).get("thinking_tokens", 0),
            )
        prompt = used.get("prompt_tokens_details") or {}
        reasoning = (used.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
        beside = reasoning if self.path.parent.name == "xai" else 0  # xAI does not count it in the output
        return Usage(
            input=used.get("prompt_tokens", 0),
            output=used.get("completion_tokens", 0) + beside,
            cached=prompt.get("cached_tokens") or 0,
            cache_write=prompt.get("cache_write_tokens") or 0,
            reasoning=reasoning,
        )

    @property
    def error(self) -> str:
        if self.says["dialect"] == "openai-responses":
            return str(self.says["error"]["message"]) if self.says["error"] else ""
        for line in self.body.splitlines() if self.says["error"] else ():
            chunk = json.loads(line[6:]) if line.startswith(b"data: {") else {}
            if chunk.get("error"):
                return str(chunk["error"]["message"])
        return ""

    @property
    def runnable(self) -> list[str]:
        """
        The names of the calls that a loop runs.

        None where arguments are no JSON: no SDK mends them. None that the provider ran itself: LiteLLM shows
        its own tools as ordinary calls.
        """
        calls = self.says["tool_calls"]
        broken = any(call["arguments"] and call["arguments_parsed"] is None for call in calls)
        theirs = any((call["id"] or "").startswith("srvtoolu_") for call in calls)
        if broken or theirs or self.says.get("server_tool_calls") or self.error:
            return []
        return [call["name"] for call in calls]

    def check(self, pieces: list[Piece], ending: AnswerEnd | ModelFinished | ModelFailed) -> None:
        assert said_by(pieces) == self.said
        if self.error:
            assert isinstance(ending, Broken | ModelFailed)
            assert self.error[:400] in ending.message
            return
        assert isinstance(ending, Complete | ModelFinished)
        refused = self.says.get("refusal")
        assert ending.stop is (StopReason.REFUSAL if refused else STOPS[self.says["stop_reason"]])
        if self.says["usage"]:
            assert ending.usage == self.usage


def read(parser: Parser, body: bytes) -> tuple[list[Piece], AnswerEnd]:
    pieces = parser.feed(body)
    ending = parser.end()
    return pieces + list(ending.pieces if isinstance(ending, Complete) else ()), ending


def run_of(pieces: list[Piece], ending: AnswerEnd) -> list[str]:
    """The names of the calls that a loop runs which offered all of them."""
    if isinstance(ending, Broken):
        return []  # a failed answer is dropped whole
    offered = tuple({piece.name for piece in pieces if isinstance(piece, CallPiece)})
    kept, _ = wishes(merged(pieces), ending.stop, offered)
    return [piece.name for piece in kept if arguments_of(piece.arguments) is not None]


@pytest.mark.parametrize("path", [*recorded(), *streams()])
async def test_a_recorded_body_is_read(path: Path) -> None:
    recording = Recording.at(path)
    body, dialect, rng = recording.body, recording.dialect, random.Random(path.name)
    whole, ending = read(dialect.parser(), body)
    recording.check(whole, ending)
    assert run_of(whole, ending) == recording.runnable
    assert reading_faults(dialect.parser, body) == []

    # Before its end has come, a cut body is a failure, with a prefix of the pieces.
    limit = min([at for mark in dialect.ends if (at := body.find(mark)) >= 0], default=len(body))
    for cut in rng.choices(range(limit), k=CUTS):
        pieces, broken = read(dialect.parser(), body[:cut])
        assert isinstance(broken, Broken)
        assert pieces == whole[: len(pieces)]

    # Over HTTP it says the same, in events that count their pieces.
    cuts = sorted({*rng.choices(range(1, len(body)), k=rng.randrange(30))})
    parts = [body[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    events, answer = await ask(dialect, httpx.Response(recording.status, stream=Parts(parts)))
    heard: list[Piece] = []
    for event in events:
        assert isinstance(event, ModelStreamed)
        assert (event.before, event.count) == (len(heard), len(event.pieces))
        heard += event.pieces
    recording.check(heard + list(answer.pieces if isinstance(answer, ModelFinished) else ()), answer)


@pytest.mark.parametrize("path", streams("*-tool.head"))
def test_a_recorded_answer_of_responses_goes_back_as_it_came(path: Path) -> None:
    body = path.with_suffix(".sse").read_bytes()
    pieces, _ = read(ResponsesParser(), body)
    calls = {
        piece.index: ToolCall(
            id=f"run-{piece.index}",
            wire_id=piece.wire_id,
            name=piece.name,
            arguments=piece.arguments,
            opaque=piece.opaque,
        )
        for piece in merged(pieces)
        if isinstance(piece, CallPiece)
    }
    answer = Message(
        role=Role.ASSISTANT, parts=parts_of(merged(pieces), calls), at=1.0, model="openai-responses:any"
    )
    history = History.of(user("hi"), answer, user("and?"))
    request = CallModel(
        id="run-9", model="openai-responses:any", view=Conversation(revision=0, length=len(history))
    )
    scene = PerformContext(
        session="s",
        run="run",
        config=Config(model=ModelSpec(name="openai-responses:any")),
        history=history,
        clock=SystemClock(),
        emit=lambda _: None,
    )
    _, *sent, _ = json.loads(ResponsesWire().encode(request, scene).body)["input"]
    # A call goes back without its status, and reasoning only if it is encrypted.
    expected = [
        {key: value for key, value in item.items() if key != "status" or item["type"] != "function_call"}
        for item in last_of(body)["output"]
        if item["type"] != "reasoning" or item.get("encrypted_content")
    ]
    assert sent == expected


class Parts(httpx.AsyncByteStream):
    """A body that arrives in *parts*."""

    def __init__(self, parts: list[bytes]) -> None:
        self.parts = parts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self.parts:
            yield part


async def ask(
    dialect: Dialect, response: httpx.Response
) -> tuple[list[Event | PassThroughNotice], ModelFinished | ModelFailed]:
    events: list[Event | PassThroughNotice] = []
    request = CallModel(id="run-1", model=dialect.model, view=Conversation(revision=0, length=1))
    config, history, clock = (
        Config(model=ModelSpec(name=dialect.model)),
        History.of(user("hi")),
        SystemClock(),
    )
    scene = PerformContext(
        session="s", run="run", config=config, history=history, clock=clock, emit=events.append
    )
    async with httpx.AsyncClient(transport=httpx.MockTransport(lambda _: response)) as client:
        ending = await dialect.performer("http://there/v1", "key", client)(request, scene)
    assert isinstance(ending, ModelFinished | ModelFailed)
    return events, ending


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
    # Status, headers and body of a real error give the failure and its message, on either wire.
    path = BODIES / "errors" / f"{name}.error.json"
    if not path.exists():
        pytest.skip(f"no recorded errors in {BODIES}: set TURNWHEEL_WIRE to where they are")
    says = json.loads(path.read_text("utf-8"))
    headers = {key: value for key, value in says["headers"].items() if key.lower() not in OF_THE_BODY}
    response = httpx.Response(says["status"], headers=headers, content=says["body_text"].encode())
    events, ending = await ask(DIALECTS[dialect], response)
    failure, message = REFUSALS[name]
    assert isinstance(ending, ModelFailed)
    assert (ending.failure, ending.retry_after, events) == (failure, None, [])
    assert message in ending.message
    assert ("or pass api_key" in ending.message) == (failure is Failure.AUTH)
