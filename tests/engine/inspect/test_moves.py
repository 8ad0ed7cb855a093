"""What may happen next, and what would follow: legal in every state, and nothing happens by asking."""

from __future__ import annotations

import attrs
import pytest

from turnwheel import Config, Machine, ModelSpec
from turnwheel.effects import (
    ApprovalGiven,
    ApprovalResolved,
    ConfigError,
    ControlReceived,
    Interrupted,
    ModelFinished,
    Outcome,
    PermissionMode,
    RunStarted,
    SetMode,
    SetModel,
    Steering,
    StopReason,
    TextPiece,
    ToolFinished,
    UserSent,
    UserSteered,
)
from turnwheel.engine import moves, preview
from turnwheel.states import TABLE
from turnwheel.testing import PLACES, run_at
from turnwheel.testing.harness import MachineHarness, calls, config

LEGAL = {(row.state, row.event) for row in TABLE}
CONFIG = Config(model=ModelSpec(name="m"))


@pytest.mark.parametrize("place", [place for place in PLACES if place != "done"])
def test_every_move_has_a_row_and_every_way_out_is_a_move(place: str) -> None:
    machine = run_at(place).machine
    before = machine.snapshot()
    found = moves(machine, machine.config, 1_000.0, "mine")
    label = machine.state.label
    assert {(label, type(move.event)) for move in found} <= LEGAL
    for move in found:
        assert preview(machine, machine.config, move.event).effects
    # Whatever a run waits for, one of its answers is a move, and so is an end.
    waits = {getattr(move.event, "request", "") for move in found}
    assert {*machine.state.open} <= waits
    assert any(isinstance(move.event, Interrupted) for move in found)
    assert machine.snapshot() == before


def test_a_preview_says_what_an_approval_would_do() -> None:
    machine = run_at("confirming").machine
    found = {move.title: move.event for move in moves(machine, machine.config, 1.0, "mine")}
    yes, *_ = [event for title, event in found.items() if title.startswith("approve")]
    assert isinstance(yes, ApprovalGiven)
    made = preview(machine, machine.config, yes)
    assert any(isinstance(effect, ApprovalResolved) for effect in made.effects)
    assert machine.state.label == "confirming"
    with pytest.raises(ConfigError, match="does not apply"):
        preview(machine, machine.config, ToolFinished(at=1.0, request="none", content=""))


@pytest.mark.parametrize("machine", [None, run_at("done").machine])
def test_where_no_run_is_under_way_a_prompt_opens_one(machine: Machine | None) -> None:
    (move,) = moves(machine, CONFIG, 1.0, "mine")
    assert move.title == "send a prompt"
    assert move.event == UserSent(at=1.0, id="mine", text="...")
    assert preview(machine, CONFIG, move.event).state.label == "streaming"
    with pytest.raises(ConfigError, match="no run is under way"):
        preview(machine, CONFIG, Interrupted(at=1.0))


def test_a_setting_that_would_be_refused_is_no_move() -> None:
    machine = run_at("confirming").machine
    bounded = attrs.evolve(machine.memory.session, ceiling=PermissionMode.ACCEPT_EDITS)
    memory = attrs.evolve(machine.memory, session=bounded)
    found = moves(Machine(machine.config, machine.state, memory), machine.config, 1.0, "mine")
    changes = [move.event.change for move in found if isinstance(move.event, ControlReceived)]
    # Those that would change nothing are none either.
    narrower = PermissionMode.ACCEPT_EDITS, PermissionMode.PLAN, PermissionMode.DONT_ASK
    assert sorted(changes, key=str) == sorted([SetMode(mode=mode) for mode in narrower], key=str)


def test_a_call_that_may_have_run_is_not_approved_for_good() -> None:
    machine = run_at("confirming, lost").machine
    titles = {move.title.partition(" ")[0] for move in moves(machine, machine.config, 1.0, "mine")}
    assert "approve" in titles
    assert "always" not in titles


def test_a_prompt_is_previewed_at_the_time_when_it_is_sent() -> None:
    made = preview(None, CONFIG, UserSent(at=7.0, id="mine", text="go")).effects
    assert [effect.at for effect in made if isinstance(effect, RunStarted)] == [7.0]


def test_moves_are_whole() -> None:
    """Each says what its title says, with an example for what is to be said."""
    run = MachineHarness(config(models=(ModelSpec(name="spare"),)))
    model = run.machine.memory.session.model
    found = {move.title: move.event for move in moves(run.machine, run.machine.config, 9.0, "mine")}
    assert found["steer"] == UserSteered(at=9.0, id="mine", text="...")
    assert found["steer now"] == UserSteered(at=9.0, id="mine", text="...", how=Steering.NOW)
    assert found["queue a prompt"] == UserSent(at=9.0, id="mine", text="...")
    change = ControlReceived(at=9.0, id="mine", change=SetModel(model="spare"))
    assert found["change to spare"] == change
    assert f"change to {model}" not in found
    answer = found["the model answers"]
    assert isinstance(answer, ModelFinished)
    assert (answer.at, answer.pieces, answer.stop) == (9.0, (TextPiece("..."),), StopReason.END_TURN)
    run.say(*calls("look"))
    found = {move.title: move.event for move in moves(run.machine, run.machine.config, 9.0, "mine")}
    (request,) = run.machine.state.open
    fails = ToolFinished(at=9.0, request=request, content="...", outcome=Outcome.ERROR)
    assert (found["look ends"], found["look fails"]) == (attrs.evolve(fails, outcome=Outcome.OK), fails)
    assert "the model answers" not in found
