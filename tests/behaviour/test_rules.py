"""What a look at a call finds, and what rules make of it: what its paths reach, and what its commands run."""

from __future__ import annotations

import ast
import os
import re
import sys
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from structlog.testing import capture_logs

from turnwheel import Agent, Deny, Policy, Rule, SQLiteStore, builtin_tools, tool
from turnwheel.effects import AskApproval, CallModel
from turnwheel.effects.findings import UNKNOWN
from turnwheel.effects.permissions import PermissionMode
from turnwheel.performers.tools import inspection
from turnwheel.performers.tools.builtin import bash, grep
from turnwheel.performers.tools.inspection import look
from turnwheel.performers.tools.plain_commands import HARMLESS_BUILTINS, SOMETIMES_BUILTINS
from turnwheel.performers.tools.shell import read_command
from turnwheel.states.rules.commands import SHELLS, STARTERS, may_match
from turnwheel.states.rules.permission import PermissionPolicy
from turnwheel.testing.scripted import ScriptedModel, calls, says

# Shell commands


def judged(command: str, *rules: str, mode: PermissionMode = PermissionMode.DEFAULT) -> str:
    """The verdict on *command*, by *rules* such as ``deny git push*``."""
    split = [rule.partition(" ") for rule in rules]
    policy = PermissionPolicy(
        mode=mode,
        rules=tuple([Rule(verdict=what, tool="bash", where=(("command", glob),)) for what, _, glob in split]),
    )
    arguments = {"command": command}
    return str(policy.judge(bash.spec, arguments, None, look(bash.spec, arguments, "/", ())).verdict)


HIDDEN = (
    "git status; touch pwned",
    "git status\ntouch pwned",
    "git status && touch pwned",
    "git status || touch pwned",
    "git status | tee pwned",
    "git status & touch pwned",
    "git status $(touch pwned)",
    "git status `touch pwned`",
    'git status "$(touch pwned)"',
    "git status > pwned",
    "git status >| pwned",
    "git status >> pwned",
    "git status &> pwned",
    "> pwned git status",
    "git diff <(touch pwned)",
    "git apply <<EOF\n$(touch pwned)\nEOF",
    "git apply <<< $(touch pwned)",
    "git() { touch pwned; }; git status",
    "function git { touch pwned; }\ngit status",
    "alias git='touch pwned'; git status",
    "PATH=. git status",
    "GIT_PAGER='touch pwned' git log",
    "PATH=.; git status",
    "export PATH=.; git status",
    "./git status",
    "/opt/git status",
    "\\git-x status",
    '"git status" x',
    "git status \\\n; touch pwned",
    "git status # \ntouch pwned",
    "git $X",
    "git ${X@P}",
    "git $((a[$(touch pwned)]))",
    "git {a,b}",
    "git status *",
    "git $'\\x20'",
    "if git status; then touch pwned; fi",
    "for x in git; do $x status; done",
    "(git status; touch pwned)",
    "{ git status; touch pwned; }",
    "! touch pwned",
    "env git status",
    "sudo git status",
    "xargs git status",
    "eval git status",
    "git status\rtouch pwned",
    "git status \x0b; touch pwned",
    "git 'status",
    "git status; {touch,pwned}",
    "git status [secret token 0123456789ab]",
    "",
    "# git status",
    "git " + "a" * 20_000,
)
"""Commands that a rule for ``git *`` must not let run unasked."""


@pytest.mark.parametrize("command", HIDDEN)
@pytest.mark.behaviour("a-command-is-what-it-runs")
def test_a_rule_that_allows_is_no_door(command: str) -> None:
    assert judged(command, "allow git *") == "ask"
    assert judged(command, "allow git *", mode=PermissionMode.DONT_ASK) == "deny"


@pytest.mark.parametrize(
    ("command", "rules"),
    [
        ("git status", ["git *"]),
        ("git  status\t--short", ["git *"]),
        ("git log 2>&1", ["git *"]),
        ("git log > /dev/null 2>/dev/null", ["git *"]),
        ("git log < input", ["git *"]),
        ("< input git log", ["git *"]),
        ("git status && git diff | git apply; git log", ["git *"]),
        ("git status\ngit log", ["git *"]),
        ("(git status)", ["git *"]),
        ("! git status", ["git *"]),
        ("git commit -m 'a; b $(c) * `d`'", ["git *"]),
        ('git commit -m "a; b && c"', ["git *"]),
        ("git commit \\\n  -m x", ["git *"]),
        ("git status # as it is", ["git *"]),
        ("cd src && git status", ["git *", "cd *"]),
        ("ls -l | head -3", ["head *", "git *", "ls*"]),
        ("sudo git status", ["sudo git *"]),
        ("git status $(touch pwned)", ["*", ""]),
    ],
)
@pytest.mark.behaviour("a-command-is-what-it-runs")
def test_a_rule_allows_what_is_plainly_meant(command: str, rules: list[str]) -> None:
    """Every simple command is allowed by one rule or the other, and nothing stands beside them."""
    dynamic = "$(" in command and "'" not in command
    assert judged(command, *[f"allow {rule}" for rule in rules]) == ("ask" if dynamic else "allow")


PUSHES = (
    "git push",
    "git  push",
    "git\tpush --force",
    " git push",
    "/usr/bin/git push",
    "~/bin/git push",
    "A=1 git push",
    "A=1 B=2 git push origin",
    "true; git push",
    "true\ngit push",
    "true && git push",
    "false || git push",
    "true | git push",
    "git push &",
    "(git push)",
    "{ git push; }",
    "! git push",
    "time git push",
    "if true; then git push; fi",
    "for i in 1; do git push; done",
    "while git push; do :; done",
    "case x in x) git push;; esac",
    'g"i"t push',
    "g'i't pu\\sh",
    '"git" "push"',
    "\\git push",
    "git \\\n push",
    "gi\\\nt pu\\\nsh",
    "git -C . push",
    "git --no-pager -c a=b push",
    "git push > log 2>&1",
    "> log git push",
    "echo $(git push)",
    'echo "$(git push)"',
    "echo `git push`",
    "X=$(git push)",
    "cat <(git push)",
    "cat <<EOF\n$(git push)\nEOF",
    "cd x && git push",
    "git push # all of it",
    "f() { git push; }; f",
    "eval git push",
    'eval "git push"',
    "eval 'git pu''sh'",
    "sh -c 'git push'",
    "bash -lc 'cd x; git push'",
    "/bin/sh -ec 'git push'",
    "sudo git push",
    "sudo -u ann git push",
    "env git push",
    "env -i A=1 git push",
    "env -S 'git push'",
    "env -S'git push'",
    "env --split-string='git push'",
    "eval -- git push",
    "~/git push",
    "prlimit git push",
    "linux64 git push",
    "nohup nice -n 5 git push",
    "command git push",
    "exec git push",
    "timeout 5 git push",
    "xargs git push",
    "xargs -n1 sh -c 'git push'",
    "find . -exec git push ;",
    "watch 'git push'",
    "sudo sh -c 'env git push'",
    "coproc git push",
    "git $no push",
    "env $no git push",
    "git >log push",
    "git 2>&1 push",
    "true\n\\\ngit push",
    "env git push[[ x",
)
"""Commands that run ``git push``, whatever they look like."""

CLOUDY = (
    "$GIT push",
    "GIT=git; $GIT push",
    "git $WHAT",
    "$(echo git push)",
    "`echo git` push",
    "git pus?",
    "/usr/bin/g?t push",
    "git [p]ush",
    "{git,push}",
    "g{it,} push",
    "$'\\x67it' push",
    'eval "$X"',
    "eval $X",
    "bash -c $X",
    "echo git push | sh",
    "sh <<EOF\ngit push\nEOF",
    "bash <(echo git push)",
    "bash -o posix",
    "source x.sh",
    ". ./x.sh",
    "alias g='git push'; g",
    "trap 'git push' EXIT",
    "hash -p /usr/bin/git g; g push",
    "echo push | xargs git",
    "git 'push",
    "git\rpush",
    'cat <<E"O"F\ngit push',
    "git <<EOF push\nEOF",
    "{ true | git; } <x push",
    "cat <<EOF\nEO\\\nF\ngit push\nEOF",
    "$if git push",
    "${X}git push",
    "${X}sh -c reboot",
    "git [secret token 0123456789ab]",
    "a" * 20_000,
    "eval eval eval eval eval eval true",
    "gi``t pu``sh",
    "cat <<E\n`git push`\nE",
    "echo ${x:-`git push`}",
    "echo `echo \\`git push\\``",
    'git $"push"',
    "test -v 'a[$(git push)]'",
    "printf -v 'a[$(git push)]' x",
    "read 'a[$(git push)]'",
    "[[ 1 -eq 'a[$(git push)]' ]]",
    "jobs -x git push",
    "compgen -C 'git push' x",
    "cat f | mapfile -C 'git push' -c 1 x",
    "PS4='$(git push)'; set -x; :",
)
"""Commands that may run ``git push``, as far as anyone can tell who has only read them."""

OTHERS = (
    "echo $HOME ~ *",
    "cd src && CI=1 make 2>&1 | tail -n 5 > log",
    "set -euo pipefail; test -f x || [ -d y ] && printf '%s\\n' x",
    'name=x; ls "$name"; wait',
    "! git pull && { git log; } && (git log) &",
    "command -v git",
    "make &> log",
    "git stash pop stash@{0} && git commit -m '\u00a0\u200d'",
    "git status",
    "git pull",
    "echo git push",
    "ls *.py",
    "echo 'git push'",
    "git commit -m 'git push'",
    "make && make test > log",
    "./push.sh",
    "find . -name '*.py'",
)
"""Commands that do not."""


@pytest.mark.parametrize("verdict", ["deny", "ask"])
@pytest.mark.parametrize("mode", ["default", "bypass"])
@pytest.mark.behaviour("a-command-is-what-it-runs")
def test_a_command_is_met_in_every_spelling(verdict: str, mode: str) -> None:
    spelled = {command: judged(command, f"{verdict} git push*", "allow *") for command in PUSHES}
    assert spelled == dict.fromkeys(PUSHES, verdict)
    if verdict == "deny":
        way = PermissionMode(mode)
        assert {judged(command, "deny git push*", mode=way) for command in PUSHES} == {"deny"}


@pytest.mark.parametrize("command", CLOUDY)
@pytest.mark.behaviour("what-cannot-be-decided-is-asked-about")
def test_a_denial_that_cannot_be_decided_is_asked_about_in_every_mode(command: str) -> None:
    asked = {mode: judged(command, "deny git push*", "allow *", mode=mode) for mode in PermissionMode}
    due = dict.fromkeys(PermissionMode, "ask") | {"plan": "deny", "dont_ask": "deny"}
    assert asked == due


DISGUISED = tuple(
    ast.literal_eval(row)
    for row in (Path(__file__).parent / "deny_spellings.txt").read_text("utf-8").splitlines()
    if row[:1] != "#"
)


@pytest.mark.parametrize("command", DISGUISED)
@pytest.mark.behaviour("what-cannot-be-decided-is-asked-about")
def test_no_spelling_gets_past_a_denial(command: str) -> None:
    for mode in PermissionMode:
        assert judged(command, "deny git push*", "allow *", mode=mode) in {"ask", "deny"}
    assert judged(command, "deny git push*", "allow *", mode=PermissionMode.DONT_ASK) == "deny"


@pytest.mark.parametrize("command", OTHERS)
@pytest.mark.behaviour("a-command-is-what-it-runs")
def test_other_commands_are_left_alone(command: str) -> None:
    assert judged(command, "deny git push*", mode=PermissionMode.BYPASS) == "allow"


@pytest.mark.behaviour("what-cannot-be-decided-is-asked-about")
def test_the_page_of_permissions_lists_what_runs_others_and_what_evaluates_nothing() -> None:
    page = (Path(__file__).parents[2] / "docs" / "permissions.md").read_text("utf-8")
    names = STARTERS | SHELLS | HARMLESS_BUILTINS | SOMETIMES_BUILTINS - {"["}
    assert {name for name in names if f"`{name}`" not in page} == set()


@pytest.mark.behaviour("what-cannot-be-decided-is-asked-about")
def test_without_a_parser_a_command_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tree_sitter", None)
    assert judged("git status", "allow git *") == "ask"
    assert judged("git status", "deny git push*", mode=PermissionMode.BYPASS) == "ask"
    assert "turnwheel[shell]" in read_command("command", "git status").unread


@pytest.mark.parametrize("text", ["(" * 5_000, "$(" * 4_000, "a;" * 4_000, "sudo " * 1_500, "x " * 4_000])
@pytest.mark.behaviour("what-cannot-be-decided-is-asked-about")
def test_a_hostile_command_takes_little_time(text: str) -> None:
    assert judged(text, "deny *push*") in {"ask", "deny"}


@pytest.mark.parametrize("start", ["xargs " + "-x " * 60, "sudo " + "-a " * 60, "env " + "$x " * 62])
@pytest.mark.parametrize("glob", ["*a*b*c*d*e*f*g", "git push*", "gi[st] push?", "xargs *y"])
@pytest.mark.behaviour("what-cannot-be-decided-is-asked-about")
def test_a_judgement_does_a_bounded_amount_of_work(start: str, glob: str) -> None:
    command = "".join([f"{start}; " for _ in range(45)])
    arguments, rule = {"command": command}, Rule(verdict="deny", tool="bash", where=(("command", glob),))
    policy = PermissionPolicy(mode=PermissionMode.BYPASS, rules=(rule,) * 20)
    found = look(bash.spec, arguments, "/", ())
    made = 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal made
        made += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        verdict = policy.judge(bash.spec, arguments, None, found).verdict
    finally:
        sys.setprofile(None)
    assert verdict == "ask"
    assert made < 200_000


def texts_of(characters: str, longest: int) -> list[str]:
    return ["".join(some) for size in range(longest + 1) for some in product(characters, repeat=size)]


@pytest.mark.parametrize("text", [each for each in texts_of(f"ab{UNKNOWN}", 4) if each.count(UNKNOWN) == 1])
@pytest.mark.parametrize("more", ["", UNKNOWN, f"{UNKNOWN}b"])
@pytest.mark.behaviour("what-cannot-be-decided-is-asked-about")
def test_what_is_partly_known_may_match_what_one_of_its_texts_does(text: str, more: str) -> None:
    texts = [""]
    for part in re.split(f"({UNKNOWN})", text + more):
        texts = [
            start + each for start in texts for each in (texts_of("ab", 3) if part == UNKNOWN else [part])
        ]
    globs = [*texts_of("ab*", 3), "?", "[!a]?", "a[ab]b", "*[!b]", "?*a"]
    due = {glob: any(fnmatchcase(each, glob) for each in texts) for glob in globs}
    assert {glob: may_match(text + more, glob) for glob in globs} == due


@pytest.mark.behaviour("what-cannot-be-decided-is-asked-about")
def test_what_a_finding_says_is_in_the_question() -> None:
    policy = PermissionPolicy(
        mode=PermissionMode.DEFAULT,
        rules=(Rule(verdict="allow", tool="bash", where=(("command", "git *"),)),),
    )
    arguments = {"command": "git log $(touch pwned)"}
    found = policy.judge(bash.spec, arguments, None, look(bash.spec, arguments, "/", ()))
    assert found.detail == "it may change anything; it is no plain command from '$(touch pwned)' on"
    denial = Rule(verdict="deny", tool="bash", where=(("command", "git push*"),))
    policy, arguments = PermissionPolicy(mode=PermissionMode.DEFAULT, rules=(denial,)), {"command": "$X"}
    found = policy.judge(bash.spec, arguments, None, look(bash.spec, arguments, "/", ()))
    assert found.detail == "deny bash:command=git push* may apply: what '$X' runs is known only then"
    arguments = {"command": "echo push | xargs git"}
    found = policy.judge(bash.spec, arguments, None, look(bash.spec, arguments, "/", ()))
    assert found.detail.endswith(" may apply: 'xargs' may run what its arguments or its input say")


@pytest.mark.behaviour("a-command-is-what-it-runs")
def test_words_are_told_without_their_quotes() -> None:
    found = read_command("c", 'A=1 g"i"t com\\mit -m \'it\'"\'s $x" | cat')
    assert [each.words for each in found.commands] == [
        ("git", "commit", "-m", f"it's {UNKNOWN}"),
        ("cat",),
    ]


# Files


NESTED = (
    ["secrets/key"],
    [["secrets/key"]],
    [["a"], ["b", "./secrets/key"]],
    {"from": "secrets/key"},
    {"secrets/key": 1},
    [{"path": {"deep": ["a", "x/../secrets/key"]}}],
)
"""Values of an argument of paths that reach a file which is denied, at some depth."""


@pytest.mark.parametrize("value", NESTED)
@pytest.mark.behaviour("what-cannot-be-decided-is-asked-about")
def test_a_denied_path_is_found_at_any_depth(value: object) -> None:
    @tool(paths=["files"])
    def pack(files: Any) -> str:  # any shape is to be looked into
        return str(files)

    def verdict(value: object, *texts: str) -> str:
        rules = tuple([Rule(verdict=each, tool="pack", where=(("files", "secrets/*"),)) for each in texts])
        policy = PermissionPolicy(mode=PermissionMode.BYPASS, rules=rules)
        arguments = {"files": value}
        return str(
            policy.judge(pack.spec, arguments, None, look(pack.spec, arguments, "/", ("secrets/*",))).verdict
        )

    assert verdict(value, "deny") == "deny"
    assert verdict([["a"], {"b": "c"}], "deny") == "allow"
    assert verdict([str(number) for number in range(1_000)], "deny") == "ask"


@pytest.mark.behaviour("what-cannot-be-decided-is-asked-about")
async def test_why_a_call_could_not_be_looked_at_is_logged(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr(inspection, "found_path", fail)
    place = Place(folder, "deny read:path=secrets/*")
    with capture_logs() as lines:
        assert await place.call("read", path="notes.txt") == "denied: no"
    line = next(line for line in lines if line["log_level"] == "warning")
    assert (line["event"], line["tool"]) == ("a call could not be looked at", "read")
    assert line["error"] == "RecursionError"
    assert ", in fail" in line["exception"]


class Place:
    """An agent in a folder with a secret, and what became of the calls of its model."""

    def __init__(self, folder: Path, *rules: str, **settings: Any) -> None:
        self.folder = folder
        self.asked: list[AskApproval] = []
        self.requests: list[object] = []
        self._rules = tuple([_rule(rule) for rule in rules])
        self._settings = settings

    def _approve(self, question: AskApproval) -> Deny:
        self.asked.append(question)
        return Deny("no")

    async def call(self, name: str, **arguments: object) -> str:
        """The result of a call of the tool *name*."""
        model = ScriptedModel(calls((name, arguments)), says("done"))
        agent = Agent(
            model="m",
            tools=builtin_tools(),
            rules=self._rules,
            cwd=self.folder,
            approver=self._approve,
            performers={CallModel: model},
            **self._settings,
        )
        async with agent, agent.session() as session:
            await session.run("go")
            assert session.machine is not None
            (result,) = session.machine.memory.history[2].results
        return f"{result.outcome}: {result.content}"


def _rule(text: str) -> Rule:
    verdict, _, rest = text.partition(" ")
    name, _, glob = rest.partition(":path=")
    return Rule(verdict=verdict, tool=name, where=(("path", glob),) if glob else ())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory with secrets, links to them, and a place that may be written to."""
    work = tmp_path / "work"
    for name in ("secrets", "docs", ".git"):
        (work / name).mkdir(parents=True)
    (work / "secrets" / "key").write_text("s3cret\n")
    (work / ".env").write_text("s3cret\n")
    (work / "notes.txt").write_text("nothing\n")
    (work / "link").symlink_to("secrets/key")
    (work / "docs" / "way").symlink_to("../secrets")
    (tmp_path / "elsewhere").symlink_to("work")
    return work


SPELLINGS = (
    "secrets/key",
    "./secrets/key",
    "secrets//key",
    "docs/../secrets/key",
    "{work}/secrets/key",
    "../work/secrets/key",
    "../elsewhere/secrets/key",
    "{work}/../elsewhere/secrets/./key",
    "link",
    "docs/way/key",
)


@pytest.mark.parametrize("path", SPELLINGS)
@pytest.mark.parametrize("glob", ["secrets/*", "{work}/secrets/*", "../work/secrets/*", "docs/way/*"])
@pytest.mark.behaviour("a-path-is-what-it-reaches")
async def test_a_denied_path_is_denied_in_every_spelling(folder: Path, path: str, glob: str) -> None:
    place = Place(folder, "deny *:path=" + glob.format(work=folder))
    assert (await place.call("read", path=path.format(work=folder))).startswith("denied: ")
    assert (await place.call("read", path="notes.txt")).startswith("ok: ")
    assert place.asked == []


@pytest.mark.behaviour("a-path-is-what-it-reaches")
async def test_a_denial_names_a_place_by_a_link_to_the_working_directory(folder: Path) -> None:
    elsewhere = folder.parent / "elsewhere"
    place = Place(elsewhere, f"deny read:path={elsewhere}/secrets/*")
    for path in ("secrets/key", f"{folder}/secrets/key", f"{elsewhere}/secrets/key"):
        assert (await place.call("read", path=path)).startswith("denied: ")


@pytest.mark.behaviour("a-path-is-what-it-reaches")
async def test_a_file_with_two_names_is_asked_about(folder: Path) -> None:
    os.link(folder / "secrets" / "key", folder / "innocent")
    place = Place(folder, "deny read:path=secrets/*")
    assert await place.call("read", path="innocent") == "denied: no"
    assert "hard links" in place.asked[0].why
    assert (await Place(folder).call("read", path="innocent")).startswith("ok: ")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("docs/new", True),
        ("./docs/new", True),
        ("{work}/docs/new", True),
        ("docs/deep/new", True),
        ("docs/../notes.txt", False),
        ("docs/way/new", False),
        ("../work/secrets/new", False),
        ("link", False),
    ],
)
@pytest.mark.behaviour("a-path-is-what-it-reaches")
async def test_what_is_allowed_in_a_folder_stays_in_it(folder: Path, path: str, allowed: bool) -> None:  # noqa: FBT001  # a column
    place = Place(folder, "allow write:path=docs/*")
    result = await place.call("write", path=path.format(work=folder), content="x")
    assert result.startswith("ok: " if allowed else "denied: no")


@pytest.mark.parametrize("rule", ["deny *:path=*.env", "deny read:path=*.env", "deny *:path={work}/.env"])
@pytest.mark.behaviour("searches-leave-out-what-is-denied")
async def test_searches_leave_out_what_is_denied_and_say_so(folder: Path, rule: str) -> None:
    place = Place(folder, rule.format(work=folder), "deny read:path=docs/way/*")
    for arguments in ({}, {"path": "."}, {"glob": ".env"}, {"glob": "*"}, {"path": str(folder)}):
        found = await place.call("grep", pattern="s3cret", **arguments)
        assert "s3cret" not in found
        assert "denied by a rule]" in found
    listed = await place.call("ls")
    assert ".env" not in listed
    assert "notes.txt" in listed
    assert "[left out: 1 denied by a rule]" in listed
    assert ".env" not in await place.call("glob", pattern="**/*")
    assert "notes.txt" in await place.call("glob", pattern="*")
    inner = await place.call("grep", pattern="s3cret", path=".env")
    assert "s3cret" not in inner


@pytest.mark.behaviour("searches-leave-out-what-is-denied")
async def test_a_search_shows_nothing_of_a_file_that_has_a_denied_name_too(folder: Path) -> None:
    os.link(folder / "secrets" / "key", folder / "innocent")
    found = await Place(folder, "deny read:path=secrets/*").call("grep", pattern="s3cret")
    assert "innocent" not in found
    assert "hard links" in found
    assert "innocent:1: s3cret" in await Place(folder).call("grep", pattern="s3cret")


@pytest.mark.behaviour("defaults-are-judged")
async def test_a_default_that_is_left_out_is_judged(folder: Path) -> None:
    for rule in ("deny ls:path=.", "deny ls:path={work}"):
        place = Place(folder, rule.format(work=folder))
        assert (await place.call("ls")).startswith("denied: ")
        assert (await place.call("ls", path="docs")).startswith("ok: ")


@pytest.mark.parametrize("verdict", ["deny", "ask"])
@pytest.mark.behaviour("defaults-are-judged")
def test_an_argument_is_not_left_out_to_pass_a_rule(verdict: str) -> None:
    rules = (Rule(verdict=verdict, tool="grep", where=(("glob", "*"),)),)
    for mode in ("default", "dont_ask"):
        policy = PermissionPolicy(mode=PermissionMode(mode), rules=rules)
        for arguments in ({"pattern": "x"}, {"pattern": "x", "glob": None}, {"pattern": "x", "glob": "*.py"}):
            assert policy.judge(grep.spec, arguments).verdict == ("deny" if mode == "dont_ask" else verdict)
    narrow = (Rule(verdict=verdict, tool="grep", where=(("glob", "*.py"),)),)
    assert PermissionPolicy(mode=PermissionMode.DEFAULT, rules=narrow).judge(grep.spec, {}).verdict == "allow"


@pytest.mark.behaviour("searches-are-asked-about")
async def test_a_search_is_asked_about_where_it_may_show_what_is_asked_about(folder: Path) -> None:
    place = Place(folder, "ask read:path=secrets/*")
    for path in (".", "secrets", "./docs/..", str(folder), "..", "docs/way"):
        assert await place.call("grep", pattern="s3cret", path=path) == "denied: no", path
    assert await place.call("glob", pattern="**/*") == "denied: no"
    assert place.asked[0].why.endswith("may apply: what it finds is known only then")
    for path in ("docs", "notes.txt"):
        assert not (await place.call("grep", pattern="s3cret", path=path)).startswith("denied: "), path
    assert await Place(folder, "ask grep:path=*.env").call("grep", pattern="s3cret") == "denied: no"


@pytest.mark.parametrize(
    "path",
    [".git/config", ".git/hooks/pre-commit", ".GIT/config", "docs/../.git/x", "turnwheel.toml", "sub/.git/x"],
)
@pytest.mark.behaviour("accepted-edits-leave-the-law-alone")
async def test_accepted_edits_do_not_change_what_decides(folder: Path, path: str) -> None:
    place = Place(folder, policy=Policy(mode="accept_edits"))
    assert await place.call("write", path=path, content="x") == "denied: no"
    assert "is protected" in place.asked[0].why
    assert (await place.call("write", path="docs/new", content="x")).startswith("ok: ")


@pytest.mark.behaviour("accepted-edits-leave-the-law-alone")
async def test_accepted_edits_do_not_change_the_store(folder: Path) -> None:
    store = SQLiteStore(folder / "it[s].db")
    place = Place(folder, policy=Policy(mode="accept_edits"), store=store)
    for name in ("it[s].db", "it[s].db-wal", "it[s].db-shm"):
        assert await place.call("write", path=name, content="x") == "denied: no"
    assert (await place.call("write", path="its.db", content="x")).startswith("ok: ")
    await store.close()
