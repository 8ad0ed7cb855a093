"""The `turnwheel` command group, and the exit code and message of each error."""

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
from ..server.serve_command import serve
from ..terminal.sanitize import clean
from . import remote_commands, session_commands, time_commands
from .exit_codes import Exit, exit_for_error, table
from .options import for_chat, for_run, run_options_of
from .run_command import RunCommand
from .settings_command import settings
from .workspace import resolve_newest, session_exists


@final
class _Commands(click.Group):
    """All commands, in sections; a reader of the output may close it at any time."""

    def __init__(self, *args: Any, **more: Any) -> None:  # noqa: ANN401  # as click has it
        super().__init__(*args, **more)
        self.sections: dict[str, list[click.Command]] = {}

    def section(self, name: str, *commands: click.Command) -> None:
        """Add *commands* to the section *name* of the help."""
        self.sections.setdefault(name, []).extend(commands)
        for command in commands:
            self.add_command(command)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002  # as click has it
        formatter: click.HelpFormatter,
    ) -> None:
        """List the commands by section."""
        room = formatter.width - 6 - max(map(len, self.commands))
        for name, commands in self.sections.items():
            with formatter.section(name):
                formatter.write_dl(
                    [(command.name or "", command.get_short_help_str(room)) for command in commands]
                )

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401  # as click has it
        """Run the command."""
        with _reader_may_leave():
            return super().invoke(ctx)


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="turnwheel", message="%(prog)s %(version)s")
def turnwheel() -> None:
    """Run an agent in this terminal, and manage its sessions."""


@click.command(
    short_help="Run an agent on a prompt, or continue a session.", epilog=f"\b\nExit codes:\n{table()}"
)
@for_run
def run(**options: Any) -> Exit:  # noqa: ANN401  # the options, as click has them
    """
    Run an agent on PROMPT (- reads it from stdin), or continue a session.

    Without --model, --base-url or a key in the environment, a scripted stand-in answers. Ctrl-C stops the run
    and keeps the text so far. A run with a question rests until you resume it, if no person can answer here.
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

    You can type while it works: a line waits for its turn, and a line that begins with ! is read now. Lines
    may also come from a pipe, and --json prints notices for programs.
    """
    return asyncio.run(_chat(options))


async def _chat(options: dict[str, Any]) -> Exit:
    chosen = await resolve_newest(run_options_of(options))
    if chosen.session is not None and await session_exists(chosen.store, chosen.session):
        chosen = attrs.evolve(chosen, resume=chosen.session, session=None)
    return await ChatCommand(chosen).do()


turnwheel.section("Work", run, chat, serve)
turnwheel.section("Sessions", *session_commands.SESSION_COMMANDS)
turnwheel.section("What it did", *time_commands.TIME_COMMANDS)
turnwheel.section("From another terminal", *remote_commands.REMOTE_COMMANDS)
turnwheel.section("Settings", settings)


def call(arguments: Sequence[str] | None) -> int:
    """Run *arguments* and return the exit code; an error is one line on stderr."""
    try:
        return _exit_code(arguments)
    finally:
        # A closed terminal takes no more output. Without this, the interpreter's own flush at exit would fail
        # and replace the exit code.
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                _drain(stream)


def _drain(stream: TextIO) -> None:
    """Send the rest of *stream* to the null device."""
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
            return Exit.HUNG_UP  # a write to a closed terminal; no message can arrive
        if os.environ.get("TURNWHEEL_DEBUG"):
            raise
        click.echo(f"turnwheel: {_error_line(error)}", err=True)
        return exit_for_error(error)
    return int(code or 0)


def _error_line(error: Exception) -> str:
    """*error* in one line; an exception that is not one of turnwheel's is a bug, and is named as one."""
    if isinstance(error, TurnwheelError):
        return clean(str(error))
    text = clean(f"{type(error).__name__}: {error}")
    return f"unexpected {text} (TURNWHEEL_DEBUG=1 shows where)"


@contextmanager
def _reader_may_leave() -> Generator[None]:
    """Let the reader of the output close it early, which is not an error of the command."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError as error:
        for stream in (sys.stdout, sys.stderr):
            _drain(stream)
        raise click.exceptions.Exit(Exit.BROKEN_PIPE) from error
