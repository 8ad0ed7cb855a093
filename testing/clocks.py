"""Clocks that stand still until they are told otherwise."""

from __future__ import annotations

import asyncio
from typing import final


@final
class AutoClock:
    """
    Time for tests: it starts at *now*, in seconds since the epoch, and moves only when somebody sleeps.

    Whoever sleeps until a later time moves the clock there at once, so waits cost nothing and are seen in
    `slept`, in seconds.
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
        """Move to *due*, and let others run."""
        await asyncio.sleep(0)
        if due > self._now:
            self.slept.append(due - self._now)
            self._now = due


@final
class ManualClock:
    """Time that only a test moves, from *now* on: whoever sleeps is woken when their time has come."""

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
