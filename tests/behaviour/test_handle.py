"""A run in the background, through its handle."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from turnwheel import DoneReason, ModelSpec, Price
from turnwheel.effects.errors import SessionBusy, StoreError
from turnwheel.effects.notices import (
    ApprovalRequested,
    CallSettled,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolOutput,
)
from turnwheel.testing.scripted import calls, says, stalls
from turnwheel.testing.stores import FaultyStore

if TYPE_CHECKING:
    from behaviour.conftest import Stage

    from turnwheel import Handle


@pytest.mark.behaviour("a-handle-is-there-at-once")
async def test_a_run_goes_on_in_the_background_while_its_caller_does_something_else(stage: Stage) -> None:
    """Starting it waits for nothing, and nobody needs to read for it to get to its end."""
    session = stage.session(calls(("dig", {})), says("done"))
    handle = session.start("go")
    assert (handle.done, handle.reason, stage.asked) == (False, None, 0)
    stage.release()
    while not handle.done:  # noqa: ASYNC110  # nobody tells of it who does not read
        await asyncio.sleep(0)
    assert (handle.reason, session.result().text) == (DoneReason.END_TURN, "done")
    notices = [notice async for notice in handle]
    assert (type(notices[0]), type(notices[-1])) == (RunStarted, RunEnded)


@pytest.mark.behaviour("a-handle-is-there-at-once")
async def test_it_tells_the_account_at_any_time_and_waiting_gives_the_result(stage: Stage) -> None:
    """The same figures as the result's, once it is over."""
    model = ModelSpec(name="scripted", price=Price(input=1, output=2))
    session = stage.session(calls(("dig", {})), says("done"), model=model)
    async with session.start("go") as handle:
        assert (handle.turns, handle.cost, handle.usage.total) == (0, Decimal(0), 0)
        async for notice in handle:
            if isinstance(notice, ToolOutput):
                assert (handle.turns, handle.cost, handle.usage.total) == (1, Decimal("0.00002"), 15)
                assert (handle.done, handle.reason) == (False, None)
                stage.release()
        result = await handle.wait()

    assert (result.text, result.reason, handle.reason) == ("done", DoneReason.END_TURN, DoneReason.END_TURN)
    assert (handle.spent, handle.turns, handle.cost) == (result.spent, 2, Decimal("0.00004"))
    assert handle.session is session


@pytest.mark.behaviour("a-handle-loses-nothing")
async def test_a_run_waits_for_a_reader_that_is_slow(stage: Stage) -> None:
    """It reads everything, in order, and never more than a few notices pile up."""
    words = [f"{number} " for number in range(500)]
    session = stage.session(says("".join(words).strip()), says("more"))
    handle = session.start("go")
    for _ in range(2_000):
        await asyncio.sleep(0)
    assert (handle.done, handle.reason) == (False, None)

    read = [notice async for notice in handle]
    assert "".join(notice.text for notice in read if isinstance(notice, TextDelta)) == "".join(words).strip()
    assert isinstance(read[-1], RunEnded)
    assert (handle.done, (await handle.wait()).reason) == (True, DoneReason.END_TURN)


@pytest.mark.behaviour("a-handle-loses-nothing")
async def test_what_is_said_meanwhile_is_part_of_the_same_stream(stage: Stage) -> None:
    """Prompts, answers and steers go through its session; it ends when no prompt waits."""
    session = stage.session(calls(("pay", {})), says("paid"), says("and hello"))
    handle = session.start("pay")
    ends = 0
    async for notice in handle:
        ends += isinstance(notice, RunEnded)
        if isinstance(notice, ApprovalRequested):
            await session.send("hi")
            await session.approve(notice.request)

    assert ((await handle.wait()).text, ends, stage.ran) == ("and hello", 2, ["pay 1"])


async def full_at(kind: type, handle: Handle, store: FaultyStore) -> None:
    """Read *handle*, whose *store* is full from the first notice of *kind* on."""
    async for notice in handle:
        if isinstance(notice, kind):
            store.works = False


@pytest.mark.behaviour("a-handle-loses-nothing")
async def test_what_breaks_a_run_off_is_raised_to_whoever_waits(stage: Stage) -> None:
    """An error of the store is no end of a run: it can be resumed when the store works again."""
    store = FaultyStore()
    session = stage.session(calls(("look", {})), says("lost"), says("done"), store=store)
    handle = session.start("go")
    with pytest.raises(StoreError, match="no space left"):
        await full_at(CallSettled, handle, store)
    with pytest.raises(StoreError, match="no space left"):
        await handle.wait()
    assert handle.done

    store.works = True
    assert (await session.start().wait()).reason is DoneReason.END_TURN


@pytest.mark.behaviour("a-handle-loses-nothing")
async def test_an_end_that_could_not_be_written_down_is_none(stage: Stage) -> None:
    """What was not kept did not happen: whoever looks is not told of it."""
    store = FaultyStore()
    session = stage.session(says("done"), store=store)
    handle = session.start("go")
    with pytest.raises(StoreError, match="no space left"):
        await full_at(TextDelta, handle, store)
    assert (handle.reason, session.unfinished) == (None, True)


@pytest.mark.behaviour("a-handle-stops-or-leaves")
async def test_interrupting_ends_the_run_and_closing_leaves_it(stage: Stage) -> None:
    """What was left can be resumed; closing twice is fine, and nothing is left at work."""
    before = asyncio.all_tasks()
    session = stage.session(stalls("once"), stalls("half"), says("whole"))
    handle = session.start("go")
    async for notice in handle:
        if isinstance(notice, TextDelta):
            await handle.interrupt()
    assert handle.reason is DoneReason.INTERRUPTED

    handle = session.start("again")
    async for notice in handle:
        if isinstance(notice, TextDelta):
            break
    await handle.close()
    await handle.close()
    assert (handle.done, handle.reason, session.unfinished) == (True, None, True)
    assert asyncio.all_tasks() == before
    assert (await session.start().wait()).text == "whole"


@pytest.mark.behaviour("a-handle-stops-or-leaves")
async def test_one_run_at_a_time(stage: Stage) -> None:
    """A second one is told so, and the first does not notice."""
    session = stage.session(says("done"))
    first, second = session.start("a"), session.start("b")
    with pytest.raises(SessionBusy, match="session 's' has a run under way"):
        await second.wait()
    assert (await first.wait()).text == "done"
    assert stage.said(session) == ["user: a", "assistant: done"]
