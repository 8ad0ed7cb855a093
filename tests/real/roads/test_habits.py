"""What servers do that no reference says: odd calls, ends and errors, each as a real program sends it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from turnwheel import DoneReason, Policy, Retries, tool
from turnwheel.effects import config, events, notices
from turnwheel.effects.messages import Outcome, StopReason
from turnwheel.testing.clocks import AutoClock

if TYPE_CHECKING:
    from real.roads.conftest import Json, Road

pytestmark = [pytest.mark.real, pytest.mark.timeout(60, func_only=True)]

PARALLEL = Policy(concurrency=config.Concurrency.PARALLEL_READS)


@tool(side_effect="read_only")
def weather(city: str = "here") -> str:
    """Degrees in a city."""
    return f"21 in {city}"


# Calls


@pytest.mark.parametrize(
    "road",
    ["openrouter", "chat-to-openrouter", "messages-to-openrouter", "chat-to-ollama", "chat-to-gemini"],
    indirect=True,
)
async def test_calls_come_in_many_shapes(road: Road) -> None:
    """
    Two calls in one delta, one of them without an id, arguments as objects, comments between the events.

    What went back was taken, and the next answer, with a call of the same id, too.
    """
    calls = [road.call("call_1", "weather", city="Rome"), road.call("call_2", "weather", city="Oslo")]
    road.play(
        {"content": "I look.", "toolCalls": calls, "openRouterProcessing": True},
        {"toolCalls": [road.call("call_1", "weather")]},
        {"content": "Warm.", "openRouterProcessing": True},
    )
    async with road.agent(tools=[weather], policy=PARALLEL) as agent, agent.session() as session:
        await road.watch(session)
        result = session.result()
    assert (result.reason, result.text) == (DoneReason.END_TURN, "Warm.")
    assert sorted(ended.content for ended in road.seen(notices.CallSettled)) == [
        "21 in Oslo",
        "21 in Rome",
        "21 in here",
    ]
    assert re.findall(r"21 in \w+", str(road.asked()[-1])) == ["21 in Rome", "21 in Oslo", "21 in here"]
    assert result.spent.usage.input > 0
    assert result.spent.usage.output > 0


@pytest.mark.parametrize("road", ["messages-to-ollama", "messages-to-gemini"], indirect=True)
async def test_calls_that_a_proxy_has_melted_into_one_do_not_run(road: Road) -> None:
    """LiteLLM writes the arguments of both into one block; the model is told, and calls them one by one."""
    rome, oslo = [road.call(f"call_{city}", "weather", city=city) for city in ("Rome", "Oslo")]
    road.play({"toolCalls": [rome, oslo]}, {"toolCalls": [rome]}, {"toolCalls": [oslo]}, {"content": "Warm."})
    async with road.agent(tools=[weather]) as agent:
        await road.watch(agent)
    ended = road.seen(notices.CallSettled)
    assert [one.outcome for one in ended] == [Outcome.ERROR, Outcome.OK, Outcome.OK]
    assert ended[0].content.startswith("Invalid arguments for weather: ")
    assert [one.content for one in ended[1:]] == ["21 in Rome", "21 in Oslo"]
    assert "".join(delta.text for delta in road.seen(notices.TextDelta)) == "Warm."


@pytest.mark.parametrize(
    "ids",
    [("a" * 64, "b" * 64), ("call:1/2", "call 2"), ("123456789", "fc_9")],
    ids=["long", "odd", "short"],
)
async def test_ids_that_one_provider_makes_are_taken_by_another(ids: tuple[str, str], road: Road) -> None:
    """Where they are too long or of other letters they go out as our own, the same in call and result."""
    road.play({"toolCalls": [road.call(one, "weather", city=one) for one in ids]}, {"content": "Warm."})
    async with road.agent(tools=[weather]) as agent:
        assert (await agent.run("Go.")).text == "Warm."
    messages = road.heard()[-1]["messages"]
    called = {
        call["id"]: call["function"]["arguments"]
        for message in messages
        for call in message.get("tool_calls", ())
    }
    for message in messages:
        if message["role"] == "tool":
            city = road.said({"messages": [message]})[0][1].removeprefix("21 in ")
            assert city in called[message["tool_call_id"]]


async def test_text_between_calls_is_kept(road: Road) -> None:
    """Said before, between and behind them, and all of it goes back."""
    first, second = [
        {"type": "toolCall", "id": f"call_{city}", "name": "weather", "arguments": {"city": city}}
        for city in ("Rome", "Oslo")
    ]
    texts: list[Json] = [{"type": "text", "text": text} for text in ("One. ", "Two. ", "Three. ")]
    road.play({"blocks": [texts[0], first, texts[1], second, texts[2]]}, {"content": "Warm."})
    async with road.agent(tools=[weather]) as agent:
        assert (await agent.run("Go.")).text == "Warm."
    assert road.said(road.heard()[-1]) == [
        ("user", "Go."),
        ("assistant", "One. Two. Three. "),
        ("tool", "21 in Rome"),
        ("tool", "21 in Oslo"),
    ]


# Ends


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "unheard_of"])
async def test_a_finish_reason_is_no_sign_of_calls(finish: str, road: Road) -> None:
    """Calls run whatever it says, and an answer without calls is the last, whatever it says."""
    road.play(
        {"toolCalls": [road.call("call_1", "weather", city="Rome")], "finishReason": finish},
        {"content": "Warm.", "finishReason": finish},
    )
    async with road.agent(tools=[weather]) as agent, agent.session() as session:
        await road.watch(session)
        result = session.result()
    assert (result.reason, result.text) == (DoneReason.END_TURN, "Warm.")
    assert [ended.content for ended in road.seen(notices.CallSettled)] == ["21 in Rome"]


@pytest.mark.parametrize(
    ("call", "finish", "final", "outcomes"),
    [
        ("srvtoolu_1", "stop", "Found.", []),
        ("srvtoolu_1", "tool_calls", "Found.", []),
        ("call_1", "tool_calls", "Never mind.", [Outcome.ERROR]),
    ],
)
async def test_a_call_of_a_tool_that_was_not_offered_is_not_run(
    call: str, finish: str, final: str, outcomes: list[Outcome], road: Road
) -> None:
    """One that the provider runs itself is never answered, whatever the end is; any other gets an error."""
    road.play(
        {"content": "Found.", "toolCalls": [road.call(call, "web_search")], "finishReason": finish},
        {"content": "Never mind."},
    )
    async with road.agent(tools=[weather]) as agent, agent.session() as session:
        await road.watch(session)
        result = session.result()
    assert (result.reason, result.text) == (DoneReason.END_TURN, final)
    assert [ended.outcome for ended in road.seen(notices.CallSettled)] == outcomes
    assert len(road.seen(notices.Warned)) == (not outcomes)


@pytest.mark.parametrize(
    ("end", "reason", "stop"),
    [
        ("cut off", DoneReason.MAX_TOKENS, StopReason.MAX_TOKENS),
        ("refused", DoneReason.REFUSAL, StopReason.REFUSAL),
    ],
)
async def test_an_end_that_is_none_is_told(
    end: str, reason: DoneReason, stop: StopReason, road: Road
) -> None:
    """Each provider has its own word for a refusal."""
    refused = "refusal" if road.name.endswith("messages") else "content_filter"
    road.play({"content": "It all began when", "finishReason": "length" if end == "cut off" else refused})
    async with road.agent() as agent, agent.session() as session:
        await road.watch(session)
        result = session.result()
    assert (result.reason, result.text) == (reason, "It all began when")
    [turn] = road.seen(notices.TurnEnded)
    assert turn.stop is stop


async def test_thinking_that_used_up_all_tokens_is_no_answer(road: Road) -> None:
    """Nothing is kept of it that a provider would refuse, and the session goes on."""
    road.play_in_order(
        {"reasoning": "Well, well, well", "toolCalls": [], "finishReason": "length"}, {"content": "fine now"}
    )
    async with road.agent() as agent, agent.session() as session:
        await road.watch(session)
        spent = session.result()
        result = await session.run("Once more.")
    assert (spent.reason, spent.text) == (DoneReason.MAX_TOKENS, "")
    assert "".join(delta.text for delta in road.seen(notices.ReasoningDelta)) == "Well, well, well"
    assert (result.reason, result.text) == (DoneReason.END_TURN, "fine now")


async def test_a_call_that_was_cut_off_by_the_limit_does_not_run(road: Road) -> None:
    """Its arguments may be whole by accident; it is answered all the same, as no run."""
    call = road.call("call_1", "weather", city="Rome")
    road.play_in_order({"toolCalls": [call], "finishReason": "length"}, {"content": "fine now"})
    async with road.agent(tools=[weather]) as agent, agent.session() as session:
        await road.watch(session)
        assert (await session.run("Once more.")).text == "fine now"
    assert {ended.outcome for ended in road.seen(notices.CallSettled)} <= {Outcome.SKIPPED}


# Errors


@pytest.mark.parametrize("road", ["messages-to-gemini"], indirect=True)
@pytest.mark.parametrize(
    ("status", "kind", "failure"),
    [
        (429, "RESOURCE_EXHAUSTED", events.Failure.RATE_LIMIT),
        (503, "UNAVAILABLE", events.Failure.CUT),
        (404, "NOT_FOUND", events.Failure.NOT_FOUND),
    ],
)
async def test_an_error_behind_the_head_of_a_good_answer_is_an_error(
    status: int, kind: str, failure: events.Failure, road: Road
) -> None:
    """With status 200 and a message begun; what may go better is asked again, since nothing was said yet."""
    refused: Json = {"error": {"message": "the words of it", "type": kind}, "status": status, "usage": None}
    road.play_in_order(refused, {"content": "fine now"})
    async with road.agent(clock=AutoClock()) as agent, agent.session() as session:
        await road.watch(session)
        result = session.result()
    if failure is events.Failure.NOT_FOUND:
        assert result.reason is DoneReason.ERROR
        assert result.detail.startswith("not_found: error in the stream: ")
    else:
        [retry] = road.seen(notices.RetryScheduled)
        assert retry.failure is failure
        assert "the words of it" in retry.message
        assert result.text == "fine now"
    assert not road.seen(notices.AnswerDropped)


@pytest.mark.parametrize(
    "road", ["openrouter", "chat-to-openrouter", "messages-to-openrouter"], indirect=True
)
async def test_what_a_provider_said_is_found_behind_what_a_proxy_says_of_it(road: Road) -> None:
    """OpenRouter says that something went wrong and quotes; LiteLLM quotes the quotation."""
    quoted = '{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}'
    error = {"message": "Provider returned error", "metadata": {"raw": quoted, "provider_name": "Anthropic"}}
    road.play_in_order({"error": error, "status": 503, "usage": None}, {"content": "fine now"})
    async with road.agent(clock=AutoClock(), retries=Retries(failed=0)) as agent:
        await road.watch(agent)
    [retry] = road.seen(notices.RetryScheduled)
    assert retry.failure is events.Failure.OVERLOADED
    assert "Overloaded" in retry.message


@pytest.mark.parametrize(
    "road", ["chat-to-ollama", "messages-to-ollama", "chat-to-gemini", "messages-to-gemini"], indirect=True
)
async def test_a_stream_that_breaks_behind_a_proxy_is_cut_here(road: Road) -> None:
    """LiteLLM ends it with an error of its own and no end."""
    road.play({"content": "one two three four five six seven", "chunkSize": 4, "latency": 20})
    road.cut("ive ")
    async with road.agent() as agent, agent.session() as session:
        await road.watch(session)
        result = session.result()
    assert result.reason is DoneReason.ERROR
    assert result.detail.startswith("cut: error in the stream: ")
    assert len(road.seen(notices.AnswerDropped)) == 1


@pytest.mark.parametrize("road", ["chat-with-fallback", "messages-with-fallback"], indirect=True)
async def test_a_model_that_a_proxy_falls_back_to_answers_like_the_first(road: Road) -> None:
    """The first one fails each time, of which nothing reaches us; calls and results go to the other."""
    road.play({"reasoning": "Hm.", "toolCalls": [road.call("call_1", "weather")]}, {"content": "Warm."})
    async with road.agent(tools=[weather]) as agent, agent.session() as session:
        await road.watch(session)
        assert session.result().text == "Warm."
    assert not road.seen(notices.RetryScheduled)
    assert [request["model"] for request in road.heard()] == ["claude-sonnet-4-5"] * 2
