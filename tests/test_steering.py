"""What a person says into a run: when it is read, what it stops, and that it is never lost."""

from __future__ import annotations

import json

import pytest

from turnwheel.effects.config import (
    Concurrency,
    Gates,
    Limits,
    ModelSpec,
    Policy,
    Steering,
)
from turnwheel.effects.events import (
    ApprovalGiven,
    Approve,
    Deny,
    Failure,
    UserSteered,
)
from turnwheel.effects.hooks import Hook, HookAnswer, HookSpec
from turnwheel.effects.messages import Finish, Outcome, StopReason
from turnwheel.effects.notices import (
    ApprovalWithdrawn,
    Ignored,
    InputBlocked,
    InputReceived,
    InputTaken,
    InterruptRequested,
    TurnEnded,
)
from turnwheel.effects.pieces import CallPiece, TextPiece
from turnwheel.effects.requests import (
    CallModel,
    Cancel,
    FireHook,
    RunAgent,
    RunTool,
    SetTimer,
)
from turnwheel.effects.usage import Usage
from turnwheel.states.rules import model_messages
from turnwheel.states.rules.history_check import history_faults
from turnwheel.testing.harness import (
    MachineHarness,
    call,
    calls,
    config,
)

NOW, AFTER_TOOL, WHEN_DONE = Steering.NOW, Steering.AFTER_TOOL, Steering.WHEN_DONE
PARALLEL = Policy(concurrency=Concurrency.PARALLEL_READS)
PORTER = HookSpec(name="porter", hook=Hook.USER_PROMPT_SUBMIT)
NO = HookAnswer(verdict="deny", reason="not now")

each_way = pytest.mark.parametrize("how", Steering)
skipping = pytest.mark.parametrize("how", [NOW, AFTER_TOOL])


def read(run: MachineHarness, *said: str) -> None:
    """The model is being asked, and what it reads last is what was *said*, in a history that is valid."""
    assert run.label == "streaming"
    assert run.talk[-len(said) :] == [("user", text) for text in said]
    assert history_faults(run.machine.memory.history) == []
    assert run.machine.memory.session.mail == ()


# While the model answers


def test_now_cuts_the_answer_and_keeps_what_was_read() -> None:
    """The partial text stays, marked as cut; its calls do not; no turn is counted."""
    run = MachineHarness()
    run.stream(TextPiece("I go right"), call(0, "note", path="a"))
    request = run.machine.state.open[0]
    run.steer("left", NOW)
    assert run.got(InputReceived) == [InputReceived(id="steer-2.0")]
    assert run.got(Cancel) == [Cancel(request=request)]
    assert run.got(InterruptRequested) == []
    assert run.label == "streaming.stopping"
    run.stream(TextPiece(" now"))
    run.fail(Failure.CANCELLED)
    read(run, "left")
    cut = run.machine.memory.history[1]
    assert (cut.text, cut.calls) == ("I go right now", ())
    assert cut.parts[-1] == Finish(reason=StopReason.INTERRUPTED)
    assert (run.all(RunTool), run.machine.memory.spent.turns) == ([], 0)
    assert run.machine.memory.spent.usage.estimated > 0


def test_now_before_the_first_word_leaves_no_message() -> None:
    """The model is asked again, with what was said behind what it was asked before."""
    run = MachineHarness()
    run.steer("left", NOW)
    run.fail(Failure.CANCELLED)
    assert run.talk == [("user", "hello"), ("user", "left")]
    assert [request.attempt for request in run.got(CallModel)] == [1]


def test_an_answer_that_comes_in_spite_of_now_is_kept_and_not_acted_on() -> None:
    """It was completed, so it counts; its calls have results that say so and do not run."""
    run = MachineHarness()
    run.steer("left", NOW)
    run.say("right", call(0, "note", path="a"))
    assert run.results == [("note", "skipped", model_messages.SKIPPED_AFTER_STEER)]
    assert [(notice.turn, len(notice.calls)) for notice in run.got(TurnEnded)] == [(1, 1)]
    read(run, "left")


def test_after_tool_lets_the_model_finish_and_skips_all_it_called() -> None:
    """None of the calls is up to date; the text of the answer stays."""
    run = MachineHarness()
    run.stream(TextPiece("I go "))
    run.steer("left", AFTER_TOOL)
    assert run.got(Cancel) == []
    run.say("right", *calls("look", "write"))
    assert run.all(RunTool) == []
    assert run.outcomes == [("look", "skipped"), ("write", "skipped")]
    assert ("assistant", "I go right") in run.talk
    read(run, "left")


def test_when_done_lets_the_model_finish_and_runs_all_it_called() -> None:
    """It is read before the next answer."""
    run = MachineHarness()
    run.stream(TextPiece("I go "))
    run.steer("left", WHEN_DONE)
    run.say("right", *calls("note", "look"))
    run.end("note")
    run.end("look")
    assert run.outcomes == [("note", "ok"), ("look", "ok")]
    read(run, "left")


def test_who_cannot_wait_after_all_is_not_made_to_wait() -> None:
    """A second voice, which says now, cuts the answer that the first one would have let finish."""
    run = MachineHarness()
    run.steer("left", AFTER_TOOL)
    run.steer("stop that", NOW)
    assert run.label == "streaming.stopping"
    run.steer("please", NOW)
    assert run.got(Cancel) == []
    run.fail(Failure.CANCELLED)
    read(run, "left", "stop that", "please")


@pytest.mark.parametrize("failure", [Failure.CANCELLED, Failure.LOST, Failure.SERVER, Failure.OVERLOADED])
def test_however_a_cut_answer_ends_the_run_goes_on_at_once(failure: Failure) -> None:
    """Nothing is tried again: what was said is the next thing the model reads."""
    run = MachineHarness()
    run.stream(TextPiece("I go"))
    run.steer("left", NOW)
    run.fail(failure)
    assert run.got(SetTimer) == []
    read(run, "left")


def test_an_interrupt_while_an_answer_is_being_cut_ends_the_run() -> None:
    """What was said is left for the next run."""
    run = MachineHarness()
    run.stream(TextPiece("I go"))
    run.steer("left", NOW)
    run.interrupt()
    assert (run.label, run.got(Cancel)) == ("streaming.stopping", [])
    run.fail(Failure.CANCELLED)
    assert run.reason == "interrupted"
    assert [mail.text for mail in run.machine.memory.session.mail] == ["left"]


# While tools run


@pytest.mark.parametrize(("how", "cancelled"), [(NOW, True), (AFTER_TOOL, False)])
def test_the_rest_is_skipped_and_what_runs_keeps_its_result(how: Steering, *, cancelled: bool) -> None:
    """Now tells the tool to stop, after it waits for it; its own result is what the model reads."""
    run = MachineHarness()
    run.say(*calls("look", "note", "write", "look"))
    run.end("look", "one")
    request = run.machine.state.open[0]
    run.steer("left", how)
    assert run.got(Cancel) == ([Cancel(request=request)] if cancelled else [])
    assert run.label == "executing.stopping"
    run.end("note", "two", Outcome.CANCELLED if cancelled else Outcome.OK)
    assert run.results == [
        ("look", "ok", "one"),
        ("note", "cancelled" if cancelled else "ok", "two"),
        ("write", "skipped", model_messages.SKIPPED_AFTER_STEER),
        ("look", "skipped", model_messages.SKIPPED_AFTER_STEER),
    ]
    read(run, "left")


def test_when_done_skips_nothing() -> None:
    """Every call of the answer runs, questions are asked, and it is read after the last one."""
    run = MachineHarness()
    run.say(*calls("look", "write"))
    run.steer("left", WHEN_DONE)
    assert run.effects == (InputReceived(id="steer-2.0"),)
    run.end("look")
    run.steer("and down", WHEN_DONE)
    assert run.label == "confirming"
    run.decide("write", Approve())
    run.end("write")
    assert run.outcomes == [("look", "ok"), ("write", "ok")]
    read(run, "left", "and down")


@skipping
def test_all_that_run_side_by_side_are_waited_for(how: Steering) -> None:
    """The rest is skipped once, and the results are in the order of the calls."""
    run = MachineHarness(config(policy=PARALLEL))
    run.say(*calls("look", "look", "write", "note"))
    run.steer("left", how)
    assert len(run.got(Cancel)) == (2 + 1 if how is NOW else 1)  # the question about write is withdrawn
    run.end("look", "one")
    assert run.label == "executing.stopping"
    run.end("look", "two")
    assert [content for _, _, content in run.results][:2] == ["one", "two"]
    assert [outcome for _, outcome in run.outcomes][2:] == ["skipped", "skipped"]
    read(run, "left")


def test_a_second_steer_may_be_in_more_of_a_hurry_than_the_first() -> None:
    """What runs is told to stop by the second, once; a third that can wait changes nothing."""
    run = MachineHarness()
    run.say(*calls("note", "write"))
    request = run.machine.state.open[0]
    run.steer("left", AFTER_TOOL)
    run.steer("stop that", NOW)
    assert run.got(Cancel) == [Cancel(request=request)]
    run.steer("please", AFTER_TOOL)
    assert run.effects == (InputReceived(id="steer-4.0"),)
    run.end("note")
    read(run, "left", "stop that", "please")


@pytest.mark.parametrize(("how", "cancelled"), [(NOW, True), (AFTER_TOOL, False), (WHEN_DONE, False)])
def test_a_child_is_waited_for(how: Steering, *, cancelled: bool) -> None:
    """As a tool is: now tells it to stop, and it answers for itself."""
    run = MachineHarness()
    run.say(*calls("send", "note"))
    (request,) = run.got(RunAgent)
    run.steer("left", how)
    assert run.got(Cancel) == ([Cancel(request=request.id)] if cancelled else [])
    assert run.label == ("dispatching" if how is WHEN_DONE else "dispatching.stopping")
    run.report("send", "found it")
    if how is WHEN_DONE:
        run.end("note")
    assert run.outcomes == [("send", "ok"), ("note", "ok" if how is WHEN_DONE else "skipped")]
    read(run, "left")


@each_way
def test_an_interrupt_is_not_taken_back_by_what_is_said_after_it(how: Steering) -> None:
    """The run ends when what runs has stopped; what was said is left for the next one."""
    run = MachineHarness()
    run.say(*calls("note", "write"))
    run.interrupt()
    run.steer("left", how)
    assert run.effects == (InputReceived(id="steer-3.0"),)
    run.end("note")
    assert (run.outcomes, run.reason) == ([("note", "ok"), ("write", "cancelled")], "interrupted")
    assert [mail.text for mail in run.machine.memory.session.mail] == ["left"]


def test_who_cannot_wait_stops_what_is_let_finish_over_a_budget() -> None:
    """It starts nothing and ends the run either way, and need not take so long."""
    run = MachineHarness(config(limits=Limits(seconds=5.0), policy=PARALLEL))
    run.say(*calls("look", "look"))
    _, second = run.machine.state.open
    run.end("look", seconds=5.0)
    run.steer("left", NOW)
    assert run.got(Cancel) == [Cancel(request=second)]
    run.end("look")
    assert run.reason == "time_budget"


# While a person or hooks are asked


@skipping
def test_questions_are_withdrawn(how: Steering) -> None:
    """Nobody is asked about what will not run; a late yes runs nothing."""
    run = MachineHarness()
    run.say(*calls("write", "note"))
    (request,) = run.machine.state.open
    run.steer("left", how)
    assert run.got(ApprovalWithdrawn) == [ApprovalWithdrawn(request=request)]
    assert run.outcomes == [("write", "skipped"), ("note", "skipped")]
    read(run, "left")
    run.feed(ApprovalGiven(at=run.now, request=request, decision=Approve()))
    assert run.effects == (Ignored(event="ApprovalGiven", state="streaming"),)


@pytest.mark.parametrize("decision", [Approve(), Deny()])
def test_when_done_leaves_questions_open(decision: Approve | Deny) -> None:
    """They are answered as ever; what was said comes after the answer's calls."""
    run = MachineHarness()
    run.say(*calls("write"))
    run.steer("left", WHEN_DONE)
    assert (run.label, run.got(ApprovalWithdrawn)) == ("confirming", [])
    run.decide("write", decision)
    if isinstance(decision, Approve):
        run.end("write")
    read(run, "left")


@skipping
def test_what_a_person_had_allowed_is_skipped_too(how: Steering) -> None:
    """They said something new since."""
    run = MachineHarness(config(policy=PARALLEL))
    run.say(*calls("look", "write"))
    run.decide("write", Approve())
    run.steer("left", how)
    run.end("look")
    assert run.outcomes == [("look", "ok"), ("write", "skipped")]
    read(run, "left")


@each_way
@pytest.mark.parametrize("gates", Gates)
def test_hooks_that_look_at_a_call_are_not_waited_for(how: Steering, gates: Gates) -> None:
    """Unless what was said can wait until all calls are done."""
    guard = HookSpec(name="guard", hook=Hook.PRE_TOOL_USE)
    run = MachineHarness(config(hooks=(guard,), policy=Policy(gates=gates)))
    run.say(*calls("note"))
    (request,) = run.got(FireHook)
    run.steer("left", how)
    if how is WHEN_DONE:
        assert run.got(Cancel) == []
        run.answer()
        run.end("note")
    else:
        assert run.got(Cancel) == [Cancel(request=request.id)]
    assert run.outcomes == [("note", "ok" if how is WHEN_DONE else "skipped")]
    read(run, "left")


# Where it simply waits for the next model call


@each_way
def test_it_is_read_by_the_next_attempt_of_a_call_that_failed(how: Steering) -> None:
    """Which is still counted as one; who cannot wait does not wait for its time to come."""
    run = MachineHarness()
    run.fail(Failure.OVERLOADED)
    (timer,) = run.got(SetTimer)
    run.steer("left", how)
    if how is NOW:
        assert run.got(Cancel) == [Cancel(request=timer.id)]
    else:
        assert (run.label, run.got(Cancel)) == ("thinking.retry", [])
        run.wake(timer.due)
    assert [request.attempt for request in run.got(CallModel)] == [2]
    read(run, "left")


@each_way
def test_it_waits_while_the_conversation_is_shortened(how: Steering) -> None:
    """It is not part of what is summarised, and read right after it."""
    run = MachineHarness(config(model=ModelSpec(name="wire:model", window=1_000)), "do it " * 200)
    run.say(*calls("note"), usage=Usage(input=900))
    run.end("note")
    assert run.label == "compacting.summary"
    run.steer("left", how)
    assert (run.label, run.got(Cancel)) == ("compacting.summary", [])
    run.say("it was asked to do it")
    read(run, "left")


@each_way
def test_it_is_read_before_a_natural_end(how: Steering) -> None:
    """The answer would have been the end; it is not, since somebody has said something."""
    run = MachineHarness()
    run.stream(TextPiece("I am "))
    run.steer("and the docs?", how)
    if how is NOW:
        run.fail(Failure.CANCELLED)
    else:
        run.say("done", stop=StopReason.END_TURN)
        assert len(run.got(TurnEnded)) == 1
    read(run, "and the docs?")
    run.say("done, too")
    assert run.reason == "end_turn"


@each_way
def test_it_waits_for_the_prompt(how: Steering) -> None:
    """Said before the prompt has come in, it is read behind it, in one go."""
    run = MachineHarness(config(instructions=("AGENTS.md",)))
    run.steer("left", how)
    assert run.label == "thinking.reading"
    run.read("")
    read(run, "hello", "left")
    assert len(run.all(CallModel)) == 1


# Several, and the same again


@each_way
def test_what_several_people_say_is_read_in_order(how: Steering) -> None:
    """Each a message of its own, with its own id and time, and all before the next call."""
    run = MachineHarness()
    run.say(*calls("note"))
    for text in ("left", "right", "left again"):
        run.steer(text, how)
    run.end("note")
    read(run, "left", "right", "left again")
    (taken,) = run.got(InputTaken)
    assert taken.ids == ("steer-2.0", "steer-3.0", "steer-4.0")
    assert [message.at for message in run.machine.memory.history][-3:] == [2.0, 3.0, 4.0]
    assert len(run.got(CallModel)) == 1


def test_the_same_post_twice_is_said_once() -> None:
    """The id is its sender's; a repetition changes nothing, before and after it was read."""
    run = MachineHarness()
    run.say(*calls("note"))
    said = UserSteered(at=2.0, id="s", text="left")
    run.feed(said)
    run.feed(said)
    assert run.effects == (Ignored(event="UserSteered", state="executing.stopping"),)
    run.end("note")
    run.feed(said)
    assert run.effects == (Ignored(event="UserSteered", state="streaming"),)
    assert run.talk.count(("user", "left")) == 1


@each_way
def test_a_prompt_is_not_what_is_said_into_the_run(how: Steering) -> None:
    """It waits for a run of its own, whatever else is read meanwhile."""
    run = MachineHarness()
    run.say(*calls("note"))
    run.send("next job")
    run.steer("left", how)
    run.end("note")
    assert run.talk[-1] == ("user", "left")
    run.say("done")
    assert run.reason == "end_turn"
    assert [mail.text for mail in run.machine.memory.session.mail] == ["next job"]


# Limits


@pytest.mark.parametrize("how", [AFTER_TOOL, WHEN_DONE])
@pytest.mark.parametrize(
    ("limits", "reason"), [(Limits(turns=1), "max_turns"), (Limits(tokens=15), "token_budget")]
)
def test_over_a_limit_it_is_left_for_the_next_run(how: Steering, limits: Limits, reason: str) -> None:
    """Nothing is called any more; what was said is not lost, and not said to have been read."""
    run = MachineHarness(config(limits=limits))
    run.steer("left", how)
    run.say("done")
    assert run.reason == reason
    assert [taken.ids for taken in run.all(InputTaken)] == [("r-prompt",)]
    assert [mail.text for mail in run.machine.memory.session.mail] == ["left"]
    assert run.talk[-1] == ("assistant", "done")


def test_an_answer_that_was_cut_is_paid_for() -> None:
    """Where that was all there is to spend, what was said is left for the next run."""
    run = MachineHarness(config(limits=Limits(tokens=15)))
    run.steer("left", NOW)
    run.fail(Failure.CANCELLED, usage=Usage(input=15))
    assert run.reason == "token_budget"
    assert [mail.text for mail in run.machine.memory.session.mail] == ["left"]


def test_a_budget_that_is_used_up_while_what_runs_is_waited_for_ends_the_run() -> None:
    """The rest was skipped for what was said, which is left for the next run."""
    run = MachineHarness(config(limits=Limits(seconds=5.0)))
    run.say(*calls("note", "write"))
    run.steer("left")
    run.end("note", seconds=5.0)
    assert run.outcomes == [("note", "ok"), ("write", "skipped")]
    assert run.reason == "time_budget"
    assert [mail.text for mail in run.machine.memory.session.mail] == ["left"]


# Where a hook has a say in it


def porter(policy: Policy = Policy()) -> MachineHarness:  # noqa: B008  # a frozen value
    """A run whose inputs a hook looks at, after its prompt came in."""
    run = MachineHarness(config(hooks=(PORTER,), policy=policy))
    run.answer()
    return run


def test_a_hook_is_asked_about_what_was_said() -> None:
    """All that waits, in one go; what is said meanwhile is asked about after it."""
    run = porter()
    run.say(*calls("note"))
    run.steer("left")
    run.steer("right")
    run.end("note")
    assert run.label == "thinking.admitting"
    assert json.loads(run.got(FireHook)[0].payload) == {"prompts": ["left", "right"]}
    run.steer("left again")
    run.answer()
    assert json.loads(run.got(FireHook)[0].payload) == {"prompts": ["left again"]}
    run.answer()
    read(run, "left", "right", "left again")


def test_the_run_goes_on_without_what_a_hook_denied() -> None:
    """It does not come in; the calls it skipped stay skipped, and the model is asked."""
    run = porter()
    run.say(*calls("note", "write"))
    run.steer("left")
    run.end("note")
    run.answer(NO)
    assert run.got(InputBlocked) == [InputBlocked(ids=("steer-3.0",), reason="porter: not now")]
    assert run.label == "streaming"
    assert ("user", "left") not in run.talk
    assert run.machine.memory.session.mail == ()


@pytest.mark.parametrize(
    ("stop", "reason"), [(StopReason.END_TURN, "end_turn"), (StopReason.STOP_SEQUENCE, "stop_sequence")]
)
def test_a_run_that_was_at_its_end_ends_without_what_a_hook_denied(stop: StopReason, reason: str) -> None:
    """Nothing is left to be answered."""
    run = porter()
    run.steer("left")
    run.say("done", stop=stop)
    run.answer(NO)
    assert run.reason == reason
    assert run.talk[-1] == ("assistant", "done")
    assert len(run.all(CallModel)) == 1


def test_an_answer_that_was_cut_goes_on_without_what_a_hook_denied() -> None:
    """It was cut for nothing; the model is told to go on."""
    run = porter()
    run.stream(TextPiece("once upon"))
    run.steer("left", NOW)
    run.fail(Failure.CANCELLED)
    run.answer(NO)
    assert run.talk[-2:] == [("assistant", "once upon"), ("user", model_messages.CONTINUE)]
    assert run.label == "streaming"


def test_an_answer_that_was_cut_before_its_first_word_is_asked_for_again() -> None:
    """The conversation ends with what it was asked, so nothing need be said."""
    run = porter()
    run.steer("left", NOW)
    run.fail(Failure.CANCELLED)
    run.answer(NO)
    assert run.talk == [("user", "hello")]
    assert run.label == "streaming"


def test_a_denial_of_what_was_said_may_end_the_run() -> None:
    """Where the hook says so."""
    run = porter()
    run.say(*calls("note"))
    run.steer("left")
    run.end("note")
    run.answer(HookAnswer(verdict="deny", reason="enough", interrupt=True))
    assert run.reason == "interrupted"
    assert run.got(InterruptRequested) == [InterruptRequested()]
    assert run.got(InputBlocked) == [InputBlocked(ids=("steer-3.0",), reason="porter: enough")]
    assert run.machine.memory.session.mail == ()


def test_an_interrupt_while_a_hook_is_asked_ends_the_run_without_what_was_said() -> None:
    """It was taken out of the mail to be looked at, and is said to be blocked: it is not lost silently."""
    run = porter()
    run.say(*calls("note"))
    run.steer("left")
    run.end("note")
    (request,) = run.machine.state.open
    run.interrupt()
    assert run.got(Cancel) == [Cancel(request=request)]
    assert run.got(InputBlocked) == [
        InputBlocked(ids=("steer-3.0",), reason=model_messages.INTERRUPTED_BEFORE)
    ]
    assert run.reason == "interrupted"


def test_half_a_call_of_a_cut_answer_leaves_nothing() -> None:
    """Neither a call nor a result: it was never made."""
    run = MachineHarness()
    run.stream(CallPiece(0, "w", "write", '{"pa'))
    run.steer("left", NOW)
    run.fail(Failure.CANCELLED)
    assert run.results == []
    read(run, "hello", "left")
