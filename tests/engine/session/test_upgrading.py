"""Processes of two versions over one store, as a deploy rolls: the older one stops, and nothing is lost."""

from __future__ import annotations

import asyncio

import pytest
from support.session_stage import House, outcomes, until

from turnwheel import ChildSpec, DoneReason, MemoryStore, Result, Session
from turnwheel.effects.errors import JournalError, NewerVersion
from turnwheel.effects.events import ApprovalGiven, Approve, Post, UserSent
from turnwheel.effects.messages import Outcome
from turnwheel.engine.core.codec import encode
from turnwheel.engine.inspect.archive import explain, export, prune
from turnwheel.engine.inspect.listing import listed
from turnwheel.engine.journal.encoding import encode_entry
from turnwheel.engine.journal.entries import VERSION, Posted
from turnwheel.engine.journal.summary import SessionStatus, SessionSummary
from turnwheel.testing.scripted import Reply, calls, says

PRESENT, NEWER = b'{"v":%d,' % VERSION, b'{"v":%d,' % (VERSION + 1)
KID = (ChildSpec(name="kid", tools=("pay",)),)
HIRES = calls(("run_agent", {"agent": "kid", "prompt": "go"}))
MORE = UserSent(at=101.0, id="more", text="and then")


def yes(request: str) -> ApprovalGiven:
    return ApprovalGiven(at=101.0, request=request, decision=Approve(), by="ann")


async def append(house: House, entry: bytes, session: str = "s") -> None:
    await house.store.append(session, len(await house.store.load(session)), [entry])


async def newer_posts(house: House, event: Post, session: str = "s") -> None:
    await append(house, encode_entry(Posted(event=event)).replace(PRESENT, NEWER, 1), session)


async def kept(house: House) -> dict[str, list[bytes]]:
    return {info.session: list(await house.store.load(info.session)) for info in await house.store.list()}


async def as_newer(house: House) -> House:
    store = MemoryStore()
    for name, entries in (await kept(house)).items():
        await store.append(name, 0, [line.replace(NEWER, PRESENT, 1) for line in entries])
    newer = House(store)
    newer.ran = house.ran
    return newer


async def asks(house: House, *replies: Reply) -> tuple[Session, asyncio.Task[Result]]:
    session = house.process(*(replies or (calls(("pay", {})),)), children=KID, kid=(calls(("pay", {})),))
    run = asyncio.ensure_future(session.run("go", wait=True))
    await until(lambda: session.resting)
    return session, run


async def test_a_process_that_waits_for_a_person_stops_when_one_speaks_through_a_newer_one(
    one: House,
) -> None:
    """It does not wait for ever for an answer that it cannot read; the newer one goes on with it."""
    session, run = await asks(one)
    await newer_posts(one, yes(session.waiting[0].id))
    before = await kept(one)
    await until(run.done)
    with pytest.raises(NewerVersion, match=f"entry 4 of session 's' has version {VERSION + 1}"):
        await run
    assert await kept(one) == before
    newer = await as_newer(one)
    result = await newer.process(says("paid")).resume()
    assert (result.reason, newer.ran) == (DoneReason.END_TURN, ["pay 1"])


async def test_a_process_with_a_tool_at_work_stops_as_one_that_is_lost(one: House) -> None:
    """The tool may have run: nothing is done twice, and no prompt is lost."""
    run = asyncio.ensure_future(one.process(calls(("send", {}))).run("go"))
    await until(lambda: one.ran)
    await newer_posts(one, MORE)
    await until(run.done)
    with pytest.raises(NewerVersion):
        await run
    newer = (await as_newer(one)).process(says("it may have been sent"), says("then"))
    assert (await newer.resume()).text == "it may have been sent"
    assert newer.result().text == "then"
    assert (one.ran, outcomes(newer), newer.queue) == (["send"], [Outcome.UNKNOWN], ())


async def test_a_child_of_which_a_newer_process_knows_more_is_not_given_up(one: House) -> None:
    session, run = await asks(one, HIRES)
    (link,) = session.children
    await newer_posts(one, yes(session.waiting[0].id), link.session)
    before = await kept(one)
    await until(run.done)
    with pytest.raises(NewerVersion, match=link.session):
        await run
    assert await kept(one) == before
    newer = await as_newer(one)
    result = await newer.process(says("done"), children=KID, kid=(says("it is paid"),)).resume()
    assert (result.text, newer.ran) == ("done", ["pay 1"])


async def test_an_input_through_an_older_process_is_refused(one: House) -> None:
    session = one.process(calls(("pay", {})))
    (question,) = (await session.run("go")).waiting
    await newer_posts(one, MORE)
    before = await kept(one)
    fresh = one.process()
    for use in (
        lambda: fresh.send("hello"),
        lambda: fresh.steer("hello"),
        lambda: session.approve(question.id),
        fresh.interrupt,
        fresh.resume,
        lambda: fresh.run("go"),
        fresh.branch,
        lambda: fresh.fork("t"),
        lambda: fresh.retitle("new"),
        lambda: explain(one.store, "s", "1"),
        lambda: export(one.store, "s"),
    ):
        with pytest.raises(NewerVersion, match="upgrade turnwheel, or go on with the one that wrote it"):
            await use()
    assert await kept(one) == before


@pytest.mark.parametrize(
    ("row", "state"),
    [
        (encode(SessionSummary(state=SessionStatus.RESTING), SessionSummary), SessionStatus.RESTING),
        (b'{"state":"napping"}', SessionStatus.UNREADABLE),
        (b'{"v":9,"mood":"good"}', SessionStatus.UNREADABLE),
    ],
)
async def test_a_session_of_a_newer_version_is_listed(one: House, row: bytes, state: SessionStatus) -> None:
    """As far as its row says; it is not pruned, and the row is left alone."""
    await one.process(says("hi")).run("go")
    await newer_posts(one, MORE)
    await one.store.append("s", len(await one.store.load("s")), (), row)
    assert [each.about.state for each in await listed(one.store)] == [state]
    assert await prune(one.store, older_than=0.0, now=1e12) == ()
    assert (await one.store.list())[0].about == row


async def test_a_journal_that_is_damaged_meanwhile_stops_the_process_that_waits(one: House) -> None:
    _, run = await asks(one)
    await append(one, b'{"v":1,"type":"Posted","event"')
    await until(run.done)
    with pytest.raises(JournalError, match="entry 4 of session 's' cannot be read"):
        await run
