"""What a tenant's bound asks of the store, and what becomes of a claim that cannot be taken back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

from turnwheel import MemoryStore
from turnwheel.effects.errors import StoreError
from turnwheel.engine.session.lapsed import LeaseWatch
from turnwheel.engine.session.tenant_bound import TenantBound
from turnwheel.testing.stores import StoreOver


class Counting(StoreOver):
    """Counts what is asked of it, takes its time, and may be *away* when a lease is given up."""

    def __init__(self) -> None:
        self.memory = MemoryStore()
        super().__init__(self.memory)
        self.asked: Counter[str] = Counter()
        self.away = False

    async def lease(
        self, session: str, held: bytes | None, wanted: bytes | None, incarnation: str = ""
    ) -> bytes | None:
        self.asked["lease"] += 1
        if self.away and wanted is None:
            msg = "the store is away; try again"
            raise StoreError(msg)
        return await self.memory.lease(session, held, wanted, incarnation)

    async def leases(self) -> Mapping[str, bytes]:
        self.asked["leases"] += 1
        await asyncio.sleep(0.001)
        return await self.memory.leases()


async def test_those_that_begin_at_one_moment_share_a_look_and_who_is_refused_next_costs_none() -> None:
    store = Counting()
    bound = TenantBound(LeaseWatch(store, "worker", 9.0), 3, tuple)
    over = asyncio.Event()
    began: list[str] = []

    async def work(name: str) -> bool:
        async with bound.begin(name) as begins:
            if begins:
                began.append(name)
                await over.wait()
        return begins

    tasks = [asyncio.create_task(work(f"ann/a/{number}")) for number in range(20)]
    _, waiting = await asyncio.wait(tasks, timeout=0.05)
    assert (len(waiting), began) == (3, ["ann/a/0", "ann/a/1", "ann/a/2"])
    assert store.asked["leases"] <= 2
    before = store.asked.copy()
    assert not await work("ann/a/20")
    assert store.asked == before
    over.set()
    assert sum(await asyncio.gather(*tasks)) == 3
    assert not await store.leases()


async def test_a_claim_that_cannot_be_taken_back_harms_nothing_and_lapses() -> None:
    store = Counting()
    watch = LeaseWatch(store, "worker", 9.0)
    store.away = True
    async with watch.claiming("s") as claimed:
        assert claimed
        assert not (await watch.look()).lapsed
    assert (await watch.look()).lapsed == {"s"}
