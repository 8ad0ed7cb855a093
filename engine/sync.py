"""Runs async work for callers that are not async."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

T = TypeVar("T")


def run_in_thread(work: Coroutine[Any, Any, T]) -> T:
    """
    Run *work* in a thread and an event loop of its own, with the caller's context variables.

    Ctrl-C cancels the work; it has ended when `KeyboardInterrupt` is raised here.
    """
    # Of `concurrent.futures`, not asyncio: two threads meet here.
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Future[T]]] = Future()

    async def watched() -> T:
        # A task of its own, so that an interrupt can cancel the work and let `asyncio.run` clean up.
        task = asyncio.ensure_future(work)
        started.set_result((asyncio.get_running_loop(), task))
        return await task

    # A thread, because the caller may stand in a running loop (a notebook), where `asyncio.run` is refused.
    # Its end is waited for in any case: tools may be writing files, and the caller must not go on while they
    # do. An executor passes on every exception, also `SystemExit` of a tool.
    with ThreadPoolExecutor(1, thread_name_prefix="turnwheel-run") as thread:
        try:
            return thread.submit(copy_context().run, lambda: asyncio.run(watched())).result()
        except KeyboardInterrupt:
            # Ctrl-C comes before the loop is up, at times: `started` waits for it.
            loop, task = started.result()
            loop.call_soon_threadsafe(task.cancel)
            raise
