"""Why a run ends, when, and what comes before what."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from turnwheel import (
    ChildSpec,
    DoneReason,
    HookAnswer,
    HookCall,
    Limits,
    ModelSpec,
    Price,
    hook,
    tool,
)
from turnwheel.effects.config import Loops
from turnwheel.effects.errors import ConfigError
from turnwheel.effects.events import Failure
from turnwheel.effects.messages import StopReason
from turnwheel.effects.notices import (
    RunEnded,
    TextDelta,
    ToolOutput,
    TurnEnded,
)
from turnwheel.effects.requests import Purpose
from turnwheel.effects.usage import Usage
from turnwheel.testing.scripted import (
    Reply,
    calls,
    fails,
    says,
    stalls,
)

if TYPE_CHECKING:
    from behaviour.conftest import Stage

PRICED = ModelSpec(name="scripted", price=Price(input=1, output=2))
"""Costs 0.00002 USD an answer, as scripts have them where nothing else is said: 10 tokens in, 5 out."""


@pytest.mark.behaviour("exactly-so-many-answers")
@pytest.mark.parametrize("turns", [1, 2, 3])
async def test_a_run_ends_after_exactly_as_many_answers_as_it_may_have(stage: Stage, turns: int) -> None:
    """The last of them is read to its end, and what it calls is run."""
    session = stage.session(
        *[calls(("look", {"at": str(n)}), text="so") for n in range(9)], limits=Limits(turns=turns)
    )
    result = await session.run("go")

    assert (result.reason, result.spent.turns, stage.asked) == (DoneReason.MAX_TURNS, turns, turns)
    assert stage.ran == [f"look {n}" for n in range(turns)]
    assert stage.said(session)[-2:] == ["assistant: so [look]", f"tool: saw {turns - 1}"]


@pytest.mark.behaviour("a-turn-is-a-completed-answer")
async def test_attempts_that_failed_are_no_turns(stage: Stage) -> None:
    """Turns are numbered from 1 and counted once each, however often the model had to be asked."""
    busy = [fails(Failure.RATE_LIMIT)] * 3
    session = stage.session(*busy, calls(("look", {})), *busy, says("done"), limits=Limits(turns=2))
    result = await stage.play(session)

    assert (stage.asked, result.spent.turns, result.reason) == (8, 2, DoneReason.END_TURN)
    assert [notice.turn for notice in stage.seen(TurnEnded)] == [1, 2]


@pytest.mark.behaviour("a-turn-is-a-completed-answer")
async def test_a_summary_is_no_turn_but_is_paid_for(stage: Stage) -> None:
    """It is a call of the model like any other, for the account."""
    model = ModelSpec(name="scripted", window=100)
    session = stage.session(
        says("a long story " * 15, usage=Usage(input=60, output=30)), says("done"), model=model
    )
    first = await session.run("tell " * 40)
    second = await session.run("and then?")

    purposes = [request.purpose for request in stage.model.requests]
    assert purposes == [Purpose.TURN, Purpose.SUMMARY, Purpose.TURN]
    assert (first.spent.turns, second.spent.turns) == (1, 1)
    assert Usage(input=20, output=10) == second.spent.usage


@pytest.mark.behaviour("a-turn-is-a-completed-answer")
async def test_the_turns_of_a_child_are_its_own_and_what_it_used_is_also_its_parents(stage: Stage) -> None:
    """The parent's limit of turns is not touched by it."""
    spawn = calls(("run_agent", {"agent": "scout", "prompt": "look around"}))
    script = (spawn, calls(("look", {})), says("nothing there"), says("fine"))
    session = stage.session(*script, children=[ChildSpec(name="scout")], limits=Limits(turns=2), model=PRICED)
    result = await session.run("go")

    assert (result.text, result.spent.turns) == ("fine", 2)
    assert (result.spent.usage.total, result.spent.cost) == (60, Decimal("0.00008"))


@pytest.mark.behaviour("a-budget-stops-before-tools")
@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(usd="0.00004"), DoneReason.MAX_BUDGET),
        (Limits(usd="0.00003"), DoneReason.MAX_BUDGET),
        (Limits(tokens=30), DoneReason.TOKEN_BUDGET),
        (Limits(tokens=29), DoneReason.TOKEN_BUDGET),
    ],
)
async def test_an_answer_that_reaches_the_budget_is_the_last_and_its_calls_do_not_run(
    stage: Stage, limits: Limits, reason: DoneReason
) -> None:
    """They have results that say so, so the conversation can go on with a larger budget."""
    twice = calls(("look", {"at": "b"}), ("pay", {}))
    session = stage.session(calls(("look", {"at": "a"})), twice, says("never"), model=PRICED, limits=limits)
    result = await session.run("go")

    assert (result.reason, stage.asked, stage.ran) == (reason, 2, ["look a"])
    assert (result.waiting, result.spent.cost) == ((), Decimal("0.00004"))
    assert stage.outcomes(session) == ["look: ok", "look: cancelled", "pay: cancelled"]


@pytest.mark.behaviour("a-budget-stops-before-tools")
async def test_time_that_a_tool_took_stops_the_calls_behind_it(stage: Stage) -> None:
    """Seconds are active time; what ran keeps its result."""

    @tool(side_effect="read_only")
    async def slow() -> str:
        """Take a minute."""
        stage.clock.move(60.0)
        return "at last"

    wishes = calls(*[("slow", {})] * 3)
    session = stage.session(wishes, says("never"), tools=[slow], limits=Limits(seconds=100.0))
    result = await session.run("go")

    assert (result.reason, result.spent.seconds) == (DoneReason.TIME_BUDGET, 120.0)
    assert stage.outcomes(session) == ["slow: ok", "slow: ok", "slow: cancelled"]


@pytest.mark.behaviour("no-limit-unless-set")
async def test_a_run_without_limits_goes_on_as_long_as_the_model_calls_tools(stage: Stage) -> None:
    """No number is built in; whether a model goes in circles is another matter."""
    result = await stage.session(*[calls(("look", {}))] * 60, says("done"), loops=Loops.never()).run("go")
    assert (result.reason, result.spent.turns) == (DoneReason.END_TURN, 61)


@pytest.mark.behaviour("no-limit-unless-set")
@pytest.mark.parametrize("field", ["turns", "tokens", "usd", "seconds"])
@pytest.mark.parametrize("value", [0, -1])
def test_a_limit_of_nothing_is_refused(field: str, value: int) -> None:
    """Half the world reads 0 as none and half as nothing: it has to be said."""
    settings: dict[str, Any] = {field: value}
    with pytest.raises(ConfigError, match=rf"Limits.{field} must be a number above 0, or None for no limit"):
        Limits(**settings)


@pytest.mark.behaviour("a-natural-end-stands")
@pytest.mark.parametrize("limits", [Limits(turns=1), Limits(tokens=15), Limits(usd="0.00002")])
async def test_an_answer_that_ends_the_run_and_reaches_a_limit_ends_it_naturally(
    stage: Stage, limits: Limits
) -> None:
    """There is nothing left that the limit could have stopped."""
    result = await stage.session(says("done"), model=PRICED, limits=limits).run("go")
    assert (result.reason, result.text) == (DoneReason.END_TURN, "done")


@pytest.mark.behaviour("a-natural-end-stands")
async def test_an_interrupt_after_the_last_answer_changes_nothing(stage: Stage) -> None:
    """Neither this run, which was over, nor the next."""
    session = stage.session(says("done"), says("more"))
    result = await stage.play(session, on={TurnEnded: lambda _: session.interrupt()})
    assert (result.reason, result.text) == (DoneReason.END_TURN, "done")

    await session.interrupt()
    assert (await session.run("again")).reason is DoneReason.END_TURN


@pytest.mark.behaviour("a-person-comes-before-a-limit")
@pytest.mark.parametrize("limits", [Limits(turns=1), Limits(seconds=5.0)])
async def test_a_run_that_was_interrupted_does_not_say_that_a_limit_was_reached(
    stage: Stage, limits: Limits
) -> None:
    """Both are true here; what a person did is what they will look for."""
    session = stage.session(calls(("dig", {}), ("look", {})), limits=limits)

    async def stop(_: ToolOutput) -> None:
        stage.clock.move(10.0)
        await session.interrupt()

    result = await stage.play(session, on={ToolOutput: stop})
    assert result.reason is DoneReason.INTERRUPTED
    assert stage.outcomes(session) == ["dig: cancelled", "look: cancelled"]


@hook("user_prompt_submit")
async def refuse(_: HookCall) -> HookAnswer:
    """Let nothing in."""
    return HookAnswer(verdict="deny", reason="not today")


@pytest.mark.behaviour("every-end-has-its-reason")
@pytest.mark.parametrize(
    ("replies", "settings", "reason", "detail"),
    [
        ([says("done")], {}, "end_turn", ""),
        ([says("so", stop=StopReason.STOP_SEQUENCE)], {}, "stop_sequence", ""),
        ([says("cut o", stop=StopReason.MAX_TOKENS)], {}, "max_tokens", ""),
        ([calls(("look", {}))], {"limits": Limits(turns=1)}, "max_turns", ""),
        ([calls(("look", {}))], {"limits": Limits(tokens=15)}, "token_budget", ""),
        ([calls(("look", {}))], {"limits": Limits(usd="0.00001"), "model": PRICED}, "max_budget", ""),
        ([stalls("once upon")], {}, "interrupted", ""),
        ([], {"hooks": [refuse]}, "blocked", "refuse: not today"),
        ([fails(Failure.AUTH)], {}, "error", "auth: scripted: auth"),
    ],
)
async def test_result_and_last_notice_say_why(
    stage: Stage, replies: list[Reply], settings: dict[str, Any], reason: str, detail: str
) -> None:
    """In one word, and with more where that is not enough."""
    session = stage.session(*replies, **settings)
    stalled = any(reply.stalls for reply in replies)
    result = await stage.play(session, on={TextDelta: lambda _: session.interrupt()} if stalled else {})

    assert (result.reason, result.detail) == (reason, detail)
    assert [(notice.reason, notice.detail) for notice in stage.seen(RunEnded)] == [(reason, detail)]
