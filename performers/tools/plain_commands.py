"""
Plain command lines: those of which the text says every program that they start, and with which words.

Theory of operation. What is understood is listed, and all else is not plain. A plain line is made of simple
commands, joined by ``;``, ``&``, ``&&``, ``||``, ``|`` or the end of a line, negated by ``!``, or in groups
of ``( )`` and ``{ }``. Words are literals, quotes, globs, tildes, and variables as ``$name`` or ``${name}``:
their text is unknown. Redirections are to files with a literal name. A variable may be set to such a word.
Builtins of bash that evaluate what they are given are not plain, by its manual. Which programs run others is
for the rules to know.
"""

from __future__ import annotations

import re
from typing import final

import attrs

from ...effects.findings import UNKNOWN
from ...states.rules.commands import MOST_ARGUMENTS

# Builtins of bash that evaluate none of their words, whatever these are.
HARMLESS_BUILTINS = frozenset(
    {":", "break", "cd", "continue", "dirs", "disown", "echo", "exit", "false", "kill", "logout", "popd"}
    | {"pushd", "pwd", "return", "shift", "suspend", "times", "true", "type", "ulimit", "umask"}
)

# Builtins of bash that run, evaluate or set what their words say, or change what others mean. An index of an
# array is evaluated wherever the name of a variable is expected: `read 'a[$(reboot)]'` reboots.
EVALUATING_BUILTINS = frozenset(
    {".", "alias", "bg", "bind", "caller", "compgen", "complete", "compopt", "declare"}
    | {"enable", "eval", "exec", "export", "fc", "fg", "getopts", "hash", "help", "history", "jobs", "let"}
    | {"local", "mapfile", "readarray", "read", "readonly", "shopt", "source", "trap", "typeset"}
    | {"unalias", "unset"}
)

# Builtins of bash that do so by some of their options.
SOMETIMES_BUILTINS = frozenset({"[", "printf", "set", "test", "wait"})

# Words that mean something else where a command begins.
_RESERVED = frozenset(
    {"!", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in"}
    | {"select", "then", "time", "until", "while"}
)

# The options of `set` that end a script early and do nothing else.
_STRICT = re.compile(r"[-+][eu]*o?|pipefail|errexit|nounset")

# Files that the shell opens, or makes, in a way of its own.
_SPECIAL_FILE = re.compile(r"/+(dev|proc)(/|$)")
_USUAL_FILES = frozenset({"/dev/null", "/dev/stderr", "/dev/stdout"})

# Variables that the shell goes by have no lower-case letters, nor have most that programs go by. There a
# number is a switch, such as CI=1. A word might be a command, and in some variables it is evaluated.
_NUMBER = re.compile(r"\d{1,9}", re.ASCII)
_OF_THE_SHELL = re.compile(r"BASH\w*|ENV|IFS|LD_\w*|PATH|POSIXLY_CORRECT|PS\d|SHELLOPTS")

_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
_GAP = re.compile(r"(?:[ \t]|\\\n)*(?:#[^\n]*)?")
_OPERATOR = re.compile(r"&&|\|\||\|&|[;&|\n]")
_CLOSED_BY = {"(": ")", "{": "}"}
_GROUP = re.compile(r"[({](?:(?=[ \t\n])|(?<=\()(?!(?:\\\n)*\())|[)}](?=[ \t\n;&|)<>]|\Z)|!(?=[ \t])")
_REDIRECT = re.compile(r"&>>?|\d?(?:>>|>\||>&|<&|<>|>(?!\()|<(?![<(]))")
_ASSIGNED = re.compile(rf"({_VARIABLE})\+?=")
_DUPLICATED = re.compile(r"\d-?|-", re.ASCII)

_ODD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")

# The name of a variable, as it stands behind a dollar sign.
_EXPANDED = rf"{_VARIABLE}(?!\w)|[0-9?#$!]|\{{{_VARIABLE}\}}"

# The pieces of a word. A dollar sign before anything that is not here may begin a substitution.
_PIECE = re.compile(
    r"(?P<bare>(?:@\{[A-Za-z0-9_\-]+\}|[A-Za-z0-9_@%+=:,./^\-!\]#])++)"
    r"|(?P<wide>[^\x00-\x7f]+)"
    r"|(?P<glob>[*?\[])"
    r"|'(?P<single>[^']*)'"
    rf'|"(?P<double>(?:[^"\\$`]|\\[^\x00]|\$(?=["\s])|\$(?:{_EXPANDED}))*+)"'
    rf"|\$(?P<variable>{_EXPANDED})"
    r"|(?P<tilde>~[A-Za-z0-9_.+\-]*)"
    r"|\\(?P<escaped>[!-~ ])",
    re.ASCII,
)
_IN_DOUBLE = re.compile(r'\\(?P<escaped>[$`"\\\n])|(?P<variable>\$(?:' + _EXPANDED + "))", re.ASCII)

# Characters of the line in a reason.
_SHOWN = 40

# Commands of one line.
MOST_COMMANDS = 200

TOO_LONG = "the command is too long, or too deep, to be read"


@final
class NotPlain(Exception):
    """Why a line is not plain, for a person."""


@final
@attrs.frozen
class PlainLine:
    """
    The *commands* of a plain line, each in words without quotes.

    *beyond* is what else it does, for rules that allow: what is unknown in it, what it sets, where it writes.
    """

    commands: tuple[tuple[str, ...], ...]
    beyond: tuple[str, ...]


def plain_line(text: str) -> PlainLine:
    """The commands of *text*, or `NotPlain`."""
    reader = _LineReader(text)
    reader.read()
    return PlainLine(tuple(reader.commands), tuple(reader.beyond))


@final
@attrs.frozen
class _ShellWord:
    """A word: its *values*, its *source*, and whether no part of it is quoted (*bare*)."""

    values: tuple[str, ...]
    source: str
    bare: bool

    @property
    def known(self) -> bool:
        return UNKNOWN not in "".join(self.values)


@final
class _LineReader:
    """Reads one line from its beginning to its end; a command is what stands between two operators."""

    def __init__(self, text: str) -> None:
        self.commands: list[tuple[str, ...]] = []
        self.beyond: list[str] = []
        self._text = text
        self._at = 0
        # Of the command that is being read; nothing but redirections follow where it has `_ended`.
        self._words: list[str] = []
        self._ended = False
        # The closing marks of the groups that are open.
        self._groups: list[str] = []

    def read(self) -> None:
        # Shells differ in how they read control characters.
        if odd := _ODD.search(self._text):
            msg = f"it has the character {odd[0]!r}"
            raise NotPlain(msg)
        takes = (self._take_redirect, self._take_operator, self._take_group, self._take_assignment)
        while (at := self._skip()) < len(self._text):
            if not any(take(at) for take in takes):
                self._take_word(at)
        self._end()
        if self._groups:
            msg = f"{self._groups[-1]!r} is missing"
            raise NotPlain(msg)

    def _skip(self) -> int:
        gap = _GAP.match(self._text, self._at)
        self._at = self._at if gap is None else gap.end()
        return self._at

    def _match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        if found is None:
            return ""
        self._at = found.end()
        return found[0]

    def _refused(self, at: int) -> NotPlain:
        rest = " ".join(self._text[at : at + _SHOWN].split())
        return NotPlain(f"it is no plain command from {rest!r} on")

    def _end(self) -> None:
        if not self._words:
            return
        if len(self.commands) >= MOST_COMMANDS:
            raise NotPlain(TOO_LONG)
        _check_builtin(self._words)
        self.commands.append(tuple(self._words))
        self._words = []

    def _take_redirect(self, at: int) -> bool:
        operator = self._match(_REDIRECT)
        if not operator:
            return False
        target = self._word(self._skip())
        name = "".join(target.values)
        if not target.known or (_SPECIAL_FILE.match(name) and name not in _USUAL_FILES):
            raise self._refused(at)
        # To some shells `&` ends a command, and what follows the redirection is another one.
        self._ended = self._ended or operator.startswith("&")
        if operator.endswith("&"):
            # 2>&1 and 2>&- only name what is open already. Any other word bash expands a second time.
            if not _DUPLICATED.fullmatch(target.source):
                raise self._refused(at)
        elif ">" in operator and name != "/dev/null":
            self.beyond.append(f"it writes to {name!r}")
        return True

    def _take_operator(self, at: int) -> bool:
        operator = self._match(_OPERATOR)
        if not operator:
            return False
        if operator == ";" and self._text[self._at : self._at + 1] in {";", "&"}:
            raise self._refused(at)
        self._end()
        self._ended = False
        return True

    def _take_group(self, at: int) -> bool:
        # In the words of a command only a parenthesis ends a group.
        if self._words and self._text[at] != ")":
            return False
        mark = self._match(_GROUP)
        if not mark:
            return False
        if mark in _CLOSED_BY and not self._ended:
            self._groups.append(_CLOSED_BY[mark])
        elif self._groups[-1:] == [mark]:
            self._end()
            self._groups.pop()
            self._ended = True
        elif mark != "!" or self._ended:
            raise self._refused(at)
        return True

    def _take_assignment(self, at: int) -> bool:
        found = _ASSIGNED.match(self._text, at)
        if self._words or self._ended or found is None:
            return False
        self._at, name = found.end(), found[1]
        value = "".join(self._word(self._at, assigned=True).values)
        number = _NUMBER.fullmatch(value) and not _OF_THE_SHELL.fullmatch(name)
        if name.upper() == name and not number:
            msg = f"it sets {name}, by which the shell or a program may go"
            raise NotPlain(msg)
        self.beyond.append(f"it sets a variable: {self._text[at : self._at]}")
        return True

    def _take_word(self, at: int) -> None:
        if self._ended:
            raise self._refused(at)
        word = self._word(at)
        if not self._words:
            _check_first(word)
        self._words += word.values
        if not word.known:
            self.beyond.append(f"it is dynamic: {word.source}")

    def _word(self, start: int, *, assigned: bool = False) -> _ShellWord:
        """The word from *start* on. One that is *assigned* may be empty, and is not split."""
        parts: list[str] = []
        # Where in it stands what may become several words, or none.
        splits: list[int] = []
        bare = True
        while (piece := _PIECE.match(self._text, self._at)) is not None:
            kind, text = piece.lastgroup, piece[piece.lastgroup or 0]
            self._at = piece.end()
            bare = bare and kind in {"bare", "wide"}
            # Some of these are blanks to a reader, and some have no width.
            if kind == "wide" and not text.isprintable():
                raise self._refused(piece.start())
            if kind in {"glob", "variable"}:
                splits.append(len(parts))
                parts.append(UNKNOWN)
            elif kind == "double":
                parts.append(_IN_DOUBLE.sub(_in_double, text))
            elif kind == "tilde":
                at_start = piece.start() == start or self._text[piece.start() - 1] in "=:"
                parts.append(UNKNOWN if at_start else text)
            else:
                parts.append(text)
        source, value = self._text[start : self._at], "".join(parts)
        behind = self._text[self._at : self._at + 1]
        # Some shells take several digits before a redirection for a word, and others for a file.
        number = behind in {"<", ">"} and source.isdigit()
        if behind.strip(" \t\n;&|<>)") or not (source or assigned) or number:
            raise self._refused(self._at)
        # An index is evaluated where a shell takes the word for an assignment.
        if re.match(rf"{_VARIABLE}\[", source) and "=" in source:
            raise self._refused(start)
        if source == "[":
            return _ShellWord((source,), source, bare=True)
        if assigned or not splits or value == UNKNOWN:
            return _ShellWord((value,), source, bare)
        first, last = "".join(parts[: splits[0] + 1]), "".join(parts[splits[-1] :])
        return _ShellWord((first, UNKNOWN, last), source, bare)


def _in_double(found: re.Match[str]) -> str:
    return UNKNOWN if found["variable"] else found["escaped"].strip("\n")


def _check_first(word: _ShellWord) -> None:
    if not word.known:
        msg = f"what {word.source!r} runs is known only then"
        raise NotPlain(msg)
    if word.bare and word.values[0] in _RESERVED:
        msg = f"it is more than a list of commands: {word.source}"
        raise NotPlain(msg)


def _check_builtin(words: list[str]) -> None:
    # Behind these any word may be the builtin that runs, as they have options.
    starts = range(1)
    if words[0] in {"builtin", "command"} and words[1:2] not in (["-v"], ["-V"]):
        starts = range(len(words))
    if len(starts) > MOST_ARGUMENTS:
        raise NotPlain(TOO_LONG)
    for start in starts:
        name, rest = words[start], words[start + 1 :]
        if name in EVALUATING_BUILTINS or (name in SOMETIMES_BUILTINS and not _evaluates_nothing(name, rest)):
            msg = f"{name!r} may evaluate its arguments"
            raise NotPlain(msg)


def _evaluates_nothing(name: str, words: list[str]) -> bool:
    unknown = UNKNOWN in "".join(words)
    match name:
        case "printf":
            # `%n` sets a variable.
            known = bool(words) and UNKNOWN not in words[0] and not words[0].startswith("-")
            return known and re.search("%[^%a-zA-Z]*[hjlqtzL]*n", words[0]) is None
        case "set":
            return bool(words) and all(map(_STRICT.fullmatch, words))
        case "wait":
            return not unknown and not any(word.startswith("-") for word in words)
        case _:
            return not unknown and {"-v", "-R"}.isdisjoint(words)
