"""
The store on a disk by itself: ``python -m benchmarks.store APPENDS SESSIONS LISTED``.

It appends to one session, then to many sessions at once, and waits for the disk each time. Then it lists very
many sessions. It prints one JSON object.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import tempfile
import time
from pathlib import Path

from turnwheel import SQLiteStore
from turnwheel.engine import listed

Figures = dict[str, float]

MICRO = 1e6
ENTRY = b"x" * 300
"""About the size of a step of a run."""

EACH = 5
"""Appends to each session, where many are written at once."""


async def fill(store: SQLiteStore, session: str, appends: int) -> None:
    """Append one entry after the other to *session*."""
    for length in range(1, appends + 1):
        if not await store.append(session, length, [ENTRY]):
            msg = f"a wrong length of {session}"
            raise RuntimeError(msg)


async def one_session(path: Path, appends: int) -> Figures:
    """CPU of an append in µs, and appends per second."""
    store = SQLiteStore(path)
    await store.append("s", 0, [ENTRY])
    began, used = time.perf_counter(), time.process_time()
    await fill(store, "s", appends)
    used, took = time.process_time() - used, time.perf_counter() - began
    await store.close()
    return {"append": used / appends * MICRO, "alone": appends / took}


async def many_sessions(path: Path, sessions: int) -> Figures:
    """Appends per second, and commits per append."""
    store = SQLiteStore(path)
    names = [f"s{number}" for number in range(sessions)]
    await asyncio.gather(*(store.append(name, 0, [ENTRY]) for name in names))
    statements: list[str] = []
    await store._do(lambda db: db.set_trace_callback(statements.append))  # pyright: ignore[reportPrivateUsage]  # nothing else counts them
    began = time.perf_counter()
    await asyncio.gather(*(fill(store, name, EACH) for name in names))
    took = time.perf_counter() - began
    await store.close()
    appends = sessions * EACH
    return {"together": appends / took, "commits": statements.count("commit") / appends}


ABOUT = (
    b'{"title":"what it is about","runs":3,"messages":12,"cwd":"/home/someone/project","reason":"end_turn"}'
)
"""The summary of a session."""

AT_ONCE = 1_000
"""Sessions that are made at once."""


async def lists(path: Path, sessions: int) -> Figures:
    """Seconds of a page and of all sessions, and what others wait for meanwhile."""
    store = SQLiteStore(path, "process")
    for first in range(0, sessions, AT_ONCE):
        names = [f"session-{number}" for number in range(first, min(first + AT_ONCE, sessions))]
        await asyncio.gather(*(store.append(name, 0, [ENTRY], ABOUT) for name in names))
    await store.close()
    store = SQLiteStore(path)
    await store.info("session-0")
    began = time.perf_counter()
    await listed(store, 50)
    figures = {"page": (time.perf_counter() - began) * 1_000}
    held, waits = [0.0], [0.0]

    async def tick() -> None:
        # CPU of this thread, which on a busy machine says more than the time.
        last = time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            held.append((now := time.thread_time()) - last)
            last = now

    async def append() -> None:
        for length in range(1_000_000):
            asked = time.perf_counter()
            await store.append("meanwhile", length, [ENTRY])
            waits.append(time.perf_counter() - asked)
            await asyncio.sleep(0.05)

    # It looks at all objects of the process now and then, whatever made them.
    gc.disable()
    others = [asyncio.create_task(one()) for one in (tick, append)]
    began = time.perf_counter()
    found = await listed(store)
    figures["all"] = time.perf_counter() - began
    gc.enable()
    for other in others:
        other.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await store.close()
    if len({one.session for one in found} - {"meanwhile"}) != sessions:
        msg = f"a wrong list: {len(found)} sessions of {sessions}"
        raise RuntimeError(msg)
    return figures | {"held": max(held) * 1_000, "waited": max(waits) * 1_000}


async def main(appends: int, sessions: int, many: int) -> None:
    """Warm up, measure and print."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        await one_session(Path(folder, "warm.db"), 5)
        figures = await one_session(Path(folder, "one.db"), appends)
        figures |= await many_sessions(Path(folder, "many.db"), sessions)
        figures |= await lists(Path(folder, "lists.db"), many)
        print(json.dumps(figures))


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))
