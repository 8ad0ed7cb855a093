"""Events over HTTP: the same ids live and replayed, over restarts of the server too."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import uvicorn
from support.http_server import scripted
from support.patience import PATIENCE

from turnwheel import Agent, MemoryStore
from turnwheel.apps.server.app import create_app
from turnwheel.testing.scripted import calls, says

PAY = calls(("pay", {"amount": 5}))


class Frame(NamedTuple):
    """One event of a stream: its *id*, empty for none, its name and its data."""

    id: str
    event: str
    data: Any


def frame_of(lines: list[str]) -> Frame:
    fields = dict(line.split(": ", 1) for line in lines)
    return Frame(fields.get("id", ""), fields.get("event", ""), json.loads(fields.get("data", "null")))


async def frames(
    client: httpx.AsyncClient, session: str, since: str = "", **query: str
) -> AsyncGenerator[Frame, None]:
    headers = {"Last-Event-ID": since} if since else {}
    url = f"/api/sessions/{session}/events"
    async with client.stream("GET", url, headers=headers, params=query) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines: list[str] = []
        async for line in answer.aiter_lines():
            if line.startswith(":"):
                continue
            if line:
                lines.append(line)
            elif lines:
                yield frame_of(lines)
                lines = []


async def up_to(stream: AsyncGenerator[Frame, None], event: str, count: int = 1) -> list[Frame]:
    """The frames of *stream* up to the one with that name, *count* times."""
    found: list[Frame] = []
    async with asyncio.timeout(PATIENCE), aclosing(stream):
        async for frame in stream:
            found.append(frame)
            count -= frame.event == event
            if not count:
                break
    return found


def ids(frames: list[Frame]) -> list[str]:
    return [frame.id for frame in frames if frame.id]


@asynccontextmanager
async def listening(agent: Agent, **more: Any) -> AsyncGenerator[httpx.AsyncClient, None]:
    """A server of *agent* at a port of this machine, and a client for it."""
    server = uvicorn.Server(uvicorn.Config(create_app(agent, MemoryStore(), **more), port=0, log_config=None))
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110  # uvicorn has no event for it
        await asyncio.sleep(0.001)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client:
            yield client
    finally:
        server.should_exit = True
        await serving


async def test_a_reader_that_comes_late_finds_the_same_ids_in_the_same_order() -> None:
    async with listening(scripted(PAY, says("Paid it all."))) as client:
        await client.post("/api/sessions", json={"agent": "default", "id": "s"})
        live = asyncio.create_task(up_to(frames(client, "s"), "RunEnded"))
        await client.post("/api/sessions/s/messages", json={"text": "Pay"})
        asked = (await up_to(frames(client, "s"), "ApprovalRequested"))[-1]
        await client.post(f"/api/sessions/s/questions/{asked.data['request']}", json={"decision": "approve"})
        seen = await live
        late = await up_to(frames(client, "s"), "RunEnded")
        assert ids(seen) == ids(late)
        assert [frame.data for frame in seen if frame.id] == [frame.data for frame in late]
        # Deltas are of the moment, and no journal has them.
        assert {frame.event for frame in seen if not frame.id} <= {"TextDelta", "CallDelta"}
        assert "TextDelta" in {frame.event for frame in seen}
        for last in ids(late)[:-1]:
            rest = await up_to(frames(client, "s", since=last), "RunEnded")
            assert ids(rest) == ids(late)[ids(late).index(last) + 1 :]


@pytest.mark.parametrize("vocabulary", ["sdk", "sse", "turns", "agent_events"])
async def test_a_vocabulary_has_the_ids_of_the_notices(vocabulary: str) -> None:
    async with listening(scripted(calls(("look", {})), says("Seen."))) as client:
        await client.post("/api/sessions", json={"agent": "default", "id": "s", "prompt": "Look"})
        known = ids(await up_to(frames(client, "s"), "RunEnded"))
        stream, seen = frames(client, "s", vocabulary=vocabulary), list[Frame]()
        async with asyncio.timeout(PATIENCE), aclosing(stream):
            async for frame in stream:
                seen.append(frame)
                if frame.id == known[-1]:
                    break
        assert ids(seen) == known
        assert any(frame.data for frame in seen)
        middle = known[len(known) // 2]
        stream, rest = frames(client, "s", middle, vocabulary=vocabulary), list[Frame]()
        async with asyncio.timeout(PATIENCE), aclosing(stream):
            async for frame in stream:
                rest.append(frame)
                if frame.id == known[-1]:
                    break
        there = [frame.id for frame in seen].index(middle)
        assert rest == seen[there + 1 :]


@pytest.mark.parametrize(("vocabulary", "begins"), [("ag-ui", "RUN_STARTED"), ("ui-messages", "start")])
async def test_a_stream_of_parts_is_taken_up_from_its_beginning(vocabulary: str, begins: str) -> None:
    async with listening(scripted(calls(("look", {})), says("Seen."))) as client:
        await client.post("/api/sessions", json={"agent": "default", "id": "s", "prompt": "Look"})
        known = ids(await up_to(frames(client, "s"), "RunEnded"))
        for last in ("", *known[:-1]):
            stream, seen = frames(client, "s", last, vocabulary=vocabulary), list[Frame]()
            async with asyncio.timeout(PATIENCE), aclosing(stream):
                async for frame in stream:
                    seen.append(frame)
                    if frame.id == known[-1]:
                        break
            events = [frame.event for frame in seen if frame.event]
            assert (events[0], events.count(begins)) == (begins, 1)
            assert ids(seen) == (known[known.index(last) + 1 :] if last else known)


async def test_a_stream_of_a_session_that_rests_stays_open_and_beats() -> None:
    async with listening(scripted(), heartbeat=0.01) as client:
        await client.post("/api/sessions", json={"agent": "default", "id": "s"})
        async with client.stream("GET", "/api/sessions/s/events") as answer:
            beats = 0
            async with asyncio.timeout(PATIENCE):
                async for line in answer.aiter_lines():
                    beats += line.startswith(":")
                    if beats == 3:
                        break


async def test_a_stream_ends_with_its_session_and_its_id_is_none_of_the_next_one() -> None:
    async with listening(scripted(PAY, says("Anew."))) as client:
        await client.post("/api/sessions", json={"id": "s", "prompt": "Pay"})
        stream = frames(client, "s")
        assert (await anext(stream)).id
        assert (await client.delete("/api/sessions/s")).status_code == 204
        async with asyncio.timeout(PATIENCE):
            assert [frame.event async for frame in stream]
        await client.post("/api/sessions", json={"id": "s", "prompt": "Again"})
        whole = ids(await up_to(frames(client, "s"), "RunEnded"))
        # An id that the session does not have yet is of another one that had its name.
        assert ids(await up_to(frames(client, "s", since="99.0"), "RunEnded")) == whole
        assert ids([await anext(frames(client, "s", since="99.0", vocabulary="sdk"))])[0] in whole


@pytest.mark.parametrize(
    ("query", "status"), [("vocabulary=latin", 422), ("since=abc", 422), ("since=-1", 422)]
)
async def test_a_stream_is_refused_before_it_begins(query: str, status: int) -> None:
    async with listening(scripted()) as client:
        await client.post("/api/sessions", json={"agent": "default", "id": "s"})
        assert (await client.get(f"/api/sessions/s/events?{query}")).status_code == status
        assert (await client.head("/api/sessions/s/events")).status_code == 200
        assert (await client.get("/api/sessions/t/events")).status_code == 404


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Any]:
    """Starts `turnwheel serve` in a process of its own; returns it and its address."""
    started: list[subprocess.Popen[str]] = []
    (tmp_path / "README.md").write_text("# Here\n")
    command = [sys.executable, "-m", "turnwheel.apps.cli", "serve", "--stand-in", "--store", "s.db"]
    foreign = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "TURNWHEEL_MODEL", "TURNWHEEL_SERVER_TOKEN")
    environment = {name: value for name, value in os.environ.items() if name not in foreign}

    def start(*more: str) -> tuple[subprocess.Popen[str], str]:
        made = subprocess.Popen(
            [*command, *more], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
        )
        started.append(made)
        assert made.stdout is not None
        line = made.stdout.readline()
        assert line.count("http") == 1
        return made, line.split()[-1]

    yield start
    for each in started:
        each.kill()
        # Reads the rest and closes the pipe, too.
        each.communicate()


async def test_a_stream_goes_on_behind_its_last_id_after_the_server_was_killed(serve: Any) -> None:
    process, url = serve()
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client:
        await client.post("/api/sessions", json={"agent": "default", "id": "s", "prompt": "Write a report"})
        before = await up_to(frames(client, "s"), "ToolStarted", 2)
        process.kill()
        process.wait()
    last = ids(before)[-1]
    process, url = serve("--port", url.rpartition(":")[2])
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client:
        after = await up_to(frames(client, "s", since=last), "ApprovalRequested")
        asked = after[-1].data["request"]
        answer = {"decision": "approve", "arguments": {"path": "OTHER.md", "content": "Mine.\n"}}
        assert (await client.post(f"/api/sessions/s/questions/{asked}", json=answer)).status_code == 200
        rest = await up_to(frames(client, "s", since=ids(after)[-1]), "RunEnded")
        known = ids(before) + ids(after) + ids(rest)
        whole = await up_to(frames(client, "s"), "RunEnded")
        assert known == ids(whole)
        assert len(known) == len({*known})
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 143
