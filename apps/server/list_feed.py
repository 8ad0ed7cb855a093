"""
Which sessions change, heard once for all readers of lists.

Theory of operation. While there are readers, one task waits for the poller of the store, which asks one
question for all that wait in this process. Where any session was written to, it reads the first rows of the
list, which are those written last, and makes one event of each for all readers of a tenant. The id of an
event is the stamp of its row, so a reader that comes again is told all rows that were written since. A reader
has the latest row of each session waiting for it, up to a number: behind that its stream ends, and it comes
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, final

import msgspec

from ...effects.errors import TurnwheelError, UnknownSession
from ...engine.inspect.listing import newer
from ...engine.session.environment import POLL_PAUSE
from ...engine.session.poller import ANY_SESSION, Poller, Waiter
from .access import Namespace
from .feed import BEAT, StreamReader, id_line
from .views import is_at_rest, row_body, session_body

if TYPE_CHECKING:
    from ...engine.inspect.listing import Listed
    from .bodies import SessionBody
    from .open_sessions import OpenSessions

# Rows that may wait for a reader.
ROWS = 1_000

# Rows that are read at a look: more only where more were written.
FIRST_ROWS = 20


async def listed_body(opens: OpenSessions, row: Listed, names: Namespace) -> SessionBody | None:
    """The session of *row*; None where it is none of *names*, or was deleted since."""
    known = names.public(row.session)
    if known is None:
        return None
    agent = opens.agents[known[0]]
    if is_at_rest(row):
        return row_body(row, names, agent)
    # Deleted since the store was asked: then it is none of the list.
    with suppress(UnknownSession):
        async with opens.use(names, known[1]) as one:
            return session_body(one.session, row, names, agent)
    return None


@final
class ListReader(StreamReader):
    """One reader of what changes in the sessions of *names*; it has seen what was written up to *stamp*."""

    def __init__(self, names: Namespace, stamp: int, beat: float) -> None:
        super().__init__(beat)
        self.names = names
        self.stamp = stamp
        self._waiting: dict[str, bytes] = {}
        self._last = b""

    def put(self, session: str, frame: bytes) -> None:
        """Keep *frame* in the place of what waits about *session*."""
        # The row that was told last is read at the next look, too: its stamp may stay while it changes.
        if frame == self._last:
            return
        self._last = frame
        self._waiting.pop(session, None)
        self._waiting[session] = frame
        if len(self._waiting) > ROWS:
            self.end()
        self._wake()

    async def parts(self) -> AsyncGenerator[bytes, None]:
        """What is to be written, until the end."""
        while not self.over:
            await self._woken(ready=bool(self._waiting))
            waiting, self._waiting = self._waiting, {}
            if waiting:
                yield b"".join(waiting.values())
            if self._due:
                self._due = False
                yield BEAT


@final
class ListFeed:
    """The readers of the lists of *opens*."""

    def __init__(self, opens: OpenSessions) -> None:
        self._opens = opens
        self._readers: dict[ListReader, None] = {}
        self._hearing: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    @asynccontextmanager
    async def reader(self, names: Namespace, since: str, beat: float) -> AsyncGenerator[ListReader, None]:
        """A reader of the sessions of *names*, told within it what was written since the id *since*."""
        newest = await self._opens.store.list(1)
        made = ListReader(names, int(since) if since else newest[0].stamp if newest else 0, beat)
        readers = self._readers
        readers[made] = None
        if self._hearing is None or self._hearing.done():
            self._news = asyncio.Event()
            self._hearing = asyncio.create_task(self._hear(readers, self._news))
        # What was written before it came is told now.
        self._news.set()
        try:
            yield made
        finally:
            made.end()
            del readers[made]
            if not readers and readers is self._readers:
                hearing, self._hearing, self._readers = self._hearing, None, {}
                hearing.cancel()
                await asyncio.wait({hearing})

    def end(self) -> None:
        """End all readers."""
        for reader in self._readers:
            reader.end()

    def deleted(self, names: Namespace, id: str) -> None:  # noqa: A002  # the word of sessions
        """Tell readers of *names* that its session *id* was deleted."""
        frame = b"event: deleted\ndata: %s\n\n" % msgspec.json.encode({"id": id})
        for reader in self._readers:
            if reader.names == names:
                reader.put(id, frame)

    async def _hear(self, readers: dict[ListReader, None], news: asyncio.Event) -> None:
        store = self._opens.store
        poller, waiter = Poller.of(store, POLL_PAUSE), Waiter(ANY_SESSION, news.set)
        poller.add(waiter)
        try:
            while True:
                await news.wait()
                news.clear()
                try:
                    # The session that was written last keeps its stamp while it goes on.
                    since = min(reader.stamp for reader in readers) - 1
                    rows = await newer(store, since, expected=FIRST_ROWS)
                    await self._tell(reversed(rows), readers)
                except TurnwheelError:
                    poller.look_again(waiter)
        finally:
            await poller.leave(waiter)

    async def _tell(self, rows: Iterable[Listed], readers: dict[ListReader, None]) -> None:
        for row in rows:
            frames: dict[Namespace, bytes] = {}
            for reader in [*readers]:
                if row.stamp < reader.stamp:
                    continue
                reader.stamp = row.stamp
                if reader.names not in frames:
                    frames[reader.names] = await self._frame(row, reader.names)
                if frame := frames[reader.names]:
                    reader.put(row.session, frame)

    async def _frame(self, row: Listed, names: Namespace) -> bytes:
        """The event that *row* is to a tenant; none where it is another's, or cannot be read."""
        body = None
        with suppress(TurnwheelError):
            body = await listed_body(self._opens, row, names)
        if body is None:
            return b""
        return b"%sevent: session\ndata: %s\n\n" % (id_line(str(row.stamp)), msgspec.json.encode(body))
