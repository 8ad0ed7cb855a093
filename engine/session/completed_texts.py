"""The texts of answers as a whole, for subscribers that want no pieces of them."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, final

import attrs

from ...effects.notices import (
    ENDS,
    AnswerDropped,
    CallDelta,
    Notice,
    ProviderCalled,
    ReasoningDelta,
    SourceCited,
    TextDelta,
)
from ...effects.validators import positive, spelled
from .feed import SUBSCRIBER_BUFFER

if TYPE_CHECKING:
    from collections.abc import Sequence


@final
@spelled
@attrs.frozen(kw_only=True)
class Delivery:
    """
    Which notices subscribers get, and how.

    Without *include_partial* a text comes once, when the model has answered, with the calls and sources of
    the provider; the text of an answer that broke off is left out. A subscriber may lag *buffer* notices
    behind.
    """

    # On by default: a person who waits wants to see that something happens.
    include_partial: bool = True
    buffer: int = attrs.field(default=SUBSCRIBER_BUFFER, validator=positive)

    def filter(self) -> CompletedTexts | None:
        """Makes the notices of subscribers of those of each step; None where they get these."""
        return None if self.include_partial else CompletedTexts()


@final
class CompletedTexts:
    """Holds the text of an answer back until its end, with the calls and sources of the provider in it."""

    def __init__(self) -> None:
        # Held, not joined at once: the answer may be dropped, and then none of it was ever shown.
        self._held: list[TextDelta | ReasoningDelta | ProviderCalled | SourceCited] = []

    def shown(self, notices: Sequence[Notice]) -> Sequence[Notice]:
        """*notices* with the text of an answer at its end."""
        passed: list[Notice] = []
        for notice in notices:
            if isinstance(notice, TextDelta | ReasoningDelta | ProviderCalled | SourceCited):
                self._held.append(notice)
            elif isinstance(notice, AnswerDropped):
                # The model is asked again: its text so far is no part of the conversation.
                self._held.clear()
            # The whole call comes with the end of the turn.
            elif not isinstance(notice, CallDelta):
                if isinstance(notice, ENDS):
                    passed += self.rest()
                passed.append(notice)
        return passed

    def rest(self) -> Sequence[Notice]:
        """The text of an answer that was left: a run that was drained ends without one of `ENDS`."""
        # Neighbours of one kind are one notice, so text and reasoning keep their order.
        told: list[Notice] = []
        for _, group in groupby(self._held, type):
            alike = list(group)
            texts = [notice for notice in alike if isinstance(notice, TextDelta | ReasoningDelta)]
            told += [_joined(texts)] if texts else alike
        self._held.clear()
        return told


def _joined(deltas: Sequence[TextDelta | ReasoningDelta]) -> TextDelta | ReasoningDelta:
    """*deltas*, which are of one kind, as one that came when the last of them did."""
    return type(deltas[0])("".join([delta.text for delta in deltas]), at=deltas[-1].at)
