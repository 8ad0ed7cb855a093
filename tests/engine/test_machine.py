"""The object that a notebook holds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from support.memories import remember

from turnwheel import Config, Limits, Machine, ModelSpec, Policy, Price, ToolSpec
from turnwheel.effects import errors, events, messages, notices, permissions, records, usage
from turnwheel.effects.history import CallPiece, History, TextPiece
from turnwheel.engine import drive
from turnwheel.engine.journal.entries import RunOpened
from turnwheel.states.context import RECALL, AsConfigured

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CONFIG = Config(model=ModelSpec(name="m"), tools=(ToolSpec(name="look", side_effect="read_only"),))
USED = usage.Usage(input=2, output=1)


def test_the_example_by_hand_runs_and_is_short() -> None:
    script = EXAMPLES / "step_by_hand.py"
    shown = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True).stdout
    code = [line for line in script.read_text().splitlines() if line and not line.startswith('"""')]

    assert len(code) <= 15
    assert "It has 1,024 words.\nDone(reason=<DoneReason.END_TURN" in shown


def test_a_machine_says_where_it_is_and_what_it_waits_for() -> None:
    machine = Machine.start(CONFIG, "go", run="r")
    assert repr(machine) == "<Machine 'r': thinking.start>"
    machine.advance()
    assert repr(machine) == "<Machine 'r': streaming, waits for r-1>"


def test_drive_is_the_machine_as_a_generator() -> None:
    machine = Machine.start(CONFIG, "go")
    engine = drive(machine, at=1.0)
    next(engine)
    wish = (CallPiece(0, "a", "look", "{}"),)
    engine.send(events.ModelFinished(at=2, request="run-1", stop="tool_use", usage=USED, pieces=wish))
    engine.send(events.ToolFinished(at=3, request="run-3", content="seen"))
    text = (TextPiece("ok"),)
    effects = engine.send(
        events.ModelFinished(at=4, request="run-4", stop="end_turn", usage=USED, pieces=text)
    )
    assert isinstance(effects[-1], notices.RunEnded)
    with pytest.raises(StopIteration) as ended:
        next(engine)
    assert ended.value.value == machine.state


def test_equal_machines_are_equal_and_a_step_makes_them_differ() -> None:
    one, two = Machine.start(CONFIG, "go"), Machine.start(CONFIG, "go")
    assert one == two
    one.advance()
    assert one != two
    two.advance()
    assert one == two


def test_a_history_that_no_provider_takes_is_refused() -> None:
    wish = messages.ToolCall(id="x", wire_id="x", name="look", arguments="{}")
    history = History.of(messages.user("a"), messages.Message(role=messages.Role.ASSISTANT, parts=(wish,)))
    with pytest.raises(errors.ConfigError, match=r"invalid history: .* open calls \['x'\]"):
        Machine.start(CONFIG, "hello", history=history)


def test_a_snapshot_is_small_and_goes_with_one_history() -> None:
    machine = Machine.start(CONFIG, "go", history=History.of(*[messages.user("word " * 1_000)] * 50))
    data = machine.snapshot()
    assert len(data) < 1_000
    with pytest.raises(
        errors.JournalError, match="goes with 50 messages at revision 0, not with <History of 0 mess"
    ):
        Machine.restore(data, CONFIG, History.of())
    with pytest.raises(errors.JournalError, match="this snapshot cannot be read"):
        Machine.restore(b"{}", CONFIG, History.of())


# From run to run


def opened(settings: Config = CONFIG) -> RunOpened:
    return RunOpened(at=100.0, run="run2", config=settings)


def test_a_run_takes_over_what_is_the_sessions_and_nothing_else() -> None:
    first = Machine.start(CONFIG, "go")
    granted = (permissions.Rule(verdict="allow", tool="look"),)
    first.memory = remember(
        first.memory,
        history=History.of(messages.user("before")),
        size=5,
        granted=granted,
        mode=permissions.PermissionMode.PLAN,
        thinking=records.SetThinking(tokens=2_000),
        instructions=records.SetInstructions(text="be brief"),
        model="other",
        chosen=("model", "mode"),
        pending_context=("mind the gap",),
        spent=usage.Spent(turns=3),
        compactions=1,
        compaction_failures=2,
        continues=3,
        next_id=9,
    )
    second = Machine.open(opened(), first)
    assert second.memory == remember(
        first.memory,
        run="run2",
        spent=usage.Spent(),
        earlier=usage.Spent(turns=3),
        compactions=0,
        continues=0,
        next_id=1,
    )
    assert repr(second) == "<Machine 'run2': thinking.start>"


def test_a_run_begins_on_what_was_posted_since() -> None:
    prompt = events.UserSent(at=1, id="p", text="go")
    posted: list[events.Post] = [
        prompt,
        events.UserSteered(at=2, id="s", text="left"),
        prompt,
        events.ControlReceived(at=3, id="c", change=records.SetModel(model="other")),
        events.ControlReceived(at=4, id="d", change=records.SetThinking(tokens=0)),
        events.ApprovalGiven(at=5, request="run-1", decision=events.Approve()),
        events.CallCancelled(at=6, call="run-2"),
        events.Interrupted(at=7),
    ]
    memory = Machine.open(opened(), None, posted).memory
    assert [mail.id for mail in memory.session.mail] == ["p", "s"]
    assert (memory.session.model, memory.session.thinking, memory.session.received) == (
        "other",
        AsConfigured(),
        ("p", "s", "c", "d"),
    )


def test_what_a_person_chose_outlives_another_configuration() -> None:
    anew = attrs.evolve(CONFIG, model=ModelSpec(name="new"), policy=Policy(mode="plan"))
    for change, model, mode in (
        (records.SetThinking(tokens=5), "new", "plan"),
        (records.SetModel(model="other"), "other", "plan"),
        (records.SetMode(mode=permissions.PermissionMode.BYPASS), "new", "bypass"),
    ):
        machine = Machine.start(CONFIG, "go")
        machine.advance()
        machine.advance(events.ControlReceived(at=1, id="c", change=change))
        machine.reconfigure(anew)
        assert (machine.memory.session.model, machine.memory.session.mode, machine.config) == (
            model,
            mode,
            anew,
        )


def test_what_cannot_be_kept_to_is_given_up() -> None:
    machine = Machine.start(CONFIG, "go")
    machine.advance()
    machine.advance(events.ControlReceived(at=1, id="c", change=records.SetModel(model="other")))
    price = Price(input=1, output=1)
    limited = attrs.evolve(CONFIG, model=ModelSpec(name="m", price=price), limits=Limits(usd=1))
    machine.reconfigure(limited)
    assert machine.memory.session.model == "m"
    machine.reconfigure(CONFIG)
    assert machine.memory.session.model == "m"


def test_only_so_many_inputs_are_remembered_by_their_id() -> None:
    machine = Machine.start(CONFIG, "go")
    machine.advance()
    for number in range(RECALL + 5):
        machine.advance(events.ControlReceived(at=1, id=str(number), change=records.SetThinking(tokens=1)))
    assert machine.memory.session.received == tuple(str(number) for number in range(5, RECALL + 5))
    again = events.ControlReceived(at=2, id=str(RECALL), change=records.SetThinking(tokens=2))
    assert machine.advance(again) == (notices.Ignored(event="ControlReceived", state="streaming"),)
