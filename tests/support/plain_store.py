"""A store that keeps journals and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from turnwheel import MemoryStore
from turnwheel.performers import Entries, SessionInfo, Store


@final
class PlainStore(Store):
    """The six methods that every store has, over a store in memory."""

    def __init__(self) -> None:
        self._kept = MemoryStore()

    async def append(
        self,
        session: str,
        expected: int,
        entries: Sequence[bytes],
        about: bytes | None = None,
        incarnation: str = "",
    ) -> str:
        return await self._kept.append(session, expected, entries, about, incarnation)

    async def load(
        self, session: str, start: int = 0, end: int | None = None, incarnation: str = ""
    ) -> Entries:
        return await self._kept.load(session, start, end, incarnation)

    async def list(
        self, limit: int | None = None, after: int | None = None, prefix: str = ""
    ) -> Sequence[SessionInfo]:
        return await self._kept.list(limit, after, prefix)

    async def info(self, session: str) -> SessionInfo | None:
        return await self._kept.info(session)

    async def delete(self, session: str, incarnation: str = "") -> bool:
        return await self._kept.delete(session, incarnation)

    async def close(self) -> None:
        await self._kept.close()
