"""What comes in for an agent: one after the other, each once, from whichever channel and process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from turnwheel import DoneReason, Policy, Singleton
from turnwheel.effects.errors import QueueFull
from turnwheel.effects.messages import Binary
from turnwheel.effects.notices import (
    InputReceived,
    InputTaken,
    ModelCalled,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolOutput,
)
from turnwheel.testing.scripted import calls, says, stalls

if TYPE_CHECKING:
    from behaviour.conftest import Stage

    from turnwheel.engine.session.delivery import Subscription
    from turnwheel.testing.clocks import ManualClock


async def first(watched: Subscription, kind: type) -> None:
    """Wait for the first notice of *kind*."""
    async for notice in watched:
        if isinstance(notice, kind):
            return


@pytest.mark.behaviour("first-come-first-served")
async def test_prompts_that_come_while_a_run_is_under_way_wait_and_get_runs_of_their_own(
    stage: Stage,
) -> None:
    """In the order they came, over one conversation, and none is lost or worked on twice."""
    session = stage.session(calls(("dig", {})), says("done a"), says("done b"), says("done c"))

    async def send(_: ToolOutput) -> None:
        await session.send("b")
        await session.send("c")
        assert [mail.text for mail in session.queue] == ["b", "c"]
        stage.release()

    result = await stage.play(session, "a", on={ToolOutput: send})

    assert stage.said(session) == [
        *("user: a", "assistant: [dig]", "tool: dig done", "assistant: done a"),
        *("user: b", "assistant: done b", "user: c", "assistant: done c"),
    ]
    assert stage.order(RunStarted, InputTaken, RunEnded) == ["RunStarted", "InputTaken", "RunEnded"] * 3
    assert stage.seen(InputReceived)[0].id
    assert (result.text, session.queue) == ("done c", ())


@pytest.mark.behaviour("first-come-first-served")
async def test_what_waits_is_answered_before_what_comes_and_each_gets_its_own_result(stage: Stage) -> None:
    """Whoever runs a prompt is told what became of that one."""
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
    """While it waits, while it is worked on, afterwards, and in another process."""
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


@pytest.mark.behaviour("a-queue-outlives-its-process")
async def test_what_was_accepted_is_answered_by_whoever_comes_next(stage: Stage) -> None:
    """It is written down before it is accepted."""
    session = stage.session(stalls("once"))
    await session.send("a")
    await session.send("b")
    await stage.leave(session, None, TextDelta)
    await stage.session().send("c")

    async with stage.session(says("to a"), says("to b"), says("to c")) as session:
        assert (session.unfinished, [mail.text for mail in session.queue]) == (True, ["b", "c"])
        await stage.play(session, None)

    assert stage.shown(3) == ["user: a", "assistant: to a", "user: b", "assistant: to b", "user: c"]
    assert stage.order(RunEnded) == ["RunEnded"] * 3


@pytest.mark.behaviour("a-queue-outlives-its-process")
async def test_prompts_that_wait_are_not_stopped_by_an_interrupt(stage: Stage) -> None:
    """It is about the run that is under way."""
    session = stage.session(stalls("once"), says("to b"))

    async def send(_: TextDelta) -> None:
        if not stage.seen(InputReceived):
            await session.send("b")
            await session.interrupt()

    result = await stage.play(session, "a", on={TextDelta: send})
    assert [notice.reason for notice in stage.seen(RunEnded)] == [DoneReason.INTERRUPTED, DoneReason.END_TURN]
    assert (result.text, stage.shown(2)) == ("to b", ["user: a", "assistant: once", "user: b"])


@pytest.mark.behaviour("files-come-with-what-is-said")
async def test_files_of_a_prompt_or_a_steer_are_part_of_its_message(stage: Stage) -> None:
    """As they came, also when they waited."""
    picture = Binary(media_type="image/png", data=b"\x89PNG", name="cat.png")
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
    files = [[part for part in message.parts if isinstance(part, Binary)] for message in said]
    assert [message.text for message in said] == ["what is this?", "and this", ""]
    assert files == [[picture], [picture], [picture, picture]]


# Many senders, one agent


@pytest.mark.behaviour("one-agent-for-all-channels")
async def test_inputs_of_all_channels_are_worked_one_at_a_time_in_one_conversation(stage: Stage) -> None:
    """Whatever comes meanwhile waits; whoever posts is not kept waiting."""
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
    """What it took in before is answered."""
    stage.held = (1,)
    async with Singleton(stage.session(says("one"), says("two"), says("three")), max_queue=1) as one:
        watched = one.subscribe()
        await one.post("a")
        await first(watched, TextDelta)
        await one.post("b")
        with pytest.raises(QueueFull, match="has 1 prompts waiting"):
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
    """With nothing at work it does nothing."""
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
    """Both the run that was under way and the prompts behind it."""
    async with Singleton(stage.session(stalls("one"))) as one:
        watched = one.subscribe()
        await one.post("a")
        await first(watched, TextDelta)
        await one.post("b")

    async with Singleton(stage.session(says("to a"), says("to b"))) as one:
        await one.idle()
        assert stage.said(one.session) == ["user: a", "assistant: to a", "user: b", "assistant: to b"]


@pytest.mark.behaviour("what-one-sender-says-in-a-row-is-one")
async def test_prompts_of_one_sender_shortly_after_each_other_become_one(
    stage: Stage, wall: ManualClock
) -> None:
    """Their texts in order, with the time of the last; of another sender's none is joined."""
    script = (says("to ann"), says("to bob"), says("to ann again"))
    session = stage.session(*script, clock=wall, policy=Policy(coalesce=2.0))
    async with Singleton(session) as one:
        await one.post("first", channel="signal", group="home", sender="ann")
        wall.move(1.0)
        await one.post("hello", channel="signal", group="home", sender="bob")
        await one.post("second", channel="signal", group="home", sender="ann")
        wall.move(1.5)
        await one.post("third", channel="signal", group="home", sender="ann")
        wall.move(10.0)
        await one.post("much later", channel="signal", group="home", sender="ann")
        wall.move(10.0)
        await one.idle()
        said = [message for message in session.history if message.role == "user"]

    assert [message.text for message in said] == ["first\nsecond\nthird", "hello", "much later"]
    assert [message.at for message in said] == [102.5, 101.0, 112.5]
    assert stage.asked == 3


@pytest.mark.behaviour("what-one-sender-says-in-a-row-is-one")
async def test_what_nobody_in_particular_says_is_never_joined(stage: Stage, wall: ManualClock) -> None:
    """Nor anything, where no time is set."""
    session = stage.session(says("one"), says("two"), clock=wall, policy=Policy(coalesce=2.0))
    await session.send("a")
    await session.send("b")
    await session.resume()
    other = stage.session(says("three"), says("four"), clock=wall)
    await other.send("c", sender="ann")
    await other.send("d", sender="ann")
    await other.resume()
    assert [line for line in stage.said(other) if line.startswith("user")] == [
        *("user: a", "user: b", "user: c", "user: d")
    ]
