"""The SQLite file of a store: how work is done with it, what can happen to it, and what its errors mean."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar, final

from ...errors import StoreError, TurnwheelError
from .sqlite_opening import BUSY_SECONDS, connect, torn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .sqlite import Durability
    from .sqlite_thread import Work

T = TypeVar("T")

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


def _in_one(works: Sequence[Work[T]], db: sqlite3.Connection) -> list[T | Exception]:
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
