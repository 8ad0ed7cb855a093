"""
Bounds how many sessions of one tenant are at work at a time, over all processes on one store.

Theory of operation. A session at work has a lease, so the leases of the store are the count, and those of
dead processes lapse. One that is to begin is claimed first and counted then: of two processes that begin one
each at the same moment, both see both. So there are not too many, and both may be told to wait; in one
process the first one goes on. What is known to be full is not asked about again for a moment. A session with
a lease begins nothing: it is at work, or was left in the middle of a run that a server takes up anyway.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, final

import attrs

if TYPE_CHECKING:
    from .lapsed import LeaseWatch

# Seconds for which the latest look at a store is good enough to say no.
KNOWN_FOR = 0.1


def tenant_of(session: str) -> str:
    """The tenant of the session with that name in the store; empty where the name says none."""
    tenant, slash, _ = session.partition("/")
    return tenant if slash else ""


def fits(session: str, at_work: Iterable[str], most: int) -> bool:
    """Whether *session* may be at work beside the others *at_work*, at most *most* of one tenant."""
    tenant = tenant_of(session)
    return sum(tenant_of(name) == tenant for name in {*at_work} - {session}) < most


@final
@attrs.define(eq=False)
class TenantBound:
    """
    At most *most* sessions of a tenant at work, None for any number, by the leases that *watch* sees.

    *here* gives those of this process: without leases in the store, no more is known.
    """

    watch: LeaseWatch
    most: int | None
    here: Callable[[], Iterable[str]]
    # Those that begin here, in their order.
    _beginning: list[str] = attrs.field(factory=list, init=False)
    # What the latest look saw, and when, by the monotonic clock.
    _at_work: Collection[str] = attrs.field(default=(), init=False)
    _looked: float = attrs.field(default=float("-inf"), init=False)
    # How many looks were wished for, and how many of these the latest one was behind.
    _wished: int = attrs.field(default=0, init=False)
    _granted: int = attrs.field(default=0, init=False)
    _looking: asyncio.Lock = attrs.field(factory=asyncio.Lock, init=False)

    @asynccontextmanager
    async def begin(self, session: str) -> AsyncGenerator[bool, None]:
        """Whether the work on *session*, which is to begin inside, may begin; it is counted until the end."""
        if self.most is None:
            yield True
            return
        known = time.monotonic() < self._looked + KNOWN_FOR
        if known and session not in self._at_work and not fits(session, self._at_work, self.most):
            yield False
            return
        async with self.watch.claiming(session) as claimed:
            if not claimed:
                yield True
                return
            before = (*self._beginning,)
            self._beginning.append(session)
            try:
                await self._look()
                # In this process those that came first go first.
                others = {*self._at_work} - {*self._beginning}
                yield fits(session, {*others, *before}, self.most)
            finally:
                self._beginning.remove(session)

    async def _look(self) -> None:
        """Look at the store after this was called; all that call it at one moment share a look."""
        self._wished += 1
        wish = self._wished
        async with self._looking:
            if self._granted < wish:
                granted = self._wished
                leases = await self.watch.look()
                self._at_work = {*self.here(), *(leases.there.keys() - leases.lapsed)}
                self._granted, self._looked = granted, time.monotonic()
