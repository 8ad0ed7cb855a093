"""`turnwheel replay` and `turnwheel bisect`: print the steps of a session, and find the first difference."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import BinaryIO, TextIO, get_args

import click

from ...effects.errors import ConfigError
from ...engine.inspect.archive import (
    bisect as find_difference,
    bisect_versions as find_version_difference,
    replay as read_steps,
)
from ...engine.inspect.bisect import Divergence
from ...engine.inspect.pictures import PictureKind, picture_of
from ...engine.inspect.replay import as_plain, line
from ...performers.stores.base import Store
from ...performers.stores.place import StorePlace
from ...states.rules.model_messages import count
from ..terminal.sanitize import clean, in_escapes
from ..terminal.screen import Screen
from . import step_view
from .exit_codes import Exit
from .remote_commands import SESSION
from .step_view import Shown
from .stores import store, with_store

STEP = click.IntRange(min=0)
"""The type of a step's number."""

THIS_VERSION = "this turnwheel"
"""The name of this version, next to the version that wrote the journal."""


@click.command()
@SESSION
@click.option(
    "--from", "first", metavar="N", type=click.IntRange(min=0), default=0, help="The first step to show."
)
@click.option("--to", "last", metavar="N", type=STEP, help="The last step to show.")
@click.option("--effects", "all_effects", is_flag=True, help="Show all effects, not only requests.")
@click.option("--quiet", "-q", is_flag=True, help="Hide effects.")
@click.option("--json", "json_lines", is_flag=True, help="Each step as a line of JSON, with everything.")
@click.option("--svg", metavar="FILE", type=click.File("w", "utf-8"), help="Write a picture instead.")
@click.option(
    "--picture",
    type=click.Choice(get_args(PictureKind)),
    default="path",
    help="The way through the machine, who asked whom, or how long calls took.",
)
@store
def replay(  # noqa: PLR0913  # the options
    store: StorePlace,
    session: str,
    first: int,
    last: int | None,
    *,
    all_effects: bool,
    quiet: bool,
    json_lines: bool,
    svg: TextIO | None,
    picture: PictureKind,
) -> None:
    """
    Show what session ID did: the event of each step, the state it led to, and the requests.

    A step is an entry of the journal; `fork --at` takes its number. Nothing runs again. A session at work is
    shown up to now.
    """
    _check_options(first, last, effects=all_effects, quiet=quiet, lines=json_lines, svg=svg is not None)
    if svg is not None:
        svg.write(with_store(store, lambda kept: _drawn(kept, session, first, last, picture)))
        # A dash as FILE is stdout, which has the picture alone.
        if svg.name != "<stdout>":
            click.echo(clean(f"wrote a picture of session {session} to {svg.name}"))
        return
    screen = Screen(sys.stdout)
    shown = Shown.ALL if all_effects else Shown.NONE if quiet else Shown.ASKED
    if not json_lines:
        step_view.heading(screen)

    async def act(kept: Store) -> None:
        limit = None if last is None else last - first + 1
        number = None
        async for step in read_steps(kept, session, first, limit):
            number = step.number
            if json_lines:
                click.echo(in_escapes(line(step)))
            else:
                step_view.show(as_plain(step), screen, shown)
        if number is None and (there := await kept.info(session)) is not None:
            msg = f"session {session!r} has no step {first}; its last one is {there.length - 1}"
            raise ConfigError(msg)

    with_store(store, act)


def _check_options(first: int, last: int | None, **wanted: bool) -> None:
    """Refuse options of `replay` that exclude each other."""
    for one, other in (("effects", "quiet"), ("svg", "lines")):
        if wanted[one] and wanted[other]:
            msg = f"--{one} and --{other.replace('lines', 'json')} exclude each other; give one of them"
            raise click.UsageError(msg)
    if last is not None and last < first:
        msg = f"--from must not exceed --to; got {first} and {last}"
        raise click.UsageError(msg)


async def _drawn(kept: Store, session: str, first: int, last: int | None, picture: PictureKind) -> str:
    """The picture of those steps of *session*."""
    steps = [step async for step in read_steps(kept, session)]
    return picture_of(steps[first : None if last is None else last + 1], picture)


@click.command()
@SESSION
@click.argument("other", metavar="[OTHER]", required=False)
@click.option(
    "--against",
    metavar="FILE",
    type=click.File("rb"),
    help="Output of replay --json from another version.",
)
@click.option("--json", "as_json", is_flag=True, help="As one line of JSON.")
@store
def bisect(
    store: StorePlace, session: str, other: str | None, against: BinaryIO | None, *, as_json: bool
) -> Exit:
    """
    Find the first step where session ID and session OTHER differ, and show both sides.

    Without OTHER it compares this version of turnwheel with the version that ran session ID, which recorded
    the outcome of each step. With --against it compares with the version that wrote FILE (- is stdin). Times
    and ids do not count between two sessions.
    """
    if other is not None and against is not None:
        msg = "--against compares versions and OTHER sessions; give one of them"
        raise click.UsageError(msg)

    compared = 0

    def lines(file: BinaryIO) -> Iterator[bytes]:
        nonlocal compared
        for text in file:
            yield text
            compared += 1

    async def act(kept: Store) -> Divergence | None:
        if other is not None:
            return await find_difference(kept, session, other)
        return await find_version_difference(kept, session, None if against is None else lines(against))

    found = with_store(store, act)
    if as_json:
        click.echo(json.dumps(None if found is None else step_view.as_plain(found)))
    elif found is None and against is not None:
        click.echo(f"no difference found in the {count(compared, 'step')} of {against.name}")
    elif found is None:
        click.echo("no difference found")
    else:
        ran = "the recorded run" if against is None else against.name
        names = (session, other) if other is not None else (ran, THIS_VERSION)
        step_view.parting(found, names, Screen(sys.stdout))
    return Exit.ENDED if found is None else Exit.DIFFERS
