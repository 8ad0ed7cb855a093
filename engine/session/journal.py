"""
The writing end of a session's journal: entries to bytes, appended by compare-and-set.

Theory of operation. Each append names the length that this process knows. A store refuses it where another
process was faster. Entries that may come from any process are then taken in, and the append is tried again;
an entry that only the owner may write means that another process owns the session now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, final

import attrs

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

Summarizer = Callable[[int], SessionSummary | None]
"""Given an entry's number: the summary of the session after that entry, None where it has not changed."""


@final
class Journal:
    """
    The writing end of one session's journal; *length* entries of it are known here.

    *arrived* gets each concurrent entry of another process. Any other foreign entry is a `StoreConflict`.
    """

    def __init__(
        self, store: Store, session: str, length: int, arrived: Callable[[ConcurrentEntry], None]
    ) -> None:
        self.store = store
        self.session = session
        self.length = length
        self._arrived = arrived
        self._taken_up = 0
        # The key of the summary in the store; None where another writer may have changed it.
        self.summarized: SummaryKey | None = None
        # One append at a time: a second one would name a length that the first is about to change.
        self._writing = asyncio.Lock()
        self._streamed: list[ModelStreamed] = []
        self._label = ""

    async def write(self, *entries: Entry, about: Summarizer = noop) -> None:
        """
        Keep *entries*, and the summary that *about* gives.

        Raises `StoreConflict` where another process went on with this session.
        """
        # Encoded once: a retry writes the same bytes, only the summary depends on the number.
        encoded = [encode_entry(entry) for entry in entries]
        async with self._writing:
            while not await self._append(encoded, about):
                # Another process added an entry first. It cannot change what the owner writes, so the same
                # entries go behind it.
                pass

    async def add(self, entry: ConcurrentEntry, about: Summarizer = noop) -> bool:
        """
        Keep *entry*; False where another process added one first, which is taken up now.

        The caller then decides anew. Raises `StoreConflict` as `write` does.
        """
        # Read before the lock: what arrives while this waits may be the same input from another process, and
        # writing it again would run a prompt twice.
        encoded, known = encode_entry(entry), self._taken_up
        async with self._writing:
            return self._taken_up == known and await self._append([encoded], about)

    async def _append(self, encoded: Sequence[bytes], about: Summarizer) -> bool:
        """Append *encoded*; False where it was refused, and the foreign entries are taken up."""
        summary = about(self.length + len(encoded) - 1)
        key = self.summarized if summary is None else summary.key
        # A row is written only where a list of sessions would show something else: most steps change nothing.
        row = None if summary is None or key == self.summarized else encode(summary, SessionSummary)
        try:
            self.length = await self.store.append(self.session, self.length, encoded, row)
        except StoreConflict as conflict:
            await self._catch_up(conflict)
            return False
        # Only now: a refused append wrote no row either.
        self.summarized = key
        return True

    def passed(self, count: int) -> None:
        """Skip *count* entries that other processes wrote, each with a summary of its own."""
        if count:
            self.length += count
            # Their row may lack what is known here, so the next write gives one again.
            self.summarized = None

    async def look(self) -> None:
        """Take in the entries of other processes. Raises `StoreConflict` as `write` does."""
        async with self._writing:
            await self._catch_up(None)

    async def _catch_up(self, conflict: StoreConflict | None) -> None:
        """Take in the entries added since; raise *conflict*, where there is one, if there are none."""
        news = await self.store.load(self.session, self.length)
        added: list[ConcurrentEntry] = []
        for number, data in enumerate(news, self.length):
            entry = decode_entry(data, f"entry {number} of session {self.session!r}")
            # A step, a takeover or a branch: another process is the owner. Checked for all entries before
            # one is applied, so that a loser does not act on half of them.
            if not isinstance(entry, ConcurrentEntry):
                raise conflict or StoreConflict(self.session, self.length, self.length + len(news))
            added.append(entry)
        # A conflict without news is a journal that became shorter: it was deleted. Trying again cannot help.
        if conflict is not None and not news:
            raise conflict
        self.passed(len(news))
        self._taken_up += len(news)
        # Last: a listener may post at once, and must find the length that the store has.
        for entry in added:
            self._arrived(entry)

    async def applied(self, event: Event, label: str, about: Summarizer = noop) -> None:
        """Keep *event*, which led to the state *label*; a piece of a stream waits for the next event."""
        # Progress changes no state, and a chatty tool would fill the store with it.
        if isinstance(event, ToolProgressed):
            return
        # A crash loses the pieces of one answer, and the request is then sent again: far cheaper than an
        # append for every delta.
        if isinstance(event, ModelStreamed):
            self._streamed.append(event)
            self._label = label
            return
        await self.write(*self._held_back(), Stepped(event=event, label=label), about=about)

    async def flush(self) -> None:
        """Keep the pieces of a stream that is being left."""
        if self._streamed:
            await self.write(*self._held_back())

    def _held_back(self) -> list[Stepped]:
        """The pieces held back, as one entry with neighbours merged."""
        if not self._streamed:
            return []
        whole = joined(self._streamed)
        # Emptied before the write: where it fails the run is over here, and no later flush may try again.
        self._streamed = []
        # `count` stays the number of pieces as they came: the next one is checked against it.
        pieces = attrs.evolve(whole, pieces=merged(whole.pieces))
        return [Stepped(event=pieces, label=self._label)]
