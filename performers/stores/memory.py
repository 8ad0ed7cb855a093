"""The store of tests and of sessions that are not resumed: it ends with the process."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count, islice, takewhile
from typing import final

import attrs

from ...effects.errors import SessionGone, StoreConflict, StoreError
from .base import MAX_OVERDUE, Entries, Mark, SessionInfo, Store


@final
@attrs.define(eq=False)
class _Session:
    name: str
    incarnation: str
    created: float
    updated: float = 0.0
    entries: list[bytes] = attrs.field(factory=list)
    checkpoints: dict[int, bytes] = attrs.field(factory=dict)
    about: bytes = b""
    stamp: int = 0

    @property
    def info(self) -> SessionInfo:
        return SessionInfo(
            session=self.name,
            length=len(self.entries),
            created=self.created,
            updated=self.updated,
            about=self.about,
            incarnation=self.incarnation,
            stamp=self.stamp,
        )


# Stamps of earlier writings that are left, besides as many as there are sessions, until they are swept out.
SWEEP = 64


@final
class MemoryStore(Store):
    """
    Keeps everything in this process, as a `Store`. *now* gives the time, in seconds since the epoch.

    Event loops in several threads may share one.
    """

    keeps_leases = True
    keeps_deadlines = True
    keeps_checkpoints = True
    keeps_meters = True
    tells_news = True

    def __init__(self, *, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._sessions: dict[str, _Session] | None = {}
        # The sessions in the order of their stamps and of their names, so that a page costs no look at all.
        self._numbers = count(1)
        self._stamps: list[int] = []
        self._written: dict[int, _Session] = {}
        self._names: list[str] = []
        self._deletions = 0
        self._leases: dict[str, bytes] = {}
        self._deadlines: dict[str, float] = {}
        self._meters: dict[str, bytes] = {}
        self._incarnations = map(str, count(1))
        self._lock = threading.Lock()

    async def append(
        self,
        session: str,
        expected: int,
        entries: Sequence[bytes],
        about: bytes | None = None,
        incarnation: str = "",
    ) -> str:
        """Add *entries* to *session*, which must hold exactly *expected*; see `Store.append`."""
        # One lock over comparing and writing: that is all that makes it a compare-and-set between threads.
        with self._lock:
            kept = self._find(session, incarnation)
            length = len(kept.entries) if kept else 0
            if length != expected:
                raise StoreConflict(session, expected, length)
            if entries:
                at = self._now()
                if kept is None:
                    kept = self._open()[session] = _Session(session, next(self._incarnations), at)
                    insort(self._names, session)
                kept.entries.extend(entries)
                kept.updated = at
                self._stamp(kept)
            if kept is not None and about is not None:
                kept.about = about
            return kept.incarnation if kept else ""

    async def load(
        self, session: str, start: int = 0, end: int | None = None, incarnation: str = ""
    ) -> Entries:
        """The entries of *session* from index *start* to before *end*; see `Store.load`."""
        with self._lock:
            kept = self._find(session, incarnation)
            if kept is None:
                return Entries()
            # A negative number would count from the end.
            part = slice(max(start, 0), None if end is None else max(end, 0))
            return Entries(kept.entries[part], kept.incarnation)

    def _stamp(self, kept: _Session) -> None:
        """Put *kept* before all other sessions."""
        self._written.pop(kept.stamp, None)
        kept.stamp = next(self._numbers)
        self._written[kept.stamp] = kept
        self._stamps.append(kept.stamp)
        # Those of earlier writings are left, since each would cost a look for its place.
        if len(self._stamps) > 2 * len(self._written) + SWEEP:
            self._stamps = list(self._written)

    async def list(
        self, limit: int | None = None, after: int | None = None, prefix: str = ""
    ) -> Sequence[SessionInfo]:
        """The sessions whose names begin with *prefix*, last written first; see `Store.list`."""
        with self._lock:
            self._open()
            found = self._named(prefix, after, limit) if prefix else self._behind(after)
            return [kept.info for kept in islice(found, limit)]

    def _behind(self, after: int | None) -> Iterator[_Session]:
        end = len(self._stamps) if after is None else bisect_left(self._stamps, after)
        stamps = (self._stamps[place] for place in range(end - 1, -1, -1))
        return (self._written[stamp] for stamp in stamps if stamp in self._written)

    def _named(self, prefix: str, after: int | None, limit: int | None) -> Iterator[_Session]:
        sessions = self._open()
        first = bisect_left(self._names, prefix)
        end = bisect_right(self._names, prefix, first, key=lambda name: name[: len(prefix)])
        # A page of very many is found sooner by the stamps than by sorting all of them for each page.
        if limit is not None and (end - first) ** 2 > limit * len(sessions):
            return (kept for kept in self._behind(after) if kept.name.startswith(prefix))
        found = sorted([sessions[name] for name in self._names[first:end]], key=lambda kept: -kept.stamp)
        return (kept for kept in found if after is None or kept.stamp < after)

    async def info(self, session: str) -> SessionInfo | None:
        """*session* as `list` has it; None where it is not there."""
        with self._lock:
            kept = self._open().get(session)
            return kept and kept.info

    async def delete(self, session: str, incarnation: str = "") -> bool:
        """Forget *session*; whether there was one."""
        with self._lock:
            kept = self._find(session, incarnation)
            self._leases.pop(session, None)
            self._deadlines.pop(session, None)
            if kept is None:
                return False
            del self._open()[session]
            self._deletions += 1
            del self._written[kept.stamp], self._names[bisect_left(self._names, session)]
            return True

    async def lease(
        self, session: str, held: bytes | None, wanted: bytes | None, incarnation: str = ""
    ) -> bytes | None:
        """Put the lease *wanted* in the place of *held*; see `Store.lease`."""
        with self._lock:
            self._find(session, incarnation)
            there = _swapped(self._leases, session, held, wanted)
            return wanted if there == held else there

    async def meter(self, name: str, held: bytes | None, wanted: bytes | None) -> tuple[bytes | None, float]:
        """Put *wanted* in the place of *held* as the meter *name*; see `Store.meter`."""
        with self._lock:
            self._open()
            return _swapped(self._meters, name, held, wanted), self._now()

    async def set_deadline(self, session: str, due: float | None, incarnation: str = "") -> None:
        """Keep *due* as the deadline of *session*; see `Store.set_deadline`."""
        with self._lock:
            there = self._find(session, incarnation) is not None
            if there and due is not None:
                self._deadlines[session] = due
            else:
                self._deadlines.pop(session, None)

    async def overdue(self, moment: float, skip: int = 0) -> Sequence[str]:
        """Sessions whose deadline is *moment* or before; see `Store.overdue`."""
        with self._lock:
            self._open()
            found = [(due, name) for name, due in self._deadlines.items() if due <= moment]
            return [name for _, name in sorted(found)[skip : skip + MAX_OVERDUE]]

    async def keep_checkpoint(
        self, session: str, position: int, body: bytes, first: int, incarnation: str = ""
    ) -> None:
        """Keep *body* as a checkpoint of *session*; see `Store.keep_checkpoint`."""
        with self._lock:
            if (kept := self._find(session, incarnation)) is not None:
                before = {at: one for at, one in kept.checkpoints.items() if first <= at < position}
                kept.checkpoints = {**before, position: body}

    async def checkpoints(self, session: str, incarnation: str = "") -> Sequence[bytes]:
        """The checkpoints of *session*, by their positions."""
        with self._lock:
            kept = self._find(session, incarnation)
            return [*kept.checkpoints.values()] if kept else []

    async def leases(self) -> Mapping[str, bytes]:
        """The leases of all sessions that have one; see `Store.leases`."""
        with self._lock:
            self._open()
            return dict(self._leases)

    async def news(self, sessions: Sequence[str], since: Mark | None) -> tuple[Mark, Sequence[str]]:
        """The *sessions* that were written to or deleted since then; see `Store.news`."""
        with self._lock:
            there, before = self._open(), since or (0, 0)
            now = self._stamps[-1] if self._stamps else 0, self._deletions
            if now == before:
                return now, []
            gone = [name for name in sessions if name not in there] if now[1] > before[1] else []
            late = takewhile(lambda kept: kept.stamp > before[0], self._behind(None))
            written = {kept.name for kept in late}.intersection(sessions)
            return now, [*written, *gone]

    async def close(self) -> None:
        """Forget everything. Closing twice is fine."""
        with self._lock:
            self._sessions = None
            self._stamps.clear()
            for kept in (self._written, self._names, self._leases, self._deadlines, self._meters):
                kept.clear()

    def _find(self, session: str, incarnation: str) -> _Session | None:
        """The session that is there; `SessionGone` where that is not the *incarnation* that was named."""
        kept = self._open().get(session)
        if incarnation and (kept is None or kept.incarnation != incarnation):
            raise SessionGone(session, kept is not None)
        return kept

    def _open(self) -> dict[str, _Session]:
        if self._sessions is None:
            msg = "the memory store is closed and what it held is gone; make a new one"
            raise StoreError(msg)
        return self._sessions


def _swapped(kept: dict[str, bytes], name: str, held: bytes | None, wanted: bytes | None) -> bytes | None:
    """Put *wanted* in the place of *held* among those *kept* by name; what was there."""
    there = kept.get(name)
    if there == held and wanted is None:
        kept.pop(name, None)
    elif there == held and wanted is not None:
        kept[name] = wanted
    return there
