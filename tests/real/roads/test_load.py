"""A provider that has too much to do, on every road: who waits, who is told, and who goes elsewhere."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from turnwheel import Agent, DoneReason, Retries
from turnwheel.effects.events import Failure
from turnwheel.effects.notices import FallbackUsed, RequestDelayed, RetryScheduled, TurnEnded
from turnwheel.effects.requests import CallModel
from turnwheel.performers import Models
from turnwheel.testing.clocks import AutoClock

if TYPE_CHECKING:
    from real.roads.conftest import Json, Road

pytestmark = [pytest.mark.real, pytest.mark.timeout(60, func_only=True)]

KEY = "sk-real"

FINE: Json = {"content": "fine now"}

BUSY: dict[str, tuple[Json, Failure]] = {
    "limited": (
        {"error": {"message": "slow down", "type": "rate_limit_error"}, "status": 429, "retryAfter": 20},
        Failure.RATE_LIMIT,
    ),
    "overloaded": (
        {"error": {"message": "slow down", "type": "overloaded_error"}, "status": 529},
        Failure.OVERLOADED,
    ),
    "unavailable": (
        {"error": {"message": "slow down", "type": "unavailable"}, "status": 503},
        Failure.SERVER,
    ),
}
each_kind = pytest.mark.parametrize(("refusal", "failure"), BUSY.values(), ids=BUSY)


def one_at_a_time(road: Road, **settings: Any) -> Agent:
    """An agent of *road* that has one request under way at a time, so that the order is known."""
    models = Models(road.wire, base_url=road.base_url, api_key=KEY, client=road.client, limit=1)
    return road.agent(performers={CallModel: models}, clock=AutoClock(), **settings)


@each_kind
async def test_all_sessions_wait_with_the_one_that_was_turned_away(
    refusal: Json, failure: Failure, road: Road
) -> None:
    """They are told why and until when, and nothing is sent before."""
    road.play_in_order({**refusal, "usage": None}, *[FINE] * 4)
    async with one_at_a_time(road, retries=Retries(base=12.0, jitter=0.0)) as agent:
        await asyncio.gather(*[road.watch(agent.session(f"s{number}")) for number in range(4)])
    [retry] = road.seen(RetryScheduled)
    held = road.seen(RequestDelayed)
    assert retry.failure is failure
    # LiteLLM leaves out on its Messages route how long to wait: then it is as long as we always do.
    told = "retryAfter" in refusal and not road.name.startswith("messages-to-")
    assert {retry.due, *[notice.due for notice in held]} == {20.0 if told else 12.0}
    assert len(held) == 3
    assert all("slow down" in notice.reason for notice in held)
    assert len(road.seen(TurnEnded)) == 4
    assert len(road.heard()) == 5


@each_kind
async def test_another_model_takes_over(refusal: Json, failure: Failure, road: Road) -> None:
    """At once for everybody, since the wait would be long: whoever was turned away, and whoever was not."""
    road.play_in_order({**refusal, "usage": None}, *[FINE] * 3)
    other = road.model.replace("mini", "nano").replace("sonnet", "haiku")
    async with one_at_a_time(road, fallback=other, retries=Retries(base=12.0)) as agent:
        await asyncio.gather(*[road.watch(agent.session(f"s{number}")) for number in range(3)])
    fell = road.seen(FallbackUsed)
    assert [(notice.instead_of, notice.model, notice.failure) for notice in fell] == [
        (road.model, other, failure)
    ] * 3
    assert not road.seen(RequestDelayed)
    assert not road.seen(RetryScheduled)
    asked = [body["model"].rpartition("/")[2] for body in road.asked()]
    bare, bare_other = [name.rpartition("/")[2].rpartition(":")[2] for name in (road.model, other)]
    assert asked == [bare, *[bare_other] * 3]


async def test_a_model_on_the_other_wire_takes_over(road: Road) -> None:
    """When the tries are spent, in the middle of a conversation, which it is shown as a whole."""
    road.play_in_order({"content": "First."}, *[{**BUSY["overloaded"][0], "usage": None}] * 3, FINE)
    litellm = "-to-" in road.name
    others = {
        "openai": f"anthropic:{'anth/' * litellm}claude-sonnet-4-5",
        "anthropic": f"openai:{'oai/' * litellm}gpt-5-mini",
    }
    patient = Retries(overloaded=2, failed=2, base=0.01)
    agent = road.agent(
        performers=road.both_wires(), fallback=others[road.wire], retries=patient, clock=AutoClock()
    )
    async with agent, agent.session() as session:
        await session.run("One?")
        await road.watch(session, "Two?")
        result = session.result()
    assert (result.reason, result.text) == (DoneReason.END_TURN, "fine now")
    assert len(road.seen(RetryScheduled)) == 2
    [fell] = road.seen(FallbackUsed)
    assert fell.failure is Failure.OVERLOADED
    assert road.said(road.heard()[-1]) == [("user", "One?"), ("assistant", "First."), ("user", "Two?")]


@pytest.mark.parametrize("road", ["chat", "messages"], indirect=True)
async def test_a_real_second_is_waited(road: Road) -> None:
    """By a real clock: nobody asks within it."""
    limited = {"error": {"message": "slow", "type": "rate_limit_error"}, "status": 429, "retryAfter": 1}
    road.play_in_order({**limited, "usage": None}, FINE, FINE)
    models = Models(road.wire, base_url=road.base_url, api_key=KEY, client=road.client, limit=1)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with road.agent(performers={CallModel: models}) as agent:
        await asyncio.gather(*[road.watch(agent.session(name)) for name in ("a", "b")])
    assert 1.0 <= loop.time() - begun < 2.0
    [retry], [held] = road.seen(RetryScheduled), road.seen(RequestDelayed)
    assert held.due == retry.due
