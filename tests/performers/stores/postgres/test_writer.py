"""Appends that wait share a transaction: which of them, and what each is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from turnwheel.effects.errors import SessionGone, StoreConflict, StoreError
from turnwheel.performers.stores.postgres.writer import MOST_APPENDS, MOST_BYTES, NewEntries, Writer

Answer = Callable[[list[bytes]], list[tuple[Any, ...]]]


def new(name: str = "s", *, size: int = 1, expected: int = 0, known: str = "") -> NewEntries:
    entries = (b"x" * size,) if size else ()
    return NewEntries(name, name.encode(), expected, entries, b"about", known)


def all_kept(names: list[bytes]) -> list[tuple[Any, ...]]:
    return [(place, True, f"i-{name.decode()}", 1) for place, name in enumerate(names, 1)]


class World:
    """A server that gives the rows of *answer*, and notes what it was asked and what others were told."""

    def __init__(self, answer: Answer = all_kept) -> None:
        self.answer = answer
        self.asked: list[tuple[Any, ...]] = []
        self.told: list[list[bytes]] = []
        server: Any = self
        self.writer = Writer(server, self.tell)

    async def call(self, _: str, *columns: Any) -> list[tuple[Any, ...]]:
        self.asked.append(columns)
        await asyncio.sleep(0)
        return self.answer(columns[0])

    def tell(self, names: Sequence[bytes]) -> None:
        self.told.append([*names])

    async def outcomes(self, *several: NewEntries) -> list[Any]:
        futures: list[Future[str]] = [Future() for _ in several]
        for one, future in zip(several, futures, strict=True):
            self.writer.add(one, future)
        await self.writer.finish()
        return [future.exception(0) or future.result(0) for future in futures]

    @property
    def groups(self) -> list[int]:
        return [len(columns[0]) for columns in self.asked]


async def test_appends_that_wait_are_one_call_with_a_column_for_each_thing() -> None:
    world = World()
    first = NewEntries("a", b"a", 3, (b"1", b"2"), None, "i-a")
    second = NewEntries("b", b"b", 0, (b"3",), b"about", "")
    assert await world.outcomes(first, second) == ["i-a", "i-b"]
    tokens = [first.token, second.token]
    assert world.asked == [
        ([b"a", b"b"], ["i-a", ""], [3, 0], [2, 1], [None, b"about"], [b"1", b"2", b"3"], tokens)
    ]
    assert world.told == [[b"a", b"b"]]


async def test_what_is_added_later_is_written_too() -> None:
    world = World()
    assert await world.outcomes(new("a")) == ["i-a"]
    assert await world.outcomes(new("b")) == ["i-b"]
    assert (world.groups, world.told) == ([1, 1], [[b"a"], [b"b"]])
    await world.writer.finish()


async def test_only_so_many_share_a_transaction() -> None:
    world = World()
    outcomes = await world.outcomes(*[new(str(number)) for number in range(MOST_APPENDS + 1)])
    assert outcomes == [f"i-{number}" for number in range(MOST_APPENDS + 1)]
    assert world.groups == [MOST_APPENDS, 1]


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([MOST_BYTES // 2, MOST_BYTES // 2, 1], [2, 1]),
        ([MOST_BYTES // 2, MOST_BYTES // 2 + 1], [1, 1]),
        ([MOST_BYTES, 0, 1], [2, 1]),
        ([MOST_BYTES + 1, MOST_BYTES + 1, 1], [1, 1, 1]),
    ],
)
async def test_only_so_many_bytes_share_a_transaction(sizes: list[int], groups: list[int]) -> None:
    world = World()
    await world.outcomes(*[new(str(number), size=size) for number, size in enumerate(sizes)])
    assert world.groups == groups


async def test_others_are_told_of_sessions_that_got_entries_only() -> None:
    world = World(lambda names: [(1, True, "i", 1), (2, True, "i", 1), (3, False, "i", 7)][: len(names)])
    await world.outcomes(new("a"), new("only-a-summary", size=0), new("refused"))
    assert world.told == [[b"a"]]


@pytest.mark.parametrize(
    ("one", "row", "expected"),
    [
        (new(), (1, True, "i", 5), "i"),
        (new(expected=5), (1, False, "i", 5), "i"),  # it was kept before, and its answer was lost
        (new(expected=5, known="i"), (1, False, "i", 5), "i"),
        (new(expected=5), (1, False, "i", 6), StoreConflict("s", 5, 6)),
        (new(expected=5, known="i"), (1, False, "i", 6), StoreConflict("s", 5, 6)),
        (new(expected=5, known="j"), (1, False, "i", 5), SessionGone("s", begun_anew=True)),
        (new(expected=5, known="j"), (1, False, "", 5), SessionGone("s", begun_anew=False)),
    ],
)
def test_an_answer_says_whether_the_append_was_kept(
    one: NewEntries, row: tuple[Any, ...], expected: object
) -> None:
    outcome = one.outcome(row)
    assert (type(outcome), str(outcome)) == (type(expected), str(expected))


def test_each_append_is_known_by_a_number_that_a_database_can_keep() -> None:
    tokens = [new().token for _ in range(100)]
    assert len({*tokens}) == 100
    assert all(-(2**63) <= token < 2**63 for token in tokens)
    assert any(abs(token) > 2**48 for token in tokens)


class Full(Exception):
    """An error of one statement, as a server has it."""

    sqlstate = "54000"


def failing(error: Callable[[], Exception], of: bytes) -> Answer:
    """As `all_kept`, and *error* for a group with *of* in it."""

    def answer(names: list[bytes]) -> list[tuple[Any, ...]]:
        if of in names:
            raise error()
        return all_kept(names)

    return answer


async def test_what_one_append_is_to_blame_for_fails_no_other() -> None:
    def error() -> Exception:
        explained = StoreError("too long")
        explained.__cause__ = Full()
        return explained

    world = World(failing(error, b"long"))
    first, long, last = await world.outcomes(new("a"), new("long"), new("b"))
    assert (first, last) == ("i-a", "i-b")
    assert (type(long), str(long)) == (StoreError, "too long")
    assert world.groups == [3, 1, 1, 1]


async def test_an_error_with_no_cause_of_the_engines_own_is_looked_at_itself() -> None:
    world = World(failing(Full, b"long"))
    outcomes = await world.outcomes(new("a"), new("long"))
    assert (outcomes[0], type(outcomes[1])) == ("i-a", Full)


@pytest.mark.parametrize("cause", [None, ConnectionResetError(), StoreError("of ours")], ids=repr)
async def test_where_the_server_is_lost_each_is_told_by_an_error_of_its_own(
    cause: Exception | None,
) -> None:
    def error() -> Exception:
        explained = StoreError("no answer")
        explained.__cause__ = cause
        return explained

    world = World(failing(error, b"a"))
    outcomes = await world.outcomes(new("a"), new("b"), new("c"))
    assert [(type(one), str(one)) for one in outcomes] == [(StoreError, "no answer")] * 3
    assert len({id(one) for one in outcomes}) == 3
    assert world.groups == [3], "it is not asked again"
    assert world.told == [[]]
