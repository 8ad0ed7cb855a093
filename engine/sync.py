"""Runs async work for callers that are not async."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


def run_in_thread(work: Coroutine[Any, Any, T]) -> T:
    """
    Run *work* in a thread and an event loop of its own, with the caller's context variables.

    Ctrl-C cancels the work; it has ended when `KeyboardInterrupt` is raised here.
    """
    # Of `concurrent.futures`, not asyncio: two threads meet here.
    done: Future[T] = Future()
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Future[T]]] = Future()

    async def watched() -> T:
        # A task of its own, so that an interrupt can cancel the work and let `asyncio.run` clean up.
        task = asyncio.ensure_future(work)
        started.set_result((asyncio.get_running_loop(), task))
        return await task

    def target() -> None:
        try:
            done.set_result(asyncio.run(watched()))
        # Also `SystemExit` of a tool: in a thread it would end silently, and the caller would wait for ever.
        except BaseException as error:  # noqa: BLE001  # raised again in the caller's thread
            done.set_exception(error)

    # A thread, because the caller may stand in a running loop (a notebook), where `asyncio.run` is refused.
    thread = threading.Thread(target=copy_context().run, args=(target,), name="turnwheel-run")
    try:
        thread.start()
        return done.result()
    except KeyboardInterrupt:
        # Ctrl-C comes before the loop is up, at times: `started` waits for it.
        loop, task = started.result()
        loop.call_soon_threadsafe(task.cancel)
        # Tools may be writing files: the caller must not go on while they do.
        thread.join()
        raise
