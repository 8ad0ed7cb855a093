"""What a user relies on while a person is asked: yes, no, always, late, twice, or never."""

from __future__ import annotations

import itertools

import pytest
from provers.steps import restore_from_snapshot

from turnwheel.effects.config import Concurrency, Limits, OnDenial, Policy
from turnwheel.effects.events import (
    ApprovalGiven,
    Approve,
    ApproveAlways,
    Decision,
    Deny,
    TimerFired,
)
from turnwheel.effects.hooks import Hook, HookAnswer, HookSpec
from turnwheel.effects.messages import Role
from turnwheel.effects.notices import (
    ApprovalRequested,
    ApprovalResolved,
    ApprovalWithdrawn,
    CallJudged,
    Ignored,
    InterruptRequested,
)
from turnwheel.effects.permissions import Rule
from turnwheel.effects.records import GrantRule
from turnwheel.effects.requests import (
    AskApproval,
    Cancel,
    RunAgent,
    RunTool,
    SetTimer,
)
from turnwheel.engine.recovery import recover
from turnwheel.states.rules import model_messages
from turnwheel.states.rules.history_check import history_faults
from turnwheel.testing.harness import MachineHarness, call, calls, config

PATIENT = Policy(answer_within=60.0)


def parallel(on_denial: OnDenial = OnDenial.SKIP_REST, within: float | None = None) -> MachineHarness:
    """A run in which questions are asked ahead, and some time to answer them."""
    policy = Policy(concurrency=Concurrency.PARALLEL_READS, on_denial=on_denial, answer_within=within)
    return MachineHarness(config(policy=policy))


# Who is asked, and about what


def test_a_question_shows_what_would_run() -> None:
    """The one to answer and the one to watch say the same: the tool, its arguments, why, and until when."""
    run = MachineHarness(config(policy=PATIENT))
    run.say(call(0, "write", path="a"))
    (question,), (shown,) = run.got(AskApproval), run.got(ApprovalRequested)
    assert (question.tool, question.arguments) == ("write", '{"path": "a"}')
    assert question.why == "tool: it may change anything"
    assert (shown.request, shown.call, shown.tool) == (question.id, question.call, question.tool)
    assert (shown.arguments, shown.why) == (question.arguments, question.why)
    assert shown.due == run.now + 60.0


def test_a_question_is_asked_when_its_calls_turn_has_come() -> None:
    """One at a time, as the calls run: the answer to one may make the next one needless."""
    run = MachineHarness()
    run.say(*calls("write", "peek"))
    assert [question.tool for question in run.got(AskApproval)] == ["write"]
    run.decide("write", Approve())
    assert run.got(AskApproval) == []
    run.end("write")
    assert [question.tool for question in run.got(AskApproval)] == ["peek"]


def test_what_was_done_before_a_question_is_still_there_after_it() -> None:
    """A yes and a no leave the results of the calls before them as they were."""
    run = MachineHarness()
    run.say(*calls("look", "note", "write", "peek"))
    run.end("look", "one")
    run.end("note", "two")
    run.decide("write", Approve())
    run.end("write", "three")
    run.decide("peek", Deny(message="no"))
    assert [content for _, _, content in run.results] == ["one", "two", "three", "no"]


# Several questions


@pytest.mark.parametrize("order", list(itertools.permutations(["peek", "write", "hire"])))
@pytest.mark.parametrize("decision", [Approve(), Deny(message="no")])
def test_open_questions_are_answered_in_any_order(order: tuple[str, ...], decision: Decision) -> None:
    """Each answer is for its question; nothing runs twice, and the results are in the order of the calls."""
    run = parallel(OnDenial.GO_ON)
    run.say(*calls("peek", "write", "hire"))
    assert len(run.got(AskApproval)) == 3
    for tool in order:
        run.decide(tool, decision)
        assert run.started == (["peek"] if (tool, decision) == ("peek", Approve()) else [])
    if isinstance(decision, Approve):
        run.end("peek", "one")
        run.end("write", "two")
        run.report("hire", "three")
    contents = ["one", "two", "three"] if isinstance(decision, Approve) else ["no", "no", "no"]
    assert [content for _, _, content in run.results] == contents
    ran = [request.tool for request in run.all(RunTool)], len(run.all(RunAgent))
    assert ran == ((["peek", "write"], 1) if isinstance(decision, Approve) else ([], 0))
    assert (len(run.all(AskApproval)), run.label) == (3, "streaming")


def test_an_answer_names_a_request_and_nothing_else() -> None:
    """A call's id, an old question and an unknown one answer nothing."""
    run = MachineHarness()
    run.say(call(0, "write", path="a"))
    (question,) = run.got(AskApproval)
    for request in (question.call, "wire-0", "r-1", "r-99", ""):
        run.feed(ApprovalGiven(at=2.0, request=request, decision=Approve()))
        assert run.effects == (Ignored(event="ApprovalGiven", state="confirming"),)
    assert run.all(RunTool) == []


@pytest.mark.parametrize("late", [Approve(), ApproveAlways(), Deny(), Deny(interrupt=True)])
@pytest.mark.parametrize("first", [Approve(), Deny()])
def test_an_answer_that_comes_late_or_twice_changes_nothing(first: Decision, late: Decision) -> None:
    """While the tool runs, while the model answers, and when all is over: one notice and nothing else."""
    run = MachineHarness()
    run.say(call(0, "write", path="a"))
    request = run.machine.state.open[0]
    run.decide("write", first)
    while True:
        before = run.machine.state, run.machine.memory
        run.feed(ApprovalGiven(at=run.now + 1, request=request, decision=late))
        assert run.effects == (Ignored(event="ApprovalGiven", state=run.label),)
        assert before == (run.machine.state, run.machine.memory)
        if run.machine.done:
            break
        if run.label == "executing":
            run.end("write")
        else:
            run.say("done")
    assert len(run.all(RunTool)) == (1 if isinstance(first, Approve) else 0)


def test_who_answered_is_told() -> None:
    """In the words of whoever passed the answer on."""
    run = MachineHarness()
    run.say(call(0, "write", path="a"))
    request = run.machine.state.open[0]
    run.decide("write", Approve(), by="anna, by phone")
    assert run.got(ApprovalResolved) == [
        ApprovalResolved(request=request, decision=Approve(), by="anna, by phone")
    ]
    assert run.judged == [("write", "allow", "person")]
    assert [judged.detail for judged in run.got(CallJudged)] == [""]


# Yes, with other arguments


def test_edited_arguments_run_in_place_of_the_models() -> None:
    """The history keeps what the model wrote; what runs is what the person wrote."""
    run = MachineHarness()
    run.say(call(0, "write", path="a"))
    run.decide("write", Approve(arguments='{"path": "b"}'))
    assert run.got(RunTool)[0].arguments == '{"path": "b"}'
    assert [judged.detail for judged in run.got(CallJudged)] == ["with other arguments"]
    assert len(run.all(AskApproval)) == 1
    assert run.machine.memory.history[1].calls[0].arguments == '{"path": "a"}'


def test_what_a_child_is_told_may_be_edited() -> None:
    """It gets the prompt that the person wrote."""
    run = MachineHarness()
    run.say(call(0, "hire", agent="kid", prompt="go"))
    run.decide("hire", Approve(arguments='{"agent": "kid", "prompt": "go slowly"}'))
    assert [request.prompt for request in run.got(RunAgent)] == ["go slowly"]


# Always


def test_always_answers_for_the_rest_of_the_batch_and_the_run() -> None:
    """The next call of the same batch is not asked about, nor one of a later turn."""
    run = MachineHarness()
    run.say(*calls("write", "write"))
    run.decide("write", ApproveAlways())
    run.end("write")
    assert run.started == ["write"]
    run.end("write")
    run.say(*calls("write", "peek"))
    assert run.judged == [("write", "allow", "grant")]
    assert run.started == ["write"]
    run.end("write")
    assert [question.tool for question in run.all(AskApproval)] == ["write", "peek"]


def test_always_answers_the_questions_that_are_open_for_the_same_tool() -> None:
    """They are withdrawn; those for other tools stay."""
    run = parallel()
    run.say(*calls("write", "peek", "write"))
    first, second, third = (question.id for question in run.got(AskApproval))
    run.decide("write", ApproveAlways())
    assert run.got(Cancel) == [Cancel(request=third)]
    assert run.got(ApprovalWithdrawn) == [ApprovalWithdrawn(request=third)]
    assert second in run.machine.state.open
    assert first not in run.machine.state.open


def test_always_holds_where_the_arguments_match() -> None:
    """An open question and a later call that it covers are answered; others are asked about as before."""
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


def test_always_leaves_open_what_a_hook_wants_somebody_to_look_at() -> None:
    """The same holds for a later call: a hook's question is about this very call."""
    guard = HookSpec(name="guard", hook=Hook.PRE_TOOL_USE)
    policy = Policy(concurrency=Concurrency.PARALLEL_READS)
    run = MachineHarness(config(hooks=(guard,), policy=policy))
    run.say(*calls("write", "write", "write"))
    for answer in (HookAnswer(), HookAnswer(verdict="ask"), HookAnswer()):
        run.answer(answer)
    first, second, third = (question.id for question in run.all(AskApproval))
    run.decide("write", ApproveAlways())
    assert run.got(ApprovalWithdrawn) == [ApprovalWithdrawn(request=third)]
    assert second in run.machine.state.open
    assert run.judged == [("write", "allow", "person"), ("write", "allow", "grant")]
    assert first not in run.machine.state.open


def test_always_lets_the_call_that_was_asked_about_run_whatever_it_covers() -> None:
    """It is a yes to this call, and to others that match."""
    run = MachineHarness()
    run.say(call(0, "write", path="etc/a"))
    run.decide("write", ApproveAlways(where=(("path", "src/*"),)))
    assert run.started == ["write"]


# No


def test_a_no_skips_the_rest_and_goes_back_to_the_model() -> None:
    """Every call has its result, in order: the denied, and those that were never looked at."""
    run = MachineHarness()
    run.say(*calls("look", "write", "note"))
    run.end("look", "kept")
    run.decide("write", Deny(message="not there"))
    assert run.results == [
        ("look", "ok", "kept"),
        ("write", "denied", "not there"),
        ("note", "skipped", model_messages.SKIPPED_AFTER_DENIAL),
    ]
    assert run.label == "streaming"
    assert run.judged == [("write", "deny", "person")]


def test_a_no_without_words_still_tells_the_model() -> None:
    """An empty result would be read as success."""
    run = MachineHarness()
    run.say(*calls("write"))
    run.decide("write", Deny())
    assert run.results == [("write", "denied", model_messages.DENIED)]


def test_after_a_no_the_others_may_go_on() -> None:
    """Where the policy says so a denial concerns one call."""
    run = parallel(OnDenial.GO_ON)
    run.say(*calls("write", "note"))
    run.decide("write", Deny())
    assert run.started == ["note"]


@pytest.mark.parametrize(
    ("policy", "decision"),
    [
        (OnDenial.INTERRUPT, Deny()),
        (OnDenial.GO_ON, Deny(interrupt=True)),
        (OnDenial.SKIP_REST, Deny(interrupt=True)),
    ],
)
def test_a_no_may_end_the_run(policy: OnDenial, decision: Decision) -> None:
    """Where the policy or the person says so; every call has its result all the same."""
    run = MachineHarness(config(policy=Policy(on_denial=policy)))
    run.say(*calls("look", "write", "note"))
    run.end("look")
    run.decide("write", decision)
    assert run.outcomes == [("look", "ok"), ("write", "denied"), ("note", "cancelled")]
    assert run.reason == "interrupted"
    assert run.got(InterruptRequested) == [InterruptRequested()]


def test_a_no_that_ends_the_run_withdraws_the_other_questions_and_cancels_what_runs() -> None:
    """Nobody is asked about what will not run; what was at work says itself how it ended."""
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


def test_a_no_leaves_other_questions_open_and_what_was_approved_runs() -> None:
    """Each question is a person's to answer; a yes that was given stands."""
    run = parallel()
    run.say(*calls("look", "write", "hire", "peek"))
    run.decide("hire", Approve())
    run.decide("write", Deny())
    assert run.label == "confirming.stopping"
    run.end("look")
    run.decide("peek", Approve())
    assert run.label == "dispatching.stopping"
    run.report("hire")
    run.end("peek")
    assert run.outcomes == [("look", "ok"), ("write", "denied"), ("hire", "ok"), ("peek", "ok")]


@pytest.mark.parametrize("concurrency", Concurrency)
def test_a_no_skips_what_nobody_was_asked_about(concurrency: Concurrency) -> None:
    """A call that was judged ahead and waits for its turn is skipped as one that was not."""
    run = MachineHarness(config(policy=Policy(concurrency=concurrency)))
    run.say(*calls("write", "note", "look"))
    run.decide("write", Deny())
    assert run.outcomes == [("write", "denied"), ("note", "skipped"), ("look", "skipped")]


@pytest.mark.parametrize("policy", OnDenial)
@pytest.mark.parametrize("denied", range(4))
def test_a_no_never_costs_another_call_its_result(policy: OnDenial, denied: int) -> None:
    """Whichever is denied, under whichever policy: one result for each, and those that ran keep theirs."""
    run = MachineHarness(config(policy=Policy(on_denial=policy)))
    run.say(*calls("write", "write", "write", "write"))
    number = 0
    while run.got(AskApproval):
        run.decide("write", Deny() if number == denied else Approve())
        if run.got(RunTool):
            run.end("write", f"result {number}")
        number += 1
    assert run.machine.done == (policy is OnDenial.INTERRUPT)
    contents = [content for _, _, content in run.results]
    assert len(contents) == 4
    assert contents[:denied] == [f"result {number}" for number in range(denied)]
    assert contents[denied] == model_messages.DENIED
    assert history_faults(run.machine.memory.history) == []
    behind = {OnDenial.SKIP_REST: "skipped", OnDenial.GO_ON: "ok", OnDenial.INTERRUPT: "cancelled"}
    assert [outcome for _, outcome in run.outcomes[denied + 1 :]] == [behind[policy]] * (3 - denied)


def test_a_second_no_to_an_open_question_is_a_no_to_that_question() -> None:
    """The rest is being skipped already; the question that was left open has its own answer."""
    run = parallel()
    run.say(*calls("write", "peek"))
    run.decide("write", Deny(message="one"))
    run.decide("peek", Deny(message="two"))
    assert [content for _, _, content in run.results] == ["one", "two"]
    assert run.label == "streaming"


# Nobody


def test_a_question_without_a_deadline_waits_for_ever() -> None:
    """No timer is set: days later the answer is as good."""
    run = MachineHarness()
    run.say(*calls("write"))
    assert run.got(SetTimer) == []
    assert [notice.due for notice in run.got(ApprovalRequested)] == [None]
    request = run.machine.state.open[0]
    run.feed(ApprovalGiven(at=1e7, request=request, decision=Approve()))
    assert run.started == ["write"]


def test_a_question_that_nobody_answers_in_time_is_denied() -> None:
    """The model reads that nobody answered; the question is withdrawn, and a late answer changes nothing."""
    run = MachineHarness(config(policy=PATIENT))
    run.say(*calls("look", "write", "note"))
    run.end("look", "kept")
    (timer,), (question,) = run.got(SetTimer), run.got(AskApproval)
    assert timer.due == run.now + 60.0
    run.expire("write")
    assert run.got(Cancel) == [Cancel(request=question.id)]
    assert run.got(ApprovalWithdrawn) == [ApprovalWithdrawn(request=question.id, late=True)]
    assert run.judged == [("write", "deny", "person")]
    assert run.results == [
        ("look", "ok", "kept"),
        ("write", "denied", model_messages.not_answered(60.0)),
        ("note", "skipped", model_messages.SKIPPED_AFTER_DENIAL),
    ]
    run.feed(ApprovalGiven(at=run.now, request=question.id, decision=Approve()))
    assert run.got(Ignored)


@pytest.mark.parametrize(
    ("policy", "outcome", "reason"),
    [
        (OnDenial.SKIP_REST, "skipped", ""),
        (OnDenial.GO_ON, "ok", ""),
        (OnDenial.INTERRUPT, "cancelled", "interrupted"),
    ],
)
def test_no_answer_is_a_no_like_any_other(policy: OnDenial, outcome: str, reason: str) -> None:
    """What follows is what the policy says of a denial."""
    run = MachineHarness(config(policy=Policy(on_denial=policy, answer_within=5.0)))
    run.say(*calls("write", "note"))
    run.expire("write")
    if policy is OnDenial.GO_ON:
        run.end("note")
    assert run.outcomes == [("write", "denied"), ("note", outcome)]
    assert run.reason == reason


@pytest.mark.parametrize("decision", [Approve(), ApproveAlways(), Deny(), Deny(interrupt=True)])
def test_an_answer_in_time_cancels_the_deadline(decision: Decision) -> None:
    """The timer that fires all the same, since it was too late to stop it, changes nothing."""
    run = MachineHarness(config(policy=PATIENT))
    run.say(*calls("write"))
    (timer,) = run.got(SetTimer)
    run.decide("write", decision)
    assert run.got(Cancel) == [Cancel(request=timer.id)]
    assert timer.id not in run.machine.state.open
    run.feed(TimerFired(at=timer.due, request=timer.id))
    assert run.effects == (Ignored(event="TimerFired", state=run.label),)


@pytest.mark.parametrize("how", ["interrupt", "cancel", "steer"])
def test_a_question_that_is_withdrawn_takes_its_deadline_along(how: str) -> None:
    """By an interrupt, by a person who gives the call up, by one who says something else."""
    run = MachineHarness(config(policy=PATIENT))
    run.say(*calls("write"))
    (timer,), (question,) = run.got(SetTimer), run.got(AskApproval)
    if how == "interrupt":
        run.interrupt()
    elif how == "cancel":
        run.cancel("write")
    else:
        run.steer("left")
    assert run.got(Cancel) == [Cancel(request=question.id), Cancel(request=timer.id)]
    assert run.got(ApprovalWithdrawn) == [ApprovalWithdrawn(request=question.id)]


def test_each_question_has_its_own_deadline() -> None:
    """The first that passes is about one call; the others stay open until theirs."""
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
    """Where nobody drove the run its timer could not fire: a late yes is none, and a no is never too late."""
    run = MachineHarness(config(policy=PATIENT))
    run.say(*calls("write"))
    (question,), (timer,), asked_at = run.got(AskApproval), run.got(SetTimer), run.now
    assert question.due == timer.due
    run.feed(ApprovalGiven(at=asked_at + after, request=question.id, decision=decision))
    assert run.got(Cancel) == [Cancel(request=timer.id)]
    assert run.got(GrantRule) == []
    if outcome == "ok":
        run.end("write")
    assert run.outcomes == [("write", outcome)]
    in_time = outcome == "ok" or isinstance(decision, Deny)
    withdrawn = [ApprovalWithdrawn(request=question.id, late=True)]
    assert run.all(ApprovalWithdrawn) == ([] if in_time else withdrawn)
    assert len(run.all(ApprovalResolved)) == in_time


def test_a_deadline_is_a_point_in_time_and_not_a_span() -> None:
    """A run that is taken over later sets the timer it had, so nobody gets more time by a restart."""
    run = MachineHarness(config(policy=PATIENT))
    run.say(*calls("write"))
    (question,), (timer,) = run.got(AskApproval), run.got(SetTimer)
    machine = run.machine
    back = restore_from_snapshot(machine)
    recovery = recover(back, now=timer.due + 1_000.0)
    assert (recovery.again, recovery.events) == ((question, timer), ())
    again = MachineHarness(back)
    again.feed(TimerFired(at=timer.due + 1_000.0, request=timer.id))
    assert again.outcomes == [("write", "denied")]


def test_a_question_costs_no_time() -> None:
    """Waiting for a person is no work, however long it takes."""
    run = MachineHarness(config(limits=Limits(seconds=5.0)))
    run.say(*calls("write", "write"))
    run.feed(ApprovalGiven(at=1e6, request=run.machine.state.open[0], decision=Approve()))
    run.end("write", seconds=2.0)
    assert run.label == "confirming"
    assert run.machine.memory.spent.seconds == 2.0
    assert [message.role for message in run.machine.memory.history] == [Role.USER, Role.ASSISTANT]
