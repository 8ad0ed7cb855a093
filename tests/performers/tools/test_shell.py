"""What a shell command runs, as far as its text says, what else it does, and what cannot be known of it."""

from __future__ import annotations

import shutil
import subprocess

import pytest

pytest.importorskip("tree_sitter_bash")

from turnwheel.effects.findings import UNKNOWN
from turnwheel.performers.tools.plain_commands import (
    EVALUATING_BUILTINS,
    HARMLESS_BUILTINS,
    MOST_COMMANDS,
    SOMETIMES_BUILTINS,
    TOO_LONG,
)
from turnwheel.performers.tools.shell import DEEPEST, MISREAD, MOST_CHARACTERS, read_command
from turnwheel.states.rules.commands import MOST_ARGUMENTS, STARTERS

LATER = "'bash' runs what it reads"


def no_plain(rest: str) -> str:
    return f"it is no plain command from {rest!r} on"


def shown(word: str) -> str:
    """A word as the tables below have it: what is known only when the command runs is a question mark."""
    return repr(word) if " " in word or not word else word.replace(UNKNOWN, "?")


def runs(text: str) -> list[str]:
    """The commands in *text*; one that stands in an argument of another begins with a bracket."""
    found = read_command("command", text)
    assert found.argument == "command"
    return ["[" * one.inner + " ".join(map(shown, one.words)) for one in found.commands]


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("git status", ["git status"]),
        ("git  log | head -5 && ls || a; b # note", ["git log", "head -5", "ls", "a", "b"]),
        ("ls; rm -rf a &", ["ls", "rm -rf a"]),
        ("(a); { b; }; ! c", ["a", "b", "c"]),
        ("echo 'a b' \"c\" d\\ e ''", ["echo 'a b' c 'd e' ''"]),
        ("\"git\" st'at'us", ["git status"]),
        ("echo 'a\"b' \\* '$x' '`'", ['echo a"b * $x `']),
        ("echo caf\u00e9 'b'", ["echo caf\u00e9 b"]),
        ("echo a \\\n  b", ["echo a b"]),
        ('echo "a\\\nb\\"\\$c\\d"', ['echo ab"$c\\d']),
        ("echo 'a\nb'", ["echo a\nb"]),
        ("(a; (b)); { c; { d; }; } | e", ["a", "b", "c", "d", "e"]),
        ("! a; echo !", ["a", "echo !"]),
        ("echo a#b a~1 a^ %1 -- x=y", ["echo a#b a~1 a^ %1 -- x=y"]),
        ("[ -f a ]; test 1 -eq 2", ["[ -f a ]", "test 1 -eq 2"]),
        ("set -euo pipefail; printf '%s' -v", ["set -euo pipefail", "printf %s -v"]),
        ("git show HEAD@{1} @{u}", ["git show HEAD@{1} @{u}"]),
        ("command -v a; wait 1; kill %1", ["command -v a", "wait 1", "kill %1"]),
        ("a &>/dev/null; b", ["a", "b"]),
        ("git commit -m 'a; rm b'", ["git commit -m 'a; rm b'"]),
        ("cat <in", ["cat"]),
        ("ls -l >/dev/null 2>&1", ["ls -l"]),
        ("ls 2>/dev/null 2>&- >&3-", ["ls"]),
        ("bash script.sh", ["bash script.sh"]),
        ("sudo -u me ls -l", ["sudo -u me ls -l"]),
        ("sudo source x", ["sudo source x"]),
        ("", []),
    ],
)
def test_a_plain_command_is_its_words_and_does_nothing_else(text: str, commands: list[str]) -> None:
    found = read_command("command", text)
    assert (runs(text), found.beyond, found.unread) == (commands, "", "")


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("bash -c 'ls -l'", ["bash -c 'ls -l'", "[ls -l"]),
        ("/bin/sh -ec 'ls; rm b'", ["/bin/sh -ec 'ls; rm b'", "[ls", "[rm b"]),
        ("bash -c -e -- ls", ["bash -c -e -- ls", "[ls"]),
        ("bash +x -c +e ls", ["bash +x -c +e ls", "[ls"]),
        ("sh -c \"bash -c 'rm c'\"", ["sh -c \"bash -c 'rm c'\"", "[bash -c 'rm c'", "[rm c"]),
        ("nice sh -c ls", ["nice sh -c ls", "[ls"]),
        ("env -S 'ls -l' x", ["env -S 'ls -l' x", "[ls -l"]),
        ("env -S'rm a'", ["env '-Srm a'", "[rm a"]),
        ("env --split-string='rm a'", ["env '--split-string=rm a'", "[rm a"]),
        ("env '-Srm --b=c -S d'", ["env '-Srm --b=c -S d'", "[rm --b=c -S d"]),
        ("watch 'ls -l; rm a'", ["watch 'ls -l; rm a'", "[ls -l", "[rm a"]),
        ("watch 'a&b'", ["watch a&b", "[a", "[b"]),
        ("watch 'a|b'", ["watch a|b", "[a", "[b"]),
        ("echo 'a|b' 'c d'", ["echo a|b 'c d'"]),
    ],
)
def test_a_command_in_an_argument_is_found_too(text: str, commands: list[str]) -> None:
    found = read_command("command", text)
    assert (runs(text), found.beyond, found.unread) == (commands, "", "")


@pytest.mark.parametrize(
    ("text", "commands", "beyond"),
    [
        ("echo a >out", ["echo a"], "it writes to 'out'"),
        ("echo a >>'b c'", ["echo a"], "it writes to 'b c'"),
        ("echo a &>out", ["echo a"], "it writes to 'out'"),
        ("echo a >2", ["echo a"], "it writes to '2'"),
        ("cat <in >out", ["cat"], "it writes to 'out'"),
        ("> out", [], "it writes to 'out'"),
        ("a 2>b; c", ["a", "c"], "it writes to 'b'"),
        ("a >b; c >b", ["a", "c"], "it writes to 'b'"),
        ("a >b; a >c; a >d; a >e", ["a"] * 4, "it writes to 'b'; it writes to 'c'; it writes to 'd'"),
        ("echo $x", ["echo ?"], "it is dynamic: $x"),
        (
            'echo "$x" a"${y}" "a $ $1 \\$z"',
            ["echo ? a? 'a $ \\x00 $z'"],
            'it is dynamic: "$x"; it is dynamic: a"${y}"; it is dynamic: "a $ $1 \\$z"',
        ),
        # What a shell may split, or leave out, may be more words than one.
        ("echo a${y}b", ["echo a? ? ?b"], "it is dynamic: a${y}b"),
        ("echo *.py a[1]", ["echo ? ? ?.py a? ? ?1]"], "it is dynamic: *.py; it is dynamic: a[1]"),
        (
            "echo ~/x ~ann/y a:~",
            ["echo ?/x ?/y a:?"],
            "it is dynamic: ~/x; it is dynamic: ~ann/y; it is dynamic: a:~",
        ),
        ("aB=1", [], "it sets a variable: aB=1"),
        (
            "x+=1 y= z='a b' make",
            ["make"],
            "it sets a variable: x+=1; it sets a variable: y=; it sets a variable: z='a b'",
        ),
        ("x=*$y:~ make", ["make"], "it sets a variable: x=*$y:~"),
        ("A=10 make", ["make"], "it sets a variable: A=10"),
    ],
)
def test_what_a_plain_command_does_besides_is_told(text: str, commands: list[str], beyond: str) -> None:
    found = read_command("command", text)
    assert (runs(text), found.beyond, found.unread) == (commands, beyond, "")


@pytest.mark.parametrize(
    ("text", "commands", "unread"),
    [
        ("echo a >$x", ["echo a"], no_plain(">$x")),
        ("echo a >/dev/tcp/h/80", ["echo a"], no_plain(">/dev/tcp/h/80")),
        ("echo a </dev/udp/h/80", ["echo a"], no_plain("</dev/udp/h/80")),
        ("echo a <//dev/stdin", ["echo a"], no_plain("<//dev/stdin")),
        ("echo a 3</proc/self/fd/0", ["echo a"], no_plain("3</proc/self/fd/0")),
        ("echo a &>b c", ["echo a"], no_plain("c")),
        ("echo a >&out", ["echo a"], no_plain(">&out")),
        ("echo a >&'$(b)'", ["echo a"], no_plain(">&'$(b)'")),
        ("echo a 12>b", ["echo a"], no_plain(">b")),
        ("!>b a", [], "it is more than a list of commands: !"),
        ("CI=true a", ["a"], "it sets CI, by which the shell or a program may go"),
        ("printf '%d%n' 1 a", ["printf %d%n 1 a"], "'printf' may evaluate its arguments"),
        ("command " * (MOST_ARGUMENTS + 1), None, TOO_LONG),
        ("git log '\u00a0' \u00a0", None, no_plain("")[:-5]),
        ("echo $(ls -l)", ["echo ?", "ls -l"], no_plain("$(ls -l)")),
        ('echo "$(ls -l)"', ["echo ?", "ls -l"], no_plain('"$(ls -l)"')),
        ("diff <(ls a) b", ["diff ? b", "ls a"], no_plain("<(ls a) b")),
        ("echo {a,b}", ["echo ?"], no_plain("{a,b}")),
        ("echo $'a'", ["echo ?"], no_plain("$'a'")),
        ("echo $((1+1))", ["echo ?"], no_plain("$((1+1))")),
        ("echo ${x@P}", ["echo ?"], no_plain("${x@P}")),
        ("echo $@", ["echo ?"], no_plain("$@")),
        ("echo a\\\nb", ["echo ab"], no_plain("\\ b")),
        ("a=(1 2)", [], no_plain("(1 2)")),
        ("a[1]=2 make", ["make"], no_plain("a[1]=2 make")),
        ("((1+1))", [], no_plain("((1+1))")),
        ("( (a)b )", ["a"], no_plain(")b )")),
        ("(a", ["a"], "')' is missing"),
        ("{ a; ) }", ["a"], no_plain(") }")),
        ("a;; b", ["a", "b"], no_plain(";; b")),
        ("$x a", ["? a"], "what '$x' runs is known only then"),
        ("/bin/g* a", ["/bin/g? a"], "what '/bin/g*' runs is known only then"),
        ("for x in a; do  ls; done", ["ls"], "it is more than a list of commands: for"),
        ("if a; then b; fi", ["a", "b"], "it is more than a list of commands: if"),
        ("f() { ls; }", ["ls"], no_plain("() { ls; }")),
        ("cat <<END\ntext\nEND", ["cat"], no_plain("<<END text END")),
        ("cat <<<a", ["cat"], no_plain("<<<a")),
        ("echo `ls`", ["echo ?", "ls"], no_plain("`ls`")),
        ("PATH=. a", ["a"], "it sets PATH, by which the shell or a program may go"),
        ("PAGER=less a", ["a"], "it sets PAGER, by which the shell or a program may go"),
        ("BASH_ENV=1 a", ["a"], "it sets BASH_ENV, by which the shell or a program may go"),
        ("_=a", [], "it sets _, by which the shell or a program may go"),
        ("unset x", ["unset x"], "'unset' may evaluate its arguments"),
        ("\\export x", ["export x"], "'export' may evaluate its arguments"),
        ("set -x", ["set -x"], "'set' may evaluate its arguments"),
        ("printf -v a b", ["printf -v a b"], "'printf' may evaluate its arguments"),
        ("printf $x", ["printf ?"], "'printf' may evaluate its arguments"),
        ("[ -v a ]", [], "'[' may evaluate its arguments"),
        ("test $x", ["test ?"], "'test' may evaluate its arguments"),
        ("wait -n", ["wait -n"], "'wait' may evaluate its arguments"),
        ("source x", ["source x"], "'source' may evaluate its arguments"),
        ("command -p . x", ["command -p . x"], "'.' may evaluate its arguments"),
        ("bash", ["bash"], LATER),
        ("bash -x", ["bash -x"], LATER),
        ("bash +x", ["bash +x"], LATER),
        ("bash --rcfile c", ["bash --rcfile c"], LATER),
        ("bash $x", ["bash ?"], LATER),
        ('bash "a$x"', ["bash a?"], LATER),
        ("eval $x", ["eval ?"], "it runs a command that is known only then"),
        ("echo 'unclosed", ["echo"], no_plain("'unclosed")),
        ("git status \x0b", ["git status"], "it has the character '\\x0b'"),
        ("git status\ra", ["git statusa"], "it has the character '\\r'"),
        ("! ! a; ! { b; }", ["a", "b"], MISREAD),
        ("a >b c", ["a c"], MISREAD),
        ("a" * (MOST_CHARACTERS + 1), [], TOO_LONG),
        ("sudo " * 2 + "; ".join(["ls"] * (MOST_COMMANDS + 1)), None, TOO_LONG),
    ],
    ids=lambda text: str(text)[:40],
)
def test_a_command_that_is_not_plain_is_told_as_such(
    text: str, commands: list[str] | None, unread: str
) -> None:
    assert unread in read_command("command", text).unread
    if commands is not None:
        assert runs(text)[: len(commands)] == commands


def test_a_command_deep_in_the_arguments_of_others_is_not_read() -> None:
    assert read_command("command", "eval " * (DEEPEST + 1) + "ls").unread.endswith(TOO_LONG)


def test_a_text_that_is_evaluated_is_looked_into() -> None:
    assert runs("eval -- 'ls -l'; builtin eval ls") == ["eval -- 'ls -l'", "[ls -l", "builtin eval ls", "[ls"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_each_builtin_of_bash_is_known() -> None:
    listed = subprocess.run(["bash", "-c", "compgen -b"], check=True, capture_output=True, text=True)
    known = HARMLESS_BUILTINS | EVALUATING_BUILTINS | SOMETIMES_BUILTINS | STARTERS
    assert set(listed.stdout.split()) - known == set()


@pytest.mark.parametrize(
    "text",
    [
        "a" * MOST_CHARACTERS,
        "sudo " * DEEPEST + "ls",
        "echo '`' \"b\"",
        "; ".join(["ls"] * MOST_COMMANDS),
    ],
    ids=lambda text: text[:40],
)
def test_what_is_just_short_and_plain_enough_is_read(text: str) -> None:
    assert read_command("command", text).unread == ""


def test_a_command_of_very_many_is_read_no_further() -> None:
    found = read_command("command", "; ".join(["ls"] * (MOST_COMMANDS + 1)) + "; sh -c ls")
    assert found.unread == "the command is too long, or too deep, to be read"
