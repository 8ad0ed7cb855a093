"""Giving up one call: wherever it is on its way, and without touching the others or the run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from turnwheel.effects.config import (
    Concurrency,
    Gates,
    Limits,
    OnDenial,
    Policy,
)
from turnwheel.effects.events import (
    ApprovalGiven,
    Approve,
    CallCancelled,
    Deny,
    Event,
    HookAnswered,
)
from turnwheel.effects.hooks import Hook, HookAnswer, HookSpec
from turnwheel.effects.messages import Outcome
from turnwheel.effects.notices import (
    ApprovalWithdrawn,
    CallSettled,
    Ignored,
    InterruptRequested,
)
from turnwheel.effects.requests import (
    AskApproval,
    Cancel,
    FireHook,
    RunAgent,
    RunTool,
)
from turnwheel.states.rules import model_messages
from turnwheel.testing.harness import MachineHarness, calls, config
from turnwheel.testing.state_fixtures import PLACES, run_at

GUARD = HookSpec(name="guard", hook=Hook.PRE_TOOL_USE)
AUDIT = HookSpec(name="audit", hook=Hook.POST_TOOL_USE)
PARALLEL = Policy(concurrency=Concurrency.PARALLEL_READS)
GONE = ("cancelled", model_messages.CANCELLED)


# Before it started


def queued() -> MachineHarness:
    """A write waits behind a tool at work."""
    run = MachineHarness()
    run.say(*calls("note", "write"))
    return run


def hooked() -> MachineHarness:
    """Hooks are asked about a write that nobody has judged."""
    run = MachineHarness(config(hooks=(GUARD,)))
    run.say(*calls("write"))
    return run


def asked() -> MachineHarness:
    """A person is asked about a write."""
    run = MachineHarness(config(policy=Policy(answer_within=60.0)))
    run.say(*calls("write"))
    return run


def vetted() -> MachineHarness:
    """Hooks are asked about a write that a person allowed."""
    run = MachineHarness(config(hooks=(GUARD,), policy=Policy(gates=Gates.RULES_FIRST)))
    run.say(*calls("write"))
    run.decide("write", Approve())
    return run


def allowed() -> MachineHarness:
    """A write that a person allowed waits for a read."""
    run = MachineHarness(config(policy=PARALLEL))
    run.say(*calls("look", "write"))
    run.decide("write", Approve())
    return run


@pytest.mark.parametrize("waiting", [queued, hooked, asked, vetted, allowed])
def test_a_call_that_has_not_started_never_does(waiting: Callable[[], MachineHarness]) -> None:
    """Its result says that it was cancelled, what was asked about it is withdrawn, and the run goes on."""
    run = waiting()
    about = {one.id for one in run.all(AskApproval)} | {one.id for one in run.all(FireHook)}
    open_ = set(run.machine.state.open)
    run.cancel("write")
    assert {cancel.request for cancel in run.got(Cancel)} >= about & open_
    assert [notice.tool for notice in run.got(CallSettled)] == ["write"]
    assert run.got(InterruptRequested) == []
    for tool in ("note", "look"):
        if [request for request in run.all(RunTool) if request.tool == tool]:
            run.end(tool)
    assert run.results[-1] == ("write", *GONE)
    assert "write" not in [request.tool for request in run.all(RunTool)]
    assert run.label == "streaming"


@pytest.mark.parametrize("waiting", [queued, hooked, asked, vetted, allowed])
def test_what_is_said_about_it_later_changes_nothing(waiting: Callable[[], MachineHarness]) -> None:
    """A yes, a hook's answer, and the wish to give it up again come too late."""
    run = waiting()
    name = next(wish.id for wish in run.machine.memory.history[-1].calls if wish.name == "write")
    run.cancel("write")
    late: list[Event] = [CallCancelled(at=9.0, call=name)]
    late += [ApprovalGiven(at=9.0, request=one.id, decision=Approve()) for one in run.all(AskApproval)]
    late += [HookAnswered(at=9.0, request=one.id) for one in run.all(FireHook)]
    for event in late:
        run.feed(event)
        assert run.effects == (Ignored(event=type(event).__name__, state=run.label),)


def test_the_questions_about_others_stay_open() -> None:
    """One is given up; the others are answered as ever."""
    run = MachineHarness(config(policy=PARALLEL))
    run.say(*calls("write", "peek", "write"))
    first, *_ = run.machine.state.open
    run.cancel("write")
    assert run.got(ApprovalWithdrawn) == [ApprovalWithdrawn(request=first)]
    assert run.label == "confirming"
    run.decide("peek", Approve())
    run.end("peek")
    run.decide("write", Deny())
    assert run.outcomes == [("write", "cancelled"), ("peek", "ok"), ("write", "denied")]


def test_the_next_call_takes_its_turn() -> None:
    """What waited for the one that was given up is judged and started at once."""
    run = MachineHarness()
    run.say(*calls("write", "note", "write"))
    run.cancel("write")
    assert run.started == ["note"]
    run.cancel("write")
    assert (run.started, run.label) == ([], "executing")
    run.end("note")
    assert run.outcomes == [("write", "cancelled"), ("note", "ok"), ("write", "cancelled")]


def test_it_is_no_denial() -> None:
    """The policy for a person's no does not skip the rest or end the run."""
    run = MachineHarness(config(policy=Policy(on_denial=OnDenial.INTERRUPT)))
    run.say(*calls("write", "note"))
    run.cancel("write")
    assert run.started == ["note"]
    assert run.judged == [("note", "allow", "tool")]


# At work


@pytest.mark.parametrize("outcome", [Outcome.CANCELLED, Outcome.OK, Outcome.ERROR])
def test_a_tool_at_work_is_told_to_stop_and_says_itself_how_it_ended(outcome: Outcome) -> None:
    """It may have done its work before it noticed; until then it keeps its place."""
    run = MachineHarness()
    run.say(*calls("note", "look"))
    request = run.machine.state.open[0]
    run.cancel("note")
    assert run.got(Cancel) == [Cancel(request=request)]
    assert run.machine.state.open == (request,)
    run.cancel("note")
    assert run.got(Ignored) == [Ignored(event="CallCancelled", state="executing")]
    run.end("note", "as far as I got", outcome)
    assert run.started == ["look"]
    run.end("look")
    assert run.results == [("note", outcome.value, "as far as I got"), ("look", "ok", "fine")]
    assert run.label == "streaming"


def test_a_child_at_work_is_told_to_stop_and_says_itself_how_it_ended() -> None:
    """Its parent goes on with what it reports."""
    run = MachineHarness()
    run.say(*calls("send", "note"))
    (request,) = run.got(RunAgent)
    run.cancel("send")
    assert run.effects == (Cancel(request=request.id),)
    assert run.label == "dispatching"
    run.report("send", "as far as I got")
    assert run.started == ["note"]


def test_others_at_work_are_not_told_to_stop() -> None:
    """Of calls side by side only the one that was named is given up."""
    run = MachineHarness(config(policy=PARALLEL))
    run.say(*calls("look", "look", "look"))
    first, second, third = run.machine.state.open
    run.cancel("look")
    assert run.got(Cancel) == [Cancel(request=first)]
    assert run.machine.state.open == (first, second, third)


def test_hooks_look_at_what_a_cancelled_tool_came_to() -> None:
    """It ran, after all, and the run goes on."""
    failure = HookSpec(name="nurse", hook=Hook.POST_TOOL_USE_FAILURE)
    run = MachineHarness(config(hooks=(failure,)))
    run.say(*calls("note"))
    run.cancel("note")
    run.end("note", "stopped", Outcome.CANCELLED)
    assert run.asked == [("post_tool_use_failure", ("nurse",))]


# Over


def test_a_call_that_is_over_cannot_be_given_up() -> None:
    """Not while hooks look at its result, and not afterwards."""
    run = MachineHarness(config(hooks=(AUDIT,)))
    run.say(*calls("note", "look"))
    name = run.machine.memory.history[-1].calls[0].id
    run.end("note")
    given_up = CallCancelled(at=9.0, call=name)
    run.feed(given_up)
    assert run.effects == (Ignored(event="CallCancelled", state="executing"),)
    run.answer()
    run.feed(given_up)
    assert run.effects == (Ignored(event="CallCancelled", state="executing"),)
    run.end("look")
    run.answer()
    assert run.outcomes == [("note", "ok"), ("look", "ok")]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["r-999", "wire-0", "r-1", ""])
def test_a_call_that_is_not_there_cannot_be_given_up(place: str, name: str) -> None:
    """Only our own id of a call of the present batch names one."""
    run = run_at(place)
    before = run.machine.state, run.machine.memory
    run.feed(CallCancelled(at=50.0, call=name))
    assert run.effects == (Ignored(event="CallCancelled", state=run.label),)
    assert (run.machine.state, run.machine.memory) == before


# In a batch that is being given up


def test_a_question_that_a_denial_left_open_can_be_given_up() -> None:
    """The last one settles the batch."""
    run = MachineHarness(config(policy=PARALLEL))
    run.say(*calls("write", "peek"))
    run.decide("write", Deny())
    assert run.label == "confirming.stopping"
    run.cancel("peek")
    assert run.outcomes == [("write", "denied"), ("peek", "cancelled")]
    assert run.label == "streaming"


def test_a_tool_that_was_let_finish_can_be_told_to_stop() -> None:
    """Whoever steered may find that it takes too long."""
    run = MachineHarness()
    run.say(*calls("note", "write"))
    request = run.machine.state.open[0]
    run.steer("left")
    assert run.got(Cancel) == []
    run.cancel("note")
    assert run.effects == (Cancel(request=request),)
    run.end("note", "stopped", Outcome.CANCELLED)
    assert run.outcomes == [("note", "cancelled"), ("write", "skipped")]
    assert run.talk[-1] == ("user", "left")


def test_a_cancelled_tool_is_paid_for() -> None:
    """The time it took counts."""
    run = MachineHarness(config(limits=Limits(seconds=5.0)))
    run.say(*calls("note", "look"))
    run.cancel("note")
    run.end("note", outcome=Outcome.CANCELLED, seconds=5.0)
    assert run.outcomes == [("note", "cancelled"), ("look", "cancelled")]
    assert run.reason == "time_budget"


def test_a_hooks_answer_about_another_call_still_counts() -> None:
    """One of two is given up while hooks look at both."""
    run = MachineHarness(config(hooks=(GUARD,), policy=PARALLEL))
    run.say(*calls("look", "peek"))
    run.cancel("look")
    run.answer(HookAnswer(verdict="allow"), tool="peek")
    assert run.started == ["peek"]
