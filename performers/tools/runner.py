"""
`ToolRunner` performs `RunTool`; and the result that a model gets of any value and any error.

Theory of operation. A tool is work beside us that can be left behind: it can be asked to stop, and nothing
makes it. So our own cancellation is never passed on as such. It is an order to stop the tool, after which
there is still an answer to give: the tool may have done its work.

Values and exceptions come from code of any quality. Their `repr` and `__str__` may raise in turn, they may
contain themselves, and they may have ten megabytes.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import cast, final

import attrs
import msgspec

from ...effects import Binary, Config, Outcome, RunTool, ToolFinished, ToolProgressed, ToolSpec, clean
from ...effects.validators import once
from ..base import PerformContext, warn, warn_blocked
from ..worker_pool import GRACE, Work, WorkerPool
from .decorator import InSandbox, Tool, ToolContext
from .paths import roots

# Characters of one report that a tool makes while it runs.
MAX_PROGRESS = 50_000

# Characters kept of a result: more than any model can read, and about as much as a file with it may have.
# It is a bound for memory and journals. What a conversation holds of a result is decided in one place, when
# the result enters it; all that is kept here can be read there, a part at a time.
MAX_RESULT = 1_000_000

# Characters, at most, of the line with which a tool that returns a part says how to go on.
NOTE = 100

# Bytes of one file: a megabyte in base64, as which it is sent and kept. Providers take five at most.
MAX_FILE_BYTES = 750_000

# Bytes of all files of a result.
MAX_FILES_BYTES = 5 * MAX_FILE_BYTES

# Files of a result: of more in one request, some providers take small pictures only.
MAX_RESULT_FILES = 20

# Characters of a file's name: what a file system takes.
_MAX_NAME = 255

_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+")


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
            end = await self._run(request, context)
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

    async def _run(self, request: RunTool, context: ToolContext[object]) -> ToolEnd:
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
                end_of_value,
                partial(_end_of_fault, request, context.session),
                partial(warn_blocked, context.session, "a tool blocked the event loop", about),
            )
        except RuntimeError as error:  # the system has no more threads
            return ToolEnd(Outcome.CRASHED, f"Tool execution crashed: {error}")
        left = "may still be running" if tool.is_async else "its thread still runs"
        return await self._watch(work, request.timeout, left)

    async def _watch(self, work: Work[ToolEnd], seconds: float | None, left: str) -> ToolEnd:
        """
        How *work* ended; it gets *seconds* and then the grace, and less when we are cancelled.

        *left* is what the model reads of work that is abandoned.
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
                return ToolEnd(Outcome.CRASHED, "Tool execution crashed: it cancelled itself")
            return ToolEnd(why, said)
        if why is Outcome.TIMED_OUT:
            return ToolEnd(why, f"{said}; it ended shortly after:\n{end.content}", end.files)
        # The order to stop may have come too late. The tool has had its effect then, and a model that reads
        # "cancelled" would do the work a second time.
        return end


@final
@attrs.frozen
class ErrorResult:
    """
    What a tool returns that failed: the model reads *value*, as it would any result, and it is an error.

    It is for what the tool expects; an exception is for what it does not.
    """

    value: object


@final
@attrs.frozen
class ToolEnd:
    """How a tool ended, the text a model reads of it and the files that go with it."""

    outcome: Outcome
    content: str = ""
    files: tuple[Binary, ...] = ()


def _end_of_fault(request: RunTool, session: str, error: BaseException) -> ToolEnd:
    if not isinstance(error, asyncio.CancelledError):
        warn(session, "a tool raised", error, tool=request.tool, call=request.call)
    return end_of_error(error)


def end_of_error(error: BaseException) -> ToolEnd:
    """The end of a tool that raised *error*: an exception, a cancellation, or what should end a process."""
    if isinstance(error, asyncio.CancelledError):
        return ToolEnd(Outcome.CANCELLED)
    if isinstance(error, Exception):
        return ToolEnd(Outcome.ERROR, f"Tool raised an exception: {error_text(error)}")
    return ToolEnd(Outcome.CRASHED, f"Tool execution crashed: {error_text(error, named=True)}")


def error_text(error: BaseException, *, named: bool = False) -> str:
    """
    The text of *error* and of what it groups; the name of its type where it has none or refuses.

    *named* has that name before the text. A `KeyError` always has: its text is the key and no more.
    """
    kind = type(error).__name__
    try:
        text = str(error)
        if isinstance(error, BaseExceptionGroup):
            text += ": " + "; ".join(map(error_text, error.exceptions))
    except BaseException as another:  # noqa: BLE001  # __str__ is any code
        return f"{kind}, whose message cannot be shown ({type(another).__name__})"
    if not text:
        return kind
    return f"{kind}: {text}" if named or isinstance(error, KeyError) else text


def end_of_value(value: object) -> ToolEnd:
    """
    The end of a tool that returned *value*: a `Binary`, a list or tuple with some among it, or anything else.

    An `ErrorResult` of any of these is an error.

    Each `Binary` becomes a file, and where it stood the text says what it is, or why it was left out. Raises
    `TypeError` for one that cannot be written down, and for what should have been awaited.
    """
    if isinstance(value, ErrorResult):
        return attrs.evolve(end_of_value(value.value), outcome=Outcome.ERROR)
    # A list without a file in it is data, and goes to the model as one JSON text.
    mixed = isinstance(value, list | tuple) and any(isinstance(part, Binary) for part in value)
    parts = cast("Iterable[object]", value if mixed else [value])
    texts: list[str] = []
    files: list[Binary] = []
    for part in parts:
        if not isinstance(part, Binary):
            texts.append(as_text(part))
            continue
        file = _writable(part.media_type, part.data, part.name)
        label = f"{file.media_type}, {len(file.data):,} bytes{f', {file.name!r}' if file.name else ''}"
        problem = _misfit(file, files)
        texts.append(f"[left out: {label}; {problem}]" if problem else f"[{label}]")
        files += [] if problem else [file]
    return ToolEnd(Outcome.OK, "\n".join(filter(None, texts)), tuple(files))


def _writable(media_type: object, data: object, name: object) -> Binary:
    """A file as every journal and provider takes it; nothing has checked the tool's own."""
    if not isinstance(data, bytes | bytearray | memoryview):
        msg = f"the data of a Binary must be bytes; got {type(data).__name__}"
        raise TypeError(msg)
    if not isinstance(media_type, str) or not _MEDIA_TYPE.fullmatch(media_type):
        msg = f"the media type of a Binary must be such as 'image/png'; got {media_type!r}"
        raise TypeError(msg)
    return Binary(media_type=media_type, data=bytes(data), name=clean(str(name))[:_MAX_NAME])


def _misfit(file: Binary, files: list[Binary]) -> str:
    """Why *file* cannot go along with *files*; empty where it can."""
    size = len(file.data)
    # Providers refuse a request with an empty file in it. The file would stay in the history, so every later
    # request of the conversation would fail, too.
    if not size:
        return "it is empty"
    if size > MAX_FILE_BYTES:
        return f"the limit for a file is {MAX_FILE_BYTES:,} bytes"
    if size + sum(len(other.data) for other in files) > MAX_FILES_BYTES:
        return f"the limit for all files of a result is {MAX_FILES_BYTES:,} bytes"
    if len(files) == MAX_RESULT_FILES:
        return f"the limit for a result is {MAX_RESULT_FILES} files"
    return ""


def as_text(value: object) -> str:
    """*value* as text: a string as it is, None as nothing, others as JSON or, failing that, their repr."""
    if value is None or isinstance(value, str):
        return str(value or "")  # of a subclass, such as an enum's, only the text
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()  # else Python warns that it was never awaited
        msg = "it returned something to be awaited: declare the tool with 'async def'"
        raise TypeError(msg)
    try:
        return msgspec.json.encode(value).decode()
    except Exception:  # noqa: BLE001  # of a type without JSON, or too deep
        return repr(value)


def truncate(text: str, limit: int) -> str:
    """
    *text* with at most about *limit* characters kept, from its beginning and its end, and fit for UTF-8.

    What is cut from the middle is counted in its place. Lone surrogates, as in file names that are not
    UTF-8, become question marks.
    """
    if len(text) > limit:
        head, tail = limit - limit // 2, limit // 2
        gone = len(text) - limit
        text = f"{text[:head]}\n[... {gone:,} characters cut ...]\n{text[len(text) - tail :]}"
    return clean(text)
