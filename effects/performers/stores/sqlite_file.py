"""The SQLite file of a store: how it is opened, how work is done with it, and what its errors mean."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, final

from ...errors import NewerVersion, StoreError, TurnwheelError
from .sqlite_layout import SCHEMA, UPGRADES, VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .sqlite import Durability
    from .sqlite_thread import Work

T = TypeVar("T")

BUSY_SECONDS = 5.0
"""How long to wait for another process's lock. An append holds it for milliseconds; this long is a hang."""

APPLICATION_ID = 0x7477686C  # "twhl"
"""Stands in the header of the file, so that another program's database is never taken for one of ours."""

_SYNCHRONOUS: dict[Durability, str] = {"power": "full", "process": "normal"}

_WAYS_OUT = {
    sqlite3.SQLITE_BUSY: f"another process kept it for {BUSY_SECONDS:.0f} seconds; end that or try again",
    sqlite3.SQLITE_CANTOPEN: "is it a directory, or one you may not write in? name another path",
    sqlite3.SQLITE_CORRUPT: "take a backup, or save what can be read with sqlite3's .recover",
    sqlite3.SQLITE_FULL: "free some space and try again; nothing was written",
    sqlite3.SQLITE_IOERR: "the disk or its quota failed; look at the system's log and try again",
    sqlite3.SQLITE_NOTADB: "name another path, or move this file away",
    sqlite3.SQLITE_READONLY: "this needs write permission for the file and its directory",
}

_PASSING = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_TOOBIG}
"""What says nothing against the open file. After anything else it is opened anew, to see how it is then."""


@final
class StoreFile:
    """
    The file at *path*, opened when it is needed. For one thread.

    What goes wrong is given back, not raised: a `TurnwheelError` that names the file and a way out. The file
    is made once. One that was there and is not, or is another by now, never becomes a new beginning, and
    what is written into a file that nobody finds any more is not kept.
    """

    def __init__(self, path: str, durability: Durability) -> None:
        self._path = path
        self._place = Path(path).absolute()  # whoever goes to another directory keeps the file
        self._durability: Durability = durability
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # which one it was when it was opened last

    def read(self, work: Work[T]) -> T | Exception:
        """What *work* finds out."""
        try:
            found = work(self._opened())
            self._check()
        except Exception as error:  # noqa: BLE001  # whoever asked is told, whatever it is
            return self._told(error)
        return found

    def write(self, works: Sequence[Work[T]]) -> list[T | Exception]:
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
            self._db = connect(self._place, self._durability)
            found = self._place.stat()
            self._file = found.st_dev, found.st_ino
        return self._db

    def _check_beginning(self) -> None:
        """A file that is not there, or is empty, is made; not so where it was there before."""
        log = self._place.with_name(f"{self._place.name}-wal")
        logged = _size(log)  # looked at first: whoever makes both makes it last
        if _size(self._place):
            return
        if self._file is not None:
            what = "is gone or empty, and was not before"
            way_out = "put it back, or make a new store to begin anew"
            raise self._fault(what, way_out)
        if logged:  # SQLite would delete it
            what = f"is not there or is empty, and its log {str(log)!r} is not"
            way_out = "put the one back, or move the other away to begin anew"
            raise self._fault(what, way_out)

    def _check(self) -> None:
        """Whether others find what was written: SQLite goes on with a file that has no name any more."""
        with suppress(FileNotFoundError):
            found = os.stat(self._place)  # noqa: PTH116  # at each append; Path.stat takes twice as long
            if found.st_size and (found.st_dev, found.st_ino) == self._file:
                return
        self.close()
        what = "was deleted, emptied or replaced while it was open"
        raise self._fault(what, "put it back and try again")

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


def _size(path: Path) -> int:
    """How many bytes are in the file at *path*; 0 where there is none."""
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def _in_one(works: Sequence[Work[T]], db: sqlite3.Connection) -> list[T | Exception]:
    """What came of each of *works*, once all of them are kept in one transaction."""
    db.execute("begin immediate")
    try:
        outcomes = [_apart(work, db) for work in works]
        db.execute("commit")
    except BaseException:
        db.rollback()
        raise
    return outcomes


def _apart(work: Work[T], db: sqlite3.Connection) -> T | Exception:
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
        if layout != VERSION:
            _lay_out(db, path)
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
    if version > VERSION:
        where = f"the layout of store {str(path)!r}"
        raise NewerVersion(where, version, VERSION)
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
        if layout == VERSION:
            return
        steps = [step for older in range(layout, VERSION) for step in UPGRADES[older]] if layout else [SCHEMA]
        for statement in ";".join(steps).split(";"):
            db.execute(statement)
        db.execute(f"pragma application_id = {APPLICATION_ID}")
        db.execute(f"pragma user_version = {VERSION}")
