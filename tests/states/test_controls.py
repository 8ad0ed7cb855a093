"""Settings that a person changes while a run is under way: the model, the mode, how much it may think."""

from __future__ import annotations

import pytest

from turnwheel.effects.events import ControlReceived
from turnwheel.effects.notices import Ignored, SettingChanged, SettingRefused
from turnwheel.effects.permissions import PermissionMode
from turnwheel.effects.records import Change, SetMode, SetModel, SetThinking
from turnwheel.testing.harness import MachineHarness
from turnwheel.testing.state_fixtures import PLACES, run_at

OTHER = SetModel(model="wire:other")


@pytest.mark.parametrize(
    "change",
    [OTHER, SetMode(mode=PermissionMode.BYPASS), SetThinking(tokens=2_000), SetThinking(tokens=None)],
)
@pytest.mark.parametrize("place", [place for place in PLACES if place != "done"])
def test_a_setting_can_be_changed_wherever_a_run_is(place: str, change: Change) -> None:
    """It holds at once, moves nothing, answers nothing and asks nothing; the same post again is ignored."""
    run = run_at(place)
    state, history = run.machine.state, run.machine.memory.history
    event = ControlReceived(at=50.0, id="c", change=change)
    run.feed(event)
    assert run.effects == (change, SettingChanged(change=change))
    assert run.machine.state == state
    assert run.machine.memory.history is history
    memory = run.machine.memory
    held = {SetModel: memory.model, SetMode: memory.mode, SetThinking: memory.thinking}[type(change)]
    assert held == {SetModel: "wire:other", SetMode: PermissionMode.BYPASS, SetThinking: change}[type(change)]
    run.feed(event)
    assert run.got(Ignored) == [Ignored(event="ControlReceived", state=run.label)]


def test_nothing_is_changed_in_a_run_that_is_over() -> None:
    """The session passes it on to the next one."""
    run = run_at("done")
    memory = run.machine.memory
    run.change(OTHER)
    assert run.effects == (Ignored(event="ControlReceived", state="done"),)
    assert run.machine.memory is memory


def test_a_model_without_a_name_is_refused() -> None:
    run = MachineHarness()
    change = SetModel(model=" ")
    run.change(change)
    assert run.effects == (SettingRefused(change=change, reason="a model has a name"),)
    assert run.machine.memory.model == "wire:model"
