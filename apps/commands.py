"""The commands of `turnwheel` and their options, and what becomes of an error."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, TypeVar

import click

from ..effects.errors import TurnwheelError, UnknownSession
from .exits import Exit, exit_for_error, table
from .job import BUILT_IN, Job, Output
from .listing import as_json, delete, rows, show
from .plain import clean
from .screen import Screen
from .values import amount, approval, denial, price, rule
from .work import Work, default_store

F = TypeVar("F", bound=Callable[..., Any])

DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


def _store(function: F) -> F:
    """The option for the store, which every command has."""
    return click.option(
        "--store",
        type=click.Path(dir_okay=False, path_type=Path),
        default=default_store,
        show_default="$TURNWHEEL_STORE, or turnwheel/sessions.db in the state directory",
        help="The file that keeps sessions.",
    )(function)


def _read(parse: Callable[[str], object]) -> Callable[[click.Context, click.Parameter, Any], object]:
    """What lets *parse* read an option, or each of those that may be given several times."""

    def callback(context: click.Context, parameter: click.Parameter, value: Any) -> object:  # noqa: ANN401  # as click has it
        try:
            if isinstance(value, tuple):
                return tuple(parse(text) for text in value)
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error), context, parameter) from error

    return callback


OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.argument("prompt", required=False),
    click.option("--model", metavar="NAME", help="Such as openai:gpt-5. [default: $TURNWHEEL_MODEL]"),
    click.option("--base-url", metavar="URL", help="Any server that speaks OpenAI's chat completions."),
    click.option("--stand-in", is_flag=True, help="Ask the scripted stand-in: no model, no key."),
    click.option("--system", metavar="TEXT", help="The system prompt, in place of ours."),
    click.option("--tools", metavar="LIST", help=f"Of {','.join(BUILT_IN)}; empty for none. [default: all]"),
    click.option("--cwd", type=DIRECTORY, default=Path(), help="Where tools work. [default: here]"),
    click.option(
        "--dir", "directories", type=DIRECTORY, multiple=True, help="Files here may be touched, too."
    ),
    click.option("--yes", is_flag=True, help="Approve everything."),
    click.option(
        "--allow",
        metavar="RULE",
        callback=_read(rule),
        multiple=True,
        help="Approve TOOL or TOOL:ARGUMENT=GLOB.",
    ),
    click.option("--parallel", is_flag=True, help="Neighbouring reads run together."),
    click.option(
        "--max-turns", "turns", metavar="NUMBER", type=click.IntRange(min=1), help="Answers of the model."
    ),
    click.option(
        "--max-tokens", "tokens", metavar="NUMBER", type=click.IntRange(min=1), help="Tokens, in and out."
    ),
    click.option(
        "--max-usd", "usd", metavar="NUMBER", callback=_read(amount), help="Money, where the price is known."
    ),
    click.option(
        "--max-seconds",
        "seconds",
        metavar="NUMBER",
        callback=_read(amount),
        help="Seconds at work; questions cost none.",
    ),
    click.option("--price", metavar="IN,OUT", callback=_read(price), help="USD per million tokens."),
    click.option("--session", metavar="ID", help="What to call a new session."),
    click.option("--resume", metavar="ID", help="Go on with a session, or with its unfinished run."),
    click.option(
        "--approve",
        metavar="REQUEST",
        callback=_read(approval),
        multiple=True,
        help="Answer yes to an open question, or to all.",
    ),
    click.option(
        "--deny",
        metavar="REQUEST",
        callback=_read(denial),
        multiple=True,
        help="Answer no; REQUEST:WHY tells the model.",
    ),
    _store,
    click.option("--json", "json_lines", is_flag=True, help="Each notice as a line of JSON; asks nobody."),
    click.option("--quiet", "-q", is_flag=True, help="Only the last answer."),
)
"""What `run` takes."""


def _with_options(function: F) -> F:
    for option in reversed(OPTIONS):
        function = option(function)
    return function


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="turnwheel", message="%(prog)s %(version)s")
def turnwheel() -> None:
    """Run an agent in this terminal, look at its sessions, go on with them."""


@turnwheel.command(epilog=f"\b\nExit codes:\n{table()}")
@_with_options
def run(**options: Any) -> Exit:  # noqa: ANN401  # what click makes of the options above
    """
    Run an agent on PROMPT (- reads it from stdin), or go on with a session.

    Without --model, $OPENAI_API_KEY or --base-url, a scripted stand-in answers. Ctrl-C stops the run and
    keeps what was said. Where nobody can be asked, a run that has a question rests until it is resumed.
    """
    with _reader_may_leave():
        return asyncio.run(Work(job_of(options)).do())


def job_of(options: dict[str, Any]) -> Job:
    """The job that the *options* of the command line ask for."""
    quiet, as_lines = options.pop("quiet"), options.pop("json_lines")
    if quiet and as_lines:
        msg = "--quiet and --json are two ways to show a run; give one of them"
        raise click.UsageError(msg)
    output = Output.QUIET if quiet else Output.JSON if as_lines else Output.HUMAN
    if options["prompt"] == "-":
        options["prompt"] = sys.stdin.buffer.read().decode(errors="surrogateescape")
    tools = options.pop("tools")
    if tools is not None:
        options["tools"] = tuple(name.strip() for name in tools.split(",") if name.strip())
    answers = (*options.pop("approve"), *options.pop("deny"))
    return Job(output=output, answers=answers, **options)


@turnwheel.group(invoke_without_command=True)
@_store
@click.option("--json", "json_lines", is_flag=True, help="Each session as a line of JSON.")
@click.pass_context
def sessions(context: click.Context, store: Path, *, json_lines: bool) -> None:
    """List the sessions there are, last active first; or delete one."""
    context.obj = store
    if context.invoked_subcommand is not None:
        return
    found = asyncio.run(rows(store))
    with _reader_may_leave():
        if json_lines:
            for row in found:
                click.echo(as_json(row))
        else:
            show(found, Screen(sys.stdout))


@sessions.command("delete")
@click.argument("session")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete_session(store: Path, session: str, *, yes: bool) -> None:
    """Forget SESSION and all that was said in it."""
    if not yes:
        click.confirm(f"Delete session {clean(session)!r} for good?", abort=True, err=True)
    if not asyncio.run(delete(store, session)):
        raise UnknownSession(session)
    click.echo(f"deleted {clean(session)}")


def call(arguments: Sequence[str] | None) -> int:
    """Do what *arguments* say and return the exit code; an error is one line on stderr."""
    try:
        return _called(arguments)
    finally:
        # A terminal that is gone takes nothing more, and the interpreter would exit with a code of its own.
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                _drain(stream)


def _drain(stream: TextIO) -> None:
    """Let what *stream* still holds go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _called(arguments: Sequence[str] | None) -> int:
    try:
        code = turnwheel.main(arguments, prog_name="turnwheel", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.EIO:
            return Exit.HUNG_UP  # what a write says where the terminal is gone; there is nobody to tell
        if os.environ.get("TURNWHEEL_DEBUG"):
            raise
        click.echo(f"turnwheel: {_said(error)}", err=True)
        return exit_for_error(error)
    return int(code or 0)


def _said(error: Exception) -> str:
    """*error* in one line; what is no error of ours is told as what it is, a bug."""
    if isinstance(error, TurnwheelError):
        return clean(str(error))
    said = clean(f"{type(error).__name__}: {error}")
    return f"unexpected {said} (TURNWHEEL_DEBUG=1 shows where)"


@contextmanager
def _reader_may_leave() -> Generator[None]:
    """Whoever reads our output may stop to: that is no error."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError as error:
        for stream in (sys.stdout, sys.stderr):
            _drain(stream)
        raise click.exceptions.Exit(Exit.BROKEN_PIPE) from error
