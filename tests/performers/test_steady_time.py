"""A clock that is set: deadlines keep to the seconds that pass, and to the clock of a store that has one."""

from __future__ import annotations

import time
from typing import Any

import attrs
import pytest
import structlog
from structlog.testing import capture_logs

from turnwheel import Agent, MemoryStore, tool
from turnwheel.apps.server.left_runs import LeftRuns
from turnwheel.effects import CallModel, Policy
from turnwheel.effects.errors import StoreError
from turnwheel.performers import base, steady
from turnwheel.performers.base import SystemClock
from turnwheel.performers.stores.base import Store
from turnwheel.testing import ManualClock, ScriptedModel
from turnwheel.testing.scripted import Reply, calls, says
from turnwheel.testing.stores import StoreOver

HOUR = 3600.0
BEGAN = 1_000_000.0


class Machine:
    """A machine as a test has it: what its wall clock shows, and the seconds that passed."""

    def __init__(self) -> None:
        self.wall, self.passed = BEGAN, 500.0

    def wait(self, seconds: float) -> None:
        self.wall += seconds
        self.passed += seconds


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(time, "time", lambda: made.wall)
    for module in (base, steady):
        monkeypatch.setattr(module, "elapsed", lambda: made.passed)
    monkeypatch.setattr(base, "wall_time", steady.SteadyTime(made.wall))
    monkeypatch.setattr(structlog, "is_configured", lambda: True)
    return made


class ClockedStore(StoreOver):
    """The store *kept* with a clock of its own, *ahead* of the seconds that pass on the machine."""

    def __init__(self, machine: Machine, kept: Store | None = None, ahead: float = 0.0) -> None:
        super().__init__(kept)
        self.keeps_time = True
        self.machine, self.ahead = machine, ahead
        self.asked = 0
        self.works = True

    async def time(self) -> float:
        self.asked += 1
        if not self.works:
            msg = "the server is gone"
            raise StoreError(msg)
        return BEGAN - 500.0 + self.machine.passed + self.ahead


class Payments:
    """A session of *store* whose payment needs a yes within five seconds; each call makes another agent."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.paid = 0

    def agent(self, *replies: Reply) -> Agent:
        @tool(approval="always")
        def pay() -> str:
            self.paid += 1
            return "paid"

        policy = Policy(answer_within=5.0)
        performers: dict[type, Any] = {CallModel: ScriptedModel(*replies)}
        return Agent(performers=performers, tools=[pay], store=self.store, policy=policy)

    async def ask(self) -> str:
        async with self.agent(calls(("pay", {}))) as agent, agent.session("s") as session:
            (question,) = (await session.run("go")).waiting
            return question.id

    async def say_yes(self, question: str) -> None:
        async with self.agent() as agent, agent.session("s") as session:
            await session.approve(question)

    async def resume(self) -> bool:
        """Go on; whether the question is still open then."""
        async with self.agent(says("done")) as agent, agent.session("s") as session:
            return bool((await session.resume()).waiting)


@pytest.mark.parametrize("set_by", [HOUR, -HOUR])
async def test_a_yes_in_time_counts_although_the_wall_clock_was_set(machine: Machine, set_by: float) -> None:
    payments = Payments(MemoryStore())
    question = await payments.ask()
    machine.wall += set_by
    machine.wait(4.9)
    await payments.say_yes(question)
    assert not await payments.resume()
    assert payments.paid == 1


@pytest.mark.parametrize("set_by", [HOUR, -HOUR])
async def test_a_question_is_denied_when_its_seconds_have_passed_although_the_wall_clock_was_set(
    machine: Machine, set_by: float
) -> None:
    payments = Payments(MemoryStore())
    question = await payments.ask()
    machine.wall += set_by
    machine.wait(4.9)
    assert await payments.resume()
    machine.wait(0.2)
    await payments.say_yes(question)
    assert not await payments.resume()
    assert payments.paid == 0


@pytest.mark.parametrize("off", [HOUR, -HOUR])
async def test_a_process_whose_wall_clock_is_off_judges_by_the_clock_of_the_store(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, off: float
) -> None:
    kept = MemoryStore()
    payments = Payments(ClockedStore(machine, kept))
    question = await payments.ask()
    # What follows is done on another machine.
    machine.wall += off
    monkeypatch.setattr(base, "wall_time", steady.SteadyTime(machine.wall))
    payments.store = ClockedStore(machine, kept)
    machine.wait(4.9)
    assert await payments.resume()
    await payments.say_yes(question)
    machine.wait(1.0)
    assert not await payments.resume()
    assert payments.paid == 1


@pytest.mark.parametrize("off", [HOUR, -HOUR])
async def test_on_another_machine_too_a_question_is_denied_by_the_clock_of_the_store(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, off: float
) -> None:
    kept = MemoryStore()
    payments = Payments(ClockedStore(machine, kept))
    question = await payments.ask()
    machine.wall += off
    monkeypatch.setattr(base, "wall_time", steady.SteadyTime(machine.wall))
    payments.store = ClockedStore(machine, kept)
    machine.wait(5.1)
    # The first call of this process: the store is asked for its time before the answer gets one.
    await payments.say_yes(question)
    assert not await payments.resume()
    assert payments.paid == 0


@pytest.mark.parametrize("has", ["no clock", "a clock"])
async def test_a_server_takes_no_deadline_for_over_when_the_wall_clock_is_an_hour_ahead(
    machine: Machine, has: str
) -> None:
    store = ClockedStore(machine) if has == "a clock" else MemoryStore()
    await store.append("s", 0, [b"x"])
    await store.set_deadline("s", BEGAN + 5.0)
    left = LeftRuns(store, "", 15.0, SystemClock(store))
    machine.wall += HOUR
    await left.due(deadlines=True)
    assert not left.is_overdue("s")
    machine.wait(8.0)
    left = LeftRuns(store, "", 15.0, SystemClock(store))
    await left.due(deadlines=True)
    assert left.is_overdue("s")


async def test_many_sessions_ask_a_store_for_its_time_once_a_minute(machine: Machine) -> None:
    store = ClockedStore(machine)
    payments = Payments(store)
    question = await payments.ask()
    await payments.resume()
    assert store.asked == 1
    machine.wait(61.0)
    await payments.say_yes(question)
    await payments.resume()
    assert store.asked == 2


async def test_a_store_that_does_not_tell_its_time_is_asked_again_and_stops_no_session(
    machine: Machine,
) -> None:
    store = ClockedStore(machine, ahead=HOUR)
    store.works = False
    clock = SystemClock(store)
    await clock.look()
    assert clock.now() == machine.wall
    store.works = True
    await clock.look()
    assert clock.now() == machine.wall + HOUR
    # From here on it is reckoned.
    store.works = False
    machine.wait(100.0)
    await clock.look()
    assert clock.now() == machine.wall + HOUR


async def test_a_clock_of_the_hosts_own_is_not_replaced_by_that_of_a_store(machine: Machine) -> None:
    store, clock = ClockedStore(machine), ManualClock(7.0)
    agent = attrs.evolve(Payments(store).agent(calls(("pay", {}))), clock=clock)
    async with agent, agent.session("s") as session:
        (question,) = (await session.run("go")).waiting
    assert question.due == 12.0
    assert not store.asked


@pytest.mark.parametrize("set_by", [HOUR, -HOUR])
async def test_a_clock_that_was_set_is_followed_slowly_and_without_a_jump(
    machine: Machine, set_by: float
) -> None:
    clock = SystemClock()
    machine.wall += set_by
    before, waits = clock.now(), [0.0, 0.001, 1.0, 0.5, 61.0, 3.0, 4000.0, 0.0, 1.0]
    for wait in waits:
        machine.wait(wait)
        await clock.look()
        assert 0.99 * wait - 1e-6 <= clock.now() - before <= 1.01 * wait + 1e-6
        before = clock.now()
    machine.wait(200 * HOUR)
    assert clock.now() == pytest.approx(machine.wall)
    await clock.look()
    machine.wait(200 * HOUR)
    assert clock.now() == pytest.approx(machine.wall)


async def test_a_suspension_of_the_machine_counts_as_time(machine: Machine) -> None:
    clock = SystemClock()
    await clock.look()
    with capture_logs() as lines:
        machine.wait(8 * HOUR)
        await clock.look()
    assert clock.now() == machine.wall
    assert not lines


@pytest.mark.parametrize("set_by", [59.0, -59.0, 61.0, -61.0])
async def test_a_wall_clock_that_was_set_by_more_than_a_minute_is_logged_once(
    machine: Machine, set_by: float
) -> None:
    clocks = SystemClock(), SystemClock()
    machine.wall += set_by
    with capture_logs() as lines:
        for clock in (*clocks, *clocks):
            await clock.look()
            machine.wait(30.0)
    told = {
        "event": "the wall clock was set; this process goes on by its own time",
        "ahead": set_by,
        "log_level": "warning",
    }
    assert lines == ([told] if abs(set_by) > 60.0 else [])


async def test_it_is_logged_whether_the_wall_clock_is_off_or_the_clock_of_the_store_was_set(
    machine: Machine,
) -> None:
    store = ClockedStore(machine, ahead=HOUR)
    with capture_logs() as lines:
        await SystemClock(store).look()
        for ahead in (HOUR, HOUR + 90.0):
            store.ahead = ahead
            machine.wait(61.0)
            await SystemClock(store).look()
    assert [(line["event"], line["ahead"]) for line in lines] == [
        ("the wall clock is off; deadlines are judged by the clock of the store", HOUR),
        ("the clock of the store was set; this process goes on by its own time", 90.0),
    ]


async def test_the_time_of_a_store_is_that_of_the_moment_in_which_it_was_read(machine: Machine) -> None:
    class Far(ClockedStore):
        async def time(self) -> float:
            machine.wait(1.0)
            read = await super().time()
            machine.wait(1.0)
            return read

    clock = SystemClock(Far(machine))
    await clock.look()
    assert clock.now() == machine.wall
