"""The commands that go through what a session did, and find where two part."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click

from ...effects.errors import ConfigError
from ...engine.inspect.bisect import Divergence
from ...engine.inspect.replay import as_plain, line
from ...engine.session.archive import bisect as parted
from ...engine.session.archive import bisect_versions as parted_versions
from ...engine.session.archive import replay as gone_through
from ...performers.stores.base import Store
from ..terminal.screen import Screen
from . import step_view
from .exit_codes import Exit
from .options import store
from .remote_commands import SESSION
from .step_view import Shown
from .workspace import with_store

STEP = click.IntRange(min=0)
"""The number of a step."""

HERE = "this turnwheel"
"""What the version that reads is called, beside the one that wrote."""


@click.command(short_help="Go through what a session did, step by step.")
@SESSION
@click.option(
    "--from", "first", metavar="N", type=click.IntRange(min=0), default=0, help="From this step on."
)
@click.option("--to", "last", metavar="N", type=STEP, help="Up to this step.")
@click.option("--effects", "all_effects", is_flag=True, help="All effects, and not what is asked for only.")
@click.option("--quiet", "-q", is_flag=True, help="No effects.")
@click.option("--json", "json_lines", is_flag=True, help="Each step as a line of JSON, with all there is.")
@store
def replay(  # noqa: PLR0913  # the options
    store: Path,
    session: str,
    first: int,
    last: int | None,
    *,
    all_effects: bool,
    quiet: bool,
    json_lines: bool,
) -> None:
    """
    Show what session ID did: each step's event, the state it led to, and what was asked of the world.

    A step is an entry of its journal, and has its number: `fork --at` takes it. Nothing is done again. A
    session that is at work meanwhile is shown as far as it has come.
    """
    if all_effects and quiet:
        msg = "--effects shows all effects and --quiet none; give one of them"
        raise click.UsageError(msg)
    if last is not None and last < first:
        msg = f"no step is from {first} on and up to {last}"
        raise click.UsageError(msg)
    screen = Screen(sys.stdout)
    shown = Shown.ALL if all_effects else Shown.NONE if quiet else Shown.ASKED
    if not json_lines:
        step_view.heading(screen)

    async def act(kept: Store) -> None:
        number = 0
        async for step in gone_through(kept, session):
            number = step.number
            if last is not None and step.number > last:
                return
            if step.number < first:
                continue
            if json_lines:
                click.echo(line(step))
            else:
                step_view.show(as_plain(step), screen, shown)
        if first > number:
            msg = f"session {session!r} has no step {first}: its last one is {number}"
            raise ConfigError(msg)

    with_store(store, act)


@click.command(short_help="Find the first step at which two sessions part, or two versions.")
@SESSION
@click.argument("other", metavar="[OTHER]", required=False)
@click.option(
    "--against",
    metavar="FILE",
    type=click.File("rb"),
    help="What another version's replay --json wrote of it.",
)
@click.option("--json", "as_json", is_flag=True, help="As one line of JSON.")
@store
def bisect(store: Path, session: str, other: str | None, against: BinaryIO | None, *, as_json: bool) -> Exit:
    """
    Find the first step at which session ID and session OTHER part, and show both sides.

    Without OTHER it is found where this version of turnwheel makes something else of session ID than the one
    that ran it, which wrote down where each step led; with --against, where it makes something else than the
    one that wrote FILE (- is stdin). Times and ids do not count between two sessions.
    """
    if other is not None and against is not None:
        msg = "--against compares versions and OTHER is another session; give one of them"
        raise click.UsageError(msg)

    told = 0

    def lines(file: BinaryIO) -> Iterator[bytes]:
        nonlocal told
        for text in file:
            yield text
            told += 1

    async def act(kept: Store) -> Divergence | None:
        if other is not None:
            return await parted(kept, session, other)
        return await parted_versions(kept, session, None if against is None else lines(against))

    found = with_store(store, act)
    if as_json:
        click.echo(json.dumps(None if found is None else step_view.as_plain(found)))
    elif found is None and against is not None:
        click.echo(f"they do not part in any of the {told} steps of {against.name}")
    elif found is None:
        click.echo("they do not part")
    else:
        ran = "who ran it" if against is None else against.name
        names = (session, other) if other is not None else (ran, HERE)
        step_view.parting(found, names, Screen(sys.stdout))
    return Exit.ENDED if found is None else Exit.PARTS


COMMANDS = (replay, bisect)
"""All of them."""
