"""What is in the SQLite file of a store: its tables, how older ones become these, what is asked of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar, final

import attrs

from ...effects.errors import StoreConflict
from .base import SessionInfo

if TYPE_CHECKING:
    import sqlite3

Durability = Literal["power", "process"]
"""What an entry survives: the end of everything but the disk, or the end of the process only."""

T = TypeVar("T")

# What a job does with an open file.
StoreWork: TypeAlias = "Callable[[sqlite3.Connection], T]"

# The layout below. Raise it with every change, and say in `UPGRADES` how older files come up to it.
LAYOUT_VERSION = 3

# An append costs the pages that it touches. Entries are only ever added behind all others, of any session,
# which is cheapest: in the middle of a tree full pages are moved about. Neighbours of one session form a
# stretch: the key of an entry is the number of its stretch and, below that, its place in it. So to go on
# with the last stretch of all touches the page of the entry and no other. Only where another session came
# between does a new stretch begin, which is a small row. The length of a session and the time of its last
# entry are read off that entry, so its own row changes with its summary only, which is seldom.
SCHEMA = """
create table sessions (
    id integer primary key,
    session text not null unique,
    created real not null,
    about blob not null default x''
);
create table stretches (
    key integer primary key, -- id of the session << 32 | how many entries it had before
    stretch integer not null
);
create table entries (
    id integer primary key, -- stretch << 32 | how many stand before it there
    at real not null,
    body blob not null
);
"""

# What makes a file of the next layout of one of each older one.
UPGRADES = {
    1: ("alter table sessions add column about blob not null default x''",),
    2: (
        "alter table sessions rename to older_sessions; alter table entries rename to older_entries",
        SCHEMA,
        """
insert into sessions (session, created, about) select session, created, about from older_sessions;
insert into stretches select id << 32, id from sessions;
insert into entries
    select id << 32 | seq, at, body from older_entries join sessions using (session) order by id, seq;
drop table older_entries;
drop table older_sessions
""",
    ),
}

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


@final
@attrs.frozen
class Added:
    """What is to be added to *session*, where it has the *expected* length."""

    session: str
    expected: int
    entries: tuple[bytes, ...]
    about: bytes | None


def append(added: Added, now: Callable[[], float], db: sqlite3.Connection) -> int:
    """Add what is *added*; the new length. `StoreConflict` where the session has another one."""
    found = db.execute(_FIND, (added.session,)).fetchone()
    # *key* is where the next entry goes if the session has the last stretch of the file, and None otherwise.
    number, actual, key = found or (None, 0, None)
    if actual != added.expected:
        raise StoreConflict(added.session, added.expected, actual)
    if number is not None and added.about is not None:
        db.execute("update sessions set about = ? where id = ?", (added.about, number))
    if added.entries:
        # Inside of the transaction, so that the order of times is the order of writing over all processes.
        at = now()
        if number is None:
            row = (added.session, at, added.about or b"")
            db.execute("insert into sessions values (null, ?, ?, ?)", row)
            (number,) = db.execute("select last_insert_rowid()").fetchone()
        if key is None:
            key = _new_stretch(number << 32 | actual, db)
        rows = [(number, at, body) for number, body in enumerate(added.entries, key)]
        db.executemany("insert into entries values (?, ?, ?)", rows)
    return actual + len(added.entries)


def _new_stretch(key: int, db: sqlite3.Connection) -> int:
    """The key of the first entry of a stretch that begins behind all others and has this *key* itself."""
    (stretch,) = db.execute("select coalesce(max(id) >> 32, 0) + 1 from entries").fetchone()
    db.execute("insert into stretches values (?, ?)", (key, stretch))
    first: int = stretch << 32
    return first


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
    found = db.execute("select id from sessions where session = ?", (session,)).fetchone()
    if found is None:
        return False
    of_it = "from stretches where key between ?1 << 32 and ?1 << 32 | 0xffffffff"
    stretches = db.execute(f"select stretch {of_it}", found).fetchall()
    db.executemany("delete from entries where id between ?1 << 32 and ?1 << 32 | 0xffffffff", stretches)
    db.execute(f"delete {of_it}", found)
    db.execute("delete from sessions where id = ?", found)
    return True
