"""The store of tests and of sessions that are not resumed: it ends with the process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import final

import attrs

from ...effects.errors import SessionGone, StoreConflict, StoreError
from .base import Entries, SessionInfo


@final
@attrs.define(eq=False)
class _Session:
    incarnation: str
    created: float
    updated: float
    entries: list[bytes] = attrs.field(factory=list)
    about: bytes = b""


@final
class MemoryStore:
    """
    Keeps everything in this process, as a `Store`. *now* gives the time, in seconds since the epoch.

    Event loops in several threads may share one.
    """

    def __init__(self, *, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._sessions: dict[str, _Session] | None = {}
        self._leases: dict[str, bytes] = {}
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
                    kept = self._open()[session] = _Session(next(self._incarnations), at, at)
                kept.entries.extend(entries)
                kept.updated = at
            if kept is not None and about is not None:
                kept.about = about
            return kept.incarnation if kept else ""

    async def load(self, session: str, start: int = 0, incarnation: str = "") -> Entries:
        """The entries of *session* from index *start* on; see `Store.load`."""
        with self._lock:
            kept = self._find(session, incarnation)
            # A negative start would count from the end.
            return Entries(kept.entries[max(start, 0) :], kept.incarnation) if kept else Entries()

    async def list(self) -> Sequence[SessionInfo]:
        """All sessions, last written first."""
        with self._lock:
            infos = [
                SessionInfo(
                    session=name,
                    length=len(kept.entries),
                    created=kept.created,
                    updated=kept.updated,
                    about=kept.about,
                    incarnation=kept.incarnation,
                )
                for name, kept in self._open().items()
            ]
        # By name where the clock did not move between two, so that a list is the same each time.
        return sorted(infos, key=lambda info: (-info.updated, info.session))

    async def delete(self, session: str) -> bool:
        """Forget *session*; whether there was one."""
        with self._lock:
            self._leases.pop(session, None)
            return self._open().pop(session, None) is not None

    async def lease(
        self, session: str, held: bytes | None, wanted: bytes | None, incarnation: str = ""
    ) -> bytes | None:
        """Put the lease *wanted* in the place of *held*; see `LeasingStore.lease`."""
        with self._lock:
            self._find(session, incarnation)
            there = self._leases.get(session)
            if there != held:
                return there
            if wanted is None:
                self._leases.pop(session, None)
            else:
                self._leases[session] = wanted
            return wanted

    async def close(self) -> None:
        """Forget everything. Closing twice is fine."""
        with self._lock:
            self._sessions = None
            self._leases.clear()

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
