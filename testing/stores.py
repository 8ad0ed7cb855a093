"""Stores for tests: one to make others of, and one that can be told to fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from ..effects.errors import StoreError
from ..performers.stores.base import SessionInfo, Store
from ..performers.stores.memory import MemoryStore


class StoreOver:
    """
    A store that hands on all it is asked to the store *kept*, one in memory where none is given.

    To be derived from: a test says only what is otherwise.
    """

    def __init__(self, kept: Store | None = None) -> None:
        self.kept: Store = MemoryStore() if kept is None else kept

    async def append(
        self, session: str, expected: int, entries: Sequence[bytes], about: bytes | None = None
    ) -> int:
        """Add *entries* to *session*; see `Store.append`."""
        return await self.kept.append(session, expected, entries, about)

    async def load(self, session: str, start: int = 0) -> Sequence[bytes]:
        """The entries of *session* from *start* on."""
        return await self.kept.load(session, start)

    async def list(self) -> Sequence[SessionInfo]:
        """All sessions."""
        return await self.kept.list()

    async def delete(self, session: str) -> bool:
        """Forget *session*."""
        return await self.kept.delete(session)

    async def close(self) -> None:
        """Let go."""
        await self.kept.close()


@final
class FaultyStore(StoreOver):
    """Keeps all in memory while it *works*; otherwise every append is a `StoreError`, as on a full disk."""

    def __init__(self, *, works: bool = True) -> None:
        super().__init__()
        self.works = works

    async def append(
        self, session: str, expected: int, entries: Sequence[bytes], about: bytes | None = None
    ) -> int:
        """As a store does, or fail and keep nothing."""
        if not self.works:
            msg = "no space left on the device of this test"
            raise StoreError(msg)
        return await super().append(session, expected, entries, about)
