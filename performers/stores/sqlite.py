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

import asyncio
import atexit
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from itertools import groupby
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, final, get_args

from ...effects.errors import ConfigError, NewerVersion, StoreError, TurnwheelError
from . import sqlite_schema as layout
from .base import SessionInfo
from .sqlite_schema import LAYOUT_VERSION, SCHEMA, UPGRADES

if TYPE_CHECKING:
    from collections.abc import Iterable

# How the SQLite file of a store is opened: whose it is, which layout it has, and how durable it is.


BUSY_SECONDS = 5.0
"""How long to wait for another process's lock. An append holds it for milliseconds; this long is a hang."""

APPLICATION_ID = 0x7477686C  # "twhl"
"""Stands in the header of the file, so that another program's database is never taken for one of ours."""

_MAGIC = b"SQLite format 3\0"
"""How every database begins; behind it stands how long a page is, and 1 for 64 kB."""

_SYNCHRONOUS: dict[Durability, str] = {"power": "full", "process": "normal"}


def torn(path: str, size: int) -> bool:
    """Whether the file at *path*, of this *size*, ends in a part of a page, of which SQLite makes a whole."""
    with suppress(OSError), Path(path).open("rb") as file:
        head = file.read(18)
        page = int.from_bytes(head[16:], "big")
        return head.startswith(_MAGIC) and size % (page if page > 1 else 65_536) != 0
    return False  # nobody can read it, and SQLite will say so


def connect(path: Path, durability: Durability) -> sqlite3.Connection:
    """The file at *path*, made where it is not there yet, laid out and ready."""
    path.parent.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)  # transactions are begun by hand
    try:
        with db:
            db.execute("begin")  # one look, since another process may be laying the file out
            layout = _layout(db, path)
        _into_wal(db)
        db.execute(f"pragma synchronous = {_SYNCHRONOUS[durability]}")
        db.execute("pragma fullfsync = on")  # macOS: past the disk's own cache too
        if layout != LAYOUT_VERSION:
            _lay_out(db, path)
        db.execute("select 1 from sessions").fetchone()  # which makes the log, at the latest
    except BaseException:
        db.close()
        raise
    return db


def _layout(db: sqlite3.Connection, path: Path) -> int:
    """The layout of the file, 0 where it is new; an error where it is somebody else's or from the future."""
    (owner,) = db.execute("pragma application_id").fetchone()
    version: int = db.execute("pragma user_version").fetchone()[0]
    (tables,) = db.execute("select count(*) from sqlite_master").fetchone()
    if (owner, version, tables) == (0, 0, 0):
        return 0
    if owner != APPLICATION_ID:
        msg = f"store {str(path)!r} is the database of another program; name another path"
        raise StoreError(msg)
    if version > LAYOUT_VERSION:
        where = f"the layout of store {str(path)!r}"
        raise NewerVersion(where, version, LAYOUT_VERSION)
    return version


def _into_wal(db: sqlite3.Connection) -> None:
    """Put the file into WAL mode. This one lock SQLite does not wait for by itself."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            db.execute("pragma journal_mode = wal")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        else:
            return
        time.sleep(0.01)


def _lay_out(db: sqlite3.Connection, path: Path) -> None:
    """Make the tables, or bring older ones up to date: all of it at once, or nothing."""
    with db:
        db.execute("begin immediate")
        layout = _layout(db, path)  # again, since another process may have been quicker
        if layout == LAYOUT_VERSION:
            return
        steps = (
            [step for older in range(layout, LAYOUT_VERSION) for step in UPGRADES[older]]
            if layout
            else [SCHEMA]
        )
        for statement in ";".join(steps).split(";"):
            db.execute(statement)
        db.execute(f"pragma application_id = {APPLICATION_ID}")
        db.execute(f"pragma user_version = {LAYOUT_VERSION}")


# The thread in which the file of a store is used, and the jobs that are handed over to it.


T = TypeVar("T")

StoreWork: TypeAlias = "Callable[[sqlite3.Connection], T]"
"""What is to be done with an open file."""

Jobs: TypeAlias = "SimpleQueue[StoreJob[Any] | None]"
"""What a thread is handed; None ends it."""


class JobKind(Enum):
    """What a job does. Those that write, one behind the other, may share a transaction."""

    READ = auto()
    WRITE = auto()
    END = auto()


@final
class StoreJob(Generic[T]):
    """*work* for a thread to do, asked for by a task of the event loop that is running."""

    value: T

    def __init__(self, work: StoreWork[T], kind: JobKind) -> None:
        self.work = work
        self.kind = kind
        self.error: Exception | None = None
        self.loop = asyncio.get_running_loop()
        self._told = False
        self._waiting: asyncio.Future[None] | None = None

    async def done(self) -> T:
        """
        What came of it, waited for even when the waiting task is cancelled: then that is raised at the end.

        So a cancelled caller knows that its work is done, and a failure is told rather than lost.
        """
        cancelled: asyncio.CancelledError | None = None
        while not self._told:
            self._waiting = self.loop.create_future()
            try:
                await self._waiting
            except asyncio.CancelledError as error:
                cancelled = error
        if self.error is not None:
            raise self.error
        if cancelled is not None:
            raise cancelled
        return self.value

    def settle(self, outcome: T | Exception) -> None:
        """Note what came of it, in the thread."""
        if isinstance(outcome, Exception):
            self.error = outcome
        else:
            self.value = outcome

    def tell(self) -> None:
        """Wake whoever waits, in the event loop, now that it is settled."""
        self._told = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


at_work: dict[threading.Thread, Jobs] = {}
"""The threads that have not ended, and what each is handed."""


def start(path: str, durability: Durability) -> Jobs:
    """A thread that does what it is handed with the file at *path*, until it is handed None."""
    # whoever keeps nothing on a disk need not import sqlite3

    jobs: Jobs = SimpleQueue()
    thread = threading.Thread(
        target=_serve, args=(jobs, StoreFile(path, durability)), name="turnwheel-sqlite", daemon=True
    )
    at_work[thread] = jobs
    thread.start()
    return jobs


@atexit.register
def _finish() -> None:
    """Have all done that was handed over: when the interpreter exits, daemon threads stop anywhere."""
    for thread, jobs in list(at_work.items()):
        jobs.put(None)
        thread.join()


def _serve(jobs: Jobs, file: StoreFile) -> None:
    while _worked_off(_waiting(jobs), file):
        pass  # and nothing of the last jobs is held on to while it waits for the next
    at_work.pop(threading.current_thread(), None)


def _waiting(jobs: Jobs) -> list[StoreJob[Any] | None]:
    """All jobs there are, at least one, in the order they were handed over."""
    waiting = [jobs.get()]
    while not jobs.empty():  # nobody else takes any
        waiting.append(jobs.get())
    return waiting


def _worked_off(waiting: Iterable[StoreJob[Any] | None], file: StoreFile) -> bool:
    """Do the jobs that are *waiting*; whether there will be others."""
    for kind, alike in groupby(waiting, lambda job: JobKind.END if job is None else job.kind):
        group = [job for job in alike if job is not None]
        if kind is JobKind.WRITE:
            outcomes = file.write([job.work for job in group])
            for job, outcome in zip(group, outcomes, strict=True):
                job.settle(outcome)
        elif kind is JobKind.READ:
            for job in group:
                job.settle(file.read(job.work))
        else:
            closed = file.close()
            for job in group:
                job.settle(closed)
        _tell(group)
        if kind is JobKind.END:
            return False
    return True


def _tell(group: Iterable[StoreJob[Any]]) -> None:
    """Wake those who wait for the jobs of *group*: one call for each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[StoreJob[Any]]] = {}
    for job in group:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, told in by_loop.items():
        with suppress(RuntimeError):  # the loop is closed, nobody waits
            loop.call_soon_threadsafe(_tell_all, told)


def _tell_all(told: Iterable[StoreJob[Any]]) -> None:
    for job in told:
        job.tell()


# The SQLite file of a store: how work is done with it, what can happen to it, and what its errors mean.


_WAYS_OUT = {
    sqlite3.SQLITE_BUSY: f"another process kept it for {BUSY_SECONDS:.0f} seconds; end that or try again",
    sqlite3.SQLITE_CANTOPEN: "is it a directory, or one you may not write in? name another path",
    sqlite3.SQLITE_CORRUPT: "take a backup, or save what can be read with sqlite3's .recover",
    sqlite3.SQLITE_FULL: "free some space and try again; nothing was written",
    sqlite3.SQLITE_IOERR: "the disk or its quota failed; look at the system's log and try again",
    sqlite3.SQLITE_NOTADB: "name another path, or move this file away",
    sqlite3.SQLITE_READONLY: "you may not write in it, in what begins like it, or in its directory",
}

_PASSING = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_TOOBIG}
"""What says nothing against the open file. After anything else it is opened anew, to see how it is then."""


@final
class StoreFile:
    """
    The file at *path*, opened when it is needed. For one thread.

    What goes wrong is given back, not raised: a `TurnwheelError` that names the file and a way out. The file
    is made once. One that was there and is not, or is another by now, never becomes a new beginning, and
    what is written where nobody finds it any more is not kept.
    """

    def __init__(self, path: str, durability: Durability) -> None:
        self._path = path
        self._place = os.path.abspath(path)  # noqa: PTH100  # whoever goes elsewhere keeps the file
        self._log = f"{self._place}-wal"
        self._durability: Durability = durability
        self._db: sqlite3.Connection | None = None
        self._files: tuple[_File, _File] | None = None  # itself and its log, when it was opened last
        self._size = 0
        self._suspect = False

    def read(self, work: StoreWork[T]) -> T | Exception:
        """What *work* finds out."""
        try:
            found = work(self._opened())
            self._check()
        except Exception as error:  # noqa: BLE001  # whoever asked is told, whatever it is
            return self._told(error)
        return found

    def write(self, works: Sequence[StoreWork[T]]) -> list[T | Exception]:
        """
        What came of each of *works*, done in one transaction that is kept by now.

        One that fails has done nothing and the others have; where the transaction fails, all have failed.
        """
        try:
            outcomes = _in_one(works, self._opened())
            self._check()
        except Exception as error:  # noqa: BLE001  # as above
            return [self._told(error) for _ in works]
        return [self._told(one) if isinstance(one, Exception) else one for one in outcomes]

    def close(self) -> Exception | None:
        """Let go of the file."""
        db, self._db = self._db, None
        try:
            if db is not None:
                db.close()
        except sqlite3.Error as error:
            return self._told(error)
        return None

    def _opened(self) -> sqlite3.Connection:
        if self._db is None:
            self._check_beginning()
            db = connect(Path(self._place), self._durability)
            try:
                if self._suspect:
                    self._check_all(db)
                file, log = os.stat(self._place), os.stat(self._log)  # noqa: PTH116  # as in `_check`
            except BaseException:
                db.close()
                raise
            self._db, self._files, self._size = db, (_which(file), _which(log)), file.st_size
            self._suspect = False
        elif self._suspect:
            self._check()
        return self._db

    def _check_beginning(self) -> None:
        """What is not there, or is empty, is made; not so where it was there before, or its log still is."""
        log = _status(self._log)  # looked at first: whoever makes both makes it last
        file = _status(self._place)
        if file is not None and file.st_size:
            if not (log is not None and log.st_size) and torn(self._place, file.st_size):
                what = "is damaged: its last page is not whole"
                raise self._fault(what, _WAYS_OUT[sqlite3.SQLITE_CORRUPT])
            return
        if self._files is not None:
            what = "is gone or empty, and was not before"
            raise self._fault(what, "put it back, or make a new store to begin anew")
        if log is not None and log.st_size:  # SQLite would delete it
            what = f"is not there or is empty, and its log {self._log!r} is not"
            raise self._fault(what, "put the one back, or move the other away to begin anew")

    def _check_all(self, db: sqlite3.Connection) -> None:
        """Whether the file is sound: what was cut off may be a page that is not needed for a long time."""
        (found,) = db.execute("pragma quick_check(1)").fetchone()
        if found != "ok":
            what = f"is damaged: {found.splitlines()[-1]}"
            raise self._fault(what, _WAYS_OUT[sqlite3.SQLITE_CORRUPT])

    def _check(self) -> None:
        """Whether others find what was written: SQLite goes on with files that have no name any more."""
        try:
            # Not with Path, which takes twice as long, for every append.
            file, log = os.stat(self._place), os.stat(self._log)  # noqa: PTH116  # as said
        except FileNotFoundError:
            pass
        else:
            if (_which(file), _which(log)) == self._files and file.st_size >= self._size:
                self._size, self._suspect = file.st_size, False
                return
        self._suspect = True
        here = _status(self._place)
        if here is None or self._files is None or _which(here) != self._files[0]:
            # Nothing else may have what is in it, so it is held on to.
            what = "was deleted, moved or replaced while it was open"
            way_out = f"put it back to go on, or move its log {self._log!r} away too to begin anew"
            raise self._fault(what, way_out)
        if self._db is not None:
            with suppress(sqlite3.Error):
                self._db.execute("pragma wal_checkpoint")  # what was in the log is in the file then
        self.close()
        what = "was emptied or cut off, or lost its log, while it was open"
        raise self._fault(what, "try again, to see what is left")

    def _fault(self, what: str, way_out: str) -> StoreError:
        return StoreError(f"store {self._path!r} {what}; {way_out}")

    def _told(self, error: Exception) -> Exception:
        """*error* as whoever asked for the work is to see it: each an error of its own."""
        # Errors that the module raises by itself carry no code.
        code: int = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest are refinements
        if code and code not in _PASSING:
            self.close()
        msg = f"store {self._path!r}: "
        match error:
            case TurnwheelError():
                return type(error)(*error.args)
            case sqlite3.Error():
                way_out = _WAYS_OUT.get(code, "look at the file with the sqlite3 shell")
                told = StoreError(f"{msg}{error}; {way_out}")
            case UnicodeEncodeError():
                way_out = "use a session name without surrogates"
                told = StoreError(f"{msg}{error.object!r} is no valid text; {way_out}")
            case OSError():
                told = StoreError(f"{msg}{error}; name a path whose directory is there or can be made")
            case _:
                return error
        told.__cause__ = error
        return told


_File: TypeAlias = tuple[int, int]


def _which(status: os.stat_result) -> _File:
    """Which file it is, whatever it is called."""
    return status.st_dev, status.st_ino


def _status(path: str) -> os.stat_result | None:
    """What the system says of the file at *path*, if there is one."""
    with suppress(FileNotFoundError):
        return os.stat(path)  # noqa: PTH116  # as above
    return None


def _in_one(works: Sequence[StoreWork[T]], db: sqlite3.Connection) -> list[T | Exception]:
    """What came of each of *works*, once all of them are kept in one transaction."""
    alone = len(works) == 1  # so there is nothing to take back but the transaction
    db.execute("begin immediate")
    try:
        outcomes: list[T | Exception] = [work(db) if alone else _apart(work, db) for work in works]
        db.execute("commit")
    except BaseException:
        db.rollback()
        raise
    return outcomes


def _apart(work: StoreWork[T], db: sqlite3.Connection) -> T | Exception:
    """What came of *work*; where it fails, nothing of it is left, and all else in the transaction is."""
    db.execute("savepoint work")
    try:
        outcome: T | Exception = work(db)
    except Exception as error:
        if not db.in_transaction:
            raise  # SQLite gave up all of it
        db.execute("rollback to work")
        outcome = error
    db.execute("release work")
    return outcome


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
        return await self._do(partial(layout.append, added, self._now), JobKind.WRITE)

    async def load(self, session: str, start: int = 0) -> Sequence[bytes]:
        """The entries of *session* from index *start* on; see `Store.load`."""
        return await self._do(partial(layout.load, session, start))

    async def list(self) -> Sequence[SessionInfo]:
        """All sessions, last written first."""
        return await self._do(layout.list_sessions)

    async def delete(self, session: str) -> bool:
        """Forget *session*; whether there was one."""
        return await self._do(partial(layout.delete, session), JobKind.WRITE)

    async def close(self) -> None:
        """Close the file when what was asked before is done. Closing twice is fine."""
        with self._lock:
            self._closed = True
            jobs, self._jobs = self._jobs, None
            if jobs is None:
                return
            jobs.put(ending := StoreJob(_nothing, JobKind.END))
        await ending.done()

    async def _do(self, work: StoreWork[T], kind: JobKind = JobKind.READ) -> T:
        job = StoreJob(work, kind)
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
