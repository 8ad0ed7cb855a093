"""
What a journal holds: how each run began, who went on with it, and every event that was applied.

A run is the fold of its journal, so nothing else is written: not the states, not the requests (an event is
journaled before anything that follows from it is performed), and the pieces of a stream merged into one.
"""

from __future__ import annotations

from typing import final

import attrs

from ...effects.config import Config
from ...effects.events import Event, Post
from ...effects.usage import Spent

VERSION = 3
"""
The version of what is written here, and of what the machine makes of it: each entry says it.

An entry of an older one is migrated when it is read, one of a newer one is refused. Raise it, once in a
release, with whatever an older turnwheel could not read or would take for something else: a word, a field
or a value that is new, and one that means something else or leads elsewhere. Then say in `migrations` what
the older version wrote, and what it did without being told.

Four other things have versions of their own. `snapshots.VERSION`: raise it when a state or the memory
changes; an older one is refused, since the journal leads to the same machine. `archive.FORMAT_VERSION`:
raise it when something that an export has goes or means something else; what comes to it is no new version.
The layout of an SQLite file, `VERSION` beside its tables: raise it with every change of them, and say there
how older files come up to it; a table that means something else has to have another name, for those that
have the file open. A row of a store, `About`, has none: what cannot be read of it is made again from the
journal, so a field that means something else needs another name.
"""


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
    """
    Another process, or the same one later, goes on with the run; *config* where it was set up differently.

    Written before anything is done again, so that of two that would go on only one does.
    """

    at: float
    config: Config | None = None


@final
@attrs.frozen(kw_only=True)
class HandedOver:
    """
    Whoever drove the run has let what was at work come to its end, and begins nothing any more.

    Of the requests that are open then, nobody has begun those in *unbegun*: whoever takes over does, for the
    first time. What else is open was at work and had to be left, or waits for people or for a time.
    """

    at: float
    unbegun: tuple[str, ...] = ()


@final
@attrs.frozen(kw_only=True)
class Posted:
    """
    *event* came in from outside, through whichever process; whoever drives the run applies it.

    It may be written while somebody else drives, and so may `Titled`; nothing else may.
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


@final
@attrs.frozen(kw_only=True)
class Branched:
    """
    The conversation goes on from where it was when *run* ended, or from its beginning where that is empty.

    What was said since stays in the journal, as a branch of its own.
    """

    at: float
    run: str


@final
@attrs.frozen(kw_only=True)
class Forked:
    """
    What stands before this is a copy of *session*; from here on it goes its own way.

    A run that was copied in its middle goes on as *run*, so that what it asks for from now on has ids of its
    own: they are what tools know work by that was done before. Empty where none was under way.
    """

    at: float
    session: str
    run: str = ""


@final
@attrs.frozen(kw_only=True)
class Titled:
    """The session is called *title*, empty for nothing; *spent* is what a model used that was asked."""

    at: float
    title: str
    spent: Spent = Spent()


Entry = RunOpened | TakenOver | HandedOver | Posted | Stepped | Branched | Forked | Titled
"""One line of a journal."""


def time_of(entry: Entry) -> float:
    """When *entry* was written, in seconds since the epoch; of an event, when it happened."""
    return entry.event.at if isinstance(entry, Posted | Stepped) else entry.at
