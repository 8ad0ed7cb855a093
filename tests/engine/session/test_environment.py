"""What a result shows of itself in a notebook, and when it raises."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import pytest

from turnwheel import Agent, Limits, Result
from turnwheel.effects import CallModel
from turnwheel.effects.errors import RunFailed
from turnwheel.effects.notices import DoneReason
from turnwheel.effects.requests import AskApproval
from turnwheel.effects.usage import Spent, Usage
from turnwheel.testing import ScriptedModel, calls

ENDED = Result(session="s", run="r", text="It is\nlong.", reason=DoneReason.END_TURN, spent=Spent())


def shown(result: Result) -> list[str]:
    """The lines of the card of *result*."""
    card = result._card()  # pyright: ignore[reportPrivateUsage]  # what a notebook draws
    return [f"{card.title} {card.beside}", *card.lines]


def test_a_result_shows_how_its_run_ended_and_what_it_said() -> None:
    assert shown(ENDED) == ["Result of r: end_turn, nothing spent", "It is", "long."]


def test_a_result_shows_what_its_run_used() -> None:
    used = attrs.evolve(ENDED, spent=Spent(turns=2, usage=Usage(input=10, output=5), unpriced=15), text="")
    assert shown(used) == ["Result of r: end_turn, 2 turns, 10 + 5 tokens"]


def test_a_result_that_rests_shows_its_questions_first() -> None:
    question = AskApproval(id="r-1", call="r-0", tool="pay", arguments="{}")
    resting = attrs.evolve(ENDED, reason=None, waiting=(question,))
    head, asked, *said = shown(resting)
    assert head == "Result of r: rests, nothing spent"
    assert asked.startswith("waits for AskApproval")
    assert said == ["It is", "long."]


def test_a_result_shows_no_control_characters_of_a_model_or_a_provider() -> None:
    odd = attrs.evolve(ENDED, reason=DoneReason.ERROR, text="a\x1b[2Jb", detail="c\x07d\ne")
    lines = shown(odd)
    assert lines[0] == "Result of r: error, nothing spent"
    assert len(lines) == 4
    assert not any(char in line for line in lines for char in "\x1b\x07")


@pytest.mark.parametrize("reason", [None, *DoneReason])
def test_every_run_without_an_answer_raises(reason: DoneReason | None) -> None:
    result = attrs.evolve(ENDED, reason=reason, detail="why")
    if reason in {DoneReason.END_TURN, DoneReason.STOP_SEQUENCE}:
        assert result.raise_for_error() is result
    else:
        with pytest.raises(RunFailed, match="left; go on" if reason is None else "why") as caught:
            result.raise_for_error()
        assert caught.value.reason == (reason or "")


@pytest.mark.parametrize(
    ("reason", "fix"),
    [
        (DoneReason.MAX_TURNS, "raise Limits(turns=...), or send a prompt to go on"),
        (DoneReason.TOKEN_BUDGET, "raise Limits(tokens=...)"),
        (DoneReason.MAX_BUDGET, "raise Limits(usd=...)"),
        (DoneReason.TIME_BUDGET, "raise Limits(seconds=...)"),
        (DoneReason.MAX_TOKENS, "the answer was cut; raise max_output of the ModelSpec"),
    ],
)
def test_a_run_that_met_a_limit_says_which_to_raise(reason: DoneReason, fix: str) -> None:
    with pytest.raises(RunFailed) as caught:
        attrs.evolve(ENDED, reason=reason).raise_for_error()
    assert str(caught.value) == f"run 'r' ended with {reason}: {fix}"


@pytest.mark.parametrize(
    ("run", "session", "detail", "fix"),
    [
        ({}, {"turns": 1}, "ended by session_limits=Limits(turns=1)", "raise Agent(session_limits=...)"),
        (
            {"turns": 9},
            {"tokens": 1},
            "ended by session_limits=Limits(tokens=1)",
            "raise Agent(session_limits=...)",
        ),
        # A request that neither pays for: the limit that has less left.
        (
            {"tokens": 90},
            {"tokens": 9},
            "ended by session_limits=Limits(tokens=9)",
            "raise Agent(session_limits=...)",
        ),
        ({"tokens": 9}, {"tokens": 90}, "", "raise Limits(tokens=...)"),
        ({"turns": 1}, {"turns": 9}, "", "raise Limits(turns=...), or send a prompt to go on"),
    ],
)
async def test_a_limit_of_the_session_is_told_from_one_of_the_run(
    run: Mapping[str, int], session: Mapping[str, int], detail: str, fix: str
) -> None:
    model = ScriptedModel(calls(("peek", {}), wrong=True), partial=True)
    limits, total = Limits(**run), Limits(**session)
    result = await Agent(performers={CallModel: model}, limits=limits, session_limits=total).run("go")
    assert result.detail == detail
    with pytest.raises(RunFailed) as caught:
        result.raise_for_error()
    assert str(caught.value).endswith(": " + "; ".join(filter(None, (detail, fix))))


def test_a_run_that_rests_names_its_questions_and_how_to_answer() -> None:
    question = AskApproval(id="r-1", call="r-0", tool="pay", arguments="{}")
    with pytest.raises(RunFailed) as caught:
        attrs.evolve(ENDED, reason=None, waiting=(question,)).raise_for_error()
    assert str(caught.value) == (
        "run 'r' is not over: open questions: 'r-1' (tool 'pay'); "
        "answer with session.approve(id), then call session.resume()"
    )
