"""The table is the machine: rows, handlers' annotations and what really happens say the same."""

from __future__ import annotations

import sys
import typing
from collections import Counter
from types import ModuleType

import pytest

from turnwheel.effects import Effect
from turnwheel.effects.errors import IllegalTransition, InternalError
from turnwheel.effects.events import Answer, Entered, Event, InputWithdrawn, ToolFinished
from turnwheel.effects.messages import ToolCall
from turnwheel.engine.core.machine import Machine, transition
from turnwheel.states import compacting, confirming, dispatching, done, executing, streaming, thinking
from turnwheel.states.batch.batch import Batch, Call, Phase, Queued, Running, Stopping
from turnwheel.states.context import Context
from turnwheel.states.state import (
    Compacting,
    Confirming,
    Dispatching,
    Done,
    Executing,
    State,
    Streaming,
    Thinking,
)
from turnwheel.states.table import IGNORED, LEGAL, TABLE
from turnwheel.testing.harness import config
from turnwheel.testing.state_fixtures import PLACES, run_at

EVENTS: tuple[type[Event], ...] = typing.get_args(Event)
HANDLERS: dict[type[State], ModuleType] = {
    Thinking: thinking,
    Streaming: streaming,
    Executing: executing,
    Confirming: confirming,
    Dispatching: dispatching,
    Compacting: compacting,
    Done: done,
}
RESTING = {row.state for row in TABLE if not row.welcome and row.event not in {Entered, InputWithdrawn}}
"""States in which a run waits; an input may be taken back between two steps, too."""

LABELS = {row.state for row in TABLE} | {row.target for row in TABLE} | set(IGNORED)
NAMED = {kind.__name__.lower(): kind for kind in HANDLERS}


def kind_of(label: str) -> type[State]:
    return NAMED[label.partition(".")[0]]


# The page itself


def test_no_row_stands_twice_and_every_row_says_why() -> None:
    ways = Counter((row.state, row.event, row.target) for row in TABLE)
    assert {row: count for row, count in ways.items() if count > 1} == {}
    assert [row for row in TABLE if not row.why.strip()] == []


def test_every_state_is_on_the_page_and_can_be_entered_and_left() -> None:
    assert {kind_of(label) for label in LABELS} == set(typing.get_args(State)) == set(HANDLERS)
    assert {row.state for row in TABLE} == LABELS - {"done"}
    ways = {(row.state, row.target) for row in TABLE if row.state != row.target}
    assert {target for _, target in ways} == LABELS - {"thinking.start"}
    assert {state for state, _ in ways} == LABELS - {"done"}


def test_every_state_that_a_run_rests_in_has_a_place_in_the_fixtures() -> None:
    """What other tests try at every place, they try in every state."""
    assert {run_at(place).label for place in PLACES} == RESTING | {"done"}


def test_every_state_that_waits_is_left_or_goes_on_by_an_answer() -> None:
    """Without a row for the answer to its request, a run would wait there for ever."""
    answered = {row.state for row in TABLE if issubclass(row.event, typing.get_args(Answer))}
    assert RESTING - answered == set()


def test_every_event_in_every_state_has_a_row_or_is_ignored_by_name() -> None:
    rows = {(row.state, row.event) for row in TABLE}
    ignored = {(label, kind) for label, kinds in IGNORED.items() for kind in kinds}
    assert rows & ignored == set()
    assert rows | ignored == {(label, kind) for label in LABELS for kind in EVENTS}
    assert {(row.state, row.event, row.target) for row in TABLE} == LEGAL


# The page and the code


def targets(module: ModuleType) -> set[type[State]]:
    """The states that the annotation of *module*'s handler names."""
    names = {**vars(sys.modules["turnwheel.states.state"]), "Effect": Effect, "Context": Context}
    hint = typing.get_type_hints(module.handle, {**names, **vars(module)})["return"]
    following = typing.get_args(hint)[0]
    return set(typing.get_args(following)) or {following}


@pytest.mark.parametrize(("kind", "module"), HANDLERS.items(), ids=lambda value: value.__name__)
def test_a_handler_says_where_it_leads(kind: type[State], module: ModuleType) -> None:
    """The states that a handler's annotation names are those to which rows lead, its own included."""
    rows = {kind_of(row.target) for row in TABLE if kind_of(row.state) is kind}
    assert targets(module) == rows | {kind}


def test_stepping_by_hand_needs_no_driver() -> None:
    machine = Machine.start(config(), "hello", run="r")
    state, memory = machine.state, machine.memory
    following, effects = transition(Thinking(), Context(config(), memory, Entered(at=1.0)))
    assert following.label == "streaming"
    assert [type(effect).__name__ for effect in effects] == ["CallModel", "ModelCalled", "UseIds"]
    assert (machine.state, machine.memory) == (state, memory)


def test_a_way_without_a_row_is_refused_and_nothing_has_changed() -> None:
    """No machine gets into this state: one that is being given up, with a call in the queue."""
    phases: tuple[Phase, ...] = (Running(request="tool"), Queued())
    wishes = [
        ToolCall(id=f"r-{number}", wire_id="w", name="write", arguments='{"path": "a"}')
        for number in range(len(phases))
    ]
    calls = [Call(call=wish, phase=phase) for wish, phase in zip(wishes, phases, strict=True)]
    state = Executing(batch=Batch(calls=tuple(calls), offered=("write",), stopping=Stopping.DENIED))
    before = Machine.start(config(), "hello", run="r").memory
    machine = Machine(config(), state, before)
    with pytest.raises(IllegalTransition) as caught:
        machine.advance(ToolFinished(at=7.0, request="tool", content="fine"))
    assert str(caught.value) == "no row for ToolFinished in executing.stopping leading to confirming.stopping"
    assert isinstance(caught.value, InternalError)
    assert (machine.state is state, machine.memory is before) == (True, True)
