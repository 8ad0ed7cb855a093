"""Runs async work for callers that are not async, and leaves behind what does not end."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Coroutine
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar

T = TypeVar("T")

# Seconds that what is still at work when the run is over gets to end: tasks, generators, and then threads.
LEAVE_WITHIN = 2.0


def run_in_thread(work: Coroutine[Any, Any, T]) -> T:
    """
    Run *work* in a thread and an event loop of its own, with the caller's context variables.

    Ctrl-C cancels the work; it has ended when `KeyboardInterrupt` is raised here, and a second Ctrl-C does
    not wait for it. What is at work beside it is cancelled at its end, and left behind with a
    `RuntimeWarning` that names it where it does not end within `LEAVE_WITHIN` seconds.
    """
    # Of `concurrent.futures`, not asyncio: two threads meet here.
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[T]]] = Future()
    over: Future[T] = Future()
    both: tuple[Any, ...] = (started, over)
    left = list[str]()
    # Ctrl-C may come while the thread is being started, which then runs or does not. Who has this first
    # decides that.
    begins = threading.Lock()

    def run() -> None:
        if begins.acquire(blocking=False):
            try:
                over.set_result(_run(work, started, left))
            except BaseException as error:  # noqa: BLE001  # raised below, also the `SystemExit` of a tool
                over.set_exception(error)

    # A thread, because the caller may stand in a running loop (a notebook), where `asyncio.run` is refused.
    # A daemon, so that work which never gives the loop back does not hold up the end of the process.
    thread = threading.Thread(target=copy_context().run, args=(run,), name="turnwheel-run", daemon=True)
    try:
        thread.start()
        return over.result()
    except KeyboardInterrupt:
        # The end is waited for in any case: tools may be writing files, and the caller must not go on while
        # they do.
        if begins.acquire(blocking=False):
            work.close()
        else:
            wait(both, return_when=FIRST_COMPLETED)
            if started.done():
                _cancel(*started.result())
            wait([over])
        raise
    finally:
        if over.done():
            thread.join()
        # Here and not in the thread, so that the warning names the caller's line.
        for fault in left:
            warnings.warn(fault, RuntimeWarning, stacklevel=3)


def _cancel(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
    with suppress(RuntimeError):  # the loop was closed meanwhile
        loop.call_soon_threadsafe(task.cancel)


def _run(
    work: Coroutine[Any, Any, T],
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[T]]],
    left: list[str],
) -> T:
    """The value of *work*, in a new event loop; what does not end with it is noted in *left*."""
    # Not `asyncio.run`, which waits for ever for a task that ignores its cancellation, and for its threads.
    loop, threads = asyncio.new_event_loop(), ThreadPoolExecutor(thread_name_prefix="turnwheel-executor")
    loop.set_default_executor(threads)
    try:
        task = loop.create_task(work)
        started.set_result((loop, task))
        try:
            return _until(loop, task)
        except (SystemExit, KeyboardInterrupt):
            # Of a task that a tool made, for which the loop stopped: the run ends first, with its account.
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    _until(loop, task)
            raise
    finally:
        left += _leave(loop, threads)


def _until(loop: asyncio.AbstractEventLoop, task: asyncio.Future[T]) -> T:
    """The value of *task*, which *loop* runs to its end."""
    while True:
        try:
            return loop.run_until_complete(task)
        except RuntimeError:
            # A tool stopped the loop. It is ours alone, so it goes on.
            if task.done() or loop.is_closed():
                raise


def _leave(loop: asyncio.AbstractEventLoop, threads: ThreadPoolExecutor) -> list[str]:
    """Close *loop* and its *threads*; what is wrong with those that are still at work."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    left = _ended(loop, tasks)
    left += _ended(loop, {loop.create_task(loop.shutdown_asyncgens(), name="an async generator")})
    # By a thread, since no call that waits for a thread pool takes a timeout.
    ends = threading.Thread(target=threads.shutdown, name="turnwheel-executor-end", daemon=True)
    ends.start()
    ends.join(LEAVE_WITHIN)
    loop.close()
    if ends.is_alive():
        told = f"a function in the event loop's executor: it was left behind after {LEAVE_WITHIN:g} s"
        left.append(f"{told}; let it end when its tool does")
    return left


def _ended(loop: asyncio.AbstractEventLoop, tasks: set[asyncio.Task[Any]]) -> list[str]:
    """Run *loop* until *tasks* have ended, for a bounded time; what is wrong with those that have not."""
    if not tasks:
        return []
    _, pending = _until(loop, loop.create_task(asyncio.wait(tasks, timeout=LEAVE_WITHIN)))
    if pending:
        # Told once, by the warning. asyncio would report them again where they are collected.
        loop.set_exception_handler(_but_those_left)
    # The task of a tool is named after it.
    told = f"it ignored its cancellation for {LEAVE_WITHIN:g} s and was left behind; let CancelledError pass"
    return sorted(f"{task.get_name()}: {told}" for task in pending)


def _but_those_left(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report *context* as *loop* does, but for a pending task that is collected: it was left behind."""
    task = context.get("task")
    if not (isinstance(task, asyncio.Task) and "exception" not in context):
        loop.default_exception_handler(context)
