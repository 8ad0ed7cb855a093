"""Transports: whichever library asks, a request looks the same, and so does whatever the world does to it."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import socket
import ssl
import subprocess
import sys
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import httpx
import httpx2
import pytest
from provers.hostile_server.server import END, STREAM, Answer, Hostile, Line, chunked
from support.patience import PATIENCE

from turnwheel import Agent
from turnwheel.effects.config import Config, ModelSpec
from turnwheel.effects.errors import ConfigError
from turnwheel.effects.events import Failure, ModelFailed, ModelFinished
from turnwheel.effects.history import History
from turnwheel.effects.messages import user
from turnwheel.effects.requests import CallModel, Conversation
from turnwheel.performers.base import PerformContext, SystemClock
from turnwheel.performers.models import transport
from turnwheel.performers.models.http import HTTPModel
from turnwheel.performers.models.openai import OpenAIChat
from turnwheel.performers.models.transport import (
    AiohttpTransport,
    Client,
    ClientTransport,
    HttpcoreTransport,
    HTTPReply,
    Transport,
    TransportError,
    open_transport,
)

DONE = b"data: [DONE]\n\n"
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
HELLO = b'data: {"choices":[{"index":0,"delta":{"content":"Hello"}}]}\n\n' + STOP + DONE
TINY = 0.1

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # a client of its own would read all certificates there are

CLIENTS: dict[str, Callable[[], Client]] = {
    "aiohttp": lambda: "aiohttp",
    "httpx": lambda: "httpx",
    "a client of httpx": lambda: httpx.AsyncClient(verify=NO_TLS),
    "a client of httpx2": lambda: httpx2.AsyncClient(verify=NO_TLS),
}


@pytest.fixture(params=CLIENTS)
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    made = CLIENTS[request.param]()
    yield made
    if isinstance(made, httpx.AsyncClient | httpx2.AsyncClient):
        await made.aclose()


OWN = pytest.mark.parametrize("client", ["aiohttp", "httpx"])


def scene_of(emit: Callable[[Any], None] = lambda _: None) -> PerformContext:
    config, history = Config(model=ModelSpec(name="openai:m", max_output=None)), History.of(user("hi"))
    return PerformContext(
        session="s", run="r", config=config, history=history, clock=SystemClock(), emit=emit
    )


REQUEST = CallModel(id="r-1", model="openai:m", view=Conversation(revision=0, length=1))


async def ask(model: HTTPModel) -> ModelFinished | ModelFailed:
    try:
        answer = await model(REQUEST, scene_of())
    finally:
        await model.aclose()
    assert isinstance(answer, ModelFinished | ModelFailed)
    return answer


def always(*parts: bytes, then: Callable[[Line], object] = lambda _: None) -> Answer:
    async def answer(line: Line) -> None:
        await line.send(*parts)
        then(line)

    return answer


def whole(body: bytes, head: str = "", status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{head}\r\n".encode() + body


async def silent(line: Line) -> None:
    await line.stall()


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


WELL = {
    "in chunks": STREAM + chunked(HELLO[:70]) + chunked(HELLO[70:]) + END,
    "with its length": whole(HELLO),
    "with a word of its own in a chunk": STREAM + b"%x;a=b\r\n%b\r\n" % (len(HELLO), HELLO) + END,
    "behind an interim answer": b"HTTP/1.1 103 Early\r\nlink: <x>\r\n\r\n" + whole(HELLO),
    "packed by gzip": whole(gzip.compress(HELLO), "content-encoding: gzip\r\n"),
    "packed by deflate": whole(zlib.compress(HELLO), "Content-Encoding: deflate\r\n"),
    "packed by deflate without its head": whole(raw_deflate(HELLO), "content-encoding: deflate\r\n"),
    "with a large head": whole(HELLO, "".join([f"x-{n}: {'y' * 7_000}\r\n" for n in range(12)])),
}


@pytest.mark.parametrize("name", WELL)
async def test_an_answer_is_read_however_it_comes(client: Client, name: str) -> None:
    async with Hostile(always(WELL[name])) as server:
        assert isinstance(await ask(OpenAIChat(server.url, "key", client)), ModelFinished)


@pytest.mark.parametrize(("status", "success"), [(199, False), (200, True), (299, True), (300, False)])
def test_a_request_was_taken_where_the_status_is_of_the_second_hundred(status: int, *, success: bool) -> None:
    async def chunks() -> AsyncGenerator[bytes]:
        yield b""

    assert HTTPReply(status=status, headers={}, coding="", chunks=chunks()).is_success is success


async def test_an_answer_may_end_with_its_connection(client: Client) -> None:
    answer = always(b"HTTP/1.1 200 OK\r\n\r\n", HELLO, then=Line.close)
    async with Hostile(answer) as server:
        assert isinstance(await ask(OpenAIChat(server.url, "key", client)), ModelFinished)


PATIENT: dict[str, Any] = {}
SHORT = {"first_byte_timeout": TINY, "connect_timeout": PATIENCE}
BODY = STREAM + chunked(HELLO[:40])
# What goes wrong: what the server does, how long it is waited for, the failure, and what its message says.
FAULTS: dict[str, tuple[Answer, dict[str, Any], Failure, str]] = {
    "nothing is said": (silent, SHORT, Failure.TIMEOUT, "no answer from"),
    "nothing is said behind the head": (always(STREAM), SHORT, Failure.TIMEOUT, "no answer from"),
    "half a head": (always(STREAM[:30]), SHORT, Failure.TIMEOUT, "no answer from"),
    "hung up before a word": (always(then=Line.close), PATIENT, Failure.CONNECTION, "no connection to"),
    "reset before a word": (always(then=Line.reset), PATIENT, Failure.CONNECTION, "no connection to"),
    "hung up in the head": (
        always(STREAM[:30], then=Line.close), PATIENT, Failure.CONNECTION, "no connection to"
    ),
    "no HTTP": (always(b"220 example.org ESMTP\r\n\r\n"), PATIENT, Failure.CONNECTION, "no connection to"),
    "a head without an end": (
        always(b"HTTP/1.1 200 OK\r\na: " + b"b" * 200_000), PATIENT, Failure.CONNECTION, "no connection to"
    ),
    "hung up in a chunk": (always(BODY + b"50\r\ndata", then=Line.close), PATIENT, Failure.CUT, "was cut: "),
    "reset in a chunk": (always(BODY + b"50\r\ndata", then=Line.reset), PATIENT, Failure.CUT, "was cut: "),
    "hung up between chunks": (always(BODY, then=Line.close), PATIENT, Failure.CUT, "was cut: "),
    "less than its length": (
        always(b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n" + HELLO[:40], then=Line.close),
        PATIENT, Failure.CUT, "was cut: ",
    ),
    "no gzip": (always(whole(HELLO, "content-encoding: gzip\r\n")), PATIENT, Failure.CUT, "was cut: "),
    "brotli": (
        always(whole(HELLO, "content-encoding: br\r\n")), PATIENT, Failure.BAD_REQUEST, "encoded as 'br'"
    ),
    "silence in the middle": (always(BODY), {"idle_timeout": TINY}, Failure.TIMEOUT, "nothing more from"),
    "a redirect": (
        always(whole(b"", "location: http://other/\r\n", "307 There")),
        PATIENT, Failure.BAD_REQUEST, "http 307: redirected to 'http://other/'",
    ),
    "an error": (always(whole(b"oops", status="500 Oops")), PATIENT, Failure.SERVER, "http 500: oops"),
    "an error that is cut": (
        always(b"HTTP/1.1 500 Oops\r\ncontent-length: 99\r\n\r\noops", then=Line.close),
        PATIENT, Failure.SERVER, "http 500: oops",
    ),
    "an error that is packed": (
        always(whole(gzip.compress(b"oops"), "content-encoding: gzip\r\n", "500 Oops")),
        PATIENT, Failure.SERVER, "http 500: oops",
    ),
    "an error that nothing unpacks": (
        always(whole(b"oops", "content-encoding: br\r\n", "500 Oops")), PATIENT, Failure.SERVER, "http 500"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_has_the_same_name_whoever_asks(client: Client, name: str) -> None:
    answer, patience, failure, says = FAULTS[name]
    async with Hostile(answer) as server:
        failed = await ask(OpenAIChat(server.url, "key", client, **patience))
    assert isinstance(failed, ModelFailed)
    assert (failed.failure, says in failed.message) == (failure, True), failed.message


async def test_a_chunk_with_a_size_that_is_none_is_a_fault(client: Client) -> None:
    # To aiohttp, what comes with the head in one read is as broken as the head.
    async with Hostile(always(BODY, b"xyz\r\ndata\r\n")) as server:
        failed = await ask(OpenAIChat(server.url, "key", client, idle_timeout=PATIENCE))
    assert isinstance(failed, ModelFailed)
    assert failed.failure in {Failure.CUT, *([Failure.CONNECTION] if client == "aiohttp" else [])}


async def test_a_malformed_chunk_ends_an_answer_at_once(client: Client) -> None:
    # Also where the server goes on as if nothing was: its reader must not wait for more.
    begun = asyncio.Event()

    async def answer(line: Line) -> None:
        await line.send(BODY)
        await begun.wait()
        await line.send(b"xyz\r\ndata\r\n")
        await line.stall()

    async def read_on(url: str) -> None:
        async with opened(client) as made, asyncio.timeout(PATIENCE), made.ask(url, {}, b"{}") as reply:
            async for _ in reply.chunks:
                begun.set()

    async with Hostile(answer) as server:
        with pytest.raises(TransportError):
            await read_on(server.url)


async def test_what_an_error_asks_for_is_heard(client: Client) -> None:
    head = "Retry-After: 7\r\nX-Should-Retry: false\r\n"
    async with Hostile(always(whole(b"slow", head, "429 Slow"))) as server:
        failed = await ask(OpenAIChat(server.url, "key", client))
    assert isinstance(failed, ModelFailed)
    assert (failed.failure, failed.retry_after, failed.should_retry) == (Failure.RATE_LIMIT, 7.0, False)


async def test_a_connection_that_is_refused_is_told_at_once(client: Client) -> None:
    # The socket holds the port, so that no other program can listen on it, and does not listen itself.
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        failed = await ask(OpenAIChat(url, "key", client))
    assert isinstance(failed, ModelFailed)
    assert (failed.failure, f"no connection to {url}: " in failed.message) == (Failure.CONNECTION, True)


async def test_a_connection_that_does_not_come_about_is_late(client: Client) -> None:
    # The system takes connections for a server that does not, until its queue is full.
    with closing(socket.socket()) as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        address = server.getsockname()
        waiting = [socket.socket() for _ in range(3)]
        for each in waiting:
            each.setblocking(False)  # noqa: FBT003  # the name of it
            each.connect_ex(address)
        model = OpenAIChat(f"http://127.0.0.1:{address[1]}", "key", client, connect_timeout=TINY)
        failed = await ask(model)
        for each in waiting:
            each.close()
    assert isinstance(failed, ModelFailed)
    assert failed.failure is Failure.TIMEOUT
    assert failed.message.endswith(f"within {TINY} s (connect_timeout={TINY})")


@pytest.mark.parametrize("url", ["http://[x]", "http://there:port"])
async def test_an_address_that_is_none_is_a_bad_request(client: Client, url: str) -> None:
    failed = await ask(OpenAIChat(url, "key", client))
    assert isinstance(failed, ModelFailed)
    assert (failed.failure, repr(url) in failed.message) == (Failure.BAD_REQUEST, True)


@pytest.mark.parametrize("value", ["a\nb: c", "a\x00b", "caf\u00e9"])
@OWN
async def test_a_header_that_is_none_is_a_bad_request_or_goes_as_it_is(client: Client, value: str) -> None:
    async with Hostile(always(whole(HELLO))) as server:
        answer = await ask(OpenAIChat(server.url, "key", client, extra_headers={"x-mine": value}))
    if isinstance(answer, ModelFailed):
        assert answer.failure is Failure.BAD_REQUEST
    else:
        assert value.isprintable()
    assert not any("\nb: c" in asked.head for asked in server.asked)


async def test_a_request_says_the_same_whoever_asks(client: Client) -> None:
    async with Hostile(always(whole(HELLO, "set-cookie: a=b\r\n"))) as server:
        authority, url = server.authority, server.url.replace("//", "//me:pass%20word@")
        model = OpenAIChat(url, "key", client, extra_headers={"X-Mine": "yes", "Accept-Encoding": "identity"})
        assert isinstance(await ask(model), ModelFinished)
    (asked,) = server.asked
    assert asked.head.splitlines()[0] == "POST /v1/chat/completions HTTP/1.1"
    names = [line.partition(":")[0].lower() for line in asked.head.splitlines()[1:] if line]
    assert len(names) == len(set(names))
    assert {name: asked.header(name) for name in names if name not in {"user-agent", "connection"}} == {
        "host": authority,
        "accept": "text/event-stream",
        "accept-encoding": "identity",
        "content-type": "application/json",
        "content-length": str(len(asked.body)),
        "authorization": "Basic bWU6cGFzcyB3b3Jk",  # the log-in of the address, as httpx has it
        "x-mine": "yes",
    }
    assert json.loads(asked.body)["stream"] is True


async def test_a_large_request_arrives(client: Client) -> None:
    body = b"x" * 3_000_000
    opened = open_transport(client, 5.0)
    async with Hostile(always(whole(b"well"))) as server:
        async with opened.ask(server.url, {}, body) as reply:
            assert (reply.status, b"".join([data async for data in reply.chunks])) == (200, b"well")
        await opened.aclose()
    assert server.asked[0].body == body


async def test_an_error_behind_a_request_that_is_not_read_is_heard(client: Client) -> None:
    # Some servers answer before they have read everything, and hang up.
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(whole(b"too large", "connection: close\r\n", "413 Large"))
        await writer.drain()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        opened = open_transport(client, 5.0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with opened.ask(url, {}, b"x" * 100_000) as reply:
            assert reply.status == 413
            assert b"".join([data async for data in reply.chunks]) == b"too large"
        await opened.aclose()


async def test_what_the_reader_raises_is_its_own(client: Client) -> None:
    opened = open_transport(client, 5.0)
    async with Hostile(always(BODY)) as server:
        for mine in (LookupError("mine"), asyncio.CancelledError()):
            with pytest.raises(type(mine)):
                async with opened.ask(server.url, {}, b"{}"):
                    raise mine
        await opened.aclose()


# The connections that are opened here


@asynccontextmanager
async def opened(client: Client) -> AsyncGenerator[Transport]:
    made = open_transport(client, 5.0)
    yield made
    await made.aclose()


async def read(made: Transport, url: str) -> bytes:
    async with made.ask(url, {}, b"{}") as reply:
        return b"".join([data async for data in reply.chunks])


@OWN
async def test_each_request_has_a_connection_to_itself_and_leaves_it_to_the_next(client: Client) -> None:
    together = asyncio.Barrier(5)

    async def answer(line: Line) -> None:
        await together.wait()
        await line.send(whole(b"well"))

    async with Hostile(answer) as server, opened(client) as made:
        for _ in range(2):
            assert await asyncio.gather(*[read(made, server.url) for _ in range(5)]) == [b"well"] * 5
        assert (len(server.asked), server.open) == (10, 5)


@OWN
async def test_an_answer_that_was_not_read_to_its_end_costs_its_connection(
    client: Client, until: Any
) -> None:
    async with Hostile(always(BODY)) as server, opened(client) as made:
        async with made.ask(server.url, {}, b"{}") as reply:
            assert await anext(reply.chunks)
        await until(lambda: not server.open)


@OWN
async def test_closing_cuts_what_is_under_way(client: Client, until: Any) -> None:
    async with Hostile(always(BODY)) as server, opened(client) as made:
        begun = asyncio.Event()

        async def wait() -> None:
            async with made.ask(server.url, {}, b"{}") as reply:
                async for _ in reply.chunks:
                    begun.set()

        task = asyncio.create_task(wait())
        await begun.wait()
        await made.aclose()
        with pytest.raises(TransportError):
            await asyncio.wait_for(task, PATIENCE)
        await until(lambda: not server.open)


@pytest.mark.parametrize("turns", range(1, 8))
@OWN
async def test_a_connection_is_closed_however_often_its_task_is_cancelled(
    client: Client, turns: int, until: Any
) -> None:
    begun = asyncio.Event()

    async def wait(made: Transport, url: str) -> None:
        async with made.ask(url, {}, b"{}") as reply:
            async for _ in reply.chunks:
                begun.set()

    async with Hostile(always(BODY)) as server, opened(client) as made:
        task = asyncio.create_task(wait(made, server.url))
        await begun.wait()
        task.cancel()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await until(lambda: not server.open)


@OWN
async def test_a_connection_that_the_server_closed_is_not_used_again(client: Client) -> None:
    async with Hostile(always(whole(b"well"), then=Line.close)) as server, opened(client) as made:
        for _ in range(3):
            assert await read(made, server.url) == b"well"
            for _ in range(3):
                await asyncio.sleep(0)  # aiohttp learns of it from the loop
        assert len(server.asked) == 3


async def test_connections_of_a_busy_hour_are_closed_by_and_by(monkeypatch: pytest.MonkeyPatch) -> None:
    # Also where there is always one that is young enough to be used again.
    monkeypatch.setattr(transport, "KEPT", 0.2)
    together = asyncio.Barrier(4)

    async def crowd(line: Line) -> None:
        await together.wait()
        await line.send(whole(b"well"))

    async with Hostile(crowd) as server, opened("httpx") as made, asyncio.timeout(PATIENCE):
        await asyncio.gather(*[read(made, server.url) for _ in range(4)])
        assert server.open == 4
        server.answer = always(whole(b"well"))
        while server.open > 1:
            assert await read(made, server.url) == b"well"


@OWN
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_loop_that_ended_does_not_break_the_next(client: Client, capfd: pytest.CaptureFixture[str]) -> None:
    # Its connections were not closed: nothing is logged of them, and nothing is kept for ever.
    async def once(model: HTTPModel) -> None:
        async with Hostile(always(whole(HELLO))) as server:
            model._endpoint = type(model._endpoint)(base_url=server.url, headers={}, login="")  # pyright: ignore[reportPrivateUsage]  # a server for each loop
            for _ in range(2):
                assert isinstance(await model(REQUEST, scene_of()), ModelFinished)

    model = OpenAIChat("http://there", "key", client)
    for _ in range(3):
        asyncio.run(once(model))
    assert len(model._transports) == 1  # pyright: ignore[reportPrivateUsage]  # what it keeps
    del model
    gc.collect()
    assert capfd.readouterr() == ("", "")


# Which library asks


@pytest.mark.parametrize(
    ("client", "installed", "proxy", "kind"),
    [
        (None, True, "", AiohttpTransport),
        (None, False, "", HttpcoreTransport),
        (None, True, "http://proxy", ClientTransport),
        ("httpx", True, "", HttpcoreTransport),
        ("httpx", True, "http://proxy", ClientTransport),
        ("aiohttp", True, "http://proxy", AiohttpTransport),
        (httpx.AsyncClient, True, "", ClientTransport),
    ],
)
async def test_the_quickest_library_asks_unless_another_is_asked_for(
    client: Any,
    installed: bool,  # noqa: FBT001  # a row
    proxy: str,
    kind: type,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not installed:
        monkeypatch.setattr(transport, "find_spec", lambda _: None)
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    made = client(verify=NO_TLS) if isinstance(client, type) else client
    async with opened(made) as there:
        assert isinstance(there, kind)


async def test_an_error_of_the_connection_that_says_nothing_is_told_by_its_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def failing(*_: object, **__: object) -> NoReturn:
        raise BrokenPipeError

    made = AiohttpTransport(5.0)
    monkeypatch.setattr(made._session, "post", failing)  # pyright: ignore[reportPrivateUsage]  # no system says so on request
    with pytest.raises(TransportError, match=r"^BrokenPipeError$"):
        async with made.ask("http://there/", {}, b""):
            pass
    await made.aclose()


HALVES = SimpleNamespace(aclose=print), SimpleNamespace(build_request=print)


@pytest.mark.parametrize("client", ["requests", 1, httpx.Client, object(), *HALVES])
def test_what_is_no_client_is_refused_where_it_is_passed(client: Any) -> None:
    with pytest.raises(ConfigError, match="client must be an AsyncClient of httpx or httpx2, 'httpx', 'aio"):
        OpenAIChat("http://there", "key", client)
    with pytest.raises(ConfigError, match="client must be"):
        Agent(client=client)


def test_a_library_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"aiohttp is not installed; pip install 'turnwheel\[fast\]'"):
        OpenAIChat("http://there", "key", "aiohttp")


def test_nothing_is_imported_before_the_first_request() -> None:
    # They take longer than all of turnwheel.
    code = """
import sys
from turnwheel import Agent
agent = Agent(base_url="http://there", client="aiohttp")
print(sorted({"aiohttp", "httpcore", "yarl"} & set(sys.modules)))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


@OWN
async def test_a_proxy_of_the_environment_is_asked(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = always(whole(HELLO, "set-cookie: a=b; path=/\r\n"))
    async with Hostile(answer) as proxy, Hostile(answer) as near:
        monkeypatch.setenv("HTTP_PROXY", f"http://{proxy.authority}")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        for url in ("http://there.invalid/v1", near.url):
            model = OpenAIChat(url, "key", client)
            for _ in range(2):
                assert isinstance(await model(REQUEST, scene_of()), ModelFinished)
            await model.aclose()
    assert {asked.head.split()[1] for asked in proxy.asked} == {"http://there.invalid/v1/chat/completions"}
    assert {asked.head.split()[1] for asked in near.asked} == {"/v1/chat/completions"}
    assert [asked.header("cookie") for asked in (*proxy.asked, *near.asked)] == [""] * 4


@OWN
async def test_the_certificates_of_the_environment_are_trusted(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = "openssl req -x509 -nodes -newkey ec -pkeyopt ec_paramgen_curve:P-256 -days 2 -subj /CN=here"
    files = f"-addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {certificate}"
    subprocess.run(f"{command} {files}".split(), check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(whole(HELLO, "connection: close\r\n"))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        failed = await ask(OpenAIChat(url, "key", client))
        assert isinstance(failed, ModelFailed)
        assert (failed.failure, "certificate" in failed.message) == (Failure.CONNECTION, True)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert isinstance(await ask(OpenAIChat(url, "key", client)), ModelFinished)
