"""The hosts that the suite knows."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager

from support.postgres import PostgresServer
from support.restate_cluster import server_program

from hosts.host import Host
from hosts.pools import AbsurdPool, RestatePool
from hosts.processes import Servers


@contextmanager
def sqlite() -> Generator[Host]:
    """Servers over one SQLite file."""
    yield Servers("servers over SQLite")


@contextmanager
def postgres() -> Generator[Host]:
    """Servers over a PostgreSQL server of their own."""
    server = PostgresServer(durable=True)
    try:
        yield Servers("servers over PostgreSQL", server)
    finally:
        server.remove()


@contextmanager
def absurd() -> Generator[Host]:
    """Workers that take turns from a queue in a PostgreSQL server of their own."""
    server = PostgresServer(durable=True)
    try:
        yield AbsurdPool(server)
    finally:
        server.remove()


@contextmanager
def restate() -> Generator[Host]:
    """Workers that a Restate server of their own calls."""
    yield RestatePool(server_program())


@contextmanager
def three_nodes() -> Generator[Host]:
    """Workers that a Restate server on three nodes calls, of which one may be lost."""
    yield RestatePool(server_program(), 3)


HOSTS: Mapping[str, Callable[[], AbstractContextManager[Host]]] = {
    "sqlite": sqlite,
    "postgres": postgres,
    "absurd": absurd,
    "restate": restate,
}

# Those that are built for one harm only: they are played when they are asked for.
LARGE: Mapping[str, Callable[[], AbstractContextManager[Host]]] = {"three-nodes": three_nodes}
