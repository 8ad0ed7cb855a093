"""Where a store is, as text says it: a file or a database, and no password is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwheel.performers import PostgresStore, SQLiteStore
from turnwheel.performers.stores.place import open_place, store_place
from turnwheel.performers.stores.postgres.address import DatabaseAddress


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://host:5432/db", "postgresql://host:5432/db"),
        ("postgres://me@host/db", "postgres://me@host/db"),
        ("postgresql://me:se/c@ret@host/db", "postgresql://me:(hidden)@host/db"),
        (
            "postgresql:///db?password=secret&host=/run",
            "postgresql:///db?password=(hidden)&host=/run",
        ),
    ],
)
async def test_an_address_is_no_path_and_is_shown_without_its_password(dsn: str, shown: str) -> None:
    place = store_place(dsn)
    assert place == DatabaseAddress(dsn) == store_place(place)
    assert str(place) == shown
    assert "secret" not in repr(place)
    store = open_place(place)
    assert isinstance(store, PostgresStore)
    await store.close()


@pytest.mark.parametrize("path", ["agent.db", "/a/postgresql:/b", "postgresql:/x", "none"])
async def test_all_else_is_a_path(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert store_place(path) == store_place(Path(path)) == Path(path)
    assert isinstance(open_place(Path(path)), SQLiteStore)
