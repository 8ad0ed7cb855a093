"""A network between a program and a server, which can be cut."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self


class Proxy:
    """
    Passes bytes on between a *port* of this machine and a socket or port *there*, while its network is *up*.

    Bytes that come meanwhile wait, as those of a network do that is down for a while. Where several have one
    *port*, the system shares out its connections.
    """

    def __init__(self, there: Path | int, port: int = 0) -> None:
        self._there = there
        self.up = asyncio.Event()
        self.up.set()
        # Whether each new connection breaks.
        self._resets = False
        self.port = port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        shared = self.port != 0
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, reuse_port=shared)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        # Also for one that was accepted just now, and comes to `_accept` in the next turn of the loop.
        self._resets = True
        self.drop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def drop(self) -> None:
        """Break all connections, in the middle of what they say."""
        for writer in self._writers:
            writer.transport.abort()

    async def cut(self, seconds: float, *, resets: bool) -> None:
        """Pass nothing on for so many *seconds*; with *resets* all connections break, and new ones do."""
        if resets:
            self._resets = True
            self.drop()
        else:
            self.up.clear()
        await asyncio.sleep(seconds)
        self._resets = False
        self.up.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        if self._resets:
            writer.transport.abort()
            return
        try:
            there_reader, there_writer = await self._connect()
        except OSError:
            # As of a server that is gone.
            writer.transport.abort()
            return
        self._writers.add(there_writer)
        # Broken meanwhile.
        if writer.transport.is_closing():
            there_writer.transport.abort()
            return
        for pair in ((reader, there_writer), (there_reader, writer)):
            task = asyncio.ensure_future(self._pass_on(*pair))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self._there, int):
            return await asyncio.open_connection("127.0.0.1", self._there)
        return await asyncio.open_unix_connection(self._there)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                await self.up.wait()
                writer.write(data)
                await writer.drain()
        # The end of a connection is not heard of sooner than its bytes.
        await self.up.wait()
        writer.close()
