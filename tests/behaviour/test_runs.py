"""A run from its beginning to its end, and those who speak to it meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from behaviour.conftest import Stage
from support.patience import PATIENCE

from turnwheel import (
    Agent,
    DoneReason,
    Handle,
    Limits,
    MemoryStore,
    ModelSpec,
    Policy,
    Price,
    SetModel,
    SetThinking,
    Singleton,
    SQLiteStore,
    ToolContext,
    tool,
)
from turnwheel.effects import errors, events, messages
from turnwheel.effects.messages import Finish, Message
from turnwheel.effects.notices import (
    ApprovalRequested,
    CallSettled,
    LeftBecause,
    ModelCalled,
    NoticesMissed,
    RunEnded,
    RunLeft,
    RunStarted,
    TextDelta,
    ToolOutput,
    ToolStarted,
)
from turnwheel.engine.session.subscription import Subscription
from turnwheel.performers.stores.base import Store
from turnwheel.projections import AgentEvents
from turnwheel.testing.scripted import Reply, calls, fails, says, stalls
from turnwheel.testing.stores import FaultyStore

# A run and its session, as their caller sees them

MakeStore = Callable[[Path], Store]

each_store = pytest.mark.parametrize(
    "make",
    [lambda _: MemoryStore(), lambda folder: SQLiteStore(folder / "agent.db")],
    ids=["memory", "sqlite"],
)


@pytest.mark.behaviour("begins-and-ends-once")
@pytest.mark.parametrize(
    ("replies", "limits", "reason"),
    [
        ([calls(("look", {})), says("done")], Limits(), DoneReason.END_TURN),
        ([fails(events.Failure.AUTH)], Limits(), DoneReason.ERROR),
        ([calls(("look", {}))], Limits(turns=1), DoneReason.MAX_TURNS),
    ],
)
async def test_the_first_notice_says_what_a_run_works_with_and_the_last_why_it_ended(
    stage: Stage, replies: list[Reply], limits: Limits, reason: DoneReason
) -> None:
    await stage.play(stage.session(*replies, limits=limits, cwd="tests"))

    first, last = stage.notices[0], stage.notices[-1]
    assert isinstance(first, RunStarted)
    assert (first.model, first.cwd, first.mode) == ("scripted", str(Path("tests").absolute()), "default")
    assert first.tools == ("look", "put", "pay", "fail", "dig", "build")
    assert isinstance(last, RunEnded)
    assert (last.run, last.reason) == (first.run, reason)
    assert stage.order(RunStarted, RunEnded) == ["RunStarted", "RunEnded"]


@pytest.mark.behaviour("what-was-said-is-kept")
@each_store
async def test_a_session_goes_on_in_another_process_over_what_the_store_has(
    stage: Stage, make: MakeStore, tmp_path: Path
) -> None:
    store = make(tmp_path)
    async with stage.session(calls(("look", {"at": "a"})), says("one"), store=store) as session:
        await session.run("first")
        said = stage.said(session)

    if isinstance(store, SQLiteStore):
        await store.close()
        store = make(tmp_path)
    async with stage.session(says("two"), store=store) as session:
        assert stage.said(session) == said
        result = await session.run("second")

    assert stage.shown(1) == [*said, "user: second"]
    assert said == ["user: first", "assistant: [look]", "tool: saw a", "assistant: one"]
    assert (result.text, result.spent.turns) == ("two", 1)
    await store.close()


@pytest.mark.behaviour("what-was-said-is-kept")
async def test_without_a_store_a_session_lives_as_long_as_its_object(stage: Stage) -> None:
    session = stage.session(says("one"), says("two"), store=None)
    await session.run("first")
    await session.run("second")

    assert stage.shown(2) == ["user: first", "assistant: one", "user: second"]
    assert stage.session(store=None).machine is None


# Why a run ends, when, and what comes before what


@pytest.mark.behaviour("no-limit-unless-set")
@pytest.mark.parametrize("field", ["turns", "tokens", "usd", "seconds"])
@pytest.mark.parametrize("value", [0, -1])
def test_a_limit_of_nothing_is_refused(field: str, value: int) -> None:
    settings: dict[str, Any] = {field: value}
    with pytest.raises(
        errors.ConfigError, match=rf"Limits.{field} must be a number above 0, or None for no limit"
    ):
        Limits(**settings)


# What a person does to a run that is under way, or left: stop it, stop a part of it, change its settings


# An interrupt


@pytest.mark.behaviour("an-interrupt-keeps-what-was-read", "an-interrupt-stops-the-tools")
@pytest.mark.parametrize(
    ("reply", "at", "stored"),
    [
        (stalls("As far"), TextDelta, ["interrupted"]),
        (calls(("dig", {})), ToolOutput, ["tool_use", "cancelled"]),
    ],
    ids=["an answer", "a tool"],
)
async def test_what_a_person_cancelled_says_so_where_it_is_stored_and_told(
    stage: Stage, reply: Reply, at: type, stored: list[str]
) -> None:
    session, told = stage.session(reply), AgentEvents.of("s")
    await stage.play(session, on={at: lambda _: session.interrupt()})
    [event] = [event for notice in stage.notices for event in told.take(notice)]
    message = event["message"]
    assert isinstance(message, dict)
    assert message["parts"][-1] == {"type": "finish", "reason": "canceled"}
    history = [message async for message in kept(stage)]
    assert [*ends_of(history)] == stored


async def kept(stage: Stage) -> AsyncIterator[Message]:
    """The messages behind the prompt, as another process reads them from the store."""
    async with stage.session() as session:
        for message in session.history.slice(1, 9):
            yield message


def ends_of(history: Iterable[Message]) -> Iterator[str]:
    for message in history:
        yield from (part.reason.value for part in message.parts if isinstance(part, Finish))
        yield from (result.outcome.value for result in message.results)


@pytest.mark.behaviour("an-interrupt-ends-a-run-wherever-it-is")
async def test_without_a_run_an_interrupt_does_nothing(stage: Stage) -> None:
    session = stage.session(says("hello"))
    await session.interrupt()
    assert (await session.run("go")).reason is DoneReason.END_TURN


# One call


@pytest.mark.behaviour("one-call-can-be-given-up")
async def test_a_call_that_is_not_under_way_cannot_be_given_up(stage: Stage) -> None:
    session = stage.session(calls(("look", {}), ("pay", {})), says("done"))
    with pytest.raises(errors.UnknownCall, match="no call 'x' under way; there are: none"):
        await session.cancel("x")
    resting = await session.run("go")
    over = session.history[-1].calls[0].id
    for wrong in ("x", over, resting.waiting[0].id):
        with pytest.raises(errors.UnknownCall, match=f"there are: '{resting.waiting[0].call}'"):
            await session.cancel(wrong)


# Settings


@pytest.mark.behaviour("settings-change-under-way")
@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (SetModel(model=" "), errors.ConfigError, "a model has a name"),
        (SetModel(model="other"), errors.ConfigError, "the limit in USD needs a price for 'other'"),
        (SetThinking(tokens=0), errors.ConfigError, "a number of tokens above 0"),
        ("other", errors.ArgumentError, "change must be SetModel"),
    ],
)
async def test_a_change_that_cannot_be_made_is_refused_at_once(
    stage: Stage, change: Any, error: type[Exception], said: str
) -> None:
    model = ModelSpec(name="scripted", price=Price(input=1, output=1))
    session = stage.session(says("done"), model=model, limits=Limits(usd=1))
    with pytest.raises(error, match=said):
        await session.control(change)
    assert (await session.run("go")).text == "done"
    assert stage.model.requests[0].model == "scripted"


@pytest.mark.behaviour("people-wait-for-no-reader")
async def test_a_busy_reader_delays_no_interrupt_and_no_approval(stage: Stage) -> None:
    paid, stopped = asyncio.Event(), asyncio.Event()

    @tool
    async def pay() -> str:
        """Pay."""
        paid.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        raise AssertionError

    session = stage.session(calls(("pay", {})), tools=[pay])
    seen = list[type]()
    async with asyncio.timeout(PATIENCE), aclosing(session.stream("go", wait=True)) as reading:
        async for notice in reading:
            seen.append(type(notice))
            if isinstance(notice, ApprovalRequested):
                # The reader looks away until all of this has happened.
                await session.approve(notice.request)
                await paid.wait()
                await session.interrupt()
                await stopped.wait()
    assert session.result().reason is DoneReason.INTERRUPTED
    assert seen.index(ToolStarted) < seen.index(CallSettled) < seen.index(RunEnded)


# Leaving


@pytest.mark.behaviour("a-run-that-is-left-can-be-resumed")
@pytest.mark.parametrize("how", ["close", "cancel", "drop"])
async def test_who_leaves_stops_the_work_and_another_process_goes_on(stage: Stage, how: str) -> None:
    before = asyncio.all_tasks()
    session = stage.session(calls(("look", {})), stalls("half an answ"))
    watched = session.subscribe()
    running = asyncio.ensure_future(session.run("go"))
    async for notice in watched:
        if isinstance(notice, TextDelta):
            break
    if how == "close":
        await session.close()
        with pytest.raises(errors.SessionClosed):
            await running
    else:
        running.cancel()
        await asyncio.wait({running})
        await session.close()
    assert asyncio.all_tasks() == before

    other = await stage.session(says("a whole answer")).load()
    assert other.unfinished
    assert (await other.resume()).text == "a whole answer"
    assert stage.shown(1) == ["user: go", "assistant: [look]", "tool: saw"]
    assert stage.ran == ["look"]


# A process that is lost, or leaves: what becomes of what it was at


@pytest.mark.behaviour("what-may-be-done-again-is")
async def test_an_idempotent_tool_runs_again_under_its_key(stage: Stage) -> None:
    keys: list[str] = []

    @tool(side_effect="idempotent", approval="never")
    async def book(context: ToolContext[Any]) -> str:
        """Book something."""
        keys.append(context.key)
        context.progress("at it")
        if len(keys) == 1:
            await asyncio.Event().wait()
        return "booked"

    await stage.leave(stage.session(calls(("book", {})), tools=[book]), "go", ToolOutput)
    later = stage.session(says("done"), tools=[book])
    await later.resume()
    assert stage.outcomes(later) == ["book: ok"]
    assert len(keys) == 2
    assert len(set(keys)) == 1


@pytest.mark.behaviour("who-drains-begins-nothing")
async def test_what_is_at_work_ends_and_the_rest_is_for_others(stage: Stage) -> None:
    session = stage.session(calls(("dig", {}), ("build", {})))
    leaving: list[asyncio.Task[None]] = []

    async def leave(_: ToolStarted) -> None:
        leaving.append(asyncio.ensure_future(session.drain()))
        await asyncio.sleep(0)
        stage.release()

    await stage.play(session, on={ToolStarted: leave})
    await leaving[0]
    assert stage.ran == ["dig"]

    later = stage.session(says("done"))
    result = await later.resume()
    assert stage.ran == ["dig", "build"]
    assert stage.outcomes(later) == ["dig: ok", "build: ok"]
    assert (result.text, stage.asked) == ("done", 1)


@pytest.mark.behaviour("one-of-two-goes-on")
async def test_who_is_at_work_is_not_disturbed(stage: Stage) -> None:
    first, other = stage.session(calls(("dig", {})), says("done")), stage.session(says("mine"))

    async def go_on(_: ToolOutput) -> None:
        with pytest.raises(errors.SessionBusy, match="session 's' has a run under way"):
            await other.resume()
        stage.release()

    result = await stage.play(first, on={ToolOutput: go_on})
    assert (result.text, stage.outcomes(first)) == ("done", ["dig: ok"])


@pytest.mark.behaviour("one-of-two-goes-on")
async def test_who_is_overtaken_is_told(stage: Stage) -> None:
    first = stage.session(calls(("dig", {})))
    other = stage.session(says("done"), says("also done"))
    refused: list[errors.StoreConflict] = []

    async def go_on(_: ToolOutput) -> None:
        await first.send("and then")
        stage.release()
        await other.resume(takeover=True)

    try:
        await stage.play(first, on={ToolOutput: go_on})
    except errors.StoreConflict as conflict:
        refused.append(conflict)
    assert len(refused) == 1
    assert stage.said(await stage.session().load())[-2:] == ["user: and then", "assistant: also done"]


# What comes in for an agent: one after the other, each once, from whichever channel and process


async def first(watched: Subscription, kind: type) -> None:
    async for notice in watched:
        if isinstance(notice, kind):
            return


@pytest.mark.behaviour("first-come-first-served")
async def test_what_waits_is_answered_before_what_comes_and_each_gets_its_own_result(stage: Stage) -> None:
    session = stage.session(says("to a"), says("to b"), says("to c"))
    await session.send("a")

    async def send() -> str:
        return await session.send("c")

    running = asyncio.ensure_future(session.run("b"))
    sent = asyncio.ensure_future(send())
    assert (await running).text == "to b"
    await sent
    assert [line for line in stage.said(session) if line.startswith("user")] == [
        "user: a",
        "user: b",
        "user: c",
    ]


@pytest.mark.behaviour("one-post-is-one-input")
async def test_what_is_posted_twice_under_one_id_is_one_input(stage: Stage) -> None:
    session = stage.session(calls(("dig", {})), says("done"))
    assert await session.send("do it", id="mail-1") == "mail-1"
    assert await session.send("do it", id="mail-1") == "mail-1"

    async def again(_: ToolOutput) -> None:
        await session.send("do it", id="mail-1")
        await session.steer("do it", id="mail-1")
        stage.release()

    await stage.play(session, None, on={ToolOutput: again})
    await session.send("do it", id="mail-1")
    await session.close()
    session = stage.session()
    result = await session.run("do it", id="mail-1")

    assert (result.text, session.queue) == ("done", ())
    assert stage.said(session) == ["user: do it", "assistant: [dig]", "tool: dig done", "assistant: done"]


@pytest.mark.behaviour("files-come-with-what-is-said")
async def test_files_of_a_prompt_or_a_steer_are_part_of_its_message(stage: Stage) -> None:
    picture = messages.Binary(media_type="image/png", data=b"\x89PNG", name="cat.png")
    session = stage.session(
        calls(("dig", {})), says("a cat"), says("two"), policy=Policy(steering="when_done")
    )

    async def add(_: ToolOutput) -> None:
        await session.steer("and this", files=(picture,))
        await session.send("", files=(picture, picture))
        stage.release()

    running = session.start("what is this?", files=(picture,))
    async for notice in running:
        if isinstance(notice, ToolOutput):
            await add(notice)

    said = [message for message in session.history if message.role == "user"]
    files = [[part for part in message.parts if isinstance(part, messages.Binary)] for message in said]
    assert [message.text for message in said] == ["what is this?", "and this", ""]
    assert files == [[picture], [picture], [picture, picture]]


# Many senders, one agent


@pytest.mark.behaviour("one-agent-for-all-channels")
async def test_inputs_of_all_channels_are_worked_one_at_a_time_in_one_conversation(stage: Stage) -> None:
    stage.held = (1,)
    async with Singleton(stage.session(says("one"), says("two"), says("three"))) as one:
        watched = one.subscribe()
        await one.post("ring", channel="signal", group="home", sender="ann")
        await first(watched, TextDelta)
        await asyncio.gather(one.post("build failed", channel="webhook"), one.post("hi", channel="signal"))
        assert [mail.sender for mail in one.session.queue] == ["webhook//", "signal//"]
        stage.release()
        await one.idle()
        said = stage.said(one.session)

    assert said == [
        *("user: ring", "assistant: one", "user: build failed", "assistant: two"),
        *("user: hi", "assistant: three"),
    ]
    told = [
        type(notice).__name__
        async for notice in watched
        if isinstance(notice, RunStarted | ModelCalled | RunEnded)
    ]
    assert told == ["RunEnded", *["RunStarted", "ModelCalled", "RunEnded"] * 2]


@pytest.mark.behaviour("one-agent-for-all-channels")
async def test_a_full_queue_takes_nothing_in_and_says_so(stage: Stage) -> None:
    stage.held = (1,)
    async with Singleton(stage.session(says("one"), says("two"), says("three")), max_queue=1) as one:
        watched = one.subscribe()
        await one.post("a")
        await first(watched, TextDelta)
        await one.post("b")
        with pytest.raises(errors.QueueFull, match="has 1 prompts waiting"):
            await one.post("c")
        stage.release()
        await one.idle()
        await one.post("d")
        await one.idle()
        assert [line for line in stage.said(one.session) if line.startswith("user")] == [
            *("user: a", "user: b", "user: d")
        ]


@pytest.mark.behaviour("one-agent-for-all-channels")
async def test_cancelling_stops_what_is_worked_on_and_the_next_input_comes(stage: Stage) -> None:
    async with Singleton(stage.session(stalls("one"), says("two"))) as one:
        await one.cancel()
        watched = one.subscribe()
        await one.post("a")
        await first(watched, TextDelta)
        await one.post("b")
        await one.cancel()
        await one.idle()
        reasons = []
    reasons = [notice.reason async for notice in watched if isinstance(notice, RunEnded)]
    assert reasons == [DoneReason.INTERRUPTED, DoneReason.END_TURN]


@pytest.mark.behaviour("one-agent-for-all-channels")
async def test_it_goes_on_with_what_its_predecessor_left(stage: Stage) -> None:
    async with Singleton(stage.session(stalls("one"))) as one:
        watched = one.subscribe()
        await one.post("a")
        await first(watched, TextDelta)
        await one.post("b")

    async with Singleton(stage.session(says("to a"), says("to b"))) as one:
        await one.idle()
        assert stage.said(one.session) == ["user: a", "assistant: to a", "user: b", "assistant: to b"]


# A run in the background, through its handle


@pytest.mark.behaviour("a-handle-is-there-at-once")
async def test_a_run_goes_on_in_the_background_while_its_caller_does_something_else(stage: Stage) -> None:
    session = stage.session(calls(("dig", {})), says("done"))
    handle = session.start("go")
    assert (handle.done, handle.reason, stage.asked) == (False, None, 0)
    stage.release()
    while not handle.done:  # noqa: ASYNC110  # no notice tells of it to one who does not read
        await asyncio.sleep(0)
    assert (handle.reason, session.result().text) == (DoneReason.END_TURN, "done")
    notices = [notice async for notice in handle]
    assert (type(notices[0]), type(notices[-1])) == (RunStarted, RunEnded)


@pytest.mark.behaviour("a-handle-is-there-at-once")
async def test_it_tells_the_account_at_any_time_and_waiting_gives_the_result(stage: Stage) -> None:
    model = ModelSpec(name="scripted", price=Price(input=1, output=2))
    session = stage.session(calls(("dig", {})), says("done"), model=model)
    async with session.start("go") as handle:
        assert (handle.turns, handle.cost, handle.usage.total) == (0, Decimal(0), 0)
        async for notice in handle:
            if isinstance(notice, ToolOutput):
                assert (handle.turns, handle.cost, handle.usage.total) == (1, Decimal("0.00002"), 15)
                assert (handle.done, handle.reason) == (False, None)
                stage.release()
        result = await handle.wait()

    assert (result.text, result.reason, handle.reason) == ("done", DoneReason.END_TURN, DoneReason.END_TURN)
    assert (handle.spent, handle.turns, handle.cost) == (result.spent, 2, Decimal("0.00004"))
    assert handle.session == session.id


@pytest.mark.behaviour("a-started-run-waits-for-no-reader")
async def test_a_reader_that_is_slow_misses_notices_and_holds_up_no_run(stage: Stage) -> None:
    session = stage.session(says(" ".join(["word"] * 500)))
    handle = session.start("go")
    while not handle.done:  # noqa: ASYNC110  # there is no reader
        await asyncio.sleep(0)
    assert handle.reason is DoneReason.END_TURN
    notices = [notice async for notice in handle]
    missed = [notice.count for notice in notices if isinstance(notice, NoticesMissed)]
    assert (len(notices) - len(missed), type(notices[-1])) == (64, RunEnded)
    assert handle.dropped == sum(missed) > 400


@pytest.mark.behaviour("a-started-run-waits-for-no-reader")
async def test_what_is_said_meanwhile_is_part_of_the_same_stream(stage: Stage) -> None:
    session = stage.session(calls(("pay", {})), says("paid"), says("and hello"))
    handle = session.start("pay")
    ends = 0
    async for notice in handle:
        ends += isinstance(notice, RunEnded)
        if isinstance(notice, ApprovalRequested):
            await handle.send("hi")
            await session.approve(notice.request)

    assert ((await handle.wait()).text, ends, stage.ran) == ("and hello", 2, ["pay 1"])


async def full_at(kind: type, handle: Handle, store: FaultyStore) -> None:
    """Read *handle*, whose *store* is full from the first notice of *kind* on."""
    async for notice in handle:
        if isinstance(notice, kind):
            store.works = False


@pytest.mark.behaviour("a-started-run-waits-for-no-reader")
async def test_what_breaks_a_run_off_is_raised_to_the_caller_that_waits(stage: Stage) -> None:
    store = FaultyStore()
    session = stage.session(calls(("look", {})), says("lost"), says("done"), store=store)
    handle = session.start("go")
    with pytest.raises(errors.StoreError, match="no space left"):
        await full_at(CallSettled, handle, store)
    with pytest.raises(errors.StoreError, match="no space left"):
        await handle.wait()
    assert handle.done

    store.works = True
    assert (await session.start().wait()).reason is DoneReason.END_TURN


@pytest.mark.behaviour("a-started-run-waits-for-no-reader")
async def test_an_end_that_could_not_be_written_down_is_none(stage: Stage) -> None:
    store = FaultyStore()
    session = stage.session(says("done"), store=store)
    handle = session.start("go")
    with pytest.raises(errors.StoreError, match="no space left"):
        await full_at(TextDelta, handle, store)
    assert (handle.reason, session.unfinished) == (None, True)


@pytest.mark.behaviour("a-handle-stops-or-leaves")
async def test_interrupting_ends_the_run_and_closing_leaves_it(stage: Stage) -> None:
    before = asyncio.all_tasks()
    session = stage.session(stalls("once"), stalls("half"), says("whole"))
    handle = session.start("go")
    async for notice in handle:
        if isinstance(notice, TextDelta):
            await handle.interrupt()
    assert handle.reason is DoneReason.INTERRUPTED

    handle = session.start("again")
    async for notice in handle:
        if isinstance(notice, TextDelta):
            break
    await handle.close()
    await handle.close()
    assert (handle.done, handle.reason, session.unfinished) == (True, None, True)
    assert asyncio.all_tasks() == before
    assert (await session.start().wait()).text == "whole"


@pytest.mark.behaviour("what-is-called-first-is-first")
async def test_what_is_called_behind_a_start_comes_behind_it(stage: Stage) -> None:
    session = stage.session(says("one"), says("two"), stalls("three"))
    handle = session.start("first")
    await handle.send("second")
    assert (await handle.wait()).text == "two"
    assert stage.said(session) == ["user: first", "assistant: one", "user: second", "assistant: two"]

    handle = session.start("third")
    await handle.interrupt()
    assert (await handle.wait()).reason is DoneReason.INTERRUPTED


@pytest.mark.behaviour("a-handle-takes-inputs")
async def test_a_handle_takes_what_comes_later(stage: Stage) -> None:
    session = stage.session(calls(("dig", {})), *map(says, ("one", "two", "three")), models=["other"])
    handle = session.start("go")
    async for notice in handle:
        if isinstance(notice, ToolOutput):
            await handle.control(SetModel(model="other"))
            assert await handle.send("and then?", id="a") == "a"
            stage.release()
    await handle.steer("one more", id="b")
    await stage.until(lambda: stage.asked == 4 and not session.running)
    users = [line.removeprefix("user: ") for line in stage.said(session) if line.startswith("user")]
    assert users == ["go", "and then?", "one more"]
    assert [request.model for request in stage.model.requests] == ["scripted", *["other"] * 3]
    assert session.result().text == "three"


@pytest.mark.behaviour("an-input-begins-a-run-where-asked")
async def test_inputs_of_an_idle_session_begin_one_run_after_the_other(stage: Stage) -> None:
    session = stage.session(*map(says, ("one", "two", "three", "four")))
    await session.send("first")
    await asyncio.sleep(0)
    assert (session.running, len(session.queue)) == (False, 1)
    await asyncio.gather(*[session.send(text, id=text, start=True) for text in ("second", "third")])
    await session.send("second", id="second", start=True)
    await stage.until(lambda: stage.asked == 3 and not session.running)
    await session.steer("last", start=True)
    await stage.until(lambda: stage.asked == 4 and not session.running)
    users = [line for line in stage.said(session) if line.startswith("user")]
    assert users == ["user: first", "user: second", "user: third", "user: last"]
    assert (session.queue, session.result().text) == ((), "four")


@pytest.mark.behaviour("a-handle-stops-or-leaves")
async def test_one_run_at_a_time(stage: Stage) -> None:
    stage.held = (1,)
    session = stage.session(says("done"), says("and then this"))
    first, second = session.start("a"), session.start("b")
    with pytest.raises(errors.SessionBusy, match="session 's' has a run under way"):
        await session.run("c")
    stage.release()
    assert [(await handle.wait()).text for handle in (first, second)] == ["done", "and then this"]
    assert stage.said(session) == ["user: a", "assistant: done", "user: b", "assistant: and then this"]


@pytest.mark.behaviour("a-handle-follows-its-own-runs")
async def test_a_handle_follows_what_it_began_and_nothing_else(stage: Stage) -> None:
    session = stage.session(*map(says, ("one", "two", "other", "three")))
    first, second = session.start("FIRST"), session.start("SECOND")
    await session.send("OTHER")
    assert [(await handle.wait()).text for handle in (first, second)] == ["one", "two"]
    await stage.until(lambda: stage.asked == 3 and not session.running)
    assert (first.reason, first.turns, second.turns) == (DoneReason.END_TURN, 1, 1)

    await first.send("THIRD")
    assert (await first.wait()).text == "three"
    runs = [notice.run async for notice in first if isinstance(notice, RunEnded)]
    assert (len(runs), first.turns, first.usage.total) == (2, 2, 30)


@pytest.mark.behaviour("a-handle-follows-its-own-runs")
async def test_closing_a_handle_stops_its_run_and_no_other(stage: Stage) -> None:
    session = stage.session(stalls("one"))
    first, second = session.start("FIRST"), session.start("SECOND")
    await stage.until(lambda: session.running)
    await second.close()
    assert (session.running, second.done) == (True, True)
    await first.close()
    assert (session.running, session.unfinished, [mail.text for mail in session.queue]) == (
        False,
        True,
        ["SECOND"],
    )


@pytest.mark.behaviour("a-run-that-cannot-begin-says-so")
async def test_without_a_key_nothing_is_begun_or_queued(stage: Stage) -> None:
    async with Agent(model="anthropic:claude-sonnet-4-5", store=stage.store).session("s") as session:
        for begins in (session.send, session.steer):
            with pytest.raises(errors.ConfigError, match="no API key"):
                await begins("go", start=True)
        with pytest.raises(errors.ConfigError, match="no API key"):
            session.start("go")
        assert (session.queue, session.machine) == ((), None)


@pytest.mark.behaviour("a-run-that-cannot-begin-says-so")
async def test_a_store_that_fails_keeps_the_prompt_and_says_so(stage: Stage) -> None:
    store = FaultyStore()
    session = stage.session(says("done"), store=store)
    watching = session.subscribe()
    await session.send("go")
    store.works = False
    handle = session.start()
    with pytest.raises(errors.StoreError, match="no space left"):
        await handle.wait()
    left = await anext(watching)
    assert isinstance(left, RunLeft)
    assert (left.run, left.why, left.detail[:10]) == ("", LeftBecause.FAILED, "StoreError")
    assert len(session.queue) == 1


@pytest.mark.behaviour("a-run-that-is-left-says-so")
@pytest.mark.parametrize("why", ["left", "closed", "drained", "failed"])
async def test_who_watches_is_told_that_no_more_is_done_for_a_run(stage: Stage, why: str) -> None:
    store = FaultyStore()
    session = stage.session(stalls("half"), store=store)
    watching, handle = session.subscribe(), session.start("go")
    async for notice in handle:
        if isinstance(notice, TextDelta):
            break
    if why == "left":
        await handle.close()
    elif why == "drained":
        await session.drain(within=0.0)
    elif why == "failed":
        store.works = False
        await session.interrupt()
        with pytest.raises(errors.StoreError):
            await handle.wait()
    await session.close()
    told = [notice async for notice in watching]
    assert [notice.why for notice in told if isinstance(notice, RunLeft)] == [LeftBecause(why)]
    assert isinstance(told[-1], RunLeft)


@pytest.mark.behaviour("a-run-that-is-left-says-so")
async def test_the_end_of_a_run_that_was_taken_over_is_told_where_it_came_to_it(
    stage: Stage, tmp_path: Path
) -> None:
    # Of its own each, as in two processes: the first one hears of the second when that has ended the run.
    stores = [SQLiteStore(tmp_path / "s.db") for _ in range(2)]
    session = stage.session(stalls("half"), store=stores[0])
    here, handle = session.subscribe(), session.start("go")
    async for notice in handle:
        if isinstance(notice, TextDelta):
            break
    other = stage.session(says("done"), store=stores[1])
    there = other.subscribe()
    await other.resume(takeover=True)
    with pytest.raises(errors.StoreConflict):
        await handle.wait()
    told = list[list[Any]]()
    for watched, one in ((here, session), (there, other)):
        await one.close()
        told.append([notice async for notice in watched if isinstance(notice, RunEnded | RunLeft)])
    assert [type(notice) for each in told for notice in each] == [RunLeft, RunEnded]
    assert told[0][0].why is LeftBecause.TAKEN_OVER
    for store in stores:
        await store.close()


@pytest.mark.behaviour("a-run-that-is-left-says-so")
async def test_a_run_whose_reader_is_gone_goes_on_where_its_caller_said_so(stage: Stage) -> None:
    session = stage.session(calls(("look", {})), says("done"))
    watching = session.subscribe()
    async for notice in session.stream("go", on_leave="continue"):
        if isinstance(notice, ToolStarted):
            break
    ended = await anext(notice async for notice in watching if isinstance(notice, RunEnded | RunLeft))
    assert isinstance(ended, RunEnded)
    assert session.result().text == "done"
