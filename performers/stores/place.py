"""Where a store is, as settings and the command line name it: a file, or a database."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, final

import attrs

from .sqlite import SQLiteStore

if TYPE_CHECKING:
    from .base import Store

# How the address of a database begins.
SCHEMES = ("postgresql://", "postgres://")


@final
@attrs.frozen
class DatabaseAddress:
    """The address *dsn* of a database; as text without its password."""

    dsn: str = attrs.field(repr=False)

    def __str__(self) -> str:
        scheme, _, rest = self.dsn.partition("://")
        login, at, there = rest.rpartition("@")
        user, colon, _ = login.partition(":")
        there = re.sub(r"\b(password=)[^&]*", r"\1(hidden)", there)
        return f"{scheme}://{user}{':(hidden)' if colon else ''}{at}{there}"


StorePlace: TypeAlias = Path | DatabaseAddress


def store_place(place: str | StorePlace) -> StorePlace:
    """The place that *place* names: an address begins with ``postgresql://``, all else is a path."""
    if isinstance(place, DatabaseAddress):
        return place
    # A Path would take two slashes for one.
    is_address = isinstance(place, str) and place.startswith(SCHEMES)
    return DatabaseAddress(str(place)) if is_address else Path(place)


def open_place(place: StorePlace) -> Store:
    """The store at *place*. Raises `ConfigError` for an address that cannot be one."""
    if isinstance(place, Path):
        return SQLiteStore(place)
    from .postgres.store import PostgresStore  # noqa: PLC0415  # it takes 20 ms, and few have a database

    return PostgresStore(place.dsn)
