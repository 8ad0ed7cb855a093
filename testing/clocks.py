"""Clocks that move only when a test, or the code that it runs, moves them."""

from __future__ import annotations

import asyncio
from typing import final


@final
class AutoClock:
    """
    A clock that starts at *now* and moves when code sleeps, so waits cost nothing.

    Times are seconds since the epoch. `slept` lists the waits, in seconds.
    """

    def __init__(self, now: float = 0.0) -> None:
        self._now = now
        self.slept: list[float] = []

    def now(self) -> float:
        """The time, in seconds since the epoch."""
        return self._now

    def move(self, seconds: float) -> None:
        """Let *seconds* pass."""
        self._now += seconds

    async def sleep_until(self, due: float) -> None:
        """Move to *due*, and let other tasks run."""
        await asyncio.sleep(0)
        if due > self._now:
            self.slept.append(due - self._now)
            self._now = due


@final
class ManualClock:
    """A clock that only a test moves, from *now* on; a sleeper wakes when its time has come."""

    def __init__(self, now: float = 100.0) -> None:
        self._now = now
        self._moved = asyncio.Event()

    def now(self) -> float:
        """The time, in seconds since the epoch."""
        return self._now

    def move(self, seconds: float) -> None:
        """Let *seconds* pass."""
        self._now += seconds
        self._moved.set()
        self._moved = asyncio.Event()

    async def sleep_until(self, due: float) -> None:
        """Return when `now` is at or past *due*."""
        while self._now < due:
            await self._moved.wait()
