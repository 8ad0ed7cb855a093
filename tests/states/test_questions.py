"""Questions to a person, and their answers: yes, no, always, late, twice, or never."""

from __future__ import annotations

import pytest

from turnwheel.effects.config import Policy
from turnwheel.effects.events import Approve
from turnwheel.effects.notices import ApprovalRequested, ApprovalResolved, ApprovalWithdrawn, CallJudged
from turnwheel.effects.requests import AskApproval, Cancel, SetTimer
from turnwheel.testing.harness import MachineHarness, call, calls, config

PATIENT = Policy(answer_within=60.0)


def waits() -> tuple[MachineHarness, AskApproval, SetTimer]:
    """A run that waits for an answer within 60 seconds, its question and its timer."""
    run = MachineHarness(config(policy=PATIENT))
    run.say(*calls("write"))
    (question,), (timer,) = run.got(AskApproval), run.got(SetTimer)
    return run, question, timer


def test_a_question_and_its_answer_are_shown() -> None:
    run = MachineHarness(config(policy=PATIENT))
    run.say(call(0, "write", path="a"))
    (question,), (shown,) = run.got(AskApproval), run.got(ApprovalRequested)
    assert (question.tool, question.arguments) == ("write", '{"path": "a"}')
    assert question.why == "tool: it may change anything"
    assert (shown.request, shown.call, shown.tool) == (question.id, question.call, question.tool)
    assert (shown.arguments, shown.why) == (question.arguments, question.why)
    assert shown.due == run.now + 60.0
    decision = Approve(arguments='{"path": "b"}')
    run.decide("write", decision, by="anna, by phone")
    assert run.got(ApprovalResolved) == [
        ApprovalResolved(request=question.id, decision=decision, by="anna, by phone")
    ]
    assert [judged.detail for judged in run.got(CallJudged)] == ["with other arguments"]
    assert run.machine.memory.history[1].calls[0].arguments == '{"path": "a"}'


@pytest.mark.parametrize("how", ["interrupt", "cancel", "steer"])
def test_a_question_that_is_withdrawn_takes_its_deadline_along(how: str) -> None:
    run, question, timer = waits()
    if how == "interrupt":
        run.interrupt()
    elif how == "cancel":
        run.cancel("write")
    else:
        run.steer("left")
    assert run.got(Cancel) == [Cancel(request=question.id), Cancel(request=timer.id)]
    assert run.got(ApprovalWithdrawn) == [ApprovalWithdrawn(request=question.id)]
