"""Waiting for async work in code that is not async."""

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
    Run *work* in an event loop of its own, in a thread of its own, with the caller's context variables.

    Whoever waits may be interrupted (Ctrl-C); then the work is cancelled, and has ended when this raises.
    """
    done: Future[T] = Future()
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Future[T]]] = Future()

    async def watched() -> T:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        started.set_result((loop, task))
        return await task

    def target() -> None:
        try:
            done.set_result(asyncio.run(watched()))
        except BaseException as error:  # noqa: BLE001  # raised again in the caller's thread
            done.set_exception(error)

    thread = threading.Thread(target=copy_context().run, args=(target,), name="turnwheel-run")
    try:
        thread.start()
        return done.result()
    except KeyboardInterrupt:
        loop, task = started.result()
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        raise
