"""A run in the background: its notices are whole and in order, whoever reads them and however slowly."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from decimal import Decimal
from typing import Any

import pytest

from turnwheel import (
    Agent,
    DoneReason,
    MemoryStore,
    ModelSpec,
    Price,
    Session,
    tool,
)
from turnwheel.effects.errors import SessionBusy, StoreError, UnknownSession
from turnwheel.effects.notices import (
    ApprovalRequested,
    Notice,
    RunEnded,
    RunStarted,
    TextDelta,
)
from turnwheel.effects.requests import CallModel
from turnwheel.effects.usage import Spent, Usage
from turnwheel.engine.session.session import HANDLE_BUFFER, Handle
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.scripted import (
    Reply,
    ScriptedModel,
    calls,
    says,
    stalls,
)
from turnwheel.testing.stores import FaultyStore

MANY = says(" ".join(map(str, range(4 * HANDLE_BUFFER))))
"""An answer of more pieces than may wait for a reader."""

MODEL = ModelSpec(name="scripted", price=Price(input=1, output=1))


@tool
def pay() -> str:
    """Pay."""
    return "paid"


def session(*replies: Reply, store: Any = None) -> Session:
    """A session over a script, with a store."""
    agent = Agent(
        model=MODEL,
        tools=[pay],
        store=MemoryStore() if store is None else store,
        clock=AutoClock(100.0),
        performers={CallModel: ScriptedModel(*replies)},
    )
    return agent.session("s")


async def turns(number: int) -> None:
    """Let others run for *number* turns of the event loop."""
    for _ in range(number):
        await asyncio.sleep(0)


async def until(holds: Callable[[], object]) -> None:
    """Let others run until something *holds*."""
    async with asyncio.timeout(10):
        while not holds():
            await turns(1)


async def read(handle: Handle, count: int | None = None) -> list[Notice]:
    """The next *count* notices of *handle*, or all there are."""
    notices: list[Notice] = []
    if count != 0:
        async with aclosing(aiter(handle)) as reading:
            async for notice in reading:
                notices.append(notice)
                if len(notices) == count:
                    break
    return notices


def text(notices: list[Notice]) -> str:
    """What was streamed in *notices*."""
    return "".join(notice.text for notice in notices if isinstance(notice, TextDelta))


WHOLE = " ".join(map(str, range(4 * HANDLE_BUFFER)))


@pytest.fixture(autouse=True)
async def _quiet() -> AsyncIterator[None]:
    """Nothing is left at work, and no error is left that nobody was told of."""
    heard = list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
    gc.freeze()  # what was there before needs no look
    yield
    gc.collect()
    gc.unfreeze()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert heard == []


# Who reads it


async def test_a_run_waits_for_its_reader_and_nothing_is_lost() -> None:
    """However long nobody reads, and at whatever pace: the run is held up, not the memory filled."""
    mine = session(MANY)
    handle = mine.start("go")
    await turns(20 * HANDLE_BUFFER)
    assert not handle.done
    assert mine.unfinished
    notices = await read(handle, 10)
    await turns(20 * HANDLE_BUFFER)
    assert not handle.done
    async for notice in handle:
        notices.append(notice)
        await asyncio.sleep(0)
    assert isinstance(notices[0], RunStarted)
    assert isinstance(notices[-1], RunEnded)
    assert text(notices) == WHOLE
    assert handle.done


async def test_whoever_waits_reads_what_nobody_does() -> None:
    """Also where a reader has gone away in the middle, or comes only when all is over."""
    handle = session(MANY).start("go")
    await read(handle, 3)
    assert (await handle.wait()).text == WHOLE
    assert await read(handle) == []
    assert (await handle.wait()).text == WHOLE


@pytest.mark.parametrize("first", ["reader", "waiter"])
async def test_waiting_takes_nothing_away_from_a_reader(first: str) -> None:
    """Whichever began first."""
    handle = session(MANY).start("go")
    if first == "reader":
        reading, waiting = asyncio.ensure_future(read(handle)), asyncio.ensure_future(handle.wait())
    else:
        waiting, reading = asyncio.ensure_future(handle.wait()), asyncio.ensure_future(read(handle))
    assert text(await reading) == WHOLE
    assert (await waiting).text == WHOLE


async def test_who_waits_goes_on_where_a_reader_stops() -> None:
    """A reader that leaves does not hold up the run for ever."""
    handle = session(MANY).start("go")
    waiting = asyncio.ensure_future(handle.wait())
    seen = await read(handle, 5)
    assert (await waiting).text == WHOLE
    assert len(seen) == 5


async def test_a_reader_that_just_breaks_out_is_gone_too() -> None:
    """Nobody has to close what a loop reads."""
    handle = session(MANY).start("go")
    async for _ in handle:
        break
    async with asyncio.timeout(10):
        assert (await handle.wait()).text == WHOLE


async def test_two_readers_share_the_notices() -> None:
    """Each goes to one of them, and both come to an end."""
    handle = session(MANY).start("go")
    seen: list[tuple[int, Notice]] = []

    async def watch(reader: int) -> None:
        async for notice in handle:
            seen.append((reader, notice))
            await asyncio.sleep(0)

    await asyncio.gather(watch(1), watch(2))
    assert {reader for reader, _ in seen} == {1, 2}
    assert text([notice for _, notice in seen]) == WHOLE


async def test_a_reader_that_is_cancelled_leaves_the_rest_to_the_next() -> None:
    """And the run goes on."""
    handle = session(says("a b c"), says("d")).start("go")
    reading = asyncio.ensure_future(read(handle))
    await turns(4)
    reading.cancel()
    await asyncio.wait({reading})
    rest = await read(handle)
    assert isinstance(rest[-1], RunEnded)
    assert handle.reason is DoneReason.END_TURN


# How it ends


@pytest.mark.parametrize("moment", range(14))
async def test_a_handle_that_is_closed_at_any_moment_lets_everybody_go(moment: int) -> None:
    """Before its first step, too; the run can be gone on with, and nobody hangs."""
    mine = session(stalls("half"), stalls("again"))
    handle = mine.start("go")
    reading = asyncio.ensure_future(read(handle))
    await turns(moment)
    await handle.close()
    await handle.close()
    async with asyncio.timeout(10):
        await reading
    assert handle.done
    if not moment:
        with pytest.raises(UnknownSession):  # it had not begun
            await handle.wait()
        return
    assert (await handle.wait()).reason is None
    again = mine.start()
    async for notice in again:
        if isinstance(notice, TextDelta):
            break
    await again.interrupt()
    assert (await again.wait()).reason is DoneReason.INTERRUPTED


async def test_leaving_the_context_leaves_the_run() -> None:
    """Its session can go on with it."""
    mine = session(stalls("half"), says("whole"))
    async with mine.start("go") as handle:
        async for notice in handle:
            if isinstance(notice, TextDelta):
                break
    assert (mine.unfinished, mine.running, handle.done, handle.reason) == (True, False, True, None)
    assert (await mine.resume()).text == "whole"


async def test_an_error_is_raised_to_whoever_reads_and_whoever_waits() -> None:
    """To each of them, as often as they ask; and closing says nothing new."""
    store = FaultyStore()
    mine = session(stalls("half"), store=store)
    handle = mine.start("go")
    reading, waiting = asyncio.ensure_future(read(handle)), asyncio.ensure_future(handle.wait())
    await until(lambda: mine.running)
    store.works = False
    await handle.interrupt()
    for each in (reading, waiting, read(handle), handle.wait()):
        with pytest.raises(StoreError, match="no space left"):
            await each
    await handle.close()


async def test_an_error_that_nobody_was_told_of_is_raised_by_closing() -> None:
    """Once; it is not lost with the handle."""
    handle = session(says("hi"), store=FaultyStore(works=False)).start("go")
    await until(lambda: handle.done)
    with pytest.raises(StoreError, match="no space left"):
        await handle.close()
    await handle.close()


async def test_the_second_of_two_is_told_that_there_is_one() -> None:
    """And the first is not disturbed."""
    mine = session(MANY)
    first, second = mine.start("go"), mine.start("go too")
    with pytest.raises(SessionBusy):
        await second.wait()
    assert (await first.wait()).text == WHOLE
    assert [message.text for message in mine.history if message.role == "user"] == ["go"]


async def test_an_interrupt_ends_the_run_and_what_was_read_is_kept() -> None:
    """It is said through the handle or its session."""
    handle = session(stalls("half")).start("go")
    async for notice in handle:
        if isinstance(notice, TextDelta):
            await handle.interrupt()
    result = await handle.wait()
    assert (result.reason, result.text) == (DoneReason.INTERRUPTED, "half")


async def test_a_run_in_the_background_waits_for_answers() -> None:
    """It does not rest: nobody else would go on with it."""
    mine = session(calls(("pay", {})), says("done"))
    handle = mine.start("go")
    async for notice in handle:
        if isinstance(notice, ApprovalRequested):
            await turns(50)
            assert (handle.done, handle.reason) == (False, None)
            await mine.approve(notice.request)
    assert (await handle.wait()).text == "done"


# What is known of it


async def test_what_is_known_of_it_at_any_time() -> None:
    """Nothing yet, then what it has used so far, then all."""
    mine = session(calls(("pay", {})), says("done"))
    handle = mine.start("go")
    assert (handle.done, handle.reason, handle.spent) == (False, None, Spent())
    assert (handle.turns, handle.cost, handle.usage) == (0, Decimal(0), Usage())
    await until(lambda: mine.waiting)
    assert (handle.done, handle.reason, handle.turns) == (False, None, 1)
    assert handle.usage == Usage(input=10, output=5)
    await mine.approve(mine.waiting[0].id)
    result = await handle.wait()
    assert (handle.done, handle.reason, handle.turns) == (True, DoneReason.END_TURN, 2)
    assert (handle.spent, handle.usage) == (result.spent, Usage(input=20, output=10))
    assert handle.cost == Decimal("0.00003")


async def test_what_was_over_before_is_not_told_as_its_own() -> None:
    """A handle of a second run knows nothing until that has begun."""
    mine = session(says("one"), says("two"))
    await mine.run("first")
    handle = mine.start("second")
    assert (handle.reason, handle.turns) == (None, 0)
    async for notice in handle:
        if isinstance(notice, RunStarted):
            assert (handle.reason, handle.turns) == (None, 0)
    assert (handle.reason, handle.turns) == (DoneReason.END_TURN, 1)


async def test_a_run_that_is_gone_on_with_has_its_whole_account() -> None:
    """What was used before is part of it."""
    mine = session(calls(("pay", {})), says("done"))
    resting = await mine.run("go")
    handle = mine.start()
    assert (handle.reason, handle.turns) == (None, 1)
    await mine.approve(resting.waiting[0].id)
    assert (await handle.wait()).spent.turns == 2
