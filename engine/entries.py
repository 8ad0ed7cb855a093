"""
What a journal holds: how each run began, who went on with it, and every event that was applied.

A run is the fold of its journal, so nothing else is written: not the states, not the requests (an event is
journaled before anything that follows from it is performed), and the pieces of a stream merged into one.
"""

from __future__ import annotations

from typing import final

import attrs

from ..effects.config import Config
from ..effects.events import ApprovalGiven, Event

VERSION = 1
"""The version of what is written here. A journal of a newer one is refused."""


@final
@attrs.frozen(kw_only=True)
class RunOpened:
    """A run began with *prompt*, under *config*. *sender* is the id the prompt came with."""

    at: float
    run: str
    sender: str
    prompt: str
    config: Config
    version: int


@final
@attrs.frozen(kw_only=True)
class TakenOver:
    """
    Another process, or the same one later, goes on with the run; *config* where it was set up differently.

    Written before anything is done again, so that of two that would go on only one does.
    """

    at: float
    config: Config | None = None


@final
@attrs.frozen(kw_only=True)
class Posted:
    """*event* came in while nobody drove the run; it is applied when somebody does."""

    event: ApprovalGiven


@final
@attrs.frozen(kw_only=True)
class Stepped:
    """
    *event* was applied and led to the state with this *label*.

    The label is a check: a fold that ends up elsewhere is not the run that was written down.
    """

    event: Event
    label: str


Entry = RunOpened | TakenOver | Posted | Stepped
"""One line of a journal."""
