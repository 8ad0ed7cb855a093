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
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, Generic, TypeVar, final

import attrs

from .forks import renew_in_child

T = TypeVar("T")

# Functions of one pool that run in threads at once.
MAX_THREADS = 32

# Seconds that async work gets to end after it was asked to: a process to be ended needs about one.
GRACE = 2.0

# Seconds for which async work may keep its event loop, and with it every session there, before that is told.
BLOCKED = 1.0


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
        try:
            await _over(task)
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


async def _over(work: asyncio.Future[Any], seconds: float | None = None) -> None:
    """Wait until *work* is over, *seconds* at most; a cancellation ends the wait and not the work."""
    # A cancellation reaches the future that a task awaits, so the work is not awaited itself. By hand and not
    # with `asyncio.wait`, which takes a tenth of the time that an append to a store does.
    loop = asyncio.get_running_loop()
    beside: asyncio.Future[object] = loop.create_future()
    settle = partial(_settle, beside)
    alarm = None if seconds is None else loop.call_later(seconds, settle, None)
    work.add_done_callback(settle)
    try:
        await beside
    finally:
        work.remove_done_callback(settle)
        if alarm is not None:
            alarm.cancel()


def _settle(future: asyncio.Future[Any], value: object) -> None:
    if not future.done():  # it was cancelled meanwhile
        future.set_result(value)


@final
@attrs.frozen
class Work(Generic[T]):
    """A function under way: *stop* asks it to end, *abandon* leaves it to itself."""

    ended: asyncio.Future[T]
    stop: Callable[[], object]
    abandon: Callable[[], object]

    async def result(self, seconds: float | None = None, grace: float = 0.0) -> T:
        """What it ends with; raises the last of the reasons that `outlast` gives, if it gives any."""
        if reasons := await self.outlast(seconds, grace):
            raise reasons[-1]
        return self.ended.result()

    async def outlast(self, seconds: float | None, grace: float) -> list[BaseException]:
        """
        Wait for its end; return why we waited no longer: nothing, `TimeoutError`, or cancellations of ours.

        After *seconds*, and when the caller is cancelled, it is stopped, awaited for *grace* seconds, and
        abandoned. A second cancellation ends that wait. None of them counts for the caller any more.
        """
        shield, reasons = CancelShield(), list[BaseException]()
        for limit, give_up in ((seconds, self.stop), (grace, self.abandon)):
            try:
                await _over(self.ended, limit)
            except asyncio.CancelledError as error:
                reasons.append(error)
                shield.absorb()
            if self.ended.done():
                break
            reasons = reasons or [TimeoutError()]
            give_up()
        return reasons


@final
class _TimedSteps(Coroutine[Any, Any, T]):
    """
    The steps of *work* between two awaits, which keep the event loop; what it awaits does not.

    *blocked* is told how long the first took that kept it for `BLOCKED` seconds.
    """

    # A thread that looks at the loop would tell earlier, and of work that never ends. But to start one costs
    # a call a hundred times what looks at the clock do, and one that stayed would outlive the loop.
    def __init__(self, work: Coroutine[Any, Any, T], blocked: Callable[[float], object] | None) -> None:
        self._work = work
        self._blocked = blocked

    def __await__(self) -> Generator[Any, Any, T]:
        return self._work.__await__()  # a task does not: it takes the steps below

    def send(self, value: object) -> Any:  # noqa: ANN401  # whatever it awaits
        return self._timed(self._work.send, value)

    def throw(self, *error: Any) -> Any:  # noqa: ANN401  # as the protocol of generators has it
        return self._timed(self._work.throw, *error)

    def close(self) -> None:
        self._work.close()

    def _timed(self, step: Callable[..., object], *given: object) -> object:
        began = monotonic()
        try:
            return step(*given)
        finally:
            seconds = monotonic() - began
            if seconds >= BLOCKED and self._blocked is not None:
                tell, self._blocked = self._blocked, None
                tell(seconds)


@final
class WorkerPool:
    """
    Starts functions; it may do so in one event loop after another.

    At most *threads* run at once in threads, those abandoned not counted; others wait their turn.
    """

    def __init__(self, threads: int = MAX_THREADS) -> None:
        self._limit = threads
        self._abandoned: set[asyncio.Future[Any]] = set()
        self._renew()
        renew_in_child(self, WorkerPool._renew)

    def _renew(self) -> None:
        """Begin without any work, as in a forked child, which has none of the threads."""
        self._lock = threading.Lock()
        # Functions, each by the future of its end, in the order in which they came.
        self._waiting: dict[asyncio.Future[Any], Callable[[], object]] = {}
        self._running: set[asyncio.Future[Any]] = set()

    def start(
        self,
        function: Callable[[], Any],
        name: str | None,
        returned: Callable[[object], T],
        raised: Callable[[BaseException], T],
        blocked: Callable[[float], object] | None = None,
    ) -> Work[T]:
        """
        Set *function* to work: one with a *name* is a task and is awaited, any other runs in a thread.

        The work ends with what *returned* makes of its value, or *raised* of its error, and never raises.
        *blocked* is told, once, how long a task kept the event loop, if it was for `BLOCKED` seconds. Raises
        `RuntimeError` where the system has no more threads.
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

        if name is None:
            return self.thread(call)
        task = asyncio.create_task(_TimedSteps(call_async(), blocked), name=name)
        return Work(task, task.cancel, partial(self._leave, task))

    def thread(self, function: Callable[[], T]) -> Work[T]:
        """Call *function*, which must not raise, in a thread; raises `RuntimeError` as `start` does."""
        ended: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._waiting[ended] = partial(contextvars.copy_context().run, function)
            try:
                self._spawn()
            except RuntimeError:
                if not self._running:  # else a thread that runs will come to it
                    del self._waiting[ended]
                    raise
        return Work(ended, partial(self._withdraw, ended), partial(self._free, ended))

    def _leave(self, task: asyncio.Future[Any]) -> None:
        # The event loop holds its tasks weakly: an abandoned one could be collected before it ends.
        self._abandoned.add(task)
        task.add_done_callback(self._abandoned.discard)

    def _withdraw(self, ended: asyncio.Future[Any]) -> None:
        """Cancel a function that has not begun; one that runs in a thread cannot be stopped."""
        with self._lock:
            begun = self._waiting.pop(ended, None) is None
        if not begun:
            ended.cancel()

    def _free(self, ended: asyncio.Future[Any]) -> None:
        """Give the place of a function, if it still has one, to the next."""
        with self._lock:
            # A thread that hung and ends at last has lost its place already: giving it away twice would let
            # more than the limit run.
            if ended in self._running:
                self._running.remove(ended)
                with suppress(RuntimeError):  # the next one that ends or comes tries again
                    self._spawn()

    def _spawn(self) -> None:
        """Start threads for waiting functions while there is room; called with the lock held."""
        while self._waiting and len(self._running) < self._limit:
            ended, function = next(iter(self._waiting.items()))
            # A daemon, and not of `concurrent.futures`: the interpreter would wait at its exit for a tool
            # that hangs.
            do = partial(self._run, ended, function)
            threading.Thread(target=do, name="turnwheel-work", daemon=True).start()
            del self._waiting[ended]
            self._running.add(ended)

    def _run(self, ended: asyncio.Future[Any], function: Callable[[], object]) -> None:
        value = function()
        with suppress(RuntimeError):  # the loop is closed, so no task waits
            ended.get_loop().call_soon_threadsafe(_settle, ended, value)
        self._free(ended)
