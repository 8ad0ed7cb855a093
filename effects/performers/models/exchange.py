"""
One request under way: what came of its answer, what of that was handed on, and how much it all was.

Pieces are handed on when the task next waits for the network: what one read brought is one event, however
many HTTP chunks were in it, and since nobody else runs before that, nothing comes later for it.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, final

from ...events import Failure, ModelFailed, ModelFinished, ModelStreamed
from ...pieces import CallPiece, ReasoningPiece, TextPiece
from ...sizes import MAX_ARGUMENTS
from .wire import Broken, Complete, Ending

if TYPE_CHECKING:
    from collections.abc import Collection

    from ...pieces import Piece
    from ...requests import CallModel
    from ..base import Scene
    from .wire import Parser

MAX_ANSWER = 64 * 1024 * 1024
"""
Bytes of an answer that are read where nothing else is said.

128k tokens, each in an event of its own, are some 45 MB at the most talkative of providers.
"""

MAX_SAID = 8 * 1024 * 1024
"""Characters that an answer may say, thinking and calls included. 128k tokens are half a million."""

MAX_PIECES = 500_000
"""Pieces that an answer may come in: 128k tokens, one by one, are a quarter of that."""


@final
class Exchange:
    """
    *request*, asked in *scene*, whose answer *parser* reads; *most* bytes of it are.

    *status* is of the server's answer, once that has begun, *accepted* says whether it is one to the request,
    and *begun* that a byte of the answer's body has come.
    """

    def __init__(self, request: CallModel, scene: Scene, parser: Parser, most: int) -> None:
        self.request = request
        self.scene = scene
        self.parser = parser
        self.status = 0
        self.accepted = False
        self.begun = False
        self._most = most
        self._left = most
        self._said = 0
        self._pieces = 0
        self._arguments: dict[int, int] = {}
        self._cut: Broken | None = None  # more came than is read
        self._fault: Broken | None = None  # more was said than is taken
        self._started: float | None = None
        self._call_soon = asyncio.get_running_loop().call_soon
        self._fresh: list[Piece] = []
        self._emitted = 0

    def begin(self) -> None:
        """Count the time from now on: what was waited before was no work."""
        self._started = self.scene.clock.now()

    def take(self, data: bytes) -> bool:
        """
        Read *data* of the body, whose pieces are emitted as soon as the task waits for more.

        True: nothing more of it is wanted, whatever comes.
        """
        self.begun = True
        self._left -= len(data)
        if self._left < 0:
            self._cut = _too_large(f"the answer is larger than {self._most} bytes")
            return True
        if pieces := self.parser.feed(data):
            self._weigh(pieces)
            if self._fresh:
                self._fresh += pieces
            else:
                self._fresh = pieces
                self._call_soon(self._flush)
        return self.parser.done or self._fault is not None

    def _weigh(self, pieces: Collection[Piece]) -> None:
        """See whether *pieces* are not too much, with what was said before."""
        for piece in pieces:
            match piece:
                case TextPiece():
                    self._said += len(piece.text)
                case ReasoningPiece():
                    self._said += len(piece.text) + len(piece.signature) + len(piece.redacted)
                case CallPiece():
                    size = self._arguments.get(piece.index, 0) + len(piece.arguments)
                    self._arguments[piece.index] = size
                    self._said += len(piece.arguments) + len(piece.wire_id) + len(piece.name)
                    if size > MAX_ARGUMENTS:
                        message = f"the arguments of a call have more than {MAX_ARGUMENTS} characters"
                        self._fault = _too_large(message)
        self._pieces += len(pieces)
        if self._pieces > MAX_PIECES:
            self._fault = _too_large(f"the answer came in more than {MAX_PIECES} pieces")
        if self._said > MAX_SAID:
            self._fault = _too_large(f"the answer says more than {MAX_SAID} characters")

    def end(self, cut: Broken | None = None) -> Ending:
        """How the answer ended; *cut* is why its bytes stopped, where that was not their end."""
        ending = self.parser.end(self._cut or cut)
        if isinstance(ending, Complete):
            self._weigh(ending.pieces)
        if self._fault is None:
            return ending
        return Broken(failure=self._fault.failure, message=self._fault.message, usage=self.parser.usage)

    def answer(self, ending: Ending) -> ModelFinished | ModelFailed:
        """The one answer to the request, behind all that was streamed."""
        self._flush()
        now, request = self.scene.clock.now(), self.request.id
        seconds = 0.0 if self._started is None else now - self._started
        if isinstance(ending, Complete):
            return ModelFinished(
                at=now,
                request=request,
                stop=ending.stop,
                usage=ending.usage,
                pieces=ending.pieces,
                seconds=seconds,
                sequence=ending.sequence,
            )
        return ModelFailed(
            at=now,
            request=request,
            failure=ending.failure,
            message=ending.message,
            retry_after=ending.retry_after,
            jitter=random.random(),  # noqa: S311  # it spreads retries, it keeps no secret
            usage=ending.usage,
            seconds=seconds,
        )

    def _flush(self) -> None:
        if pieces := self._fresh:
            self._fresh = []
            self.scene.emit(
                ModelStreamed(
                    at=self.scene.clock.now(),
                    request=self.request.id,
                    before=self._emitted,
                    count=len(pieces),
                    pieces=tuple(pieces),
                )
            )
            self._emitted += len(pieces)


def _too_large(message: str) -> Broken:
    return Broken(failure=Failure.CUT, message=message)
