"""What subscribers get: where each notice stands, and what a full buffer keeps."""

from __future__ import annotations

import asyncio
import gc
import weakref
from sys import maxsize
from typing import Any

import pytest
from provers.tasks import turns

from turnwheel.effects.messages import Message, Role, StopReason, user
from turnwheel.effects.notices import (
    AnswerKept,
    DoneReason,
    InputBlocked,
    InputTaken,
    Notice,
    NoticesMissed,
    RequestDelayed,
    RunEnded,
    TextDelta,
    TurnEnded,
    Warned,
)
from turnwheel.effects.usage import Spent, Usage
from turnwheel.engine.session.feed import Feed

ANSWER = Message(role=Role.ASSISTANT, parts=())
TURN = TurnEnded(request="r", turn=1, message=ANSWER, stop=StopReason.END_TURN, usage=Usage(), at=0.0)
END = RunEnded(run="1", reason=DoneReason.END_TURN, spent=Spent(), at=0.0)
TAKEN = InputTaken(ids=("i",), messages=(user("go"),), at=0.0)
BLOCKED = InputBlocked(ids=("i",), reason="no", at=0.0)
KEPT = AnswerKept(request="r", message=ANSWER, at=0.0)
ODD = Warned(text="odd", at=0.0)


# Where a notice stands


async def test_each_notice_has_its_place_in_its_entry_and_one_of_the_moment_stands_between() -> None:
    feed = Feed()
    reader = feed.subscribe()
    published: list[tuple[Any, int | None, tuple[int, int] | None]] = [
        # No journal has it, and none was there before it: behind all of its entry.
        (TextDelta("a", at=0.0), 3, (3, maxsize)),
        (ODD, 3, (3, 0)),
        (ODD, 3, (3, 1)),
        (TextDelta("b", at=0.0), 3, (3, 1)),
        (RequestDelayed(request="r", due=1.0, reason="x", at=0.0), 5, (5, -1)),
        (ODD, 5, (5, 0)),
        (TextDelta("c", at=0.0), 4, (5, 0)),
        (ODD, None, None),
        (ODD, 6, (6, 0)),
    ]
    for notice, entry, at in published:
        feed.publish(notice, entry)
        assert await reader.next() == notice
        assert reader.at == at


# A full buffer


@pytest.mark.parametrize("outcome", [TAKEN, BLOCKED, TURN, KEPT, END])
async def test_what_says_how_a_run_went_takes_the_place_of_anything_else(outcome: Notice) -> None:
    feed = Feed(size=2)
    slow = feed.subscribe()
    for notice in (ODD, ODD, outcome):
        feed.publish(notice)
    feed.close()
    assert [one async for one in slow] == [NoticesMissed(count=1, at=0.0), ODD, outcome]
    assert slow.dropped == 1


async def test_another_notice_does_not_take_the_place_of_one_that_is_there() -> None:
    feed = Feed(size=2)
    slow = feed.subscribe()
    for notice in (ODD, TURN, ODD):
        feed.publish(notice)
    feed.close()
    assert [one async for one in slow] == [ODD, TURN, NoticesMissed(count=1, at=0.0)]


async def test_an_answer_takes_the_place_of_the_one_right_before_it_only() -> None:
    feed = Feed(size=2)
    slow = feed.subscribe()
    for notice in (TURN, END, TURN, TURN):
        feed.publish(notice)
    feed.close()
    assert [one async for one in slow] == [TURN, END, NoticesMissed(count=1, at=0.0), TURN]


async def test_what_was_missed_counts_for_the_one_behind_it_also_when_that_goes() -> None:
    feed = Feed(size=2)
    slow = feed.subscribe()
    # The second text is missed, and so is the first one then, for the end of the run.
    published: list[Notice] = [TextDelta("a", at=0.0), ODD, TextDelta("b", at=0.0), END, END]
    for number, notice in enumerate(published):
        feed.publish(notice, number)
    feed.close()
    assert [one async for one in slow] == [NoticesMissed(count=3, at=0.0), END, END]
    assert (slow.dropped, slow.at) == (3, (4, 0))


async def test_a_reader_that_has_read_has_room_again() -> None:
    feed = Feed(size=1)
    slow = feed.subscribe()
    feed.publish(ODD)
    feed.publish(ODD)
    assert await slow.next() == ODD
    feed.publish(TURN)
    assert await slow.next() == NoticesMissed(count=1, at=0.0)
    assert await slow.next() == TURN
    feed.publish(ODD)
    assert await slow.next() == ODD


# Who is there


async def test_a_broker_says_whether_it_ever_had_a_subscriber() -> None:
    feed = Feed()
    used = [feed.used]
    feed.publish(ODD)
    reader = feed.subscribe()
    assert [*used, feed.used] == [False, True]
    feed.close()
    assert await reader.next() is None
    closed = Feed()
    closed.close()
    assert await closed.subscribe().next() is None
    assert closed.used is False


async def test_a_wait_that_is_given_up_ends_nothing() -> None:
    feed = Feed()
    reader = feed.subscribe()
    waiting = asyncio.ensure_future(reader.next())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    feed.publish(ODD)
    assert await reader.next() == ODD


async def test_a_subscriber_that_left_is_not_told_what_it_missed() -> None:
    left = Feed(1).subscribe()
    for text in "ab":
        left.put(TextDelta(text, at=0.0))
    assert left.dropped == 1
    await left.aclose()
    assert await left.next() is None


async def test_a_subscriber_ends_with_its_context() -> None:
    async with Feed().subscribe() as left:
        left.put(ODD)
    left.put(END)
    assert [notice async for notice in left] == []


async def test_a_task_that_waits_for_a_notice_gets_it_although_nothing_else_holds_it() -> None:
    feed, got = Feed(), list[Notice | None]()

    async def wait() -> None:
        got.append(await feed.subscribe().next())

    asyncio.ensure_future(wait())  # noqa: RUF006  # that is what this is about
    await turns(3)
    other = feed.subscribe()
    gc.collect()
    feed.publish(END)
    assert await other.next() is END
    await turns(3)
    assert got == [END]


async def test_a_subscriber_that_is_dropped_is_gone_also_where_it_waited_before() -> None:
    feed = Feed()
    dropped = feed.subscribe()
    waits = asyncio.ensure_future(dropped.next())
    await turns(3)
    feed.publish(END)
    assert await waits is END
    gone = weakref.ref(dropped)
    del dropped, waits
    gc.collect()
    assert gone() is None
