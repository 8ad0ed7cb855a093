"""What a person says into a run that is under way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from turnwheel import Deny, DoneReason, HookAnswer, HookCall, Limits, Policy, hook
from turnwheel.effects.config import Steering
from turnwheel.effects.events import Failure
from turnwheel.effects.notices import (
    ApprovalRequested,
    ApprovalWithdrawn,
    InputBlocked,
    InputReceived,
    InputTaken,
    RetryScheduled,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolOutput,
    TurnEnded,
)
from turnwheel.testing.scripted import calls, fails, says

if TYPE_CHECKING:
    from behaviour.conftest import Stage

THREE = calls(("dig", {}), ("look", {}), ("put", {}))
SKIPPED = "Skipped: the user said something new, which comes next."


@pytest.mark.behaviour("a-steer-is-read-next")
@pytest.mark.parametrize(
    ("how", "results", "ran"),
    [
        (None, f"dig done | {SKIPPED} | {SKIPPED}", ["dig"]),
        ("after_tool", f"dig done | {SKIPPED} | {SKIPPED}", ["dig"]),
        ("now", f"Cancelled | {SKIPPED} | {SKIPPED}", ["dig", "dig was stopped"]),
        ("when_done", "dig done | saw | put", ["dig", "look", "put"]),
    ],
)
async def test_what_is_said_while_a_tool_runs_comes_before_the_calls_behind_it(
    stage: Stage, how: str | None, results: str, ran: list[str]
) -> None:
    """Or after them, or at once, as the person says; each call has its result before the words."""
    session = stage.session(THREE, says("as you say"), policy=Policy(mode="bypass"))

    async def steer(_: ToolOutput) -> None:
        await session.steer("skip that file", None if how is None else Steering(how))
        if how != "now":
            stage.release()

    result = await stage.play(session, on={ToolOutput: steer})

    assert stage.shown(2)[1:] == ["assistant: [dig, look, put]", f"tool: {results}", "user: skip that file"]
    assert (stage.ran, result.text, result.reason) == (ran, "as you say", DoneReason.END_TURN)


@pytest.mark.behaviour("a-steer-is-read-next")
@pytest.mark.parametrize("how", list(Steering))
async def test_the_policy_says_how_where_the_person_does_not(stage: Stage, how: Steering) -> None:
    """And the person may still say it."""
    session = stage.session(THREE, says("well"), policy=Policy(mode="bypass", steering=how))

    async def steer(_: ToolOutput) -> None:
        await session.steer("wait")
        if how is not Steering.NOW:
            stage.release()

    await stage.play(session, on={ToolOutput: steer})
    assert len(stage.ran) == {Steering.NOW: 2, Steering.AFTER_TOOL: 1, Steering.WHEN_DONE: 3}[how]


@pytest.mark.behaviour("a-steer-while-the-model-answers")
@pytest.mark.parametrize(
    ("how", "then"),
    [
        ("after_tool", ["assistant: I will [look, put]", f"tool: {SKIPPED} | {SKIPPED}", "user: stop that"]),
        ("when_done", ["assistant: I will [look, put]", "tool: saw | put", "user: stop that"]),
        ("now", ["assistant: I will", "user: stop that"]),
    ],
)
async def test_calls_of_an_answer_that_was_not_up_to_date_do_not_run(
    stage: Stage, how: str, then: list[str]
) -> None:
    """Unless the person can wait; one who cannot cuts the answer, whose text is kept."""
    stage.held = (1,)
    wishes = calls(("look", {}), ("put", {}), text="I will")
    session = stage.session(wishes, says("yes"), policy=Policy(mode="bypass"))

    async def steer(_: TextDelta) -> None:
        if not stage.seen(InputReceived):
            await session.steer("stop that", Steering(how))
            if how != "now":
                stage.release()

    result = await stage.play(session, on={TextDelta: steer})
    assert stage.shown(2) == ["user: go", *then]
    assert (stage.ran, result.text) == (["look", "put"] if how == "when_done" else [], "yes")


@pytest.mark.behaviour("no-steer-is-lost")
async def test_several_steers_are_read_in_the_order_they_came(stage: Stage) -> None:
    """Each as a message of its own, and each once."""
    session = stage.session(THREE, says("all right"), policy=Policy(mode="bypass"))

    async def steer(_: ToolOutput) -> None:
        for number in (1, 2, 3):
            await session.steer(f"word {number}")
        stage.release()

    await stage.play(session, on={ToolOutput: steer})
    assert stage.shown(2)[3:] == ["user: word 1", "user: word 2", "user: word 3"]
    assert len(stage.seen(InputReceived)) == 3
    assert [len(notice.ids) for notice in stage.seen(InputTaken)] == [1, 3]


@pytest.mark.behaviour("no-steer-is-lost")
async def test_what_was_said_while_a_call_waits_to_be_tried_again_is_in_the_next_try(stage: Stage) -> None:
    """Whatever the run waits for, it hears."""
    session = stage.session(fails(Failure.SERVER), says("yes"))
    await stage.play(session, on={RetryScheduled: lambda _: session.steer("hurry")})
    assert stage.shown(2) == ["user: go", "user: hurry"]


@pytest.mark.behaviour("no-steer-is-lost")
@pytest.mark.parametrize("how", [Steering.AFTER_TOOL, Steering.WHEN_DONE])
async def test_what_was_said_before_the_last_answer_was_whole_is_answered_in_the_same_run(
    stage: Stage, how: Steering
) -> None:
    """The answer stays, and the run goes on instead of ending."""
    stage.held = (1,)
    session = stage.session(says("done"), says("that, too"))

    async def steer(_: TextDelta) -> None:
        if not stage.seen(InputReceived):
            await session.steer("and the tests", how)
            stage.release()

    result = await stage.play(session, on={TextDelta: steer})
    assert stage.shown(2) == ["user: go", "assistant: done", "user: and the tests"]
    assert (result.text, result.spent.turns) == ("that, too", 2)
    assert stage.order(RunStarted, RunEnded) == ["RunStarted", "RunEnded"]


@pytest.mark.behaviour("no-steer-is-lost")
@pytest.mark.parametrize("how", [Steering.AFTER_TOOL, Steering.WHEN_DONE])
async def test_what_a_run_had_no_time_for_is_read_by_the_next(stage: Stage, how: Steering) -> None:
    """Before what that one was started with, since it was said before."""
    session = stage.session(THREE, says("yes"), limits=Limits(turns=1), policy=Policy(mode="bypass"))

    async def steer(_: ToolOutput) -> None:
        await session.steer("also this", how)
        stage.release()

    result = await stage.play(session, on={ToolOutput: steer})
    assert result.reason is DoneReason.MAX_TURNS
    await session.run("next")
    assert stage.shown(2)[3:] == ["user: also this", "user: next"]


@pytest.mark.behaviour("no-steer-is-lost")
async def test_where_nothing_is_under_way_it_is_a_prompt(stage: Stage) -> None:
    """It waits for whoever runs the session."""
    session = stage.session(says("hello"), says("again"))
    await session.steer("hi")
    assert [mail.text for mail in session.queue] == ["hi"]
    assert (await session.resume()).text == "hello"
    await session.steer("and?")
    assert (await session.resume()).text == "again"
    assert stage.shown(2) == ["user: hi", "assistant: hello", "user: and?"]


@pytest.mark.behaviour("a-steer-takes-questions-back")
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_who_speaks_instead_of_answering_takes_the_question_back(
    stage: Stage, *, elsewhere: bool
) -> None:
    """In whichever process: the call does not run, and its question cannot be answered any more."""
    session = stage.session(calls(("look", {}), ("pay", {}), ("look", {})), says("as you like"))
    resting = await stage.play(session)
    [question] = resting.waiting
    if elsewhere:
        await session.close()
        session = await stage.session(says("as you like")).load()
    await session.steer("do it differently")
    result = await stage.play(session, None)

    assert (result.text, stage.ran) == ("as you like", ["look"])
    assert stage.outcomes(session) == ["look: ok", "pay: skipped", "look: skipped"]
    assert [notice.request for notice in stage.seen(ApprovalWithdrawn)] == [question.id]
    assert stage.shown(stage.asked)[-1] == "user: do it differently"


@pytest.mark.behaviour("a-steer-takes-questions-back")
async def test_who_can_wait_leaves_the_question_open(stage: Stage) -> None:
    """What they said is read after its answer."""
    session = stage.session(calls(("pay", {}), ("look", {})), says("I see"), policy=Policy(on_denial="go_on"))

    async def speak(notice: ApprovalRequested) -> None:
        await session.steer("by the way", Steering.WHEN_DONE)
        await session.approve(notice.request, Deny(message="no"))

    await stage.play(session, on={ApprovalRequested: speak})
    assert (stage.ran, stage.seen(ApprovalWithdrawn)) == (["look"], [])
    assert stage.shown(2)[2:] == ["tool: no | saw", "user: by the way"]


@hook("user_prompt_submit")
async def polite(about: HookCall) -> HookAnswer | None:
    """Let no shouting in."""
    return HookAnswer(verdict="deny", reason="no shouting") if "!" in str(about.payload) else None


@pytest.mark.behaviour("a-prompt-may-be-refused")
async def test_a_steer_that_a_hook_refuses_is_not_read_and_the_run_goes_on(stage: Stage) -> None:
    """What was skipped for it stays skipped: the model decides anew."""
    session = stage.session(THREE, says("done"), hooks=[polite], policy=Policy(mode="bypass"))

    async def steer(_: ToolOutput) -> None:
        await session.steer("STOP!")
        stage.release()

    result = await stage.play(session, on={ToolOutput: steer})
    assert (result.text, result.reason) == ("done", DoneReason.END_TURN)
    assert [notice.reason for notice in stage.seen(InputBlocked)] == ["polite: no shouting"]
    assert len(stage.seen(TurnEnded)) == 2
    assert not any("STOP!" in line for line in stage.said(session))
