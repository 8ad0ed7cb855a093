"""
A server under load: ``python -m benchmarks.served [--sessions 200] [--streams 1000]``.

One process serves; this one reads. Each session runs once: some answers that stream, each followed by a call,
and a last one. All of it is done twice: with one reader, and with all. Each delta says when it was made, so
its arrival tells its delay; both processes have the same clock. What readers add to the delay is the
difference between the two runs. Slow readers stop reading until everything is over.

The ids that each reader saw are compared with those of the journal. A missing one ends it with an error.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import NamedTuple, final

import httpx
import uvicorn

from turnwheel import Agent, SQLiteStore, tool
from turnwheel.apps import create_app
from turnwheel.apps.server.serve_command import spare_collector
from turnwheel.effects import CallModel, CallPiece, ModelFinished, ModelStreamed, StopReason, TextPiece, Usage
from turnwheel.performers import PerformContext

from .run import ROOT, Row, table

ROUNDS, DELTAS = 3, 80
"""Calls of a session, and text deltas of each of its answers."""

PAUSE = 0.05
"""Seconds between two deltas of an answer: as a model streams."""

PATIENCE = 120.0
"""Seconds until a run that does not end is given up."""

FLOOD, WIDE = "flood", 4_000
"""The session that slow readers have open, and the characters of a delta there."""

SMALL = 4_096
"""Bytes that the system may keep for a slow reader: with megabytes none would be slow."""


# The server


@tool(side_effect="read_only")
async def look(round: int) -> str:  # noqa: A002  # as the model calls it
    """Look."""
    return f"seen {round}"


async def streams(request: CallModel, scene: PerformContext) -> ModelFinished:
    """Perform *request*: stream deltas that say when they were made, and then call the tool, or end."""
    messages = scene.history.slice(0, request.view.length)
    rounds = sum(len(message.results) for message in messages)
    rest = "x" * WIDE if FLOOD in messages[0].text else ""
    for before in range(DELTAS):
        await asyncio.sleep(PAUSE)
        piece = TextPiece(f"{time.monotonic():.6f} {rest}")
        at = scene.clock.now()
        scene.emit(ModelStreamed(at=at, request=request.id, before=before, count=1, pieces=(piece,)))
    over, at = rounds == ROUNDS, scene.clock.now()
    wish = () if over else (CallPiece(0, f"call_{rounds}", "look", f'{{"round":{rounds}}}'),)
    stop = StopReason.END_TURN if over else StopReason.TOOL_USE
    return ModelFinished(
        at=at, request=request.id, stop=stop, usage=Usage(input=10, output=DELTAS), pieces=wish
    )


async def serve(folder: str) -> None:
    """Serve until standard input closes; print the port."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=2_000)
    # Those that are accepted have it, too.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
    agent = Agent(model="openai:streams", tools=[look], performers={CallModel: streams})
    app = create_app(agent, SQLiteStore(Path(folder, "served.db"), "process"))
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    spare_collector()
    serving = asyncio.create_task(server.serve([listening]))
    print(listening.getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.buffer.read)
    await app.state.server.drain()
    server.should_exit = True
    await serving


# The readers


class Frame(NamedTuple):
    """An event of a stream, and when it arrived."""

    at: float
    id: str
    event: str
    data: bytes


@final
class Reader(asyncio.Protocol):
    """Reads the events of *session*; what has arrived is looked at when all is over."""

    def __init__(self, session: str, *, slow: bool = False) -> None:
        self.session = session
        self._slow = slow
        self._parts: list[tuple[float, bytes]] = []
        self.opened, self.ended = asyncio.Event(), asyncio.Event()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the events."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        path = f"/api/sessions/{self.session}/events"
        transport.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        """Note *data* and the time."""
        self._parts.append((time.monotonic(), data))
        if not self.opened.is_set() and b": still here" in data:
            self.opened.set()
            if self._slow and self.transport is not None:
                self.transport.pause_reading()
        # It may lie across two parts.
        if b"event: RunEnded\n" in b"".join([part for _, part in self._parts[-2:]]):
            self.ended.set()

    def frames(self) -> list[Frame]:
        """What has arrived. Each chunk of the answer has whole lines, so its sizes are lines of their own."""
        found: list[Frame] = []
        fields: dict[bytes, bytes] = {}
        rest = b""
        for at, part in self._parts:
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                name, colon, value = line.partition(b": ")
                if colon and name in {b"id", b"event", b"data"}:
                    fields[name] = value
                elif not line and fields:
                    id, event = fields.get(b"id", b""), fields.get(b"event", b"")  # noqa: A001  # its name
                    found.append(Frame(at, id.decode(), event.decode(), fields.get(b"data", b"")))
                    fields = {}
        return found


async def opened(port: int, sessions: list[str], *, slow: bool = False) -> list[Reader]:
    """A reader of each of *sessions*, once each has its first bytes."""
    made: list[Reader] = []
    for session in sessions:
        end = socket.socket()
        if slow:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        end.connect(("127.0.0.1", port))
        _, reader = await asyncio.get_running_loop().create_connection(
            partial(Reader, session, slow=slow), sock=end
        )
        made.append(reader)
    await asyncio.gather(*[reader.opened.wait() for reader in made])
    return made


async def ended(readers: list[Reader]) -> None:
    """Wait until each of *readers* saw the end of the run."""
    async with asyncio.timeout(PATIENCE):
        for reader in readers:
            await reader.ended.wait()


# The measure


class Load(NamedTuple):
    """What one run of the load gave."""

    delays: list[float]
    delivered: int
    lost: int
    slow_missed: int
    slow_unsaid: int
    stream_bytes: float
    cpu: float


def resident(process: int) -> int:
    """The bytes of memory that *process* has."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu_of(process: int) -> float:
    """The seconds of CPU that *process* has taken."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def loaded(process: int, port: int, sessions: int, streams: int, slow: int) -> Load:
    """The load of so many *sessions*, with *streams* open and *slow* ones."""
    names = [FLOOD, *[f"s{number}" for number in range(1, sessions)]]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client:
        for name in names:
            (await client.post("/api/sessions", json={"id": name})).raise_for_status()
        before = resident(process)
        readers = await opened(port, [names[-1 - number % (sessions - 1)] for number in range(streams)])
        each = (resident(process) - before) / streams
        lagging = await opened(port, [FLOOD] * slow, slow=True)
        # One that keeps up with the same session, to know what there was.
        beside = await opened(port, [FLOOD])
        for name in names:
            (await client.post(f"/api/sessions/{name}/messages", json={"text": name})).raise_for_status()
        # Only what happens once all are at work is measured.
        begun, before_cpu = time.monotonic(), cpu_of(process)
        await ended([*readers, *beside])
        cpu = cpu_of(process) - before_cpu
        for reader in lagging:
            assert reader.transport is not None
            reader.transport.resume_reading()
        await ended(lagging)
    # A reader that comes now has everything from the journal.
    journals = await opened(port, names)
    await ended(journals)
    known = {reader.session: ids_of(reader.frames()) for reader in journals}
    seen = {reader: reader.frames() for reader in (*readers, *beside, *lagging)}
    lost = sum(ids_of(frames) != known[reader.session] for reader, frames in seen.items())
    expected = (ROUNDS + 1) * DELTAS
    # Those that keep up see each delta, too.
    lost += sum(count(seen[reader], "TextDelta") != expected for reader in (*readers, *beside))
    missed = {reader: told_missed(seen[reader]) for reader in lagging}
    unsaid = sum(count(seen[one], "TextDelta") + missed[one] != expected for one in lagging)
    delays = [delay for reader in readers for delay in delays_of(seen[reader], begun)]
    delivered = sum(len(seen[reader]) for reader in readers)
    return Load(delays, delivered, lost, sum(missed.values()), unsaid, each, cpu)


def ids_of(frames: list[Frame]) -> list[str]:
    """The ids in *frames*."""
    return [frame.id for frame in frames if frame.id]


def count(frames: list[Frame], event: str) -> int:
    """How many of *frames* are that *event*."""
    return Counter(frame.event for frame in frames)[event]


def told_missed(frames: list[Frame]) -> int:
    """How many notices a reader was told that it missed."""
    told = [frame.data for frame in frames if frame.event == "NoticesMissed"]
    return sum(int(number) for number in re.findall(rb'"count":(\d+)', b" ".join(told)))


def delays_of(frames: list[Frame], since: float) -> list[float]:
    """The milliseconds from the making of each delta made *since* a time to its arrival."""
    pairs = [
        (frame.at, float(made))
        for frame in frames
        if frame.event == "TextDelta"
        for made in re.findall(rb'"text":"([0-9.]+) ', frame.data)
    ]
    return [(at - made) * 1000 for at, made in pairs if made >= since]


def measured(sessions: int, streams: int, slow: int) -> Load:
    """The load, with a server of its own."""
    command = [sys.executable, "-m", "benchmarks.served", "--serve"]
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        subprocess.Popen(
            [*command, folder], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        assert process.stdin
        assert process.stdout
        port = int(process.stdout.readline())
        try:
            return asyncio.run(loaded(process.pid, port, sessions, streams, slow))
        finally:
            process.stdin.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure what readers add to the delay of a notice.")
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--streams", type=int, default=1_000)
    parser.add_argument("--slow", type=int, default=20)
    parser.add_argument("--serve", metavar="FOLDER", help="be the server, with its store there")
    asked = parser.parse_args()
    if asked.serve:
        asyncio.run(serve(asked.serve))
        return
    # All that arrives is kept here, and looking through it would look like a delay of the server.
    gc.disable()
    alone = measured(asked.sessions, 1, 0)
    many = measured(asked.sessions, asked.streams, asked.slow)
    rows = [Row("notices lost by readers that keep up", "", many.lost, bar="0")]
    rows.append(Row("missed by slow readers, as they were told", "", many.slow_missed))
    rows.append(Row("slow readers that were told another number", "", many.slow_unsaid, bar="0"))
    for part, bar in ((50, ""), (99, "50 ms")):
        with_one, with_all = (statistics.quantiles(load.delays, n=100)[part - 1] for load in (alone, many))
        rows.append(Row(f"delay of a notice, p{part}, one reader", "ms", with_one))
        rows.append(Row(f"the same, {asked.streams:,} readers", "ms", with_all))
        rows.append(Row(f"added by readers, p{part}", "ms", with_all - with_one, bar=bar))
    rows.append(Row("memory of an open stream", "bytes", many.stream_bytes))
    rows.append(Row("events delivered", "", many.delivered))
    rows.append(Row("CPU of the server, one reader", "s", alone.cpu))
    rows.append(Row(f"the same, {asked.streams:,} readers", "s", many.cpu))
    added = (many.cpu - alone.cpu) / many.delivered
    rows.append(Row("CPU of an event delivered", "µs", added * 1e6))
    print(table(rows))
    if many.lost or many.slow_unsaid:
        sys.exit("a reader did not get what it should: see above")


if __name__ == "__main__":
    main()
