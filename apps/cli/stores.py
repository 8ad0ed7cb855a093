"""The store of a command: its option, its default place, and opening it."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar, final

import click

from ...engine.inspect.listing import listed
from ...performers.stores.base import Store
from ...performers.stores.memory import MemoryStore
from ...performers.stores.place import StorePlace, open_place, store_place
from ...performers.stores.postgres.address import DatabaseAddress

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

MAX_FAMILY = 100
"""Sessions looked at for the beginning of an id: children and forks have the beginning of their parent."""

_ID_BEGINNING, _WHOLE_ID = re.compile(r"[0-9a-f]{4,31}"), re.compile(r"[0-9a-f]{32}")


def default_store() -> StorePlace:
    """The default place of the sessions."""
    path = os.environ.get("TURNWHEEL_STORE", "").strip()
    if path:
        return store_place(path)
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if state else Path.home() / ".local" / "state") / "turnwheel" / "sessions.db"


class _StorePlaceType(click.Path):
    """A file or the address of a database."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401  # as click has it
        place = store_place(value)
        return place if isinstance(place, DatabaseAddress) else super().convert(value, param, ctx)


def store(function: F) -> F:
    """The option `--store`, which every command has."""
    return click.option(
        "--store",
        type=_StorePlaceType(dir_okay=False, path_type=Path),
        default=default_store,
        is_eager=True,  # the beginning of an id is looked up in it
        show_default="$TURNWHEEL_STORE, or turnwheel/sessions.db in the state directory",
        help="The file of the sessions, or the address of their database: postgresql://...",
    )(function)


@final
class SessionName(click.types.StringParamType):
    """A session: its id, or the beginning of the id of a single one."""

    name = "session"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401  # as click has it
        """The whole id for *value*; *value* itself if it is the beginning of none."""
        place = None if ctx is None else ctx.params.get("store")
        if place is None or not _ID_BEGINNING.fullmatch(value):
            return value
        found = with_store(place, lambda kept: listed(kept, MAX_FAMILY, prefix=value))
        names = [one.session for one in found]
        meant = [name for name in names if _WHOLE_ID.fullmatch(name)]
        if value in names or not meant:
            return value
        if len(meant) > 1:
            self.fail(f"{value!r} is the beginning of several sessions: {', '.join(meant)}", param, ctx)
        return meant[0]


def open_store(place: StorePlace) -> Store:
    """The store at *place*; the default directory is created for its owner only."""
    if isinstance(place, Path) and place == default_store():
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return open_place(place)


def open_for_reading(place: StorePlace) -> Store:
    """The store at *place* for a command that only looks up sessions; a missing file is not created."""
    there = isinstance(place, DatabaseAddress) or place.exists()
    return open_store(place) if there else MemoryStore()


def with_store(place: StorePlace, act: Callable[[Store], Awaitable[T]]) -> T:
    """The result of *act* on the store at *place*."""

    async def work() -> T:
        kept = open_for_reading(place)
        try:
            return await act(kept)
        finally:
            await kept.close()

    return asyncio.run(work())
