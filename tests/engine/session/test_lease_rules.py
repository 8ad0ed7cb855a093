"""The rules of one lease, by a clock that is moved by hand and a store that keeps nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from provers.tasks import turns
from support.plain_store import PlainStore

from turnwheel.effects.config import Config, ModelSpec
from turnwheel.effects.errors import SessionBusy, StoreError, Workplace
from turnwheel.engine.core.inputs import Input
from turnwheel.engine.journal.journal import Journal
from turnwheel.engine.session import lease as leases
from turnwheel.engine.session.environment import Environment
from turnwheel.engine.session.lease import WATCH_PAUSE, SessionLease, decoded, encoded, held_here
from turnwheel.performers import processes
from turnwheel.performers.processes import born, machine, runs
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.stores import StoreOver

# By the clock of this test, which all times here are of.
NOW = 1_000.0

TIME = 60.0
"""Seconds of each lease here."""


class Now:
    """In the place of the module `time`, and of `asyncio.sleep`, which moves it."""

    def __init__(self) -> None:
        self.seconds = NOW
        self.slept: list[float] = []
        # Called behind each sleep.
        self.meanwhile: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.seconds

    def time(self) -> float:
        return self.seconds + 1e9

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds
        self.meanwhile()


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Now:
    made = Now()
    monkeypatch.setattr(leases, "time", made)
    monkeypatch.setattr(asyncio, "sleep", made.sleep)
    monkeypatch.setattr(leases, "RENEWED_EVERY", TIME)
    return made


class Leases(StoreOver):
    """A store that keeps the lease of one session, *there*, and *fails* where it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.there: bytes | None = None
        self.asked: list[tuple[bytes | None, bytes | None]] = []
        self.fails = False
        # Called before each answer.
        self.meddle: Callable[[], Awaitable[None]] | None = None

    async def lease(
        self, session: str, held: bytes | None, wanted: bytes | None, incarnation: str = ""
    ) -> bytes | None:
        assert (session, incarnation) == ("s", "the first")
        self.asked.append((held, wanted))
        if self.fails:
            msg = "the disk is away"
            raise StoreError(msg)
        if self.there == held:
            self.there = wanted
        if self.meddle is not None:
            await self.meddle()
        return self.there

    @property
    def written(self) -> int:
        """How often a record was to be written."""
        return len([wanted for _, wanted in self.asked if wanted is not None])


class Deadlines(Leases):
    """One that is *told* of deadlines, too, or *refuses* them."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[float | None] = []
        self.refuses = False

    async def set_deadline(self, session: str, due: float | None, incarnation: str = "") -> None:
        assert (session, incarnation) == ("s", "the first")
        if self.refuses:
            msg = "the disk is full"
            raise StoreError(msg)
        self.told.append(due)


def lease_over(
    store: Any, *, due: Callable[[], float | None] = lambda: None, poll: float = 1.0, **settings: Any
) -> SessionLease:
    journal = Journal("s", store)
    journal.incarnation = "the first"
    environment = Environment(
        config=Config(model=ModelSpec(name="m")),
        performers={},
        clock=AutoClock(),
        new_id=lambda: "id",
        poll=poll,
        lease=TIME,
        worker="the worker",
        **settings,
    )
    return SessionLease(journal, environment, due)


# As functions: a type checker takes a property for one that stays as it is.
def held(lease: SessionLease) -> bool:
    return lease.held


def due(lease: SessionLease) -> bool:
    return lease.due


def record(**other: Any) -> bytes:
    """What the process that began this one has, as it took it now."""
    parent = os.getppid()
    known = {
        "host": "h",
        "pid": parent,
        "worker": "w",
        "since": 5.0,
        "machine": machine(),
        "born": born(parent),
    }
    return json.dumps({**known, "token": "t", "seconds": TIME, "renewed": NOW, **other}).encode()


FOREIGN: dict[str, Any] = {"machine": "another"}
HANGS: dict[str, Any] = {"renewed": NOW - TIME - 1.0}


# What a record says


def test_a_record_says_who_is_at_work_and_since_when(now: Now) -> None:
    found = decoded(encoded("w", "mine", 7.0, TIME, ""))
    assert found is not None
    assert (found.host, found.pid, found.worker, found.since) == (socket.gethostname(), os.getpid(), "w", 7.0)
    assert (found.token, found.seconds, found.renewed) == ("mine", TIME, now.seconds)
    assert (found.machine, found.born) == (machine(), born(os.getpid()))
    assert (found.owner.host, found.owner.pid, found.owner.worker) == (socket.gethostname(), os.getpid(), "w")
    assert found.owner.since == 7.0


@pytest.mark.parametrize(
    ("passed", "at_work"),
    [(0.0, Workplace.ELSEWHERE), (TIME, Workplace.ELSEWHERE), (TIME + 0.1, Workplace.NOWHERE)],
)
def test_a_process_that_does_not_renew_its_record_in_time_is_over(
    now: Now, passed: float, at_work: Workplace
) -> None:
    found = decoded(record())
    now.seconds += passed
    assert found is not None
    assert found.at_work is at_work


@pytest.mark.usefixtures("now")
def test_of_a_machine_that_cannot_be_told_from_others_nothing_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leases, "machine", lambda: "")
    found = decoded(record(machine=""))
    assert found is not None
    assert found.at_work is None


def test_a_machine_is_another_one_after_each_boot_and_in_other_namespaces() -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    spaces = [str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in ("pid", "time")]
    assert machine.__wrapped__().split() == [boot, *spaces]
    assert machine() == machine.__wrapped__()


def test_a_machine_that_says_nothing_of_its_boot_cannot_be_told_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "Path", lambda _: Path("/nothing/here"))
    assert machine.__wrapped__() == ""
    assert born(os.getpid()) == ""
    # Then only that it runs is known.
    assert runs(os.getpid(), "then")


def test_a_process_is_known_by_its_number_and_its_beginning() -> None:
    fields = Path("/proc/self/stat").read_text("utf-8").rpartition(")")[2].split()
    assert born(os.getpid()) == fields[19]
    assert runs(os.getpid(), born(os.getpid())) is True
    assert runs(os.getpid(), "1") is False
    assert runs(2**22 + 1, "") is False


def test_a_process_of_another_user_runs_where_it_may_not_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, signal: int) -> None:
        assert (pid, signal) == (os.getpid(), 0)
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert runs(os.getpid(), born(os.getpid())) is True
    assert runs(os.getpid(), "1") is False


# Taking it


async def test_it_is_taken_for_a_time_and_kept_without_a_word_to_the_store_until_that_is_over(
    now: Now,
) -> None:
    store = Leases()
    lease = lease_over(store)
    assert (lease.session, lease.held, lease.due) == ("s", False, True)
    await lease.take()
    assert held(lease)
    assert not due(lease)
    found = decoded(store.there)
    assert found is not None
    assert found.at_work is Workplace.HERE
    assert (found.worker, found.seconds, found.since) == ("the worker", TIME, NOW + 1e9)
    now.seconds += TIME / 3 - 0.1
    await lease.take()
    assert store.written == 1
    now.seconds += 0.1
    await lease.take()
    assert store.written == 2
    # It is the work that began then, although it was renewed.
    again = decoded(store.there)
    assert again is not None
    assert (again.since, again.renewed) == (found.since, now.seconds)


@pytest.mark.parametrize(
    ("passed", "is_due"), [(0.0, False), (TIME / 3 - 1.0, False), (TIME / 3 - 0.9, True), (TIME, True)]
)
async def test_it_is_due_when_the_look_after_this_one_would_come_too_late(
    now: Now, passed: float, is_due: object
) -> None:
    lease = lease_over(Leases())
    await lease.take()
    now.seconds += passed
    assert lease.due is is_due


@pytest.mark.parametrize(("poll", "pause"), [(1.0, 1.0), (300.0, TIME / 3)])
def test_it_is_looked_at_at_least_as_often_as_it_has_to_be_renewed(poll: float, pause: float) -> None:
    assert lease_over(Leases(), poll=poll).pause == pause


TASK = Input(id="i", text="do it")


@pytest.mark.parametrize(
    ("store", "settings"),
    [(None, {}), (PlainStore(), {}), (Leases(), {"task": TASK})],
    ids=["no store", "a store without leases", "a child"],
)
@pytest.mark.usefixtures("now")
async def test_where_there_are_none_nothing_is_taken_and_nothing_refused(
    store: Any, settings: dict[str, Any]
) -> None:
    lease = lease_over(store, **settings)
    lease.begin()
    assert not due(lease)
    for do in (lease.take, lease.keep, lease.check, lease.release):
        await do()
    assert not held(lease)
    assert getattr(store, "asked", []) == []


@pytest.mark.usefixtures("now")
async def test_one_that_another_process_has_is_refused_and_left_as_it_is() -> None:
    store = Leases()
    store.there = there = record()
    lease, before = lease_over(store), {*held_here}
    with pytest.raises(SessionBusy) as busy:
        await lease.take()
    assert held_here == before
    assert (busy.value.session, busy.value.at_work) == ("s", Workplace.ELSEWHERE)
    assert busy.value.owner is not None
    assert busy.value.owner.pid == os.getppid()
    assert not held(lease)
    assert due(lease)
    assert store.there == there
    with pytest.raises(SessionBusy):
        await lease.check()
    await lease.take(takeover=True)
    assert held(lease)
    assert store.there != there


@pytest.mark.usefixtures("now")
async def test_another_object_of_this_process_that_has_it_is_told_to_be_here() -> None:
    store = Leases()
    first, second = lease_over(store), lease_over(store)
    await first.take()
    for do in (second.take, second.check):
        with pytest.raises(SessionBusy) as busy:
            await do()
        assert busy.value.at_work is Workplace.HERE
    await first.check()
    await first.release()
    await second.take()
    assert held(second)


@pytest.mark.parametrize("other", [HANGS, {"pid": 2**22 + 1}, {"born": "1"}, "of this process"])
async def test_one_of_a_process_that_is_over_is_taken_at_once(now: Now, other: dict[str, Any] | str) -> None:
    here = {"pid": os.getpid(), "born": born(os.getpid())}
    store = Leases()
    store.there = record(**(here if isinstance(other, str) else other))
    lease = lease_over(store)
    await lease.check()
    await lease.take()
    assert held(lease)
    assert now.slept == []


@pytest.mark.parametrize("damaged", [b"", b"{}", b"no json"])
async def test_one_that_cannot_be_read_is_taken_at_once(now: Now, damaged: bytes) -> None:
    store = Leases()
    store.there = damaged
    lease = lease_over(store)
    await lease.check()
    await lease.take()
    assert held(lease)
    assert now.slept == []


# Of another machine


async def test_one_of_another_machine_is_watched_for_its_whole_time(now: Now) -> None:
    store = Leases()
    store.there = record(**FOREIGN)
    lease = lease_over(store)
    await lease.take()
    assert held(lease)
    assert now.slept == [WATCH_PAUSE] * round(TIME / WATCH_PAUSE)


async def test_one_of_another_machine_that_is_renewed_while_it_is_watched_is_refused(now: Now) -> None:
    store = Leases()
    store.there = record(**FOREIGN)

    def renew() -> None:
        store.there = record(**FOREIGN, renewed=1.0)

    now.meanwhile = renew
    lease = lease_over(store)
    for do in (lease.take, lease.check):
        with pytest.raises(SessionBusy) as busy:
            await do()
        assert busy.value.at_work is Workplace.ELSEWHERE
        store.there = record(**FOREIGN)
    assert now.slept == [WATCH_PAUSE] * 2
    assert not held(lease)


async def test_one_of_another_machine_that_is_given_up_while_it_is_watched_is_taken(now: Now) -> None:
    store = Leases()
    store.there = record(**FOREIGN)

    def give_up() -> None:
        store.there = None

    now.meanwhile = give_up
    lease = lease_over(store)
    await lease.take()
    assert held(lease)
    assert now.slept == [WATCH_PAUSE]


async def test_a_lease_of_our_own_is_no_other_process_where_machines_cannot_be_told_apart(
    now: Now, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "machine", lambda: "")
    lease = lease_over(Leases())
    await lease.take()
    await lease.check()
    assert now.slept == []


# Keeping it


async def test_a_poller_keeps_it_while_it_is_wanted(now: Now) -> None:
    store = Leases()
    lease = lease_over(store)
    await lease.keep()
    assert not held(lease)
    lease.begin()
    await lease.keep()
    assert held(lease)
    await lease.keep()
    assert store.written == 1
    now.seconds += TIME / 3
    await lease.keep()
    assert store.written == 2
    assert not due(lease)


async def test_one_that_another_process_took_over_is_not_taken_back(now: Now) -> None:
    store = Leases()
    lease = lease_over(store)
    lease.begin()
    await lease.take()
    now.seconds += TIME / 3
    store.there = theirs = record(renewed=now.seconds)
    await lease.keep()
    assert store.there == theirs
    assert not held(lease)
    # Of another machine's process it is not known whether it is over, and this is no moment to wait for it.
    store.there = foreign = record(**FOREIGN)
    await lease.keep()
    assert store.there == foreign
    store.there = record(**HANGS)
    await lease.keep()
    assert held(lease)
    assert now.slept == []


async def test_a_store_that_fails_is_tried_again_at_the_next_look(now: Now) -> None:
    store = Leases()
    lease = lease_over(store)
    lease.begin()
    store.fails = True
    await lease.keep()
    assert due(lease)
    store.fails = False
    await lease.keep()
    assert not due(lease)
    assert decoded(store.there) is not None
    assert now.slept == []


async def test_one_whose_renewal_never_came_to_the_store_is_ours_still(now: Now) -> None:
    store = Leases()
    lease = lease_over(store)
    lease.begin()
    await lease.take()
    for then in (lease.keep, lease.release):
        now.seconds += TIME / 3
        store.fails = True
        await lease.keep()
        store.fails = False
        await then()
        found = decoded(store.there)
        assert found is None or found.renewed == now.seconds
    assert store.there is None


async def test_renewals_of_many_name_what_is_there_and_what_comes_in_its_place(now: Now) -> None:
    store = Leases()
    lease = lease_over(store)
    none: dict[str, tuple[bytes, bytes]] = {}
    async with lease.renewing(none):
        pass
    assert none == {}
    await lease.take()
    first = store.there
    now.seconds += TIME / 3
    renewals: dict[str, tuple[bytes, bytes]] = {}
    async with lease.renewing(renewals):
        [(before, wanted)] = renewals.values()
        assert before == first
        found = decoded(wanted)
        assert found is not None
        assert found.renewed == now.seconds
        assert [*renewals] == ["s"]
        store.there = wanted
    assert not due(lease)
    now.seconds += TIME / 3
    # Another record was there.
    async with lease.renewing(renewals):
        del renewals["s"]
    assert due(lease)


# Giving it up


@pytest.mark.usefixtures("now")
async def test_it_is_given_up_once_and_another_object_may_have_it() -> None:
    store = Leases()
    lease = lease_over(store)
    await lease.take()
    found = decoded(store.there)
    assert found is not None
    assert found.token in held_here
    await lease.release()
    assert (store.there, lease.held, lease.due) == (None, False, True)
    assert found.token not in held_here
    asked = len(store.asked)
    await lease.release()
    assert len(store.asked) == asked


@pytest.mark.usefixtures("now")
async def test_where_the_store_fails_the_lease_is_no_longer_ours_all_the_same() -> None:
    store = Leases()
    lease = lease_over(store)
    await lease.take()
    store.fails = True
    await lease.release()
    assert not held(lease)
    found = decoded(store.there)
    assert found is not None
    assert found.at_work is Workplace.NOWHERE


@pytest.mark.usefixtures("now")
async def test_one_that_another_process_has_by_now_stays_when_ours_is_given_up() -> None:
    store = Leases()
    lease = lease_over(store)
    await lease.take()
    store.there = theirs = record()
    await lease.release()
    assert store.there == theirs


@pytest.mark.parametrize("cancels", [1, 3])
async def test_it_is_given_up_also_where_that_is_cancelled_again_and_again(cancels: int) -> None:
    store = Leases()
    lease = lease_over(store)
    await lease.take()
    there, going = store.there, asyncio.Event()

    async def hang() -> None:
        # What the store was asked for first never came to it.
        store.there = there if len(store.asked) == 2 else store.there
        await going.wait()

    store.meddle = hang
    task = asyncio.ensure_future(lease.release())
    for _ in range(cancels):
        await turns(5)
        task.cancel()
    await turns(5)
    going.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert store.there is None
    assert not held(lease)


# Deadlines


@pytest.mark.usefixtures("now")
async def test_the_store_is_told_of_each_deadline_once_before_the_lease_is_given_up() -> None:
    store, deadline = Deadlines(), [50.0]
    lease = lease_over(store, due=lambda: deadline[0])
    for _ in range(2):
        await lease.take()
        await lease.release()
    assert store.told == [50.0]
    deadline[0] = 70.0
    await lease.take()
    await lease.release()
    assert store.told == [50.0, 70.0]
    # Another process may have gone on with it meanwhile, and told the store something else.
    lease.went_on()
    await lease.take()
    await lease.release()
    assert store.told == [50.0, 70.0, 70.0]
    assert store.there is None


@pytest.mark.usefixtures("now")
async def test_without_a_lease_no_deadline_is_told() -> None:
    store = Deadlines()
    lease = lease_over(store, due=lambda: 50.0)
    await lease.release()
    assert store.told == []


@pytest.mark.usefixtures("now")
async def test_a_lease_whose_deadline_the_store_does_not_take_stays_there() -> None:
    store = Deadlines()
    lease = lease_over(store, due=lambda: 50.0)
    await lease.take()
    store.refuses = True
    await lease.release()
    assert store.there is not None
    assert not held(lease)
    store.refuses = False
    await lease.take()
    await lease.release()
    assert store.told == [50.0]
    assert store.there is None
