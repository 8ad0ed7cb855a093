"""The store in a database before it is reached: what it takes, and that it is closed."""

from __future__ import annotations

from typing import Any

import pytest

from turnwheel.effects.errors import ConfigError, StoreError
from turnwheel.performers import PostgresStore
from turnwheel.performers.stores.postgres.store import at_work

DSN = "postgresql://me:secret@here/db"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"schema": ""}, "a name of 1 to 63 bytes"),
        ({"schema": "a\0b"}, "a name of 1 to 63 bytes"),
        ({"schema": "ä" * 32}, "a name of 1 to 63 bytes"),
        ({"schema": "pg_"}, "not beginning with pg_"),
        ({"connections": 0}, "must be above 0; got 0 and 20"),
        ({"connections": -1}, "must be above 0; got -1"),
        ({"patience": 0}, "must be above 0; got 8 and 0"),
        ({"patience": -0.5}, "must be above 0; got 8 and -0.5"),
        ({"dsn": "mysql://here/db"}, "a DSN must begin with postgresql://"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(given: dict[str, Any], says: str) -> None:
    make: Any = PostgresStore
    with pytest.raises(ConfigError, match=says):
        make(**{"dsn": DSN, **given})


def test_a_setting_at_its_bound_is_taken() -> None:
    before = {*at_work}
    stores = [
        PostgresStore(DSN, schema="s" * 63, connections=1, patience=0.01),
        PostgresStore("postgres://here/db", schema="ä" * 31),
        PostgresStore(DSN, schema="p"),
    ]
    assert [repr(store) for store in stores] == [
        "PostgresStore('postgresql://here/db')",
        "PostgresStore('postgresql://here/db')",
        "PostgresStore('postgresql://here/db')",
    ]
    assert {*at_work} == before, "none has a thread before its first call"


async def test_one_that_was_never_used_is_closed_all_the_same() -> None:
    store = PostgresStore(DSN)
    await store.close()
    await store.close()
    with pytest.raises(StoreError, match=r"store 'postgresql://here/db' is closed; make a new one"):
        await store.load("s")
    with pytest.raises(StoreError, match="is closed"):
        store.on_news(lambda _: None)


async def test_a_name_that_is_no_text_reaches_no_server() -> None:
    store = PostgresStore(DSN)
    before = {*at_work}
    with pytest.raises(StoreError, match=r"'a\\ud800' is no valid text; use a session name without"):
        await store.append("a\ud800", 0, [b"x"])
    assert {*at_work} == before
