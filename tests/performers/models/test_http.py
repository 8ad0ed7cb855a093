"""Models over HTTP: whatever a real loopback server does, the performer has one answer."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import socket
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from typing import Any

import attrs
import httpx
import pytest
from provers.hostile_server.server import END, STREAM, Answer, Asked, Hostile, Line, chunked
from support.patience import PATIENCE

from turnwheel import Agent, Settings
from turnwheel.effects.config import Config, ModelSpec
from turnwheel.effects.errors import ConfigError
from turnwheel.effects.events import Event, Failure, ModelFailed, ModelFinished, ModelStreamed
from turnwheel.effects.history import History, Piece, TextPiece
from turnwheel.effects.messages import Binary, Message, Role, StopReason, Text, user
from turnwheel.effects.requests import CallModel, Conversation
from turnwheel.effects.usage import Usage
from turnwheel.performers.base import PassThroughNotice, PerformContext, SystemClock
from turnwheel.performers.models import http, transport
from turnwheel.performers.models.anthropic import AnthropicMessages
from turnwheel.performers.models.http import HTTPModel
from turnwheel.performers.models.openai import ChatParser, OpenAIChat
from turnwheel.performers.models.responses import OpenAIResponses

Emitted = Event | PassThroughNotice


@pytest.fixture(params=["aiohttp", "httpx"], autouse=True)
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there to ask with, where no client is passed: each test is played with either."""
    if request.param == "httpx":
        monkeypatch.setattr(transport, "find_spec", lambda _: None)


REQUEST = CallModel(id="run-1", model="openai:m", view=Conversation(revision=0, length=1))
DONE = b"data: [DONE]\n\n"
TINY = 0.05


def delta(text: str = "", finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text} if text else {}, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


STOP = delta(finish="stop")
HELLO = [STREAM, chunked(delta("Hel")), chunked(delta("lo")), chunked(STOP + DONE), END]


def always(*parts: bytes, then: Callable[[Line], object] = lambda _: None) -> Answer:
    """An answer of *parts*, always the same; *then* a close or a reset, or the connection stays open."""

    async def answer(line: Line) -> None:
        await line.send(*parts)
        then(line)

    return answer


def scene_of(emit: Callable[[Emitted], None] = lambda _: None) -> PerformContext:
    config, clock = Config(model=ModelSpec(name="openai:m", max_output=None)), SystemClock()
    return PerformContext(
        session="s", run="run", config=config, history=History.of(user("hi")), clock=clock, emit=emit
    )


async def ask(model: HTTPModel, events: list[Emitted] | None = None) -> ModelFinished | ModelFailed:
    try:
        answer = await model(REQUEST, scene_of(events.append if events is not None else lambda _: None))
    finally:
        await model.aclose()
    assert isinstance(answer, ModelFinished | ModelFailed)
    assert answer.request == "run-1"
    assert answer.seconds >= 0
    return answer


async def failed(model: HTTPModel) -> ModelFailed:
    answer = await ask(model)
    assert isinstance(answer, ModelFailed)
    assert 0 <= answer.jitter < 1
    return answer


def pieces_of(events: list[Emitted]) -> list[Piece]:
    pieces: list[Piece] = []
    for event in events:
        assert isinstance(event, ModelStreamed)
        assert (event.request, event.before, event.count) == ("run-1", len(pieces), len(event.pieces))
        pieces += event.pieces
    return pieces


async def test_an_answer_is_streamed_and_finished() -> None:
    events: list[Emitted] = []
    async with Hostile(always(*HELLO)) as server:
        answer = await ask(OpenAIChat(server.url, "key"), events)
    assert isinstance(answer, ModelFinished)
    assert (answer.stop, answer.usage, answer.pieces) == (StopReason.END_TURN, Usage(), ())
    assert pieces_of(events) == [TextPiece("Hel"), TextPiece("lo")]


@attrs.frozen
class Provider:
    """How one kind of provider is asked: where, with which header for the key, and where the key is kept."""

    performer: type[OpenAIChat | AnthropicMessages | OpenAIResponses]
    path: str
    header: str
    variable: str


PROVIDERS = {
    "openai": Provider(OpenAIChat, "/chat/completions", "authorization: Bearer ", "OPENAI_API_KEY"),
    "responses": Provider(OpenAIResponses, "/responses", "authorization: Bearer ", "OPENAI_API_KEY"),
    "anthropic": Provider(AnthropicMessages, "/messages", "x-api-key: ", "ANTHROPIC_API_KEY"),
}
each_provider = pytest.mark.parametrize("provider", PROVIDERS.values(), ids=PROVIDERS)


def lines_of(asked: Asked) -> list[str]:
    """The head of a request, with the names of its headers in small letters."""
    first, *headers = asked.head.split("\r\n")
    return [first, *(f"{name.lower()}:{value}" for name, _, value in (one.partition(":") for one in headers))]


@each_provider
async def test_a_request_is_what_the_api_expects(provider: Provider) -> None:
    async with Hostile(always(*HELLO)) as server:
        await ask(provider.performer(server.url + "/", " key\n"))
    first, *headers = lines_of(server.asked[0])
    assert first == f"POST /v1{provider.path} HTTP/1.1"
    assert "content-type: application/json" in headers
    body = json.loads(server.asked[0].body)
    assert [message["role"] for message in body.get("messages") or body["input"]] == ["user"]
    ours = {"anthropic-version: 2023-06-01"} if provider.performer is AnthropicMessages else set[str]()
    assert {line for line in headers if line.startswith("anthropic-")} == ours
    assert [line for line in headers if line.endswith("key")] == [f"{provider.header}key"]


@each_provider
async def test_a_key_comes_from_the_environment(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    # It does where none is given, and none is sent where there is none: a proxy may ask for none.
    async with Hostile(always(*HELLO)) as server:
        monkeypatch.setenv(provider.variable, "from-env")
        await ask(provider.performer(server.url))
        await ask(provider.performer(server.url, ""))
        monkeypatch.delenv(provider.variable)
        await ask(provider.performer(server.url))
    first, *others = map(lines_of, server.asked)
    assert f"{provider.header}from-env" in first
    assert not [line for each in others for line in each if line.startswith(provider.header)]


@each_provider
async def test_a_refused_key_says_where_to_set_it(provider: Provider) -> None:
    refusal = b'HTTP/1.1 401 No\r\ncontent-length: 15\r\n\r\n{"detail":"no"}'
    async with Hostile(always(refusal)) as server:
        answer = await failed(provider.performer(server.url, "key"))
    says = f"http 401: no; set {provider.variable} or pass api_key"
    assert (answer.failure, answer.message) == (Failure.AUTH, says)


@pytest.mark.parametrize("key", ["k\u00e9y", "k\ney"])
@each_provider
def test_a_key_that_no_header_can_hold_is_refused_at_once(provider: Provider, key: str) -> None:
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
def test_a_bad_setting_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        OpenAIChat(**settings)


async def test_one_read_is_one_event() -> None:
    # However many chunks were in it; what came before a pause is handed on before it ends.
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


async def test_a_burst_is_told_together(monkeypatch: pytest.MonkeyPatch) -> None:
    # What comes first is told at once. The rest of a burst waits for more, and the end does not wait for it.
    monkeypatch.setattr(http, "BURST", 60.0)

    async def burst(line: Line) -> None:
        await line.send(STREAM)
        for text in "abcdefgh":
            await line.send(chunked(delta(text)))
            await asyncio.sleep(0.001)  # each is a read of its own
        await line.send(chunked(STOP), END)

    events: list[Emitted] = []
    async with Hostile(burst) as server, asyncio.timeout(PATIENCE):
        assert isinstance(await ask(OpenAIChat(server.url, "key"), events), ModelFinished)
    assert pieces_of(events) == [TextPiece(text) for text in "abcdefgh"]
    assert len(events) == 2


async def test_others_get_a_turn_between_the_parts_that_one_read_is_unpacked_to() -> None:
    """A small read may become a thousand parts, and a loop has other sessions."""
    turns, told = 0, list[int]()

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def packed() -> AsyncIterator[bytes]:
        yield gzip.compress(delta("a" * http.MAX_PART) * 5 + STOP)

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-encoding": "gzip"}, content=packed())

    other = asyncio.create_task(others())
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        model = OpenAIChat("http://there", "key", client)
        assert isinstance(await model(REQUEST, scene_of(lambda _: told.append(turns))), ModelFinished)
        await model.aclose()
    other.cancel()
    assert len(told) >= 5
    assert sorted({*told}) == told


async def test_a_parser_that_raises_ends_the_request_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    # A host's may. It is called from the loop, where no task would hear of it.
    def feed(_: ChatParser, data: bytes) -> list[Piece]:
        raise LookupError(data[:4])

    monkeypatch.setattr(ChatParser, "feed", feed)
    async with Hostile(always(*BEGUN)) as server:
        with pytest.raises(LookupError, match="data"):
            await ask(OpenAIChat(server.url, "key"))


async def test_a_connection_is_used_again() -> None:
    async with Hostile(always(*HELLO)) as server:
        model = OpenAIChat(server.url, "key")
        for _ in range(3):
            assert isinstance(await model(REQUEST, scene_of()), ModelFinished)
        assert (len(server.asked), server.open) == (3, 1)
        await model.aclose()


async def test_after_done_a_server_that_keeps_the_body_open_is_not_waited_for() -> None:
    async with Hostile(always(*HELLO[:-1])) as server, asyncio.timeout(PATIENCE):
        assert isinstance(await ask(OpenAIChat(server.url, "key", idle_timeout=None)), ModelFinished)


async def test_the_callers_client_is_used_and_left_open() -> None:
    async with Hostile(always(*HELLO)) as server, httpx.AsyncClient(headers={"x-mine": "yes"}) as client:
        assert isinstance(await ask(OpenAIChat(server.url, "key", client)), ModelFinished)
        assert not client.is_closed
    assert server.asked[0].header("x-mine") == "yes"


async def test_a_key_of_the_callers_client_is_hidden_too() -> None:
    body = b'{"error":"no: mine-0123456789"}'
    refusal = b"HTTP/1.1 403 No\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    keys = {"x-api-key": "mine-0123456789"}
    async with Hostile(always(refusal)) as server, httpx.AsyncClient(headers=keys) as client:
        answer = await failed(OpenAIChat(server.url, "", client))
    assert answer.message.startswith("http 403: no: [hidden]; ")


@pytest.mark.parametrize(
    ("status", "kind", "hint"),
    [
        (
            400,
            "application/x-evil",
            "; files are in the conversation: a.exe (application/x-evil); if the model",
        ),
        (400, "text/plain", ""),
        (500, "application/x-evil", ""),
    ],
)
async def test_a_refused_request_with_a_file_names_the_file(status: int, kind: str, hint: str) -> None:
    refusal = b'HTTP/1.1 %d No\r\ncontent-length: 15\r\n\r\n{"detail":"no"}' % status
    file = Binary(media_type=kind, data=b"x", name="a.exe")
    said = Message(role=Role.USER, parts=(Text(text="hi"), file))
    async with Hostile(always(refusal)) as server:
        model = OpenAIChat(server.url, "key")
        answer = await model(REQUEST, attrs.evolve(scene_of(), history=History.of(said)))
        await model.aclose()
    assert isinstance(answer, ModelFailed)
    assert answer.message.startswith(f"http {status}: no{hint}")
    assert ("files are" in answer.message) == bool(hint)


def test_one_performer_serves_several_event_loops() -> None:
    # Each loop has connections of its own, and what was closed is opened again.
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"".join(HELLO))
        writer.close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        model = OpenAIChat(f"http://127.0.0.1:{listening.getsockname()[1]}/v1", "key")

        async def once() -> None:
            async with await asyncio.start_server(serve, sock=listening.dup()):
                for _ in range(2):
                    assert isinstance(await model(REQUEST, scene_of()), ModelFinished)
                    for _ in range(3):
                        await asyncio.sleep(0)  # the loop has to hear that the server hung up
                assert isinstance(await ask(model), ModelFinished)
                assert isinstance(await ask(model), ModelFinished)

        asyncio.run(once())
        asyncio.run(once())


@pytest.mark.parametrize("parts", [[STOP], [STOP, DONE]])
async def test_a_finished_answer_outlives_a_reset(parts: list[bytes]) -> None:
    async with Hostile(always(*HELLO[:3], *map(chunked, parts), then=Line.reset)) as server:
        assert isinstance(await ask(OpenAIChat(server.url, "key")), ModelFinished)


async def test_the_pieces_of_an_answer_that_is_not_streamed_come_with_its_end() -> None:
    body = json.dumps({"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    events: list[Emitted] = []
    async with Hostile(always(head, body)) as server:
        answer = await ask(OpenAIChat(server.url, "key"), events)
    assert isinstance(answer, ModelFinished)
    assert (answer.pieces, events) == ((TextPiece("Hello"),), [])


async def silent(line: Line) -> None:
    await line.stall()


BEGUN = HELLO[:2]
LIMIT = b'HTTP/1.1 429 Too Many\r\nretry-after: 7\r\ncontent-length: 28\r\n\r\n{"error":{"message":"slow"}}'
# What else a server can do wrong, test_hostile_server.py shows; here is what the performer says of it.
BROKEN: dict[str, tuple[Answer, Failure, str]] = {
    "no end": (always(*BEGUN, END, then=Line.close), Failure.CUT, "without a finish reason"),
    "closed": (always(*BEGUN, then=Line.close), Failure.CUT, "was cut: "),
    "reset": (always(then=Line.reset), Failure.CONNECTION, "no connection to http://127.0.0.1:"),
    "a limit": (always(LIMIT), Failure.RATE_LIMIT, "http 429: slow"),
    "silence": (silent, Failure.TIMEOUT, "for 0.05 s (first_byte_timeout=0.05)"),
    "silence behind it": (always(STREAM), Failure.TIMEOUT, "for 0.05 s (first_byte_timeout=0.05)"),
    "silence in the middle": (always(*BEGUN), Failure.TIMEOUT, "for 0.06 s (idle_timeout=0.06)"),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_fault_of_the_world_is_an_answer(name: str) -> None:
    server, failure, message = BROKEN[name]
    limits: dict[str, Any] = {"first_byte_timeout": TINY} if "silence" in name else {}
    if "middle" in name:  # on a busy machine even the first byte may take its time
        limits = {"idle_timeout": 0.06}
    async with Hostile(server) as serving:
        answer = await failed(OpenAIChat(serving.url, "key", **limits))
    assert answer.failure is failure
    assert message in answer.message
    assert answer.retry_after == (7.0 if name == "a limit" else None)


def noted_feed(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """An event that is set each time a parser is given bytes."""
    read, feed = asyncio.Event(), ChatParser.feed

    def noted(parser: ChatParser, data: bytes) -> list[Piece]:
        read.set()
        return feed(parser, data)

    monkeypatch.setattr(ChatParser, "feed", noted)
    return read


async def test_an_answer_that_is_slow_but_steady_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    # The idle time counts from byte to byte, not from the start.
    read, passed = noted_feed(monkeypatch), 0.0

    async def steady(line: Line) -> None:
        nonlocal passed
        await line.send(STREAM)
        for _ in range(8):
            read.clear()
            await line.send(chunked(b": keepalive\n\n"))
            await read.wait()
            await asyncio.sleep(0)
            passed += PATIENCE / 2
        await line.send(*HELLO[1:])

    # Time passes between two bytes only, and then all at once.
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: time.monotonic() + passed)
    async with Hostile(steady) as server:
        patient = OpenAIChat(server.url, "key", first_byte_timeout=PATIENCE, idle_timeout=PATIENCE)
        answer = await ask(patient)
    assert isinstance(answer, ModelFinished)
    assert passed > 3 * PATIENCE


@pytest.mark.parametrize(
    ("drip", "step", "seconds", "message"),
    [
        # Comments and single bytes keep a stream open, and so only the limit of all of it ends them.
        (chunked(b": still there\n\n"), 100.0, 3600.0, "no end of the answer"),
        (chunked(b" "), 1.0, 3600.0, "no end of the answer"),
        (None, 1.0, 120.0, "nothing more"),
    ],
    ids=["comments", "a byte a second", "silence"],
)
async def test_a_stream_that_drips_ends_by_the_usual_limits(
    drip: bytes | None, step: float, seconds: float, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, passed, read = asyncio.get_running_loop(), 0.0, noted_feed(monkeypatch)

    async def dripping(line: Line) -> None:
        nonlocal passed
        await line.send(*BEGUN)
        await read.wait()
        while passed < 2 * seconds:
            read.clear()
            passed += step
            if drip is not None:
                await line.send(drip)
                await read.wait()
            await asyncio.sleep(0)

    monkeypatch.setattr(loop, "time", lambda: time.monotonic() + passed)
    async with Hostile(dripping) as server:
        answer = await failed(OpenAIChat(server.url, "key"))
    assert answer.failure is Failure.TIMEOUT
    assert answer.message.startswith(message)
    # The idle limit is set anew in each tenth of its time, and so may end a stream that much later.
    assert 0.9 * seconds <= passed <= 1.2 * seconds


LATE = "no connection to http://there within 10.0 s (connect_timeout=10.0)"


@pytest.mark.parametrize(
    ("error", "failure", "message"),
    [
        (httpx.ConnectTimeout(""), Failure.TIMEOUT, LATE),
        (httpx.PoolTimeout("full"), Failure.TIMEOUT, "the client gave up on http://there: full"),
        (httpx.ConnectError(""), Failure.CONNECTION, "no connection to http://there: ConnectError"),
        (OSError("no route"), Failure.CONNECTION, "no connection to http://there: no route"),
    ],
)
async def test_a_transports_error_is_an_answer(error: Exception, failure: Failure, message: str) -> None:
    def refuse(_: httpx.Request) -> httpx.Response:
        raise error

    async with httpx.AsyncClient(transport=httpx.MockTransport(refuse)) as client:
        answer = await failed(OpenAIChat("http://there", "key", client))
    assert (answer.failure, answer.message) == (failure, message)


@pytest.mark.parametrize("url", ["http://[x]", "http://there:port"])
async def test_an_address_that_is_none_is_an_answer_that_names_it(url: str) -> None:
    answer = await failed(OpenAIChat(url, "key"))
    assert answer.failure is Failure.BAD_REQUEST
    assert repr(url) in answer.message


async def test_advice_on_the_key_comes_only_where_the_key_is_refused_or_absent() -> None:
    body = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
    advice = "set OPENAI_API_KEY or pass api_key"

    async def message(status: int, key: str = "sk-12345678", text: str = "") -> str:
        sent = {"error": {"message": text}} if text else body
        answer = httpx.MockTransport(lambda _: httpx.Response(status, json=sent))
        async with httpx.AsyncClient(transport=answer) as client:
            told = await failed(OpenAIChat("http://there/v1", key, client))
        assert told.failure is Failure.AUTH
        return told.message

    assert await message(429) == "http 429: You exceeded your current quota"
    assert await message(402) == "http 402: You exceeded your current quota"
    assert advice in await message(401)
    assert advice in await message(403)
    assert advice in await message(429, key="")
    assert advice in await message(400, text="API key not valid. Please pass a valid API key.")


@pytest.mark.parametrize(
    ("url", "said", "message"),
    [
        (
            "http://there",
            "Not Found",
            "http 404: Not Found (asked http://there/chat/completions; does the base_url lack /v1?)",
        ),
        ("http://me:pw@there/v1", "no", "http 404: no (asked http://there/v1/chat/completions)"),
        (
            "http://there/api/v1beta/x",
            "",
            "without a message (asked http://there/api/v1beta/x/chat/completions)",
        ),
        ("http://there", "no such model", "http 404: no such model"),
    ],
)
async def test_a_path_that_is_not_there_is_named_and_a_version_that_it_lacks(
    url: str, said: str, message: str
) -> None:
    answer = httpx.MockTransport(lambda _: httpx.Response(404, text=said))
    async with httpx.AsyncClient(transport=answer) as client:
        told = await failed(OpenAIChat(url, "key", client))
    assert told.failure is Failure.NOT_FOUND
    assert told.message.endswith(message)


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("http://there", "does the base_url lack /v1?"),
        ("http://there/v1", "check the base_url, and any proxy"),
    ],
)
async def test_a_web_page_in_the_place_of_an_answer_is_not_asked_for_again(url: str, hint: str) -> None:
    answer = httpx.MockTransport(lambda _: httpx.Response(200, html="<html>Sign in</html>"))
    async with httpx.AsyncClient(transport=answer) as client:
        told = await failed(OpenAIChat(url, "key", client))
    assert told.failure is Failure.BAD_REQUEST
    assert f"{url}/chat/completions answered with a web page (text/html; charset=utf-8)" in told.message
    assert hint in told.message


@pytest.mark.parametrize(
    ("body", "kind"), [(b"garb", "text/event-stream"), (delta("Hel"), "text/html"), (b"", "text/plain")]
)
async def test_what_may_be_a_stream_that_was_cut_is_asked_for_again(body: bytes, kind: str) -> None:
    head = {"content-type": kind}
    answer = httpx.MockTransport(lambda _: httpx.Response(200, content=body, headers=head))
    async with httpx.AsyncClient(transport=answer) as client:
        assert (await failed(OpenAIChat("http://there/v1", "key", client))).failure is Failure.CUT


@pytest.mark.parametrize(
    ("url", "fix"),
    [
        ("localhost:8000/v1", "http://localhost:8000/v1"),
        ("me:secret@127.0.0.1/v1", "http://127.0.0.1/v1"),
        ("api.there.com/v1", "https://api.there.com/v1"),
        ("http:/localhost/v1", "http://localhost/v1"),
        ("ftp://me:secret@there", "http://host:8000/v1"),
        ("http://", "http://host:8000/v1"),
        ("/v1", "https://v1"),
    ],
)
def test_an_address_without_http_in_front_is_refused_when_the_agent_is_made(url: str, fix: str) -> None:
    def agent(base_url: str) -> object:
        return Agent(base_url=base_url)

    for make in (OpenAIChat, AnthropicMessages, agent, lambda url: Settings(base_url=url).agent()):
        with pytest.raises(ConfigError, match="base_url must begin with http") as caught:
            make(url)
        assert f"(write {fix!r})" in str(caught.value)
        assert "secret" not in str(caught.value)


async def test_a_refused_connection_names_its_address_without_the_login_in_it() -> None:
    async with Hostile(silent) as server:
        url = server.url
    answer = await failed(OpenAIChat(url.replace("//", "//me:password1@"), "key"))
    assert answer.failure is Failure.CONNECTION
    assert answer.message.startswith(f"no connection to {url}")
    assert "password1" not in answer.message


@pytest.mark.parametrize("make", [OpenAIChat, AnthropicMessages])
async def test_a_login_in_an_address_is_sent_and_logged_nowhere(
    make: type[OpenAIChat | AnthropicMessages], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with Hostile(always(*HELLO)) as server:
        await ask(make(server.url.replace("//", "//me%40here:pass%3Aword1@"), "key"))
    assert server.asked[0].header("authorization") == f"Basic {b64encode(b'me@here:pass:word1').decode()}"
    assert "word1" not in caplog.text


@pytest.mark.parametrize("parts", [0, 1, 2])
async def test_a_cancelled_request_still_has_its_answer(parts: int, until: Any) -> None:
    # The connection is closed, what had come is handed on, and the task is not cancelled any more.
    asked, streamed = asyncio.Event(), asyncio.Event()
    events: list[Emitted] = []

    def emit(event: Emitted) -> None:
        events.append(event)
        streamed.set()

    async def answer(line: Line) -> None:
        await line.send(*HELLO[:parts])
        asked.set()
        await line.stall()

    async with Hostile(answer) as server:
        model = OpenAIChat(server.url, "key")
        task = asyncio.create_task(model(REQUEST, scene_of(emit)))
        await asked.wait()
        if parts > 1:
            await streamed.wait()
        task.cancel()
        task.cancel()
        result = await task
        await until(lambda: not server.open)
        await model.aclose()
    assert isinstance(result, ModelFailed)
    assert (result.failure, result.message) == (Failure.CANCELLED, "cancelled")
    assert task.cancelling() == 0
    assert pieces_of(events) == ([TextPiece("Hel")] if parts > 1 else [])


@each_provider
async def test_a_redirect_is_not_followed(provider: Provider) -> None:
    """Not even where the caller's client follows them: the key would go along."""
    async with Hostile(always(*HELLO)) as other, httpx.AsyncClient(follow_redirects=True) as client:
        head = f"HTTP/1.1 307 There\r\nlocation: {other.url}/x\r\ncontent-length: 0\r\n\r\n"
        async with Hostile(always(head.encode())) as server:
            answer = await failed(provider.performer(server.url, "key", client))
        assert answer.failure is Failure.BAD_REQUEST
        assert answer.message == f"http 307: redirected to '{other.url}/x'; give that as the base URL"
        assert other.asked == []


@each_provider
async def test_a_cookie_is_not_kept_and_nothing_is_asked_to_be_packed(provider: Provider) -> None:
    # Many sessions ask through one client: what a server tells one, it must not hear from another.
    head = STREAM.replace(b"\r\n", b"\r\nset-cookie: a=b; path=/\r\n", 1)
    async with Hostile(always(head, *HELLO[1:])) as server:
        model = provider.performer(server.url, "key")
        for _ in range(2):
            await model(REQUEST, scene_of())
        await model.aclose()
    assert [asked.header("cookie") for asked in server.asked] == ["", ""]
    # So what comes packed was packed for a reason of its own.
    assert {asked.header("accept-encoding") for asked in server.asked} == {"identity"}


@each_provider
async def test_a_server_that_speaks_no_tls_is_told_as_such(provider: Provider) -> None:
    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Plain\r\n\r\n")
        writer.close()

    async with Hostile(silent) as server, await asyncio.start_server(refuse, "127.0.0.1", 0) as other:
        address = f"127.0.0.1:{other.sockets[0].getsockname()[1]}"
        for authority, within, failure in (
            (server.authority, 0.2, Failure.TIMEOUT),
            (address, PATIENCE, Failure.CONNECTION),
        ):
            model = provider.performer(f"https://{authority}", "key", connect_timeout=within)
            assert (await failed(model)).failure is failure
