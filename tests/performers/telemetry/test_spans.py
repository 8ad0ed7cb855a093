"""The spans of runs: ten stories, each with its tree as it was recorded."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from turnwheel import Agent, ChildSpec, MemoryStore, ModelSpec, Policy, Price, tool
from turnwheel.effects import (
    Answer,
    CallModel,
    Failure,
    RetryScheduled,
    Steering,
    TextDelta,
)
from turnwheel.effects.errors import StoreConflict
from turnwheel.performers import OpenTelemetry, PerformContext
from turnwheel.testing import ManualClock, Reply, ScriptedModel, calls, fails, says, stalls

RECORDED = Path(__file__).parent / "spans.txt"
"""The trees of all stories; RECORD=1 writes it anew."""

START = 1_000.0
PRICE = Price(1, 2, source="made up", date="2026-11-21")


class World:
    """A store, a clock and an exporter, which outlive the agents that stand for processes."""

    def __init__(self, *, content: bool = False) -> None:
        self.store = MemoryStore()
        self.clock = ManualClock(START)
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.telemetry = OpenTelemetry(self.provider, content=content)

    def agent(self, *replies: Reply, **arguments: Any) -> Agent:
        """An agent in a process of its own, whose model takes a second for each answer."""
        asked = partial(self._answered, ScriptedModel(*replies))
        given: dict[str, Any] = {
            "model": ModelSpec("openai:m1", price=PRICE),
            "store": self.store,
            "clock": self.clock,
            "telemetry": self.telemetry,
            "performers": {CallModel: asked},
        }
        return Agent(**given | arguments)

    async def _answered(
        self, model: ScriptedModel, request: CallModel, scene: PerformContext
    ) -> Answer | None:
        self.clock.move(1.0)
        return await model(request, scene)

    async def spans(self) -> list[ReadableSpan]:
        assert await self.telemetry.flush()
        return [*self.exporter.get_finished_spans()]


LEFT_OUT = {"gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.stream", "gen_ai.tool.type"}
"""Attributes that tell no two spans of a kind apart; `test_conventions` has them."""


def tree(spans: Iterable[ReadableSpan]) -> str:
    """*spans* as lines: where each stands, when it was, and what it says."""
    known = [*spans]
    by_id = {span.context.span_id: span for span in known if span.context is not None}
    runs = dict[str, str]()
    lines = list[str]()

    def told(value: object) -> str:
        # Runs have random names, with which the ids of requests and calls begin.
        return re.sub(
            r"\b[0-9a-f]{12}\b", lambda name: runs.setdefault(name[0], f"run{len(runs)}"), f"{value}"
        )

    def begun(span: ReadableSpan) -> tuple[int, int, str]:
        about = span.attributes or {}
        return span.start_time or 0, span.end_time or 0, str(about.get("gen_ai.tool.call.id", span.name))

    def show(parent: int | None, depth: int) -> None:
        inner = [span for span in known if (span.parent.span_id if span.parent else None) == parent]
        for span in sorted(inner, key=begun):
            within = "  " * depth
            times = [(at or 0) / 1e9 - START for at in (span.start_time, span.end_time)]
            status = "" if span.status.is_unset else f" {span.status.status_code.name}"
            lines.append(f"{within}{span.name} ({span.kind.name}) {times[0]:g}..{times[1]:g}{status}")
            for link in span.links:
                last = by_id.get(link.context.span_id)
                lines.append(f"{within}  <- {'elsewhere' if last is None else last.name}")
            for name, value in sorted((span.attributes or {}).items()):
                if name not in LEFT_OUT:
                    lines.append(f"{within}  . {name}: {told(value)}")
            for event in span.events:
                about = {name: told(value) for name, value in (event.attributes or {}).items()}
                lines.append(
                    f"{within}  + {event.timestamp / 1e9 - START:g} {event.name} {about or ''}".rstrip()
                )
            if span.context is not None:
                show(span.context.span_id, depth + 1)

    show(None, 0)
    return "\n".join(lines)


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
            with world.provider.get_tracer("host").start_as_current_span(
                "POST /steer", start_time=int(START * 1e9)
            ) as span:
                await session.steer("Twice!", Steering.NOW)
                span.end(int((START + 1) * 1e9))


@attrs.frozen
class Person:
    name: str
    age: int


async def structured_retry(world: World) -> None:
    agent = world.agent(says('{"name": "Ann"}'), says('{"name": "Ann", "age": 7}'), output=Person)
    assert (await agent.session("s").run("Who?")).output == Person("Ann", 7)


STORIES: tuple[Callable[[World], Awaitable[None]], ...] = (
    *(retry, fallback, parallel, child, approval, takeover, compaction, error, steer, structured_retry),
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
