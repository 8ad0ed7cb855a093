"""The spans of runs: thirteen stories, each with its tree as it was recorded."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import attrs
import pytest
from opentelemetry.trace import use_span
from support.traced import START, World, tree

from turnwheel import Agent, ChildSpec, Policy, tool
from turnwheel.effects import Failure, RetryScheduled, Steering, TextDelta
from turnwheel.effects.errors import StoreConflict
from turnwheel.testing import calls, fails, says, stalls

RECORDED = Path(__file__).parent / "spans.txt"
"""The trees of all stories; RECORD=1 writes it anew."""


# The stories


async def retry(world: World) -> None:
    agent = world.agent(fails(Failure.RATE_LIMIT, retry_after=30), says("Hello."))
    async for notice in agent.session("s").stream("Hi."):
        if isinstance(notice, RetryScheduled):
            world.clock.move(notice.due - world.clock.now())


async def fallback(world: World) -> None:
    agent = world.agent(fails(Failure.NOT_FOUND), says("Hello."), fallback="anthropic:m2")
    await agent.session("s").run("Hi.")


async def parallel(world: World) -> None:
    turn = asyncio.Event()

    @tool(side_effect="read_only")
    async def first() -> str:
        await turn.wait()
        world.clock.move(2.0)
        return "one"

    @tool(side_effect="read_only")
    async def second() -> str:
        world.clock.move(1.0)
        turn.set()
        msg = "no luck"
        raise ValueError(msg)

    agent = world.agent(
        calls(("first", {}), ("second", {})),
        says("Done."),
        tools=[first, second],
        policy=Policy(concurrency="parallel"),
    )
    await agent.session("s").run("Both.")


@tool(side_effect="read_only")
def look(where: str) -> str:
    """Look at a place."""
    return f"{where} is quiet"


async def child(world: World) -> None:
    agent = world.agent(
        calls(("run_agent", {"agent": "scout", "prompt": "the mill"})),
        calls(("look", {"where": "the mill"})),
        says("Quiet."),
        says("All is quiet."),
        tools=[look],
        children=[ChildSpec("scout", description="looks", tools=["look"])],
    )
    await agent.session("s").run("How is it?")


@tool
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


async def approval(world: World) -> None:
    resting = await world.agent(calls(("pay", {"cents": 5})), tools=[pay]).session("s").run("Pay.")
    world.clock.move(86_400.0)
    session = await world.agent(says("Paid."), tools=[pay]).session("s").load()
    await session.approve(resting.waiting[0].id, by="Ann")
    await session.resume()


async def takeover(world: World) -> None:
    began, tries = asyncio.Event(), 0

    @tool(side_effect="read_only")
    async def fetch() -> str:
        nonlocal tries
        tries += 1
        if tries == 1:
            began.set()
            await asyncio.Event().wait()
        world.clock.move(1.0)
        return "here"

    lost = asyncio.ensure_future(world.agent(calls(("fetch", {})), tools=[fetch]).session("s").run("Fetch."))
    await began.wait()
    world.clock.move(60.0)
    await world.agent(says("Fetched."), tools=[fetch]).session("s").resume(takeover=True)
    world.clock.move(60.0)
    # It learns that it has lost the session when it looks at its lease.
    with pytest.raises(StoreConflict):
        await lost


async def compaction(world: World) -> None:
    agent = world.agent(says("One."), fails(Failure.OVERFLOW), says("Two."))
    session = agent.session("s")
    await session.run("First. " * 500)
    await session.run("Second.")


async def error(world: World) -> None:
    await world.agent(fails(Failure.AUTH)).session("s").run("Hi.")


async def steer(world: World) -> None:
    agent = world.agent(stalls("Once upon "), says("Twice."))
    session = agent.session("s")
    async for notice in session.stream("Tell me."):
        if isinstance(notice, TextDelta) and notice.text == "Once upon ":
            host = world.provider.get_tracer("host").start_span("POST /steer", start_time=int(START * 1e9))
            with use_span(host):
                await session.steer("Twice!", Steering.NOW)
            host.end(int((START + 1) * 1e9))


@attrs.frozen
class Person:
    name: str
    age: int


async def structured_retry(world: World) -> None:
    agent = world.agent(says('{"name": "Ann"}'), says('{"name": "Ann", "age": 7}'))
    assert (await agent.session("s").run("Who?", output=Person)).output == Person("Ann", 7)


async def ask_for_title(agent: Agent) -> str:
    """Run a session until the model has been asked for its title; what that is in the end."""
    async with agent.session("s") as session:
        await session.run("Hi.")
        for _ in range(100):
            await asyncio.sleep(0)
    return session.title


async def title(world: World) -> None:
    agent = world.agent(says("Hello."), says("A Friendly Greeting"), titles="model")
    assert await ask_for_title(agent) == "A Friendly Greeting"


async def title_that_failed(world: World) -> None:
    assert await ask_for_title(world.agent(says("Hello."), fails(Failure.AUTH), titles="model")) == "Hi."


async def title_nobody_waits_for(world: World) -> None:
    agent = world.agent(says("Hello."), stalls("A Fr"), titles="model", store=None)
    assert await ask_for_title(agent) == ""


STORIES: tuple[Callable[[World], Awaitable[None]], ...] = (
    *(retry, fallback, parallel, child, approval, takeover, compaction, error, steer, structured_retry),
    *(title, title_that_failed, title_nobody_waits_for),
)


def recorded() -> Mapping[str, str]:
    parts = RECORDED.read_text("utf-8").split("\n\n") if RECORDED.exists() else []
    return dict(part.strip().split("\n", 1) for part in parts)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_a_story_has_the_spans_that_were_recorded(story: Callable[[World], Awaitable[None]]) -> None:
    world = World()
    await story(world)
    seen = tree(await world.spans())
    if os.environ.get("RECORD"):
        all_stories = {**recorded(), f"# {story.__name__}": seen}
        order = [f"# {each.__name__}" for each in STORIES]
        parts = [f"{name}\n{all_stories[name]}" for name in order if name in all_stories]
        RECORDED.write_text("\n\n".join(parts) + "\n", "utf-8")
    assert seen == recorded()[f"# {story.__name__}"]
