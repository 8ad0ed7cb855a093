"""Where a store is, as settings and the command line name it: a file, or a database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from .postgres.address import SCHEMES, DatabaseAddress, refuse_url
from .sqlite import SQLiteStore

if TYPE_CHECKING:
    from .base import Store

StorePlace: TypeAlias = Path | DatabaseAddress


def store_place(place: str | StorePlace) -> StorePlace:
    """
    The place that *place* names: an address begins with ``postgresql://``, text that is not a URL is a path.

    Raises `ConfigError` for any other URL.
    """
    if isinstance(place, DatabaseAddress | Path):
        return place
    if place.startswith(SCHEMES):
        return DatabaseAddress(place)
    refuse_url(place)
    return Path(place)


def open_place(place: StorePlace) -> Store:
    """The store at *place*. Raises `ConfigError` for an address that cannot be one."""
    if isinstance(place, Path):
        return SQLiteStore(place)
    from .postgres.store import PostgresStore  # noqa: PLC0415  # it takes 20 ms, and few have a database

    return PostgresStore(place.dsn)
