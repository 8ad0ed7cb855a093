"""Watching a session: what its journal has comes first, then what happens, each notice once, with its id."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import pairwise
from types import UnionType

import pytest
from provers.tasks import turns
from support.session_stage import House, Tape, Watch, until

from turnwheel.effects.errors import ConfigError
from turnwheel.effects.events import ModelFinished, ModelStreamed
from turnwheel.effects.history import TextPiece
from turnwheel.effects.messages import StopReason
from turnwheel.effects.notices import (
    PASSING,
    ApprovalRequested,
    ModelCalled,
    Notice,
    NoticesMissed,
    RunEnded,
    RunResumed,
    RunStarted,
    TextDelta,
    ToolStarted,
    TurnEnded,
)
from turnwheel.effects.requests import CallModel
from turnwheel.effects.usage import Usage
from turnwheel.engine import Watched
from turnwheel.engine.journal.journal import Journal
from turnwheel.engine.session.completed_texts import Delivery
from turnwheel.engine.session.poller import POLLERS
from turnwheel.engine.session.watching import JournalReader
from turnwheel.performers.base import PerformContext
from turnwheel.performers.stores.base import Entries
from turnwheel.testing.scripted import calls, says
from turnwheel.testing.stores import StoreOver

pytestmark = pytest.mark.usefixtures("quiet")

WORK = (calls(("look", {"at": "a"}), ("buy", {}), text="one two three "), says("and that is all of it"))


class Seen:
    """Reads *watch* in the background, and keeps what it gave."""

    def __init__(self, watch: AsyncGenerator[Watched, None], every: int = 0) -> None:
        self.all: list[Watched] = []
        self.task = asyncio.ensure_future(self._read(watch, every))

    async def _read(self, watch: AsyncGenerator[Watched, None], every: int) -> None:
        async with aclosing(watch) as watching:
            async for watched in watching:
                self.all.append(watched)
                await turns(every)

    async def until(self, whole: list[Watched]) -> None:
        await until(lambda: len(self.kept) >= len(whole))

    @property
    def kept(self) -> list[Watched]:
        return [watched for watched in self.all if watched.id]

    def got(self, kind: type | UnionType) -> list[Notice]:
        return [watched.notice for watched in self.all if isinstance(watched.notice, kind)]


async def journal(house: House) -> list[Watched]:
    """What the journal tells."""
    news = JournalReader(Journal("s", house.store), 0).news()
    return [Watched(notice, f"{entry}.{place}") async for (entry, place), notice in news]


def stream_word(request: CallModel, scene: PerformContext, number: int, word: str) -> None:
    """Tell *word*, the piece *number* of the answer to *request*."""
    piece = TextPiece(word)
    scene.emit(ModelStreamed(at=1.0, request=request.id, before=number, count=1, pieces=(piece,)))


def ended(request: CallModel) -> ModelFinished:
    return ModelFinished(at=1.0, request=request.id, stop=StopReason.END_TURN, usage=Usage())


async def test_a_late_watcher_sees_what_was_and_what_comes(house: House) -> None:
    async def answer(request: CallModel, scene: PerformContext) -> ModelFinished:
        for number, word in enumerate(("four ", "five ", "six")):
            stream_word(request, scene, number, word)
            # An answer that is over before the watcher has read the journal would have no deltas for it.
            await until(lambda: len(seen.got(TextDelta)) > number)  # noqa: B023  # it is awaited here
        return ended(request)

    await house.process(*WORK).run("go")
    here = house.process(performers={CallModel: answer})
    seen = Seen(here.watch())
    await until(lambda: seen.got(RunEnded))
    assert seen.all == await journal(house)
    await here.run("more")
    await until(lambda: len(seen.got(RunEnded)) == 2)
    assert not seen.task.done()
    await here.close()
    await seen.task
    assert seen.kept == await journal(house)
    assert seen.got(TextDelta) == [
        TextDelta("four ", at=1.0),
        TextDelta("five ", at=1.0),
        TextDelta("six", at=1.0),
    ]


async def test_a_journal_tells_what_its_run_told(one: House) -> None:
    drives = Watch(one.process(*WORK))
    await drives.task
    whole = await journal(one)
    assert [watched.notice for watched in whole] == [
        notice for notice in drives.notices if not isinstance(notice, PASSING)
    ]
    # A prompt, the run that it opens, and what it does.
    assert whole[0].id == "1.0"


@pytest.mark.parametrize("subscribed", [False, True])
async def test_a_watcher_that_comes_in_the_middle_of_an_answer_sees_the_rest_of_it(
    one: House, *, subscribed: bool
) -> None:
    async def answer(request: CallModel, scene: PerformContext) -> ModelFinished:
        for number, word in enumerate(("now ", "then")):
            stream_word(request, scene, number, word)
            await until(lambda: drives.got(TextDelta))
            if word == "now ":
                await one.gate.wait()
        return ended(request)

    here = one.process(performers={CallModel: answer})
    first = here.subscribe() if subscribed else None
    drives = Watch(here)
    await drives.until(TextDelta)
    seen = Seen(here.watch())
    await until(lambda: seen.got(ModelCalled))
    # From the end of the journal on, which is behind the beginning of this answer.
    rest = Seen(here.watch(len(await one.store.load("s"))))
    await turns(20)
    one.release()
    await drives.task
    await here.close()
    for each in (seen, rest):
        await each.task
        assert each.got(TextDelta) == [TextDelta("then", at=1.0)]
    assert seen.kept == await journal(one)
    assert not rest.got(ModelCalled)
    assert first is None or [notice async for notice in first] == drives.notices


async def test_what_is_seen_is_told_once_and_in_order_whenever_a_watcher_comes_and_however_slow() -> None:
    house = House(Tape())
    here = house.process(*WORK, calls(("look", {})), says("done " * 80))
    watchers = list[Seen]()
    handle = here.start("go")
    await here.send("again")
    for moment in range(12):
        watchers.append(Seen(here.watch(), every=moment))
        await turns(7 * moment)
    await handle.wait()
    whole = await journal(house)
    for moment, seen in enumerate(watchers):
        await seen.until(whole)
        assert seen.kept == whole, moment
        # No delta comes behind the end of its answer.
        shown = [type(notice) for notice in seen.got(ModelCalled | TurnEnded | TextDelta)]
        assert (TurnEnded, TextDelta) not in pairwise(shown), moment
    await here.close()
    for seen in watchers:
        await seen.task


async def test_what_is_applied_ahead_of_a_busy_reader_has_its_own_ids(one: House) -> None:
    here = one.process(calls(("dig", {}), ("linger", {})))
    seen = Seen(here.watch())
    await turns(3)
    async with aclosing(here.stream("go")) as notices:
        async for notice in notices:
            if isinstance(notice, TurnEnded):
                await here.interrupt()
                await until(lambda: here.machine is not None and "stopping" in here.machine.state.label)
    await here.close()
    await seen.task
    assert seen.kept == await journal(one)


async def test_a_slow_watcher_misses_deltas_only(one: House) -> None:
    here = one.session(*WORK, watch=Delivery(buffer=4))
    watching = here.watch()
    first = asyncio.ensure_future(anext(watching))
    await turns(5)
    await here.run("go")
    assert isinstance((await first).notice, RunStarted)
    seen = Seen(watching)
    await here.close()
    await seen.task
    assert [await first, *seen.kept] == await journal(one)
    assert seen.got(NoticesMissed)


async def test_a_watcher_goes_on_behind_what_it_saw_in_any_process(house: House) -> None:
    await house.process(*WORK).run("go")
    whole = await journal(house)
    assert len(whole) > 10
    for number, watched in enumerate(whole):
        again = house.process()
        async with aclosing(again.watch(watched.id)) as watching:
            rest = [await anext(watching) for _ in whole[number + 1 :]]
        assert rest == whole[number + 1 :]
        entry = int(watched.id.partition(".")[0])
        async with aclosing(again.watch(entry)) as watching:
            assert (await anext(watching)).id == f"{entry}.0"


async def test_a_run_of_another_process_is_watched_too(house: House) -> None:
    here, other = house.process(says("mine")), house.process(*WORK)
    seen = Seen(here.watch())
    await turns(3)
    await other.run("go")
    await other.close()
    await until(lambda: seen.got(RunEnded))
    await here.run("and mine")
    await here.close()
    await seen.task
    assert seen.kept == await journal(house)
    assert len(seen.got(RunStarted)) == 2


async def test_what_others_did_between_two_runs_here_comes_between_them(one: House) -> None:
    one.poll = 3_600.0
    here, other = one.process(says("mine"), says("and mine")), one.process(*WORK)
    seen = Seen(here.watch())
    await here.run("go")
    await other.run("go on")
    await other.close()
    await here.run("on")
    await here.close()
    await seen.task
    assert seen.kept == await journal(one)
    assert len(seen.got(RunStarted)) == 3


class Read(StoreOver):
    """A store that counts how often it was read."""

    reads = 0

    async def load(
        self, session: str, start: int = 0, end: int | None = None, incarnation: str = ""
    ) -> Entries:
        self.reads += 1
        return await super().load(session, start, end, incarnation)


async def test_a_watcher_reads_the_journal_once_for_each_run_here() -> None:
    """What the run writes then comes by itself."""
    reads = list[int]()
    for watched in (False, True):
        store = Read()
        house = House(store)
        house.poll = 3_600.0
        here = house.process(*WORK, says("more"))
        seen = Seen(here.watch()) if watched else None
        await turns(20)
        counts = list[int]()
        for number, prompt in enumerate(("go", "on"), 1):
            counts.append(store.reads)
            await here.run(prompt)
            await until(lambda: seen is None or len(seen.got(RunEnded)) == number)  # noqa: B023  # waited for
        reads.append(store.reads - counts[1])
        await here.close()
        if seen is not None:
            await seen.task
            assert seen.kept == await journal(house)
    assert reads[1] == reads[0] + 1


async def test_a_title_that_comes_with_a_run_moves_no_id(one: House) -> None:
    here = one.session(says("hello"), titles="inline")
    seen = Seen(here.watch())
    await turns(3)
    await here.run("go")
    await here.close()
    await seen.task
    assert here.title == "go"
    assert seen.kept == await journal(one)
    assert seen.all[0].id == "1.0"


async def test_a_takeover_tells_nothing_twice(house: House) -> None:
    first = house.process(calls(("pay", {})))
    await first.run("go")
    await first.close()
    here = house.process(says("paid"))
    seen, plain = Seen(here.watch()), here.subscribe()
    await turns(3)
    rested = await here.resume()
    await until(lambda: seen.got(ApprovalRequested))
    (at,) = [asked.at for asked in seen.got(ApprovalRequested)]
    assert seen.got(ApprovalRequested) == [ApprovalRequested.of(rested.waiting[0], at)]
    await here.approve(rested.waiting[0].id)
    await here.resume()
    await here.close()
    await seen.task
    assert seen.kept == await journal(house)
    first_notices = [type(await anext(plain)) for _ in range(2)]
    assert first_notices == [ApprovalRequested, RunResumed]


async def test_a_branch_of_another_process_is_followed(house: House) -> None:
    here, other = house.process(says("four")), house.process(says("one"), says("two"), says("three"))
    seen = Seen(here.watch())
    runs = [(await other.run(text)).run for text in ("a", "b")]
    await until(lambda: len(seen.got(RunEnded)) == 2)
    await other.branch(runs[0])
    await other.run("c")
    await other.close()
    await here.run("d")
    await here.close()
    await seen.task
    assert seen.kept == await journal(house)
    assert len(seen.got(RunEnded)) == 4


async def test_a_watcher_without_deltas_gets_whole_texts_once(one: House) -> None:
    here = one.session(*WORK, watch=Delivery(include_partial=False))
    seen = Seen(here.watch())
    await turns(3)
    await here.run("go")
    await here.close()
    await seen.task
    assert seen.got(TextDelta) == [
        TextDelta("one two three ", at=100.0),
        TextDelta("and that is all of it", at=100.0),
    ]
    assert seen.kept == await journal(one)


async def test_a_watcher_of_a_session_that_is_closed_gets_what_there_is(one: House) -> None:
    here = one.process(*WORK)
    await here.run("go")
    await here.close()
    assert [watched async for watched in here.watch()] == await journal(one)


@pytest.mark.parametrize("since", [-1, "", "1.", ".1", "1.2.3", "x", True, "1" * 5000, "\u0661"])
def test_what_is_no_id_is_refused(one: House, since: int | str) -> None:
    with pytest.raises(ConfigError, match="must be the number of an entry or the id of a notice"):
        one.process().watch(since)


def test_without_a_store_there_is_nothing_to_watch_from(home: House) -> None:
    with pytest.raises(ConfigError, match="has no store"):
        home.process().watch()


async def test_a_subscriber_of_a_session_that_rests_waits_for_its_next_run(one: House) -> None:
    here = one.process(says("hello"))
    notices = here.subscribe()
    waits = asyncio.ensure_future(notices.next())
    await turns(20)
    assert not waits.done()
    await here.run("go")
    assert isinstance(await waits, RunStarted)
    await here.close()
    rest = [notice async for notice in notices]
    assert isinstance(rest[-1], RunEnded)
    assert not isinstance(rest[0], PASSING | ToolStarted)


async def test_news_for_a_watcher_that_just_left_are_no_error(house: House) -> None:
    here = house.process(*WORK)
    await here.run("go")
    seen = Seen(here.watch())
    await seen.until(await journal(house))
    (waiter,) = [one for pollers in POLLERS.values() for poller in pollers for one in poller.waiting["s"]]
    # The look that found the news was under way when the reader closed its connection.
    seen.task.cancel()
    asyncio.get_running_loop().call_soon(waiter.wake)
    with pytest.raises(asyncio.CancelledError):
        await seen.task
