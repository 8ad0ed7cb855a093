"""What a user relies on when a conversation gets long."""

from __future__ import annotations

import json

import pytest

from turnwheel.effects.config import (
    Config,
    Limits,
    ModelSpec,
    OnMaxTokens,
    Policy,
    SideEffect,
    ToolSpec,
)
from turnwheel.effects.events import Failure
from turnwheel.effects.hooks import Hook, HookAnswer, HookSpec
from turnwheel.effects.messages import Role, StopReason, user
from turnwheel.effects.notices import (
    Compacted,
    CompactionFailed,
    CompactionStarted,
    InterruptRequested,
    RunEnded,
)
from turnwheel.effects.pieces import TextPiece
from turnwheel.effects.requests import (
    CallModel,
    Cancel,
    FireHook,
    Purpose,
    Transcript,
)
from turnwheel.effects.usage import Usage
from turnwheel.states.rules import compaction, model_messages
from turnwheel.states.rules.history_check import history_faults
from turnwheel.states.rules.token_estimates import history_size
from turnwheel.testing.harness import USED, MachineHarness, call

CLERK = HookSpec(name="clerk", hook=Hook.PRE_COMPACT)
SCRIBE = HookSpec(name="scribe", hook=Hook.PRE_COMPACT)
LOOK = ToolSpec(name="look", side_effect=SideEffect.READ_ONLY)
FULL = Usage(input=900, output=10)
"""What an answer uses that fills the window of these tests."""


def by_hand(on_max_tokens: OnMaxTokens = OnMaxTokens.COMPACT, prompt: str = "do it " * 200) -> MachineHarness:
    """A run with a small window: 1,000 tokens, of which a quarter stays."""
    model = ModelSpec(name="wire:model", window=1_000)
    return MachineHarness(
        Config(model=model, tools=(LOOK,), policy=Policy(on_max_tokens=on_max_tokens)), prompt
    )


def filled() -> MachineHarness:
    """A run of one prompt and a few tool calls that has just reached the threshold."""
    run = by_hand()
    for number in range(3):
        run.say(call(0, "look", page=number), usage=FULL if number == 2 else Usage(input=10, output=5))
        run.end("look", "much to read " * 30)
    return run


def test_a_full_conversation_is_summarised_before_the_next_request() -> None:
    """A model gets the old part as a transcript, and its summary takes that part's place."""
    run = filled()
    (request,) = run.got(CallModel)
    assert (run.label, request.purpose, request.tools) == ("compacting.summary", Purpose.SUMMARY, ())
    assert isinstance(request.view, Transcript)
    assert run.got(CompactionStarted)
    before = run.machine.memory.history
    run.say("it was asked to do it")
    after = run.machine.memory.history
    assert after[0].text == compaction.SUMMARY_PREFIX + "it was asked to do it"
    assert (after.revision, history_faults(after)) == (before.revision + 1, [])
    assert history_size(after) < history_size(before)
    assert run.got(Compacted)[0].after == history_size(after)
    assert run.label == "streaming"


def test_a_run_of_a_single_prompt_can_be_compacted() -> None:
    """Where to cut is a matter of size, not of how often a person spoke; call and result stay together."""
    run = filled()
    (request,) = run.got(CallModel)
    cut = request.view.length
    assert 0 < cut < len(run.machine.memory.history)
    assert run.machine.memory.history[cut].role is not Role.TOOL


def test_a_summary_is_paid_for_and_is_no_turn() -> None:
    """Its tokens are in the account."""
    run = filled()
    spent = run.machine.memory.spent
    run.say("brief", usage=Usage(input=300, output=7))
    assert run.machine.memory.spent.usage.total == spent.usage.total + 307
    assert run.machine.memory.spent.turns == spent.turns == 3


@pytest.mark.parametrize("text", ["", "  \n", "and so on " * 1_000])
def test_a_summary_that_is_no_use_is_not_used(text: str) -> None:
    """Empty or longer than the original: the conversation stays, the run goes on, a notice says why."""
    run = filled()
    before = run.machine.memory.history
    run.say(text)
    assert run.machine.memory.history is before
    assert len(run.got(CompactionFailed)) == 1
    assert run.label == "streaming"


def test_what_failed_is_not_tried_at_every_step() -> None:
    """Once between two answers, and not at all after three failures in a row."""
    run = filled()
    for failures in range(1, 4):
        assert run.label == "compacting.summary"
        run.fail(Failure.AUTH)
        assert run.machine.memory.session.compaction_failures == failures
        run.say(call(0, "look"), usage=FULL)
        run.end("look")
    assert run.label == "streaming"


def test_a_summary_that_was_lost_is_asked_for_again() -> None:
    """The process was gone; the attempt does not count as a failed one."""
    run = filled()
    run.stream(TextPiece("half a"))
    run.fail(Failure.LOST)
    assert run.label == "compacting.summary"
    assert run.machine.memory.session.compaction_failures == 0
    run.say("brief")
    assert run.talk[0] == ("user", compaction.SUMMARY_PREFIX + "brief")


def test_a_summary_that_was_lost_before_its_first_piece_is_paid_for() -> None:
    """Nobody knows whether it had begun, so all that it had to read is estimated."""
    run = filled()
    before = run.machine.memory.spent.usage
    run.fail(Failure.LOST)
    added = run.machine.memory.spent.usage - before
    assert (added.estimated, added.output) == (added.input, 0)
    assert added.input > 0


def test_a_summary_that_is_streamed_is_the_same_summary() -> None:
    """Its pieces are no text for whoever watches the conversation."""
    run = filled()
    run.stream(TextPiece("bri"))
    assert run.effects == ()
    run.say("ef")
    assert run.talk[0] == ("user", compaction.SUMMARY_PREFIX + "brief")


def test_an_interrupt_stops_a_summary() -> None:
    """The conversation stays as it is; what was used is paid."""
    run = filled()
    before = run.machine.memory.history
    run.interrupt()
    assert run.got(Cancel) == [Cancel(request=run.machine.state.open[0])]
    run.say("brief", usage=Usage(input=100, output=1))
    assert run.machine.memory.history is before
    assert run.reason == "interrupted"


def test_a_second_interrupt_does_not_wait_for_a_summary() -> None:
    """The run ends at once; what had come of it is paid for, as far as one can tell."""
    run = filled()
    run.stream(TextPiece("half a summary"))
    before = run.machine.memory.spent.usage
    run.interrupt()
    run.interrupt()
    assert run.reason == "interrupted"
    assert run.machine.memory.spent.usage.output == before.output + 4


# An answer that was cut off at its limit


def test_a_cut_answer_is_kept_and_continued() -> None:
    """The conversation is shortened, ends in a word to go on, and goes on."""
    run = by_hand()
    run.say("this is a long", stop=StopReason.MAX_TOKENS)
    assert run.label == "compacting.summary"
    run.say("brief")
    assert run.talk == [
        ("user", compaction.SUMMARY_PREFIX + "brief"),
        ("assistant", "this is a long"),
        ("user", model_messages.CONTINUE),
    ]
    run.say("story")
    assert run.reason == "end_turn"


def test_a_call_of_a_cut_answer_is_not_parted_from_its_result() -> None:
    """The result that says it did not run is no place to cut."""
    run = by_hand()
    run.say("well", call(0, "look"), stop=StopReason.MAX_TOKENS)
    run.say("brief")
    assert history_faults(run.machine.memory.history) == []
    assert [role for role, _ in run.talk] == ["user", "assistant", "tool", "user"]


@pytest.mark.parametrize("policy", [OnMaxTokens.STOP, OnMaxTokens.COMPACT_OVER_THRESHOLD])
def test_a_cut_answer_may_end_the_run(policy: OnMaxTokens) -> None:
    """By policy, or since there is room enough: shortening would not help."""
    run = by_hand(policy)
    run.say("this is a long", stop=StopReason.MAX_TOKENS)
    assert run.reason == "max_tokens"
    assert run.talk[-1] == ("assistant", "this is a long")


def test_a_cut_answer_in_a_full_conversation_is_continued() -> None:
    """Over the threshold it is worth the try."""
    run = by_hand(OnMaxTokens.COMPACT_OVER_THRESHOLD)
    run.say("this is a long", stop=StopReason.MAX_TOKENS, usage=FULL)
    assert run.label == "compacting.summary"


def test_a_cut_answer_ends_the_run_where_nothing_can_be_cut() -> None:
    """It says that it cannot, and why."""
    run = by_hand(prompt="hi")
    run.say("this is a long", stop=StopReason.MAX_TOKENS)
    assert run.reason == "max_tokens"
    assert run.got(CompactionFailed)


def test_a_failed_summary_after_a_cut_answer_ends_the_run() -> None:
    """With the reason it was cut for."""
    run = by_hand()
    run.say("this is a long", stop=StopReason.MAX_TOKENS)
    run.fail(Failure.AUTH)
    assert run.reason == "max_tokens"
    assert "auth: as told" in run.got(RunEnded)[0].detail


# A conversation that the model refuses for its size


def overflowing() -> MachineHarness:
    """A run whose model has just refused a conversation that our estimate held for small enough."""
    run = by_hand()
    run.say(call(0, "look"))
    run.end("look", "much to read " * 30)
    run.fail(Failure.OVERFLOW)
    return run


def test_a_conversation_that_is_too_large_is_shortened_and_sent_again() -> None:
    """The refusal costs nothing, and the run goes on."""
    run = overflowing()
    assert run.label == "compacting.summary"
    run.say("brief")
    assert run.label == "streaming"
    run.say("done")
    assert run.reason == "end_turn"


@pytest.mark.parametrize("failure", [Failure.BAD_REQUEST, Failure.AUTH])
def test_a_conversation_that_cannot_be_shortened_ends_the_run(failure: Failure) -> None:
    """With an error that says both what is wrong and why it could not be helped."""
    run = overflowing()
    run.fail(failure)
    assert run.reason == "error"
    detail = run.got(RunEnded)[0].detail
    assert "larger than the model's window" in detail
    assert str(failure) in detail


def test_a_conversation_that_stays_too_large_is_not_shortened_for_ever() -> None:
    """Twice, and when that was not enough the run ends."""
    run = overflowing()
    run.say("a long story, cut short " * 45)
    run.fail(Failure.OVERFLOW)
    run.say("brief")
    run.fail(Failure.OVERFLOW)
    assert run.reason == "error"
    assert "just before" in run.got(RunEnded)[0].detail


def test_a_conversation_that_is_refused_is_shortened_though_it_failed_just_before() -> None:
    """What was only a precaution then is now the one way on."""
    run = filled()
    run.say(" ")
    assert run.got(CompactionFailed)[0].reason == "the summary was empty"
    run.fail(Failure.OVERFLOW)
    assert run.label == "compacting.summary"


def test_a_first_prompt_that_is_too_large_ends_the_run() -> None:
    """There is nothing old that could be summarised."""
    run = by_hand()
    run.fail(Failure.OVERFLOW)
    assert run.reason == "error"
    assert run.machine.memory.history[0] == user("do it " * 200)


@pytest.mark.parametrize(
    ("limits", "reason"), [(Limits(tokens=15), "token_budget"), (Limits(turns=1), "max_turns")]
)
def test_a_cut_answer_that_used_up_the_run_is_not_paid_for_twice(limits: Limits, reason: str) -> None:
    """No summary is asked for where nothing could follow it."""
    model = ModelSpec(name="wire:model", window=1_000)
    policy = Policy(on_max_tokens=OnMaxTokens.COMPACT)
    run = MachineHarness(Config(model=model, limits=limits, policy=policy), "do it " * 200)
    run.say("this is a long", stop=StopReason.MAX_TOKENS)
    assert (len(run.all(CallModel)), run.reason) == (1, reason)


# Where hooks have a say in it


def consulted(why: str) -> MachineHarness:
    """A run in which hooks are asked about a compaction, for one of the reasons there are."""
    model = ModelSpec(name="wire:model", window=1_000)
    policy = Policy(on_max_tokens=OnMaxTokens.COMPACT)
    run = MachineHarness(
        Config(model=model, tools=(LOOK,), hooks=(CLERK, SCRIBE), policy=policy), "do it " * 200
    )
    if why == "max_tokens":
        run.say("this is a long", stop=StopReason.MAX_TOKENS)
        return run
    run.say(call(0, "look"), usage=FULL if why == "threshold" else USED)
    run.end("look", "much to read " * 30)
    if why == "overflow":
        run.fail(Failure.OVERFLOW)
    return run


each_reason = pytest.mark.parametrize("why", ["threshold", "max_tokens", "overflow"])


@each_reason
def test_hooks_are_asked_before_a_conversation_is_shortened(why: str) -> None:
    """They are told why and how long it is; no model is asked until they have answered."""
    run = consulted(why)
    (request,) = run.got(FireHook)
    assert (run.label, run.asked) == ("compacting.consulting", [("pre_compact", ("clerk", "scribe"))])
    told = json.loads(request.payload)
    assert (told["reason"], told["size"] > 0) == (why, True)
    assert run.got(CallModel) + run.got(CompactionStarted) == []
    run.answer()
    assert run.label == "compacting.summary"
    assert [notice.reason for notice in run.got(CompactionStarted)] == [why]


def test_what_hooks_add_is_for_whoever_summarises() -> None:
    """It stands behind our own instructions, and is not sent with the conversation afterwards."""
    run = consulted("threshold")
    run.answer(HookAnswer(context="keep all dates"), HookAnswer(context="and names"))
    (request,) = run.got(CallModel)
    assert request.instructions == f"{compaction.SUMMARY_INSTRUCTIONS}\nkeep all dates\nand names"
    run.say("brief")
    assert [request.instructions for request in run.got(CallModel)] == [""]


@pytest.mark.parametrize(
    ("why", "label", "reason"),
    [("threshold", "streaming", ""), ("max_tokens", "done", "max_tokens"), ("overflow", "done", "error")],
)
def test_a_hook_may_be_against_it(why: str, label: str, reason: str) -> None:
    """Then it goes on as it is where it can; another time it may not be."""
    run = consulted(why)
    before = run.machine.memory.history
    run.answer(HookAnswer(verdict="deny", reason="not now"))
    assert (run.label, run.reason) == (label, reason)
    assert run.machine.memory.history is before
    assert (run.machine.memory.progress.compactions, run.machine.memory.session.compaction_failures) == (1, 0)
    assert [notice.reason for notice in run.got(CompactionFailed)] == ["a hook denied it: clerk: not now"]
    assert all(request.purpose is Purpose.TURN for request in run.all(CallModel))


@each_reason
def test_a_denial_may_end_the_run(why: str) -> None:
    """Where the hook says so, whatever it was for."""
    run = consulted(why)
    run.answer(HookAnswer(verdict="deny", reason="enough", interrupt=True))
    assert run.reason == "interrupted"
    assert run.got(InterruptRequested) == [InterruptRequested()]


@pytest.mark.parametrize("answer", ["it hangs", HookAnswer(verdict="ask"), HookAnswer(verdict="allow")])
def test_it_is_shortened_unless_a_hook_denies_it(answer: HookAnswer | str) -> None:
    """A fault is no denial, and about a summary nobody else can be asked."""
    run = consulted("threshold")
    run.answer(answer)
    assert run.label == "compacting.summary"


@each_reason
def test_an_interrupt_does_not_wait_for_hooks(why: str) -> None:
    """They are told to stop, and the conversation stays as it is."""
    run = consulted(why)
    before, (request,) = run.machine.memory.history, run.machine.state.open
    run.interrupt()
    assert run.got(Cancel) == [Cancel(request=request)]
    assert (run.reason, run.machine.memory.history is before) == ("interrupted", True)


def test_a_summary_that_was_lost_is_asked_about_again() -> None:
    """Nobody knows any more what the hooks had wanted of it."""
    run = consulted("threshold")
    run.answer(HookAnswer(context="keep all dates"))
    run.fail(Failure.LOST)
    assert run.label == "compacting.consulting"
