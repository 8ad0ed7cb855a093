"""What is called first comes first, also where it has had no turn of the event loop yet."""

from __future__ import annotations

import asyncio
from typing import final


@final
class WaitingLine:
    """Places before a lock; one is taken without an await, and is first once those before it are left."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        # Each is set once it is first. Mostly there is none, in thousands of sessions.
        self._places: tuple[asyncio.Event, ...] = ()

    def join(self) -> asyncio.Event:
        """A place, taken now; to be left in any case."""
        place = asyncio.Event()
        self._places = (*self._places, place)
        self._places[0].set()
        return place

    def leave(self, place: asyncio.Event | None) -> None:
        """Give *place* up, for the next one; nothing for one that was given up before."""
        self._places = tuple([one for one in self._places if one is not place])
        if self._places:
            self._places[0].set()

    async def turn(self, mine: asyncio.Event | None = None) -> None:
        """Wait until the place *mine* is first, or else until what was called before has had its turn."""
        if mine is not None:
            await mine.wait()
            return
        place = self.join()
        try:
            await place.wait()
        finally:
            self.leave(place)
