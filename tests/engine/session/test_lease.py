"""Who is at work on a session: what its lease says to others, and what becomes of one that is left."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Collection
from contextlib import aclosing
from typing import Any

import pytest
from provers.tasks import turns
from structlog.testing import capture_logs
from support.patience import PATIENCE
from support.plain_store import PlainStore
from support.session_stage import CHILDREN, House, Tape, Watch, outcomes, said, until

from turnwheel import Policy, Singleton
from turnwheel.effects import ConfigError, SessionBusy, StoreConflict, StoreError, Workplace
from turnwheel.effects.messages import Outcome
from turnwheel.effects.notices import ApprovalRequested, ToolStarted
from turnwheel.engine.session.background import WORKING
from turnwheel.engine.session.lease import decoded
from turnwheel.performers.processes import born, machine
from turnwheel.testing.clocks import ManualClock
from turnwheel.testing.scripted import calls, says
from turnwheel.testing.stores import StoreOver

DIGS = calls(("dig", {}))
SECONDS = 0.04


def record(**other: Any) -> bytes:
    """The lease of a process that is at work: the one that began this one."""
    pid = os.getppid()
    known = {"host": "h", "pid": pid, "worker": "w", "since": 0.0, "machine": machine(), "born": born(pid)}
    known |= {"token": "t", "seconds": 60.0, "renewed": time.monotonic(), "presence": ""}
    return json.dumps({**known, **other}).encode()


async def lease_of(house: House, held: bytes | None = None, wanted: bytes | None = None) -> bytes | None:
    swap = getattr(house.store, "lease", None)
    assert swap is not None
    found: bytes | None = await swap("s", held, wanted)
    return found


async def left(house: House, lease: bytes) -> None:
    """A run that a process has left in the middle of its work, and *lease*."""
    async with house.session(DIGS) as session, aclosing(session.stream("go")) as notices:
        async for notice in notices:
            if isinstance(notice, ToolStarted):
                break
    assert await lease_of(house) is None
    assert await lease_of(house, None, lease) == lease
    house.release()


# Whose it is


@pytest.mark.parametrize("since", [-1e9, 0.0, 1e12])
async def test_a_process_at_work_keeps_its_session(one: House, since: float) -> None:
    """However its clock and ours are set."""
    await left(one, record(since=since))
    other = one.session(says("mine"))
    for do in (other.resume, lambda: other.run("more"), other.check_free, other.fork):
        with pytest.raises(
            SessionBusy, match=rf"'s' is at work in process {os.getppid()} of 'h' \(w\)"
        ) as busy:
            await do()
        assert busy.value.at_work is Workplace.ELSEWHERE
        assert busy.value.owner is not None
    assert (await other.resume(takeover=True)).text == "mine"
    assert await lease_of(one) is None


async def test_a_takeover_that_is_refused_leaves_it_to_the_process_at_work(one: House) -> None:
    lease = record()
    await left(one, lease)
    named = {tool.spec.name: tool for tool in one.agent().tools}
    with pytest.raises(ConfigError, match=r"has tools that are not here: .*'dig'"):
        await one.session(tools=[named["look"]]).resume(takeover=True)
    async with aclosing(one.session().stream("more", takeover=True)) as notices:
        with pytest.raises(SessionBusy, match="left unfinished"):
            await anext(notices)
    assert await lease_of(one) == lease


@pytest.mark.parametrize(
    "other",
    [
        {"pid": 2**22 + 1},
        {"born": "1"},
        {"renewed": -3_600.0},
        {"pid": os.getpid(), "born": born(os.getpid())},
    ],
    ids=["gone", "its pid used again", "hangs", "left behind here"],
)
async def test_one_of_this_machine_that_is_not_at_work_is_known_at_once(
    one: House, other: dict[str, Any]
) -> None:
    await left(one, record(**other))
    async with asyncio.timeout(PATIENCE):
        assert (await one.session(says("mine")).resume()).text == "mine"


async def test_one_that_has_ended_is_gone_before_its_parent_looks(one: House) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        began = born(process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222  # it is over at once
        await left(one, record(pid=process.pid, born=began))
        assert (await one.session(says("mine")).resume()).text == "mine"


async def test_an_input_for_a_process_at_work_is_no_fault_of_the_one_that_sends_it(one: House) -> None:
    assert await lease_of(one, None, lease := record()) == lease
    session = one.session()
    with capture_logs() as logs:
        await session.send("more", start=True)
        await until(lambda: not WORKING)
    assert ([log for log in logs if log["log_level"] == "error"], len(session.queue)) == ([], 1)


async def test_one_that_cannot_be_read_is_none(one: House) -> None:
    await left(one, b"{}")
    assert (await one.session(says("mine")).resume()).text == "mine"


@pytest.mark.parametrize("fate", ["silent", "renewed", "given up"])
async def test_one_of_another_machine_counts_by_what_is_seen_of_it(
    one: House, monkeypatch: pytest.MonkeyPatch, fate: str
) -> None:
    """Its clocks say nothing here: one whole lease without a renewal does."""
    foreign: dict[str, Any] = {"machine": "another", "seconds": SECONDS}
    if fate != "silent":
        # Many looks within a lease that does not lapse in the time of this test.
        foreign["seconds"] = PATIENCE
        monkeypatch.setattr("turnwheel.engine.session.lease.WATCH_PAUSE", 0.002)
    await left(one, record(**foreign))
    began, going = time.monotonic(), asyncio.ensure_future(one.session(says("mine")).resume())
    await turns(10)
    if fate != "silent":
        later = record(**foreign, renewed=-5.0) if fate == "renewed" else None
        await lease_of(one, await lease_of(one), later)
    if fate == "renewed":
        with pytest.raises(SessionBusy, match="is at work in process"):
            await going
        return
    assert (await going).text == "mine"
    assert fate == "given up" or time.monotonic() - began >= SECONDS


class Connected(StoreOver):
    """A store that knows which processes are *away* from it."""

    def __init__(self, away: Collection[str]) -> None:
        super().__init__()
        self.away = away

    @property
    def presence(self) -> str:
        return "here"

    async def absent(self, marks: Collection[str]) -> Collection[str]:
        return {*marks} & {*self.away}


@pytest.mark.parametrize("fate", ["dead", "away for a moment", "cut off"])
async def test_a_death_on_another_machine_is_known_by_who_is_connected_to_the_store(
    monkeypatch: pytest.MonkeyPatch, fate: str
) -> None:
    """One that is cut off or stands still stays connected, and keeps its lease for as long as it says."""
    monkeypatch.setattr("turnwheel.engine.session.lease.WATCH_PAUSE", 0.002)
    monkeypatch.setattr("turnwheel.performers.stores.absence.AWAY_FOR", SECONDS)
    house = House(Connected({"dead", "away for a moment"}))
    seconds = 5 * SECONDS if fate == "cut off" else PATIENCE
    await left(house, record(machine="another", seconds=seconds, presence=fate))
    began, going = time.monotonic(), asyncio.ensure_future(house.session(says("mine")).resume())
    await turns(10)
    if fate == "away for a moment":
        # Connected again, it renews its lease.
        await lease_of(house, await lease_of(house), record(machine="another", renewed=-5.0, presence=fate))
        with pytest.raises(SessionBusy, match="is at work in process"):
            await going
        return
    assert (await going).text == "mine"
    assert time.monotonic() - began >= (seconds if fate == "cut off" else SECONDS)


# When a session has one


async def test_it_is_held_while_a_run_is_at_work_and_no_longer(house: House) -> None:
    session = house.session(calls(("dig", {})), calls(("pay", {})), says("done"), worker="the first")
    async with session:
        watch = Watch(session, wait=False)
        await until(lambda: house.ran == ["dig"])
        found = decoded(await lease_of(house))
        assert found is not None
        assert (found.pid, found.worker, found.seconds) == (os.getpid(), "the first", 15.0)
        house.release()
        await watch.task
        # It rests on a question.
        assert await lease_of(house) is None
        await session.approve(session.waiting[0].id)
        assert (await session.resume()).text == "done"
        assert await lease_of(house) is None


async def test_a_run_that_waits_for_an_answer_has_none_until_it_goes_on(house: House) -> None:
    here = house.process(calls(("pay", {})), DIGS, says("done"))
    watch = Watch(here)
    await watch.until(ApprovalRequested)
    async with asyncio.timeout(PATIENCE):
        while await lease_of(house) is not None:
            await turns(1)
    await house.process().approve(here.waiting[0].id)
    await until(lambda: "dig" in house.ran)
    with pytest.raises(SessionBusy):
        await house.process().resume()
    house.release()
    await watch.task
    assert outcomes(here) == [Outcome.OK] * 2


async def test_a_child_has_none_since_it_is_its_parents_work(one: House) -> None:
    hires = calls(("run_agent", {"agent": "digger", "prompt": "dig"}))
    session = one.session(hires, says("done"), children=CHILDREN, digger=[DIGS, says("found")])
    running = asyncio.ensure_future(session.run("go"))
    await until(lambda: one.ran)
    (child,) = session.children
    swap = getattr(one.store, "lease", None)
    assert swap is not None
    assert await lease_of(one) is not None
    assert await swap(child.session, None, None) is None
    one.release()
    assert (await running).text == "done"


@pytest.mark.parametrize(
    ("other", "at_work"),
    [
        ({}, Workplace.ELSEWHERE),
        ({"machine": ""}, None),
        ({"machine": "another"}, None),
        ({"seconds": -1.0}, Workplace.NOWHERE),
        ({"born": "1"}, Workplace.NOWHERE),
        ({"pid": os.getpid(), "born": born(os.getpid())}, Workplace.NOWHERE),
    ],
)
def test_where_the_process_of_a_record_is_at_work(other: dict[str, Any], at_work: Workplace | None) -> None:
    found = decoded(record(**other))
    assert found is not None
    assert found.at_work is at_work


@pytest.mark.parametrize("damaged", [None, b"", b"{}", b"[]", b"no json", b'{"host": "h"}'])
def test_a_record_that_cannot_be_read_stands_for_no_process(damaged: bytes | None) -> None:
    assert decoded(damaged) is None


async def test_a_singleton_leaves_the_queue_to_a_process_at_work(one: House) -> None:
    here, there = one.process(DIGS, says("done"), says("and that")), one.process()
    watch = Watch(here)
    await until(lambda: one.ran)
    async with Singleton(there, poll=0.0) as singleton:
        await singleton.post("more")
        await turns(50)
        one.release()
        await singleton.idle()
        await watch.task
        assert said(there) == ["go", "more"]
        assert there.result().text == "and that"


async def test_it_is_renewed_while_a_tool_runs(one: House) -> None:
    one.poll = SECONDS / 8
    session = one.session(DIGS, says("done"), lease=SECONDS)
    running = asyncio.ensure_future(session.run("go"))
    await until(lambda: one.ran)
    seen = {await lease_of(one)}
    async with asyncio.timeout(PATIENCE):
        while len(seen) < 5:
            await asyncio.sleep(SECONDS / 8)
            seen.add(await lease_of(one))
    assert None not in seen
    one.release()
    assert (await running).text == "done"


async def test_it_is_renewed_only_when_that_is_due(one: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwheel.engine.session.lease.RENEWED_EVERY", 60.0)
    session = one.session(DIGS, says("done"), lease=60.0)
    async with session:
        running = asyncio.ensure_future(session.run("go"))
        await until(lambda: one.ran)
        taken = await lease_of(one)
        assert taken is not None
        await session._worker.lease.keep()  # pyright: ignore[reportPrivateUsage]  # what a poller does at each look
        assert await lease_of(one) == taken
        one.release()
        await running


async def test_a_session_that_is_closed_gives_it_up_although_its_stream_is_never_read_again(
    one: House,
) -> None:
    session = one.session(DIGS)
    stream = session.stream("go")
    async for notice in stream:
        if isinstance(notice, ToolStarted):
            break
    await turns(5)
    assert await lease_of(one) is not None
    await session.close()
    await turns(5)
    assert await lease_of(one) is None
    await stream.aclose()


class Slow(Tape):
    """A store whose leases take turns of the event loop, and that may *fail* to give one up."""

    fails = False

    async def lease(
        self, session: str, held: bytes | None, wanted: bytes | None, incarnation: str = ""
    ) -> bytes | None:
        await asyncio.sleep(0)
        if self.fails and wanted is None and held is not None:
            msg = "no lease is given up here"
            raise StoreError(msg)
        found = await super().lease(session, held, wanted, incarnation)
        await asyncio.sleep(0)
        return found


async def test_a_run_that_is_cancelled_at_any_moment_leaves_none_behind() -> None:
    moment, over = 0, False
    while not over:
        house = House(Slow())
        running = asyncio.ensure_future(house.session(calls(("look", {})), says("done")).run("go"))
        over = await turns(moment, running.done)
        running.cancel()
        await asyncio.wait([running])
        assert await lease_of(house) is None
        moment += 1
    assert moment > 20


async def test_a_drain_while_a_run_gives_its_lease_up_loses_no_result() -> None:
    ended = 0
    for moment in range(60):
        session = House(Slow()).session(says("done"))
        running = asyncio.ensure_future(session.run("go", id="mine"))
        await turns(moment)
        await session.drain()
        if [mail.id for mail in session.queue] or session.machine is None or session.unfinished:
            await asyncio.wait([running])
            continue
        assert (await running).text == "done"
        ended += 1
    assert ended


async def test_one_that_could_not_be_given_up_keeps_no_one_out_here() -> None:
    store = Slow()
    store.fails = True
    house = House(store)
    await house.session(calls(("pay", {}))).run("go")
    assert await lease_of(house) is not None
    assert (await house.session().resume()).waiting


@pytest.mark.parametrize("token", [None, "another's"], ids=["ours", "another's"])
async def test_the_record_that_is_there_is_given_up_where_it_is_ours(one: House, token: str | None) -> None:
    """Also one from before a renewal that never came to the store; one of another object stays."""
    running = asyncio.ensure_future(one.session(DIGS, says("done")).run("go"))
    await until(lambda: one.ran)
    held = await lease_of(one)
    assert held is not None
    known = json.loads(held)
    there = json.dumps({**known, "renewed": 0.0, "token": token or known["token"]}).encode()
    assert await lease_of(one, held, there) == there
    one.release()
    assert (await running).text == "done"
    assert await lease_of(one) == (None if token is None else there)


async def test_without_leases_the_journal_alone_decides() -> None:
    store = PlainStore()
    house = House(store)
    here, there = house.process(DIGS), house.process(says("mine"))
    watch = Watch(here)
    await until(lambda: house.ran)
    house.release()
    assert (await there.resume()).text == "mine"
    with pytest.raises(StoreConflict):
        await watch.task


@pytest.mark.parametrize("seconds", [0, -1.0, "2"])
def test_a_lease_is_a_time(one: House, seconds: Any) -> None:
    with pytest.raises(ConfigError, match=r"Agent.lease must be a number of seconds above 0"):
        one.agent(lease=seconds)


# Deadlines


class Telling(Tape):
    """A store that tells when it was told of a deadline, and when a lease was given up."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[float | str | None] = []

    async def lease(
        self, session: str, held: bytes | None, wanted: bytes | None, incarnation: str = ""
    ) -> bytes | None:
        # Once more where a renewal was cut off.
        if held is not None and wanted is None and self.told[-1:] != ["given up"]:
            self.told.append("given up")
        return await super().lease(session, held, wanted, incarnation)

    async def set_deadline(self, session: str, due: float | None, incarnation: str = "") -> None:
        self.told.append(due)
        await super().set_deadline(session, due, incarnation)


@pytest.mark.parametrize("agent", ["", "payer"])
async def test_the_store_is_told_of_a_deadline_before_the_lease_is_given_up(agent: str) -> None:
    pay = calls(("pay", {"amount": 5}))
    task = calls(("run_agent", {"agent": "payer", "prompt": "pay"}))
    soon: dict[str, Any] = {"policy": Policy(answer_within=60.0)}
    store = Telling()
    house = House(store)
    clock = ManualClock(100.0)
    session = house.process(*([task] if agent else [pay]), payer=[pay], clock=clock, **soon)
    (question,) = (await session.run("go")).waiting
    assert question.due is not None
    assert store.told == [question.due, "given up"]
    await session.approve(question.id)
    # Of another process, which has read of the question only.
    other = house.process(says("done"), payer=[says("paid")], clock=clock, **soon)
    assert (await other.resume()).text == "done"
    assert store.told == [question.due, "given up", None, "given up"]


async def test_a_store_is_told_nothing_where_no_question_has_a_deadline() -> None:
    store = Telling()
    session = House(store).session(calls(("pay", {"amount": 5})))
    assert (await session.run("go")).waiting
    assert store.told == ["given up"]


async def test_where_the_store_does_not_take_a_deadline_the_lease_stays_and_lapses() -> None:
    class Full(Telling):
        async def set_deadline(self, session: str, due: float | None, incarnation: str = "") -> None:
            await super().set_deadline(session, due, incarnation)
            msg = "the disk is full"
            raise StoreError(msg)

    store = Full()
    session = House(store).session(calls(("pay", {"amount": 5})), policy=Policy(answer_within=60.0))
    assert (await session.run("go")).waiting
    assert store.told[1:] == []
    record = decoded((await store.leases())["s"])
    assert record is not None
    assert record.at_work is Workplace.NOWHERE
