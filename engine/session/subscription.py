"""
A subscriber's notices, which never delay a run.

Theory of operation. The buffer is bounded, and drops deltas when it is full before anything else, since the
notice at the end of an answer has all of its text. It never drops what says how a run ended, and on which
inputs. A subscriber without references is collected with its buffer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import final

from ...effects.notices import OUTCOMES, Notice, NoticesMissed, TurnEnded, is_delta

# Where a notice stands in a journal: the number of its entry, and its place among the notices of that.
Position = tuple[int, int]


@final
class Subscription:
    """
    The notices for one subscriber, from `Feed.subscribe` on. Leave with ``async with`` or `aclose`.

    *dropped* counts those that this subscriber was too slow for, and a `NoticesMissed` stands in their place.
    A cancel while it waits ends it: put a time limit around the loop, not around each notice. So does
    dropping the last reference to it.
    """

    def __init__(self, size: int, awaited: set[Subscription]) -> None:
        self.dropped = 0
        # Where in the journal the notice stands that was read last.
        self.at: Position | None = None
        # Up to *size* unread notices and any number of outcomes; with each, how many were missed
        # just before it, and its position.
        self._waiting: deque[tuple[int, Notice, Position | None]] = deque()
        # Those missed after the last one here, and when the latest of them came.
        self._missed = 0
        self._missed_at = 0.0
        self._size = size
        self._awaited = awaited
        self._over = False
        self._news = asyncio.Event()

    @property
    def behind(self) -> bool:
        """Whether a task waits here that has had no turn yet to read what fills the buffer."""
        return self._full and self in self._awaited

    @property
    def _full(self) -> bool:
        return len(self._waiting) >= self._size

    def put(self, notice: Notice, at: Position | None = None) -> None:
        """Keep *notice* if there is room, or if it counts for more than one that is here; *at* says where."""
        if self._over:
            return
        if not self._full or self._makes_room(notice):
            self._waiting.append((self._missed, notice, at))
            self._missed = 0
            self._wake()
        else:
            self.dropped += 1
            self._missed += 1
            self._missed_at = notice.at

    def _makes_room(self, notice: Notice) -> bool:
        """Whether *notice* comes in although the buffer is full; another one may have to go."""
        # Of deltas the new one is dropped: a subscriber that reads on finds one gap, and not a window that
        # slides away under it.
        if is_delta(notice):
            return False
        places = range(len(self._waiting))
        place = next((at for at in places if is_delta(self._waiting[at][1])), None)
        outcome = isinstance(notice, OUTCOMES)
        if place is None and outcome:
            place = next((at for at in places if not isinstance(self._waiting[at][1], OUTCOMES)), None)
        if place is None and isinstance(notice, TurnEnded) and isinstance(self._waiting[-1][1], TurnEnded):
            # The last answer counts. A long run grows the buffer no further.
            place = len(self._waiting) - 1
        if place is not None:
            before, gone, _ = self._waiting[place]
            missed = before + 1
            del self._waiting[place]
            self.dropped += 1
            if place < len(self._waiting):
                before, following, at = self._waiting[place]
                self._waiting[place] = before + missed, following, at
            else:
                self._missed += missed
                self._missed_at = gone.at
        # Outcomes must arrive: a caller that waits for one would wait for ever. Where all are, the buffer
        # grows by a few notices for each unread run.
        return outcome or place is not None

    def end(self) -> None:
        """Take no more notices; the ones here can still be read."""
        self._over = True
        self._wake()

    def reopen(self) -> None:
        """Take notices again, after an end."""
        self._over = False

    def _wake(self) -> None:
        # A reader in an event loop that was closed cannot be woken, and must not keep the others from it.
        with suppress(RuntimeError):
            self._news.set()

    async def aclose(self) -> None:
        """End the subscription and discard unread notices. A task that waits here gets its end."""
        self._leave()

    # Not async: a cancelled task must be able to leave without another await.
    def _leave(self) -> None:
        self.end()
        self._waiting.clear()
        self._missed = 0

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Notice:
        try:
            notice = await self.next()
        except asyncio.CancelledError:
            # The caller that cancels rarely comes back, and would keep a buffer filling.
            self._leave()
            raise
        if notice is None:
            raise StopAsyncIteration
        return notice

    async def next(self) -> Notice | None:
        """The next notice, None at the end; unlike the loop, a cancel here ends nothing."""
        # A loop: another task of the same subscription may take the notice first. Notices come before the
        # end, so a subscriber sees all of a session that was closed.
        while not (self._waiting or self._missed):
            if self._over:
                return None
            self._news.clear()
            # Keeps this alive while a task waits in it: the feed itself holds it weakly.
            self._awaited.add(self)
            try:
                await self._news.wait()
            finally:
                self._awaited.discard(self)
        missed, notice, at = self._waiting[0] if self._waiting else (self._missed, None, None)
        if notice is None:
            self._missed = 0
            return NoticesMissed(at=self._missed_at, count=missed)
        if missed:
            self._waiting[0] = 0, notice, at
            return NoticesMissed(at=notice.at, count=missed)
        self._waiting.popleft()
        self.at = at
        return notice

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._leave()
