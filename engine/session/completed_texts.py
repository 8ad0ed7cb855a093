"""Which notices subscribers get: all of them with partial outputs, or texts as a whole instead of pieces."""

from __future__ import annotations

from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Protocol, final

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
    from collections.abc import Callable, Sequence

    from ...effects.output import OutputSpec


class NoticeFilter(Protocol):
    """Makes the notices that subscribers of one run get of those of its steps."""

    def filtered(self, notices: Sequence[Notice], /) -> Sequence[Notice]:
        """The notices that subscribers get of the *notices* of a step."""
        ...

    def held_back(self) -> Sequence[Notice]:
        """The notices that are held back when the work on the run ends."""
        ...


_Held = TextDelta | ReasoningDelta | ProviderCalled | SourceCited


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

    def filter(self, output: OutputSpec | None, heard: Callable[[], bool]) -> NoticeFilter | None:
        """
        A filter for a run with this *output*; None where subscribers get all notices as they are.

        *heard* says whether there is a reader now.
        """
        if not self.include_partial:
            return CompletedTexts()
        if output is None:
            return None
        # Imported here: most runs have no output.
        from ..partial_outputs import PartialOutputs  # noqa: PLC0415  # see above

        return PartialOutputs(output, heard)


@final
class CompletedTexts:
    """Holds the text of an answer back until its end, with the calls and sources of the provider in it."""

    def __init__(self) -> None:
        # Held, not joined at once: the answer may be dropped, and then none of it was ever shown.
        self._held: list[_Held] = []

    def filtered(self, notices: Sequence[Notice]) -> Sequence[Notice]:
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
                    passed += self.held_back()
                passed.append(notice)
        return passed

    def held_back(self) -> Sequence[Notice]:
        """The text of an answer that was left: a run that was drained ends without one of `ENDS`."""
        # Neighbours of one text are one notice, so text and reasoning keep their order.
        texts = accumulate([isinstance(notice, TextDelta) and notice.begins for notice in self._held])
        told: list[Notice] = []
        for _, group in groupby(zip(self._held, texts, strict=True), lambda each: (type(each[0]), each[1])):
            told += _joined([notice for notice, _ in group])
        self._held.clear()
        return told


def _joined(alike: Sequence[_Held]) -> Sequence[Notice]:
    """Notices of one kind, *alike*; those of a text as one that came when the last of them did."""
    text = "".join([one.text for one in alike if isinstance(one, TextDelta | ReasoningDelta)])
    match alike[0]:
        case TextDelta(begins=begins):
            return [TextDelta(text, begins, at=alike[-1].at)]
        case ReasoningDelta():
            return [ReasoningDelta(text, at=alike[-1].at)]
        case _:
            return alike
