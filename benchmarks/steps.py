"""
Steps of many sessions in two processes on one store: ``python -m benchmarks.steps STORE SESSIONS ROUNDS``.

STORE is the address of a database, or the path of a file to be made. Each process runs its half of the
sessions at once: a model and a tool that answer after 5 ms, so that what is left is the engine and the store.
Where Absurd's tables are in the database, the same sessions are then queued for two workers. At last one
session alone runs a long turn. It prints one JSON object: steps a second over both processes, those over both
workers, milliseconds of an empty insert by the store's own driver, and what a round costs near the 10th and
near the last one, in milliseconds. What it makes in the database is dropped.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from itertools import pairwise
from statistics import median
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]  # it has none

from turnwheel import Agent, Limits, SQLiteStore, tool
from turnwheel.apps import AbsurdWorker, TurnQueue
from turnwheel.effects import CallModel, ModelFinished, StopReason, Usage
from turnwheel.effects.history import CallPiece, TextPiece
from turnwheel.engine.journal.encoding import decode_entry
from turnwheel.engine.journal.entries import time_of
from turnwheel.engine.journal.fold import fold
from turnwheel.performers import PostgresStore
from turnwheel.performers.base import PerformContext
from turnwheel.performers.stores.base import Store

PROCESSES = 2
ANSWER_SECONDS = 0.005
SCHEMA = QUEUE = "turnwheel_steps"
AGENT = "assistant"
QUIET_SECONDS = 1.0
"""When nothing was appended for so long, all sessions are over."""

LONG_ROUNDS = 1_000
"""Rounds of the turn that runs alone."""

NEAR = 50
"""Rounds that a figure is the median of."""


def opened(place: str) -> Store:
    """The store at *place*."""
    return PostgresStore(place, schema=SCHEMA) if "://" in place else SQLiteStore(place)


def agent(rounds: int, stamps: list[float] | None = None) -> Agent:
    """An agent whose model calls its tool *rounds* times; *stamps* gets the time of each request."""

    async def model(request: CallModel, scene: PerformContext) -> ModelFinished:
        if stamps is not None:
            stamps.append(time.perf_counter())
        else:
            await asyncio.sleep(ANSWER_SECONDS)
        assert scene.memory is not None
        # To count the messages would cost more in a long conversation.
        done = scene.memory.spent.turns
        over = done >= rounds
        piece = TextPiece("done") if over else CallPiece(0, f"call_{done}", "look", f'{{"number": {done}}}')
        stop = StopReason.END_TURN if over else StopReason.TOOL_USE
        usage = Usage(input=10, output=5)
        return ModelFinished(
            at=scene.clock.now(), request=request.id, usage=usage, stop=stop, pieces=(piece,)
        )

    @tool(side_effect="read_only")
    async def look(number: int) -> str:
        """Look; each time at another *number*, since the same call again and again is stopped."""
        if stamps is None:
            await asyncio.sleep(ANSWER_SECONDS)
        return f"seen {number}"

    return Agent(performers={CallModel: model}, tools=[look], limits=Limits(turns=None))


async def work(place: str, name: str, sessions: int, rounds: int) -> None:
    """What one process does: all its sessions at once, from the moment that it is told to."""
    store, runs = opened(place), agent(rounds)

    async def run(session: str) -> None:
        async with runs.session(session, store) as one:
            await one.run("go")

    # What is imported and connected with the first run is no cost of a step.
    await run(f"{name}-warm")
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    began = time.perf_counter()
    await asyncio.gather(*[run(f"{name}-{number}") for number in range(sessions)])
    took = time.perf_counter() - began
    lengths = [len(await store.load(f"{name}-{number}")) for number in range(sessions)]
    print(json.dumps({"steps": sum(lengths), "seconds": took}))
    await store.close()


def together(place: str, sessions: int, rounds: int) -> float:
    """Steps a second over all processes."""
    command = [sys.executable, "-m", "benchmarks.steps", "--work", place]
    share = str(sessions // PROCESSES)
    workers = [
        subprocess.Popen(
            [*command, f"p{number}", share, str(rounds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    for each in workers:
        assert each.stdout is not None
        each.stdout.readline()
    told = [json.loads(each.communicate("go\n")[0]) for each in workers]
    steps: int = sum(each["steps"] for each in told)
    return steps / float(max(each["seconds"] for each in told))


async def take(place: str, rounds: int) -> None:
    """What one worker does, until it is killed."""
    print("ready", flush=True)
    await AbsurdWorker(place, {AGENT: agent(rounds)}, opened(place), queue=QUEUE).run()


async def queued(place: str, sessions: int, rounds: int) -> float:
    """Steps a second over all workers, from the first turn that is queued to the last entry."""
    store = opened(place)
    names = [f"q-{number}" for number in range(sessions)]
    command = [sys.executable, "-m", "benchmarks.steps", "--take", place, str(rounds)]
    async with TurnQueue(place, {AGENT: agent(rounds)}, store, queue=QUEUE) as turns:

        async def send(name: str) -> None:
            async with turns.session(AGENT, name) as session:
                await session.send("go")

        with ExitStack() as stack:
            workers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(PROCESSES)]
            for each in workers:
                stack.enter_context(each)
                stack.callback(each.kill)
                assert each.stdout is not None
                each.stdout.readline()
            # What is imported and connected with the first turns is no cost of a step.
            await asyncio.gather(*[send(f"warm-{number}") for number in range(2 * PROCESSES)])
            await quiet(store)
            began = time.time()
            await asyncio.gather(*[send(name) for name in names])
            await quiet(store)
    journals = [await store.load(name) for name in names]
    for name, journal in zip(names, journals, strict=True):
        machine = fold(journal, name).machine
        if machine is None or not machine.done:
            msg = f"session {name} is not over: {machine}"
            raise RuntimeError(msg)
    await store.close()
    return sum(map(len, journals)) / (max(time_of(decode_entry(each[-1])) for each in journals) - began)


async def quiet(store: Store) -> None:
    """Return when nothing was appended for a while."""
    before = -1
    while (now := sum(each.length for each in await store.list())) != before:
        before = now
        await asyncio.sleep(QUIET_SECONDS)


async def alone(place: str) -> tuple[float, float]:
    """Milliseconds of a round near the 10th and near the last of a long turn, in one session."""
    stamps: list[float] = []
    store = opened(place)
    async with agent(LONG_ROUNDS, stamps).session("long", store) as one:
        await one.run("go")
    await store.close()
    rounds = [(later - earlier) * 1e3 for earlier, later in pairwise(stamps)]
    return median(rounds[10 : 10 + NEAR]), median(rounds[-NEAR:])


async def empty(place: str) -> float:
    """Milliseconds of a row that the driver inserts by itself, in a database."""
    db = await asyncpg.connect(place)
    try:
        await db.execute(f"create table {SCHEMA}.empty (id serial, body bytea)")
        body, times = b"x" * 300, list[float]()
        for _ in range(200):
            began = time.perf_counter()
            await db.execute(f"insert into {SCHEMA}.empty (body) values ($1)", body)  # noqa: S608  # of ours
            times.append((time.perf_counter() - began) * 1e3)
        return median(times)
    finally:
        await db.close()


async def has_queues(place: str) -> bool:
    """Whether Absurd's tables are in a database; then a queue is made there."""
    db = await asyncpg.connect(place)
    try:
        await db.execute(f"select absurd.create_queue('{QUEUE}')")  # of ours
    except asyncpg.InvalidSchemaNameError:
        return False
    finally:
        await db.close()
    return True


async def dropped(place: str) -> None:
    """Drop what was made in a database."""
    db = await asyncpg.connect(place)
    for made in (f"drop schema {SCHEMA} cascade", f"select absurd.drop_queue('{QUEUE}')"):
        with suppress(asyncpg.PostgresError):
            await db.execute(made)
    await db.close()


def measured(place: str, sessions: int, rounds: int) -> dict[str, Any]:
    """All figures of the store at *place*."""
    found: dict[str, Any] = {"steps a second": round(together(place, sessions, rounds))}
    if "://" in place and asyncio.run(has_queues(place)):
        found["steps a second, queued"] = round(asyncio.run(queued(place, sessions, rounds)))
    tenth, last = asyncio.run(alone(place))
    found |= {"round 10": round(tenth, 2), f"round {LONG_ROUNDS}": round(last, 2)}
    if "://" in place:
        found["empty row"] = round(asyncio.run(empty(place)), 2)
        asyncio.run(dropped(place))
    return found


if __name__ == "__main__":
    if sys.argv[1] == "--work":
        place, name, sessions, rounds = sys.argv[2:]
        asyncio.run(work(place, name, int(sessions), int(rounds)))
    elif sys.argv[1] == "--take":
        asyncio.run(take(sys.argv[2], int(sys.argv[3])))
    else:
        place, sessions, rounds = sys.argv[1:]
        print(json.dumps(measured(place, int(sessions), int(rounds)), indent=1))
