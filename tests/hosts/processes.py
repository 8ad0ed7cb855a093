"""Servers of turnwheel over one store, each a process, as a host; and the engine alone, to compare with."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sqlite3
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack, closing, suppress
from itertools import count
from pathlib import Path
from typing import Any, final

import httpx
from support.patience import PATIENCE
from support.postgres import PostgresServer, new_schema
from support.proxy import Proxy

from hosts.desk import make_agent, open_store
from hosts.host import Answer, Cancel, Harm, Input, Interrupt, Look, Prompt, Steer, Think
from hosts.newer import NEWER
from hosts.sessions import give, look_at
from turnwheel import Agent, MemoryStore, Session, SQLiteStore
from turnwheel.engine.inspect.listing import listed
from turnwheel.engine.journal.summary import SessionStatus, SessionSummary
from turnwheel.engine.session.lease import decoded
from turnwheel.performers import PostgresStore
from turnwheel.performers.stores.base import Store

TESTS = Path(__file__).parents[1]

# How a server refuses what came too late, or came before.
OVER = re.compile("is over|was answered|was withdrawn|is answered|answered by|withdrawn")

# Seconds without a sign of life after which others go on: where a worker is harmed, and where none is.
SOON, PATIENT = 2.0, 20.0


async def journals_of(store: Store, session: str) -> dict[str, Sequence[bytes]]:
    """The journals of *session* and its children in *store*."""
    children = [info.session for info in await store.list(prefix=f"{session}.")]
    return {name: await store.load(name) for name in sorted([session, *children])}


async def leased(store: SQLiteStore | PostgresStore, pid: int) -> list[str]:
    """The sessions in *store* of which the process *pid* has the lease."""
    records = {name: decoded(data) for name, data in (await store.leases()).items()}
    return [name for name, record in records.items() if record is not None and record.pid == pid]


async def at_rest_in(store: Store, prefix: str) -> set[str]:
    """The sessions in *store* whose names begin with *prefix* and that do not go on by themselves now."""
    return {one.session for one in await listed(store, prefix=prefix) if is_at_rest(one.about)}


def is_at_rest(about: SessionSummary) -> bool:
    """Whether a session that is *about* this does not go on by itself: prompts that wait begin a run."""
    idle = about.state is SessionStatus.IDLE and not about.prompts
    return idle or about.state is SessionStatus.RESTING


def is_locked(file: str) -> bool:
    """Whether a process keeps the lock of the SQLite database *file* for longer than a write takes."""
    with closing(sqlite3.connect(file, timeout=0.5, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
    return False


class Workers:
    """Processes of `hosts.worker` that can be killed, each with the first line that it printed."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._workers: dict[int, tuple[asyncio.subprocess.Process, str]] = {}
        self._frozen: set[int] = set()
        self._all: list[asyncio.subprocess.Process] = []
        self._harm: Harm | None = None
        self._networks: list[Proxy] = []
        self._newer: set[int] = set()
        self._stack = AsyncExitStack()

    def _given(self, worker: int) -> Sequence[str]:
        """What the new process of *worker* is told of where it works."""
        raise NotImplementedError

    def _place(self, folder: Path, pace: float, harm: Harm | None) -> None:
        self._folder, self._pace, self._harm = folder, pace, harm

    async def _begin(self, workers: int, networks: Sequence[Proxy] = ()) -> None:
        self._networks = [await self._stack.enter_async_context(each) for each in networks]
        await asyncio.gather(*[self.begin(worker) for worker in range(workers)])

    async def _end(self) -> None:
        for worker in [*self._workers]:
            self.kill(worker)
        for process in self._all:
            await process.wait()
        await self._stack.aclose()

    def _dsn(self, server: PostgresServer, worker: int) -> str:
        """Where *worker* finds *server*: by its own network, if it has one."""
        return server.dsn_at(self._networks[worker].port) if self._networks else server.dsn

    async def cut(self, worker: int, seconds: float, *, resets: bool) -> None:
        """Cut the network of one."""
        await self._networks[worker].cut(seconds, resets=resets)

    def kill(self, worker: int) -> int:
        """End one with -9, unless it was told to end; it must not have crashed."""
        process, _ = self._workers.pop(worker)
        assert process.returncode in {None, 0}, f"worker {worker} ended with {process.returncode}"
        with suppress(ProcessLookupError):
            process.kill()
        return process.pid

    @property
    def _hurried(self) -> bool:
        """Whether what gives no sign of life for a moment is taken for gone."""
        return self._harm is not None

    async def begin(self, worker: int) -> None:
        """Begin a process and wait until it is at work."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "hosts.worker",
            self._kind,
            str(self._folder),
            str(self._pace),
            str(SOON if self._hurried else PATIENT),
            *self._given(worker),
            env={**os.environ, "PYTHONPATH": str(TESTS), **({NEWER: "yes"} if worker in self._newer else {})},
            stdout=asyncio.subprocess.PIPE,
        )
        self._all.append(process)
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            line = await process.stdout.readline()
        assert line, f"worker {worker} ended with {await process.wait()}"
        self._workers[worker] = process, line.decode().strip()

    async def upgrade(self, worker: int) -> None:
        """End one with -9, and begin one of the next version in its place."""
        self._newer.add(worker)
        self.kill(worker)
        await self.begin(worker)

    def pid(self, worker: int) -> int:
        """The number of its process."""
        return self._workers[worker][0].pid

    def freeze(self, worker: int) -> int:
        """Stop one where it is."""
        self._frozen.add(worker)
        os.kill(self.pid(worker), signal.SIGSTOP)
        return self.pid(worker)

    def thaw(self, worker: int) -> None:
        """Let it go on."""
        self._frozen.discard(worker)
        os.kill(self.pid(worker), signal.SIGCONT)


@final
class Servers(Workers):
    """Processes that each serve the same store: a file in the folder of the test, or a schema of *server*."""

    def __init__(self, name: str, server: PostgresServer | None = None) -> None:
        super().__init__("server")
        self.name = name
        self._server = server
        self._schema = new_schema()
        self._turns = count()

    def _given(self, worker: int) -> Sequence[str]:
        return (self._store_of(worker),)

    def _store_of(self, worker: int | None = None) -> str:
        if self._server is None:
            return str(self._folder / "sessions.db")
        dsn = self._server.dsn if worker is None else self._dsn(self._server, worker)
        return f"{dsn}#{self._schema}"

    async def start(self, folder: Path, workers: int, pace: float, harm: Harm | None = None) -> None:
        """Begin *workers* processes."""
        self._place(folder, pace, harm)
        self._store = open_store(self._store_of())
        # Before several processes make it at once.
        await self._store.list(1)
        limits = httpx.Limits(max_connections=100)
        self._client = httpx.AsyncClient(timeout=5.0, limits=limits)
        there = self._server.socket if harm is Harm.CUT and self._server is not None else None
        await self._begin(workers, [Proxy(there) for _ in range(workers)] if there else [])

    def freeze(self, worker: int) -> int:
        """Stop one where it is, but not in the middle of a write to a file: its lock would stay."""
        while True:
            pid = super().freeze(worker)
            if self._server is not None or not is_locked(self._store_of()):
                return pid
            self.thaw(worker)

    async def stop(self) -> None:
        """End all processes."""
        await self._end()
        await self._client.aclose()
        await self._store.close()

    async def crash(self) -> None:
        """Have the database crash; a file has no server."""
        if self._server is None:
            raise NotImplementedError
        await asyncio.to_thread(self._server.crash)

    async def held(self, worker: int) -> Sequence[str]:
        """Those of which it has the lease."""
        return await leased(self._store, self.pid(worker))

    async def put(self, session: str, given: Input) -> None:
        """Put *given* in over HTTP, at one worker or another."""
        at = f"/api/sessions/{session}"
        match given:
            case Prompt(id, text):
                await self._ask("POST", "/api/sessions", {"id": session})
                await self._ask("POST", f"{at}/messages", {"text": text, "id": id})
            case Steer(id, text):
                await self._ask("POST", f"{at}/messages", {"text": text, "id": id, "mode": "steer"})
            case Answer(request, yes, arguments):
                body = {"decision": "approve" if yes else "deny"}
                body |= {} if arguments is None else {"arguments": {**arguments}}  # type: ignore[dict-item]  # any JSON
                await self._ask("POST", f"{at}/questions/{request}", body)
            case Interrupt():
                await self._ask("POST", f"{at}/interrupt")
            case Think(tokens):
                await self._ask("POST", f"{at}/control", {"thinking": tokens})
            case Cancel(call):
                await self._ask("POST", f"{at}/calls/{call}/cancel")

    async def look(self, session: str) -> Look:
        """Ask a worker."""
        body = await self._ask("GET", f"/api/sessions/{session}")
        over = body["state"] == "done" and not body["queue"]
        return Look(over, tuple([asked["id"] for asked in body["questions"]]))

    async def at_rest(self, prefix: str) -> Collection[str]:
        """Look in the store."""
        return await at_rest_in(self._store, prefix)

    async def _ask(self, method: str, path: str, body: object = None) -> Any:
        """The answer of one that answers. A refusal is one, too: an earlier try may have been taken."""
        async with asyncio.timeout(PATIENCE):
            while True:
                there = [worker for worker in self._workers if worker not in self._frozen]
                _, url = self._workers[there[next(self._turns) % len(there)]]
                try:
                    answer = await self._client.request(method, url + path, json=body)
                except httpx.TransportError:
                    pass
                else:
                    if answer.status_code not in {429, 500, 503}:
                        # The reply to an answer that was taken may have been lost, and a call may end.
                        known = answer.status_code == 409 and OVER.search(answer.text)
                        assert answer.status_code < 400 or known, answer.text
                        return answer.json()
                await asyncio.sleep(0.05)

    async def journals(self, session: str) -> Mapping[str, Sequence[bytes]]:
        """Read them in the store."""
        return await journals_of(self._store, session)


@final
class InProcess:
    """The engine alone, in this process and in memory: what all hosts are compared with."""

    name = "in process"

    async def start(self, folder: Path, workers: int, pace: float, harm: Harm | None = None) -> None:
        """Begin; there are no *workers*, and nothing to *harm*."""
        del workers, harm
        self._store = MemoryStore()
        self._agent: Agent = make_agent(folder, pace, cwd=folder)
        self._sessions: dict[str, Session] = {}
        self._runs: dict[str, asyncio.Task[None]] = {}

    async def stop(self) -> None:
        """Let go of all sessions."""
        for session in self._sessions.values():
            await session.close()
        await asyncio.gather(*self._runs.values(), return_exceptions=True)

    def kill(self, worker: int) -> int:
        """There is nothing to kill."""
        raise NotImplementedError

    freeze = kill

    def thaw(self, worker: int) -> None:
        """There is nothing to thaw."""
        raise NotImplementedError

    async def crash(self) -> None:
        """There is no server."""
        raise NotImplementedError

    async def cut(self, worker: int, seconds: float, *, resets: bool) -> None:
        """There is no network."""
        raise NotImplementedError

    async def begin(self, worker: int) -> None:
        """There is nothing to begin."""
        raise NotImplementedError

    upgrade = begin

    async def held(self, worker: int) -> Sequence[str]:
        """There is nothing to hold."""
        raise NotImplementedError

    async def put(self, session: str, given: Input) -> None:
        """Put *given* in, and go on with the session."""
        if session not in self._sessions:
            self._sessions[session] = self._agent.session(session, self._store)
        one = self._sessions[session]
        await one.load()
        await give(one, given)
        if session not in self._runs or self._runs[session].done():
            self._runs[session] = asyncio.create_task(self._drive(one))

    async def _drive(self, one: Session) -> None:
        while one.unfinished or one.queue:
            await one.resume(wait=True)

    async def look(self, session: str) -> Look:
        """Look at the object."""
        return look_at(self._sessions[session])

    async def at_rest(self, prefix: str) -> Collection[str]:
        """Look in memory."""
        return await at_rest_in(self._store, prefix)

    async def journals(self, session: str) -> Mapping[str, Sequence[bytes]]:
        """Read them in memory."""
        return await journals_of(self._store, session)
