"""
The store on a disk: one SQLite file that several processes may share.

Theory of operation. SQLite blocks and its connections like to stay in one thread, so every store has a
thread of its own: a method hands it a job and waits, jobs are done one by one in the order they were handed
over, and a job once handed over is done to its end whether or not somebody still waits for it. Between
processes, the file's own lock orders the writers, and comparing the length inside the writing transaction
is what makes the append a compare-and-set.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar, final, get_args

import attrs

from ...errors import ConfigError, StoreConflict, StoreError
from .base import SessionInfo
from .sqlite_file import Durability, connect, explained

T = TypeVar("T")


@final
class SQLiteStore:
    """
    Keeps sessions in the SQLite file at *path*, as a `Store`; the file and its directories are made.

    *durability* says what survives once `append` has returned. With ``"power"``, the default, everything
    does: each append waits for the disk. With ``"process"`` an append survives the end of this process, kill
    -9 included, but the last ones may be missing after a power cut or a crash of the operating system; what
    is there is whole and in order even then. Both need a local disk: the file is in WAL mode, which network
    file systems do not carry.

    Several stores, in one process or many, may use one file. *now* tells the time, in seconds since the
    epoch. The file is opened with the first call; a process that forks has to do so before that.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        durability: Durability = "power",
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        if durability not in get_args(Durability):
            msg = f"durability must be one of {get_args(Durability)}; got {durability!r}"
            raise ConfigError(msg)
        self._path = os.fspath(path)
        self._durability: Durability = durability
        self._now = now
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="turnwheel-sqlite")
        self._db: sqlite3.Connection | None = None  # touched by that thread only

    async def append(
        self, session: str, expected: int, entries: Sequence[bytes], about: bytes | None = None
    ) -> int:
        """Add *entries* to *session*, which must hold exactly *expected*; see `Store.append`."""
        # A copy, since the caller may go on with its list when it is cancelled.
        added = _Added(session, tuple(entries), about)
        return await self._do(partial(_append, added, expected, self._now))

    async def load(self, session: str, start: int = 0) -> Sequence[bytes]:
        """The entries of *session* from index *start* on; see `Store.load`."""
        return await self._do(partial(_load, session, start))

    async def list(self) -> Sequence[SessionInfo]:
        """All sessions, last written first."""
        return await self._do(_list)

    async def delete(self, session: str) -> bool:
        """Forget *session*; whether there was one."""
        return await self._do(partial(_delete, session))

    async def close(self) -> None:
        """Close the file when what was asked before is done. Closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        job = self._thread.submit(self._disconnect)
        self._thread.shutdown(wait=False)
        await _carried_out(job)

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            msg = f"store {self._path!r} is closed; make a new one to go on"
            raise StoreError(msg)
        return await _carried_out(self._thread.submit(self._connected, work))

    def _connected(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with explained(self._path):
            if self._db is None:
                self._db = connect(self._path, self._durability)
            return work(self._db)

    def _disconnect(self) -> None:
        with explained(self._path):
            if self._db is not None:
                self._db.close()


async def _carried_out(job: Future[T]) -> T:
    """
    The result of *job*, waited for even when the waiting task is cancelled: then that is raised at its end.

    So a cancelled caller knows that its work is done, and a failure is told rather than lost.
    """
    waiting = asyncio.wrap_future(job)
    cancelled: asyncio.CancelledError | None = None
    while not waiting.done():
        try:
            await asyncio.wait([waiting])  # unlike a bare await, this leaves the job alone when cancelled
        except asyncio.CancelledError as error:
            cancelled = error
    result = waiting.result()
    if cancelled is not None:
        raise cancelled
    return result


@final
@attrs.frozen
class _Added:
    """What is to be added to *session*."""

    session: str
    entries: tuple[bytes, ...]
    about: bytes | None


def _append(added: _Added, expected: int, now: Callable[[], float], db: sqlite3.Connection) -> int:
    with db:  # commits, or takes everything back
        db.execute("begin immediate")
        stored = "select coalesce(max(length), 0) from sessions where session = ?"
        actual: int = db.execute(stored, (added.session,)).fetchone()[0]
        if actual != expected:
            raise StoreConflict(added.session, expected, actual)
        if added.entries:
            _add(added, actual, now(), db)
        elif added.about is not None:
            told = "update sessions set about = ? where session = ?"
            db.execute(told, (added.about, added.session))
    return actual + len(added.entries)


def _add(added: _Added, actual: int, at: float, db: sqlite3.Connection) -> None:
    db.execute(
        "insert into sessions (session, length, created, updated, about)"
        " values (:session, :length, :at, :at, coalesce(:about, x''))"
        " on conflict do update set length = :length, updated = :at, about = coalesce(:about, about)",
        {
            "session": added.session,
            "length": actual + len(added.entries),
            "at": at,
            "about": added.about,
        },
    )
    db.executemany(
        "insert into entries (session, seq, at, body) values (?, ?, ?, ?)",
        ((added.session, seq, at, body) for seq, body in enumerate(added.entries, actual)),
    )


def _load(session: str, start: int, db: sqlite3.Connection) -> list[bytes]:
    query = "select body from entries where session = ? and seq >= ? order by seq"
    return [body for (body,) in db.execute(query, (session, start))]


def _list(db: sqlite3.Connection) -> list[SessionInfo]:
    rows = db.execute(
        "select session, length, created, updated, about from sessions order by updated desc, session"
    )
    return [
        SessionInfo(session=session, length=length, created=created, updated=updated, about=about)
        for session, length, created, updated, about in rows
    ]


def _delete(session: str, db: sqlite3.Connection) -> bool:
    with db:
        db.execute("begin immediate")
        db.execute("delete from entries where session = ?", (session,))
        return db.execute("delete from sessions where session = ?", (session,)).rowcount > 0
