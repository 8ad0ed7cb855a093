"""What happens when a model cannot answer: waits, another model, and what a person sees of it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from turnwheel import (
    Agent,
    DoneReason,
    Limits,
    ModelSpec,
    Price,
    Retries,
    SetModel,
)
from turnwheel.effects.errors import ConfigError
from turnwheel.effects.events import Failure, ModelFailed
from turnwheel.effects.notices import (
    AnswerDropped,
    FallbackUsed,
    ModelCalled,
    RequestDelayed,
    RetryScheduled,
    TextDelta,
)
from turnwheel.effects.requests import CallModel
from turnwheel.effects.usage import Usage
from turnwheel.performers.base import Clock, PerformContext
from turnwheel.projections import TurnEvents
from turnwheel.states.state import Retry, Thinking
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.scripted import (
    Reply,
    calls,
    fails,
    says,
)

if TYPE_CHECKING:
    from behaviour.conftest import Stage

    from turnwheel.testing.clocks import ManualClock

OTHER = ModelSpec(name="other", price=Price(input=1, output=1))
HELP: dict[str, Any] = {"fallback": OTHER}
BUSY = fails(Failure.OVERLOADED)


# Waits


@pytest.mark.behaviour("waits-are-not-all-alike")
@pytest.mark.parametrize(
    ("settings", "drawn", "slept"),
    [
        (Retries(), 0.0, [2.0, 4.0, 8.0]),
        (Retries(), 0.5, [2.2, 4.4, 8.8]),
        (Retries(jitter=0.0), 0.5, [2.0, 4.0, 8.0]),
        (Retries(base=1.0, jitter=1.0), 0.25, [1.25, 2.5, 5.0]),
    ],
)
async def test_a_wait_is_longer_by_a_share_that_is_drawn(
    stage: Stage, settings: Retries, drawn: float, slept: list[float]
) -> None:
    """Up to a fifth by default; whoever asked the model draws it, so a run can be played again."""

    async def refused(request: CallModel, scene: PerformContext) -> ModelFailed:
        at = scene.clock.now()
        return ModelFailed(at=at, request=request.id, failure=Failure.SERVER, message="no", jitter=drawn)

    await stage.session(performers={CallModel: refused}, retries=settings).run("go")
    assert stage.clock.slept == pytest.approx(slept)


@pytest.mark.behaviour("waits-are-not-all-alike")
async def test_two_that_were_refused_at_once_do_not_come_back_at_once() -> None:
    """With a real provider each draws a share of its own."""
    waits: list[float] = []
    for _ in range(5):
        clock = AutoClock(0.0)
        transport = httpx.MockTransport(lambda _: httpx.Response(500, stream=httpx.ByteStream(b"oops")))
        async with httpx.AsyncClient(transport=transport) as client:
            agent = Agent(model="openai:m", client=client, api_key="k", clock=clock)
            assert (await agent.run("go")).reason is DoneReason.ERROR
        assert len(clock.slept) == 3
        waits.append(clock.slept[0])
    assert len(set(waits)) == 5
    assert all(2.0 <= wait <= 2.4 for wait in waits)


@pytest.mark.behaviour("a-wait-is-seen")
async def test_whoever_looks_sees_that_a_run_waits_until_when_and_why(stage: Stage) -> None:
    """In the notices and in the state; others read it in their own words."""
    session = stage.session(fails(Failure.RATE_LIMIT), says("done"))

    async def look(notice: RetryScheduled) -> None:
        state = session.machine and session.machine.state
        assert isinstance(state, Thinking)
        assert isinstance(state.stage, Retry)
        assert state.stage.due == notice.due

    await stage.play(session, on={RetryScheduled: look})
    [told] = stage.seen(RetryScheduled)
    assert (told.due, told.attempt) == (102.0, 2)
    assert (told.failure, told.message) == (Failure.RATE_LIMIT, "scripted: rate_limit")
    projected = [event["type"] for notice in stage.notices for event in TurnEvents.of("s").take(notice)]
    assert "retry" in projected


@pytest.mark.behaviour("a-wait-is-seen")
@pytest.mark.parametrize(("passed", "slept"), [(0.5, [1.5]), (60.0, [])])
async def test_who_goes_on_with_a_run_that_waits_waits_for_the_rest(
    stage: Stage, passed: float, slept: list[float]
) -> None:
    """The wait is part of the run and runs on while nobody holds it."""
    await stage.leave(stage.session(fails(Failure.RATE_LIMIT)), "go", RetryScheduled)
    assert stage.clock.slept == []
    stage.clock.move(passed)
    result = await stage.session(says("done")).resume()
    assert (result.text, stage.clock.slept) == ("done", slept)


@pytest.mark.behaviour("a-wait-is-seen")
async def test_a_wait_costs_no_time_of_a_budget(stage: Stage) -> None:
    """Nothing is at work."""
    busy = [fails(Failure.OVERLOADED)] * 4
    result = await stage.session(*busy, says("done"), limits=Limits(seconds=1.0)).run("go")
    assert (result.text, result.spent.seconds, sum(stage.clock.slept)) == ("done", 0.0, 30.0)


# Another model


@pytest.mark.behaviour("another-model-takes-over")
@pytest.mark.parametrize(
    ("script", "slept"),
    [
        ([fails(Failure.SERVER)] * 4, [2, 4, 8]),
        ([BUSY] * 4, [2, 4, 8]),
        ([fails(Failure.RATE_LIMIT, retry_after=10.5)], []),
        ([fails(Failure.NOT_FOUND)], []),
        ([fails(Failure.AUTH)], []),
    ],
    ids=["tries are spent", "the next wait is long", "a long wait is asked for", "not found", "no access"],
)
async def test_where_a_model_cannot_answer_another_one_does(
    stage: Stage, script: list[Reply], slept: list[int]
) -> None:
    """At once, over the same conversation, at its own price; whoever watches is told why."""
    session = stage.session(*script, says("here I am"), **HELP)
    result = await stage.play(session)

    assert (result.text, stage.clock.slept) == ("here I am", slept)
    assert [request.model for request in stage.model.requests] == ["scripted"] * len(script) + ["other"]
    assert stage.shown(len(script) + 1) == ["user: go"]
    [told] = stage.seen(FallbackUsed)
    assert (told.model, told.instead_of, told.failure) == ("other", "scripted", script[0].failure)
    assert str(result.spent.cost) == "0.000015"
    assert [notice.attempt for notice in stage.seen(ModelCalled)][-1] == 1


@pytest.mark.behaviour("another-model-takes-over")
async def test_it_answers_for_the_rest_of_the_run_and_the_next_begins_as_configured(stage: Stage) -> None:
    """What failed an hour ago may be well again."""
    script = (fails(Failure.AUTH), calls(("look", {})), says("done"), says("well again"))
    session = stage.session(*script, **HELP)
    await session.run("go")
    await session.run("and?")
    assert [request.model for request in stage.model.requests] == ["scripted", "other", "other", "scripted"]


@pytest.mark.behaviour("another-model-takes-over")
@pytest.mark.parametrize(
    ("script", "settings", "asked"),
    [
        ([fails(Failure.BAD_REQUEST)], HELP, 1),
        ([fails(Failure.AUTH), fails(Failure.AUTH)], HELP, 2),
        ([fails(Failure.AUTH)], {}, 1),
        ([fails(Failure.CUT, after="I thi")], HELP, 1),
    ],
    ids=["what was asked is wrong", "the other one fails too", "there is none", "some was seen"],
)
async def test_it_does_not_where_that_would_not_help(
    stage: Stage, script: list[Reply], settings: dict[str, Any], asked: int
) -> None:
    """There is one switch in a run, and nothing is answered twice of which something was seen."""
    result = await stage.play(stage.session(*script, says("never"), **settings))
    assert (result.reason, stage.asked) == (DoneReason.ERROR, asked)
    assert stage.order(TextDelta, AnswerDropped)[1:] == ["AnswerDropped"] * (script[0].pieces != ())


@pytest.mark.behaviour("another-model-takes-over")
async def test_the_other_model_is_given_as_many_tries(stage: Stage) -> None:
    """And a person may choose the first one again."""
    script = [fails(Failure.AUTH), fails(Failure.SERVER), calls(("look", {})), says("done")]
    session = stage.session(*script, **HELP)

    async def back(_: RetryScheduled) -> None:
        await session.control(SetModel(model="scripted"))

    result = await stage.play(session, on={RetryScheduled: back})
    assert (result.text, stage.clock.slept) == ("done", [2])
    assert [request.model for request in stage.model.requests][-1] == "scripted"


@pytest.mark.behaviour("another-model-takes-over")
async def test_who_takes_over_goes_on_in_another_process(stage: Stage) -> None:
    """A run that was left goes on with the model that it had."""
    session = stage.session(fails(Failure.AUTH), calls(("look", {})), **HELP)
    await stage.leave(session, "go", FallbackUsed)
    session = stage.session(says("done"), **HELP)
    await session.resume()
    assert [request.model for request in stage.model.requests] == ["other"]


@pytest.mark.behaviour("another-model-takes-over")
def test_who_takes_over_is_one_that_can_be_asked() -> None:
    """What is wrong with it is said when the agent is made, not when it is needed."""
    with pytest.raises(ConfigError, match="no wire 'nowhere' for model 'nowhere:m'"):
        Agent(model="openai:m", fallback="nowhere:m")


# What a provider says


def refusal(status: int, body: dict[str, Any], headers: dict[str, str]) -> httpx.Response:
    """A provider's refusal."""
    return httpx.Response(status, headers=headers, stream=httpx.ByteStream(json.dumps(body).encode()))


TOO_LONG = "This model's maximum context length is 1000 tokens"


@pytest.mark.behaviour("a-refusal-is-understood")
@pytest.mark.parametrize(
    ("status", "body", "headers", "slept", "failure"),
    [
        (429, {"error": {"message": "slow down"}}, {"retry-after": "3"}, [3.0] * 8, "rate_limit"),
        (529, {"error": {"type": "overloaded_error", "message": "busy"}}, {}, 8, "overloaded"),
        (500, {"error": {"message": "oops"}}, {}, 3, "server"),
        (503, {"error": {"message": "down"}}, {}, 3, "server"),
        (401, {"error": {"message": "who are you"}}, {}, 0, "auth"),
        (404, {"error": {"message": "no such model"}}, {}, 0, "not_found"),
        (400, {"error": {"message": "bad"}}, {}, 0, "bad_request"),
        (400, {"error": {"code": "context_length_exceeded", "message": TOO_LONG}}, {}, 0, "larger than"),
    ],
)
async def test_what_a_provider_refuses_with_decides_what_is_done(
    status: int, body: dict[str, Any], headers: dict[str, str], slept: int | list[float], failure: str
) -> None:
    """Its status, its headers and its words; the last are in the result."""
    clock = AutoClock(0.0)
    transport = httpx.MockTransport(lambda _: refusal(status, body, headers))
    async with httpx.AsyncClient(transport=transport) as client:
        agent = Agent(model="openai:m", client=client, api_key="k", clock=clock)
        result = await agent.run("go")

    assert result.reason is DoneReason.ERROR
    assert failure in result.detail
    assert len(clock.slept) == slept if isinstance(slept, int) else clock.slept == pytest.approx(slept)


@pytest.mark.behaviour("a-refusal-is-understood")
async def test_a_refused_request_costs_nothing_and_one_that_was_cut_what_it_must_have(stage: Stage) -> None:
    """As long as the provider does not say: then it is an estimate, and says so."""
    refused = await stage.session(*[fails(Failure.SERVER)] * 4).run("go")
    assert (refused.spent.usage, refused.spent.turns) == (Usage(), 0)

    cut = await stage.agent(fails(Failure.CUT, after="once upon a time")).run("tell")
    assert (cut.spent.turns, cut.spent.usage.output) == (0, 4)
    assert cut.spent.usage.estimated == cut.spent.usage.total


# Many at once


class Provider:
    """
    A provider that turns away what comes before *opens*, and says to come back in 30 seconds.

    *times* are when requests came, *most_at_once* how many were under way at a time.
    """

    def __init__(self, clock: Clock, opens: float = 0.0) -> None:
        self.times: list[float] = []
        self.most_at_once = 0
        self._clock = clock
        self._opens = opens
        self._under_way = 0

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        """Answer, or turn away."""
        self.times.append(self._clock.now())
        self._under_way += 1
        self.most_at_once = max(self.most_at_once, self._under_way)
        try:
            if self._clock.now() < self._opens:
                return refusal(429, {"error": {"message": "slow down"}}, {"retry-after": "30"})
            assert request.method == "POST"
            for _ in range(5):
                await asyncio.sleep(0)
            delta = {"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}]}
            stream = f"data: {json.dumps(delta)}\n\ndata: [DONE]\n\n".encode()
            kind = {"content-type": "text/event-stream"}
            return httpx.Response(200, headers=kind, stream=httpx.ByteStream(stream))
        finally:
            self._under_way -= 1


@pytest.mark.behaviour("a-provider-is-not-hammered")
async def test_after_one_was_turned_away_no_other_is_sent_before_its_time(
    stage: Stage, wall: ManualClock
) -> None:
    """All sessions of an agent wait together, see it, and are answered in the end."""
    provider = Provider(wall, opens=101.0)
    held: list[RequestDelayed] = []
    turned_away = asyncio.Event()

    async def one(number: int) -> str:
        session = agent.session(str(number))
        async for notice in session.stream("go"):
            if isinstance(notice, RetryScheduled):
                turned_away.set()
            if isinstance(notice, RequestDelayed):
                held.append(notice)
        return session.result().text

    async with httpx.AsyncClient(transport=httpx.MockTransport(provider)) as client:
        agent = Agent(model="openai:m", client=client, api_key="k", clock=wall)
        work = [asyncio.ensure_future(one(0))]
        await turned_away.wait()
        work += [asyncio.ensure_future(one(number)) for number in range(1, 20)]
        await stage.until(lambda: len(held) == 19)
        assert len(provider.times) == 1
        wall.move(30.0)
        assert await asyncio.gather(*work) == ["hi"] * 20

    assert provider.times == [100.0] + [130.0] * 20
    assert {(notice.due, "slow down" in notice.reason) for notice in held} == {(130.0, True)}


@pytest.mark.behaviour("a-provider-is-not-hammered")
async def test_no_more_than_so_many_requests_are_under_way_at_one_provider() -> None:
    """The others wait for their turn, first come, first served."""
    clock = AutoClock(0.0)
    provider = Provider(clock)
    async with httpx.AsyncClient(transport=httpx.MockTransport(provider)) as client:
        agent = Agent(model="openai:m", client=client, api_key="k", clock=clock)
        results = await asyncio.gather(*[agent.run("go") for _ in range(200)])
    assert [result.text for result in results] == ["hi"] * 200
    assert 32 <= provider.most_at_once <= 64
