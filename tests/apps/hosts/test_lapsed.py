"""Which leases have lapsed, by two looks at most, and who claims the sessions behind them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any

import pytest
from support.plain_store import PlainStore

from turnwheel import MemoryStore
from turnwheel.apps.hosts import lapsed
from turnwheel.apps.hosts.lapsed import LeaseWatch
from turnwheel.effects.errors import SessionGone, StoreError
from turnwheel.engine.session import lease
from turnwheel.engine.session.lease import decoded, encoded, held_here
from turnwheel.performers.stores import absence
from turnwheel.performers.stores.absence import AWAY_FOR
from turnwheel.testing.stores import StoreOver

TIME = 60.0
"""Seconds of each lease here."""


class Now:
    """In the place of the module `time`."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def monotonic(self) -> float:
        return self.seconds

    def time(self) -> float:
        return self.seconds + 1e9


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Now:
    made = Now()
    monkeypatch.setattr(lease, "time", made)
    monkeypatch.setattr(lapsed, "time", made)
    monkeypatch.setattr(absence, "time", made)
    return made


@pytest.fixture
def token() -> Iterator[str]:
    """That of a lease which this process has."""
    held_here.add("mine")
    yield "mine"
    held_here.discard("mine")


def watch_of(store: Any) -> LeaseWatch:
    return LeaseWatch(store, "worker", TIME)


def record(token: str = "gone", **other: Any) -> bytes:  # noqa: S107  # no secret
    """A record of this process, or of one with these *other* properties."""
    data = encoded("other", token, 1.0, TIME, "")
    return json.dumps({**json.loads(data), **other}).encode() if other else data


async def put(store: MemoryStore, data: bytes, held: bytes | None = None, session: str = "s") -> None:
    assert await store.lease(session, held, data) == data


async def found(watch: LeaseWatch) -> set[str]:
    return {*(await watch.look()).lapsed}


async def test_a_process_that_left_the_store_is_gone_before_its_lease_is_over(now: Now) -> None:
    class Connected(StoreOver):
        away = frozenset({"dead", "restarts"})

        @property
        def presence(self) -> str:
            return "here"

        async def absent(self, marks: Collection[str]) -> Collection[str]:
            assert "here" not in marks
            return self.away.intersection(marks)

    store = Connected()
    for presence in ("dead", "restarts", "cut off", "here", ""):
        lease = record(machine="another", presence=presence)
        assert await store.lease(presence or "unknown", None, lease) == lease
    watch = watch_of(store)
    assert await found(watch) == set()
    now.seconds += AWAY_FOR / 2
    store.away = frozenset({"dead"})
    assert await found(watch) == set()
    store.away = frozenset({"dead", "restarts"})
    now.seconds += AWAY_FOR / 2
    assert await found(watch) == {"dead"}
    now.seconds += TIME - AWAY_FOR
    assert await found(watch) == {"dead", "restarts", "cut off", "here", "unknown"}


async def test_all_leases_are_told_with_those_that_have_lapsed(now: Now, token: str) -> None:
    store = MemoryStore()
    there = {"a": record(), "b": record(token), "c": b"damaged", "d": record(machine="another")}
    for session, data in there.items():
        await put(store, data, session=session)
    watch = watch_of(store)
    leases = await watch.look()
    assert (leases.there, leases.lapsed) == (there, frozenset({"a"}))
    now.seconds += TIME
    # That of another machine lapses where it was not renewed while it was watched.
    assert await found(watch) == {"a", "d"}


async def test_a_store_without_leases_has_none_and_grants_each_claim() -> None:
    watch = watch_of(PlainStore())
    assert (await watch.look()).there == {}
    assert await watch.lease("a") is None
    async with watch.claiming("a") as claimed:
        assert claimed


async def test_a_lease_that_was_renewed_between_two_looks_is_of_a_process_at_work(now: Now) -> None:
    store = MemoryStore()
    watch = watch_of(store)
    data = record(machine="another")
    await put(store, data)
    for number in range(3):
        assert await found(watch) == set()
        now.seconds += TIME
        data, before = record(machine="another", renewed=float(number)), data
        await put(store, data, before)
    assert await found(watch) == set()
    now.seconds += TIME - 1
    assert await found(watch) == set()
    now.seconds += 1
    assert await found(watch) == {"s"}


async def test_a_lease_in_the_place_of_another_is_judged_by_the_look_that_sees_it_again(now: Now) -> None:
    store = MemoryStore()
    watch = watch_of(store)
    alive = record(machine="another")
    await put(store, alive)
    assert await found(watch) == set()
    now.seconds += 1
    gone = record()
    await put(store, gone, alive)
    assert await found(watch) == set()
    now.seconds += 1
    assert await found(watch) == {"s"}
    # One that is gone is forgotten.
    await watch.drop("s", gone)
    assert (await watch.look()).there == {}
    await put(store, gone)
    assert await found(watch) == {"s"}


async def test_one_of_several_observers_claims_a_session(now: Now) -> None:
    store, gone = MemoryStore(), record()
    await put(store, gone)
    one, other = watch_of(store), watch_of(store)
    claim = await one.claim("s", gone)
    assert await other.claim("s", gone) is None
    assert claim is not None
    assert await one.lease("s") == claim
    mine = decoded(claim)
    assert mine is not None
    assert (mine.worker, mine.since, mine.seconds) == ("worker", now.time(), TIME)
    await other.drop("s", gone)
    assert await one.lease("s") == claim
    await one.drop("s", claim)
    assert await one.lease("s") is None


async def test_a_claim_holds_while_work_is_about_to_begin(now: Now) -> None:
    store = MemoryStore()
    watch, other = watch_of(store), watch_of(store)
    async with watch.claiming("s") as begins:
        assert begins
        now.seconds += 10 * TIME
        assert [*(await watch.look()).there] == ["s"]
        assert await found(watch) == await found(other) == set()
        async with other.claiming("s") as too:
            assert not too
        assert [*await store.leases()] == ["s"]
    assert await store.leases() == {}


async def test_the_lease_of_the_work_stays_where_its_claim_is_over(token: str) -> None:
    store = MemoryStore()
    watch, mine = watch_of(store), record(token)
    async with watch.claiming("s"):
        await put(store, mine, await watch.lease("s"))
    assert await watch.lease("s") == mine


async def test_a_claim_that_could_not_be_given_up_lapses(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    watch, lease = watch_of(store), store.lease

    async def fail(*_: object) -> bytes | None:
        msg = "away"
        raise StoreError(msg)

    async with watch.claiming("s") as begins:
        assert begins
        monkeypatch.setattr(store, "lease", fail)
    monkeypatch.setattr(store, "lease", lease)
    assert await found(watch) == {"s"}


async def test_a_run_that_was_left_to_others_is_found_at_once(now: Now) -> None:
    store = MemoryStore()
    incarnation = await store.append("s", 0, [b"{}"])
    watch = watch_of(store)
    await watch.vacate("s", incarnation)
    there = decoded(await watch.lease("s"))
    assert there is not None
    assert (there.worker, there.since, there.seconds) == ("worker", now.time(), 0.0)
    assert await found(watch_of(store)) == {"s"}


async def test_a_lease_of_another_session_of_that_name_is_not_left_behind() -> None:
    store = MemoryStore()
    await store.append("s", 0, [b"{}"])
    with pytest.raises(SessionGone):
        await watch_of(store).vacate("s", "another incarnation")
    assert await store.leases() == {}
