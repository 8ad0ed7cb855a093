"""Lists of very many sessions: in pages, and with a turn for everything else after each."""

from __future__ import annotations

import asyncio
import gc
import itertools
import sys
from asyncio.base_events import BaseEventLoop
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from turnwheel import MemoryStore, SQLiteStore
from turnwheel.engine import delete, described, latest, listed, prune
from turnwheel.engine.core.codec import encode
from turnwheel.engine.journal.summary import SessionKind, SessionStatus, SessionSummary
from turnwheel.performers import SessionInfo, Store
from turnwheel.testing.stores import StoreOver

# Different rows in each store: decoded ones are remembered, and cost fewer lines.
STORES = itertools.count()


def about(number: int, filled: int = 0) -> bytes:
    """The summary of a session; each tenth is a child of the one before."""
    child = number % 10 == 9
    row = SessionSummary(
        title=f"number {number}",
        cwd=f"/nowhere/{number % 7}",
        kind=SessionKind.CHILD if child else SessionKind.MAIN,
        parent=name(number - 1) if child else "",
        messages=filled,
    )
    return encode(row, SessionSummary)


def name(number: int) -> str:
    return f"{name(number - 1)}.call" if number % 10 == 9 else f"s{number:04}"


async def fill(store: Store, sessions: int) -> None:
    filled = next(STORES)
    await asyncio.gather(*(store.append(name(one), 0, [b"x"], about(one, filled)) for one in range(sessions)))


async def busiest_turn(work: Coroutine[Any, Any, object]) -> int:
    """The number of lines that run in one turn of the event loop at most, while *work* is done."""
    turns = [0]

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        if event == "line":
            turns[-1] += 1
        elif event == "call" and frame.f_code is BaseEventLoop._run_once.__code__:  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]  # where a turn begins
            turns.append(0)
        return trace

    await asyncio.sleep(0)  # what was done to prepare it is over by then
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        await asyncio.create_task(work)
    finally:
        sys.settrace(before)
    return max(turns)


WORK: dict[str, Callable[[Store], Coroutine[Any, Any, object]]] = {
    "all": listed,
    "all of a prefix": lambda store: listed(store, prefix="s"),
    "a page": lambda store: listed(store, 50),
    "latest": lambda store: latest(store, "/nowhere/at/all"),
    "one": lambda store: described(store, "s0001"),
    "delete": lambda store: delete(store, "s0008"),
    "prune": lambda store: prune(store, 1.0, 0.0),
}


@pytest.mark.behaviour("sessions-are-listed")
@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("kind", ["memory", "file"])
async def test_no_turn_of_the_loop_is_longer_where_there_are_more_sessions(
    tmp_path: Path, kind: str, work: str
) -> None:
    longest = []
    for sessions in (450, 1_350):
        store: Store = (
            MemoryStore() if kind == "memory" else SQLiteStore(tmp_path / f"{sessions}.db", "process")
        )
        await fill(store, sessions)
        longest.append(await busiest_turn(WORK[work](store)))
        await store.close()
    assert longest[1] < 1.1 * longest[0]


async def test_the_rows_of_a_list_cost_a_garbage_collection_nothing() -> None:
    store = MemoryStore()
    await fill(store, 450)
    await store.append("unreadable", 0, [b"no entry"])
    found = await listed(store)
    gc.collect()
    # A collection visits all tracked objects in one turn of the loop, so no row may be one or hold one.
    assert not [one for one in found if gc.is_tracked(one) or any(map(gc.is_tracked, gc.get_referents(one)))]
    assert found[0].about.state is SessionStatus.UNREADABLE
    assert [one.about.title for one in found[1:]] == [f"number {number}" for number in range(449, -1, -1)]


class Asked(StoreOver):
    """Counts what is asked of a store, and does *meanwhile* before each page but the first."""

    def __init__(self, meanwhile: Callable[[Store, int], Awaitable[object]] | None = None) -> None:
        super().__init__()
        self.pages: list[int] = []
        self.loaded = 0
        self._meanwhile = meanwhile

    async def list(
        self, limit: int | None = None, after: int | None = None, prefix: str = ""
    ) -> list[SessionInfo]:
        if self.pages and self._meanwhile is not None:
            await self._meanwhile(self.kept, len(self.pages))
        found = [*await self.kept.list(limit, after, prefix)]
        self.pages.append(len(found))
        return found


async def test_a_page_is_all_that_is_read_of_a_page() -> None:
    store = Asked()
    await fill(store, 1_000)
    first = await listed(store, 30)
    second = await listed(store, 250, first[-1].stamp)
    assert store.pages == [30, 200, 200]
    assert [one.session for one in (*first, *second)] == [name(one) for one in range(999, 719, -1)]
    assert await latest(store, "/nowhere/6") == "s0993"
    assert await described(store, "s0003") == (await listed(store))[-4]
    store.pages.clear()
    assert await delete(store, "s0008") == 2
    assert store.pages == [1]


async def test_a_session_that_is_written_to_while_many_are_listed_is_listed_once() -> None:
    async def write(store: Store, pages: int) -> None:
        # The oldest one, which then is on none of the pages that are still to come.
        await store.append(name(pages), 1, [b"x"])
        with suppress(KeyError):
            await store.append(f"new {pages}", 0, [b"x"], about(0))

    store = Asked(write)
    await fill(store.kept, 700)
    found = [one.session for one in await listed(store)]
    assert len(found) == len({*found})
    assert {*found} >= {name(number) for number in range(700)}
    order = [info.session for info in await store.kept.list()]
    assert found == [one for one in order if one in found]
