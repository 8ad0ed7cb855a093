"""One agent that many channels feed: what it stores of a prompt, and what it leaves to other processes."""

from __future__ import annotations

import asyncio

import pytest
from provers.tasks import turns
from support.patience import PATIENCE
from support.session_stage import quiet, until

from turnwheel import Agent, MemoryStore, Policy, Session, Singleton, tool
from turnwheel.effects.errors import QueueFull, SessionClosed, StoreError
from turnwheel.effects.messages import Binary
from turnwheel.effects.requests import CallModel
from turnwheel.engine.journal.encoding import decode_entry
from turnwheel.engine.journal.entries import Posted
from turnwheel.performers import Performers
from turnwheel.performers.stores.base import Entries, Store
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.scripted import Reply, ScriptedModel, calls, says
from turnwheel.testing.stores import StoreOver

__all__ = ["quiet"]

pytestmark = pytest.mark.usefixtures("quiet")


@tool
def pay() -> str:
    """Pay."""
    return "paid"


def session(store: Store, *replies: Reply) -> Session:
    agent = Agent(
        model="m",
        tools=[pay],
        store=store,
        clock=AutoClock(100.0),
        performers={CallModel: ScriptedModel(*replies)},
    )
    return agent.session("s")


@pytest.mark.parametrize(
    ("channel", "group", "sender", "origin"),
    [
        ("mail", "home", "her", "mail/home/her"),
        ("mail", "", "", "mail//"),
        ("", "home", "", "/home/"),
        ("", "", "her", "//her"),
        ("", "", "", ""),
    ],
)
async def test_a_prompt_is_stored_with_its_files_its_id_and_where_it_is_from(
    channel: str, group: str, sender: str, origin: str
) -> None:
    store, files = MemoryStore(), (Binary(media_type="text/plain", data=b"a", name="a.txt"),)
    one = Singleton(session(store))
    name = await one.post("go", channel=channel, group=group, sender=sender, files=files, id="mine")
    [entry] = [decode_entry(data) for data in await store.load("s")]
    assert isinstance(entry, Posted)
    stored = entry.event
    assert (name, getattr(stored, "id", ""), getattr(stored, "sender", "")) == ("mine", "mine", origin)
    assert (getattr(stored, "text", ""), getattr(stored, "files", ())) == ("go", files)


async def test_prompts_of_an_earlier_process_count_for_the_bound_of_the_queue() -> None:
    store = MemoryStore()
    await session(store).send("before")
    with pytest.raises(QueueFull):
        await Singleton(session(store), max_queue=1).post("one too many")


async def test_what_is_refused_behind_the_end_keeps_no_caller_waiting() -> None:
    one = Singleton(session(MemoryStore()))
    async with one:
        await one.idle()
    with pytest.raises(SessionClosed):
        await one.post("late")
    async with asyncio.timeout(PATIENCE):
        await one.idle()


async def test_a_drain_before_the_first_run_keeps_the_prompt_and_is_no_error_of_the_work() -> None:
    """While the sender of the prompt may still add to it, no run has begun."""
    store = MemoryStore()
    performers: Performers = {CallModel: ScriptedModel(says("ok"))}
    agent = Agent(model="m", store=store, performers=performers, policy=Policy(coalesce=0.2))
    async with Singleton(agent.session("s")) as one:
        await one.post("go", sender="ann")
        await turns(20)
        await one.session.drain()
        with pytest.raises(SessionClosed):
            await one.post("more", sender="ann")
    assert [type(decode_entry(data)) for data in await store.load("s")] == [Posted]


class Away(StoreOver):
    """A store that cannot be read the next *fails* times."""

    def __init__(self, there: Store) -> None:
        super().__init__(there)
        self.fails = 0

    async def load(
        self, session: str, start: int = 0, end: int | None = None, incarnation: str = ""
    ) -> Entries:
        if self.fails:
            self.fails -= 1
            msg = "the disk is away"
            raise StoreError(msg)
        return await super().load(session, start, end, incarnation)


async def test_news_that_could_not_be_read_are_looked_for_again() -> None:
    there = MemoryStore()
    store = Away(there)
    mine = session(store, says("hi"))
    async with Singleton(mine, poll=0.0) as one:
        await one.idle()
        store.fails = 1
        await session(there).send("from elsewhere")
        await until(lambda: mine.machine is not None)
        await one.idle()
        assert (store.fails, mine.result().text) == (0, "hi")


async def test_a_run_that_another_process_began_is_left_to_it() -> None:
    there = MemoryStore()
    mine = session(StoreOver(there), says("paid"))
    async with Singleton(mine, poll=0.0) as one, session(there, calls(("pay", {}))) as other:
        await one.idle()
        await other.run("go")
        await until(lambda: mine.unfinished)
        await turns(20)
        assert not mine.running
        async with asyncio.timeout(PATIENCE):
            await one.idle()
