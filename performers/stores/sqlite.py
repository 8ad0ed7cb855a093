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

from ...effects.errors import ConfigError, SessionGone, StoreConflict, StoreError
from ..worker_pool import finish
from .base import Durability, Entries, SessionInfo

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
        self,
        session: str,
        expected: int,
        entries: Sequence[bytes],
        about: bytes | None = None,
        incarnation: str = "",
    ) -> str:
        """Add *entries* to *session*, which must hold exactly *expected*; see `Store.append`."""
        # A copy, since the caller may go on with its list when it is cancelled.
        new = Append(session, expected, tuple(entries), about, incarnation)
        work = partial(append, new, self._now)
        return await self._do(work, "write")

    async def load(self, session: str, start: int = 0, incarnation: str = "") -> Entries:
        """The entries of *session* from index *start* on; see `Store.load`."""
        return await self._do(partial(load, session, start, incarnation))

    async def list(
        self, limit: int | None = None, after: int | None = None, prefix: str = ""
    ) -> Sequence[SessionInfo]:
        """The sessions whose names begin with *prefix*, last written first; see `Store.list`."""
        return await self._do(partial(list_sessions, limit, after, prefix))

    async def info(self, session: str) -> SessionInfo | None:
        """*session* as `list` has it; None where it is not there."""
        return await self._do(partial(info, session))

    async def delete(self, session: str) -> bool:
        """Forget *session*; whether there was one."""
        return await self._do(partial(delete, session), "write")

    async def lease(
        self, session: str, held: bytes | None, wanted: bytes | None, incarnation: str = ""
    ) -> bytes | None:
        """Put the lease *wanted* in the place of *held*; see `LeasingStore.lease`."""
        work = partial(lease, session, held, wanted, incarnation)
        return await self._do(work, "read" if held == wanted else "lease")

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

# Higher than any stamp.
_LAST = 2**63 - 1

# In SQLite << and & and | bind alike, from left to right.
# Each session with its stamp, its last stretch and the last entry of that.
_ENDS = """
    join stretches on key = (
        select max(key) from stretches where key between sessions.id << 32 and sessions.id << 32 | 0xffffffff
    )
    join entries as latest on latest.id = (
        select max(id) from entries where id between stretch << 32 and stretch << 32 | 0xffffffff
    )
"""

_COUNT = "(key & 0xffffffff) + (latest.id & 0xffffffff) + 1"
_FIND = f"""
select sessions.id, incarnation, {_COUNT},
    case when stamp = (select max(stamp) from recents) then latest.id + 1 end
    from sessions join recents using (id) {_ENDS} where session = ?
"""  # noqa: S608  # all of it stands here
# A cross join is done in the order in which it is written: by stamp, or by name.
_INFO = f"select session, {_COUNT}, created, at, about, incarnation, stamp from "  # noqa: S608  # as above
_LIST = f"{_INFO} recents cross join sessions using (id) {_ENDS} where stamp < ? order by stamp desc limit ?"
_BY_NAME = f"""
{_INFO} sessions cross join recents using (id) {_ENDS}
    where session >= ? and session < cast(? as text) and stamp < ? order by stamp desc limit ?
"""
_ONE = f"{_INFO} sessions cross join recents using (id) {_ENDS} where session = ?"
_STAMP = "insert or replace into recents select ?, coalesce(max(stamp), 0) + 1 from recents"
# A row for each entry, or one without a body: one statement, for the session may be begun anew between two.
_LOAD = """
select incarnation, body from sessions
    join stretches on key between
        (select max(key) from stretches where key between sessions.id << 32 and sessions.id << 32 | :start)
        and sessions.id << 32 | 0xffffffff
    left join entries on entries.id between
        stretch << 32 | max(:start - (key & 0xffffffff), 0) and stretch << 32 | 0xffffffff
    where session = :session order by key, entries.id
"""


@final
@attrs.frozen
class Append:
    """What `SQLiteStore.append` was asked for."""

    session: str
    expected: int
    entries: tuple[bytes, ...]
    about: bytes | None
    incarnation: str


def append(new: Append, now: Callable[[], float], db: sqlite3.Connection) -> str:
    """Make the append *new*; the incarnation of its session."""
    found = db.execute(_FIND, (new.session,)).fetchone()
    # *key* is where the next entry goes if the session was written last of all, and None otherwise.
    number, incarnation, actual, key = found or (None, "", 0, None)
    _check_incarnation(new.session, new.incarnation, incarnation)
    if actual != new.expected:
        raise StoreConflict(new.session, new.expected, actual)
    if number is not None and new.about is not None:
        db.execute("update sessions set about = ? where id = ?", (new.about, number))
    if new.entries:
        # Inside of the transaction, so that the order of times is the order of writing over all processes.
        at = now()
        if number is None:
            incarnation = os.urandom(16).hex()
            row = (new.session, at, new.about or b"", incarnation)
            db.execute("insert into sessions values (null, ?, ?, ?, ?)", row)
            (number,) = db.execute("select last_insert_rowid()").fetchone()
        if key is None:
            # A new stretch begins behind all others.
            (stretch,) = db.execute("select coalesce(max(id) >> 32, 0) + 1 from entries").fetchone()
            db.execute("insert into stretches values (?, ?)", (number << 32 | actual, stretch))
            db.execute(_STAMP, (number,))
            key = stretch << 32
        rows = [(number, at, body) for number, body in enumerate(new.entries, key)]
        db.executemany("insert into entries values (?, ?, ?)", rows)
    return incarnation


def load(session: str, start: int, incarnation: str, db: sqlite3.Connection) -> Entries:
    """The entries of *session* from index *start* on."""
    asked = {"session": session, "start": min(max(start, 0), _MOST)}
    rows = db.execute(_LOAD, asked).fetchall()
    there = rows[0][0] if rows else ""
    _check_incarnation(session, incarnation, there)
    return Entries((body for _, body in rows if body is not None), there)


def _check_incarnation(session: str, named: str, there: str) -> None:
    """Raise `SessionGone` where the incarnation *named* of *session* is not the one that is *there*."""
    if named and named != there:
        raise SessionGone(session, bool(there))


def list_sessions(
    limit: int | None, after: int | None, prefix: str, db: sqlite3.Connection
) -> list[SessionInfo]:
    """The sessions whose names begin with *prefix*, last written first."""
    part = (_LAST if after is None else after, -1 if limit is None else limit)
    # No text has a byte that is higher than all bytes of UTF-8.
    found = (
        db.execute(_BY_NAME, (prefix, prefix.encode() + b"\xff", *part))
        if prefix
        else db.execute(_LIST, part)
    )
    return [_info(row) for row in found]


def info(session: str, db: sqlite3.Connection) -> SessionInfo | None:
    """*session* as a list has it; None where it is not there."""
    found = db.execute(_ONE, (session,)).fetchone()
    return found and _info(found)


def _info(row: tuple[Any, ...]) -> SessionInfo:
    session, length, created, updated, about, incarnation, stamp = row
    return SessionInfo(
        session=session,
        length=length,
        created=created,
        updated=updated,
        about=about,
        incarnation=incarnation,
        stamp=stamp,
    )


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
    db.execute("delete from recents where id = ?", found)
    db.execute(_STAMP, (0,))
    db.execute("delete from sessions where id = ?", found)
    return True


def lease(
    session: str, held: bytes | None, wanted: bytes | None, incarnation: str, db: sqlite3.Connection
) -> bytes | None:
    """Put *wanted* in the place of *held* as the lease of *session*; the lease from then on."""
    if incarnation:
        row = db.execute("select incarnation from sessions where session = ?", (session,)).fetchone()
        _check_incarnation(session, incarnation, row[0] if row else "")
    found = db.execute("select body from leases where session = ?", (session,)).fetchone()
    there: bytes | None = found and found[0]
    if there != held or held == wanted:
        return there
    if wanted is None:
        db.execute("delete from leases where session = ?", (session,))
    else:
        db.execute("insert or replace into leases values (?, ?)", (session, wanted))
    return wanted
