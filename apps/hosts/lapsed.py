"""
Finds the sessions whose owner is gone, by the leases that it left in their store, and claims them.

Theory of operation. One question to the store gives all leases. A record that was renewed between two looks
is one of a process at work, so only the others are read. That of this machine's process tells whether it
runs; that of another machine's only by not being renewed for as long as it says. Of several observers one
claims a session: it puts a record of its own in the place of the lapsed one, by compare-and-set, before it
reads the journal. An observer that dies then leaves a record that lapses, too.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, final
from uuid import uuid4

import attrs

from ...effects.errors import Workplace, WorldError
from ...engine.session.lease import LeaseRecord, decoded, encoded, held_here
from ...performers.stores.absence import Absence

if TYPE_CHECKING:
    from ...performers.stores.base import Store

# The claims of this process behind which work is about to begin.
_beginning_here: set[bytes] = set()


@final
@attrs.frozen
class Leases:
    """The leases that are *there*, by session, and the sessions of those that have *lapsed*."""

    there: Mapping[str, bytes]
    lapsed: frozenset[str] = frozenset()


@final
@attrs.frozen
class SeenLease:
    """A lease as it was at a look: its *data*, the *record* in that, and *since* when it is that one."""

    data: bytes
    record: LeaseRecord | None
    since: float

    def lapsed(self, now: float, departed: Collection[str]) -> bool:
        """Whether its process is at work no more; *departed* are the marks of those that left the store."""
        record = self.record
        # A record of another program says nothing about a process. A lease of this process is late at most.
        if record is None or record.token in held_here or self.data in _beginning_here:
            return False
        where = record.at_work
        if where is None:
            return now - self.since >= record.seconds or record.presence in departed
        return where is Workplace.NOWHERE


@final
@attrs.define(eq=False)
class LeaseWatch:
    """Looks at the leases of *store*; *seconds* is how long a claim of *worker* holds."""

    store: Store
    worker: str
    seconds: float
    # By session, as of the latest look.
    _seen: dict[str, SeenLease] = attrs.field(factory=dict, init=False)
    _absence: Absence = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._absence = Absence(self.store)

    async def look(self) -> Leases:
        """The leases of now. One that lapses is found by the second look that sees it, at the latest."""
        before, now = self._seen, time.monotonic()
        there = await self.store.leases()
        self._seen = {
            name: before[name]
            if name in before and before[name].data == data
            else SeenLease(data, decoded(data), now)
            for name, data in there.items()
        }
        # One that changed since the look before is at work. One that was not there then may be given away.
        stood = {name: seen for name, seen in self._seen.items() if seen.since < now or name not in before}
        marks = [seen.record.presence for seen in stood.values() if seen.record is not None]
        departed = await self._absence.gone(marks)
        return Leases(there, frozenset([name for name, seen in stood.items() if seen.lapsed(now, departed)]))

    async def lease(self, session: str) -> bytes | None:
        """The lease of *session*, lapsed or not; None without one."""
        return await self.store.lease(session, None, None)

    async def claim(self, session: str, lapsed: bytes | None) -> bytes | None:
        """A record of this process, put in the place of the *lapsed* one; None where another is there."""
        mine = self._record(self.seconds)
        return mine if await self.store.lease(session, lapsed, mine) == mine else None

    @asynccontextmanager
    async def claiming(self, session: str) -> AsyncGenerator[bool, None]:
        """
        Claim *session* for work that is to begin inside; whether there was no lease of it.

        The work puts its own lease in the place of the claim.
        """
        claim = await self.claim(session, None)
        if claim is None:
            yield False
            return
        _beginning_here.add(claim)
        try:
            yield True
        finally:
            _beginning_here.discard(claim)
            # The work is done or under way; a claim that stays lapses.
            with suppress(WorldError):
                await self.drop(session, claim)

    async def drop(self, session: str, lapsed: bytes) -> None:
        """Take away a record behind which there is no work."""
        await self.store.lease(session, lapsed, None)

    async def vacate(self, session: str, incarnation: str) -> None:
        """Leave a record that has lapsed, for other observers: this process has left the session's run."""
        await self.store.lease(session, None, self._record(0.0), incarnation)

    def _record(self, seconds: float) -> bytes:
        """A new record of this process, which holds for *seconds*."""
        return encoded(self.worker, uuid4().hex, time.time(), seconds, self.store.presence)
