"""How the SQLite file of a store is opened: whose it is, which layout it has, and how durable it is."""

from __future__ import annotations

import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import NewerVersion, StoreError
from .sqlite_layout import SCHEMA, UPGRADES, VERSION

if TYPE_CHECKING:
    from .sqlite import Durability

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
        if layout != VERSION:
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
