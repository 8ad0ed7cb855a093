"""A clock that stands still until it is told otherwise."""

from __future__ import annotations

import asyncio
from typing import final


@final
class FakeClock:
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
