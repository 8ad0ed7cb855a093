"""A file that is signed with a key: what another program changed in it is told, and never read as written."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from turnwheel import SQLiteStore
from turnwheel.effects.errors import ArgumentError, ConfigError, JournalError, StoreError, TurnwheelError
from turnwheel.engine.inspect.archive import prune
from turnwheel.engine.inspect.listing import listed
from turnwheel.engine.journal.summary import SessionStatus
from turnwheel.performers.stores.chain import Chain, SessionEnd
from turnwheel.testing.store_contract import Check, checks

KEY, OTHER = b"k" * 32, b"o" * 32


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    """A signed store with a session ``s`` in two stretches, and another one like it."""
    store = SQLiteStore(path, "process", key=KEY)
    for name in ("s", "t"):
        await store.append(name, 0, [b"a", b"b"], b"about")
    for name in ("s", "t"):
        await store.append(name, 2, [b"c", b"d"])
    yield store
    await store.close()


# Where the entries of ``s`` and ``t`` are, which were written in turns.
ROWS = {
    f"{name}{2 * number + place}": (2 * number + 1 + other) << 32 | place
    for number in (0, 1)
    for other, name in enumerate("st")
    for place in (0, 1)
}

COPY = "update entries set (at, body, mac) = (select at, body, mac from entries as other"


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        assert db.execute(statement, ROWS).rowcount > 0


@pytest.mark.parametrize("check", checks(), ids=str)
async def test_a_signed_store_keeps_all_promises(check: Check, tmp_path: Path) -> None:
    await check(lambda: SQLiteStore(tmp_path / "kept.db", "process", key=KEY))


CHANGES: dict[str, tuple[str, str]] = {
    "an entry": ("update entries set body = x'00' where id = :s1", "entry 1"),
    "the last entry": ("update entries set body = x'00' where id = :s3", "entry 3"),
    "an entry, to text": ("update entries set body = 'c' where id = :s2", "entry 2"),
    "the time of an entry": ("update entries set at = 1.0 where id = :s0", "entry 0"),
    "an entry, to that of another": (f"{COPY} where other.id = :t1) where id = :s1", "entry 1"),
    "an entry, to the one before": (f"{COPY} where other.id = :s0) where id = :s1", "entry 1"),
    "a signature": ("update entries set mac = null where id = :s1", "entry 1"),
    "an end, which is cut off": ("delete from entries where id = :s3", "its end behind 3 entries"),
    "a stretch, which is cut off": ("delete from stretches where stretch = 3", "its end behind 2 entries"),
    "its stretches, to those of another": (
        "update stretches set stretch = case stretch when 3 then 4 else 3 end where stretch in (3, 4)",
        "its end",
    ),
    "an end, to which is added": (
        "insert into entries (id, at, body, mac) select id + 1, at, body, mac from entries where id = :s3",
        "its end behind 5 entries",
    ),
    "its summary": ("update sessions set about = x'00' where session = 's'", "its end"),
    "its summary, to text": ("update sessions set about = 'about' where session = 's'", "its end"),
    "its beginning": ("update sessions set created = 1.0 where session = 's'", "its end"),
    "its incarnation": ("update sessions set incarnation = 'x' where session = 's'", "its end"),
    "its seal": ("update sessions set seal = null where session = 's'", "its end"),
    "its name, to that of another": (
        "update sessions set session = case session when 's' then 'x' else 's' end",
        "its end",
    ),
}


@pytest.mark.parametrize(("statement", "where"), CHANGES.values(), ids=CHANGES)
async def test_what_another_program_changes_is_told(
    store: SQLiteStore, path: Path, statement: str, where: str
) -> None:
    change(path, statement)
    with pytest.raises(JournalError, match=f"session 's' was tampered with: {where}") as told:
        await store.load("s")
    assert "restore it from a backup" in str(told.value)
    # Nothing is signed behind it. An append reads the end only.
    if "its" in where:
        for entries in ([b"e"], []):
            with pytest.raises(JournalError, match="tampered"):
                await store.append("s", 4, entries, b"new")
        with pytest.raises(JournalError, match="tampered"):
            await store.load("s", 4)
        told_of = {info.session: info.about for info in await store.list()}
        assert told_of["s"] == b""


async def test_the_part_that_is_read_is_checked(store: SQLiteStore, path: Path) -> None:
    assert list(await store.load("s", 3)) == [b"d"]
    change(path, CHANGES["an entry, to text"][0])
    with pytest.raises(JournalError, match="entry 2"):
        await store.load("s", 1)
    assert list(await store.load("s", 3)) == [b"d"]
    assert list(await store.load("t")) == [b"a", b"b", b"c", b"d"]


PARTS: dict[str, tuple[str, tuple[int, int], str]] = {
    "an entry": (CHANGES["an entry"][0], (1, 2), "entry 1"),
    "an entry, to that of another": (f"{COPY} where other.id = :t1) where id = :s1", (1, 2), "entry 1"),
    "the first entries, to those of another": (
        f"{COPY} where other.id = entries.id + (1 << 32)) where id in (:s0, :s1)",
        (1, 2),
        "entry 1",
    ),
    "the last entry of the part": ("delete from entries where id = :s1", (0, 2), "entry 1"),
    "an end, which is cut off": (CHANGES["an end, which is cut off"][0], (0, 1), "its end behind 3 entries"),
    "its summary": (CHANGES["its summary"][0], (0, 0), "its end"),
}


@pytest.mark.parametrize(("statement", "part", "where"), PARTS.values(), ids=PARTS)
async def test_a_part_in_the_middle_is_checked_by_itself(
    store: SQLiteStore, path: Path, statement: str, part: tuple[int, int], where: str
) -> None:
    for start in range(5):
        for end in range(5):
            assert list(await store.load("s", start, end)) == [b"a", b"b", b"c", b"d"][start:end]
    change(path, statement)
    with pytest.raises(JournalError, match=f"session 's' was tampered with: {where}"):
        await store.load("s", *part)


async def test_what_was_changed_behind_a_part_is_told_where_the_session_goes_on(
    store: SQLiteStore, path: Path
) -> None:
    change(path, CHANGES["an entry, to text"][0])
    assert list(await store.load("s", 0, 2)) == [b"a", b"b"]
    with pytest.raises(JournalError, match="entry 2"):
        await store.load("s", 0)


async def test_a_session_that_was_changed_is_listed_as_one_that_cannot_be_read(
    store: SQLiteStore, path: Path
) -> None:
    change(path, "update sessions set about = x'7b7d' where session = 's'")
    assert {one.session: one.about.state for one in await listed(store)}["s"] is SessionStatus.UNREADABLE
    found, other = await store.info("s"), await store.info("t")
    assert found is not None
    assert other is not None
    assert [found.about, other.about] == [b"", b"about"]
    assert await store.info("none") is None


# Another type than a column has: SQLite keeps any value in any column.
TYPES = ("null", "5", "1.5", "'abc'", "cast(x'ff00fe' as text)", "x'00'")
SIGNED = [("sessions", column, "session = 's'") for column in ("created", "about", "incarnation", "seal")] + [
    ("entries", column, f"id = {ROWS[f's{number}']}")  # as above
    for number in (0, 3)
    for column in ("at", "body", "mac")
]


@pytest.mark.parametrize("value", TYPES)
@pytest.mark.parametrize(("table", "column", "row"), SIGNED, ids=[" ".join(one) for one in SIGNED])
async def test_a_value_of_any_type_names_its_session_and_hides_no_other(
    store: SQLiteStore, path: Path, table: str, column: str, row: str, value: str
) -> None:
    with suppress(sqlite3.IntegrityError):
        change(path, f"update {table} set {column} = {value} where {row}")  # noqa: S608  # all of it stands here
        with pytest.raises(JournalError, match="session 's' was tampered with"):
            await store.load("s")
    assert {info.session for info in await store.list()} == {"s", "t"}
    assert {one.session for one in await listed(store)} == {"s", "t"}
    assert await prune(store, 1e10, time.time()) == ()  # their times can be compared


@pytest.mark.parametrize("value", TYPES[1:])
async def test_a_session_whose_name_became_another_value_is_listed_as_unreadable(
    store: SQLiteStore, path: Path, value: str
) -> None:
    change(path, f"update sessions set session = {value} where session = 's'")  # noqa: S608  # all of it stands here
    found = {one.session: one.about.state for one in await listed(store)}
    assert set(map(type, found)) == {str}
    del found["t"]
    assert [*found.values()] == [SessionStatus.UNREADABLE]


@pytest.mark.parametrize("gone", ["entries", "stretches"])
async def test_a_session_that_lost_all_its_entries_was_tampered_with(
    store: SQLiteStore, path: Path, gone: str
) -> None:
    where = {"entries": "id in (:s0, :s1, :s2, :s3)", "stretches": "stretch in (1, 3)"}[gone]
    change(path, f"delete from {gone} where {where}")  # noqa: S608  # all of it stands here
    told = r"session 's' was tampered with: its end behind . entries"
    for call in (store.load("s"), store.load("s", 4), store.append("s", 0, [b"x"]), store.append("s", 4, [])):
        with pytest.raises(JournalError, match=told):
            await call
    found = {one.session: one.about.state for one in await listed(store)}
    assert found["s"] is SessionStatus.UNREADABLE
    assert {"s", "t"} == set(found)


@pytest.mark.parametrize(
    "statement", ["delete from recents where id = 1", "update recents set stamp = 'abc' where id = 1"]
)
async def test_a_session_that_lost_its_stamp_is_listed_and_goes_on(
    store: SQLiteStore, path: Path, statement: str
) -> None:
    change(path, statement)
    known = (await store.load("s")).incarnation
    for size in (1, None):
        first = await store.list(size)
        rest = await store.list(size, first[-1].stamp)
        assert [info.session for info in (*first, *rest)] == ["t", "s"]
    assert [info.session for info in await store.list(prefix="s")] == ["s"]
    assert (found := await store.info("s")) is not None
    assert found.length == 4
    assert found.about == b"about"
    assert await store.append("s", 4, [b"e"], None, known) == known
    assert [info.session for info in await store.list()] == ["s", "t"]
    assert list(await store.load("s", 3)) == [b"d", b"e"]


FORGED = {
    "body = 'forged'",
    "body = x'00'",
    "key = key + 1",
    "mac = null",
    "mac = 'text'",
    "(body, mac) = (select body, mac from checkpoints where key = 2 << 32 | 4)",
    "(body, mac) = (select body, mac from checkpoints where key = 1 << 32 | 2)",
}


@pytest.mark.parametrize("how", sorted(FORGED))
async def test_a_checkpoint_that_was_changed_or_moved_is_none(
    store: SQLiteStore, path: Path, how: str
) -> None:
    """It is given as an empty one, which is passed over, for the journal says what it said."""
    for name in ("s", "t"):
        for position in (2, 4):
            await store.keep_checkpoint(name, position, f"{name}{position}".encode(), 2)
    assert list(await store.checkpoints("s")) == [b"s2", b"s4"]
    with closing(sqlite3.connect(path)) as db, db:
        statement = f"update checkpoints set {how} where key = 1 << 32 | 4"  # noqa: S608  # all of it stands here
        assert db.execute(statement).rowcount == 1
    assert list(await store.checkpoints("s")) == [b"s2", b""]
    assert list(await store.checkpoints("t")) == [b"t2", b"t4"]


# Keys


@pytest.mark.parametrize(
    ("first", "then", "says"),
    [
        (KEY, None, r"is signed: open it with its key"),
        (None, KEY, r"was written without a key: open it without one"),
        (KEY, OTHER, r"is signed with another key"),
    ],
    ids=["no key", "no signatures", "another key"],
)
async def test_a_file_is_opened_with_its_own_key_only(
    path: Path, first: bytes | None, then: bytes | None, says: str
) -> None:
    before = SQLiteStore(path, key=first)
    await before.append("s", 0, [b"a"])
    other = SQLiteStore(path, key=then)
    for call in (other.load("s"), other.append("s", 1, [b"b"]), other.list()):
        with pytest.raises(StoreError, match=f"store .*agent.db' {says}"):
            await call
    assert list(await before.load("s")) == [b"a"]
    for store in (before, other):
        await store.close()


async def test_without_a_key_nothing_is_signed(path: Path) -> None:
    store = SQLiteStore(path)
    await store.append("s", 0, [b"a"], b"about")
    await store.close()
    with closing(sqlite3.connect(path)) as db:
        for signatures in ("count(mac) from entries", "count(seal) from sessions", "count(*) from signed"):
            assert db.execute(f"select {signatures}").fetchone() == (0,)  # as it stands here


@pytest.mark.parametrize(
    ("key", "kind", "says"),
    [
        ("a password", ArgumentError, "a key is bytes, not str"),
        (b"short", ConfigError, "a key must have at least 32 bytes; got 5"),
    ],
)
def test_what_is_no_key_is_refused(path: Path, key: Any, kind: type[TurnwheelError], says: str) -> None:
    with pytest.raises(kind, match=says):
        SQLiteStore(path, key=key)


def test_a_chain_shows_no_key() -> None:
    assert repr(Chain(KEY)) == "Chain()"


async def test_no_key_is_shown(path: Path) -> None:
    store = SQLiteStore(path, key=KEY)
    assert "kkkk" not in repr(vars(store))


def test_entries_that_were_left_out_at_the_end_or_in_the_middle_are_told() -> None:
    chain, signed = Chain(KEY), list[bytes]()
    signed.append(chain.first("s", "x"))
    rows = [(float(number), b"%d" % number) for number in range(3)]
    for number, (at, body) in enumerate(rows):
        signed.append(chain.link(signed[0], signed[-1], number, at, body))
    told = [(at, body, mac) for (at, body), mac in zip(rows, signed[1:], strict=True)]
    end = SessionEnd("s", "x", 0.0, None, 3, signed[-1], b"")
    chain.check_entries(end, range(3), signed[0], told)
    chain.check_entries(end, range(2, 3), signed[2], told[2:])
    chain.check_entries(end, range(1, 2), signed[1], told[1:2])
    for wrong, entry in ((told[:2], 2), (told[:1] + told[2:], 1), ([], 0), ([*told, told[2]], 3)):
        with pytest.raises(JournalError, match=rf"entry {entry}\b"):
            chain.check_entries(end, range(3), signed[0], wrong)
    with pytest.raises(JournalError, match=r"entry 1\b"):
        chain.check_entries(end, range(2), signed[0], told[:1])
    texts = [(at, body.decode(), mac) for at, body, mac in told]  # a file may have anything in any column
    with pytest.raises(JournalError, match=r"entry 0\b"):
        chain.check_entries(end, range(3), signed[0], texts)
