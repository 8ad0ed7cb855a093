"""
Work that can be left behind: an async function as a task of its own, any other as a job in a thread.

Either can be asked to stop and nothing makes it. So whoever started it waits for its end beside it, and goes
on without it when that takes too long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, TypeVar, final

import attrs

from .threads import Threads

T = TypeVar("T")


@final
@attrs.frozen
class Work(Generic[T]):
    """Something under way: *stop* asks it to end, *abandon* leaves it to itself."""

    ended: asyncio.Future[T]
    stop: Callable[[], object]
    abandon: Callable[[], object]

    async def result(self, seconds: float | None = None, *, grace: float = 0.0) -> T:
        """
        What it ends with, if that is within *seconds*; raises `TimeoutError` where it is not.

        Then, and when we are cancelled, it is stopped, waited for as long as *grace*, and left to itself. A
        second cancellation ends that wait.
        """
        try:
            in_time, _ = await asyncio.wait({self.ended}, timeout=seconds)
        except asyncio.CancelledError:
            await self._end(grace)
            raise
        if not in_time:
            await self._end(grace)
            raise TimeoutError
        return self.ended.result()

    async def _end(self, grace: float) -> None:
        self.stop()
        try:
            await asyncio.wait({self.ended}, timeout=grace)
        finally:
            if not self.ended.done():
                self.abandon()


@final
class Crew:
    """
    Starts work that must not raise; it may do so in one event loop after another.

    At most *threads* functions run at once in threads, those abandoned not counted; others wait their turn.
    """

    def __init__(self, threads: int) -> None:
        self._threads = Threads(threads)
        self._abandoned: set[asyncio.Future[Any]] = set()

    def task(self, work: Coroutine[Any, Any, T], name: str) -> Work[T]:
        """Let *work* run in a task called *name*."""
        task = asyncio.create_task(work, name=name)
        return Work(task, task.cancel, partial(self._leave, task))

    def thread(self, function: Callable[[], T]) -> Work[T]:
        """Call *function* in a thread. Raises `RuntimeError` where the system has no more of them."""
        job = self._threads.submit(function)
        return Work(job.ended, job.withdraw, job.abandon)

    def _leave(self, task: asyncio.Future[Any]) -> None:
        """Hold on to *task*, which the event loop alone would let go of, until it ends."""
        self._abandoned.add(task)
        task.add_done_callback(self._abandoned.discard)
