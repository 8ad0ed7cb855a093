"""The texts of answers as a whole, for subscribers that want no pieces of them."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, final

import attrs

from ...effects.notices import ENDS, AnswerDropped, CallDelta, Notice, ReasoningDelta, TextDelta
from ...effects.validators import positive
from .feed import SUBSCRIBER_BUFFER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


@final
@attrs.frozen(kw_only=True)
class Delivery:
    """
    Which notices subscribers get, and how.

    Without *include_partial* a text comes once, when the model has answered; the text of an answer that broke
    off is left out. A subscriber may lag *buffer* notices behind.
    """

    # On by default: a person who waits wants to see that something happens.
    include_partial: bool = True
    buffer: int = attrs.field(default=SUBSCRIBER_BUFFER, validator=positive)

    def filter(self) -> CompletedTexts | None:
        """What makes the notices that subscribers get of those of each step; None: they get these."""
        return None if self.include_partial else CompletedTexts()


@final
class CompletedTexts:
    """Holds the text of an answer back until its end."""

    def __init__(self) -> None:
        self._held: list[TextDelta | ReasoningDelta] = []

    def shown(self, notices: Sequence[Notice]) -> Sequence[Notice]:
        """*notices* with the text of an answer at its end."""
        return [*_completed(notices, self._held)]

    def rest(self) -> Sequence[Notice]:
        """The text of an answer that was left: a run that was drained ends without one of `ENDS`."""
        return [*_joined(self._held)]


def _completed(notices: Iterable[Notice], held: list[TextDelta | ReasoningDelta]) -> Iterator[Notice]:
    """*notices* with the text of an answer at its end; until then it is *held*."""
    for notice in notices:
        # Held, not joined at once: the answer may be dropped, and then none of it was ever shown.
        if isinstance(notice, TextDelta | ReasoningDelta):
            held.append(notice)
            continue
        # The whole call comes with the end of the turn.
        if isinstance(notice, CallDelta):
            continue
        # The model is asked again: its text so far is no part of the conversation.
        if isinstance(notice, AnswerDropped):
            held.clear()
            continue
        if isinstance(notice, ENDS):
            yield from _joined(held)
        yield notice


def _joined(held: list[TextDelta | ReasoningDelta]) -> Iterator[Notice]:
    """Empty *held*: neighbours of one kind as one notice, so that text and reasoning keep their order."""
    for kind, deltas in groupby(held, type):
        yield kind("".join([delta.text for delta in deltas]))
    held.clear()
