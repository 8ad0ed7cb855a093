"""Models over HTTP: whatever a real loopback server does, the performer has one answer."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import httpx
import pytest

from turnwheel.effects.config import Config, ModelSpec
from turnwheel.effects.errors import ConfigError
from turnwheel.effects.events import (
    Event,
    Failure,
    ModelFailed,
    ModelFinished,
    ModelStreamed,
)
from turnwheel.effects.history import History
from turnwheel.effects.messages import StopReason, user
from turnwheel.effects.pieces import Piece, TextPiece
from turnwheel.effects.requests import CallModel, Conversation
from turnwheel.effects.usage import Usage
from turnwheel.performers import AnthropicMessages, HTTPModel, OpenAIChat
from turnwheel.performers.base import PassThroughNotice as OnlySeen
from turnwheel.performers.base import PerformContext, SystemClock
from turnwheel.performers.models.http import REFUSAL_WAIT

Emitted = Event | OnlySeen

REQUEST = CallModel(id="run-1", model="openai:m", view=Conversation(revision=0, length=1))
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
END = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"
TINY = 0.05


def delta(text: str = "", finish: str | None = None) -> bytes:
    """One event with *text*."""
    choice = {"index": 0, "delta": {"content": text} if text else {}, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def chunked(data: bytes) -> bytes:
    """*data* as one HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


STOP = delta(finish="stop")
HELLO = [chunked(delta("Hel")), chunked(delta("lo")), chunked(STOP + DONE), END]
WHOLE = HEAD + b"\r\n" + b"".join(HELLO)


class Seen:
    """What a server saw: *requests* as head and body, *connections*, and whether one was *closed*."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, bytes]] = []
        self.connections = 0
        self.closed = asyncio.Event()
        self.url = ""


Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(answer: Answer, listening: socket.socket | None = None) -> AsyncGenerator[Seen, None]:
    """A server that reads requests and lets *answer* write each answer."""
    listening = listening or socket.create_server(("127.0.0.1", 0))
    seen = Seen()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
                seen.requests.append((head, await reader.readexactly(length)))
                await answer(writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            seen.closed.set()
            writer.close()

    async with await asyncio.start_server(connected, sock=listening) as server:
        seen.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        yield seen


def always(*parts: bytes) -> Answer:
    """An answer of *parts*, always the same; the connection stays open."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"".join(parts))

    return answer


def then_close(*parts: bytes) -> Answer:
    """An answer of *parts* and the end of the connection."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"".join(parts))
        await writer.drain()
        writer.close()

    return answer


def then_reset(*parts: bytes) -> Answer:
    """An answer of *parts* and a connection torn down."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"".join(parts))
        await writer.drain()
        writer.transport.abort()

    return answer


def scene_of(emit: Callable[[Emitted], None] = lambda _: None) -> PerformContext:
    """A scene with one user message."""
    config = Config(model=ModelSpec(name="openai:m", max_output=None))
    return PerformContext(
        session="s", run="run", config=config, history=History.of(user("hi")), clock=SystemClock(), emit=emit
    )


async def ask(model: HTTPModel, events: list[Emitted] | None = None) -> ModelFinished | ModelFailed:
    """One answer of *model*; what came before it is added to *events*."""
    answer = await model(REQUEST, scene_of(events.append if events is not None else lambda _: None))
    await model.aclose()
    assert isinstance(answer, ModelFinished | ModelFailed)
    assert answer.request == "run-1"
    assert answer.seconds >= 0
    return answer


async def failed(model: HTTPModel) -> ModelFailed:
    """The failure of *model*."""
    answer = await ask(model)
    assert isinstance(answer, ModelFailed)
    assert 0 <= answer.jitter < 1
    return answer


def pieces_of(events: list[Emitted]) -> list[Piece]:
    """All pieces in *events*, which must count them right."""
    pieces: list[Piece] = []
    for event in events:
        assert isinstance(event, ModelStreamed)
        assert (event.request, event.before, event.count) == ("run-1", len(pieces), len(event.pieces))
        pieces += event.pieces
    return pieces


async def test_an_answer_is_streamed_and_finished() -> None:
    """Pieces come as events that count themselves, the end as the one answer."""
    events: list[Emitted] = []
    async with serving(always(WHOLE)) as seen:
        answer = await ask(OpenAIChat(seen.url, "key"), events)
    assert isinstance(answer, ModelFinished)
    assert (answer.stop, answer.usage, answer.pieces) == (StopReason.END_TURN, Usage(), ())
    assert pieces_of(events) == [TextPiece("Hel"), TextPiece("lo")]


@attrs.frozen
class Provider:
    """How one kind of provider is asked: where, with which header for the key, and where the key is kept."""

    performer: type[OpenAIChat | AnthropicMessages]
    path: str
    header: str
    variable: str


PROVIDERS = [
    Provider(OpenAIChat, "/chat/completions", "authorization: bearer ", "OPENAI_API_KEY"),
    Provider(AnthropicMessages, "/messages", "x-api-key: ", "ANTHROPIC_API_KEY"),
]
each_provider = pytest.mark.parametrize("provider", PROVIDERS, ids=["openai", "anthropic"])


@each_provider
async def test_a_request_is_what_the_api_expects(provider: Provider) -> None:
    """Path, key, type and body go out."""
    async with serving(always(WHOLE)) as seen:
        await ask(provider.performer(seen.url + "/", " key\n"))
    head, body = seen.requests[0]
    assert head.startswith(f"post /v1{provider.path} http/1.1\r\n")
    assert f"\r\n{provider.header}key\r\n" in head
    assert "content-type: application/json\r\n" in head
    assert [message["role"] for message in json.loads(body)["messages"]] == ["user"]


@each_provider
async def test_the_key_comes_from_the_environment(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does where none is given, and none is sent where there is none."""
    async with serving(always(WHOLE)) as seen:
        monkeypatch.setenv(provider.variable, "from-env")
        await ask(provider.performer(seen.url))
        monkeypatch.delenv(provider.variable)
        await ask(provider.performer(seen.url))
    first, second = [head for head, _ in seen.requests]
    assert f"\r\n{provider.header}from-env\r\n" in first
    assert provider.header not in second


@pytest.mark.parametrize("key", ["k\u00e9y", "k\ney"])
@each_provider
def test_a_key_that_no_header_can_hold_is_refused(provider: Provider, key: str) -> None:
    """At once, and not only when it is sent."""
    with pytest.raises(ConfigError, match=f"no header can hold; check api_key or {provider.variable}"):
        provider.performer(api_key=key)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"connect_timeout": 0}, "connect_timeout must be more than 0, or None to wait for ever; got 0"),
        ({"idle_timeout": -1.0}, "idle_timeout must be more than 0"),
        ({"first_byte_timeout": float("nan")}, "first_byte_timeout must be more than 0"),
    ],
)
def test_a_wrong_setting_is_refused(settings: dict[str, Any], message: str) -> None:
    """At once, and it says which."""
    with pytest.raises(ConfigError, match=message):
        OpenAIChat(**settings)


async def test_one_read_is_one_event() -> None:
    """However many chunks were in it; what came before a pause is handed on before it ends."""
    paused, go_on = asyncio.Event(), asyncio.Event()

    class Body(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for text in "abc":
                yield delta(text)
            paused.set()
            await go_on.wait()
            yield delta("d")
            yield STOP

    events: list[Emitted] = []
    transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=Body()))
    async with httpx.AsyncClient(transport=transport) as client:
        task = asyncio.create_task(ask(OpenAIChat("http://there", "key", client), events))
        await paused.wait()
        await asyncio.sleep(0)
        assert [len(pieces_of([event])) for event in events] == [3]
        go_on.set()
        assert isinstance(await task, ModelFinished)
    assert pieces_of(events) == [TextPiece(text) for text in "abcd"]
    assert len(events) == 2


async def test_a_connection_is_used_again() -> None:
    """The answer is read to its end, so the next request finds the connection free."""
    async with serving(always(WHOLE)) as seen:
        model = OpenAIChat(seen.url, "key")
        for _ in range(3):
            assert isinstance(await model(REQUEST, scene_of()), ModelFinished)
        await model.aclose()
    assert (len(seen.requests), seen.connections) == (3, 1)


async def test_a_server_that_keeps_the_body_open_is_not_waited_for() -> None:
    """After [DONE] there is nothing to wait for."""
    async with serving(always(HEAD, b"\r\n", *HELLO[:-1])) as seen, asyncio.timeout(5):
        assert isinstance(await ask(OpenAIChat(seen.url, "key", idle_timeout=None)), ModelFinished)


def without_end(head: bytes, part: bytes) -> Answer:
    """An answer that repeats *part* until nobody listens."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while not writer.is_closing():
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.001)  # a server of one process leaves its client some time

    return answer


async def test_a_server_that_talks_on_is_not_listened_to() -> None:
    """After [DONE] there is nothing to listen to either."""
    server = without_end(HEAD + b"\r\n" + b"".join(HELLO[:-1]), chunked(b": keepalive\n\n"))
    async with serving(server) as seen, asyncio.timeout(5):
        assert isinstance(await ask(OpenAIChat(seen.url, "key")), ModelFinished)


async def test_a_refusal_without_an_end_is_not_read_to_it() -> None:
    """Its status and its beginning say enough."""
    server = without_end(b"HTTP/1.1 500 Bad\r\n\r\n", b"no " * 10_000)
    async with serving(server) as seen, asyncio.timeout(REFUSAL_WAIT - 1):
        answer = await failed(OpenAIChat(seen.url, "key"))
    assert (answer.failure, answer.message[:15]) == (Failure.SERVER, "http 500: no no")


async def test_the_callers_client_is_used_and_left_open() -> None:
    """Its settings hold and it stays the caller's."""
    async with serving(always(WHOLE)) as seen, httpx.AsyncClient(headers={"x-mine": "yes"}) as client:
        assert isinstance(await ask(OpenAIChat(seen.url, "key", client)), ModelFinished)
        assert not client.is_closed
    assert "x-mine: yes\r\n" in seen.requests[0][0]


def test_one_performer_serves_several_event_loops() -> None:
    """Each loop has connections of its own, and what was closed is opened again."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        model = OpenAIChat(f"http://127.0.0.1:{listening.getsockname()[1]}/v1", "key")

        async def once() -> None:
            async with serving(always(WHOLE), listening.dup()):
                assert isinstance(await model(REQUEST, scene_of()), ModelFinished)
                assert isinstance(await ask(model), ModelFinished)
                assert isinstance(await ask(model), ModelFinished)

        asyncio.run(once())
        asyncio.run(once())


@pytest.mark.parametrize("parts", [[STOP], [STOP, DONE]])
async def test_a_finished_answer_outlives_a_reset(parts: list[bytes]) -> None:
    """What has its finish reason is whole."""
    async with serving(then_reset(HEAD, b"\r\n", *HELLO[:2], *map(chunked, parts))) as seen:
        assert isinstance(await ask(OpenAIChat(seen.url, "key")), ModelFinished)


async def test_a_compressed_answer_is_read() -> None:
    """Some servers compress even a stream."""
    packed = gzip.compress(delta("Hello") + STOP + DONE)
    parts = [chunked(packed[:20]), chunked(packed[20:]), END]
    events: list[Emitted] = []
    async with serving(always(HEAD, b"content-encoding: gzip\r\n\r\n", *parts)) as seen:
        assert isinstance(await ask(OpenAIChat(seen.url, "key"), events), ModelFinished)
    assert pieces_of(events) == [TextPiece("Hello")]


async def test_an_answer_that_is_not_streamed_is_one_event() -> None:
    """Its pieces come with the end."""
    body = json.dumps({"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    events: list[Emitted] = []
    async with serving(always(head, body)) as seen:
        answer = await ask(OpenAIChat(seen.url, "key"), events)
    assert isinstance(answer, ModelFinished)
    assert (answer.pieces, events) == ((TextPiece("Hello"),), [])


async def silent(writer: asyncio.StreamWriter) -> None:
    """Never answers."""


BROKEN: dict[str, tuple[Answer, Failure, str]] = {
    "an end without an end": (
        then_close(HEAD, b"\r\n", HELLO[0], END),
        Failure.CUT,
        "without a finish reason",
    ),
    "closed in the middle": (
        then_close(HEAD, b"\r\n", HELLO[0]),
        Failure.CUT,
        "was cut: peer closed connection",
    ),
    "reset in the middle": (then_reset(HEAD, b"\r\n", HELLO[0]), Failure.CUT, "was cut: "),
    "closed before an answer": (
        then_close(),
        Failure.CONNECTION,
        "Server disconnected without sending a response",
    ),
    "reset before an answer": (then_reset(), Failure.CONNECTION, "no connection to http://127.0.0.1:"),
    "no http": (then_close(b"SSH-2.0-OpenSSH\r\n\r\n"), Failure.CONNECTION, "illegal status line"),
    "broken gzip": (
        then_close(HEAD, b"content-encoding: gzip\r\n\r\n", chunked(b"no gzip"), END),
        Failure.CUT,
        "incorrect header check",
    ),
    "an error in the middle": (
        always(HEAD, b"\r\n", HELLO[0], chunked(b'data: {"error":{"code":529,"message":"busy"}}\n\n'), END),
        Failure.OVERLOADED,
        "error in the stream: busy",
    ),
    "garbage": (
        then_close(HEAD, b"\r\n", *[chunked(b"x" * 65_536)] * 160, END),
        Failure.CUT,
        "an event of the stream is larger than 8388608 bytes",
    ),
    "a limit": (
        always(
            b"HTTP/1.1 429 Too Many\r\nretry-after: 7\r\ncontent-length: 28\r\n\r\n",
            b'{"error":{"message":"slow"}}',
        ),
        Failure.RATE_LIMIT,
        "http 429: slow",
    ),
    "a cut refusal": (
        then_close(b"HTTP/1.1 502 Bad\r\ncontent-length: 100\r\n\r\n<html>"),
        Failure.SERVER,
        "http 502",
    ),
    "no right": (
        always(b"HTTP/1.1 401 No\r\ncontent-length: 15\r\n\r\n", b'{"detail":"no"}'),
        Failure.AUTH,
        "http 401: no; set OPENAI_API_KEY or pass api_key",
    ),
    "silence": (silent, Failure.TIMEOUT, r"for 0.05 s (first_byte_timeout=0.05)"),
    "silence behind the head": (
        always(HEAD, b"\r\n"),
        Failure.TIMEOUT,
        r"for 0.05 s (first_byte_timeout=0.05)",
    ),
    "silence in the middle": (
        always(HEAD, b"\r\n", HELLO[0]),
        Failure.TIMEOUT,
        "for 0.06 s (idle_timeout=0.06)",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_fault_of_the_world_is_an_answer(name: str) -> None:
    """It is never raised, and it says what was wrong."""
    server, failure, message = BROKEN[name]
    limits: dict[str, Any] = {"first_byte_timeout": TINY, "idle_timeout": 0.06} if "silence" in name else {}
    async with serving(server) as seen:
        answer = await failed(OpenAIChat(seen.url, "key", **limits))
    assert answer.failure is failure
    assert message in answer.message
    assert answer.retry_after == (7.0 if name == "a limit" else None)


async def test_an_answer_that_is_slow_but_steady_is_not_late() -> None:
    """The idle time counts from byte to byte, not from the start."""

    async def steady(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"\r\n")
        for _ in range(8):
            writer.write(chunked(b": keepalive\n\n"))
            await asyncio.sleep(TINY / 2)
        writer.write(b"".join(HELLO))

    async with serving(steady) as seen:
        answer = await ask(OpenAIChat(seen.url, "key", first_byte_timeout=2 * TINY, idle_timeout=2 * TINY))
    assert isinstance(answer, ModelFinished)
    assert answer.seconds > 3 * TINY


@pytest.mark.parametrize(
    ("error", "failure", "message"),
    [
        (
            httpx.ConnectTimeout(""),
            Failure.TIMEOUT,
            "no connection to http://there within 10.0 s (connect_timeout=10.0)",
        ),
        (httpx.PoolTimeout("full"), Failure.TIMEOUT, "the client gave up on http://there: full"),
        (httpx.ConnectError(""), Failure.CONNECTION, "no connection to http://there: ConnectError"),
        (OSError("no route"), Failure.CONNECTION, "no connection to http://there: no route"),
    ],
)
async def test_a_transports_error_is_an_answer(error: Exception, failure: Failure, message: str) -> None:
    """Whatever the caller's client says, it says it as an answer."""

    def refuse(_: httpx.Request) -> httpx.Response:
        raise error

    async with httpx.AsyncClient(transport=httpx.MockTransport(refuse)) as client:
        answer = await failed(OpenAIChat("http://there", "key", client))
    assert (answer.failure, answer.message) == (failure, message)


@pytest.mark.parametrize("url", ["there", "http://[x]", "ftp://there", "http://there:port"])
async def test_an_address_that_is_none_is_an_answer(url: str) -> None:
    """It names the address."""
    answer = await failed(OpenAIChat(url, "key"))
    assert answer.failure is Failure.BAD_REQUEST
    assert repr(url) in answer.message


async def test_nobody_listens() -> None:
    """A refused connection is told as such."""
    async with serving(silent) as seen:
        url = seen.url
    answer = await failed(OpenAIChat(url, "key"))
    assert answer.failure is Failure.CONNECTION
    assert url in answer.message


@pytest.mark.parametrize("parts", [[], [HEAD, b"\r\n"], [HEAD, b"\r\n", HELLO[0]]])
async def test_a_cancelled_request_still_has_its_answer(parts: list[bytes]) -> None:
    """The connection is closed, what had come is handed on, and the task is not cancelled any more."""
    asked, streamed = asyncio.Event(), asyncio.Event()

    def emit(event: Emitted) -> None:
        events.append(event)
        streamed.set()

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"".join(parts))
        await writer.drain()
        asked.set()

    events: list[Emitted] = []
    async with serving(answer) as seen:
        model = OpenAIChat(seen.url, "key")
        task = asyncio.create_task(model(REQUEST, scene_of(emit)))
        await asked.wait()
        if len(parts) > 2:
            await streamed.wait()
        task.cancel()
        task.cancel()
        result = await task
        async with asyncio.timeout(5):
            await seen.closed.wait()
        await model.aclose()
    assert isinstance(result, ModelFailed)
    assert (result.failure, result.message) == (Failure.CANCELLED, "cancelled")
    assert task.cancelling() == 0
    assert pieces_of(events) == ([TextPiece("Hel")] if len(parts) > 2 else [])
