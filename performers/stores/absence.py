"""Tells which processes have left a store: a death is known sooner than by what it does not do."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, final

import attrs

if TYPE_CHECKING:
    from .base import Store

# Seconds in which a process connects again that lost its connections, as all do where the store restarts.
AWAY_FOR = 1.5


@final
@attrs.define(eq=False)
class Absence:
    """Watches who has left *store*, by the marks of `Store.presence`."""

    _store: Store
    # By mark: since when it has been absent at each look.
    _since: dict[str, float] = attrs.field(factory=dict, init=False)

    async def gone(self, marks: Iterable[str]) -> frozenset[str]:
        """Those of *marks* whose processes are absent, and were at each look of the latest `AWAY_FOR`."""
        asked = {*marks} - {"", self._store.presence}
        # A look that fails has seen nothing: what was absent before it may have been there meanwhile.
        before, self._since = self._since, {}
        absent, now = await self._store.absent(asked) if asked else (), time.monotonic()
        self._since = {mark: before.get(mark, now) for mark in absent}
        return frozenset([mark for mark, since in self._since.items() if now - since >= AWAY_FOR])
