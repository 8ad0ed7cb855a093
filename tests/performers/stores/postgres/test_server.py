"""Calls of a server that is not there yet, or is full: who never reached it waits for what passes only."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from turnwheel.effects.errors import StoreError
from turnwheel.performers.stores.postgres.server import Server


class ServerError(Exception):
    """An error with a *sqlstate*, as asyncpg has it."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__(f"error {sqlstate}")
        self.sqlstate = sqlstate


class Database:
    """A connection."""

    async def fetch(self, sql: str) -> list[tuple[str]]:
        return [(sql,)]

    def is_closed(self) -> bool:
        return False


def reached_at_last(server: Server, monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> list[Exception]:
    """Have each of *errors* meet who connects to *server*; those that none has met yet."""
    left = [*errors]

    async def connect() -> Any:
        await asyncio.sleep(0)
        if left:
            raise left.pop(0)
        return Database()

    monkeypatch.setattr(server, "connect", connect)
    return left


@pytest.mark.parametrize("state", ["57P03", "53300"])
async def test_a_server_that_starts_or_is_full_is_waited_for_before_the_first_call(
    state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server("postgresql://there/db", "turnwheel", 1, patience=10.0)
    left = reached_at_last(server, monkeypatch, ServerError(state), ServerError(state))
    assert (await server.call("select"), left) == ([("select",)], [])


@pytest.mark.parametrize("error", [ServerError("57P01"), ServerError("42501"), OSError("refused")])
async def test_a_server_that_was_never_reached_is_not_waited_for_otherwise(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server("postgresql://there/db", "turnwheel", 1, patience=10.0)
    left = reached_at_last(server, monkeypatch, error, error)
    with pytest.raises(StoreError, match=str(error)):
        await server.call("select")
    assert left == [error]
