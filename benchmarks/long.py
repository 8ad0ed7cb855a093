"""
A session that went on for long: ``python -m benchmarks.long ROUNDS``.

It makes a session of so many rounds, a hundred of them a run, and does what new objects and readers do with
it. It prints one JSON object of CPU times in ms.
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from turnwheel import Agent, SQLiteStore, tool
from turnwheel.effects import CallModel
from turnwheel.engine import explain, export, replay
from turnwheel.testing import ScriptedModel, calls, says

RUN = 100
"""Rounds of a run."""

TIMES = 5
"""How often each is measured; the median counts."""

PAGE = 50
"""Steps of a page."""

MILLI = 1e3


@tool(side_effect="read_only")
async def look(number: int) -> str:
    """Look at *number*."""
    return f"{number}: {'what a tool says of a file or two. ' * 6}"


def agent(store: SQLiteStore, rounds: int = 0) -> Agent:
    """An agent over *store*, whose model makes so many *rounds* of one run."""
    replies = [*[calls(("look", {"number": number})) for number in range(rounds)], says("That was all.")]
    model = ScriptedModel(*replies)
    return Agent(performers={CallModel: model}, tools=[look], store=store)


async def took(work: Callable[[], Awaitable[object]], times: int = TIMES) -> float:
    """CPU of *work* in ms."""
    each: list[float] = []
    for _ in range(times):
        gc.collect()
        begun = time.process_time()
        await work()
        each.append((time.process_time() - begun) * MILLI)
    return statistics.median(each)


async def measured(path: Path, rounds: int) -> dict[str, float]:
    """What is done with the session ``s`` of so many *rounds*, each in ms."""
    store = SQLiteStore(path, "process")
    for _ in range(rounds // RUN):
        await agent(store, RUN).session("s").run("go")
    async with agent(store) as one:
        session = await one.session("s").load()
        if len(session.history) != 2 * rounds + 2 * (rounds // RUN):
            msg = f"a wrong session of {len(session.history)} messages"
            raise RuntimeError(msg)
        last = next(call for one in reversed(session.history) for call in one.calls)
        figures = {
            "load": await took(lambda: one.session("s").load()),
            "read": await took(lambda: _read(one)),
            "page": await took(lambda: _page(store, 2 * rounds)),
            "fork": await took(session.fork),
            "why": await took(lambda: explain(store, "s", last.id), 1),
            "export": await took(lambda: export(store, "s"), 1),
        }
        entries = await store.load("s")
        await store.append("whole", 0, entries)
        return {**figures, "whole": await took(lambda: one.session("whole").load(), 1)}


async def _read(one: Agent) -> None:
    """Load the session, and look at each of its messages."""
    tuple((await one.session("s").load()).history)


async def _page(store: SQLiteStore, since: int) -> None:
    """Replay a page of the session, from the middle of it on."""
    steps = [step async for step in replay(store, "s", since, PAGE)]
    if len(steps) != PAGE:
        msg = f"a page of {len(steps)} steps"
        raise RuntimeError(msg)


async def main(rounds: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        await measured(Path(folder, "warm.db"), RUN)
        print(json.dumps(await measured(Path(folder, "long.db"), rounds)))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
