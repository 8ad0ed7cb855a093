"""
The file of a `SQLiteStore`: how it is opened, how work is done with it, and what its errors mean.

Theory of operation. A file is made once, and after that it is only found. Every use of it ends with a look
whether the path still names the file that was opened, since SQLite does not look. A file that was cut off,
emptied, replaced or deleted is an error that says so, and never an empty store. One on a read-only file
system is read by a copy, which is made anew where the file has changed.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NoReturn, TypeAlias, TypeVar, final

from ...effects.errors import NewerVersion, StoreError, TurnwheelError
from .base import Durability

if TYPE_CHECKING:
    from .chain import Chain

T = TypeVar("T")

# What a job does with an open file.
StoreWork: TypeAlias = Callable[[sqlite3.Connection], T]

# How often a file is copied that is written to meanwhile.
COPIES = 5

# How long to wait for another process's lock. An append holds it for milliseconds; this long is a hang.
BUSY_SECONDS = 5.0

_WAYS_OUT = {
    sqlite3.SQLITE_BUSY: f"another process kept it for {BUSY_SECONDS:.0f} seconds; end that or try again",
    sqlite3.SQLITE_CANTOPEN: "is it a directory, or one you may not write in? name another path",
    sqlite3.SQLITE_CORRUPT: "take a backup, or save what can be read with sqlite3's .recover",
    sqlite3.SQLITE_ERROR: "another program changed the file: restore it from a backup, or name another path",
    sqlite3.SQLITE_FULL: "free some space and try again; nothing was written",
    sqlite3.SQLITE_IOERR: "the disk or its quota failed; look at the system's log and try again",
    sqlite3.SQLITE_NOTADB: "name another path, or move this file away",
    sqlite3.SQLITE_READONLY: "you may not write in it, in what begins like it, or in its directory",
}

# Errors that say nothing against the open file. After any other it is opened anew, to see how it is then.
_PASSING = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_TOOBIG}


@final
class StoreFile:
    """
    The file at *path*, which is *place* on the disk, opened when it is needed. For one thread.

    Errors are given back, not raised: a `TurnwheelError` that names the file and a way out. The file is made
    once. One that was there and is not, or is another by now, never becomes a new beginning, and entries that
    went where no reader finds them count as not kept.
    """

    def __init__(self, path: str, place: str, durability: Durability, chain: Chain | None = None) -> None:
        self.path = path
        self._place = place
        self._log = f"{self._place}-wal"
        self._durability: Durability = durability
        self._mark = None if chain is None else chain.mark
        self._db: sqlite3.Connection | None = None
        self._files: tuple[_File, _File] | None = None  # itself and its log, when it was opened last
        self._size = 0
        self._suspect = False  # it was cut off or replaced, so the next opening looks at all of it
        # Of a file that is read by a copy: the copy, and what the file and its log were then.
        self._copy: TemporaryDirectory[str] | None = None
        self._copied_from: _Stamps | None = None

    def read(self, work: StoreWork[T]) -> T | Exception:
        """What *work* finds out."""
        return self._done(lambda db: [work(db)])[0]

    def write(self, works: Sequence[StoreWork[T]], *, lasting: bool = True) -> list[T | Exception]:
        """
        What came of each of *works*, done in one transaction that is kept by now.

        One that fails has done nothing and the others have; where the transaction fails, all have failed.
        One that need not be *lasting* waits for no disk, and survives the end of this process only.
        """
        relaxed = not lasting and self._durability == "power"
        return self._done(partial(_relaxed if relaxed else _in_one, works), len(works))

    def _done(self, work: StoreWork[list[T | Exception]], count: int = 1) -> list[T | Exception]:
        """The outcomes of *work*, as many as *count*."""
        try:
            db = self._opened()
            try:
                outcomes = work(db)
            finally:
                # Behind the commit: SQLite reports success for a file that was deleted under it, and damage
                # for one that was cut off.
                self._check()
        except Exception as error:  # noqa: BLE001  # its caller gets it, whatever it is
            return [self._explained(error) for _ in range(count)]
        return [self._explained(one) if isinstance(one, Exception) else one for one in outcomes]

    def close(self) -> Exception | None:
        """Let go of the file."""
        db, self._db = self._db, None
        copy, self._copy, self._copied_from = self._copy, None, None
        try:
            if db is not None:
                db.close()
            if copy is not None:
                copy.cleanup()
        except (sqlite3.Error, OSError) as error:
            return self._explained(error)
        return None

    def _opened(self) -> sqlite3.Connection:
        if self._db is not None and self._copied_from not in {None, _stamps(self._place, self._log)}:
            # Written to elsewhere, where it is not mounted read-only.
            self.close()
        if self._db is None:
            try:
                self._db = self._opened_to_write()
            except (sqlite3.OperationalError, OSError):
                if not is_mounted_read_only(self._place):
                    raise
                self._db = self._opened_to_read()
            self._suspect = False
        elif self._suspect:
            self._check()
        return self._db

    def _opened_to_write(self) -> sqlite3.Connection:
        size = self._check_beginning()
        Path(self._place).parent.mkdir(parents=True, exist_ok=True)
        db = _connected(self._place)
        try:
            self._check_pages(db, size)
            _prepare(db, self._place, self._durability, self._mark)
            if self._suspect:
                self._check_all(db)
            self._files, self._size = self._status()
        except BaseException:
            db.close()
            raise
        return db

    def _opened_to_read(self) -> sqlite3.Connection:
        """A copy of the file, which is on a read-only file system: SQLite would have to write beside it."""
        for _ in range(COPIES):
            stamps, self._copy = _stamps(self._place, self._log), TemporaryDirectory(prefix="turnwheel-")
            for each in (self._place, self._log):
                with suppress(FileNotFoundError):
                    shutil.copy(each, self._copy.name)
            if stamps == _stamps(self._place, self._log):
                break
        else:
            raise _fault(self, "keeps being written to while it is copied", "try again")
        db = _connected(f"{Path(self._copy.name, Path(self._place).name).as_uri()}?mode=ro", uri=True)
        try:
            if _layout(db, self._place):
                _check_mark(db, self._place, self._mark)
            else:
                self._refuse_empty()
        except BaseException:
            db.close()
            raise
        self._files, self._copied_from = None, stamps
        return db

    def _refuse_empty(self) -> NoReturn:
        raise _fault(self, "is empty, and on a read-only file system", "name another path")

    def _status(self) -> tuple[tuple[_File, _File], int]:
        """Which files the path and its log are now, and how large the first is."""
        # Not with Path, which takes twice as long, for every append.
        file, log = os.stat(self._place), os.stat(self._log)  # noqa: PTH116  # as said
        return (_which(file), _which(log)), file.st_size

    def _check_beginning(self) -> int:
        """
        Refuse a link, and to make a file that was there before, or whose log still is.

        Its size, in bytes, where it has to be whole pages. Nothing is read here: closing a file gives up all
        locks that connections of this process have on it.
        """
        # SQLite keeps the log beside the file, where this store would not look for it.
        if Path(self._place).is_symlink():
            raise _fault(
                self, "is a symbolic link", f"name the file itself, {os.path.realpath(self._place)!r}"
            )
        # The log is looked at first: a process that makes both makes it last. The other way round, a file
        # that another process makes in between would look like one that lost its beginning.
        log, file = _stat(self._log), _stat(self._place)
        if file is not None and file.st_size:
            # With a log it may be in the middle of growing.
            return 0 if log is not None and log.st_size else file.st_size
        if self._files is not None:
            way_out = "put it back, or make a new store to begin anew"
            raise _fault(self, "is gone or empty, and was not before", way_out)
        if log is not None and log.st_size:  # SQLite would delete it, and with it the last entries
            what = f"is not there or is empty, and its log {self._log!r} is not"
            raise _fault(self, what, "put the one back, or move the other away to begin anew")
        return 0

    def _check_pages(self, db: sqlite3.Connection, size: int) -> None:
        """Refuse a file that ends in a part of a page; *size* is in bytes."""
        # SQLite fills such a part up to a whole page, and goes on without the entries that were cut off.
        if size and size % _page_size(db):
            raise _fault(self, "is damaged: its last page is not whole", _WAYS_OUT[sqlite3.SQLITE_CORRUPT])

    def _check_all(self, db: sqlite3.Connection) -> None:
        # The part that was cut off may be a page that no query needs for a long time.
        (found,) = db.execute("pragma quick_check(1)").fetchone()
        if found != "ok":
            what = f"is damaged: {found.splitlines()[-1]}"
            raise _fault(self, what, _WAYS_OUT[sqlite3.SQLITE_CORRUPT])

    def _check(self) -> None:
        """Make sure that other processes find what was written, and raise where they do not."""
        if self._copied_from is not None:
            # Nothing is written to a copy.
            return
        # SQLite goes on happily with a file that has no name any more: every append would succeed, and all of
        # them would be gone with this process.
        try:
            files, size = self._status()
        except FileNotFoundError:
            files, size = None, 0
        if files is not None and files == self._files and size >= self._size:
            self._size, self._suspect = size, False
            return
        self._suspect = True
        here = _stat(self._place)
        if here is None or self._files is None or _which(here) != self._files[0]:
            # It may be the last copy of its entries, so the connection, which can still copy them, stays
            # open.
            way_out = f"put it back to go on, or move its log {self._log!r} away too to begin anew"
            raise _fault(self, "was deleted, moved or replaced while it was open", way_out)
        if self._db is not None:
            with suppress(sqlite3.Error):
                # The log may hold pages that the file has lost; this puts them back while it is still open.
                self._db.execute("pragma wal_checkpoint")
        self.close()
        what = "was emptied or cut off, or lost its log, while it was open"
        raise _fault(self, what, "try again, to see what is left")

    def _explained(self, error: Exception) -> Exception:
        """*error* with the file and a way out; each caller gets an error of its own."""
        # Two tasks that raise one object would write into each other's traceback.
        # Its other bits refine the code; some errors have none.
        code: int = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code and code not in _PASSING and not (self._copy and code == sqlite3.SQLITE_READONLY):
            self.close()
        what: object = error
        match error:
            case TurnwheelError():
                return type(error)(*error.args)
            case sqlite3.Error():
                way_out = _WAYS_OUT.get(code, "look at the file with the sqlite3 shell")
            case UnicodeEncodeError():
                what, way_out = f"{error.object!r} is no valid text", "use a session name without surrogates"
            case OSError():
                way_out = "name a path whose directory is there or can be made"
            case _:
                return error
        explained = StoreError(f"store {self.path!r}: {what}; {way_out}")
        explained.__cause__ = error
        return explained


def is_mounted_read_only(place: str) -> bool:
    """Whether the file *place* is there, on a file system that is mounted read-only."""
    try:
        return bool(os.statvfs(place).f_flag & os.ST_RDONLY)
    except (OSError, AttributeError):
        # It is not there yet, or the system cannot tell.
        return False


def _stamps(*paths: str) -> _Stamps:
    statuses = [_stat(path) for path in paths]
    return tuple(
        [None if each is None else (*_which(each), each.st_size, each.st_mtime_ns) for each in statuses]
    )


def _connected(database: str, *, uri: bool = False) -> sqlite3.Connection:
    # Transactions are begun by hand.
    db = sqlite3.connect(database, timeout=BUSY_SECONDS, isolation_level=None, uri=uri)
    # What another program wrote is text of any bytes: one such row must not hide the others.
    db.text_factory = partial(str, encoding="utf-8", errors="backslashreplace")
    return db


def _fault(file: StoreFile, what: str, way_out: str) -> StoreError:
    return StoreError(f"store {file.path!r} {what}; {way_out}")


_File: TypeAlias = tuple[int, int]
# Numbers of a file and of its log: they change where one of the two is written to.
_Stamps: TypeAlias = tuple[tuple[int, ...] | None, ...]


def _which(status: os.stat_result) -> _File:
    """Which file it is, under any name."""
    return status.st_dev, status.st_ino


def _stat(path: str) -> os.stat_result | None:
    with suppress(FileNotFoundError):
        return os.stat(path)  # noqa: PTH116  # as above
    return None


def _page_size(db: sqlite3.Connection) -> int:
    """How long a page of the file is, in bytes."""
    # For what is no database the length is a guess, and only reading something fails.
    db.execute("pragma schema_version").fetchone()
    size: int = db.execute("pragma page_size").fetchone()[0]
    return size


def _relaxed(works: Sequence[StoreWork[T]], db: sqlite3.Connection) -> list[T | Exception]:
    """As `_in_one`, without waiting for the disk."""
    db.execute(f"pragma synchronous = {_SYNCHRONOUS['process']}")
    try:
        return _in_one(works, db)
    finally:
        db.execute(f"pragma synchronous = {_SYNCHRONOUS['power']}")


def _in_one(works: Sequence[StoreWork[T]], db: sqlite3.Connection) -> list[T | Exception]:
    """What came of each of *works*, once all of them are kept in one transaction."""
    alone = len(works) == 1  # so there is nothing to take back but the transaction
    # Immediate: a transaction that reads first and then writes fails as busy, without any wait, when another
    # process wrote in between.
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
            # On a full disk, for one, SQLite rolls back all of it, and there is no savepoint to go back to.
            raise
        db.execute("rollback to work")
        outcome = error
    db.execute("release work")
    return outcome


# How the file is opened: whose it is, which layout it has, and how durable it is.


# The version of the layout below. Raise it with every change once it is released, and have `_lay_out` upgrade
# older files.
LAYOUT_VERSION = 1

# An append costs the pages that it touches. Entries are only ever added behind all others, of any session,
# which is cheapest: in the middle of a tree full pages are moved about. Neighbours of one session form a
# stretch: the key of an entry is the number of its stretch and, below that, its place in it. So to go on
# with the last stretch of all touches the page of the entry and no other. Only where another session came
# between does a new stretch begin, which is a small row. The length of a session and the time of its last
# entry are read off that entry, so its own row changes with its summary only, which is seldom.
_JOURNALS = """
create table sessions (
    id integer primary key,
    session text not null unique,
    created real not null,
    about blob not null default x'',
    incarnation text not null default '', -- tells a session from a deleted one of the same name
    seal blob -- signature of the end of the journal, see `chain`
);
create table stretches (
    key integer primary key, -- id of the session << 32 | how many entries it had before
    stretch integer not null
);
create table entries (
    id integer primary key, -- stretch << 32 | how many stand before it there
    at real not null,
    body blob not null,
    mac blob -- signature, see `chain`, or null without a key
);
create table signed (mark blob not null); -- the mark of the key, if there is one
"""

# By name and not by the id of the session, which may have no entry yet when a process begins to work on it.
_LEASES = """
create table leases (session text primary key, body blob not null) without rowid;
"""

# In which order the sessions were written: the one with the highest stamp last. A session that goes on by
# itself keeps its stamp, so a row is written only with a new stretch. The latest deletion has a stamp, too:
# so none is given twice.
_RECENTS = """
create table recents (
    id integer primary key, -- of the session, or 0 for the latest deletion
    stamp integer not null unique
);
"""

# Found like the stretches of a session. Checkpoints are large beside entries, and so in a table of their own.
_CHECKPOINTS = """
create table checkpoints (
    key integer primary key, -- id of the session << 32 | how many entries led there
    body blob not null,
    mac blob -- as of an entry
);
"""

# What processes count together.
_METERS = """
create table meters (name text primary key, body blob not null) without rowid;
"""

# When a process is wanted for a session.
_DEADLINES = """
create table deadlines (session text primary key, due real not null) without rowid;
create index deadlines_by_due on deadlines (due);
"""

SCHEMA = _JOURNALS + _LEASES + _RECENTS + _CHECKPOINTS + _METERS + _DEADLINES

# Stands in the header of the file, so that another program's database is never taken for one of ours.
APPLICATION_ID = 0x7477686C  # "twhl"

# In WAL mode "normal" leaves the log unsynced: an entry is in the page cache, which outlives this process
# only.
_SYNCHRONOUS: dict[Durability, str] = {"power": "full", "process": "normal"}


def _prepare(db: sqlite3.Connection, path: str, durability: Durability, mark: bytes | None) -> None:
    """
    Lay out the file at *path* where it is new, and make it *durability* durable.

    Raises where it is not signed with the key of *mark*.
    """
    with db:
        db.execute("begin")  # one look, since another process may be laying the file out
        layout = _layout(db, path)
    _into_wal(db)
    db.execute(f"pragma synchronous = {_SYNCHRONOUS[durability]}")
    # macOS: an ordinary fsync stops at the disk's own cache, which a power cut empties.
    db.execute("pragma fullfsync = on")
    if not layout:
        _lay_out(db, path, mark)
    _check_mark(db, path, mark)
    # SQLite makes the log with the first read at the latest, and `StoreFile` needs to know which it is.
    db.execute("select 1 from sessions").fetchone()


def _layout(db: sqlite3.Connection, path: str) -> int:
    """The layout of the file, 0 where it is new; raises for another program's file and for a newer one."""
    (owner,) = db.execute("pragma application_id").fetchone()
    version: int = db.execute("pragma user_version").fetchone()[0]
    (tables,) = db.execute("select count(*) from sqlite_master").fetchone()
    if (owner, version, tables) == (0, 0, 0):
        return 0
    if owner != APPLICATION_ID:
        msg = f"store {path!r} is the database of another program; name another path"
        raise StoreError(msg)
    if version > LAYOUT_VERSION:
        where = f"the layout of store {path!r}"
        raise NewerVersion(where, version, LAYOUT_VERSION)
    return version


def _into_wal(db: sqlite3.Connection) -> None:
    """Put the file into WAL mode."""
    # SQLite's own timeout does not cover the lock of this one statement: with two processes that open a new
    # file at once, one fails as busy without any wait.
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


def _check_mark(db: sqlite3.Connection, path: str, mark: bytes | None) -> None:
    """Raise where the file is signed otherwise than *mark* says."""
    (there,) = db.execute("select max(mark) from signed").fetchone()
    if there == mark:
        return
    if there is None:
        problem = "was written without a key: open it without one, or copy its sessions into a new file"
    elif mark is None:
        problem = "is signed: open it with its key, as SQLiteStore(path, key=...)"
    else:
        problem = "is signed with another key: open it with that one"
    msg = f"store {path!r} {problem}"
    raise StoreError(msg)


def _lay_out(db: sqlite3.Connection, path: str, mark: bytes | None) -> None:
    """Make the tables: all of them at once, or none."""
    with db:
        db.execute("begin immediate")
        if _layout(db, path):  # again, since another process may have been quicker
            return
        # One statement at a time: `executescript` would commit the transaction first.
        for statement in SCHEMA.split(";"):
            db.execute(statement)
        if mark is not None:
            db.execute("insert into signed values (?)", (mark,))
        db.execute(f"pragma application_id = {APPLICATION_ID}")
        db.execute(f"pragma user_version = {LAYOUT_VERSION}")
