"""A process that is lost, or leaves: what becomes of what it was at."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from turnwheel import Approve, Deny, Policy, ToolContext, tool
from turnwheel.effects.config import OnLost
from turnwheel.effects.errors import StoreConflict
from turnwheel.effects.events import Failure
from turnwheel.effects.notices import (
    ApprovalRequested,
    RetryScheduled,
    ToolOutput,
    ToolStarted,
)
from turnwheel.testing.scripted import calls, fails, says

if TYPE_CHECKING:
    from behaviour.conftest import Stage

    from turnwheel.testing.clocks import ManualClock

ASKS = Policy(on_lost=OnLost.ASK)
BUILDS = calls(("build", {}), ("look", {}))


@pytest.mark.behaviour("what-may-be-done-again-is")
async def test_a_read_runs_again(stage: Stage) -> None:
    """Its result is the one of the second time."""
    await stage.leave(stage.session(calls(("dig", {}))), "go", ToolOutput)
    stage.release()
    later = stage.session(says("done"))
    await later.resume()
    assert stage.ran == ["dig", "dig was stopped", "dig"]
    assert stage.outcomes(later) == ["dig: ok"]


@pytest.mark.behaviour("what-may-be-done-again-is")
async def test_an_idempotent_tool_runs_again_under_its_key(stage: Stage) -> None:
    """Whoever does the work can tell that it is the same."""
    keys: list[str] = []

    @tool(side_effect="idempotent", approval="never")
    async def book(context: ToolContext[Any]) -> str:
        """Book something."""
        keys.append(context.key)
        context.progress("at it")
        if len(keys) == 1:
            await asyncio.Event().wait()
        return "booked"

    await stage.leave(stage.session(calls(("book", {})), tools=[book]), "go", ToolOutput)
    later = stage.session(says("done"), tools=[book])
    await later.resume()
    assert stage.outcomes(later) == ["book: ok"]
    assert len(keys) == 2
    assert len(set(keys)) == 1


@pytest.mark.behaviour("what-may-have-run-is-told")
async def test_an_unsafe_tool_does_not_run_again(stage: Stage) -> None:
    """The model reads that it may have run; what was behind it runs."""
    await stage.leave(stage.session(BUILDS), "go", ToolOutput)
    later = stage.session(says("done"))
    await later.resume()
    assert stage.ran == ["build", "build was stopped", "look"]
    assert stage.outcomes(later) == ["build: unknown", "look: ok"]
    assert "it may have run" in stage.shown(1)[-1]


@pytest.mark.behaviour("a-person-says-whether-again")
@pytest.mark.parametrize("again", [True, False])
async def test_a_person_is_asked_whether_it_runs_again(stage: Stage, *, again: bool) -> None:
    """They see why; without a yes it does not run, and is not said not to have run."""
    await stage.leave(stage.session(BUILDS, policy=ASKS), "go", ToolOutput)
    stage.release()
    later = stage.session(says("done"), policy=ASKS)
    result = await stage.play(later, None)
    [question] = result.waiting
    assert (question.again, question.why.startswith("lost:")) == (True, True)
    assert stage.ran == ["build", "build was stopped"]

    await later.approve(question.id, Approve() if again else Deny(message="leave it"))
    await later.resume()
    assert stage.ran[2:] == (["build", "look"] if again else ["look"])
    assert stage.outcomes(later) == ["build: ok" if again else "build: unknown", "look: ok"]


@pytest.mark.behaviour("a-wait-outlives-its-process")
async def test_a_wait_goes_on_to_the_time_that_it_had(stage: Stage, wall: ManualClock) -> None:
    """Not for as long again."""
    first = stage.session(fails(Failure.RATE_LIMIT, retry_after=60.0), clock=wall)
    await stage.leave(first, "go", RetryScheduled)
    wall.move(40.0)
    later = stage.session(says("done"), clock=wall)
    going = asyncio.ensure_future(later.resume())
    await asyncio.sleep(0.01)
    assert (going.done(), stage.asked) == (False, 0)
    wall.move(20.0)
    assert (await going).text == "done"


@pytest.mark.behaviour("a-wait-outlives-its-process")
async def test_a_deadline_that_has_passed_is_a_no(stage: Stage, wall: ManualClock) -> None:
    """Nobody was there to see it pass; the call does not run."""
    timed = Policy(answer_within=60.0)
    await stage.leave(stage.session(calls(("pay", {})), clock=wall, policy=timed), "go", ApprovalRequested)
    wall.move(61.0)
    later = stage.session(says("done"), clock=wall, policy=timed)
    await stage.play(later, None, wait=True)
    assert (stage.ran, stage.outcomes(later)) == ([], ["pay: denied"])


@pytest.mark.behaviour("who-drains-begins-nothing")
async def test_what_is_at_work_ends_and_the_rest_is_for_others(stage: Stage) -> None:
    """The unsafe tool that had not begun runs later, and nobody is told that it may have."""
    session = stage.session(calls(("dig", {}), ("build", {})))
    leaving: list[asyncio.Task[None]] = []

    async def leave(_: ToolStarted) -> None:
        leaving.append(asyncio.ensure_future(session.drain()))
        await asyncio.sleep(0)
        stage.release()

    await stage.play(session, on={ToolStarted: leave})
    await leaving[0]
    assert stage.ran == ["dig"]

    later = stage.session(says("done"))
    result = await later.resume()
    assert stage.ran == ["dig", "build"]
    assert stage.outcomes(later) == ["dig: ok", "build: ok"]
    assert (result.text, stage.asked) == ("done", 1)


@pytest.mark.behaviour("one-of-two-goes-on")
async def test_who_is_overtaken_is_told(stage: Stage) -> None:
    """What was posted through either of them is answered by whoever goes on."""
    first = stage.session(calls(("dig", {})))
    other = stage.session(says("done"), says("also done"))
    refused: list[StoreConflict] = []

    async def go_on(_: ToolOutput) -> None:
        await first.send("and then")
        stage.release()
        await other.resume()

    try:
        await stage.play(first, on={ToolOutput: go_on})
    except StoreConflict as conflict:
        refused.append(conflict)
    assert len(refused) == 1
    assert stage.said(await stage.session().load())[-2:] == ["user: and then", "assistant: also done"]
