"""
The store on a disk: one SQLite file that several processes may share.

Theory of operation. SQLite blocks and its connections like to stay in one thread, so every store has a
thread of its own: a method hands it a job and waits, jobs are done in the order they were handed over, and a
job once handed over is done to its end whether or not somebody still waits for it. Between processes, the
file's own lock orders the writers, and comparing the length inside the writing transaction is what makes the
append a compare-and-set.

What takes time is the disk, once for each transaction and however little is in it. So writing jobs that came
while the thread was busy share the next one. Each is tried by itself, so that one that is refused spoils no
other; none returns before the transaction is kept, and where that fails all have failed and nothing of any
is there.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, TypeVar, final, get_args

from ...errors import ConfigError, StoreError
from . import sqlite_layout as layout
from .base import SessionInfo
from .sqlite_thread import Job, Jobs, Kind, Work, start

T = TypeVar("T")

Durability = Literal["power", "process"]
"""What an entry survives: the end of everything but the disk, or the end of the process only."""


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
    epoch. The file is opened with the first call; a process that forks has to do so before that. It is made
    once: where it is deleted, emptied or replaced under an open store, that is an error and no new beginning.
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
        if self._path in {"", ":memory:"}:
            msg = f"{self._path!r} is no file; name one, or use MemoryStore"
            raise ConfigError(msg)
        self._durability: Durability = durability
        self._now = now
        self._closed = False
        self._jobs: Jobs | None = None  # those of the thread, once there is one
        self._lock = threading.Lock()  # event loops in several threads may share a store

    async def append(
        self, session: str, expected: int, entries: Sequence[bytes], about: bytes | None = None
    ) -> int:
        """Add *entries* to *session*, which must hold exactly *expected*; see `Store.append`."""
        # A copy, since the caller may go on with its list when it is cancelled.
        added = layout.Added(session, expected, tuple(entries), about)
        return await self._do(partial(layout.append, added, self._now), Kind.WRITE)

    async def load(self, session: str, start: int = 0) -> Sequence[bytes]:
        """The entries of *session* from index *start* on; see `Store.load`."""
        return await self._do(partial(layout.load, session, start))

    async def list(self) -> Sequence[SessionInfo]:
        """All sessions, last written first."""
        return await self._do(layout.listed)

    async def delete(self, session: str) -> bool:
        """Forget *session*; whether there was one."""
        return await self._do(partial(layout.delete, session), Kind.WRITE)

    async def close(self) -> None:
        """Close the file when what was asked before is done. Closing twice is fine."""
        with self._lock:
            self._closed = True
            jobs, self._jobs = self._jobs, None
            if jobs is None:
                return
            jobs.put(ending := Job(_nothing, Kind.END))
        await ending.done()

    async def _do(self, work: Work[T], kind: Kind = Kind.READ) -> T:
        job = Job(work, kind)
        with self._lock:
            if self._closed:
                msg = f"store {self._path!r} is closed; make a new one to go on"
                raise StoreError(msg)
            if self._jobs is None:
                self._jobs = start(self._path, self._durability)
                weakref.finalize(self, self._jobs.put, None)
            self._jobs.put(job)
        return await job.done()


def _nothing(_: object) -> None:
    """What is left to do when the file is closed."""
