"""What comes back is for one request, of one kind and in order; and how a model's answer may fail."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from turnwheel.effects import events, notices, records, requests
from turnwheel.effects.config import (
    Compaction,
    Limits,
    Loops,
    ModelSpec,
    OnMaxTokens,
    Policy,
    Price,
    Retries,
    Steering,
)
from turnwheel.effects.events import Failure, ModelFailed
from turnwheel.effects.history import CallPiece, ReasoningPiece, TextPiece
from turnwheel.effects.hooks import Hook, HookAnswer, HookSpec
from turnwheel.effects.messages import Citation, Finish, ProviderCall, StopReason, Text
from turnwheel.effects.usage import Spent, Usage
from turnwheel.engine.core.codec import decode, encode
from turnwheel.engine.core.machine import Machine, calls_at
from turnwheel.states.batch.batch import Order, Running, RunningChild
from turnwheel.states.rules import model_messages
from turnwheel.testing.harness import MachineHarness, call, calls, config
from turnwheel.testing.state_fixtures import PLACES, run_at

each_place = pytest.mark.parametrize("place", PLACES)

ANSWERS: Mapping[type, tuple[type, ...]] = {
    requests.CallModel: (events.ModelStreamed, events.ModelFinished, ModelFailed),
    requests.RunTool: (events.ToolFinished, events.ToolLost, events.ToolProgressed),
    requests.AskApproval: (events.ApprovalGiven,),
    requests.FireHook: (events.HookAnswered,),
    requests.InspectCall: (events.CallInspected,),
    requests.ReadInstructions: (events.InstructionsRead,),
    requests.DecodeOutput: (events.OutputDecoded,),
    requests.RunAgent: (events.AgentFinished, events.AgentProgressed),
    requests.SetTimer: (events.TimerFired,),
}
"""The events that answer each request."""


def answers(request: str) -> list[events.Event]:
    """An event of each kind that answers *request*."""
    to: dict[str, Any] = {"at": 50.0, "request": request}
    said = (TextPiece("late"),)
    return [
        events.ModelStreamed(**to, before=0, count=1, pieces=said),
        events.ModelFinished(**to, stop=StopReason.END_TURN, usage=Usage(input=1), pieces=said),
        ModelFailed(**to, failure=Failure.SERVER, message="no"),
        events.ToolFinished(**to, content="done"),
        events.ToolLost(**to),
        events.ToolProgressed(**to, text="half"),
        events.ApprovalGiven(**to, decision=events.Approve()),
        events.HookAnswered(**to),
        events.CallInspected(**to),
        events.InstructionsRead(**to, text="be brief"),
        events.OutputDecoded(**to),
        events.AgentFinished(**to, content="done"),
        events.AgentProgressed(**to, spent=Spent(turns=1)),
        events.TimerFired(**to),
    ]


def changes_nothing(run: MachineHarness, event: events.Event) -> None:
    before = run.machine.state, run.machine.memory
    run.feed(event)
    assert run.effects == (notices.Ignored(event=type(event).__name__, state=run.label, at=run.now),)
    assert (run.machine.state, run.machine.memory) == before


@each_place
def test_an_answer_to_another_request_changes_nothing(place: str) -> None:
    """Neither one to a request that was never made, nor one to a request that is over."""
    run = run_at(place)
    made = {effect.id for effect in run.told if requests.is_request(effect)}
    for name in ("r-999", *sorted(made - {*run.machine.state.open})):
        for event in answers(name):
            changes_nothing(run, event)


@each_place
def test_an_answer_of_another_kind_changes_nothing(place: str) -> None:
    run = run_at(place)
    kinds = {effect.id: type(effect) for effect in run.told if requests.is_request(effect)}
    for name in run.machine.state.open:
        for event in answers(name):
            if type(event) not in ANSWERS[kinds[name]]:
                changes_nothing(run, event)


@pytest.mark.parametrize("place", ["streaming", "compacting.summary"])
def test_pieces_that_repeat_or_skip_some_are_of_another_stream(place: str) -> None:
    """As are those that say that they are more than they are."""
    run = run_at(place)
    there = run.machine.state.open[0]
    stage = getattr(run.machine.state, "stage", run.machine.state)
    piece, here = (TextPiece("more"),), getattr(stage, "pieces").count  # noqa: B009  # of two classes
    for before in (here - 1, here + 1):
        event = events.ModelStreamed(at=50.0, request=there, before=before, count=1, pieces=piece)
        changes_nothing(run, event)
    run.feed(events.ModelStreamed(at=50.0, request=there, before=here, count=1, pieces=piece))
    assert run.got(notices.Ignored) == []


# What fails


def fails(
    run: MachineHarness, failure: Failure = Failure.BAD_REQUEST, message: str = "as told", **more: Any
) -> None:
    name = run.machine.state.open[0]
    run.feed(ModelFailed(at=run.now + 1.0, request=name, failure=failure, message=message, **more))


@pytest.mark.parametrize(
    ("limits", "asked"),
    [
        ((4_096,), [4_096]),
        ((4_096, 2_048), [4_096, 2_048]),
        ((4_096, 2_048, 1_024), [4_096, 2_048, 1_024]),
        # Three times, and no limit that is no lower than the one before, or none at all.
        ((4_096, 2_048, 1_024, 512), [4_096, 2_048, 1_024, None]),
        ((4_096, 4_096), [4_096, None]),
        ((4_096, 4_097), [4_096, None]),
        ((1,), [1]),
        ((0,), [None]),
        ((-1,), [None]),
    ],
)
def test_an_answer_that_may_not_be_so_long_is_asked_for_again_with_the_limit_that_was_told(
    limits: tuple[int, ...], asked: list[int | None]
) -> None:
    run = MachineHarness(config(retries=Retries(failed=0)))
    found: list[int | None] = []
    for attempt, limit in enumerate(limits, 2):
        fails(run, max_output=limit)
        (again,) = run.got(requests.CallModel) or (None,)
        found.append(again and again.max_output)
        if again is not None:
            assert again.attempt == attempt
            assert run.got(notices.Warned) == [notices.Warned(text="as told", at=run.now)]
    assert found == asked
    if asked[-1] is None:
        assert run.reason == "error"
    else:
        run.work("more", call(0, "look", path="a"))
        assert [one.max_output for one in run.got(requests.CallModel)] == [limits[-1]]


def test_how_long_an_answer_may_be_that_a_model_told_is_no_limit_of_the_one_that_takes_over() -> None:
    models = (ModelSpec(name="wire:model"), ModelSpec(name="wire:other"))
    run = MachineHarness(config(model=models[0], models=models[1:], fallback="wire:other"))
    fails(run, max_output=1_000)
    assert [one.max_output for one in run.got(requests.CallModel)] == [1_000]
    fails(run, Failure.AUTH)
    assert [(one.model, one.max_output) for one in run.got(requests.CallModel)] == [("wire:other", None)]


def test_where_a_provider_says_that_it_is_not_to_be_asked_again_another_model_is_asked() -> None:
    run = MachineHarness(config(models=(ModelSpec(name="wire:other"),), fallback="wire:other"))
    fails(run, Failure.SERVER, should_retry=False)
    assert [(one.model, one.attempt) for one in run.got(requests.CallModel)] == [("wire:other", 1)]


def test_calls_of_an_answer_that_ends_as_interrupted_by_itself_are_told_to_have_been() -> None:
    runs = [MachineHarness(), MachineHarness()]
    for run in runs:
        run.stream(*calls("write"))
    runs[0].interrupt()
    for run in runs:
        run.say(stop=StopReason.INTERRUPTED)
    told = [run.machine.memory.history[-1].results[0] for run in runs]
    assert told[0].outcome == "cancelled"
    assert (told[1].outcome, told[1].content) == (told[0].outcome, told[0].content)


@pytest.mark.parametrize(
    ("pieces", "failure", "again"),
    [
        ((), Failure.SERVER, True),
        ((ReasoningPiece("hm"),), Failure.SERVER, True),
        ((CallPiece(0, "w", "look", "{}"),), Failure.SERVER, True),
        ((TextPiece(" \n"),), Failure.SERVER, True),
        ((TextPiece("well"),), Failure.SERVER, False),
        ((TextPiece(" "), TextPiece("well")), Failure.SERVER, False),
        ((TextPiece("well"),), Failure.LOST, True),
    ],
)
def test_an_answer_of_which_text_was_shown_is_not_asked_for_again(
    pieces: tuple[Any, ...], failure: Failure, *, again: bool
) -> None:
    """Unless it was lost, with the process that showed it."""
    run = MachineHarness()
    if pieces:
        run.stream(*pieces)
    name = run.machine.state.open[0]
    fails(run, failure)
    dropped = [notices.AnswerDropped(request=name, at=run.now)] if pieces else []
    assert run.got(notices.AnswerDropped) == dropped
    assert (run.reason, run.label) == (("", "thinking.retry") if again else ("error", "done"))


NO_END = ModelFailed(at=50.0, request="r-1", failure=Failure.SERVER, message="no", seconds=2.0)
AN_END = events.ModelFinished(
    at=50.0, request="r-1", stop=StopReason.END_TURN, usage=Usage(input=5), seconds=2.0
)
A_PIECE = events.ModelStreamed(at=50.0, request="r-1", before=0, count=1, pieces=(TextPiece("hm"),))
AN_INTERRUPT = events.Interrupted(at=50.0)


@pytest.mark.parametrize(
    ("place", "event", "paid"),
    [
        ("asked", AN_INTERRUPT, None),
        ("asked", A_PIECE, ("an estimate", 0.0)),
        ("asked", NO_END, (0, 2.0)),
        ("asked", AN_END, (5, 2.0)),
        ("a piece", AN_INTERRUPT, ("an estimate", 0.0)),
        ("a piece", attrs.evolve(AN_END, seconds=0.0), (5, 0.0)),
        ("a piece", attrs.evolve(AN_END, request="another"), ("an estimate", 0.0)),
        ("compacting.summary", AN_INTERRUPT, ("an estimate", 0.0)),
        ("compacting.consulting", AN_INTERRUPT, None),
    ],
)
def test_a_bug_while_an_answer_is_read_costs_what_was_read(place: str, event: Any, paid: Any) -> None:
    run = run_at(place) if place in PLACES else MachineHarness()
    if place == "a piece":
        run.stream(TextPiece("hm"))
    told = run.machine.commit(run.machine.failure(event, "a bug"))
    dropped = [one.request for one in told if isinstance(one, notices.AnswerDropped)]
    assert dropped == ["r-1"] * (place == "a piece")
    spent = [one.spent for one in told if isinstance(one, records.AddUsage)]
    told_as = [("an estimate" if one.usage.estimated else one.usage.total, one.seconds) for one in spent]
    assert told_as == ([] if paid is None else [paid])


def test_a_bug_at_the_start_ends_a_run_that_began() -> None:
    machine = Machine.start(config(), "hello")
    told = machine.commit(machine.failure(events.Entered(at=1.0), "a bug"))
    assert [type(one) for one in told][:: len(told) - 1] == [notices.RunStarted, notices.RunEnded]


@pytest.mark.parametrize("place", [place for place in PLACES if place != "done"])
def test_a_bug_behind_the_start_ends_a_run_once(place: str) -> None:
    run = run_at(place)
    told = run.machine.commit(run.machine.failure(AN_INTERRUPT, "a bug"))
    assert [one for one in told if isinstance(one, notices.RunStarted)] == []
    assert [one.reason for one in told if isinstance(one, notices.RunEnded)] == ["error"]


@pytest.mark.parametrize("place", [place for place in PLACES if place != "done"])
def test_a_bug_cancels_each_request_that_is_open(place: str) -> None:
    run = run_at(place)
    state = run.machine.state
    # A tool or a child that was told to stop was cancelled then.
    working = [one.phase for one in calls_at(state) if isinstance(one.phase, Running | RunningChild)]
    left = {*state.open} - {phase.request for phase in working if phase.told is Order.STOP}
    told = run.machine.commit(run.machine.failure(AN_INTERRUPT, "a bug"))
    assert sorted(one.request for one in told if isinstance(one, requests.Cancel)) == sorted(left)


def test_a_provider_that_says_that_it_may_not_go_better_is_believed() -> None:
    run = MachineHarness()
    fails(run, Failure.SERVER, should_retry=False)
    assert run.reason == "error"
    run = MachineHarness()
    fails(run, Failure.BAD_REQUEST, should_retry=True)
    assert run.label == "thinking.retry"
    run.wake()
    run.stream(ReasoningPiece("hm"))
    fails(run, Failure.SERVER, should_retry=True)
    assert run.label == "thinking.retry"


@pytest.mark.parametrize(
    ("failure", "attempt"), [(Failure.SERVER, 2), (Failure.LOST, 1), (Failure.UNBEGUN, 1)]
)
def test_only_a_failure_counts_as_an_attempt(failure: Failure, attempt: int) -> None:
    run = MachineHarness()
    fails(run, failure)
    if run.label == "thinking.retry":
        assert [one.attempt for one in run.got(notices.RetryScheduled)] == [attempt]
        run.wake()
    assert [one.attempt for one in run.got(requests.CallModel)] == [attempt]


@pytest.mark.parametrize("how", ["streaming", "compacting.summary"])
def test_what_was_used_until_a_failure_is_paid_for(how: str) -> None:
    """As it was told; else as estimated, where anything had come; a request that was refused cost nothing."""
    for usage, streamed, expected in (
        (Usage(input=7, output=1), False, 8),
        (None, False, 0),
        (None, True, None),
    ):
        run = run_at(how) if streamed or how == "compacting.summary" else MachineHarness()
        if how == "compacting.summary" and not streamed:
            run = run_at("compacting.pausing")
            run.wake()
        before = run.machine.memory.spent.usage
        fails(run, Failure.SERVER, usage=usage, seconds=1.5)
        used = run.machine.memory.spent.usage.total - before.total
        assert (used == expected) if expected is not None else (used > 100)
        assert run.machine.memory.spent.seconds >= 1.5


# What is cut short


def test_of_an_answer_that_a_person_stops_the_text_is_kept_and_nothing_else() -> None:
    run = MachineHarness()
    run.stream(
        ReasoningPiece("hm", "proof"), TextPiece("well, "), TextPiece(""), CallPiece(0, "w", "look", "{")
    )
    run.interrupt()
    assert (run.label, run.got(requests.Cancel)) == ("streaming.stopping", [requests.Cancel(request="r-1")])
    run.fail(Failure.CANCELLED)
    (kept,) = run.got(notices.AnswerKept)
    assert [type(part).__name__ for part in kept.message.parts] == ["Text", "Finish"]
    assert run.machine.memory.history[-1] == kept.message
    assert (run.reason, run.talk[-1]) == ("interrupted", ("assistant", "well, "))


def test_of_an_answer_that_a_person_stops_before_any_text_nothing_is_kept() -> None:
    run = MachineHarness()
    run.stream(TextPiece(""), ReasoningPiece("hm", "proof"))
    run.interrupt()
    run.fail(Failure.CANCELLED)
    assert (run.got(notices.AnswerKept), run.talk) == ([], [("user", "hello")])


def test_who_interrupts_twice_does_not_wait() -> None:
    run = run_at("streaming")
    run.interrupt()
    run.interrupt()
    assert (run.reason, run.talk[-1]) == ("interrupted", ("assistant", "well, "))
    assert run.machine.memory.spent.usage.estimated > 0


def test_a_steer_that_cannot_wait_cuts_the_answer_and_is_answered() -> None:
    run = run_at("streaming")
    run.steer("left", Steering.NOW)
    assert run.got(requests.Cancel) == [requests.Cancel(request="r-1")]
    run.steer("no, right", Steering.NOW)
    assert run.got(requests.Cancel) == []
    run.fail(Failure.CANCELLED)
    assert run.label == "streaming"
    assert [text for _, text in run.talk[1:]] == ["well, ", "left", "no, right"]


def test_an_interrupt_after_a_steer_cancels_nothing_twice_and_ends_the_run() -> None:
    run = run_at("streaming, mail waits")
    run.steer("now", Steering.NOW)
    run.interrupt()
    assert (run.got(requests.Cancel), len(run.got(notices.InterruptRequested))) == ([], 1)
    run.fail(Failure.CANCELLED)
    assert run.reason == "interrupted"


# What an answer has in it


@pytest.mark.parametrize("stop", [StopReason.UNKNOWN, StopReason.REFUSAL])
def test_an_odd_end_is_told(stop: StopReason) -> None:
    run = MachineHarness()
    run.say("well", stop=stop)
    assert run.got(notices.Warned) == [
        notices.Warned(text=f"the model's answer ended with {stop}", at=run.now)
    ]


def test_calls_that_are_left_out_are_named() -> None:
    run = MachineHarness()
    run.say(*[CallPiece(n, "", "", "{}") for n in range(2)], *[call(2, "look", path="a")])
    told = "calls left out of an answer that ended with tool_use: (no name), (no name)"
    assert [one.text for one in run.got(notices.Warned)] == [told]
    run = MachineHarness()
    run.say("well", *[CallPiece(n, "", "fly", "{}") for n in range(12)], stop=StopReason.END_TURN)
    told = f"calls left out of an answer that ended with end_turn: {', '.join(['fly'] * 10)} and 2 more"
    assert [one.text for one in run.got(notices.Warned)] == [told]
    run = MachineHarness()
    run.say("well", *[CallPiece(n, "", "fly", "{}") for n in range(10)], stop=StopReason.END_TURN)
    assert [one.text.endswith("fly") for one in run.got(notices.Warned)] == [True]


def test_of_an_answer_with_too_many_calls_the_first_are_kept() -> None:
    run = MachineHarness()
    run.say(*[call(n, "look", path=str(n)) for n in range(129)])
    assert len(run.machine.memory.history[-1].calls) == 128
    assert [one.text[-6:] for one in run.got(notices.Warned)] == [": look"]


def test_an_answer_that_says_nothing_is_a_turn_and_no_message() -> None:
    for said in ((), (TextPiece(""),), (ReasoningPiece("hm"),)):
        run = MachineHarness()
        run.say(*said)
        assert (run.reason, run.machine.memory.spent.turns, run.talk) == ("end_turn", 1, [("user", "hello")])
        (ended,) = run.got(notices.TurnEnded)
        assert (ended.turn, ended.calls) == (1, ())


def test_a_watcher_sees_text_thought_and_calls_and_nothing_that_is_empty() -> None:
    run = MachineHarness()
    run.stream(
        TextPiece("a"),
        TextPiece(""),
        ReasoningPiece("b"),
        ReasoningPiece("", "proof"),
        CallPiece(0, "w", "look", ""),
        CallPiece(0, "w", "", "{}"),
        CallPiece(0, "w"),
    )
    assert run.effects == (
        notices.TextDelta("a", at=run.now),
        notices.ReasoningDelta("b", at=run.now),
        notices.CallDelta(0, "look", "", at=run.now),
        notices.CallDelta(0, "", "{}", at=run.now),
    )


def test_no_tool_runs_that_the_request_did_not_offer_or_its_performer_left_out() -> None:
    run = MachineHarness()
    name = run.machine.state.open[0]
    said = (*calls("look", "note"),)
    run.feed(
        events.ModelFinished(
            at=1.0,
            request=name,
            stop=StopReason.TOOL_USE,
            usage=Usage(input=1),
            pieces=said,
            offered=("note", "other"),
        )
    )
    assert run.started == ["note"]
    run.end("note")
    assert [(tool, outcome) for tool, outcome in run.outcomes] == [("look", "error"), ("note", "ok")]


SEARCHED = ProviderCall(
    id="ws", name="look", arguments='{"query": "x"}', status="completed", result="[]", opaque="{}"
)
SOURCE = Citation(url="https://a.example", title="A", start=0, end=5, quote="x", opaque="{}")


def test_what_a_provider_ran_itself_is_told_once_and_is_no_call() -> None:
    run = MachineHarness()
    run.stream(SEARCHED, TextPiece("It is"))
    assert run.effects == (
        notices.ProviderCalled(
            id="ws",
            tool="look",
            arguments='{"query": "x"}',
            status="completed",
            result="[]",
            at=run.now,
        ),
        notices.TextDelta("It is", at=run.now),
    )
    run.say(SOURCE, " so.")
    assert [told.tool for told in run.all(notices.ProviderCalled)] == ["look"]
    assert run.got(notices.SourceCited) == [
        notices.SourceCited(url="https://a.example", title="A", start=0, end=5, quote="x", at=run.now)
    ]
    (ended,) = run.got(notices.TurnEnded)
    finish = Finish(reason=StopReason.END_TURN)
    assert ended.message.parts == (SEARCHED, Text(text="It is"), SOURCE, Text(text=" so."), finish)
    assert (ended.message.provider_calls, ended.message.citations) == ((SEARCHED,), (SOURCE,))
    # No tool is run and nobody is asked, though a tool of the agent has the same name.
    assert (ended.calls, run.reason) == ((), "end_turn")
    for kind in (notices.CallJudged, notices.ToolStarted, notices.ApprovalRequested, requests.RunTool):
        assert run.all(kind) == []
    assert run.machine.memory.history[-1] == ended.message


def test_what_a_provider_ran_is_void_with_its_answer_which_is_asked_for_again() -> None:
    run = MachineHarness()
    run.stream(SEARCHED)
    run.fail(Failure.SERVER)
    assert [*map(type, run.got(notices.AnswerDropped))] == [notices.AnswerDropped]
    assert len(run.got(notices.RetryScheduled)) == 1


def test_what_a_provider_ran_without_a_word_is_no_message() -> None:
    run = MachineHarness()
    run.say(SEARCHED)
    (ended,) = run.got(notices.TurnEnded)
    assert ended.message.provider_calls == (SEARCHED,)
    assert run.talk == [("user", "hello")]


def test_what_a_provider_ran_goes_through_a_journal_as_it_is() -> None:
    event = events.ModelStreamed(at=1.0, request="r-1", before=0, count=2, pieces=(SEARCHED, SOURCE))
    assert decode(encode(event, events.Event), events.Event, "this event") == event


def test_the_stop_sequence_that_ended_an_answer_is_kept_and_told() -> None:
    run = MachineHarness()
    run.feed(
        events.ModelFinished(
            at=1.0,
            request=run.machine.state.open[0],
            stop=StopReason.STOP_SEQUENCE,
            usage=Usage(input=1),
            pieces=(TextPiece("well"),),
            sequence="END",
        )
    )
    (ended,) = run.got(notices.TurnEnded)
    assert (ended.sequence, ended.message.parts[-1]) == (
        "END",
        Finish(reason=StopReason.STOP_SEQUENCE, sequence="END"),
    )
    assert (run.reason, run.machine.memory.history[-1]) == ("stop_sequence", ended.message)


@pytest.mark.parametrize("cut", [True, False])
def test_whole_calls_of_an_answer_that_was_cut_get_their_results(*, cut: bool) -> None:
    stop = StopReason.MAX_TOKENS if cut else StopReason.REFUSAL
    run = MachineHarness(config(policy=Policy(on_max_tokens=OnMaxTokens.STOP)))
    run.say("well", *calls("look"), stop=stop)
    assert (run.reason, run.outcomes) == ("max_tokens" if cut else "refusal", [("look", "skipped")])
    assert [content for _, _, content in run.results] == [model_messages.CUT_OFF]


def test_whole_calls_of_an_answer_that_a_person_stopped_are_cancelled() -> None:
    run = MachineHarness()
    run.interrupt()
    run.say(*calls("look"))
    assert (run.reason, run.outcomes) == ("interrupted", [("look", "cancelled")])
    run = MachineHarness()
    run.steer("left", Steering.NOW)
    run.say(*calls("look"))
    assert (run.label, run.outcomes) == ("streaming", [("look", "skipped")])


# Hooks at the ends of a run

STOP = HookSpec(name="stop", hook=Hook.STOP)


def test_a_hook_makes_a_run_go_on_only_so_often() -> None:
    run = MachineHarness(config(hooks=(STOP,), policy=Policy(continues=2)))
    for count in range(2):
        run.say("done")
        assert json.loads(run.got(requests.FireHook)[0].payload) == {"reason": "end_turn", "continued": count}
        run.answer(HookAnswer(go_on=True, reason="more"))
        assert (run.label, run.machine.memory.progress.continues) == ("streaming", count + 1)
    run.say("done")
    assert (run.reason, run.asked) == ("end_turn", [])
    told = "hooks made this run go on 2 times; it ends now"
    assert run.got(notices.Warned) == [notices.Warned(text=told, at=run.now)]


@pytest.mark.parametrize("agent", ["", "kid"])
def test_the_end_of_a_child_has_a_hook_of_its_own(agent: str) -> None:
    hooks = (STOP, HookSpec(name="sub", hook=Hook.SUBAGENT_STOP))
    run = MachineHarness(config(hooks=hooks, agent=agent))
    run.say("done")
    assert run.asked == [("subagent_stop", ("sub",)) if agent else ("stop", ("stop",))]


def test_only_an_end_of_its_own_accord_asks_hooks() -> None:
    run = MachineHarness(config(hooks=(STOP,), limits=Limits(turns=1)))
    run.work(*calls("look"))
    assert (run.reason, run.all(requests.FireHook)) == ("max_turns", [])


def test_a_steer_that_came_while_hooks_thought_about_the_end_is_answered() -> None:
    run = MachineHarness(config(hooks=(STOP,)))
    run.say("done")
    run.steer("left")
    run.answer()
    assert (run.label, run.talk[-1]) == ("streaming", ("user", "left"))


PORTER = HookSpec(name="porter", hook=Hook.USER_PROMPT_SUBMIT)


def test_a_steer_that_is_blocked_ends_nothing_though_a_prompt_waits() -> None:
    """That is for the next run."""
    run = MachineHarness(config(hooks=(PORTER,)))
    run.answer()
    run.send("more")
    run.say(*calls("note"))
    run.steer("left")
    run.end("note")
    run.answer(HookAnswer(verdict="deny", reason="not now"))
    assert run.label == "streaming"
    assert [mail.text for mail in run.machine.memory.session.mail] == ["more"]


def test_a_prompt_that_is_blocked_ends_its_run() -> None:
    run = MachineHarness(config(hooks=(PORTER,)))
    run.answer(HookAnswer(verdict="deny", reason="not now"))
    (blocked,), (ended,) = run.got(notices.InputBlocked), run.got(notices.RunEnded)
    assert (run.reason, blocked.reason, ended.detail) == ("blocked", "porter: not now", "porter: not now")
    assert run.machine.memory.session.mail == ()


@pytest.mark.parametrize("most", [None, 50_000])
def test_an_answer_is_bounded_by_the_budget_where_its_model_would_give_more(most: int | None) -> None:
    model = ModelSpec(name="wire:model", max_output=most)
    run = MachineHarness(config(model=model, limits=Limits(tokens=5_000)))
    (asked,) = run.got(requests.CallModel)
    assert asked.max_output is not None
    assert 4_000 < asked.max_output < 5_000


# Summaries


def filled(window: int = 1_000, **settings: Any) -> MachineHarness:
    """A run whose *window* is full of something old."""
    model = ModelSpec(name="wire:model", window=window)
    run = MachineHarness(config(model=model, **settings), "it " * window)
    run.say(*calls("note"), usage=Usage(input=9 * window // 10))
    run.end("note")
    return run


@pytest.mark.parametrize("place", ["compacting.consulting", "compacting.pausing"])
def test_an_interrupt_ends_the_wait_for_a_summary(place: str) -> None:
    run = run_at(place)
    waited = run.machine.state.open
    run.interrupt()
    assert [one.request for one in run.got(requests.Cancel)] == [*waited]
    assert (run.reason, len(run.got(notices.InterruptRequested))) == ("interrupted", 1)


def test_a_summary_that_is_interrupted_is_paid_for_as_it_ends_or_at_the_second_time_as_estimated() -> None:
    run = run_at("compacting.summary")
    before = run.machine.memory.spent.usage.total
    run.interrupt()
    assert (run.label, len(run.got(requests.Cancel))) == ("compacting.stopping", 1)
    run.say("they talked", usage=Usage(input=50, output=5))
    assert (run.reason, run.machine.memory.spent.usage.total - before) == ("interrupted", 55)
    run = run_at("compacting.summary")
    run.interrupt()
    run.interrupt()
    assert (run.reason, run.got(requests.Cancel)) == ("interrupted", [])
    assert run.machine.memory.spent.usage.estimated > 100


@pytest.mark.parametrize(
    ("said", "stop", "why"),
    [
        ("", StopReason.END_TURN, "the summary was empty"),
        (" \n ", StopReason.END_TURN, "the summary was empty"),
        ("long " * 800, StopReason.END_TURN, "the summary was not smaller than what it was to replace"),
        ("half", StopReason.MAX_TOKENS, "the summary ended with max_tokens"),
        ("no", StopReason.REFUSAL, "the summary ended with refusal"),
    ],
)
def test_what_is_no_summary_takes_the_place_of_nothing(said: str, stop: StopReason, why: str) -> None:
    run = filled()
    before = run.machine.memory.history
    run.say(said, stop=stop)
    assert run.got(notices.CompactionFailed) == [notices.CompactionFailed(reason=why, at=run.now)]
    assert run.machine.memory.history == before
    assert (run.label, run.machine.memory.session.compaction_failures) == ("streaming", 1)


def test_a_summary_is_asked_for_once_and_again_when_an_answer_has_come() -> None:
    run = filled()
    (started,) = run.all(notices.CompactionStarted)
    assert (started.size, started.reason) == (run.machine.memory.conversation.size, "threshold")
    run.say("long " * 800)
    for failures in (2, 3):
        run.say(*calls("note"), usage=Usage(input=900))
        run.end("note")
        assert run.label == "compacting.summary"
        run.say("")
        assert (run.label, run.machine.memory.session.compaction_failures) == ("streaming", failures)
    run.say(*calls("note"), usage=Usage(input=900))
    run.end("note")
    assert (run.label, run.machine.memory.session.compaction_failures) == ("streaming", 3)


def test_a_summary_that_is_too_much_to_read_is_tried_of_half_as_much() -> None:
    run = filled(8_000, compaction=Compaction(tokens=100))
    limits: list[int] = []
    while run.label == "compacting.summary":
        (asked,) = run.got(requests.CallModel)
        assert isinstance(asked.view, requests.Transcript)
        limits.append(asked.view.limit)
        assert (asked.attempt, asked.max_output, asked.tools) == (len(limits), 100, ())
        fails(run, Failure.OVERFLOW)
    assert limits[0] == 6_300
    assert limits[2] == limits[1] // 2
    assert len(limits) == 3
    assert len(run.all(notices.CompactionStarted)) == 1
    assert [one.reason for one in run.all(notices.CompactionFailed)] == ["overflow: as told"]


@pytest.mark.parametrize("failure", [Failure.LOST, Failure.UNBEGUN])
def test_a_summary_that_was_lost_is_asked_for_again_and_has_not_failed(failure: Failure) -> None:
    run = filled()
    fails(run, failure)
    assert (run.label, len(run.got(requests.CallModel))) == ("compacting.summary", 1)
    assert run.machine.memory.session.compaction_failures == 0
    fails(run, failure, should_retry=False)
    assert (run.label, run.machine.memory.session.compaction_failures) == ("streaming", 1)


@pytest.mark.parametrize(
    ("wait", "label"), [(None, "compacting.pausing"), (10.0, "compacting.pausing"), (10.1, "streaming")]
)
def test_a_summary_that_need_not_be_is_not_waited_for_as_an_answer_is(wait: float | None, label: str) -> None:
    run = filled(retries=Retries(fallback_after=10.0))
    fails(run, Failure.SERVER, retry_after=wait)
    assert run.label == label


def test_a_steer_that_cannot_wait_ends_the_pause_before_a_summary() -> None:
    run = run_at("compacting.pausing")
    (timer,) = run.machine.state.open
    run.steer("left", Steering.NOW)
    assert run.got(requests.Cancel) == [requests.Cancel(request=timer)]
    assert (run.label, [one.attempt for one in run.got(requests.CallModel)]) == ("compacting.summary", [2])


@pytest.mark.parametrize(("message", "told"), [("as told", " (as told)"), ("", "")])
def test_a_conversation_that_is_refused_for_its_size_is_shortened_by_what_it_is_and_twice_at_most(
    message: str, told: str
) -> None:
    """Its window is smaller than it was taken for."""
    run = MachineHarness(config(loops=Loops.never()))
    for number in range(40):
        run.say(call(0, "look", path=str(number)), usage=Usage())
        run.end("look", "word " * 40)
    for _ in range(2):
        fails(run, Failure.OVERFLOW, message)
        assert run.label == "compacting.summary"
        run.say("they talked", usage=Usage())
        assert run.label == "streaming"
    fails(run, Failure.OVERFLOW, message)
    assert run.reason == "error"
    (ended,) = run.got(notices.RunEnded)
    assert ended.detail == (
        f"the conversation is larger than the model's window, and a summary was tried just before{told}"
    )


COACH = HookSpec(name="coach", hook=Hook.PRE_COMPACT)


def test_hooks_say_what_a_summary_is_to_have_or_that_there_is_to_be_none() -> None:
    run = filled(hooks=(COACH,))
    assert json.loads(run.got(requests.FireHook)[0].payload) == {
        "reason": "threshold",
        "size": run.machine.memory.conversation.size,
    }
    run.answer(HookAnswer(context="keep the names"))
    (asked,) = run.got(requests.CallModel)
    assert asked.instructions.endswith("\nkeep the names")
    run = filled(hooks=(COACH,))
    run.answer(HookAnswer(verdict="deny", reason="not now"))
    (failed,) = run.got(notices.CompactionFailed)
    assert (failed.reason.endswith("not now"), run.label) == (True, "streaming")
    assert run.machine.memory.session.compaction_failures == 0
    run = filled(hooks=(COACH,))
    run.answer(HookAnswer(verdict="deny", interrupt=True, reason="stop it"))
    assert (run.reason, len(run.got(notices.InterruptRequested))) == ("interrupted", 1)
    ended = run.got(notices.RunEnded)[0]
    assert "stop it" in ended.detail


def test_a_summary_is_made_by_the_model_that_is_configured_for_it_at_its_price() -> None:
    other = ModelSpec(name="wire:small", window=500, price=Price(input=1, output=1))
    run = filled(models=(other,), compaction=Compaction(model="wire:small", tokens=100))
    (asked,) = run.got(requests.CallModel)
    assert (asked.model, asked.purpose) == ("wire:small", requests.Purpose.SUMMARY)
    assert isinstance(asked.view, requests.Transcript)
    assert asked.view.limit == 300
    before = run.machine.memory.spent
    run.say("they talked", usage=Usage(input=1_000_000))
    used = run.machine.memory.spent - before
    assert (float(used.cost), used.turns, used.unpriced) == (1.0, 0, 0)


@pytest.mark.parametrize(
    ("thinking", "answer", "thinks"),
    [(2_000, 2_000, False), (2_000, 2_001, True), (10, 1_024, False), (10, 1_025, True)],
)
def test_a_model_thinks_where_that_leaves_room_for_its_answer(
    thinking: int, answer: int, *, thinks: bool
) -> None:
    """However little it may think, providers ask for so much room."""
    spec = ModelSpec(name="wire:model", max_output=4_000, thinking=thinking)

    def asked(tokens: int) -> requests.CallModel:
        (request,) = MachineHarness(config(model=spec, limits=Limits(tokens=tokens))).got(requests.CallModel)
        return request

    asks = 3_000 - (asked(3_000).max_output or 0)
    request = asked(asks + answer)
    assert (request.max_output, request.thinking) == (answer, thinking if thinks else None)


@pytest.mark.parametrize("policy", OnMaxTokens)
@pytest.mark.parametrize("size", [100, 900])
def test_an_answer_that_was_cut_is_gone_on_with_after_a_summary_by_policy(
    policy: OnMaxTokens, size: int
) -> None:
    run = MachineHarness(
        config(
            model=ModelSpec(name="wire:model", window=1_000),
            policy=Policy(on_max_tokens=policy),
            compaction=Compaction(keep=0.01),
        ),
        "do it " * 200,
    )
    run.say("well, " * 9, stop=StopReason.MAX_TOKENS, usage=Usage(input=size))
    compacts = policy is OnMaxTokens.COMPACT or (policy is OnMaxTokens.COMPACT_OVER_THRESHOLD and size == 900)
    assert run.label == ("compacting.summary" if compacts else "done")
    if not compacts:
        assert run.reason == "max_tokens"
        return
    run.say("they talked")
    assert (run.label, run.talk[-1][0]) == ("streaming", "user")
    assert run.talk[-1][1] == model_messages.CONTINUE
