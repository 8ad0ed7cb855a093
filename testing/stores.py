"""A store that can be told to fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from ..effects.errors import StoreError
from ..effects.performers.stores.base import SessionInfo
from ..effects.performers.stores.memory import MemoryStore


@final
class FaultyStore:
    """Keeps all in memory while it *works*; otherwise every append is a `StoreError`, as on a full disk."""

    def __init__(self, *, works: bool = True) -> None:
        self.works = works
        self._kept = MemoryStore()

    async def append(
        self, session: str, expected: int, entries: Sequence[bytes], about: bytes | None = None
    ) -> int:
        """As a store does, or fail and keep nothing."""
        if not self.works:
            msg = "no space left on the device of this test"
            raise StoreError(msg)
        return await self._kept.append(session, expected, entries, about)

    async def load(self, session: str, start: int = 0) -> Sequence[bytes]:
        """The entries of *session* from *start* on."""
        return await self._kept.load(session, start)

    async def list(self) -> Sequence[SessionInfo]:
        """All sessions."""
        return await self._kept.list()

    async def delete(self, session: str) -> bool:
        """Forget *session*."""
        return await self._kept.delete(session)

    async def close(self) -> None:
        """Let go."""
        await self._kept.close()
