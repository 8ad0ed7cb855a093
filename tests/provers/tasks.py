"""Tasks of an event loop, let run and counted turn by turn: nothing waits for time to pass."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

PATIENCE = 3_000
"""Turns of the event loop after which whatever has not ended hangs."""


async def turns(count: int, until: Callable[[], bool] = lambda: False) -> bool:
    """Let others run for *count* turns of the event loop, or *until* something holds; whether it does."""
    for _ in range(count):
        if until():
            return True
        await asyncio.sleep(0)
    return until()


def at_work() -> set[asyncio.Task[Any]]:
    """The tasks that are there besides the one that asks."""
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


async def ended(work: Awaitable[None]) -> BaseException | None:
    """What *work* raised, if anything; a `TimeoutError` where it hangs."""
    task = asyncio.ensure_future(work)
    if not await turns(PATIENCE, task.done):
        task.cancel()
        await turns(PATIENCE, task.done)
        return TimeoutError(f"hangs after {PATIENCE} turns")
    return asyncio.CancelledError() if task.cancelled() else task.exception()
