"""How a session is watched: what whoever looks on is told, and how far they may lag behind."""

from __future__ import annotations

from contextlib import aclosing
from itertools import groupby
from typing import TYPE_CHECKING, final

import attrs

from ...effects.notices import (
    AnswerDropped,
    Notice,
    ReasoningDelta,
    RunEnded,
    TextDelta,
    TurnEnded,
)
from ...effects.validators import positive
from .broker import BUFFER

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator


@final
@attrs.frozen(kw_only=True)
class Delivery:
    """
    What those who watch a session are told.

    Without *include_partial* a text comes whole, once the model has answered, and not delta by delta; of an
    answer that broke off nothing is told. *buffer* is how many notices a subscriber may lag behind.
    """

    include_partial: bool = True
    buffer: int = attrs.field(default=BUFFER, validator=positive)

    def told(self, notices: AsyncGenerator[Notice, None]) -> AsyncGenerator[Notice, None]:
        """What of *notices* is told, which end with this."""
        return notices if self.include_partial else _without_partial(notices)


async def _without_partial(notices: AsyncGenerator[Notice, None]) -> AsyncGenerator[Notice, None]:
    whole = _Whole()
    async with aclosing(notices):
        async for notice in notices:
            for each in whole.after(notice):
                yield each
        for each in whole.rest():
            yield each


ENDS = TurnEnded | RunEnded
"""With which the text of an answer is whole; what comes in between, such as an input, is told at once."""


@final
class _Whole:
    """Holds the deltas of an answer back until it is whole."""

    def __init__(self) -> None:
        self._held: list[TextDelta | ReasoningDelta] = []

    def after(self, notice: Notice) -> Iterator[Notice]:
        """What is told when *notice* comes."""
        match notice:
            case TextDelta() | ReasoningDelta():
                self._held.append(notice)
            case AnswerDropped():
                self._held.clear()
            case _:
                if isinstance(notice, ENDS):
                    yield from self.rest()
                yield notice

    def rest(self) -> Iterator[Notice]:
        """What is held back: neighbours of one kind as one."""
        for kind, deltas in groupby(self._held, type):
            yield kind("".join([delta.text for delta in deltas]))
        self._held.clear()
