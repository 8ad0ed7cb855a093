"""The object that a notebook holds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
from support.memories import remember

from turnwheel import ChildSpec, Config, Limits, Machine, ModelSpec, Policy, Price, ToolSpec
from turnwheel.effects import errors, events, messages, notices, permissions, records, usage
from turnwheel.effects.config import Sandbox, Steering
from turnwheel.effects.history import CallPiece, History, TextPiece
from turnwheel.engine import drive
from turnwheel.engine.core.machine import (
    ChildLink,
    agent_before,
    calls_in,
    error_line,
    in_sandbox_of,
    links_of,
    overtaken,
    questions,
    stopped_children,
    with_restrictions,
)
from turnwheel.engine.inspect.transitions import steps
from turnwheel.engine.journal.entries import RunOpened
from turnwheel.states import streaming, thinking
from turnwheel.states.batch.batch import Stopping
from turnwheel.states.context import RECALL, AsConfigured
from turnwheel.states.state import Prompt, Start, Thinking
from turnwheel.testing.state_fixtures import run_at

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
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
    granted = (records.GrantRule(rule=permissions.Rule(verdict="allow", tool="look")),)
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


def test_a_change_that_is_posted_again_does_not_take_back_a_later_one() -> None:
    first, later = (
        events.ControlReceived(at=1, id=mode, change=records.SetMode(mode=mode))
        for mode in (permissions.PermissionMode.BYPASS, permissions.PermissionMode.PLAN)
    )
    memory = Machine.open(opened(), None, [first, later, first]).memory
    assert memory.session.mode is permissions.PermissionMode.PLAN


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
    # It was not chosen, so it does not outlive other settings, either.
    machine.reconfigure(attrs.evolve(CONFIG, model=ModelSpec(name="new"), models=(ModelSpec(name="m"),)))
    assert machine.memory.session.model == "new"


def test_only_so_many_inputs_are_remembered_by_their_id() -> None:
    machine = Machine.start(CONFIG, "go")
    machine.advance()
    for number in range(RECALL + 5):
        machine.advance(events.ControlReceived(at=1, id=str(number), change=records.SetThinking(tokens=1)))
    assert machine.memory.session.received == tuple(str(number) for number in range(5, RECALL + 5))
    again = events.ControlReceived(at=2, id=str(RECALL), change=records.SetThinking(tokens=2))
    assert machine.advance(again) == (
        notices.Ignored(event="ControlReceived", state="streaming", at=again.at),
    )


def test_a_run_begins_with_the_id_that_its_prompt_came_with() -> None:
    for sender, known in (("m1", "m1"), ("", "r-prompt")):
        machine = Machine.start(CONFIG, "go", run="r", sender=sender)
        machine.advance(at=1.0)
        again = events.UserSent(at=2.0, id=known, text="go")
        assert machine.advance(again) == (notices.Ignored(event="UserSent", state="streaming", at=again.at),)


@pytest.mark.parametrize("fallback", ["m", "spare", "gone"])
def test_a_model_that_took_over_answers_on_where_it_is_still_configured(fallback: str) -> None:
    machine = Machine.start(CONFIG, "go")
    machine.memory = remember(machine.memory, fallback=fallback)
    settings = attrs.evolve(CONFIG, models=(ModelSpec(name="spare"),))
    machine.reconfigure(settings)
    assert machine.memory.progress.fallback == ("" if fallback == "gone" else fallback)


MODES = permissions.PermissionMode
CHILD = attrs.evolve(CONFIG, agent="kid", policy=Policy(mode="plan"), ceiling=MODES.PLAN)


@pytest.mark.parametrize(
    ("settings", "changes", "anew", "under"),
    [
        (CONFIG, {}, CONFIG, True),
        (CONFIG, {}, attrs.evolve(CONFIG, system="x"), False),
        (CONFIG, {"mode": MODES.PLAN, "chosen": ("mode",)}, CONFIG, True),
        (CHILD, {}, CHILD, True),
        (CHILD, {"mode": MODES.BYPASS}, CHILD, False),
        (CHILD, {"mode": MODES.BYPASS, "chosen": ("mode",)}, CHILD, False),
        (CHILD, {"ceiling": MODES.BYPASS}, CHILD, False),
        (CHILD, {}, attrs.evolve(CHILD, system="x"), False),
    ],
)
def test_only_a_child_has_the_mode_of_its_settings_when_it_goes_on(
    settings: Config, changes: dict[str, Any], anew: Config, *, under: bool
) -> None:
    machine = Machine.start(settings, "go")
    machine.memory = remember(machine.memory, **changes)
    before = machine.memory
    assert machine.under(anew) is under
    machine.reconfigure(anew)
    session = machine.memory.session
    assert machine.under(anew)
    assert not under or machine.memory == before
    if anew.agent:
        assert (session.mode, session.ceiling) == (MODES.PLAN, MODES.PLAN)


@pytest.mark.parametrize("agent", ["", "kid"])
def test_the_widest_mode_is_that_of_the_settings_but_a_childs_stays(agent: str) -> None:
    """Its parent may have changed it since."""
    narrow = attrs.evolve(CONFIG, agent=agent, policy=Policy(mode="plan"), ceiling=MODES.PLAN)
    first, wider = Machine.start(narrow, "go"), attrs.evolve(narrow, ceiling=MODES.BYPASS)
    second = Machine.open(opened(wider), first)
    assert second.memory.session.ceiling is (MODES.PLAN if agent else MODES.BYPASS)


def test_a_mode_that_was_chosen_gives_way_to_a_ceiling() -> None:
    first = Machine.start(CONFIG, "go")
    first.memory = remember(first.memory, mode=MODES.BYPASS, chosen=("model", "mode"))
    second = Machine.open(opened(attrs.evolve(CONFIG, ceiling=MODES.ACCEPT_EDITS)), first)
    assert (second.memory.session.mode, second.memory.session.chosen) == (MODES.DEFAULT, ("model",))


def test_a_configured_mode_is_not_above_the_ceiling() -> None:
    with pytest.raises(errors.ConfigError, match="'bypass' is wider than the ceiling, 'default'; set a narr"):
        attrs.evolve(CONFIG, policy=Policy(mode="bypass"), ceiling=MODES.DEFAULT)


def test_a_stop_of_a_run_that_is_over_is_none_of_the_next() -> None:
    posted: list[events.Post] = [events.Interrupted(at=1, aborted=True)]
    memory = Machine.open(opened(), None, posted).memory
    assert memory == Machine.open(opened()).memory


def test_an_input_that_is_ignored_does_not_count_as_received() -> None:
    machine = Machine.start(CONFIG, "go")
    machine.advance()
    machine.advance(events.Interrupted(at=1.0))
    machine.advance(events.Interrupted(at=2.0))
    assert machine.done
    before = machine.memory
    for late in (events.UserSent(at=3.0, id="late", text="more"), events.Interrupted(at=4.0, aborted=True)):
        (told,) = machine.advance(late)
        assert isinstance(told, notices.Ignored)
        assert machine.memory == before


def test_a_machine_is_none_of_anything_else() -> None:
    machine = Machine.start(CONFIG, "go")
    assert machine != "go"
    assert machine.__eq__("go") is NotImplemented


# Bugs of ours


def test_a_step_outside_the_table_is_refused_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not it has effects."""
    machine = Machine.start(CONFIG, "go", run="r")
    machine.advance()
    before = (machine.state, machine.memory)
    stop = events.Interrupted(at=1.0)
    for effects in ((), (notices.InterruptRequested(at=0.0),)):
        monkeypatch.setattr(
            streaming, "handle", lambda *_, effects=effects: (Thinking(stage=Start()), effects)
        )
        with pytest.raises(errors.IllegalTransition, match="no row for Interrupted in streaming"):
            machine.advance(stop)
        assert (machine.state, machine.memory) == before


def test_states_that_wait_for_nothing_without_end_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine.start(CONFIG, "go", run="r")
    before = (machine.state, machine.memory)
    passed: list[object] = []

    def pass_on(*about: object) -> tuple[Thinking, tuple[()]]:
        passed.append(about)
        return Thinking(stage=Prompt()), ()

    monkeypatch.setattr(thinking, "handle", pass_on)
    monkeypatch.setattr("turnwheel.engine.core.machine.LEGAL", Anything())
    with pytest.raises(
        errors.InternalError, match=r"51 states in a row waited for nothing, last thinking\.prompt"
    ):
        machine.advance()
    assert len(passed) == 51
    assert (machine.state, machine.memory) == before
    with pytest.raises(
        errors.InternalError, match=r"50 states in a row waited for nothing, last thinking\.prompt"
    ):
        list(steps(machine, None))


class Anything:
    """Holds whatever it is asked for."""

    def __contains__(self, _: object) -> bool:
        return True


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("no"), "internal error: ValueError: no"),
        (ValueError(), "internal error: ValueError"),
        (ValueError("x" * 1_000), f"internal error: ValueError: {'x' * 472}"),
    ],
)
def test_the_end_of_a_run_tells_of_a_bug_in_a_line(error: Exception, line: str) -> None:
    assert len(line) <= 500
    assert error_line(error) == line


# Settings of an earlier run


def test_rules_of_an_earlier_run_that_deny_or_ask_are_kept() -> None:
    deny, lifted = (permissions.Rule(verdict="deny", tool=name) for name in ("a", "c"))
    other = permissions.Rule(verdict="ask", tool="b")
    allow, mine = (permissions.Rule(verdict=verdict, tool="d") for verdict in ("allow", "ask"))
    before = attrs.evolve(CONFIG, rules=(allow, deny, other, lifted))
    now = attrs.evolve(CONFIG, rules=(mine, other))
    assert with_restrictions(now, before, (lifted,)).rules == (mine, other, deny)
    assert with_restrictions(now, before).rules == (mine, other, deny, lifted)
    assert with_restrictions(now, None) == now
    # One object, as all that is equal to it.
    assert with_restrictions(now, now) is now


@pytest.mark.parametrize(
    ("begun", "now", "expected"),
    [
        (None, None, None),
        (None, Sandbox(network=True), Sandbox(network=True)),
        (Sandbox(tmp=5), None, Sandbox(tmp=5)),
        (Sandbox(network=True), Sandbox(), Sandbox()),
        (Sandbox(memory=7, tmp=9), Sandbox(network=True, memory=8, tmp=8), Sandbox(memory=7, tmp=8)),
    ],
)
def test_a_run_keeps_its_sandbox(
    begun: Sandbox | None, now: Sandbox | None, expected: Sandbox | None
) -> None:
    configs = [attrs.evolve(CONFIG, sandbox=each) for each in (begun, now)]
    assert in_sandbox_of(*configs).sandbox == expected


# Children of calls


def said(*calls: tuple[str, str, str]) -> messages.Message:
    parts = tuple(
        [messages.ToolCall(id=id_, wire_id="w", name=name, arguments=text) for id_, name, text in calls]
    )
    return messages.Message(role=messages.Role.ASSISTANT, parts=parts)


HIRING = Config(
    model=ModelSpec(name="m"),
    tools=(ToolSpec(name="hire", kind="agent"), ToolSpec(name="look", side_effect="read_only")),
    children=(ChildSpec(name="kid"),),
)
ASKS_KID = '{"agent": "kid", "prompt": "go"}'


@pytest.mark.parametrize(
    ("call", "agent"),
    [("c1", "kid"), ("c2", ""), ("c3", ""), ("c4", "latest"), ("c5", ""), ("gone", "")],
    ids=["a child", "no child", "a tool that is gone", "made twice", "unreadable", "no call"],
)
def test_the_agent_that_a_call_started_is_found_in_the_history(call: str, agent: str) -> None:
    latest = ASKS_KID.replace("kid", "latest")
    made = (
        said(("c1", "hire", ASKS_KID), ("c2", "look", ASKS_KID), ("c3", "gone", ASKS_KID)),
        said(("c4", "hire", ASKS_KID)),
        said(("c4", "hire", latest), ("c5", "hire", "{")),
    )
    machine = Machine.start(HIRING, "go")
    machine.memory = remember(machine.memory, history=History.of(messages.user("go"), *made))
    assert agent_before(call, machine) == agent
    assert agent_before(call, None) == ""


def test_the_calls_without_a_result_and_the_children_at_work_are_listed() -> None:
    run = run_at("dispatching")
    hire, write = run.machine.memory.history[-1].calls
    assert calls_in(run.machine.state) == (hire.id, write.id)
    assert links_of(run.machine.state, "s") == (ChildLink(call=hire.id, session=f"s.{hire.id}", agent="kid"),)
    run.report("send")
    assert calls_in(run.machine.state) == (write.id,)
    assert links_of(run.machine.state, "s") == ()
    assert calls_in(None) == calls_in(run_at("streaming").machine.state) == ()
    reviewed = run_at("executing, reviewed")
    assert calls_in(reviewed.machine.state) == (reviewed.machine.memory.history[-1].calls[1].id,)


def test_children_that_were_told_to_stop_are_listed_with_how_far_the_batch_stops() -> None:
    machine = run_at("dispatching.stopping").machine
    (hire, *_) = machine.memory.history[-1].calls
    assert stopped_children(machine.state) == [(hire.id, Stopping.INTERRUPTED)]
    assert stopped_children(run_at("dispatching").machine.state) == []
    assert stopped_children(run_at("streaming").machine.state) == []


def test_what_waits_and_would_end_a_run_with_a_bug_of_ours_closes_its_questions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = run_at("confirming, heard").machine
    (question,) = questions(machine)
    stop = events.Interrupted(at=500.0)
    steer = events.UserSteered(at=500.0, id="s", text="later", how=Steering.WHEN_DONE)
    assert overtaken(machine, [steer, stop, stop]) == {question.call: stop}
    assert overtaken(machine, [steer]) == {}
    cancel = events.CallCancelled(at=499.0, call=question.call)
    assert overtaken(machine, [cancel, stop]) == {question.call: cancel}

    def fails(*_: object) -> None:
        raise ValueError

    monkeypatch.setattr("turnwheel.engine.core.machine.transition", fails)
    assert overtaken(machine, [steer, stop]) == {question.call: steer}
