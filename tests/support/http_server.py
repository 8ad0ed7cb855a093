"""A server in this process with a scripted model, asked as curl asks it, and the same over a real socket."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, final

import attrs
import httpx
from starlette.applications import Starlette
from support.patience import PATIENCE

from turnwheel import Agent, MemoryStore, tool
from turnwheel.apps.server.app import AgentServer, create_app
from turnwheel.apps.server.docs.openapi import refusals_of
from turnwheel.effects import CallModel
from turnwheel.performers.stores.base import Store
from turnwheel.testing.scripted import Reply, ScriptedModel


@tool(side_effect="unsafe")
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


@tool(side_effect="read_only")
def look() -> str:
    """Look."""
    return "seen"


@final
@attrs.define
class Asking:
    """Asks the *server* of *app* by way of *client*."""

    server: AgentServer
    client: httpx.AsyncClient
    app: Starlette

    async def get(self, path: str, status: int = 200, **more: Any) -> Any:
        return await self.ask("GET", path, None, status, **more)

    async def post(self, path: str, body: object = None, status: int = 200, **more: Any) -> Any:
        return await self.ask("POST", path, body, status, **more)

    async def ask(self, method: str, path: str, body: object, status: int, **more: Any) -> Any:
        content = None if body is None else json.dumps(body)
        answer = await self.client.request(method, path, content=content, **more)
        assert answer.status_code == status, answer.text
        kind = answer.headers.get("content-type", "")
        return answer.json() if "json" in kind else answer.text

    async def until(self, session: str, holds: Callable[[Any], object]) -> Any:
        """The session once *holds* is true of it."""
        async with asyncio.timeout(PATIENCE):
            while not holds(found := await self.get(f"/api/sessions/{session}")):  # noqa: ASYNC110  # as a person would
                await asyncio.sleep(0.001)
        return found

    async def done(self, session: str) -> Any:
        return await self.until(session, lambda found: found["state"] == "done" and not found["queue"])

    async def question(self, session: str) -> Any:
        found = await self.until(session, lambda found: found["questions"])
        return found["questions"][0]


def scripted(*replies: Reply, partial: bool = False, **more: Any) -> Agent:
    return Agent(
        model="openai:test",
        tools=[pay, look],
        performers={CallModel: ScriptedModel(*replies, partial=partial)},
        **more,
    )


def declared_by(server: AgentServer) -> Callable[[httpx.Response], Awaitable[None]]:
    """Check that the document of *server* names the status of each answer; faults (500) are its default."""
    known = {
        (each.method, re.sub(r"{\w+}", "[^/]+", each.path)): {
            each.status,
            *refusals_of(each, secured=bool(server.access.tokens)),
            *([204] if each.nothing else []),
        }
        for each in server.operations
    }

    async def check(answer: httpx.Response) -> None:
        asked = answer.request
        for (method, path), statuses in known.items():
            if method == asked.method and re.fullmatch(path, asked.url.path) and answer.status_code != 500:
                assert answer.status_code in statuses, f"{asked.method} {asked.url}: {answer.status_code}"

    return check


@asynccontextmanager
async def serving(
    agents: Mapping[str, Agent] | Agent,
    store: Store | None = None,
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> AsyncGenerator[Asking, None]:
    """A server of *agents*, which drains at the end."""
    app = create_app(agents, MemoryStore() if store is None else store, **more)
    server: AgentServer = app.state.server
    transport = httpx.ASGITransport(app)
    async with (
        server,
        httpx.AsyncClient(
            transport=transport,
            base_url="http://test",
            headers=headers,
            event_hooks={"response": [declared_by(server)]},
        ) as client,
    ):
        yield Asking(server, client, app)
