"""Who may run a call: the mode, the tool, the rules, the hooks and a person, and which of them wins."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import attrs
import pytest
from hypothesis import given, strategies as st
from support.memories import remember

from turnwheel.effects.config import Approval, Policy, ToolSpec
from turnwheel.effects.errors import ArgumentError
from turnwheel.effects.events import Approve, ApproveAlways
from turnwheel.effects.findings import UNKNOWN, CommandFound, Finding, SimpleCommand
from turnwheel.effects.hooks import Hook, HookAnswer, HookSpec
from turnwheel.effects.notices import CallJudged
from turnwheel.effects.permissions import Basis, PermissionMode, Rule, Verdict, resolved
from turnwheel.effects.records import GrantRule
from turnwheel.effects.requests import AskApproval, RunAgent, RunTool
from turnwheel.states.rules.hooks import Opinion
from turnwheel.states.rules.permission import Judgement, PermissionPolicy
from turnwheel.testing.harness import TOOLS, MachineHarness, calls, config

MODES = tuple(PermissionMode)
ALLOW, ASK, DENY = (Rule(verdict=verdict, tool="*") for verdict in Verdict)
GRANT = GrantRule(rule=ALLOW)
"""What a person allowed for good about a call of which no rule asked."""
YES = GrantRule(rule=ALLOW, outvotes=(ASK,))
"""What a person allowed for good when a rule asked."""
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


# The mode and the tool, where no person, rule or hook speaks

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
def test_the_mode_and_the_tool_decide_where_no_rule_or_hook_does(tool: str, mode: str, expected: str) -> None:
    run = MachineHarness(config(policy=Policy(mode=PermissionMode(mode))))
    run.say(*calls(tool))
    assert what_happened(run) == expected


def test_where_there_is_no_child_at_all_the_model_is_told_so() -> None:
    run = MachineHarness(config(children=()))
    run.say(*calls("hire"))
    run.decide("hire", Approve())
    assert run.results[-1][2] == "No agent named 'kid'. There are: none."


@pytest.mark.parametrize("ceiling", MODES)
@pytest.mark.parametrize("mode", MODES)
def test_a_mode_is_within_another_where_no_call_fares_better(
    mode: PermissionMode, ceiling: PermissionMode
) -> None:
    """Of all calls of these tools, whatever rules, grants and hooks say about them."""
    voices = (
        ((), (ALLOW,), (ASK,), (DENY,)),
        ((), (GRANT,), (YES,)),
        (None, *[Opinion(verdict=one) for one in Verdict]),
    )

    def verdicts(mode: PermissionMode) -> list[int]:
        return [
            (Verdict.DENY, Verdict.ASK, Verdict.ALLOW).index(law.judge(spec, {}, opinion).verdict)
            for spec in TOOLS
            for rules, granted, opinion in itertools.product(*voices)
            for law in [PermissionPolicy(mode=mode, rules=rules, granted=granted)]
        ]

    better = [here > there for here, there in zip(verdicts(mode), verdicts(ceiling), strict=True)]
    assert mode.within(ceiling) is not any(better)


# Rules, hooks and people

BY_VOICE = """
                     | default     | plan      | dont_ask    | bypass
rule allow           | allow rule  | deny mode | allow rule  | allow mode
rule ask             | ask rule    | deny mode | deny mode   | ask rule
rule deny            | deny rule   | deny rule | deny rule   | deny rule
grant                | allow grant | deny mode | allow grant | allow mode
hook allow           | allow hook  | deny mode | allow hook  | allow mode
hook ask             | ask hook    | deny mode | deny mode   | allow mode
hook deny            | deny hook   | deny hook | deny hook   | deny hook
rule allow, rule ask | ask rule    | deny mode | deny mode   | ask rule
rule allow, rule deny| deny rule   | deny rule | deny rule   | deny rule
rule ask, rule deny  | deny rule   | deny rule | deny rule   | deny rule
grant, rule ask      | ask rule    | deny mode | deny mode   | ask rule
yes, rule ask        | allow grant | deny mode | allow grant | allow mode
grant, rule deny     | deny rule   | deny rule | deny rule   | deny rule
grant, hook ask      | ask hook    | deny mode | deny mode   | allow mode
grant, hook deny     | deny hook   | deny hook | deny hook   | deny hook
hook allow, rule ask | ask rule    | deny mode | deny mode   | ask rule
hook allow, rule deny| deny rule   | deny rule | deny rule   | deny rule
hook ask, rule allow | ask hook    | deny mode | deny mode   | allow mode
hook deny, rule allow| deny hook   | deny hook | deny hook   | deny hook
hook deny, rule deny | deny rule   | deny rule | deny rule   | deny rule
"""
"""
A write, about which a rule, a person who said "always", and a hook say something, alone or two of them.

The person has said it of a call about which no rule asked (grant), or of one about which the rule did (yes).
"""


@pytest.mark.parametrize(("voices", "mode", "expected"), grid(BY_VOICE))
def test_who_wins_where_several_speak(voices: str, mode: str, expected: str) -> None:
    said = voices.split(", ")
    rules = tuple([rule for rule in (ALLOW, ASK, DENY) if f"rule {rule.verdict}" in said])
    verdicts = [Verdict(one.removeprefix("hook ")) for one in said if one.startswith("hook")]
    run = MachineHarness(
        config(policy=Policy(mode=PermissionMode(mode)), rules=rules, hooks=(GUARD,) if verdicts else ())
    )
    granted = tuple([grant for word, grant in (("grant", GRANT), ("yes", YES)) if word in said])
    run.machine.memory = remember(run.machine.memory, granted=granted)
    run.say(*calls("write"))
    for verdict in verdicts:
        run.answer(HookAnswer(verdict=verdict))
    assert what_happened(run) == expected


VOICES: tuple[tuple[tuple[Rule, ...], tuple[GrantRule, ...], Opinion | None], ...] = tuple(
    itertools.product(
        [(), (ALLOW,), (ASK,), (ALLOW, ASK), (ASK, ALLOW)],
        [(), (GRANT,), (YES,)],
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
    for _, found in judgements(mode, spec, DENY):
        assert (found.verdict, found.ground, found.detail) == (Verdict.DENY, Basis.RULE, "deny *")


@each_law
@each_tool
def test_a_rule_that_allows_never_undoes_a_denial_or_a_question_by_name(
    mode: PermissionMode, spec: ToolSpec
) -> None:
    for before, after in judgements(mode, spec, ALLOW):
        if before != after:
            assert before.ground in {Basis.TOOL, Basis.MODE}
            assert after == Judgement(Verdict.ALLOW, Basis.RULE, "allow *")
            assert mode is not PermissionMode.PLAN or spec.name in {"look", "peek"}


@each_law
@each_tool
def test_a_rule_that_asks_never_lets_anything_run(mode: PermissionMode, spec: ToolSpec) -> None:
    strictness = [Verdict.ALLOW, Verdict.ASK, Verdict.DENY]
    for before, after in judgements(mode, spec, ASK):
        assert strictness.index(after.verdict) >= strictness.index(before.verdict)


@pytest.mark.parametrize(
    ("mode", "never"),
    [
        (PermissionMode.DONT_ASK, Verdict.ASK),
        (PermissionMode.PLAN, Verdict.ALLOW),
    ],
)
def test_what_a_mode_never_does(mode: PermissionMode, never: Verdict) -> None:
    for spec in TOOLS:
        if mode is PermissionMode.PLAN and spec.name in {"look", "peek"}:
            continue
        for found in itertools.chain.from_iterable(judgements(mode, spec, ALLOW, ASK)):
            assert found.verdict is not never


def test_in_bypass_only_a_rule_asks() -> None:
    for spec in TOOLS:
        for before, after in judgements(PermissionMode.BYPASS, spec, ASK):
            if before.verdict is Verdict.ASK:
                assert before.ground is Basis.RULE
            assert after.verdict is not Verdict.ALLOW or after.ground is Basis.MODE


SHELL = ToolSpec(name="bash", command="command")
PUSH = Rule(verdict="ask", tool="bash", where=(("command", "git push*"),))


def ran(*lines: str) -> Finding:
    commands = tuple([SimpleCommand(words=tuple(line.split())) for line in lines])
    return Finding(commands=(CommandFound(argument="command", commands=commands),))


@pytest.mark.parametrize(
    ("grants", "lines", "expected"),
    [
        # An "always" that was said of another call does not answer what a rule asks about.
        ({"*": False}, ["git push"], "ask rule"),
        ({"git *": False}, ["git push"], "ask rule"),
        ({"git *": True}, ["git push"], "allow grant"),
        ({"git push": True}, ["git push"], "allow grant"),
        ({"git push": True}, ["git push -f"], "ask rule"),
        # Of a line, the part that the rule asks about needs the yes.
        ({"git push": True}, ["ls", "git push"], "ask tool"),
        ({"git push": True, "ls*": False}, ["ls", "git push"], "allow grant"),
        ({"git push": True, "ls*": False}, ["git push", "ls"], "allow grant"),
        ({"ls*": True}, ["git push", "ls"], "ask rule"),
        ({"git push": False, "ls*": True}, ["ls", "git push"], "ask rule"),
        ({"*": True}, ["sudo git push"], "allow grant"),
        ({"*": True}, [f"{UNKNOWN} push"], "allow grant"),
        ({"*": False}, ["ls"], "allow grant"),
    ],
)
def test_a_rule_that_asks_is_outvoted_by_a_yes_to_such_a_call(
    grants: dict[str, bool], lines: list[str], expected: str
) -> None:
    granted = tuple(
        [
            GrantRule(
                rule=Rule(verdict="allow", tool="bash", where=(("command", glob),)),
                outvotes=(PUSH,) if asked else (),
            )
            for glob, asked in grants.items()
        ]
    )
    law = PermissionPolicy(mode=PermissionMode.DEFAULT, rules=(PUSH,), granted=granted)
    found = law.judge(SHELL, {"command": "; ".join(lines)}, None, ran(*lines))
    assert f"{found.verdict} {found.ground}" == expected


def test_a_rule_that_cannot_be_read_to_its_end_is_outvoted_by_no_part() -> None:
    """However much a person granted, one judgement holds no more text against rules than another."""
    rules = tuple([attrs.evolve(PUSH, where=(("command", f"*x{number}y*"),)) for number in range(20)])
    grant = GrantRule(rule=Rule(verdict="allow", tool="bash", where=(("command", "ls"),)), outvotes=rules)
    law = PermissionPolicy(mode=PermissionMode.DEFAULT, rules=rules, granted=(grant,))
    lines = [f"sudo {'-a ' * 90}"] * 48
    found = law.judge(SHELL, {"command": "; ".join(lines)}, None, ran(*lines))
    assert (found.verdict, found.ground, found.asked_by) == (Verdict.ASK, Basis.RULE, ())


def test_a_yes_is_to_the_rules_that_asked() -> None:
    other = attrs.evolve(PUSH, where=(("command", "git log*"),))
    law = PermissionPolicy(mode=PermissionMode.DEFAULT, rules=(ALLOW, PUSH, other, DENY, ASK))
    for command, asked_by in (("git push", (PUSH, ASK)), ("sudo x", (ASK,))):
        question = law.rule_question(SHELL, {"command": command}, ran(command))
        assert question is not None
        assert question.asked_by == asked_by
    law = attrs.evolve(law, rules=(PUSH,))
    question = law.rule_question(SHELL, {"command": "x"}, ran("sudo x"))
    assert question is not None
    assert (question.asked_by, question.detail[:30]) == ((), "ask bash:command=git push* may")


# What runs in the sandbox


IN_SANDBOX = attrs.evolve(SHELL, sandboxed=True)


@pytest.mark.parametrize(
    ("lines", "rules", "expected"),
    [
        (["make test"], (), "allow tool: it runs in the sandbox"),
        (["make test"], (DENY,), "deny rule"),
        (["git push"], (PUSH,), "ask rule"),
        (["git pull"], (PUSH,), "allow tool: it runs in the sandbox"),
        (["sudo make"], (), "ask tool: it may change anything; 'sudo' may run what"),
        ([f"make {UNKNOWN}"], (), "allow tool: it runs in the sandbox"),
        (["find . -name a"], (), "allow tool: it runs in the sandbox"),
        ([f"find . -name a{UNKNOWN}"], (), "ask tool: it may change anything; 'find' may run what"),
        (None, (), "ask tool: it may change anything"),
    ],
)
def test_a_command_in_the_sandbox_is_allowed_where_it_is_plain_and_no_rule_speaks(
    lines: list[str] | None, rules: tuple[Rule, ...], expected: str
) -> None:
    law = PermissionPolicy(mode=PermissionMode.DEFAULT, rules=rules, allows_sandboxed=True)
    assert law.looks_at(IN_SANDBOX)
    finding = Finding() if lines is None else ran(*lines)
    found = law.judge(IN_SANDBOX, {"command": "; ".join(lines or ["x"])}, None, finding)
    assert f"{found.verdict} {found.ground}: {found.detail}".startswith(expected)
    # Outside of it, and where nothing is allowed for that, it is asked about as ever.
    for spec, other in ((SHELL, law), (IN_SANDBOX, attrs.evolve(law, allows_sandboxed=False))):
        assert other.judge(spec, {"command": "make"}, None, ran("make")).verdict is not Verdict.ALLOW


@pytest.mark.parametrize("mode", PermissionMode)
def test_the_sandbox_outvotes_no_mode(mode: PermissionMode) -> None:
    law = PermissionPolicy(mode=mode, allows_sandboxed=True)
    expected = Verdict.DENY if mode is PermissionMode.PLAN else Verdict.ALLOW
    assert law.judge(IN_SANDBOX, {"command": "make"}, None, ran("make")).verdict is expected


def test_a_tool_that_is_always_asked_about_is_in_the_sandbox_too() -> None:
    law = PermissionPolicy(mode=PermissionMode.DEFAULT, allows_sandboxed=True)
    always = attrs.evolve(IN_SANDBOX, approval=Approval.ALWAYS)
    assert law.judge(always, {"command": "make"}, None, ran("make")).verdict is Verdict.ASK


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
    assert Rule(verdict=verdict, tool="to?l", where=where).covers("tool", arguments) == covered
    assert not Rule(verdict=verdict, tool="other", where=where).covers("tool", arguments)


@pytest.mark.parametrize("made", [Rule, HookSpec, ApproveAlways])
@pytest.mark.parametrize("wrong", [{"path": 1}, ("path", "*"), (("path",),), (("path", 1),), "path", None])
def test_a_condition_that_is_none_is_refused_where_it_is_written(made: type, wrong: object) -> None:
    needed = {Rule: {"verdict": "deny", "tool": "*"}, HookSpec: {"name": "x", "hook": "stop"}}.get(made, {})
    with pytest.raises(ArgumentError, match=f"{made.__name__}.where must be globs by the names of arguments"):
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
    assert Rule(verdict="allow", tool="*", where=(("at", glob),)).covers("fetch", {"at": value}) == covered


@pytest.mark.parametrize(
    ("path", "plain"),
    [
        ("../../x", "../../x"),
        ("../../../x/", "../../../x"),
        ("a/../../x", "../x"),
        ("a/b/../../../../x", "../../x"),
        ("/../../x", "/x"),
        ("/a/../../x", "/x"),
        ("./a//b/.", "a/b"),
        ("a/..", ""),
        ("/", "/"),
        ("..", ".."),
        ("...", "..."),
        (".../..", ""),
    ],
)
def test_each_step_up_is_taken_or_kept(path: str, plain: str) -> None:
    assert resolved(path) == plain


paths = st.lists(st.sampled_from(["a", "b", ".", "..", "", "..."]), min_size=1, max_size=8).map("/".join)


@given(paths)
def test_a_resolved_path_is_plain_and_stays_as_it_is(path: str) -> None:
    plain = resolved(path)
    assert resolved(plain) == plain
    if "/" in path:
        assert plain.startswith("/") == path.startswith("/")
        steps = plain.removeprefix("/").split("/")
        below = list(itertools.dropwhile(lambda step: step == "..", steps))
        assert not {".", ".."} & set(below)
        assert plain in {"", "/"} or "" not in steps
        assert not path.startswith("/") or ".." not in steps
