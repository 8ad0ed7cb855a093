"""Old tool results that a model is no longer shown: which, when, and what is kept count of."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given, settings, strategies as st
from provers.audit.settings import gone_back
from provers.steps import restore_from_snapshot

from turnwheel.effects.config import Compaction, Loops, ModelSpec
from turnwheel.effects.errors import ConfigError
from turnwheel.effects.history import CLEARED, SHORT, History, clear_results, is_cleared_when_old
from turnwheel.effects.messages import Binary, Message, Outcome, Role, ToolCall, ToolResult, user
from turnwheel.effects.notices import Compacted, ResultsCleared
from turnwheel.effects.records import ClearResults
from turnwheel.effects.requests import CallModel, Conversation
from turnwheel.effects.usage import Usage
from turnwheel.engine.core.machine import Machine
from turnwheel.engine.journal.entries import RunOpened
from turnwheel.states.rules import compaction
from turnwheel.states.rules.history_check import history_faults
from turnwheel.states.rules.token_estimates import (
    CHARACTERS_PER_TOKEN,
    TOKENS_PER_MESSAGE,
    history_size,
    message_size,
    results_in,
    saved,
)
from turnwheel.testing.harness import MachineHarness, call, config

LONG = "a line of it\n" * 60
"""A result that is worth leaving out."""

UNTOLD = Usage()
"""Of a provider that does not count."""


def result(number: int, content: str = LONG, files: tuple[Binary, ...] = ()) -> ToolResult:
    return ToolResult(call=f"r-{number}", wire_id="call_0", name="look", content=content, files=files)


def told(*batches: int, content: str = LONG) -> History:
    history, number = History.of(user("go")), 0
    for size in batches:
        numbers = range(number, number + size)
        wishes = [ToolCall(id=f"r-{n}", wire_id="call_0", name="look", arguments="{}") for n in numbers]
        history = history.append(Message(role=Role.ASSISTANT, parts=tuple(wishes)))
        results = tuple([result(n, content) for n in numbers])
        history = history.append(Message(role=Role.TOOL, parts=results))
        number += size
    return history


# What is left out


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (result(1), True),
        (result(1, "x" * SHORT), False),
        (result(1, "x" * (SHORT + 1)), True),
        (result(1, "a picture", (Binary(media_type="image/png", data=b"x"),)), True),
        (ToolCall(id="r-1", wire_id="", name="look", arguments=LONG), False),
    ],
)
def test_long_results_and_those_with_files_are_left_out(
    part: ToolResult | ToolCall, *, expected: bool
) -> None:
    assert is_cleared_when_old(part) is expected


def test_of_a_result_that_is_left_out_all_but_its_content_stays() -> None:
    whole = attrs.evolve(result(7), outcome=Outcome.ERROR, files=(Binary(media_type="a/b", data=b"x"),))
    short = result(8, "fine")
    message = Message(role=Role.TOOL, parts=(whole, short), at=3.0)
    shown = clear_results(message)
    assert shown.parts == (attrs.evolve(whole, content=CLEARED, files=()), short)
    assert (shown.role, shown.at) == (Role.TOOL, 3.0)
    assert clear_results(shown) is shown
    assert message_size(shown) < message_size(message)
    history = told(3, 1, 4)
    assert history_faults([clear_results(one) for one in history]) == []
    assert all(clear_results(one) == one for one in history if one.role is not Role.TOOL)


# From where on


TWENTY = [1] * 20


@pytest.mark.parametrize(
    ("batches", "settings", "stay"),
    [
        *[
            (batches, Compaction(), stay)
            for batches, stay in [
                ([1] * 15, None),
                ([1] * 16, 5),
                ([16], None),
                ([1, 16], 16),
                (TWENTY, 5),
                ([3] * 6, 6),
                ([2] * 8, 6),
                ([4, 4, 4, 4, 1], 5),
                ([5, 5, 5, 1], 6),
                ([15, 1], None),
                ([1, 15, 1], 16),
                ([16, 4, 1], 5),
            ]
        ],
        (TWENTY, Compaction(clear_over=None), None),
        (TWENTY, Compaction(clear_over=20), None),
        (TWENTY, Compaction(clear_over=19), 5),
        (TWENTY, Compaction(clear_over=1, clear_keep=0), 1),
        (TWENTY, Compaction(clear_over=1, clear_keep=1), 1),
        (TWENTY, Compaction(clear_over=19, clear_keep=19), 19),
    ],
)
def test_the_latest_results_stay_with_those_that_came_in_one_answer_with_them(
    batches: list[int], settings: Compaction, stay: int | None
) -> None:
    history = told(*batches)
    before = compaction.before(settings, history, 0, sum(batches))
    assert (None if before is None else results_in(history.slice(before, len(history)))) == stay
    if before is not None:
        assert history[before - 1].role is Role.TOOL


def test_more_cannot_stay_than_may_be_there() -> None:
    with pytest.raises(ConfigError, match="clear_keep must be at most clear_over, which is 3; got 4"):
        Compaction(clear_over=3, clear_keep=4)


def test_what_is_left_out_stays_so() -> None:
    history = told(*[1] * 20)
    before = compaction.before(Compaction(), history, 0, 20)
    assert before is not None
    left = results_in(history.slice(before, len(history)))
    assert compaction.before(Compaction(), history, before, left) is None
    assert compaction.count(history, 0, before) == 15
    assert saved(history, 0, before) == 15 * (
        message_size(history[2]) - message_size(clear_results(history[2]))
    )


SIZES = st.lists(st.integers(1, 20), min_size=1, max_size=40)
SETTINGS = st.integers(1, 20).flatmap(
    lambda over: st.builds(Compaction, clear_over=st.just(over), clear_keep=st.integers(0, over))
)


@given(SIZES, SETTINGS)
def test_enough_is_shown_and_no_more_than_may_be(batches: list[int], settings: Compaction) -> None:
    over, keep = settings.clear_over or 0, settings.clear_keep
    index = shown = 0
    for turn in range(1, len(batches) + 1):
        history = told(*batches[:turn])
        shown += batches[turn - 1]
        before = compaction.before(settings, history, index, shown)
        if before is None:
            assert shown <= over or shown - _first(history, index) < max(keep, 1)
            continue
        assert shown > over
        assert before > index
        left = results_in(history.slice(before, len(history)))
        assert left >= min(keep, sum(batches[:turn]))
        assert left >= batches[turn - 1]
        assert left - _first(history, before) < max(keep, 1)
        index, shown = before, left


def _first(history: History, index: int) -> int:
    """How many results the first message from *index* on has that has any."""
    return next(len(message.results) for message in history.slice(index, len(history)) if message.results)


# In a run


def reads(run: MachineHarness, *batches: int, content: str = LONG) -> None:
    """The model reads, so many things at once each time; its provider counts tokens as we estimate them."""
    for size in batches:
        wishes = [call(n, "look", path=f"{run.now}-{n}") for n in range(size)]
        characters = sum(len(wish.name) + len(wish.arguments) for wish in wishes)
        answer = TOKENS_PER_MESSAGE + characters // CHARACTERS_PER_TOKEN
        run.say(*wishes, usage=Usage(input=shown_size(run), output=answer))
        for _ in range(size):
            run.end("look", content)


def asked(run: MachineHarness) -> CallModel:
    (request,) = run.got(CallModel)
    return request


def shown_size(run: MachineHarness) -> int:
    memory = run.machine.memory
    messages = enumerate(memory.history)
    return sum(
        message_size(clear_results(one) if index < memory.conversation.cleared else one)
        for index, one in messages
    )


def in_order(run: MachineHarness) -> None:
    memory = run.machine.memory
    history = memory.history
    assert memory.conversation.size == shown_size(run)
    assert memory.conversation.results == results_in(history.slice(memory.conversation.cleared, len(history)))
    for request in run.got(CallModel):
        if isinstance(request.view, Conversation):
            assert (request.view.cleared, request.view.length) == (memory.conversation.cleared, len(history))


def test_results_are_left_out_in_leaps() -> None:
    run = MachineHarness()
    turns: list[int] = []
    for turn in range(1, 50):
        reads(run, 1)
        in_order(run)
        if run.got(ClearResults):
            turns.append(turn)
    assert turns == [16, 27, 38, 49]


@pytest.mark.parametrize("counted", [None, 50_000], ids=["as we estimate", "as its model says"])
def test_the_size_goes_down_by_what_is_saved(counted: int | None) -> None:
    run = MachineHarness()
    reads(run, *[1] * 15)
    if counted is None:
        before = run.machine.memory.conversation.size
        reads(run, 1)
        added = history_size(run.machine.memory.history.slice(31, 33))
    else:
        run.say(call(0, "look", path="x"), usage=Usage(input=counted, output=10))
        run.end("look", LONG)
        before, added = counted + 10, message_size(run.machine.memory.history[-1])
    (told_,) = run.got(ResultsCleared)
    assert (told_.count, told_.tokens) == (11, 11 * (len(LONG) // 4 - len(CLEARED) // 4))
    assert run.machine.memory.conversation.size == before + added - told_.tokens


def test_short_results_are_passed_over_in_silence() -> None:
    run = MachineHarness(config(loops=Loops.never()))
    reads(run, *[1] * 16, content="fine")
    assert run.all(ResultsCleared) == []
    assert run.got(ClearResults) == [ClearResults(before=23)]
    in_order(run)


def test_a_conversation_that_is_brought_along_is_counted() -> None:
    machine = Machine.start(config(), "go on", run="r", history=told(*[1] * 20))
    assert machine.memory.conversation.results == 20
    run = MachineHarness(machine)
    assert asked(run).view == Conversation(revision=0, length=42, cleared=31)
    in_order(run)


def test_a_summary_counts_anew() -> None:
    settings = config(
        model=ModelSpec(name="wire:model", window=4_000),
        loops=Loops.never(),
        compaction=Compaction(clear_over=9, clear_keep=8, keep=0.4),
    )
    run = MachineHarness(settings)
    while run.label != "compacting.summary":
        reads(run, 1)
        in_order(run)
    left_out_before, shown_before = run.machine.memory.conversation.cleared, shown_size(run)
    run.say("they talked", usage=UNTOLD)
    assert run.got(Compacted) == [Compacted(before=shown_before, after=shown_size(run), at=run.now)]
    assert left_out_before > run.machine.memory.conversation.cleared >= 0
    in_order(run)
    for _ in range(5):
        reads(run, 1)
        in_order(run)


def test_going_back_takes_what_was_left_out_then() -> None:
    early = MachineHarness()
    reads(early, *[1] * 16)
    early.say("done", usage=UNTOLD)
    late = MachineHarness(Machine.open(RunOpened(at=99.0, run="r2", config=config()), early.machine))
    memory, then = gone_back(late.machine, early.machine).memory, early.machine.memory
    assert (memory.conversation.cleared, memory.conversation.results, memory.conversation.size) == (
        then.conversation.cleared,
        then.conversation.results,
        then.conversation.size,
    )
    start = gone_back(late.machine, None).memory
    assert (start.conversation.cleared, start.conversation.results, start.conversation.size) == (0, 0, 0)


@settings(max_examples=25)  # an example makes two runs of up to a hundred calls
@given(st.lists(st.integers(1, 6), min_size=1, max_size=20), SETTINGS)
def test_counts_and_views_are_right_at_every_step(batches: list[int], settings: Compaction) -> None:
    run = MachineHarness(config(compaction=settings, loops=Loops.never()))
    other = MachineHarness(config(compaction=settings, loops=Loops.never()))
    for size in batches:
        reads(run, size)
        reads(other, size)
        in_order(run)
        other.machine = restore_from_snapshot(other.machine)
        assert run.machine == other.machine
        assert run.effects == other.effects
    views = [one.view.cleared for one in run.all(CallModel) if isinstance(one.view, Conversation)]
    assert views == sorted(views)  # what a provider has cached up to there holds
