"""How many sessions of one tenant are at work at a time, over all servers on one store."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import pytest
from support.http_server import Asking, scripted, serving
from support.patience import PATIENCE
from support.plain_store import PlainStore
from support.session_stage import until

from turnwheel import Agent, MemoryStore
from turnwheel.apps.server import takeovers
from turnwheel.apps.server.limits import ServerLimits
from turnwheel.effects import CallModel, ModelFinished, StopReason, Usage
from turnwheel.effects.history import CallPiece, TextPiece
from turnwheel.effects.messages import Role
from turnwheel.engine.session.lease import encoded
from turnwheel.performers.base import PerformContext
from turnwheel.performers.stores.base import Store
from turnwheel.testing.scripted import says
from turnwheel.testing.stores import StoreOver

TOKENS = {"a": "ann", "b": "bob"}
ANN, BOB = ({"Authorization": f"Bearer {token}"} for token in TOKENS)
FULL = "2 sessions of yours are at work, as many as may; try again later"


class Model:
    """Asks for a payment where the prompt says so; answers once *go* is set."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.working = 0
        self.most = 0

    async def __call__(self, request: CallModel, scene: PerformContext) -> ModelFinished:
        last = scene.history[len(scene.history) - 1]
        usage, now = Usage(input=1, output=1), scene.clock.now
        if last.role is Role.USER and last.text == "pay":
            call = CallPiece(0, "c", "pay", '{"amount": 5}')
            stop = StopReason.TOOL_USE
            return ModelFinished(at=now(), request=request.id, usage=usage, stop=stop, pieces=(call,))
        self.working += 1
        self.most = max(self.most, self.working)
        await self.go.wait()
        self.working -= 1
        stop = StopReason.END_TURN
        words = (TextPiece("done"),)
        return ModelFinished(at=now(), request=request.id, usage=usage, stop=stop, pieces=words)


@asynccontextmanager
async def served(model: Model, store: Store, most: int = 2) -> AsyncGenerator[Asking]:
    agent: Agent = scripted()
    agent = Agent(model="openai:test", tools=agent.tools, performers={CallModel: model})
    limits = ServerLimits(tenant_working=most)
    async with serving(agent, store, limits=limits, tokens=TOKENS) as server:
        try:
            yield server
        finally:
            model.go.set()


async def begin(
    server: Asking, name: str, status: int = 201, headers: Mapping[str, str] = ANN, prompt: str = "go"
) -> str:
    made = await server.post("/api/sessions", {"id": name, "prompt": prompt}, status, headers=headers)
    return str(made.get("detail", ""))


async def taken(server: Asking, path: str, body: object) -> int:
    """The status of the first post that is not refused for want of a place; leases end a little late."""
    async with asyncio.timeout(PATIENCE):
        while (answer := await server.client.post(path, json=body)).status_code == 429:  # noqa: ASYNC110  # no event tells it
            await asyncio.sleep(0.01)
    return answer.status_code


async def test_a_tenant_has_so_many_sessions_at_work_over_all_servers_of_a_store() -> None:
    model, store = Model(), MemoryStore()
    async with served(model, store) as one, served(model, store) as two:
        await begin(one, "s1")
        await begin(two, "s2")
        for server in (one, two):
            answer = await server.client.post("/api/sessions", json={"id": "s3", "prompt": "go"}, headers=ANN)
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
            assert answer.json()["detail"] == FULL
        # Nothing was written; a session without a prompt begins nothing.
        await one.get("/api/sessions/s3", 404, headers=ANN)
        await one.post("/api/sessions", {"id": "s3"}, 201, headers=ANN)
        await one.post("/api/sessions/s3/messages", {"text": "go"}, 429, headers=ANN)
        # What is at work takes more, at each server, and other tenants have places of their own.
        await one.post("/api/sessions/s1/messages", {"text": "more"}, 202, headers=ANN)
        await one.post("/api/sessions/s2/messages", {"text": "more"}, 202, headers=ANN)
        await begin(two, "s1", headers=BOB)
        model.go.set()
        one.client.headers = ANN
        for name in ("s1", "s2"):
            await one.done(name)
        assert await taken(one, "/api/sessions/s3/messages", {"text": "go"}) == 202


async def test_of_many_that_begin_at_one_moment_at_two_servers_not_too_many_do() -> None:
    model, store = Model(), MemoryStore()
    async with served(model, store, 3) as one, served(model, store, 3) as two:
        posts = [
            (one, two)[number % 2].client.post(
                "/api/sessions", json={"id": f"s{number}", "prompt": "go"}, headers=ANN
            )
            for number in range(12)
        ]
        statuses = [answer.status_code for answer in await asyncio.gather(*posts)]
        assert set(statuses) <= {201, 429}
        await until(lambda: model.working == statuses.count(201))
        assert model.most <= 3


@pytest.mark.parametrize("path", ["answer", "steer", "protocol"])
async def test_a_run_that_rests_has_no_place_and_needs_one_to_go_on(path: str) -> None:
    model, store = Model(), MemoryStore()
    async with served(model, store) as one, served(model, store) as two:
        one.client.headers = ANN
        await begin(one, "s", prompt="pay")
        asked = await one.question("s")

        async def rests() -> bool:
            return not await store.leases()

        while not await rests():  # noqa: ASYNC110  # no event tells it
            await asyncio.sleep(0.01)
        await begin(two, "s1")
        await begin(two, "s2")
        where, body = {
            "answer": (f"/api/sessions/s/questions/{asked['id']}", {"decision": "approve"}),
            "steer": ("/api/sessions/s/messages", {"text": "no", "mode": "now"}),
            "protocol": (
                "/api/agents/default/ag-ui",
                {
                    "threadId": "s",
                    "runId": "r",
                    "messages": [{"id": "m", "role": "user", "content": "pay"}],
                    "resume": [
                        {"interruptId": asked["id"], "status": "resolved", "payload": {"approved": True}}
                    ],
                },
            ),
        }[path]
        for server in (one, two):
            assert (await server.post(where, body, 429, headers=ANN))["detail"] == FULL
        # The question is open still, and what waits behind it begins nothing.
        assert (await one.question("s"))["id"] == asked["id"]
        await one.post("/api/sessions/s/messages", {"text": "then"}, 202)
        model.go.set()
        for name in ("s1", "s2"):
            await one.done(name)
        assert await taken(one, where, body) < 300
        await one.done("s")


async def test_the_runs_of_a_dead_server_have_no_place_and_are_taken_up_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    dead = json.loads(encoded("dead", "a token", 0.0, 9.0, "")) | {"pid": os.getppid(), "born": "never"}
    first = Model()
    async with served(first, store) as lost:
        await begin(lost, "s1")
        await begin(lost, "s2")
        await until(lambda: first.working == 2)
        await lost.server.drain(0.01)
    names = [*await store.leases()]
    assert len(names) == 2
    for name in names:
        there = await store.lease(name, None, None)
        await store.lease(name, there, json.dumps(dead).encode())
    # Looked for so rarely that the message comes before.
    monkeypatch.setattr(takeovers, "LOOK_EVERY", 60.0)
    model = Model()
    async with served(model, store) as one:
        await begin(one, "s3")
        await one.post("/api/sessions/s1/messages", {"text": "more"}, 202, headers=ANN)
        await one.post("/api/sessions/s2/resume", None, 202, headers=ANN)
        await until(lambda: model.working == 3)


@pytest.mark.parametrize("store", [PlainStore(), StoreOver(PlainStore())])
async def test_of_a_store_without_leases_a_server_counts_its_own(store: Store) -> None:
    model = Model()
    async with served(model, store) as one:
        answers = await asyncio.gather(
            *[
                one.client.post("/api/sessions", json={"id": f"s{number}", "prompt": "go"}, headers=ANN)
                for number in range(5)
            ]
        )
        assert [answer.status_code for answer in answers] == [201, 201, 429, 429, 429]
        await until(lambda: model.working == 2)
        await begin(one, "s9", 429)


async def test_without_tokens_all_sessions_are_of_one_tenant() -> None:
    async with serving(scripted(says("Hi.")), limits=ServerLimits(tenant_working=1)) as server:
        await server.post("/api/sessions", {"id": "s", "prompt": "go"}, 201)
        await server.done("s")
