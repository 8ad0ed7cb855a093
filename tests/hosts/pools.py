"""Workers that are handed turns, by a queue in PostgreSQL or by Restate, as hosts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar, final

from provers.crash.points import Notebook
from support.balancer import balanced
from support.patience import PATIENCE
from support.ports import free_ports
from support.postgres import PostgresServer, make_absurd_tables, new_schema
from support.proxy import Proxy
from support.restate_cluster import Cluster, answers, wait_until

from hosts.desk import NOTES, SERVICE, make_agent, open_store
from hosts.host import Harm, Input, Look
from hosts.processes import Workers, at_rest_in, journals_of, leased
from hosts.sessions import give, look_at
from turnwheel import Agent, Session
from turnwheel.apps import RestateStore, TurnQueue
from turnwheel.effects.errors import StoreError
from turnwheel.performers.stores.base import Store

# Seconds for which a node that crashed stays away, where others go on.
AWAY = 5.0


T = TypeVar("T")


class Pool(Workers):
    """Workers behind a way in, which the subclass has: an agent over a store that runs nothing."""

    _store: Store

    async def _open(self, folder: Path, pace: float, harm: Harm | None) -> None:
        self._place(folder, pace, harm)
        # What clients look with.
        self._agent: Agent = make_agent(folder, pace, cwd=folder)
        self._looks: dict[str, Session] = {}

    async def stop(self) -> None:
        """End all processes."""
        await self._end()
        for session in self._looks.values():
            await session.close()
        await self._store.close()

    async def put(self, session: str, given: Input) -> None:
        """Put *given* in, again and again while it cannot be written."""
        await patiently(partial(self._put, session, given))

    async def _put(self, session: str, given: Input) -> None:
        raise NotImplementedError

    async def look(self, session: str) -> Look:
        """Read on in its journal."""
        if session not in self._looks:
            self._looks[session] = self._agent.session(session, self._store)
        await patiently(self._looks[session].load)
        return look_at(self._looks[session])

    async def at_rest(self, prefix: str) -> Collection[str]:
        """Look in the store."""
        return await at_rest_in(self._store, prefix)

    async def journals(self, session: str) -> Mapping[str, Sequence[bytes]]:
        """Read them in the store."""
        return await patiently(partial(journals_of, self._store, session))


async def patiently(call: Callable[[], Awaitable[T]]) -> T:
    """What *call* gives, which is made again while the store cannot answer, as after a crash of it."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await call()
            except StoreError:
                await asyncio.sleep(0.05)


@final
class AbsurdPool(Pool):
    """Workers that take turns from a queue of Absurd in *server*."""

    name = "workers on PostgreSQL"
    _queue = "turnwheel"

    def __init__(self, server: PostgresServer) -> None:
        super().__init__("absurd")
        self._server = server
        self._schema = new_schema()

    def _given(self, worker: int) -> Sequence[str]:
        place = f"{self._dsn(self._server, worker)}#{self._schema}"
        return place, self._queue

    async def start(self, folder: Path, workers: int, pace: float, harm: Harm | None = None) -> None:
        """Begin *workers* processes."""
        await self._open(folder, pace, harm)
        await asyncio.to_thread(make_absurd_tables, self._server)
        await self._server.run(f"select absurd.create_queue('{self._queue}')")
        self._store = self._database = store = open_store(f"{self._server.dsn}#{self._schema}")
        # Before several processes make it at once.
        await store.list(1)
        self._turns = TurnQueue(self._server.dsn, {SERVICE: self._agent}, store, queue=self._queue)
        cut = workers if harm is Harm.CUT else 0
        await self._begin(workers, [Proxy(self._server.socket) for _ in range(cut)])

    async def stop(self) -> None:
        """End all processes, and let go of the queue."""
        async with self._turns:
            await super().stop()

    async def _put(self, session: str, given: Input) -> None:
        async with self._turns.session(SERVICE, session) as one:
            await give(one, given)

    async def crash(self) -> None:
        """Have the database crash, with the queue in it."""
        await asyncio.to_thread(self._server.crash)

    async def held(self, worker: int) -> Sequence[str]:
        """Those of which it has the lease."""
        return await leased(self._database, self.pid(worker))


@final
class RestatePool(Pool):
    """
    Workers that Restate calls, whose *program* is started here on so many *nodes*.

    They share an address; where one is to hang, a balancer has it.
    """

    def __init__(self, program: str, nodes: int = 1) -> None:
        super().__init__("restate")
        self.name = "workers of Restate" if nodes == 1 else f"workers of Restate on {nodes} nodes"
        self._program, self._nodes = program, nodes
        # The process that noted last of each session, by so many notes.
        self._last: dict[str, int] = {}
        self._noted = 0

    def _given(self, worker: int) -> Sequence[str]:
        old = self._ports[worker] if self._ports else self.cluster.port
        port = self._newer_port if worker in self._newer else old
        return (f"127.0.0.1:{port}",)

    @property
    def _hurried(self) -> bool:
        # The connections of a process that died are closed, which is known at once.
        return self._harm in {Harm.CUT, Harm.FREEZE}

    async def start(self, folder: Path, workers: int, pace: float, harm: Harm | None = None) -> None:
        """Begin the server and *workers* processes."""
        await self._open(folder, pace, harm)
        self.cluster = cluster = Cluster(self._program, folder, self._nodes, patient=not self._hurried)
        await asyncio.to_thread(cluster.start_server)
        self._store = RestateStore(SERVICE, cluster.ingress, cluster.admin)
        self._ports = free_ports(workers if self._hurried else 0)
        (self._newer_port,) = free_ports(1)
        # Of the networks each accepts some of the connections to the address of all.
        networks = [Proxy(port, cluster.port) for port in self._ports if harm is Harm.CUT]
        await self._begin(workers, networks)
        if harm is Harm.FREEZE:
            await self._stack.enter_async_context(balanced(cluster.port, self._ports))
        # A worker does not say when it listens.
        ready = f"http://127.0.0.1:{cluster.port}/health"
        await asyncio.to_thread(wait_until, f"a worker answers at {ready}", lambda: answers(ready))
        await asyncio.to_thread(cluster.register, cluster.port)

    async def stop(self) -> None:
        """End all processes."""
        await super().stop()
        await asyncio.to_thread(self.cluster.stop)

    async def upgrade(self, worker: int) -> None:
        """Begin a newer one at an address of its own, for the turns that begin now; the old one stays."""
        self._workers[-1 - worker] = self._workers.pop(worker)
        self._newer.add(worker)
        await self.begin(worker)
        ready = f"http://127.0.0.1:{self._newer_port}/health"
        await asyncio.to_thread(wait_until, f"a newer worker answers at {ready}", lambda: answers(ready))
        await asyncio.to_thread(self.cluster.register, self._newer_port)

    async def _put(self, session: str, given: Input) -> None:
        async with self._agent.session(session, self._store) as one:
            await give(one, given)

    async def crash(self) -> None:
        """Have the server of Restate crash, or one of its nodes, which stays away for a while."""
        await asyncio.to_thread(self.cluster.crash, 0.0 if self._nodes == 1 else AWAY)

    async def held(self, worker: int) -> Sequence[str]:
        """Those that it noted last: Restate tells no leases."""
        notes = Notebook.read(self._folder / NOTES, self._noted)
        self._noted += len(notes)
        self._last |= {note["session"]: note["process"] for note in notes}
        return [session for session, process in self._last.items() if process == self.pid(worker)]
