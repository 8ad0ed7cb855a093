"""What goes wrong, on every road: refusals, limits, lines that are cut, conversations that are too long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from real.roads.conftest import every_wire

from turnwheel import DoneReason, ModelSpec, Retries, tool
from turnwheel.effects.events import Failure
from turnwheel.effects.notices import (
    AnswerDropped,
    Compacted,
    CompactionFailed,
    ReasoningDelta,
    RetryScheduled,
    TextDelta,
    ToolStarted,
    TurnEnded,
)
from turnwheel.testing.clocks import AutoClock

if TYPE_CHECKING:
    from real.roads.conftest import Json, Road

pytestmark = [pytest.mark.real, pytest.mark.timeout(60, func_only=True)]

FINE: Json = {"content": "fine now"}


def refused(status: int, kind: str, message: str = "the words of it", **more: object) -> Json:
    """A refusal in the words of either dialect."""
    return {"error": {"message": message, "type": kind}, "status": status, "usage": None, **more}


@pytest.mark.parametrize(
    ("status", "kind", "failure"),
    [
        (408, "timeout_error", Failure.TIMEOUT),
        (429, "rate_limit_error", Failure.RATE_LIMIT),
        (500, "api_error", Failure.SERVER),
        (502, "bad_gateway", Failure.SERVER),
        (503, "unavailable", Failure.SERVER),
        (529, "overloaded_error", Failure.OVERLOADED),
    ],
)
async def test_what_may_go_better_is_asked_again(
    status: int, kind: str, failure: Failure, road: Road
) -> None:
    """Once: the failure is told with the server's words, and the second answer is the answer."""
    road.play_in_order(refused(status, kind), FINE)
    async with road.agent(clock=AutoClock()) as agent:
        await road.watch(agent)
    [retry] = road.seen(RetryScheduled)
    assert retry.failure is failure
    assert "the words of it" in retry.message
    assert [delta.text for delta in road.seen(TextDelta)] == ["fine now"]
    assert len(road.heard()) == 2


@pytest.mark.parametrize(
    ("status", "kind", "failure"),
    [
        (400, "invalid_request_error", Failure.BAD_REQUEST),
        (401, "authentication_error", Failure.AUTH),
        (403, "permission_error", Failure.AUTH),
        (404, "not_found_error", Failure.NOT_FOUND),
        (422, "unprocessable", Failure.BAD_REQUEST),
    ],
)
async def test_what_will_not_go_better_ends_the_run(
    status: int, kind: str, failure: Failure, road: Road
) -> None:
    """With the server's words, and where it is the key, with the way out."""
    road.play_in_order(refused(status, kind), FINE)
    async with road.agent() as agent:
        result = await agent.run("Go.")
    assert result.reason is DoneReason.ERROR
    assert result.detail.startswith(f"{failure}: http {status}: ")
    assert "the words of it" in result.detail
    hint = f"set {'OPENAI' if road.wire == 'openai' else 'ANTHROPIC'}_API_KEY"
    assert (hint in result.detail) is (failure is Failure.AUTH)
    assert len(road.heard()) == 1


@every_wire
async def test_a_rate_limit_is_waited_for_as_long_as_it_asks(road: Road) -> None:
    """LiteLLM gives it another name, and on its Messages route leaves it out: we wait as we always do."""
    road.play_in_order(refused(429, "rate_limit_error", retryAfter=7), FINE)
    clock = AutoClock()
    async with road.agent(clock=clock, retries=Retries(base=3.0, jitter=0.0)) as agent:
        assert (await agent.run("Go.")).text == "fine now"
    assert clock.slept == [3.0 if road.name.startswith("messages-to-") else 7.0]


async def test_failures_without_end_are_waited_for_longer_and_longer_and_then_end_the_run(road: Road) -> None:
    """As often as allowed, each wait twice the one before."""
    road.play_in_order(*[refused(503, "unavailable")] * 4)
    clock = AutoClock()
    async with road.agent(clock=clock, retries=Retries(failed=3, base=1.0, jitter=0.0)) as agent:
        result = await agent.run("Go.")
    assert clock.slept == [1.0, 2.0, 4.0]
    assert (result.reason, len(road.heard())) == (DoneReason.ERROR, 4)
    assert result.detail.startswith("server: http 503: ")


# Lines that are cut

CUTS: dict[str, Json] = {
    "after chunks": {"truncateAfterChunks": 8},
    "in the middle of a line": {},
}


@pytest.mark.parametrize("cut", CUTS)
async def test_a_stream_that_is_cut_after_text_ends_the_run(cut: str, road: Road) -> None:
    """What was shown is void and said to be; the session goes on with the next prompt."""
    text = "one two three four five six seven"
    road.play_in_order({"content": text, "chunkSize": 4, "latency": 20, **CUTS[cut]}, FINE)
    if not CUTS[cut]:
        road.cut('"ive')
    async with road.agent() as agent, agent.session() as session:
        await road.watch(session)
        broken = session.result()
        result = await session.run("Once more.")
    shown = "".join(delta.text for delta in road.seen(TextDelta))
    assert shown.startswith("one ")
    assert text.startswith(shown)
    assert len(road.seen(AnswerDropped)) == 1
    assert not road.seen(RetryScheduled)
    assert (broken.reason, broken.text) == (DoneReason.ERROR, "")
    assert broken.detail.startswith("cut: ")
    assert "payload is not completed" in broken.detail or "-to-" not in road.name
    assert broken.spent.usage.output > 0
    assert (result.reason, result.text) == (DoneReason.END_TURN, "fine now")
    assert "".join(words for _, words in road.said(road.heard()[-1])) == "Go.Once more."


@every_wire
@pytest.mark.parametrize(
    "cut", [{"truncateAfterChunks": 1}, {"chaos": {"disconnectRate": 1.0}}], ids=["in the head", "at once"]
)
async def test_a_stream_that_is_cut_before_any_text_is_asked_for_again(cut: Json, road: Road) -> None:
    """Nothing was shown, so nothing is lost."""
    road.play_in_order({"content": "never seen", **cut}, FINE)
    async with road.agent(clock=AutoClock()) as agent:
        await road.watch(agent)
    [retry] = road.seen(RetryScheduled)
    assert retry.failure is (Failure.SERVER if "-to-" in road.name else Failure.CONNECTION)
    assert not road.seen(AnswerDropped)
    assert [delta.text for delta in road.seen(TextDelta)] == ["fine now"]


async def test_a_call_that_was_cut_in_its_arguments_does_not_run(road: Road) -> None:
    """Half of what the model meant may be whole JSON; the run ends and its next prompt finds no such call."""

    @tool(approval="never")
    def pay(amount: str) -> str:
        """Pay."""
        return f"paid {amount}"

    road.play_in_order({"toolCalls": [road.call("call_1", "pay", amount="one million")], "latency": 10}, FINE)
    road.cut("one mil")
    async with road.agent(tools=[pay], retries=Retries(failed=0)) as agent, agent.session() as session:
        await road.watch(session)
        broken = session.result()
        result = await session.run("Once more.")
    assert broken.reason is DoneReason.ERROR
    assert not road.seen(ToolStarted)
    assert result.text == "fine now"
    assert not any(message.get("tool_calls") for message in road.heard()[-1]["messages"])


async def test_a_stream_that_is_cut_in_its_first_line_is_asked_for_again(road: Road) -> None:
    """A line that is torn before anything was said, whatever a proxy makes of it."""
    road.play_in_order({"content": "never seen"}, FINE)
    road.cut('"role":"as')
    async with road.agent(clock=AutoClock()) as agent:
        await road.watch(agent)
    assert len(road.seen(RetryScheduled)) == 1
    assert not road.seen(AnswerDropped)
    assert [delta.text for delta in road.seen(TextDelta)] == ["fine now"]


# What is no answer


async def test_an_answer_that_is_no_answer_is_not_taken_for_one(road: Road) -> None:
    """It is not even JSON. Where LiteLLM translates, it makes an answer of it, which says nothing."""
    road.play_in_order({"content": "never seen", "chaos": {"malformedRate": 1.0}}, FINE)
    async with road.agent(clock=AutoClock()) as agent:
        result = await agent.run("Go.")
    translated = road.name not in {"chat", "messages", "messages-to-messages"}
    assert (result.reason, result.text) == (DoneReason.END_TURN, "" if translated else "fine now")
    assert len(road.heard()) == (1 if translated else 2)


async def test_a_session_survives_a_server_that_fails_at_random(road: Road) -> None:
    """Dropped, limited, disconnected: each is seen once as a retry, and no turn is lost or said twice."""
    chaos = {"dropRate": 0.3, "rateLimitRate": 0.3, "disconnectRate": 0.3}
    road.play(*[{"content": f"Answer {turn}.", "chaos": chaos} for turn in range(3)])
    patient = Retries(failed=1_000, overloaded=1_000, base=0.001)
    async with road.agent(clock=AutoClock(), retries=patient) as agent, agent.session() as session:
        for turn in range(3):
            await road.watch(session, f"Question {turn}?")
            assert session.result().text == f"Answer {turn}."
    assert len(road.seen(TurnEnded)) == 3
    assert len(road.heard()) == 3 + len(road.seen(RetryScheduled))


# What is too long

WORDINGS = {
    "openai": "This model's maximum context length is 2000 tokens, but you sent 2100.",
    "anthropic": "prompt is too long: 2100 tokens > 2000 maximum",
}


@pytest.mark.parametrize("wording", WORDINGS)
async def test_a_conversation_that_is_too_long_is_summarised(wording: str, road: Road) -> None:
    """The server refuses, the old part is summarised by the same server, and the run goes on."""
    code = {"code": "context_length_exceeded"} if wording == "openai" else {}
    error = {"message": WORDINGS[wording], "type": "invalid_request_error", **code}
    summary = {"match": {"systemMessage": "You summarise"}, "response": {"content": "They like long words."}}
    overflow: Json = {"error": error, "status": 400, "usage": None}
    road.play_in_order({"content": "Noted."}, overflow, FINE, first=summary)
    model = ModelSpec(name=road.model, window=2_000)
    async with road.agent(model=model) as agent, agent.session() as session:
        await session.run("incomprehensibilities " * 250)
        await road.watch(session, "What do I like?")
        result = session.result()
    assert (result.reason, result.text) == (DoneReason.END_TURN, "fine now")
    [compacted] = road.seen(Compacted)
    assert compacted.after < compacted.before / 10
    said = "\n".join(words for _, words in road.said(road.heard()[-1]))
    assert "They like long words." in said
    assert said.endswith("What do I like?")
    assert "incomprehensibilities" not in said


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (413, "request_too_large", "Request exceeds the maximum size"),
        (400, "invalid_request_error", "This endpoint's maximum context length is 163840 tokens."),
        (400, "invalid_request_error", "the request exceeds the available context size (8192 tokens)"),
        (400, "invalid_request_error", "prompt too long; exceeded max context length by 5 tokens"),
        (400, "invalid_request_error", "The total length of all messages is too long."),
        (422, "invalid", "Input is too long for requested model."),
    ],
    ids=["size", "openrouter", "llama.cpp", "ollama", "perplexity", "bedrock"],
)
async def test_too_long_is_understood_in_the_words_of_other_providers(
    status: int, kind: str, message: str, road: Road
) -> None:
    """There is nothing to be summarised here, which is what the run then says."""
    road.play_in_order(refused(status, kind, message))
    async with road.agent() as agent:
        await road.watch(agent)
    assert len(road.seen(CompactionFailed)) == 1
    assert not road.seen(RetryScheduled)
    assert not road.seen(ReasoningDelta)
