"""A reader that comes in the middle of an answer: it has what has streamed, and nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any

import pytest
from support.patience import PATIENCE
from support.told_model import Told

from turnwheel import Agent, MemoryStore, Session
from turnwheel.apps.server.event_stream import VOCABULARIES, Projected
from turnwheel.apps.server.feed import DELTA, FeedReader, Heard, SessionFeed
from turnwheel.effects import CallModel
from turnwheel.effects.history import CallPiece, ReasoningPiece, TextPiece
from turnwheel.effects.notices import CallDelta, ModelCalled, ReasoningDelta, TextDelta, TurnEnded
from turnwheel.engine.session.completed_texts import Delivery
from turnwheel.engine.session.subscription import Position
from turnwheel.projections.streamed import StreamedProjection

NEVER = 1_000.0


@asynccontextmanager
async def answering(**more: Any) -> AsyncGenerator[tuple[Told, Session, SessionFeed], None]:
    """A session whose model was asked."""
    model, store = Told(), MemoryStore()
    agent = Agent(model="openai:test", performers={CallModel: model}, **more)
    async with agent.session("s", store) as session:
        run = asyncio.create_task(session.run("Go"))
        await model.called.wait()
        yield model, session, SessionFeed(session, store, agent.clock, partial=agent.watch.include_partial)
        await run


class Reading:
    """Reads *reader* behind *since*, to the end of an answer; *heard* is what it had."""

    def __init__(self, reader: FeedReader, since: int | str = 0) -> None:
        self.heard: list[Heard] = []
        self._news = asyncio.Event()
        self.task = asyncio.create_task(self._read(reader, since))

    async def _read(self, reader: FeedReader, since: int | str) -> None:
        async with aclosing(reader.follow(since)) as parts:
            async for part in parts:
                for heard in part:
                    if isinstance(heard.notice, TurnEnded):
                        return
                    self.heard.append(heard)
                self._news.set()

    @property
    def told(self) -> tuple[str, str, str]:
        """Text, thought and arguments, in bits no more."""
        notices = [each.notice for each in self.heard]
        return (
            "".join(each.text for each in notices if isinstance(each, TextDelta)),
            "".join(each.text for each in notices if isinstance(each, ReasoningDelta)),
            "".join(each.tool + each.arguments for each in notices if isinstance(each, CallDelta)),
        )

    async def until(self, text: str) -> None:
        await self._until(lambda: self.told[0] == text)

    async def until_begun(self) -> None:
        """Wait until the journal told that the answer began: told of its end, too, it would have no bits."""
        await self._until(lambda: any(isinstance(each.notice, ModelCalled) for each in self.heard))

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not holds():
                self._news.clear()
                await self._news.wait()


BITS = (
    ReasoningPiece("Hm"),
    ReasoningPiece("m."),
    TextPiece("one "),
    TextPiece("two "),
    CallPiece(index=0, name="look", arguments="{"),
    CallPiece(index=0, arguments="}"),
    TextPiece("three"),
)
WHOLE = ("one two three", "Hmm.", "look{}")


@pytest.mark.parametrize("there", [0, 1], ids=["alone", "beside another"])
@pytest.mark.parametrize("before", range(len(BITS) + 1))
async def test_one_that_comes_in_the_middle_of_an_answer_has_all_of_it_once(before: int, there: int) -> None:
    async with answering() as (model, session, feed), AsyncExitStack() as stack:
        others = [Reading(await stack.enter_async_context(feed.reader(NEVER))) for _ in range(there)]
        for each in others:
            await each.until_begun()
        watching = aiter(session.watch())
        model.say(*BITS[:before])
        # All of them have happened here; those that read the feed may not have them yet.
        for _ in range(before):
            while not isinstance((await anext(watching)).notice, DELTA):
                pass
        late = Reading(await stack.enter_async_context(feed.reader(NEVER)))
        model.say(*BITS[before:])
        await late.until_begun()
        model.end()
        for each in (*others, late):
            async with asyncio.timeout(PATIENCE):
                await each.task
            assert each.told == WHOLE
        # Nothing of it once the answer is complete.
        after = Reading(await stack.enter_async_context(feed.reader(NEVER)))
        await after.task
        assert after.told == ("", "", "")


async def test_two_that_come_one_after_the_other_have_the_same() -> None:
    async with answering() as (model, session, feed), AsyncExitStack() as stack:
        model.say(TextPiece("one "))
        readers = list[Reading]()
        text = "one "
        for more in ("two ", "three ", ""):
            readers.append(Reading(await stack.enter_async_context(feed.reader(NEVER))))
            for each in readers:
                await each.until(text)
            if more:
                # A message in the middle is in the journal, and ends no answer.
                await session.steer("And this")
                model.say(TextPiece(more))
                text += more
        # It saw this answer begin, and has seen some of it.
        known = [each.id for each in readers[0].heard if each.id]
        back = Reading(await stack.enter_async_context(feed.reader(NEVER)), known[-1])
        model.say(TextPiece("four"))
        model.end()
        for each in readers:
            await each.task
        assert {each.told[0] for each in readers} == {"one two three four"}
        await back.task
        assert back.told[0] == "four"


async def test_where_no_deltas_are_shown_none_are_to_one_in_the_middle() -> None:
    shown = Delivery(include_partial=False)
    async with answering(watch=shown) as (model, _, feed), feed.reader(NEVER) as reader:
        early = Reading(reader)
        model.say(TextPiece("one "), TextPiece("two"))
        await early.until_begun()
        async with feed.reader(NEVER) as other:
            late = Reading(other)
            await late.until_begun()
            model.end()
            for each in (early, late):
                await each.task
                deltas = [heard.notice for heard in each.heard if isinstance(heard.notice, DELTA)]
                assert deltas == [TextDelta("one two", at=0.0)]


@pytest.mark.parametrize("name", VOCABULARIES)
async def test_each_vocabulary_tells_it_as_to_those_who_were_there(name: str) -> None:
    async with answering() as (model, _, feed), AsyncExitStack() as stack:
        readers = list[Reading]()
        model.say(ReasoningPiece("Hmm."), TextPiece("one"))
        for _ in range(2):
            readers.append(Reading(await stack.enter_async_context(feed.reader(NEVER))))
            await readers[-1].until("one")
        model.say(CallPiece(index=0, name="look", arguments="{}"))
        model.end()
        for each in readers:
            await each.task
    early, late = [each.heard for each in readers]

    def told(heard: list[Heard], behind: Position) -> bytes:
        teller = Projected(VOCABULARIES[name]("s"), behind)
        return b"".join([teller.take(each) for each in heard])

    assert told(late, (-1, -1)) == told(early, (-1, -1))
    # To one that comes again a stream of parts is told from its beginning, and else nothing twice.
    called = next(each.at for each in late if isinstance(each.notice, ModelCalled))
    parts = isinstance(VOCABULARIES[name]("s"), StreamedProjection)
    assert (b"Hmm." in told(late, called)) == parts
