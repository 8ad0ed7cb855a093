"""
`ToolRunner`: performs `RunTool`.

An async tool is a task of its own and a sync one a job in a thread, so that in both cases we wait for
something that can be left behind: a tool can be asked to stop, but nothing makes it. Our own cancellation is
therefore never passed on as such. It is an order to stop the tool, after which there is still an answer to
give: the tool may have done its work.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, final

from ...effects.config import ToolSpec
from ...effects.errors import ConfigError
from ...effects.events import ToolFinished, ToolProgressed
from ...effects.messages import Outcome
from ...effects.requests import RunTool
from ..base import PerformContext
from ..worker_pool import Work, WorkerPool
from .decorator import Tool, ToolContext
from .paths import roots
from .result import (
    MAX_RESULT,
    ToolEnd,
    guarded,
    guarded_async,
    truncate,
)

MAX_PROGRESS = 50_000
"""Characters of what a tool says at once while it runs."""

TOOL_GRACE = 2.0
"""Seconds a tool gets to end after it was cancelled or timed out: a process to be ended needs about one."""

THREADS = 32
"""Sync tools of one runner that run at once."""


@final
class ToolRunner:
    """
    Runs *tools*: async ones as tasks, others in daemon threads. Every request gets exactly one answer.

    *cwd* and *directories* are what the file tools may touch, *deps* what tools find in their context.
    *max_result* is how many characters of a result are kept; how many of these a conversation holds is
    `Compaction.result_limit`, and `read_result` reads the others. *grace*, in seconds, is how long a tool
    that was cancelled or timed out is waited for; one that takes longer is abandoned, and the model told that
    it may still be running. A thread cannot be stopped, only left behind. Raises `ConfigError` for two tools
    of one name and for a directory that is none.
    """

    def __init__(  # the tools, and five settings that have a default
        self,
        tools: Iterable[Tool[..., object]],
        *,
        cwd: Path | str = ".",
        directories: Iterable[Path | str] = (),
        deps: object = None,
        max_result: int = MAX_RESULT,
        grace: float = TOOL_GRACE,
    ) -> None:
        self._tools = _by_name(tools)
        self._roots = roots(cwd, directories)
        self._deps = deps
        self._max_result = max_result
        self._grace = grace
        self._crew = WorkerPool(THREADS)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools as a `Config` takes them."""
        return tuple(tool.spec for tool in self._tools.values())

    async def __call__(self, request: RunTool, scene: PerformContext) -> ToolFinished:
        """Run the tool and return how it ended. Cancelled, it stops the tool and still returns that."""
        started = scene.clock.now()
        progress = _Progress(request.id, scene)
        try:
            end = await self._run(request, self._context(request, scene, progress))
        finally:
            progress.closed = True
        ended = scene.clock.now()  # may be earlier than *started* on a clock that a test moves
        return ToolFinished(
            at=ended,
            request=request.id,
            content=truncate(end.content, self._max_result),
            outcome=end.outcome,
            seconds=max(0.0, ended - started),
            files=end.files,
        )

    def _context(self, request: RunTool, scene: PerformContext, progress: _Progress) -> ToolContext[object]:
        return ToolContext(
            cwd=self._roots[0],
            directories=self._roots,
            session=scene.session,
            call=request.call,
            key=request.id,
            history=scene.history,
            deps=self._deps,
            result_limit=scene.config.compaction.result_limit,
            full_result=scene.full_result,
            emit=progress,
        )

    async def _run(self, request: RunTool, context: ToolContext[object]) -> ToolEnd:
        """Find the tool, decode its arguments, start it, and see it to its end."""
        tool = self._tools.get(request.tool)
        if tool is None:
            return ToolEnd(Outcome.ERROR, f"Tool not found: {request.tool}")
        try:
            arguments = tool.bind(request.arguments, context)
        except ValueError as error:
            return ToolEnd(Outcome.ERROR, str(error))
        try:
            work = self._start(tool, arguments)
        except RuntimeError as error:
            return ToolEnd(Outcome.CRASHED, f"Tool execution crashed: {error}")
        return await self._watch(work, request.timeout)

    def _start(self, tool: Tool[..., Any], arguments: dict[str, object]) -> Work[ToolEnd]:
        """Set the tool to work; raises `RuntimeError` where there is no thread to be had."""
        function = partial(tool.function, **arguments)
        if tool.is_async:
            return self._crew.task(guarded_async(function), f"tool {tool.spec.name}")
        return self._crew.thread(partial(guarded, function))

    async def _watch(self, work: Work[ToolEnd], seconds: float | None) -> ToolEnd:
        """How *work* ended; it gets *seconds* and then the grace, and less when we are cancelled."""
        why = await _wait(work.ended, seconds)
        if why is None:
            end = _end(work.ended)
            if end.outcome is Outcome.CANCELLED:  # by nobody else
                return ToolEnd(Outcome.CRASHED, "Tool execution crashed: it cancelled itself")
            return end
        work.stop()
        said = "Cancelled" if why is Outcome.CANCELLED else f"Tool timed out after {seconds:g} s"
        if await _wait(work.ended, self._grace) is not None:
            work.abandon()
            return ToolEnd(why, f"{said}; it did not stop in time and may still be running")
        end = _end(work.ended)
        if end.outcome is Outcome.CANCELLED:
            return ToolEnd(why, said)
        if why is Outcome.CANCELLED:  # too late to matter: what it did is what happened
            return end
        return ToolEnd(why, f"{said}; it ended shortly after:\n{end.content}", end.files)


@final
class _Progress:
    """Emits what a tool says, in the event loop it was made in, until it is *closed*."""

    def __init__(self, request: str, scene: PerformContext) -> None:
        self._request = request
        self._scene = scene
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.closed = False

    def __call__(self, text: str) -> None:
        if threading.get_ident() == self._thread:
            self._say(text)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed, nobody listens
                self._loop.call_soon_threadsafe(self._say, text)

    def _say(self, text: str) -> None:
        if not self.closed:
            now = self._scene.clock.now()
            self._scene.emit(ToolProgressed(at=now, request=self._request, text=truncate(text, MAX_PROGRESS)))


async def _wait(ended: asyncio.Future[ToolEnd], seconds: float | None) -> Outcome | None:
    """None once *ended* is over; otherwise why we stopped waiting: time is up, or we are cancelled."""
    why = Outcome.TIMED_OUT
    try:
        await asyncio.wait({ended}, timeout=seconds)
    except asyncio.CancelledError:
        why = Outcome.CANCELLED
        if (task := asyncio.current_task()) is not None:
            task.uncancel()  # taken as an order to stop the tool: the task still has its answer to give
    return None if ended.done() else why


def _end(ended: asyncio.Future[ToolEnd]) -> ToolEnd:
    """How a tool ended; one that was cancelled before it began has no more to say than that."""
    return ToolEnd(Outcome.CANCELLED) if ended.cancelled() else ended.result()


def _by_name(tools: Iterable[Tool[..., object]]) -> dict[str, Tool[..., object]]:
    """*tools* by name, in their order."""
    found: dict[str, Tool[..., object]] = {}
    for tool in tools:
        if tool.spec.name in found:
            msg = f"two tools of one name: {tool.spec.name!r}; rename one"
            raise ConfigError(msg)
        found[tool.spec.name] = tool
    return found
