"""A person takes back an input that waits: what becomes of the run, at each place where it may be."""

from __future__ import annotations

import attrs
import pytest

from turnwheel.effects import events, notices, records, requests
from turnwheel.effects.config import Policy, Steering
from turnwheel.effects.history import TextPiece
from turnwheel.effects.hooks import Hook, HookSpec
from turnwheel.effects.messages import StopReason
from turnwheel.effects.usage import Usage
from turnwheel.engine.core.machine import Machine
from turnwheel.engine.inspect.transitions import step
from turnwheel.engine.journal.entries import RunOpened
from turnwheel.testing.harness import MachineHarness, calls, config
from turnwheel.testing.state_fixtures import PLACES, run_at

GUARD = HookSpec(name="guard", hook=Hook.USER_PROMPT_SUBMIT)
PROMPT = "r-prompt"


@pytest.mark.behaviour("an-input-that-waits-can-be-taken-back")
@pytest.mark.parametrize("place", [place for place in PLACES if place != "done"])
def test_a_prompt_that_waits_is_dropped_wherever_the_run_is(place: str) -> None:
    run = run_at(place)
    run.send("later")
    state, mail = run.machine.state, run.machine.memory.session.mail
    run.withdraw()
    assert run.effects == (
        records.TakeMail(ids=(mail[-1].id,)),
        notices.InputDropped(id=mail[-1].id, at=run.now),
    )
    assert (run.machine.state, run.machine.memory.session.mail) == (state, mail[:-1])


@pytest.mark.behaviour("an-input-that-waits-can-be-taken-back")
def test_what_was_read_is_not_taken_back() -> None:
    run = MachineHarness()
    run.send("later")
    before = run.machine.memory
    run.feed(events.InputWithdrawn(at=50.0, input=PROMPT))
    assert run.effects == (notices.Ignored(event="InputWithdrawn", state="streaming", at=run.now),)
    assert run.machine.memory is before


@pytest.mark.behaviour("an-input-that-waits-can-be-taken-back")
@pytest.mark.parametrize("place", [place for place in PLACES if place != "done"])
def test_an_input_whose_withdrawal_comes_first_is_never_taken(place: str) -> None:
    run = run_at(place)
    run.feed(events.InputWithdrawn(at=50.0, input="x"))
    assert run.got(notices.InputDropped) == [notices.InputDropped(id="x", at=run.now)]
    state, memory = run.machine.state, run.machine.memory
    run.feed(events.UserSteered(at=51.0, id="x", text="rather left", how=Steering.NOW))
    assert run.got(notices.Ignored)
    assert (run.machine.state, run.machine.memory) == (state, memory)


@pytest.mark.behaviour("an-input-that-was-taken-back-stays-known")
def test_the_same_id_again_is_a_repeat_after_a_withdrawal() -> None:
    run = MachineHarness()
    run.feed(events.UserSent(at=1.0, id="x", text="later"))
    run.withdraw("x")
    run.feed(events.InputWithdrawn(at=3.0, input="x"))
    assert run.got(notices.Ignored)
    run.feed(events.UserSent(at=4.0, id="x", text="later"))
    assert run.got(notices.Ignored)
    assert run.machine.memory.session.mail == ()


@pytest.mark.behaviour("an-input-that-waits-can-be-taken-back")
def test_one_of_joined_prompts_is_taken_back_alone() -> None:
    opened = RunOpened(at=9.0, run="next", config=config(policy=Policy(coalesce=10.0)))
    sent = [events.UserSent(at=n / 1, id=f"{n}", text=f"part {n}", sender="ann") for n in range(3)]
    machine = Machine.open(opened, None, [*sent, events.InputWithdrawn(at=4.0, input="1")])
    effects = machine.advance(at=9.0)
    (taken,) = [effect for effect in effects if isinstance(effect, notices.InputTaken)]
    assert (taken.ids, taken.messages[0].text) == (("0", "2"), "part 0\npart 2")


def test_hooks_are_asked_anew_about_the_prompts_that_are_left() -> None:
    opened = RunOpened(at=9.0, run="next", config=config(policy=Policy(coalesce=10.0), hooks=(GUARD,)))
    sent = [events.UserSent(at=n / 1, id=f"{n}", text=f"part {n}", sender="ann") for n in range(2)]
    machine = Machine.open(opened, None, sent)
    machine.advance(at=9.0)
    (first,) = machine.state.open
    effects = machine.advance(events.InputWithdrawn(at=10.0, input="1"))
    (asked,) = [effect for effect in effects if isinstance(effect, requests.FireHook)]
    assert requests.Cancel(request=first) in effects
    assert (machine.state.label, machine.state.open) == ("thinking.admitting", (asked.id,))
    assert "part 1" not in asked.payload
    # An answer to the first question, which is late, lets nothing in.
    machine.advance(events.HookAnswered(at=11.0, request=first))
    assert machine.state.label == "thinking.admitting"


@pytest.mark.behaviour("a-run-without-its-prompt-ends")
@pytest.mark.parametrize("hook", [Hook.SESSION_START, Hook.USER_PROMPT_SUBMIT])
def test_a_run_whose_only_prompt_is_taken_back_ends_without_a_message(hook: Hook) -> None:
    run = MachineHarness(config(hooks=(HookSpec(name="guard", hook=hook),)))
    (asked,) = run.machine.state.open
    run.withdraw(PROMPT)
    assert requests.Cancel(request=asked) in run.effects
    assert (run.reason, run.talk, run.all(requests.CallModel)) == ("interrupted", [], [])
    (ended,) = run.got(notices.RunEnded)
    assert ended.detail == "taken back before it came in"


def test_a_run_without_its_prompt_ends_where_others_wait_for_runs_of_their_own() -> None:
    run = MachineHarness(config(hooks=(GUARD,)))
    run.send("the other")
    run.withdraw(PROMPT)
    assert (run.reason, run.talk) == ("interrupted", [])
    assert [mail.text for mail in run.machine.memory.session.mail] == ["the other"]


def test_a_steer_that_hooks_are_asked_about_is_dropped_and_the_run_goes_on() -> None:
    run = MachineHarness(config(hooks=(GUARD,)))
    run.answer()
    run.steer("rather left", Steering.WHEN_DONE)
    run.say("done")
    assert run.label == "thinking.admitting"
    run.withdraw()
    # The answer was the end, and nothing is left to answer.
    assert (run.reason, run.all(requests.CallModel)[1:]) == ("end_turn", [])


@pytest.mark.behaviour("what-a-steer-has-stopped-stays-stopped")
def test_an_answer_that_a_steer_has_cut_is_continued_where_the_steer_is_taken_back() -> None:
    run = MachineHarness()
    run.stream(TextPiece("Once upon"))
    run.steer("stop that", Steering.NOW)
    run.withdraw()
    assert run.label == "streaming.stopping"
    run.fail(events.Failure.CANCELLED)
    assert (run.label, run.talk[-1]) == ("streaming", ("user", "Continue where you left off."))


@pytest.mark.behaviour("what-a-steer-has-stopped-stays-stopped")
@pytest.mark.parametrize("how", [Steering.NOW, Steering.AFTER_TOOL])
def test_calls_that_a_steer_has_skipped_stay_skipped(how: Steering) -> None:
    run = MachineHarness()
    run.say(*calls("look", "look"))
    run.steer("rather left", how)
    run.withdraw()
    run.end("look", "seen")
    assert [outcome for _, outcome in run.outcomes] == ["ok", "skipped"]
    assert (run.label, run.all(notices.InputTaken)[1:]) == ("streaming", [])


def test_calls_run_where_the_steer_that_would_skip_them_is_taken_back_in_time() -> None:
    run = MachineHarness()
    run.stream(TextPiece("Let me see"))
    run.steer("rather left")
    run.withdraw()
    run.say(*calls("look"))
    assert run.label == "executing"


@pytest.mark.behaviour("an-input-that-waits-can-be-taken-back")
def test_a_prompt_that_a_run_left_is_taken_back_before_the_next() -> None:
    run = MachineHarness()
    run.send("one")
    run.send("two")
    one, two = run.machine.memory.session.mail
    run.say("done")
    posted = [events.InputWithdrawn(at=9.0, input=one.id)]
    following = Machine.open(RunOpened(at=9.0, run="next", config=run.machine.config), run.machine, posted)
    assert following.memory.session.mail == (two,)
    assert following.memory.has(events.UserSent(at=9.0, id=one.id, text="one"))


def by_hand(run: MachineHarness, event: events.Event) -> Machine:
    """The machine of *run* where it stands in `thinking.go` behind *event*, each step taken alone."""
    machine = stepped(run.machine, event)
    while machine.state.label != "thinking.go":
        machine = stepped(machine, events.Entered(at=60.0))
    return machine


def stepped(machine: Machine, event: events.Event) -> Machine:
    now = step(machine.config, machine.state, machine.memory, event)
    return Machine(machine.config, now.following, now.remembered)


def answered(run: MachineHarness, text: str) -> events.ModelFinished:
    request = run.all(requests.CallModel)[-1].id
    pieces = (TextPiece(text),)
    return events.ModelFinished(
        at=50.0, request=request, stop=StopReason.END_TURN, usage=Usage(), pieces=pieces
    )


@pytest.mark.behaviour("an-input-that-waits-can-be-taken-back")
def test_a_run_ends_where_the_steer_before_its_end_is_taken_back() -> None:
    run = MachineHarness()
    run.steer("rather left", Steering.WHEN_DONE)
    (steer,) = run.machine.memory.session.mail
    machine = by_hand(run, answered(run, "done"))
    machine = stepped(machine, events.InputWithdrawn(at=61.0, input=steer.id))
    assert (machine.state.label, machine.memory.session.mail) == ("thinking.end", ())
    assert machine.memory.history[-1].text == "done"


@pytest.mark.behaviour("an-input-that-waits-can-be-taken-back")
def test_the_model_is_asked_where_another_steer_is_left_before_the_end() -> None:
    run = MachineHarness()
    run.steer("rather left", Steering.WHEN_DONE)
    run.steer("rather right", Steering.WHEN_DONE)
    first, second = run.machine.memory.session.mail
    machine = by_hand(run, answered(run, "done"))
    machine = stepped(machine, events.InputWithdrawn(at=61.0, input=first.id))
    assert (machine.state.label, machine.memory.session.mail) == ("thinking.go", (second,))


@pytest.mark.behaviour("an-input-that-waits-can-be-taken-back")
def test_a_paused_answer_goes_on_where_the_steer_behind_it_is_taken_back() -> None:
    run = MachineHarness()
    run.steer("rather left", Steering.WHEN_DONE)
    (steer,) = run.machine.memory.session.mail
    machine = by_hand(run, attrs.evolve(answered(run, "I search"), stop=StopReason.PAUSED))
    machine = stepped(machine, events.InputWithdrawn(at=61.0, input=steer.id))
    assert (machine.state.label, machine.memory.session.mail) == ("thinking.go", ())
    assert [message.text for message in machine.memory.history] == ["hello", "I search"]


@pytest.mark.behaviour("what-a-steer-has-stopped-stays-stopped")
def test_a_cut_answer_goes_on_where_the_steer_that_cut_it_is_taken_back_before_the_next_call() -> None:
    run = MachineHarness()
    run.steer("stop that", Steering.NOW)
    (steer,) = run.machine.memory.session.mail
    machine = by_hand(run, answered(run, "half an answer"))
    machine = stepped(machine, events.InputWithdrawn(at=61.0, input=steer.id))
    assert machine.state.label == "thinking.go"
    assert [message.text for message in machine.memory.history][-2:] == [
        "half an answer",
        "Continue where you left off.",
    ]
