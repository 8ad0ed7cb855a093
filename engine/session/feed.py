"""
Publishes the notices of a session: to its subscribers, and to those who follow its runs.

Theory of operation. The worker publishes the notices of each step, each with its position in the journal. No
reader can make it wait.
"""

from __future__ import annotations

import asyncio
from sys import maxsize
from typing import TYPE_CHECKING, Protocol, final
from weakref import WeakSet

from ...effects.errors import ConfigError
from ...effects.notices import PASSING, Notice
from .subscription import Position, Subscription

if TYPE_CHECKING:
    from collections.abc import Iterable

# A place behind all notices of an entry.
BEHIND = maxsize

# Notices that a subscriber may lag behind by default: about a second of streamed text.
SUBSCRIBER_BUFFER = 64


class Reader(Protocol):
    """Gets the notices of a feed."""

    @property
    def behind(self) -> bool:
        """Whether a task waits here that has had no turn yet to read what fills the buffer."""
        ...

    def put(self, notice: Notice, at: Position | None = None) -> None:
        """Take *notice*, which stands *at* that position; never waits."""
        ...

    def end(self) -> None:
        """Take no more notices."""
        ...


@final
class Feed:
    """
    Passes notices on to subscribers, each with a buffer of *size* notices.

    A full buffer drops deltas first, and what says how a run ended never. All methods belong to
    one event loop.
    """

    __slots__ = ("_at", "_awaited", "_closed", "_readers", "_size", "used")

    def __init__(self, size: int = SUBSCRIBER_BUFFER) -> None:
        # `True` is an int, and a buffer of one notice is hardly what its caller wants.
        if type(size) is not int or size < 1:
            msg = f"Feed.size must be a whole number above 0; got {size!r}"
            raise ConfigError(msg)
        self._size = size
        self._closed = False
        # The position of the latest notice that has one.
        self._at: Position | None = None
        # Whether it ever had a subscriber: most sessions have none, and publish many notices.
        self.used = False
        # Weak: a subscriber that broke out of its loop and never closed must not be fed for ever. Like the
        # next, made for the first one: of a thousand sessions that wait here, most have none.
        self._readers: WeakSet[Reader] | tuple[()] = ()
        # Strong while a task waits: nothing else need hold a task whose only wish is the next notice.
        self._awaited: set[Subscription] | None = None

    def subscribe(self) -> Subscription:
        """A subscription to the notices from now on; on a closed feed, an empty one."""
        # Not an error: a subscriber may come a moment after the end, and has nothing to handle then.
        if self._awaited is None:
            self._awaited = set()
        subscription = Subscription(self._size, self._awaited)
        self.attach(subscription)
        return subscription

    def attach(self, reader: Reader) -> None:
        """Pass notices on to *reader* from now on, for as long as something else holds it."""
        if self._closed:
            reader.end()
            return
        if isinstance(self._readers, tuple):
            self._readers = WeakSet()
        self._readers.add(reader)
        self.used = True

    async def pass_on(self, notices: Iterable[Notice], entry: int | None) -> None:
        """Publish *notices*; a reader that waits gets a turn of the loop before it misses one."""
        for notice in notices:
            if any(reader.behind for reader in self._readers):
                await asyncio.sleep(0)
            self.publish(notice, entry)

    def publish(self, notice: Notice, entry: int | None = None) -> None:
        """Pass *notice* on, of the journal's *entry*; no subscriber can make this wait or fail."""
        at = None if entry is None else self._position(notice, entry)
        # In the order of the run's own stream: it comes here before the caller gets it.
        for reader in self._readers:
            reader.put(notice, at)

    def _position(self, notice: Notice, entry: int) -> Position:
        """Where *notice* stands; one that no journal has stands behind the notice before it."""
        if isinstance(notice, PASSING):
            return (entry, BEHIND) if self._at is None else max(self._at, (entry, -1))
        # Too low for the rest of an entry of which only a part came through here. What subscribes meanwhile
        # finds all of it in the journal.
        place = self._at[1] + 1 if self._at is not None and self._at[0] == entry else 0
        self._at = entry, place
        return self._at

    def close(self) -> None:
        """End every subscription after its unread notices. Closing twice is fine."""
        self._closed = True
        for reader in self._readers:
            reader.end()
        self._readers = ()
