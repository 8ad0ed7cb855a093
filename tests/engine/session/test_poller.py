"""Sessions that wait: one look at the store for all of them, and at once where this process writes."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from provers.tasks import turns
from support.patience import PATIENCE
from support.plain_store import PlainStore
from support.session_stage import until

from turnwheel import Agent, Session, Singleton, SQLiteStore, tool
from turnwheel.effects import CallModel, StoreError
from turnwheel.engine.session.poller import POLLERS, Poller, Waiter
from turnwheel.performers.stores.base import Entries, Hear, Mark, Store
from turnwheel.testing import ScriptedModel
from turnwheel.testing.scripted import calls, says
from turnwheel.testing.stores import StoreOver

MANY = 40
"""Sessions that wait at the same time."""


class Asked(StoreOver):
    """Counts what is asked of a store; one that is *silent* has no news, and a *broken* one reads nothing."""

    def __init__(self, kept: Store | None = None) -> None:
        super().__init__(kept)
        self.asked: Counter[str] = Counter()
        self.looked = asyncio.Event()
        self.silent = self.broken = False

    async def load(
        self, session: str, start: int = 0, end: int | None = None, incarnation: str = ""
    ) -> Entries:
        self.asked["load"] += 1
        if self.broken:
            msg = "the disk of this test is away"
            raise StoreError(msg)
        return await super().load(session, start, end, incarnation)

    async def lease(
        self, session: str, held: bytes | None, wanted: bytes | None, incarnation: str = ""
    ) -> bytes | None:
        self.asked["lease"] += 1
        return await super().lease(session, held, wanted, incarnation)

    async def renew(self, renewals: Mapping[str, tuple[bytes, bytes]]) -> Sequence[str]:
        self.asked["renew"] += 1
        self.asked["renewed"] += len(renewals)
        return await self.kept.renew(renewals)

    async def news(self, sessions: Sequence[str], since: Mark | None) -> tuple[Mark, Sequence[str]]:
        self.asked["news"] += 1
        found = await super().news(sessions, since)
        self.looked.set()
        return (found[0], []) if self.silent else found

    async def looks(self, count: int) -> Counter[str]:
        """What is asked from the end of a look on, until *count* more have ended."""
        before = Counter[str]()
        for number in range(count + 1):
            self.looked.clear()
            await self.looked.wait()
            await asyncio.sleep(0)
            before = before if number else Counter(self.asked)
        return self.asked - before


@tool(side_effect="unsafe", approval="always")
def pay() -> str:
    """Pay."""
    return "paid"


@pytest.fixture(params=["memory", "file"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Asked]:
    kept = Asked(SQLiteStore(tmp_path / "agent.db", "process") if request.param == "file" else None)
    yield kept
    await kept.close()


def worker(store: Store, *script: Any) -> Agent:
    """An agent whose sessions look ten times a second: three times in a lease."""
    return Agent(
        model="wire:model",
        tools=[pay],
        store=store,
        lease=0.3,
        performers={CallModel: ScriptedModel(*script)},
    )


async def parked(agent: Agent, count: int) -> tuple[list[Session], list[asyncio.Task[Any]]]:
    """Sessions that rest on a question, and wait for its answer."""
    sessions = [agent.session(f"s{number}") for number in range(count)]
    tasks = [asyncio.create_task(session.run("pay", wait=True)) for session in sessions]
    await until(lambda: all(session.resting for session in sessions))
    return sessions, tasks


async def ended(agent: Agent, tasks: Sequence[asyncio.Task[Any]]) -> None:
    await agent.drain(0)
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_all_that_wait_are_looked_after_by_one_question(store: Asked) -> None:
    agent = worker(store, *[calls(("pay", {}))] * MANY)
    sessions, tasks = await parked(agent, MANY)
    # At first their leases are given up, and each is looked at once for itself.
    leases: Any = store.kept
    while await leases.leases() or await store.looks(1) != {"news": 1}:  # noqa: ASYNC110  # no event tells it
        await asyncio.sleep(0)
    assert await store.looks(3) == {"news": 3}
    # An input of another process: one session reads its journal, and no other one.
    [question] = sessions[7].waiting
    other = worker(store.kept).session("s7")
    await other.approve(question.id)
    assert not POLLERS.get(id(store.kept))
    asked = await store.looks(1)
    assert asked["load"] <= 2
    await ended(agent, tasks)
    assert id(store) not in POLLERS


async def test_what_this_process_writes_is_heard_at_once(store: Asked) -> None:
    agent = worker(store, calls(("pay", {})), says("done"))
    _, [task] = await parked(agent, 1)
    # Another object of the session, as a web server has it that takes the answer.
    there = agent.session("s0")
    await there.load()
    [question] = there.waiting
    await store.looks(1)
    store.silent = True
    await there.approve(question.id)
    async with asyncio.timeout(PATIENCE):
        assert (await task).text == "done"
    await there.close()


async def test_leases_of_all_that_work_are_renewed_in_one_transaction(tmp_path: Path) -> None:
    kept = SQLiteStore(tmp_path / "agent.db", "process")
    store = Asked(kept)
    going, begun = asyncio.Event(), 0

    @tool(side_effect="read_only")
    async def wait() -> str:
        """Wait."""
        nonlocal begun
        begun += 1
        await going.wait()
        return "done"

    agent = Agent(
        model="wire:model",
        tools=[wait],
        store=store,
        lease=0.3,
        performers={CallModel: ScriptedModel(*[calls(("wait", {}))] * MANY, *[says("done")] * MANY)},
    )
    sessions = [agent.session() for _ in range(MANY)]
    tasks = [asyncio.create_task(session.run("wait")) for session in sessions]
    await until(lambda: begun == MANY)
    await store.looks(2)
    statements: list[str] = []
    trace = statements.append

    def traced(db: sqlite3.Connection) -> None:
        db.set_trace_callback(trace)

    await kept._do(traced)  # pyright: ignore[reportPrivateUsage]  # nothing else counts them
    asked = await store.looks(3)
    assert asked["renew"] > 0
    assert asked["renewed"] == MANY * asked["renew"]
    assert asked["lease"] == asked["load"] == 0
    assert abs(statements.count("commit") - asked["renew"]) <= 1
    going.set()
    await asyncio.gather(*tasks)
    await store.close()


async def test_a_store_that_tells_no_news_is_read_for_each_at_each_look() -> None:
    store = Asked(PlainStore())
    agent = worker(store, *[calls(("pay", {}))] * 5)
    sessions, tasks = await parked(agent, 5)
    before = store.asked["load"]
    [poller] = POLLERS[id(store)]
    assert isinstance(poller, Poller)
    await until(lambda: store.asked["load"] >= before + 10)
    [question] = sessions[3].waiting
    there = worker(store.kept).session("s3")
    await there.approve(question.id)
    await until(lambda: not sessions[3].resting)
    await ended(agent, tasks)


async def test_a_look_that_fails_is_done_again(store: Asked) -> None:
    agent = worker(store, calls(("pay", {})), says("done"))
    [session], [task] = await parked(agent, 1)
    await store.looks(2)
    [question] = session.waiting
    store.broken = True
    await worker(store.kept).session("s0").approve(question.id)
    await store.looks(2)
    assert session.resting
    store.broken = False
    async with asyncio.timeout(PATIENCE):
        assert (await task).text == "done"


async def test_an_idle_singleton_reads_its_journal_only_where_others_wrote() -> None:
    store = Asked()
    model = ScriptedModel(says("one"), says("two"))
    async with Agent(performers={CallModel: model}, store=store) as agent:
        async with Singleton(agent.session("s"), poll=0.01) as singleton:
            await singleton.post("first")
            await singleton.idle()
            # Its own writes come up in the first look behind them.
            await store.looks(3)
            store.asked.clear()
            await store.looks(3)
            assert store.asked["load"] == 0
            await agent.session("s").send("second")
            await until(lambda: "two" in [each.text for each in singleton.session.history])
            await singleton.idle()
        assert not POLLERS


class Waits:
    """A session without a lease that waits, and whether it was *woken*."""

    def __init__(self, session: str) -> None:
        self.woken = asyncio.Event()
        self.waiter = Waiter(session, self.woken.set)


async def test_those_that_look_as_often_share_a_poller() -> None:
    store = Asked()
    often, seldom = Poller.of(store, 1.0), Poller.of(store, 60.0)
    assert Poller.of(store, 1.0) is often
    assert Poller.of(store, 60.0) is seldom is not often
    for poller in (often, seldom):
        one = Waits("a")
        poller.add(one.waiter)
        await poller.leave(one.waiter)
    assert id(store) not in POLLERS


async def test_one_that_comes_is_woken_also_by_what_the_store_told_before() -> None:
    """It was written between its own look and its coming."""
    store = Asked()
    poller, first, second = Poller.of(store, 0.001), Waits("a"), Waits("b")
    poller.add(first.waiter)
    await store.append("b", 0, [b"{}"])
    await store.looks(2)
    poller.add(second.waiter)
    async with asyncio.timeout(PATIENCE):
        await second.woken.wait()
    await store.looks(1)
    second.woken.clear()
    await store.looks(2)
    assert not second.woken.is_set()
    for one in (first, second):
        await poller.leave(one.waiter)


class Calling(Asked):
    """A store that calls where others write; `heard` are those that it calls."""

    def __init__(self, *, refuses: bool = False) -> None:
        super().__init__()
        self.refuses = refuses
        self.heard: list[Hear] = []

    def on_news(self, hear: Hear) -> Callable[[], None]:
        if self.refuses:
            msg = "the store of this test is away"
            raise StoreError(msg)
        self.heard.append(hear)
        return lambda: self.heard.remove(hear)

    async def call(self, *sessions: str) -> None:
        """Call from another thread, as stores do."""
        for hear in self.heard:
            await asyncio.to_thread(hear, lambda name: name in sessions)


async def test_those_that_wait_are_woken_when_the_store_calls_and_not_when_they_look() -> None:
    store = Calling()
    poller, one, other = Poller.of(store, 60.0), Waits("a"), Waits("b")
    poller.add(one.waiter)
    poller.add(other.waiter)
    assert len(store.heard) == 1
    await store.call("a")
    await asyncio.wait_for(store.looked.wait(), PATIENCE)
    for session in ("a", "b"):
        await store.append(session, 0, [b"{}"])
    for each in (one, other):
        each.woken.clear()
    # What concerns none of them is no reason to look.
    asked = store.asked["news"]
    await store.call("c")
    await turns(5)
    assert store.asked["news"] == asked
    # Many calls are one look.
    for _ in range(20):
        await store.call("a", "c")
    await asyncio.wait_for(one.woken.wait(), PATIENCE)
    assert store.asked["news"] - asked <= 3
    for each in (one, other):
        await poller.leave(each.waiter)
    assert store.heard == []


async def test_a_call_while_a_look_is_under_way_has_another_one_follow() -> None:
    begun, going = asyncio.Event(), asyncio.Event()

    class Slow(Calling):
        async def news(self, sessions: Sequence[str], since: Mark | None) -> tuple[Mark, Sequence[str]]:
            found = await super().news(sessions, since)
            begun.set()
            await going.wait()
            return found

    store = Slow()
    poller, one = Poller.of(store, 60.0), Waits("a")
    poller.add(one.waiter)
    await store.call("a")
    await asyncio.wait_for(begun.wait(), PATIENCE)
    await store.append("a", 0, [b"{}"])
    await store.call("a")
    await turns(2)
    going.set()
    await asyncio.wait_for(one.woken.wait(), PATIENCE)
    one.woken.clear()
    await asyncio.wait_for(one.woken.wait(), PATIENCE)
    await poller.leave(one.waiter)


async def test_a_store_that_cannot_call_is_looked_at_all_the_same() -> None:
    store = Calling(refuses=True)
    poller, one = Poller.of(store, 0.001), Waits("a")
    poller.add(one.waiter)
    await asyncio.wait_for(one.woken.wait(), PATIENCE)
    await poller.leave(one.waiter)


class Broken(StoreOver):
    """A store with a bug, which is no failure of the world, and whether it was met."""

    def __init__(self) -> None:
        super().__init__()
        self.met = asyncio.Event()

    async def news(self, sessions: Sequence[str], since: Mark | None) -> tuple[Mark, Sequence[str]]:
        self.met.set()
        msg = f"a bug: {sessions} {since}"
        raise RuntimeError(msg)


async def test_a_poller_that_broke_says_so_to_the_last_that_leaves() -> None:
    store, one = Broken(), Waits("a")
    poller = Poller.of(store, 0.001)
    poller.add(one.waiter)
    await store.met.wait()
    await turns(2)
    with pytest.raises(RuntimeError, match="a bug"):
        await poller.leave(one.waiter)
    # It is known as long as its broken look is.
    del POLLERS[id(store)]
