"""Connections that bring no whole head of a request, and answers that a browser takes for what they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import uvicorn
from support.http_server import scripted, serving
from support.patience import PATIENCE

from turnwheel import MemoryStore
from turnwheel.apps.server import connections
from turnwheel.apps.server.app import create_app
from turnwheel.apps.server.connections import BoundedHeads

GET = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"


@asynccontextmanager
async def port_of_server() -> AsyncGenerator[int, None]:
    app = create_app(scripted(), MemoryStore())
    server = uvicorn.Server(uvicorn.Config(app, http=BoundedHeads, port=0, log_config=None))
    running = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110  # uvicorn has no event for it
        await asyncio.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await running


@pytest.mark.parametrize("sent", [b"", b"GET / HT", GET + b"GET /healthz HTTP/1.1\r\nhost: loc"])
async def test_a_head_that_does_not_come_closes_its_connection(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connections, "HEAD_WITHIN", 0.2)
    async with port_of_server() as port, asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        said = await reader.read()
        assert said.count(b"200 OK") == sent.count(GET)
        writer.close()


async def test_a_head_that_comes_in_parts_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_WITHIN", PATIENCE)
    async with port_of_server() as port, asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            for part in (GET[:5], GET[5:30], GET[30:]):
                writer.write(part)
                await asyncio.sleep(0.02)
            assert b"200 OK" in await reader.readuntil(b"}")
        writer.close()


@pytest.mark.parametrize(
    "path",
    ["/api/agents", "/api/sessions", "/api/sessions/none", "/nowhere", "/docs", "/openapi.json", "/metrics"],
)
async def test_no_browser_takes_an_answer_for_what_it_is_not(path: str) -> None:
    async with serving(scripted()) as server:
        answer = await server.client.get(path)
        assert answer.headers["x-content-type-options"] == "nosniff"
        if path == "/docs":
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
