"""
Serve the scripted stand-in, so that everything in turnwheel can be tried without a key.

It speaks the chat-completions dialect on loopback, streamed or not, and is no model: `script` computes each
answer from the conversation in the request, and the server keeps nothing. Sampling settings and length limits
have no effect. `stand-in-slow` leaves time to interrupt a stream, and `stand-in-bash` runs the commands after
``run:`` in a prompt. The models of `faults` play the failures of providers: `stand-in-429`,
`stand-in-overloaded` and `stand-in-500` refuse each prompt twice; `stand-in-cut` breaks off before its first
word, then after it; `stand-in-small` refuses a conversation longer than its window.

    async with StandIn() as server:
        agent = ...  # with base URL server.base_url and model "stand-in"

    python -m turnwheel.apps.stand_in.server --port 8765
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from types import TracebackType
from typing import Final, final

import attrs
import msgspec

from .faults import Faults, Refuse
from .script import MODELS, SLOW_MODEL, decide
from .wire import (
    ChatRequest,
    chunks,
    completion,
    models,
    usage,
)

MAX_HEAD = 64 * 1024
"""Bytes of a request line and headers, as common servers allow."""

MAX_BODY = 16 * 1024 * 1024
"""Bytes of a request's body: several times the text of any context window."""

SLOW_PACE = 0.1
"""Seconds between the pieces of the slow model: long enough to interrupt or kill a stream by hand."""

CLI_PACE = 0.01
"""Seconds between pieces for the command line: slow enough to see the stream."""

_ROUTES: Final[Mapping[str, str]] = {"/health": "GET", "/v1/models": "GET", "/v1/chat/completions": "POST"}

_STATUSES = frozenset(HTTPStatus)  # 529 is missing there: it is Anthropic's own

_CONTENT_LENGTH = re.compile(r"\d{1,18}")

_CRLF = b"\r\n"


@final
@attrs.frozen
class _Request:
    """An HTTP request; header names are in lower case, and *path* has no query."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def keep_alive(self) -> bool:
        """Whether the client will use the connection again."""
        return "close" not in self.headers.get("connection", "").lower()


@final
class _Refusal(Exception):
    """
    An error response.

    *allow* is the method to use instead. *final*: the end of the request is unknown, so the connection
    closes.
    """

    def __init__(self, status: HTTPStatus, message: str, *, allow: str = "", final: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = {"Allow": allow} if allow else {}
        self.final = final


@final
class StandIn:
    """
    The server as an async context manager; inside, `base_url` is the address for a client.

    *port* 0 takes any free one. *pace* is the time between the pieces of a stream, in seconds. Leaving breaks
    open streams off. Raises `OSError` if the port is taken.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0, pace: float = 0.0) -> None:
        self._host = host
        self._port = port
        self._pace = pace
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._count = itertools.count(1)
        self._faults = Faults()

    @property
    def base_url(self) -> str:
        """The address with ``/v1``; only valid while the server runs."""
        if self._server is None:
            msg = "the stand-in is not running; enter it with `async with` first"
            raise RuntimeError(msg)
        return f"http://{self._host}:{self._port}/v1"

    async def __aenter__(self) -> StandIn:
        self._server = await asyncio.start_server(self._accept, self._host, self._port, limit=MAX_HEAD)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for task, writer in self._connections.items():
            writer.transport.abort()  # a plain close would wait for a client that does not read
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:  # it was accepted just before the server closed
            writer.close()
            return
        task = asyncio.create_task(self._serve(reader, writer))
        self._connections[task] = writer
        task.add_done_callback(self._connections.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection until either side ends it."""
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._exchange(reader, writer):
                    pass
        finally:
            writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Read a request and answer it; False if the connection must close."""
        try:
            request = await _read(reader)
        except _Refusal as refusal:
            await _refuse(writer, refusal)
            return not refusal.final
        try:
            await self._answer(request, writer)
        except _Refusal as refusal:
            await _refuse(writer, refusal)
        return request.keep_alive

    async def _answer(self, request: _Request, writer: asyncio.StreamWriter) -> None:
        method = _ROUTES.get(request.path)
        if method is None:
            raise _Refusal(
                HTTPStatus.NOT_FOUND, f"unknown path {request.path!r}; there are: {', '.join(_ROUTES)}"
            )
        if request.method != method:
            msg = f"{request.path} takes {method}, not {request.method!r}"
            raise _Refusal(HTTPStatus.METHOD_NOT_ALLOWED, msg, allow=method)
        if request.path == "/health":
            await _respond(writer, {"status": "ok", "server": "scripted stand-in"})
        elif request.path == "/v1/models":
            await _respond(writer, models(MODELS))
        else:
            await self._chat(_chat(request.body), writer)

    async def _chat(self, chat: ChatRequest, writer: asyncio.StreamWriter) -> None:
        fault = self._faults.next(chat.model, chat.messages)
        if isinstance(fault, Refuse):
            error = _error(fault.kind, fault.kind, fault.message)
            await _respond(writer, error, fault.status, fault.headers)
            return
        step = decide(chat.messages, chat.tools or (), model=chat.model)
        about = {
            "id": f"chatcmpl-standin-{next(self._count)}",
            "created": int(time.time()),
            "model": chat.model,
        }
        used = usage(chat.messages, step)
        if not chat.stream:
            if fault is not None:
                raise ConnectionAbortedError
            await _respond(writer, completion(about, step, used))
            return
        asked = chat.stream_options is not None and chat.stream_options.include_usage
        pace = max(self._pace, SLOW_PACE) if chat.model == SLOW_MODEL else self._pace
        await _start_stream(writer)
        for number, chunk in enumerate(chunks(about, step, used if asked else None)):
            if fault is not None and number >= fault.after:
                raise ConnectionAbortedError
            await _send_event(writer, _json(chunk))
            await asyncio.sleep(pace)
        await _send_event(writer, b"[DONE]")
        await _end_stream(writer)


async def _read(reader: asyncio.StreamReader) -> _Request:
    """The next request of a connection. Raises `_Refusal`, or `IncompleteReadError` if the client left."""
    try:
        head = await reader.readuntil(_CRLF * 2)
    except asyncio.LimitOverrunError as error:
        msg = f"the request head is too large; the limit is {MAX_HEAD} bytes"
        raise _Refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, msg, final=True) from error
    start, *lines = head.decode("latin-1").split("\r\n")
    parts = start.split(" ")
    if len(parts) != 3 or parts[2] != "HTTP/1.1":  # noqa: PLR2004  # method, target, version
        raise _Refusal(HTTPStatus.BAD_REQUEST, f"not an HTTP/1.1 request: {start!r}", final=True)
    fields = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in fields}
    return _Request(parts[0], parts[1].partition("?")[0], headers, await _body(reader, headers))


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if "transfer-encoding" in headers:
        msg = "chunked bodies are not supported; send a Content-Length"
        raise _Refusal(HTTPStatus.LENGTH_REQUIRED, msg, final=True)
    length = headers.get("content-length", "0")
    if not _CONTENT_LENGTH.fullmatch(length):
        raise _Refusal(
            HTTPStatus.BAD_REQUEST, f"invalid Content-Length {length!r}; send a number", final=True
        )
    size = int(length)
    if size <= MAX_BODY:
        return await reader.readexactly(size)
    while size > 0 and (discarded := await reader.read(min(size, MAX_HEAD))):
        size -= len(discarded)  # a client that still sends would not read the answer
    msg = f"a body of {length} bytes is too large; the limit is {MAX_BODY}"
    raise _Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, msg)


def _chat(body: bytes) -> ChatRequest:
    try:
        chat = msgspec.json.decode(body, type=ChatRequest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _Refusal(HTTPStatus.BAD_REQUEST, f"not a chat-completions request: {error}") from error
    # A model name by mistake must fail, or a script would pass for that model.
    if chat.model not in MODELS:
        msg = f"unknown model {chat.model!r}; this server has only scripted stand-ins: {', '.join(MODELS)}"
        raise _Refusal(HTTPStatus.NOT_FOUND, msg)
    return chat


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


async def _respond(
    writer: asyncio.StreamWriter,
    body: object,
    status: int = HTTPStatus.OK,
    headers: Mapping[str, str] | None = None,
) -> None:
    data = _json(body)
    fields = {"Content-Type": "application/json", "Content-Length": str(len(data)), **(headers or {})}
    writer.write(_head(status, fields) + data)
    await writer.drain()


async def _refuse(writer: asyncio.StreamWriter, refusal: _Refusal) -> None:
    error = _error("invalid_request_error", refusal.status.name.lower(), refusal.message)
    closing = {"Connection": "close"} if refusal.final else {}
    await _respond(writer, error, refusal.status, {**refusal.headers, **closing})


def _error(kind: str, code: str, message: str) -> object:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


async def _start_stream(writer: asyncio.StreamWriter) -> None:
    fields = {
        "Content-Type": "text/event-stream",
        "Cache-Control": "no-cache",
        "Transfer-Encoding": "chunked",
    }
    writer.write(_head(HTTPStatus.OK, fields))
    await writer.drain()


async def _send_event(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Send one event as one HTTP chunk. Raises `ConnectionError` if the client has left."""
    event = b"data: " + data + b"\n\n"
    writer.write(f"{len(event):x}".encode() + _CRLF + event + _CRLF)
    await writer.drain()


async def _end_stream(writer: asyncio.StreamWriter) -> None:
    writer.write(b"0" + _CRLF * 2)
    await writer.drain()


def _head(status: int, fields: Mapping[str, str]) -> bytes:
    phrase = HTTPStatus(status).phrase if status in _STATUSES else "Overloaded"
    lines = [f"HTTP/1.1 {int(status)} {phrase}", "Server: scripted stand-in"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def _run(port: int, pace: float) -> None:
    async with StandIn(port=port, pace=pace) as server:
        print(server.base_url, flush=True)
        await asyncio.Event().wait()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the base URL and serve until interrupted; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m turnwheel.apps.stand_in.server",
        description="Serve the scripted stand-in model on loopback, until interrupted.",
    )
    parser.add_argument("--port", type=int, default=0, help="where to listen (default: any free port)")
    parser.add_argument("--pace", type=float, default=CLI_PACE, help="seconds between pieces (%(default)s)")
    options = parser.parse_args(arguments)
    try:
        asyncio.run(_run(options.port, options.pace))
    except KeyboardInterrupt:
        return 0
    except (OSError, OverflowError) as error:
        print(f"cannot listen on port {options.port!r}: {error}", file=sys.stderr)
        return 1
    return 0  # pragma: no cover  # serving ends by an interrupt only


if __name__ == "__main__":
    sys.exit(main())
