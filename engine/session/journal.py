"""The writing end of a session's journal: entries to bytes, appended by compare-and-set."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, final

from ...effects.errors import StoreConflict
from ...effects.events import Event, ModelStreamed, ToolProgressed, joined
from ...effects.pieces import merged
from ...performers.base import noop
from ..codec import encode
from ..journal.encoding import decode_entry, encode_entry
from ..journal.entries import Entry, Posted, Stepped, Titled
from ..journal.summary import SessionSummary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...performers.stores.base import Store
    from ..journal.summary import SummaryKey

ConcurrentEntry = Posted | Titled
"""An entry that any process may write while another one drives the session."""

Listener = Callable[[int], SessionSummary | None]
"""Given the number of an entry: the summary of the session once it is written, None where that has not changed."""


@final
class Journal:
    """
    The writing end of one session's journal: *length* is how many entries are kept.

    What others write aside meanwhile, from whichever process, is handed to *arrived*; anything else that
    somebody else wrote is a `StoreConflict`. The pieces of a stream are held back and written as one entry,
    with the next event that is none.
    """

    def __init__(
        self, store: Store, session: str, length: int, arrived: Callable[[ConcurrentEntry], None]
    ) -> None:
        self.store = store
        self.session = session
        self.length = length
        self._arrived = arrived
        self._taken_up = 0
        self.told: SummaryKey | None = None  # what the store was told last that the session is about
        self._writing = asyncio.Lock()
        self._streamed: list[ModelStreamed] = []
        self._label = ""

    async def write(self, *entries: Entry, about: Listener = noop) -> None:
        """
        Keep *entries*, and what the session is *about* then.

        Raises `StoreConflict` where another process went on with this session.
        """
        encoded = [encode_entry(entry) for entry in entries]
        async with self._writing:
            while not await self._written(encoded, about):
                pass  # another process added an entry first, which is known by now

    async def add(self, entry: ConcurrentEntry, about: Listener = noop) -> bool:
        """
        Keep *entry*, unless others added something first: then that is taken up, and this is False.

        Whoever adds thinks again, since it may be the same. Raises `StoreConflict` as `write` does.
        """
        encoded, known = encode_entry(entry), self._taken_up
        async with self._writing:
            return self._taken_up == known and await self._written([encoded], about)

    async def _written(self, encoded: Sequence[bytes], about: Listener) -> bool:
        """Whether *encoded* is kept now; where it is not, what others added has been taken up."""
        told = about(self.length + len(encoded) - 1)
        mark = self.told if told is None else told.mark
        line = None if told is None or mark == self.told else encode(told, SessionSummary)
        try:
            self.length = await self.store.append(self.session, self.length, encoded, line)
        except StoreConflict as conflict:
            await self._catch_up(conflict)
            return False
        self.told = mark
        return True

    def passed(self, count: int) -> None:
        """*count* entries are there that others wrote, who said what the session is about then."""
        if count:
            self.length += count
            self.told = None

    async def look(self) -> None:
        """See what others added. Raises `StoreConflict` as `write` does."""
        async with self._writing:
            await self._catch_up(None)

    async def _catch_up(self, conflict: StoreConflict | None) -> None:
        """Take up what was added since; raise *conflict*, where there is one, if nothing was."""
        news = await self.store.load(self.session, self.length)
        added: list[ConcurrentEntry] = []
        for number, data in enumerate(news, self.length):
            entry = decode_entry(data, f"entry {number} of session {self.session!r}")
            if not isinstance(entry, ConcurrentEntry):
                raise conflict or StoreConflict(self.session, self.length, self.length + len(news))
            added.append(entry)
        if conflict is not None and not news:
            raise conflict
        self.passed(len(news))
        self._taken_up += len(news)
        for entry in added:
            self._arrived(entry)

    async def applied(self, event: Event, label: str, about: Listener = noop) -> None:
        """
        Keep *event*, which led to the state *label*, and what the session is *about* then.

        A piece of a stream is kept with what follows it.
        """
        if isinstance(event, ToolProgressed):
            return  # it changes nothing, and a chatty tool would fill the store
        if isinstance(event, ModelStreamed):
            self._streamed.append(event)
            self._label = label
            return
        await self.write(*self._held_back(), Stepped(event=event, label=label), about=about)

    async def flush(self) -> None:
        """Keep what was held back of a stream that is being left."""
        if self._streamed:
            await self.write(*self._held_back())

    def _held_back(self) -> list[Stepped]:
        if not self._streamed:
            return []
        whole = joined(self._streamed)
        self._streamed = []
        pieces = ModelStreamed(
            at=whole.at,
            request=whole.request,
            before=whole.before,
            count=whole.count,
            pieces=merged(whole.pieces),
        )
        return [Stepped(event=pieces, label=self._label)]
