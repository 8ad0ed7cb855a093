"""
`ToolRunner`: performs `RunTool`.

Theory of operation. A tool is work beside us that can be left behind: it can be asked to stop, and nothing
makes it. So our own cancellation is never passed on as such. It is an order to stop the tool, after which
there is still an answer to give: the tool may have done its work.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import final

from ...effects.config import ToolSpec
from ...effects.events import ToolFinished, ToolProgressed
from ...effects.messages import Outcome
from ...effects.requests import RunTool
from ...effects.validators import once
from ..base import PerformContext
from ..worker_pool import GRACE, CancelShield, Work, WorkerPool
from .decorator import Tool, ToolContext
from .paths import roots
from .result import MAX_RESULT, ToolEnd, end_of_error, end_of_value, truncate

# Characters of one report that a tool makes while it runs.
MAX_PROGRESS = 50_000


@final
class ToolRunner:
    """
    Runs *tools*: async ones as tasks, others in daemon threads. Every request gets exactly one answer.

    The file tools may touch *cwd* and *directories*; tools find *deps* in their context. *max_result* is how
    many characters of a result are kept; how many of these a conversation holds is
    `Compaction.result_limit`, and `read_result` reads the others. A tool that was cancelled or timed out is
    awaited for *grace* seconds. One that takes longer is abandoned, and the model reads that it may still be
    running. Raises `ConfigError` for two tools of one name and for a directory that is none.
    """

    def __init__(  # the tools, and five settings that have a default
        self,
        tools: Iterable[Tool[..., object]],
        *,
        cwd: Path | str = ".",
        directories: Iterable[Path | str] = (),
        deps: object = None,
        max_result: int = MAX_RESULT,
        grace: float = GRACE,
    ) -> None:
        found = tuple(tools)
        once("tools", [tool.spec.name for tool in found])
        self._tools = {tool.spec.name: tool for tool in found}
        self._roots = roots(cwd, directories)
        self._deps = deps
        self._max_result = max_result
        self._grace = grace
        self._pool = WorkerPool()

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools as a `Config` takes them."""
        return tuple(tool.spec for tool in self._tools.values())

    async def __call__(self, request: RunTool, scene: PerformContext) -> ToolFinished:
        """Run the tool and return how it ended. Cancelled, it stops the tool and still returns that."""
        started = scene.clock.now()
        progress = _Progress(request.id, scene)
        context = ToolContext(
            cwd=self._roots[0],
            directories=self._roots,
            session=scene.session,
            call=request.call,
            # The key of a call that is run again after a crash has to be the one it had before.
            key=request.id,
            history=scene.history,
            deps=self._deps,
            result_limit=scene.config.compaction.result_limit,
            full_result=scene.full_result,
            emit=progress,
        )
        try:
            end = await self._run(request, context)
        finally:
            progress.closed = True  # an abandoned tool may go on to report, and its call has its answer
        ended = scene.clock.now()  # may be earlier than *started* on a clock that a test moves
        return ToolFinished(
            at=ended,
            request=request.id,
            content=truncate(end.content, self._max_result),
            outcome=end.outcome,
            seconds=max(0.0, ended - started),
            files=end.files,
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
        function = partial(tool.function, **arguments)
        try:
            name = f"tool {tool.spec.name}" if tool.is_async else None
            work = self._pool.start(function, name, end_of_value, end_of_error)
        except RuntimeError as error:  # the system has no more threads
            return ToolEnd(Outcome.CRASHED, f"Tool execution crashed: {error}")
        return await self._watch(work, request.timeout)

    async def _watch(self, work: Work[ToolEnd], seconds: float | None) -> ToolEnd:
        """How *work* ended; it gets *seconds* and then the grace, and less when we are cancelled."""
        why = await _stopped_waiting(work.ended, seconds)
        if why is None:
            end = _end_of(work.ended)
            if end.outcome is Outcome.CANCELLED:  # we did not stop it
                return ToolEnd(Outcome.CRASHED, "Tool execution crashed: it cancelled itself")
            return end
        work.stop()
        said = "Cancelled" if why is Outcome.CANCELLED else f"Tool timed out after {seconds:g} s"
        if await _stopped_waiting(work.ended, self._grace) is not None:
            work.abandon()
            return ToolEnd(why, f"{said}; it did not stop in time and may still be running")
        end = _end_of(work.ended)
        if end.outcome is Outcome.CANCELLED:
            return ToolEnd(why, said)
        if why is Outcome.CANCELLED:
            # The order to stop came too late. The tool has had its effect, and a model that reads "cancelled"
            # would do the work a second time.
            return end
        return ToolEnd(why, f"{said}; it ended shortly after:\n{end.content}", end.files)


@final
class _Progress:
    """Emits the reports of a tool, in the event loop it was made in, until it is *closed*."""

    def __init__(self, request: str, scene: PerformContext) -> None:
        self._request = request
        self._scene = scene
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.closed = False

    def __call__(self, text: str) -> None:
        # At once where it can be: by way of the loop, the last report of an async tool would come
        # behind its answer, and be dropped.
        if threading.get_ident() == self._thread:
            self._emit(text)
        else:
            with suppress(RuntimeError):  # the loop is closed, and with it the run
                self._loop.call_soon_threadsafe(self._emit, text)

    def _emit(self, text: str) -> None:
        if not self.closed:
            now = self._scene.clock.now()
            report = truncate(text, MAX_PROGRESS)
            self._scene.emit(ToolProgressed(at=now, request=self._request, text=report))


async def _stopped_waiting(ended: asyncio.Future[ToolEnd], seconds: float | None) -> Outcome | None:
    """None once *ended* is over; otherwise why we stopped waiting: time is up, or we are cancelled."""
    why, shield = Outcome.TIMED_OUT, CancelShield()
    try:
        await asyncio.wait({ended}, timeout=seconds)
    except asyncio.CancelledError:
        why = Outcome.CANCELLED
        shield.absorb()
    return None if ended.done() else why


def _end_of(ended: asyncio.Future[ToolEnd]) -> ToolEnd:
    """How a tool ended; one that was cancelled before it began has no more to say than that."""
    return ToolEnd(Outcome.CANCELLED) if ended.cancelled() else ended.result()
