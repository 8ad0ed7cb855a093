"""Answers whose texts come as a whole, for subscribers that want no pieces of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from turnwheel.effects.errors import ConfigError
from turnwheel.effects.messages import Message, Role, StopReason
from turnwheel.effects.notices import (
    AnswerDropped,
    AnswerKept,
    CallDelta,
    DoneReason,
    Notice,
    ProviderCalled,
    ReasoningDelta,
    RunEnded,
    SourceCited,
    TextDelta,
    TurnEnded,
    Warned,
)
from turnwheel.effects.usage import Spent, Usage
from turnwheel.engine.session.completed_texts import Delivery

ANSWER = Message(role=Role.ASSISTANT, parts=())
TURN = TurnEnded(request="r", turn=1, message=ANSWER, stop=StopReason.END_TURN, usage=Usage(), at=0.0)
END = RunEnded(run="1", reason=DoneReason.END_TURN, spent=Spent(), at=0.0)
KEPT = AnswerKept(request="r", message=ANSWER, at=0.0)
DROPPED = AnswerDropped(request="r", at=0.0)
CALL = CallDelta(index=0, arguments="{}", at=0.0)
ODD = Warned(text="odd", at=0.0)
SEARCHED = ProviderCalled(id="s", tool="web_search", at=0.0)
CITED = SourceCited(url="https://a.example", at=0.0)


def shown(*steps: Sequence[Notice]) -> list[list[Notice]]:
    """What is shown of each of *steps*, and of what is left at their end."""
    made = Delivery(include_partial=False).filter(None, lambda: True)
    assert made is not None
    return [[*made.filtered(step)] for step in steps] + [[*made.held_back()]]


@pytest.mark.parametrize("end", [TURN, KEPT, END])
def test_a_text_comes_whole_with_the_end_of_its_answer(end: Notice) -> None:
    text, thought = partial(TextDelta, at=0.0), partial(ReasoningDelta, at=0.0)
    steps: list[list[Notice]] = [
        [thought("a"), thought("b")],
        [text("c"), ODD, text("d"), CALL, thought("e"), end, ODD],
        [end],
    ]
    whole: list[Notice] = [thought("ab"), text("cd"), thought("e")]
    assert shown(*steps) == [[], [ODD, *whole, end, ODD], [end], []]
    assert Delivery(include_partial=True).filter(None, lambda: True) is None


def test_two_texts_behind_one_another_come_apart() -> None:
    text = partial(TextDelta, at=0.0)
    begun = text("c", begins=True)
    assert shown([text("a"), text("b"), begun, text("d"), TURN]) == [
        [text("ab"), text("cd", begins=True), TURN],
        [],
    ]


def test_the_text_of_an_answer_that_broke_off_is_left_out() -> None:
    steps: list[list[Notice]] = [
        [SEARCHED, TextDelta("a", at=0.0), CITED, DROPPED, ODD, TextDelta("b", at=0.0)],
        [CALL, ODD],
        [TURN],
    ]
    assert shown(*steps) == [[ODD], [ODD], [TextDelta("b", at=0.0), TURN], []]


def test_calls_and_sources_of_the_provider_come_with_the_text() -> None:
    text = partial(TextDelta, at=0.0)
    steps: list[list[Notice]] = [[SEARCHED, text("a"), text("b"), CITED], [CITED, text("c"), TURN]]
    assert shown(*steps) == [[], [SEARCHED, text("ab"), CITED, CITED, text("c"), TURN], []]


def test_the_text_of_a_run_that_was_drained_comes_at_its_end() -> None:
    assert shown([TextDelta("a", at=0.0)], [TextDelta("b", at=0.0)]) == [[], [], [TextDelta("ab", at=0.0)]]


@pytest.mark.parametrize("buffer", [0, -1])
def test_a_delivery_has_a_buffer(buffer: int) -> None:
    with pytest.raises(ConfigError, match="buffer"):
        Delivery(buffer=buffer)
