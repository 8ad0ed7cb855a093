"""Files that older versions laid out are brought up to date, all at once and with all that was in them."""

from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import attrs
import pytest
from support.patience import PATIENCE

from turnwheel.effects.errors import JournalError, StoreConflict, StoreError
from turnwheel.performers.stores.base import SessionInfo, Store
from turnwheel.performers.stores.sqlite import SQLiteStore
from turnwheel.performers.stores.sqlite_file import APPLICATION_ID, LAYOUT_VERSION, UPGRADES

LAYOUTS = Path(__file__).resolve().parent / "layouts"
"""For each layout there was, what a store of that time wrote, as sqlite3 dumps it."""

ODD = "naïve 'quoted' 🦊"
KEPT = {"one": [b"a", b"", b"c" * 1500, b"g"], "two": [bytes(range(256)), b"e", b"f"], ODD: [b"d"]}
"""What is in each of them."""

LEASES = 4
"""The first layout with leases."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


def written_out(layout: int, path: Path) -> None:
    """Make the file of this *layout* at *path*, as a store of that time left it."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("pragma journal_mode = wal")
        db.executescript((LAYOUTS / f"{layout}.sql").read_text("utf-8"))


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        version: int = db.execute("pragma user_version").fetchone()[0]
    return version


async def everything(store: Store) -> dict[str, list[bytes]]:
    return {info.session: list(await store.load(info.session)) for info in await store.list()}


def test_there_is_a_file_of_each_layout() -> None:
    assert sorted(path.stem for path in LAYOUTS.iterdir()) == [str(one + 1) for one in range(LAYOUT_VERSION)]
    assert sorted(UPGRADES) == list(range(1, LAYOUT_VERSION))


@pytest.mark.parametrize("layout", range(1, LAYOUT_VERSION + 1))
async def test_a_file_of_any_layout_is_read(path: Path, layout: int) -> None:
    written_out(layout, path)
    assert version_of(path) == layout
    store = SQLiteStore(path, now=lambda: 2000.0)
    about = {} if layout == 1 else {"one": b"one", ODD: b"\0'"}
    listed = await store.list()
    incarnations = {info.session: info.incarnation for info in listed}
    assert len({*incarnations.values()}) == len([one for one in incarnations.values() if len(one) == 32]) == 3
    assert [attrs.evolve(info, incarnation="") for info in listed] == [
        SessionInfo(
            session=name,
            length=length,
            created=created,
            updated=updated,
            about=about.get(name, b""),
            stamp=stamp,
        )
        for name, length, created, updated, stamp in [
            ("one", 4, 1000.0, 1006.0, 7),
            ("two", 3, 1001.0, 1005.0, 6),
            (ODD, 1, 1004.0, 1004.0, 5),
        ]
    ]
    assert await everything(store) == KEPT
    assert await store.lease("two", None, None) == (b"mine" if layout >= LEASES else None)
    assert await store.checkpoints("one") == ([b"after three"] if layout == LAYOUT_VERSION else [])
    with pytest.raises(StoreConflict):
        await store.append("one", 3, [b"x"])
    assert await store.append("one", 4, [b"h", b"i"], b"told", incarnations["one"]) == incarnations["one"]
    await store.append("two", 3, [b"h"])
    await store.append("new", 0, [b"a"])
    assert await store.delete(ODD)
    await store.close()
    again = SQLiteStore(path)
    assert await everything(again) == {
        "one": [*KEPT["one"], b"h", b"i"],
        "two": [*KEPT["two"], b"h"],
        "new": [b"a"],
    }
    assert [info.session for info in await again.list()] == ["new", "two", "one"]
    assert {info.session: info.about for info in await again.list()} == {
        "one": b"told",
        "two": b"",
        "new": b"",
    }
    await again.close()
    assert version_of(path) == LAYOUT_VERSION


@pytest.mark.parametrize("layout", range(1, LAYOUT_VERSION))
async def test_of_many_that_open_an_older_file_one_brings_it_up_to_date(path: Path, layout: int) -> None:
    written_out(layout, path)
    stores = [SQLiteStore(path, "process") for _ in range(4)]
    for kept in await asyncio.gather(*(everything(store) for store in stores)):
        assert kept == KEPT
    await asyncio.gather(*(store.close() for store in stores))


async def test_a_file_of_a_newer_layout_is_refused(path: Path) -> None:
    store = SQLiteStore(path)
    await store.append("s", 0, [b"a"])
    await store.close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("pragma application_id").fetchone() == (APPLICATION_ID,)
        db.execute(f"pragma user_version = {LAYOUT_VERSION + 1}")
    newer = SQLiteStore(path)
    known = f"known here is {LAYOUT_VERSION}: upgrade turnwheel"
    says = f"the layout of store .* has version {LAYOUT_VERSION + 1}, {known}"
    with pytest.raises(JournalError, match=says):
        await newer.load("s")
    await newer.close()


async def test_a_file_that_is_brought_up_to_date_while_it_is_open_is_told(path: Path) -> None:
    store = SQLiteStore(path)
    await store.append("s", 0, [b"a"])
    with closing(sqlite3.connect(path)) as db:
        db.executescript(f"alter table entries rename to others; pragma user_version = {LAYOUT_VERSION + 1};")
    with pytest.raises(OSError, match="no such table"):
        await store.append("s", 1, [b"b"])
    with pytest.raises(JournalError, match="upgrade turnwheel"):
        await store.append("s", 1, [b"b"])
    await store.close()


async def test_a_file_without_the_table_of_meters_gets_it(path: Path) -> None:
    written_out(LAYOUT_VERSION, path)
    store = SQLiteStore(path)
    assert (await store.meter("m", None, b"1"))[0] is None
    assert (await store.meter("m", b"1", b"2"))[0] == b"1"
    await store.close()


@pytest.mark.parametrize("key", [None, b"k" * 32], ids=["unsigned", "signed"])
async def test_a_file_without_the_table_of_checkpoints_gets_it(path: Path, key: bytes | None) -> None:
    """Versions between two releases wrote some; what is in that table can be made again."""
    store = SQLiteStore(path, key=key)
    await store.append("s", 0, [b"a"])
    await store.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("drop table checkpoints")
    store = SQLiteStore(path, key=key)
    assert list(await store.checkpoints("s")) == []
    await store.keep_checkpoint("s", 1, b"at one", 1)
    assert list(await store.checkpoints("s")) == [b"at one"]
    assert list(await store.load("s")) == [b"a"]
    assert await store.delete("s")
    await store.close()


@pytest.mark.parametrize(
    "statement",
    ["drop table recents", "drop table stretches", "alter table sessions drop column incarnation"],
)
async def test_a_file_that_lacks_something_else_says_what_it_is(path: Path, statement: str) -> None:
    store = SQLiteStore(path)
    await store.append("s", 0, [b"a"])
    await store.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute(statement)
    says = r"no such (table|column): .*; a version between two releases wrote the file, or another program"
    store = SQLiteStore(path)
    for call in (store.list(), store.append("s", 1, [b"b"])):
        with pytest.raises(StoreError, match=says):
            await call
    await store.close()


SESSIONS, EACH, SIZE = 60, 40, 2_000
"""How many sessions a larger file has, how many entries each, and how many bytes these have on average."""


def larger(path: Path) -> dict[str, list[bytes]]:
    """A file of the second layout, whose sessions were written in turns; what is in it."""
    draw = random.Random(5)
    kept: dict[str, list[bytes]] = {f"s{number}": [] for number in range(SESSIONS)}
    written_out(2, path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("delete from sessions")
        db.execute("delete from entries")
        for seq in range(EACH):
            for name, entries in kept.items():
                entries.append(draw.randbytes(draw.randrange(2 * SIZE)))
                db.execute("insert into entries values (?, ?, 1, ?)", (name, seq, entries[-1]))
        db.executemany("insert into sessions values (?, ?, 1, 1, x'')", [(name, EACH) for name in kept])
    return kept


OPEN = """
import asyncio, os, signal, sqlite3, sys
from turnwheel.performers.stores.sqlite import SQLiteStore

path, log_size, connect = sys.argv[1], float(sys.argv[2]), sqlite3.connect

def look():
    log = f"{path}-wal"
    if os.path.exists(log) and os.path.getsize(log) >= log_size:
        os.kill(os.getpid(), signal.SIGKILL)

def watched(*given, **named):
    db = connect(*given, **named)
    db.set_progress_handler(look, 100)
    return db

sqlite3.connect = watched
asyncio.run(SQLiteStore(path).list())
"""


def open_until(path: Path, log_size: float) -> None:
    """Open the store at *path* in a process that kills itself as soon as its log is of that size."""
    command = [sys.executable, "-c", OPEN, str(path), str(log_size)]
    assert subprocess.run(command, timeout=PATIENCE, check=False).returncode in {0, -signal.SIGKILL}


async def test_killed_half_way_it_is_as_it_was_or_done(path: Path) -> None:
    kept = larger(path)
    whole = path.stat().st_size
    seen: set[int] = set()
    for part in (0.01, 0.3, 0.9):
        open_until(path, part * whole)
        seen.add(version_of(path))
    assert 2 in seen, "no process was killed before it was done"
    store = SQLiteStore(path)
    assert await everything(store) == kept
    await store.close()
    assert version_of(path) == LAYOUT_VERSION
