"""Going through a session again, trying otherwise from a step of it, and finding where two part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from turnwheel import Deny, Rule, SetModel
from turnwheel.effects.events import ApprovalGiven, ModelFinished, ToolFinished
from turnwheel.engine.session.archive import bisect, replay
from turnwheel.testing.scripted import calls, says

if TYPE_CHECKING:
    from behaviour.conftest import Stage

    from turnwheel import Session

ALLOWED = [Rule(verdict="allow", tool="pay")]


async def step_of(stage: Stage, kind: type, session: str = "s") -> int:
    """The number of the first step at which an event of *kind* happened."""
    found = [step.number async for step in replay(stage.store, session) if isinstance(step.event, kind)]
    return found[0]


async def paid(stage: Stage) -> Session:
    """A session in which 5 were paid after a look."""
    session = stage.session(
        calls(("look", {})),
        calls(("pay", {"amount": 5})),
        says("paid"),
        says("so be it"),
        says("and again"),
        rules=ALLOWED,
    )
    await session.run("go")
    return session


@pytest.mark.behaviour("each-step-can-be-seen-again")
async def test_each_step_has_what_happened_and_where_it_led(stage: Stage) -> None:
    """Tools and models hear nothing of it."""
    session = await paid(stage)
    assert session.machine is not None
    ran, asked, kept = list(stage.ran), stage.asked, await stage.store.load("s")
    steps = [step async for step in replay(stage.store, "s") if step.event is not None]
    answers = [step.label for step in steps if isinstance(step.event, ModelFinished)]
    assert answers == ["executing", "executing", "done"]
    assert [step.spent.usage.total for step in steps if isinstance(step.event, ModelFinished)] == [15, 30, 45]
    assert steps[-1].state == session.machine.state
    assert (stage.ran, stage.asked, await stage.store.load("s")) == (ran, asked, kept)


@pytest.mark.behaviour("a-fork-tries-otherwise")
async def test_a_fork_has_another_result_in_place_of_one(stage: Stage) -> None:
    """The model is shown it, and what was done before is not done again."""
    session = await paid(stage)
    fork = await session.fork("f", at=await step_of(stage, ToolFinished), instead="saw nothing")
    result = await fork.resume()
    assert stage.shown(4) == ["user: go", "assistant: [look]", "tool: saw nothing"]
    assert (result.text, stage.ran) == ("so be it", ["look", "pay 5"])
    assert stage.said(session)[2] == "tool: saw"


@pytest.mark.behaviour("a-fork-tries-otherwise")
async def test_a_fork_has_another_decision_or_model(stage: Stage) -> None:
    """A yes becomes a no; a model another one."""
    session = stage.session(calls(("pay", {})), says("paid"), says("not paid"), says("by another"))
    await session.run("go")
    await session.approve(session.waiting[0].id)
    await session.resume()
    at = await step_of(stage, ApprovalGiven)
    denied = await session.fork("denied", at=at, instead=Deny(message="no"))
    assert (await denied.resume()).text == "not paid"
    assert (stage.ran, stage.outcomes(denied)) == (["pay 1"], ["pay: denied"])

    answered = await step_of(stage, ModelFinished)
    other = await session.fork("other", at=answered, instead=SetModel(model="else"))
    assert (await other.resume()).text == "by another"
    assert [request.model for request in stage.model.requests] == ["scripted"] * 3 + ["else"]


@pytest.mark.behaviour("where-two-part-is-found")
async def test_two_sessions_part_where_something_else_happened(stage: Stage) -> None:
    """It is named; what happened alike at another time is alike."""
    session = await paid(stage)
    at = await step_of(stage, ToolFinished)
    fork = await session.fork("f", at=at, instead="saw nothing")
    await fork.resume()
    parting = await bisect(stage.store, "s", "f")
    assert parting is not None
    assert parting.one is not None
    assert (parting.one["number"], parting.where) == (at, ("event.content",))

    twin = stage.agent(calls(("look", {})), calls(("pay", {"amount": 5})), says("paid"), rules=ALLOWED)
    await twin.session("twin").run("go")
    assert await bisect(stage.store, "s", "twin") is None
