"""
The server of a `PostgresStore`: connections to it, what is done when one is lost, and what errors mean.

Theory of operation. Each call is one statement, and so one transaction and one way there and back. Any of
them may be sent again: what was done already is found to be done. So where a connection is lost, or the
server is, a call is sent again by another one until it is answered or the time is over. For all of this there
is one event loop, in the thread of the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, final

from ....effects.errors import StoreError, TurnwheelError
from .address import place_of
from .layout import prepare, quoted

# A row of an answer. asyncpg has no types, and its connections are Any here.
DatabaseRow: TypeAlias = Sequence[Any]

# Seconds to the second try of a call, twice as many to each other one, and at most so many.
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0

# Classes of errors, or errors, after which the same call may well succeed: a connection that was lost, a
# server that shuts down or starts, a deadlock, and too many connections.
_RETRIED = ("08", "57P", "40001", "40P01", "53300")

_FIXES = {
    "28": "look at the user and the password of the DSN, and at the server's pg_hba.conf",
    "3D000": "create the database, or name another one",
    "25006": "the server is a standby that only reads; name the primary",
    "42501": "grant the user the right to it, or name another user",
    "42": "another program changed the schema: restore it from a backup, or name another schema",
    "53100": "free some space and try again; nothing was written",
    "53": "the server lacks memory or connections; see its log",
    "54": "the name of a session may have 2,600 bytes, and an entry a gigabyte",
}


@final
class Server:
    """
    The server that *dsn* names, with at most so many *connections* of this *name*; for one event loop.

    A call that gets no answer is sent again for *patience* seconds.
    """

    def __init__(self, dsn: str, schema: str, connections: int, patience: float, name: str) -> None:
        self._dsn = dsn
        self._name = name
        self._schema = schema
        self.place = place_of(dsn)
        self._patience = patience
        self._free: list[Any] = []
        self._room = asyncio.Semaphore(connections)
        self._preparing = asyncio.Lock()
        self._prepared = False
        # The processes of the server that work for this store: what those tell is no news here.
        self.pids: set[int] = set()

    async def call(self, sql: str, *given: object) -> list[DatabaseRow]:
        """The rows of *sql*, which may be sent several times. Raises `StoreError`."""
        loop = asyncio.get_running_loop()
        end, pause, sent = loop.time() + self._patience, FIRST_PAUSE, False
        while True:
            try:
                # Half of it, so that one that will never be answered can be sent by another connection.
                async with asyncio.timeout(self._patience / 2), self._connection() as db:
                    sent = True
                    rows: list[DatabaseRow] = await db.fetch(sql, *given)
                    return rows
            except Exception as error:  # it is raised again, or the call is made again
                again = passing(error) and (self._prepared or _starting(error))
                if not again or loop.time() + pause > end:
                    explained = self._explained(error, sent=sent)
                    if explained is error:
                        raise
                    # An error of reading the DSN quotes parts of it.
                    raise explained from (error if passing(error) or _state(error) else None)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[Any, None]:
        async with self._room:
            self._free = [db for db in self._free if not db.is_closed()]
            db = self._free.pop() if self._free else await self.connect()
            try:
                yield db
            except BaseException as error:
                # An error of the statement leaves the connection as it was. With any other, it may still
                # wait for an answer.
                if not _state(error) or passing(error):
                    self.drop(db)
                    self.drop_all()
                else:
                    self._free.append(db)
                raise
            self._free.append(db)

    async def connect(self) -> Any:  # noqa: ANN401  # asyncpg has no types
        """A new connection, to a schema with the layout of today."""
        # It takes 90 ms, and most processes keep no session there.
        import asyncpg  # type: ignore[import-untyped]  # noqa: PLC0415  # pyright: ignore[reportMissingTypeStubs]  # see above

        db: Any = await asyncpg.connect(
            self._dsn,
            timeout=self._patience / 2,  # pyright: ignore[reportArgumentType]  # it takes parts of a second
            server_settings={
                "search_path": quoted(self._schema),
                "application_name": self._name,
                # A row that was waited for is looked at again, and not an error.
                "default_transaction_isolation": "read committed",
            },
        )
        try:
            async with self._preparing:
                if not self._prepared:
                    await prepare(db, self._schema, self.place)
                    self._prepared = True
        except BaseException:
            db.terminate()
            raise
        self.pids.add(db.get_server_pid())
        return db

    def drop(self, db: Any) -> None:  # noqa: ANN401  # as above
        """Let go of the connection *db*, which may not answer any more."""
        self.pids.discard(db.get_server_pid())
        db.terminate()

    def drop_all(self) -> None:
        """Let go of the connections that are not in use: where one was lost, they may be lost, too."""
        while self._free:
            self.drop(self._free.pop())

    async def close(self) -> None:
        """Take leave of the server. No call may be under way."""
        free, self._free = self._free, []
        for db in free:
            try:
                await db.close(timeout=1.0)
            except Exception:  # noqa: BLE001  # it is gone in any case
                db.terminate()

    def _explained(self, error: Exception, *, sent: bool) -> Exception:
        """*error* with the server and a way out; *sent* says whether the call may have been done."""
        what, state = str(error) or type(error).__name__, _state(error)
        if isinstance(error, TimeoutError):
            what = f"no answer within {self._patience / 2:g} seconds"
        if passing(error):
            way_out = "see whether the server runs and can be reached, and try again"
            way_out += "; what was asked for may have been done" if sent else ""
        elif state:
            way_out = next((out for key, out in _FIXES.items() if state.startswith(key)), _LOOK_AT_LOG)
        elif isinstance(error, TurnwheelError) or self._prepared:
            return error
        else:
            what, way_out = f"cannot be opened ({type(error).__name__})", _LOOK_AT_LOG
        return StoreError(f"store {self.place!r}: {what}; {way_out}")


_LOOK_AT_LOG = "look at the DSN, and at the server's log"


def _state(error: BaseException) -> str:
    """The code of *error* by the SQL standard; empty where it is none of the server's."""
    return str(getattr(error, "sqlstate", None) or "")


def passing(error: BaseException) -> bool:
    """Whether the call may succeed when it is sent again."""
    if state := _state(error):
        return state.startswith(_RETRIED)
    # What asyncpg says of a connection that was lost, or that the server is ending, has no code.
    lost = isinstance(error, OSError) or type(error).__name__ in {"InterfaceError", "InternalClientError"}
    return lost and not isinstance(error, TurnwheelError)


def _starting(error: BaseException) -> bool:
    """Whether the server is there and is starting, so that waiting helps also who never reached it."""
    return _state(error) in {"57P03", "53300"}
