"""Questions to a person, and their answers: yes, no, always, late, twice, or never."""

from __future__ import annotations

import pytest

from turnwheel.effects.config import Concurrency, OnDenial, Policy
from turnwheel.effects.events import ApprovalGiven, Approve, ApproveAlways, Decision, Deny
from turnwheel.effects.hooks import Hook, HookAnswer, HookSpec
from turnwheel.effects.notices import ApprovalRequested, ApprovalResolved, ApprovalWithdrawn, CallJudged
from turnwheel.effects.permissions import Rule
from turnwheel.effects.records import GrantRule
from turnwheel.effects.requests import AskApproval, Cancel, SetTimer
from turnwheel.states.rules import model_messages
from turnwheel.testing.harness import MachineHarness, call, calls, config

PATIENT = Policy(answer_within=60.0)


def parallel(on_denial: OnDenial = OnDenial.SKIP_REST, within: float | None = None) -> MachineHarness:
    """A run in which questions are asked ahead, and some time to answer them."""
    policy = Policy(concurrency=Concurrency.PARALLEL_READS, on_denial=on_denial, answer_within=within)
    return MachineHarness(config(policy=policy))


def waits() -> tuple[MachineHarness, AskApproval, SetTimer]:
    """A run that waits for an answer within 60 seconds, its question and its timer."""
    run = MachineHarness(config(policy=PATIENT))
    run.say(*calls("write"))
    (question,), (timer,) = run.got(AskApproval), run.got(SetTimer)
    return run, question, timer


# Questions


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


# Yes, with other arguments


# Always


def test_always_holds_where_the_arguments_match() -> None:
    run = parallel()
    run.say(*[call(number, "write", path=path) for number, path in enumerate(["src/a", "etc/b", "src/c"])])
    asked = {question.arguments: question.id for question in run.got(AskApproval)}
    run.decide("write", ApproveAlways(where=(("path", "src/*"),)))
    rule = Rule(verdict="allow", tool="write", where=(("path", "src/*"),))
    assert run.got(GrantRule) == [GrantRule(rule=rule)]
    assert run.got(ApprovalWithdrawn) == [ApprovalWithdrawn(request=asked['{"path": "src/c"}'])]
    assert asked['{"path": "etc/b"}'] in run.machine.state.open
    run.decide("write", Deny())
    run.end("write")
    run.end("write")
    run.say(call(0, "write", path="src/d"), call(1, "write", path="src/../etc/e"))
    assert run.started == ["write"]
    assert [question.arguments for question in run.got(AskApproval)] == ['{"path": "src/../etc/e"}']


def test_always_answers_open_questions_but_those_of_a_hook() -> None:
    guard = HookSpec(name="guard", hook=Hook.PRE_TOOL_USE)
    policy = Policy(concurrency=Concurrency.PARALLEL_READS)
    run = MachineHarness(config(hooks=(guard,), policy=policy))
    run.say(*calls("write", "write", "write"))
    for answer in (HookAnswer(), HookAnswer(verdict="ask"), HookAnswer()):
        run.answer(answer)
    first, second, third = (question.id for question in run.all(AskApproval))
    run.decide("write", ApproveAlways())
    assert run.got(Cancel) == [Cancel(request=third)]
    assert run.got(ApprovalWithdrawn) == [ApprovalWithdrawn(request=third)]
    assert second in run.machine.state.open
    assert run.judged == [("write", "allow", "person"), ("write", "allow", "grant")]
    assert first not in run.machine.state.open


# No


def test_a_no_that_ends_the_run_withdraws_the_other_questions_and_cancels_what_runs() -> None:
    run = parallel()
    run.say(*calls("look", "peek", "write"))
    working, open_, _ = run.machine.state.open
    run.decide("write", Deny(interrupt=True))
    assert set(run.got(Cancel)) == {Cancel(request=open_), Cancel(request=working)}
    assert run.got(ApprovalWithdrawn) == [ApprovalWithdrawn(request=open_)]
    assert run.label == "executing.stopping"
    run.end("look", "seen")
    assert run.results[0] == ("look", "ok", "seen")
    assert run.outcomes == [("look", "ok"), ("peek", "cancelled"), ("write", "denied")]
    assert run.reason == "interrupted"


# In time


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


def test_each_question_has_its_own_deadline() -> None:
    run = parallel(OnDenial.GO_ON, within=5.0)
    run.say(*calls("peek", "write"))
    assert len({timer.id for timer in run.got(SetTimer)}) == 2
    run.expire("write")
    assert run.label == "confirming"
    run.decide("peek", Deny(message="no"))
    assert [content for _, _, content in run.results] == ["no", model_messages.not_answered(5.0)]


@pytest.mark.parametrize(
    ("after", "decision", "outcome"),
    [
        (59.9, Approve(), "ok"),
        (60.0, Approve(), "denied"),
        (61.0, ApproveAlways(), "denied"),
        (61.0, Deny(message="no"), "denied"),
    ],
)
def test_a_yes_counts_by_the_time_at_which_it_was_given(
    after: float, decision: Decision, outcome: str
) -> None:
    run, question, timer = waits()
    assert question.due == timer.due == run.now + 60.0
    run.feed(ApprovalGiven(at=run.now + after, request=question.id, decision=decision))
    assert run.got(Cancel) == [Cancel(request=timer.id)]
    assert run.got(GrantRule) == []
    if outcome == "ok":
        run.end("write")
    assert run.outcomes == [("write", outcome)]
    in_time = outcome == "ok" or isinstance(decision, Deny)
    withdrawn = [ApprovalWithdrawn(request=question.id, late=True)]
    assert run.all(ApprovalWithdrawn) == ([] if in_time else withdrawn)
    assert len(run.all(ApprovalResolved)) == in_time
