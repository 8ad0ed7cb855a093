"""The broker: many watchers, each with its own buffer, and a publisher that nobody can hold up."""

from __future__ import annotations

import asyncio
import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwheel.effects.errors import ConfigError
from turnwheel.effects.notices import (
    DoneReason,
    Notice,
    RunEnded,
    TextDelta,
)
from turnwheel.effects.usage import Spent
from turnwheel.engine.session.delivery import SUBSCRIBER_BUFFER, Broker, Subscription


def text(number: int) -> TextDelta:
    """A notice that may be lost."""
    return TextDelta(str(number))


def end(number: int) -> RunEnded:
    """A notice that must arrive."""
    return RunEnded(run=str(number), reason=DoneReason.END_TURN, spent=Spent(), at=0.0)


def read_up(broker: Broker, *subscriptions: Subscription) -> list[list[Notice]]:
    """All that each of *subscriptions* still has, after *broker* was closed."""

    async def rest(subscription: Subscription) -> list[Notice]:
        return [notice async for notice in subscription]

    async def every() -> list[list[Notice]]:
        return [await rest(subscription) for subscription in subscriptions]

    broker.close()
    return asyncio.run(every())


def test_everybody_sees_everything_in_order() -> None:
    """Two subscribers do not take anything away from each other."""
    broker = Broker()
    one, other = broker.subscribe(), broker.subscribe()
    for number in range(3):
        broker.publish(text(number))
    assert read_up(broker, one, other) == [[text(0), text(1), text(2)]] * 2


def test_a_subscriber_sees_what_comes_after_it() -> None:
    """What was published before `subscribe` is not seen; what comes before the first read is."""
    broker = Broker()
    broker.publish(text(0))
    late = broker.subscribe()
    broker.publish(text(1))
    assert read_up(broker, late) == [[text(1)]]


def test_a_full_buffer_drops_what_comes_and_counts_it() -> None:
    """A slow subscriber misses the newest; the others miss nothing of theirs."""
    broker = Broker(size=2)
    slow = broker.subscribe()
    for number in range(5):
        broker.publish(text(number))
    assert slow.dropped == 3
    assert read_up(broker, slow) == [[text(0), text(1)]]


def test_the_default_buffer_is_as_large_as_it_says() -> None:
    """Without a size, the broker's own one holds."""
    broker = Broker()
    slow = broker.subscribe()
    for number in range(SUBSCRIBER_BUFFER + 1):
        broker.publish(text(number))
    assert (SUBSCRIBER_BUFFER, slow.dropped) == (64, 1)


def test_the_end_of_a_run_takes_the_place_of_the_oldest_other_notice() -> None:
    """A full buffer has room for an end, and says what that cost."""
    broker = Broker(size=2)
    slow = broker.subscribe()
    for notice in (text(0), text(1), end(2)):
        broker.publish(notice)
    assert slow.dropped == 1
    assert read_up(broker, slow) == [[text(1), end(2)]]


def test_ends_do_not_push_each_other_out() -> None:
    """A buffer full of ends grows by the next one; what is no end finds no room in it."""
    broker = Broker(size=2)
    slow = broker.subscribe()
    for notice in (end(0), end(1), end(2), text(3), end(4)):
        broker.publish(notice)
    assert slow.dropped == 1
    assert read_up(broker, slow) == [[end(0), end(1), end(2), end(4)]]


moves = st.lists(st.sampled_from(["text", "end", "read"]), max_size=60)


@given(size=st.integers(1, 5), moves=moves)
def test_a_subscriber_sees_a_subsequence_with_every_end(size: int, moves: list[str]) -> None:
    """However it reads: in order, nothing twice, every end, and what is missing has been counted."""

    async def played() -> None:
        broker, published = Broker(size), list[Notice]()
        seen, left = list[Notice](), 0
        subscription = broker.subscribe()
        for number, move in enumerate(moves):
            if move != "read":
                published.append(text(number) if move == "text" else end(number))
                broker.publish(published[-1])
            elif len(published) - subscription.dropped > len(seen):
                seen.append(await anext(subscription))
        broker.close()
        async for notice in subscription:
            seen.append(notice)
            left += isinstance(notice, TextDelta)
        everything = iter(published)
        assert all(notice in everything for notice in seen)
        assert [n for n in seen if isinstance(n, RunEnded)] == [
            n for n in published if isinstance(n, RunEnded)
        ]
        assert len(seen) + subscription.dropped == len(published)
        assert left <= size

    asyncio.run(played())


async def test_who_waits_is_woken() -> None:
    """A reader that came before the notice gets it."""
    broker = Broker()
    reader = asyncio.ensure_future(anext(broker.subscribe()))
    await asyncio.sleep(0)
    broker.publish(text(1))
    assert await reader == text(1)


async def test_close_lets_readers_finish_what_they_have() -> None:
    """After `close` a subscriber reads on to its end, and one that waits is let go."""
    broker = Broker()
    behind, waits = broker.subscribe(), broker.subscribe()
    broker.publish(text(1))
    assert await anext(waits) == text(1)
    reader = asyncio.ensure_future(anext(waits, None))
    await asyncio.sleep(0)
    broker.close()
    broker.publish(text(2))
    assert await reader is None
    assert [notice async for notice in behind] == [text(1)]


async def test_a_closed_broker_gives_an_ended_subscription() -> None:
    """Who comes too late is told at once, and closing twice does no harm."""
    broker = Broker()
    broker.close()
    broker.close()
    assert [notice async for notice in broker.subscribe()] == []


async def test_leaving_forgets_what_was_not_read() -> None:
    """After its block a subscription is over; closing it again does no harm, nor does publishing."""
    broker = Broker()
    async with broker.subscribe() as subscription:
        broker.publish(text(1))
    broker.publish(text(2))
    await subscription.aclose()
    assert [notice async for notice in subscription] == []
    assert subscription.dropped == 0


async def test_closing_a_subscription_lets_go_who_waits_for_it() -> None:
    """`aclose` from another task ends the loop, with no exception."""
    subscription = Broker().subscribe()
    reader = asyncio.ensure_future(anext(subscription, None))
    await asyncio.sleep(0)
    await subscription.aclose()
    assert await reader is None


async def test_a_cancelled_subscriber_is_over() -> None:
    """Cancelled while it waits it unsubscribes, and the next notice reaches the others only."""
    broker = Broker()
    cancelled, other = broker.subscribe(), broker.subscribe()
    reader = asyncio.ensure_future(anext(cancelled))
    await asyncio.sleep(0)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    broker.publish(text(1))
    broker.close()
    assert reader.cancelled()
    assert [notice async for notice in cancelled] == []
    assert [notice async for notice in other] == [text(1)]


async def test_a_reader_that_breaks_off_is_forgotten() -> None:
    """Nobody has to close what nobody holds: the buffer goes with the loop that read it."""
    broker = Broker()
    broker.publish(text(0))

    async def first() -> Notice | None:
        async for notice in broker.subscribe():
            return notice
        return None

    reader = asyncio.ensure_future(first())
    await asyncio.sleep(0)
    broker.publish(text(1))
    assert await reader == text(1)
    del reader
    gc.collect()
    assert len(broker._buffers) == 0  # pyright: ignore[reportPrivateUsage]  # a leak shows nowhere else


async def test_a_task_that_only_waits_for_notices_is_kept() -> None:
    """The event loop holds its tasks weakly; who waits for a notice is held by the broker."""
    broker, seen, over = Broker(), list[Notice](), asyncio.Event()

    async def watch() -> None:
        seen.extend([notice async for notice in broker.subscribe()])
        over.set()

    asyncio.ensure_future(watch()).set_name("nobody holds this task")
    await asyncio.sleep(0)
    gc.collect()
    broker.publish(text(1))
    broker.close()
    async with asyncio.timeout(20):
        await over.wait()
    assert seen == [text(1)]


def test_a_reader_whose_event_loop_is_gone_holds_up_nobody() -> None:
    """Who was left waiting in a closed event loop cannot be woken; the others see everything."""
    broker = Broker()
    broken, fine = broker.subscribe(), broker.subscribe()
    waiting = broken.__anext__()

    async def left_behind() -> None:
        future = waiting.send(None)  # a step by hand: a task would not be left behind without a fuss
        future.add_done_callback(lambda _: None)

    asyncio.run(left_behind())
    broker.publish(text(1))
    waiting.close()
    assert read_up(broker, fine) == [[text(1)]]


@pytest.mark.parametrize("size", [0, -1, True, 1.5, "64"])
def test_a_buffer_holds_at_least_one(size: object) -> None:
    """What is no size is refused, with the value."""
    with pytest.raises(ConfigError, match=f"size must be a whole number above 0; got {size!r}"):
        Broker(size=size)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # wrong on purpose
