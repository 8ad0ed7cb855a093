"""How many requests a provider gets at a time, and that none comes before it asked for more."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import attrs
import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwheel import (
    Agent,
    DoneReason,
    ModelSpec,
    Retries,
)
from turnwheel.effects.config import Config
from turnwheel.effects.errors import ConfigError
from turnwheel.effects.events import Failure, ModelFailed, ModelFinished
from turnwheel.effects.history import History
from turnwheel.effects.messages import user
from turnwheel.effects.notices import FallbackUsed, RequestDelayed, RetryScheduled
from turnwheel.effects.requests import CallModel, Conversation, Purpose
from turnwheel.performers import AnthropicMessages, Models, OpenAIChat
from turnwheel.performers.base import (
    LEAVING,
    Clock,
    PerformContext,
    SystemClock,
)
from turnwheel.performers.models.throttle import (
    ACCEPTED_AFTER,
    MAX_CONCURRENT,
    MAX_GUESS,
    Slot,
    Throttle,
)
from turnwheel.testing.clocks import AutoClock

N = TypeVar("N")

PLAIN = Config(model=ModelSpec(name="openai:m"), retries=Retries(base=2.0, jitter=0.5))
WITH_FALLBACK = attrs.evolve(PLAIN, models=(ModelSpec(name="openai:n"),), fallback="openai:n")


def asking(number: int = 1, model: str = "openai:m", purpose: Purpose = Purpose.TURN) -> CallModel:
    """A request for *model*."""
    view = Conversation(revision=0, length=1)
    return CallModel(id=f"r-{number}", model=model, view=view, purpose=purpose)


def scene_of(
    clock: Clock, emit: Callable[[Any], None] = lambda _: None, config: Config = PLAIN
) -> PerformContext:
    """A scene with one user message."""
    return PerformContext(
        session="s", run="r", config=config, history=History.of(user("hi")), clock=clock, emit=emit
    )


def refused(at: float, retry_after: float | None = None, jitter: float = 0.0) -> ModelFailed:
    """A request that was turned away for load."""
    return ModelFailed(
        at=at,
        request="r-1",
        failure=Failure.RATE_LIMIT,
        message="slow down",
        retry_after=retry_after,
        jitter=jitter,
    )


# The queue, step by step


class Standing:
    """A clock that moves only when it is told to, and then wakes whoever waits for that time."""

    def __init__(self) -> None:
        self._now = 0.0
        self._moved = asyncio.Event()
        self._waits = asyncio.Event()

    def now(self) -> float:
        """The time."""
        return self._now

    def move(self, seconds: float) -> None:
        """Let *seconds* pass."""
        self._now += seconds
        self._moved.set()

    async def sleep_until(self, due: float) -> None:
        """Return when it is moved to *due*, or behind."""
        self._waits.set()
        while self.now() < due:
            self._moved.clear()
            await self._moved.wait()

    async def somebody_waits(self) -> None:
        """Return when somebody begins to."""
        await self._waits.wait()
        self._waits.clear()


class Queue:
    """Slots of one throttle, and what time it is."""

    def __init__(self, limit: int | None = None) -> None:
        self.clock = AutoClock()
        self.throttle = Throttle(limit)
        self.slots: list[Slot] = []

    def join(self, count: int = 1, model: str = "openai:m") -> None:
        """As many new requests for *model*."""
        for _ in range(count):
            request = asking(len(self.slots), model)
            self.slots.append(self.throttle.slot(request, scene_of(self.clock)))

    def sent(self) -> list[int]:
        """The numbers of those whose turn has come."""
        for slot in self.slots:
            if not slot.sent:
                self.throttle.look(slot, self.clock.now())
        return [number for number, slot in enumerate(self.slots) if slot.sent]

    def take_up(self, *numbers: int) -> None:
        """The provider works on those."""
        for number in numbers:
            self.throttle.accepted(self.slots[number], self.clock.now())

    def turn_away(self, number: int, retry_after: float | None = None, jitter: float = 0.0) -> None:
        """The provider refused that one, which is over then."""
        failed = refused(self.clock.now(), retry_after, jitter)
        self.throttle.turned_away(self.slots[number], failed, PLAIN.retries)
        self.leave(number)

    def leave(self, *numbers: int) -> None:
        """Those are over."""
        for number in numbers:
            self.throttle.leave(self.slots[number], self.clock.now())

    def closed_until(self) -> float:
        """When the lane of the first request opens."""
        return self.slots[0].queue.refusal.until


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_that_lets_nothing_through_is_refused(limit: int) -> None:
    """When the performer is made."""
    with pytest.raises(ConfigError, match=f"limit must be at least 1 .* None for no limit; got {limit}"):
        Models(limit=limit)


async def test_requests_beyond_the_limit_go_in_the_order_they_came() -> None:
    """One for each that is over, whatever model they ask."""
    queue = Queue(limit=2)
    queue.join(2)
    queue.join(2, "openai:n")
    queue.join()
    assert queue.sent() == [0, 1]
    queue.leave(1)
    assert queue.sent() == [0, 1, 2]
    queue.leave(0, 2)
    assert queue.sent() == [0, 1, 2, 3, 4]


async def test_without_a_limit_all_go() -> None:
    """Nobody asked for less."""
    queue = Queue()
    queue.join(1_000)
    assert len(queue.sent()) == 1_000


async def test_whoever_gives_up_makes_room_in_the_queue() -> None:
    """Before and after its turn has come."""
    queue = Queue(limit=1)
    queue.join(4)
    assert queue.sent() == [0]
    queue.leave(1)
    queue.leave(0)
    assert queue.sent() == [0, 2]
    queue.leave(2)
    assert queue.sent() == [0, 2, 3]


async def test_a_lane_that_was_closed_opens_slowly() -> None:
    """At its time one goes; each that is taken up makes room for two, until nobody waits."""
    queue = Queue()
    queue.join()
    assert queue.sent() == [0]
    queue.turn_away(0, 30.0)
    queue.join(12)
    queue.clock.move(29.9)
    assert queue.sent() == [0]
    queue.clock.move(0.1)
    assert queue.sent() == [0, 1]
    queue.take_up(1)
    assert queue.sent() == [0, 1, 2, 3]
    queue.take_up(2)
    assert queue.sent() == [0, 1, 2, 3, 4, 5]
    queue.take_up(3, 4, 5)
    assert queue.sent() == list(range(12))
    queue.take_up(6)
    assert queue.sent() == list(range(13))
    queue.take_up(12)
    queue.join(100)
    assert len(queue.sent()) == 113


async def test_what_fails_for_something_else_lets_the_next_one_try() -> None:
    """It says nothing of the load: still one at a time."""
    queue = Queue()
    queue.join()
    queue.sent()
    queue.turn_away(0, 1.0)
    queue.join(3)
    queue.clock.move(1.0)
    assert queue.sent() == [0, 1]
    queue.leave(1)
    assert queue.sent() == [0, 1, 2]


async def test_a_refusal_of_the_first_one_closes_the_lane_again() -> None:
    """For those that had not waited before, too."""
    queue = Queue()
    queue.join()
    queue.sent()
    queue.turn_away(0, 1.0)
    queue.clock.move(1.0)
    queue.join(3)
    assert queue.sent() == [0, 1]
    queue.turn_away(1, 5.0)
    assert queue.sent() == [0, 1]
    queue.clock.move(4.9)
    assert queue.sent() == [0, 1]
    queue.clock.move(0.1)
    assert queue.sent() == [0, 1, 2]


async def test_one_model_is_held_and_another_is_not() -> None:
    """Their limits are their own; only the room is shared."""
    queue = Queue(limit=2)
    queue.join()
    queue.sent()
    queue.turn_away(0, 30.0)
    queue.join(5)
    queue.join(3, "openai:n")
    assert queue.sent() == [0, 6, 7]
    queue.leave(6)
    assert queue.sent() == [0, 6, 7, 8]
    queue.clock.move(30.0)
    assert queue.sent() == [0, 6, 7, 8]
    queue.leave(7)
    assert queue.sent() == [0, 1, 6, 7, 8]


async def test_many_refusals_at_once_are_one() -> None:
    """Those sent before the first refusal came do not make the wait longer, but where they are told to."""
    queue = Queue()
    queue.join(5)
    queue.sent()
    queue.turn_away(0)
    queue.clock.move(0.5)
    queue.turn_away(1)
    assert queue.closed_until() == 2.0
    queue.turn_away(2, 9.5)
    assert queue.closed_until() == 10.0
    queue.turn_away(3, 1.0)
    assert queue.closed_until() == 10.0
    queue.take_up(4)
    queue.join()
    queue.clock.move(9.4)
    assert queue.sent() == [0, 1, 2, 3, 4]


async def test_who_is_held_is_told_once_though_the_wait_gets_longer() -> None:
    """Why, and until when as it was known then."""
    clock, told = Standing(), list[Any]()
    throttle = Throttle()
    early, late = [throttle.slot(asking(), scene_of(clock)) for _ in range(2)]
    assert await early.wait() is await late.wait() is None
    early.turned_away(refused(0.0, 10.0))
    held = throttle.slot(asking(2), scene_of(clock, told.append))
    waiting = asyncio.create_task(held.wait())
    await clock.somebody_waits()
    late.turned_away(refused(0.0, 30.0))
    clock.move(10.0)
    await clock.somebody_waits()
    clock.move(20.0)
    assert await waiting is None
    reason = "another request was turned away: slow down"
    assert told == [RequestDelayed(request="r-2", due=10.0, reason=reason)]


@pytest.mark.parametrize(
    ("jitter", "waits"), [(0.0, [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]), (0.5, [2.5, 5.0, 10.0, 20.0])]
)
async def test_where_no_time_is_given_the_wait_doubles(jitter: float, waits: list[float]) -> None:
    """As a run's own does, with the same jitter, but not for ever; what is taken up begins it anew."""
    queue = Queue()
    for number, wait in enumerate(waits):
        queue.join()
        assert queue.sent()[-1] == number
        queue.turn_away(number, jitter=jitter)
        assert queue.closed_until() - queue.clock.now() == wait
        queue.clock.move(wait)
    queue.join()
    assert queue.sent()[-1] == len(waits)
    queue.take_up(len(waits))
    queue.turn_away(len(waits), jitter=jitter)
    queue.join()
    queue.clock.move(waits[0])
    assert queue.sent()[-1] == len(waits) + 1


async def test_a_guess_stays_a_number() -> None:
    """However often a provider refuses."""
    queue = Queue()
    for number in range(2_000):
        queue.join()
        queue.sent()
        queue.turn_away(number)
        queue.clock.move(MAX_GUESS)
    assert queue.closed_until() == queue.clock.now()


# A provider and its performer


class Provider:
    """
    A provider, and when it was asked for what: *arrived*, by the clock.

    *answer* says what it says to each request, by its number; where it is None, the provider says it is well.
    *under_way* are asked and not answered, of which there were *most* at a time.
    """

    def __init__(self, clock: Clock, answer: Callable[[int], httpx.Response | None]) -> None:
        self.clock = clock
        self.arrived: list[float] = []
        self.models: list[str] = []
        self.under_way = 0
        self.most = 0
        self.steps: list[tuple[int, int]] = []
        self.answered = 0
        self._answer = answer
        self.client = httpx.AsyncClient(transport=httpx.MockTransport(self._asked))

    async def _asked(self, request: httpx.Request) -> httpx.Response:
        number = len(self.arrived)
        self.arrived.append(self.clock.now())
        self.models.append(json.loads(request.content)["model"])
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        self.steps.append((self.answered, self.under_way))
        try:
            for _ in range(5):  # others arrive meanwhile
                await asyncio.sleep(0)
        finally:
            self.under_way -= 1
        self.answered += 1
        return self._answer(number) or well()


OVERLOADED = b'data: {"error":{"code":529,"message":"o"}}\n\n'
CHOICE = {"index": 0, "delta": {"content": "well"}, "finish_reason": "stop"}
WELL = b"data: %b\n\ndata: [DONE]\n\n" % json.dumps({"choices": [CHOICE]}).encode()


def well() -> httpx.Response:
    """An answer."""
    return httpx.Response(200, stream=httpx.ByteStream(WELL))


def busy(status: int = 429, retry_after: str | None = "30", **error: object) -> httpx.Response:
    """A refusal."""
    headers = {} if retry_after is None else {"retry-after": retry_after}
    return httpx.Response(status, headers=headers, json={"error": {"message": "slow down", **error}})


def first(response: httpx.Response) -> Callable[[int], httpx.Response | None]:
    """*response* to the first request, and no other."""
    return lambda number: None if number else response


async def crowd(agent: Agent, count: int) -> tuple[list[str], list[Any]]:
    """What as many sessions of *agent* at once end with, and all that they told."""
    notices: list[Any] = []

    async def session(number: int) -> str:
        async with agent.session(f"s{number}") as talk:
            notices.extend([notice async for notice in talk.stream("Hello?")])
            return talk.result().text

    async with agent:
        return await asyncio.gather(*map(session, range(count))), notices


def of_kind(kind: type[N], notices: Iterable[object]) -> list[N]:
    """Those of *notices* that are of one *kind*."""
    return [notice for notice in notices if isinstance(notice, kind)]


async def test_two_hundred_sessions_wait_together() -> None:
    """One was told to wait, and so they all do; then they come slowly, and each has its answer."""
    clock = AutoClock()
    provider = Provider(clock, first(busy()))
    agent = Agent(model="openai:m", base_url="http://there", api_key="k", client=provider.client, clock=clock)
    texts, notices = await crowd(agent, 200)
    assert texts == ["well"] * 200
    assert (len(provider.arrived), provider.most) == (201, MAX_CONCURRENT)
    assert provider.arrived == [0.0] * MAX_CONCURRENT + [30.0] * (201 - MAX_CONCURRENT)
    assert [notice.due for notice in of_kind(RetryScheduled, notices)] == [30.0]
    held = of_kind(RequestDelayed, notices)
    assert len(held) == len({notice.request for notice in held}) == 200 - MAX_CONCURRENT
    assert {notice.due for notice in held} == {30.0}
    assert {notice.reason for notice in held} == {"another request was turned away: http 429: slow down"}
    opening = provider.steps[MAX_CONCURRENT:]
    assert opening[0] == (MAX_CONCURRENT, 1)
    assert all(under_way <= 1 + answered - MAX_CONCURRENT for answered, under_way in opening)


async def test_two_hundred_sessions_are_refused_no_oftener_than_they_may_ask_at_once() -> None:
    """Though the provider refuses everybody until its time has come; nobody's wait is doubled."""
    clock = AutoClock()
    provider = Provider(clock, lambda _: busy() if clock.now() < 30.0 else None)
    agent = Agent(model="openai:m", base_url="http://there", api_key="k", client=provider.client, clock=clock)
    texts, notices = await crowd(agent, 200)
    assert texts == ["well"] * 200
    assert provider.arrived == [0.0] * MAX_CONCURRENT + [30.0] * 200
    assert {notice.due for notice in of_kind(RetryScheduled, notices)} == {30.0}
    assert clock.now() == 30.0


async def test_the_one_that_was_told_to_wait_waits_once() -> None:
    """Its run's own wait is over when the lane opens, whether the provider said how long or not."""
    for retry_after, waits in (("7", [7.0]), (None, [3.0])):
        clock = AutoClock()
        provider = Provider(clock, first(busy(retry_after=retry_after)))
        agent = Agent(
            model="openai:m",
            base_url="http://there",
            api_key="k",
            client=provider.client,
            clock=clock,
            retries=Retries(base=3.0, jitter=0.0),
        )
        texts, notices = await crowd(agent, 1)
        assert texts == ["well"]
        assert clock.slept == waits
        assert of_kind(RequestDelayed, notices) == []


async def test_a_wait_that_is_guessed_has_the_jitter_of_the_runs_own() -> None:
    """So it is not longer, however that was drawn."""
    clock = AutoClock()
    provider = Provider(clock, lambda number: busy(503, None) if number < 3 else None)
    agent = Agent(
        model="openai:m",
        base_url="http://there",
        api_key="k",
        client=provider.client,
        clock=clock,
        retries=Retries(base=1.0, jitter=1.0),
    )
    _, notices = await crowd(agent, 1)
    assert of_kind(RequestDelayed, notices) == []
    assert [notice.due for notice in of_kind(RetryScheduled, notices)] == provider.arrived[1:]


# What closes a lane

KINDS: list[tuple[httpx.Response, bool]] = [
    (busy(429), True),
    (busy(429, None), True),
    (busy(529, None), True),
    (busy(503), True),
    (busy(503, None), True),
    (busy(500), True),
    (busy(500, None, code="overloaded_error"), True),
    (httpx.Response(200, stream=httpx.ByteStream(OVERLOADED)), True),
    (busy(500, None), False),
    (busy(400), False),
    (busy(401), False),
    (busy(429, code="insufficient_quota"), False),
    (well(), False),
]


@pytest.mark.parametrize(("response", "closes"), KINDS)
async def test_only_a_refusal_for_load_holds_the_others(response: httpx.Response, closes: bool) -> None:  # noqa: FBT001  # a row of the table
    """With a status, a name, or in the middle of a stream."""
    clock = AutoClock()
    provider = Provider(clock, first(response))
    model = OpenAIChat("http://there", "k", provider.client)
    await model(asking(), scene_of(clock))
    told: list[object] = []
    answer = await model(asking(2), scene_of(clock, told.append))
    assert isinstance(answer, ModelFinished)
    assert (len(of_kind(RequestDelayed, told)) == 1) is closes
    assert (provider.arrived[1] > 0) is closes


async def test_the_time_that_was_waited_is_no_work() -> None:
    """What a run may spend of its time is not spent in a queue."""
    clock = AutoClock()
    provider = Provider(clock, first(busy()))
    model = OpenAIChat("http://there", "k", provider.client)
    await model(asking(), scene_of(clock))
    answer = await model(asking(2), scene_of(clock))
    assert isinstance(answer, ModelFinished)
    assert (answer.at, answer.seconds) == (30.0, 0.0)


async def test_one_provider_does_not_wait_for_another() -> None:
    """Each wire has its own throttle."""
    clock = AutoClock()
    busy_one, other = Provider(clock, first(busy())), Provider(clock, first(well()))
    models = Models(
        wires={
            "a": OpenAIChat("http://a", "k", busy_one.client),
            "b": AnthropicMessages("http://b", "k", other.client),
        }
    )
    await models(asking(model="a:m"), scene_of(clock))
    await models(asking(model="b:m"), scene_of(clock))
    assert other.arrived == [0.0]


async def test_a_limit_is_for_every_wire_that_is_made() -> None:
    """One request at a time, to whichever model of the provider."""
    clock = AutoClock()
    provider = Provider(clock, first(well()))
    models = Models(base_url="http://there", api_key="k", client=provider.client, limit=1)
    answers = [models(asking(n, f"openai:m{n % 2}"), scene_of(clock)) for n in range(10)]
    assert all(isinstance(answer, ModelFinished) for answer in await asyncio.gather(*answers))
    assert (provider.most, provider.models) == (1, ["m0", "m1"] * 5)


# What would be waited for too long


async def test_a_fallback_does_not_wait_for_what_it_gets_round() -> None:
    """Every session falls back, though one alone was refused; its model is of the same provider."""
    clock = AutoClock()
    provider = Provider(clock, first(busy()))
    agent = Agent(
        model="openai:m",
        fallback="openai:n",
        base_url="http://there",
        api_key="k",
        client=provider.client,
        clock=clock,
    )
    texts, notices = await crowd(agent, 100)
    assert texts == ["well"] * 100
    assert set(provider.arrived) == {0.0}
    assert (provider.models.count("m"), provider.models.count("n")) == (MAX_CONCURRENT, 101 - MAX_CONCURRENT)
    assert len(of_kind(FallbackUsed, notices)) == 101 - MAX_CONCURRENT
    assert of_kind(RequestDelayed, notices) == []


async def test_a_wait_longer_than_a_run_may_wait_ends_it() -> None:
    """As it ends the one that was told to wait; nothing is sent."""
    clock = AutoClock()
    provider = Provider(clock, first(busy(retry_after="7200")))
    agent = Agent(model="openai:m", base_url="http://there", api_key="k", client=provider.client, clock=clock)
    async with agent:
        results = [await agent.run("Hello?") for _ in range(2)]
    assert [result.reason for result in results] == [DoneReason.ERROR] * 2
    assert [result.detail for result in results] == [
        "rate_limit: http 429: slow down",
        "rate_limit: not sent, since another request was turned away: http 429: slow down",
    ]
    assert len(provider.arrived) == 1


@pytest.mark.parametrize(
    ("config", "request_", "wait", "sent"),
    [
        (PLAIN, asking(2), 3_600.0, True),
        (PLAIN, asking(2), 3_601.0, False),
        (attrs.evolve(PLAIN, retries=Retries(longest=None)), asking(2), 1e9, True),
        (WITH_FALLBACK, asking(2), 10.0, True),
        (WITH_FALLBACK, asking(2), 11.0, False),
        (WITH_FALLBACK, asking(2, "openai:n"), 11.0, True),
        (PLAIN, asking(2, purpose=Purpose.SUMMARY), 10.0, True),
        (PLAIN, asking(2, purpose=Purpose.SUMMARY), 11.0, False),
        (PLAIN, asking(2, purpose=Purpose.TITLE), 11.0, False),
    ],
)
async def test_how_long_a_request_is_held(
    config: Config,
    request_: CallModel,
    wait: float,
    sent: bool,  # noqa: FBT001  # a row of the table
) -> None:
    """As long as its run would wait before it does something else, which is then for the run to decide."""
    clock = AutoClock()
    provider = Provider(clock, first(busy(retry_after=str(wait))))
    model = OpenAIChat("http://there", "k", provider.client)
    await model(attrs.evolve(request_, id="r-1"), scene_of(clock))
    answer = await model(request_, scene_of(clock, config=config))
    assert (len(provider.arrived) == 2) is sent
    if not sent:
        assert isinstance(answer, ModelFailed)
        assert (answer.failure, answer.retry_after, answer.seconds) == (Failure.RATE_LIMIT, wait, 0.0)
        assert answer.usage is None


# Cancelling


@pytest.mark.parametrize("message", [None, LEAVING])
@pytest.mark.parametrize("held", [True, False], ids=["held", "without room"])
async def test_a_request_is_cancelled_while_it_waits(held: bool, message: str | None) -> None:  # noqa: FBT001  # a row of the table
    """It was never sent, used nothing, and is in nobody's way."""
    clock = Standing()
    provider = Provider(clock, first(busy() if held else well()))
    model = OpenAIChat("http://there", "k", provider.client, limit=1)
    other = asyncio.create_task(model(asking(), scene_of(clock)))
    if held:
        await other
    waiting = [asyncio.create_task(model(asking(n), scene_of(clock))) for n in (2, 3)]
    await (clock.somebody_waits() if held else asyncio.sleep(0))
    waiting[0].cancel(message)
    answer = await waiting[0]
    assert isinstance(answer, ModelFailed)
    assert (answer.failure, answer.message) == (Failure.CANCELLED, "cancelled")
    assert (answer.usage, answer.seconds, waiting[0].cancelling()) == (None, 0.0, 0)
    assert len(provider.arrived) == 1
    clock.move(30.0)
    await other
    assert isinstance(await waiting[1], ModelFinished)
    assert len(provider.arrived) == 2


async def test_a_request_is_cancelled_when_its_turn_has_just_come() -> None:
    """It leaves the place to the next one."""
    clock = AutoClock()
    throttle = Throttle(1)
    holder = throttle.slot(asking(), scene_of(clock))
    assert await holder.wait() is None

    async def wait(number: int) -> int:
        with throttle.slot(asking(number), scene_of(clock)) as slot:
            await slot.wait()
        return number

    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    tasks = [asyncio.create_task(wait(number)) for number in (2, 3)]
    await asyncio.sleep(0)
    throttle.leave(holder, clock.now())
    tasks[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    assert await tasks[1] == 3
    assert errors == []


ANSWERS: dict[str, Callable[[], httpx.Response]] = {
    "well": well,
    "busy": lambda: busy(retry_after="5"),
    "busy without a time": lambda: busy(529, None),
    "failed": lambda: busy(500, None),
    "busy in the middle": lambda: httpx.Response(200, stream=httpx.ByteStream(OVERLOADED)),
}


@settings(max_examples=50)
@given(
    answers=st.lists(st.sampled_from([*ANSWERS]), min_size=1, max_size=20),
    cancelled=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 29)), max_size=10),
    limit=st.sampled_from([None, 1, 2, 5]),
)
def test_whatever_happens_everybody_is_answered_and_no_place_is_lost(
    answers: list[str], cancelled: list[tuple[int, int]], limit: int | None
) -> None:
    """In any order of refusals, failures and cancellations; at the end as many may go as at the beginning."""

    async def main() -> None:
        clock = AutoClock()
        script = list(answers)
        provider = Provider(clock, lambda number: ANSWERS[script[number % len(script)]]())
        model = OpenAIChat("http://there", "k", provider.client, limit=limit)
        requests = [asking(n, f"openai:m{n % 2}") for n in range(30)]
        tasks = [asyncio.ensure_future(model(request, scene_of(clock))) for request in requests]
        for pause, number in cancelled:
            for _ in range(pause):
                await asyncio.sleep(0)
            tasks[number].cancel()
        told = [task.result() for task in (await asyncio.wait(tasks))[0] if not task.cancelled()]
        assert all(isinstance(answer, ModelFinished | ModelFailed) for answer in told)
        assert limit is None or provider.most <= limit
        script[:] = ["well"]
        assert isinstance(await model(asking(), scene_of(clock)), ModelFinished)
        provider.most = 0
        await asyncio.gather(*[model(asking(n), scene_of(clock)) for n in range(30)])
        assert provider.most == (limit or 30)

    asyncio.run(main())


# Loops


class Hurried(asyncio.SelectorEventLoop):
    """An event loop that can be told that time has passed."""

    ahead = 0.0

    def time(self) -> float:
        """What it takes for the time."""
        return super().time() + self.ahead


def test_a_request_that_is_not_turned_away_at_once_was_taken_up() -> None:
    """A model that thinks before its first word does not hold all others that long."""

    async def main() -> list[bool]:
        queue = Queue()
        queue.join()
        queue.sent()
        queue.turn_away(0, 1.0)
        queue.clock.move(1.0)
        queue.join(3)
        assert await queue.slots[1].wait() is None
        before = queue.sent()
        loop.ahead = ACCEPTED_AFTER
        turn = asyncio.ensure_future(queue.slots[2].wait())
        assert await turn is None
        return [before == [0, 1], queue.sent() == [0, 1, 2, 3]]

    loop = Hurried()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        assert runner.run(main()) == [True, True]


def test_the_limit_and_the_wait_hold_across_event_loops() -> None:
    """Threads with loops of their own share a provider, and wake each other."""
    lock = threading.Lock()
    under_way = most = 0
    arrived: list[float] = []
    clock = SystemClock()

    async def answer(_: httpx.Request) -> httpx.Response:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
            arrived.append(clock.now())
        await asyncio.sleep(0.001)
        with lock:
            under_way -= 1
        return busy(retry_after="0.2") if len(arrived) == 1 else well()

    client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    model = OpenAIChat("http://there", "k", client, limit=2)
    answers: list[object] = []

    async def ask() -> None:
        answers.extend(await asyncio.gather(*[model(asking(n), scene_of(clock)) for n in range(10)]))

    asyncio.run(one_refused(model, clock))
    threads = [threading.Thread(target=asyncio.run, args=(ask(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 40
    assert all(isinstance(each, ModelFinished) for each in answers)
    assert most == 2
    assert min(arrived[1:]) - arrived[0] >= 0.2


async def one_refused(model: OpenAIChat, clock: SystemClock) -> None:
    """The first request of all, which is turned away."""
    assert isinstance(await model(asking(), scene_of(clock)), ModelFailed)


def test_a_loop_that_is_gone_keeps_nobody_waiting() -> None:
    """What waited in it does not take the place of what waits elsewhere."""
    throttle = Throttle(1)
    clock = AutoClock()
    holder = throttle.slot(asking(), scene_of(clock))
    assert throttle.look(holder, 0.0) is None

    async def wait(number: int) -> None:
        with throttle.slot(asking(number), scene_of(clock)) as slot:
            await slot.wait()

    gone = asyncio.new_event_loop()
    waiting = gone.create_task(wait(2))
    gone.call_soon(gone.stop)
    gone.run_forever()
    gone.close()

    async def others() -> None:
        nonlocal waiting
        task = asyncio.create_task(wait(3))
        await asyncio.sleep(0)
        throttle.leave(holder, 0.0)  # it would be the turn of the one whose loop is gone
        waiting = task
        gc.collect()
        await task

    asyncio.run(others())
