"""What rules, protected paths and commands say of a call: values in, values out."""

from __future__ import annotations

from typing import Any

import pytest

from turnwheel.effects.config import Approval, ToolSpec
from turnwheel.effects.findings import UNKNOWN, CommandFound, Finding, PathFound, SimpleCommand
from turnwheel.effects.permissions import PermissionMode, Rule
from turnwheel.effects.records import GrantRule
from turnwheel.states.rules.commands import MOST_ARGUMENTS, Effort, Fit, allows, met
from turnwheel.states.rules.permission import PermissionPolicy
from turnwheel.states.rules.rule_fit import allowing, doubt_of, fit, inspected, protection

SAVE = ToolSpec(name="save", edits=True, paths=("path", "to"))
PLAIN = ToolSpec(name="save", edits=True)
RUN = ToolSpec(name="run", command="command")
SEARCH = ToolSpec(name="find", searches=True, paths=("path",))


def rule(text: str) -> Rule:
    """``allow run command=git*``, with any number of arguments."""
    verdict, tool, *where = text.split()
    return Rule(verdict=verdict, tool=tool, where=tuple([(one[0], one[2]) for one in map(_parts, where)]))


def _parts(text: str) -> tuple[str, str, str]:
    return text.partition("=")


def path(value: str, *, real: str = "", doubt: str = "", argument: str = "path") -> PathFound:
    return PathFound(argument=argument, value=value, written=(value,), real=(real or value,), doubt=doubt)


def commands(*lines: str, beyond: str = "", unread: str = "") -> Finding:
    """What was found of a command; a line that begins with a blank stands inside another."""
    found = tuple([SimpleCommand(words=tuple(one.split()), inner=one.startswith(" ")) for one in lines])
    return Finding(commands=(CommandFound(argument="command", commands=found, beyond=beyond, unread=unread),))


# Which rule speaks about a call


@pytest.mark.parametrize(
    ("text", "finding", "expected"),
    [
        ("deny other path=a*", Finding(), Fit.NO),
        ("deny save", Finding(), Fit.YES),
        ("deny save path=a*", Finding(), Fit.YES),
        ("allow save path=a*", Finding(), Fit.MAYBE),
        ("deny save path=b*", Finding(), Fit.MAYBE),
        ("deny save path=b*", Finding(paths=(path("abc"),)), Fit.NO),
        ("deny save path=b*", Finding(paths=(path("abc", real="b"),)), Fit.YES),
        ("deny save path=b*", Finding(paths=(path("abc", doubt="two names"),)), Fit.MAYBE),
        ("deny save path=b*", Finding(paths=(path("abc", argument="to"),)), Fit.MAYBE),
        ("deny save path=b*", Finding(paths=(path("b", argument="path"),)), Fit.MAYBE),
        ("allow save path=a*", Finding(paths=(path("abc"),)), Fit.YES),
        ("allow save path=a*", Finding(paths=(path("abc", doubt="two names"),)), Fit.YES),
        ("allow save path=a*", Finding(paths=(path("abc", real="b"),)), Fit.NO),
        ("allow save path=b*", Finding(paths=(path("abc", real="b"),)), Fit.NO),
        ("allow save path=a* text=x", Finding(paths=(path("abc"),)), Fit.YES),
        ("allow save path=a* text=y", Finding(paths=(path("abc"),)), Fit.NO),
        ("allow save text=y path=a*", Finding(), Fit.NO),
        ("allow save text=x path=a*", Finding(), Fit.MAYBE),
        ("deny save to=a*", Finding(), Fit.NO),
        ("deny save gone=a*", Finding(), Fit.NO),
    ],
)
def test_a_rule_about_paths_speaks_by_all_that_it_names(text: str, finding: Finding, expected: Fit) -> None:
    assert fit(rule(text), SAVE, {"path": "abc", "text": "x"}, finding, Effort()) is expected


@pytest.mark.parametrize(
    ("glob", "written", "expected"),
    [
        ("./b*", "./b", Fit.YES),
        ("b*", "./b", Fit.NO),
        ("./c*", "./b", Fit.NO),
        ("./b*", "b", Fit.YES),
        ("a/../b*", "b", Fit.YES),
        ("a/../b*", "a/b", Fit.NO),
    ],
)
def test_a_rule_about_paths_is_read_as_it_is_written_and_as_it_is_meant(
    glob: str, written: str, expected: Fit
) -> None:
    finding = Finding(paths=(PathFound(argument="path", value="x", written=(written,), real=(written,)),))
    assert fit(rule(f"deny save path={glob}"), SAVE, {"path": "x"}, finding, Effort()) is expected


@pytest.mark.parametrize(
    ("text", "finding", "expected"),
    [
        ("ask read path=b*", Finding(), Fit.MAYBE),
        ("ask read path=b*", Finding(paths=(path("abc"),)), Fit.NO),
        ("ask read path=abc/b*", Finding(paths=(path("abc"),)), Fit.MAYBE),
        ("ask read path=b*", Finding(paths=(path("abc", real="b"),)), Fit.MAYBE),
        ("ask read path=abc/b*", Finding(paths=(path("x", argument="path"),)), Fit.MAYBE),
        ("deny read path=abc/b*", Finding(paths=(path("abc"),)), Fit.NO),
        ("ask find", Finding(), Fit.YES),
        ("ask find path=abc", Finding(paths=(path("abc"),)), Fit.YES),
    ],
)
def test_what_a_search_may_find_is_asked_about(text: str, finding: Finding, expected: Fit) -> None:
    assert fit(rule(text), SEARCH, {"path": "abc"}, finding, Effort()) is expected


@pytest.mark.parametrize(
    ("value", "verdict", "expected"),
    [
        (["a", "b"], "deny", Fit.YES),
        (["a", "c"], "deny", Fit.NO),
        (["a", "b"], "allow", Fit.NO),
        (["b", "b2"], "allow", Fit.YES),
        (["b", "new"], "allow", Fit.MAYBE),
        (["b", "new"], "deny", Fit.YES),
        (["a", "new"], "deny", Fit.MAYBE),
        ([], "deny", Fit.NO),
        ([], "allow", Fit.NO),
        (7, "deny", Fit.NO),
        ([7, "b"], "deny", Fit.YES),
    ],
)
def test_of_several_paths_one_denies_and_all_allow(value: object, verdict: str, expected: Fit) -> None:
    finding = Finding(paths=tuple(map(path, ("a", "b", "b2", "c"))))
    assert fit(rule(f"{verdict} save path=b*"), SAVE, {"path": value}, finding, Effort()) is expected


@pytest.mark.parametrize(
    ("text", "finding", "expected"),
    [
        ("deny run command=rm*", Finding(), Fit.MAYBE),
        ("allow run command=git*", Finding(), Fit.MAYBE),
        ("deny run command=x*", Finding(), Fit.YES),
        ("deny run other=x*", Finding(), Fit.NO),
        ("allow run command=x*", Finding(), Fit.MAYBE),
        ("deny run command=rm*", commands("git log", "rm -r ."), Fit.YES),
        ("deny run command=rm*", commands("git log", " rm -r ."), Fit.YES),
        ("deny run command=rm*", commands("git log"), Fit.NO),
        ("deny run command=rm*", commands("git log", unread="an alias"), Fit.MAYBE),
        ("deny run command=rm*", commands("git log", beyond="it writes"), Fit.NO),
        ("allow run command=git*", commands("git log"), Fit.YES),
        ("allow run command=git*", commands("git log", "rm x"), Fit.NO),
        ("allow run command=git*", commands("git log", " rm x"), Fit.YES),
        ("allow run command=git*", commands(" rm x", "rm x"), Fit.NO),
        ("allow run command=git*", commands("git log", beyond="it writes"), Fit.NO),
        ("allow run command=git*", commands("git log", unread="an alias"), Fit.NO),
    ],
)
def test_a_rule_about_a_command_speaks_by_what_it_runs(text: str, finding: Finding, expected: Fit) -> None:
    assert fit(rule(text), RUN, {"command": "x"}, finding, Effort()) is expected


@pytest.mark.parametrize("verdict", ["deny", "allow"])
def test_a_rule_about_a_command_says_nothing_where_there_is_none(verdict: str) -> None:
    assert fit(rule(f"{verdict} run command=x*"), RUN, {"command": None}, Finding(), Effort()) is Fit.NO


@pytest.mark.parametrize(("fills", "expected"), [(True, Fit.YES), (False, Fit.NO)])
def test_an_argument_that_was_left_out_is_null_where_defaults_are_filled_in(
    fills: bool,  # noqa: FBT001  # a column
    expected: Fit,
) -> None:
    schema = '{"type": "object", "properties": {"text": {"default": null}}}'
    spec = ToolSpec(name="save", schema=schema, fills=fills)
    assert fit(rule("deny save text=*"), spec, {}, Finding(), Effort()) is expected


@pytest.mark.parametrize(
    ("texts", "finding", "by"),
    [
        (["allow run command=git*", "allow run command=make*"], commands("git a", "make b"), [0, 1]),
        (["allow run command=git*", "allow run command=make*"], commands("make b", "git a"), [1, 0]),
        (["allow run command=git*", "allow run command=make*"], commands("make b"), [1]),
        (["allow run command=git*", "allow run command=make*"], commands("git a", "git b", "make b"), [0, 1]),
        (["allow run command=git*"], commands("git a", "make b"), []),
        (["allow run command=git*", "deny run command=make*"], commands("git a", "make b"), []),
        (["deny run", "allow run"], commands("git a"), [1]),
        (["allow run"], Finding(), [0]),
        (["allow run command=git*"], Finding(), []),
        (["allow run command=git* safe=yes"], commands("git a"), [0]),
        (["allow run command=git* safe=no", "allow run command=make*"], commands("git a", "make b"), []),
        (["allow run command=git* command=*a", "allow run command=m*"], commands("git b", "make"), []),
        (["allow other command=git*", "allow run command=make*"], commands("git a", "make b"), []),
        (["allow run command=git*", "allow run command=make*"], commands(" git x", "make b", "rm c"), []),
        (["allow run command=git*", "allow run command=make*"], commands("git a", "make", beyond="w"), []),
    ],
)
def test_rules_allow_a_command_together(texts: list[str], finding: Finding, by: list[int]) -> None:
    rules = list(map(rule, texts))
    found = allowing(rules, RUN, {"command": "x", "safe": "yes"}, finding)
    assert found == tuple([rules[number] for number in by])


def test_what_has_no_command_is_allowed_by_one_rule_or_none() -> None:
    assert (
        allowing([rule("allow save text=a"), rule("allow save text=b")], SAVE, {"text": "c"}, Finding()) == ()
    )


@pytest.mark.parametrize(
    ("text", "spec", "found"),
    [
        ("deny save path=a* to=b* text=c*", SAVE, [("path", "a*"), ("to", "b*")]),
        ("deny s* path=a*", SAVE, [("path", "a*")]),
        ("deny other path=a*", SAVE, []),
        ("deny save text=a*", SAVE, []),
        ("allow run command=a* path=b*", RUN, [("command", "a*")]),
        ("deny save", SAVE, []),
        # What a search finds, `read` would show.
        ("ask read path=a*", SEARCH, [("path", "a*")]),
        ("ask read path=a*", SAVE, []),
        ("deny read path=a*", SEARCH, []),
        ("ask other path=a*", SEARCH, []),
        ("ask read text=a*", SEARCH, []),
        ("ask read path=a* text=a*", SEARCH, []),
        ("ask read", SEARCH, []),
    ],
)
def test_a_call_is_looked_at_for_what_a_rule_names(
    text: str, spec: ToolSpec, found: list[tuple[str, str]]
) -> None:
    assert inspected([rule(text)], spec) == found
    policy = PermissionPolicy(mode=PermissionMode.DEFAULT, rules=(rule(text),))
    granted = PermissionPolicy(mode=PermissionMode.DEFAULT, granted=(GrantRule(rule=rule(text)),))
    assert policy.looks_at(spec) is granted.looks_at(spec) is bool(found)


# What is protected


@pytest.mark.parametrize(
    ("mode", "spec", "globs", "looks"),
    [
        (PermissionMode.ACCEPT_EDITS, SAVE, ("*.key",), True),
        (PermissionMode.ACCEPT_EDITS, SAVE, (), False),
        (PermissionMode.ACCEPT_EDITS, PLAIN, ("*.key",), False),
        (PermissionMode.ACCEPT_EDITS, ToolSpec(name="see", paths=("path",)), ("*.key",), False),
        (PermissionMode.DEFAULT, SAVE, ("*.key",), False),
        (PermissionMode.BYPASS, SAVE, ("*.key",), False),
    ],
)
def test_protected_paths_are_looked_at_where_edits_are_accepted(
    mode: PermissionMode, spec: ToolSpec, globs: tuple[str, ...], *, looks: bool
) -> None:
    assert PermissionPolicy(mode=mode, protected=globs).looks_at(spec) is looks


GUARDED = "is protected from edits that no one was asked about"


@pytest.mark.parametrize(
    ("arguments", "found", "why"),
    [
        ({"path": "a"}, [path("a")], ""),
        ({}, [], ""),
        ({"path": "a"}, [], "'a' cannot be looked at"),
        ({"path": "a"}, [path("a", argument="to")], "'a' cannot be looked at"),
        ({"path": "my.key"}, [path("my.key")], f"'my.key' {GUARDED}"),
        ({"path": "my.KEY"}, [path("my.KEY")], f"'my.KEY' {GUARDED}"),
        ({"path": "a"}, [path("a", real="my.key")], f"'a' {GUARDED}"),
        ({"path": "a"}, [path("a", doubt="two names")], "two names"),
        ({"path": "my.key"}, [path("my.key", doubt="two names")], f"'my.key' {GUARDED}"),
        ({"path": "a", "to": "my.pem"}, [path("a"), path("my.pem", argument="to")], f"'my.pem' {GUARDED}"),
        ({"path": ["a", "my.key"]}, [path("a"), path("my.key")], f"'my.key' {GUARDED}"),
        ({"path": ["a", 7, "b"]}, [path("a"), path("b")], ""),
    ],
)
def test_an_edit_of_what_is_protected_is_asked_about(
    arguments: dict[str, object], found: list[PathFound], why: str
) -> None:
    finding = Finding(paths=tuple(found))
    globs = ("*.Key", "*.pem")
    assert protection(globs, SAVE, arguments, finding) == why
    policy = PermissionPolicy(mode=PermissionMode.ACCEPT_EDITS, protected=globs)
    judged = policy.judge(SAVE, arguments, None, finding)
    assert f"{judged.verdict} {judged.ground} {judged.detail}" == (
        f"ask tool {why}" if why else "allow mode accept_edits"
    )


ALWAYS = ToolSpec(name="run", command="command", approval=Approval.ALWAYS)


@pytest.mark.parametrize(
    ("spec", "rules", "finding", "why"),
    [
        (RUN, (), Finding(), "it may change anything"),
        (ALWAYS, (), Finding(), "it is always asked about"),
        (ToolSpec(name="put", side_effect="idempotent"), (), Finding(), "it changes things"),
        (
            RUN,
            ("allow run command=git*",),
            commands("rm", unread="an alias"),
            "it may change anything; an alias",
        ),
        (RUN, ("allow run command=git*",), commands("rm", beyond="a file"), "it may change anything; a file"),
        (RUN, ("allow run command=git*",), commands("rm"), "it may change anything"),
        (RUN, ("allow other command=git*",), commands("rm", beyond="a file"), "it may change anything"),
        (RUN, ("deny run command=git*",), commands("rm", beyond="a file"), "it may change anything"),
        (
            SAVE,
            ("allow save path=b*",),
            Finding(paths=(path("a", doubt="two names"), path("c", doubt="no room"))),
            "it may change anything; two names; no room",
        ),
    ],
)
def test_a_question_says_why_no_rule_could_allow_the_call(
    spec: ToolSpec, rules: tuple[str, ...], finding: Finding, why: str
) -> None:
    policy = PermissionPolicy(mode=PermissionMode.DEFAULT, rules=tuple(map(rule, rules)))
    judged = policy.judge(spec, {"command": "x", "path": "a"}, None, finding)
    assert f"{judged.verdict} {judged.ground} {judged.detail}" == f"ask tool {why}"


@pytest.mark.parametrize(
    ("finding", "doubt"),
    [
        (Finding(), "it cannot be looked at"),
        (Finding(paths=(path("a", doubt="two names"),)), "two names"),
    ],
)
def test_a_rule_that_may_apply_says_what_is_not_known(finding: Finding, doubt: str) -> None:
    policy = PermissionPolicy(mode=PermissionMode.BYPASS, rules=(rule("deny save path=b*"),))
    judged = policy.judge(SAVE, {"path": "a"}, None, finding)
    assert f"{judged.verdict} {judged.ground} {judged.detail}" == (
        f"ask rule {rule('deny save path=b*')} may apply: {doubt}"
    )


def test_of_a_command_that_is_not_known_nothing_is_in_doubt() -> None:
    assert doubt_of(RUN, Finding()) == ""
    assert doubt_of(SAVE, commands("rm", beyond="a file")) == ""


# What a glob means of a command


@pytest.mark.parametrize(
    ("glob", "words", "expected"),
    [
        ("rm *", ("rm", "x"), Fit.YES),
        ("rm *", ("/bin/rm", "x"), Fit.YES),
        ("/bin/rm *", ("/bin/rm", "x"), Fit.YES),
        ("/bin/rm *", ("rm", "x"), Fit.NO),
        ("git push*", ("git", "-C", "d", "push"), Fit.YES),
        ("git push*", ("git", "--bare", "push"), Fit.YES),
        ("git push*", ("git", "log", "push"), Fit.NO),
        ("git push*", ("git", "-C", "d", "x", "push"), Fit.NO),
        ("rm *", ("sudo", "-u", "ann", "rm", "x"), Fit.YES),
        ("rm *", ("sudo", "git", "/bin/rm", "x"), Fit.YES),
        ("rm *", ("git", "rm", "x"), Fit.NO),
        ("rm *", ("xargs", "rm"), Fit.MAYBE),
        ("rm", ("sudo", "rm"), Fit.YES),
        ("rm", ("xargs", "rm"), Fit.YES),
        ("rm x", ("xargs", "git"), Fit.MAYBE),
        ("rm *", ("bash", "x.sh"), Fit.MAYBE),
        ("rm *", ("/usr/bin/env",), Fit.MAYBE),
        ("rm *", ("find", ".", "-name", "x"), Fit.NO),
        ("rm *", ("find", ".", UNKNOWN), Fit.MAYBE),
        ("rm *", ("find", ".", "-ok", "x"), Fit.MAYBE),
        ("rm *", ("command", "-v", "x"), Fit.NO),
        ("rm *", ("command", "x"), Fit.MAYBE),
        ("rm *", (UNKNOWN, "x"), Fit.MAYBE),
        ("rm *", ("rm", UNKNOWN), Fit.MAYBE),
        ("rm *", ("rm", "x", UNKNOWN), Fit.YES),
        ("rm x", ("rm", "y", UNKNOWN), Fit.NO),
        ("rm x", ("rm", UNKNOWN, "x"), Fit.YES),
        ("rm x", (f"r{UNKNOWN}", "x"), Fit.MAYBE),
        ("rm x", (f"g{UNKNOWN}", "x"), Fit.MAYBE),
        ("git p[uo]sh", ("git", f"p{UNKNOWN}sh"), Fit.MAYBE),
        ("git p[uo]sh", ("git", f"p{UNKNOWN}x"), Fit.NO),
        ("git push", ("git", UNKNOWN, "push", "x"), Fit.NO),
        ("git ?ush", ("git", f"{UNKNOWN}h"), Fit.MAYBE),
        ("git push", ("git", UNKNOWN, "push"), Fit.YES),
        ("rm *", ("rm", "-f", *["x"] * 100), Fit.YES),
        ("never", ("git", *["-x"] * (MOST_ARGUMENTS + 2)), Fit.MAYBE),
        ("never", ("git", *["-x"] * (MOST_ARGUMENTS - 1)), Fit.MAYBE),
        ("never", ("git", *["-x"] * (MOST_ARGUMENTS - 2)), Fit.NO),
        ("never", ("git", *["-x"] * 5), Fit.NO),
        ("never", ("git", *["x"] * MOST_ARGUMENTS), Fit.NO),
        ("never", ("git", "x" * 3_000, UNKNOWN), Fit.NO),
    ],
)
def test_a_glob_means_a_command_however_it_is_spelled(
    glob: str, words: tuple[str, ...], expected: Fit
) -> None:
    found = CommandFound(argument="c", commands=(SimpleCommand(words=words),))
    assert met(glob, found, Effort()) is expected


@pytest.mark.parametrize(
    ("glob", "words", "expected"),
    [
        ("git *", ("git", "log"), True),
        ("git *", ("/bin/git", "log"), False),
        ("git *", ("git log", "x"), False),
        ("git *", ("make", "log"), False),
        ("git", ("git",), True),
    ],
)
def test_a_glob_allows_a_command_as_it_is_written(
    glob: str, words: tuple[str, ...], *, expected: Any
) -> None:
    assert allows(glob, SimpleCommand(words=words)) is expected


def test_a_command_that_is_not_read_to_its_end_may_be_meant() -> None:
    read = CommandFound(argument="c", commands=(SimpleCommand(words=("git",)),))
    assert met("rm*", read, Effort()) is Fit.NO
    unread = CommandFound(argument="c", unread="an alias")
    assert met("rm*", unread, Effort()) is Fit.MAYBE
