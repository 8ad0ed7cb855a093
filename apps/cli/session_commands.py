"""The commands about sessions as a whole: which there are, where they go on, what they cost, how they end."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import click

from ...effects.errors import ConfigError, UnknownSession
from ...engine.session import archive
from ...engine.session.archive import costs
from ...engine.session.listing import listed
from ...engine.session.session import Session
from ...performers.stores.base import Store
from ..terminal.call_summary import number
from ..terminal.sanitize import clean
from ..terminal.screen import Screen
from . import run_table, session_table, usage_table
from .fork_command import fork
from .option_types import span
from .options import read, store, text_of
from .remote_commands import SESSION
from .remote_session import with_session
from .workspace import with_store

T = TypeVar("T")

AS_LINES = click.option("--json", "json_lines", is_flag=True, help="Each as a line of JSON.")


def _say(text: str) -> None:
    click.echo(clean(text))


def _say_lines(rows: Iterable[Mapping[str, object]]) -> None:
    for row in rows:
        click.echo(json.dumps(row))


# Which there are


@click.command(short_help="List the sessions there are.")
@store
@AS_LINES
def sessions(store: Path, *, json_lines: bool) -> None:
    """
    List the sessions there are, last active first, with what became of each and what it used.

    Children and forks stand below the session they come from.
    """
    found = with_store(store, listed)
    if json_lines:
        _say_lines(session_table.as_plain(one) for one in found)
    else:
        session_table.listing(found, Screen(sys.stdout))


@click.command(short_help="Say what a session is called, or call it so.")
@SESSION
@click.argument("text", metavar="[TEXT]", required=False)
@store
def title(store: Path, session: str, text: str | None) -> None:
    """Say what session ID is called, or call it TEXT ('' for nothing, - reads it from stdin)."""

    async def act(there: Session) -> str:
        if text is not None:
            await there.retitle(text_of(text))
            await there.load()
        return there.title

    _say(with_session(store, session, act))


# Where they go on


@click.command(short_help="Show the runs of a session, and where it stands.")
@SESSION
@store
@AS_LINES
def runs(store: Path, session: str, *, json_lines: bool) -> None:
    """
    Show the runs of session ID: which goes on from which, and where the session stands.

    A run is set in where the session went another way afterwards.
    """
    found = with_session(store, session, Session.runs)
    if json_lines:
        _say_lines(run_table.as_plain(run) for run in found)
    else:
        run_table.listing(found, Screen(sys.stdout))


@click.command(short_help="Go on with a session from where one of its runs ended.")
@SESSION
@click.argument("run", metavar="RUN")
@store
def branch(store: Path, session: str, run: str) -> None:
    """
    Go on with session ID from where RUN ended; RUN may be start, or how its id begins.

    What was said since is kept, as a branch that can be gone back to.
    """

    async def act(there: Session) -> str:
        chosen = run_table.meant(run, await there.runs())
        await there.branch(chosen)
        return f"session {session} goes on from " + (f"the end of run {chosen}" if chosen else "its start")

    _say(with_session(store, session, act))


# What they cost


@click.command(name="usage", short_help="Show what a session used, down to each model and child.")
@SESSION
@store
@click.option("--json", "as_json", is_flag=True, help="As one line of JSON.")
def usage_(store: Path, session: str, *, as_json: bool) -> None:
    """Show what session ID used: each of its models, its title and its children, on all branches."""
    found = with_store(store, lambda kept: costs(kept, session))
    if as_json:
        _say_lines([usage_table.as_plain(found)])
    else:
        usage_table.listing(found, Screen(sys.stdout))


# How they end


@click.command(short_help="Write a session as one JSON document.")
@SESSION
@click.option("--output", "-o", type=click.Path(dir_okay=False, path_type=Path), help="Write it to a file.")
@click.option("--scenario", is_flag=True, help="As a story of commands and outcomes, to be replayed.")
@store
def export(store: Path, session: str, output: Path | None, *, scenario: bool) -> None:
    """
    Write session ID as one JSON document: all runs and all that was ever said in them.

    With --scenario it is a text that tests can replay: what happened, and what the machine made of it.
    """

    async def act(kept: Store) -> bytes:
        if not scenario:
            return await archive.export(kept, session)
        from .scenario_export import scenario_of  # noqa: PLC0415  # the kit for tests takes its time

        if not (entries := await kept.load(session)):
            raise UnknownSession(session)
        return scenario_of(entries, session).removesuffix("\n").encode()

    document = with_store(store, act)
    if output is not None:
        try:
            output.write_bytes(document + b"\n")
        except OSError as error:
            msg = f"cannot write {str(output)!r}: {error.strerror}; name another file"
            raise ConfigError(msg) from error
        _say(f"wrote session {session} to {output}")
    elif sys.stdout.isatty():
        _say(document.decode())
    else:
        click.echo(document)


@click.command(short_help="Forget sessions, with their children.")
@click.argument("sessions", metavar="ID...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@store
def delete(store: Path, sessions: tuple[str, ...], *, yes: bool) -> None:
    """Forget sessions, their children and all that was said in them; forks of them stay."""

    async def check(kept: Store) -> None:
        there = {info.session for info in await kept.list()}
        for session in sessions:
            if session not in there:
                raise UnknownSession(session)

    async def act(kept: Store) -> list[int]:
        return [await archive.delete(kept, session) for session in sessions]

    with_store(store, check)
    names = ", ".join(repr(clean(session)) for session in sessions)
    if not yes:
        click.confirm(f"Delete {names} with all children for good?", abort=True, err=True)
    for session, count in zip(sessions, with_store(store, act), strict=True):
        children = f" and {number(count - 1, 'child session')}" if count > 1 else ""
        _say(f"deleted {session}{children}")


@click.command(short_help="Forget the sessions that are old.")
@click.option(
    "--older-than",
    "age",
    metavar="SPAN",
    callback=read(span),
    required=True,
    help="Such as 30d, 12h or 2w.",
)
@click.option("--unfinished", is_flag=True, help="Those too whose run is not over.")
@store
def prune(store: Path, age: float, *, unfinished: bool) -> None:
    """Forget the sessions that nobody has written to for a while, with their children."""

    async def act(kept: Store) -> tuple[str, ...]:
        return await archive.prune(kept, age, time.time(), keep_unfinished=not unfinished)

    gone = with_store(store, act)
    for session in gone:
        _say(f"deleted {session}")
    if not gone:
        _say("nothing is that old")


COMMANDS = (sessions, title, runs, branch, fork, usage_, export, delete, prune)
"""All of them."""
