"""
Tells other processes which sessions were written to, and hears what they tell.

Theory of operation. The server passes on what one process tells to all that listen. That is sent behind the
transaction and not in it: within one it would have all transactions of the database end one after the other.
It may be lost, with a process or a connection: those who wait look at the store now and then in any case.
Told is no name, which any user of the database could hear, but a hash of each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from typing import Any, final

from ..base import Hear
from .server import LONGEST_PAUSE, Server

# Sessions that are told by their hashes; of more it is told that it may be any. A text has 8,000 bytes.
MOST_TOLD = 400

# Seconds between two looks whether a connection that only listens is still there.
HEARTBEAT = 15.0


@lru_cache(maxsize=65_536)
def tag(name: str) -> str:
    """What stands for the session *name* in what is told."""
    return _tag(name.encode(errors="replace"))


def _tag(name: bytes) -> str:
    return blake2b(name, digest_size=8).hexdigest()


def _named(text: str) -> Callable[[str], bool]:
    """What says whether a session is among those that *text* tells."""
    tags = {*text.split()}
    return lambda name: not tags or tag(name) in tags


@final
class Listener:
    """Tells and hears on *channel* of *server*, while there is one in *hearing*."""

    def __init__(self, server: Server, channel: str) -> None:
        self._server = server
        self._channel = channel
        self._hearing: list[Hear] = []
        self._told: set[str] = set()
        self._telling: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None

    def tell(self, names: Sequence[bytes]) -> None:
        """Have other processes know that the sessions *names* were written to."""
        self._told.update(map(_tag, names))
        if self._told and self._telling is None:
            self._telling = asyncio.ensure_future(self._tell())

    async def _tell(self) -> None:
        while self._told:
            text = " ".join(self._told) if len(self._told) <= MOST_TOLD else ""
            self._told.clear()
            # Of any kind: others look by themselves.
            with suppress(Exception):
                await self._server.call("select pg_notify($1, $2)", self._channel, text)
        self._telling = None

    def add(self, hear: Hear) -> None:
        """Call *hear* from now on where another process tells something."""
        self._hearing.append(hear)
        if self._listening is None:
            self._listening = asyncio.ensure_future(self._listen())

    def remove(self, hear: Hear) -> None:
        """Call *hear* no more."""
        self._hearing.remove(hear)
        if not self._hearing and self._listening is not None:
            self._listening.cancel()
            self._listening = None

    async def finish(self) -> None:
        """Wait until all was told, and listen no more."""
        if self._telling is not None:
            await self._telling
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
            await asyncio.wait({listening})

    async def _listen(self) -> None:
        while True:
            # As above, and those who wait here do.
            with suppress(Exception):
                await self._listen_once()
            await asyncio.sleep(LONGEST_PAUSE)

    async def _listen_once(self) -> None:
        db = await self._server.connect()
        try:
            await db.add_listener(self._channel, self._heard)
            while True:
                await asyncio.sleep(HEARTBEAT)
                await db.execute("select 1", timeout=HEARTBEAT)
        finally:
            self._server.drop(db)

    def _heard(self, _: Any, pid: int, __: str, text: str) -> None:  # noqa: ANN401  # asyncpg has no types
        # Those of this process are woken by what they write themselves.
        if pid not in self._server.pids:
            for hear in [*self._hearing]:
                hear(_named(text))
