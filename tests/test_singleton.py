"""One agent for everybody: what comes in through any channel is answered once, in turn, whatever happens."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from turnwheel import (
    Agent,
    DoneReason,
    MemoryStore,
    Policy,
    Session,
    tool,
)
from turnwheel.effects.errors import (
    ConfigError,
    QueueFull,
    SessionClosed,
    StoreError,
)
from turnwheel.effects.events import Failure
from turnwheel.effects.messages import Role
from turnwheel.effects.notices import ApprovalRequested, RunEnded, TextDelta
from turnwheel.effects.requests import CallModel
from turnwheel.engine.session.singleton import Singleton
from turnwheel.performers.stores.base import Store
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.scripted import (
    Reply,
    ScriptedModel,
    calls,
    fails,
    says,
    stalls,
)
from turnwheel.testing.stores import FaultyStore, StoreOver

ANSWERS = [says(f"answer {number}") for number in range(1, 20)]


@tool
def pay() -> str:
    """Pay."""
    return "paid"


class Slow(StoreOver):
    """A store that keeps all in memory and takes some turns of the event loop for each call."""

    async def append(
        self, session: str, expected: int, entries: Sequence[bytes], about: bytes | None = None
    ) -> int:
        """Add *entries*."""
        await turns(2)
        length = await super().append(session, expected, entries, about)
        await turns(2)
        return length

    async def load(self, session: str, start: int = 0) -> Sequence[bytes]:
        """The entries of *session* from *start* on."""
        await turns(2)
        return await super().load(session, start)


def session(*replies: Reply, store: Store | None = None, policy: Policy = Policy()) -> Session:  # noqa: B008  # frozen
    """The session ``s`` of an agent over a script, in *store* or one of its own."""
    agent = Agent(
        model="scripted",
        tools=[pay],
        policy=policy,
        store=store or MemoryStore(),
        clock=AutoClock(100.0),
        performers={CallModel: ScriptedModel(*replies)},
    )
    return agent.session("s")


def said(session: Session) -> list[str]:
    """What people said, in order."""
    return [message.text for message in session.history if message.role is Role.USER]


async def turns(number: int) -> None:
    """Let others run for *number* turns of the event loop."""
    for _ in range(number):
        await asyncio.sleep(0)


async def until(holds: Callable[[], object]) -> None:
    """Let others run until something *holds*."""
    async with asyncio.timeout(10):
        while not holds():
            await turns(1)


@pytest.fixture(autouse=True)
async def _quiet() -> AsyncIterator[None]:
    """Nothing is left at work, and no error is left that nobody was told of."""
    heard = list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
    gc.freeze()  # what was there before needs no look
    yield
    gc.collect()
    gc.unfreeze()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert heard == []


# What comes in


async def test_what_comes_in_through_many_channels_is_answered_in_its_order() -> None:
    """One by one, in one conversation; whoever posts does not wait for the answer."""
    mine = session(*ANSWERS, store=Slow())
    async with Singleton(mine) as one:
        watched = one.subscribe()
        posts = [one.post(f"{n}", channel=f"channel {n % 3}", sender=f"sender {n % 2}") for n in range(9)]
        ids = await asyncio.gather(*posts)
        await one.idle()
        assert said(mine) == [str(n) for n in range(9)]
        assert len(set(ids)) == 9
        assert mine.result().text == "answer 9"
    ends = [notice async for notice in watched if isinstance(notice, RunEnded)]
    assert len(ends) == 9


async def test_what_one_sender_says_in_a_row_is_one_prompt() -> None:
    """A sender is somebody in a group of a channel; who names none is nobody in particular."""
    mine = session(*ANSWERS, policy=Policy(coalesce=2.0))
    async with Singleton(mine) as one:
        for text, channel, group, sender in (
            ("1", "mail", "", "her"),
            ("2", "chat", "", "her"),
            ("3", "mail", "", "her"),
            ("4", "chat", "home", "her"),
            ("5", "", "", ""),
            ("6", "chat", "", "her"),
        ):
            await one.post(text, channel=channel, group=group, sender=sender)
        await one.post("7")
        await one.idle()
    assert said(mine) == ["1\n3", "2\n6", "4", "5", "7"]


async def test_a_post_that_comes_twice_is_one() -> None:
    """Under its sender's id, also much later."""
    mine = session(*ANSWERS)
    async with Singleton(mine) as one:
        assert await asyncio.gather(*[one.post("hi", id="m1") for _ in range(3)]) == ["m1"] * 3
        await one.idle()
        await one.post("hi", id="m1")
        await one.idle()
    assert said(mine) == ["hi"]


@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_only_so_many_may_wait(limit: int) -> None:
    """However many come at once; who is refused is told, and nothing of it is kept."""
    mine = session(stalls("at work"), *ANSWERS, store=Slow())
    async with Singleton(mine, max_queue=limit) as one:
        await one.post("first")
        await until(lambda: mine.running)
        came = await asyncio.gather(*[one.post(str(n)) for n in range(7)], return_exceptions=True)
        refused = [each for each in came if isinstance(each, QueueFull)]
        assert (len(refused), len(mine.queue)) == (7 - limit, limit)
        assert str(refused[0]) == f"session 's' has {limit} prompts waiting; send this one again later"
        await one.cancel()
        await one.idle()
        await one.post("later")
        await one.idle()
    assert said(mine) == ["first", *map(str, range(limit)), "later"]


@pytest.mark.parametrize("wrong", [0, -1])
def test_a_queue_of_none_is_no_queue(wrong: int) -> None:
    """Nothing could ever come in."""
    with pytest.raises(ConfigError, match=f"max_queue must be at least 1; got {wrong}"):
        Singleton(session(), max_queue=wrong)


async def test_what_is_refused_does_not_keep_anybody_waiting() -> None:
    """A prompt without words is no prompt, and nothing is at work afterwards."""
    async with Singleton(session()) as one:
        await one.idle()
        with pytest.raises(ConfigError, match="the prompt is empty"):
            await one.post(" ")
        async with asyncio.timeout(10):
            await one.idle()


async def test_who_waits_for_idleness_has_what_was_accepted_before_answered() -> None:
    """Whatever the work is at when it is accepted."""
    for moment in range(60):
        mine = session(*ANSWERS, store=Slow())
        async with Singleton(mine) as one:
            await one.post("one")
            await turns(moment)
            await one.post("two")
            await one.idle()
            assert said(mine) == ["one", "two"], moment
            assert not mine.queue


async def test_what_another_process_sends_is_answered_too() -> None:
    """While nothing goes on here."""
    store = MemoryStore()
    mine = session(*ANSWERS, store=store)
    async with Singleton(mine, poll=0.0) as one:
        await one.idle()
        await session(store=store).send("from elsewhere")
        await until(lambda: mine.machine is not None)
        await one.idle()
    assert said(mine) == ["from elsewhere"]


# What it works on


async def test_cancelling_ends_what_is_worked_on_and_the_next_comes() -> None:
    """What waits is not touched; where nothing is worked on nothing happens."""
    mine = session(stalls("half"), *ANSWERS)
    async with Singleton(mine) as one:
        watched = one.subscribe()
        await one.cancel()
        await one.post("first")
        await one.post("second")
        async for notice in watched:
            if isinstance(notice, TextDelta):
                await one.cancel()
                break
        await one.idle()
        assert said(mine) == ["first", "second"]
        assert mine.result().text == "answer 1"


async def test_a_run_that_fails_does_not_end_the_work() -> None:
    """A model that cannot be reached is an end of that run; the next prompt gets its own."""
    mine = session(fails(Failure.AUTH), says("fine"))
    async with Singleton(mine) as one:
        await one.post("first")
        await one.idle()
        assert mine.result().reason is DoneReason.ERROR
        await one.post("second")
        await one.idle()
        assert mine.result().text == "fine"


async def test_a_question_holds_up_the_work_until_it_is_answered() -> None:
    """Nothing rests here, since nobody else would go on."""
    mine = session(calls(("pay", {})), *ANSWERS)
    async with Singleton(mine) as one:
        watched = one.subscribe()
        await one.post("first")
        await one.post("second")
        async for notice in watched:
            if isinstance(notice, ApprovalRequested):
                assert [mail.text for mail in mine.queue] == ["second"]
                await mine.approve(notice.request)
                break
        await one.idle()
    assert said(mine) == ["first", "second"]


# When it ends


async def test_leaving_at_any_moment_loses_nothing() -> None:
    """The next over the same store goes on with what was under way and what waits, each once."""
    for moment in range(60):
        store = Slow()
        async with Singleton(session(*ANSWERS, store=store)) as one:
            for text in ("one", "two", "three"):
                await one.post(text)
            await turns(moment)
        mine = session(*ANSWERS, store=store)
        async with Singleton(mine) as again:
            await again.idle()
            assert said(mine) == ["one", "two", "three"], moment
            assert mine.result().reason is DoneReason.END_TURN


async def test_nothing_is_idle_or_accepted_after_the_end() -> None:
    """Whoever asks is told at once."""
    async with Singleton(session(says("hi"))) as one:
        await one.post("hi")
    await one.idle()
    with pytest.raises(SessionClosed, match="session 's' is closed"):
        await one.post("more")


async def test_what_is_posted_before_the_work_begins_waits_for_it() -> None:
    """It is kept."""
    mine = session(says("hi"))
    one = Singleton(mine)
    await one.idle()
    await one.post("early")
    async with one:
        await one.idle()
        assert mine.result().text == "hi"


async def test_an_error_ends_the_work_and_everybody_is_told() -> None:
    """A store that fails is not passed over; what was accepted is answered by the next."""
    store = FaultyStore()
    mine = session(stalls("half"), *ANSWERS, store=store)

    async def work() -> None:
        async with Singleton(mine) as one:
            await one.post("first")
            await one.post("second")
            await until(lambda: mine.running)
            store.works = False
            await one.cancel()
            with pytest.raises(StoreError, match="no space left"):
                await one.idle()
            store.works = True
            with pytest.raises(StoreError, match="no space left"):
                await one.post("third")

    with pytest.raises(StoreError, match="no space left"):
        await work()
    with pytest.raises(SessionClosed):
        await mine.load()
    mine = session(*ANSWERS, store=store)
    async with Singleton(mine) as again:
        await again.idle()
    assert said(mine) == ["first", "second"]


async def test_an_error_of_its_users_own_is_not_hidden_by_one_of_the_works() -> None:
    """It is what ended the context."""
    store = FaultyStore()
    mine = session(stalls("half"), store=store)

    async def work() -> None:
        async with Singleton(mine) as one:
            await one.post("first")
            await until(lambda: mine.running)
            store.works = False
            await one.cancel()
            await turns(20)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await work()


async def test_who_waits_for_idleness_may_give_up() -> None:
    """And nothing is left waiting."""
    mine = session(stalls("half"))
    async with Singleton(mine) as one:
        await one.post("first")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await one.idle()
