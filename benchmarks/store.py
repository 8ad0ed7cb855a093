"""
The store on a disk by itself: ``python -m benchmarks.store APPENDS SESSIONS MEGABYTES``.

It appends to one session, then to many sessions at once, and waits for the disk each time. Then it upgrades a
file of an older layout. It prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

from turnwheel import SQLiteStore
from turnwheel.performers.stores.sqlite_file import APPLICATION_ID

Figures = dict[str, float]

MICRO = 1e6
ENTRY = b"x" * 300
"""About the size of a step of a run."""

EACH = 5
"""Appends to each session, where many are written at once."""

OLDER = """
create table sessions (
    session text primary key, length integer not null, created real not null, updated real not null,
    about blob not null default x''
) without rowid;
create table entries (
    session text not null, seq integer not null, at real not null, body blob not null,
    primary key (session, seq)
);
"""
"""The second layout."""


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


def older(path: Path, megabytes: int) -> int:
    """Make a file of the second layout; return the number of its sessions."""
    each, sessions = 100, megabytes * 1_000_000 // (100 * (len(ENTRY) + 60))
    db = sqlite3.connect(path)
    db.executescript(OLDER)
    with db:
        for seq in range(each):
            rows = [(f"session-{number}", seq, ENTRY) for number in range(sessions)]
            db.executemany("insert into entries values (?, ?, 1, ?)", rows)
        kept = [(f"session-{number}", each) for number in range(sessions)]
        db.executemany("insert into sessions values (?, ?, 1, 1, x'')", kept)
    db.execute(f"pragma application_id = {APPLICATION_ID}")
    db.execute("pragma user_version = 2")
    db.close()
    return sessions


async def upgraded(path: Path, megabytes: int) -> Figures:
    """Seconds until a file of the second layout is open."""
    sessions = older(path, megabytes)
    store = SQLiteStore(path)
    began = time.perf_counter()
    found = len(await store.list())
    took = time.perf_counter() - began
    await store.close()
    if found != sessions:
        msg = f"a wrong upgrade: {found} sessions of {sessions}"
        raise RuntimeError(msg)
    return {"upgrade": took}


async def main(appends: int, sessions: int, megabytes: int) -> None:
    """Warm up, measure and print."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        await one_session(Path(folder, "warm.db"), 5)
        figures = await one_session(Path(folder, "one.db"), appends)
        figures |= await many_sessions(Path(folder, "many.db"), sessions)
        figures |= await upgraded(Path(folder, "older.db"), megabytes)
        print(json.dumps(figures))


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))
