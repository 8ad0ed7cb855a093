"""The commands of `turnwheel` and their options, and what becomes of an error."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import attrs
import click

from ..effects.errors import TurnwheelError, UnknownSession
from .chat import Chat
from .chat_words import HELP
from .exits import Exit, exit_for_error, table
from .listing import as_json, delete, rows, show
from .options import for_chat, for_run, job_of, store
from .place import exists
from .plain import clean
from .reach_commands import COMMANDS
from .screen import Screen
from .work import Work


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="turnwheel", message="%(prog)s %(version)s")
def turnwheel() -> None:
    """Run an agent in this terminal, look at its sessions, go on with them."""


@turnwheel.command(epilog=f"\b\nExit codes:\n{table()}")
@for_run
def run(**options: Any) -> Exit:  # noqa: ANN401  # what click makes of the options
    """
    Run an agent on PROMPT (- reads it from stdin), or go on with a session.

    Without --model, --base-url or a key in the environment, a scripted stand-in answers. Ctrl-C stops the run
    and keeps what was said. Where nobody can be asked, a run that has a question rests until it is resumed.
    """
    with _reader_may_leave():
        return asyncio.run(Work(job_of(options)).do())


@turnwheel.command(epilog=f"\b\nWhat can be typed:\n{HELP}")
@for_chat
def chat(session: str | None, **options: Any) -> Exit:  # noqa: ANN401  # as above
    """
    Talk to an agent, in the new or stored session ID.

    You can type while it works: a line waits for its turn, one that begins with ! is read now. Lines may also
    come from a pipe, and what comes of them may be read as --json.
    """
    with _reader_may_leave():
        return asyncio.run(_chat(session, options))


async def _chat(session: str | None, options: dict[str, Any]) -> Exit:
    job = job_of(options)
    if session is not None:
        there = await exists(job.store, session)
        job = attrs.evolve(job, resume=session if there else None, session=None if there else session)
    return await Chat(job).do()


for command in COMMANDS:
    turnwheel.add_command(command)


@turnwheel.group(invoke_without_command=True)
@store
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
