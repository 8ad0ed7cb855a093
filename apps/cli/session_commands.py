"""The commands about whole sessions: list them, move where they stand, show their costs, delete them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import click

from ...effects.errors import ConfigError, UnknownSession
from ...engine.inspect import archive
from ...engine.inspect.archive import costs
from ...engine.inspect.listing import described
from ...engine.session.lease import owner_of
from ...engine.session.session import Session
from ...performers.stores.base import Store
from ...performers.stores.place import StorePlace
from ..terminal.call_summary import number
from ..terminal.sanitize import clean, in_escapes, whole_name
from ..terminal.screen import Screen
from .option_types import span
from .options import read, text_of
from .remote_commands import SESSION
from .remote_session import with_session
from .stores import store, with_store
from .tables import run_table, usage_table
from .tables.session_table import UNFINISHED, state_of

T = TypeVar("T")

AS_LINES = click.option("--json", "json_lines", is_flag=True, help="Each as a line of JSON.")


def _print(text: str) -> None:
    click.echo(clean(text))


def _print_rows(rows: Iterable[Mapping[str, object]]) -> None:
    for row in rows:
        click.echo(json.dumps(row))


# Name


@click.command()
@SESSION
@click.argument("text", metavar="[TEXT]", required=False)
@store
def title(store: StorePlace, session: str, text: str | None) -> None:
    """Show the title of session ID, or set it to TEXT ('' for none, - reads it from stdin)."""

    async def act(there: Session) -> str:
        if text is not None:
            await there.retitle(text_of(text))
            await there.load()
        return there.title

    _print(with_session(store, session, act))


# Move where they stand


@click.command()
@SESSION
@store
@AS_LINES
def runs(store: StorePlace, session: str, *, json_lines: bool) -> None:
    """
    Show the runs of session ID as a tree, and where the session stands.

    Runs on other branches are indented.
    """
    runs_there = with_session(store, session, Session.runs)
    if json_lines:
        _print_rows(run_table.as_plain(run) for run in runs_there)
        return
    row = with_store(store, lambda kept: described(kept, session))
    state = UNFINISHED if row is None else state_of(row.about)
    run_table.listing(runs_there, Screen(sys.stdout), state)


@click.command()
@SESSION
@click.argument("run", metavar="RUN")
@store
def branch(store: StorePlace, session: str, run: str) -> None:
    """
    Continue session ID from the end of RUN; RUN may be start, or the first characters of an id.

    Later runs are kept as a branch, to which you can go back.
    """

    async def act(there: Session) -> str:
        chosen = run_table.resolve_run(run, await there.runs())
        await there.branch(chosen)
        return f"session {session} goes on from " + (f"the end of run {chosen}" if chosen else "its start")

    _print(with_session(store, session, act))


# Costs


@click.command()
@SESSION
@store
@click.option("--json", "as_json", is_flag=True, help="As one line of JSON.")
def usage(store: StorePlace, session: str, *, as_json: bool) -> None:
    """Show the usage of session ID on all branches: its models, its title and its children."""
    found = with_store(store, lambda kept: costs(kept, session))
    if as_json:
        _print_rows([usage_table.as_plain(found)])
    else:
        usage_table.listing(found, Screen(sys.stdout))


# Export and delete


@click.command()
@SESSION
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False, path_type=Path), help="Write it to this file."
)
@click.option("--scenario", is_flag=True, help="As a story that tests can run.")
@store
def export(store: StorePlace, session: str, output: Path | None, *, scenario: bool) -> None:
    """
    Write session ID as one JSON document, with all its runs and messages.

    With --scenario it is a text that tests can run: events as commands, each with its outcome.
    """

    async def act(kept: Store) -> bytes:
        if not scenario:
            return in_escapes(await archive.export(kept, session))
        from .scenario_export import scenario_of  # noqa: PLC0415  # the test kit is slow to import

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
        _print(f"wrote session {whole_name(session)} to {output}")
    elif sys.stdout.isatty():
        _print(document.decode())
    else:
        click.echo(document)


@click.command()
@click.argument("sessions", metavar="ID...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--unfinished", is_flag=True, help="Include sessions that a process is at work on.")
@store
def delete(store: StorePlace, sessions: tuple[str, ...], *, yes: bool, unfinished: bool) -> None:
    """Delete sessions, with their children and all their messages; their forks stay."""

    async def check(kept: Store) -> None:
        for session in sessions:
            if await kept.info(session) is None:
                raise UnknownSession(session)
            if not unfinished and (owner := await owner_of(kept, session)) is not None:
                fix = "interrupt it first, or pass --unfinished to delete it all the same"
                msg = f"session {session!r} is at work in {owner}; {fix}"
                raise ConfigError(msg)

    async def act(kept: Store) -> list[int]:
        return [await archive.delete(kept, session) for session in sessions]

    # All names are checked before the question, so that a typo deletes nothing.
    with_store(store, check)
    names = ", ".join(repr(session) for session in sessions)
    if not yes:
        click.confirm(f"Delete {names} with all children for good?", abort=True, err=True)
    for session, count in zip(sessions, with_store(store, act), strict=True):
        children = f" and {number(count - 1, 'child session')}" if count > 1 else ""
        _print(f"deleted {whole_name(session)}{children}")


@click.command()
@click.option(
    "--older-than",
    "age",
    metavar="SPAN",
    callback=read(span),
    required=True,
    help="Such as 30d, 12h or 2w.",
)
@click.option("--unfinished", is_flag=True, help="Include unfinished sessions.")
@store
def prune(store: StorePlace, age: float, *, unfinished: bool) -> None:
    """Delete the sessions without a new entry for a while, with their children."""

    async def act(kept: Store) -> tuple[str, ...]:
        return await archive.prune(kept, age, time.time(), keep_unfinished=not unfinished)

    gone = with_store(store, act)
    for session in gone:
        _print(f"deleted {whole_name(session)}")
    if not gone:
        _print("no session is that old")
