"""
Threads for functions that block: bounded in number, and never in the way.

They are daemon threads of our own, since those of `concurrent.futures` are joined when the interpreter
exits, and one function that hangs would hang the exit. A thread lives as long as there is work.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar, final

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
