"""The `turnwheel` command group, and the exit code and message of each error."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TextIO, final

import click

from ...effects.errors import TurnwheelError
from ...effects.spelling import meant
from ..extras import needing
from ..terminal.sanitize import clean
from .exit_codes import Exit, exit_for_error, in_options


@final
class CommandPlace(NamedTuple):
    """Where a command is: its *name*, the *module* below `apps` that has it, and its *line* of the help."""

    name: str
    module: str
    line: str


# Commands are imported when they are run: most of them need the engine, which takes longer to import than the
# help to write.
SECTIONS: Mapping[str, Sequence[CommandPlace]] = {
    "Work": (
        CommandPlace("run", "cli.run_command", "Run an agent on a prompt, or continue a session."),
        CommandPlace("chat", "chat.chat_command", "Talk to an agent, and type while it works."),
        CommandPlace("serve", "server.serve_command", "Serve the agent over HTTP, with sessions for many."),
        CommandPlace("acp", "acp.acp_command", "Serve the agent to an editor, over ACP."),
    ),
    "Sessions": (
        CommandPlace("sessions", "cli.list_command", "List the sessions."),
        CommandPlace("title", "cli.session_commands", "Show or set a session's title."),
        CommandPlace("runs", "cli.session_commands", "Show the runs of a session, and where it stands."),
        CommandPlace("branch", "cli.session_commands", "Continue a session from the end of one of its runs."),
        CommandPlace("fork", "cli.fork_command", "Copy a session, or its first steps."),
        CommandPlace("usage", "cli.session_commands", "Show the usage of a session, by model and child."),
        CommandPlace("export", "cli.session_commands", "Write a session as one JSON document."),
        CommandPlace("delete", "cli.session_commands", "Delete sessions, with their children."),
        CommandPlace("prune", "cli.session_commands", "Delete old sessions."),
    ),
    "What it did": (
        CommandPlace("replay", "cli.time_commands", "Show what a session did, step by step."),
        CommandPlace(
            "bisect", "cli.time_commands", "Find the first step where two sessions or versions differ."
        ),
    ),
    "From another terminal": (
        CommandPlace("approve", "cli.remote_commands", "Approve an open question."),
        CommandPlace("deny", "cli.remote_commands", "Deny an open question."),
        CommandPlace("send", "cli.remote_commands", "Queue a prompt."),
        CommandPlace("withdraw", "cli.remote_commands", "Take back a prompt or steer that was not read."),
        CommandPlace("steer", "cli.remote_commands", "Steer an unfinished run."),
        CommandPlace(
            "control", "cli.remote_commands", "Change the settings of a session and of its unfinished run."
        ),
        CommandPlace("cancel", "cli.remote_commands", "Cancel one call; the run goes on."),
        CommandPlace("interrupt", "cli.remote_commands", "Stop a run; the text so far is kept."),
        CommandPlace(
            "questions", "cli.remote_commands", "Show the open questions of a session and its children."
        ),
        CommandPlace(
            "why", "cli.remote_commands", "Explain a call: its verdict, its answer and its outcome."
        ),
    ),
    "Settings": (
        CommandPlace("settings", "cli.settings_command", "Show the settings of a run that would begin here."),
    ),
}


@final
class _Commands(click.Group):
    """The commands of `SECTIONS`, each imported on first use; a reader of the output may leave."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # as click has it
        """The names of all commands."""
        return [place.name for places in SECTIONS.values() for place in places]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # as above
        """The command *cmd_name*, or None where there is none of this name."""
        for place in [place for places in SECTIONS.values() for place in places]:
            if place.name == cmd_name:
                with needing("cli", f"turnwheel {cmd_name}"):
                    module = importlib.import_module(f"...{place.module}", __name__)
                command: click.Command = getattr(module, place.name)
                return command
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; an unknown command is told which one was meant."""
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            near = meant(args[0], self.list_commands(ctx))
            ctx.fail(f"no command {args[0]!r}; {near or 'turnwheel --help lists them'}")
        return super().resolve_command(ctx, args)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002  # as above
        formatter: click.HelpFormatter,
    ) -> None:
        """List the commands by section."""
        for name, places in SECTIONS.items():
            with formatter.section(name):
                formatter.write_dl([(place.name, place.line) for place in places])

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
        return clean(in_options(str(error)))
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
