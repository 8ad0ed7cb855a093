"""A provider that turned one process away is left alone by all of the same store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import httpx
import pytest
from hypothesis import given, strategies as st
from support.plain_store import PlainStore

from turnwheel import ModelSpec
from turnwheel.effects.config import Config, Retries
from turnwheel.effects.events import Answer, ModelFailed, ModelFinished
from turnwheel.effects.history import History
from turnwheel.effects.messages import user
from turnwheel.effects.notices import RequestDelayed
from turnwheel.effects.requests import CallModel, Conversation
from turnwheel.performers.base import PerformContext
from turnwheel.performers.models.openai import OpenAIChat
from turnwheel.performers.models.shared_refusals import (
    ACCEPTED_AFTER,
    LOOK_AGAIN,
    MOST_PERMITS,
    REMEMBERED,
    Outlook,
    SharedRefusal,
    accepting,
    asking,
    closing,
)
from turnwheel.performers.stores.base import Store
from turnwheel.performers.stores.memory import MemoryStore
from turnwheel.testing.clocks import AutoClock, ManualClock
from turnwheel.testing.stores import StoreOver

T = TypeVar("T")

PLAIN = Config(model=ModelSpec(name="openai:m"), retries=Retries(base=2.0, jitter=0.0))
WELL = b'data: {"choices":[{"index":0,"delta":{"content":"well"},"finish_reason":"stop"}]}\n\n'


class CountingStore(StoreOver):
    """Counts the calls for meters."""

    calls = 0
    names: frozenset[str] = frozenset()

    async def meter(self, name: str, held: bytes | None, wanted: bytes | None) -> tuple[bytes | None, float]:
        self.calls += 1
        self.names |= {name}
        return await super().meter(name, held, wanted)


class World:
    """A provider that turns away what *refuses* says, by the time and the number of requests under way."""

    def __init__(
        self, refuses: Callable[[float, int], float | None], clock: ManualClock | None = None
    ) -> None:
        self.clock = clock or AutoClock()
        self.store = CountingStore(MemoryStore(now=self.clock.now))
        self.refuses = refuses
        self.sent: list[tuple[float, int]] = []  # when, and how many were under way then
        self.refused: list[float] = []
        self.under_way = 0
        self.told: list[Any] = []
        self.client = httpx.AsyncClient(transport=httpx.MockTransport(self._asked))

    async def _asked(self, _: httpx.Request) -> httpx.Response:
        self.under_way += 1
        self.sent.append((self.clock.now(), self.under_way))
        wait = self.refuses(self.clock.now(), self.under_way)
        if wait is None:
            await self.clock.sleep_until(self.clock.now() + 0.25)
        self.under_way -= 1
        if wait is None:
            return httpx.Response(200, stream=httpx.ByteStream(WELL))
        self.refused.append(self.clock.now())
        return httpx.Response(429, headers={"retry-after": str(wait)}, json={"error": {"message": "slow"}})

    def process(self, key: str = "k", url: str = "http://there", limit: int | None = None) -> OpenAIChat:
        return OpenAIChat(url, key, self.client, limit=limit)

    async def ask(self, process: OpenAIChat, store: Store | None, number: int = 1) -> Answer:
        request = CallModel(id=f"r-{number}", model="openai:m", view=Conversation(revision=0, length=1))
        history = History.of(user("hi"))
        scene = PerformContext(
            session="s",
            run="r",
            config=PLAIN,
            history=history,
            clock=self.clock,
            emit=self.told.append,
            store=store,
        )
        return await process(request, scene)


async def test_what_one_process_was_told_holds_for_all_that_were_turned_away() -> None:
    world = World(lambda now, _: 30.0 if now == 0 else (2.0 if now == 1 else None))
    one, two = world.process(), world.process()
    assert isinstance(await world.ask(one, world.store), ModelFailed)
    world.clock.move(1.0)
    # It remembers none, so it asks and is refused, with a shorter wait: the longer one counts.
    assert isinstance(await world.ask(two, world.store), ModelFailed)
    assert isinstance(await world.ask(two, world.store), ModelFinished)
    assert [at for at, _ in world.sent] == [0, 1, 30]
    (held,) = [each for each in world.told if isinstance(each, RequestDelayed)]
    assert (held.due, held.reason) == (30, "another request was turned away: http 429: slow")


async def test_a_process_that_remembers_a_refusal_hears_of_the_next_one_without_a_request() -> None:
    world = World(lambda now, _: 10.0 if now in {0, 20} else None)
    one, two = world.process(), world.process()
    for process in (one, two):
        assert isinstance(await world.ask(process, world.store), ModelFailed)
    world.clock.move(20.0)
    assert isinstance(await world.ask(one, world.store), ModelFailed)
    assert isinstance(await world.ask(two, world.store), ModelFinished)
    assert [at for at, _ in world.sent] == [0, 0, 20, 30]


async def test_a_request_that_a_refusal_elsewhere_puts_back_leaves_its_place_to_others() -> None:
    """The request counts as under way again only when its turn comes."""
    clock = ManualClock(0.0)
    world = World(lambda now, _: 10.0 if now in {0, 20} else None, clock)
    one, two = world.process(), world.process(limit=1)
    await passing(clock, [world.ask(process, world.store) for process in (one, two)])
    clock.move(20.0 - clock.now())
    assert isinstance(await world.ask(one, world.store), ModelFailed)
    answers = await passing(clock, [world.ask(two, world.store, number) for number in range(3)])
    assert all(isinstance(answer, ModelFinished) for answer in answers)
    assert [under_way for _, under_way in world.sent[3:]] == [1, 1, 1]


async def test_where_a_store_has_no_meters_each_process_waits_by_itself() -> None:
    world = World(lambda now, _: 5.0 if now == 0 else None)
    process = world.process()
    store: Any = PlainStore()  # no type has it: it would need all other methods
    assert isinstance(await world.ask(process, store), ModelFailed)
    assert isinstance(await world.ask(process, store), ModelFinished)
    assert [at for at, _ in world.sent] == [0, 5]


async def test_another_key_or_address_is_another_provider() -> None:
    world = World(lambda now, _: 50.0 if now == 0 else None)
    several = [world.process(), world.process(key="other"), world.process(url="http://elsewhere")]
    for process in several:
        await world.ask(process, world.store)
    meters = world.store.names
    assert len(meters) == 3
    assert not any(part == "k" or "other" in part for name in meters for part in name.split())


async def passing(clock: ManualClock, work: Iterable[Awaitable[T]]) -> list[T]:
    """The outcomes of *work*, for which time passes whenever all of it waits."""
    tasks = [asyncio.ensure_future(each) for each in work]
    while not all(task.done() for task in tasks):
        for _turn in range(50):
            await asyncio.sleep(0)
        clock.move(0.125)
        assert clock.now() < 600, "it takes for ever"
    return [task.result() for task in tasks]


async def test_processes_open_the_queue_together() -> None:
    """One request is out over all of them, and each that is accepted lets one more be out."""
    clock = ManualClock(0.0)
    world = World(lambda now, _: 10.0 if now == 0 else None, clock)
    processes = [world.process() for _ in range(10)]
    await passing(clock, [world.ask(process, world.store) for process in processes])
    assert len(world.refused) == 10, "each was turned away once"
    asks = [world.ask(process, world.store, n) for process in processes for n in range(10)]
    answers = await passing(clock, asks)
    assert all(isinstance(answer, ModelFinished) for answer in answers)
    opening = world.sent[10:]
    assert all(under_way <= 1 + number for number, (_, under_way) in enumerate(opening))
    at_first = [at for at, _ in opening if at < 10.25]
    assert at_first == [10]
    assert clock.now() < 20
    assert len(world.refused) == 10


async def crowd(*, shared: bool) -> int:
    """How often ten processes are turned away by a provider that takes four requests at a time."""
    clock = ManualClock(0.0)
    world = World(lambda _, under_way: 5.0 if under_way > 4 else None, clock)
    processes = [world.process() for _ in range(10)]

    async def works(process: OpenAIChat, number: int) -> None:
        done = 0
        while done < 5:
            answer = await world.ask(process, world.store if shared else None, number)
            done += isinstance(answer, ModelFinished)
            if isinstance(answer, ModelFailed):
                await clock.sleep_until(clock.now() + 5.0)

    await passing(clock, [works(process, n) for process in processes for n in range(2)])
    return len(world.refused)


async def test_ten_processes_are_turned_away_less_often_where_they_share_a_store() -> None:
    alone, together = await crowd(shared=False), await crowd(shared=True)
    assert together < alone / 2


async def test_a_store_is_asked_only_while_a_refusal_is_remembered() -> None:
    world = World(lambda now, _: 10.0 if 0.5 < now < 1 else None)
    process = world.process()
    await world.ask(process, world.store)
    assert world.store.calls == 0
    world.clock.move(0.5)
    await world.ask(process, world.store)
    assert world.store.calls > 0
    await world.ask(process, world.store)
    world.clock.move(REMEMBERED + 1)
    before = world.store.calls
    await world.ask(process, world.store)
    assert world.store.calls == before


# The record itself


def refusal(meter: bytes | None = None, now: float = 0.0, wait: float = 10.0, times: int = 1) -> bytes | None:
    mine = SharedRefusal(since=0, until=0, times=times, failure="rate_limit", message="slow")
    return closing(mine, wait)(meter, now)[0]


@pytest.mark.parametrize(("there", "mine"), [(5, 1), (1, 5)])
def test_a_refusal_behind_others_counts_on(there: int, mine: int) -> None:
    """The next wait is by how many there were in a row, whichever process was told of them."""
    last = SharedRefusal.read(refusal(refusal(times=there), 1.0, 20.0, times=mine), 1.0)
    assert last is not None
    assert (last.until, last.times) == (21.0, 5)


def test_the_permit_of_a_process_that_is_gone_is_another_one_s_after_a_while() -> None:
    meter, told = asking("gone")(refusal(), 10.0)
    assert told == Outlook(permit="gone")
    assert asking("next")(meter, 10.0 + ACCEPTED_AFTER / 2)[1] == Outlook(LOOK_AGAIN)
    # It counts as accepted, so two may be out from then on.
    now = 10.0 + ACCEPTED_AFTER
    outlooks: list[Outlook] = []
    for permit in ("next", "one more", "too many"):
        meter, outlook = asking(permit)(meter, now)
        outlooks.append(outlook)
    assert outlooks == [Outlook(permit="next"), Outlook(permit="one more"), Outlook(LOOK_AGAIN)]


def test_one_that_is_accepted_makes_room_for_one_more_and_ends_the_row_of_refusals() -> None:
    meter, _ = asking("a")(refusal(times=3), 10.0)
    assert accepting("another")(meter, 10.0) == (meter, None)
    meter, _ = accepting("a")(meter, 10.0)
    there = SharedRefusal.read(meter, 10.0)
    assert there is not None
    assert (there.room, there.times, there.out) == (2, 0, {})
    for permit in ("b", "c"):
        meter, _ = asking(permit)(meter, 10.0)
    meter, _ = accepting("b")(meter, 10.0)
    there = SharedRefusal.read(meter, 10.0)
    assert there is not None
    assert (there.room, there.out) == (3, {"c": 10.0})
    assert accepting("a")(None, 10.0) == (None, None)


def test_after_so_many_that_were_accepted_all_may_be_sent() -> None:
    meter = refusal()
    for number in range(64):
        meter, told = asking(str(number))(meter, 10.0)
        assert told.permit
        meter, _ = accepting(str(number))(meter, 10.0)
    assert asking("p")(meter, 10.0) == (meter, Outlook())


def test_a_refusal_whose_time_is_over_has_the_queue_open_slowly_again() -> None:
    meter, _ = asking("a")(refusal(), 10.0)
    meter, _ = accepting("a")(meter, 10.0)
    there = SharedRefusal.read(refusal(meter, 10.0, 0.0), 10.0)
    assert there is not None
    assert (there.since, there.until, there.room) == (10.0, 10.0, 1)


def test_a_shorter_refusal_changes_nothing_and_a_longer_one_counts() -> None:
    meter = refusal()
    assert refusal(meter, 5.0, 2.0) == meter
    assert refusal(meter, 5.0, 5.0) == meter
    longer = refusal(meter, 5.0, 8.0)
    assert asking("p")(longer, 12.0)[1].wait == pytest.approx(1.0)


@pytest.mark.parametrize("now", [10.0 + REMEMBERED, -ACCEPTED_AFTER, -2 * ACCEPTED_AFTER, -1e6])
def test_one_of_long_ago_or_of_a_clock_that_was_set_back_is_none(now: float) -> None:
    assert asking("p")(refusal(), now) == (refusal(), Outlook())
    later = refusal(now=1_000.0)
    assert asking("p")(later, 1_000.0 + now) == (later, Outlook())


@given(st.lists(st.sampled_from(["ask", "accept", "pass", "refuse"]), max_size=200))
def test_no_more_are_out_than_were_accepted_and_one(story: list[str]) -> None:
    meter, now = refusal(), 10.0
    out: list[str] = []
    accepted = 0
    for number, word in enumerate(story):
        match word:
            case "ask":
                meter, told = asking(str(number))(meter, now)
                if told.permit:
                    out.append(told.permit)
            case "accept" if out:
                meter, _ = accepting(out.pop(0))(meter, now)
                accepted += 1
            case "pass":
                # What is not refused within some seconds counts as accepted.
                now += ACCEPTED_AFTER
                accepted, out = accepted + len(out), []
            case "refuse" if out:
                meter, now = refusal(meter, now, 3.0), now + 3.0
                accepted, out = 0, []
            case _:
                pass
        assert len(out) <= min(1 + accepted, MOST_PERMITS)
