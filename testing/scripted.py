"""
A model that answers from a script, and tools from plain functions, for tests of whole agents.

>>> model = ScriptedModel(calls(("add", {"a": 1, "b": 2})), says("3"))
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from typing import ClassVar, Self, cast, final

import attrs

from ..effects.errors import ArgumentError
from ..effects.events import Failure, ModelFailed, ModelFinished, ModelStreamed, ToolFinished
from ..effects.history import CallPiece, Piece, TextPiece
from ..effects.messages import Message, StopReason
from ..effects.requests import CallModel, Purpose, RunTool
from ..effects.usage import Usage
from ..performers.base import PerformContext

# The usage of a reply unless a script gives another.
USAGE = Usage(input=10, output=5)


@final
@attrs.frozen(kw_only=True)
class Reply:
    """One scripted answer: *pieces* one by one, then *stop* or *failure*. One that *stalls* never ends."""

    pieces: tuple[Piece, ...] = ()
    stop: StopReason = StopReason.END_TURN
    usage: Usage = USAGE
    failure: Failure | None = None
    retry_after: float | None = None
    stalls: bool = False


def says(text: str, stop: StopReason = StopReason.END_TURN, usage: Usage = USAGE) -> Reply:
    """A reply of *text*, streamed word by word."""
    return Reply(pieces=tuple(map(TextPiece, re.split("(?<= )", text))), stop=stop, usage=usage)


def calls(*wishes: tuple[str, Mapping[str, object]], text: str = "", usage: Usage = USAGE) -> Reply:
    """A reply that calls tools, by pairs of name and arguments. *text* comes first."""
    for wish in wishes:
        if not _is_wish(wish):
            fix = "calls(('pay', {'amount': 5}))"
            msg = f"calls: {wish!r} is not a pair of a name and arguments; write {fix}"
            raise ArgumentError(msg)
    made = [
        CallPiece(index, f"call_{index}", name, json.dumps(arguments))
        for index, (name, arguments) in enumerate(wishes)
    ]
    return Reply(pieces=(*_text(text), *made), stop=StopReason.TOOL_USE, usage=usage)


def _is_wish(wish: object) -> bool:
    match wish:
        case (str(), Mapping()):
            return True
        case _:
            return False


def fails(failure: Failure, after: str = "", retry_after: float | None = None) -> Reply:
    """A reply that fails after it has streamed *after*. *retry_after* is in seconds."""
    return Reply(pieces=_text(after), failure=failure, retry_after=retry_after)


def stalls(after: str = "") -> Reply:
    """A reply that streams *after* and then waits until it is cancelled."""
    return Reply(pieces=_text(after), stalls=True)


def _text(text: str) -> tuple[Piece, ...]:
    return (TextPiece(text),) if text else ()


class ScriptEnded(AssertionError):
    """A model was called more often than its script has replies."""


class ScriptUnfinished(AssertionError):
    """A test ended before its model had given all replies of its script."""


@final
class ScriptedModel:
    """
    Performs `CallModel` from a script. `requests` keeps the calls in order, `seen` the messages they showed.

    Summaries are answered with *summary* and take no reply from the script. A script that is too short or too
    long fails the test: at the end of a pytest test, at the end of a `with` block, or in `finish`. With
    *partial*, replies may be left over.
    """

    # The models made since a test began, while a test framework watches them; see `pytest_plugin`.
    watched: ClassVar[list[ScriptedModel] | None] = None

    def __init__(self, *replies: Reply, summary: str = "They talked.", partial: bool = False) -> None:
        for reply in replies:
            if not isinstance(cast("object", reply), Reply):
                given = cast("object", reply)
                fix = f"says({given!r})" if isinstance(given, str) else "says(...), calls(...), one by one"
                msg = f"ScriptedModel: {reply!r} is not a reply; write {fix}"
                raise ArgumentError(msg)
        self._replies = list(replies)
        self._summary = says(summary)
        self._partial = partial
        self._unanswered: CallModel | None = None
        self.requests: list[CallModel] = []
        self.seen: list[tuple[Message, ...]] = []
        if self.watched is not None:
            self.watched.append(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # A test that fails already should say why in its own words.
        if kind is None:
            self.finish()

    def finish(self) -> None:
        """Raise `ScriptEnded` if a call found no reply, and `ScriptUnfinished` if replies are left over."""
        # The engine turns what a performer raises into an event: the run ends, and the test would go on.
        if self._unanswered is not None:
            raise ScriptEnded(_ended(self._unanswered, len(self.requests)))
        if self._replies and not self._partial:
            left = f"replies left over after {len(self.requests)} calls: {len(self._replies)}"
            msg = f"script: {left}; remove them, or pass partial=True"
            raise ScriptUnfinished(msg)

    async def __call__(self, request: CallModel, scene: PerformContext) -> ModelFinished | ModelFailed:
        """Perform *request* with the next reply; raises `ScriptEnded` if there is none."""
        self.requests.append(request)
        self.seen.append(scene.history.slice(0, request.view.length))
        reply = self._summary if request.purpose is Purpose.SUMMARY else self._next(request)
        for before, piece in enumerate(reply.pieces):
            at = scene.clock.now()
            scene.emit(ModelStreamed(at=at, request=request.id, before=before, count=1, pieces=(piece,)))
            await asyncio.sleep(0)
        failure = reply.failure
        if reply.stalls:
            await _cancelled()
            failure = Failure.CANCELLED
        at = scene.clock.now()
        if failure is None:
            return ModelFinished(at=at, request=request.id, stop=reply.stop, usage=reply.usage)
        message, wait = f"scripted: {failure}", reply.retry_after
        return ModelFailed(at=at, request=request.id, failure=failure, message=message, retry_after=wait)

    def _next(self, request: CallModel) -> Reply:
        if not self._replies:
            self._unanswered = request
            raise ScriptEnded(_ended(request, len(self.requests)))
        return self._replies.pop(0)


def _ended(request: CallModel, calls: int) -> str:
    return f"script: no reply is left for {request.id!r}, call {calls} of this model; add a reply"


async def _cancelled() -> None:
    """Wait until this task is cancelled, and live on: a model answers that it was cancelled."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()


@final
class ScriptedTools:
    """Performs `RunTool` with plain functions from arguments to text, by the tool's name."""

    def __init__(self, **tools: Callable[[dict[str, object]], str]) -> None:
        self._tools = tools
        self.ran: list[RunTool] = []

    async def __call__(self, request: RunTool, scene: PerformContext) -> ToolFinished:
        """Perform *request* with the function of that name."""
        self.ran.append(request)
        content = self._tools[request.tool](json.loads(request.arguments or "{}"))
        return ToolFinished(at=scene.clock.now(), request=request.id, content=content)
