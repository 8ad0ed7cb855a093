"""Which sessions change, as a stream: to each tenant its own, and what was missed to one that comes again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from support.http_server import scripted, serving
from support.patience import PATIENCE

from turnwheel.apps.server.access import Namespace
from turnwheel.apps.server.list_feed import ROWS, ListReader
from turnwheel.testing.scripted import calls, says
from turnwheel.testing.stores import StoreOver

TOKENS = {"a-secret": "ann", "b-secret": "bob"}
ANN, BOB = ({"Authorization": f"Bearer {token}"} for token in TOKENS)


class Told:
    """Reads the stream of *app* as a tenant with *headers*."""

    def __init__(self, parts: AsyncGenerator[bytes, None]) -> None:
        self.events: list[tuple[str, str, Any]] = []
        self.changed = asyncio.Event()
        self.task = asyncio.create_task(self._read(parts))

    async def _read(self, parts: AsyncGenerator[bytes, None]) -> None:
        async with aclosing(parts) as reading:
            async for part in reading:
                for frame in part.decode().split("\n\n"):
                    fields = dict(line.split(": ", 1) for line in frame.splitlines() if line[0] != ":")
                    if fields:
                        data = json.loads(fields["data"])
                        self.events.append((fields.get("id", ""), fields["event"], data))
                self.changed.set()

    async def until(self, event: str, **wanted: object) -> str:
        """Wait for an *event* with the fields *wanted*; its id."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for id, name, data in self.events:  # noqa: A001  # the word of events
                    if name == event and all(data[key] == value for key, value in wanted.items()):
                        return id
                self.changed.clear()
                await self.changed.wait()


async def test_readers_of_the_list_are_told_which_of_their_sessions_change() -> None:
    agent = scripted(says("One."), calls(("pay", {"amount": 5})), partial=True)
    async with serving(agent, tokens=TOKENS) as server:
        feed, (ann, bob) = server.server.lists, map(server.server.names, ("ann", "bob"))
        await server.post("/api/sessions", {"id": "old"}, 201, headers=ANN)
        async with (
            feed.reader(ann, "", 1_000) as hers,
            feed.reader(ann, "", 1_000) as again,
            feed.reader(bob, "", 1_000) as his,
        ):
            told = [Told(reader.parts()) for reader in (hers, again, his)]
            await server.post("/api/sessions", {"id": "s", "prompt": "Go"}, 201, headers=ANN)
            for each in told[:2]:
                await each.until("session", id="s", state="done")
            await server.post("/api/sessions/s/messages", {"text": "Pay"}, 202, headers=ANN)
            last = await told[0].until("session", id="s", state="confirming")
            # Another tenant's session of the same name is told to that one.
            await server.post("/api/sessions", {"id": "s"}, 201, headers=BOB)
            await told[2].until("session", id="s", state="new")
            await server.ask("DELETE", "/api/sessions/old", None, 204, headers=ANN)
            await told[1].until("deleted", id="old")
            await server.post("/api/sessions", {"id": "t"}, 201, headers=ANN)
            await told[1].until("session", id="t")
        assert {data["id"] for _, _, data in told[2].events} == {"s"}
        assert {data["state"] for _, _, data in told[2].events} == {"new"}
        assert [each for each in told[0].events if each[2]["id"] == "s"] == [
            each for each in told[1].events if each[2]["id"] == "s"
        ]
        # One that comes again hears what was written since the last that it heard.
        async with feed.reader(ann, "", 1_000), feed.reader(ann, last, 1_000) as back:
            again_told = Told(back.parts())
            await again_told.until("session", id="t")
        assert {data["id"] for _, _, data in again_told.events} <= {"s", "t"}
        for each in (*told, again_told):
            await each.task


async def test_a_stream_over_sessions_is_an_operation_of_the_server() -> None:
    async with serving(scripted(), tokens=TOKENS) as server:
        assert "/api/events" in (await server.get("/openapi.json"))["paths"]
        await server.get("/api/events", 401)
        await server.get("/api/events?since=1.0", 422, headers=ANN)
        reading = asyncio.create_task(server.get("/api/events", headers=ANN))
        while not server.server.streams.count:  # noqa: ASYNC110  # no event tells it
            await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE):
            await server.server.drain()
            assert ": still here" in await reading


async def test_one_that_does_not_read_the_list_is_ended_and_keeps_one_row_of_each_session() -> None:
    reader = ListReader(Namespace("", ("default",)), 0, 1_000)
    for number in range(3 * ROWS):
        reader.put(f"s{number % ROWS}", b"%d" % number)
    assert not reader.over
    reader.put("another", b"")
    assert reader.over


async def test_many_readers_ask_the_store_one_question() -> None:
    asked = list[str]()

    class Counted(StoreOver):
        def __getattribute__(self, name: str) -> Any:
            # Runs that other servers left are looked for by questions of their own.
            if name in {"append", "load", "list", "info", "news"}:
                asked.append(name)
            return super().__getattribute__(name)

    async with serving(scripted(says("One.")), Counted()) as server:
        names = server.server.names("")
        async with (
            server.server.lists.reader(names, "", 1_000) as first,
            server.server.lists.reader(names, "", 1_000) as second,
        ):
            told = [Told(reader.parts()) for reader in (first, second)]
            await server.post("/api/sessions", {"id": "s"}, 201)
            await asyncio.gather(*[each.until("session", id="s") for each in told])
            # Where nothing was written, a look is one question.
            async with asyncio.timeout(PATIENCE):
                while asked[-2:] != ["news", "news"]:  # noqa: ASYNC110  # no event tells it
                    await asyncio.sleep(0.01)
        for each in told:
            await each.task
