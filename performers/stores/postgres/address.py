"""The address of a database, and what of it may be shown."""

from __future__ import annotations

import re
from typing import final

import attrs

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


def place_of(dsn: str) -> str:
    """The server and the database that *dsn* names, without user and password, for errors."""
    # Not as an address is read: what stands before the last @ is a secret, whatever characters it has.
    _, _, rest = dsn.partition("://")
    here = re.split(r"[?#]", rest.rpartition("@")[2])[0]
    folder = re.search(r"[?&]host=([^&@]*)", dsn)
    return f"postgresql://{here if folder is None else folder[1] + here}"
