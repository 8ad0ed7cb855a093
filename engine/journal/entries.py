"""
The entries of a journal: how each run began, which workers drove it, and every event that was applied.

A run is the fold of its journal, so nothing else is stored: no states and no requests. An event is journaled
before any request that follows from it is performed, and the pieces of a stream are merged into one.
"""

from __future__ import annotations

from typing import final

import attrs

from ...effects.config import Config
from ...effects.events import Event, Post
from ...effects.usage import Spent

# The version of entries, snapshots and checkpoints; each has it, and a newer one is not read. Once a version
# is released, raise it with the first change after which an older turnwheel would misread an entry, and
# have `encoding.decode_entry` read the older one.
#
# Formats with versions of their own: `export.FORMAT_VERSION`, and the layouts of the stores' tables. A
# summary row has none, since an unreadable one is made again from the journal.
VERSION = 1


@final
@attrs.frozen(kw_only=True)
class RunOpened:
    """
    A run began under *config*, with the inputs that were posted or left over before.

    The ids of its requests have numbers from *next_id* on, behind those of the runs before: a person knows a
    call by its number alone. *trace* is the ``traceparent`` of the run's span, empty without telemetry.
    """

    # Written down, and not counted again by each fold: a run that a bug has ended may be counted otherwise
    # by a version without the bug.
    at: float
    run: str
    config: Config
    next_id: int = 1
    trace: str = ""


@final
@attrs.frozen(kw_only=True)
class TakenOver:
    """
    Another process, or the same one later, drives the run; *config* where its settings are others.

    *trace* is as in `RunOpened`, of the span of that process.
    """

    # Written before any request is performed again. It is a compare-and-set, so of two workers that would
    # take over the same run, one fails here and has done nothing yet.
    at: float
    config: Config | None = None
    trace: str = ""


@final
@attrs.frozen(kw_only=True)
class HandedOver:
    """The worker let running requests end and stopped; of the open ones it had not begun *unbegun*."""

    # The next worker begins those for the first time. Without this entry each open tool would be in doubt: a
    # worker that crashes cannot say what it had begun. The other open requests had to be left at work, or
    # wait for people or for a time.
    at: float
    unbegun: tuple[str, ...] = ()


@final
@attrs.frozen(kw_only=True)
class Posted:
    """*event* came in from outside, through any process; the worker applies it."""

    # Only this entry and `Titled` may be written while another process drives the session: they do not touch
    # the machine, so the driver can append after them without folding again.
    event: Post


@final
@attrs.frozen(kw_only=True)
class Stepped:
    """*event* was applied and led to the state with this *label*; to done where a handler *failed* at it."""

    # The label is a check: a fold that ends up elsewhere is not the run that was journaled.
    event: Event
    label: str
    # The error message. A turnwheel in which the bug is fixed must still end the run here.
    failed: str = ""


@final
@attrs.frozen(kw_only=True)
class Branched:
    """The conversation goes on from the end of *run*, or from its beginning where that is empty."""

    # Later messages stay in the journal as a branch of their own, which a person may go back to.
    at: float
    run: str


@final
@attrs.frozen(kw_only=True)
class Forked:
    """The entries before this one are a copy of those of *session*; a run in its middle goes on as *run*."""

    # Ids of requests begin with the run's, and tools know work done before by those ids. Under the old name
    # the copy's requests could meet the original's. Empty where no run was under way.
    at: float
    session: str
    run: str = ""


@final
@attrs.frozen(kw_only=True)
class Titled:
    """The session has the *title*, empty for none; *spent* is the cost of asking a model for it."""

    at: float
    title: str
    spent: Spent = Spent()


# One line of a journal.
Entry = RunOpened | TakenOver | HandedOver | Posted | Stepped | Branched | Forked | Titled


def time_of(entry: Entry) -> float:
    """When *entry* was written, in seconds since the epoch; of an event, when it happened."""
    return entry.event.at if isinstance(entry, Posted | Stepped) else entry.at
