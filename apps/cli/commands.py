"""The commands of `turnwheel` and their options, and what becomes of an error."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO, final

import attrs
import click

from ...effects.errors import TurnwheelError
from ..chat.chat import ChatCommand
from ..chat.commands import HELP
from ..terminal.sanitize import clean
from . import remote_commands, session_commands, time_commands
from .exit_codes import Exit, exit_for_error, table
from .options import for_chat, for_run, run_options_of
from .run_command import RunCommand
from .settings_command import settings
from .workspace import resolve_newest, session_exists


@final
class _Commands(click.Group):
    """All commands, in sections; whoever reads their output may stop to."""

    def __init__(self, *args: Any, **more: Any) -> None:  # noqa: ANN401  # what click makes of it
        super().__init__(*args, **more)
        self.sections: dict[str, list[click.Command]] = {}

    def section(self, name: str, *commands: click.Command) -> None:
        """Add *commands*, which are listed under *name*."""
        self.sections.setdefault(name, []).extend(commands)
        for command in commands:
            self.add_command(command)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002  # as click has it
        formatter: click.HelpFormatter,
    ) -> None:
        """List the commands, section by section."""
        room = formatter.width - 6 - max(map(len, self.commands))
        for name, commands in self.sections.items():
            with formatter.section(name):
                formatter.write_dl(
                    [(command.name or "", command.get_short_help_str(room)) for command in commands]
                )

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401  # as click has it
        """Do what was asked for."""
        with _reader_may_leave():
            return super().invoke(ctx)


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="turnwheel", message="%(prog)s %(version)s")
def turnwheel() -> None:
    """Run an agent in this terminal, look at its sessions, go on with them."""


@click.command(
    short_help="Run an agent on a prompt, or go on with a session.", epilog=f"\b\nExit codes:\n{table()}"
)
@for_run
def run(**options: Any) -> Exit:  # noqa: ANN401  # what click makes of the options
    """
    Run an agent on PROMPT (- reads it from stdin), or go on with a session.

    Without --model, --base-url or a key in the environment, a scripted stand-in answers. Ctrl-C stops the run
    and keeps what was said. Where nobody can be asked, a run that has a question rests until it is resumed.
    """
    return asyncio.run(_run(options))


async def _run(options: dict[str, Any]) -> Exit:
    return await RunCommand(await resolve_newest(run_options_of(options))).do()


@click.command(
    short_help="Talk to an agent, and type while it works.", epilog=f"\b\nWhat can be typed:\n{HELP}"
)
@for_chat
def chat(**options: Any) -> Exit:  # noqa: ANN401  # as above
    """
    Talk to an agent, in the new or stored session ID.

    You can type while it works: a line waits for its turn, one that begins with ! is read now. Lines may also
    come from a pipe, and what comes of them may be read as --json.
    """
    return asyncio.run(_chat(options))


async def _chat(options: dict[str, Any]) -> Exit:
    chosen = await resolve_newest(run_options_of(options))
    if chosen.session is not None and await session_exists(chosen.store, chosen.session):
        chosen = attrs.evolve(chosen, resume=chosen.session, session=None)
    return await ChatCommand(chosen).do()


turnwheel.section("Work", run, chat)
turnwheel.section("Sessions", *session_commands.SESSION_COMMANDS)
turnwheel.section("What it did", *time_commands.TIME_COMMANDS)
turnwheel.section("From another terminal", *remote_commands.REMOTE_COMMANDS)
turnwheel.section("Settings", settings)


def call(arguments: Sequence[str] | None) -> int:
    """Do what *arguments* say and return the exit code; an error is one line on stderr."""
    try:
        return _exit_code(arguments)
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


def _exit_code(arguments: Sequence[str] | None) -> int:
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
        click.echo(f"turnwheel: {_error_line(error)}", err=True)
        return exit_for_error(error)
    return int(code or 0)


def _error_line(error: Exception) -> str:
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
