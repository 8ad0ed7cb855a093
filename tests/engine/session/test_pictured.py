"""What a session shows of itself: its card, and the pictures of its journal."""

from __future__ import annotations

import pytest

from turnwheel import Agent, MemoryStore, Session, tool
from turnwheel.effects.requests import CallModel
from turnwheel.engine import PictureKind
from turnwheel.testing.scripted import Reply, ScriptedModel, calls, says


@tool(side_effect="unsafe")
def pay() -> str:
    """Pay."""
    return "paid"


def session(*replies: Reply) -> Session:
    agent = Agent(
        model="m", performers={CallModel: ScriptedModel(*replies)}, tools=[pay], store=MemoryStore()
    )
    return agent.session("s")


def shown(value: Session) -> list[str]:
    """The lines of the card of *value*."""
    card = value._card()  # pyright: ignore[reportPrivateUsage]  # what a notebook draws
    return [f"{card.title} {card.beside}", *card.lines]


async def test_a_session_shows_where_its_run_is_what_it_waits_for_and_what_it_spent() -> None:
    async with session(calls(("pay", {}))) as asks:
        assert shown(asks) == ["Session 's': no run yet"]
        await asks.run("go")
        head, question, spent = shown(asks)
        assert head.startswith("Session 's': confirming: pay asked")
        assert question.startswith("waits for AskApproval")
        assert spent == "spent 1 turn, 10 + 5 tokens"


@pytest.mark.parametrize("kind", ["path", "sequence", "calls"])
async def test_a_session_draws_its_journal(kind: PictureKind) -> None:
    async with session(says("hi")) as talks:
        await talks.run("go")
        assert (await talks.picture(kind)).startswith("<svg")
