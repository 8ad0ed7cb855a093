"""What a shell command runs, as far as its text says, what else it does, and what cannot be known of it."""

from __future__ import annotations

import pytest

pytest.importorskip("tree_sitter_bash")

from turnwheel.effects.findings import UNKNOWN
from turnwheel.performers.tools.shell import (
    DEEPEST,
    MISREAD,
    MOST_CHARACTERS,
    MOST_COMMANDS,
    read_command,
)

LATER = "'bash' runs what it reads"


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
        ("echo a\\\nb", ["echo ab"]),
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
        ("eval ls -l", ["eval ls -l", "[ls -l"]),
        ("eval -- ls", ["eval -- ls", "[ls"]),
        ("nice sh -c ls", ["nice sh -c ls", "[ls"]),
        ("builtin eval ls", ["builtin eval ls", "[ls"]),
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
        ("echo a >&out", ["echo a"], "it writes to 'out'"),
        ("echo a >2", ["echo a"], "it writes to '2'"),
        ("cat <in >out", ["cat"], "it writes to 'out'"),
        ("> out", [], "it writes to 'out'"),
        ("a >b; c >b", ["a", "c"], "it writes to 'b'"),
        ("a >b; a >c; a >d; a >e", ["a"] * 4, "it writes to 'b'; it writes to 'c'; it writes to 'd'"),
        ("echo a >$x", ["echo a"], "it writes to '*'; it is dynamic: $x"),
        ("echo $x", ["echo ?"], "it is dynamic: echo $x"),
        ("echo $(ls -l)", ["echo ?", "ls -l"], "it is dynamic: echo $(ls -l)"),
        ("diff <(ls a) b", ["diff ? b", "ls a"], "it is dynamic: diff <(ls a) b"),
        ('echo "$x" a$y', ["echo ? a?"], 'it is dynamic: echo "$x" a$y'),
        ("echo *.py ~/x a~", ["echo ?.py ?/x a~"], "it is dynamic: echo *.py ~/x a~"),
        ("echo {a,b} {1..3}", ["echo ? ?"], "it is dynamic: echo {a,b} {1..3}"),
        ("echo a[1]", ["echo ?"], "it is dynamic: echo a[1]"),
        ("echo $'a'", ["echo ?"], "it is dynamic: echo $'a'"),
        ("echo $((1+1))", ["echo ?"], "it is dynamic: echo $((1+1))"),
        (
            "echo " + "a" * 80 + "$x",
            ["echo " + "a" * 80 + "?"],
            f"it is dynamic: echo {'a' * 75}...; it is dynamic: $x",
        ),
        ('echo "a\\"b\\$c\\d"', ['echo a"b$c\\d'], 'it is no plain command: echo "a\\"b\\$c\\d"'),
        ("A+=1", [], "it sets a variable: A+=1"),
        ("A=1 make", ["make"], "it is no plain command: A=1 make; it sets a variable: A=1"),
        ("a=(1 2)", [], "it sets a variable: a=(1 2)"),
        ("unset x", ["unset x"], "it is more than a list of commands: unset x"),
        ("for x in a; do  ls; done", ["ls"], "it is more than a list of commands: for x in a; do ls; done"),
        ("if a; then b; fi", ["a", "b"], "it is more than a list of commands: if a; then b; fi"),
        ("[ -f a ]", [], "it is more than a list of commands: [ -f a ]"),
        ("((1+1))", [], "it is more than a list of commands: 1+1"),
        ("cat <<END\ntext\nEND", ["cat"], "it is more than a list of commands: <<END text END"),
        ("cat <<-END\n\ttext\n\tEND", ["cat"], "it is more than a list of commands: <<-END text END"),
        ("cat <<'END'\na\\\nb\nEND", ["cat"], "it is more than a list of commands: <<'END' a\\ b END"),
        ("cat <<END\nEND", ["cat"], "it is more than a list of commands: <<END END"),
    ],
)
def test_what_a_command_does_besides_is_told(text: str, commands: list[str], beyond: str) -> None:
    found = read_command("command", text)
    assert (runs(text), found.beyond, found.unread) == (commands, beyond, "")


@pytest.mark.parametrize(
    ("text", "unread"),
    [
        ("PS4+=1 ls", "it sets PS4, which shells run"),
        ("export BASH_ENV=x", "it sets BASH_ENV, which shells run"),
        ("f() { ls; }", "it defines a function"),
        ("echo `ls`", "it has a substitution in backticks"),
        ("echo '`' `ls`", "it has a substitution in backticks"),
        ("bash", LATER),
        ("bash -x", LATER),
        ("bash +x", LATER),
        ("bash --rcfile c", LATER),
        ("bash $x", LATER),
        ("bash a$x", LATER),
        ("source x", "'source' changes what commands mean"),
        ("command . x", "'.' changes what commands mean"),
        ("time trap x", "'trap' changes what commands mean"),
        ("eval $x", "it runs a command that is known only then"),
        ("test -v 'a[$(rm b)]'", "it may run what stands in an index"),
        ("echo 'unclosed", "the command cannot be read"),
        ("cat <<END\ntext \\\nEND\nEND", MISREAD),
        ("cat <<END\na\\\nb\nEND", MISREAD),
        ("cat <<E.D\na\nE.D", MISREAD),
        ("cat <<END >out x\nEND", MISREAD),
        # Only `<<-` ends at a name behind tabs, and no other blanks are left out.
        ("cat <<END\na\n\tEND", MISREAD),
        ("cat <<-END\na\n END", MISREAD),
        ("cat <<-END\n$(b\n\tEND\n)\nEND", MISREAD),
        ("cat <<'END'\n  ", MISREAD),
        ("git status \x0b", MISREAD),
        ("git status\ra", MISREAD),
        ("a" * (MOST_CHARACTERS + 1), "the command is too long, or too deep, to be read"),
        ("eval " * (DEEPEST + 1) + "ls", "the command is too long, or too deep, to be read"),
    ],
    ids=lambda text: text[:40],
)
def test_what_cannot_be_known_of_a_command_is_told(text: str, unread: str) -> None:
    assert unread in read_command("command", text).unread.split("; ")


@pytest.mark.parametrize(
    "text",
    [
        "a" * MOST_CHARACTERS,
        "eval " * DEEPEST + "ls",
        "test -v 'a[b]'",
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
