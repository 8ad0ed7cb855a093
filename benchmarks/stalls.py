"""
What holds up a server: ``python -m benchmarks.stalls [--rounds 3300]``.

One process serves a session of so many rounds, about six steps each. It is read as a whole and in parts, and
gets bodies that are made to be slow: each alone, then all at once. Meanwhile the event loop of the server
measures how much later than it was due it does something. So long all tenants wait.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import httpx
import uvicorn

from turnwheel import SQLiteStore
from turnwheel.apps import create_app
from turnwheel.apps.server.serve_command import spare_collector

from .long import RUN, agent
from .run import ROOT, Row, table

Lags = Callable[[], Awaitable[list[float]]]
"""Asks for the milliseconds by which the loop was late, at each look since it was asked before."""

PAUSE = 0.005
"""Seconds between two looks of the server at its loop."""

BODIES = {
    "a body of 39 MB": b'{"text": "x", "more": [' + b"[]," * 13_000_000 + b"[]]}",
    "a body 500,000 lists deep": b'{"text": ' + b"[" * 500_000 + b"]" * 500_000 + b"}",
    "a body of 400,000 values": b'{"text": "x", "more": [' + b"1," * 400_000 + b"1]}",
}

READS = ("", "outline", "notices?from=7000&limit=100", "family", "export", "test.py")
"""What is read of the session."""

TIMES = 3
"""How often each is asked for, one after the other."""


async def serve(folder: str, rounds: int) -> None:
    """Make the session, serve it, and answer each line of standard input with the lags since the last one."""
    store = SQLiteStore(Path(folder, "stalls.db"), "process")
    for _ in range(rounds // RUN):
        async with agent(store, RUN) as one:
            await one.session("s").run("go")
    listening = socket.create_server(("127.0.0.1", 0))
    app = create_app(agent(store), store)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
    spare_collector()
    serving, lags = asyncio.create_task(server.serve([listening])), list[float]()
    print(listening.getsockname()[1], flush=True)

    async def look() -> None:
        clock = asyncio.get_running_loop().time
        while True:
            due = clock() + PAUSE
            await asyncio.sleep(PAUSE)
            lags.append((clock() - due) * 1e3)

    looking = asyncio.create_task(look())
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(lags), flush=True)
        lags.clear()
    looking.cancel()
    server.should_exit = True
    await serving


async def _post(client: httpx.AsyncClient, body: bytes) -> None:
    for _ in range(TIMES):
        answer = await client.post("/api/sessions/other/messages", content=body)
        if answer.status_code not in {400, 413}:
            msg = f"a body was not refused: {answer.status_code} {answer.text}"
            raise RuntimeError(msg)


async def _get(client: httpx.AsyncClient, part: str) -> None:
    for _ in range(TIMES):
        async with client.stream("GET", f"/api/sessions/s/{part}".rstrip("/")) as answer:
            answer.raise_for_status()
            async for _ in answer.aiter_raw():
                pass


@asynccontextmanager
async def _served(rounds: int) -> AsyncGenerator[tuple[httpx.AsyncClient, Lags]]:
    """A client of a server of its own, and the lags of that one."""
    command = [sys.executable, "-m", "benchmarks.stalls", "--rounds", str(rounds), "--serve"]
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        subprocess.Popen(
            [*command, folder], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        to, back = process.stdin, process.stdout
        assert to
        assert back

        async def lags() -> list[float]:
            print("lags", file=to, flush=True)
            told: list[float] = json.loads(await asyncio.to_thread(back.readline))
            return told

        try:
            port = int(await asyncio.to_thread(back.readline))
            address = f"http://127.0.0.1:{port}"
            headers = {"Content-Type": "application/json"}
            async with httpx.AsyncClient(base_url=address, headers=headers, timeout=300) as client:
                yield client, lags
        finally:
            to.close()


async def measured(rounds: int) -> list[Row]:
    """The lags while each is asked for alone, and while all are."""
    rows: list[Row] = []
    async with _served(rounds) as (client, lags):
        asks: dict[str, Callable[[], Awaitable[None]]] = {
            **{name: partial(_post, client, body) for name, body in BODIES.items()},
            **{part or "the session": partial(_get, client, part) for part in READS},
        }

        async def everything() -> None:
            await asyncio.gather(*[ask() for ask in asks.values()])

        async def nothing() -> None:
            await asyncio.sleep(1)

        for name, ask in {"nothing": nothing, **asks, "all at once": everything}.items():
            await lags()
            await ask()
            await asyncio.sleep(0.1)
            found = await lags()
            rows.append(
                Row(
                    f"{name}: lag, p99",
                    "ms",
                    statistics.quantiles(found, n=100, method="inclusive")[98],
                    bar="20 ms",
                )
            )
            rows.append(Row(f"{name}: lag, the worst", "ms", max(found), bar="50 ms"))
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure what holds up the event loop of a server.")
    parser.add_argument("--rounds", type=int, default=3_300)
    parser.add_argument("--serve", metavar="FOLDER", help="be the server, with its store there")
    asked = parser.parse_args()
    if asked.serve:
        asyncio.run(serve(asked.serve, asked.rounds))
    else:
        print(table(asyncio.run(measured(asked.rounds))))


if __name__ == "__main__":
    main()
