"""The Responses wire, straight to aimock and through LiteLLM to a model on Responses or on Messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import attrs
import pytest

from turnwheel import DoneReason, Policy, Retries, tool
from turnwheel.effects.config import Concurrency
from turnwheel.effects.messages import Reasoning, Role
from turnwheel.effects.notices import CallSettled, ReasoningDelta, TextDelta, TurnEnded
from turnwheel.effects.output import OutputMode
from turnwheel.performers import Output
from turnwheel.testing.clocks import AutoClock

if TYPE_CHECKING:
    from real.roads.conftest import Road

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(60, func_only=True),
    pytest.mark.parametrize(
        "road", ["responses", "responses-to-responses", "responses-to-messages"], indirect=True
    ),
]

DEGREES = {"Rome": "21", "Oslo": "-3", "Cairo": "35"}


@tool(side_effect="read_only")
def weather(city: str) -> str:
    """Degrees in a city."""
    return DEGREES[city]


@attrs.frozen
class Invoice:
    """An output."""

    number: str
    total: float


INVOICE = {"number": "A-7", "total": 12.5}


async def test_results_of_calls_go_back_to_the_model(road: Road) -> None:
    road.play(
        {
            "reasoning": "Two cities, two lookups.",
            "content": "I look both up.",
            "toolCalls": [
                road.call("call_a", "weather", city="Rome"),
                road.call("call_b", "weather", city="Oslo"),
            ],
            "chunkSize": 4,
        },
        {"toolCalls": [road.call("call_c", "weather", city="Cairo")]},
        {"content": "Cairo is the warmest.", "chunkSize": 5},
    )
    async with road.agent(tools=[weather], policy=Policy(concurrency=Concurrency.PARALLEL_READS)) as agent:
        await road.watch(agent, "Where is it warm?")
    texts = [delta.text for delta in road.seen(TextDelta)]
    assert "".join(texts) == "I look both up.Cairo is the warmest."
    assert len(texts) >= 6
    assert "".join(delta.text for delta in road.seen(ReasoningDelta)) == "Two cities, two lookups."
    assert {ended.content for ended in road.seen(CallSettled)} == {*DEGREES.values()}
    assert [(turn.usage.input, turn.usage.output) for turn in road.seen(TurnEnded)] == [(40, 20)] * 3
    last = json.loads(road.sent[-1].content)["input"]
    results = [item["output"] for item in last if item.get("type") == "function_call_output"]
    assert results == ["21", "-3", "35"]
    assert [words for role, words in road.said(road.heard()[-1]) if role == "tool"] == results


async def test_encrypted_reasoning_goes_back_as_it_came(road: Road) -> None:
    road.play(*[{"reasoning": "Hm.", "content": f"Answer {turn}."} for turn in range(2)])
    async with road.agent(system="Be brief.") as agent, agent.session() as session:
        results = [await session.run(f"Question {turn}?") for turn in range(2)]
    assert [result.text for result in results] == ["Answer 0.", "Answer 1."]
    answers = [message for message in session.history if message.role is Role.ASSISTANT]
    parts = [part for message in answers for part in message.parts]
    thoughts = [part.text for part in parts if isinstance(part, Reasoning) and part.text]
    assert thoughts == ["Hm.", "Hm."]
    last = json.loads(road.sent[-1].content)
    assert last["instructions"] == "Be brief."
    encrypted = [item["encrypted_content"] for item in last["input"] if item.get("type") == "reasoning"]
    # LiteLLM writes the signed thinking of Anthropic into the field.
    assert len(encrypted) == 1
    assert [words for role, words in road.said(road.heard()[-1]) if role == "user"] == [
        "Question 0?",
        "Question 1?",
    ]


@pytest.mark.parametrize("mode", OutputMode)
async def test_an_output_is_read_in_each_mode(road: Road, mode: OutputMode) -> None:
    text = json.dumps(INVOICE)
    answer = (
        {"toolCalls": [{"id": "call_1", "name": "output", "arguments": text}]}
        if mode is OutputMode.TOOL
        else {"content": text, "chunkSize": 3}
    )
    road.play(answer)
    async with road.agent() as agent:
        result = await agent.run("Read the invoice.", output=Output(Invoice, name="output", mode=mode))
    assert result.output == Invoice(number="A-7", total=12.5)
    sent = json.loads(road.sent[-1].content)
    assert ("format" in sent.get("text", {})) is (mode is OutputMode.NATIVE)


async def test_a_wrong_output_is_asked_for_again(road: Road) -> None:
    road.play({"content": '{"number": "A-7"}'}, {"content": json.dumps(INVOICE)})
    async with road.agent() as agent:
        result = await agent.run("Read the invoice.", output=Output(Invoice, mode="native"))
    assert result.output == Invoice(number="A-7", total=12.5)
    assert "total" in json.dumps(road.heard()[-1]["messages"][-1])


async def test_a_rate_limit_is_waited_for_as_long_as_it_asks(road: Road) -> None:
    busy = {"error": {"message": "slow down", "type": "rate_limit_error"}, "status": 429, "retryAfter": 7}
    road.play_in_order({**busy, "usage": None}, {"content": "fine now"})
    clock = AutoClock()
    async with road.agent(clock=clock, retries=Retries(base=3.0, jitter=0.0)) as agent:
        assert (await agent.run("Go.")).text == "fine now"
    assert clock.slept == [7.0]


async def test_a_long_answer_arrives_whole(road: Road) -> None:
    text = "".join(f"{number}. Größe, 大きさ, μέγεθος; " for number in range(1_000))
    road.play({"content": text, "chunkSize": 101})
    async with road.agent() as agent:
        await road.watch(agent)
    deltas = road.seen(TextDelta)
    assert "".join(delta.text for delta in deltas) == text
    assert len(deltas) >= 250


async def test_an_answer_that_is_cut_is_asked_for_again(road: Road) -> None:
    road.play_in_order(
        {"content": "This will never be read to its end.", "truncateAfterChunks": 2, "chunkSize": 5},
        {"content": "fine now"},
    )
    async with road.agent(retries=Retries(base=0.01), clock=AutoClock()) as agent:
        result = await agent.run("Go.")
    assert (result.reason, result.text) == (DoneReason.END_TURN, "fine now")
