"""
What a journal holds: how each run began, who went on with it, and every event that was applied.

A run is the fold of its journal, so nothing else is written: not the states, not the requests (an event is
journaled before anything that follows from it is performed), and the pieces of a stream merged into one.
"""

from __future__ import annotations

from typing import final

import attrs

from ..effects.config import Config
from ..effects.events import Event, Post

VERSION = 1
"""The version of what is written here. A journal of a newer one is refused."""


@final
@attrs.frozen(kw_only=True)
class RunOpened:
    """A run began under *config*, with the inputs that were posted or left over before."""

    at: float
    run: str
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
    """
    *event* came in from outside, through whichever process; whoever drives the run applies it.

    It is the one entry that may be written while somebody else drives.
    """

    event: Post


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
