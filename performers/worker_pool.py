"""
Work that can be left behind: an async function as a task of its own, any other as a job in a thread.

Either can be asked to stop and nothing makes it. So whoever started it waits for its end beside it, and goes
on without it when that takes too long.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, TypeVar, final

import attrs

# Threads for functions that block: bounded in number, and never in the way.


T = TypeVar("T")


@final
class Job(Generic[T]):
    """
    One function on its way through a thread. *ended* gets its value, in the event loop that submitted it.

    The function must not raise.
    """

    def __init__(self, threads: Threads, function: Callable[[], T]) -> None:
        self._threads = threads
        self._function = function
        self._context = contextvars.copy_context()
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[T] = self._loop.create_future()
        self.slot = False
        """Whether it counts among the running ones; guarded by the lock of the threads."""

    def run(self) -> None:
        """Call the function, in the thread this is called in."""
        value = self._context.run(self._function)
        with contextlib.suppress(RuntimeError):  # the loop is closed, nobody waits
            self._loop.call_soon_threadsafe(self._settle, value)

    def _settle(self, value: T) -> None:
        """Hand *value* over, in the event loop, unless nobody waits for it any more."""
        if not self.ended.done():
            self.ended.set_result(value)

    def withdraw(self) -> None:
        """Cancel *ended* if the function has not begun; a function that runs cannot be stopped."""
        if self._threads.remove(self):
            self.ended.cancel()

    def abandon(self) -> None:
        """Wait no longer: the thread, which may hang for good, makes room for another."""
        self._threads.free(self)


@final
class Threads:
    """At most *limit* jobs run at once, those abandoned not counted; others wait their turn."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._running = 0
        self._waiting: deque[Job[Any]] = deque()

    def submit(self, function: Callable[[], T]) -> Job[T]:
        """Run *function* in a thread, soon. Raises `RuntimeError` where the system has no more threads."""
        job = Job(self, function)
        with self._lock:
            self._waiting.append(job)
            try:
                self._spawn()
            except RuntimeError:
                if not self._running:  # otherwise a thread that runs will come to it
                    self._waiting.remove(job)
                    raise
        return job

    def remove(self, job: Job[Any]) -> bool:
        """Take *job* back if it waits; whether it did."""
        with self._lock:
            if job in self._waiting:
                self._waiting.remove(job)
                return True
            return False

    def free(self, job: Job[Any]) -> None:
        """Give the place of *job*, if it has one, to the next."""
        with self._lock:
            if job.slot:
                job.slot = False
                self._running -= 1
                with contextlib.suppress(RuntimeError):  # the next job that ends or comes tries again
                    self._spawn()

    def _spawn(self) -> None:
        """Start threads for waiting jobs while there is room; called with the lock held."""
        while self._waiting and self._running < self._limit:
            job = self._waiting[0]
            threading.Thread(target=self._work, args=(job,), name="turnwheel-work", daemon=True).start()
            self._waiting.popleft()
            job.slot = True
            self._running += 1

    def _work(self, job: Job[Any]) -> None:
        """What a thread does; the place of an abandoned job was given away already."""
        job.run()
        self.free(job)


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
class WorkerPool:
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
