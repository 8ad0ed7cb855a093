"""The address of a database, and what of it may be shown."""

from __future__ import annotations

import re
from typing import final

import attrs

from ....effects.errors import ConfigError

# How the address of a database begins.
SCHEMES = ("postgresql://", "postgres://")

# The scheme of a URL: its name, a driver behind a plus sign, and a colon. "C:" is a drive.
_URL = re.compile(r"([a-z][a-z0-9.-]+)(\+[a-z0-9+.-]*)?://", re.IGNORECASE)


@final
@attrs.frozen
class DatabaseAddress:
    """The address *dsn* of a database; as text without its password."""

    dsn: str = attrs.field(repr=False)

    def __str__(self) -> str:
        return without_password(self.dsn)


def without_password(url: str) -> str:
    """The address *url* with ``(hidden)`` in the place of its password."""
    scheme, _, rest = url.partition("://")
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


def is_url(place: str) -> bool:
    """Whether *place* begins like a URL, of whatever scheme."""
    return _URL.match(place) is not None


def refuse_url(path: str) -> None:
    """Raise `ConfigError` where *path*, which is to be a file, is a URL."""
    if url := _URL.match(path):
        shown = without_password(path)
        fix = _url_fix(url[1].lower(), shown[url.end() :])
        msg = f"store {shown!r} is neither a file nor a database of PostgreSQL; {fix}"
        raise ConfigError(msg)


def _url_fix(scheme: str, rest: str) -> str:
    """What to write instead of a URL of *scheme*, which goes on with *rest*."""
    if scheme in {"postgresql", "postgres"}:
        return f"write 'postgresql://{rest}'"
    if scheme in {"sqlite", "file"}:
        # Three slashes are before a relative path in SQLAlchemy's URLs, four before an absolute one.
        path = rest.removeprefix("/") if scheme == "sqlite" else rest
        if path not in {"", ":memory:"}:
            return f"write {path!r}"
    return "write a path such as 'agent.db', or 'postgresql://host/database'"
