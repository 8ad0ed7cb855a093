"""Recovery: each request that can be open when a process is lost, or hands its run over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import attrs
import pytest

from turnwheel import PermissionMode, Rule
from turnwheel.effects import is_request
from turnwheel.effects.config import Config, Gates, Policy
from turnwheel.effects.events import (
    AgentFinished,
    Approve,
    Event,
    Failure,
    HookAnswered,
    InstructionsRead,
    ModelFailed,
    ToolFinished,
)
from turnwheel.effects.findings import Finding, PathFound
from turnwheel.effects.hooks import Hook, HookSpec
from turnwheel.effects.messages import Outcome
from turnwheel.effects.records import SetMode
from turnwheel.effects.requests import Cancel, FireHook, Request, RunTool
from turnwheel.effects.usage import Spent
from turnwheel.engine.core import recovery
from turnwheel.engine.core.machine import Machine
from turnwheel.engine.core.recovery import WHY, Recovery, recover
from turnwheel.engine.journal.entries import HandedOver, TakenOver
from turnwheel.engine.journal.fold import SessionState, apply_entry, try_name
from turnwheel.performers.answers import check_answer, failed_answer
from turnwheel.states.rules import model_messages
from turnwheel.testing.harness import TOOLS, MachineHarness, calls, config
from turnwheel.testing.state_fixtures import PLACES, run_at

NOW = 500.0


def words(machine: Machine, *, unbegun: bool = False) -> list[str]:
    """What becomes of each open request of *machine*, in a word or two; *unbegun*: none had begun."""
    found = recover(machine, NOW, frozenset(machine.state.open if unbegun else ()))
    return [word(one) for one in (*found.again, *found.events)]


def word(one: Request | Cancel | Event) -> str:
    end = getattr(one, "failure", None) or getattr(one, "outcome", None)
    return f"{type(one).__name__} {end}".removesuffix(" None")


# Every place where a machine can rest

HOOKS, LOOK, FILES, TIMER = ["FireHook"], ["InspectCall"], ["ReadInstructions"], ["SetTimer"]
LOST, UNASKED = ["ModelFailed lost"], ["ModelFailed unbegun"]
TOOL, MAYBE, STOPPED = ["RunTool"], ["ToolLost"], ["ToolFinished cancelled"]
QUESTION, TIMED = ["AskApproval"], ["AskApproval", "SetTimer"]

BECOMES: dict[str, tuple[list[str], list[str]]] = {
    "thinking.reading": (FILES, FILES),
    "thinking.opening": (HOOKS, HOOKS),
    "thinking.admitting": (HOOKS, HOOKS),
    "thinking.admitting, a steer": (HOOKS, HOOKS),
    "thinking.retry": (TIMER, TIMER),
    "thinking.decoding": (["DecodeOutput"], ["DecodeOutput"]),
    "thinking.ending": (HOOKS, HOOKS),
    "streaming": (LOST, UNASKED),
    "streaming, mail waits": (LOST, UNASKED),
    "streaming.stopping": (LOST, LOST),
    "streaming.stopping, hurried": (LOST, LOST),
    "executing": (TOOL, TOOL),
    "executing, unsafe": (MAYBE, TOOL),
    "executing, again": (MAYBE, TOOL),
    "executing, hooked": (HOOKS, HOOKS),
    "executing, vetted": (HOOKS, HOOKS),
    "executing, allowed": (TOOL, TOOL),
    "executing, reviewed": (HOOKS, HOOKS),
    "executing, looked at": (LOOK, LOOK),
    "executing, looked at again": (LOOK, LOOK),
    "executing, told to stop": (MAYBE, STOPPED),
    "executing.stopping": (MAYBE, STOPPED),
    "executing.stopping, steered": (TOOL, TOOL),
    "confirming": (TOOL + QUESTION * 2, TOOL + QUESTION * 2),
    "confirming, for a while": (TOOL + TIMED * 2, TOOL + TIMED * 2),
    "confirming, heard": (TIMED, TIMED),
    "confirming, lost": (QUESTION, QUESTION),
    "confirming.stopping": (TIMED, TIMED),
    "dispatching": (["RunAgent"], ["RunAgent"]),
    "dispatching.stopping": (["RunAgent", "Cancel"], ["RunAgent", "Cancel"]),
    "compacting.consulting": (HOOKS, HOOKS),
    "compacting.summary": (LOST, UNASKED),
    "compacting.pausing": (TIMER, TIMER),
    "compacting.stopping": (LOST, LOST),
    "executing, an output beside": (TOOL, TOOL),
    "done": ([], []),
}
"""For each place: its requests after a crash, and where none of them had begun."""

each_place = pytest.mark.parametrize("place", PLACES)


@each_place
def test_every_open_request_is_classified_once(place: str) -> None:
    """A new place has to say what becomes of it. A request that is performed again is as it was."""
    run = run_at(place)
    assert (words(run.machine), words(run.machine, unbegun=True)) == BECOMES[place]
    asked = {one.id: one for one in run.told if is_request(one)}
    found = recover(run.machine, NOW)
    again = {one.id: one for one in found.again if not isinstance(one, Cancel)}
    for name, one in again.items():
        assert (attrs.evolve(one, again=False) if isinstance(one, RunTool) else one) == asked[name]
    answered = [getattr(event, "request", "") for event in found.events]
    assert sorted([*again, *answered]) == sorted(run.machine.state.open)
    assert {one.request for one in found.again if isinstance(one, Cancel)} <= {*run.machine.state.open}
    assert all(event.at == NOW for event in found.events)
    for event in found.events:
        run.machine.advance(event)
    assert {*again} <= {*run.machine.state.open}
    assert run.machine.done or run.machine.state.open


TOO_OFTEN = {
    "RunTool": "ToolLost",
    "FireHook": "HookAnswered",
    "ReadInstructions": "InstructionsRead",
    "DecodeOutput": "OutputDecoded",
}
"""What takes the place of a request that was begun again as often as the policy allows."""


@each_place
def test_what_was_begun_often_enough_is_not_begun_once_more(place: str) -> None:
    machine = run_at(place).machine
    most, open_ = machine.config.policy.takeovers, machine.state.open
    names = [try_name(request, machine) for request in open_]
    assert recover(machine, NOW, tries=dict.fromkeys(names, most - 1)) == recover(machine, NOW)
    found = recover(machine, NOW, tries=dict.fromkeys(names, most))
    due = [TOO_OFTEN.get(each, each) for each in BECOMES[place][0]]
    assert sorted(word(one) for one in (*found.again, *found.events)) == sorted(due)
    before = machine.state.label
    for event in found.events:
        machine.advance(event)
        # Otherwise it would be asked again at once, and kill the next process.
        assert machine.state.label != before or not isinstance(event, ModelFailed)


def test_what_was_never_taken_over_is_begun_again_where_that_may_be_done_once() -> None:
    run = MachineHarness(config(policy=Policy(takeovers=1)))
    run.say(*calls("look"))
    assert words(run.machine) == TOOL


def test_a_machine_that_was_not_set_going_has_nothing_open() -> None:
    assert recover(Machine.start(config(), "go"), NOW) == Recovery()


@pytest.mark.parametrize("place", ["streaming", "compacting.summary", "thinking.opening", "thinking.reading"])
def test_what_was_begun_often_enough_says_so(place: str) -> None:
    said = recovery.TOO_OFTEN
    machine = run_at(place).machine
    names = {try_name(request, machine): machine.config.policy.takeovers for request in machine.state.open}
    (event,) = recover(machine, NOW, tries=names).events
    match event:
        case ModelFailed(message=text, should_retry=again):
            assert (text, again) == (said, False)
        case HookAnswered(said=answers):
            asked = [spec.name for spec in machine.config.hooks if spec.hook is Hook.SESSION_START]
            assert [(one.name, one.fault) for one in answers] == [(name, said) for name in asked]
        case InstructionsRead(text=text, faults=faults):
            assert (text, faults) == ("", (said,))
        case _:
            raise AssertionError(event)


@each_place
def test_what_no_worker_had_begun_uses_up_no_try(place: str) -> None:
    machine = run_at(place).machine
    unbegun = frozenset(machine.state.open)
    names = dict.fromkeys([try_name(request, machine) for request in unbegun], 99)
    assert recover(machine, NOW, unbegun, names) == recover(machine, NOW, unbegun)


@pytest.mark.parametrize("place", ["streaming", "compacting.summary"])
def test_a_model_is_asked_anew_for_a_reason_that_is_told(place: str) -> None:
    machine = run_at(place).machine
    for unbegun, failure in (
        (frozenset[str](), Failure.LOST),
        (frozenset(machine.state.open), Failure.UNBEGUN),
    ):
        (event,) = recover(machine, NOW, unbegun).events
        assert isinstance(event, ModelFailed)
        assert (event.failure, event.message) == (failure, WHY[failure])


# A call at work, by its side effect, and by the changes since

MORE = tuple([attrs.evolve(each, schema='{"type":"object","required":["why"]}') for each in TOOLS])
SINCE: dict[str, Callable[[MachineHarness], object]] = {
    "": lambda _: None,
    "denied": lambda run: run.machine.reconfigure(config(rules=(Rule(verdict="deny", tool="*"),))),
    "in a mode that only plans": lambda run: run.change(SetMode(mode=PermissionMode.PLAN)),
    "gone": lambda run: run.machine.reconfigure(config(tools=(), children=())),
    "takes more": lambda run: run.machine.reconfigure(config(tools=MORE)),
    "told to stop": lambda run: run.cancel(run.machine.memory.history[-1].calls[0].name),
}
CHILD, NO_TOOL = ["RunAgent"], ["ToolFinished error"]

OF_A_CALL: dict[tuple[str, str], tuple[list[str], list[str]]] = {
    ("look", ""): (TOOL, TOOL),
    ("look", "told to stop"): (STOPPED, STOPPED),
    ("look", "denied"): (STOPPED, STOPPED),
    ("look", "in a mode that only plans"): (TOOL, TOOL),
    ("look", "gone"): (MAYBE, NO_TOOL),
    ("look", "takes more"): (TOOL, TOOL),
    ("note", ""): (TOOL, TOOL),
    ("note", "told to stop"): (MAYBE, STOPPED),
    ("note", "denied"): (MAYBE, STOPPED),
    ("note", "in a mode that only plans"): (MAYBE, STOPPED),
    ("note", "gone"): (MAYBE, NO_TOOL),
    ("note", "takes more"): (MAYBE, TOOL),
    ("write", ""): (MAYBE, TOOL),
    ("write", "told to stop"): (MAYBE, STOPPED),
    ("write", "denied"): (MAYBE, STOPPED),
    ("write", "in a mode that only plans"): (MAYBE, STOPPED),
    ("write", "gone"): (MAYBE, NO_TOOL),
    ("write", "takes more"): (MAYBE, TOOL),
    ("send", ""): (CHILD, CHILD),
    ("send", "told to stop"): ([*CHILD, "Cancel"], [*CHILD, "Cancel"]),
    ("send", "denied"): ([*CHILD, "Cancel"], [*CHILD, "Cancel"]),
    ("send", "gone"): (["AgentFinished unknown"], ["AgentFinished error"]),
}
"""For a read, an idempotent and an unsafe tool, and a child: after a crash, and where it had not begun."""


@pytest.mark.parametrize(("name", "since"), OF_A_CALL)
def test_a_call_by_its_side_effect_and_the_changes_since(name: str, since: str) -> None:
    """No tool that may have run is said to have been cancelled, and none that never began to have run."""
    run = MachineHarness()
    run.say(*calls(name))
    if name == "write":
        run.decide("write", Approve())
    SINCE[since](run)
    assert (words(run.machine), words(run.machine, unbegun=True)) == OF_A_CALL[name, since]


@pytest.mark.parametrize("name", ["look", "note"])
@pytest.mark.parametrize("unbegun", [False, True])
def test_a_second_try_says_that_the_first_may_have_run(name: str, *, unbegun: bool) -> None:
    run = MachineHarness()
    run.say(*calls(name))
    (again,) = recover(run.machine, NOW, frozenset(run.machine.state.open if unbegun else ())).again
    assert isinstance(again, RunTool)
    assert again.again is (name == "note" and not unbegun)


@pytest.mark.parametrize("outcome", Outcome)
def test_a_second_try_that_fails_does_not_say_that_nothing_happened(outcome: Outcome) -> None:
    first = RunTool(id="r-1", call="r-0", tool="note", arguments="{}")
    answer = ToolFinished(at=NOW, request="r-1", content="so it ended", outcome=outcome)
    assert check_answer(first, answer, NOW) == answer
    said = check_answer(attrs.evolve(first, again=True), answer, NOW)
    assert isinstance(said, ToolFinished)
    assert said.outcome is (Outcome.UNKNOWN if outcome is Outcome.CANCELLED else outcome)
    clear = outcome in {Outcome.OK, Outcome.UNKNOWN}
    assert said.content == ("so it ended" if clear else model_messages.run_again("so it ended"))


@pytest.mark.parametrize("error", [asyncio.CancelledError(), RuntimeError("a bug")], ids=["cancelled", "bug"])
def test_a_second_try_that_never_began_may_have_run_all_the_same(error: BaseException) -> None:
    again = RunTool(id="r-1", call="r-0", tool="note", arguments="{}", again=True)
    said = failed_answer(again, error, NOW)
    assert isinstance(said, ToolFinished)
    assert said.outcome is not Outcome.CANCELLED
    assert "an earlier try of this call, which may have run" in said.content


def test_a_request_that_was_begun_once_is_never_unbegun_again() -> None:
    run = MachineHarness()
    run.say(*calls("note"))
    folded = SessionState(machine=run.machine)
    (request,) = run.machine.state.open
    for entry in (TakenOver(at=NOW, config=None), HandedOver(at=NOW, unbegun=(request,))):
        apply_entry(folded, entry, 0, "s")
    assert folded.unbegun == frozenset()
    folded.begun = frozenset()
    apply_entry(folded, HandedOver(at=NOW, unbegun=(request,)), 0, "s")
    assert folded.unbegun == {request}


# Hooks


@each_place
def test_hooks_that_are_gone_have_no_say(place: str) -> None:
    run = run_at(place)
    bare = Config(
        model=run.machine.config.model,
        tools=run.machine.config.tools,
        children=run.machine.config.children,
        instructions=run.machine.config.instructions,
    )
    before = words(run.machine)
    run.machine.reconfigure(bare)
    assert words(run.machine).count("HookAnswered") == before.count("FireHook")


def test_hooks_are_asked_again_about_no_prompt_that_came_since() -> None:
    run = run_at("thinking.admitting")
    (asked,) = recover(run.machine, NOW).again
    assert isinstance(asked, FireHook)
    run.send("later")
    assert recover(run.machine, NOW).again == (asked,)


def test_hooks_that_have_spoken_are_not_asked_again() -> None:
    hooks = tuple([HookSpec(name=name, hook=Hook.PRE_TOOL_USE) for name in ("one", "two")])
    run = MachineHarness(config(hooks=hooks))
    run.say(*calls("look"))
    run.machine.reconfigure(config(hooks=hooks[:1]))
    (again,) = recover(run.machine, NOW).again
    assert getattr(again, "names", ()) == ("one",)


@pytest.mark.parametrize(
    ("tool", "path", "heard"), [("note", "a", True), ("note", "b", False), ("edit", "a", False)]
)
@pytest.mark.parametrize("place", [Hook.PRE_TOOL_USE, Hook.POST_TOOL_USE])
def test_only_hooks_that_hear_of_a_call_are_asked_again(
    place: Hook, tool: str, path: str, *, heard: bool
) -> None:
    all_, some = [HookSpec(name=name, hook=place) for name in ("all", "some")]
    settings = config(hooks=(all_, some), policy=Policy(gates=Gates.HOOKS_FIRST))
    run = MachineHarness(settings)
    run.say(*calls("note"))
    if place is Hook.POST_TOOL_USE:
        run.end("note", "seen")
    (before,) = [one for one in run.told if isinstance(one, FireHook)]
    assert recover(run.machine, NOW).again == (before,)
    run.machine.reconfigure(
        attrs.evolve(settings, hooks=(all_, attrs.evolve(some, tool=tool, where=(("path", path),))))
    )
    (again,) = recover(run.machine, NOW).again
    # Before a call, the machine counts the answers of those that it asked.
    asked = ("all", "some") if heard or place is Hook.PRE_TOOL_USE else ("all",)
    assert again == attrs.evolve(before, names=asked)


def test_the_hooks_at_the_end_of_a_child_are_its_own() -> None:
    hooks = (HookSpec(name="stop", hook=Hook.STOP), HookSpec(name="sub", hook=Hook.SUBAGENT_STOP))
    for agent, name in (("", "stop"), ("kid", "sub")):
        run = MachineHarness(config(hooks=hooks, agent=agent))
        run.say("done")
        (asked,) = [one for one in run.told if isinstance(one, FireHook)]
        assert asked.names == (name,)
        assert recover(run.machine, NOW).again == (asked,)


def test_a_child_whose_settings_are_gone_keeps_what_it_reported_on_the_account() -> None:
    run = MachineHarness()
    run.say(*calls("send"))
    run.progress("send", Spent(seconds=2.0))
    gone = {"tools": config(tools=TOOLS[:1]), "children": config(children=())}
    for settings in gone.values():
        run.machine.reconfigure(settings)
        for unbegun in (frozenset[str](), frozenset(run.machine.state.open)):
            (event,) = recover(run.machine, NOW, unbegun).events
            assert isinstance(event, AgentFinished)
            assert event.spent == Spent(seconds=2.0)
            assert event.content == (f"No agent named {'kid'!r}." if unbegun else model_messages.LOST)


@pytest.mark.parametrize(
    ("rule", "runs"), [(None, True), (("path", "z"), True), (("path", "a"), False), (("agent", "k*"), False)]
)
def test_what_may_be_denied_was_asked_about_before_it_began(
    rule: tuple[str, str] | None, *, runs: bool
) -> None:
    """A person allowed a call of which no look could tell whether it is denied; rules may be new since."""
    tools = tuple([attrs.evolve(each, paths=("path",)) if each.name == "write" else each for each in TOOLS])
    asks = Rule(verdict="deny", tool="write", where=(("path", "x"),))
    doubtful = PathFound(argument="path", value="a", written=("a",), real=("a",), doubt="a link")
    run = MachineHarness(config(tools=tools, rules=(asks,)))
    run.say(*calls("write"))
    run.inspect("write", Finding(paths=(doubtful,)))
    run.decide("write", Approve())
    run.inspect("write", Finding(paths=(doubtful,)))
    new = () if rule is None else (Rule(verdict="deny", tool="write", where=(rule,)),)
    run.machine.reconfigure(config(tools=tools, rules=(asks, *new)))
    assert words(run.machine, unbegun=True) == (TOOL if runs else STOPPED)
