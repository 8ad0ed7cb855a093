"""Many readers of one session: a notice is encoded once, and slow readers hold up nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing

from support.http_server import scripted
from support.patience import PATIENCE

from turnwheel import MemoryStore, Session
from turnwheel.apps.server.feed import READER_BUFFER, Heard, SessionFeed
from turnwheel.effects.notices import NoticesMissed, RunEnded, TextDelta
from turnwheel.testing.scripted import Reply, calls, says

NEVER = 1_000.0

# The deltas of the run that a slow reader found in the journal.
FIRST = 1


def opened(*replies: Reply) -> tuple[Session, SessionFeed]:
    store = MemoryStore()
    agent = scripted(*replies)
    session = agent.session("s", store)
    return session, SessionFeed(session, store, agent.clock)


async def to_the_end(parts: AsyncGenerator[Sequence[Heard], None], runs: int = 1) -> list[Heard]:
    """What *parts* have, up to the end of so many *runs*."""
    found: list[Heard] = []
    async with asyncio.timeout(PATIENCE), aclosing(parts):
        async for part in parts:
            found += part
            if sum(isinstance(heard.notice, RunEnded) for heard in found) == runs:
                break
    return found


def ids(heard: list[Heard]) -> list[str]:
    return [one.id for one in heard if one.id]


async def test_a_notice_is_encoded_once_for_all_readers() -> None:
    session, feed = opened(says("Begun."), says("one two three four five"))
    async with session, AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(feed.reader(NEVER)) for _ in range(5)]
        await session.run("Begin")
        following = [reader.follow(0) for reader in readers]
        # From here on there is nothing in the journal that was not handed to them, too.
        before = [[*await anext(parts)] for parts in following]
        reading = [asyncio.create_task(to_the_end(parts)) for parts in following]
        await session.run("Go")
        first, *others = [await each for each in reading]
        assert sum(isinstance(heard.notice, TextDelta) for heard in first) == 5
        for other in others:
            assert all(mine.frame is theirs.frame for mine, theirs in zip(first, other, strict=True))
        # One that comes late has the same ids, from the journal.
        late = await stack.enter_async_context(feed.reader(NEVER))
        assert ids(await to_the_end(late.follow(0), runs=2)) == ids(before[0]) + ids(first)


async def test_a_reader_that_is_too_slow_is_told_what_it_missed_and_keeps_little() -> None:
    long = "word " * (READER_BUFFER + 50)
    session, feed = opened(says("Begun."), says(long), calls(("look", {})), says("Over."))
    async with session, feed.reader(NEVER) as slow, feed.reader(NEVER) as quick:
        reading = asyncio.create_task(to_the_end(quick.follow(0), runs=3))
        await session.run("Begin")
        parts = slow.follow(0)
        seen = [*await anext(parts)]
        # It does not read while a run goes on that streams more than it may lag behind: nothing waits for it.
        await session.run("Go")
        held = [*await anext(parts)]
        assert len(held) <= READER_BUFFER
        rest = asyncio.create_task(to_the_end(parts, runs=2))
        await session.run("On")
        seen, everything = [*seen, *held, *await rest], await reading
        assert ids(seen) == ids(everything)
        told = [heard.notice.count for heard in seen if isinstance(heard.notice, NoticesMissed)]
        assert len(told) == 1
        assert told[0] >= 50
        late, all_of_them = (
            sum(isinstance(heard.notice, TextDelta) for heard in each) for each in (seen, everything)
        )
        assert late + told[0] == all_of_them - FIRST
        assert not any(isinstance(heard.notice, NoticesMissed) for heard in everything)


async def test_readers_come_and_go_while_nothing_is_written_twice() -> None:
    session, feed = opened(*[says(f"answer {number}") for number in range(6)])
    async with session:
        whole: list[Heard] = []
        for number in range(6):
            async with feed.reader(NEVER) as reader:
                since = ids(whole)[-1] if whole else 0
                reading = asyncio.create_task(to_the_end(reader.follow(since)))
                await session.run(f"Question {number}")
                whole += await reading
        async with feed.reader(NEVER) as reader:
            assert ids(await to_the_end(reader.follow(0), runs=6)) == ids(whole)
