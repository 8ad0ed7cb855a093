"""The table as a machine of the library `transitions`: a second executor, which goes the same ways."""

from __future__ import annotations

from typing import Any, NamedTuple, get_args

import pytest
from hypothesis import example, given, strategies as st
from transitions import MachineError

from turnwheel.diagrams import hierarchical_machine
from turnwheel.diagrams.picture import LABELS
from turnwheel.effects.errors import ConfigError, IllegalTransition
from turnwheel.effects.events import Entered, Event, ModelFinished, UserSent
from turnwheel.engine.core import machine as ours
from turnwheel.states.table import LEGAL, TABLE


class At(NamedTuple):
    """A state that is only where it is."""

    label: str


class On(NamedTuple):
    """A context with nothing but its event."""

    event: object


def ours_goes(state: str, event: type[Event], target: str) -> bool:
    """Whether our machine lets a handler go from *state* on *event* to *target*."""
    context: Any = On(object.__new__(event))
    begun: Any = At(state)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ours, "_dispatch", lambda *_: (At(target), ()))
        try:
            return bool(ours.transition(begun, context)[0].label == target)
        except IllegalTransition:
            return False


THEIRS = hierarchical_machine()


def theirs_goes(state: str, event: type[Event], target: str) -> bool:
    THEIRS.set_state(state)
    try:
        went = THEIRS.trigger(event.__name__, target=target)
    except MachineError:
        went = False
    assert THEIRS.state == (target if went else state)
    return bool(went)


@given(st.sampled_from(LABELS), st.sampled_from(get_args(Event)), st.sampled_from(LABELS))
@example("executing.stopping", ModelFinished, "done")
@example("done", UserSent, "done")
def test_both_go_a_way_or_refuse_it(state: str, event: type[Event], target: str) -> None:
    legal = (state, event, target) in LEGAL
    assert (ours_goes(state, event, target), theirs_goes(state, event, target)) == (legal, legal)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.state}-{row.event.__name__}-{row.target}")
def test_each_row_is_a_way_of_both(row: Any) -> None:
    assert ours_goes(row.state, row.event, row.target)
    assert theirs_goes(row.state, row.event, row.target)


def test_it_tells_its_states_triggers_and_targets() -> None:
    machine = hierarchical_machine("streaming")
    assert (machine.state, machine.is_state("streaming", machine)) == ("streaming", True)
    assert {*machine.get_triggers("streaming")} == {
        row.event.__name__ for row in TABLE if row.state == "streaming"
    }
    targets = {row.target for row in TABLE if (row.state, row.event) == ("streaming", ModelFinished)}
    assert {way.dest for way in machine.get_transitions("ModelFinished", "streaming")} == targets
    # Without a target the first row counts.
    machine.set_state("thinking.start")
    machine.trigger("Entered")
    first = next(row for row in TABLE if (row.state, row.event) == ("thinking.start", Entered))
    assert machine.state == first.target


def test_its_graph_and_its_markup_have_every_row() -> None:
    machine = hierarchical_machine()
    text = machine.get_graph().source
    assert text.startswith("---")
    assert {label for label in LABELS if label.replace(".", "_") not in text.replace(".", "_")} == set()
    ways = {(way["source"], way["trigger"], way["dest"]) for way in machine.markup["transitions"]}
    assert ways == {(row.state, row.event.__name__, row.target) for row in TABLE}


def test_a_state_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no state 'sleeping' in the table; there are thinking\.start, "):
        hierarchical_machine("sleeping")
