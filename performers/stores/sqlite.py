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

SQLite keeps locks and lists of open files in the memory of a process, and a forked child would take over
those of the parent, whose threads it does not have. So before a fork all threads do their jobs to the end,
close their files and end. After that the parent and the child both open a file anew with their next call.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, final, get_args

import attrs

from ...effects.errors import ConfigError, SessionGone, StoreConflict, StoreError
from .base import Durability, Entries, Mark, SessionInfo, Store
from .postgres.address import refuse_url
from .sqlite_records import (
    NewCheckpoint,
    check_incarnation,
    checkpoints,
    keep_checkpoint,
    lease,
    leases,
    meter,
    number_of,
    overdue,
    renew,
    set_deadline,
)

if TYPE_CHECKING:
    import sqlite3

    from .chain import Chain, SessionEnd
    from .sqlite_file import StoreFile, StoreWork

T = TypeVar("T")

# What a thread is handed; None ends it.
Jobs: TypeAlias = "SimpleQueue[StoreJob[Any] | None]"

# What a job does. Those that write, one behind the other, may share a transaction. One of leases, meters and
# checkpoints alone does not wait for the disk: what ends all processes at once ends their leases, too, and a
# checkpoint can be made again.
JobKind = Literal["read", "write", "lease", "meter", "checkpoint", "end"]


@final
class SQLiteStore(Store):
    """
    Keeps sessions in the SQLite file at *path*, as a `Store`; the file and its directories are made.

    *durability* says what survives once `append` has returned. With ``"power"``, the default, everything
    does: each append waits for the disk. With ``"process"`` an append survives the end of this process, kill
    -9 included, but the last ones may be missing after a power cut or a crash of the operating system; what
    is there is whole and in order even then. Both need a local disk: the file is in WAL mode, which network
    file systems do not carry.

    With a *key*, 32 bytes of chance, what is kept is signed with it, and a change by a program without the
    key is a `JournalError` where it is read. A file is signed from its beginning on, or not at all.

    Several stores, in one process or many, may use one file. *now* gives the time, in seconds since the
    epoch. A relative path is resolved now, and the file is opened with the first call. It is made once: where
    it is deleted, emptied or replaced under an open store, that is an error and no new beginning. After
    `os.fork` the parent and the child may both go on with the store.
    """

    keeps_leases = True
    keeps_deadlines = True
    keeps_checkpoints = True
    keeps_meters = True
    tells_news = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        durability: Durability = "power",
        *,
        now: Callable[[], float] = time.time,
        key: bytes | None = None,
    ) -> None:
        if durability not in get_args(Durability):
            msg = f"durability must be one of {get_args(Durability)}; got {durability!r}"
            raise ConfigError(msg)
        self._path = os.fspath(path)
        if self._path in {"", ":memory:"}:
            msg = f"{self._path!r} is no file; name one, or use MemoryStore"
            raise ConfigError(msg)
        refuse_url(self._path)
        # Now: a process that changes its directory keeps the file, also before it is opened.
        self._place = os.path.abspath(self._path)  # noqa: PTH100  # a Path keeps the dots
        self._durability: Durability = durability
        self._now = now
        self._chain = None if key is None else _chain(key)
        self._closed = False
        self._file: StoreFile | None = None  # for one thread after the other
        self._jobs: Jobs | None = None  # those of the thread, once there is one
        self._end_thread: weakref.finalize[..., Any] | None = None

    @property
    def path(self) -> str:
        """The real path of the file; those beside it begin with the same name."""
        return os.path.realpath(self._place)

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
        work = partial(append, (session, incarnation), expected, tuple(entries), about, self._now)
        if self._chain is not None:
            work = partial(append_signed, session, expected, work, self._chain)
        return await self._do(work, "write")

    async def load(
        self, session: str, start: int = 0, end: int | None = None, incarnation: str = ""
    ) -> Entries:
        """The entries of *session* from index *start* to before *end*; see `Store.load`."""
        chain, asked = self._chain, (session, start, end, incarnation)
        return await self._do(partial(load, *asked) if chain is None else partial(load_signed, *asked, chain))

    async def list(
        self, limit: int | None = None, after: int | None = None, prefix: str = ""
    ) -> Sequence[SessionInfo]:
        """The sessions whose names begin with *prefix*, last written first; see `Store.list`."""
        work, chain = partial(list_sessions, limit, after, prefix), self._chain
        return await self._do(work if chain is None else partial(list_signed, work, chain))

    async def info(self, session: str) -> SessionInfo | None:
        """*session* as `list` has it; None where it is not there."""
        chain = self._chain
        return await self._do(
            partial(info, session) if chain is None else partial(info_signed, session, chain)
        )

    async def delete(self, session: str, incarnation: str = "") -> bool:
        """Forget *session*; whether there was one."""
        return await self._do(partial(delete, session, incarnation), "write")

    async def lease(
        self, session: str, held: bytes | None, wanted: bytes | None, incarnation: str = ""
    ) -> bytes | None:
        """Put the lease *wanted* in the place of *held*; see `Store.lease`."""
        work = partial(lease, session, held, wanted, incarnation)
        return await self._do(work, "read" if held == wanted else "lease")

    async def meter(self, name: str, held: bytes | None, wanted: bytes | None) -> tuple[bytes | None, float]:
        """Put *wanted* in the place of *held* as the meter *name*; see `Store.meter`."""
        work = partial(meter, name, held, wanted, self._now)
        return await self._do(work, "read" if held == wanted else "meter")

    async def keep_checkpoint(
        self, session: str, position: int, body: bytes, first: int, incarnation: str = ""
    ) -> None:
        """Keep *body* as a checkpoint of *session*; see `Store.keep_checkpoint`."""
        new = NewCheckpoint(session, position, body, first, incarnation)
        await self._do(partial(keep_checkpoint, new, self._chain), "checkpoint")

    async def checkpoints(self, session: str, incarnation: str = "") -> Sequence[bytes]:
        """The checkpoints of *session*, by their positions."""
        return await self._do(partial(checkpoints, session, incarnation, self._chain))

    async def set_deadline(self, session: str, due: float | None, incarnation: str = "") -> None:
        """Keep *due* as the deadline of *session*; see `Store.set_deadline`."""
        await self._do(partial(set_deadline, session, due, incarnation), "write")

    async def overdue(self, moment: float, skip: int = 0) -> Sequence[str]:
        """Sessions whose deadline is *moment* or before; see `Store.overdue`."""
        return await self._do(partial(overdue, moment, skip))

    async def renew(self, renewals: Mapping[str, tuple[bytes, bytes]]) -> Sequence[str]:
        """Put leases in the place of others, in one transaction; see `Store.renew`."""
        return await self._do(partial(renew, dict(renewals)), "lease")

    async def leases(self) -> Mapping[str, bytes]:
        """The leases of all sessions that have one; see `Store.leases`."""
        return await self._do(leases)

    async def news(self, sessions: Sequence[str], since: Mark | None) -> tuple[Mark, Sequence[str]]:
        """The *sessions* that were written to or deleted since then; see `Store.news`."""
        return await self._do(partial(news, tuple(sessions), since))

    async def close(self) -> None:
        """Close the file when the jobs before are done. Closing twice is fine."""
        with _threads_lock:
            self._closed = True
            jobs, self._jobs = self._jobs, None
        if jobs is not None:
            job = StoreJob(lambda _: None, "end", asyncio.get_running_loop())
            jobs.put(job)
            await job.result()

    async def _do(self, work: StoreWork[T], kind: JobKind = "read") -> T:
        job = StoreJob(work, kind, asyncio.get_running_loop())
        with _threads_lock:
            if self._closed:
                msg = f"store {self._path!r} is closed; make a new one to go on"
                raise StoreError(msg)
            if self._jobs is None:
                self._jobs = self._started()
            self._jobs.put(job)
        return await job.result()

    def _started(self) -> Jobs:
        """What a new thread is handed."""
        if self._file is None:
            # Importing sqlite3 takes from 2 ms to 12, and many agents never keep a file.
            from .sqlite_file import StoreFile  # noqa: PLC0415  # as said

            self._file = StoreFile(self._path, self._place, self._durability, self._chain)
        jobs = _start(self._file)
        # A store that was never closed ends its thread.
        self._end_thread = weakref.finalize(self, jobs.put, None)
        _in_use.add(self)
        return jobs

    def _before_fork(self) -> None:
        """Have the thread end; called with the lock held."""
        if self._end_thread is not None:
            self._end_thread()
        self._jobs = self._end_thread = None


# The thread in which the file of a store is used, and the jobs that it is handed.


@final
@attrs.define(eq=False)
class StoreJob(Generic[T]):
    """*work* for a thread to do; its outcome is for *loop*, which asked for it."""

    work: StoreWork[T]
    kind: JobKind
    loop: asyncio.AbstractEventLoop
    _waiter: asyncio.Future[None] = attrs.field(init=False)
    # One, once the work is done.
    _outcomes: list[T | Exception] = attrs.field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self._waiter = self.loop.create_future()

    async def result(self) -> T:
        """What the work found out; raises its error. To be called once, in the loop."""
        # A caller that is cancelled still learns whether its entries are kept. Were it to go on earlier, the
        # next append would compare a length that the file is about to leave.
        cancelled = None
        while not self._outcomes:
            try:
                await self._waiter
            except asyncio.CancelledError as error:
                cancelled, self._waiter = error, self.loop.create_future()
        (outcome,) = self._outcomes
        if isinstance(outcome, Exception):
            raise outcome
        if cancelled is not None:
            raise cancelled
        return outcome

    def settle(self, outcome: T | Exception) -> None:
        """The work came to *outcome*. To be called once, in the loop."""
        self._outcomes.append(outcome)
        if not self._waiter.done():  # it was cancelled meanwhile
            self._waiter.set_result(None)


# The threads that have not ended, and what each is handed.
at_work: dict[threading.Thread, Jobs] = {}

# The stores that have, or had, a thread.
_in_use: weakref.WeakSet[SQLiteStore] = weakref.WeakSet()

# Held to start a thread, and to hand it a job: event loops in several threads may share a store. Of all
# stores, for a fork. Reentrant: while it is held, the garbage collector may close a forgotten task.
_threads_lock = threading.RLock()


def _chain(key: bytes) -> Chain:
    """The chain of *key*; raises for what is no key."""
    # They import OpenSSL, which takes 20 ms, and few files are signed.
    from ..keys import check_key  # noqa: PLC0415  # as said
    from .chain import Chain  # noqa: PLC0415  # as said

    check_key(key)
    return Chain(key)


def _start(file: StoreFile) -> Jobs:
    """A thread that does with *file* what it is handed until that is None."""
    jobs: Jobs = SimpleQueue()
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


def _before_fork() -> None:
    """Close all files, and let no thread begin until the fork is over."""
    _threads_lock.acquire()
    for store in [*_in_use]:
        # Not public: no caller of a store is to use it.
        store._before_fork()  # noqa: SLF001  # as said  # pyright: ignore[reportPrivateUsage]
    for thread in [*at_work]:
        if thread is not threading.current_thread():
            thread.join()


os.register_at_fork(
    before=_before_fork, after_in_parent=_threads_lock.release, after_in_child=_threads_lock.release
)


def _serve(jobs: Jobs, file: StoreFile) -> None:
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
            lasting = "write" in [job.kind for job in group]
            outcomes = file.write([job.work for job in group], lasting=lasting)
        elif kind == "read":
            outcomes = [file.read(job.work) for job in group]
        else:
            outcomes = [file.close()] * len(group)
        settled = zip(group, outcomes, strict=True)
        # Waking a loop is a write to its socket: for a transaction of fifty appends, one is enough.
        for loop, pairs in groupby(settled, lambda pair: pair[0].loop):
            with suppress(RuntimeError):  # the loop is closed, so no task waits
                loop.call_soon_threadsafe(_settle, list(pairs))
        if kind == "end":
            return False
    return True


def _group(job: StoreJob[Any] | None) -> JobKind:
    """The kind of *job*, by which neighbours are done together."""
    kind = "end" if job is None else job.kind
    return "write" if kind in {"lease", "meter", "checkpoint"} else kind


def _settle(pairs: Iterable[tuple[StoreJob[Any], Any]]) -> None:
    """Give each job its outcome."""
    for job, outcome in pairs:
        job.settle(outcome)


# What is asked of the file; its tables are in `sqlite_file`.


# How many entries a session may have, and a stretch; far more than a file can hold.
_MOST = 0xFFFFFFFF

# The id that stands for all deleted sessions among those with a stamp.
DELETED = 0

# Higher than any stamp.
_LAST = 2**63 - 1

# In SQLite << and & and | bind alike, from left to right.
# Each session with its last stretch and the last entry of that, which another program may have deleted.
_ENDS = """
    left join stretches on key = (
        select max(key) from stretches where key between sessions.id << 32 and sessions.id << 32 | 0xffffffff
    )
    left join entries as latest on latest.id = (
        select max(id) from entries where id between stretch << 32 and stretch << 32 | 0xffffffff
    )
"""
# Each session with its stamp, as far as it has one.
_STAMPS = f"left join recents on recents.id = sessions.id and stamp < {_LAST}"
_TOP = f"select coalesce(max(stamp), 0) from recents where stamp < {_LAST}"  # noqa: S608  # all of it stands here

_COUNT = "coalesce((key & 0xffffffff) + coalesce((latest.id & 0xffffffff) + 1, 0), 0)"
_FIND = f"""
select sessions.id, incarnation, {_COUNT},
    case when stamp = ({_TOP}) then latest.id + 1 end
    from sessions {_STAMPS} {_ENDS} where session = ?
"""  # noqa: S608  # all of it stands here
# Cast: another program may have put any value in any column, and one must not hide the other sessions.
_INFO = f"""
select cast(session as text), {_COUNT}, cast(created as real), coalesce(cast(at as real), 0.0),
    about, incarnation, coalesce(stamp, -sessions.id) from
"""  # noqa: S608  # as above
# A cross join is done in the order in which it is written: by stamp, or by name.
_LIST = f"{_INFO} recents cross join sessions using (id) {_ENDS} where stamp < ? order by stamp desc limit ?"
# Those without a stamp come behind all others.
_UNSTAMPED = f"""
{_INFO} sessions {_STAMPS} {_ENDS}
    where stamp is null and -sessions.id < ? order by sessions.id limit ?
"""
_BY_NAME = f"""
{_INFO} sessions {_STAMPS} {_ENDS}
    where session >= ? and session < cast(? as text) and coalesce(stamp, -sessions.id) < ?
    order by coalesce(stamp, -sessions.id) desc limit ?
"""
_ONE = f"{_INFO} sessions {_STAMPS} {_ENDS} where session = ?"
_STAMP = f"insert or replace into recents select ?, ({_TOP}) + 1"
# A row for each entry, or one without a body: one statement, for the session may be begun anew between two.
_STAMPED = f"select coalesce(latest.id, 0) from recents join sessions using (id) {_ENDS} where stamp = ?"  # noqa: S608  # as above
_SINCE = "select id, session from recents left join sessions using (id) where stamp > ?"
_THERE = "select session from recents join sessions using (id) where stamp = ?"
_ROWS = """
select {} from sessions
    join stretches on key between
        (select max(key) from stretches where key between sessions.id << 32 and sessions.id << 32 | :start)
        and sessions.id << 32 | max(:start, :last)
    left join entries on entries.id between
        stretch << 32 | max(:start - (key & 0xffffffff), 0) and (stretch << 32) + :last - (key & 0xffffffff)
    where session = :session order by key, entries.id
"""
_LOAD = _ROWS.format("incarnation, body")

# What is signed.
_END = f"""
select session, incarnation, created, about, {_COUNT}, latest.mac, seal
    from sessions {_ENDS} where session = ?
"""  # noqa: S608  # as above
_SIGNED = _ROWS.format("at, body, mac, entries.id")


def append(
    named: tuple[str, str],
    expected: int,
    entries: tuple[bytes, ...],
    about: bytes | None,
    now: Callable[[], float],
    db: sqlite3.Connection,
) -> str:
    """
    Add *entries* to the session and incarnation *named*; its incarnation.

    `StoreConflict` where it has not the *expected* length, `SessionGone` where it is another one.
    """
    session, known = named
    found = db.execute(_FIND, (session,)).fetchone()
    # *key* is where the next entry goes if the session was written last of all, and None otherwise.
    number, incarnation, actual, key = found or (None, "", 0, None)
    if known and known != incarnation:
        raise SessionGone(session, number is not None)
    if actual != expected:
        raise StoreConflict(session, expected, actual)
    if number is not None and about is not None:
        db.execute("update sessions set about = ? where id = ?", (about, number))
    if entries:
        # Inside of the transaction, so that the order of times is the order of writing over all processes.
        at = now()
        if number is None:
            incarnation = os.urandom(16).hex()
            row = (session, at, about or b"", incarnation)
            db.execute("insert into sessions (session, created, about, incarnation) values (?, ?, ?, ?)", row)
            (number,) = db.execute("select last_insert_rowid()").fetchone()
        if key is None:
            # A new stretch begins behind all others.
            (stretch,) = db.execute("select coalesce(max(id) >> 32, 0) + 1 from entries").fetchone()
            db.execute("insert into stretches values (?, ?)", (number << 32 | actual, stretch))
            db.execute(_STAMP, (number,))
            key = stretch << 32
        rows = [(number, at, body) for number, body in enumerate(entries, key)]
        db.executemany("insert into entries (id, at, body) values (?, ?, ?)", rows)
    return incarnation


def load(session: str, start: int, end: int | None, incarnation: str, db: sqlite3.Connection) -> Entries:
    """The entries of *session* from index *start* to before *end*."""
    rows = db.execute(_LOAD, _part(session, start, end)).fetchall()
    there = rows[0][0] if rows else ""
    check_incarnation(session, incarnation, there)
    return Entries((body for _, body in rows if body is not None), there)


def _part(session: str, start: int, end: int | None = None) -> dict[str, str | int]:
    """The parameters of `_ROWS` for a part of *session*."""
    last = _MOST if end is None else end - 1
    return {"session": session, "start": min(max(start, 0), _MOST), "last": min(max(last, -1), _MOST)}


def list_sessions(
    limit: int | None, after: int | None, prefix: str, db: sqlite3.Connection
) -> list[SessionInfo]:
    """The sessions whose names begin with *prefix*, last written first."""
    part = (_LAST if after is None else after, -1 if limit is None else limit)
    if prefix:
        # No text has a byte that is higher than all bytes of UTF-8.
        found = db.execute(_BY_NAME, (prefix, prefix.encode() + b"\xff", *part)).fetchall()
    else:
        found = db.execute(_LIST, part).fetchall()
        if limit is None or len(found) < limit:
            rest = -1 if limit is None else limit - len(found)
            found += db.execute(_UNSTAMPED, (part[0], rest))
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


# A signed file: as above, but what is read was checked, and what is written is signed behind it.


def append_signed(
    session: str, expected: int, adding: StoreWork[str], chain: Chain, db: sqlite3.Connection
) -> str:
    """As *adding*, which appends to *session*."""
    # What was changed must not get a signature because more was added.
    before = _checked_end(session, chain, db)
    incarnation = adding(db)
    end = _end(session, db)
    if end is not None:
        first = chain.first(end.session, incarnation)
        last = first if before is None else before.last
        added = db.execute(_SIGNED, _part(session, expected)).fetchall() if end.length > expected else []
        for number, (at, body, _, row) in enumerate(added, expected):
            last = chain.link(first, last, number, at, body)
            db.execute("update entries set mac = ? where id = ?", (last, row))
        seal = chain.seal(attrs.evolve(end, last=last))
        db.execute("update sessions set seal = ? where session = ?", (seal, session))
    return incarnation


def load_signed(
    session: str, start: int, end: int | None, incarnation: str, chain: Chain, db: sqlite3.Connection
) -> Entries:
    """As `load`."""
    with db:
        db.execute("begin")  # one look, since another process may be writing
        sealed = _checked_end(session, chain, db)
        check_incarnation(session, incarnation, "" if sealed is None else sealed.incarnation)
        if sealed is None:
            return Entries()
        first = min(max(start, 0), sealed.length)
        part = range(first, sealed.length if end is None else max(first, min(end, sealed.length)))
        # From the entry before, behind which the first one was signed.
        found = db.execute(_SIGNED, _part(session, part.start - 1, part.stop)).fetchall()
    rows = [row[:3] for row in found if row[3] is not None]
    before = rows.pop(0)[2] if part.start and rows else chain.first(session, sealed.incarnation)
    chain.check_entries(sealed, part, before, rows)
    return Entries((body for _, body, _ in rows), sealed.incarnation)


def list_signed(
    listing: StoreWork[list[SessionInfo]], chain: Chain, db: sqlite3.Connection
) -> list[SessionInfo]:
    """As *listing*; a session that was changed has no summary, so its journal is read, which tells it."""
    with db:
        db.execute("begin")  # as above
        ends = [(found, _end(found.session, db)) for found in listing(db)]
    return [found if end and chain.holds(end) else attrs.evolve(found, about=b"") for found, end in ends]


def info_signed(session: str, chain: Chain, db: sqlite3.Connection) -> SessionInfo | None:
    """As `info`; see `list_signed`."""

    def one(db: sqlite3.Connection) -> list[SessionInfo]:
        found = info(session, db)
        return [] if found is None else [found]

    return next(iter(list_signed(one, chain, db)), None)


def _checked_end(session: str, chain: Chain, db: sqlite3.Connection) -> SessionEnd | None:
    """The end of *session*, as it was written; None where there is no such session."""
    end = _end(session, db)
    if end is not None:
        chain.check(end)
    return end


def _end(session: str, db: sqlite3.Connection) -> SessionEnd | None:
    from .chain import SessionEnd  # noqa: PLC0415  # as in `_chain`

    found = db.execute(_END, (session,)).fetchone()
    return None if found is None else SessionEnd(*found)


def delete(session: str, incarnation: str, db: sqlite3.Connection) -> bool:
    """Forget *session*; whether there was one."""
    number, _ = number_of(session, incarnation, db)
    # Also of a session without entries: a lease is taken before the first one is written.
    db.execute("delete from leases where session = ?", (session,))
    db.execute("delete from deadlines where session = ?", (session,))
    if number is None:
        return False
    found = (number,)
    of_it = "from stretches where key between ?1 << 32 and ?1 << 32 | 0xffffffff"
    stretches = db.execute(f"select stretch {of_it}", found).fetchall()
    db.executemany("delete from entries where id between ?1 << 32 and ?1 << 32 | 0xffffffff", stretches)
    db.execute(f"delete {of_it}", found)
    # First, so that it has a stamp above that of the session.
    db.execute(_STAMP, (DELETED,))
    db.execute("delete from recents where id = ?", found)
    db.execute("delete from checkpoints where key between ?1 << 32 and ?1 << 32 | 0xffffffff", found)
    db.execute("delete from sessions where id = ?", found)
    return True


def news(sessions: tuple[str, ...], since: Mark | None, db: sqlite3.Connection) -> tuple[Mark, list[str]]:
    """Those of *sessions* that were written to or deleted since then, and the mark of now."""
    (top,) = db.execute(_TOP).fetchone()
    mark = top, _latest_entry(top, db)
    if mark == since:
        return mark, []
    before, end = since or (0, 0)
    written = dict(db.execute(_SINCE, (before,)).fetchall())
    found = {*written.values()}.intersection(sessions)
    # The one that was written last of all keeps its stamp when it goes on.
    if end != _latest_entry(before, db):
        found.update({session for (session,) in db.execute(_THERE, (before,))}.intersection(sessions))
    if DELETED in written or since is None:
        there = "select 1 from sessions where session = ?"
        found.update([name for name in sessions if db.execute(there, (name,)).fetchone() is None])
    return mark, [*found]


def _latest_entry(stamp: int, db: sqlite3.Connection) -> int:
    """The last entry of the session with this *stamp*, 0 for none."""
    found = db.execute(_STAMPED, (stamp,)).fetchone()
    return found[0] if found else 0
