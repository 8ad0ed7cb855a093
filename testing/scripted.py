"""
A model that says what it was told to say, and who else a test needs to perform effects.

>>> model = ScriptedModel(calls(("add", {"a": 1, "b": 2})), says("3"))
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import final

import attrs

from ..effects.events import (
    Failure,
    ModelFailed,
    ModelFinished,
    ModelStreamed,
    ToolFinished,
)
from ..effects.messages import Message, StopReason
from ..effects.pieces import CallPiece, Piece, TextPiece
from ..effects.requests import CallModel, Purpose, RunTool
from ..effects.usage import Usage
from ..performers.base import PerformContext

USAGE = Usage(input=10, output=5)
"""What an answer costs where a script says nothing else."""


@final
@attrs.frozen(kw_only=True)
class Reply:
    """One scripted answer: *pieces* one by one, then *stop*, or *failure* in its place."""

    pieces: tuple[Piece, ...] = ()
    stop: StopReason = StopReason.END_TURN
    usage: Usage = USAGE
    failure: Failure | None = None
    retry_after: float | None = None
    stalls: bool = False


def says(text: str, stop: StopReason = StopReason.END_TURN, usage: Usage = USAGE) -> Reply:
    """An answer of *text*, streamed word by word."""
    words = [word + " " for word in text.split(" ")]
    words[-1] = words[-1].removesuffix(" ")
    return Reply(pieces=tuple([TextPiece(word) for word in words]), stop=stop, usage=usage)


def calls(*wishes: tuple[str, Mapping[str, object]], text: str = "", usage: Usage = USAGE) -> Reply:
    """An answer that calls tools: pairs of name and arguments. *text* is said first."""
    before: tuple[Piece, ...] = (TextPiece(text),) if text else ()
    made = tuple(
        [
            CallPiece(index, f"call_{index}", name, json.dumps(arguments))
            for index, (name, arguments) in enumerate(wishes)
        ]
    )
    return Reply(pieces=before + made, stop=StopReason.TOOL_USE, usage=usage)


def fails(failure: Failure, after: str = "", retry_after: float | None = None) -> Reply:
    """An answer that fails, after saying *after*."""
    pieces: tuple[Piece, ...] = (TextPiece(after),) if after else ()
    return Reply(pieces=pieces, failure=failure, retry_after=retry_after)


def stalls(after: str = "") -> Reply:
    """An answer that says *after* and then nothing, until it is cancelled."""
    return Reply(pieces=(TextPiece(after),) if after else (), stalls=True)


class ScriptEnded(AssertionError):
    """A model was asked more often than the script has answers."""


@final
class ScriptedModel:
    """
    Performs `CallModel` from a script, in order. What it was asked is kept in `requests` and `seen`.

    Summaries are answered with *summary* and take nothing from the script.
    """

    def __init__(self, *replies: Reply, summary: str = "They talked.") -> None:
        self._replies = list(replies)
        self._summary = says(summary)
        self.requests: list[CallModel] = []
        self.seen: list[tuple[Message, ...]] = []

    async def __call__(self, request: CallModel, scene: PerformContext) -> ModelFinished | ModelFailed:
        """The next answer of the script; `ScriptEnded` where there is none."""
        self.requests.append(request)
        self.seen.append(scene.history.slice(0, request.view.length))
        reply = self._summary if request.purpose is Purpose.SUMMARY else self._next(request)
        for before, piece in enumerate(reply.pieces):
            at = scene.clock.now()
            scene.emit(ModelStreamed(at=at, request=request.id, before=before, count=1, pieces=(piece,)))
            await asyncio.sleep(0)
        if reply.stalls:
            return await self._stalled(request, scene)
        if reply.failure is not None:
            return self._failed(request, scene, reply.failure, reply.retry_after)
        return ModelFinished(at=scene.clock.now(), request=request.id, stop=reply.stop, usage=reply.usage)

    def _next(self, request: CallModel) -> Reply:
        if not self._replies:
            msg = f"the script has no answer left for {request.id!r}"
            raise ScriptEnded(msg)
        return self._replies.pop(0)

    async def _stalled(self, request: CallModel, scene: PerformContext) -> ModelFailed:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
        return self._failed(request, scene, Failure.CANCELLED, None)

    @staticmethod
    def _failed(
        request: CallModel, scene: PerformContext, failure: Failure, retry_after: float | None
    ) -> ModelFailed:
        return ModelFailed(
            at=scene.clock.now(),
            request=request.id,
            failure=failure,
            message=f"scripted: {failure}",
            retry_after=retry_after,
        )


@final
class ScriptedTools:
    """Performs `RunTool` with plain functions from arguments to text, by the tool's name."""

    def __init__(self, **tools: Callable[[dict[str, object]], str]) -> None:
        self._tools = tools
        self.ran: list[RunTool] = []

    async def __call__(self, request: RunTool, scene: PerformContext) -> ToolFinished:
        """What the function of that name makes of the arguments."""
        self.ran.append(request)
        content = self._tools[request.tool](json.loads(request.arguments or "{}"))
        return ToolFinished(at=scene.clock.now(), request=request.id, content=content)
