"""
Who may call: bearer tokens with a tenant each, names of hosts, and origins of pages.

Theory of operation. A tenant's sessions have names in the store that begin with its own name, and each
look-up goes through a `Namespace`: a name of another tenant cannot even be said. Without tokens there is one
tenant without a name, and the server is for the person at this machine. A page of a stranger in that person's
browser is kept out then by its `Host`, which it cannot choose without owning a domain, and by its `Origin`.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import cast, final
from urllib.parse import urlsplit

import attrs
from starlette.requests import HTTPConnection

from ...effects.errors import ConfigError
from ...engine.inspect.listing import NOTES
from .problems import Refused

# Names of tenants and agents stand in names of sessions, between slashes, and in paths.
WORD = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9_.-]{1,64}")

# The header of a request: a name or an address, and perhaps a port.
HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]*)(?::[0-9]{1,5})?")

# What a page may do to another one's server without being asked: nothing but look.
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

DEFAULT_PORTS = {"http": 80, "https": 443}


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach a server on *host*."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


@final
@attrs.frozen
class Namespace:
    """
    The names of a *tenant*'s sessions in the store, for *agents*; outside they are just ids.

    The first agent's sessions of a server without tokens have their ids for names, as those of `run` do.
    """

    tenant: str
    agents: tuple[str, ...]

    @property
    def prefix(self) -> str:
        """What the names in the store begin with."""
        return f"{self.tenant}/" if self.tenant else ""

    def stored(self, agent: str, id: str) -> str:  # noqa: A002  # the word of sessions
        """The name in the store of the session *id* of *agent*."""
        plain = not self.tenant and agent == self.agents[0]
        return id if plain else f"{self.tenant}/{agent}/{id}"

    def hidden(self, text: str) -> str:
        """*text* with ids in the place of names in the store, for errors that quote those."""
        for before in filter(None, [self.stored(agent, "") for agent in self.agents]):
            text = text.replace(before, "")
        return text

    def public(self, name: str) -> tuple[str, str] | None:
        """The agent and the id of the session with that *name* in the store; None for all others."""
        if name.endswith(NOTES):
            return None
        if "/" not in name:
            return None if self.tenant else (self.agents[0], name)
        tenant, _, rest = name.partition("/")
        agent, _, known = rest.partition("/")
        ours = tenant == self.tenant and agent in self.agents and known and "/" not in known
        return (agent, known) if ours and self.stored(agent, known) == name else None


def words(what: str, names: Mapping[str, object]) -> None:
    """Raise `ConfigError` where one of the *names* of *what* cannot stand in a name in the store."""
    for name in names:
        if WORD.fullmatch(name) is None:
            msg = f"the name of {what} must be 1 to 64 of A-Z, a-z, 0-9, '_', '.' and '-'; got {name!r}"
            raise ConfigError(msg)


def as_origin(given: object) -> str:
    """*given* as a browser writes the origin of a page. Raises `ConfigError` for what is none."""
    with suppress(ValueError):
        parts = urlsplit(given) if isinstance(given, str) else urlsplit("")
        host, more = (
            parts.hostname or "",
            (parts.path.strip("/"), parts.query, parts.fragment, parts.username),
        )
        if parts.scheme and HOST.fullmatch(parts.netloc) and host and not any(more):
            port = "" if parts.port in {None, DEFAULT_PORTS.get(parts.scheme)} else f":{parts.port}"
            return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}"
    msg = f"origin: {given!r:.200} is not one; write scheme and host, such as https://app.example.com"
    raise ConfigError(msg)


def _origins(given: Sequence[str]) -> tuple[str, ...]:
    return tuple([as_origin(each) for each in _several("origins", given)])


def _hosts(given: Sequence[str]) -> tuple[str, ...]:
    return tuple(_several("hosts", given))


def _several(name: str, given: Sequence[str]) -> Sequence[str]:
    # The letters of a text would be as many origins.
    if isinstance(given, str):
        msg = f"{name}: {given!r:.200} is one text; write {name}=[{given!r:.200}]"
        raise ConfigError(msg)
    return given


def _tokens(given: object) -> dict[str, str]:
    """The *given* tokens with their tenants. Raises `ConfigError` where they are no mapping of texts."""
    tokens = cast("dict[object, object]", dict(given) if isinstance(given, Mapping) else {None: None})
    if not all(isinstance(each, str) for pair in tokens.items() for each in pair):
        # The value is not quoted, since it may be a secret.
        fix = "write tokens={'the secret': 'the tenant'}"
        msg = f"tokens: {type(given).__name__} does not map secrets to tenants; {fix}"
        raise ConfigError(msg)
    return cast("dict[str, str]", tokens)


@final
@attrs.frozen(kw_only=True)
class Access:
    """
    The *tokens*, each with its tenant; none at all leave the server to callers of this machine.

    *hosts* are the names it is reached by, besides loopback and names without a dot; *origins* the pages of
    other servers that may call it.
    """

    tokens: Mapping[str, str] = attrs.field(factory=dict, repr=False, converter=_tokens)
    hosts: tuple[str, ...] = attrs.field(default=(), converter=_hosts)
    origins: tuple[str, ...] = attrs.field(default=(), converter=_origins)

    def __attrs_post_init__(self) -> None:
        words("a tenant", dict.fromkeys(self.tokens.values()))
        if not all(token.strip() for token in self.tokens):
            msg = "a token must not be empty; pass tokens={'the secret': 'the tenant'}"
            raise ConfigError(msg)

    def check_page(self, request: HTTPConnection, method: str) -> None:
        """Refuse a page of a stranger that a browser here has open; raises `Refused`."""
        host = request.headers.get("host", "")
        name = _host_of(host)
        # A token is never sent by a browser on its own, so its bearer may come by any name.
        known = name is not None and (is_loopback(name) or "." not in name or name in self.hosts)
        if not self.tokens and not known:
            detail = (
                f"host {host[:100]!r} is not a name of this server; pass it in hosts= of create_app, or have "
                "callers send a token"
            )
            raise Refused(HTTPStatus.FORBIDDEN, detail)
        origin = request.headers.get("origin")
        if origin is None or origin in self.origins or method in SAFE_METHODS:
            return
        if not _same_place(origin, host, request.url.scheme):
            detail = (
                f"origin {origin[:100]!r} may not call this server; name it with "
                "--origin of turnwheel serve, or in origins= of create_app"
            )
            raise Refused(HTTPStatus.FORBIDDEN, detail)

    def tenant(self, request: HTTPConnection) -> str:
        """The tenant of *request*, empty without tokens. Raises `Refused` for an unknown or missing token."""
        if not self.tokens:
            return ""
        headers = request.headers.getlist("authorization")
        scheme, _, given = "".join(headers).partition(" ")
        challenge = {"WWW-Authenticate": "Bearer"}
        if len(headers) > 1:
            # A proxy may have looked at the other one.
            detail = "more than one Authorization; send one"
            raise Refused(HTTPStatus.UNAUTHORIZED, detail, challenge)
        if scheme.lower() != "bearer" or not given.strip():
            detail = "no token; send it as Authorization: Bearer TOKEN"
            raise Refused(HTTPStatus.UNAUTHORIZED, detail, challenge)
        sent, found = given.strip().encode(), None
        # All of them, and each in the same time: how long an answer takes tells nothing of a token.
        for token, tenant in self.tokens.items():
            if hmac.compare_digest(token.encode(), sent):
                found = tenant
        if found is None:
            raise Refused(HTTPStatus.UNAUTHORIZED, "the token is not known here", challenge)
        return found


def _host_of(host: str) -> str | None:
    """The name in the header *host*, empty where there is none; None where it is no name with a port."""
    found = HOST.fullmatch(host)
    return None if found is None else found[1].lower()


def _same_place(origin: str, host: str, scheme: str) -> bool:
    """Whether a page of *origin* came from the server that is called as *host*."""
    with suppress(ValueError):
        page, here = urlsplit(origin), urlsplit(f"{scheme}://{host}")
        # The scheme may differ: a proxy speaks HTTPS to the browser and plain HTTP to this server.
        ports = [each.port or DEFAULT_PORTS.get(each.scheme) for each in (page, here)]
        same_port = ports[0] == ports[1] or (page.port is None and here.port is None)
        return page.hostname is not None and page.hostname == here.hostname and same_port
    return False
