"""
The faults that the stand-in plays, by the name of its model, so that retries can be tried offline.

Tries are counted for each text of the user, so each prompt meets the same faults, however many turns its
answer takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import final

import attrs

from .wire import TOKEN_CHARACTERS, WireMessage

SMALL_MODEL = "stand-in-small"

SMALL_WINDOW = 3_000
"""The window of the small model in tokens, about one file. It refuses longer requests, as providers do."""


@final
@attrs.frozen(kw_only=True)
class Refuse:
    """
    A refusal: an HTTP *status*, the *kind* and *message* of the error, and *headers* such as Retry-After.
    """

    status: int
    kind: str
    message: str
    headers: Mapping[str, str] = attrs.field(factory=dict)


@final
@attrs.frozen(kw_only=True)
class Cut:
    """A stream whose connection breaks *after* so many chunks; the first chunk has no text."""

    after: int


Fault = Refuse | Cut

_LIMITED = Refuse(
    status=429,
    kind="rate_limit_exceeded",
    message="Rate limit reached. Please try again in 1s.",
    headers={"Retry-After": "1"},
)
_OVERLOADED = Refuse(status=529, kind="overloaded_error", message="Overloaded.")
_FAILED = Refuse(status=500, kind="server_error", message="The server had an error while it worked on this.")

FAULTS: Mapping[str, tuple[Fault, ...]] = {
    "stand-in-429": (_LIMITED, _LIMITED),
    "stand-in-overloaded": (_OVERLOADED, _OVERLOADED),
    "stand-in-500": (_FAILED, _FAILED),
    "stand-in-cut": (Cut(after=1), Cut(after=5)),
}
"""The faults of a prompt's first, second, ... try; then the model answers."""


@final
class Faults:
    """Counts the faults played so far, over all conversations of one server."""

    def __init__(self) -> None:
        self._tries: Counter[tuple[str, tuple[str, ...]]] = Counter()

    def next(self, model: str, messages: Sequence[WireMessage]) -> Fault | None:
        """The fault of this request, or None."""
        if model == SMALL_MODEL:
            return _overflow(messages)
        planned = FAULTS.get(model, ())
        # The texts of the user identify a prompt: a retry has the same, the next prompt has more.
        key = (model, tuple([message.text for message in messages if message.role == "user"]))
        if (tried := self._tries[key]) >= len(planned):
            return None
        self._tries[key] += 1
        return planned[tried]


def _overflow(messages: Sequence[WireMessage]) -> Refuse | None:
    """The refusal of a conversation that exceeds the small model's window."""
    size = sum(message.size for message in messages) // TOKEN_CHARACTERS
    if size <= SMALL_WINDOW:
        return None
    limit = f"This model's maximum context length is {SMALL_WINDOW} tokens."
    message = f"{limit} However, your messages resulted in {size} tokens."
    return Refuse(status=400, kind="context_length_exceeded", message=message)
