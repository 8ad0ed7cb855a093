"""The faults that the stand-in plays: what an agent makes of each, offline and without a real wait."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from turnwheel import Agent, DoneReason, ModelSpec, Retries
from turnwheel.apps.stand_in.faults import SMALL_MODEL, SMALL_WINDOW
from turnwheel.apps.stand_in.server import StandIn
from turnwheel.effects.events import Failure
from turnwheel.effects.notices import (
    AnswerDropped,
    Compacted,
    CompactionStarted,
    Notice,
    RetryScheduled,
    TextDelta,
)
from turnwheel.states.state import CompactReason
from turnwheel.testing.clocks import AutoClock

PATIENT = Retries(base=2.0, jitter=0.0)


@pytest.fixture
async def server() -> AsyncIterator[StandIn]:
    async with StandIn() as running:
        yield running


def agent_of(server: StandIn, model: str | ModelSpec, **settings: Any) -> Agent:
    """An agent that asks *model* of *server*, by a clock that stands still."""
    return Agent(
        model=model, base_url=server.base_url, api_key="k", clock=AutoClock(), retries=PATIENT, **settings
    )


async def asked(agent: Agent, *prompts: str) -> list[tuple[DoneReason | None, str, list[Notice]]]:
    """How each of the *prompts* of one session ended, with what text, and what it told."""
    ends: list[tuple[DoneReason | None, str, list[Notice]]] = []
    async with agent, agent.session() as session:
        for prompt in prompts:
            notices = [notice async for notice in session.stream(prompt)]
            ends.append((session.result().reason, session.result().text, notices))
    return ends


def waits_of(notices: list[Notice]) -> list[tuple[Failure, float]]:
    return [(notice.failure, notice.due) for notice in notices if isinstance(notice, RetryScheduled)]


@pytest.mark.parametrize(
    ("model", "failure", "first", "second"),
    [
        ("stand-in-429", Failure.RATE_LIMIT, [2.0, 4.0], [6.0, 8.0]),
        ("stand-in-overloaded", Failure.OVERLOADED, [2.0, 6.0], [8.0, 12.0]),
        ("stand-in-500", Failure.SERVER, [2.0, 6.0], [8.0, 12.0]),
    ],
)
async def test_a_prompt_is_refused_twice_and_then_answered(
    model: str, failure: Failure, first: list[float], second: list[float], server: StandIn
) -> None:
    ends = await asked(agent_of(server, model), "Hello!", "Thanks!")
    assert [waits_of(notices) for _, _, notices in ends] == [
        [(failure, due) for due in first],
        [(failure, due) for due in second],
    ]
    assert [reason for reason, _, _ in ends] == [DoneReason.END_TURN] * 2
    assert all("scripted stand-in" in text for _, text, _ in ends)


async def test_a_stream_is_cut_before_its_first_word_and_then_behind_it(server: StandIn) -> None:
    [(reason, text, notices)] = await asked(agent_of(server, "stand-in-cut"), "Hello!")
    assert waits_of(notices) == [(Failure.CUT, 2.0)]
    assert "".join(notice.text for notice in notices if isinstance(notice, TextDelta)).startswith("I am")
    assert sum(isinstance(notice, AnswerDropped) for notice in notices) == 1
    assert (reason, text) == (DoneReason.ERROR, "")


async def test_a_conversation_that_outgrows_the_small_window_is_summarised(server: StandIn) -> None:
    spec = ModelSpec(name=SMALL_MODEL, window=2 * SMALL_WINDOW)
    long = "and that, " * 700
    ends = await asked(agent_of(server, spec), f"Remember this, {long}", f"Remember this, {long}", "Thanks!")
    assert [reason for reason, _, _ in ends] == [DoneReason.END_TURN] * 3
    [started] = [notice for _, _, told in ends for notice in told if isinstance(notice, CompactionStarted)]
    assert started.reason is CompactReason.OVERFLOW
    [compacted] = [notice for _, _, told in ends for notice in told if isinstance(notice, Compacted)]
    assert compacted.after < compacted.before


async def test_the_small_model_says_what_is_too_long_as_providers_do(server: StandIn) -> None:
    said = {"role": "user", "content": "x" * 4 * (SMALL_WINDOW + 1)}
    async with httpx.AsyncClient(base_url=server.base_url) as client:
        refused = await client.post("/chat/completions", json={"model": SMALL_MODEL, "messages": [said]})
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert (
        "maximum context length is 3000 tokens. However, your messages resulted in 3001" in error["message"]
    )


@pytest.mark.parametrize(
    ("model", "status", "retry_after"),
    [("stand-in-429", 429, "1"), ("stand-in-overloaded", 529, None), ("stand-in-500", 500, None)],
)
async def test_an_answer_that_is_not_streamed_is_refused_alike(
    model: str, status: int, retry_after: str | None, server: StandIn
) -> None:
    async with httpx.AsyncClient(base_url=server.base_url) as client:
        for prompt in ("Hello", "Hi"):
            body = {"model": model, "messages": [{"role": "user", "content": prompt}]}
            answers = [await client.post("/chat/completions", json=body) for _ in range(4)]
            assert [answer.status_code for answer in answers] == [status, status, 200, 200]
            assert answers[0].headers.get("retry-after") == retry_after
            assert answers[0].json()["error"]["message"]


async def test_an_answer_that_is_not_streamed_is_cut_before_it_begins(server: StandIn) -> None:
    body = {"model": "stand-in-cut", "messages": [{"role": "user", "content": "Hello"}]}
    async with httpx.AsyncClient(base_url=server.base_url) as client:
        for _ in range(2):
            with pytest.raises(httpx.RemoteProtocolError):
                await client.post("/chat/completions", json=body)
        assert (await client.post("/chat/completions", json=body)).is_success
