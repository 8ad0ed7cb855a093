"""Where a store is, as text says it: a file or a database, and no password is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwheel import Agent
from turnwheel.effects import ConfigError
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


OTHER = "write a path such as 'agent.db', or 'postgresql://host/database'"


@pytest.mark.parametrize(
    ("url", "shown", "fix"),
    [
        ("postgresql+asyncpg://me:secret@h/a", "postgresql+asyncpg://me:(hidden)@h/a", "'postgresql://me:("),
        ("POSTGRESQL://h/a", "POSTGRESQL://h/a", "write 'postgresql://h/a'"),
        ("redis://:secret@h", "redis://:(hidden)@h", OTHER),
        ("sqlite:///a.db", "sqlite:///a.db", "write 'a.db'"),
        ("sqlite+aiosqlite:////a/b.db", "sqlite+aiosqlite:////a/b.db", "write '/a/b.db'"),
        ("sqlite:///:memory:", "sqlite:///:memory:", OTHER),
        ("file:///a.db", "file:///a.db", "write '/a.db'"),
    ],
)
def test_any_other_url_is_refused_and_not_taken_for_a_file(
    url: str, shown: str, fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def session(store: str) -> object:
        return Agent().session("s", store=store)

    def agent(store: str) -> object:
        return Agent(store=store)

    for make in (store_place, SQLiteStore, agent, session):
        with pytest.raises(ConfigError, match="neither a file nor a database") as caught:
            make(url)
        assert f"store {shown!r} " in str(caught.value)
        assert fix in str(caught.value)
        assert "secret" not in str(caught.value)
    assert [*tmp_path.iterdir()] == []
