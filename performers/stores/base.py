"""
What a store is: an append-only journal per session, with compare-and-set.

A name is not enough to know a session by: it may be deleted, and another one begun under its name. So each
has an incarnation, which no other one ever has, and every call may name the one that it is meant for.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import PurePath
from typing import Literal, Self, TypeAlias, final

import attrs

from ...effects.errors import ConfigError
from ..steady import SteadyTime

# What an entry survives: the end of everything but the disk, or the end of the process only.
Durability = Literal["power", "process"]


@final
@attrs.frozen(kw_only=True)
class SessionInfo:
    """
    A stored session: *length* entries, last written at *updated* (seconds since the epoch).

    *about* is the summary that its last writer gave, empty where none did. *incarnation* tells it from others
    that had or will have its name. Of two sessions, the one that was written last has the higher *stamp*.
    """

    session: str
    length: int
    created: float
    updated: float
    about: bytes = b""
    incarnation: str = ""
    # Where a session stands among others is no part of what it is.
    stamp: int = attrs.field(eq=False)


@final
class Entries(tuple[bytes, ...]):  # noqa: SLOT001  # no tuple has room for a slot
    """Entries of a session, in their order, and its *incarnation*; empty for a session that is not there."""

    incarnation: str

    def __new__(cls, entries: Iterable[bytes] = (), incarnation: str = "") -> Self:
        """The *entries* of that *incarnation*."""
        made = super().__new__(cls, entries)
        made.incarnation = incarnation
        return made


# How far the writing of a store had come; means something to that store only.
Mark: TypeAlias = tuple[int, ...]

# Called with what says whether a session may have been written to; from any thread.
Hear: TypeAlias = Callable[[Callable[[str], bool]], object]

# The most sessions that `overdue` gives at once.
MAX_OVERDUE = 100


class Store(ABC):
    """
    Keeps bytes; knows nothing of what they mean.

    An entry's sequence number is its index in its session, from 0. `append` is the only way to write, and it
    is all or nothing: two writers that both believe to be at the end cannot both go on. Sessions share
    nothing, and one is there as soon as it has an entry.

    With its first entry a session gets an incarnation: a short text that no session of the store had or will
    have, also not one of the same name. A caller that knows a session names its incarnation; empty means that
    it knows none, and takes the one that is there. Where that one is not there any more, the method raises
    `SessionGone`, and reads and writes nothing.

    Every method raises `StoreError` where the store cannot be reached or was closed. Cancelling one leaves
    its work in no doubt: it is done before the cancellation goes on.

    The abstract methods make a store. All others have a default, for a store that does not keep what they are
    about; a store that keeps it overrides them and sets the attribute that says so.

    `turnwheel.testing.store_contract` has all of this as checks for a store of your own.
    """

    # Leases say who is at work on a session. Without them, any process that resumes a session takes it over.
    keeps_leases: bool = False
    # Deadlines say when a process is wanted for a session. Without them, the deadline of a question passes
    # unseen where the process that counted the time is gone, until the session's next input.
    keeps_deadlines: bool = False
    # Checkpoints are what a session was after so many entries. Without them, each object of a session reads
    # its journal from the first entry.
    keeps_checkpoints: bool = False
    # Meters are what all processes on the store count together. Without them, each process counts for itself.
    keeps_meters: bool = False
    # `time` is a clock that all processes share. Without it, each process judges deadlines by the wall clock
    # of its machine.
    keeps_time: bool = False
    # `news` says which sessions were written to. Without it, each session that waits reads its journal every
    # half second.
    tells_news: bool = False
    # `on_news` calls at once where another process wrote.
    calls_on_news: bool = False

    @property
    def presence(self) -> str:
        """
        What marks this process at the store for as long as it is connected; `absent` says of others.

        Empty where there are no such marks: a process of another machine is then known to be gone only by the
        lease that it does not renew.
        """
        return ""

    @property
    def path(self) -> str:
        """The file that this store keeps; empty for none. Agents are not to edit it unasked."""
        return ""

    @abstractmethod
    async def append(
        self,
        session: str,
        expected: int,
        entries: Sequence[bytes],
        about: bytes | None = None,
        incarnation: str = "",
    ) -> str:
        """
        Add *entries* to *session*, which must hold exactly *expected*; return its incarnation.

        *about* is the session's summary in `list` from now on, None for the one before: a few hundred bytes,
        so that a list reads no journal. Without entries, only the summary changes, and the time of the last
        writing stays; a session that is not there gets none, and has no incarnation.

        All of it is kept when this returns, as durably as the store promises, and also when it is cancelled.
        Raises `StoreConflict` where the session has another length, and writes nothing then. It may send all
        entries along that are behind the expected ones, as `load` would give them.
        """

    @abstractmethod
    async def load(
        self, session: str, start: int = 0, end: int | None = None, incarnation: str = ""
    ) -> Entries:
        """
        The entries of *session* from index *start* to before *end*; to the last one without an end.

        Either may lie outside the session. Empty for a session that is not there; where it is there, and only
        the part is empty, the incarnation says so. Entries outside the part should cost nothing.
        """

    @abstractmethod
    async def list(
        self, limit: int | None = None, after: int | None = None, prefix: str = ""
    ) -> Sequence[SessionInfo]:
        """
        The sessions whose names begin with *prefix*, last written first.

        At most *limit* of them, and only those behind the stamp *after*: with the stamp of the last one, the
        next page follows. A session that is written between two pages moves to the front, and may be missing
        behind. All at once may take a second, in which no append is done.
        """

    @abstractmethod
    async def info(self, session: str) -> SessionInfo | None:
        """*session* as `list` has it; None where it is not there."""

    @abstractmethod
    async def delete(self, session: str, incarnation: str = "") -> bool:
        """Forget *session*; whether there was one."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of files and threads, when the calls before are done. Closing twice is fine."""

    # Leases: for each session one record, which says who is at work on it.

    async def lease(
        self, session: str, held: bytes | None, wanted: bytes | None, incarnation: str = ""
    ) -> bytes | None:
        """
        Put *wanted* in the place of *held* as the lease of *session*, None for none; what is there now.

        Where another one than *held* is there, it stays. Comparing and writing are one step. A session need
        not be there, and one that is deleted loses its lease. A lease may be lost with the power. By default
        each lease is granted.
        """
        return wanted

    async def renew(self, renewals: Mapping[str, tuple[bytes, bytes]]) -> Sequence[str]:
        """
        As `lease` for each session of *renewals*, with its *held* and *wanted*; where another one is there.

        All in one step, for a process with a thousand sessions at work; by default one after the other.
        """
        return [
            name
            for name, (held, wanted) in renewals.items()
            if await self.lease(name, held, wanted) != wanted
        ]

    async def leases(self) -> Mapping[str, bytes]:
        """
        The leases of all sessions that have one, by session.

        A server asks a few times a second: it should cost no more than to read them.
        """
        return {}

    async def absent(self, marks: Collection[str]) -> Collection[str]:
        """
        Those of *marks* whose processes are not connected now; none where that cannot be told.

        One may be about to connect again. Where that may be so of all, as after a restart of the store, it
        cannot be told.
        """
        return ()

    # Deadlines: for each session the moment at which a process is wanted.

    async def set_deadline(self, session: str, due: float | None, incarnation: str = "") -> None:
        """
        Keep *due*, in seconds since the epoch, as the deadline of *session*; None forgets it.

        A session that is not there gets none, and one that is deleted loses it.
        """

    async def overdue(self, moment: float, skip: int = 0) -> Sequence[str]:
        """
        The first `MAX_OVERDUE`, behind *skip*, of the sessions whose deadline is *moment* or before.

        The earliest come first. A server asks every few seconds: it should cost nothing for those that are
        due later.
        """
        return ()

    # Checkpoints: what a session was after so many entries. The engine passes over one that is damaged or
    # does not go with the journal.

    async def keep_checkpoint(
        self, session: str, position: int, body: bytes, first: int, incarnation: str = ""
    ) -> None:
        """
        Keep *body* for *session*, as it was after *position* entries; forget those before *first* and behind.

        A session that is not there gets none. A checkpoint may be lost with the power.
        """

    async def checkpoints(self, session: str, incarnation: str = "") -> Sequence[bytes]:
        """The checkpoints of *session*, by their positions; a session that is deleted loses them."""
        return ()

    # Meters: small records, by name, of what all processes on the store count together.

    async def meter(self, name: str, held: bytes | None, wanted: bytes | None) -> tuple[bytes | None, float]:
        """
        Put *wanted* in the place of *held* as the meter *name*, None for none; what was there, and when.

        Where another one than *held* was there, it stays. Comparing and writing are one step. The time is the
        store's, in seconds since the epoch: that of all processes. A meter may be lost with the power.
        """
        return held, time.time()

    # Time: what the deadlines of the sessions are judged by.

    async def time(self) -> float:
        """The time by the store's clock, in seconds since the epoch; a process asks about once a minute."""
        return time.time()

    @cached_property
    def steady_time(self) -> SteadyTime:
        """The time of the store as this process keeps it between two calls of `time`."""
        return SteadyTime(time.time())

    # News: which sessions were written to, by any process.

    async def news(self, sessions: Sequence[str], since: Mark | None) -> tuple[Mark, Sequence[str]]:
        """
        The *sessions* that were written to or deleted after the mark *since*, and the mark of now.

        The marks come from earlier calls; without one, it may be all. It may be one too many at any time, and
        never one too few. It should cost about the same for a thousand sessions as for one.
        """
        return (), sessions

    def on_news(self, hear: Hear) -> Callable[[], None]:
        """
        Call *hear* soon after another process wrote, until the function that is returned is called.

        A call may be lost: sessions that wait look every half second in any case. By default it is never
        called.
        """
        return _stop_nothing


def _stop_nothing() -> None:
    """End the calls of a store that never calls."""


def checked_store(store: Store | None) -> Store | None:
    """*store*; raises `ConfigError` where it does not derive from `Store`."""
    given: object = store
    if given is None or isinstance(given, Store):  # pyright: ignore[reportUnnecessaryIsInstance]  # a caller may have no type checker
        return given
    if isinstance(given, str | PurePath):
        msg = f"store: {str(given)!r} is no store; write SQLiteStore({str(given)!r})"
        raise ConfigError(msg)
    msg = (
        f"store: {type(given).__name__} does not derive from turnwheel.performers.Store; "
        "derive it, and set the attributes that say what it keeps"
    )
    raise ConfigError(msg)
