"""What notices are of: pieces of an answer, also of a child's."""

from __future__ import annotations

import pytest

from turnwheel.effects.messages import Message, Role, StopReason
from turnwheel.effects.notices import (
    AgentNoticed,
    CallDelta,
    Notice,
    ReasoningDelta,
    TextDelta,
    ToolOutput,
    TurnEnded,
    is_delta,
)
from turnwheel.effects.usage import Usage

CALL = CallDelta(index=0, arguments="{}", at=0.0)
TURN = TurnEnded(
    request="r",
    turn=1,
    message=Message(role=Role.ASSISTANT, parts=()),
    stop=StopReason.END_TURN,
    usage=Usage(),
    at=0.0,
)


def of_child(notice: Notice) -> AgentNoticed:
    return AgentNoticed(call="c", notice=notice, at=0.0)


@pytest.mark.parametrize(
    ("notice", "piece"),
    [
        (TextDelta("a", at=0.0), True),
        (ReasoningDelta("a", at=0.0), True),
        (CALL, True),
        (ToolOutput(call="c", text="a", at=0.0), False),
        (TURN, False),
        (of_child(TextDelta("a", at=0.0)), True),
        (of_child(of_child(CALL)), True),
        (of_child(of_child(TURN)), False),
    ],
)
def test_a_piece_of_an_answer_is_one_of_a_childs_too(notice: Notice, piece: object) -> None:
    assert is_delta(notice) is piece
