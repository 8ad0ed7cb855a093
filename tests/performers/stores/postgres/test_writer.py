"""Appends that wait share a transaction, which has its bounds; one that is refused spoils no other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, cast

import pytest

from turnwheel.effects.errors import SessionGone, StoreConflict
from turnwheel.performers.stores.postgres import writer
from turnwheel.performers.stores.postgres.server import Server
from turnwheel.performers.stores.postgres.writer import NewEntries, Writer


class Transactions:
    """A server that keeps all it is asked to: how many *appends* each transaction had."""

    def __init__(self) -> None:
        self.appends: list[int] = []

    async def call(self, _: str, names: Sequence[bytes], *given: object) -> list[tuple[int, bool, str, int]]:
        assert given
        self.appends.append(len(names))
        await asyncio.sleep(0)
        return [(place, True, "1", 0) for place, _ in enumerate(names, 1)]


def entries_of(*entries: bytes) -> NewEntries:
    return NewEntries("s", b"s", 0, entries, None, "")


async def appended(*sizes: int) -> tuple[list[int], list[bytes]]:
    """The appends of each transaction where appends of so many bytes wait, and the names that are told."""
    server, told = Transactions(), list[bytes]()
    made = Writer(cast("Server", server), told.extend)
    futures: list[Future[str]] = [Future() for _ in sizes]
    for size, future in zip(sizes, futures, strict=True):
        made.add(entries_of(b"x" * size) if size else entries_of(), future)
    await made.finish()
    assert [future.result(0) for future in futures] == ["1"] * len(sizes)
    return server.appends, told


async def test_appends_that_wait_share_a_transaction_up_to_a_number_and_a_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writer, "MOST_BYTES", 10)
    monkeypatch.setattr(writer, "MOST_APPENDS", 3)
    assert (await appended(1, 1, 1))[0] == [3]
    assert (await appended(1, 1, 1, 1))[0] == [3, 1]
    # What a transaction has is counted before one more is taken in.
    assert (await appended(10, 1))[0] == [2]
    assert (await appended(11, 1))[0] == [1, 1]
    assert (await appended(5, 5, 1))[0] == [3]
    assert (await appended(5, 6, 1))[0] == [2, 1]
    assert (await appended(11, 11, 1))[0] == [1, 1, 1]


async def test_sessions_that_got_entries_are_told() -> None:
    assert (await appended(1, 0, 2))[1] == [b"s", b"s"]


async def test_a_writer_that_has_finished_takes_more() -> None:
    server = Transactions()
    made = Writer(cast("Server", server), lambda _: None)
    await made.finish()
    for _ in range(2):
        future: Future[str] = Future()
        made.add(entries_of(b"x"), future)
        await made.finish()
        assert future.result(0) == "1"
    assert server.appends == [1, 1]


# What the server answers to an append that expects no entry yet, and what comes of it: whether it was kept,
# the incarnation that is there, and the number of entries.
ANSWERS: list[tuple[str, tuple[bool, str, int], Any]] = [
    ("", (True, "7", 0), "7"),
    ("", (False, "7", 0), "7"),
    ("", (False, "7", 2), StoreConflict("s", 0, 2)),
    ("7", (False, "7", 2), StoreConflict("s", 0, 2)),
    ("6", (False, "7", 2), SessionGone("s", True)),  # noqa: FBT003  # another one of this name is there
    ("6", (False, "", 0), SessionGone("s", False)),  # noqa: FBT003  # none is
]


@pytest.mark.parametrize(("known", "row", "outcome"), ANSWERS)
def test_what_the_server_answers_to_an_append_is_kept_or_says_why_not(
    known: str, row: tuple[bool, str, int], outcome: object
) -> None:
    said = NewEntries("s", b"s", 0, (), None, known).outcome((1, *row))
    assert (type(said), str(said)) == (type(outcome), str(outcome))
