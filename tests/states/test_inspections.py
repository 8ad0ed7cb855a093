"""When a call is looked at, what is decided by it, and what a call costs about which no rule could speak."""

from __future__ import annotations

import json

import attrs
import pytest

from turnwheel.effects.config import Concurrency, Config, Gates, Policy, ToolSpec
from turnwheel.effects.events import Approve, ApproveAlways, ToolLost
from turnwheel.effects.findings import CommandFound, Finding, PathFound, SimpleCommand
from turnwheel.effects.hooks import Hook, HookAnswer, HookSpec
from turnwheel.effects.permissions import Rule
from turnwheel.effects.records import SetMode
from turnwheel.effects.requests import AskApproval, FireHook, InspectCall, RunTool
from turnwheel.engine.core.machine import Machine
from turnwheel.engine.core.recovery import recover
from turnwheel.testing.harness import MachineHarness, call, config
from turnwheel.testing.state_fixtures import run_at

SCHEMA = json.dumps({"type": "object", "properties": {"path": {"type": "string", "default": "."}}})
SHELL = '{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}'
TOOLS = (
    ToolSpec(name="look", schema=SCHEMA, side_effect="read_only", paths=("path",)),
    ToolSpec(name="save", schema=SCHEMA, edits=True, paths=("path",)),
    ToolSpec(name="run", schema=SHELL, command="command"),
)


def rule(text: str) -> Rule:
    verdict, name, argument, glob = text.split(maxsplit=3)
    return Rule(verdict=verdict, tool=name, where=((argument, glob),))


def settings(*rules: str, **more: object) -> Config:
    return config(tools=TOOLS, rules=tuple(map(rule, rules)), **more)


def reaches(value: str, real: str = "", doubt: str = "") -> Finding:
    path = PathFound(argument="path", value=value, written=(value,), real=(real or value,), doubt=doubt)
    return Finding(paths=(path,))


def runs(*lines: str, beyond: str = "") -> Finding:
    commands = tuple([SimpleCommand(words=tuple(line.split())) for line in lines])
    return Finding(commands=(CommandFound(argument="command", commands=commands, beyond=beyond),))


def begun(about: Config, name: str = "look", **arguments: object) -> MachineHarness:
    run = MachineHarness(about)
    run.say(call(0, name, **arguments))
    return run


# What it costs


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ((), "look"),
        (("allow other path a*",), "look"),
        (("deny * command git*", "allow look pattern *"), "look"),
        (("deny * path a*",), "run"),
    ],
)
def test_a_call_of_which_no_rule_names_a_path_or_command_is_not_looked_at(
    rules: tuple[str, ...], name: str
) -> None:
    """It has the very effects that it has without any rule."""
    plain = begun(settings(), name, path="b", command="b")
    run = begun(settings(*rules), name, path="b", command="b")
    assert run.all(InspectCall) == []
    assert run.told == plain.told


def test_a_look_at_paths_is_told_of_the_globs_of_paths_only() -> None:
    schema = json.dumps({"type": "object", "properties": {"path": {"type": "string"}, "command": {}}})
    spec = ToolSpec(name="run", schema=schema, paths=("path",), command="command")
    denials = rule("deny run path a*"), rule("deny run command git*"), rule("deny run path b*")
    run = begun(config(tools=(spec,), rules=denials), "run", path="x", command="ls")
    assert [one.globs for one in run.got(InspectCall)] == [("a*", "b*")]


def test_what_is_denied_as_it_is_written_is_not_looked_at() -> None:
    run = begun(settings("deny look path a*"), path="abc")
    assert (run.all(InspectCall), run.outcomes) == ([], [("look", "denied")])


# Defaults


def test_a_default_is_what_rules_and_hooks_and_people_and_tools_see() -> None:
    """And the history keeps what the model wrote."""
    guard = HookSpec(name="guard", hook=Hook.PRE_TOOL_USE, where=(("path", "."),))
    run = begun(settings(hooks=(guard,)), "save")
    (asked,) = run.got(FireHook)
    assert json.loads(asked.payload)["tool_input"] == {"path": "."}
    run.answer()
    assert [question.values for question in run.got(AskApproval)] == [{"path": "."}]
    run.decide("save", Approve())
    assert [request.arguments for request in run.got(RunTool)] == ['{"path": "."}']
    assert [wish.arguments for wish in run.machine.memory.history[1].calls] == ["{}"]


@pytest.mark.parametrize("fills", [True, False])
def test_a_denial_is_not_passed_by_leaving_an_argument_out(fills: bool) -> None:  # noqa: FBT001  # a column
    """Older journals have calls that were judged without defaults: there they are."""
    tools = tuple([attrs.evolve(tool, paths=(), fills=fills) for tool in TOOLS])
    run = begun(attrs.evolve(settings("deny look path ."), tools=tools))
    assert bool(run.all(RunTool)) is not fills
    assert begun(settings("deny save path ."), "save").outcomes == [("save", "denied")]


def test_arguments_that_lack_nothing_stay_as_the_model_wrote_them() -> None:
    run = MachineHarness(settings())
    written = call(0, "look", path="a")
    run.say(attrs.evolve(written, arguments='{"path" :\t"a"}'))
    assert [request.arguments for request in run.got(RunTool)] == ['{"path" :\t"a"}']


@pytest.mark.parametrize("default", [None, "hidden"])
def test_a_default_that_says_nothing_or_is_secret_is_left_out(default: str | None) -> None:
    schema = json.dumps({"type": "object", "properties": {"password": {"default": default}}})
    spec = ToolSpec(name="look", schema=schema, side_effect="read_only", secrets=("password",))
    run = begun(config(tools=(spec,)))
    assert [request.arguments for request in run.got(RunTool)] == ["{}"]


# What is decided


@pytest.mark.parametrize(
    ("rules", "finding", "verdict"),
    [
        ("deny look path s*", reaches("a"), "allow tool"),
        ("deny look path s*", reaches("a", "secret"), "deny rule"),
        ("deny look path s*", reaches("a", doubt="it has two names"), "ask rule"),
        ("deny look path s*", Finding(), "ask rule"),
        ("ask look path s*", reaches("a", "secret"), "ask rule"),
        ("ask look path s*", Finding(), "ask rule"),
        ("allow save path a*", reaches("a"), "allow rule"),
        ("allow save path a*", reaches("a", doubt="it has two names"), "allow rule"),
        ("allow save path a*", reaches("a", "secret"), "ask tool"),
        ("allow save path a*", Finding(), "ask tool"),
    ],
)
def test_what_a_path_reaches_decides(rules: str, finding: Finding, verdict: str) -> None:
    name = rules.split()[1]
    run = begun(settings(rules), name, path="a")
    (request,) = run.got(InspectCall)
    assert (request.tool, request.globs) == (name, (rules.split()[3],))
    run.inspect(name, finding)
    assert [f"{verdict} {ground}" for _, verdict, ground in run.judged] == [verdict]


def test_a_command_is_allowed_part_by_part_by_rules_and_people() -> None:
    run = begun(settings("allow run command git *", "deny run command never*"), "run", command="x")
    run.inspect("run", runs("git log", "make all"))
    run.decide("run", ApproveAlways(where=(("command", "make *"),)))
    run.inspect("run", runs("git log", "make all"))
    run.end("run")
    run.say(call(0, "run", command="x"))
    run.inspect("run", runs("git log", "make all"))
    assert run.judged == [("run", "allow", "rule")]
    run.end("run")
    run.say(call(0, "run", command="x"))
    run.inspect("run", runs("git log", beyond="it writes to 'x'"))
    assert [question.why for question in run.got(AskApproval)] == [
        "tool: it may change anything; it writes to 'x'"
    ]


# What has changed since


def test_a_link_that_was_turned_while_a_person_thought_is_seen() -> None:
    run = begun(settings("ask save path a*", "deny save path s*"), "save", path="a")
    run.inspect("save", reaches("a"))
    run.decide("save", Approve())
    assert (len(run.got(InspectCall)), run.all(RunTool)) == (1, [])
    run.inspect("save", reaches("a", "secret"))
    assert (run.all(RunTool), run.outcomes) == ([], [("save", "denied")])


def test_a_person_who_said_yes_to_what_was_in_doubt_is_not_asked_again() -> None:
    run = begun(settings("deny save path s*"), "save", path="a")
    run.inspect("save", reaches("a", doubt="it has two names"))
    run.decide("save", Approve())
    run.inspect("save", reaches("a", doubt="it has two names"))
    assert run.started == ["save"]


def test_what_a_person_wrote_is_looked_at_too() -> None:
    run = begun(settings("deny save path s*"), "save", path="a")
    run.inspect("save", reaches("a"))
    run.decide("save", Approve(arguments='{"path": "b"}'))
    (again,) = run.got(InspectCall)
    assert json.loads(again.arguments) == {"path": "b"}
    run.inspect("save", reaches("b", "secret"))
    assert run.outcomes == [("save", "denied")]


def test_a_call_that_waited_is_looked_at_again_when_it_starts() -> None:
    """Its mode may be another one by then, and so may what it reaches."""
    policy = Policy(concurrency=Concurrency.PARALLEL_READS)
    run = MachineHarness(settings("allow save path a*", "deny save path s*", policy=policy))
    run.say(call(0, "look", path="x"), call(1, "save", path="a"))
    run.inspect("save", reaches("a"))
    assert run.judged == [("save", "allow", "rule")]
    run.end("look")
    assert (len(run.got(InspectCall)), run.started) == (1, [])
    run.change(SetMode(mode="dont_ask"))
    run.inspect("save", reaches("a", "elsewhere"))
    assert run.outcomes[-1] == ("save", "denied")


def test_nothing_starts_beside_what_is_at_work_once_calls_run_one_at_a_time() -> None:
    run = MachineHarness(settings(policy=Policy(concurrency=Concurrency.PARALLEL_READS)))
    run.say(call(0, "look", path="x"), call(1, "look", path="y"), call(2, "save", path="a"))
    run.decide("save", Approve())
    serial = attrs.evolve(run.machine.config, policy=Policy(concurrency=Concurrency.SERIAL))
    run = MachineHarness(Machine(serial, run.machine.state, run.machine.memory))
    run.end("look")
    assert run.started == []
    run.end("look")
    assert run.started == ["save"]


@pytest.mark.parametrize("now", [(), (ToolSpec(name="save", schema=SHELL, paths=("path",)),)])
@pytest.mark.parametrize("waits", ["looked at", "allowed"])
def test_a_call_does_not_start_where_its_tool_has_gone_or_takes_something_else(
    now: tuple[ToolSpec, ...], waits: str
) -> None:
    policy = Policy(concurrency=Concurrency.PARALLEL_READS)
    run = MachineHarness(settings("allow save path a*", policy=policy))
    run.say(call(0, "look", path="x"), call(1, "save", path="a"))
    if waits == "allowed":
        run.inspect("save", reaches("a"))
    there = attrs.evolve(run.machine.config, tools=(*TOOLS[:1], *now))
    run = MachineHarness(Machine(there, run.machine.state, run.machine.memory))
    if waits == "looked at":
        run.inspect("save", reaches("a"))
    run.end("look")
    assert (run.started, run.outcomes[-1]) == ([], ("save", "error"))


def test_a_call_that_a_hook_allowed_is_asked_about_where_a_new_rule_may_deny_it() -> None:
    hook = HookSpec(name="hook", hook=Hook.PRE_TOOL_USE, tool="save")
    policy = Policy(concurrency=Concurrency.PARALLEL_READS)
    run = MachineHarness(settings(policy=policy, hooks=(hook,)))
    run.say(call(0, "look", path="x"), call(1, "save", path="a"))
    run.answer(HookAnswer(verdict="allow"))
    assert run.judged == [("save", "allow", "hook")]
    there = settings("deny save path s*", policy=policy, hooks=(hook,))
    run = MachineHarness(Machine(there, run.machine.state, run.machine.memory))
    run.end("look")
    run.inspect("save", reaches("a", doubt="it has two names"))
    assert (run.started, len(run.got(AskApproval))) == ([], 1)


def test_hooks_that_another_process_has_are_asked_before_a_call_is_judged_by_what_was_found() -> None:
    policy, rules = Policy(gates=Gates.HOOKS_FIRST), "deny save path s*"
    run = begun(settings(rules, policy=policy), "save", path="a")
    there = settings(rules, policy=policy, hooks=(HookSpec(name="hook", hook=Hook.PRE_TOOL_USE),))
    run = MachineHarness(Machine(there, run.machine.state, run.machine.memory))
    run.inspect("save", reaches("a"))
    assert (len(run.got(FireHook)), run.judged) == (1, [])
    run.answer(HookAnswer(verdict="deny"))
    assert run.outcomes == [("save", "denied")]


def test_always_answers_the_open_questions_that_it_covers_by_what_was_found() -> None:
    policy = Policy(concurrency=Concurrency.PARALLEL)
    run = MachineHarness(settings("ask save path *", policy=policy))
    run.say(*[call(number, "save", path=path) for number, path in enumerate("abc")])
    for path, real in (("a", "a1"), ("b", "a2"), ("c", "secret")):
        (request,) = [one for one in run.all(InspectCall) if json.loads(one.arguments) == {"path": path}]
        assert request.id in run.machine.state.open
        finding = reaches(path, real)
        one = attrs.evolve(finding.paths[0], written=("a",))
        run.inspect("save", Finding(paths=(one,)))
    assert len(run.all(AskApproval)) == 3
    run.decide("save", ApproveAlways(where=(("path", "a*"),)))
    left = [one for one in run.all(AskApproval) if one.id in run.machine.state.open]
    assert [json.loads(one.arguments) for one in left] == [{"path": "c"}]


# A process that is lost


@pytest.mark.parametrize(
    ("rules", "again"),
    [
        ((), True),
        (("deny look path s*",), True),
        (("deny look path real*",), False),
        (("deny look path a*",), False),
    ],
)
def test_a_tool_that_is_run_again_is_judged_by_what_was_known_when_it_began(
    rules: tuple[str, ...],
    again: bool,  # noqa: FBT001  # a column
) -> None:
    run = begun(settings("deny look path s*"), path="a")
    run.inspect("look", reaches("a", "real"))
    machine = Machine(settings(*rules), run.machine.state, run.machine.memory)
    found = recover(machine, 9.0).again
    assert [isinstance(one, RunTool) for one in found] == [True] * again


def test_a_tool_that_was_never_looked_at_does_not_run_again_where_a_new_rule_would() -> None:
    run = begun(settings(), path="a")
    assert run.started == ["look"]
    machine = Machine(settings("deny look path s*"), run.machine.state, run.machine.memory)
    assert recover(machine, 9.0).again == ()


def test_a_look_that_was_lost_is_taken_again() -> None:
    machine = run_at("executing, looked at").machine
    (again,) = recover(machine, 9.0).again
    assert isinstance(again, InspectCall)
    gone = Machine(attrs.evolve(machine.config, tools=(), rules=()), machine.state, machine.memory)
    (event,) = recover(gone, 9.0).events
    assert not isinstance(event, ToolLost)
    gone.advance(event)
    assert gone.memory.history[-1].results[0].outcome == "error"
