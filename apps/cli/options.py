"""The options of the commands, as click has them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from ...effects.permissions import PermissionMode, Verdict
from ...effects.validators import MAX_TEXT, within
from .apply_settings import apply_settings
from .option_types import (
    amount,
    fallback,
    hook,
    price,
    priced_model,
    rule,
)
from .run_options import (
    BUILT_IN,
    Output,
    RunOptions,
    default_store,
)

MODE = click.Choice([mode.value for mode in PermissionMode])

F = TypeVar("F", bound=Callable[..., Any])

DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


def store(function: F) -> F:
    """The option for the store, which every command has."""
    return click.option(
        "--store",
        type=click.Path(dir_okay=False, path_type=Path),
        default=default_store,
        show_default="$TURNWHEEL_STORE, or turnwheel/sessions.db in the state directory",
        help="The file that keeps sessions.",
    )(function)


def read(parse: Callable[[str], object]) -> Callable[[click.Context, click.Parameter, Any], object]:
    """What lets *parse* read an option, or each of those that may be given several times."""

    def callback(context: click.Context, parameter: click.Parameter, value: Any) -> object:  # noqa: ANN401  # as click has it
        try:
            if isinstance(value, tuple):
                return tuple(parse(text) for text in value)
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error), context, parameter) from error

    return callback


def _rules(verdict: Verdict, says: str) -> Callable[[Any], Any]:
    return click.option(
        f"--{verdict}",
        metavar="RULE",
        callback=read(partial(rule, verdict=verdict)),
        multiple=True,
        help=says,
    )


def _number(name: str, into: str, says: str) -> Callable[[Any], Any]:
    return click.option(name, into, metavar="NUMBER", type=click.IntRange(min=1), help=says)


def _amount(name: str, into: str, says: str) -> Callable[[Any], Any]:
    return click.option(name, into, metavar="NUMBER", callback=read(amount), help=says)


MAX_STDIN = 4 * MAX_TEXT
"""Bytes that are read of stdin: a character has four at most."""

_SHARED: tuple[Callable[[Any], Any], ...] = (
    click.option("--continue", "newest", is_flag=True, help="Go on with the newest session made here."),
    click.option("--title", metavar="TEXT", help="What the session is called in lists."),
    click.option(
        "--settings",
        "settings_file",
        metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Settings, in TOML. [default: turnwheel.toml, where it is there]",
    ),
    click.option("--model", metavar="NAME", help="Such as openai:gpt-5. [default: $TURNWHEEL_MODEL]"),
    click.option(
        "--also-model",
        "models",
        metavar="NAME[=IN,OUT]",
        callback=read(priced_model),
        multiple=True,
        help="One to switch to.",
    ),
    click.option(
        "--fallback",
        metavar="NAME[=IN,OUT]",
        callback=read(fallback),
        help="Asked for the rest of a run whose model cannot answer; '' for none.",
    ),
    click.option("--base-url", metavar="URL", help="Where to ask, in place of the model's provider."),
    click.option("--stand-in", is_flag=True, help="Ask the scripted stand-in: no model, no key."),
    click.option("--system", metavar="TEXT", help="The system prompt, in place of ours."),
    click.option(
        "--instructions",
        metavar="FILE",
        multiple=True,
        help="Read when a session begins; '' for none. [default: AGENTS.md, where it is there]",
    ),
    click.option("--tools", metavar="LIST", help=f"Of {','.join(BUILT_IN)}; empty for none. [default: all]"),
    click.option("--cwd", type=DIRECTORY, default=Path(), help="Where tools work. [default: here]"),
    click.option(
        "--dir", "directories", type=DIRECTORY, multiple=True, help="Files here may be touched, too."
    ),
    click.option("--yes", is_flag=True, help="Answer every question with yes."),
    _rules(Verdict.ALLOW, "Do not ask about TOOL or TOOL:ARGUMENT=GLOB."),
    _rules(Verdict.ASK, "Ask about such calls, whatever allows them."),
    _rules(Verdict.DENY, "Never run such calls, whoever says yes."),
    click.option("--mode", type=MODE, help="What happens to all other calls."),
    click.option(
        "--hook",
        "hooks",
        metavar="EVENT[:TOOL]=COMMAND",
        callback=read(hook),
        multiple=True,
        help="A program that has a say.",
    ),
    click.option("--no-hooks", is_flag=True, help="Go on without the hooks a session had."),
    _amount("--answer-within", "answer_within", "Seconds after which a question counts as denied."),
    click.option("--parallel", is_flag=True, help="Reads run together, and questions come together."),
    _number("--max-turns", "turns", "Answers of the model."),
    _number("--max-tokens", "tokens", "Tokens, in and out."),
    _amount("--max-usd", "usd", "Money, where the price is known."),
    _amount("--max-seconds", "seconds", "Seconds at work; questions cost none."),
    click.option("--price", metavar="IN,OUT", callback=read(price), help="USD per million tokens."),
    store,
    click.option("--verbose", "-v", is_flag=True, help="Show judgements and what hooks said, too."),
    click.option("--json", "json_lines", is_flag=True, help="Each notice as a line of JSON; asks nobody."),
)
"""What `run` and `chat` take."""

_RUN: tuple[Callable[[Any], Any], ...] = (
    click.argument("prompt", required=False),
    click.option("--session", metavar="ID", help="What to call a new session."),
    click.option("--resume", metavar="ID", help="Go on with a session, or with its unfinished run."),
    click.option("--quiet", "-q", is_flag=True, help="Only the last answer."),
)


def with_all(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """All *options* at once."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


for_run = with_all(*_RUN, *_SHARED)
for_chat = with_all(click.argument("session", metavar="[ID]", required=False), *_SHARED)


def run_options_of(options: dict[str, Any]) -> RunOptions:
    """The job that the *options* of the command line ask for."""
    quiet, as_lines = options.pop("quiet", False), options.pop("json_lines")
    if quiet and as_lines:
        msg = "--quiet and --json are two ways to show a run; give one of them"
        raise click.UsageError(msg)
    output = Output.QUIET if quiet else Output.JSON if as_lines else Output.HUMAN
    if options.get("prompt") is not None:
        options["prompt"] = text_of(options["prompt"])
    if options["tools"] is not None:
        options["tools"] = tuple(name.strip() for name in options["tools"].split(",") if name.strip())
    mode = options.pop("mode")
    rules = tuple(each for verdict in Verdict for each in options.pop(verdict))
    files = options.pop("instructions")
    apply_settings(options)
    return RunOptions(
        output=output,
        rules=rules,
        mode=None if mode is None else PermissionMode(mode),
        instructions=tuple(filter(None, files)) if files else None,
        **options,
    )


def text_of(text: str) -> str:
    """*text*, or what stdin says where it is a dash."""
    if text != "-":
        return text
    data = sys.stdin.buffer.read(MAX_STDIN + 1)
    within("what stdin says", len(data), MAX_STDIN, "bytes")
    return data.decode(errors="surrogateescape")
