"""What a LiteLLM proxy says of its own accord, on either wire, without any server behind it."""

from __future__ import annotations

from typing import Any

import pytest

from turnwheel import Agent, DoneReason, Retries, Session
from turnwheel.effects.events import Failure
from turnwheel.effects.notices import CompactionFailed, FallbackUsed, Notice, RetryScheduled, TextDelta
from turnwheel.testing.clocks import AutoClock

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(60, func_only=True),
    pytest.mark.parametrize("wire", ["openai", "anthropic"]),
]


def asking(litellm: str, wire: str, model: str, key: str = "sk-real", **settings: Any) -> Agent:
    """An agent that asks *model* of the proxy at *litellm* on *wire*, and twice more where that may help."""
    return Agent(
        **settings,
        model=f"{wire}:{model}",
        base_url=f"{litellm}/v1",
        api_key=key,
        clock=AutoClock(),
        retries=Retries(overloaded=2, failed=2, base=1.0, jitter=0.0),
    )


async def watched(session: Session) -> list[Notice]:
    """All that a run of *session* tells."""
    return [notice async for notice in session.stream("Hello?")]


async def test_an_answer_of_the_proxy_itself(wire: str, litellm: str) -> None:
    """With its account, in pieces on the one wire; on the other it is whole though it was to be streamed."""
    async with asking(litellm, wire, "mock-text") as agent, agent.session() as session:
        notices = await watched(session)
        result = session.result()
    texts = [notice.text for notice in notices if isinstance(notice, TextDelta)]
    assert "".join(texts) == "Hello from LiteLLM itself."
    assert (len(texts) > 1) is (wire == "openai")
    assert (result.reason, result.text) == (DoneReason.END_TURN, "Hello from LiteLLM itself.")
    assert result.spent.usage.output > 0
    assert not result.spent.usage.estimated


@pytest.mark.parametrize(
    ("model", "failure"),
    [("mock-429", Failure.RATE_LIMIT), ("mock-500", Failure.SERVER), ("mock-408", Failure.TIMEOUT)],
)
async def test_an_error_of_the_proxy_is_tried_again_and_then_the_end(
    model: str, failure: Failure, wire: str, litellm: str
) -> None:
    """As often as allowed, after waits that grow, and the detail holds the proxy's words."""
    agent = asking(litellm, wire, model)
    async with agent, agent.session() as session:
        notices = await watched(session)
        result = session.result()
    retries = [notice for notice in notices if isinstance(notice, RetryScheduled)]
    assert [(retry.failure, retry.due) for retry in retries] == [(failure, 1.0), (failure, 3.0)]
    assert result.reason is DoneReason.ERROR
    assert result.detail.startswith(f"{failure}: http {model.removeprefix('mock-')}: ")
    assert "a mock" in result.detail


@pytest.mark.parametrize(
    ("model", "failure"), [("mock-429", Failure.RATE_LIMIT), ("mock-500", Failure.SERVER)]
)
async def test_another_model_takes_over_when_the_tries_are_spent(
    model: str, failure: Failure, wire: str, litellm: str
) -> None:
    """Nothing was said yet, so the answer is whole; it is asked in the rest of the run."""
    async with (
        asking(litellm, wire, model, fallback=f"{wire}:mock-text") as agent,
        agent.session() as session,
    ):
        notices = await watched(session)
        result = session.result()
    assert [notice.due for notice in notices if isinstance(notice, RetryScheduled)] == [1.0, 3.0]
    [fell] = [notice for notice in notices if isinstance(notice, FallbackUsed)]
    assert (fell.instead_of, fell.model, fell.failure) == (f"{wire}:{model}", f"{wire}:mock-text", failure)
    assert (result.reason, result.text) == (DoneReason.END_TURN, "Hello from LiteLLM itself.")


async def test_a_context_window_error_is_an_overflow(wire: str, litellm: str) -> None:
    """It is not tried again as it is: a short conversation cannot be summarised, and the run says so."""
    async with asking(litellm, wire, "mock-overflow") as agent, agent.session() as session:
        notices = await watched(session)
        result = session.result()
    assert any(isinstance(notice, CompactionFailed) for notice in notices)
    assert not any(isinstance(notice, RetryScheduled) for notice in notices)
    assert result.reason is DoneReason.ERROR
    assert result.detail.startswith("the conversation is larger than the model's window")


@pytest.mark.parametrize(
    ("model", "key"), [("no-such-model", "sk-real"), ("mock-text", "sk-wrong")], ids=["model", "key"]
)
async def test_what_the_proxy_refuses_ends_the_run(model: str, key: str, wire: str, litellm: str) -> None:
    """A model it does not have and a key it does not know fail at once."""
    async with asking(litellm, wire, model, key) as agent:
        result = await agent.run("Hello?")
    assert result.reason is DoneReason.ERROR
    assert "http 4" in result.detail
