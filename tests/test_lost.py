"""What becomes of a tool that may have run when its process was lost: told, or put to a person."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from turnwheel.effects.config import (
    ChildSpec,
    Concurrency,
    Config,
    OnDenial,
    OnLost,
    Policy,
    SideEffect,
    Steering,
    ToolSpec,
)
from turnwheel.effects.events import (
    ApprovalGiven,
    Approve,
    ApproveAlways,
    Decision,
    Deny,
    ToolFinished,
    ToolLost,
)
from turnwheel.effects.hooks import Hook, HookAnswer, HookSpec
from turnwheel.effects.messages import Outcome
from turnwheel.effects.notices import (
    ApprovalRequested,
    ApprovalWithdrawn,
    CallJudged,
    CallSettled,
    Ignored,
    InterruptRequested,
    ToolStarted,
)
from turnwheel.effects.permissions import PermissionMode, Rule
from turnwheel.effects.records import GrantRule, SetMode
from turnwheel.effects.requests import (
    AskApproval,
    Cancel,
    RunAgent,
    RunTool,
    SetTimer,
)
from turnwheel.engine.open_work import questions
from turnwheel.engine.recovery import recover
from turnwheel.states.batch.batch import Asked, PriorAttempt
from turnwheel.states.rules import model_messages
from turnwheel.states.rules.history_check import history_faults
from turnwheel.testing.harness import (
    TOOLS,
    MachineHarness,
    call,
    calls,
    config,
)

WHY = "lost: it may have run when its process was lost; run it again?"
MAY_HAVE = "The process stopped while this tool was running: it may have run. It was not run again: "
EARLIER = "\n[The process stopped during an earlier try of this call, which may have run.]"


def asks(**policy: Any) -> Config:  # fields of a policy
    """Settings under which a person is asked, with this *policy* besides."""
    return config(policy=Policy(on_lost=OnLost.ASK, **policy))


def lost(settings: Config, *tools: str) -> MachineHarness:
    """A run in which a write, which a person allowed, was lost; behind it wait calls of *tools*."""
    run = MachineHarness(settings)
    run.say(*calls("write", *tools))
    run.decide("write", Approve())
    run.lose("write")
    return run


def side_by_side(on_lost: OnLost = OnLost.ASK, **policy: Any) -> Config:  # as above
    """Settings under which calls with nothing in common run side by side."""
    keyed = tuple([apart(tool) for tool in TOOLS])
    return config(tools=keyed, policy=Policy(on_lost=on_lost, concurrency=Concurrency.PARALLEL, **policy))


def apart(tool: ToolSpec) -> ToolSpec:
    """*tool*, which works on nothing but what is its own."""
    return attrs.evolve(tool, resources=(tool.name,))


# Told


def test_by_default_the_model_is_told() -> None:
    """As one that may have run: nobody is asked, nothing runs again, and the next call has its turn."""
    run = lost(config(), "note")
    assert run.got(CallSettled) == [
        CallSettled(
            call=run.got(CallSettled)[0].call,
            tool="write",
            outcome=Outcome.UNKNOWN,
            content=model_messages.LOST,
        )
    ]
    assert (run.got(AskApproval), run.started) == ([], ["note"])
    run.end("note")
    assert run.results == [("write", "unknown", model_messages.LOST), ("note", "ok", "fine")]


def test_hooks_look_at_what_may_have_run() -> None:
    """It is a failure to them, as a tool's that said so itself would be."""
    hooks = (HookSpec(name="nurse", hook=Hook.POST_TOOL_USE_FAILURE),)
    run = lost(config(hooks=hooks))
    assert run.asked == [("post_tool_use_failure", ("nurse",))]


def test_what_is_not_at_work_cannot_be_lost() -> None:
    """A question, a call that is over, one that waits, a child, and nothing: none of it changes."""
    run = MachineHarness()
    run.say(*calls("look", "write", "send"))
    (at_work,) = run.machine.state.open
    run.end("look")
    for request in (at_work, run.got(AskApproval)[0].id, "r-99", ""):
        assert run.feed(ToolLost(at=9.0, request=request)) == (Ignored(event="ToolLost", state="confirming"),)
    run.decide("write", Deny())
    run.say(*calls("send"))
    (child,) = run.machine.state.open
    assert run.feed(ToolLost(at=9.0, request=child)) == (Ignored(event="ToolLost", state="dispatching"),)


# Asked


def test_a_person_is_asked_whether_it_runs_again() -> None:
    """The question says so in words, for whoever answers and whoever watches."""
    run = lost(asks())
    (question,), (shown,) = run.got(AskApproval), run.got(ApprovalRequested)
    assert (question.tool, question.arguments, question.why) == (
        "write",
        '{"path": "a", "agent": "kid", "prompt": "go"}',
        WHY,
    )
    assert (shown.request, shown.why) == (question.id, WHY)
    assert run.judged == [("write", "ask", "lost")]
    assert (run.label, run.machine.state.open) == ("confirming", (question.id,))
    assert run.got(CallSettled) == []


def test_after_a_yes_it_runs_again_under_another_key() -> None:
    """An answer to the first try would not be taken for one to the second; the model hears of both."""
    run = lost(asks())
    (first,) = run.all(RunTool)
    run.decide("write", Approve())
    (second,) = run.got(RunTool)
    assert (second.call, second.arguments) == (first.call, first.arguments)
    assert second.id != first.id
    assert len(run.got(ToolStarted)) == 1
    assert run.feed(ToolFinished(at=run.now, request=first.id, content="late")) == (
        Ignored(event="ToolFinished", state="executing"),
    )
    run.end("write", "paid")
    assert run.results == [("write", "ok", f"paid{EARLIER}")]


def test_other_arguments_are_checked_as_ever() -> None:
    """They pass schema and denials; what does not fit does not run, and may have run all the same."""
    rules = (Rule(verdict="deny", tool="write", where=(("path", "*secret*"),)),)
    for edited, why in (
        ('{"path": 1}', "Invalid arguments for write"),
        ("nonsense", "Invalid arguments for write"),
        ('{"path": "secret"}', "Denied by a rule"),
    ):
        run = MachineHarness(config(rules=rules, policy=Policy(on_lost="ask")))
        run.say(call(0, "write", path="a"))
        run.decide("write", Approve())
        run.lose("write")
        run.decide("write", Approve(arguments=edited))
        assert run.started == []
        ((tool, outcome, content),) = run.results
        assert (tool, outcome) == ("write", "unknown")
        assert content.startswith(f"{MAY_HAVE}{why}")
    run = lost(asks())
    run.decide("write", Approve(arguments='{"path": "b"}'))
    assert run.got(RunTool)[0].arguments == '{"path": "b"}'


def test_hooks_are_asked_about_arguments_that_they_have_not_seen() -> None:
    """Those that looked at the first ones are not asked again; one that is for others is, and may deny."""
    hooks = (
        HookSpec(name="guard", hook=Hook.PRE_TOOL_USE, tool="write", where=(("path", "a"),)),
        HookSpec(name="warden", hook=Hook.PRE_TOOL_USE, tool="write", where=(("path", "b"),)),
    )
    run = MachineHarness(config(hooks=hooks, policy=Policy(on_lost="ask")))
    run.say(*calls("write"))
    run.answer()
    run.decide("write", Approve())
    run.lose("write")
    assert run.asked == []
    run.decide("write", Approve(arguments='{"path": "b"}'))
    assert run.asked == [("pre_tool_use", ("warden",))]
    run.answer(HookAnswer(verdict="deny", reason="not b"))
    assert run.results == [("write", "unknown", f"{MAY_HAVE}Denied by a hook: warden: not b")]


def test_always_is_a_yes_to_this_one_and_grants_nothing() -> None:
    """Calls to come were not asked about."""
    run = lost(asks(), "write")
    run.decide("write", ApproveAlways())
    assert (run.started, run.all(GrantRule), run.machine.memory.granted) == (["write"], [], ())
    run.end("write")
    assert [question.why for question in run.got(AskApproval)] == ["tool: it may change anything"]


def test_always_about_another_call_does_not_answer_it() -> None:
    """Whoever trusts a tool from now on has not said that it shall run twice."""
    run = MachineHarness(
        config(policy=Policy(on_lost="ask", concurrency="parallel_reads", on_denial="go_on"))
    )
    run.say(call(0, "write", path="a"), call(1, "write", path="b"))
    run.decide("write", Approve())
    run.lose("write")
    again, other = questions(run.machine)
    assert (again.why, other.why) == (WHY, "tool: it may change anything")
    run.feed(ApprovalGiven(at=run.now, request=other.id, decision=ApproveAlways()))
    assert [question.why for question in questions(run.machine)] == [WHY]


# Not again


@pytest.mark.parametrize("on_denial", list(OnDenial))
@pytest.mark.parametrize(
    ("decision", "said"),
    [(Deny(), model_messages.DENIED), (Deny(message="I looked: it is paid"), "I looked: it is paid")],
)
def test_a_no_is_told_as_what_may_have_run_and_is_no_denial(
    on_denial: OnDenial, decision: Decision, said: str
) -> None:
    """The model hears what the person said, and the other calls have their turn whatever the policy."""
    run = lost(asks(on_denial=on_denial), "note")
    run.decide("write", decision)
    assert (run.started, run.judged[0]) == (["note"], ("write", "deny", "person"))
    run.end("note")
    assert run.results == [("write", "unknown", f"{MAY_HAVE}{said}"), ("note", "ok", "fine")]


def test_a_no_can_end_the_run() -> None:
    """What had not started never will."""
    run = lost(asks(), "note")
    run.decide("write", Deny(interrupt=True))
    assert len(run.got(InterruptRequested)) == 1
    assert run.outcomes == [("write", "unknown"), ("note", "cancelled")]
    assert run.reason == "interrupted"


def test_no_answer_in_time_is_a_no() -> None:
    """The deadline is that of every question."""
    run = lost(asks(answer_within=60.0, on_denial=OnDenial.INTERRUPT), "note")
    (timer,) = run.got(SetTimer)
    assert timer.due == run.now + 60.0
    run.expire("write")
    assert [one.late for one in run.got(ApprovalWithdrawn)] == [True]
    assert run.started == ["note"]
    run.end("note")
    assert run.results[0] == ("write", "unknown", f"{MAY_HAVE}{model_messages.not_answered(60.0)}")


WITHDRAWN: dict[str, Callable[[MachineHarness], object]] = {
    "interrupted": MachineHarness.interrupt,
    "steered": lambda run: run.steer("left"),
    "hurried": lambda run: run.steer("left", Steering.NOW),
    "given up": lambda run: run.cancel("write"),
}


@pytest.mark.parametrize("how", WITHDRAWN)
@pytest.mark.parametrize("allowed", [False, True], ids=["asked", "allowed"])
def test_what_is_given_up_may_have_run(how: str, *, allowed: bool) -> None:
    """While it is asked about, and while it waits for its turn to run again."""
    run = MachineHarness(side_by_side(max_parallel=1, mode=PermissionMode.BYPASS))
    run.say(*calls("write", "look"))
    run.lose("write")
    assert run.started == ["look"]
    if allowed:  # and has its place
        run.decide("write", Approve())
        assert run.started == []
    WITHDRAWN[how](run)
    if run.label.startswith("executing"):
        run.end("look")
    (_, outcome, content), _ = run.results
    assert outcome == "unknown"
    assert content.startswith(MAY_HAVE)


def test_a_second_try_that_was_stopped_may_have_run_the_first_time() -> None:
    """Stopped at once, or not waited for: nobody can say that it did nothing."""
    run = lost(asks())
    run.decide("write", Approve())
    run.interrupt()
    run.end("write", "Cancelled", Outcome.CANCELLED)
    assert run.results == [("write", "unknown", f"Cancelled{EARLIER}")]
    run = lost(asks())
    run.decide("write", Approve())
    run.interrupt()
    run.interrupt()
    assert run.results == [("write", "unknown", f"{model_messages.MAY_HAVE_RUN}{EARLIER}")]


@pytest.mark.parametrize("outcome", [Outcome.ERROR, Outcome.TIMED_OUT, Outcome.CRASHED])
def test_a_second_try_that_fails_says_so(outcome: Outcome) -> None:
    """It ran, and that is what came of it."""
    run = lost(asks())
    run.decide("write", Approve())
    run.end("write", "no", outcome)
    assert run.results == [("write", outcome.value, f"no{EARLIER}")]


# Lost again


def test_killed_while_it_is_asked_the_same_question_is_open() -> None:
    """Its id, its words and its deadline."""
    run = lost(asks(answer_within=60.0))
    (question,), (timer,) = run.got(AskApproval), run.got(SetTimer)
    found = recover(run.machine, run.now + 5.0)
    assert (found.again, found.events) == ((question, timer), ())


def test_killed_while_it_runs_again_it_is_asked_about_again() -> None:
    """As often as it takes; each time a yes lets it run once."""
    run = lost(asks())
    for _ in range(3):
        run.decide("write", Approve())
        (event,) = recover(run.machine, run.now).events
        assert isinstance(event, ToolLost)
        run.feed(event)
        assert [question.why for question in run.got(AskApproval)] == [WHY]
    assert len(run.all(RunTool)) == 4
    assert len({request.id for request in run.all(RunTool)}) == 4
    run.machine.reconfigure(config())
    run.decide("write", Approve())
    run.lose("write")
    assert run.results == [("write", "unknown", f"{model_messages.LOST}{EARLIER}")]


# Nobody is asked


def gone(run: MachineHarness) -> None:
    """The tool is not there any more."""
    run.machine.reconfigure(config(tools=TOOLS[:1], policy=Policy(on_lost="ask")))


def narrower(run: MachineHarness) -> None:
    """The tool takes other arguments by now."""
    other = '{"type": "object", "properties": {"path": {"type": "integer"}}}'
    tools = (ToolSpec(name="write", schema=other), *TOOLS[:2])
    run.machine.reconfigure(config(tools=tools, policy=Policy(on_lost="ask")))


def denied(run: MachineHarness) -> None:
    """A rule denies it by now."""
    rules = (Rule(verdict="deny", tool="write"),)
    run.machine.reconfigure(config(rules=rules, policy=Policy(on_lost="ask")))


UNASKED: dict[str, Callable[[MachineHarness], object]] = {
    "told to stop": lambda run: run.cancel("write"),
    "interrupted": MachineHarness.interrupt,
    "steered": lambda run: run.steer("left"),
    "in a mode that only plans": lambda run: run.change(SetMode(mode=PermissionMode.PLAN)),
    "in a mode that asks nobody": lambda run: run.change(SetMode(mode=PermissionMode.DONT_ASK)),
    "denied by a rule": denied,
    "gone": gone,
    "with a schema that it does not fit": narrower,
}


@pytest.mark.parametrize("why", UNASKED)
def test_nobody_is_asked_about_what_would_not_run(why: str) -> None:
    """It is reported, as by default."""
    run = MachineHarness(asks())
    run.say(*calls("write"))
    run.decide("write", Approve())
    UNASKED[why](run)
    run.lose("write")
    assert run.got(AskApproval) == []
    assert run.results == [("write", "unknown", model_messages.LOST)]


def test_where_nothing_is_asked_about_it_is() -> None:
    """A mode says whether a call may run; whether it may run twice is another question."""
    run = MachineHarness(asks(mode=PermissionMode.BYPASS))
    run.say(*calls("write"))
    run.lose("write")
    assert [question.why for question in run.got(AskApproval)] == [WHY]


# Beside other calls


def test_a_question_is_asked_also_where_another_call_was_denied() -> None:
    """Other questions outlive a denial, and so does what was at work."""
    run = MachineHarness(side_by_side(max_parallel=9))
    run.say(*calls("write", "edit", "send"))
    run.decide("write", Approve())
    run.decide("edit", Deny())
    assert run.label == "dispatching.stopping"
    run.lose("write")
    assert (run.label, [one.why for one in run.got(AskApproval)]) == ("confirming.stopping", [WHY])
    run.decide("write", Approve())
    assert (run.label, run.started) == ("dispatching.stopping", ["write"])
    run.report("send")
    run.end("write")
    assert run.outcomes == [("write", "ok"), ("edit", "denied"), ("send", "ok")]


def test_several_are_asked_about_and_answered_in_any_order() -> None:
    """Each answer is for its own call."""
    run = MachineHarness(side_by_side(mode=PermissionMode.BYPASS))
    run.say(*calls("write", "edit", "note"))
    for event in recover(run.machine, run.now).events:
        run.feed(event)
    assert [one.tool for one in run.all(AskApproval)] == ["write"]  # the others may run twice
    run.decide("write", Deny())
    run.end("note")
    run.end("edit")
    assert run.outcomes == [("write", "unknown"), ("edit", "ok"), ("note", "ok")]


def test_a_history_is_valid_whatever_was_lost() -> None:
    """One result for each call, right behind its message."""
    for settings in (asks(), config()):
        run = lost(settings, "note")
        if run.label == "confirming":
            run.decide("write", Approve())
            run.end("write")
        run.end("note")
        assert history_faults(run.machine.memory.history) == []


def test_a_child_that_is_gone_is_told_in_either_way() -> None:
    """Nothing is there that could be run again, so nobody is asked."""
    kid = config(children=(ChildSpec(name="kid"),), policy=Policy(on_lost="ask"))
    run = MachineHarness(kid)
    run.say(*calls("send"))
    assert len(run.all(RunAgent)) == 1
    run.machine.reconfigure(config(children=(), policy=Policy(on_lost="ask")))
    (event,) = recover(run.machine, run.now).events
    run.feed(event)
    assert run.results == [("send", "unknown", model_messages.LOST)]


def test_only_tools_that_must_not_run_twice_are_lost() -> None:
    """The others are run again; the machine is told nothing."""
    run = MachineHarness(side_by_side(mode=PermissionMode.BYPASS))
    run.say(*calls("look", "edit", "write"))
    found = recover(run.machine, run.now)
    again = {one.tool: one.id for one in found.again if isinstance(one, RunTool)}
    assert again == {one.tool: one.id for one in run.all(RunTool) if one.tool != "write"}
    assert [type(event) for event in found.events] == [ToolLost]
    assert {tool.name for tool in TOOLS if tool.side_effect is not SideEffect.UNSAFE} >= set(again)


def test_the_state_says_that_it_may_have_run() -> None:
    """Until the call is over, whatever it waits for; of no other call."""
    run = lost(asks(), "note")
    batch = getattr(run.machine.state, "batch", None)
    assert batch is not None
    assert [one.tried for one in batch.calls] == [PriorAttempt.LOST, PriorAttempt.NEVER]
    assert isinstance(batch.calls[0].phase, Asked)
    assert [one.detail for one in run.got(CallJudged)] == [model_messages.AGAIN]
    assert run.got(Cancel) == []
