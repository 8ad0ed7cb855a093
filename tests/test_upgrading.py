"""Processes of two versions over one store, as a deploy rolls: the older one stops, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from itertools import count
from typing import Any, final

import pytest
from provers.tasks import turns

from turnwheel import (
    Agent,
    DoneReason,
    MemoryStore,
    Session,
    tool,
)
from turnwheel.effects.config import ChildSpec
from turnwheel.effects.errors import JournalError, NewerVersion
from turnwheel.effects.events import (
    ApprovalGiven,
    Approve,
    Post,
    UserSent,
)
from turnwheel.effects.messages import Outcome
from turnwheel.effects.requests import CallModel, RunTool, SetTimer
from turnwheel.engine.agent import sleep
from turnwheel.engine.codec import encode
from turnwheel.engine.journal.encoding import encode_entry
from turnwheel.engine.journal.entries import VERSION, Posted
from turnwheel.engine.journal.summary import SessionStatus, SessionSummary
from turnwheel.engine.open_work import questions
from turnwheel.engine.session.archive import explain, export, prune
from turnwheel.engine.session.environment import Environment
from turnwheel.engine.session.listing import listed
from turnwheel.performers.tools import ToolRunner
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.scripted import (
    Reply,
    ScriptedModel,
    calls,
    says,
)

PRESENT, NEWER = b'{"v":%d,' % VERSION, b'{"v":%d,' % (VERSION + 1)


@final
class Two:
    """A store, processes of this version over it, and one of the next, which writes entries of its own."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.ran: list[str] = []
        self.gate = asyncio.Event()
        self._ids = count(1)

    def process(
        self, *replies: Reply, child: tuple[Reply, ...] = (), store: MemoryStore | None = None
    ) -> Session:
        """The session ``s`` in a process that looks all the time what others say."""

        @tool
        async def pay() -> str:
            """Pay."""
            self.ran.append("pay")
            return "paid"

        @tool(approval="never")
        async def send() -> str:
            """Take long."""
            self.ran.append("send")
            await self.gate.wait()
            return "sent"

        models = {"": ScriptedModel(*replies), "kid": ScriptedModel(*child)}
        who: dict[type, Any] = {
            CallModel: lambda request, scene: models[scene.config.agent](request, scene),
            RunTool: ToolRunner((pay, send)),
            SetTimer: sleep,
        }
        children = (ChildSpec(name="kid", tools=("pay",)),)
        config = Agent(model="one", tools=(pay, send), children=children, performers=who).config
        setting = Environment(
            config=config,
            performers=who,
            clock=AutoClock(100.0),
            new_id=lambda: f"id{next(self._ids)}",
            poll=0.0,
        )
        return Session("s", setting, store or self.store)

    async def newer_says(self, event: Post, session: str = "s") -> None:
        """A process of the next version posts *event*."""
        entry = encode_entry(Posted(event=event)).replace(PRESENT, NEWER, 1)
        await self.store.append(session, len(await self.store.load(session)), [entry])

    async def as_the_newer_reads(self) -> MemoryStore:
        """What is stored, as the next version understands it."""
        store = MemoryStore()
        for info in await self.store.list():
            entries = [line.replace(NEWER, PRESENT, 1) for line in await self.store.load(info.session)]
            await store.append(info.session, 0, entries)
        return store

    async def kept(self) -> dict[str, list[bytes]]:
        """All that is stored."""
        return {info.session: list(await self.store.load(info.session)) for info in await self.store.list()}


@pytest.fixture
def two() -> Two:
    """Two versions over one store."""
    return Two()


def yes(request: str) -> ApprovalGiven:
    """Somebody says yes."""
    return ApprovalGiven(at=101.0, request=request, decision=Approve(), by="ann")


async def until(holds: Callable[[], object]) -> None:
    """Let others run until something *holds*."""
    assert await turns(3_000, lambda: bool(holds()))


HIRES = calls(("run_agent", {"agent": "kid", "prompt": "go"}))


async def test_whoever_waits_for_people_stops_when_one_speaks_through_a_newer_process(two: Two) -> None:
    """It does not wait for ever for an answer that it cannot read; the newer one goes on with it."""
    session = two.process(calls(("pay", {})))
    run = asyncio.ensure_future(session.run("go", wait=True))
    await until(lambda: session.resting)
    await two.newer_says(yes(session.waiting[0].id))
    kept = await two.kept()

    await until(run.done)
    with pytest.raises(NewerVersion, match=f"entry 4 of session 's' has version {VERSION + 1}"):
        await run
    assert await two.kept() == kept
    result = await two.process(says("paid"), store=await two.as_the_newer_reads()).resume()
    assert (result.reason, two.ran) == (DoneReason.END_TURN, ["pay"])


async def test_whoever_has_a_tool_at_work_stops_as_one_that_is_lost(two: Two) -> None:
    """What it had begun may have run, and is reported so: nothing is done twice, and no prompt is lost."""
    session = two.process(calls(("send", {})))
    run = asyncio.ensure_future(session.run("go"))
    await until(lambda: two.ran)
    await two.newer_says(UserSent(at=101.0, id="more", text="and then"))

    await until(run.done)
    with pytest.raises(NewerVersion):
        await run
    newer = two.process(says("it may have been sent"), says("then"), store=await two.as_the_newer_reads())
    assert (await newer.resume()).text == "then"
    outcomes = [result.outcome for message in newer.history for result in message.results]
    assert (two.ran, outcomes, newer.queue) == (["send"], [Outcome.UNKNOWN], ())


async def test_a_child_of_which_a_newer_process_knows_more_is_not_given_up(two: Two) -> None:
    """Its parent stops with it, and does not write down that it crashed."""
    session = two.process(HIRES, child=(calls(("pay", {})),))
    run = asyncio.ensure_future(session.run("go", wait=True))
    await until(lambda: session.resting)
    (link,) = session.children
    await two.newer_says(yes(session.waiting[0].id), link.session)
    kept = await two.kept()

    await until(run.done)
    with pytest.raises(NewerVersion, match=link.session):
        await run
    assert await two.kept() == kept
    store = await two.as_the_newer_reads()
    result = await two.process(says("done"), child=(says("it is paid"),), store=store).resume()
    assert (result.text, two.ran) == ("done", ["pay"])


async def test_whoever_says_something_through_an_older_process_is_told(two: Two) -> None:
    """Nothing is written behind what is not understood, and nothing that was said is lost silently."""
    session = two.process(calls(("pay", {})))
    question = (await session.run("go")).waiting[0]
    await two.newer_says(UserSent(at=101.0, id="more", text="and then"))
    kept = await two.kept()
    fresh = two.process()

    async def answer() -> None:
        await session.approve(question.id)

    for says_something in (
        lambda: fresh.send("hello"),
        lambda: fresh.steer("hello"),
        answer,
        fresh.interrupt,
        fresh.resume,
        lambda: fresh.run("go"),
        fresh.branch,
        lambda: fresh.fork("t"),
        lambda: fresh.retitle("new"),
        lambda: explain(two.store, "s", "1"),
        lambda: export(two.store, "s"),
    ):
        with pytest.raises(NewerVersion, match="upgrade turnwheel, or go on with the one that wrote it"):
            await says_something()
    assert await two.kept() == kept


@pytest.mark.parametrize(
    ("row", "state"),
    [
        (encode(SessionSummary(state=SessionStatus.RESTING), SessionSummary), SessionStatus.RESTING),
        (b'{"state":"napping"}', SessionStatus.UNREADABLE),
        (b'{"v":9,"mood":"good"}', SessionStatus.UNREADABLE),
    ],
)
async def test_a_session_of_a_newer_version_is_listed(two: Two, row: bytes, state: SessionStatus) -> None:
    """As far as its row says; it is not pruned, and the row is left alone."""
    await two.process(says("hi")).run("go")
    await two.newer_says(UserSent(at=101.0, id="more", text="and then"))
    await two.store.append("s", len(await two.store.load("s")), (), row)
    (one,) = await listed(two.store)
    assert one.about.state is state
    assert await prune(two.store, older_than=0.0, now=1e12) == ()
    assert (await two.store.list())[0].about == row


async def test_a_journal_that_is_damaged_meanwhile_stops_who_waits_for_it(two: Two) -> None:
    """As one that cannot be understood for any other reason."""
    session = two.process(calls(("pay", {})))
    run = asyncio.ensure_future(session.run("go", wait=True))
    await until(lambda: session.resting)
    await two.store.append("s", len(await two.store.load("s")), [b'{"v":3,"type":"Posted","event"'])
    await until(run.done)
    with pytest.raises(JournalError, match="entry 4 of session 's' cannot be read"):
        await run


async def test_what_an_older_version_says_meanwhile_is_taken_up(two: Two) -> None:
    """The other way round: whoever is of this version understands those that are not yet."""
    session = two.process(calls(("pay", {})), says("paid"))
    run = asyncio.ensure_future(session.run("go", wait=True))
    await until(lambda: session.resting)
    assert session.machine is not None
    (question,) = questions(session.machine)
    entry = json.loads(encode_entry(Posted(event=yes(question.id))))
    del entry["v"]
    await two.store.append("s", len(await two.store.load("s")), [json.dumps(entry).encode()])
    assert ((await run).text, two.ran) == ("paid", ["pay"])
