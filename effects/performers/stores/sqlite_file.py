"""The SQLite file of a store: how it is opened, what is in it, and what its errors mean."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from ...errors import JournalError, StoreError, TurnwheelError

Durability = Literal["power", "process"]
"""What an entry survives: the end of everything but the disk, or the end of the process only."""

BUSY_SECONDS = 5.0
"""How long to wait for another process's lock. An append holds it for milliseconds; this long is a hang."""

APPLICATION_ID = 0x7477686C  # "twhl"
"""Stands in the header of the file, so that another program's database is never taken for one of ours."""

SCHEMA_VERSION = 2
"""The layout below. Raise it with every change, and say in `_UPGRADES` how older files come up to it."""

# Entries keep their rowid: in the tree of their key (WITHOUT ROWID) all that is over 1 kB spills into a page
# of its own, and entries of 1.5 kB took twice the disk and half as many bytes again per append. The lengths
# stand apart, so that neither listing nor comparing ever counts entries.
_SCHEMA = """
create table sessions (
    session text primary key,
    length integer not null,
    created real not null,
    updated real not null,
    about blob not null default x''
) without rowid;
create table entries (
    session text not null,
    seq integer not null,
    at real not null,
    body blob not null,
    primary key (session, seq)
);
"""

_UPGRADES = {1: "alter table sessions add column about blob not null default x''"}
"""What a file of each older layout lacks of the next."""

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


@contextmanager
def explained(path: str) -> Generator[None, None, None]:
    """Raise what goes wrong with the file at *path* as a `StoreError` that names it and a way out."""
    try:
        yield
    except TurnwheelError:
        raise
    except sqlite3.Error as error:
        # Errors that the module raises by itself carry no code.
        code: int = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest are refinements
        way_out = _WAYS_OUT.get(code, "look at the file with the sqlite3 shell")
        msg = f"store {path!r}: {error}; {way_out}"
        raise StoreError(msg) from error
    except UnicodeEncodeError as error:
        msg = f"store {path!r}: {error.object!r} is no valid text; use a session name without surrogates"
        raise StoreError(msg) from error
    except OSError as error:
        msg = f"store {path!r}: {error}; name a path whose directory is there or can be made"
        raise StoreError(msg) from error


def connect(path: str, durability: Durability) -> sqlite3.Connection:
    """The file at *path*, made where it is not there yet, laid out and ready."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)  # transactions are begun by hand
    try:
        with db:
            db.execute("begin")  # one look, since another process may be laying the file out
            layout = _layout(db, path)
        _into_wal(db)
        db.execute(f"pragma synchronous = {_SYNCHRONOUS[durability]}")
        db.execute("pragma fullfsync = on")  # macOS: past the disk's own cache too
        if layout != SCHEMA_VERSION:
            _lay_out(db, path)
    except BaseException:
        db.close()
        raise
    return db


def _layout(db: sqlite3.Connection, path: str) -> int:
    """The layout of the file, 0 where it is new; an error where it is somebody else's or from the future."""
    (owner,) = db.execute("pragma application_id").fetchone()
    version: int = db.execute("pragma user_version").fetchone()[0]
    (tables,) = db.execute("select count(*) from sqlite_master").fetchone()
    if (owner, version, tables) == (0, 0, 0):
        return 0
    if owner != APPLICATION_ID:
        msg = f"store {path!r} is the database of another program; name another path"
        raise StoreError(msg)
    if version > SCHEMA_VERSION:
        msg = (
            f"store {path!r} has layout {version} and this turnwheel knows {SCHEMA_VERSION}: "
            "it was written by a newer one; upgrade turnwheel"
        )
        raise JournalError(msg)
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


def _lay_out(db: sqlite3.Connection, path: str) -> None:
    with db:
        db.execute("begin immediate")
        layout = _layout(db, path)  # again, since another process may have been quicker
        if not layout:
            for statement in _SCHEMA.split(";"):
                db.execute(statement)
            db.execute(f"pragma application_id = {APPLICATION_ID}")
        else:
            for older in range(layout, SCHEMA_VERSION):
                db.execute(_UPGRADES[older])
        db.execute(f"pragma user_version = {SCHEMA_VERSION}")
