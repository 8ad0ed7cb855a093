"""
What a file keeps beside the journals, as it is asked of it: leases, deadlines, meters and checkpoints.

Each is a row of its own, by the name of a session or of a meter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, final

import attrs

from ...effects.errors import SessionGone
from .base import MAX_OVERDUE

if TYPE_CHECKING:
    import sqlite3

    from .chain import Chain


def number_of(session: str, incarnation: str, db: sqlite3.Connection) -> tuple[int | None, str]:
    """The id and the incarnation of *session*; `SessionGone` where it is not the named *incarnation*."""
    found = db.execute("select id, incarnation from sessions where session = ?", (session,)).fetchone()
    number, there = found or (None, "")
    check_incarnation(session, incarnation, there)
    return number, there


def check_incarnation(session: str, named: str, there: str) -> None:
    """Raise `SessionGone` where the incarnation *named* of *session* is not the one that is *there*."""
    if named and named != there:
        raise SessionGone(session, bool(there))


def lease(
    session: str, held: bytes | None, wanted: bytes | None, incarnation: str, db: sqlite3.Connection
) -> bytes | None:
    """Put *wanted* in the place of *held* as the lease of *session*; the lease from then on."""
    if incarnation:
        number_of(session, incarnation, db)
    there = _swapped(("leases", "session"), session, held, wanted, db)
    return wanted if there == held else there


def meter(
    name: str, held: bytes | None, wanted: bytes | None, now: Callable[[], float], db: sqlite3.Connection
) -> tuple[bytes | None, float]:
    """Put *wanted* in the place of *held* as the meter *name*; what was there, and the time."""
    return _swapped(("meters", "name"), name, held, wanted, db), now()


def _swapped(
    place: tuple[str, str], name: str, held: bytes | None, wanted: bytes | None, db: sqlite3.Connection
) -> bytes | None:
    """Put *wanted* in the place of *held* as the row *name* of a table and its key; what was there."""
    table, key = place
    found = db.execute(f"select body from {table} where {key} = ?", (name,)).fetchone()  # noqa: S608  # of ours
    there: bytes | None = found and found[0]
    if there != held or held == wanted:
        # A look is in no transaction: what came into the place meanwhile is not to be touched.
        return there
    if wanted is None:
        db.execute(f"delete from {table} where {key} = ?", (name,))  # noqa: S608  # as above
    else:
        db.execute(f"insert or replace into {table} values (?, ?)", (name, wanted))  # noqa: S608  # as above
    return there


def renew(renewals: Mapping[str, tuple[bytes, bytes]], db: sqlite3.Connection) -> list[str]:
    """Put leases in the place of others; the sessions where those are not there."""
    return [name for name, (held, wanted) in renewals.items() if lease(name, held, wanted, "", db) != wanted]


def leases(db: sqlite3.Connection) -> dict[str, bytes]:
    """The leases of all sessions that have one."""
    return dict(db.execute("select session, body from leases").fetchall())


def set_deadline(session: str, due: float | None, incarnation: str, db: sqlite3.Connection) -> None:
    """Keep *due* as the deadline of *session*, where that is there; None forgets it."""
    number, _ = number_of(session, incarnation, db)
    if number is None or due is None:
        db.execute("delete from deadlines where session = ?", (session,))
    else:
        db.execute("insert or replace into deadlines values (?, ?)", (session, due))


def overdue(moment: float, skip: int, db: sqlite3.Connection) -> list[str]:
    """The sessions whose deadline is *moment* or before, the earliest first, behind *skip*."""
    asked = "select session from deadlines where due <= ? order by due limit ? offset ?"
    return [session for (session,) in db.execute(asked, (moment, MAX_OVERDUE, skip))]


@final
@attrs.frozen
class NewCheckpoint:
    """What `SQLiteStore.keep_checkpoint` was asked for."""

    session: str
    position: int
    body: bytes
    first: int
    incarnation: str


def keep_checkpoint(new: NewCheckpoint, chain: Chain | None, db: sqlite3.Connection) -> None:
    """Keep *new*, and of the others those from its first one on before it."""
    number, incarnation = number_of(new.session, new.incarnation, db)
    if number is None:
        return
    of_it = "from checkpoints where key between ?1 << 32 and ?1 << 32 | 0xffffffff"
    stays = "key between ?1 << 32 | ?2 and ?1 << 32 | ?3"
    db.execute(f"delete {of_it} and not ({stays})", (number, new.first, new.position - 1))
    mac = chain and chain.checkpoint(new.session, incarnation, new.position, new.body)
    db.execute("insert into checkpoints values (?, ?, ?)", (number << 32 | new.position, new.body, mac))


def checkpoints(session: str, incarnation: str, chain: Chain | None, db: sqlite3.Connection) -> list[bytes]:
    """The checkpoints of *session*, by their positions; empty is one that is not as it was written."""
    number, there = number_of(session, incarnation, db)
    rows = db.execute(
        "select key & 0xffffffff, cast(body as blob), mac from checkpoints"
        " where key between ?1 << 32 and ?1 << 32 | 0xffffffff order by key",
        (number,),
    )
    if chain is None:
        return [body for _, body, _ in rows]
    from ..keys import signs  # noqa: PLC0415  # for signed files

    return [
        body if signs(mac, chain.checkpoint(session, there, position, body)) else b""
        for position, body, mac in rows
    ]
