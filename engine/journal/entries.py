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

# Raise it once in a release with anything that an older turnwheel could not read or would misread: a word, a
# field or a value that is new, means something else or leads elsewhere. Then state in `migrations` what the
# older version wrote, and what it did where the journal does not say.
#
# Five other formats have versions of their own:
# - `snapshots.SNAPSHOT_VERSION`: raise it when a state or the memory changes. An older snapshot is refused,
#   since the journal leads to the same machine.
# - `checkpoints.CHECKPOINT_VERSION`: raise it when what a session knows changes. This version and that of
#   snapshots are in it. One of any other version is passed over.
# - `export.FORMAT_VERSION`: raise it when a part of the document goes or means something else. An addition is
#   no new version.
# - `sqlite_file.LAYOUT_VERSION`, of an SQLite file: raise it with every change of its tables, and state there
#   how older files are upgraded. A table that means something else needs another name, for processes
#   that have the file open.
# - A row of a store, `SessionSummary`, has none: an unreadable one is made again from the journal. So a field
#   that means something else needs another name.
# The version of the entries written here, which each entry has; an older one is migrated when it is read.
VERSION = 4


@final
@attrs.frozen(kw_only=True)
class RunOpened:
    """A run began under *config*, with the inputs that were posted or left over before."""

    at: float
    run: str
    config: Config


@final
@attrs.frozen(kw_only=True)
class TakenOver:
    """Another process, or the same one later, drives the run; *config* where its settings are others."""

    # Written before any request is performed again. It is a compare-and-set, so of two workers that would
    # take over the same run, one fails here and has done nothing yet.
    at: float
    config: Config | None = None


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
    # The error. A later turnwheel may have mended the bug, and must not go on where the run ended.
    failed: str = ""
    # Older turnwheels went on otherwise from here, which no label tells: calls that were summarised did not
    # count as repetitions any more, and a run whose model refused ended as any other.
    newer: bool = False


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
