"""The options of the commands, and the `RunOptions` made from them."""

from __future__ import annotations

import mimetypes
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from ...effects.errors import ConfigError
from ...effects.messages import Binary
from ...effects.permissions import PermissionMode, Verdict
from ...effects.validators import MAX_ATTACHED, MAX_PROMPT, within
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
    OutputStyle,
    RunOptions,
)
from .stores import SessionName, store

MODE = click.Choice([mode.value for mode in PermissionMode])

F = TypeVar("F", bound=Callable[..., Any])

DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


def read(parse: Callable[[str], object]) -> Callable[[click.Context, click.Parameter, Any], object]:
    """Make a callback that parses an option with *parse*, or each of its values if it may be repeated."""

    def callback(context: click.Context, parameter: click.Parameter, value: Any) -> object:  # noqa: ANN401  # as click has it
        try:
            if isinstance(value, tuple):
                return tuple(parse(text) for text in value)
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error), context, parameter) from error

    return callback


def _rules(verdict: Verdict, help_text: str) -> Callable[[Any], Any]:
    return click.option(
        f"--{verdict}",
        metavar="RULE",
        callback=read(partial(rule, verdict=verdict)),
        multiple=True,
        help=help_text,
    )


def _number(name: str, into: str, help_text: str) -> Callable[[Any], Any]:
    return click.option(name, into, metavar="NUMBER", type=click.IntRange(min=1), help=help_text)


def _amount(name: str, into: str, help_text: str) -> Callable[[Any], Any]:
    return click.option(name, into, metavar="NUMBER", callback=read(amount), help=help_text)


MAX_STDIN = 4 * MAX_PROMPT
"""Bytes read of stdin: a character has four at most."""

_BEGINNING: tuple[Callable[[Any], Any], ...] = (
    click.option("--continue", "newest", is_flag=True, help="Continue the newest session of this directory."),
    click.option("--title", metavar="TEXT", help="The title of the session in lists."),
)

_AGENT: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--settings",
        "settings_file",
        metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="A file of settings, in TOML. [default: turnwheel.toml, if it is there]",
    ),
    click.option("--model", metavar="NAME", help="Such as openai:gpt-5. [default: $TURNWHEEL_MODEL]"),
    click.option(
        "--also-model",
        "models",
        metavar="NAME[=IN,OUT]",
        callback=read(priced_model),
        multiple=True,
        help="Another model, to switch to.",
    ),
    click.option(
        "--fallback",
        metavar="NAME[=IN,OUT]",
        callback=read(fallback),
        help="Fallback model, for the rest of a run whose model fails; '' for none.",
    ),
    click.option("--base-url", metavar="URL", help="A server in place of the model's provider."),
    click.option("--stand-in", is_flag=True, help="Use the scripted stand-in: no model, no key."),
    click.option("--system", metavar="TEXT", help="A system prompt in place of the default."),
    click.option(
        "--instructions",
        metavar="FILE",
        multiple=True,
        help="Added to the system prompt; '' for none. [default: AGENTS.md, if it is there]",
    ),
    click.option(
        "--tools",
        metavar="LIST",
        help=f"Of {', '.join(BUILT_IN)}; with commas between; empty for none. [default: all]",
    ),
    click.option("--cwd", type=DIRECTORY, default=Path(), help="The directory of the tools. [default: here]"),
    click.option(
        "--dir", "directories", type=DIRECTORY, multiple=True, help="Another directory for the file tools."
    ),
    click.option("--telemetry", is_flag=True, help="Spans and metrics, by OpenTelemetry of the process."),
)

_HERE: tuple[Callable[[Any], Any], ...] = (
    click.option("--takeover", is_flag=True, help="Take the session from a process that is at work on it."),
    click.option("--yes", is_flag=True, help="Answer every question with yes."),
)

_POLICY: tuple[Callable[[Any], Any], ...] = (
    _rules(Verdict.ALLOW, "Run TOOL or TOOL:ARGUMENT=GLOB without a question."),
    _rules(Verdict.ASK, "Ask about such calls, whatever allows them."),
    _rules(Verdict.DENY, "Never run such calls, whatever allows them."),
    click.option(
        "--lift",
        "lifted",
        metavar="RULE",
        callback=read(partial(rule, verdict=Verdict.DENY)),
        multiple=True,
        help="Drop what the session denies or asks about by TOOL or TOOL:ARGUMENT=GLOB.",
    ),
    click.option(
        "--sandbox/--no-sandbox",
        default=None,
        help="Run commands in a sandbox: no network, and only the directories are writable.",
    ),
    click.option("--mode", type=MODE, help="Permission mode of all other calls."),
    click.option(
        "--hook",
        "hooks",
        metavar="EVENT[:TOOL]=COMMAND",
        callback=read(hook),
        multiple=True,
        help="A program as a hook.",
    ),
    click.option("--no-hooks", is_flag=True, help="Continue without the hooks that a session had."),
    _amount("--answer-within", "answer_within", "Seconds after which a question counts as denied."),
    click.option("--parallel", is_flag=True, help="Run reads together, and ask questions together."),
    _number("--max-turns", "turns", "Turns of the run."),
    _number("--max-tokens", "tokens", "Tokens of the run, in and out."),
    _amount("--max-usd", "usd", "USD for the run; needs a price."),
    _amount("--max-seconds", "seconds", "Active seconds; waiting for answers costs none."),
    click.option("--price", metavar="IN,OUT", callback=read(price), help="USD per million tokens."),
    store,
)

_OUTPUT: tuple[Callable[[Any], Any], ...] = (
    click.option("--verbose", "-v", is_flag=True, help="Also show verdicts and the answers of hooks."),
    click.option("--json", "json_lines", is_flag=True, help="Each notice as a line of JSON; never prompts."),
)

_SHARED = (*_BEGINNING, *_AGENT, *_HERE, *_POLICY, *_OUTPUT)
"""The options that `run` and `chat` share."""

FILES = click.option(
    "--file",
    "files",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="A picture or document that comes with the prompt; may be repeated.",
)

_RUN: tuple[Callable[[Any], Any], ...] = (
    click.argument("prompt", required=False),
    FILES,
    click.option("--session", metavar="ID", help="The id of a new session."),
    click.option(
        "--resume", type=SessionName(), metavar="ID", help="Continue a session, or its unfinished run."
    ),
    click.option("--quiet", "-q", is_flag=True, help="Print only the last answer."),
)


def with_all(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Apply all *options* to a command, in this order."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


for_run = with_all(*_RUN, *_SHARED)
for_serve = with_all(*_AGENT, *_POLICY)
for_chat = with_all(click.argument("session", type=SessionName(), metavar="[ID]", required=False), *_SHARED)


def run_options_of(options: dict[str, Any]) -> RunOptions:
    """The `RunOptions` for the click *options* of a command line."""
    quiet, as_lines = options.pop("quiet", False), options.pop("json_lines")
    if quiet and as_lines:
        msg = "--quiet and --json exclude each other; give one of them"
        raise click.UsageError(msg)
    output = OutputStyle.QUIET if quiet else OutputStyle.JSON if as_lines else OutputStyle.HUMAN
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
    """*text*, or the text on stdin if it is a dash."""
    if text != "-":
        return text
    data = sys.stdin.buffer.read(MAX_STDIN + 1)
    within("the text on stdin", len(data), MAX_STDIN, "bytes")
    return data.decode(errors="surrogateescape")


def attached(files: Sequence[Path]) -> tuple[Binary, ...]:
    """The contents of *files*, each with its name; raises `ConfigError` for one that is of no known type."""
    return tuple([_binary(file) for file in files])


def _binary(file: Path) -> Binary:
    # By its name, as a mail program does: the provider looks into the content itself.
    media_type, _ = mimetypes.guess_type(file.name)
    if media_type is None:
        msg = f"--file: {str(file)!r} is of no known type; give it a suffix, such as .png, .pdf or .txt"
        raise ConfigError(msg)
    return Binary(media_type=media_type, data=read_attached(file, str(file)), name=file.name)


def read_attached(file: Path, name: str) -> bytes:
    """
    The content of *file*, which a person calls *name*.

    Raises `TooLarge`, or `ConfigError` if it cannot be read.
    """
    try:
        # Before it is read: it may be larger than memory.
        within(f"the file {name!r}", file.stat().st_size, MAX_ATTACHED, "bytes")
        return file.read_bytes()
    except OSError as error:
        msg = f"cannot attach {name!r}: {error.strerror}; check its permissions"
        raise ConfigError(msg) from error
