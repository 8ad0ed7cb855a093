"""Stores for tests: one to derive others from, and one that fails on demand."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import final

from ..effects.errors import StoreError
from ..performers.base import noop
from ..performers.stores.base import Entries, Hear, Mark, SessionInfo, Store, renew_each
from ..performers.stores.memory import MemoryStore


class StoreOver:
    """
    A store that passes each call on to the store *kept*, by default one in memory.

    Derive from it, and override the methods that are to differ.
    """

    def __init__(self, kept: Store | None = None) -> None:
        self.kept: Store = MemoryStore() if kept is None else kept

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

    async def load(self, session: str, start: int = 0, incarnation: str = "") -> Entries:
        """The entries of *session* from *start* on."""
        return await self.kept.load(session, start, incarnation)

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
        """Put the lease *wanted* in the place of *held*; where *kept* has no leases, any is granted."""
        keeps = getattr(self.kept, "lease", None)
        return wanted if keeps is None else await keeps(session, held, wanted, incarnation)

    async def meter(self, name: str, held: bytes | None, wanted: bytes | None) -> tuple[bytes | None, float]:
        """Put *wanted* in the place of *held* as a meter; where *kept* has none, that is always done."""
        keeps = getattr(self.kept, "meter", None)
        return (held, time.time()) if keeps is None else await keeps(name, held, wanted)

    async def set_deadline(self, session: str, due: float | None, incarnation: str = "") -> None:
        """Keep the deadline of *session*, where *kept* keeps any."""
        keeps = getattr(self.kept, "set_deadline", None)
        if keeps is not None:
            await keeps(session, due, incarnation)

    async def overdue(self, moment: float, skip: int = 0) -> Sequence[str]:
        """The sessions whose deadline is over; none where *kept* keeps none."""
        keeps = getattr(self.kept, "overdue", None)
        return () if keeps is None else await keeps(moment, skip)

    async def keep_checkpoint(
        self, session: str, position: int, body: bytes, first: int, incarnation: str = ""
    ) -> None:
        """Keep a checkpoint, where *kept* keeps any."""
        keeps = getattr(self.kept, "keep_checkpoint", None)
        if keeps is not None:
            await keeps(session, position, body, first, incarnation)

    async def checkpoints(self, session: str, incarnation: str = "") -> Sequence[bytes]:
        """The checkpoints of *session*; none where *kept* keeps none."""
        keeps = getattr(self.kept, "checkpoints", None)
        return () if keeps is None else await keeps(session, incarnation)

    async def renew(self, renewals: Mapping[str, tuple[bytes, bytes]]) -> Sequence[str]:
        """Put leases in the place of others, one by one."""
        return await renew_each(self.lease, renewals)

    async def leases(self) -> Mapping[str, bytes]:
        """The leases of all sessions; none where *kept* has none."""
        there = getattr(self.kept, "leases", None)
        return {} if there is None else await there()

    async def news(self, sessions: Sequence[str], since: Mark | None) -> tuple[Mark, Sequence[str]]:
        """Those of *sessions* that were written to; where *kept* does not tell, it may be all."""
        tells = getattr(self.kept, "news", None)
        return ((), sessions) if tells is None else await tells(sessions, since)

    def on_news(self, hear: Hear) -> Callable[[], None]:
        """Have *hear* called, where *kept* calls."""
        calls = getattr(self.kept, "on_news", None)
        return noop if calls is None else calls(hear)

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
