"""Stores for tests: one to derive others from, and one that fails on demand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import final

from ..effects.errors import StoreError
from ..performers.stores.base import Entries, Hear, Mark, SessionInfo, Store
from ..performers.stores.memory import MemoryStore


class StoreOver(Store):
    """
    A store that passes each call on to the store *kept*, by default one in memory.

    Derive from it, and override the methods that are to differ.
    """

    def __init__(self, kept: Store | None = None) -> None:
        self.kept: Store = MemoryStore() if kept is None else kept
        self.keeps_leases = self.kept.keeps_leases
        self.keeps_deadlines = self.kept.keeps_deadlines
        self.keeps_checkpoints = self.kept.keeps_checkpoints
        self.keeps_meters = self.kept.keeps_meters
        self.keeps_time = self.kept.keeps_time
        self.tells_news = self.kept.tells_news
        self.calls_on_news = self.kept.calls_on_news

    @property
    def path(self) -> str:
        """The file of *kept*."""
        return self.kept.path

    async def append(
        self,
        session: str,
        expected: int,
        entries: Sequence[bytes],
        about: bytes | None = None,
        incarnation: str = "",
    ) -> str:
        """Add *entries* to *session*; see `Store.append`."""
        return await self.kept.append(session, expected, entries, about, incarnation)

    async def load(
        self, session: str, start: int = 0, end: int | None = None, incarnation: str = ""
    ) -> Entries:
        """The entries of *session* from *start* to before *end*."""
        return await self.kept.load(session, start, end, incarnation)

    async def list(
        self, limit: int | None = None, after: int | None = None, prefix: str = ""
    ) -> Sequence[SessionInfo]:
        """The sessions, last written first."""
        return await self.kept.list(limit, after, prefix)

    async def info(self, session: str) -> SessionInfo | None:
        """*session* as `list` has it."""
        return await self.kept.info(session)

    async def delete(self, session: str, incarnation: str = "") -> bool:
        """Forget *session*."""
        return await self.kept.delete(session, incarnation)

    async def lease(
        self, session: str, held: bytes | None, wanted: bytes | None, incarnation: str = ""
    ) -> bytes | None:
        """Put the lease *wanted* in the place of *held*."""
        return await self.kept.lease(session, held, wanted, incarnation)

    async def renew(self, renewals: Mapping[str, tuple[bytes, bytes]]) -> Sequence[str]:
        """Put leases in the place of others."""
        return await self.kept.renew(renewals)

    @property
    def presence(self) -> str:
        """The mark of this process at *kept*."""
        return self.kept.presence

    async def absent(self, marks: Collection[str]) -> Collection[str]:
        """Those of *marks* whose processes are gone."""
        return await self.kept.absent(marks)

    async def leases(self) -> Mapping[str, bytes]:
        """The leases of all sessions."""
        return await self.kept.leases()

    async def set_deadline(self, session: str, due: float | None, incarnation: str = "") -> None:
        """Keep the deadline of *session*."""
        await self.kept.set_deadline(session, due, incarnation)

    async def overdue(self, moment: float, skip: int = 0) -> Sequence[str]:
        """The sessions whose deadline is over."""
        return await self.kept.overdue(moment, skip)

    async def keep_checkpoint(
        self, session: str, position: int, body: bytes, first: int, incarnation: str = ""
    ) -> None:
        """Keep a checkpoint."""
        await self.kept.keep_checkpoint(session, position, body, first, incarnation)

    async def checkpoints(self, session: str, incarnation: str = "") -> Sequence[bytes]:
        """The checkpoints of *session*."""
        return await self.kept.checkpoints(session, incarnation)

    async def meter(self, name: str, held: bytes | None, wanted: bytes | None) -> tuple[bytes | None, float]:
        """Put *wanted* in the place of *held* as a meter."""
        return await self.kept.meter(name, held, wanted)

    async def time(self) -> float:
        """The time by the clock of *kept*."""
        return await self.kept.time()

    async def news(self, sessions: Sequence[str], since: Mark | None) -> tuple[Mark, Sequence[str]]:
        """The *sessions* that were written to."""
        return await self.kept.news(sessions, since)

    def on_news(self, hear: Hear) -> Callable[[], None]:
        """Have *hear* called where another process wrote."""
        return self.kept.on_news(hear)

    async def close(self) -> None:
        """Close *kept*."""
        await self.kept.close()


@final
class FaultyStore(StoreOver):
    """A store in memory whose appends raise `StoreError` unless it *works*, as on a full disk."""

    def __init__(self, *, works: bool = True) -> None:
        super().__init__()
        self.works = works

    async def append(
        self,
        session: str,
        expected: int,
        entries: Sequence[bytes],
        about: bytes | None = None,
        incarnation: str = "",
    ) -> str:
        """Append, or raise and keep nothing."""
        if not self.works:
            msg = "no space left on the device of this test"
            raise StoreError(msg)
        return await super().append(session, expected, entries, about, incarnation)
