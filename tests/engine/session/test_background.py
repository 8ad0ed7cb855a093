"""Work in the background: what a handle tells of a run, and one agent that answers all channels in turn."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.patience import PATIENCE

from turnwheel import Agent, DoneReason, MemoryStore, ModelSpec, Policy, Price, Session, hook, tool
from turnwheel.apps.hosts.singleton import Singleton
from turnwheel.effects.errors import (
    ConfigError,
    QueueFull,
    SessionBusy,
    SessionClosed,
    StoreConflict,
    StoreError,
)
from turnwheel.effects.events import Failure, ModelFailed, ModelFinished
from turnwheel.effects.history import TextPiece
from turnwheel.effects.hooks import Hook
from turnwheel.effects.messages import Role, StopReason
from turnwheel.effects.notices import (
    ApprovalRequested,
    LeftBecause,
    Notice,
    NoticesMissed,
    RunEnded,
    RunLeft,
    RunStarted,
    TextDelta,
    TurnEnded,
)
from turnwheel.effects.permissions import PermissionMode
from turnwheel.effects.records import SetMode
from turnwheel.effects.requests import CallModel
from turnwheel.effects.usage import Usage
from turnwheel.engine.inspect.listing import listed
from turnwheel.engine.journal.fold import fold
from turnwheel.engine.session.background import WORKING
from turnwheel.engine.session.feed import SUBSCRIBER_BUFFER
from turnwheel.engine.session.handle import Handle
from turnwheel.engine.session.run_stream import RunStream
from turnwheel.performers.base import PerformContext
from turnwheel.performers.stores.base import Entries, Store
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.scripted import Reply, ScriptedModel, calls, fails, says, stalls
from turnwheel.testing.stores import FaultyStore, StoreOver

WHOLE = " ".join(map(str, range(4 * SUBSCRIBER_BUFFER)))  # more pieces than may wait for a reader
MANY = says(WHOLE)
ANSWERS = [says(f"answer {number}") for number in range(1, 20)]


@tool
def pay() -> str:
    """Pay."""
    return "paid"


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await turns(1)


class Slow(StoreOver):
    """A store that keeps all in memory and takes some turns of the event loop for each call."""

    async def append(
        self,
        session: str,
        expected: int,
        entries: Sequence[bytes],
        about: bytes | None = None,
        incarnation: str = "",
    ) -> str:
        await turns(2)
        there = await super().append(session, expected, entries, about, incarnation)
        await turns(2)
        return there

    async def load(
        self, session: str, start: int = 0, end: int | None = None, incarnation: str = ""
    ) -> Entries:
        await turns(2)
        return await super().load(session, start, end, incarnation)


def session(*replies: Reply, store: Store | None = None, policy: Policy = Policy()) -> Session:  # noqa: B008  # frozen
    """The session ``s`` of an agent over a script, in *store* or one of its own."""
    agent = Agent(
        model=ModelSpec(name="scripted", price=Price(input=1, output=1)),
        tools=[pay],
        policy=policy,
        store=store or MemoryStore(),
        clock=AutoClock(100.0),
        performers={CallModel: ScriptedModel(*replies)},
    )
    return agent.session("s")


def said(session: Session) -> list[str]:
    return [message.text for message in session.history if message.role is Role.USER]


async def read(handle: Handle, count: int | None = None) -> list[Notice]:
    notices: list[Notice] = []
    if count != 0:
        async with aclosing(aiter(handle)) as reading:
            async for notice in reading:
                notices.append(notice)
                if len(notices) == count:
                    break
    return notices


def text(notices: list[Notice]) -> str:
    return "".join(notice.text for notice in notices if isinstance(notice, TextDelta))


@pytest.fixture(autouse=True)
async def _quiet() -> AsyncIterator[None]:
    heard = list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
    yield
    gc.collect()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert heard == []


# A handle


@pytest.mark.parametrize("first", [Hook.SESSION_START, Hook.USER_PROMPT_SUBMIT, "instructions"])
async def test_each_who_waits_gets_the_answer_to_their_prompt_where_the_run_asks_first(
    first: Hook | str,
) -> None:
    """Until hooks have answered, or instructions are read, a prompt is in the mail as others are."""

    @hook(first if isinstance(first, Hook) else Hook.STOP)
    async def look(_: object) -> None:
        await turns(3)

    how: dict[str, Any] = {"hooks": [look]} if isinstance(first, Hook) else {"instructions": ["AGENTS.md"]}
    agent = Agent(performers={CallModel: ScriptedModel(*ANSWERS)}, store=MemoryStore(), **how)
    async with agent.session("s") as here:
        handle = here.start("first")
        notices, result = await asyncio.gather(read(handle), handle.wait())
        assert (result.text, text(notices)) == ("answer 1", "answer 1")
        for name in ("second", "third"):
            await here.send(name, id=name)
        assert (await here.run("second", id="second")).text == "answer 2"
        assert here.result().text == "answer 3"


async def test_a_run_without_a_reader_goes_on_to_its_end() -> None:
    mine = session(MANY)
    handle, watched = mine.start("go"), mine.subscribe()
    await read(handle, 3)
    await until(lambda: handle.done)
    rest = await read(handle)
    missed = [notice.count for notice in rest if isinstance(notice, NoticesMissed)]
    assert (len(rest) - len(missed), type(rest[-1])) == (SUBSCRIBER_BUFFER, RunEnded)
    assert 0 < handle.dropped == sum(missed) < len(WHOLE.split())
    assert ((await handle.wait()).text, mine.result().reason) == (WHOLE, DoneReason.END_TURN)
    await watched.aclose()


def test_a_start_where_no_loop_runs_is_refused_and_the_session_works_on() -> None:
    mine = session(says("done"))
    with pytest.raises(RuntimeError, match=r"no running event loop; call start\(\) in an async"):
        mine.start("go")
    assert asyncio.run(mine.run("go")).text == "done"


async def test_a_run_that_an_input_began_and_that_fails_is_logged() -> None:
    class Full(StoreOver):
        async def append(
            self,
            session: str,
            expected: int,
            entries: Sequence[bytes],
            about: bytes | None = None,
            incarnation: str = "",
        ) -> str:
            if expected:
                msg = "the disk is full"
                raise StoreError(msg)
            return await super().append(session, expected, entries, about, incarnation)

    with capture_logs() as logs:
        mine = session(says("done"), store=Full())
        await mine.send("go", start=True)
        await until(lambda: logs)
    assert [(log["event"], log["error"]) for log in logs] == [
        ("a run in the background failed", "StoreError")
    ]


async def test_a_reader_that_keeps_up_misses_nothing_of_a_burst() -> None:
    async def ask(request: CallModel, _: PerformContext) -> ModelFinished:
        pieces = tuple([TextPiece(text=f"{number} ") for number in range(500)])
        end = StopReason.END_TURN
        return ModelFinished(at=0.0, request=request.id, stop=end, usage=Usage(), pieces=pieces)

    handle = Agent(model="scripted", performers={CallModel: ask}).session().start("go")
    seen = text(await read(handle))
    assert (seen, handle.dropped) == ("".join(f"{number} " for number in range(500)), 0)


async def test_a_run_that_no_caller_holds_goes_on_to_its_end() -> None:
    model, gates = ScriptedModel(calls(("pay", {})), says("done")), list[weakref.ref[asyncio.Event]]()

    # Nothing of this run can be reached from outside of it.
    async def ask(request: CallModel, scene: PerformContext) -> ModelFinished | ModelFailed:
        gates.append(weakref.ref(gate := asyncio.Event()))
        await gate.wait()
        return await model(request, scene)

    policy = Policy(mode=PermissionMode.BYPASS)
    Agent(model="scripted", tools=[pay], policy=policy, performers={CallModel: ask}).session().start("go")
    for _ in range(2):
        await until(lambda: gates)
        gc.collect()
        gate = gates.pop()()
        assert gate is not None
        gate.set()
        del gate
    await until(lambda: not WORKING)
    assert len(model.requests) == 2


@pytest.mark.parametrize("first", ["reader", "waiter"])
async def test_waiting_takes_nothing_away_from_a_reader(first: str) -> None:
    handle = session(MANY).start("go")
    if first == "reader":
        reading, waiting = asyncio.ensure_future(read(handle)), asyncio.ensure_future(handle.wait())
    else:
        waiting, reading = asyncio.ensure_future(handle.wait()), asyncio.ensure_future(read(handle))
    assert text(await reading) == WHOLE
    assert (await waiting).text == WHOLE


async def test_a_reader_that_just_breaks_out_is_gone_too() -> None:
    handle = session(MANY).start("go")
    async for _ in handle:
        break
    async with asyncio.timeout(PATIENCE):
        assert (await handle.wait()).text == WHOLE


async def test_two_readers_share_the_notices() -> None:
    handle = session(MANY).start("go")
    seen: list[tuple[int, Notice]] = []

    async def watch(reader: int) -> None:
        async for notice in handle:
            seen.append((reader, notice))
            await asyncio.sleep(0)

    await asyncio.gather(watch(1), watch(2))
    assert {reader for reader, _ in seen} == {1, 2}
    assert text([notice for _, notice in seen]) == WHOLE


async def test_a_reader_that_is_cancelled_leaves_the_rest_to_the_next() -> None:
    handle = session(says("a b c"), says("d")).start("go")
    reading = asyncio.ensure_future(read(handle))
    await turns(4)
    reading.cancel()
    await asyncio.wait({reading})
    rest = await read(handle)
    assert isinstance(rest[-1], RunEnded)
    assert handle.reason is DoneReason.END_TURN


@pytest.mark.parametrize("moment", range(14))
async def test_a_handle_that_is_closed_at_any_moment_lets_all_go(moment: int) -> None:
    mine = session(stalls("half"), stalls("again"))
    handle = mine.start("go")
    reading = asyncio.ensure_future(read(handle))
    await turns(moment)
    await handle.close()
    await handle.close()
    async with asyncio.timeout(PATIENCE):
        await reading
    assert handle.done
    if not moment:
        with pytest.raises(SessionClosed):  # it had not begun
            await handle.wait()
        return
    assert (await handle.wait()).reason is None
    again = mine.start()
    async for notice in again:
        if isinstance(notice, TextDelta):
            break
    await again.interrupt()
    assert (await again.wait()).reason is DoneReason.INTERRUPTED


async def test_leaving_the_context_leaves_the_run() -> None:
    mine = session(stalls("half"), says("whole"))
    async with mine.start("go") as handle:
        async for notice in handle:
            if isinstance(notice, TextDelta):
                break
    assert (mine.unfinished, mine.running, handle.done, handle.reason) == (True, False, True, None)
    assert (await mine.resume()).text == "whole"


async def test_an_error_is_raised_to_each_reader_and_waiter() -> None:
    store = FaultyStore()
    mine = session(stalls("half"), store=store)
    handle = mine.start("go")
    reading, waiting = asyncio.ensure_future(read(handle)), asyncio.ensure_future(handle.wait())
    await until(lambda: mine.running)
    store.works = False
    await handle.interrupt()
    for each in (reading, waiting, read(handle), handle.wait()):
        with pytest.raises(StoreError, match="no space left"):
            await each
    await handle.close()


async def test_an_error_that_was_raised_to_no_caller_is_raised_by_closing() -> None:
    handle = session(says("hi"), store=FaultyStore(works=False)).start("go")
    await until(lambda: handle.done)
    with pytest.raises(StoreError, match="no space left"):
        await handle.close()
    await handle.close()


async def test_what_was_over_before_is_not_told_as_its_own() -> None:
    mine = session(says("one"), says("two"), says("three"), store=Slow())
    await mine.run("first")
    handle = mine.start("second")
    assert (handle.reason, handle.turns) == (None, 0)
    notices = []
    async for notice in handle:
        notices.append(type(notice))
        if isinstance(notice, RunStarted):
            assert (handle.reason, handle.turns) == (None, 0)
            await mine.send("third")
    # Neither what comes behind it.
    assert [notices.count(kind) for kind in (RunStarted, RunEnded)] == [1, 1]
    assert (handle.done, handle.reason, handle.turns) == (True, DoneReason.END_TURN, 1)
    await until(lambda: mine.result().text == "three")
    assert (await handle.wait()).text == "two"
    await mine.close()


async def test_a_run_that_is_gone_on_with_has_its_whole_account() -> None:
    mine = session(calls(("pay", {})), says("done"))
    resting = await mine.run("go")
    handle = mine.start()
    assert (handle.reason, handle.turns) == (None, 1)
    await mine.approve(resting.waiting[0].id)
    assert (await handle.wait()).spent.turns == 2


async def test_a_handle_that_is_closed_leaves_its_own_run_and_no_other() -> None:
    mine = session(stalls("one"), stalls("two"))
    handle = mine.start("FIRST")
    await until(lambda: mine.running)
    await mine.send("SECOND")
    other = mine.start("THIRD")
    await turns(5)
    await other.close()
    await other.interrupt()
    assert (mine.running, handle.done, other.done) == (True, False, True)
    await handle.close()
    assert (mine.running, mine.unfinished, handle.done) == (False, True, True)
    assert [mail.text for mail in mine.queue] == ["SECOND", "THIRD"]
    await mine.close()


# What is called first is first, also before the run has had its first turn


@pytest.mark.parametrize("kept", [Slow, MemoryStore])
async def test_what_is_called_behind_a_start_comes_behind_it(kept: Callable[[], Store]) -> None:
    mine = session(*ANSWERS, store=kept())
    handle = mine.start("first")
    later = [asyncio.ensure_future(mine.send(text)) for text in ("third", "fourth")]
    await mine.send("second")
    await asyncio.gather(*later)
    await mine.send("fifth")
    assert (await handle.wait()).text == "answer 1"
    await until(lambda: mine.result().text == "answer 5")
    assert said(mine) == ["first", "second", "third", "fourth", "fifth"]
    await mine.close()


async def test_a_steer_behind_a_start_is_for_its_run() -> None:
    mine = session(calls(("pay", {})), says("done"), store=Slow())
    handle = mine.start("first")
    await mine.steer("second")
    notices = await read(handle)
    assert said(mine) == ["first", "second"]
    assert len([notice for notice in notices if isinstance(notice, RunStarted)]) == 1


async def test_a_handle_speaks_to_its_run_and_begins_another_one_once_that_is_over() -> None:
    mine = session(calls(("pay", {})), *ANSWERS)
    handle = mine.start("first")
    assert await handle.steer("second", id="the steer") == "the steer"
    await mine.control(SetMode(PermissionMode.BYPASS))
    assert (await handle.wait()).text == "answer 1"
    assert mine.machine is not None
    assert mine.machine.memory.session.mode is PermissionMode.BYPASS
    await read(handle)
    for speak, answer in ((handle.steer, "answer 2"), (handle.send, "answer 3")):
        await speak(f"before {answer}")
        assert not handle.done
        notices = await read(handle)
        assert (type(notices[0]), type(notices[-1])) == (RunStarted, RunEnded)
        assert (await handle.wait()).text == answer
    assert (handle.done, handle.reason, handle.turns) == (True, DoneReason.END_TURN, 4)
    assert said(mine) == ["first", "second", "before answer 2", "before answer 3"]
    await mine.close()


@pytest.mark.parametrize(
    "call", [lambda mine: mine.run("second"), lambda mine: mine.branch("")], ids=["run", "branch"]
)
async def test_a_start_has_the_session_before_what_is_called_behind_it(
    call: Callable[[Session], Awaitable[object]],
) -> None:
    mine = session(*ANSWERS, store=Slow())
    handle = mine.start("first")
    with pytest.raises(SessionBusy):
        await call(mine)
    assert ((await handle.wait()).text, said(mine)) == ("answer 1", ["first"])


async def test_a_start_that_is_given_up_lets_pass_what_is_behind_it() -> None:
    mine = session(*ANSWERS, store=Slow())
    for moment in range(8):
        handle = mine.start("never")
        sending = asyncio.ensure_future(mine.send(f"{moment}"))
        giving_up = asyncio.ensure_future(mine.send("not this"))
        await turns(moment)
        giving_up.cancel()
        await handle.close()
        async with asyncio.timeout(PATIENCE):
            await sending
        assert (await mine.resume()).reason is DoneReason.END_TURN, moment


async def test_a_drain_behind_a_start_refuses_it() -> None:
    drained = 0
    for moment in range(12):
        agent = Agent(model="scripted", store=Slow(), performers={CallModel: ScriptedModel(*ANSWERS)})
        handle = (mine := agent.session("s")).start("go")
        await turns(moment)
        await agent.drain()
        try:
            # Where the drain came to a run that was just being opened, the next process answers.
            assert (await handle.wait()).text == ("" if mine.unfinished else "answer 1")
        except SessionClosed:
            drained += 1
            assert not mine.unfinished
    assert 1 < drained < 12


# One agent for all channels


async def test_what_comes_in_through_many_channels_is_answered_in_its_order() -> None:
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


@pytest.mark.parametrize(
    ("longest", "asked"),
    [
        (0.0, ["1\n3", "2\n6", "4", "5", "7"]),
        (10.0, ["1", "2", "3", "4", "5", "6", "7"]),  # in the order in which they came
    ],
)
async def test_what_one_sender_says_in_a_row_is_one_prompt(longest: float, asked: list[str]) -> None:
    mine = session(*ANSWERS, policy=Policy(coalesce=2.0, coalesce_longest=longest))
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
    assert said(mine) == asked


@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_only_so_many_may_wait(limit: int) -> None:
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
    with pytest.raises(ConfigError, match=f"max_queue must be at least 1; got {wrong}"):
        Singleton(session(), max_queue=wrong)


async def test_what_is_refused_keeps_no_caller_waiting() -> None:
    async with Singleton(session()) as one:
        await one.idle()
        with pytest.raises(ConfigError, match="the prompt is empty"):
            await one.post(" ")
        async with asyncio.timeout(PATIENCE):
            await one.idle()


async def test_who_waits_for_idleness_has_what_was_accepted_before_answered() -> None:
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
    store = MemoryStore()
    mine = session(*ANSWERS, store=store)
    async with Singleton(mine, poll=0.0) as one:
        await one.idle()
        await session(store=store).send("from elsewhere")
        await until(lambda: mine.machine is not None)
        await one.idle()
    assert said(mine) == ["from elsewhere"]


async def test_without_a_store_what_is_sent_past_it_is_answered_too() -> None:
    model = ScriptedModel(*ANSWERS)
    mine = Agent(model="scripted", performers={CallModel: model}, clock=AutoClock(100.0)).session("s")
    async with Singleton(mine, poll=0.0) as one:
        await one.post("one")
        await one.idle()
        await mine.send("two")
        await until(lambda: len(model.requests) > 1)
        await one.idle()
    assert said(mine) == ["one", "two"]


async def test_a_run_that_fails_does_not_end_the_work() -> None:
    mine = session(fails(Failure.AUTH), says("fine"))
    async with Singleton(mine) as one:
        await one.post("first")
        await one.idle()
        assert mine.result().reason is DoneReason.ERROR
        await one.post("second")
        await one.idle()
        assert mine.result().text == "fine"


async def test_a_question_holds_up_the_work_until_it_is_answered() -> None:
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


async def test_leaving_at_any_moment_loses_nothing() -> None:
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


async def test_what_is_posted_before_the_work_begins_waits_for_it_and_after_its_end_is_refused() -> None:
    mine = session(says("hi"))
    one = Singleton(mine)
    await one.idle()
    await one.post("early")
    async with one:
        await one.idle()
        assert mine.result().text == "hi"
    await one.idle()
    with pytest.raises(SessionClosed, match="session 's' is closed"):
        await one.post("more")


async def test_an_error_ends_the_work_and_is_raised_to_each_caller() -> None:
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
    mine = session(stalls("half"))
    async with Singleton(mine) as one:
        await one.post("first")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await one.idle()


# A run that is left


async def heard(stream: AsyncIterator[Notice], *, stay: bool = False) -> None:
    """Read *stream* to the first words, and *stay* there."""
    async for notice in stream:
        if isinstance(notice, TextDelta):
            break
    if stay:
        await asyncio.Event().wait()


@pytest.mark.parametrize("leaves", ["aclose", "dropped", "cancelled"])
async def test_a_run_whose_stream_is_left_goes_on_where_its_caller_said_so(leaves: str) -> None:
    mine = session(MANY)
    watched = mine.subscribe()
    match leaves:
        case "aclose":
            stream = mine.stream("go", on_leave="continue")
            await heard(stream)
            await stream.aclose()
        case "dropped":
            await heard(mine.stream("go", on_leave="continue"))
        case _:
            reading = asyncio.ensure_future(heard(mine.stream("go", on_leave="continue"), stay=True))
            await heard(watched)
            reading.cancel()
            await asyncio.wait({reading})
    async with asyncio.timeout(PATIENCE):
        async for notice in watched:
            if isinstance(notice, RunEnded):
                break
    assert (mine.result().text, mine.result().reason) == (WHOLE, DoneReason.END_TURN)
    await mine.close()


def test_what_becomes_of_a_run_that_is_left_is_one_of_two_things() -> None:
    with pytest.raises(ConfigError, match="OnLeave must be one of leave, continue; got 'stay'"):
        session(MANY).stream("go", on_leave="stay")


async def left_by(how: str, mine: Session, store: FaultyStore, there: Session) -> None:
    """Have the run of *mine* left, in the way *how*."""
    stream = mine.stream("go")
    async for notice in stream:
        if isinstance(notice, TextDelta):
            break
    match how:
        case "left":
            await stream.aclose()
        case "closed":
            await mine.close()
        case "drained":
            await mine.drain(within=0.0)
        case "taken_over":
            await there.load()
            going_on = asyncio.ensure_future(there.resume(takeover=True))
            with pytest.raises(StoreConflict):
                [notice async for notice in stream]
            await there.close()
            with pytest.raises(SessionClosed):
                await going_on
        case _:
            store.works = False
            await mine.interrupt()
            with pytest.raises(StoreError):
                [notice async for notice in stream]


@pytest.mark.parametrize(
    ("how", "detail"),
    [
        ("left", ""),
        ("closed", ""),
        ("drained", ""),
        ("failed", "StoreError: no space left on the device of this test"),
        ("taken_over", "session 's'"),
    ],
)
async def test_who_watches_is_told_that_a_run_was_left(how: str, detail: str) -> None:
    store = FaultyStore()
    mine, there = (session(stalls("half"), store=store) for _ in range(2))
    watched = mine.subscribe()
    await left_by(how, mine, store, there)
    await mine.close()
    told = [notice async for notice in watched]
    left = told[-1]
    assert mine.machine is not None
    assert isinstance(left, RunLeft)
    assert (left.run, left.why) == (mine.machine.memory.run, LeftBecause(how))
    assert left.detail.startswith(detail)
    assert [notice for notice in told if isinstance(notice, RunLeft)] == [left]


async def test_a_run_that_rests_was_not_left() -> None:
    mine = session(calls(("pay", {})))
    watched = mine.subscribe()
    assert (await mine.run("go")).waiting
    await mine.close()
    assert RunLeft not in [type(notice) async for notice in watched]


@pytest.mark.parametrize("closes", [True, False])
async def test_a_stream_of_an_agent_that_is_left_ends_its_run(closes: bool) -> None:  # noqa: FBT001  # both
    agent = Agent(
        model="scripted", store=(store := MemoryStore()), performers={CallModel: ScriptedModel(MANY)}
    )
    stream = agent.stream("go")
    async for notice in stream:
        if isinstance(notice, TextDelta):
            break
    if closes:
        await stream.aclose()
    del stream
    async with asyncio.timeout(PATIENCE):
        while not (found := await listed(store)) or found[0].about.reason is None:
            await turns(1)
    assert [one.about.reason for one in found] == [DoneReason.ABORTED]


# What an attack found


class Lossy(Slow):
    """As `Slow`; an append of an entry with *mark* is stored, and then fails."""

    mark = b""

    async def append(
        self,
        session: str,
        expected: int,
        entries: Sequence[bytes],
        about: bytes | None = None,
        incarnation: str = "",
    ) -> str:
        there = await super().append(session, expected, entries, about, incarnation)
        if self.mark and any(self.mark in entry for entry in entries):
            self.mark = b""
            msg = "the answer was lost"
            raise StoreError(msg)
        return there


@pytest.mark.parametrize("moment", range(1, 30))
async def test_a_session_that_is_read_while_its_work_stops_counts_no_entry_twice(moment: int) -> None:
    mine = session(*ANSWERS, store=(store := Slow()))
    await left_at(moment, mine)
    await mine.load()
    await mine.send("go", id="go")
    await until(lambda: not mine.running)
    if mine.unfinished or mine.queue:
        await mine.resume()
    assert (await mine.run("again")).reason is DoneReason.END_TURN
    assert fold(await store.load("s"), "s").machine == mine.machine


async def left_at(moment: int, mine: Session) -> None:
    """Have the run of *mine* read for so many turns, and its stream dropped; its work may go on stopping."""

    async def read_slowly() -> None:
        async for _ in mine.stream("go", id="go"):
            await turns(1)

    reading = asyncio.ensure_future(read_slowly())
    await turns(moment)
    reading.cancel()
    await asyncio.wait({reading})


@pytest.mark.parametrize("mark", [b'"ModelFinished"', b'"RunOpened"'])
async def test_a_step_whose_append_failed_although_it_is_stored_is_told(mark: bytes) -> None:
    mine = session(says("hello"), store=(store := Lossy()))
    store.mark = mark
    watched = mine.subscribe()
    with pytest.raises(StoreError, match="was lost"):
        await mine.run("go")
    await mine.close()
    told = [notice async for notice in watched if isinstance(notice, RunEnded | RunLeft)]
    assert [type(notice) for notice in told] == [RunEnded if b"Model" in mark else RunLeft]
    assert mine.machine is not None
    assert [notice.run for notice in told] == [mine.machine.memory.run]


@pytest.mark.parametrize("moment", range(40))
@pytest.mark.parametrize("how", ["close", "leave", "drain"])
async def test_each_run_that_began_ends_for_who_watches_whenever_it_is_left(how: str, moment: int) -> None:
    mine = session(calls(("pay", {})), *ANSWERS, store=Slow(), policy=Policy(mode=PermissionMode.BYPASS))
    watched = mine.subscribe()
    handle = mine.start("go")
    await turns(moment)
    match how:
        case "close":
            await mine.close()
        case "leave":
            await handle.close()
        case _:
            await mine.drain(within=0.0)
    await mine.close()
    told = [notice async for notice in watched]
    begun = [notice.run for notice in told if isinstance(notice, RunStarted)]
    over = [notice.run for notice in told if isinstance(notice, RunEnded | RunLeft)]
    assert over == begun or not begun
    assert len(over) <= 1


async def test_an_interrupt_while_a_run_stops_its_work_is_kept() -> None:
    held, begun = asyncio.Event(), asyncio.Event()

    @tool(side_effect="read_only")
    async def dig() -> str:
        """Dig."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await held.wait()
        return "dug"

    agent = Agent(
        model="scripted",
        tools=[dig],
        store=MemoryStore(),
        performers={CallModel: ScriptedModel(calls(("dig", {})), says("done"))},
    )
    async with agent.session("s") as mine:
        running = asyncio.ensure_future(mine.run("go"))
        await begun.wait()
        running.cancel()
        await turns(5)
        await mine.interrupt()
        held.set()
        await asyncio.wait({running})
        assert (await mine.resume()).reason is DoneReason.INTERRUPTED


async def test_an_interrupt_of_a_run_that_is_over_begins_no_other() -> None:
    mine = session(says("one"), says("two"))
    await mine.send("first")
    stream = mine.stream("second")
    async for notice in stream:
        if isinstance(notice, TurnEnded):
            break
    await turns(20)
    await mine.interrupt()
    await turns(20)
    assert [mail.text for mail in mine.queue] == ["second"]
    await stream.aclose()
    await mine.close()


async def test_the_error_of_a_later_run_is_the_handles_and_those_of_others_are_not() -> None:
    mine = session(*ANSWERS, store=(store := Lossy()))
    handle = mine.start("first")
    await handle.wait()
    store.mark = b'"ModelFinished"'
    await handle.send("second")
    with pytest.raises(StoreError, match="was lost"):
        await handle.wait()
    other = mine.start("third")
    await other.wait()
    store.mark = b'"ModelFinished"'
    await mine.send("of others", start=True)
    await until(lambda: not store.mark and not mine.running)
    assert (await other.wait()).text == "answer 3"
    await mine.close()


async def test_the_error_of_a_later_run_is_raised_by_closing() -> None:
    mine = session(*ANSWERS, store=(store := Lossy()))
    handle = mine.start("first")
    await handle.wait()
    store.mark = b'"ModelFinished"'
    await handle.send("second")
    await until(lambda: not store.mark and handle.done)
    with pytest.raises(StoreError, match="was lost"):
        await handle.close()
    await mine.close()


async def test_a_handle_stops_nothing_of_others() -> None:
    mine = session(says("one"), calls(("pay", {})))
    handle = mine.start("first")
    await handle.wait()
    resting = await mine.run("of others")
    await handle.interrupt()
    await handle.close()
    assert [question.id for question in mine.waiting] == [question.id for question in resting.waiting]
    assert ((await handle.wait()).text, handle.turns) == ("one", 1)


async def test_closing_a_handle_leaves_what_its_send_began_and_keeps_its_account() -> None:
    mine = session(says("one"), stalls("half"))
    handle = mine.start("first")
    await handle.wait()
    await handle.send("second")
    async for notice in handle:
        if isinstance(notice, TextDelta) and notice.text == "half":
            break
    await handle.close()
    assert (mine.running, mine.unfinished, handle.done, handle.reason) == (False, True, True, None)
    assert handle.turns == 1
    assert (await handle.wait()).text == ""
    await mine.close()


async def test_a_handle_does_not_wait_for_a_task_of_others() -> None:
    mine = session(says("one"), stalls("two"))

    async def other() -> None:
        await mine.run("of others")
        await asyncio.Event().wait()

    task = asyncio.ensure_future(other())
    await until(lambda: mine.running)
    handle = mine.start("mine")
    async for notice in handle:
        if isinstance(notice, TextDelta):
            break
    async with asyncio.timeout(PATIENCE):
        await handle.close()
    task.cancel()
    await asyncio.wait({task})


async def test_a_tool_may_close_the_stream_that_it_works_for() -> None:
    streams: list[RunStream] = []

    @tool(side_effect="read_only")
    async def leave() -> str:
        """Leave."""
        await streams[0].aclose()
        return "left"

    agent = Agent(
        model="scripted",
        tools=[leave],
        store=MemoryStore(),
        performers={CallModel: ScriptedModel(calls(("leave", {})))},
    )
    async with asyncio.timeout(PATIENCE), agent.session("s") as mine:
        streams.append(mine.stream("go"))
        assert RunEnded not in [type(notice) async for notice in streams[0]]
        assert mine.unfinished


async def test_a_session_that_is_closed_while_a_run_is_being_opened_is_free() -> None:
    for moment in range(12):
        agent = Agent(model="scripted", store=Slow(), performers={CallModel: ScriptedModel(*ANSWERS)})
        mine = agent.session("s")
        running = asyncio.ensure_future(mine.run("go"))
        await turns(moment)
        await mine.close()
        there = agent.session("s")
        await there.load()
        result = await (there.resume() if there.unfinished else there.run("again"))
        assert result.reason is DoneReason.END_TURN
        await there.close()
        await asyncio.wait({running})
        with suppress(SessionClosed):
            running.result()


@pytest.mark.parametrize("moment", range(12))
async def test_a_prompt_behind_a_run_that_was_given_up_before_it_began_is_answered(moment: int) -> None:
    mine = session(*ANSWERS, store=Slow())
    first, second = mine.start("first"), mine.start("second")
    await turns(moment)
    await first.close()
    async with asyncio.timeout(PATIENCE):
        try:
            assert (await second.wait()).reason is DoneReason.END_TURN
        except SessionBusy:  # behind the run that was given up
            assert mine.unfinished
    await mine.close()
