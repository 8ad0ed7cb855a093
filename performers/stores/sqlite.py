"""
The store on a disk: one SQLite file that several processes may share.

Theory of operation. SQLite blocks, and its connections belong to one thread. So every store has a thread of
its own. A method hands it a job and waits; jobs are done in order, and each is done to its end whether or not
its caller still waits. Between processes, the lock of the file orders the writers. Comparing the length
inside the writing transaction makes the append a compare-and-set.

The disk takes the time, once for each transaction and however little is in it. So writing jobs that came
while the thread was busy share the next one. Each is tried by itself, and one that is refused spoils no
other. None returns before the transaction is kept; where that fails, all have failed and the file has
nothing of any.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, final, get_args

import attrs

from ...effects.errors import ConfigError, StoreConflict, StoreError
from ..worker_pool import finish
from .base import Durability, SessionInfo

if TYPE_CHECKING:
    import sqlite3

    from .sqlite_file import StoreFile, StoreWork

T = TypeVar("T")

# What a thread is handed; None ends it.
Jobs: TypeAlias = "SimpleQueue[StoreJob[Any] | None]"

# What a job does. Those that write, one behind the other, may share a transaction. One of leases alone does
# not wait for the disk: what ends all processes at once ends their leases, too.
JobKind = Literal["read", "write", "lease", "end"]


@final
class SQLiteStore:
    """
    Keeps sessions in the SQLite file at *path*, as a `Store`; the file and its directories are made.

    *durability* says what survives once `append` has returned. With ``"power"``, the default, everything
    does: each append waits for the disk. With ``"process"`` an append survives the end of this process, kill
    -9 included, but the last ones may be missing after a power cut or a crash of the operating system; what
    is there is whole and in order even then. Both need a local disk: the file is in WAL mode, which network
    file systems do not carry.

    Several stores, in one process or many, may use one file. *now* gives the time, in seconds since the
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

    @property
    def path(self) -> str:
        """The real path of the file; those beside it begin with the same name."""
        return os.path.realpath(self._path)

    async def append(
        self, session: str, expected: int, entries: Sequence[bytes], about: bytes | None = None
    ) -> int:
        """Add *entries* to *session*, which must hold exactly *expected*; see `Store.append`."""
        # A copy, since the caller may go on with its list when it is cancelled.
        work = partial(append, session, expected, tuple(entries), about, self._now)
        return await self._do(work, "write")

    async def load(self, session: str, start: int = 0) -> Sequence[bytes]:
        """The entries of *session* from index *start* on; see `Store.load`."""
        return await self._do(partial(load, session, start))

    async def list(self) -> Sequence[SessionInfo]:
        """All sessions, last written first."""
        return await self._do(list_sessions)

    async def delete(self, session: str) -> bool:
        """Forget *session*; whether there was one."""
        return await self._do(partial(delete, session), "write")

    async def lease(self, session: str, held: bytes | None, wanted: bytes | None) -> bytes | None:
        """Put the lease *wanted* in the place of *held*; see `LeasingStore.lease`."""
        return await self._do(partial(lease, session, held, wanted), "read" if held == wanted else "lease")

    async def close(self) -> None:
        """Close the file when the jobs before are done. Closing twice is fine."""
        with self._lock:
            self._closed = True
            jobs, self._jobs = self._jobs, None
        if jobs is not None:
            jobs.put(ending := StoreJob[None](lambda _: None, "end"))
            await finish(ending.ended)

    async def _do(self, work: StoreWork[T], kind: JobKind = "read") -> T:
        job = StoreJob(work, kind)
        with self._lock:
            if self._closed:
                msg = f"store {self._path!r} is closed; make a new one to go on"
                raise StoreError(msg)
            if self._jobs is None:
                self._jobs = _start(self._path, self._durability)
                weakref.finalize(self, self._jobs.put, None)  # a store that was never closed ends its thread
            self._jobs.put(job)
        # A caller that is cancelled still learns whether its entries are kept. Were it to go on earlier, the
        # next append would compare a length that the file is about to leave.
        return await finish(job.ended)


# The thread in which the file of a store is used, and the jobs that it is handed.


@final
@attrs.frozen(eq=False)
class StoreJob(Generic[T]):
    """*work* for a thread to do. *ended* gets its outcome, in the event loop that asked for it."""

    work: StoreWork[T]
    kind: JobKind
    ended: asyncio.Future[T] = attrs.field(factory=lambda: asyncio.get_running_loop().create_future())


# The threads that have not ended, and what each is handed.
at_work: dict[threading.Thread, Jobs] = {}


def _start(path: str, durability: Durability) -> Jobs:
    """A thread that does with the file at *path* what it is handed, until it is handed None."""
    # Importing sqlite3 takes from 2 ms to 12, and many agents never keep a file.
    from .sqlite_file import StoreFile  # noqa: PLC0415  # as said

    jobs: Jobs = SimpleQueue()
    # A process that changes its directory keeps the file.
    file = partial(StoreFile, path, os.path.abspath(path), durability)  # noqa: PTH100  # a Path keeps the dots
    # A daemon: any other would keep a process from exiting whose host forgot to close its store.
    thread = threading.Thread(target=_serve, args=(jobs, file), name="turnwheel-sqlite", daemon=True)
    at_work[thread] = jobs
    thread.start()
    return jobs


@atexit.register
def _finish_all() -> None:
    """Have all jobs done that were handed over: when the interpreter exits, daemon threads stop anywhere."""
    for thread, jobs in list(at_work.items()):
        jobs.put(None)
        thread.join()


def _serve(jobs: Jobs, make: Callable[[], StoreFile]) -> None:
    file = make()
    # The jobs stay in the frame of the call, so that none is held on to while it waits for the next.
    while _work_off(jobs, file):
        pass
    at_work.pop(threading.current_thread(), None)


def _work_off(jobs: Jobs, file: StoreFile) -> bool:
    """Do all jobs there are, at least one, in the order they came; whether there will be others."""
    waiting = [jobs.get()]
    while not jobs.empty():  # no other thread takes any, so `get` cannot block
        waiting.append(jobs.get())
    # Grouped by neighbours and not sorted: a read that came behind a write has to see it.
    for kind, alike in groupby(waiting, _group):
        group = [job for job in alike if job is not None]
        if kind == "write":
            lasting = any(job.kind == "write" for job in group)
            outcomes = file.write([job.work for job in group], lasting=lasting)
        elif kind == "read":
            outcomes = [file.read(job.work) for job in group]
        else:
            outcomes = [file.close()] * len(group)
        settled = zip([job.ended for job in group], outcomes, strict=True)
        # Waking a loop is a write to its socket: for a transaction of fifty appends, one is enough.
        for loop, pairs in groupby(settled, lambda pair: pair[0].get_loop()):
            with suppress(RuntimeError):  # the loop is closed, so no task waits
                loop.call_soon_threadsafe(_settle, list(pairs))
        if kind == "end":
            return False
    return True


def _group(job: StoreJob[Any] | None) -> JobKind:
    """The kind of *job*, by which neighbours are done together."""
    kind = "end" if job is None else job.kind
    return "write" if kind == "lease" else kind


def _settle(pairs: Iterable[tuple[asyncio.Future[Any], Any]]) -> None:
    """Give what was waited for its outcome."""
    for ended, outcome in pairs:
        if isinstance(outcome, Exception):
            ended.set_exception(outcome)
        else:
            ended.set_result(outcome)


# What is asked of the file; its tables are in `sqlite_file`.


# How many entries a session may have, and a stretch; far more than a file can hold.
_MOST = 0xFFFFFFFF

# In SQLite << and & and | bind alike, from left to right.
# Each session with its last stretch and the last entry of that.
_ENDS = """
sessions
    join stretches on key = (
        select max(key) from stretches where key between sessions.id << 32 and sessions.id << 32 | 0xffffffff
    )
    join entries as latest on latest.id = (
        select max(id) from entries where id between stretch << 32 and stretch << 32 | 0xffffffff
    )
"""

_COUNT = "(key & 0xffffffff) + (latest.id & 0xffffffff) + 1"
_FIND = f"""
select sessions.id, {_COUNT}, case when latest.id = (select max(id) from entries) then latest.id + 1 end
    from {_ENDS} where session = ?
"""  # noqa: S608  # all of it stands here
_LIST = f"select session, {_COUNT}, created, at, about from {_ENDS} order by at desc, session"  # noqa: S608  # as above
_LOAD = """
select body from sessions
    join stretches on key between
        (select max(key) from stretches where key between sessions.id << 32 and sessions.id << 32 | :start)
        and sessions.id << 32 | 0xffffffff
    join entries on entries.id between
        stretch << 32 | max(:start - (key & 0xffffffff), 0) and stretch << 32 | 0xffffffff
    where session = :session order by key, entries.id
"""


def append(
    session: str,
    expected: int,
    entries: tuple[bytes, ...],
    about: bytes | None,
    now: Callable[[], float],
    db: sqlite3.Connection,
) -> int:
    """Add *entries* to *session*; its new length. `StoreConflict` where it has not the *expected* one."""
    found = db.execute(_FIND, (session,)).fetchone()
    # *key* is where the next entry goes if the session has the last stretch of the file, and None otherwise.
    number, actual, key = found or (None, 0, None)
    if actual != expected:
        raise StoreConflict(session, expected, actual)
    if number is not None and about is not None:
        db.execute("update sessions set about = ? where id = ?", (about, number))
    if entries:
        # Inside of the transaction, so that the order of times is the order of writing over all processes.
        at = now()
        if number is None:
            row = (session, at, about or b"")
            db.execute("insert into sessions values (null, ?, ?, ?)", row)
            (number,) = db.execute("select last_insert_rowid()").fetchone()
        if key is None:
            # A new stretch begins behind all others.
            (stretch,) = db.execute("select coalesce(max(id) >> 32, 0) + 1 from entries").fetchone()
            db.execute("insert into stretches values (?, ?)", (number << 32 | actual, stretch))
            key = stretch << 32
        rows = [(number, at, body) for number, body in enumerate(entries, key)]
        db.executemany("insert into entries values (?, ?, ?)", rows)
    return actual + len(entries)


def load(session: str, start: int, db: sqlite3.Connection) -> list[bytes]:
    """The entries of *session* from index *start* on."""
    asked = {"session": session, "start": min(max(start, 0), _MOST)}
    return [body for (body,) in db.execute(_LOAD, asked)]


def list_sessions(db: sqlite3.Connection) -> list[SessionInfo]:
    """All sessions, last written first."""
    return [
        SessionInfo(session=session, length=length, created=created, updated=updated, about=about)
        for session, length, created, updated, about in db.execute(_LIST)
    ]


def delete(session: str, db: sqlite3.Connection) -> bool:
    """Forget *session*; whether there was one."""
    # Also of a session without entries: a lease is taken before the first one is written.
    db.execute("delete from leases where session = ?", (session,))
    found = db.execute("select id from sessions where session = ?", (session,)).fetchone()
    if found is None:
        return False
    of_it = "from stretches where key between ?1 << 32 and ?1 << 32 | 0xffffffff"
    stretches = db.execute(f"select stretch {of_it}", found).fetchall()
    db.executemany("delete from entries where id between ?1 << 32 and ?1 << 32 | 0xffffffff", stretches)
    db.execute(f"delete {of_it}", found)
    db.execute("delete from sessions where id = ?", found)
    return True


def lease(session: str, held: bytes | None, wanted: bytes | None, db: sqlite3.Connection) -> bytes | None:
    """Put *wanted* in the place of *held* as the lease of *session*; the lease from then on."""
    found = db.execute("select body from leases where session = ?", (session,)).fetchone()
    there: bytes | None = found and found[0]
    if there != held or held == wanted:
        return there
    if wanted is None:
        db.execute("delete from leases where session = ?", (session,))
    else:
        db.execute("insert or replace into leases values (?, ?)", (session, wanted))
    return wanted
