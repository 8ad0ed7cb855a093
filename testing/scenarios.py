"""
Scenarios: stories in text, each followed by what the machine did, in the manner of etcd's raft.

    # A denial ends the batch: the calls behind it are skipped.
    # shows: a-no-goes-back-to-the-model
    agent tools=(look read_only, pay)

    prompt "Pay the invoice"
    model calls pay {"amount": 5}, look {}
    ----
    ...

A file opens with a sentence in a comment and the settings of the agent. Blocks follow: commands, ``----`` and
the text that was recorded, up to an empty line. `read_scenario` parses a file, `play_scenario` in
`scenarios_world`, where the commands are, plays it, and `rewritten` puts what it led to in place of the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby, takewhile, zip_longest
from typing import Any, Final, final

import attrs

from ..effects import config
from ..effects.errors import TurnwheelError
from ..effects.hooks import HookSpec
from ..effects.permissions import Rule
from ..engine.core.codec import decode

# The line between commands and the recorded text.
DIVIDER = "----"

# What a comment begins with that names the behaviours which a scenario shows.
SHOWS = "# shows:"


@final
class ScenarioError(ValueError):
    """*problem* at *line* and *column*, both from 1, of the scenario *where*."""

    def __init__(self, problem: str, line: int, column: int = 1, where: str = "scenario") -> None:
        super().__init__(problem, line, column, where)
        self.problem, self.line, self.column, self.where = problem, line, column, where

    def __str__(self) -> str:
        return f"{self.where}:{self.line}:{self.column}: {self.problem}"


@final
@attrs.frozen
class Quoted:
    """A *text* that stood in quotes; ``"na "*3`` is one said three times."""

    text: str


@final
@attrs.frozen
class JsonText:
    """A JSON object, as its *text* stands in the line."""

    text: str


Word = str | Quoted | JsonText


@final
@attrs.frozen(kw_only=True)
class Phrase:
    """Words and ``name=value`` options up to a comma; *column* is where it begins, from 1."""

    words: tuple[Word, ...]
    options: Mapping[str, Value]
    column: int = 1


# What an option is set to; in brackets stand phrases.
Value = Word | tuple[Phrase, ...]


@final
@attrs.frozen(kw_only=True)
class Command:
    """One line: its phrases, its number and its text."""

    phrases: tuple[Phrase, ...]
    line: int
    text: str


@final
@attrs.frozen(kw_only=True)
class Scenario:
    """
    A story: the *sentence* that sums it up, the behaviours it *shows*, and its blocks.

    It begins under *config*. *subject* is the configuration of the agent that the story is put to, if any.
    """

    name: str
    sentence: str
    shows: tuple[str, ...]
    subject: config.Config | None = None
    config: config.Config
    blocks: tuple[tuple[Command, ...], ...]
    recorded: tuple[tuple[str, ...], ...]


def read_scenario(text: str, name: str = "scenario", subject: config.Config | None = None) -> Scenario:
    """
    The scenario that *text* is; *name* stands in errors. Raises `ScenarioError` with line and column.

    With a *subject*, the configuration of an agent, the settings in *text* change that one. A whole
    configuration as JSON, as an exported session has it, stands for *subject* then, and is not read.
    """
    lines = text.split("\n")
    comments = [line.removeprefix("#").strip() for line in lines if line.startswith("#")]
    shows = ",".join([line.removeprefix(SHOWS) for line in lines if line.startswith(SHOWS)])
    try:
        blocks = list(_blocks(lines))
        settings: list[Command] = []
        while blocks and all(command.phrases[0].words[:1] == ("agent",) for command in blocks[0][0]):
            settings += blocks.pop(0)[0]
        begins_with = configured(settings, subject)
    except ScenarioError as error:
        raise ScenarioError(error.problem, error.line, error.column, name) from error
    return Scenario(
        name=name,
        sentence=comments[0] if comments else "",
        shows=tuple([key.strip() for key in shows.split(",") if key]),
        config=begins_with,
        blocks=tuple([commands for commands, _ in blocks]),
        recorded=tuple([recorded for _, recorded in blocks]),
        subject=subject,
    )


def _blocks(lines: Iterable[str]) -> Iterator[tuple[tuple[Command, ...], tuple[str, ...]]]:
    commands: list[Command] = []
    recorded: list[str] | None = None
    begin, times = 0, 1
    for number, line in enumerate([*lines, ""], 1):
        if not line.startswith(" ") and times > 1:
            commands[begin:] = commands[begin:] * times
            times = 1
        if recorded is not None and line.strip():
            recorded.append(line.rstrip())
        elif line.strip() == DIVIDER:
            if not commands:
                msg = "no command stands before the divider; write one, or remove it"
                raise ScenarioError(msg, number)
            recorded = []
        elif not line.strip():
            if commands:
                yield tuple(commands), tuple(recorded or ())
            commands, recorded = [], None
        elif repeated := re.fullmatch(r"repeat (\d+)", line):
            begin, times = len(commands), int(repeated.group(1))  # what is indented below it, so many times
        elif not line.startswith("#"):
            commands.append(Command(phrases=_Scanner(line, number).phrases(), line=number, text=line.strip()))


def rewritten(text: str, recorded: Iterable[Iterable[str]]) -> str:
    """*text* with the lines *recorded* for each of its blocks of commands, in their order; all else stays."""
    lines: list[str] = []
    outcomes, begun = iter(recorded), False
    for blank, paragraph in groupby(text.rstrip("\n").split("\n"), lambda line: not line.strip()):
        head = list(takewhile(lambda line: line.strip() != DIVIDER, paragraph))
        lines += head
        commands = [line for line in head if not line.startswith(("#", "repeat "))]
        if not blank and commands:
            begun = begun or not all(_is_setting(line) for line in commands)
            lines += [DIVIDER, *next(outcomes)] if begun else []
    return "\n".join(lines) + "\n"


def _is_setting(line: str) -> bool:
    return line.split(maxsplit=1)[0] == "agent"


# Words of a line

_TOKEN = re.compile(r'\s*(?:(?P<name>[a-z_]+)=|(?P<mark>[,()]|$)|(?P<word>[^\s,()"{}]+)|(?=["{]))')
_TIMES = re.compile(r"\*(\d+)")


@final
class _Scanner:
    """Reads the phrases of one *line*, which has this *number*."""

    def __init__(self, line: str, number: int) -> None:
        self._line, self._number, self._at = line.rstrip(), number, 0

    def phrases(self, end: str = "") -> tuple[Phrase, ...]:
        """The phrases up to *end*, a bracket, or up to the end of the line."""
        phrases: list[Phrase] = []
        words, options, column = list[Word](), dict[str, Value](), 1
        while True:
            kind, text = self._next()
            if kind == "name":
                options[text] = self._value()
            elif kind != "mark":
                words.append(text or self._json())
            else:
                if words or options or text != end or phrases:  # nothing stands in (), not one empty phrase
                    phrases.append(Phrase(words=tuple(words), options=options, column=column))
                if text == end:
                    return tuple(phrases)
                if text != ",":
                    msg = f"{text} is not expected here" if text else "the bracket is not closed"
                    raise self._error(msg)
                words, options, column = [], {}, self._at + 1

    def _error(self, problem: str) -> ScenarioError:
        return ScenarioError(problem, self._number, self._at + 1)

    def _next(self) -> tuple[str | None, str]:
        """The name of an option, a mark or a bare word; nothing where a text or an object begins."""
        found = _TOKEN.match(self._line, self._at)
        if found is None:
            msg = f"no word begins with {self._line[self._at :].strip()[:1]!r}"
            raise self._error(msg)
        self._at = found.end()
        return found.lastgroup, found[found.lastgroup] if found.lastgroup else ""

    def _json(self) -> Word:
        start = self._at
        try:
            value, self._at = json.JSONDecoder().raw_decode(self._line, start)
        except ValueError as error:
            msg = f"this is no JSON: {error}"
            raise self._error(msg) from error
        if not isinstance(value, str):
            return JsonText(self._line[start : self._at])
        times = _TIMES.match(self._line, self._at)
        self._at = times.end() if times else self._at
        return Quoted(value * int(times.group(1)) if times else value)

    def _value(self) -> Value:
        if self._line[self._at : self._at + 1] == "(":
            self._at += 1
            return self.phrases(")")
        kind, word = self._next()
        if kind in {"name", "mark"}:
            msg = "an option needs a value"
            raise self._error(msg)
        return word or self._json()


# Settings


def configured(commands: Iterable[Command], subject: config.Config | None = None) -> config.Config:
    """The configuration that lines of settings make of *subject*, or of an agent without tools."""
    settled = config.Config(model=config.ModelSpec(name="main")) if subject is None else subject
    for command in commands:
        for phrase in command.phrases:
            try:
                settled = with_settings(settled, phrase, subject)
            except (TypeError, ValueError, LookupError, TurnwheelError) as error:
                msg = f"settings: {error}"
                raise ScenarioError(msg, command.line, phrase.column) from error
    return settled


def with_settings(base: config.Config, phrase: Phrase, subject: config.Config | None = None) -> config.Config:
    """
    *base* with the options of *phrase*: its fields and those of its policy.

    A whole configuration as JSON takes the place of *base*; with a *subject*, that one does.
    """
    for word in phrase.words[1:]:
        base = decode(text_of(word).encode(), config.Config, "this JSON") if subject is None else subject
    fields = {name: _SETTINGS.get(name, _plain)(value) for name, value in phrase.options.items()}
    policy = {name: fields.pop(name) for name in attrs.fields_dict(config.Policy).keys() & fields}
    return attrs.evolve(base, policy=attrs.evolve(base.policy, **policy), **fields)


def text_of(word: Value) -> str:
    """The text of *word*, whether it stands in quotes or not."""
    return word.text if isinstance(word, Quoted | JsonText) else str(word)


def _plain(value: Value) -> Any:  # noqa: ANN401  # whatever the setting takes, which checks it
    """*value* as a number, true, false or None where it is a bare word that says so, else as text."""
    if isinstance(value, tuple):
        return tuple([_plain(word) for phrase in value for word in phrase.words])
    if isinstance(value, str) and re.fullmatch(r"none|true|false|-?\d+(\.\d+)?", value):
        return json.loads(value.replace("none", "null"))
    return text_of(value)


def _phrases(value: Value) -> tuple[Phrase, ...]:
    if isinstance(value, tuple):
        return value
    msg = f"{text_of(value)!r} has to stand in brackets"
    raise TypeError(msg)


def _fields(phrases: Value, *names: str) -> dict[str, Any]:
    """The options in brackets, as fields; bare words become the fields called *names*."""
    fields: dict[str, Any] = {}
    for phrase in _phrases(phrases):
        fields |= {name: _plain(word) for name, word in zip_longest(names, phrase.words) if word is not None}
        fields |= {name: _plain(value) for name, value in phrase.options.items()}
    return fields


_TOOL_WORDS: Final[Mapping[Word, Mapping[str, Any]]] = {
    **{word: {"side_effect": word} for word in ("read_only", "idempotent", "unsafe")},
    **{word: {"approval": word} for word in ("always", "never")},
    "agent": {"kind": "agent"},
    **{word: {word: True} for word in ("edits", "sandboxed")},
}


def _tool(phrase: Phrase) -> config.ToolSpec:
    """``look read_only never timeout=5 needs=path``, where *needs* is a text that it must be given."""
    fields = {name: _plain(value) for name, value in phrase.options.items()}
    for word in phrase.words[1:]:
        if word not in _TOOL_WORDS:
            msg = f"a tool is {', '.join(map(text_of, _TOOL_WORDS))}; got {text_of(word)!r}"
            raise ValueError(msg)
        fields |= _TOOL_WORDS[word]
    if (needed := fields.pop("needs", None)) is not None:
        schema = {"type": "object", "properties": {needed: {"type": "string"}}, "required": [needed]}
        fields["schema"] = json.dumps(schema)
    if "resources" in fields:
        fields["resources"] = (fields["resources"],)
    return config.ToolSpec(name=text_of(phrase.words[0]), **fields)


# Kinds of tokens, in the order in which ``10/5`` has them; those left out are as if nothing was said.
TOKENS: Final = ("input", "output", "cached", "cache_write", "reasoning")


def priced(text: str) -> dict[str, Any]:
    """The numbers in ``10/5//2`` by the kind of token they are about."""
    return {kind: number for kind, number in zip(TOKENS, text.split("/"), strict=False) if number}


def _model(value: Value) -> config.ModelSpec:
    """``(main window=1000 price=1/5)``: USD per million tokens, in the order of `TOKENS`."""
    fields: dict[str, Any] = {"name": "main", **_fields(value, "name")}
    if (price := fields.pop("price", None)) is not None:
        fields["price"] = config.Price(**priced(str(price)))
    return config.ModelSpec(**fields)


def _child(phrase: Phrase) -> config.ChildSpec:
    """``kid tools=(look) turns=2 tokens=500``: limits stand beside the rest."""
    fields = _fields((phrase,), "name")
    limits = {field.name: fields.pop(field.name, None) for field in attrs.fields(config.Limits)}
    fields |= {"limits": config.Limits(**limits)} if any(limits.values()) else {}
    return config.ChildSpec(**fields)


def _rule(phrase: Phrase) -> Rule:
    """``deny write path=/etc/*``: the verdict, the tool, and globs for arguments."""
    verdict, tool = map(text_of, phrase.words)
    where = tuple([(name, text_of(value)) for name, value in phrase.options.items()])
    return Rule(verdict=verdict, tool=tool, where=where)


def _each(make: Callable[[Phrase], object]) -> Callable[[Value], tuple[object, ...]]:
    return lambda value: tuple([make(phrase) for phrase in _phrases(value)])


# How the settings are read that are more than a word.
_SETTINGS: Final[Mapping[str, Callable[[Value], Any]]] = {
    "model": _model,
    "models": _each(lambda phrase: _model((phrase,))),
    "tools": _each(_tool),
    "children": _each(_child),
    "rules": _each(_rule),
    "hooks": _each(lambda phrase: HookSpec(**_fields((phrase,), "name", "hook"))),
    "limits": lambda value: config.Limits(**_fields(value)),
    "session_limits": lambda value: config.Limits(**_fields(value)),
    "retries": lambda value: config.Retries(**_fields(value)),
    "compaction": lambda value: config.Compaction(**_fields(value)),
    "sandbox": lambda value: config.Sandbox(**_fields(value)),
    "loops": lambda value: config.Loops.never() if value == "never" else config.Loops(**_fields(value)),
}
