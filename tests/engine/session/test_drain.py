"""Leaving politely: calls at work come to their end, none begins, and another process goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from provers.tasks import at_work, turns
from support.patience import PATIENCE
from support.session_stage import House, Tape, Watch, outcomes, told

from turnwheel import (
    Approve,
    ChildSpec,
    DoneReason,
    Hook,
    HookAnswer,
    HookCall,
    Limits,
    Policy,
    Session,
    Singleton,
    hook,
    tool,
)
from turnwheel.effects.config import Concurrency, Steering
from turnwheel.effects.errors import ConfigError, SessionClosed, StoreConflict, StoreError
from turnwheel.effects.events import Failure, ModelFailed, ToolFinished, UserSteered
from turnwheel.effects.messages import Outcome
from turnwheel.effects.notices import (
    AgentStarted,
    ApprovalRequested,
    HookAsked,
    InputReceived,
    RetryScheduled,
    RunEnded,
    ToolStarted,
)
from turnwheel.effects.requests import AskApproval
from turnwheel.effects.usage import Usage
from turnwheel.engine.journal.entries import HandedOver, TakenOver
from turnwheel.testing.clocks import ManualClock
from turnwheel.testing.scripted import Reply, calls, fails, says

BUYS = calls(("buy", {"amount": 2}))
DIGS_AND_BUYS = calls(("dig", {}), ("buy", {"amount": 2}))
DONE = says("done")
HIRES = calls(("run_agent", {"agent": "kid", "prompt": "go"}))

KID: dict[str, Any] = {"children": [ChildSpec(name="kid", tools=("dig", "buy", "send"))]}
PARALLEL = Policy(concurrency=Concurrency.PARALLEL)
READS = Policy(concurrency=Concurrency.PARALLEL_READS, max_parallel=2)


@pytest.fixture
def house(tape: Tape) -> House:
    return House(tape.kept)


async def handed_over(house: House, session: str = "s") -> list[int]:
    return [len(one.unbegun) for one in await house.entries(session) if isinstance(one, HandedOver)]


async def begun(
    house: House,
    *replies: Reply,
    at: type = ToolStarted,
    number: int = 1,
    wait: bool = False,
    **settings: Any,
) -> tuple[Session, Watch]:
    """A session of which a reader has seen so many notices of the kind *at*."""
    session = house.session(*replies, **settings)
    watch = Watch(session, wait=wait)
    await watch.until(at, number)
    return session, watch


@asynccontextmanager
async def draining(
    house: House, session: Session, watch: Watch, within: float | None = None
) -> AsyncGenerator[None]:
    """Meanwhile *session* drains, and *watch* reads; at the end, calls at work come to theirs."""
    leaving = asyncio.ensure_future(session.drain(within))
    await turns(5)
    assert not leaving.done()
    yield
    house.release()
    await leaving
    await watch.task
    assert await turns(20, lambda: not at_work())


async def drained(house: House, session: Session, watch: Watch, within: float | None = None) -> None:
    async with draining(house, session, watch, within):
        pass


async def resumed(house: House, *replies: Reply, **settings: Any) -> Session:
    session = await house.session(*replies, **settings).load()
    if session.unfinished or session.queue:
        await session.resume()
    return session


async def undisturbed(*replies: Reply) -> Session:
    house = House(Tape().kept)
    house.release()
    session = house.session(*replies)
    await session.run("go", id="go")
    return session


# Calls at work come to their end


async def test_a_tool_ends_and_the_next_one_is_for_the_process_that_takes_over(house: House) -> None:
    session, watch = await begun(house, DIGS_AND_BUYS)
    await drained(house, session, watch)
    assert (house.ran, session.unfinished) == (["dig"], True)
    assert await handed_over(house) == [1]
    later = await resumed(house, DONE)
    assert (house.ran, later.result().reason) == (["dig", "buy 2"], DoneReason.END_TURN)
    assert outcomes(later) == [Outcome.OK, Outcome.OK]
    whole = await undisturbed(DIGS_AND_BUYS, DONE)
    assert [message.text for message in later.history] == [message.text for message in whole.history]
    assert told(later) == told(whole)
    assert later.spent == whole.spent


async def test_an_answer_is_read_to_its_end_and_paid_for(house: House) -> None:
    house.held = {1}
    session = house.session(BUYS)
    watch = Watch(session)
    await turns(30)
    await drained(house, session, watch)
    assert (house.ran, session.spent.usage) == ([], Usage(input=10, output=5))
    later = await resumed(house, DONE)
    assert (house.ran, outcomes(later)) == (["buy 2"], [Outcome.OK])
    assert later.spent == (await undisturbed(BUYS, DONE)).spent


async def test_a_model_that_was_not_asked_yet_is_asked_and_not_paid_for_twice(house: House) -> None:
    session, watch = await begun(house, calls(("dig", {})))
    await drained(house, session, watch)
    (entry,) = [one for one in await house.entries() if isinstance(one, HandedOver)]
    assert session.machine is not None
    assert (entry.unbegun, session.machine.state.label) == (session.machine.state.open, "streaming")
    await house.session().steer("and be quick", id="steer")
    later = house.session(DONE)
    notices = [notice async for notice in later.stream()]
    assert not any(isinstance(notice, RetryScheduled) for notice in notices)
    assert [message.text for message in later.history][-2:] == ["and be quick", "done"]
    assert later.spent == (await undisturbed(calls(("dig", {})), DONE)).spent
    failed = [event.failure for event in await house.steps() if isinstance(event, ModelFailed)]
    assert failed == [Failure.UNBEGUN]


async def test_calls_side_by_side_come_to_their_end_and_no_other_begins(house: House) -> None:
    policy = Policy(concurrency=Concurrency.PARALLEL_READS, max_parallel=2)
    wishes = calls(("dig", {}), ("dig", {}), ("dig", {}), ("send", {}))
    session, watch = await begun(house, wishes, policy=policy, number=2)
    await drained(house, session, watch)
    assert house.ran == ["dig", "dig"]
    assert await handed_over(house) == [1]
    later = await resumed(house, DONE, policy=policy)
    assert house.ran == ["dig", "dig", "dig", "send"]
    assert outcomes(later) == [Outcome.OK] * 4


async def test_hooks_are_let_answer(house: House) -> None:
    @hook(Hook.PRE_TOOL_USE)
    async def slow(about: HookCall) -> HookAnswer | None:
        house.ran.append(f"hook {about.tool}")
        await house.gate.wait()
        return None

    session, watch = await begun(house, BUYS, hooks=[slow], at=HookAsked)
    await drained(house, session, watch)
    assert house.ran == ["hook buy"]
    await resumed(house, DONE, hooks=[slow])
    assert house.ran == ["hook buy", "buy 2"]


async def test_a_run_that_comes_to_its_end_is_over(house: House) -> None:
    house.held = {1}
    session = house.session(DONE)
    watch = Watch(session)
    await turns(30)
    await session.send("and then", id="next")
    await drained(house, session, watch)
    assert (session.unfinished, session.result().text) == (False, "done")
    assert await handed_over(house) == []
    later = await house.session(says("then")).load()
    assert [mail.text for mail in later.queue] == ["and then"]
    assert (await later.resume()).text == "then"


# No work


async def test_a_question_stays_open_and_is_not_waited_for(house: House) -> None:
    async def ask(_: AskApproval) -> None:
        house.ran.append("asked")
        await asyncio.Event().wait()

    session, watch = await begun(house, calls(("pay", {})), approver=ask, at=ApprovalRequested, wait=True)
    (question,) = session.waiting
    await session.drain()
    await watch.task
    assert await handed_over(house) == [0]
    later = await house.session(DONE).load()
    assert [one.id for one in later.waiting] == [question.id]
    await later.approve(question.id)
    await later.resume()
    assert house.ran == ["asked", "pay 1"]


async def test_no_approver_is_asked_any_more(house: House) -> None:
    """A question that comes up is for the process that takes over, with all the time it has."""
    asked: list[str] = []

    async def ask(question: AskApproval) -> Approve:
        asked.append(question.id)
        return Approve()

    policy = Policy(answer_within=60.0)
    session, watch = await begun(house, calls(("dig", {}), ("pay", {})), approver=ask, policy=policy)
    await drained(house, session, watch)
    assert asked == []
    later = await house.session(DONE, approver=ask, policy=policy).load()
    (question,) = later.waiting
    assert question.due == 160.0
    await later.resume()
    assert (asked, house.ran) == ([question.id], ["dig", "pay 1"])


async def test_a_wait_is_not_waited_for_and_goes_on_where_it_was(house: House) -> None:
    wall = ManualClock()
    late = fails(Failure.RATE_LIMIT, retry_after=60.0)
    session, watch = await begun(house, late, clock=wall, at=RetryScheduled)
    await session.drain()
    await watch.task
    assert await handed_over(house) == [0]
    wall.move(40.0)
    going = asyncio.ensure_future(house.session(DONE, clock=wall).resume())
    assert not await turns(50, going.done)
    wall.move(20.0)
    assert (await going).text == "done"


# Children


async def test_a_child_is_drained_with_its_parent(house: House) -> None:
    session, watch = await begun(house, HIRES, kid=[DIGS_AND_BUYS], **KID, at=AgentStarted)
    await turns(40)
    (link,) = session.children
    await drained(house, session, watch)
    assert house.ran == ["dig"]
    assert (await handed_over(house), await handed_over(house, link.session)) == ([0], [1])
    later = await resumed(house, DONE, kid=[says("bought it")], **KID)
    assert (house.ran, outcomes(later)) == (["dig", "buy 2"], [Outcome.OK])
    assert told(later) == ["bought it"]
    assert [one for one in await house.entries(link.session) if isinstance(one, HandedOver | TakenOver)][1:]


async def test_a_child_cannot_be_drained_by_itself(house: House) -> None:
    session, watch = await begun(house, HIRES, DONE, kid=[calls(("dig", {})), DONE], **KID, at=AgentStarted)
    with pytest.raises(ConfigError, match="is a child; resume"):
        await session.child(session.children[0].call).drain()
    house.release()
    await watch.task


# Past the time


async def test_a_call_that_takes_longer_may_have_run_and_the_others_have_not(house: House) -> None:
    wishes = calls(("send", {}), ("buy", {}), ("dig", {}))
    session, watch = await begun(house, wishes, policy=PARALLEL)
    await session.drain(within=0.01)
    await watch.task
    assert house.ran == ["send"]
    assert await handed_over(house) == [0]
    house.release()
    later = await resumed(house, DONE, policy=PARALLEL)
    assert outcomes(later) == [Outcome.UNKNOWN, Outcome.OK, Outcome.OK]
    assert house.ran == ["send", "buy 1", "dig"]


async def test_beside_a_call_that_is_left_another_may_have_ended(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call that waited for that one is begun for the first time by the process that takes over."""

    @tool(approval="never", resources=())
    async def send() -> str:
        house.ran.append("send")
        await asyncio.Event().wait()
        return "sent"

    @tool(approval="never", resources=("purse",))
    async def count() -> str:
        await house.gate.wait()
        return "counted"

    @tool(approval="never", resources=("purse",))
    async def buy() -> str:
        house.ran.append("buy")
        return "bought"

    settings: dict[str, Any] = {"tools": [send, count, buy], "policy": PARALLEL}
    session, watch = await begun(house, calls(("send", {}), ("count", {}), ("buy", {})), **settings, number=2)
    passed = 0.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: time.monotonic() + passed)
    leaving = asyncio.ensure_future(session.drain(within=PATIENCE))
    house.release()
    while not any(isinstance(event, ToolFinished) for event in await house.steps()):  # noqa: ASYNC110  # a journal
        await asyncio.sleep(0)
    passed = 2 * PATIENCE
    await leaving
    await watch.task
    assert (house.ran, await handed_over(house)) == (["send"], [1])
    later = await resumed(house, DONE, **settings)
    assert (house.ran, outcomes(later)) == (["send", "buy"], [Outcome.UNKNOWN, Outcome.OK, Outcome.OK])


async def test_a_child_that_takes_too_long_says_what_it_had_not_begun(house: House) -> None:
    kid = [calls(("send", {}), ("buy", {}))]
    session, watch = await begun(house, HIRES, kid=kid, **KID, at=AgentStarted)
    await turns(40)
    (link,) = session.children
    await session.drain(within=0.01)
    await watch.task
    assert (await handed_over(house), await handed_over(house, link.session)) == ([0], [0])
    house.release()
    later = await resumed(house, DONE, kid=[says("it may be sent")], **KID)
    assert (house.ran, outcomes(later)) == (["send", "buy 1"], [Outcome.OK])


def slowed(tape: Tape, what: bytes) -> Tape:
    """*tape*, which takes its time to keep an entry with *what* in it."""

    async def slow(_: str, entries: Sequence[bytes]) -> None:
        if any(what in data for data in entries):
            await asyncio.sleep(0.2)

    tape.meddlers.append(slow)
    return tape


async def test_an_event_that_is_being_kept_when_time_is_up_counts(
    tape: Tape, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeping, kept, passed = asyncio.Event(), asyncio.Event(), 0.0

    async def slow(_: str, entries: Sequence[bytes]) -> None:
        if any(b"ToolFinished" in data for data in entries):
            keeping.set()
            await kept.wait()

    tape.meddlers.append(slow)
    house = House(tape)
    session, watch = await begun(house, DIGS_AND_BUYS)
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: time.monotonic() + passed)
    leaving = asyncio.ensure_future(session.drain(within=PATIENCE))
    house.release()
    await keeping.wait()
    passed = 2 * PATIENCE
    await turns(20)
    kept.set()
    await leaving
    await watch.task
    assert (house.ran, await handed_over(house)) == (["dig"], [1])
    later = await resumed(house, DONE)
    assert (house.ran, outcomes(later)) == (["dig", "buy 2"], [Outcome.OK, Outcome.OK])


async def test_a_call_that_was_handed_over_once_may_have_run_after_a_crash(house: House) -> None:
    session, watch = await begun(house, calls(("dig", {}), ("send", {})))
    await drained(house, session, watch)
    house.gate.clear()
    going = Watch(house.session(), None)
    await turns(60)
    assert house.ran == ["dig", "send"]
    going.task.cancel()
    await asyncio.wait([going.task])
    house.release()
    later = await resumed(house, DONE)
    assert (house.ran, outcomes(later)) == (["dig", "send"], [Outcome.OK, Outcome.UNKNOWN])


# Inputs meanwhile


async def test_inputs_while_it_drains_are_kept(house: House) -> None:
    """A prompt, a steer and an answer: nothing of it is begun here, and each comes in once."""
    policy = Policy(concurrency=Concurrency.PARALLEL_READS)
    wishes = calls(("dig", {}), ("pay", {}))
    session, watch = await begun(house, wishes, policy=policy, at=ApprovalRequested)
    async with draining(house, session, watch):
        await session.send("later", id="prompt")
        await session.steer("gently", id="steer", how=Steering.WHEN_DONE)
        await watch.until(InputReceived)
        await session.approve(session.waiting[0].id)
    assert house.ran == ["dig"]
    assert sum(isinstance(event, UserSteered) for event in await house.steps()) == 1
    later = await resumed(house, DONE, says("later"), policy=policy)
    assert house.ran == ["dig", "pay 1"]
    texts = [message.text for message in later.history if message.text]
    assert texts == ["go", "gently", "done", "later", "later"]


@pytest.mark.parametrize("twice", [False, True])
async def test_an_interrupt_while_it_drains_ends_the_run(house: House, *, twice: bool) -> None:
    session, watch = await begun(house, calls(("send", {}), ("buy", {})))
    leaving = asyncio.ensure_future(session.drain())
    await turns(5)
    for _ in range(1 + twice):
        await session.interrupt()
    await leaving
    await watch.task
    later = await resumed(house)
    assert later.result().reason is DoneReason.INTERRUPTED
    assert house.ran == ["send"]
    assert outcomes(later)[1] is Outcome.CANCELLED


@pytest.mark.parametrize("how", ["interrupt", "cancel", "steer"])
async def test_a_call_that_is_given_up_before_a_process_takes_over_never_begins(tape: Tape, how: str) -> None:
    """Although it had been asked for: inputs are heard before a call is begun."""
    house = House(tape)
    session, watch = await begun(house, DIGS_AND_BUYS)
    await drained(house, session, watch)
    other = await house.session().load()
    batch = getattr(other.machine and other.machine.state, "batch", None)
    assert batch is not None
    if how == "interrupt":
        await other.interrupt()
    elif how == "cancel":
        await other.cancel(batch.calls[1].call.id)
    else:
        await other.steer("left", Steering.NOW, id="left")
    slowed(tape, b"Stepped")
    later = await resumed(house, DONE)
    assert house.ran == ["dig"]
    assert outcomes(later) == [Outcome.OK, Outcome.CANCELLED]


async def test_an_interrupt_between_the_end_and_the_handing_over_is_kept() -> None:
    for moment in range(40):
        house = House(Tape().kept)
        session, watch = await begun(house, DIGS_AND_BUYS)
        leaving = asyncio.ensure_future(session.drain())
        await turns(2)
        house.release()
        await turns(moment)
        try:
            await asyncio.ensure_future(session.interrupt())
        except SessionClosed:
            await house.session().interrupt()
        await leaving
        await watch.task
        later = await resumed(house, DONE)
        assert later.result().reason is DoneReason.INTERRUPTED, moment
        assert house.ran == ["dig"], moment


async def test_limits_hold_for_the_turn_that_was_not_begun(house: House) -> None:
    session, watch = await begun(house, calls(("dig", {})))
    await drained(house, session, watch)
    later = await resumed(house, limits=Limits(turns=1))
    assert later.result().reason is DoneReason.MAX_TURNS


# Others there


async def test_a_process_that_was_overtaken_hands_nothing_over(house: House) -> None:
    session, watch = await begun(house, DIGS_AND_BUYS)
    leaving = asyncio.ensure_future(session.drain())
    await turns(5)
    going = asyncio.ensure_future(house.session(DONE).resume(takeover=True))
    await turns(30)
    house.release()
    await going
    await leaving
    with pytest.raises(StoreConflict):
        await watch.task
    assert await handed_over(house) == []
    assert house.ran == ["dig", "dig", "buy 2"]


async def test_a_store_that_fails_then_is_as_a_crash(tape: Tape) -> None:
    """The caller hears of it, and the call that was not begun may have been, for all that is known."""

    async def fail(_: str, entries: Sequence[bytes]) -> None:
        if any(b"HandedOver" in data for data in entries):
            msg = "full"
            raise StoreError(msg)

    house = House(tape)
    tape.meddlers.append(fail)
    session, watch = await begun(house, DIGS_AND_BUYS)
    leaving = asyncio.ensure_future(session.drain())
    await turns(5)
    house.release()
    await leaving
    with pytest.raises(StoreError, match="full"):
        await watch.task
    later = await resumed(house, DONE)
    assert outcomes(later) == [Outcome.OK, Outcome.UNKNOWN]
    assert house.ran == ["dig"]


# The ways in


async def test_a_prompt_that_had_not_come_in_waits() -> None:
    """At every moment: its caller hears of it, and it is answered when the session goes on."""
    refused = 0
    for moment in range(60):
        house = House(Tape().kept)
        await house.session().send("before", id="before")
        session = house.session(says("one"), says("two"))
        running = asyncio.ensure_future(session.run("mine", id="mine"))
        await turns(moment)
        await session.drain()
        later = await house.session(says("three"), says("four")).load()
        waits = "mine" in [mail.id for mail in later.queue] or later.machine is None
        try:
            result = await running
        except SessionClosed:
            refused += 1
            assert waits
            assert later.queue
        else:
            assert not waits
            assert result.reason is (None if later.unfinished else DoneReason.END_TURN)
            assert result.waiting == ()
        if later.unfinished or later.queue:
            await later.resume()
        assert not later.queue
    assert 0 < refused < 60


@pytest.mark.parametrize("left", [False, True], ids=["opened", "taken over"])
async def test_a_run_that_is_being_opened_begins_nothing(tape: Tape, *, left: bool) -> None:
    house = House(tape)
    if left:
        here, watch = await begun(house, calls(("dig", {})))
        await here.close()
        await watch.task
    session, leaving = house.session(says("hi")), list[asyncio.Future[None]]()

    async def drain(*_: object) -> None:
        if not leaving:
            leaving.append(asyncio.ensure_future(session.drain()))
            await turns(20)

    tape.meddlers.append(drain)
    await Watch(session, None if left else "go").task
    await leaving[0]
    assert (house.models[-1].requests, await handed_over(house)) == ([], [1])
    house.release()
    assert (await resumed(house, says("hi"))).history[-1].text == "hi"


async def test_a_drained_session_is_closed(house: House) -> None:
    session = house.session(DONE)
    await session.drain()
    await session.drain()
    await session.close()
    for use in (lambda: session.run("go"), session.resume, lambda: session.send("go")):
        with pytest.raises(SessionClosed):
            await use()


async def test_draining_again_hurries(house: House) -> None:
    session, watch = await begun(house, calls(("send", {})))
    patient = asyncio.ensure_future(session.drain())
    await turns(5)
    await session.drain(within=0)
    await patient
    await watch.task
    assert outcomes(await resumed(house, DONE)) == [Outcome.UNKNOWN]


async def test_an_agent_drains_all_its_sessions(house: House) -> None:
    agent, other = house.agent(DIGS_AND_BUYS, DIGS_AND_BUYS), house.agent(calls(("dig", {})), DONE)
    names = ("a", "b")
    running = [asyncio.ensure_future(agent.session(name).run("go")) for name in names]
    apart = asyncio.ensure_future(other.session("c").run("go"))
    await turns(60)
    leaving = asyncio.ensure_future(agent.drain())
    await turns(5)
    assert not leaving.done()
    house.release()
    await leaving
    assert [(await each).reason for each in running] == [None, None]
    assert (await apart).text == "done"
    assert house.ran == ["dig"] * 3
    later = house.agent(DONE, DONE)
    assert [(await later.session(name).resume()).text for name in names] == ["done", "done"]
    await agent.drain()  # there is nothing left


async def test_a_handle_drains_without_a_reader(house: House) -> None:
    house.held = {1}
    text = " ".join(["word"] * 300)
    session = house.session(says(text))
    handle = session.start("go")
    await turns(400)
    leaving = asyncio.ensure_future(session.drain())
    await turns(5)
    house.release()
    async with asyncio.timeout(PATIENCE):
        await leaving
    assert (await handle.wait()).text == text
    assert [type(notice) async for notice in handle][-1] is RunEnded


async def test_a_reader_of_a_stream_that_is_too_slow_is_not_waited_for(house: House) -> None:
    session = house.session(DIGS_AND_BUYS)
    async with aclosing(session.stream("go")) as notices:
        async for notice in notices:
            if isinstance(notice, ToolStarted):
                break
        async with asyncio.timeout(PATIENCE):
            await session.drain(within=0.01)
    house.release()
    await resumed(house, DONE)
    assert house.ran[-1] == "buy 2"


async def test_a_singleton_is_drained_through_its_session(house: House) -> None:
    async with Singleton(house.session(calls(("dig", {})))) as first:
        await first.post("go")
        await turns(60)
        await first.post("more")
        leaving = asyncio.ensure_future(first.session.drain())
        await turns(5)
        house.release()
        await leaving
        with pytest.raises(SessionClosed):
            await first.post("too late")
    async with Singleton(house.session(says("one"), says("two"))) as second:
        await second.idle()
        assert [message.text for message in second.session.history][-1] == "two"


async def test_a_session_without_a_store_can_be_drained(house: House) -> None:
    session, watch = await begun(house, DIGS_AND_BUYS, store=None)
    await drained(house, session, watch)
    assert house.ran == ["dig"]
