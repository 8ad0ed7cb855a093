"""
Work that can be left behind, and tasks that finish what they owe although they are cancelled.

Theory of operation. An async function runs as a task of its own, any other in a thread. Both can be asked to
stop, and nothing makes them. So a caller waits for the end beside the work, and goes on without it when that
takes too long.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar, final

import attrs

T = TypeVar("T")

# Functions of one pool that run in threads at once.
MAX_THREADS = 32

# Seconds that async work gets to end after it was asked to: a process to be ended needs about one.
GRACE = 2.0


@final
class CancelShield:
    """For a task that takes a cancellation as an order and still has its answer to give."""

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        # A task may be in the middle of being cancelled already. That is its caller's, and stays counted.
        self._before = 0 if self._task is None else self._task.cancelling()

    def absorb(self) -> None:
        """Forget the cancellations since this was made, so that the task can await again."""
        # Several may have come before one `CancelledError` was raised. A count that is left over would make
        # an `asyncio.timeout` around us take its own end for a cancellation from outside.
        while self._task is not None and self._task.cancelling() > self._before:
            self._task.uncancel()


async def finish(
    work: Awaitable[T], on_cancel: Callable[[asyncio.CancelledError], object] | None = None
) -> T:
    """
    Await *work* to its end, however often the caller is cancelled meanwhile.

    Without *on_cancel*, the cancellation is raised once the work is done; an error of the work goes first.
    With it, each cancellation is handed to it and absorbed. It may raise, which ends the wait.
    """
    shield, cancelled = CancelShield(), None
    task = asyncio.ensure_future(work)
    while not task.done():
        # A cancellation reaches the future that a task awaits, so the work is not awaited itself. By hand
        # and not with `asyncio.wait`, which takes a tenth of the time that an append to a store does.
        beside: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task.add_done_callback(partial(_resolve, beside))
        try:
            await beside
        except asyncio.CancelledError as error:
            if on_cancel is None:
                cancelled = error
            else:
                on_cancel(error)
                shield.absorb()
    result = task.result()
    if cancelled is not None:
        raise cancelled
    return result


def _resolve(waiter: asyncio.Future[None], _: object) -> None:
    if not waiter.done():
        waiter.set_result(None)


@final
@attrs.frozen
class Work(Generic[T]):
    """A function under way: *stop* asks it to end, *abandon* leaves it to itself."""

    ended: asyncio.Future[T]
    stop: Callable[[], object]
    abandon: Callable[[], object]

    async def result(self, seconds: float | None = None, *, grace: float = 0.0) -> T:
        """
        What it ends with, if that is within *seconds*; raises `TimeoutError` where it is not.

        Then, and when the caller is cancelled, it is stopped, awaited for *grace* seconds, and abandoned. A
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
    Starts functions; it may do so in one event loop after another.

    At most *threads* run at once in threads, those abandoned not counted; others wait their turn.
    """

    def __init__(self, threads: int = MAX_THREADS) -> None:
        self._limit = threads
        self._lock = threading.Lock()
        self._waiting: deque[_Job[Any]] = deque()
        self._running: set[_Job[Any]] = set()
        self._abandoned: set[asyncio.Future[Any]] = set()

    def start(
        self,
        function: Callable[[], Any],
        name: str | None,
        returned: Callable[[object], T],
        raised: Callable[[BaseException], T],
    ) -> Work[T]:
        """
        Set *function* to work: one with a *name* is a task and is awaited, any other runs in a thread.

        The work ends with what *returned* makes of its value, or *raised* of its error, and never raises.
        Raises `RuntimeError` where the system has no more threads.
        """

        # Both are the host's code, and both run where the function did: turning ten megabytes to text in the
        # event loop would hold up every session. `BaseException`, since `sys.exit()` must not end the
        # service.
        def call() -> T:
            try:
                return returned(function())
            except BaseException as error:  # noqa: BLE001  # as said
                return raised(error)

        async def call_async() -> T:
            try:
                return returned(await function())
            except BaseException as error:  # noqa: BLE001  # as said
                return raised(error)

        return self.thread(call) if name is None else self._task(call_async(), name)

    def thread(self, function: Callable[[], T]) -> Work[T]:
        """Call *function*, which must not raise, in a thread; raises `RuntimeError` as `start` does."""
        job = _Job(function)
        with self._lock:
            self._waiting.append(job)
            try:
                self._spawn()
            except RuntimeError:
                if not self._running:  # else a thread that runs will come to it
                    self._waiting.remove(job)
                    raise
        return Work(job.ended, partial(self._withdraw, job), partial(self._free, job))

    def _task(self, work: Coroutine[Any, Any, T], name: str) -> Work[T]:
        task = asyncio.create_task(work, name=name)
        return Work(task, task.cancel, partial(self._leave, task))

    def _leave(self, task: asyncio.Future[Any]) -> None:
        # The event loop holds its tasks weakly: an abandoned one could be collected before it ends.
        self._abandoned.add(task)
        task.add_done_callback(self._abandoned.discard)

    def _withdraw(self, job: _Job[Any]) -> None:
        """Cancel *job* if it has not begun; a function that runs in a thread cannot be stopped."""
        with self._lock:
            if job not in self._waiting:
                return
            self._waiting.remove(job)
        job.ended.cancel()

    def _free(self, job: _Job[Any]) -> None:
        """Give the place of *job*, if it still has one, to the next."""
        with self._lock:
            # A thread that hung and ends at last has lost its place already: giving it away twice would let
            # more than the limit run.
            if job in self._running:
                self._running.remove(job)
                with suppress(RuntimeError):  # the next job that ends or comes tries again
                    self._spawn()

    def _spawn(self) -> None:
        """Start threads for waiting jobs while there is room; called with the lock held."""
        while self._waiting and len(self._running) < self._limit:
            job = self._waiting[0]
            # A daemon, and not of `concurrent.futures`: the interpreter would wait at its exit for a tool
            # that hangs.
            threading.Thread(target=self._run, args=(job,), name="turnwheel-work", daemon=True).start()
            self._waiting.popleft()
            self._running.add(job)

    def _run(self, job: _Job[Any]) -> None:
        job.run()
        self._free(job)


@final
class _Job(Generic[T]):
    """A function on its way through a thread. *ended* gets its value, in the event loop that asked for it."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._context = contextvars.copy_context()
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[T] = self._loop.create_future()

    def run(self) -> None:
        value = self._context.run(self._function)
        with suppress(RuntimeError):  # the loop is closed, so no task waits
            self._loop.call_soon_threadsafe(self._settle, value)

    def _settle(self, value: T) -> None:
        if not self.ended.done():  # it was cancelled while it waited for a thread
            self.ended.set_result(value)
