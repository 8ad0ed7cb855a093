"""What a LiteLLM proxy says of its own accord, without any server behind it."""

from __future__ import annotations

import pytest

from turnwheel import Agent, DoneReason, Retries
from turnwheel.effects.events import Failure
from turnwheel.effects.notices import CompactionFailed, RetryScheduled, TextDelta

pytestmark = [pytest.mark.real, pytest.mark.timeout(60, func_only=True)]


def asking(litellm: str, model: str, key: str = "sk-real") -> Agent:
    """An agent that asks *model* of the proxy at *litellm*, and twice where that may help."""
    return Agent(
        model=model, base_url=f"{litellm}/v1", api_key=key, retries=Retries(overloaded=1, failed=1, base=0.01)
    )


async def test_an_answer_of_the_proxy_itself(litellm: str) -> None:
    """It comes in pieces and with its account."""
    async with asking(litellm, "mock-text") as agent, agent.session() as session:
        notices = [notice async for notice in session.stream("Hello?")]
        result = session.result()
    texts = [notice.text for notice in notices if isinstance(notice, TextDelta)]
    assert len(texts) > 1
    assert (result.reason, result.text) == (DoneReason.END_TURN, "Hello from LiteLLM itself.")
    assert result.spent.usage.output > 0
    assert not result.spent.usage.estimated


@pytest.mark.parametrize(
    ("model", "failure"), [("mock-429", Failure.RATE_LIMIT), ("mock-500", Failure.SERVER)], ids=["429", "500"]
)
async def test_an_error_of_the_proxy_is_tried_again_and_then_the_end(
    model: str, failure: Failure, litellm: str
) -> None:
    """As often as allowed, and the detail holds the proxy's words."""
    async with asking(litellm, model) as agent, agent.session() as session:
        notices = [notice async for notice in session.stream("Hello?")]
        result = session.result()
    assert [notice.failure for notice in notices if isinstance(notice, RetryScheduled)] == [failure]
    assert result.reason is DoneReason.ERROR
    assert result.detail.startswith(f"{failure}: http ")
    assert "this is a mock" in result.detail


async def test_a_context_window_error_is_an_overflow(litellm: str) -> None:
    """It is not tried again as it is: a short conversation cannot be summarised, and the run says so."""
    async with asking(litellm, "mock-overflow") as agent, agent.session() as session:
        notices = [notice async for notice in session.stream("Hello?")]
        result = session.result()
    assert any(isinstance(notice, CompactionFailed) for notice in notices)
    assert not any(isinstance(notice, RetryScheduled) for notice in notices)
    assert result.reason is DoneReason.ERROR
    assert result.detail.startswith("the conversation is larger than the model's window")


@pytest.mark.parametrize(
    ("model", "key"), [("no-such-model", "sk-real"), ("mock-text", "sk-wrong")], ids=["model", "key"]
)
async def test_what_the_proxy_refuses_ends_the_run(model: str, key: str, litellm: str) -> None:
    """A model it does not have and a key it does not know fail at once."""
    async with asking(litellm, model, key) as agent:
        result = await agent.run("Hello?")
    assert result.reason is DoneReason.ERROR
    assert "http 4" in result.detail
