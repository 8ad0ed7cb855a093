"""The layout of an SQLite file: made once, and a newer or damaged one is refused."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from turnwheel.effects.errors import JournalError, StoreError
from turnwheel.performers.stores.sqlite import SQLiteStore
from turnwheel.performers.stores.sqlite_file import APPLICATION_ID, LAYOUT_VERSION


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


async def test_several_stores_that_open_a_new_file_at_once_share_one_layout(path: Path) -> None:
    stores = [SQLiteStore(path, "process") for _ in range(4)]
    await asyncio.gather(*[store.append(str(place), 0, [b"a"]) for place, store in enumerate(stores)])
    for store in stores:
        assert sorted([info.session for info in await store.list()]) == ["0", "1", "2", "3"]
        await store.close()


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


async def test_a_store_reports_a_layout_that_a_newer_process_changed_while_it_was_open(path: Path) -> None:
    store = SQLiteStore(path)
    await store.append("s", 0, [b"a"])
    with closing(sqlite3.connect(path)) as db:
        db.executescript(f"alter table entries rename to others; pragma user_version = {LAYOUT_VERSION + 1};")
    with pytest.raises(OSError, match="no such table"):
        await store.append("s", 1, [b"b"])
    with pytest.raises(JournalError, match="upgrade turnwheel"):
        await store.append("s", 1, [b"b"])
    await store.close()


@pytest.mark.parametrize(
    "statement",
    ["drop table recents", "drop table stretches", "alter table sessions drop column incarnation"],
)
async def test_a_missing_table_or_column_is_named(path: Path, statement: str) -> None:
    store = SQLiteStore(path)
    await store.append("s", 0, [b"a"])
    await store.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute(statement)
    says = r"no such (table|column): .*; another program changed the file"
    store = SQLiteStore(path)
    for call in (store.list(), store.append("s", 1, [b"b"])):
        with pytest.raises(StoreError, match=says):
            await call
    await store.close()
