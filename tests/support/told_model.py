"""A model that answers bit by bit, as a test tells it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, final

from turnwheel.effects.events import ModelFinished, ModelStreamed
from turnwheel.effects.history import Piece
from turnwheel.effects.messages import StopReason
from turnwheel.effects.usage import Usage

if TYPE_CHECKING:
    from turnwheel.effects import CallModel
    from turnwheel.performers.base import PerformContext


@final
class Told:
    """A model that says what it is told to, bit by bit; *called* once it was asked."""

    def __init__(self) -> None:
        self.called = asyncio.Event()
        self._bits = asyncio.Queue[Piece | None]()

    async def __call__(self, request: CallModel, scene: PerformContext) -> ModelFinished:
        if self.called.is_set():
            # After a tool or a message there is no more to say.
            return ModelFinished(at=0.0, request=request.id, stop=StopReason.END_TURN, usage=Usage())
        self.called.set()
        before = 0
        while (piece := await self._bits.get()) is not None:
            scene.emit(ModelStreamed(at=0.0, request=request.id, pieces=(piece,), before=before, count=1))
            before += 1
        return ModelFinished(at=0.0, request=request.id, stop=StopReason.TOOL_USE, usage=Usage())

    def say(self, *bits: Piece) -> None:
        for bit in bits:
            self._bits.put_nowait(bit)

    def end(self) -> None:
        self._bits.put_nowait(None)
