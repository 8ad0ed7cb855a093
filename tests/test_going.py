"""What stands between an agent and its next model call, in which order, and what takes a model's place."""

from __future__ import annotations

import attrs
import pytest

from turnwheel.effects.config import (
    Compaction,
    Config,
    Limits,
    Loops,
    ModelSpec,
    OnMaxTokens,
    Policy,
    Price,
    Retries,
    Steering,
    window_of,
)
from turnwheel.effects.errors import ConfigError
from turnwheel.effects.events import Deny, Failure, ModelFailed
from turnwheel.effects.hooks import Hook, HookAnswer, HookSpec
from turnwheel.effects.messages import StopReason
from turnwheel.effects.notices import (
    Compacted,
    CompactionFailed,
    CompactionStarted,
    DoneReason,
    FallbackUsed,
    LoopDetected,
    LoopStage,
    ResultsCleared,
    RetryScheduled,
    RunEnded,
)
from turnwheel.effects.pieces import TextPiece
from turnwheel.effects.records import SetModel
from turnwheel.effects.requests import (
    CallModel,
    Cancel,
    Conversation,
    SetTimer,
    Transcript,
)
from turnwheel.effects.usage import Spent, Usage
from turnwheel.engine.journal.entries import RunOpened
from turnwheel.engine.machine import Machine
from turnwheel.states.rules.retry import wait
from turnwheel.states.rules.token_estimates import history_size
from turnwheel.states.state import Done
from turnwheel.testing.harness import MachineHarness, call, config

OTHER = ModelSpec(name="wire:other", window=50_000)
LONG = "a line of a file\n" * 100
"""A result that is worth leaving out, of 425 tokens."""


def with_fallback(failed: int = 3) -> MachineHarness:
    """A run with another model to fall back on."""
    settings = config(models=(OTHER,), fallback="wire:other", retries=Retries(failed=failed))
    return MachineHarness(settings)


def asked(run: MachineHarness) -> CallModel:
    """The model call that the last event led to."""
    (request,) = run.got(CallModel)
    return request


def reads(run: MachineHarness, count: int) -> None:
    """So many turns in each of which a different file is read."""
    for number in range(count):
        run.say(call(0, "look", path=f"{number} of {run.now}"))
        run.end("look", LONG)


# The model that takes over


def test_another_model_takes_over_when_tries_are_spent() -> None:
    """At once, and its own tries begin anew."""
    run = with_fallback(failed=1)
    run.fail(Failure.SERVER)
    (timer,) = run.got(SetTimer)
    run.wake(timer.due)
    run.fail(Failure.SERVER)
    assert run.got(FallbackUsed) == [
        FallbackUsed(model="wire:other", instead_of="wire:model", failure=Failure.SERVER, message="as told")
    ]
    assert (asked(run).model, asked(run).attempt, run.label) == ("wire:other", 1, "streaming")
    run.say("here I am")
    assert run.reason == "end_turn"


@pytest.mark.parametrize(
    ("retry_after", "label"), [(10.0, "thinking.retry"), (10.5, "streaming"), (None, "thinking.retry")]
)
def test_another_model_takes_over_rather_than_wait_long(retry_after: float | None, label: str) -> None:
    """Ten seconds are waited for; more are not, where somebody else can answer."""
    run = with_fallback()
    run.fail(Failure.RATE_LIMIT, retry_after=retry_after)
    assert run.label == label


@pytest.mark.parametrize(
    ("failure", "taken_over"),
    [
        (Failure.NOT_FOUND, True),
        (Failure.AUTH, True),
        (Failure.BAD_REQUEST, False),
        (Failure.INTERNAL, False),
        (Failure.CANCELLED, False),
    ],
)
def test_another_model_takes_over_where_that_may_help(failure: Failure, *, taken_over: bool) -> None:
    """What the request itself is wrong in would be wrong there too."""
    run = with_fallback()
    run.fail(failure)
    assert bool(run.got(FallbackUsed)) is taken_over
    assert run.reason == ("" if taken_over else "error")


def test_nothing_is_replayed_of_which_something_was_seen() -> None:
    """A second answer would be another one than the one whose beginning was shown."""
    run = with_fallback()
    run.stream(TextPiece("I think"))
    run.fail(Failure.CUT)
    assert (run.got(FallbackUsed), run.reason) == ([], "error")


def test_there_is_one_switch_in_a_run() -> None:
    """Where the other model fails too, the run fails."""
    run = with_fallback(failed=0)
    run.fail(Failure.SERVER)
    run.fail(Failure.SERVER)
    assert (run.got(FallbackUsed), run.reason) == ([], "error")


def test_the_next_run_begins_with_its_own_model() -> None:
    """What failed an hour ago may be well again; what a person chose stays chosen."""
    run = with_fallback(failed=0)
    run.fail(Failure.SERVER)
    run.say("done")
    opened = RunOpened(at=9.0, run="r2", config=run.machine.config)
    machine = Machine.open(opened, run.machine)
    assert (machine.memory.session.model, machine.memory.progress.fallback) == ("wire:model", "")


def test_who_chooses_a_model_gets_it() -> None:
    """Also after another one took over."""
    run = with_fallback(failed=0)
    run.fail(Failure.SERVER)
    run.change(SetModel(model="wire:model"))
    run.say(call(0, "note", path="a"))
    run.end("note")
    assert asked(run).model == "wire:model"


def test_the_window_of_the_model_that_took_over_counts() -> None:
    """A conversation that fills it is summarised before it is asked."""
    small = ModelSpec(name="wire:other", window=1_000)
    settings = config(models=(small,), fallback="wire:other", retries=Retries(overloaded=0))
    run = MachineHarness(settings, "do it " * 200)
    run.say(call(0, "note", path="a"), usage=Usage(input=900))
    run.end("note")
    run.fail(Failure.OVERLOADED)
    assert run.label == "compacting.summary"
    assert asked(run).model == "wire:other"


def test_a_fallback_is_one_of_the_models() -> None:
    """The error names the value and what there is."""
    with pytest.raises(
        ConfigError, match=r"fallback must be the name of one of .*\['wire:model'\].*'nobody'"
    ):
        config(fallback="nobody")


# Old results


def test_old_results_are_left_out_in_leaps() -> None:
    """The sixteenth result makes all but the last five go; ten more come before the next leap."""
    run = MachineHarness()
    reads(run, 15)
    assert asked(run).view == Conversation(revision=0, length=31)
    reads(run, 1)
    assert run.got(ResultsCleared) == [ResultsCleared(count=11, tokens=11 * 410)]
    assert asked(run).view == Conversation(revision=0, length=33, cleared=23)
    memory = run.machine.memory
    assert (memory.conversation.cleared, memory.conversation.results) == (23, 5)
    reads(run, 10)
    assert asked(run).view == Conversation(revision=0, length=53, cleared=23)


def test_what_is_left_out_makes_the_conversation_smaller() -> None:
    """So a summary may not be needed."""
    settings = config(
        model=ModelSpec(name="wire:model", window=10_000), compaction=Compaction(clear_over=3, clear_keep=1)
    )
    run = MachineHarness(settings)
    reads(run, 30)
    assert run.all(CompactionStarted) == []
    assert history_size(run.machine.memory.history) > 10_000


def test_results_that_no_model_has_seen_are_never_left_out() -> None:
    """However many calls one answer has."""
    run = MachineHarness(config(compaction=Compaction(clear_over=1, clear_keep=0)))
    run.say(*[call(number, "look", path=str(number)) for number in range(4)])
    for _ in range(4):
        run.end("look", LONG)
    assert asked(run).view == Conversation(revision=0, length=3)
    reads(run, 1)
    assert asked(run).view == Conversation(revision=0, length=5, cleared=3)


# In circles


def test_a_model_that_repeats_itself_is_told_then_kept_from_it_then_stopped() -> None:
    """Each stage is explained to whoever watches, and the first two to the model."""
    run = MachineHarness()
    stages: list[tuple[LoopStage, int]] = []
    for _ in range(12):
        offered = "look" in asked(run).tools
        run.say(call(0, "look", path="a") if offered else call(0, "peek", path=str(run.now)))
        run.end("look") if offered else run.decide("peek", Deny())
        stages += [(each.stage, each.count) for each in run.got(LoopDetected)]
        if run.reason:
            break
    assert [stage for stage, _ in stages if stage is not LoopStage.WARNED] == [
        LoopStage.WITHDRAWN,
        LoopStage.STOPPED,
    ]
    assert run.reason == "loop_detected"
    assert "look" in run.got(RunEnded)[0].detail


# The budget of a session


def test_the_runs_of_a_session_share_its_budget() -> None:
    """A run that begins with it used up makes no call."""
    settings = config(session_limits=Limits(tokens=100))
    first = MachineHarness(settings)
    first.say("done", usage=Usage(input=90, output=20))
    assert first.reason == "end_turn"
    opened = RunOpened(at=9.0, run="r2", config=settings)
    second = Machine.open(opened, first.machine)
    effects = second.advance()
    assert [type(each) for each in effects if isinstance(each, CallModel)] == []
    assert second.memory.earlier == first.machine.memory.spent
    assert second.done
    assert isinstance(second.state, Done)
    assert second.state.reason is DoneReason.TOKEN_BUDGET


# A summary that does not come at once


def narrow(**settings: object) -> MachineHarness:
    """A run with a small window, in which a summary has just been asked for."""
    model = ModelSpec(name="wire:model", window=4_000)
    run = MachineHarness(config(model=model, loops=Loops.never(), **settings), "do it " * 1_200)
    run.say(call(0, "note", path="a"), usage=Usage(input=3_900))
    run.end("note")
    assert run.label == "compacting.summary"
    return run


def test_a_summary_is_tried_again_later() -> None:
    """As any call of a model is; whoever watches sees for how long."""
    run = narrow(retries=Retries(base=2.0, failed=1))
    first = asked(run)
    run.fail(Failure.SERVER)
    (timer,) = run.got(SetTimer)
    (told,) = run.got(RetryScheduled)
    assert (run.label, told.due, told.attempt, timer.due) == ("compacting.pausing", run.now + 2, 2, told.due)
    run.wake(timer.due)
    again = asked(run)
    assert again == attrs.evolve(first, id=again.id, attempt=2)
    assert run.got(CompactionStarted) == []
    run.fail(Failure.SERVER)
    assert (run.label, len(run.got(CompactionFailed))) == ("streaming", 1)


def test_a_wait_for_a_summary_can_be_interrupted() -> None:
    """Nobody waits for a timer who wants to stop."""
    run = narrow()
    run.fail(Failure.RATE_LIMIT, retry_after=9.0)
    run.interrupt()
    assert run.reason == "interrupted"


def test_a_summary_of_too_much_is_tried_of_half_of_it() -> None:
    """Three times at most; what is left out is taken from the middle."""
    run = narrow()
    limits = []
    while run.label == "compacting.summary":
        view = asked(run).view
        assert isinstance(view, Transcript)
        limits.append(view.limit)
        run.fail(Failure.OVERFLOW)
    assert limits == [1_000, 500, 250]
    assert len(run.got(CompactionFailed)) == 1


def test_another_model_can_summarise() -> None:
    """In as many tokens as it may, and of as much as it can read; its price is what counts."""
    scribe = ModelSpec(name="wire:other", window=50_000, price=Price(input=1, output=1))
    run = narrow(models=(scribe,), compaction=Compaction(model="wire:other", tokens=500))
    request = asked(run)
    assert (request.model, request.max_output) == ("wire:other", 500)
    assert request.view == Transcript(revision=0, length=1, limit=39_500)
    run.say("it was asked to do it", usage=Usage(input=600, output=400))
    assert run.machine.memory.spent.cost == Spent(cost=run.machine.memory.spent.cost).cost
    assert str(run.machine.memory.spent.cost) == "0.001"
    assert len(run.got(Compacted)) == 1
    assert asked(run).model == "wire:model"


def test_hooks_are_heard_at_every_try_of_a_summary() -> None:
    """What they wish for is asked for again."""
    hooks = (HookSpec(name="clerk", hook=Hook.PRE_COMPACT),)
    model = ModelSpec(name="wire:model", window=4_000)
    run = MachineHarness(config(model=model, hooks=hooks), "do it " * 1_200)
    run.say(call(0, "note", path="a"), usage=Usage(input=3_900))
    run.end("note")
    run.answer(HookAnswer(context="keep all names"))
    run.fail(Failure.SERVER)
    (timer,) = run.got(SetTimer)
    run.wake(timer.due)
    assert asked(run).instructions.endswith("keep all names")


# What a conversation holds of a long result


def test_of_a_long_result_the_beginning_and_the_end_stay() -> None:
    """Who watches sees it whole."""
    run = MachineHarness(config(compaction=Compaction(result_limit=1_000)))
    run.say(call(0, "look", path="a"))
    run.end("look", "a" * 600 + "b" * 600)
    ((_, _, content),) = run.results
    assert content.startswith("a" * 100 + "\n[... 1000 of 1200 characters are left out ...]\n")
    assert content.endswith("\n" + "b" * 100)


def test_a_result_at_its_limit_stays_whole() -> None:
    """To the character."""
    run = MachineHarness(config(compaction=Compaction(result_limit=1_000)))
    run.say(call(0, "look", path="a"))
    run.end("look", "a" * 1_000)
    assert run.results == [("look", "ok", "a" * 1_000)]


# How much a model can read


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("openai:gpt-5-mini", 272_000),
        ("gpt-4o", 128_000),
        ("anthropic:claude-sonnet-4-5", 200_000),
        ("openai:anthropic/claude-sonnet-4", 200_000),
        ("qwen3:8b", 200_000),
        ("somebody's own", 200_000),
    ],
)
def test_a_window_is_what_is_known_of_a_name(name: str, window: int) -> None:
    """Whoever resells it; what is configured wins."""
    assert ModelSpec(name=name).window == window_of(name) == window
    assert ModelSpec(name=name, window=7).window == 7


def test_policies_and_settings_agree_on_when_to_shorten() -> None:
    """A cut-off answer under its threshold does not lead to a summary by default."""
    run = MachineHarness(Config(model=OTHER, policy=Policy(on_max_tokens=OnMaxTokens.COMPACT_OVER_THRESHOLD)))
    run.say("and so", stop=StopReason.MAX_TOKENS)
    assert run.reason == "max_tokens"


def test_a_summary_that_nothing_forces_is_not_waited_for_long() -> None:
    """The run goes on with the conversation as it is."""
    run = narrow()
    run.fail(Failure.RATE_LIMIT, retry_after=300.0)
    assert (run.label, len(run.got(CompactionFailed))) == ("streaming", 1)


def test_who_cannot_wait_ends_the_wait_for_a_summary() -> None:
    """It is asked for again at once, and then comes what was said."""
    run = narrow()
    run.fail(Failure.SERVER)
    run.steer("now", Steering.NOW)
    assert (run.label, run.got(Cancel) != []) == ("compacting.summary", True)
    run.say("it was asked to do it")
    assert [message.text for message in run.machine.memory.history][-1] == "now"


def test_another_model_summarises_where_the_first_one_cannot() -> None:
    """And answers after that: one switch a run."""
    alike = ModelSpec(name="wire:other", window=4_000)
    run = narrow(models=(alike,), fallback="wire:other", retries=Retries(failed=0))
    run.fail(Failure.SERVER)
    assert (run.label, asked(run).model, len(run.got(FallbackUsed))) == (
        "compacting.summary",
        "wire:other",
        1,
    )
    run.say("it was asked to do it")
    assert asked(run).model == "wire:other"


def test_another_model_that_can_read_more_needs_no_summary() -> None:
    """It goes on with the conversation as it is."""
    run = narrow(models=(OTHER,), fallback="wire:other", retries=Retries(failed=0))
    run.fail(Failure.SERVER)
    assert (run.label, asked(run).model) == ("streaming", "wire:other")


def test_a_conversation_with_nothing_old_is_left_alone() -> None:
    """However large what stands around it: that is no failure, and later there will be something."""
    run = MachineHarness(config(model=ModelSpec(name="wire:model", window=4_000)))
    for _ in range(4):
        run.say(call(0, "note", path=str(run.now)), usage=Usage(input=3_900))
        run.end("note")
        assert run.label == "streaming"
    assert run.machine.memory.session.compaction_failures == 0
    for path in ("b" * 6_000, "c"):
        run.say(call(0, "note", path=path), usage=Usage(input=3_900))
        run.end("note")
    assert run.label == "compacting.summary"


def test_more_may_not_stay_than_there_is_when_it_is_shortened() -> None:
    """The error says what is accepted."""
    with pytest.raises(ConfigError, match=r"compaction\.keep must be less than policy\.compact_at, 0\.8"):
        config(compaction=Compaction(keep=0.8))


def test_a_wait_is_as_long_as_the_longest_at_most() -> None:
    """Whatever is doubled however often."""
    failed = ModelFailed(at=0.0, request="r", failure=Failure.OVERLOADED, message="", jitter=1.0)
    retries = Retries(overloaded=5_000, longest=60.0)
    assert [wait(retries, failed, attempt) for attempt in (1, 5, 6, 2_000)] == [2.4, 38.4, 60.0, 60.0]
    assert wait(Retries(overloaded=5_000, longest=None, base=0.0), failed, 4_000) == 0.0
