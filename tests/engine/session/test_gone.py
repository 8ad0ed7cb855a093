"""A session that is deleted, and perhaps begun anew: each object of the older one is told that it is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import pytest
from provers.tasks import turns
from support.patience import PATIENCE
from support.session_stage import House, Watch, results, said, until

from turnwheel import ChildSpec, Session, SetModel, Singleton
from turnwheel.effects.errors import SessionClosed, SessionGone
from turnwheel.effects.notices import ApprovalRequested, ToolStarted
from turnwheel.engine.inspect.archive import delete
from turnwheel.testing.scripted import calls, says

pytestmark = pytest.mark.usefixtures("quiet")


async def watched(session: Session) -> None:
    async with aclosing(session.watch()) as seen:
        async for _ in seen:
            pass


async def started(session: Session) -> None:
    await session.start("go").wait()


CALLS: dict[str, Callable[[Session], Awaitable[object]]] = {
    "load": Session.load,
    "run": lambda session: session.run("go"),
    "resume": Session.resume,
    "start": started,
    "send": lambda session: session.send("go"),
    "steer": lambda session: session.steer("go"),
    "approve": lambda session: session.approve("id1-1"),
    "control": lambda session: session.control(SetModel(model="one")),
    "cancel": lambda session: session.cancel("id1-1"),
    "interrupt": Session.interrupt,
    "retitle": lambda session: session.retitle("new"),
    "runs": Session.runs,
    "heads": Session.heads,
    "branch": Session.branch,
    "fork": lambda session: session.fork("copy"),
    "fork at a step": lambda session: session.fork("copy", at=1),
    "check_free": Session.check_free,
    "watch": watched,
}
"""What an object of a deleted session may be asked for."""


@pytest.mark.parametrize("anew", [True, False], ids=["begun anew", "deleted"])
async def test_each_call_of_an_object_of_a_deleted_session_tells_that_it_is_gone(
    house: House, *, anew: bool
) -> None:
    here, other = house.process(says("old")), house.process(says("seen"))
    await here.run("the old secret")
    await other.load()
    await delete(house.store, "s")
    new = house.process(says("fresh"), says("fresher"))
    if anew:
        await new.run("a new one")
    before = await house.store.load("s")
    for session in (here, other):
        for name, call in CALLS.items():
            with pytest.raises(SessionGone) as gone:
                await call(session)
            assert gone.value.args == ("s", anew), name
        await session.close()
    assert await house.store.load("s") == before
    assert [info.session for info in await house.store.list()] == ["s"] * anew
    # One that is opened now knows the new one only.
    assert (await new.run("and on")).text == ("fresher" if anew else "fresh")
    assert "the old secret" not in said(new)
    await new.close()


@pytest.mark.parametrize("anew", [True, False], ids=["begun anew", "deleted"])
async def test_a_run_whose_session_is_deleted_ends_and_performs_nothing_more(
    house: House, *, anew: bool
) -> None:
    house.poll = 30.0
    old = house.process(calls(("dig", {}), ("look", {})), says("never"))
    work = Watch(old)
    await work.until(ToolStarted)
    await delete(house.store, "s")
    new = house.process(says("fresh"))
    if anew:
        # The lease went with the older session, and a renewal of it does not come back.
        await old._worker.lease.keep()  # pyright: ignore[reportPrivateUsage]  # as the poller does
        assert (await new.run("a new one")).text == "fresh"
    house.release()
    with pytest.raises(SessionGone):
        await work.task
    assert house.ran == ["dig"]
    assert old.running is False
    with pytest.raises(SessionGone):
        await old.resume()
    if anew:
        await house.finish(new)
        assert said(new) == ["a new one"]
    else:
        assert list(await house.store.list()) == []


async def test_a_run_that_waits_for_a_person_learns_that_its_session_is_gone(house: House) -> None:
    work = Watch(house.process(calls(("pay", {}))))
    await work.until(ApprovalRequested)
    await delete(house.store, "s")
    await house.process(says("fresh")).run("a new one")
    with pytest.raises(SessionGone):
        async with asyncio.timeout(PATIENCE):
            await work.task


async def test_a_child_goes_with_its_parent(house: House) -> None:
    # Its child is deleted first, and its model told that it failed: the parent has no end before it is gone.
    house.held = {2}
    helper = ChildSpec(name="helper")
    spawn = calls(("run_agent", {"agent": "helper", "prompt": "dig"}))
    old = house.process(spawn, says("never"), children=[helper], helper=[calls(("dig", {})), says("never")])
    work = Watch(old)
    await until(lambda: house.ran == ["dig"])
    (link,) = old.children
    child = old.child(link.call)
    assert await delete(house.store, "s") == 2
    house.release()
    with pytest.raises(SessionGone):
        await work.task
    with pytest.raises((SessionGone, SessionClosed)):  # where its parent was quicker
        await child.load()
    with pytest.raises(SessionGone):
        await old.load()
    assert list(await house.store.list()) == []
    await old.close()


async def test_a_title_that_comes_late_is_not_that_of_the_new_session(house: House) -> None:
    house.held = {2}
    old = house.session(says("old"), says("An old title"), titles="model")
    await old.run("go")
    await until(lambda: len(house.models[0].requests) == 2)
    await delete(house.store, "s")
    new = house.process(says("fresh"))
    await new.run("a new one")
    house.release()
    await turns(20)
    await old.close()
    assert (await new.load()).title == ""


async def test_an_agent_for_many_channels_stops_when_its_session_is_gone(house: House) -> None:
    agent = Singleton(house.process(says("old")), poll=0.01)

    async def work() -> None:
        async with agent, asyncio.timeout(PATIENCE):
            await agent.post("go")
            await agent.idle()
            await delete(house.store, "s")
            await house.process().send("for the new one")
            while True:
                await agent.idle()
                await turns(1)

    with pytest.raises(SessionGone):
        await work()


async def test_one_that_knew_of_no_session_takes_the_one_that_is_there(house: House) -> None:
    here = house.process(says("on"))
    await here.load()
    await house.process(says("old")).run("first")
    await delete(house.store, "s")
    await house.process(says("new")).run("second")
    assert (await here.run("third")).text == "on"
    assert said(here) == ["second", "third"]
    assert results(here) == []
