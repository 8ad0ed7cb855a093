"""Leaving politely: what is at work comes to its end, nothing new begins, and somebody else goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing, suppress
from typing import Any

import pytest
from provers.tasks import at_work, turns

from turnwheel import (
    Agent,
    Approve,
    ChildSpec,
    Concurrency,
    DoneReason,
    Hook,
    HookAnswer,
    HookCall,
    Limits,
    MemoryStore,
    Policy,
    Session,
    Singleton,
    Steering,
    hook,
    tool,
)
from turnwheel.effects.errors import (
    ConfigError,
    SessionClosed,
    StoreConflict,
    StoreError,
)
from turnwheel.effects.events import (
    Failure,
    ModelFailed,
    ModelFinished,
    UserSteered,
)
from turnwheel.effects.messages import Outcome, ToolResult
from turnwheel.effects.notices import (
    AgentStarted,
    ApprovalRequested,
    HookAsked,
    InputReceived,
    Notice,
    RetryScheduled,
    TextDelta,
    ToolStarted,
)
from turnwheel.effects.requests import AskApproval, CallModel
from turnwheel.effects.usage import Usage
from turnwheel.engine.journal.encoding import decode_entry
from turnwheel.engine.journal.entries import (
    Entry,
    HandedOver,
    Stepped,
    TakenOver,
)
from turnwheel.performers.base import PerformContext
from turnwheel.testing.clocks import AutoClock, ManualClock
from turnwheel.testing.scripted import (
    Reply,
    ScriptedModel,
    calls,
    fails,
    says,
)

PAYS = calls(("pay", {"amount": 2}))
DIGS_AND_PAYS = calls(("dig", {}), ("pay", {"amount": 2}))
DONE = says("done")
HIRES = calls(("run_agent", {"agent": "kid", "prompt": "go"}))


class House:
    """
    A store, and what was done by all who worked over it. `dig`, `send` and *slow* answers wait for `release`.
    """

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.clock = AutoClock(100.0)
        self.ran: list[str] = []
        self.gate = asyncio.Event()
        self.slow = False

    def release(self) -> None:
        """Let whatever waits go on, from now on."""
        self.gate.set()

    def agent(self, *replies: Reply, kid: Sequence[Reply] = (), **settings: Any) -> Agent:
        """An agent as one more process has it: its model says *replies*, its child's what a *kid* says."""

        @tool(side_effect="read_only")
        async def dig() -> str:
            """Take long."""
            self.ran.append("dig")
            await self.gate.wait()
            return "found"

        @tool(approval="never")
        async def pay(amount: int = 1) -> str:
            """Pay."""
            self.ran.append(f"pay {amount}")
            return "paid"

        @tool(approval="never")
        async def send() -> str:
            """Send, which takes long."""
            self.ran.append("send")
            await self.gate.wait()
            return "sent"

        @tool
        async def sign() -> str:
            """Sign."""
            self.ran.append("sign")
            return "signed"

        models = {"": ScriptedModel(*replies), "kid": ScriptedModel(*kid)}

        async def answer(request: CallModel, scene: PerformContext) -> ModelFinished | ModelFailed:
            answered = await models[scene.config.agent](request, scene)
            if self.slow:
                await self.gate.wait()
            return answered

        given: dict[str, Any] = {
            "model": "one",
            "tools": [dig, pay, send, sign],
            "store": self.store,
            "clock": self.clock,
            "performers": {CallModel: answer},
        }
        return Agent(**{**given, **settings})

    def process(self, *replies: Reply, **settings: Any) -> Session:
        """The session ``s`` in one more process."""
        return self.agent(*replies, **settings).session("s")

    async def entries(self, session: str = "s") -> list[Entry]:
        """The journal of *session*."""
        return [decode_entry(data) for data in await self.store.load(session)]

    async def handed_over(self, session: str = "s") -> list[int]:
        """How many requests nobody had begun, each time *session* was handed over."""
        found = [one for one in await self.entries(session) if isinstance(one, HandedOver)]
        return [len(one.unbegun) for one in found]


class Slow:
    """*store*, which takes its time to keep an entry that says *what*."""

    def __init__(self, store: MemoryStore, what: bytes = b"") -> None:
        self._store = store
        self._what = what

    def __getattr__(self, name: str) -> Any:
        """Whatever else a store has."""
        return getattr(self._store, name)

    async def append(
        self, session: str, expected: int, entries: Sequence[bytes], about: bytes | None = None
    ) -> int:
        """Keep *entries*, later."""
        if any(self._what in data for data in entries):
            await asyncio.sleep(0.2)
        return await self._store.append(session, expected, entries, about)


class Watch:
    """Drives *session* in the background and keeps what it says."""

    def __init__(self, session: Session, prompt: str | None = "go", *, wait: bool = False) -> None:
        self.notices: list[Notice] = []
        self.task = asyncio.ensure_future(self._watch(session, prompt, wait=wait))

    async def _watch(self, session: Session, prompt: str | None, *, wait: bool) -> None:
        async with aclosing(session.stream(prompt, id=prompt, wait=wait)) as notices:
            async for notice in notices:
                self.notices.append(notice)

    async def until(self, kind: type, count: int = 1) -> None:
        """Wait for so many notices of *kind*."""
        async with asyncio.timeout(10):
            while sum(isinstance(notice, kind) for notice in self.notices) < count:  # noqa: ASYNC110  # turns
                await asyncio.sleep(0)


@pytest.fixture
def house() -> House:
    """A new one."""
    return House()


def results(session: Session) -> list[ToolResult]:
    """All tool results of *session*, in order."""
    return [result for message in session.history for result in message.results]


def outcomes(session: Session) -> list[Outcome]:
    """How the calls of *session* ended."""
    return [result.outcome for result in results(session)]


async def drained(house: House, session: Session, watch: Watch, within: float | None = None) -> None:
    """*session* drains while *watch* reads; what is at work is let come to its end meanwhile."""
    leaving = asyncio.ensure_future(session.drain(within))
    await turns(5)
    assert not leaving.done()
    house.release()
    await leaving
    await watch.task
    assert await turns(20, lambda: not at_work())


async def undisturbed(*replies: Reply, **settings: Any) -> Session:
    """The same session where nobody leaves."""
    house = House()
    house.release()
    session = house.process(*replies, **settings)
    await session.run("go", id="go")
    return session


# What is at work comes to its end


async def test_a_tool_ends_and_the_next_one_is_for_whoever_takes_over(house: House) -> None:
    """It was never begun, so it runs, and nobody need be told that it may have."""
    session = house.process(DIGS_AND_PAYS)
    watch = Watch(session)
    await watch.until(ToolStarted)
    await drained(house, session, watch)
    assert house.ran == ["dig"]
    assert session.unfinished
    assert await house.handed_over() == [1]
    later = house.process(DONE)
    result = await later.resume()
    assert (house.ran, result.reason) == (["dig", "pay 2"], DoneReason.END_TURN)
    assert outcomes(later) == [Outcome.OK, Outcome.OK]
    whole = await undisturbed(DIGS_AND_PAYS, DONE)
    assert [message.text for message in later.history] == [message.text for message in whole.history]
    assert [one.content for one in results(later)] == [one.content for one in results(whole)]
    assert later.spent == whole.spent


async def test_an_answer_is_read_to_its_end_and_paid_for(house: House) -> None:
    """What it wants done is for whoever takes over."""
    house.slow = True
    session = house.process(PAYS)
    watch = Watch(session)
    await turns(30)
    await drained(house, session, watch)
    assert (house.ran, session.spent.usage) == ([], Usage(input=10, output=5))
    later = house.process(DONE)
    await later.resume()
    assert (house.ran, outcomes(later)) == (["pay 2"], [Outcome.OK])
    assert later.spent == (await undisturbed(PAYS, DONE)).spent


async def test_a_model_that_nobody_had_asked_yet_is_asked_and_not_paid_for_twice(house: House) -> None:
    """Of the next turn nothing was begun; it is asked anew, also of what was said meanwhile."""
    session = house.process(calls(("dig", {})))
    watch = Watch(session)
    await watch.until(ToolStarted)
    await drained(house, session, watch)
    (entry,) = [one for one in await house.entries() if isinstance(one, HandedOver)]
    assert session.machine is not None
    assert (entry.unbegun, session.machine.state.label) == (session.machine.state.open, "streaming")
    other = house.process()
    await other.steer("and be quick", id="steer")
    later = house.process(DONE)
    notices = [notice async for notice in later.stream()]
    assert not any(isinstance(notice, RetryScheduled) for notice in notices)
    assert [message.text for message in later.history][-2:] == ["and be quick", "done"]
    assert later.spent == (await undisturbed(calls(("dig", {})), DONE)).spent
    failed = [one.event for one in await house.entries() if isinstance(one, Stepped)]
    assert [one.failure for one in failed if isinstance(one, ModelFailed)] == [Failure.UNBEGUN]


async def test_all_that_is_at_work_side_by_side_comes_to_its_end(house: House) -> None:
    """And what waits for a place does not begin."""
    policy = Policy(concurrency=Concurrency.PARALLEL_READS, max_parallel=2)
    session = house.process(calls(("dig", {}), ("dig", {}), ("dig", {}), ("send", {})), policy=policy)
    watch = Watch(session)
    await watch.until(ToolStarted, 2)
    await drained(house, session, watch)
    assert house.ran == ["dig", "dig"]
    assert await house.handed_over() == [1]
    later = house.process(DONE, policy=policy)
    await later.resume()
    assert house.ran == ["dig", "dig", "dig", "send"]
    assert outcomes(later) == [Outcome.OK] * 4


async def test_hooks_are_let_answer(house: House) -> None:
    """They have been asked; what they allowed begins elsewhere."""

    @hook(Hook.PRE_TOOL_USE)
    async def slow(about: HookCall) -> HookAnswer | None:
        """Take long."""
        house.ran.append(f"hook {about.tool}")
        await house.gate.wait()
        return None

    session = house.process(PAYS, hooks=[slow])
    watch = Watch(session)
    await watch.until(HookAsked)
    await drained(house, session, watch)
    assert house.ran == ["hook pay"]
    later = house.process(DONE, hooks=[slow])
    await later.resume()
    assert house.ran == ["hook pay", "pay 2"]


async def test_a_run_that_comes_to_its_end_is_over(house: House) -> None:
    """There is nothing to hand over then; prompts that wait stay so."""
    house.slow = True
    session = house.process(DONE)
    watch = Watch(session)
    await turns(30)
    await session.send("and then", id="next")
    await drained(house, session, watch)
    assert (session.unfinished, session.result().text) == (False, "done")
    assert await house.handed_over() == []
    later = house.process(says("then"))
    await later.load()
    assert [mail.text for mail in later.queue] == ["and then"]
    assert (await later.resume()).text == "then"


# What is no work


async def test_a_question_stays_open_and_is_not_waited_for(house: House) -> None:
    """Nor is whoever is asking somebody; its id is the same in the next process."""

    async def ask(_: AskApproval) -> None:
        house.ran.append("asked")
        await asyncio.Event().wait()

    session = house.process(calls(("sign", {})), approver=ask)
    watch = Watch(session, wait=True)
    await watch.until(ApprovalRequested)
    (question,) = session.waiting
    await session.drain()
    await watch.task
    assert await house.handed_over() == [0]
    later = house.process(DONE)
    await later.load()
    assert [one.id for one in later.waiting] == [question.id]
    await later.approve(question.id)
    await later.resume()
    assert house.ran == ["asked", "sign"]


async def test_nobody_is_asked_any_more(house: House) -> None:
    """A question that comes up is for whoever takes over, with all the time it has."""
    asked: list[str] = []

    async def ask(question: AskApproval) -> Approve:
        asked.append(question.id)
        return Approve()

    policy = Policy(answer_within=60.0)
    session = house.process(calls(("dig", {}), ("sign", {})), approver=ask, policy=policy)
    watch = Watch(session)
    await watch.until(ToolStarted)
    await drained(house, session, watch)
    assert asked == []
    later = house.process(DONE, approver=ask, policy=policy)
    await later.load()
    (question,) = later.waiting
    assert question.due == 160.0
    await later.resume()
    assert (asked, house.ran) == ([question.id], ["dig", "sign"])


async def test_a_wait_is_not_waited_for_and_goes_on_where_it_was(house: House) -> None:
    """Its time is a point in time; nobody waits longer because of a deploy."""
    wall = ManualClock()
    session = house.process(fails(Failure.RATE_LIMIT, retry_after=60.0), clock=wall)
    watch = Watch(session)
    await watch.until(RetryScheduled)
    await session.drain()
    await watch.task
    assert await house.handed_over() == [0]
    wall.move(40.0)
    later = house.process(DONE, clock=wall)
    going = asyncio.ensure_future(later.resume())
    assert not await turns(50, going.done)
    wall.move(20.0)
    assert (await going).text == "done"


# Children


async def test_a_child_is_drained_with_its_parent(house: House) -> None:
    """It goes on where it was, what it had not begun for the first time."""
    kids: dict[str, Any] = {"children": [ChildSpec(name="kid", tools=("dig", "pay"))]}
    session = house.process(
        calls(("run_agent", {"agent": "kid", "prompt": "go"})), kid=[DIGS_AND_PAYS], **kids
    )
    watch = Watch(session)
    await watch.until(AgentStarted)
    await turns(40)
    (link,) = session.children
    await drained(house, session, watch)
    assert house.ran == ["dig"]
    assert (await house.handed_over(), await house.handed_over(link.session)) == ([0], [1])
    later = house.process(DONE, kid=[says("paid it")], **kids)
    await later.resume()
    assert (house.ran, outcomes(later)) == (["dig", "pay 2"], [Outcome.OK])
    assert [result.content for result in results(later)] == ["paid it"]
    assert [one for one in await house.entries(link.session) if isinstance(one, HandedOver | TakenOver)][1:]


@pytest.mark.parametrize("moment", range(60))
async def test_a_child_is_drained_at_every_moment(house: House, moment: int) -> None:
    """Before it is opened, while it works, and when it is over: nothing is lost, nothing runs twice."""
    house.release()

    async def answer(request: CallModel, scene: PerformContext) -> ModelFinished | ModelFailed:
        """What is said follows from what was said before."""
        answered = any(message.results for message in scene.history.slice(0, request.view.length))
        first, last = (PAYS, says("paid it")) if scene.config.agent else (HIRES, DONE)
        return await ScriptedModel(last if answered else first)(request, scene)

    settings: dict[str, Any] = {
        "children": [ChildSpec(name="kid", tools=("pay",))],
        "performers": {CallModel: answer},
    }
    session = house.process(**settings)
    watch = Watch(session)
    await turns(moment)
    await session.drain()
    with suppress(SessionClosed):  # it was let go of before it was used
        await watch.task
    assert await turns(20, lambda: not at_work())
    later = await house.process(**settings).load()
    if later.machine is None and not later.queue:
        await later.send("go", id="go")
    if later.unfinished or later.queue:
        await later.resume()
    assert (house.ran, outcomes(later)) == (["pay 2"], [Outcome.OK])
    assert [result.content for result in results(later)] == ["paid it"]


# What takes too long


async def test_what_takes_longer_is_left(house: House) -> None:
    """That may have run; what had not begun had not."""
    policy = Policy(concurrency=Concurrency.PARALLEL)
    session = house.process(calls(("send", {}), ("pay", {}), ("dig", {})), policy=policy)
    watch = Watch(session)
    await watch.until(ToolStarted)
    await session.drain(within=0.01)
    await watch.task
    assert house.ran == ["send"]
    assert await house.handed_over() == [0]
    house.release()
    later = house.process(DONE, policy=policy)
    await later.resume()
    assert outcomes(later) == [Outcome.UNKNOWN, Outcome.OK, Outcome.OK]
    assert house.ran == ["send", "pay 1", "dig"]


async def test_beside_what_is_left_something_may_have_ended(house: House) -> None:
    """What follows from that is begun for the first time by whoever takes over."""

    @tool(approval="never", resources=())
    async def send() -> str:
        """Send, which takes for ever."""
        house.ran.append("send")
        await asyncio.Event().wait()
        return "sent"

    @tool(approval="never", resources=("purse",))
    async def count() -> str:
        """Count."""
        await house.gate.wait()
        return "counted"

    @tool(approval="never", resources=("purse",))
    async def pay() -> str:
        """Pay."""
        house.ran.append("pay")
        return "paid"

    settings: dict[str, Any] = {
        "tools": [send, count, pay],
        "policy": Policy(concurrency=Concurrency.PARALLEL),
    }
    session = house.process(calls(("send", {}), ("count", {}), ("pay", {})), **settings)
    watch = Watch(session)
    await watch.until(ToolStarted, 2)
    leaving = asyncio.ensure_future(session.drain(within=0.05))
    await turns(5)
    house.release()
    await leaving
    await watch.task
    assert (house.ran, await house.handed_over()) == (["send"], [1])
    later = house.process(DONE, **settings)
    await later.resume()
    assert (house.ran, outcomes(later)) == (["send", "pay"], [Outcome.UNKNOWN, Outcome.OK, Outcome.OK])


async def test_a_child_that_takes_too_long_says_what_it_had_not_begun(house: House) -> None:
    """It is left, and its parent with it."""
    kids: dict[str, Any] = {"children": [ChildSpec(name="kid", tools=("dig", "send"))]}
    session = house.process(HIRES, kid=[calls(("send", {}), ("pay", {}))], **kids)
    watch = Watch(session)
    await watch.until(AgentStarted)
    await turns(40)
    (link,) = session.children
    await session.drain(within=0.01)
    await watch.task
    assert (await house.handed_over(), await house.handed_over(link.session)) == ([0], [0])
    house.release()
    later = house.process(DONE, kid=[says("it may be sent")], **kids)
    await later.resume()
    assert (house.ran, outcomes(later)) == (["send"], [Outcome.OK])


async def test_an_event_that_is_being_kept_when_time_is_up_counts(house: House) -> None:
    """What follows from it is not begun, and is said not to be."""
    session = house.process(DIGS_AND_PAYS, store=Slow(house.store, b"ToolFinished"))
    watch = Watch(session)
    await watch.until(ToolStarted)
    leaving = asyncio.ensure_future(session.drain(within=0.05))
    house.release()
    await leaving
    await watch.task
    assert (house.ran, await house.handed_over()) == (["dig"], [1])
    later = house.process(DONE)
    await later.resume()
    assert (house.ran, outcomes(later)) == (["dig", "pay 2"], [Outcome.OK, Outcome.OK])


async def test_what_was_handed_over_once_may_have_run_after_a_crash(house: House) -> None:
    """Whoever has taken a run over may have begun it; only then is that a thing of the past."""
    session = house.process(calls(("dig", {}), ("send", {})))
    watch = Watch(session)
    await watch.until(ToolStarted)
    await drained(house, session, watch)
    house.gate.clear()
    lost = house.process()
    going = Watch(lost, None)
    await turns(60)
    assert house.ran == ["dig", "send"]
    going.task.cancel()
    await asyncio.wait([going.task])
    house.release()
    later = house.process(DONE)
    await later.resume()
    assert (house.ran, outcomes(later)) == (["dig", "send"], [Outcome.OK, Outcome.UNKNOWN])


# What is said meanwhile


async def test_what_is_said_while_it_drains_is_kept(house: House) -> None:
    """A prompt, a steer and an answer: nothing of it is begun here."""
    policy = Policy(concurrency=Concurrency.PARALLEL_READS)
    session = house.process(calls(("dig", {}), ("sign", {})), policy=policy)
    watch = Watch(session)
    await watch.until(ApprovalRequested)
    leaving = asyncio.ensure_future(session.drain())
    await turns(5)
    await session.send("later", id="prompt")
    await session.steer("gently", id="steer", how=Steering.WHEN_DONE)
    (question,) = session.waiting
    await session.approve(question.id)
    house.release()
    await leaving
    await watch.task
    assert house.ran == ["dig"]
    later = house.process(DONE, says("later"), policy=policy)
    await later.resume()
    assert house.ran == ["dig", "sign"]
    assert [message.text for message in later.history if message.text] == [
        "go",
        "gently",
        "done",
        "later",
        "later",
    ]


@pytest.mark.parametrize("twice", [False, True])
async def test_an_interrupt_while_it_drains_ends_the_run(house: House, *, twice: bool) -> None:
    """What is at work is told to stop, as ever; the run is over, or whoever takes over is told."""
    session = house.process(calls(("send", {}), ("pay", {})))
    watch = Watch(session)
    await watch.until(ToolStarted)
    leaving = asyncio.ensure_future(session.drain())
    await turns(5)
    for _ in range(1 + twice):
        await session.interrupt()
    await leaving
    await watch.task
    later = house.process()
    await later.load()
    if later.unfinished:
        await later.resume()
    assert later.result().reason is DoneReason.INTERRUPTED
    assert house.ran == ["send"]
    assert outcomes(later)[1] is Outcome.CANCELLED


@pytest.mark.parametrize("how", ["interrupt", "cancel", "steer"])
async def test_what_is_given_up_before_anybody_takes_over_never_begins(house: House, how: str) -> None:
    """Although it had been asked for: what was said is heard before anything is begun."""
    session = house.process(DIGS_AND_PAYS)
    watch = Watch(session)
    await watch.until(ToolStarted)
    await drained(house, session, watch)
    other = house.process()
    await other.load()
    assert other.machine is not None
    call = getattr(other.machine.state, "batch", None)
    assert call is not None
    if how == "interrupt":
        await other.interrupt()
    elif how == "cancel":
        await other.cancel(call.calls[1].call.id)
    else:
        await other.steer("left", Steering.NOW, id="left")
    later = house.process(DONE, store=Slow(house.store, b"Stepped"))
    await later.resume()
    assert house.ran == ["dig"]
    assert outcomes(later) == [Outcome.OK, Outcome.CANCELLED]


async def test_an_interrupt_between_the_end_and_the_handing_over_is_kept(house: House) -> None:
    """At every moment: whoever takes over is told."""
    for moment in range(40):
        house = House()
        session = house.process(DIGS_AND_PAYS)
        watch = Watch(session)
        await watch.until(ToolStarted)
        leaving = asyncio.ensure_future(session.drain())
        await turns(2)
        house.release()
        await turns(moment)
        said = asyncio.ensure_future(session.interrupt())
        try:
            await said
        except SessionClosed:
            await house.process().interrupt()
        await leaving
        await watch.task
        later = house.process(DONE)
        await later.load()
        if later.unfinished:
            await later.resume()
        assert later.result().reason is DoneReason.INTERRUPTED
        assert house.ran == ["dig"]


# Who else is there


async def test_whoever_was_overtaken_hands_nothing_over(house: House) -> None:
    """Another process went on meanwhile: this one is told, as with anything that it would write."""
    session = house.process(DIGS_AND_PAYS)
    watch = Watch(session)
    await watch.until(ToolStarted)
    leaving = asyncio.ensure_future(session.drain())
    await turns(5)
    other = house.process(DONE)
    going = asyncio.ensure_future(other.resume())
    await turns(30)
    house.release()
    await going
    await leaving
    with pytest.raises(StoreConflict):
        await watch.task
    assert await house.handed_over() == []
    assert house.ran == ["dig", "dig", "pay 2"]


async def test_a_store_that_fails_then_is_as_a_crash(house: House) -> None:
    """It is told, and what was not begun may have been, for all that is known."""

    class Failing:
        """A store that keeps no `HandedOver`."""

        def __getattr__(self, name: str) -> Any:  # whatever a store has
            return getattr(house.store, name)

        async def append(
            self, session: str, expected: int, entries: Sequence[bytes], about: bytes | None = None
        ) -> int:
            if any(isinstance(decode_entry(data), HandedOver) for data in entries):
                msg = "full"
                raise StoreError(msg)
            return await house.store.append(session, expected, entries, about)

    session = house.process(DIGS_AND_PAYS, store=Failing())
    watch = Watch(session)
    await watch.until(ToolStarted)
    leaving = asyncio.ensure_future(session.drain())
    await turns(5)
    house.release()
    await leaving
    with pytest.raises(StoreError, match="full"):
        await watch.task
    later = house.process(DONE)
    await later.resume()
    assert outcomes(later) == [Outcome.OK, Outcome.UNKNOWN]
    assert house.ran == ["dig"]


# The ways in


async def test_a_result_says_how_far_it_has_come(house: House) -> None:
    """A run that was drained has no reason to have ended."""
    session = house.process(DIGS_AND_PAYS)
    running = asyncio.ensure_future(session.run("go"))
    await turns(30)
    leaving = asyncio.ensure_future(session.drain())
    await turns(5)
    house.release()
    await leaving
    result = await running
    assert (result.reason, result.waiting) == (None, ())


async def test_a_prompt_that_had_not_come_in_waits() -> None:
    """At every moment: whoever waits for its answer is told, and it is answered when the session goes on."""
    told = 0
    for moment in range(60):
        house = House()
        await house.process().send("before", id="before")
        session = house.process(says("one"), says("two"))
        running = asyncio.ensure_future(session.run("mine", id="mine"))
        await turns(moment)
        await session.drain()
        later = await house.process(says("three"), says("four")).load()
        waits = "mine" in [mail.id for mail in later.queue] or later.machine is None
        try:
            result = await running
        except SessionClosed:
            told += 1
            assert waits
            assert later.queue
        else:
            assert not waits
            assert result.reason is (None if later.unfinished else DoneReason.END_TURN)
        if later.unfinished or later.queue:
            await later.resume()
        assert not later.queue
    assert 0 < told < 60


async def test_drained_is_let_go_of(house: House) -> None:
    """Nothing is begun through it any more; what waits goes on when it is opened again."""
    session = house.process(DONE)
    await session.drain()
    await session.drain()
    await session.close()
    for use in (lambda: session.run("go"), session.resume, lambda: session.send("go")):
        with pytest.raises(SessionClosed):
            await use()


async def test_a_child_cannot_be_drained_by_itself(house: House) -> None:
    """It is its parent's."""
    kids: dict[str, Any] = {"children": [ChildSpec(name="kid", tools=("dig",))]}
    session = house.process(HIRES, DONE, kid=[calls(("dig", {})), DONE], **kids)
    watch = Watch(session)
    await watch.until(AgentStarted)
    with pytest.raises(ConfigError, match="is a child; resume"):
        await session.child(session.children[0].call).drain()
    house.release()
    await watch.task


async def test_draining_again_hurries(house: House) -> None:
    """Whoever cannot wait any longer says so; both are over then."""
    session = house.process(calls(("send", {})))
    watch = Watch(session)
    await watch.until(ToolStarted)
    patient = asyncio.ensure_future(session.drain())
    await turns(5)
    await session.drain(within=0)
    await patient
    await watch.task
    later = house.process(DONE)
    await later.resume()
    assert outcomes(later) == [Outcome.UNKNOWN]


async def test_an_agent_drains_all_its_sessions(house: House) -> None:
    """At once, in whichever way they run; those of another agent go on."""
    agent, other = house.agent(DIGS_AND_PAYS, DIGS_AND_PAYS), house.agent(calls(("dig", {})), DONE)
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
    """However much there is to be read; it can be read afterwards."""
    house.slow = True
    text = " ".join(["word"] * 300)
    session = house.process(says(text))
    handle = session.start("go")
    await turns(400)
    leaving = asyncio.ensure_future(handle.drain())
    await turns(5)
    house.release()
    async with asyncio.timeout(10):
        await leaving
    read = "".join([notice.text async for notice in handle if isinstance(notice, TextDelta)])
    assert read == text
    assert (await handle.wait()).text == text


async def test_whoever_reads_a_stream_too_slowly_is_not_waited_for(house: House) -> None:
    """Past the time that it may take, the session is let go of all the same."""
    session = house.process(DIGS_AND_PAYS)
    async with aclosing(session.stream("go")) as notices:
        async for notice in notices:
            if isinstance(notice, ToolStarted):
                break
        async with asyncio.timeout(10):
            await session.drain(within=0.01)
    later = house.process(DONE)
    house.release()
    await later.resume()
    assert house.ran[-1] == "pay 2"


async def test_a_singleton_is_drained_through_its_session(house: House) -> None:
    """It takes up nothing any more; what waits is for the next one."""
    async with Singleton(house.process(calls(("dig", {})))) as one:
        await one.post("go")
        await turns(60)
        await one.post("more")
        leaving = asyncio.ensure_future(one.session.drain())
        await turns(5)
        house.release()
        await leaving
        with pytest.raises(SessionClosed):
            await one.post("too late")
    async with Singleton(house.process(says("one"), says("two"))) as two:
        await two.idle()
        assert [message.text for message in two.session.history][-1] == "two"


async def test_a_session_that_nobody_keeps_can_be_drained(house: House) -> None:
    """Nobody can go on with it; that its work came to its end is all there is to it."""
    session = house.process(DIGS_AND_PAYS, store=None)
    watch = Watch(session)
    await watch.until(ToolStarted)
    await drained(house, session, watch)
    assert house.ran == ["dig"]


async def test_limits_and_steers_hold_for_what_was_not_begun(house: House) -> None:
    """The next turn is decided by whoever takes over: here there may be none."""
    session = house.process(calls(("dig", {})))
    watch = Watch(session)
    await watch.until(ToolStarted)
    await drained(house, session, watch)
    later = house.process(limits=Limits(turns=1))
    assert (await later.resume()).reason is DoneReason.MAX_TURNS


async def test_a_steer_comes_in_with_its_own_time(house: House) -> None:
    """It was received while the run drained, and is read before the model is asked."""
    session = house.process(calls(("dig", {})))
    watch = Watch(session)
    await watch.until(ToolStarted)
    leaving = asyncio.ensure_future(session.drain())
    await turns(2)
    await session.steer("quick", id="quick", how=Steering.WHEN_DONE)
    await watch.until(InputReceived)
    house.release()
    await leaving
    await watch.task
    steps = [one.event for one in await house.entries() if isinstance(one, Stepped)]
    assert sum(isinstance(event, UserSteered) for event in steps) == 1
    later = house.process(DONE)
    await later.resume()
    assert [message.text for message in later.history][-2:] == ["quick", "done"]
