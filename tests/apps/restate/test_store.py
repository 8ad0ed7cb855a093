"""The store of other processes, before a toy of Restate's server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import httpcore
import pytest

from turnwheel.apps import RestateStore
from turnwheel.apps.restate.asks import FoundInfo, encode

ANSWER = encode(FoundInfo(info=None))


@asynccontextmanager
async def serving(over: asyncio.Event) -> AsyncGenerator[str]:
    """The address of a server that knows no session, and where all turns end once it is *over*."""
    answering = set[asyncio.Task[None] | None]()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answering.add(asyncio.current_task())
        with suppress(asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: (\d+)", head)
                await reader.readexactly(int(length[1]) if length else 0)
                if b"/settle" in head:
                    await over.wait()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER))
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    await asyncio.gather(*[task for task in answering if task is not None])


async def test_a_call_looks_at_each_connection_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many calls came at once before, and however many wait for a turn to end."""
    looks = 0
    is_idle = httpcore.AsyncHTTPConnection.is_idle

    def counted(self: httpcore.AsyncHTTPConnection) -> bool:
        nonlocal looks
        looks += 1
        return is_idle(self)

    over, many = asyncio.Event(), 60
    async with serving(over) as url:
        store = RestateStore("assistant", url)
        waiting = [asyncio.ensure_future(store.settled(f"turn-{number}")) for number in range(many)]
        await asyncio.gather(*[store.info(f"look-{number}") for number in range(many)])
        monkeypatch.setattr(httpcore.AsyncHTTPConnection, "is_idle", counted)
        assert await store.info("one") is None
        assert looks < 10 * 2 * many
        assert not any(one.done() for one in waiting)
        over.set()
        await asyncio.gather(*waiting)
        await store.close()
