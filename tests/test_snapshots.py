"""A machine that was thrown away and made again goes on as if nothing had been, wherever it was."""

from __future__ import annotations

import json
from typing import get_args

import attrs
import pytest
from provers.steps import SNAPSHOT_KEY, restore_from_snapshot

from turnwheel.effects.config import Steering
from turnwheel.effects.errors import JournalError, NewerVersion
from turnwheel.effects.events import (
    AgentFinished,
    ApprovalGiven,
    Approve,
    CallCancelled,
    ControlReceived,
    Deny,
    Event,
    Failure,
    HookAnswered,
    InstructionsRead,
    Interrupted,
    ModelFailed,
    ModelFinished,
    TimerFired,
    ToolFinished,
    UserSent,
    UserSteered,
)
from turnwheel.effects.history import History
from turnwheel.effects.hooks import HookAnswer, HookSaid
from turnwheel.effects.messages import StopReason
from turnwheel.effects.permissions import Rule
from turnwheel.effects.pieces import CallPiece, TextPiece
from turnwheel.effects.records import SetModel
from turnwheel.effects.usage import Usage
from turnwheel.engine.codec import decode, encode
from turnwheel.engine.machine import Machine
from turnwheel.engine.recovery import recover
from turnwheel.engine.snapshots import KEPT, VERSION, Snapshot
from turnwheel.states.batch.batch import Phase
from turnwheel.states.context import Memory
from turnwheel.states.state import CompactStage, Stage, State
from turnwheel.testing.harness import config
from turnwheel.testing.state_fixtures import PLACES, run_at

each_place = pytest.mark.parametrize("place", PLACES)


def may_happen(machine: Machine) -> list[Event]:
    """One event of each kind that may happen to *machine*: answers to what is open, and what people send."""
    said = (HookSaid(name="any", answer=HookAnswer(context="so", reason="why")),)
    call = (CallPiece(0, "w", "note", '{"path": "a"}'),)
    events: list[Event] = [
        Interrupted(at=99.0),
        UserSent(at=99.0, id="new", text="more"),
        UserSteered(at=99.0, id="left", text="left", how=Steering.NOW),
        ControlReceived(at=99.0, id="control", change=SetModel(model="wire:other")),
    ]
    for request in machine.state.open:
        events += [
            ModelFinished(
                at=99.0, request=request, stop=StopReason.TOOL_USE, usage=Usage(input=1), pieces=call
            ),
            ModelFailed(at=99.0, request=request, failure=Failure.SERVER, message="500"),
            ToolFinished(at=99.0, request=request, content="fine", seconds=1.0),
            AgentFinished(at=99.0, request=request, content="fine"),
            ApprovalGiven(at=99.0, request=request, decision=Approve()),
            ApprovalGiven(at=99.0, request=request, decision=Deny()),
            HookAnswered(at=99.0, request=request, said=said),
            InstructionsRead(at=99.0, request=request, text="be brief"),
            TimerFired(at=99.0, request=request),
        ]
    batch = getattr(machine.state, "batch", None)
    return events + [CallCancelled(at=99.0, call=call.call.id) for call in (batch.calls if batch else ())]


# Everywhere


@each_place
def test_a_machine_comes_back_from_its_snapshot_as_it_was(place: str) -> None:
    """State, memory and settings: questions, deadlines, hooks, half an answer, mail and all."""
    machine = run_at(place).machine
    assert restore_from_snapshot(machine) == machine


@each_place
def test_a_machine_that_came_back_goes_on_as_the_other_one(place: str) -> None:
    """Whatever may happen next leads to the same place, with the same effects."""
    machine = run_at(place).machine
    for event in may_happen(machine):
        kept = Machine(machine.config, machine.state, machine.memory)
        made = restore_from_snapshot(machine)
        assert made.advance(event) == kept.advance(event)
        assert made == kept


@each_place
def test_a_snapshot_is_the_same_each_time(place: str) -> None:
    """Of equal machines the bytes are equal, so that they can be compared."""
    assert run_at(place).machine.snapshot() == run_at(place).machine.snapshot()
    machine = run_at(place).machine
    assert restore_from_snapshot(machine).snapshot(SNAPSHOT_KEY) == machine.snapshot(SNAPSHOT_KEY)
    assert restore_from_snapshot(machine).snapshot() == machine.snapshot()


@each_place
def test_a_snapshot_is_small(place: str) -> None:
    """It holds neither the conversation nor the settings, which are kept elsewhere once."""
    assert len(run_at(place).machine.snapshot()) < 3_000


@each_place
def test_what_a_run_that_is_taken_over_does_again_is_what_it_had_open(place: str) -> None:
    """Each open request is performed again under its own id, or answered by an event that names it."""
    run = run_at(place)
    found = recover(restore_from_snapshot(run.machine), now=200.0)
    names = [
        getattr(one, "id", None) or getattr(one, "request", None) for one in (*found.again, *found.events)
    ]
    assert set(names) == set(run.machine.state.open)


# All of it


def test_the_places_are_all_there_are() -> None:
    """A state, stage or phase that is added to the union is tried here, too."""
    labels, phases, stages = set[str](), set[type](), set[type]()
    for place in PLACES:
        state = run_at(place).machine.state
        assert state.label == place.partition(",")[0]
        labels.add(type(state).__name__)
        stages.add(type(getattr(state, "stage", None)))
        phases |= {type(call.phase) for call in getattr(getattr(state, "batch", None), "calls", ())}
    assert labels == {kind.__name__ for kind in get_args(State)}
    assert phases == set(get_args(Phase))
    passing = {"Start", "Prompt", "Steer", "Go", "End", "Weigh"}
    every = {kind for union in (Stage, CompactStage) for kind in get_args(union)}
    assert {kind.__name__ for kind in every - stages} == passing


def test_a_snapshot_has_all_of_the_memory_but_its_history() -> None:
    """A field that is added to the memory has to be added here."""
    assert set(KEPT) == {field.name for field in attrs.fields(Memory)} - {"history"}
    beside = {"version", "state", "length", "revision"}
    assert {field.name for field in attrs.fields(Snapshot)} == {*KEPT, *beside}


def test_what_a_person_granted_and_what_hooks_added_come_back() -> None:
    """What is remembered and shows in no state."""
    machine = run_at("executing").machine
    machine.memory = attrs.evolve(
        machine.memory,
        granted=(Rule(verdict="allow", tool="write", where=(("path", "src/*"),)),),
        pending_context=("mind the gap",),
        compactions=1,
        compaction_failures=2,
        continues=3,
    )
    assert restore_from_snapshot(machine) == machine


@pytest.mark.parametrize("state", [Machine.start(config(), "hello").state, run_at("done").machine.state])
def test_a_state_is_json_with_its_type_in_it(state: State) -> None:
    """Whoever reads a snapshot with any tool sees where the run is."""
    written = json.loads(encode(state, State))
    assert written["type"] == type(state).__name__
    assert decode(encode(state, State), State) == state


# What is no snapshot of this


def test_a_snapshot_goes_with_its_history_and_no_other() -> None:
    """Neither a longer nor a shorter one, nor one that was rewritten to the same length."""
    machine = run_at("executing").machine
    history = machine.memory.history
    rewritten = history.replace((history[0],), 1)
    assert len(rewritten) == len(history)
    for other in (History.of(), history.append(history[0]), rewritten):
        with pytest.raises(
            JournalError, match="this snapshot goes with 2 messages at revision 0, not with <History"
        ):
            Machine.restore(machine.snapshot(), machine.config, other)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"version": 3}', b'{"version": "3"}', b"\xff"])
def test_what_is_no_snapshot_says_so(data: bytes) -> None:
    """Torn and foreign bytes are an error that names them."""
    with pytest.raises(JournalError, match="this snapshot cannot be read"):
        Machine.restore(data, config(), History.of())


@pytest.mark.parametrize("more", [{}, {"mood": "good"}])
def test_a_snapshot_of_a_newer_version_is_refused(more: dict[str, str]) -> None:
    """Whether it holds what is not known here or not."""
    machine = run_at("streaming").machine
    newer = {**json.loads(machine.snapshot()), "version": VERSION + 1, **more}
    says = f"this snapshot has version {VERSION + 1}, known here is {VERSION}: upgrade turnwheel"
    with pytest.raises(NewerVersion, match=says):
        Machine.restore(json.dumps(newer).encode(), machine.config, machine.memory.history)


def test_a_snapshot_of_an_older_version_is_refused() -> None:
    """It is a convenience, so nothing is migrated: the journal leads to the same machine."""
    machine = run_at("streaming").machine
    older = {**json.loads(machine.snapshot()), "version": VERSION - 1}
    with pytest.raises(JournalError, match="fold its journal instead"):
        Machine.restore(json.dumps(older).encode(), machine.config, machine.memory.history)


def test_half_an_answer_comes_back_with_its_pieces() -> None:
    """Its thinking, its text and the call that is not whole, ready for the rest."""
    run = run_at("streaming")
    run.machine = restore_from_snapshot(run.machine)
    run.say(CallPiece(0, arguments='th": "a"}'), TextPiece("now"))
    message = run.machine.memory.history[-1]
    assert message.text == "well, now"
    assert [call.arguments for call in message.calls] == ['{"path": "a"}']
