"""What a tenant's bound asks of the store, and what becomes of a claim that cannot be taken back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping

import pytest
from support.session_stage import until

from turnwheel import MemoryStore
from turnwheel.apps.hosts import tenant_bound
from turnwheel.apps.hosts.lapsed import LeaseWatch
from turnwheel.apps.hosts.tenant_bound import KNOWN_FOR, TenantBound, fits, tenant_of
from turnwheel.effects.errors import StoreError
from turnwheel.engine.session.lease import encoded, held_here
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
    await until(lambda: sum(task.done() for task in tasks) == 17)
    assert began == ["ann/a/0", "ann/a/1", "ann/a/2"]
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


@pytest.mark.parametrize(("session", "tenant"), [("ann/a/1", "ann"), ("ann", ""), ("/a", ""), ("", "")])
def test_a_tenant_is_the_first_part_of_a_name_of_several(session: str, tenant: str) -> None:
    assert tenant_of(session) == tenant


@pytest.mark.parametrize(
    ("at_work", "most", "room"),
    [
        ([], 1, True),
        ([], 0, False),
        (["ann/b"], 1, False),
        (["ann/b"], 2, True),
        # Itself, those of others and one that is named twice.
        (["ann/a"], 1, True),
        (["bob/b", "b", "anna/b"], 1, True),
        (["ann/b", "ann/b"], 2, True),
        (["ann/b", "ann/c", "ann/a"], 2, False),
    ],
)
def test_a_session_fits_beside_others_of_its_tenant(at_work: list[str], most: int, *, room: bool) -> None:
    assert fits("ann/a", at_work, most) is room


@pytest.fixture
def mine() -> Iterator[bytes]:
    """The lease of work in this process."""
    held_here.add("mine")
    yield encoded("worker", "mine", 1.0, 60.0, "")
    held_here.discard("mine")


async def begins(bound: TenantBound, session: str) -> bool:
    async with bound.begin(session) as begun:
        return begun


async def test_without_a_bound_the_store_is_not_asked() -> None:
    store = Counting()
    assert await begins(TenantBound(LeaseWatch(store, "worker", 9.0), None, tuple), "ann/a")
    assert not store.asked


async def test_the_work_of_all_processes_counts_and_what_is_left_of_dead_ones_does_not(mine: bytes) -> None:
    store = Counting()
    dead = encoded("worker", "dead", 1.0, 60.0, "")
    for session, lease in {"ann/b": mine, "ann/c": dead, "bob/a": mine}.items():
        await store.memory.lease(session, None, lease)
    assert not await begins(TenantBound(LeaseWatch(store, "worker", 9.0), 1, tuple), "ann/a")
    assert await begins(TenantBound(LeaseWatch(store, "worker", 9.0), 2, tuple), "ann/a")
    # One that has a lease is at work already, and begins nothing.
    assert await begins(TenantBound(LeaseWatch(store, "worker", 9.0), 1, tuple), "ann/b")
    assert {*await store.memory.leases()} == {"ann/b", "ann/c", "bob/a"}


async def test_without_leases_in_the_store_the_work_of_this_process_counts() -> None:
    store = MemoryStore()
    bound = TenantBound(LeaseWatch(store, "worker", 9.0), 1, lambda: ["ann/b"])
    assert not await begins(bound, "ann/a")
    assert await begins(bound, "bob/a")


async def test_what_is_known_to_be_full_is_asked_about_again_after_a_moment(
    mine: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, now = Counting(), [100.0]

    class Now:
        """In the place of the module `time`."""

        @staticmethod
        def monotonic() -> float:
            return now[0]

    monkeypatch.setattr(tenant_bound, "time", Now)
    await store.memory.lease("ann/b", None, mine)
    bound = TenantBound(LeaseWatch(store, "worker", 9.0), 1, tuple)
    assert not await begins(bound, "ann/a")
    store.asked.clear()
    assert not await begins(bound, "ann/c")
    assert not store.asked
    # Those that it is not known of.
    assert await begins(bound, "ann/b")
    assert await begins(bound, "bob/a")
    await store.memory.lease("ann/b", mine, None)
    now[0] += KNOWN_FOR
    assert await begins(bound, "ann/a")
    assert await store.memory.leases() == {}


async def test_of_those_that_begin_in_one_process_the_first_go_on() -> None:
    bound = TenantBound(LeaseWatch(MemoryStore(), "worker", 9.0), 1, tuple)
    async with bound.begin("ann/a") as first, bound.begin("ann/b") as second:
        assert (first, second) == (True, False)
