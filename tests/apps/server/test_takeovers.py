"""Servers on one store: what a dead one leaves is taken up by the others, once, while they serve."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from support.http_server import Asking, scripted, serving
from support.patience import PATIENCE

from turnwheel import Agent, ChildSpec, MemoryStore, Policy
from turnwheel.apps.hosts import lapsed
from turnwheel.apps.server import left_runs, takeovers
from turnwheel.apps.server.limits import ServerLimits
from turnwheel.effects import CallModel
from turnwheel.effects.errors import StoreConflict, StoreError, TurnwheelError
from turnwheel.engine.session.lease import encoded
from turnwheel.performers.processes import born
from turnwheel.performers.stores.base import Store
from turnwheel.testing.clocks import ManualClock
from turnwheel.testing.scripted import ScriptedModel, calls, says, stalls
from turnwheel.testing.stores import StoreOver

PAY = calls(("pay", {"amount": 5}))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeovers, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(left_runs, "FIRST_PAUSE", 0.01)


def dead(seconds: float = 0.0) -> bytes:
    """The lease of a process that is gone."""
    record = json.loads(encoded("dead", "a token", 0.0, seconds, ""))
    return json.dumps({**record, "pid": os.getppid(), "born": "never"}).encode()


def of_another_machine(seconds: float) -> bytes:
    """The lease of a process of another machine, which renews it no more."""
    return json.dumps({**json.loads(dead(seconds)), "machine": "another"}).encode()


async def left(
    store: MemoryStore | StoreOver, name: str, lease: bytes | None, agent: Agent | None = None
) -> None:
    """A run in the middle of an answer, with *lease*."""
    agent = agent or scripted(stalls("Half"))
    session = agent.session(name, store)
    run = session.start("Go")
    while session.activity != "streaming":  # noqa: ASYNC110  # no event tells it
        await asyncio.sleep(0)
    await session.close()
    with suppress(TurnwheelError):
        await run.wait()
    if lease is not None:
        assert await store.lease(name, None, lease) == lease


async def entries_of(store: Store, name: str, kind: str) -> int:
    return sum(json.loads(entry)["type"] == kind for entry in await store.load(name))


def long_ago() -> ManualClock:
    """The clock of a process whose deadlines are over for all others, and never for itself."""
    return ManualClock(time.time() - 2 * PATIENCE)


@pytest.fixture
def clock() -> ManualClock:
    """The clock of the agents of a test, by which their servers judge deadlines, too."""
    return ManualClock(time.time())


async def until(holds: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await holds():  # noqa: ASYNC110  # no event tells it
            await asyncio.sleep(0.005)


async def until_gone(store: MemoryStore) -> None:
    """Until no session has a lease."""

    async def gone() -> bool:
        return not await store.leases()

    await until(gone)


async def taken_over(store: Store, names: Sequence[str]) -> int:
    return sum([await entries_of(store, name, "TakenOver") for name in names])


class Looked(StoreOver):
    """A store that counts the looks at its leases."""

    looks = 0

    async def leases(self) -> Mapping[str, bytes]:
        self.looks += 1
        return await super().leases()

    async def two_looks(self) -> None:
        """Return when a look is over that began after this."""
        before = self.looks

        async def looked() -> bool:
            return self.looks > before + 1

        await until(looked)


@pytest.mark.parametrize("lease", [dead(60.0), of_another_machine(0.05)], ids=["this machine", "another"])
async def test_a_server_takes_over_while_it_serves(lease: bytes) -> None:
    store = MemoryStore()
    async with serving(scripted(says("Whole.")), store) as server:
        await left(store, "s", lease)
        assert (await server.done("s"))["reason"] == "end_turn"
        assert await entries_of(store, "s", "TakenOver") == 1
        await until_gone(store)


async def test_what_is_at_work_or_renewed_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    now, store = 1_000.0, Looked()
    monkeypatch.setattr(lapsed, "time", SimpleNamespace(monotonic=lambda: now, time=time.time))
    async with serving(scripted(), store) as server:
        record = {**json.loads(dead(60.0)), "born": born(os.getppid())}
        await left(store, "here", json.dumps(record).encode())
        renewed = of_another_machine(0.08)
        await left(store, "there", renewed)
        for number in range(20):
            after = json.dumps({**json.loads(renewed), "renewed": float(number)}).encode()
            # Time passes between a look that sees a record and the next look, and then it is renewed.
            for seconds in (0.05, 0.0):
                await store.two_looks()
                now += seconds
            assert await store.lease("there", renewed, after) == after
            renewed = after
        states = [(await server.get(f"/api/sessions/{name}"))["state"] for name in ("here", "there")]
        assert states == ["streaming"] * 2
        assert [await entries_of(store, name, "TakenOver") for name in ("here", "there")] == [0, 0]


async def test_several_servers_share_what_a_dead_one_left() -> None:
    store, names = MemoryStore(), [f"s{number}" for number in range(40)]
    async with AsyncExitStack() as stack:
        servers: list[Asking] = []
        for _ in range(3):
            agent = scripted(*[says("Whole.")] * len(names))
            servers.append(await stack.enter_async_context(serving(agent, store)))
        for name in names:
            await left(store, name, None)
        for name in names:
            await store.lease(name, None, dead())
        for name in names:
            await servers[0].done(name)
        assert [await entries_of(store, name, "TakenOver") for name in names] == [1] * len(names)
        await until_gone(store)


async def test_a_server_takes_no_more_than_it_has_room_for() -> None:
    store, names = MemoryStore(), ["a", "b", "c", "d"]
    agent = scripted(*[stalls("Half")] * 2)
    async with serving(agent, store, limits=ServerLimits(working=2)) as server:
        for name in names:
            await left(store, name, dead())

        async def taken() -> bool:
            return await taken_over(store, names) == expected

        expected = 2
        await until(taken)
        # It looks several times more.
        await asyncio.sleep(0.05)
        assert await taken()
        # Another one takes the rest.
        async with serving(scripted(*[says("Whole.")] * 2), store):
            expected = len(names)
            await until(taken)
        await server.server.drain(0.01)


async def test_a_run_that_a_server_drains_goes_on_at_another() -> None:
    store = MemoryStore()
    async with (
        serving(scripted(stalls("Half")), store) as one,
        serving(scripted(says("Whole.")), store) as two,
    ):
        await one.post("/api/sessions", {"id": "s", "prompt": "Go"}, 201)
        await one.until("s", lambda found: found["state"] == "streaming")
        await one.server.drain(0.01)
        assert (await two.done("s"))["reason"] == "end_turn"
        await until_gone(store)


async def test_a_takeover_that_fails_is_tried_again_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[str] = []
    monkeypatch.setattr(left_runs, "warn", lambda *_, session, **__: failed.append(session))
    store = MemoryStore()
    # It has not the tools of the run, and so goes not on with it.
    poor = Agent(model="openai:test")
    async with serving(poor, store) as one:
        await left(store, "s", dead(), scripted(stalls("Half")))

        async def tried() -> bool:
            return len(failed) > left_runs.TRIES

        await until(tried)
        await asyncio.sleep(0.05)
        assert failed == ["s"] * (left_runs.TRIES + 1)
        assert (await one.get("/api/sessions/s"))["state"] == "streaming"
        async with serving(scripted(says("Whole.")), store) as two:
            assert (await two.done("s"))["reason"] == "end_turn"


@pytest.mark.parametrize("damage", [b"{}", b'{"v":99,"type":"Posted"}'], ids=["damaged", "newer"])
async def test_a_journal_that_cannot_be_read_is_told_once_and_read_again_once_it_has_changed(
    damage: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left_runs, "DEADLINES_EVERY", 0.02)
    monkeypatch.setattr(left_runs, "UNREADABLE_PAUSE", 0.02)
    monkeypatch.setattr(left_runs, "LONGEST_UNREADABLE", 0.05)
    told: list[str] = []
    monkeypatch.setattr(left_runs, "warn", lambda *_, session, **__: told.append(session))
    store = StoreOver()
    more: dict[str, Any] = {"policy": Policy(answer_within=PATIENCE), "lease": 0.05}

    async def asks(name: str) -> None:
        await scripted(PAY, clock=long_ago(), **more).session(name, store).run("Go")

    async def looks() -> None:
        """Let the server look for deadlines several times."""
        name = f"seen after {len(told)}"
        for number in range(3):
            await asks(f"{name} {number}")
            assert (await server.done(f"{name} {number}"))["reason"] == "end_turn"

    await asks("bad")
    await store.append("bad", len(await store.load("bad")), [damage])
    async with serving(scripted(*[says("Not paid.")] * 20, **more), store) as server:
        await until(lambda: asyncio.sleep(0, told))
        await looks()
        assert told == ["bad"]
        # It changed, and cannot be read all the same.
        await store.append("bad", len(await store.load("bad")), [damage])
        await until(lambda: asyncio.sleep(0, len(told) > 1))
        await looks()
        assert told == ["bad", "bad"]
        # As a person does who has a copy of it.
        await store.delete("bad")
        await asks("bad")
        assert (await server.done("bad"))["reason"] == "end_turn"
        assert told == ["bad", "bad"]


async def test_what_a_dead_process_had_ended_or_never_begun_is_forgotten() -> None:
    store = MemoryStore()
    await scripted(says("Whole.")).session("s", store).run("Go")
    async with serving(scripted(), store):
        for name in ("s", "none"):
            await store.lease(name, None, dead())
        await until_gone(store)
    assert await entries_of(store, "s", "TakenOver") == 0


async def test_what_belongs_to_others_is_left_to_them() -> None:
    store = MemoryStore()
    elsewhere = Agent(model="openai:test", cwd="/", performers={CallModel: ScriptedModel(stalls("Half"))})
    async with serving(scripted(), store, tokens={"secret": "acme"}):
        await left(store, "of no tenant", dead())
        await left(store, "acme/default/elsewhere", dead(), elsewhere)
        await asyncio.sleep(0.1)
        assert {*await store.leases()} == {"of no tenant", "acme/default/elsewhere"}


TASK = calls(("run_agent", {"agent": "helper", "prompt": "pay it"}))
HELPER = ChildSpec(name="helper", tools=("pay",))


@pytest.mark.parametrize("replies", [[PAY], [TASK, PAY]], ids=["own", "of a child"])
@pytest.mark.parametrize("waits", [False, True], ids=["left", "dead"])
async def test_a_deadline_is_seen_to_by_a_server_that_lives(
    replies: Any, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, *, waits: bool
) -> None:
    monkeypatch.setattr(left_runs, "DEADLINES_EVERY", 0.1)
    store = MemoryStore()
    policy = Policy(answer_within=PATIENCE)
    more: dict[str, Any] = {"policy": policy, "children": [HELPER], "lease": 0.15, "clock": clock}
    async with serving(scripted(*[says("Not paid.")] * 2, **more), store) as server:
        session = scripted(*replies, **more).session("s", store)
        run = asyncio.create_task(session.run("Go", wait=waits))
        await until_kept(store)
        asked = await server.question("s")
        if waits:
            # What its process has said by now is what one that dies leaves.
            await session.close()
        await asyncio.wait({run})
        assert await entries_of(store, "s", "TakenOver") == 0
        clock.move(PATIENCE + 1)
        over = await server.done("s")
        assert (over["reason"], over["questions"]) == ("end_turn", [])
        assert asked["due"] <= clock.now()
        assert await entries_of(store, "s", "TakenOver") == 1
        await until_gone(store)
        assert await store.overdue(float("inf")) == []


async def until_kept(store: MemoryStore) -> None:
    """Until the store has a deadline."""

    async def kept() -> bool:
        return bool(await store.overdue(float("inf")))

    await until(kept)


async def until_forgotten(store: MemoryStore) -> None:
    """Until the store has no deadline."""

    async def forgotten() -> bool:
        return not await store.overdue(float("inf"))

    await until(forgotten)


async def test_a_deadline_is_left_to_the_server_that_waits_for_it(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left_runs, "DEADLINES_EVERY", 0.1)
    store = MemoryStore()
    more: dict[str, Any] = {"policy": Policy(answer_within=PATIENCE), "lease": 1.0, "clock": clock}
    async with (
        serving(scripted(PAY, says("Not paid."), **more), store) as one,
        serving(scripted(**more), store) as other,
    ):
        await one.post("/api/sessions", {"id": "s", "prompt": "Pay"}, 201)
        await other.question("s")
        await until_kept(store)
        # The other server takes what is over for as long as a lease.
        clock.move(PATIENCE + 0.5)
        assert (await other.done("s"))["reason"] == "end_turn"
        await until_gone(store)
        await until_forgotten(store)
        assert await entries_of(store, "s", "TakenOver") == 0


async def test_a_deadline_that_is_not_the_sessions_any_more_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(left_runs, "DEADLINES_EVERY", 0.1)
    store = MemoryStore()
    await scripted(says("Hello."), lease=0.15).session("s", store).run("Go")
    before = len(await store.load("s"))
    await store.set_deadline("s", time.time())
    async with serving(scripted(lease=0.15), store):
        await until_forgotten(store)
        await until_gone(store)
    assert len(await store.load("s")) == before


async def test_a_server_that_resumes_nothing_sees_to_no_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_runs, "DEADLINES_EVERY", 0.0)
    looks = 0

    class Counting(StoreOver):
        async def overdue(self, moment: float, skip: int = 0) -> Sequence[str]:
            msg = f"asked for deadlines before {moment}, behind {skip}"
            raise AssertionError(msg)

        async def leases(self) -> Mapping[str, bytes]:
            nonlocal looks
            looks += 1
            return await super().leases()

    store = Counting()
    more: dict[str, Any] = {"policy": Policy(answer_within=PATIENCE), "lease": 0.05}
    await scripted(PAY, clock=long_ago(), **more).session("s", store).run("Go")
    async with serving(scripted(**more), store, resume=False) as server:

        async def looked_often() -> bool:
            return looks > 10

        await until(looked_often)
        assert await server.question("s")


async def test_a_deadline_is_seen_to_though_a_server_failed_and_a_hundred_others_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(left_runs, "DEADLINES_EVERY", 0.02)

    class Failing(StoreOver):
        failures = 1

        async def append(self, session: str, expected: int, *rest: Any, **named: Any) -> str:
            if session == "s" and expected and self.failures:
                self.failures -= 1
                msg = "no space left"
                raise StoreError(msg)
            return await super().append(session, expected, *rest, **named)

    kept = MemoryStore()
    more: dict[str, Any] = {"policy": Policy(answer_within=PATIENCE), "lease": 0.05}
    for number in range(100):
        # No server can read them.
        await kept.append(f"other {number}", 0, [b"{}"])
        await kept.set_deadline(f"other {number}", float(number))
    await scripted(PAY, clock=long_ago(), **more).session("s", kept).run("Go")
    async with serving(scripted(says("Not paid."), **more), Failing(kept)) as server:
        assert (await server.done("s"))["reason"] == "end_turn"

        async def forgotten() -> bool:
            return not await kept.overdue(float("inf"), 100)

        await until(forgotten)


async def until_let_go(server: Asking) -> None:
    """Until no run is at work in *server*."""

    async def let_go() -> bool:
        return not server.server.opens.working

    await until(let_go)


class Mistaken(StoreOver):
    """A store that keeps an entry in the middle of a run, and says then that another process wrote it."""

    mistaken = False

    async def append(
        self, session: str, expected: int, entries: Sequence[bytes], *rest: Any, **named: Any
    ) -> str:
        there = await super().append(session, expected, entries, *rest, **named)
        if expected > 1 and not self.mistaken:
            self.mistaken = True
            raise StoreConflict(session, expected, expected + len(entries))
        return there


async def test_a_run_that_is_refused_though_no_other_process_has_it_is_told_and_gone_on_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[tuple[str, str]] = []
    monkeypatch.setattr(
        left_runs,
        "warn",
        lambda _, error, *, session, **__: told.append((session, type(error).__name__)),
    )
    store = Mistaken()
    async with serving(scripted(calls(("look", {})), says("Seen.")), store) as server:
        await server.post("/api/sessions", {"id": "s", "prompt": "Look"}, 201)
        assert (await server.done("s"))["reason"] == "end_turn"
    assert (store.mistaken, told) == (True, [("s", "StoreConflict")])


async def test_a_run_that_another_process_took_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(left_runs, "warn", lambda *_, session, **__: told.append(session))
    kept = MemoryStore()
    async with serving(scripted(stalls("Half")), StoreOver(kept)) as server:
        await server.post("/api/sessions", {"id": "s", "prompt": "Go"}, 201)
        await server.until("s", lambda found: found["state"] == "streaming")
        other = scripted(stalls("Half")).session("s", StoreOver(kept))
        going = asyncio.create_task(other.resume(takeover=True))

        await until_let_go(server)
        assert (await taken_over(kept, ["s"]), told) == (1, [])
        await other.close()
        await asyncio.wait({going})


class Halting(StoreOver):
    """A store that waits before it gives up a lease, until *go* is set; *halted* says that it does."""

    def __init__(self, kept: Store) -> None:
        super().__init__(kept)
        self.halted, self.go = asyncio.Event(), asyncio.Event()

    async def lease(
        self, session: str, held: bytes | None, wanted: bytes | None, incarnation: str = ""
    ) -> bytes | None:
        if held is not None and wanted is None:
            self.halted.set()
            await self.go.wait()
        return await super().lease(session, held, wanted, incarnation)


@pytest.mark.parametrize("resume", [True, False])
async def test_an_input_that_comes_while_another_server_lets_go_is_answered(*, resume: bool) -> None:
    kept = MemoryStore()
    halting = Halting(kept)
    async with (
        serving(scripted(says("One.")), halting) as one,
        serving(scripted(says("Two.")), kept, resume=resume) as two,
    ):
        await one.post("/api/sessions", {"id": "s", "prompt": "One?"}, 201)
        # It has looked for prompts for the last time, and has its lease still.
        await halting.halted.wait()
        await two.post("/api/sessions/s/messages", {"text": "Two?"}, 202)
        assert (await two.get("/api/sessions/s"))["queue"]
        halting.go.set()
        over: Any = await two.done("s")
        assert over["spend"]["turns"] == 2
        await until_gone(kept)


async def test_a_run_that_an_answer_wakes_has_its_lease_when_the_answer_is_taken() -> None:
    """Else a server that dies right after it would leave a run that no other one misses."""
    store = MemoryStore()
    async with serving(scripted(PAY, stalls("Half")), store) as server:
        await server.post("/api/sessions", {"id": "s", "prompt": "Pay"}, 201)
        asked = await server.question("s")
        await until_gone(store)
        await server.post(f"/api/sessions/s/questions/{asked['id']}", {"decision": "approve"})
        assert {*await store.leases()} == {"s"}
        await server.server.drain(0.01)


async def test_an_input_goes_to_the_server_that_went_on_with_what_rested_here() -> None:
    """The first one does not know yet: each has a store of its own, which tells no other one."""
    kept = MemoryStore()
    one, two = StoreOver(kept), StoreOver(kept)
    async with (
        serving(scripted(PAY, says("Paid."), says("More.")), one) as first,
        serving(scripted(says("Paid."), says("More.")), two) as second,
    ):
        await first.post("/api/sessions", {"id": "s", "prompt": "Pay"}, 201)
        asked = await first.question("s")
        await until_gone(kept)
        await second.post("/api/sessions/s/messages", {"text": "More?"}, 202)
        await first.post(f"/api/sessions/s/questions/{asked['id']}", {"decision": "approve"})
        await second.until("s", lambda found: found["state"] == "done" and found["spend"]["turns"] == 3)


async def test_a_run_that_rests_stays_where_it_is() -> None:
    kept = MemoryStore()
    one, two = StoreOver(kept), StoreOver(kept)
    async with serving(scripted(PAY), one) as first, serving(scripted(), two) as second:
        await first.post("/api/sessions", {"id": "s", "prompt": "Pay"}, 201)
        await first.question("s")
        # Refused there, as the lease is here still.
        await second.post("/api/sessions/s/messages", {"text": "More?"}, 202)
        await until_gone(kept)
        await asyncio.sleep(0.1)
        before = await entries_of(kept, "s", "TakenOver")
        await asyncio.sleep(0.1)
        assert await entries_of(kept, "s", "TakenOver") == before <= 1


async def test_a_run_that_another_process_took_over_and_left_is_gone_on_with() -> None:
    store = MemoryStore()
    agent = scripted(stalls("Half"), says("Whole"), partial=True)
    async with serving(agent, store) as server:
        await server.post("/api/sessions", {"id": "s", "prompt": "Go"}, 201)
        await server.until("s", lambda found: found["state"] == "streaming")
        other = scripted(stalls("Half"), partial=True).session("s", store)
        taking = asyncio.create_task(other.resume(takeover=True))

        await until_let_go(server)
        # It leaves the run in the middle of its work, and its lease with it.
        await other.close()
        await asyncio.wait({taking})
        assert (await server.done("s"))["reason"] == "end_turn"


async def test_a_run_goes_on_once_the_journal_of_its_child_can_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(left_runs, "UNREADABLE_PAUSE", 0.02)
    told: list[str] = []
    monkeypatch.setattr(left_runs, "warn", lambda *_, session, **__: told.append(session))
    store, children = MemoryStore(), [HELPER]
    session = scripted(TASK, stalls("Half"), children=children).session("s", store)
    run = session.start("Go")

    async def child() -> list[str]:
        return [info.session for info in await store.list() if info.session.startswith("s.")]

    await until(child)
    await session.close()
    with suppress(TurnwheelError):
        await run.wait()
    (name,) = await child()
    whole, info = [*await store.load(name)], await store.info(name)
    assert info is not None
    await store.append(name, len(whole), [b"{}"])
    await store.lease("s", None, dead())
    async with serving(
        scripted(says("Paid."), says("Whole."), partial=True, children=children), store
    ) as server:
        await until(lambda: asyncio.sleep(0, told))
        # As a person does who has a copy of it. The journal of the parent stays as it is.
        await store.delete(name)
        await store.append(name, 0, whole, info.about)
        assert (await server.done("s"))["reason"] == "end_turn"
    assert told == ["s"]


async def test_a_journal_that_cannot_be_read_and_is_over_is_no_more_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(left_runs, "UNREADABLE_PAUSE", 0.02)
    told: list[str] = []
    monkeypatch.setattr(left_runs, "warn", lambda *_, session, **__: told.append(session))
    store = MemoryStore()
    await scripted(says("Hello.")).session("over", store).run("Go")
    over = await store.info("over")
    assert over is not None
    newer = b'{"v":99,"type":"Posted"}'
    await left(store, "s", None)
    await store.append("s", len(await store.load("s")), [newer])
    await store.lease("s", None, dead())
    async with serving(scripted(), store) as server:
        await until(lambda: asyncio.sleep(0, told))
        # A newer process ends the run.
        await store.lease("s", (await store.leases()).get("s"), None)
        await store.append("s", len(await store.load("s")), [newer], over.about)

        async def settled() -> bool:
            return not server.server.opens.left.owes("s")

        await until(settled)
        await store.append("s", len(await store.load("s")), [newer], over.about)
        await asyncio.sleep(0.1)
    assert set(told) == {"s"}
    assert len(told) <= 2
