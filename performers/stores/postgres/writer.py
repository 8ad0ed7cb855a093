"""
The appends of a `PostgresStore`: those that wait share the next transaction.

The disk of the server takes the time, once for each transaction and however little is in it. One that is
refused spoils no other, and none returns before all are kept. Behind it other processes are told.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import chain
from typing import final

import attrs

from ....effects.errors import SessionGone, StoreConflict, TurnwheelError
from .server import DatabaseRow, Server, passing

# Appends that share a transaction, and bytes of their entries, at most.
MOST_APPENDS, MOST_BYTES = 500, 8_000_000

_APPEND = "select * from append($1, $2, $3, $4, $5, $6, $7)"


@final
@attrs.frozen
class NewEntries:
    """What `PostgresStore.append` was asked for; *name* is that of the *session*, as bytes."""

    session: str
    name: bytes
    expected: int
    entries: tuple[bytes, ...]
    about: bytes | None
    known: str
    # By which it is known when it was sent again, since no answer came.
    token: int = attrs.field(factory=lambda: int.from_bytes(os.urandom(8), signed=True), init=False)

    def outcome(self, row: DatabaseRow) -> str | Exception:
        """The incarnation of the session, or why it was refused; *row* is the answer to it."""
        _, kept, there, actual = row
        if kept:
            return str(there)
        if self.known and self.known != there:
            return SessionGone(self.session, bool(there))
        if actual != self.expected:
            return StoreConflict(self.session, self.expected, actual)
        return str(there)


@final
class Writer:
    """Writes by *server*; *written* is called with the names of the sessions that got entries."""

    def __init__(self, server: Server, written: Callable[[Sequence[bytes]], None]) -> None:
        self._server = server
        self._written = written
        self._waiting: deque[tuple[NewEntries, Future[str]]] = deque()
        self._work: asyncio.Task[None] | None = None

    def add(self, new: NewEntries, future: Future[str]) -> None:
        """Append *new* and tell *future* what came of it."""
        self._waiting.append((new, future))
        if self._work is None:
            self._work = asyncio.ensure_future(self._work_off())

    async def finish(self) -> None:
        """Wait until all that was added is done."""
        if self._work is not None:
            await self._work

    async def _work_off(self) -> None:
        while self._waiting:
            group = self._next()
            outcomes = await self._outcomes([new for new, _ in group])
            for (_, future), outcome in zip(group, outcomes, strict=True):
                if isinstance(outcome, str):
                    future.set_result(outcome)
                else:
                    future.set_exception(outcome)
            pairs = zip(group, outcomes, strict=True)
            self._written([new.name for (new, _), said in pairs if isinstance(said, str) and new.entries])
        self._work = None

    def _next(self) -> list[tuple[NewEntries, Future[str]]]:
        """The appends of the next transaction."""
        group: list[tuple[NewEntries, Future[str]]] = []
        size = 0
        while self._waiting and len(group) < MOST_APPENDS:
            size += sum(map(len, self._waiting[0][0].entries))
            if group and size > MOST_BYTES:
                break  # one that is larger goes alone
            group.append(self._waiting.popleft())
        return group

    async def _outcomes(self, group: list[NewEntries]) -> list[str | Exception]:
        try:
            found = {row[0]: row for row in await self._send(group)}
            return [one.outcome(found[place]) for place, one in enumerate(group, 1)]
        except Exception as error:  # noqa: BLE001  # its caller gets it, whatever it is
            if len(group) == 1:
                return [error]
            cause = error.__cause__ or error
            if isinstance(cause, TurnwheelError) or passing(cause):
                # Two tasks that raise one object would write into each other's traceback.
                return [type(error)(*error.args) for _ in group]
            # What one of them is to blame for must not fail the others.
            return [(await self._outcomes([one]))[0] for one in group]

    async def _send(self, group: list[NewEntries]) -> list[DatabaseRow]:
        return await self._server.call(
            _APPEND,
            [one.name for one in group],
            [one.known for one in group],
            [one.expected for one in group],
            [len(one.entries) for one in group],
            [one.about for one in group],
            [*chain.from_iterable([one.entries for one in group])],
            [one.token for one in group],
        )
