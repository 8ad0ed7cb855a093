"""What every store promises, and what the one on a disk promises beyond that."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from turnwheel.effects.errors import StoreConflict, StoreError
from turnwheel.effects.performers.stores.base import SessionInfo, Store
from turnwheel.effects.performers.stores.memory import MemoryStore
from turnwheel.effects.performers.stores.sqlite import SQLiteStore


def ticking() -> Callable[[], float]:
    """A clock that goes on by one second each time it is read."""
    return itertools.count(1.0).__next__


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """One store of each kind, on a clock that ticks when it is read."""
    made: Store
    if request.param == "memory":
        made = MemoryStore(now=ticking())
    else:
        made = SQLiteStore(tmp_path / "agent.db", "process", now=ticking())
    yield made
    await made.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a file is to be made."""
    return tmp_path / "agent.db"


# What every store promises


async def test_entries_come_back_in_order(store: Store) -> None:
    """What is appended in several goes is loaded as one sequence."""
    assert await store.append("s", 0, [b"a", b"b"]) == 2
    assert await store.append("s", 2, (b"c",)) == 3
    assert list(await store.load("s")) == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("start", "expected"), [(0, [b"a", b"b", b"c"]), (2, [b"c"]), (3, []), (9, []), (-1, [b"a", b"b", b"c"])]
)
async def test_loading_starts_anywhere(store: Store, start: int, expected: list[bytes]) -> None:
    """`load` gives what is at and behind its start, which may lie outside the session."""
    await store.append("s", 0, [b"a", b"b", b"c"])
    assert list(await store.load("s", start)) == expected


async def test_an_unknown_session_is_empty(store: Store) -> None:
    """A session that is not there loads as empty and is neither listed nor deleted."""
    assert list(await store.load("nobody")) == []
    assert list(await store.list()) == []
    assert await store.delete("nobody") is False


async def test_a_session_is_there_once_it_has_an_entry(store: Store) -> None:
    """Appending nothing compares the length and leaves no trace."""
    assert await store.append("s", 0, []) == 0
    assert list(await store.list()) == []
    await store.append("s", 0, [b"a"])
    assert await store.append("s", 1, []) == 1
    assert (await store.list())[0].updated == 1.0
    with pytest.raises(StoreConflict):
        await store.append("s", 0, [])


@pytest.mark.parametrize("expected", [-1, 0, 1, 3])
async def test_a_writer_that_is_not_at_the_end_writes_nothing(store: Store, expected: int) -> None:
    """An append with any other length than the real one is refused and changes nothing."""
    await store.append("s", 0, [b"a", b"b"])
    with pytest.raises(StoreConflict) as caught:
        await store.append("s", expected, [b"x"])
    assert (caught.value.session, caught.value.expected, caught.value.actual) == ("s", expected, 2)
    assert list(await store.load("s")) == [b"a", b"b"]


async def test_of_two_writers_at_once_one_goes_on(store: Store) -> None:
    """Of many appends that all expect the same length exactly one is kept."""
    tries = (store.append("s", 0, [str(number).encode()]) for number in range(20))
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    assert outcomes.count(1) == 1
    assert sum(isinstance(outcome, StoreConflict) for outcome in outcomes) == 19
    assert list(await store.load("s")) == [str(outcomes.index(1)).encode()]


async def test_sessions_share_nothing(store: Store) -> None:
    """Appending to many sessions at once keeps each one's own entries."""
    names = [f"s{number}" for number in range(10)]
    for length in range(3):
        await asyncio.gather(*(store.append(name, length, [name.encode()]) for name in names))
    assert [list(await store.load(name)) for name in names] == [[name.encode()] * 3 for name in names]


async def test_sessions_are_listed_last_written_first(store: Store) -> None:
    """`list` tells lengths and times; an append moves its session to the front."""
    await store.append("a", 0, [b"1"])
    await store.append("b", 0, [b"1", b"2"])
    await store.append("a", 1, [b"2"])
    assert list(await store.list()) == [
        SessionInfo(session="a", length=2, created=1.0, updated=3.0),
        SessionInfo(session="b", length=2, created=2.0, updated=2.0),
    ]


async def told(store: Store) -> dict[str, tuple[bytes, float]]:
    """What each session is about, and when it was written last."""
    return {info.session: (info.about, info.updated) for info in await store.list()}


async def test_a_session_is_about_what_was_said_last(store: Store) -> None:
    """`append` stores it along with the entries; where it says nothing, what was said before stays."""
    await store.append("a", 0, [b"1"])
    await store.append("b", 0, [b"1"], b"new")
    assert await told(store) == {"a": (b"", 1.0), "b": (b"new", 2.0)}
    await store.append("a", 1, [b"2"], b"of a")
    await store.append("b", 1, [b"2"])
    assert await told(store) == {"a": (b"of a", 3.0), "b": (b"new", 4.0)}
    await store.append("b", 2, [b"3"], b"")
    assert await told(store) == {"a": (b"of a", 3.0), "b": (b"", 5.0)}


async def test_what_a_session_is_about_may_change_by_itself(store: Store) -> None:
    """Without entries nothing was written to the session: neither its length nor its time changes."""
    assert await store.append("s", 0, [], b"of nothing") == 0
    assert list(await store.list()) == []
    await store.append("s", 0, [b"1"])
    assert await store.append("s", 1, [], b"of it") == 1
    assert await told(store) == {"s": (b"of it", 1.0)}
    assert list(await store.load("s")) == [b"1"]
    assert await store.append("s", 1, [b"2"]) == 2


@pytest.mark.parametrize("entries", [[], [b"x"]])
async def test_a_writer_that_is_not_at_the_end_changes_nothing_it_is_about(
    store: Store, entries: list[bytes]
) -> None:
    """All or nothing: where the entries are refused, so is what they were to be about."""
    await store.append("s", 0, [b"1", b"2"], b"true")
    for expected in (0, 1, 3):
        with pytest.raises(StoreConflict):
            await store.append("s", expected, entries, b"false")
    assert await told(store) == {"s": (b"true", 1.0)}


async def test_what_a_session_is_about_is_any_bytes_and_goes_with_it(store: Store) -> None:
    """It comes back as it was, and a session of the same name that comes later has none."""
    for number, about in enumerate([bytes(range(256)), b"'; drop table sessions; --", b"x" * 100_000]):
        await store.append("s", number, [b"1"], about)
        assert (await store.list())[0].about == about
    await store.delete("s")
    await store.append("s", 0, [b"1"])
    assert (await store.list())[0].about == b""


async def test_a_deleted_session_is_gone_and_may_come_again(store: Store) -> None:
    """`delete` takes one session and no other; its name is then as good as new."""
    await store.append("a", 0, [b"old", b"older"])
    await store.append("b", 0, [b"kept"])
    assert await store.delete("a") is True
    assert list(await store.load("a")) == []
    assert await store.append("a", 0, [b"new"]) == 1
    assert [list(await store.load(name)) for name in ("a", "b")] == [[b"new"], [b"kept"]]


@pytest.mark.parametrize(
    "entry",
    [b"", b"\0", bytes(range(256)), b"'; drop table entries; --", "é\u2028".encode(), b"x" * 5_000_000],
    ids=["empty", "nul", "all bytes", "quotes", "text", "large"],
)
async def test_an_entry_is_any_bytes(store: Store, entry: bytes) -> None:
    """What is loaded is what was appended, byte by byte."""
    await store.append("s", 0, [entry, b"end"])
    assert list(await store.load("s")) == [entry, b"end"]


async def test_a_session_has_any_name(store: Store) -> None:
    """Names that look alike, are empty or hold odd characters are different sessions."""
    names = ["", " ", "a", "A", "a ", "a\0b", "a\0c", "%", "a'b", 'a"b', "../x", "naïve", "nai\u0308ve", "🦊"]
    names.append("n" * 5000)
    for name in names:
        await store.append(name, 0, [name.encode()])
    assert [list(await store.load(name)) for name in names] == [[name.encode()] for name in names]
    assert {info.session for info in await store.list()} == set(names)


async def test_the_store_keeps_its_own_copy(store: Store) -> None:
    """Changing a list after appending it, or one that was loaded, changes nothing that is stored."""
    entries = [b"a"]
    await store.append("s", 0, entries)
    entries.append(b"b")
    loaded = await store.load("s")
    assert isinstance(loaded, list)
    loaded.clear()
    assert list(await store.load("s")) == [b"a"]


async def test_closing_twice_is_fine(store: Store) -> None:
    """`close` may be called again, also at the same time."""
    await asyncio.gather(store.close(), store.close())
    await store.close()


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.append("s", 0, [b"a"]),
        lambda store: store.load("s"),
        lambda store: store.list(),
        lambda store: store.delete("s"),
    ],
    ids=["append", "load", "list", "delete"],
)
async def test_a_closed_store_says_so(store: Store, use: Callable[[Store], Awaitable[object]]) -> None:
    """Every method of a closed store raises an error that says what to do."""
    await store.close()
    with pytest.raises(StoreError, match=r"is closed.*make a new one"):
        await use(store)


async def test_a_cancelled_append_is_kept_and_the_order_with_it(store: Store) -> None:
    """Whoever is cancelled while appending knows that the entries are there, and can go on behind them."""
    writers = [asyncio.create_task(store.append("s", number, [str(number).encode()])) for number in range(5)]
    await asyncio.sleep(0)  # one step: all have handed over their entries
    for writer in writers:
        writer.cancel()
    outcomes = await asyncio.gather(*writers, return_exceptions=True)
    # The store in memory is done before anybody can cancel it.
    assert all(isinstance(outcome, asyncio.CancelledError | int) for outcome in outcomes)
    assert await store.append("s", 5, [b"5"]) == 6
    assert list(await store.load("s")) == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_a_store_outlives_an_event_loop(store: Store) -> None:
    """One loop after another may use a store, from different threads too."""

    def write(number: int) -> None:
        asyncio.run(store.append("s", number, [str(number).encode()]))

    for number in range(3):
        thread = threading.Thread(target=write, args=(number,))
        thread.start()
        thread.join()
    assert list(asyncio.run(store.load("s"))) == [b"0", b"1", b"2"]
