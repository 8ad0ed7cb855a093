"""
A server that means ill, on loopback. It speaks in raw bytes, so that nothing it says has to be HTTP.

`Hostile` reads each request and lets somebody answer it through a `Line`; `attacks` lists many who do.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import final

import attrs

MOST = 4 * 1024 * 1024 * 1024
"""Bytes after which whoever would send for ever stops: nobody reads so much."""

STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
"""The head of an answer that is streamed."""

_AT_ONCE = struct.pack("ii", 1, 0)  # nothing lingers when the connection is closed

END = b"0\r\n\r\n"
"""The end of a body in chunks."""


def chunked(data: bytes) -> bytes:
    """*data* as one chunk of a body; nothing is none, since an empty chunk is the end."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


@final
@attrs.frozen(kw_only=True)
class Asked:
    """A request as it came."""

    head: str
    body: bytes

    def header(self, name: str) -> str:
        """The value of the header *name*, empty where there is none."""
        lines = [line.partition(":") for line in self.head.split("\r\n")]
        return next((value.strip() for key, _, value in lines if key.lower() == name), "")


@final
class Line:
    """The connection that the request *asked* came by, and what can be said there."""

    def __init__(self, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked = asked
        self._reader = reader
        self._writer = writer

    async def send(self, *parts: bytes) -> None:
        """Send *parts* as they are. Raises `ConnectionError` once nobody listens."""
        for part in parts:
            if self._writer.is_closing():
                raise ConnectionResetError
            self._writer.write(part)
            await self._writer.drain()
            await asyncio.sleep(0)  # whoever is to read it may live in this very loop

    async def send_all(self, parts: Iterable[bytes]) -> None:
        """Send *parts*, of which there may be no end, one by one."""
        sent = 0
        for part in parts:
            await self.send(part)
            sent += len(part)
            if sent > MOST:
                break

    async def drip(self, part: bytes, every: float) -> None:
        """Send *part* again and again, *every* so many seconds, until nobody listens."""
        while True:
            await self.send(part)
            await asyncio.sleep(every)

    async def stall(self) -> None:
        """Say nothing more, until nobody listens."""
        while await self._reader.read(65_536):
            pass

    def close(self) -> None:
        """Hang up."""
        self._writer.close()

    def reset(self) -> None:
        """Tear the connection down, so that the other side is told of an error and not of an end."""
        self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self._writer.transport.abort()


Answer = Callable[[Line], Awaitable[None]]
"""Answers a request. When it returns, the next one is read from the connection."""


@final
class Hostile:
    """
    The server, as an async context manager: *answer* answers every request, and may be exchanged.

    *asked* are the requests that came. Leaving it ends every connection.
    """

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[Asked] = []
        self._server: asyncio.Server | None = None
        self._lines: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def url(self) -> str:
        """Its address, with ``/v1``."""
        return f"http://{self.authority}/v1"

    @property
    def authority(self) -> str:
        """Its host and port."""
        if self._server is None:
            msg = "the server is not running; enter it with `async with` first"
            raise RuntimeError(msg)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def open(self) -> int:
        """How many connections there are."""
        return len(self._lines)

    async def __aenter__(self) -> Hostile:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for task, writer in self._lines.items():
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*self._lines, return_exceptions=True)
        if server is not None:
            await server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._lines[task] = writer
        task.add_done_callback(self._lines.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while not writer.is_closing():
                    asked = await _read(reader)
                    self.asked.append(asked)
                    await self.answer(Line(asked, reader, writer))
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    length = Asked(head=head, body=b"").header("content-length")
    return Asked(head=head, body=await reader.readexactly(int(length or 0)))
