"""
`ToolRunner` performs `RunTool`.

Theory of operation. A tool is work beside us that can be left behind: it can be asked to stop, and nothing
makes it. So our own cancellation is never passed on as such. It is an order to stop the tool, after which
there is still an answer to give: the tool may have done its work.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import final

from ...effects import Config, Outcome, RunTool, ToolFinished, ToolProgressed, ToolSpec
from ...effects.validators import once
from ..base import PerformContext
from ..logs import FaultLog
from ..worker_pool import GRACE, Work, WorkerPool
from .decorator import InSandbox, Tool, ToolContext, bound
from .paths import roots
from .returned import ToolEnd, end_of_error, end_of_value, truncate

# Characters of one report that a tool makes while it runs.
MAX_PROGRESS = 50_000

# Characters kept of a result: more than any model can read, and about as much as a file with it may have.
# It is a bound for memory and journals. What a conversation holds of a result is decided in one place, when
# the result enters it; all that is kept here can be read there, a part at a time.
MAX_RESULT = 1_000_000

# Characters, at most, of the line with which a tool that returns a part says how to go on.
NOTE = 100


@final
class ToolRunner:
    """
    Runs *tools*: async ones as tasks, others in daemon threads. Every request gets exactly one answer.

    The file tools may touch *cwd* and *directories*; tools find *deps* in their context. *max_result* is how
    many characters of a result are kept; how many of these a conversation holds is
    `Compaction.result_limit`, and `read_result` reads the others. A tool that was cancelled or timed out is
    awaited for *grace* seconds. One that takes longer is abandoned, and the model reads that it may still be
    running, or that its thread still runs. Raises `ConfigError` for two tools of one name and for a directory
    that is none.
    """

    def __init__(
        self,
        tools: Iterable[Tool[..., object]],
        *,
        cwd: Path | str = ".",
        directories: Iterable[Path | str] = (),
        deps: object = None,
        max_result: int = MAX_RESULT,
        grace: float = GRACE,
    ) -> None:
        found = bound(tools)
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
        loop, home, answered = asyncio.get_running_loop(), threading.get_ident(), False

        def report(text: str) -> None:
            if not answered:  # an abandoned tool may go on to report, and its call has its answer
                text = truncate(text, MAX_PROGRESS)
                scene.emit(ToolProgressed(at=scene.clock.now(), request=request.id, text=text))

        def emit(text: str) -> None:
            # At once where it can be: by way of the loop, the last report of an async tool would come
            # behind its answer, and be dropped.
            if threading.get_ident() == home:
                report(text)
            else:
                with suppress(RuntimeError):  # the loop is closed, and with it the run
                    loop.call_soon_threadsafe(report, text)

        context = ToolContext(
            cwd=self._roots[0],
            directories=self._roots,
            session=scene.session,
            call=request.call,
            tool=request.tool,
            # The key of a call that is run again after a crash has to be the one it had before.
            key=request.id,
            history=scene.history,
            deps=self._deps,
            result_limit=scene.config.compaction.result_limit,
            full_result=scene.full_result,
            config=scene.config,
            state=scene.state,
            memory=scene.memory,
            emit=emit,
            in_sandbox=self._in_sandbox(request.tool, scene.config),
        )
        try:
            end = await self._run(request, context, scene.faults)
        finally:
            answered = True
        ended = scene.clock.now()  # may be earlier than *started* on a clock that a test moves
        return ToolFinished(
            at=ended,
            request=request.id,
            content=truncate(end.content, self._max_result),
            outcome=end.outcome,
            seconds=max(0.0, ended - started),
            files=end.files,
        )

    def _in_sandbox(self, tool: str, config: Config) -> InSandbox | None:
        """What gives the words that run a program of *tool* in the sandbox of *config*, if it has one."""
        if config.sandbox is None:
            return None
        from .sandbox import sandboxed  # noqa: PLC0415  # most agents have none

        # The files of the store are no tool's business, wherever they are: sessions of others are in them.
        kept = tuple([glob for glob in config.protected if glob.startswith("/")])
        return partial(
            sandboxed,
            sandbox=config.sandbox,
            directories=self._roots,
            tool=tool,
            rules=config.rules,
            store=kept,
        )

    async def _run(self, request: RunTool, context: ToolContext[object], faults: FaultLog) -> ToolEnd:
        """Find the tool, decode its arguments, start it, and see it to its end."""
        tool = self._tools.get(request.tool)
        if tool is None:
            return ToolEnd(Outcome.ERROR, f"Tool not found: {request.tool}")
        try:
            arguments = tool.bind(request.arguments, context)
        except ValueError as error:
            return ToolEnd(Outcome.ERROR, str(error))
        name = f"tool {request.tool}" if tool.is_async else None
        about = {"tool": request.tool, "call": request.call}
        try:
            work = self._pool.start(
                partial(tool.function, **arguments),
                name,
                partial(end_of_value, request.tool),
                partial(_end_of_fault, faults, about, tool.expected),
                partial(faults.blocked, "a tool blocked the event loop", about),
            )
        except RuntimeError as error:  # the system has no more threads
            return ToolEnd(Outcome.CRASHED, f"Tool execution crashed: {error}")
        left = "may still be running" if tool.is_async else "its thread still runs"
        odd = partial(faults.failed, "a tool cancelled itself", **about)
        return await self._watch(work, request.timeout, left, odd)

    async def _watch(
        self, work: Work[ToolEnd], seconds: float | None, left: str, odd: Callable[[], None]
    ) -> ToolEnd:
        """
        How *work* ended; it gets *seconds* and then the grace, and less when we are cancelled.

        *left* is what the model reads of work that is abandoned. *odd* logs that it cancelled itself.
        """
        reasons, ended = await work.outlast(seconds, self._grace), work.ended
        why, said = Outcome.CANCELLED, "Cancelled"
        if reasons and isinstance(reasons[0], TimeoutError):
            why, said = Outcome.TIMED_OUT, f"Tool timed out after {seconds:g} s"
        if not ended.done():
            return ToolEnd(why, f"{said}; it did not stop in time and {left}")
        # One that was cancelled before it began has no more to say than that.
        end = ToolEnd(Outcome.CANCELLED) if ended.cancelled() else ended.result()
        if end.outcome is Outcome.CANCELLED:
            if not reasons:  # we did not stop it
                odd()
                return ToolEnd(Outcome.CRASHED, "Tool execution crashed: it cancelled itself")
            return ToolEnd(why, f"{said}; until then it said:\n{end.content}" if end.content else said)
        if why is Outcome.TIMED_OUT:
            return ToolEnd(why, f"{said}; it ended shortly after:\n{end.content}", end.files)
        # The order to stop may have come too late. The tool has had its effect then, and a model that reads
        # "cancelled" would do the work a second time.
        return end


def _end_of_fault(
    faults: FaultLog, about: Mapping[str, str], expected: tuple[type[Exception], ...], error: BaseException
) -> ToolEnd:
    if not isinstance(error, (asyncio.CancelledError, *expected)):
        faults.raised("a tool raised", error, **about)
    return end_of_error(error)
