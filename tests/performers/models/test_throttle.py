"""How many requests a provider gets at a time, and that none comes before it asked for more."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import attrs
import httpx
import pytest
from hypothesis import given, settings, strategies as st

from turnwheel import Agent, DoneReason, ModelSpec, Retries
from turnwheel.effects.config import Config
from turnwheel.effects.errors import ConfigError
from turnwheel.effects.events import Failure, ModelFailed, ModelFinished
from turnwheel.effects.history import History
from turnwheel.effects.messages import user
from turnwheel.effects.notices import FallbackUsed, RequestDelayed, RetryScheduled
from turnwheel.effects.requests import CallModel, Conversation, Purpose
from turnwheel.performers.base import LEAVING, Clock, PerformContext, SystemClock
from turnwheel.performers.models.anthropic import AnthropicMessages
from turnwheel.performers.models.openai import OpenAIChat
from turnwheel.performers.models.router import Models
from turnwheel.performers.models.shared_refusals import ACCEPTED_AFTER
from turnwheel.performers.models.throttle import MAX_CONCURRENT, MAX_GUESS, Slot, Throttle
from turnwheel.testing.clocks import AutoClock, ManualClock

N = TypeVar("N")

PLAIN = Config(model=ModelSpec(name="openai:m"), retries=Retries(base=2.0, jitter=0.5))
WITH_FALLBACK = attrs.evolve(PLAIN, models=(ModelSpec(name="openai:n"),), fallback="openai:n")


def asking(number: int = 1, model: str = "openai:m", purpose: Purpose = Purpose.TURN) -> CallModel:
    view = Conversation(revision=0, length=1)
    return CallModel(id=f"r-{number}", model=model, view=view, purpose=purpose)


def scene_of(
    clock: Clock, emit: Callable[[Any], None] = lambda _: None, config: Config = PLAIN
) -> PerformContext:
    return PerformContext(
        session="s", run="r", config=config, history=History.of(user("hi")), clock=clock, emit=emit
    )


def refused(at: float, retry_after: float | None = None, jitter: float = 0.0) -> ModelFailed:
    return ModelFailed(
        at=at,
        request="r-1",
        failure=Failure.RATE_LIMIT,
        message="slow down",
        retry_after=retry_after,
        jitter=jitter,
    )


# The queue, step by step


async def others_run() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class Queue:
    """
    Slots of one throttle, and what time it is.

    *join* so many requests, for a model; *pass* seconds; the provider *takes_up* some, or *refuses* one with
    a wish; they *leave*. *sent* holds whose turn has come, *closed* until when no more go.
    """

    def __init__(self) -> None:
        self.clock = AutoClock()
        self.throttle = Throttle(None)
        self.slots: list[Slot] = []

    def follow(self, line: str) -> None:  # noqa: C901, PLR0912  # a case for each word
        word, *given = line.split()
        match word:
            case "limit":
                self.throttle = Throttle(int(given[0]))
            case "join":
                for _ in range(int(given[0])):
                    request = asking(len(self.slots), given[-1] if given[1:] else "openai:m")
                    self.slots.append(self.throttle.slot(request, scene_of(self.clock)))
            case "pass":
                self.clock.move(float(given[0]))
            case "takes_up":
                for number in given:
                    self.slots[int(number)].accepted()
            case "refuses":
                self.refuse(int(given[0]), None if given[1] == "-" else float(given[1]))
            case "closed":
                assert self.closed_until() == float(given[0])
            case "leave":
                for number in given:
                    self.slots[int(number)].__exit__()
            case _:
                assert word == "sent"
                ranges = [one.partition("-") for one in given]
                numbers = [range(int(one), int(last or one) + 1) for one, _, last in ranges]
                assert self.sent() == [number for each in numbers for number in each], line

    def sent(self) -> list[int]:
        for slot in self.slots:
            if not slot.sent:
                slot.look(self.clock.now())
        return [number for number, slot in enumerate(self.slots) if slot.sent]

    def refuse(self, number: int, retry_after: float | None = None, jitter: float = 0.0) -> None:
        failed = refused(self.clock.now(), retry_after, jitter)
        self.slots[number].turned_away(failed)
        self.slots[number].__exit__()

    def closed_until(self) -> float:
        return self.slots[0].queue.refusal.until


STORIES = """
beyond the limit they go in the order they came
    limit 2, join 2, join 2 openai:n, join 1, sent 0-1, leave 1, sent 0-2, leave 0 2, sent 0-4
without a limit all go
    join 1000, sent 0-999
a caller that gives up makes room
    limit 1, join 4, sent 0, leave 1, leave 0, sent 0 2, leave 2, sent 0 2-3
a lane that was closed opens slowly: at its time one goes, and each that is taken up makes room for two
    join 1, sent 0, refuses 0 30, join 12, pass 29.9, sent 0, pass 0.1, sent 0-1, takes_up 1, sent 0-3
    takes_up 2, sent 0-5, takes_up 3 4 5, sent 0-11, takes_up 6, sent 0-12, takes_up 12, join 100, sent 0-112
a failure that says nothing of the load lets one more try
    join 1, sent 0, refuses 0 3, join 3, pass 3, sent 0-1, leave 1, sent 0-2
a refusal of the first one closes the lane again
    join 1, sent 0, refuses 0 3, pass 3, join 3, sent 0-1, refuses 1 5, sent 0-1, pass 4.9, sent 0-1
    pass 0.1, sent 0-2
many refusals at once are one: what was sent before makes the wait longer only where the provider says so
    join 5, sent 0-4, refuses 0 -, closed 2, pass 0.5, refuses 1 -, closed 2, refuses 2 9.5, closed 10
    refuses 3 1, closed 10, takes_up 4, join 1, pass 9.4, sent 0-4
a wait of nothing is none, and no wait is shorter than the first of our own
    join 1, sent 0, refuses 0 0, closed 2, pass 2, join 1, sent 0-1, takes_up 1, refuses 1 0.01, closed 4
one model is held and another is not, though they share the room
    limit 2, join 1, sent 0, refuses 0 30, join 5, join 3 openai:n, sent 0 6-7, leave 6, sent 0 6-8, pass 30
    sent 0 6-8, leave 7, sent 0-1 6-8
"""


@pytest.mark.parametrize("story", re.findall(r"^\w.*(?:\n +.*)+", STORIES, re.MULTILINE))
async def test_requests_queue(story: str) -> None:
    _, _, lines = story.partition("\n")
    queue = Queue()
    for line in re.split(r",|\n", lines):
        queue.follow(line)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_that_lets_nothing_through_is_refused(limit: int) -> None:
    with pytest.raises(ConfigError, match=f"limit must be at least 1 .* None for no limit; got {limit}"):
        Models(limit=limit)


async def test_a_held_request_says_so_once_though_the_wait_gets_longer() -> None:
    clock, told = ManualClock(0.0), list[Any]()
    throttle = Throttle()
    early, late = [throttle.slot(asking(), scene_of(clock)) for _ in range(2)]
    assert await early.wait() is await late.wait() is None
    early.turned_away(refused(0.0, 10.0))
    held = throttle.slot(asking(2), scene_of(clock, told.append))
    waiting = asyncio.create_task(held.wait())
    await others_run()
    late.turned_away(refused(0.0, 30.0))
    clock.move(10.0)
    await others_run()
    clock.move(20.0)
    assert await waiting is None
    reason = "another request was turned away: slow down"
    assert told == [RequestDelayed(request="r-2", due=10.0, reason=reason, at=0.0)]


@pytest.mark.parametrize(
    ("jitter", "waits"), [(0.0, [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]), (0.5, [2.5, 5.0, 10.0, 20.0])]
)
async def test_where_no_time_is_given_the_wait_doubles(jitter: float, waits: list[float]) -> None:
    # As a run's own does, with the same jitter, but not for ever; what is taken up begins it anew.
    queue = Queue()
    for number, wait in enumerate(waits):
        queue.follow("join 1")
        assert queue.sent()[-1] == number
        queue.refuse(number, jitter=jitter)
        assert queue.closed_until() - queue.clock.now() == wait
        queue.clock.move(wait)
    last = len(waits)
    queue.follow("join 1")
    assert queue.sent()[-1] == last
    queue.follow(f"takes_up {last}")
    queue.refuse(last, jitter=jitter)
    queue.follow("join 1")
    queue.clock.move(waits[0])
    assert queue.sent()[-1] == last + 1
    for number in range(last + 2, 1_200):  # a guess stays a number however often a provider refuses
        queue.follow("join 1")
        queue.slots[number].look(queue.clock.now())
        queue.refuse(number, jitter=jitter)
        queue.clock.move(MAX_GUESS)
    assert queue.closed_until() <= queue.clock.now()


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
    return httpx.Response(200, stream=httpx.ByteStream(WELL))


def busy(status: int = 429, retry_after: str | None = "30", **error: object) -> httpx.Response:
    headers = {} if retry_after is None else {"retry-after": retry_after}
    return httpx.Response(status, headers=headers, json={"error": {"message": "slow down", **error}})


def first(response: httpx.Response) -> Callable[[int], httpx.Response | None]:
    return lambda number: None if number else response


def agent_of(provider: Provider, **settings: Any) -> Agent:
    return Agent(
        model="openai:m",
        base_url="http://there",
        api_key="k",
        client=provider.client,
        clock=provider.clock,
        **settings,
    )


async def crowd(agent: Agent, count: int) -> tuple[list[str], list[Any]]:
    notices: list[Any] = []

    async def session(number: int) -> str:
        async with agent.session(f"s{number}") as talk:
            notices.extend([notice async for notice in talk.stream("Hello?")])
            return talk.result().text

    async with agent:
        return await asyncio.gather(*map(session, range(count))), notices


def of_kind(kind: type[N], notices: Iterable[object]) -> list[N]:
    return [notice for notice in notices if isinstance(notice, kind)]


async def test_two_hundred_sessions_wait_together() -> None:
    provider = Provider(AutoClock(), first(busy()))
    texts, notices = await crowd(agent_of(provider), 200)
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
    clock = AutoClock()
    provider = Provider(clock, lambda _: busy() if clock.now() < 30.0 else None)
    texts, notices = await crowd(agent_of(provider), 200)
    assert texts == ["well"] * 200
    assert provider.arrived == [0.0] * MAX_CONCURRENT + [30.0] * 200
    assert {notice.due for notice in of_kind(RetryScheduled, notices)} == {30.0}
    assert clock.now() == 30.0


async def test_the_one_that_was_refused_waits_once() -> None:
    # Its run's own wait is over when the lane opens, whether the provider said how long or not.
    for retry_after, waits in (("7", [7.0]), (None, [3.0])):
        clock = AutoClock()
        provider = Provider(clock, first(busy(retry_after=retry_after)))
        texts, notices = await crowd(agent_of(provider, retries=Retries(base=3.0, jitter=0.0)), 1)
        assert (texts, clock.slept) == (["well"], waits)
        assert of_kind(RequestDelayed, notices) == []
    # A wait that is guessed has the jitter of the run's own, so it is not longer, however that was drawn.
    provider = Provider(AutoClock(), lambda number: busy(503, None) if number < 3 else None)
    _, notices = await crowd(agent_of(provider, retries=Retries(base=1.0, jitter=1.0)), 1)
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
    clock = AutoClock()
    provider = Provider(clock, first(response))
    model = OpenAIChat("http://there", "k", provider.client)
    await model(asking(), scene_of(clock))
    told: list[object] = []
    answer = await model(asking(2), scene_of(clock, told.append))
    assert isinstance(answer, ModelFinished)
    assert (len(of_kind(RequestDelayed, told)) == 1) is closes
    assert (provider.arrived[1] > 0) is closes
    assert answer.seconds == 0.0  # the time that was waited is no work


async def test_a_provider_has_a_limit_of_its_own_for_all_its_models() -> None:
    clock = AutoClock()
    busy_one, other = Provider(clock, first(busy())), Provider(clock, first(well()))
    a, b = OpenAIChat("http://a", "k", busy_one.client), AnthropicMessages("http://b", "k", other.client)
    models = Models(wires={"a": a, "b": b})
    await models(asking(model="a:m"), scene_of(clock))
    await models(asking(model="b:m"), scene_of(clock))
    assert other.arrived == [0.0]

    provider = Provider(clock, first(well()))
    limited = Models(base_url="http://there", api_key="k", client=provider.client, limit=1)
    answers = [limited(asking(n, f"openai:m{n % 2}"), scene_of(clock)) for n in range(10)]
    assert all(isinstance(answer, ModelFinished) for answer in await asyncio.gather(*answers))
    assert (provider.most, provider.models) == (1, ["m0", "m1"] * 5)


# What would be waited for too long


async def test_a_fallback_does_not_wait_for_what_it_gets_round() -> None:
    """Every session falls back, though one alone was refused; its model is of the same provider."""
    clock = AutoClock()
    provider = Provider(clock, first(busy()))
    agent = agent_of(provider, fallback="openai:n")
    texts, notices = await crowd(agent, 100)
    assert texts == ["well"] * 100
    assert set(provider.arrived) == {0.0}
    assert (provider.models.count("m"), provider.models.count("n")) == (MAX_CONCURRENT, 101 - MAX_CONCURRENT)
    assert len(of_kind(FallbackUsed, notices)) == 101 - MAX_CONCURRENT
    assert of_kind(RequestDelayed, notices) == []


async def test_a_wait_longer_than_a_run_may_wait_ends_it() -> None:
    clock = AutoClock()
    provider = Provider(clock, first(busy(retry_after="7200")))
    agent = agent_of(provider)
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
    clock = ManualClock(0.0)
    provider = Provider(clock, first(busy() if held else well()))
    model = OpenAIChat("http://there", "k", provider.client, limit=1)
    other = asyncio.create_task(model(asking(), scene_of(clock)))
    if held:
        await other
    waiting = [asyncio.create_task(model(asking(n), scene_of(clock))) for n in (2, 3)]
    await (others_run() if held else asyncio.sleep(0))
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
    holder.__exit__()
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


@settings(max_examples=20)
@given(
    answers=st.lists(st.sampled_from([*ANSWERS]), min_size=1, max_size=20),
    cancelled=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 29)), max_size=10),
    limit=st.sampled_from([None, 1, 2, 5]),
)
def test_whatever_happens_each_request_is_answered_and_no_place_is_lost(
    answers: list[str], cancelled: list[tuple[int, int]], limit: int | None
) -> None:
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
        return super().time() + self.ahead


def test_a_request_that_is_not_turned_away_at_once_was_taken_up() -> None:
    async def main() -> list[bool]:
        queue = Queue()
        for line in ("join 1", "sent 0", "refuses 0 1", "pass 1", "join 3"):
            queue.follow(line)
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
        while len(arrived) > 10 and most < 2:  # noqa: ASYNC110  # threads have no event of one loop
            await asyncio.sleep(0.001)
        with lock:
            under_way -= 1
        return busy(retry_after="0.2") if len(arrived) == 1 else well()

    client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    model = OpenAIChat("http://there", "k", client, limit=2)
    answers: list[object] = []

    async def ask() -> None:
        answers.extend(await asyncio.gather(*[model(asking(n), scene_of(clock)) for n in range(10)]))

    asyncio.run(one_refused(model, clock))  # with no wait of our own that is longer
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
    config = attrs.evolve(PLAIN, retries=Retries(base=0.1))
    assert isinstance(await model(asking(), scene_of(clock, config=config)), ModelFailed)


def test_a_loop_that_is_gone_keeps_no_request_waiting() -> None:
    throttle = Throttle(1)
    clock = AutoClock()
    holder = throttle.slot(asking(), scene_of(clock))
    assert holder.look(0.0) is None

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
        holder.__exit__()  # it would be the turn of the one whose loop is gone
        waiting = task
        gc.collect()
        await task

    asyncio.run(others())
