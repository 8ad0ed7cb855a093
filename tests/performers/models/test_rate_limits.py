"""A caller's own limits of requests and tokens a minute, over all processes on one store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from support.plain_store import PlainStore

from turnwheel import Agent, ModelSpec, SQLiteStore
from turnwheel.effects.config import Config, Retries
from turnwheel.effects.errors import StoreError
from turnwheel.effects.events import Answer, Failure, ModelFailed, ModelFinished
from turnwheel.effects.history import History
from turnwheel.effects.messages import StopReason, user
from turnwheel.effects.notices import RequestDelayed
from turnwheel.effects.requests import CallModel, Conversation, Transcript
from turnwheel.effects.usage import Usage
from turnwheel.performers import PerformContext, RateLimit
from turnwheel.performers.base import LEAVING
from turnwheel.performers.models.rate_limits import EXPECTED_OUTPUT
from turnwheel.performers.models.router import Models
from turnwheel.performers.stores.base import Store
from turnwheel.performers.stores.memory import MemoryStore
from turnwheel.states.context import ConversationMemory, Memory, SessionMemory
from turnwheel.states.rules.token_estimates import history_size
from turnwheel.testing.clocks import AutoClock, ManualClock
from turnwheel.testing.scripted import ScriptedModel, says
from turnwheel.testing.stores import StoreOver

PLAIN = Config(model=ModelSpec(name="own:m"), retries=Retries(jitter=0.0))
IMPATIENT = attrs.evolve(PLAIN, models=(ModelSpec(name="own:n"),), fallback="own:n")
TEN = RateLimit(model="own:m", requests=10)


class Asked:
    """A provider that answers at once with some *usage*, and the times at which it was asked."""

    def __init__(self, usage: Usage | None = None) -> None:
        self.times: list[float] = []
        self.usage = usage or Usage()

    async def __call__(self, request: CallModel, scene: PerformContext) -> Answer:
        self.times.append(scene.clock.now())
        at = scene.clock.now()
        return ModelFinished(at=at, request=request.id, stop=StopReason.END_TURN, usage=self.usage)


def asking(number: int = 1, model: str = "own:m") -> CallModel:
    return CallModel(id=f"r-{number}", model=model, view=Conversation(revision=0, length=1))


def scene_of(
    clock: AutoClock | ManualClock,
    store: Store | None = None,
    emit: Callable[[Any], None] = lambda _: None,
    config: Config = PLAIN,
) -> PerformContext:
    history = History.of(user("hi"))
    return PerformContext(
        session="s", run="r", config=config, history=history, clock=clock, emit=emit, store=store
    )


async def test_requests_go_as_often_as_they_may_and_say_that_they_wait() -> None:
    clock, asked, told = AutoClock(), Asked(), list[Any]()
    models = Models(wires={"own": asked}, rates=[TEN])
    for number in range(21):
        await models(asking(number), scene_of(clock, emit=told.append))
        await models(asking(model="own:n"), scene_of(clock))
    limited = asked.times[::2]
    assert limited == pytest.approx([6.0 * number for number in range(21)])
    assert asked.times[1::2] == limited, "another model has no limit"
    assert [type(one) for one in told] == [RequestDelayed] * 20
    assert (told[0].request, told[0].due) == ("r-1", pytest.approx(6.0))


async def test_processes_on_one_store_keep_one_limit(tmp_path: Path) -> None:
    clock, asked = AutoClock(), Asked()
    stores = [SQLiteStore(tmp_path / "s.db", now=clock.now) for _ in range(4)]
    processes = [Models(wires={"own": asked}, rates=[TEN]) for _ in stores]
    for number in range(3):
        for process, store in zip(processes, stores, strict=True):
            await process(asking(number), scene_of(clock, store))
    assert asked.times == pytest.approx([6.0 * number for number in range(12)])
    for store in stores:
        await store.close()


async def test_without_a_store_or_with_one_that_fails_each_process_counts_for_itself() -> None:
    class Broken(StoreOver):
        async def meter(
            self, name: str, held: bytes | None, wanted: bytes | None
        ) -> tuple[bytes | None, float]:
            msg = f"no space left for {wanted!r} in the place of {held!r} at {name!r}"
            raise StoreError(msg)

    for store in (None, Broken()):
        clock, asked = AutoClock(), Asked()
        models = Models(wires={"own": asked}, rates=[TEN])
        for number in range(3):
            await models(asking(number), scene_of(clock, store))
        assert asked.times == pytest.approx([0, 6, 12])


@pytest.mark.parametrize(("used", "second"), [(0, 0.0), (100, 0.0), (6_000, 6_000 * 60 / 5_401)])
async def test_tokens_are_estimated_before_and_counted_after(used: int, second: float) -> None:
    """The first request takes what it really used; the next waits until its estimate is there again."""
    clock, asked = AutoClock(), Asked(Usage(input=used))
    models = Models(wires={"own": asked}, rates=[RateLimit(model="own:m", tokens=6_000)])
    for number in range(2):
        await models(asking(number), scene_of(clock))
    assert asked.times[0] == 0
    # A tenth of a minute's tokens is there at once, and the estimate is less than that.
    assert EXPECTED_OUTPUT < 600
    assert asked.times[1] == pytest.approx(max(0.0, second - (600 - EXPECTED_OUTPUT) * 60 / 5_401), abs=0.2)


async def test_a_wait_that_is_longer_than_the_patience_is_none() -> None:
    """The run falls back, or ends, as with a provider's own refusal; nothing is taken for it."""
    clock, asked, store = AutoClock(), Asked(), MemoryStore()
    models = Models(wires={"own": asked}, rates=[RateLimit(model="own:m", requests=1)])
    scene = scene_of(clock, store, config=IMPATIENT)
    assert isinstance(await models(asking(1), scene), ModelFinished)
    answers = [await models(asking(2), scene) for _ in range(3)]
    for answer in answers:
        assert isinstance(answer, ModelFailed)
        assert answer.failure is Failure.RATE_LIMIT
        assert answer.retry_after == pytest.approx(60, abs=1)
    assert asked.times == [0.0]


async def test_a_wait_that_is_as_long_as_the_patience_is_waited() -> None:
    clock, asked = AutoClock(), Asked()
    models = Models(wires={"own": asked}, rates=[TEN])
    scene = scene_of(clock, config=attrs.evolve(PLAIN, retries=Retries(jitter=0.0, longest=6.0)))
    for number in range(2):
        assert isinstance(await models(asking(number), scene), ModelFinished)
    assert asked.times == [0.0, 6.0]


async def test_a_wait_of_less_than_a_second_is_waited_too() -> None:
    clock, asked = AutoClock(), Asked()
    models = Models(wires={"own": asked}, rates=[RateLimit(model="own:m", requests=120)])
    for number in range(13):
        await models(asking(number), scene_of(clock))
    assert asked.times[11:] == [0.0, pytest.approx(60 / 109)]


class Noting(StoreOver):
    """A store that notes what it is asked for, and what the meters of tokens hold."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(now=lambda: 0.0))
        self.names: list[str] = []

    async def meter(self, name: str, held: bytes | None, wanted: bytes | None) -> tuple[bytes | None, float]:
        self.names.append(name)
        return await super().meter(name, held, wanted)

    async def taken(self, most: int) -> float:
        """The tokens that are taken from a bucket of *most* a minute, which was full."""
        kept: Any = self.kept
        meter, _ = await kept.meter(self.names[0], None, None)
        left: float = json.loads(meter)[1]["tokens"]
        return most / 10 - left


MANY = RateLimit(model="own:m", tokens=1_000_000)
TOLD = History.of(user("x" * 4_000))


@pytest.mark.parametrize(
    ("request_", "memory", "shown"),
    [
        (asking(), None, history_size(TOLD)),
        (
            asking(),
            Memory(run="r", session=SessionMemory(model="own:m"), conversation=ConversationMemory(size=77)),
            77,
        ),
        (attrs.evolve(asking(), view=Transcript(revision=0, length=1, limit=33)), None, 33),
        (attrs.evolve(asking(), system="s" * 400), None, history_size(TOLD) + 100),
    ],
)
async def test_what_a_request_shows_and_an_answer_are_taken_until_the_answer_is_there(
    request_: CallModel, memory: Memory | None, shown: int
) -> None:
    store, during = Noting(), list[float]()

    async def own(request: CallModel, scene: PerformContext) -> Answer:
        during.append(await store.taken(1_000_000))
        return await Asked(Usage(input=700, output=11))(request, scene)

    models = Models(wires={"own": own}, rates=[MANY])
    scene = attrs.evolve(scene_of(AutoClock(), store), memory=memory, history=TOLD)
    assert isinstance(await models(request_, scene), ModelFinished)
    assert during == [shown + EXPECTED_OUTPUT]
    assert await store.taken(1_000_000) == 711


@pytest.mark.parametrize("usage", [None, Usage(input=5)])
async def test_of_a_request_that_failed_only_what_it_used_is_taken(usage: Usage | None) -> None:
    store = Noting()

    async def own(request: CallModel, scene: PerformContext) -> Answer:
        at, failure = scene.clock.now(), Failure.SERVER
        return ModelFailed(at=at, request=request.id, failure=failure, message="no", usage=usage)

    models = Models(wires={"own": own}, rates=[MANY])
    assert isinstance(await models(asking(), scene_of(AutoClock(), store)), ModelFailed)
    assert await store.taken(1_000_000) == (5 if usage else 0)


async def test_of_a_request_without_an_answer_nothing_is_taken() -> None:
    store = Noting()

    async def own(_: CallModel, __: PerformContext) -> None: ...

    models = Models(wires={"own": own}, rates=[MANY])
    assert await models(asking(), scene_of(AutoClock(), store)) is None
    assert await store.taken(1_000_000) == 0


async def test_where_no_tokens_are_limited_a_store_is_asked_before_a_request_only() -> None:
    store, models = Noting(), Models(wires={"own": Asked()}, rates=[TEN])
    await models(asking(), scene_of(AutoClock(), store))
    assert len(store.names) == 2, "to read and to write"


async def test_a_store_without_meters_leaves_a_process_to_count_for_itself() -> None:
    clock, asked = AutoClock(), Asked()
    models = Models(wires={"own": asked}, rates=[TEN])
    store = PlainStore()
    for number in range(2):
        await models(asking(number), scene_of(clock, store))
    assert asked.times == [0.0, 6.0]


@pytest.mark.parametrize("late", [False, True])
async def test_a_cancellation_that_a_request_answers_does_not_reach_its_caller(
    late: bool,  # noqa: FBT001  # a row
) -> None:
    """Cancelled while it waits for its turn, or when its answer is there and is only counted."""
    counted = list[int]()

    class Slow(Noting):
        async def meter(
            self, name: str, held: bytes | None, wanted: bytes | None
        ) -> tuple[bytes | None, float]:
            if len(self.names) == (2 if late else 0):
                task.cancel()
                await asyncio.sleep(0)
            return await super().meter(name, held, wanted)

    async def ask() -> Answer | None:
        answer = await Models(wires={"own": Asked()}, rates=[MANY])(asking(), scene_of(AutoClock(), store))
        counted.append(asyncio.current_task().cancelling())  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]  # it runs in one
        return answer

    store = Slow()
    task = asyncio.create_task(ask())
    answer = await task
    assert isinstance(answer, ModelFinished if late else ModelFailed)
    assert counted == [0]
    assert len(store.names) == (2 if late else 0), "where nothing was taken, nothing is given back"


@pytest.mark.parametrize("message", [None, LEAVING])
async def test_a_request_that_is_cancelled_while_it_waits_gives_its_turn_back(message: str | None) -> None:
    clock, asked = ManualClock(0.0), Asked()
    models, store = Models(wires={"own": asked}, rates=[TEN]), MemoryStore(now=clock.now)
    await models(asking(1), scene_of(clock, store))
    waiting = asyncio.create_task(models(asking(2), scene_of(clock, store)))
    for _ in range(5):
        await asyncio.sleep(0)
    waiting.cancel(message)
    answer = await waiting
    assert isinstance(answer, ModelFailed)
    assert answer.failure is Failure.CANCELLED
    clock.move(6.0)
    await models(asking(3), scene_of(clock, store))
    assert asked.times == [0.0, 6.0]


async def test_an_agent_keeps_its_limits_in_its_own_store() -> None:
    clock = AutoClock()
    store = MemoryStore(now=clock.now)
    for _ in range(3):
        own = ScriptedModel(says("well"))
        wires = Models(wires={"own": own}, rates=[TEN])
        agent = Agent(model="own:m", performers={CallModel: wires}, store=store, clock=clock)
        await agent.run("Hello?")
    assert clock.now() == pytest.approx(12.0)
