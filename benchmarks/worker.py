"""
One measure of one contender, in a process of its own: ``python -m benchmarks.worker WHO WHAT URL SIZES``.

It prints its figures as one JSON object. Times are CPU, user and system, of all threads of this process; the
model is another process. A run that did not do exactly the work ends with an error and prints no figures.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from .work import FAST, FLOOR, NO_WAITS, OURS, Seen, Waits, words

if TYPE_CHECKING:
    from .traced import Host
    from .work import Contender

Figures = dict[str, float]

MICRO = 1e6
WARM_UP = 5
"""Rounds before the first timed one: late imports, caches, the connection."""

BODIES = {FLOOR: "messages", OURS: "entries"}
"""The table in the file of each contender whose `body` holds the conversation."""


class Tally:
    """The tool; counts its calls and gives *watch* the number of each."""

    def __init__(self, watch: Callable[[int], None] | None = None) -> None:
        self.calls = 0
        self.total = 0
        self._watch = watch

    async def add(self, a: int, b: int) -> int:
        """
        Add two integers.

        Args:
            a: First number.
            b: Second number.
        """
        self.calls += 1
        self.total += a + b
        if self._watch:
            self._watch(self.calls)
        return a + b


class Bench:
    """
    Runs scenarios of the contender *who* against the model at *url*; files go into *folder*.

    *host* gets the spans, where it is given.
    """

    def __init__(
        self, who: str, url: str, folder: Path, client: httpx.AsyncClient, host: Host | None = None
    ) -> None:
        self.who = who
        self._url = url
        self._folder = folder
        self._client = client
        self._host = host
        self._files = 0

    def watched_by(self, host: Host) -> Bench:
        """The same with the telemetry of *host*."""
        return Bench(self.who, self._url, self._folder, self._client, host)

    def file(self) -> Path:
        """A new file to keep a conversation in."""
        self._files += 1
        return self._folder / f"{self._files}.db"

    async def run(
        self,
        rounds: int,
        deltas: int = 5,
        *,
        sessions: int = 1,
        waits: Waits = NO_WAITS,
        store: Path | None = None,
        watch: Callable[[int], None] | None = None,
    ) -> float:
        """Run *rounds* of the tool and a reply of *deltas* in each of *sessions*; return the CPU seconds."""
        tally = Tally(watch)
        url = f"{self._url}/{rounds}/{deltas}/{waits.between}/{waits.before}"
        contender = self._set_up(url, tally)
        asked = await self._requests()
        gc.collect()
        begun = time.process_time()
        seen = await asyncio.gather(*[contender.run(store, f"session {each}") for each in range(sessions)])
        seconds = time.process_time() - begun
        await contender.aclose()
        asked = await self._requests() - asked
        spans = self._host.exported() if self._host else 0
        did = (tally.calls, tally.total, asked, spans, {*seen})
        calls, total = sessions * rounds, sessions * rounds * (rounds + 1) // 2
        traced = sessions + calls + asked if self._host else 0
        should = (calls, total, calls + sessions, traced, {Seen("".join(words(deltas)), deltas)})
        if did != should:
            msg = f"a wrong run of {self.who}: {str(did)[:200]} instead of {str(should)[:200]}"
            raise RuntimeError(msg)
        return seconds

    def _set_up(self, url: str, tally: Tally) -> Contender:
        # The floor may run in an environment without turnwheel, so only one contender is imported.
        if self.who == FLOOR:
            from .floor import Floor  # noqa: PLC0415  # see above

            return Floor(url, self._client, tally)
        from .ours import Ours  # noqa: PLC0415  # see above

        telemetry = self._host.telemetry if self._host else None
        return Ours(url, tally, "aiohttp" if self.who == FAST else "httpx", telemetry=telemetry)

    async def _requests(self) -> int:
        return int((await self._client.get(f"{self._url}/requests")).text)


async def per_round(bench: Bench, rounds: int, repeats: int) -> Figures:
    """CPU of a tool round in µs, in memory and with the conversation in a file."""
    memory = [await bench.run(rounds) for _ in range(repeats)]
    await bench.run(WARM_UP, store=bench.file())
    kept = [await bench.run(rounds, store=bench.file()) for _ in range(repeats)]
    return {
        "memory": statistics.median(memory) / rounds * MICRO,
        "durable": statistics.median(kept) / rounds * MICRO,
    }


async def traced(bench: Bench, rounds: int, repeats: int) -> Figures:
    """CPU of a tool round in µs, without telemetry and with it by turns: the least of each."""
    from .traced import Host  # noqa: PLC0415  # the floor may have no OpenTelemetry

    watched = bench.watched_by(Host())
    await watched.run(rounds)
    runs = [(await bench.run(rounds), await watched.run(rounds)) for _ in range(repeats)]
    off, on = map(min, zip(*runs, strict=True))
    return {"off": off / rounds * MICRO, "on": on / rounds * MICRO}


async def per_delta(bench: Bench, alone: int, *sizes: int) -> Figures:
    """CPU of a text delta in µs, in replies of *sizes*, and in one of *alone* deltas that come one by one."""
    figures = {str(size): await bench.run(0, size) / size * MICRO for size in sizes}
    return figures | {"alone": await bench.run(0, alone, waits=Waits(between=1)) / alone * MICRO}


async def growth(bench: Bench, *sizes: int) -> Figures:
    """CPU of a round in µs, in conversations of *sizes* rounds, and the cost that each adds to later ones."""
    figures: Figures = {}
    for size in sizes:
        stamps: list[float] = []

        def watch(_: int, stamps: list[float] = stamps) -> None:
            stamps.append(time.process_time())

        seconds = await bench.run(size, watch=watch)
        figures[str(size)] = seconds / size * MICRO
        rounds = [later - earlier for earlier, later in pairwise(stamps)]
        figures["slope"] = statistics.linear_regression(range(len(rounds)), rounds).slope * MICRO
    return figures


async def together(bench: Bench, sessions: int, rounds: int, latency: int) -> Figures:
    """CPU of *sessions* at once of so many *rounds*, whose model waits *latency* ms before each answer."""
    return {"cpu": await bench.run(rounds, sessions=sessions, waits=Waits(before=latency))}


async def kept(bench: Bench, early: int, late: int) -> Figures:
    """Bytes that the rounds *early* and *late* add to the file, and bytes written per round on average."""
    path = bench.file()
    totals: dict[int, int] = {}

    def watch(call: int) -> None:
        if call in {early, early + 1, late, late + 1}:
            with sqlite3.connect(path) as db:
                query = f"select sum(length(cast(body as blob))) from {BODIES[bench.who]}"  # noqa: S608  # ours
                totals[call] = db.execute(query).fetchone()[0]
            db.close()

    before = _written()
    await bench.run(late + 1, store=path, watch=watch)
    return {
        "early": totals[early + 1] - totals[early],
        "late": totals[late + 1] - totals[late],
        "written": (_written() - before) / late,
    }


def _written() -> int:
    """Bytes that this process has written to files so far; 0 where the system has no count."""
    counts = Path("/proc/self/io")
    return int(counts.read_text("ascii").partition("wchar:")[2].split()[0]) if counts.exists() else 0


MEASURES: dict[str, Callable[..., Awaitable[Figures]]] = {
    "per_round": per_round,
    "traced": traced,
    "per_delta": per_delta,
    "growth": growth,
    "together": together,
    "kept": kept,
}


async def main(who: str, what: str, url: str, sizes: list[int]) -> None:
    """Warm up, measure and print."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        async with httpx.AsyncClient(limits=limits, timeout=60) as client:
            bench = Bench(who, url, Path(folder), client)
            await bench.run(WARM_UP)
            print(json.dumps(await MEASURES[what](bench, *sizes)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])))
