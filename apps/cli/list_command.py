"""`turnwheel sessions`: list the sessions of a store."""

from __future__ import annotations

import json
import sys

import click

from ...engine.inspect.listing import NOTES, listed
from ...performers.stores.place import StorePlace
from ..terminal.screen import Screen
from .stores import store, with_store
from .tables import session_table


@click.command()
@click.option("--limit", type=click.IntRange(min=1), help="At most so many, those active last.")
@store
@click.option("--json", "json_lines", is_flag=True, help="Each as a line of JSON.")
def sessions(store: StorePlace, limit: int | None, *, json_lines: bool) -> None:
    """
    List the sessions, last active first, with the state and the usage of each.

    Children and forks stand below the session they come from.
    """
    rows = with_store(store, lambda kept: listed(kept, limit))
    found = [one for one in rows if not one.session.endswith(NOTES)]
    if json_lines:
        for one in found:
            click.echo(json.dumps(session_table.as_plain(one)))
    else:
        session_table.listing(found, Screen(sys.stdout))
