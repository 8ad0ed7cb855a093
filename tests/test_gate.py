"""Who may run a call: the mode, the tool, the rules, the hooks and a person, and which of them wins."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwheel.effects.config import Concurrency, Gates, Policy, ToolSpec
from turnwheel.effects.errors import ArgumentError
from turnwheel.effects.events import Approve, ApproveAlways
from turnwheel.effects.hooks import Hook, HookAnswer, HookSpec
from turnwheel.effects.notices import CallJudged
from turnwheel.effects.permissions import (
    Basis,
    PermissionMode,
    Rule,
    Verdict,
    resolved,
)
from turnwheel.effects.records import SetMode
from turnwheel.effects.requests import AskApproval, RunAgent, RunTool
from turnwheel.states.rules.hooks import Opinion
from turnwheel.states.rules.permission import Judgement, PermissionPolicy
from turnwheel.testing.harness import (
    TOOLS,
    MachineHarness,
    call,
    calls,
    config,
    remember,
)

MODES = tuple(PermissionMode)
ALLOW, ASK, DENY = (Rule(verdict=verdict, tool="*") for verdict in Verdict)
GUARD = HookSpec(name="guard", hook=Hook.PRE_TOOL_USE)


def grid(text: str) -> list[tuple[str, str, str]]:
    """The cells of *text*, a table with a head and a first column: row, column and what stands there."""
    head, *lines = [[cell.strip() for cell in line.split("|")] for line in text.strip("\n").splitlines()]
    return [
        (name, column, cell) for name, *cells in lines for column, cell in zip(head[1:], cells, strict=True)
    ]


def what_happened(run: MachineHarness) -> str:
    """What the last judgement was and rests on, where what followed is what it says; else what is wrong."""
    judged = run.got(CallJudged)[-1]
    started = bool(run.got(RunTool) + run.got(RunAgent))
    followed = {
        (True, False, ""): Verdict.ALLOW,
        (False, True, ""): Verdict.ASK,
        (False, False, "denied"): Verdict.DENY,
    }
    outcome = run.outcomes[-1][1] if run.results else ""
    happened = followed.get((started, bool(run.got(AskApproval)), outcome))
    if judged.verdict is not happened:
        return f"{judged} was followed by {run.effects}"
    return f"{judged.verdict} {judged.ground}"


# The mode and the tool, where nobody says anything

BY_MODE = """
      | default    | accept_edits | plan       | dont_ask   | bypass
look  | allow tool | allow tool   | allow tool | allow tool | allow mode
peek  | ask tool   | ask tool     | ask tool   | deny mode  | allow mode
write | ask tool   | ask tool     | deny mode  | deny mode  | allow mode
edit  | ask tool   | allow mode   | deny mode  | deny mode  | allow mode
note  | allow tool | allow tool   | deny mode  | allow tool | allow mode
send  | allow tool | allow tool   | deny mode  | allow tool | allow mode
hire  | ask tool   | ask tool     | deny mode  | deny mode  | allow mode
"""
"""
A read, a read that asks, a write, an edit, a write that never asks, and two ways to a child.

Plan mode is for looking only: what never asks does not run in it either.
"""


@pytest.mark.parametrize(("tool", "mode", "expected"), grid(BY_MODE))
def test_the_mode_and_the_tool_decide_where_nobody_speaks(tool: str, mode: str, expected: str) -> None:
    """For each mode and each kind of tool: the verdict, what it rests on, and that it is followed."""
    run = MachineHarness(config(policy=Policy(mode=PermissionMode(mode))))
    run.say(*calls(tool))
    assert what_happened(run) == expected


# Rules, hooks and people

BY_VOICE = """
                     | default     | plan      | dont_ask    | bypass
rule allow           | allow rule  | deny mode | allow rule  | allow mode
rule ask             | ask rule    | deny mode | deny mode   | allow mode
rule deny            | deny rule   | deny rule | deny rule   | deny rule
grant                | allow grant | deny mode | allow grant | allow mode
hook allow           | allow hook  | deny mode | allow hook  | allow mode
hook ask             | ask hook    | deny mode | deny mode   | allow mode
hook deny            | deny hook   | deny hook | deny hook   | deny hook
rule allow, rule ask | ask rule    | deny mode | deny mode   | allow mode
rule allow, rule deny| deny rule   | deny rule | deny rule   | deny rule
rule ask, rule deny  | deny rule   | deny rule | deny rule   | deny rule
grant, rule ask      | allow grant | deny mode | allow grant | allow mode
grant, rule deny     | deny rule   | deny rule | deny rule   | deny rule
grant, hook ask      | ask hook    | deny mode | deny mode   | allow mode
grant, hook deny     | deny hook   | deny hook | deny hook   | deny hook
hook allow, rule ask | ask rule    | deny mode | deny mode   | allow mode
hook allow, rule deny| deny rule   | deny rule | deny rule   | deny rule
hook ask, rule allow | ask hook    | deny mode | deny mode   | allow mode
hook deny, rule allow| deny hook   | deny hook | deny hook   | deny hook
hook deny, rule deny | deny rule   | deny rule | deny rule   | deny rule
"""
"""A write, about which a rule, a person who said "always", and a hook say something, alone or two of them."""


@pytest.mark.parametrize(("voices", "mode", "expected"), grid(BY_VOICE))
def test_who_wins_where_several_speak(voices: str, mode: str, expected: str) -> None:
    """Denials beat everything, then asking beats allowing, but that a person's "always" answers a rule."""
    said = voices.split(", ")
    rules = tuple([rule for rule in (ALLOW, ASK, DENY) if f"rule {rule.verdict}" in said])
    verdicts = [Verdict(one.removeprefix("hook ")) for one in said if one.startswith("hook")]
    run = MachineHarness(
        config(policy=Policy(mode=PermissionMode(mode)), rules=rules, hooks=(GUARD,) if verdicts else ())
    )
    if "grant" in said:
        run.machine.memory = remember(run.machine.memory, granted=(ALLOW,))
    run.say(*calls("write"))
    for verdict in verdicts:
        run.answer(HookAnswer(verdict=verdict))
    assert what_happened(run) == expected


VOICES: tuple[tuple[tuple[Rule, ...], tuple[Rule, ...], Opinion | None], ...] = tuple(
    itertools.product(
        [(), (ALLOW,), (ASK,), (ALLOW, ASK), (ASK, ALLOW)],
        [(), (ALLOW,)],
        [None, Opinion(), *[Opinion(verdict=verdict, because="guard") for verdict in Verdict]],
    )
)
"""All that can be said at once: rules, what a person granted, the opinion of hooks."""

each_law = pytest.mark.parametrize("mode", MODES)
each_tool = pytest.mark.parametrize("spec", TOOLS, ids=lambda spec: spec.name)


def judgements(mode: PermissionMode, spec: ToolSpec, *more: Rule) -> Iterator[tuple[Judgement, Judgement]]:
    """The judgement on a call of *spec* whatever is said, and that where *more* rules stand besides."""
    for rules, granted, opinion in VOICES:
        law = PermissionPolicy(mode=mode, rules=rules, granted=granted)
        besides = attrs.evolve(law, rules=(*rules, *more))
        yield law.judge(spec, {}, opinion), besides.judge(spec, {}, opinion)


@each_law
@each_tool
def test_a_rule_that_denies_holds_whatever_else_is_said(mode: PermissionMode, spec: ToolSpec) -> None:
    """In every mode, bypass too, against every grant, every rule and every hook, wherever it stands."""
    for _, found in judgements(mode, spec, DENY):
        assert (found.verdict, found.ground, found.detail) == (Verdict.DENY, Basis.RULE, "deny *")


@each_law
@each_tool
def test_a_rule_that_allows_never_undoes_a_denial_or_a_question_by_name(
    mode: PermissionMode, spec: ToolSpec
) -> None:
    """It only answers what the tool itself would ask."""
    for before, after in judgements(mode, spec, ALLOW):
        if before != after:
            assert before.ground in {Basis.TOOL, Basis.MODE}
            assert after == Judgement(Verdict.ALLOW, Basis.RULE, "allow *")
            assert mode is not PermissionMode.PLAN or spec.name in {"look", "peek"}


@each_law
@each_tool
def test_a_rule_that_asks_never_lets_anything_run(mode: PermissionMode, spec: ToolSpec) -> None:
    """What was denied stays denied; what was allowed may become a question."""
    strictness = [Verdict.ALLOW, Verdict.ASK, Verdict.DENY]
    for before, after in judgements(mode, spec, ASK):
        assert strictness.index(after.verdict) >= strictness.index(before.verdict)


@pytest.mark.parametrize(
    ("mode", "never"),
    [
        (PermissionMode.DONT_ASK, Verdict.ASK),
        (PermissionMode.BYPASS, Verdict.ASK),
        (PermissionMode.PLAN, Verdict.ALLOW),
    ],
)
def test_what_a_mode_never_does(mode: PermissionMode, never: Verdict) -> None:
    """In two modes nobody is asked, whatever is said; in plan mode nothing runs but reads."""
    for spec in TOOLS:
        if mode is PermissionMode.PLAN and spec.name in {"look", "peek"}:
            continue
        for found in itertools.chain.from_iterable(judgements(mode, spec, ALLOW, ASK)):
            assert found.verdict is not never


# What is said about it


@pytest.mark.parametrize(
    ("settings", "says", "why"),
    [
        ({}, HookAnswer(), "tool: it may change anything"),
        ({"rules": (ASK,)}, HookAnswer(), "rule: ask *"),
        ({}, HookAnswer(verdict="ask", reason="mind the gap"), "hook: guard: mind the gap"),
        ({}, HookAnswer(verdict="ask"), "hook: guard"),
    ],
)
def test_a_question_says_why_it_is_one(settings: dict[str, object], says: HookAnswer, why: str) -> None:
    """Whoever is asked reads which rule, hook or property of the tool made it a question."""
    run = MachineHarness(config(hooks=(GUARD,), **settings))
    run.say(*calls("write"))
    run.answer(says)
    assert [question.why for question in run.got(AskApproval)] == [why]


@pytest.mark.parametrize(
    ("settings", "says", "content"),
    [
        ({"rules": (DENY,)}, HookAnswer(), "Denied by a rule: deny *."),
        ({}, HookAnswer(verdict="deny", reason="not here"), "Denied by a hook: guard: not here"),
        ({"policy": Policy(mode="dont_ask")}, HookAnswer(), "Denied: the permission mode is dont_ask."),
        ({"policy": Policy(mode="plan")}, HookAnswer(), "Denied: the permission mode is plan."),
    ],
)
def test_a_denial_tells_the_model_what_denied_it(
    settings: dict[str, object], says: HookAnswer, content: str
) -> None:
    """The result names it, so that the model does not try the same again."""
    run = MachineHarness(config(hooks=(GUARD,), **settings))
    run.say(*calls("write"))
    run.answer(says)
    assert run.results == [("write", "denied", content)]


def test_a_denial_by_rule_concerns_one_call() -> None:
    """The calls behind it are judged for themselves and run; what a person's no does is another matter."""
    deny = Rule(verdict="deny", tool="note", where=(("path", "secret"),))
    run = MachineHarness(config(rules=(deny,)))
    run.say(call(0, "note", path="secret"), call(1, "note", path="open"))
    assert run.started == ["note"]
    run.end("note")
    assert run.outcomes == [("note", "denied"), ("note", "ok")]
    assert run.label == "streaming"


# Arguments that match


@pytest.mark.parametrize(
    ("where", "arguments", "covered"),
    [
        ((), {"path": "a"}, True),
        ((("path", "src/*"),), {"path": "src/a/b.py"}, True),
        ((("path", "src/*"),), {"path": "etc/passwd"}, False),
        ((("path", "src/*"),), {}, False),
        ((("path", "A"),), {"path": "a"}, False),
        ((("n", "1?"),), {"n": 12}, True),
        ((("force", "true"),), {"force": True}, True),
        ((("names", '["a"*'),), {"names": ["a", "b"]}, True),
        ((("path", "*"), ("mode", "r")), {"path": "a", "mode": "w"}, False),
        ((("path", "*.md"), ("mode", "r")), {"path": "a.md", "mode": "r"}, True),
        ((("command", "git *"),), {"command": "git status\nrm -r ."}, True),
    ],
)
@pytest.mark.parametrize("verdict", Verdict)
def test_what_a_rule_covers(
    verdict: Verdict, where: tuple[tuple[str, str], ...], arguments: dict[str, object], *, covered: bool
) -> None:
    """Each named argument matches its glob, by its JSON text where it is no string."""
    assert Rule(verdict=verdict, tool="to?l", where=where).covers("tool", arguments) == covered
    assert not Rule(verdict=verdict, tool="other", where=where).covers("tool", arguments)


@pytest.mark.parametrize("made", [Rule, HookSpec, ApproveAlways])
@pytest.mark.parametrize("wrong", [{"path": "*"}, ("path", "*"), (("path",),), (("path", 1),), "path", None])
def test_a_condition_that_is_none_is_refused_where_it_is_written(made: type, wrong: object) -> None:
    """Not when a call is judged by it, in the middle of a run."""
    needed = {Rule: {"verdict": "deny", "tool": "*"}, HookSpec: {"name": "x", "hook": "stop"}}.get(made, {})
    with pytest.raises(ArgumentError, match=f"{made.__name__}.where must be pairs of a name and a glob"):
        made(where=wrong, **needed)


COVERED = """
                        | allow src/* | deny src/* | allow /etc/* | deny /etc/* | ask /etc/*
src/a.py                | yes         | yes        | no           | no          | no
./src/a.py              | no          | yes        | no           | no          | no
src//a.py               | yes         | yes        | no           | no          | no
src/./a.py              | yes         | yes        | no           | no          | no
src/sub/../a.py         | yes         | yes        | no           | no          | no
src/../etc/passwd       | no          | yes        | no           | no          | no
src/../../etc/passwd    | no          | yes        | no           | no          | no
lib/../src/a.py         | no          | yes        | no           | no          | no
../src/a.py             | no          | no         | no           | no          | no
srcs/a.py               | no          | no         | no           | no          | no
/etc/passwd             | no          | no         | yes          | yes         | yes
//etc/passwd            | no          | no         | no           | yes         | yes
/./etc/passwd           | no          | no         | no           | yes         | yes
/tmp/../etc/passwd      | no          | no         | no           | yes         | yes
/tmp/./..//etc/passwd   | no          | no         | no           | yes         | yes
/../etc/passwd          | no          | no         | no           | yes         | yes
/a/../../etc/passwd     | no          | no         | no           | yes         | yes
/etc/../home/x          | no          | no         | no           | yes         | yes
/etc/x/../../home/x     | no          | no         | no           | yes         | yes
/home/etc/x             | no          | no         | no           | no          | no
"""
"""What allows must match a path both as it is written and as it is meant; what asks or denies, either."""


@pytest.mark.parametrize(("path", "rule", "covered"), grid(COVERED))
def test_dots_and_slashes_hide_nothing(path: str, rule: str, covered: str) -> None:
    """A path can be written in many ways, and no way around a rule is one of them."""
    verdict, glob = rule.split()
    one = Rule(verdict=verdict, tool="*", where=(("path", glob),))
    assert one.covers("write", {"path": path}) == (covered == "yes")


@pytest.mark.parametrize(
    ("glob", "value", "covered"),
    [
        ("https://example.com/*", "https://example.com/a", True),
        ("https://example.com/*", "https://example.com/a//b", True),
        ("https://example.com/*", "https://example.com/../b", False),
        ("https://example.com/*", "https://example.com.evil/a", False),
        ("https://example.com/*", "https:/example.com/a", False),
        ("curl https://*", "curl https://example.com/a", True),
        ("./src/*", "./src/a", True),
        ("./src/*", "./src/../a", False),
        ("../src/*", "../src/a", True),
        ("../src/*", "../src/../a", False),
    ],
)
def test_a_rule_that_allows_may_have_slashes_and_dots_of_its_own(
    glob: str, value: str, *, covered: bool
) -> None:
    """An address or a path beside this one is written with them, and is matched as it is written."""
    assert Rule(verdict="allow", tool="*", where=(("at", glob),)).covers("fetch", {"at": value}) == covered


paths = st.lists(st.sampled_from(["a", "b", ".", "..", "", "..."]), min_size=1, max_size=8).map("/".join)


@given(paths)
def test_a_resolved_path_is_plain_and_stays_as_it_is(path: str) -> None:
    """No detour is left in it but at its very beginning, where nothing is known of what is above."""
    plain = resolved(path)
    assert resolved(plain) == plain
    if "/" in path:
        assert plain.startswith("/") == path.startswith("/")
        steps = plain.removeprefix("/").split("/")
        below = list(itertools.dropwhile(lambda step: step == "..", steps))
        assert not {".", ".."} & set(below)
        assert plain in {"", "/"} or "" not in steps
        assert not path.startswith("/") or ".." not in steps


@pytest.mark.parametrize(("glob", "started"), [("src/*", []), ("*", ["write"])])
def test_a_path_that_leads_out_is_asked_about(glob: str, started: list[str]) -> None:
    """The rule for a folder is no rule for what lies outside of it."""
    run = MachineHarness(config(rules=(Rule(verdict="allow", tool="write", where=(("path", glob),)),)))
    run.say(call(0, "write", path="src/../etc/passwd"))
    assert run.started == started
    assert bool(run.got(AskApproval)) != bool(started)


# Arguments that somebody changed

NO_ETC = Rule(verdict="deny", tool="*", where=(("path", "/etc/*"),))
ASK_ETC = Rule(verdict="ask", tool="*", where=(("path", "/etc/*"),))
ALLOW_SRV = Rule(verdict="allow", tool="*", where=(("path", "/srv/*"),))

REWRITTEN = """
{"path": "/srv/b"}            | allow rule
{"path": "/home/b"}           | ask tool
{"path": "/srv/../etc/x"}     | deny rule
{"path": "/etc/x"}            | deny rule
"""


@pytest.mark.parametrize(
    ("arguments", "expected"), [line.split("|") for line in REWRITTEN.strip().splitlines()]
)
def test_what_a_hook_made_of_it_is_what_the_rules_judge(arguments: str, expected: str) -> None:
    """The arguments that were allowed are not those that would run."""
    run = MachineHarness(config(hooks=(GUARD,), rules=(ALLOW_SRV, NO_ETC)))
    run.say(call(0, "write", path="/srv/a"))
    run.answer(HookAnswer(arguments=arguments.strip()))
    assert what_happened(run) == expected.strip()


def test_what_a_hook_made_of_it_is_judged_again_where_the_rules_came_first() -> None:
    """The rules allowed something else: they look again at what a hook made of it."""
    policy = Policy(gates=Gates.RULES_FIRST)
    run = MachineHarness(config(hooks=(GUARD,), rules=(ALLOW_SRV, ASK_ETC), policy=policy))
    run.say(call(0, "write", path="/srv/a"))
    assert run.judged == [("write", "allow", "rule")]
    run.answer(HookAnswer(arguments='{"path": "/etc/a"}'))
    assert what_happened(run) == "ask rule"
    assert run.got(AskApproval)[0].arguments == '{"path": "/etc/a"}'


@pytest.mark.parametrize(
    ("arguments", "outcome"),
    [
        ('{"path": "/etc/x"}', "denied"),
        ('{"path": "/tmp/../etc/x"}', "denied"),
        ('{"path": 7}', "error"),
        ("{}", "error"),
        ("{", "error"),
    ],
)
def test_what_a_person_made_of_it_is_checked_again(arguments: str, outcome: str) -> None:
    """A yes is to a call that fits its schema and that nothing denies; the tool does not run otherwise."""
    run = MachineHarness(config(rules=(NO_ETC,)))
    run.say(call(0, "write", path="a"))
    run.decide("write", Approve(arguments=arguments))
    assert run.all(RunTool) == []
    assert run.outcomes == [("write", outcome)]
    assert len(run.all(AskApproval)) == 1


def test_what_a_person_made_of_it_is_not_asked_about_again() -> None:
    """They have had their say, also where a rule would ask about what they wrote."""
    run = MachineHarness(config(rules=(ASK_ETC,)))
    run.say(call(0, "write", path="a"))
    run.decide("write", Approve(arguments='{"path": "/etc/x"}'))
    assert run.started == ["write"]
    assert len(run.all(AskApproval)) == 1


# A mode that changes while calls wait


def test_plan_mode_denies_what_was_allowed_and_has_not_started() -> None:
    """A call that a person allowed waits for its turn; when that comes the mode is another."""
    run = MachineHarness(config(policy=Policy(concurrency=Concurrency.PARALLEL_READS)))
    run.say(*calls("look", "write", "look"))
    run.decide("write", Approve())
    run.change(SetMode(mode=PermissionMode.PLAN))
    run.end("look")
    assert run.judged == [("write", "deny", "mode")]
    assert run.started == ["look"]
    run.end("look")
    assert run.outcomes == [("look", "ok"), ("write", "denied"), ("look", "ok")]


def test_plan_mode_denies_what_is_approved_in_it() -> None:
    """The question stays open; a yes to it is not enough any more."""
    run = MachineHarness()
    run.say(*calls("write"))
    run.change(SetMode(mode=PermissionMode.PLAN))
    assert run.label == "confirming"
    run.decide("write", Approve())
    assert run.judged == [("write", "allow", "person"), ("write", "deny", "mode")]
    assert run.all(RunTool) == []
    assert run.results == [("write", "denied", "Denied: the permission mode is plan.")]


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode is not PermissionMode.PLAN])
def test_what_a_person_allowed_runs_in_any_other_mode(mode: PermissionMode) -> None:
    """A mode says what happens where nobody has spoken; somebody has."""
    run = MachineHarness()
    run.say(*calls("write"))
    run.change(SetMode(mode=mode))
    run.decide("write", Approve())
    assert run.started == ["write"]


@pytest.mark.parametrize(
    ("mode", "expected"), [(PermissionMode.DEFAULT, "ask tool"), (PermissionMode.DONT_ASK, "deny mode")]
)
def test_what_a_mode_allowed_is_judged_again_when_its_turn_comes(mode: PermissionMode, expected: str) -> None:
    """In the mode of then nobody was to be asked about it; in this one somebody is, or it is denied."""
    policy = Policy(mode=PermissionMode.BYPASS, concurrency=Concurrency.PARALLEL_READS)
    run = MachineHarness(config(policy=policy))
    run.say(*calls("look", "write"))
    run.change(SetMode(mode=mode))
    run.end("look")
    assert what_happened(run) == expected


def test_what_a_rule_allowed_runs_when_its_turn_comes() -> None:
    """It is looked at again with its arguments, and nothing has changed."""
    rule = Rule(verdict="allow", tool="write", where=(("path", "src/*"),))
    policy = Policy(concurrency=Concurrency.PARALLEL_READS)
    run = MachineHarness(config(rules=(rule,), policy=policy))
    run.say(call(0, "look", path="a"), call(1, "write", path="src/a"))
    run.end("look")
    assert run.started == ["write"]
    assert len(run.all(CallJudged)) == 2


def test_what_is_at_work_when_the_mode_changes_is_let_finish() -> None:
    """It was allowed when it started; the next call of the same answer is judged by the new mode."""
    run = MachineHarness()
    run.say(*calls("note", "note"))
    run.change(SetMode(mode=PermissionMode.PLAN))
    run.end("note")
    assert run.outcomes == [("note", "ok"), ("note", "denied")]


def test_a_rule_that_came_while_a_question_was_open_denies_what_is_approved() -> None:
    """The settings of the moment in which a call starts decide."""
    run = MachineHarness()
    run.say(*calls("write"))
    run.machine.reconfigure(config(rules=(DENY,)))
    run.decide("write", Approve())
    assert run.all(RunTool) == []
    assert run.outcomes == [("write", "denied")]
