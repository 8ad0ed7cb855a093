"""
The store in a database: ``python -m benchmarks.database DSN APPENDS SESSIONS PARKED``.

It appends to one session, then to many at once, beside `SQLiteStore` and beside what the driver takes for
an empty question and for a row. Then it opens sessions while few and while very many others are parked there.
What it makes in the database is dropped. It prints one JSON object; times are in milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]  # it has none

from turnwheel import SQLiteStore
from turnwheel.performers import PostgresStore
from turnwheel.performers.stores.base import Store

MILLI = 1e3
ENTRY = b"x" * 300
"""About the size of a step of a run."""

EACH = 5
"""Appends to each session, where many are written at once."""

OPENED = 200
"""Sessions that are opened."""


async def timed(act: Callable[[int], Awaitable[object]], count: int) -> float:
    """Milliseconds of *act*, one after the other."""
    await act(0)
    began = time.perf_counter()
    for number in range(1, count + 1):
        await act(number)
    return (time.perf_counter() - began) / count * MILLI


async def appends(store: Store, count: int, sessions: int) -> tuple[float, float]:
    """Milliseconds of an append by itself, and of one of many at once."""
    alone = await timed(lambda number: store.append("s", number, [ENTRY]), count)

    async def fill(name: str) -> None:
        for length in range(EACH):
            await store.append(name, length, [ENTRY])

    began = time.perf_counter()
    await asyncio.gather(*(fill(f"s{number}") for number in range(sessions)))
    return alone, (time.perf_counter() - began) / (sessions * EACH) * MILLI


async def opened(store: Store, parked: int) -> float:
    """Milliseconds to find and to read one of *parked* sessions, which are made first."""
    for first in range(0, parked, 1_000):
        names = [f"parked{number}" for number in range(first, min(first + 1_000, parked))]
        await asyncio.gather(*(store.append(name, 0, [ENTRY] * 5, b"parked") for name in names))

    async def read(number: int) -> None:
        name = f"parked{number * 7919 % parked}"
        info = await store.info(name)
        if info is None or len(await store.load(name)) != info.length:
            msg = f"a wrong session {name}"
            raise RuntimeError(msg)

    return await timed(read, OPENED)


async def main(dsn: str, count: int, sessions: int, parked: int) -> None:
    """Warm up, measure and print."""
    db: Any = await asyncpg.connect(dsn)
    figures = {"select 1": await timed(lambda _: db.fetch("select 1"), count)}
    await db.execute("create table if not exists bench_rows (body bytea)")
    figures["insert"] = await timed(lambda _: db.execute("insert into bench_rows values ($1)", ENTRY), count)
    await db.execute("drop table bench_rows")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        file = SQLiteStore(Path(folder, "s.db"))
        figures["SQLite alone"], figures["SQLite at once"] = await appends(file, count, sessions)
        await file.close()
    for number in (100, parked):
        store = PostgresStore(dsn, schema=(schema := f"bench_{number}"))
        figures[f"open one of {number}"] = await opened(store, number)
        alone, together = await appends(store, count, sessions)
        figures[f"alone beside {number}"], figures[f"at once beside {number}"] = alone, together
        await store.close()
        await db.execute(f"drop schema {schema} cascade")
    await db.close()
    print(json.dumps({name: round(each, 3) for name, each in figures.items()}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:])))
