"""What a runner does with its store, its lease and its driver, one rule at a time, in one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

import attrs
import pytest
from provers.tasks import at_work, turns
from support.session_stage import until

from turnwheel import MemoryStore, Session
from turnwheel.effects import Effect
from turnwheel.effects.config import ChildSpec, Concurrency, Config, ModelSpec, Policy, ToolKind, ToolSpec
from turnwheel.effects.errors import (
    SessionBusy,
    SessionClosed,
    StoreConflict,
    StoreError,
    UnknownSession,
    Workplace,
)
from turnwheel.effects.events import (
    Approve,
    ControlReceived,
    Deny,
    Interrupted,
    ModelFinished,
    Post,
    UserSent,
)
from turnwheel.effects.history import CallPiece
from turnwheel.effects.messages import StopReason
from turnwheel.effects.notices import ApprovalRequested, Notice, RunEnded, TextDelta, Warned
from turnwheel.effects.permissions import PermissionMode, Rule, Verdict
from turnwheel.effects.records import Change, SetMode, SetModel
from turnwheel.effects.requests import CallModel, Purpose, RunAgent, RunTool, SetTimer
from turnwheel.effects.secrets import Secrets
from turnwheel.effects.usage import Usage
from turnwheel.engine.agent import sleep
from turnwheel.engine.inputs import Input, approval_event
from turnwheel.engine.journal.encoding import decode_entry, encode_entry
from turnwheel.engine.journal.entries import Entry, Posted, RunOpened, TakenOver, Titled
from turnwheel.engine.journal.fold import fold
from turnwheel.engine.session.delivery import Delivery
from turnwheel.engine.session.environment import Environment, Titles
from turnwheel.engine.session.lease import SessionLease
from turnwheel.engine.session.redactor import Redactor, SecretNames
from turnwheel.engine.session.runner import Owner, SessionRunner, take_over
from turnwheel.engine.session.session_log import SessionLog
from turnwheel.performers.base import noop
from turnwheel.performers.secrets import MemoryVault
from turnwheel.performers.stores.base import Entries, Store
from turnwheel.testing.clocks import AutoClock, ManualClock
from turnwheel.testing.scripted import Reply, ScriptedModel, ScriptedTools, calls, says, stalls
from turnwheel.testing.stores import StoreOver

CONFIG = Config(
    model=ModelSpec(name="one"),
    models=(ModelSpec(name="two"),),
    tools=(ToolSpec(name="look", side_effect="read_only"), ToolSpec(name="pay")),
)
SEEN = ScriptedTools(look=lambda _: "seen", pay=lambda _: "paid")

NEVER = 3_600.0
"""Seconds between two looks, in which a test is long over."""


class Noted(StoreOver):
    """Notes what it is asked; *fault* is raised in the place of an append, or of a look."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        # How many entries each append had, and from where on it was read.
        self.sizes: list[int] = []
        self.starts: list[int] = []
        self.fault: dict[str, Exception] = {}
        # Called before each append.
        self.meddle: Callable[[], Awaitable[object]] | None = None

    def _note(self, what: str) -> None:
        self.asked.append(what)
        if what in self.fault:
            raise self.fault.pop(what)

    async def append(
        self,
        session: str,
        expected: int,
        entries: Sequence[bytes],
        about: bytes | None = None,
        incarnation: str = "",
    ) -> str:
        if self.meddle is not None:
            await self.meddle()
        self._note("append")
        self.sizes.append(len(entries))
        return await super().append(session, expected, entries, about, incarnation)

    async def load(self, session: str, start: int = 0, incarnation: str = "") -> Entries:
        self._note("load")
        self.starts.append(start)
        return await super().load(session, start, incarnation)

    async def lease(
        self, session: str, held: bytes | None, wanted: bytes | None, incarnation: str = ""
    ) -> bytes | None:
        self._note("lease")
        return await super().lease(session, held, wanted, incarnation)

    async def set_deadline(self, session: str, due: float | None, incarnation: str = "") -> None:
        self._note("deadline")
        await super().set_deadline(session, due, incarnation)


@pytest.fixture
def store() -> Noted:
    return Noted()


def environment_of(*replies: Reply, config: Config = CONFIG, **settings: Any) -> Environment:
    names = iter(f"r{number}" for number in range(1, 99))
    performers = {
        CallModel: ScriptedModel(*replies, partial=True),
        RunTool: SEEN,
        SetTimer: sleep,
        **settings.pop("performers", {}),
    }
    given: dict[str, Any] = {"clock": AutoClock(100.0), "new_id": lambda: next(names), "poll": NEVER}
    return Environment(config=config, performers=performers, **{**given, **settings})


def runner_of(
    store: Store | None, *replies: Reply, session: str = "s", fresh: bool = False, **settings: Any
) -> SessionRunner:
    """What runs *session* in one more process over *store*, whose model says *replies*."""
    environment = environment_of(*replies, **settings)
    return SessionRunner(SessionLog(session, store, fresh=fresh), environment, Session)


def prompt(text: str, sender: str = "") -> Input:
    return Input(id=text, text=text, sender=sender)


def stream(
    runner: SessionRunner, text: str | None, *, wait: bool = False, takeover: bool = False
) -> AsyncGenerator[Notice, None]:
    return runner.stream(None if text is None else prompt(text), wait=wait, takeover=takeover)


async def run(
    runner: SessionRunner, text: str | None = None, *, wait: bool = False, takeover: bool = False
) -> list[Notice]:
    """The notices of *runner*, with a prompt of this *text* or without one, until nothing is left to do."""
    async with aclosing(stream(runner, text, wait=wait, takeover=takeover)) as notices:
        return [notice async for notice in notices]


async def post(runner: SessionRunner, event: Post | None) -> None:
    await runner.post(lambda: event)


def sent(text: str, at: float = 100.0, sender: str = "") -> UserSent:
    return prompt(text, sender).sent(at)


async def entries_of(store: Store, session: str = "s") -> list[Entry]:
    return [decode_entry(data) for data in await store.load(session)]


async def kinds(store: Store, session: str = "s") -> list[str]:
    return [type(entry).__name__ for entry in await entries_of(store, session)]


# The lease


@pytest.mark.parametrize(("fresh", "first"), [(True, ["append"]), (False, ["lease", "load", "append"])])
async def test_an_id_that_was_just_made_has_nothing_to_take_and_nothing_to_read(
    store: Noted, first: list[str], *, fresh: bool
) -> None:
    runner = runner_of(store, says("hi"), fresh=fresh)
    await run(runner, "go")
    assert store.asked[: len(first)] == first
    # Prompt and run are one.
    assert store.sizes[0] == 2


async def test_a_prompt_that_waits_is_begun_after_one_look(store: Noted) -> None:
    await post(runner_of(store.kept), sent("go"))
    await run(runner_of(store, says("hi")))
    assert store.asked[:3] == ["lease", "load", "append"]


async def test_a_run_that_is_refused_takes_no_lease_from_a_process_at_work(store: Noted) -> None:
    with pytest.raises(UnknownSession):
        await run(runner_of(store), takeover=True)
    assert store.asked == ["load"]


@pytest.mark.parametrize("way", ["ends", "fails", "left"])
async def test_a_stream_that_is_over_leaves_no_lease_and_nothing_to_drain(store: Noted, way: str) -> None:
    runner = runner_of(store, calls(("pay", {})))
    environment = runner.environment
    async with aclosing(stream(runner, "go", wait=way == "left")) as notices:
        async for notice in notices:
            assert (runner.owner, runner.log.in_use, environment.at_work) == (
                Owner.DRIVING,
                True,
                {runner.drain},
            )
            if isinstance(notice, ApprovalRequested):
                break
    assert (runner.owner, runner.log.in_use, environment.at_work) == (Owner.NONE, False, set())
    assert (runner.driver, runner.log.listener) == (None, None)
    assert await store.leases() == {}


async def test_a_child_is_drained_by_its_parent_and_not_by_the_agent() -> None:
    config = attrs.evolve(CONFIG, agent="helper")
    runner = runner_of(MemoryStore(), says("done"), config=config, task=prompt("task"))
    async with aclosing(stream(runner, "task")) as notices:
        async for _ in notices:
            assert runner.environment.at_work == set()


async def test_a_lease_that_was_lost_while_a_sender_could_add_to_a_prompt_is_not_worked_without() -> None:
    store, clock = MemoryStore(), ManualClock()
    config = attrs.evolve(CONFIG, policy=Policy(coalesce=2.0))
    runner = runner_of(store, says("hi"), config=config, clock=clock, lease=0.0)
    await post(runner, sent("go", sender="a"))
    running = asyncio.ensure_future(run(runner))
    await turns(10)
    assert runner.owner is Owner.CLAIMING
    other = SessionLease(runner.log.journal, environment_of(lease=60.0), lambda: None)
    await other.take(takeover=True)
    clock.move(2.0)
    with pytest.raises(SessionBusy):
        await running
    assert await kinds(store) == ["Posted"]
    await other.release()


async def test_the_deadline_that_a_lost_process_told_is_gone_with_its_question() -> None:
    store = MemoryStore()
    config = attrs.evolve(CONFIG, policy=Policy(answer_within=5.0))
    first = runner_of(store, calls(("pay", {})), config=config)
    await run(first, "go")
    assert [*await store.overdue(106.0)] == ["s"]
    (question,) = first.log.state.questions
    later = runner_of(store, says("done"), config=config)
    await post(later, approval_event(question.id, Approve(), 100.0, ""))
    await run(later)
    assert [*await store.overdue(106.0)] == []


async def test_a_run_that_asks_nothing_tells_no_deadline(store: Noted) -> None:
    await run(runner_of(store, says("hi")), "go")
    assert "deadline" not in store.asked


class Lingering(StoreOver):
    """Takes many turns of the event loop to give a lease up."""

    async def lease(
        self, session: str, held: bytes | None, wanted: bytes | None, incarnation: str = ""
    ) -> bytes | None:
        if wanted is None and held is not None:
            await turns(20)
        return await super().lease(session, held, wanted, incarnation)


async def test_who_comes_while_a_lease_is_given_up_waits_for_that() -> None:
    runner = runner_of(Lingering(), *[says("hi")] * 3)
    # Each time, and however many they are.
    for text in ("one", "two"):
        async with aclosing(stream(runner, text)) as notices:
            async for notice in notices:
                if isinstance(notice, RunEnded):
                    break
            ending = asyncio.ensure_future(notices.aclose())
            await turns(3)
            assert runner.owner is Owner.LEAVING
            assert [notice async for notice in stream(runner, None)] == []
            await ending
    assert runner.log.state.runs == 2


async def test_who_comes_while_a_run_that_has_ended_gives_its_lease_up_waits_too() -> None:
    runner = runner_of(Lingering(), says("one"), says("two"))
    first = asyncio.ensure_future(run(runner, "one"))
    assert await turns(100, lambda: runner.owner is Owner.LEAVING)
    assert isinstance((await run(runner, "two"))[-1], RunEnded)
    await first


async def test_a_run_that_waits_for_people_gives_its_lease_up_and_has_it_again_at_once() -> None:
    store = MemoryStore()
    runner = runner_of(store, calls(("pay", {})), stalls(), poll=0.01)
    running = asyncio.ensure_future(run(runner, "go", wait=True))
    await turns(200, lambda: bool(runner.log.state.questions))
    assert runner.lease.held
    await until(lambda: not runner.lease.held)
    (question,) = runner.log.state.questions
    other = runner_of(store)
    await other.load()
    await post(other, approval_event(question.id, Approve(), 100.0, ""))
    assert await turns(50, lambda: runner.lease.held)
    await runner.close()
    await running


# Between two runs


async def between(store: Store, clock: ManualClock) -> tuple[SessionRunner, asyncio.Future[list[Notice]]]:
    """What waits for more of the sender of its second prompt, and will have said all by 102."""
    config = attrs.evolve(CONFIG, policy=Policy(coalesce=2.0))
    runner = runner_of(store, says("one"), says("two"), config=config, clock=clock)
    await post(runner, sent("1"))
    running = asyncio.ensure_future(run(runner))
    await turns(50, lambda: runner.driver is not None)
    await post(runner, sent("2", sender="a"))
    await turns(50, lambda: runner.driver is None)
    assert runner.owner is Owner.CLAIMING
    return runner, running


async def test_between_two_runs_there_is_none_to_interrupt() -> None:
    clock = ManualClock()
    runner, running = await between(MemoryStore(), clock)
    assert not runner.interrupted(Interrupted(at=100.0))
    assert (runner.log.listener, runner.log.in_use) == (None, True)
    clock.move(2.0)
    assert [notice.reason for notice in await running if isinstance(notice, RunEnded)] == ["end_turn"] * 2


async def test_what_drains_between_two_runs_leaves_the_second_to_others() -> None:
    store, clock = MemoryStore(), ManualClock()
    runner, running = await between(store, clock)
    draining = asyncio.ensure_future(runner.drain(None))
    await turns(5)
    clock.move(2.0)
    await draining
    assert len([notice for notice in await running if isinstance(notice, RunEnded)]) == 1
    assert (await kinds(store)).count("RunOpened") == 1


async def test_a_prompt_that_waited_for_its_turn_while_a_drain_began_is_refused() -> None:
    store = MemoryStore()
    runner = runner_of(store, says("hi"))
    async with runner.at_rest():
        running = asyncio.ensure_future(run(runner, "go"))
        await turns(10)
        runner.drains = True
    with pytest.raises(SessionClosed):
        await running
    assert await store.list() == []


async def test_a_log_is_in_use_until_the_stream_has_ended_also_where_it_is_closed() -> None:
    runner = runner_of(MemoryStore(), stalls())
    notices = stream(runner, "go")
    await anext(notices)
    await runner.close()
    uses = [runner.log.in_use]
    await notices.aclose()
    idle = runner_of(MemoryStore())
    await idle.close()
    assert [*uses, runner.log.in_use, idle.log.in_use] == [True, False, False]


async def test_more_of_a_sender_through_another_process_is_waited_for_too() -> None:
    store, clock = MemoryStore(), ManualClock()
    runner, running = await between(store, clock)
    clock.move(1.5)
    await post(runner_of(store), sent("3", 101.5, sender="a"))
    clock.move(1.0)
    await turns(20)
    assert runner.driver is None
    clock.move(1.0)
    await running
    assert runner.log.state.machine is not None
    assert [message.text for message in runner.log.state.machine.memory.history][-2:] == ["2\n3", "two"]


async def test_a_prompt_that_more_may_be_added_to_is_journaled_before_that_is_waited_for() -> None:
    store, clock = MemoryStore(), ManualClock()
    config = attrs.evolve(CONFIG, policy=Policy(coalesce=2.0))
    runner = runner_of(store, says("one"), config=config, clock=clock)
    notices = runner.stream(prompt("go", "a"), wait=False)
    running = asyncio.ensure_future(anext(notices))
    await turns(20)
    assert await kinds(store) == ["Posted"]
    clock.move(2.0)
    await running
    await notices.aclose()
    assert (await kinds(store)).count("Posted") == 1


@pytest.mark.parametrize("kept", [True, False])
async def test_what_a_run_begins_with_comes_of_the_entry_that_opens_it(*, kept: bool) -> None:
    runner = runner_of(MemoryStore() if kept else None, calls(("pay", {})))
    entries = []
    async with aclosing(stream(runner, "go")) as notices:
        async for _ in notices:
            assert runner.driver is not None
            entries.append(runner.driver.entry)
    assert (entries[0], entries[-1]) == ((1, 3) if kept else (None, None))


async def test_secrets_are_taken_out_of_what_tools_answer() -> None:
    store, vault = MemoryStore(), MemoryVault()
    tools = ScriptedTools(look=lambda _: '{"password": "correct-horse-7"}')
    redactor = Redactor("s", vault, SecretNames(Secrets(), CONFIG.tools, {}))
    runner = runner_of(store, calls(("look", {})), says("hi"), redactor=redactor, performers={RunTool: tools})
    await run(runner, "go")
    assert len(tools.ran) == 1
    assert not any(b"correct-horse-7" in entry for entry in await store.load("s"))
    assert vault.is_local("s")


async def test_texts_come_whole_where_parts_are_not_wanted() -> None:
    runner = runner_of(MemoryStore(), says("one two"), watch=Delivery(include_partial=False))
    texts = [notice.text for notice in await run(runner, "go") if isinstance(notice, TextDelta)]
    assert texts == ["one two"]


@pytest.mark.parametrize("loads", [True, False])
async def test_a_session_at_rest_is_packed_after_a_look_and_after_a_run(
    monkeypatch: pytest.MonkeyPatch, *, loads: bool
) -> None:
    monkeypatch.setattr("turnwheel.engine.session.session_log.PARK_AFTER", 0.0)
    store = MemoryStore()
    runner = runner_of(store, calls(("pay", {})))
    await run(runner, "go")
    if loads:
        runner = runner_of(store)
        await runner.load()
    before = runner.log.state
    await turns(5)
    assert runner.log.state is not before
    assert runner.log.state.questions == before.questions


# What waits behind a run that was started


async def ignored(_: Notice) -> None:
    pass


async def test_a_run_that_was_started_on_a_closed_session_leaves_nothing_to_drain() -> None:
    runner = runner_of(MemoryStore())
    await runner.close()
    task = runner.start(prompt("go"), ignored)
    assert runner.environment.at_work == {runner.drain}
    with pytest.raises(SessionClosed):
        await task
    assert runner.environment.at_work == set()


async def test_a_run_that_was_started_and_given_up_at_once_leaves_nothing_to_drain_or_to_wait_for() -> None:
    runner = runner_of(MemoryStore(), says("hi"))
    task = runner.start(prompt("go"), ignored)
    task.cancel()
    await asyncio.wait({task})
    await turns(1)
    assert runner.environment.at_work == set()
    await run(runner, "again")


async def test_a_run_that_was_refused_for_one_at_work_leaves_that_to_be_drained() -> None:
    runner = runner_of(MemoryStore(), stalls())
    first = runner.start(prompt("one"), ignored)
    await turns(50, lambda: runner.driver is not None)
    with pytest.raises(SessionBusy) as refused:
        await runner.start(prompt("two"), ignored)
    assert refused.value.at_work is Workplace.HERE
    assert runner.environment.at_work == {runner.drain}
    await runner.close()
    await first


async def test_a_run_that_was_started_is_judged_when_its_turn_has_come() -> None:
    runner = runner_of(MemoryStore(), stalls())
    async with runner.at_rest():
        first, second = [runner.start(prompt(text), ignored) for text in ("one", "two")]
        await turns(30)
        assert not second.done()
    with pytest.raises(SessionBusy):
        await second
    await runner.close()
    await first


async def test_a_run_that_was_started_comes_before_one_that_is_called_behind_it() -> None:
    store = MemoryStore()
    runner = runner_of(store, stalls())
    first = runner.start(prompt("one"), ignored)
    with pytest.raises(SessionBusy):
        await run(runner, "two")
    await runner.close()
    await first
    assert (await kinds(store)).count("Posted") == 1


async def test_runs_that_were_started_and_inputs_behind_them_come_in_the_order_of_their_calls() -> None:
    store = MemoryStore()
    runner = runner_of(store, says("one"), says("two"), says("three"))
    first = runner.start(prompt("one"), ignored)
    # At once: the run has not had its first step yet.
    for text in ("two", "three"):
        await post(runner, sent(text))
    await first
    said = [getattr(entry.event, "id", "") for entry in await entries_of(store) if isinstance(entry, Posted)]
    assert said == ["one", "two", "three"]


# What a run needs


@pytest.mark.parametrize(
    ("first", "text", "asked"),
    [
        ("nothing", "go", [{"one", "two"}]),
        ("waits", None, [{"one", "two"}]),
        ("rests", None, [{"one", "two"}]),
        ("over", None, []),
        ("over", "more", [{"one", "two"}]),
    ],
)
async def test_models_have_to_be_ready_where_a_run_is_begun_or_gone_on_with(
    first: str, text: str | None, asked: list[set[str]]
) -> None:
    store = MemoryStore()
    before = runner_of(store, calls(("pay", {})) if first == "rests" else says("hi"))
    if first == "waits":
        await post(before, sent("go"))
    elif first != "nothing":
        await run(before, "go")
    found = list[set[str]]()
    config = attrs.evolve(CONFIG, fallback="two")
    await run(runner_of(store, says("hi"), config=config, ready=lambda *names: found.append({*names})), text)
    assert found[:1] == asked


async def test_models_have_to_be_ready_before_each_of_several_runs() -> None:
    store, found = MemoryStore(), list[set[str]]()
    before = runner_of(store)
    for text in ("one", "two"):
        await post(before, sent(text))
    await run(runner_of(store, says("1"), says("2"), ready=lambda *names: found.append({*names})))
    assert found == [{"one"}] * 2


async def test_a_session_that_nothing_was_said_to_is_not_there_to_go_on_with(store: Noted) -> None:
    with pytest.raises(UnknownSession):
        await run(runner_of(store))
    await post(runner_of(store), sent("go"))
    assert isinstance((await run(runner_of(store, says("hi"))))[-1], RunEnded)


async def test_a_prompt_does_not_begin_behind_a_run_that_rests() -> None:
    store = MemoryStore()
    await run(runner_of(store, calls(("pay", {}))), "go")
    with pytest.raises(SessionBusy) as refused:
        await run(runner_of(store), "more")
    assert refused.value.at_work is Workplace.NOWHERE
    assert await kinds(store) == ["Posted", "RunOpened", "Stepped", "Stepped"]


@pytest.mark.parametrize(("text", "refused"), [("task", False), ("other", True)])
async def test_a_childs_own_task_is_begun_once_whichever_process_began_it(
    text: str, *, refused: bool
) -> None:
    store, config = MemoryStore(), attrs.evolve(CONFIG, agent="helper")
    await run(runner_of(store, calls(("pay", {})), config=config, task=prompt("task")), "task")
    later = runner_of(store, config=config, task=prompt("task"))
    if refused:
        with pytest.raises(SessionBusy):
            await run(later, text)
        return
    assert any(isinstance(notice, ApprovalRequested) for notice in await run(later, text))
    assert (await kinds(store)).count("Posted") == 1


# What a run is opened with


async def test_the_first_run_of_a_child_has_the_name_of_its_task_and_later_ones_their_own() -> None:
    store, config = MemoryStore(), attrs.evolve(CONFIG, agent="helper")
    runner = runner_of(store, says("one"), says("two"), config=config, task=prompt("task"))
    await run(runner, "task")
    await run(runner, "more")
    opened = [entry.run for entry in await entries_of(store) if isinstance(entry, RunOpened)]
    assert opened == ["task", "r1"]


@pytest.mark.parametrize(
    ("titles", "agent", "titled"),
    [(Titles.INLINE, "", True), (Titles.OFF, "", False), (Titles.INLINE, "helper", False)],
)
async def test_a_session_is_titled_where_that_is_wanted_and_a_child_is_not(
    titles: Titles, agent: str, *, titled: bool
) -> None:
    store, config = MemoryStore(), attrs.evolve(CONFIG, agent=agent)
    task = prompt("go") if agent else None
    await run(runner_of(store, says("hi"), config=config, titles=titles, task=task), "go")
    assert any(isinstance(entry, Titled) for entry in await entries_of(store)) is titled


DENIALS = tuple([Rule(verdict=Verdict.DENY, tool=name) for name in ("look", "pay", "dig")])


@pytest.mark.parametrize(
    ("before", "now", "lifted", "told"),
    [
        # One that the run before had not is none to tell of, and one that holds still is not lifted.
        (DENIALS[:2], (), DENIALS[1:], [1]),
        (DENIALS[:2], DENIALS[1:2], DENIALS[:2], [0]),
        (None, (), DENIALS, []),
    ],
)
async def test_denials_that_hold_no_more_are_told_of(
    before: tuple[Rule, ...] | None, now: tuple[Rule, ...], lifted: tuple[Rule, ...], told: list[int]
) -> None:
    store = MemoryStore()
    if before is not None:
        await run(runner_of(store, says("hi"), config=attrs.evolve(CONFIG, rules=before)), "go")
    config = attrs.evolve(CONFIG, rules=now)
    notices = await run(runner_of(store, says("hi"), config=config, lifted=lifted), "more")
    warned = [notice.text for notice in notices if isinstance(notice, Warned)]
    assert warned == [f"lifted: {DENIALS[number]}" for number in told]


# Inputs


async def test_an_input_to_a_session_that_is_no_childs_brings_no_task() -> None:
    store, config = MemoryStore(), attrs.evolve(CONFIG, agent="helper")
    await run(runner_of(store, says("hi")), "go")
    runner = runner_of(store, config=config, task=prompt("task"))
    await post(runner, sent("more"))
    assert (await kinds(store)).count("Posted") == 2


async def test_the_task_of_a_child_is_its_first_input_and_written_once() -> None:
    store, config = MemoryStore(), attrs.evolve(CONFIG, agent="helper")
    runner = runner_of(store, config=config, task=prompt("task"))
    for text in ("one", "two"):
        await post(runner, sent(text))
    said = [entry.event for entry in await entries_of(store) if isinstance(entry, Posted)]
    assert said == [sent("task"), sent("one"), sent("two")]


async def test_inputs_to_an_id_that_was_just_made_read_nothing(store: Noted) -> None:
    runner = runner_of(store, fresh=True)
    await post(runner, sent("one"))
    await post(runner, sent("two"))
    assert store.asked == ["append", "append"]


async def test_an_id_that_was_just_made_may_be_known_to_others_after_the_first_input(store: Noted) -> None:
    runner = runner_of(store, fresh=True)
    await post(runner, sent("one"))
    await post(runner_of(store), sent("two"))
    await runner.load()
    assert [mail.id for mail in runner.log.state.prompts] == ["one", "two"]


async def test_nothing_is_written_where_nothing_is_to_be_said(store: Noted) -> None:
    runner = runner_of(store)
    await post(runner, None)
    assert (store.asked, await kinds(store.kept)) == (["load"], [])


async def test_an_interrupt_is_for_the_driver_that_goes_on() -> None:
    store = MemoryStore()
    runner = runner_of(store, stalls())
    stop = Interrupted(at=100.0)
    assert runner.interrupted(stop) is False
    running = asyncio.ensure_future(run(runner, "go"))
    await turns(50, lambda: runner.driver is not None)
    assert runner.interrupted(stop)
    # Known at once, also to one who answers a question.
    assert runner.log.state.interrupts == [stop]
    assert [notice.reason for notice in await running if isinstance(notice, RunEnded)] == ["interrupted"]
    assert runner.log.state.interrupts == []


# A store that fails


@pytest.mark.parametrize("closed", [True, False])
async def test_what_a_run_here_has_written_is_not_read_again(store: Noted, *, closed: bool) -> None:
    runner = runner_of(store, calls(("pay", {})), fresh=True)
    await run(runner, "go")
    if closed:
        await runner.close()
    store.starts.clear()
    await runner.add(lambda: Titled(at=1.0, title="later"), closed=True)
    assert (store.starts, runner.log.state.title) == ([], "later")


async def test_a_session_is_read_from_where_a_run_here_left_it(store: Noted) -> None:
    runner = runner_of(store, says("hi"))
    await run(runner, "go")
    store.starts.clear()
    await runner.load()
    assert store.starts == [len(await store.kept.load("s"))]


@pytest.mark.parametrize("reads", [True, False])
async def test_a_step_that_was_not_stored_never_was(store: Noted, *, reads: bool) -> None:
    runner = runner_of(store, calls(("pay", {})))

    async def fail() -> None:
        if store.asked.count("append") == 1:
            store.fault["append"] = StoreError("the disk is full")
            if not reads:
                store.fault["load"] = StoreError("the disk is away")

    store.meddle = fail
    with pytest.raises(StoreError, match="full"):
        await run(runner, "go")
    await runner.load()
    assert runner.log.state.questions == ()
    assert runner.log.state.machine == fold(await store.kept.load("s"), "s").machine


async def test_an_input_to_a_run_that_lost_its_session_is_refused_at_once() -> None:
    store = MemoryStore()
    runner = runner_of(store, stalls())
    running = asyncio.ensure_future(run(runner, "go"))
    await turns(50, lambda: runner.driver is not None)
    length = len(await store.load("s"))
    await store.append("s", length, [encode_entry(TakenOver(at=1.0))])
    with pytest.raises(StoreConflict):
        await post(runner, sent("more"))
    await runner.close()
    await running


class CutOff(StoreOver):
    """Keeps an answer of a model and fails all the same, once *meanwhile* was done."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], object] | None = None

    async def append(
        self,
        session: str,
        expected: int,
        entries: Sequence[bytes],
        about: bytes | None = None,
        incarnation: str = "",
    ) -> str:
        there = await super().append(session, expected, entries, about, incarnation)
        if self.meanwhile is not None and any(b"ModelFinished" in entry for entry in entries):
            self.meanwhile()
            self.meanwhile = None
            await turns(10)
            msg = "the connection was cut off"
            raise StoreError(msg)
        return there


async def test_an_input_behind_a_step_that_was_kept_all_the_same_is_kept_too() -> None:
    store = CutOff()
    runner = runner_of(store, calls(("pay", {})))
    posts = list[asyncio.Future[None]]()
    store.meanwhile = lambda: posts.append(asyncio.ensure_future(post(runner, sent("more"))))
    with pytest.raises(StoreError, match="cut off"):
        await run(runner, "go")
    await posts[0]
    assert (await kinds(store))[-2:] == ["Stepped", "Posted"]
    assert [mail.id for mail in runner.log.state.prompts] == ["more"]
    assert len(runner.log.state.questions) == 1


# Draining


class Slow(StoreOver):
    """Takes many turns of the event loop for each append."""

    async def append(
        self,
        session: str,
        expected: int,
        entries: Sequence[bytes],
        about: bytes | None = None,
        incarnation: str = "",
    ) -> str:
        await turns(50)
        return await super().append(session, expected, entries, about, incarnation)


async def test_work_that_is_cut_off_is_handed_over_before_a_drain_is_over() -> None:
    store = Slow()
    runner = runner_of(store, stalls())
    running = asyncio.ensure_future(run(runner, "go"))
    await turns(400, lambda: runner.driver is not None and bool(runner.environment.performers))
    await turns(20)
    await runner.drain(0.0)
    assert (await kinds(store))[-1] == "HandedOver"
    await running


class Lost:
    """A child that cannot be drained."""

    def __init__(self) -> None:
        self.closed = False

    async def drain(self, within: float | None) -> None:
        del within
        msg = "the disk is away"
        raise StoreError(msg)

    async def close(self) -> None:
        self.closed = True


async def test_a_child_that_cannot_be_drained_keeps_its_parent_from_nothing() -> None:
    runner, child = runner_of(MemoryStore()), Lost()
    here: dict[str, Any] = runner.children.here
    here["call"] = child
    await runner.drain(1.0)
    assert (runner.owner, child.closed) == (Owner.CLOSED, True)


@pytest.mark.parametrize("text", ["go", None])
async def test_what_drains_begins_no_run(text: str | None) -> None:
    store = MemoryStore()
    await post(runner_of(store), sent("before"))
    runner = runner_of(store)
    runner.drains = True
    with pytest.raises(SessionClosed):
        await run(runner, text)
    assert await kinds(store) == ["Posted"]
    assert not runner.interrupted(Interrupted(at=100.0))


async def test_a_model_is_asked_for_a_title_once_whatever_becomes_of_it() -> None:
    # A refusal is no title.
    replies = [says("one"), says("no", StopReason.REFUSAL), says("two")]
    runner = runner_of(MemoryStore(), *replies, titles=Titles.MODEL)
    model = runner.environment.performers[CallModel]
    assert isinstance(model, ScriptedModel)
    await run(runner, "go")
    await turns(50)
    await run(runner, "more")
    await turns(50)
    assert [request.purpose for request in model.requests].count(Purpose.TITLE) == 1
    await runner.close()


@pytest.mark.parametrize("begins", [True, False])
async def test_what_is_closed_while_it_writes_that_it_begins_is_left_to_the_next_owner(
    store: Noted, *, begins: bool
) -> None:
    if not begins:
        await run(runner_of(store, calls(("pay", {}))), "go")
    runner = runner_of(store)
    store.meddle = runner.close
    with pytest.raises(SessionClosed):
        await run(runner, "go" if begins else None)
    assert (runner.owner, runner.driver) == (Owner.CLOSED, None)
    assert (await kinds(store))[-1] == ("RunOpened" if begins else "TakenOver")
    assert await store.leases() == {}


# At rest


async def test_a_session_is_at_rest_while_no_run_goes_on_or_is_left() -> None:
    store = MemoryStore()
    runner = runner_of(store, says("one"), calls(("pay", {})), stalls())
    async with runner.at_rest() as log:
        assert log is runner.log
    await run(runner, "go")
    running = asyncio.ensure_future(run(runner, "pay", wait=True))
    await turns(100, lambda: bool(runner.log.state.questions))
    await refused_at_rest(runner, Workplace.HERE)
    await refused_at_rest(runner_of(store), Workplace.HERE)
    await runner.close()
    await running
    await refused_at_rest(runner_of(store), Workplace.NOWHERE)


async def refused_at_rest(runner: SessionRunner, where: Workplace) -> None:
    with pytest.raises(SessionBusy) as refused:
        async with runner.at_rest():
            pass
    assert refused.value.at_work is where


async def test_nothing_begins_while_a_session_has_to_be_at_rest() -> None:
    runner = runner_of(MemoryStore(), says("hi"))
    async with runner.at_rest():
        running = asyncio.ensure_future(run(runner, "go"))
        await turns(50)
        assert runner.driver is None
    assert isinstance((await running)[-1], RunEnded)


# Letting go


@pytest.mark.parametrize(
    ("replies", "reasons"),
    [((), []), ((says("hi"),), ["end_turn"]), ((calls(("pay", {})),), ["unfinished"])],
)
async def test_hooks_are_told_of_the_end_of_a_session_that_ran_once_it_is_at_rest(
    replies: tuple[Reply, ...], reasons: list[str]
) -> None:
    ended = list[str]()

    async def over(session: str, reason: str) -> None:
        assert (session, runner.owner, await store.leases()) == ("s", Owner.CLOSED, {})
        ended.append(reason)

    store = MemoryStore()
    runner = runner_of(store, *replies, ended=over)
    if replies:
        await run(runner, "go")
    await runner.close()
    await runner.close()
    assert ended == reasons


async def test_what_is_closed_has_told_its_subscribers_and_its_children() -> None:
    runner, child = runner_of(MemoryStore()), Lost()
    here: dict[str, Any] = runner.children.here
    here["call"] = child
    subscribed = runner.broker.subscribe()
    await runner.close()
    assert child.closed
    assert [notice async for notice in subscribed] == []
    with pytest.raises(SessionClosed):
        await runner.load()
    with pytest.raises(SessionClosed):
        await run(runner, "go")
    with pytest.raises(SessionClosed):
        await post(runner, sent("go"))
    # A title that a model was asked for is written all the same, and paid for.
    await runner.add(lambda: Titled(at=1.0, title="late"), closed=True)
    assert runner.log.state.title == "late"


async def test_closing_waits_for_a_title_that_is_being_asked_for() -> None:
    store = MemoryStore()
    runner = runner_of(store, says("one"), stalls("Half a ti"), titles=Titles.MODEL)
    await run(runner, "go")
    model = runner.environment.performers[CallModel]
    assert isinstance(model, ScriptedModel)
    await turns(20, lambda: len(model.requests) == 2)
    await runner.close()
    assert at_work() == set()


@pytest.mark.parametrize("unfinished", [True, False])
async def test_children_are_looked_at_while_a_run_may_have_some(*, unfinished: bool) -> None:
    runner = runner_of(MemoryStore(), calls(("pay", {})) if unfinished else says("hi"))
    await run(runner, "go")
    here: dict[str, Any] = runner.children.here
    here["of an earlier run"] = Lost()
    await runner.load()
    assert len(runner.children.here) == (0 if unfinished else 1)


class Followed:
    """The children of a run, which note what they follow."""

    def __init__(self) -> None:
        self.here = {"call": None}
        self.wake = self.abort = noop
        self.changes: list[Change] = []

    async def follow(self, change: Change) -> None:
        self.changes.append(change)

    async def close(self) -> None:
        self.here.clear()


async def test_a_setting_that_a_run_has_applied_is_for_its_children_too() -> None:
    runner, children = runner_of(MemoryStore(), stalls()), Followed()
    stand_in: Any = children
    runner.children = stand_in
    running = asyncio.ensure_future(run(runner, "go"))
    await turns(50, lambda: runner.driver is not None)
    change = SetMode(mode=PermissionMode.PLAN)
    await post(runner, ControlReceived(at=100.0, id="1", change=change))
    await turns(50, lambda: bool(children.changes))
    assert children.changes == [change]
    await runner.close()
    await running


async def test_a_run_that_rests_is_gone_on_with_whoever_may_add_to_a_prompt_behind_it() -> None:
    store, config = MemoryStore(), attrs.evolve(CONFIG, policy=Policy(coalesce=2.0))
    first = runner_of(store, calls(("pay", {})), config=config)
    await run(first, "go")
    await post(first, sent("more", sender="a"))
    later = runner_of(store, config=config, clock=ManualClock())
    assert any(isinstance(notice, ApprovalRequested) for notice in await run(later))


async def test_a_stream_that_is_left_between_two_runs_begins_no_other() -> None:
    store = MemoryStore()
    runner = runner_of(store, says("one"), says("two"))
    for text in ("one", "two"):
        await post(runner, sent(text))
    async with aclosing(stream(runner, None)) as notices:
        async for notice in notices:
            if isinstance(notice, RunEnded):
                break
    assert (await kinds(store)).count("RunOpened") == 1


@pytest.mark.parametrize("fresh", [True, False])
async def test_an_input_into_a_run_here_reads_nothing(store: Noted, *, fresh: bool) -> None:
    runner = runner_of(store, stalls(), says("two"), fresh=fresh)
    running = asyncio.ensure_future(run(runner, "go"))
    await turns(50, lambda: runner.driver is not None)
    store.starts.clear()
    await post(runner, sent("more"))
    assert store.starts == []
    assert [mail.id for mail in runner.log.state.prompts] == ["more"]
    await runner.close()
    await running


async def test_the_owner_knows_more_than_the_store_and_reads_nothing(store: Noted) -> None:
    runner = runner_of(store, stalls())
    running = asyncio.ensure_future(run(runner, "go"))
    await turns(50, lambda: runner.driver is not None)
    store.asked.clear()
    await runner.load()
    assert store.asked == []
    await runner.close()
    await running


async def test_the_callbacks_of_a_run_are_gone_with_it() -> None:
    runner = runner_of(MemoryStore(), calls(("pay", {})))
    async with aclosing(stream(runner, "go")) as notices:
        async for _ in notices:
            assert noop not in {runner.children.wake, runner.children.abort}
    assert (runner.children.wake, runner.children.abort) == (noop, noop)


async def test_a_child_that_finds_another_owner_ends_the_run_of_its_parent_with_that_error() -> None:
    runner = runner_of(MemoryStore(), stalls())
    running = asyncio.ensure_future(run(runner, "go"))
    await turns(50, lambda: runner.driver is not None)
    lost = StoreConflict("s.call", 1, 2)
    runner.children.abort(lost)
    with pytest.raises(StoreConflict) as raised:
        await running
    assert raised.value is lost
    assert runner.log.state.unfinished


# Taking over


ASKERS = tuple([ToolSpec(name=name, side_effect="read_only", approval="always") for name in ("a", "b")])
SPAWN = ToolSpec(name="run_agent", approval="never", kind=ToolKind.AGENT)
WISHES: dict[str, tuple[CallPiece, ...]] = {
    "asks": (CallPiece(0, "", "a", "{}"), CallPiece(1, "", "b", "{}")),
    "spawns": (CallPiece(0, "", "run_agent", '{"agent": "kid", "prompt": "go"}'),),
}
BOTH = attrs.evolve(
    CONFIG,
    tools=(*ASKERS, SPAWN),
    children=(ChildSpec(name="kid"),),
    policy=Policy(concurrency=Concurrency.PARALLEL_READS),
)


async def lost_run(store: Store, wishes: str) -> SessionLog:
    """The log of a run whose process was lost after its model made these *wishes*."""
    log = SessionLog("s", store)
    await log.open_run("r", BOTH, 1.0, sent("go"))
    machine = log.state.machine
    assert machine is not None
    (asked,) = machine.state.open
    answer = ModelFinished(
        at=2.0, request=asked, stop=StopReason.TOOL_USE, usage=Usage(), pieces=WISHES[wishes]
    )
    await log.keep(machine.step(answer))
    return log


async def taken_over(log: SessionLog, config: Config = BOTH) -> list[Effect]:
    """The effects of a takeover by another process, to which *log* is as it was stored."""
    later = SessionLog("s", log.journal.store)
    await later.read()
    assert later.state.machine is not None
    effects, events = await take_over(later, later.state.machine, config, 9.0)
    assert events == ()
    return [*effects]


@pytest.mark.parametrize("answered", [0, 1])
async def test_a_question_with_an_answer_is_not_asked_again_by_who_takes_over(answered: int) -> None:
    log = await lost_run(MemoryStore(), "asks")
    asked = log.state.questions
    for question in asked[:answered]:
        answer = Posted(event=approval_event(question.id, Deny(), 3.0, ""))
        await log.add(partial(attrs.evolve, answer))
    open_ = asked[answered:]
    assert await taken_over(log) == [*open_, *map(ApprovalRequested.of, open_)]


CHANGES: list[Change] = [
    SetMode(mode=PermissionMode.BYPASS),
    SetMode(mode=PermissionMode.PLAN),
    SetModel(model="two"),
]


@pytest.mark.parametrize(
    ("changes", "mode"),
    [
        ((), PermissionMode.DEFAULT),
        (CHANGES[2:], PermissionMode.DEFAULT),
        (CHANGES[:2], PermissionMode.PLAN),
        (CHANGES[1::-1], PermissionMode.BYPASS),
        (CHANGES, PermissionMode.PLAN),
    ],
)
async def test_a_child_is_begun_again_in_the_mode_that_was_chosen_last(
    changes: Sequence[Change], mode: PermissionMode
) -> None:
    log = await lost_run(MemoryStore(), "spawns")
    for number, change in enumerate(changes):
        posted = Posted(event=ControlReceived(at=3.0, id=str(number), change=change))
        await log.add(partial(attrs.evolve, posted))
    (request,) = await taken_over(log)
    assert isinstance(request, RunAgent)
    assert (request.agent, request.mode) == ("kid", mode)


async def test_a_question_is_the_same_in_whatever_mode_it_is_asked_again() -> None:
    log = await lost_run(MemoryStore(), "asks")
    asked = log.state.questions
    await log.add(lambda: Posted(event=ControlReceived(at=3.0, id="1", change=CHANGES[0])))
    assert (await taken_over(log))[:2] == [*asked]


@pytest.mark.parametrize("changed", [False, True])
async def test_a_takeover_says_under_which_settings_where_they_are_others(*, changed: bool) -> None:
    store = MemoryStore()
    log = await lost_run(store, "asks")
    config = attrs.evolve(BOTH, system="Be kind.") if changed else BOTH
    await taken_over(log, config)
    assert (await entries_of(store))[-1] == TakenOver(at=9.0, config=config if changed else None)
