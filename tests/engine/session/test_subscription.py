"""Many subscribers, each with its own buffer, and a feed that none of them can hold up."""

from __future__ import annotations

import asyncio
import gc

import pytest
from hypothesis import given, strategies as st
from support.patience import PATIENCE

from turnwheel.effects.errors import ConfigError
from turnwheel.effects.messages import Message, Role, StopReason
from turnwheel.effects.notices import (
    CallDelta,
    DoneReason,
    Notice,
    NoticesMissed,
    RunEnded,
    TextDelta,
    TurnEnded,
    Warned,
)
from turnwheel.effects.usage import Spent, Usage
from turnwheel.engine.session.feed import SUBSCRIBER_BUFFER, Feed
from turnwheel.engine.session.subscription import Subscription


def text(number: int) -> TextDelta:
    return TextDelta(str(number), at=0.0)


def bit(number: int) -> CallDelta:
    return CallDelta(index=0, arguments=str(number), at=0.0)


def end(number: int) -> RunEnded:
    return RunEnded(run=str(number), reason=DoneReason.END_TURN, spent=Spent(), at=0.0)


def odd(number: int) -> Warned:
    return Warned(text=str(number), at=0.0)


def turn(number: int) -> TurnEnded:
    message = Message(role=Role.ASSISTANT, parts=())
    return TurnEnded(
        request="r", turn=number, message=message, stop=StopReason.TOOL_USE, usage=Usage(), at=0.0
    )


def missed(count: int) -> NoticesMissed:
    return NoticesMissed(count=count, at=0.0)


async def rest(subscription: Subscription) -> list[Notice]:
    """The notices that *subscription* still has, after its feed was closed."""
    return [notice async for notice in subscription]


async def waiting(subscription: Subscription) -> asyncio.Task[Notice | None]:
    async def read() -> Notice | None:
        return await anext(subscription, None)

    reader = asyncio.ensure_future(read())
    await asyncio.sleep(0)
    return reader


async def test_each_subscriber_sees_every_notice_since_it_came_in_order() -> None:
    feed = Feed()
    one, other = feed.subscribe(), feed.subscribe()
    feed.publish(text(0))
    late = feed.subscribe()
    feed.publish(text(1))
    feed.close()
    seen = [await rest(each) for each in (one, other, late)]
    assert seen == [[text(0), text(1)], [text(0), text(1)], [text(1)]]


@pytest.mark.parametrize(
    ("published", "seen", "dropped"),
    [
        ([text(0), text(1), text(2), text(3)], [text(0), text(1), missed(2)], 2),  # the newest are missing
        ([text(0), text(1), end(2)], [missed(1), text(1), end(2)], 1),  # an end takes the place of the oldest
        ([odd(0), text(1), end(2)], [odd(0), missed(1), end(2)], 1),  # rather of a delta than of another
        ([odd(0), bit(1), odd(2), bit(3)], [odd(0), missed(1), odd(2), missed(1)], 2),
        ([odd(0), text(1), text(2), odd(3), text(4)], [odd(0), missed(2), odd(3), missed(1)], 3),
        ([odd(0), odd(1), turn(2), turn(3), turn(4)], [missed(2), turn(2), missed(1), turn(4)], 3),
        (
            [end(0), end(1), end(2), text(3), end(4)],
            [end(0), end(1), end(2), missed(1), end(4)],
            1,
        ),  # the buffer grows
    ],
    ids=[
        "texts",
        "an end",
        "a delta goes first",
        "so does a bit of a call",
        "two gaps",
        "the last answer",
        "ends",
    ],
)
async def test_a_full_buffer_drops_texts_and_counts_them(
    published: list[Notice], seen: list[Notice], dropped: int
) -> None:
    feed = Feed(size=2)
    slow = feed.subscribe()
    for notice in published:
        feed.publish(notice)
    feed.close()
    assert (slow.dropped, await rest(slow)) == (dropped, seen)


def test_the_default_buffer_is_as_large_as_it_says() -> None:
    feed = Feed()
    slow = feed.subscribe()
    for number in range(SUBSCRIBER_BUFFER + 1):
        feed.publish(text(number))
    assert (SUBSCRIBER_BUFFER, slow.dropped) == (64, 1)


def weight(notice: Notice) -> int:
    """How many notices *notice* stands for."""
    return notice.count if isinstance(notice, NoticesMissed) else 1


@given(size=st.integers(1, 5), moves=st.lists(st.sampled_from(["text", "end", "read"]), max_size=60))
def test_a_subscriber_sees_a_subsequence_with_every_end(size: int, moves: list[str]) -> None:
    """However it reads: in order, nothing twice, every end, each missing notice is counted in its place."""

    async def played() -> None:
        feed, published = Feed(size), list[Notice]()
        seen = list[Notice]()
        subscription = feed.subscribe()
        for number, move in enumerate(moves):
            if move != "read":
                published.append(text(number) if move == "text" else end(number))
                feed.publish(published[-1])
            elif len(published) > sum(weight(one) for one in seen):
                seen.append(await anext(subscription))
        feed.close()
        left = await rest(subscription)
        seen += left
        place = 0
        for notice in seen:
            assert isinstance(notice, NoticesMissed) or notice == published[place]
            place += weight(notice)
        assert place == len(published)
        assert subscription.dropped == sum(one.count for one in seen if isinstance(one, NoticesMissed))
        assert [one for one in seen if isinstance(one, RunEnded)] == [
            one for one in published if isinstance(one, RunEnded)
        ]
        assert sum(isinstance(notice, TextDelta) for notice in left) <= size

    asyncio.run(played())


async def test_close_lets_readers_finish_and_lets_go_of_those_that_wait() -> None:
    feed = Feed()
    behind, waits = feed.subscribe(), feed.subscribe()
    reader = await waiting(waits)
    feed.publish(text(1))
    assert await reader == text(1)
    reader = await waiting(waits)
    feed.close()
    feed.close()
    feed.publish(text(2))
    assert await reader is None
    assert await rest(behind) == [text(1)]
    assert await rest(feed.subscribe()) == []


async def test_leaving_forgets_the_notices_that_were_not_read() -> None:
    feed = Feed()
    async with feed.subscribe() as subscription:
        feed.publish(text(1))
    feed.publish(text(2))
    await subscription.aclose()
    assert (await rest(subscription), subscription.dropped) == ([], 0)


async def test_closing_a_subscription_ends_the_reader_that_waits_for_it() -> None:
    subscription = Feed().subscribe()
    reader = await waiting(subscription)
    await subscription.aclose()
    assert await reader is None


async def test_a_cancelled_reader_is_over() -> None:
    feed = Feed()
    cancelled, other = feed.subscribe(), feed.subscribe()
    reader = await waiting(cancelled)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    feed.publish(text(1))
    feed.close()
    assert reader.cancelled()
    assert (await rest(cancelled), await rest(other)) == ([], [text(1)])


async def test_a_reader_that_breaks_off_is_forgotten() -> None:
    """The buffer goes with the loop that read it, though it was never closed."""
    feed = Feed()

    async def first() -> Notice | None:
        async for notice in feed.subscribe():
            return notice
        return None

    reader = asyncio.ensure_future(first())
    await asyncio.sleep(0)
    feed.publish(text(1))
    assert await reader == text(1)
    del reader
    gc.collect()
    assert len(feed._readers) == 0  # pyright: ignore[reportPrivateUsage]  # a leak shows nowhere else


async def test_a_task_that_only_waits_for_notices_is_kept() -> None:
    """The event loop holds its tasks weakly; the feed holds those that wait."""
    feed, seen, over = Feed(), list[Notice](), asyncio.Event()

    async def watch() -> None:
        seen.extend([notice async for notice in feed.subscribe()])
        over.set()

    asyncio.ensure_future(watch()).set_name("held by no variable")
    await asyncio.sleep(0)
    gc.collect()
    feed.publish(text(1))
    feed.close()
    async with asyncio.timeout(PATIENCE):
        await over.wait()
    assert seen == [text(1)]


def test_a_reader_whose_event_loop_is_gone_holds_up_no_other() -> None:
    feed = Feed()
    broken, fine = feed.subscribe(), feed.subscribe()
    reader = broken.__anext__()

    async def left_behind() -> None:
        future = reader.send(None)  # a step by hand: a task would not be left behind without a fuss
        future.add_done_callback(lambda _: None)

    asyncio.run(left_behind())
    feed.publish(text(1))
    reader.close()
    feed.close()
    assert asyncio.run(rest(fine)) == [text(1)]


@pytest.mark.parametrize("size", [0, -1, True, 1.5, "64"])
def test_a_buffer_holds_at_least_one(size: object) -> None:
    with pytest.raises(ConfigError, match=f"size must be a whole number above 0; got {size!r}"):
        Feed(size=size)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # wrong on purpose
