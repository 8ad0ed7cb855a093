"""The store of tests and of sessions that are not resumed: it ends with the process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias, final

import attrs

from ...effects.errors import StoreConflict, StoreError
from .base import SessionInfo

_Sessions: TypeAlias = dict[str, tuple[SessionInfo, list[bytes]]]


@final
class MemoryStore:
    """
    Keeps everything in this process, as a `Store`. *now* gives the time, in seconds since the epoch.

    Event loops in several threads may share one.
    """

    def __init__(self, *, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._sessions: _Sessions | None = {}
        self._lock = threading.Lock()

    async def append(
        self, session: str, expected: int, entries: Sequence[bytes], about: bytes | None = None
    ) -> int:
        """Add *entries* to *session*, which must hold exactly *expected*; see `Store.append`."""
        # One lock over comparing and writing: that is all that makes it a compare-and-set between threads.
        with self._lock:
            sessions = self._open()
            info, kept = sessions.get(session, (None, list[bytes]()))
            if len(kept) != expected:
                raise StoreConflict(session, expected, len(kept))
            if entries:
                kept.extend(entries)
                at = self._now()
                created, said = (info.created, info.about) if info else (at, b"")
                said = said if about is None else about
                info = SessionInfo(session=session, length=len(kept), created=created, updated=at, about=said)
                sessions[session] = info, kept
            elif info is not None and about is not None:
                sessions[session] = attrs.evolve(info, about=about), kept
            return len(kept)

    async def load(self, session: str, start: int = 0) -> Sequence[bytes]:
        """The entries of *session* from index *start* on; see `Store.load`."""
        with self._lock:
            _, kept = self._open().get(session, (None, []))
            # A slice is a copy, which a later append does not change under its reader. A negative start would
            # count from the end.
            return kept[max(start, 0) :]

    async def list(self) -> Sequence[SessionInfo]:
        """All sessions, last written first."""
        with self._lock:
            infos = [info for info, _ in self._open().values()]
        # By name where the clock did not move between two, so that a list is the same each time.
        return sorted(infos, key=lambda info: (-info.updated, info.session))

    async def delete(self, session: str) -> bool:
        """Forget *session*; whether there was one."""
        with self._lock:
            return self._open().pop(session, None) is not None

    async def close(self) -> None:
        """Forget everything. Closing twice is fine."""
        with self._lock:
            self._sessions = None

    def _open(self) -> _Sessions:
        if self._sessions is None:
            msg = "the memory store is closed and what it held is gone; make a new one"
            raise StoreError(msg)
        return self._sessions
