"""What is taken in while a run goes on, and the lease that is kept for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from provers.tasks import at_work, turns
from support.patience import PATIENCE

from turnwheel import MemoryStore
from turnwheel.effects.config import Config, ModelSpec
from turnwheel.effects.errors import SessionGone, StoreConflict, StoreError, WorldError
from turnwheel.effects.events import UserSent
from turnwheel.engine.journal.encoding import encode_entry
from turnwheel.engine.journal.entries import Posted, TakenOver
from turnwheel.engine.journal.journal import Journal
from turnwheel.engine.session.environment import Environment
from turnwheel.engine.session.lease import SessionLease
from turnwheel.engine.session.polled import Polled
from turnwheel.engine.session.poller import POLLERS, Poller
from turnwheel.engine.session.session_log import SessionLog
from turnwheel.performers.stores.base import Entries, Store
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.stores import StoreOver

NEVER = 3_600.0
"""Seconds between two looks, in which a test is long over."""

SAID = encode_entry(Posted(event=UserSent(at=1.0, id="i", text="hi")))


class Noted(StoreOver):
    """Counts the looks into it; *fault* is raised by the next one, and *busy* is waited for by each."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        self.fault: Exception | None = None
        self.busy: asyncio.Event | None = None

    async def load(
        self, session: str, start: int = 0, end: int | None = None, incarnation: str = ""
    ) -> Entries:
        self.looks += 1
        if self.busy is not None:
            await self.busy.wait()
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault
        return await super().load(session, start, end, incarnation)


class Run:
    """A run of one session over *store*; it *works* or not, and notes what stopped it."""

    def __init__(self, store: Store | None, poll: float = NEVER) -> None:
        config = Config(model=ModelSpec(name="one"))
        environment = Environment(
            config=config, performers={}, clock=AutoClock(), new_id=lambda: "id", poll=poll
        )
        self.log = SessionLog(Journal("s", store))
        self.lease = SessionLease(self.log.journal, environment, lambda: None)
        self.works = False
        self.stopped = list[WorldError]()
        self.polled = Polled(self.log, self.lease, lambda: self.works, self.stopped.append)


@pytest.fixture
def store() -> Noted:
    return Noted()


@pytest.fixture
async def run(store: Noted) -> AsyncIterator[Run]:
    run = Run(store)
    async with run.polled:
        yield run
    await run.lease.release()
    assert at_work() == set()
    assert id(store) not in POLLERS


async def test_what_others_wrote_is_taken_in_when_it_is_told(run: Run, store: Noted) -> None:
    await store.kept.append("s", 0, [SAID])
    assert run.log.state.posted == []
    run.polled.wake()
    await turns(10)
    assert [event.at for event in run.log.state.posted] == [1.0]
    await store.kept.append("s", 1, [SAID])
    run.polled.wake()
    await turns(10)
    assert len(run.log.state.posted) == 2


async def test_what_another_object_of_this_process_wrote_is_taken_in_at_once(run: Run, store: Noted) -> None:
    await SessionLog(Journal("s", store)).write([Posted(event=UserSent(at=2.0, id="i", text="hi"))])
    await turns(10)
    assert [event.at for event in run.log.state.posted] == [2.0]
    # What it wrote itself is no news.
    looks = store.looks
    await run.log.add(lambda: Posted(event=UserSent(at=3.0, id="j", text="hi")))
    await turns(10)
    assert store.looks == looks


async def test_news_that_come_during_a_look_are_seen_by_one_that_follows_it(run: Run, store: Noted) -> None:
    store.busy = asyncio.Event()
    run.polled.wake()
    await turns(5)
    for _ in range(3):
        run.polled.wake()
    await turns(5)
    assert store.looks == 1
    store.busy.set()
    await turns(10)
    assert store.looks == 2


@pytest.mark.parametrize("works", [True, False])
async def test_work_that_begins_again_by_what_was_taken_in_has_its_lease_at_once(
    run: Run, *, works: bool
) -> None:
    assert not run.lease.held
    run.works = works
    run.polled.wake()
    await turns(10)
    assert run.lease.held is works


@pytest.mark.parametrize("works", [True, False])
async def test_a_run_that_works_has_a_lease_from_its_beginning(*, works: bool) -> None:
    run = Run(MemoryStore())
    run.works = works
    async with run.polled:
        await turns(10)
        assert run.lease.held is works
    await run.lease.release()
    # It is not taken back once the work is over.
    await run.lease.keep()
    assert not run.lease.held


@pytest.mark.parametrize("way", ["lost", "gone", "damaged"])
async def test_a_session_that_is_lost_stops_the_run_and_is_not_looked_at_again(
    run: Run, store: Noted, way: str
) -> None:
    if way == "lost":
        await store.kept.append("s", 0, [encode_entry(TakenOver(at=1.0))])
    elif way == "gone":
        store.fault = SessionGone("s", begun_anew=False)
    else:
        await store.kept.append("s", 0, [b"{"])
    run.works = True
    run.polled.wake()
    await turns(10)
    (error,) = run.stopped
    assert isinstance(error, StoreConflict | SessionGone) or way == "damaged"
    assert not run.lease.held
    looks = store.looks
    run.polled.wake()
    await turns(10)
    assert (store.looks, len(run.stopped)) == (looks, 1)


async def test_a_look_that_fails_is_made_up_for_by_the_next_and_the_lease_is_kept(store: Noted) -> None:
    run = Run(store, poll=0.001)
    await store.kept.append("s", 0, [SAID])
    store.fault = StoreError("away")
    async with run.polled, asyncio.timeout(PATIENCE):
        run.works = True
        while not run.log.state.posted:  # noqa: ASYNC110  # a look of the poller
            await asyncio.sleep(0)
        assert (run.stopped, run.lease.held) == ([], True)
    await run.lease.release()
    assert store.looks == 2


async def test_a_look_that_broke_is_raised_where_the_run_ends(store: Noted) -> None:
    run = Run(store)
    store.fault = TypeError("a bug of the store's")

    async def work() -> None:
        async with run.polled:
            run.polled.wake()
            await turns(5)

    with pytest.raises(TypeError, match="a bug"):
        await work()


async def test_a_look_that_is_under_way_is_given_up_where_the_run_ends(store: Noted) -> None:
    run = Run(store)
    store.busy = asyncio.Event()
    async with run.polled:
        run.polled.wake()
        await turns(5)
    assert at_work() == set()


async def test_without_a_store_there_is_nothing_to_look_at() -> None:
    run = Run(None)
    async with run.polled:
        await run.lease.keep()
        assert not run.lease.held


async def test_the_pause_between_two_looks_is_that_of_the_lease(run: Run, store: Noted) -> None:
    poller: Any = Poller.of(store, run.lease.pause)
    assert [*poller.waiting] == ["s"]
