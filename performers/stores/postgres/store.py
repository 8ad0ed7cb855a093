"""
The store of several machines: a schema of a PostgreSQL database, of which many processes may be at work.

Theory of operation. A connection belongs to one event loop, and callers may have several. So every store has
a thread and an event loop of its own, in which all its calls are done, each to its end whether or not its
caller still waits. No call holds a lock of the database when it has returned, and nothing is held for a
session that rests. Comparing the length in the statement that adds to it makes the append a compare-and-set.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar, final
from uuid import uuid4

from ....effects.errors import ConfigError, SessionGone, StoreError
from ...forks import renew_in_child
from ...worker_pool import finish
from ..base import MAX_OVERDUE, Entries, Hear, Mark, SessionInfo, Store
from .address import SCHEMES, place_of
from .server import LONGEST_PAUSE, DatabaseRow

if TYPE_CHECKING:
    from .listener import Listener
    from .server import Server
    from .writer import NewEntries, Writer

T = TypeVar("T")

_READ_ENTRIES = """
select incarnation, body
    from sessions left join entries on entries.id = sessions.id and number >= $2 and number < $3
    where session = $1 order by number
"""
_COLUMNS = "select session, length, created, updated, about, incarnation, stamp from sessions where"
_LATEST = f"{_COLUMNS} stamp < $1 order by stamp desc limit $2"
_LATEST_NAMED = f"{_COLUMNS} stamp < $1 and session >= $3 and session < $4 order by stamp desc limit $2"
_READ_CHECKPOINTS = """
select incarnation, body
    from sessions left join checkpoints on checkpoints.id = sessions.id
    where session = $1 order by position
"""
# Written by transactions that had not ended by then. Some of another server, if the schema was moved here,
# may have numbers that are not reached yet.
_LATER = """
    writer >= pg_snapshot_xmin($1::text::pg_snapshot) and writer < pg_snapshot_xmax(pg_current_snapshot())
    and not pg_visible_in_snapshot(writer, $1::text::pg_snapshot)
"""
_NEWS = f"""
select pg_current_snapshot()::text,
    array(select session from sessions where {_LATER}), exists (select from deletions where {_LATER})
"""  # noqa: S608  # all of it stands here
_MISSING = """
select name from unnest($1::bytea[]) as name
    where not exists (select from sessions where session = name)
"""

# Connections by name, for the names $1, and whether one of a name is older than $2 seconds.
_CONNECTED = """
select application_name, min(backend_start) < clock_timestamp() - make_interval(secs => $2)
from pg_stat_activity where application_name = any($1) group by application_name
"""

# Higher than any stamp or number of an entry.
_HIGHEST = 2**62

# Bytes of the longest name that the server takes for a schema.
_LONGEST_NAME = 63


@final
class PostgresStore(Store):
    """
    Keeps sessions in the PostgreSQL database that *dsn* names, as a `Store`.

    *dsn* is an address such as ``postgresql://user:password@host:5432/database``. The tables are made in
    *schema*, which is made where it is not there. Several stores, in any processes on any machines, may use
    one schema. An append that has returned is as durable as the server makes a transaction.

    A store has at most so many *connections*, and one more while sessions wait for news. Where one is lost,
    or the server is, a call is sent again for *patience* seconds, and done once. It connects with the first
    call, and in a child of `os.fork` anew.
    """

    keeps_leases = True
    keeps_deadlines = True
    keeps_checkpoints = True
    keeps_meters = True
    keeps_time = True
    tells_news = True
    calls_on_news = True

    def __init__(
        self, dsn: str, *, schema: str = "turnwheel", connections: int = 8, patience: float = 20.0
    ) -> None:
        if not dsn.startswith(SCHEMES):
            # Not the value: it may have a password.
            msg = "a DSN must begin with postgresql://, as in postgresql://user:password@host:5432/database"
            raise ConfigError(msg)
        if not schema or "\0" in schema or len(schema.encode()) > _LONGEST_NAME or schema.startswith("pg_"):
            msg = (
                f"schema must be a name of 1 to {_LONGEST_NAME} bytes not beginning with pg_; got {schema!r}"
            )
            raise ConfigError(msg)
        if connections < 1 or patience <= 0:
            msg = f"connections and patience must be above 0; got {connections!r} and {patience!r}"
            raise ConfigError(msg)
        if find_spec("asyncpg") is None:
            msg = "a PostgresStore needs 'asyncpg': pip install 'turnwheel[postgres]'"
            raise ConfigError(msg)
        self._place = place_of(dsn)
        # Seconds in which a process that lives notices that its connections are gone, and makes others.
        self._settles = patience / 2 + LONGEST_PAUSE
        self._token = uuid4().hex
        self._make: Callable[[str], _StoreParts] = partial(_StoreParts, dsn, schema, connections, patience)
        self._closed = False
        self._renew()
        renew_in_child(self, PostgresStore._renew)

    def _renew(self) -> None:
        """Begin without a thread, as in a forked child, which makes connections of its own."""
        self._thread: _StoreThread | None = None
        self._lock = threading.Lock()  # event loops in several threads may share a store

    def __repr__(self) -> str:
        return f"PostgresStore({self._place!r})"

    @property
    def presence(self) -> str:
        """The name of each connection of this process: see `Store.presence`."""
        # Not the same in forked processes.
        return f"turnwheel {self._token} {os.getpid()}"

    async def append(
        self,
        session: str,
        expected: int,
        entries: Sequence[bytes],
        about: bytes | None = None,
        incarnation: str = "",
    ) -> str:
        """Add *entries* to *session*, which must hold exactly *expected*; see `Store.append`."""
        from .writer import NewEntries  # noqa: PLC0415  # only for those that have such a store

        # A copy, since the caller may go on with its list when it is cancelled.
        new = NewEntries(
            session, self._bytes(session), min(expected, _HIGHEST), tuple(entries), about, incarnation
        )
        return await _ended(self._asked(lambda thread: thread.append(new)))

    async def load(
        self, session: str, start: int = 0, end: int | None = None, incarnation: str = ""
    ) -> Entries:
        """The entries of *session* from index *start* to before *end*; see `Store.load`."""
        part = [min(max(number, 0), _HIGHEST) for number in (start, _HIGHEST if end is None else end)]
        rows = await self._call(_READ_ENTRIES, self._bytes(session), *part)
        return Entries(*_found(session, incarnation, rows))

    async def list(
        self, limit: int | None = None, after: int | None = None, prefix: str = ""
    ) -> Sequence[SessionInfo]:
        """The sessions whose names begin with *prefix*, last written first; see `Store.list`."""
        part = (_HIGHEST if after is None else after, limit)
        if not prefix:
            return [_info(row) for row in await self._call(_LATEST, *part)]
        # No text has a byte that is higher than all bytes of UTF-8.
        first = self._bytes(prefix)
        return [_info(row) for row in await self._call(_LATEST_NAMED, *part, first, first + b"\xff")]

    async def info(self, session: str) -> SessionInfo | None:
        """*session* as `list` has it; None where it is not there."""
        rows = await self._call(f"{_COLUMNS} session = $1", self._bytes(session))
        return _info(rows[0]) if rows else None

    async def delete(self, session: str, incarnation: str = "") -> bool:
        """
        Forget *session*; whether there was one.

        A call whose answer was lost is sent again. It finds none then, and says so: the session is gone.
        """
        name = self._bytes(session)
        ((deleted, there),) = await self._call("select * from forget($1, $2)", name, incarnation)
        if not deleted:
            _check_incarnation(session, incarnation, there)
            return False
        # Another thread may have closed it by now; those who wait look by themselves.
        with suppress(StoreError):
            self._asked(lambda thread: thread.do(lambda parts: parts.listener.tell([name])))
        return True

    async def lease(
        self, session: str, held: bytes | None, wanted: bytes | None, incarnation: str = ""
    ) -> bytes | None:
        """Put the lease *wanted* in the place of *held*; see `Store.lease`."""
        given = (self._bytes(session), held, wanted, incarnation)
        ((body, there),) = await self._call("select * from lease($1, $2, $3, $4)", *given)
        if incarnation:
            _check_incarnation(session, incarnation, there)
        lease: bytes | None = body
        return lease

    async def renew(self, renewals: Mapping[str, tuple[bytes, bytes]]) -> Sequence[str]:
        """Put leases in the place of others, in one transaction; see `Store.renew`."""
        names, pairs = [*renewals], [*renewals.values()]
        rows = await self._call(
            "select * from renew($1, $2, $3)",
            [self._bytes(name) for name in names],
            [held for held, _ in pairs],
            [wanted for _, wanted in pairs],
        )
        return [names[place - 1] for (place,) in rows]

    async def meter(self, name: str, held: bytes | None, wanted: bytes | None) -> tuple[bytes | None, float]:
        """
        Put *wanted* in the place of *held* as the meter *name*; see `Store.meter`.

        One whose answer was lost is sent again, and may find its own: it counts twice then, and never less.
        """
        ((body, at),) = await self._call("select * from meter($1, $2, $3)", self._bytes(name), held, wanted)
        return body, at

    async def time(self) -> float:
        """The time by the clock of the server; see `Store.time`."""
        ((now,),) = await self._call("select extract(epoch from clock_timestamp())::double precision")
        seconds: float = now
        return seconds

    async def set_deadline(self, session: str, due: float | None, incarnation: str = "") -> None:
        """Keep *due* as the deadline of *session*; see `Store.set_deadline`."""
        given = (self._bytes(session), due, incarnation)
        ((there,),) = await self._call("select * from set_deadline($1, $2, $3)", *given)
        _check_incarnation(session, incarnation, there)

    async def overdue(self, moment: float, skip: int = 0) -> Sequence[str]:
        """Sessions whose deadline is *moment* or before; see `Store.overdue`."""
        asked = "select session from deadlines where due <= $1 order by due limit $2 offset $3"
        return [name.decode() for (name,) in await self._call(asked, moment, MAX_OVERDUE, skip)]

    async def absent(self, marks: Collection[str]) -> Collection[str]:
        """Those of *marks* whose processes have no connection; see `Store.absent`."""
        rows: Sequence[Any] = await self._call(_CONNECTED, [*marks, self.presence], self._settles)
        settled: dict[str, bool] = dict(rows)
        # Where all connections here are new, the server may have restarted, and others are about to come.
        # Where none is to be seen, as for some users, nothing is known of others either.
        return {*marks} - settled.keys() if settled.get(self.presence) else ()

    async def leases(self) -> Mapping[str, bytes]:
        """The leases of all sessions that have one; see `Store.leases`."""
        rows = await self._call("select session, body from leases")
        return {name.decode(): body for name, body in rows}

    async def keep_checkpoint(
        self, session: str, position: int, body: bytes, first: int, incarnation: str = ""
    ) -> None:
        """Keep *body* as a checkpoint of *session*; see `Store.keep_checkpoint`."""
        given = (self._bytes(session), position, body, first, incarnation)
        ((there,),) = await self._call("select * from keep_checkpoint($1, $2, $3, $4, $5)", *given)
        _check_incarnation(session, incarnation, there)

    async def checkpoints(self, session: str, incarnation: str = "") -> Sequence[bytes]:
        """The checkpoints of *session*, by their positions."""
        rows = await self._call(_READ_CHECKPOINTS, self._bytes(session))
        return _found(session, incarnation, rows)[0]

    async def news(self, sessions: Sequence[str], since: Mark | None) -> tuple[Mark, Sequence[str]]:
        """The *sessions* that were written to or deleted since then; see `Store.news`."""
        if since is None:
            ((now,),) = await self._call("select pg_current_snapshot()::text")
            return _mark(now), sessions
        ((now, written, deleted),) = await self._call(_NEWS, _snapshot(since))
        found = {name.decode() for name in written}.intersection(sessions)
        if deleted:
            rows = await self._call(_MISSING, [self._bytes(name) for name in sessions])
            found.update(name.decode() for (name,) in rows)
        return _mark(now), [*found]

    def on_news(self, hear: Hear) -> Callable[[], None]:
        """Call *hear* where another process wrote; see `Store.on_news`."""
        self._asked(lambda thread: thread.do(lambda parts: parts.listener.add(hear)))

        def stop() -> None:
            # One that is closed listens no more.
            with suppress(StoreError):
                self._asked(lambda thread: thread.do(lambda parts: parts.listener.remove(hear)))

        return stop

    async def close(self) -> None:
        """Close the connections when the calls before are done. Closing twice is fine."""
        with self._lock:
            self._closed = True
            closing = None if self._thread is None else self._thread.close()
        if self._thread is not None and closing is not None:
            await _ended(closing)
            self._thread.join()

    async def _call(self, sql: str, *given: object) -> Sequence[DatabaseRow]:
        return await _ended(self._asked(lambda thread: thread.call(sql, *given)))

    def _asked(self, ask: Callable[[_StoreThread], T]) -> T:
        """What *ask* gives for the thread of the store, which does what it was asked for before it ends."""
        # As one step: what another thread closes in between would never be done.
        with self._lock:
            if self._closed:
                msg = f"store {self._place!r} is closed; make a new one to go on"
                raise StoreError(msg)
            if self._thread is None:
                self._thread = _StoreThread(self._make(self.presence))
                # A store that was never closed ends its thread, with the process at the latest.
                weakref.finalize(self, self._thread.close)
            try:
                return ask(self._thread)
            except RuntimeError as error:
                # The interpreter ends, and its threads have ended.
                msg = f"store {self._place!r} is closed, since this process ends"
                raise StoreError(msg) from error

    def _bytes(self, session: str) -> bytes:
        try:
            return session.encode()
        except UnicodeEncodeError as error:
            msg = (
                f"store {self._place!r}: {session!r} is no valid text; use a session name without surrogates"
            )
            raise StoreError(msg) from error


async def _ended(future: Future[T]) -> T:
    """The outcome of *future*, also where the caller is cancelled: then it learns of it first."""
    return await finish(asyncio.wrap_future(future))


def _check_incarnation(session: str, named: str, there: str) -> None:
    """Raise `SessionGone` where the incarnation *named* of *session* is not the one that is *there*."""
    if named and named != there:
        raise SessionGone(session, bool(there))


def _found(session: str, incarnation: str, rows: Sequence[DatabaseRow]) -> tuple[list[bytes], str]:
    """The bodies of *rows*, and the incarnation that they are of."""
    there = rows[0][0] if rows else ""
    _check_incarnation(session, incarnation, there)
    return [body for _, body in rows if body is not None], there


def _info(row: DatabaseRow) -> SessionInfo:
    name, length, created, updated, about, incarnation, stamp = row
    return SessionInfo(
        session=name.decode(),
        length=length,
        created=created,
        updated=updated,
        about=about,
        incarnation=incarnation,
        stamp=stamp,
    )


# A mark is a snapshot of the database: the transactions that had ended. As text it is low:high:those between.


def _mark(snapshot: str) -> Mark:
    low, high, between = snapshot.split(":")
    return int(low), int(high), *[int(each) for each in between.split(",") if each]


def _snapshot(mark: Mark) -> str:
    low, high, *between = mark
    return f"{low}:{high}:{','.join(map(str, between))}"


# The thread of a store.


@final
class _StoreParts:
    """What works in the event loop of a store."""

    def __init__(self, dsn: str, schema: str, connections: int, patience: float, name: str) -> None:
        # Here, so that a process without such a store does not wait for them.
        from .listener import Listener  # noqa: PLC0415  # as said
        from .server import Server  # noqa: PLC0415  # as said
        from .writer import Writer  # noqa: PLC0415  # as said

        self.server: Server = Server(dsn, schema, connections, patience, name)
        self.listener: Listener = Listener(self.server, schema)
        self.writer: Writer = Writer(self.server, self.listener.tell)


@final
class _StoreThread:
    """A thread with an event loop, in which *parts* do what they are asked for."""

    def __init__(self, parts: _StoreParts) -> None:
        self._parts = parts
        self._loop = asyncio.new_event_loop()
        self._calls: set[asyncio.Task[Any] | None] = set()
        self._closing: Future[None] | None = None
        # A daemon: any other would keep a process from exiting whose host forgot to close its store.
        self._thread = threading.Thread(target=self._run, name="turnwheel-postgres", daemon=True)
        at_work.add(self)
        self._thread.start()

    def append(self, new: NewEntries) -> Future[str]:
        """What `Writer.add` comes to."""
        future: Future[str] = Future()
        future.set_running_or_notify_cancel()
        self.do(lambda parts: parts.writer.add(new, future))
        return future

    def call(self, sql: str, *given: object) -> Future[list[DatabaseRow]]:
        """What `Server.call` comes to."""
        return asyncio.run_coroutine_threadsafe(self._called(sql, given), self._loop)

    def do(self, act: Callable[[_StoreParts], object]) -> None:
        """Have *act* done with the parts."""
        self._loop.call_soon_threadsafe(act, self._parts)

    def close(self) -> Future[None]:
        """End it once its calls are done."""
        if self._closing is None:
            self._closing = asyncio.run_coroutine_threadsafe(self._close(), self._loop)
        return self._closing

    def join(self) -> None:
        """Wait until it has ended, which it was asked for."""
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()
            at_work.discard(self)

    async def _called(self, sql: str, given: tuple[object, ...]) -> list[DatabaseRow]:
        task = asyncio.current_task()
        self._calls.add(task)
        try:
            return await self._parts.server.call(sql, *given)
        finally:
            self._calls.discard(task)

    async def _close(self) -> None:
        try:
            if calls := [call for call in self._calls if call is not None]:
                await asyncio.wait(calls)
            await self._parts.writer.finish()
            await self._parts.listener.finish()
            await self._parts.server.close()
        finally:
            self._loop.call_soon(self._loop.stop)


# The threads that have not ended.
at_work: set[_StoreThread] = set()

# A forked child has none of them.
os.register_at_fork(after_in_child=at_work.clear)

# Seconds for which the end of a process waits for calls that are under way.
_LEAVE_WITHIN = 5.0


@atexit.register
def _finish_all() -> None:
    """Have all calls done that are under way: when the interpreter exits, daemon threads stop anywhere."""
    for thread in [*at_work]:
        with suppress(TimeoutError):
            thread.close().result(_LEAVE_WITHIN)
