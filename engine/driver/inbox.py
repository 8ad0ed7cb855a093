"""Where events wait for the driver: in order, with the pieces of a stream gathered."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import final

from ...effects.events import Event, ModelStreamed, joined
from ...performers.base import PassThroughNotice


@final
class Inbox:
    """
    A queue of events with one reader. Putting never blocks, and may be done from the event loop only.

    Pieces of one stream that wait next to each other come out as one event: however many deltas have been
    read from the network, they are one step.
    """

    def __init__(self) -> None:
        self._waiting: deque[Event | PassThroughNotice] = deque()
        self._reader: asyncio.Future[None] | None = None
        self.closed = False
        self._woken = False

    def put(self, event: Event | PassThroughNotice) -> None:
        """Add *event* behind the others."""
        self._waiting.append(event)
        self._set()

    def wake(self) -> None:
        """Let the reader look around, although there is nothing to read."""
        self._woken = True
        self._set()

    def close(self) -> None:
        """Give out nothing any more."""
        self.closed = True
        self._set()

    def _set(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    async def get(self) -> Event | PassThroughNotice | None:
        """The next event; waits for one. None when it is closed, or when it is woken where there is none."""
        while not (self._waiting or self.closed or self._woken):
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        self._woken = False
        if self.closed or not self._waiting:
            return None
        first = self._waiting.popleft()
        return self._gathered(first) if isinstance(first, ModelStreamed) else first

    def _gathered(self, first: ModelStreamed) -> ModelStreamed:
        run = [first]
        expected = first.before + first.count
        while self._waiting:
            following = self._waiting[0]
            if not isinstance(following, ModelStreamed) or following.before != expected:
                break
            if following.request != first.request:
                break
            expected += following.count
            run.append(following)
            self._waiting.popleft()
        return joined(run)
