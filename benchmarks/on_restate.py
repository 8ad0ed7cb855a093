"""
Steps of a session on Restate, beside Restate's own empty step: ``python benchmarks/on_restate.py SERVER``.

SERVER is the binary of Restate's server. Everything is started here, on ports of its own: the server, two
workers, and a service that does nothing a step. The rounds are one call of a tool that returns at once. Then
many sessions and many empty invocations are at work at once. In the end a worker is killed while many
sessions run a slow tool.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

import httpx
import restate
from hypercorn.asyncio import serve
from hypercorn.config import Config

from turnwheel import Agent, tool
from turnwheel.apps import RestateStore, RestateWorker
from turnwheel.effects import CallModel, ModelFinished, StopReason, Usage
from turnwheel.effects.history import CallPiece, TextPiece
from turnwheel.engine.journal.encoding import decode_entry
from turnwheel.engine.journal.entries import TakenOver, time_of
from turnwheel.performers.base import PerformContext

ROUNDS = 1_000
"""Rounds of one turn."""

TURNS = 300
"""Turns of one round each."""

STEPS = 200
"""Empty steps of one invocation."""

SAMPLE = 20
"""Rounds that a figure is the median of."""

AT_ONCE = 100
"""Sessions, and empty invocations, of which each has so many rounds or steps at the same time:"""

EACH = 20

SESSIONS = 40
"""Sessions at work when a worker is killed."""

WANTED: dict[str, tuple[int, float]] = {}
"""How many rounds each run is to have, and how long their tools take."""


@tool(side_effect="read_only")
async def nothing(number: int, seconds: float) -> str:
    """Do nothing, for so many *seconds*."""
    await asyncio.sleep(seconds)
    return f"done {number} by {os.getpid()}"


async def plays(request: CallModel, scene: PerformContext) -> ModelFinished:
    """Call the tool as often as the prompt says, and then say so."""
    assert scene.memory is not None
    number = scene.memory.spent.turns
    # Once a run: to look for it each time would cost more in a long one.
    if scene.run not in WANTED:
        prompt = next(message.text for message in reversed(scene.history) if message.text.startswith("["))
        WANTED[scene.run] = json.loads(prompt)
    rounds, seconds = WANTED[scene.run]
    calls, arguments = number < rounds, json.dumps({"number": number, "seconds": seconds})
    return ModelFinished(
        at=scene.clock.now(),
        request=request.id,
        stop=StopReason.TOOL_USE if calls else StopReason.END_TURN,
        usage=Usage(input=10, output=5),
        pieces=(CallPiece(0, f"call_{number}", "nothing", arguments) if calls else TextPiece("done"),),
    )


def agent() -> Agent:
    return Agent(tools=(nothing,), performers={CallModel: plays})


async def serve_empty(port: int) -> None:
    """A service of the SDK alone, whose invocation has so many empty steps as it is told."""
    service = restate.Service("empty")

    @service.handler()
    async def steps(context: restate.Context, number: int) -> float:
        async def step() -> bool:
            return True

        begun = time.perf_counter()
        for _ in range(number):
            await context.run_typed("step", step)
        return time.perf_counter() - begun

    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    await serve(restate.app([service]), config)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


async def timed(work: Awaitable[object]) -> float:
    begun = time.perf_counter()
    await work
    return time.perf_counter() - begun


async def until(does: Callable[[], Awaitable[httpx.Response]]) -> None:
    """Return when *does* answers well."""
    for _ in range(200):
        try:
            if (await does()).is_success:
                return
        except httpx.TransportError:
            pass
        await asyncio.sleep(0.05)
    sys.exit("Restate did not begin to serve")


async def measured(ingress: str, admin: str, workers: list[str]) -> None:
    store = RestateStore("assistant", ingress, admin)
    one = agent()
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        await until(partial(client.get, f"{admin}/health"))
        for worker in workers:
            await until(partial(client.post, f"{admin}/deployments", json={"uri": worker}))

        async def empty(steps: int) -> float:
            return float((await client.post(f"{ingress}/empty/steps", json=steps)).json()) / steps

        async def turn(name: str, rounds: int, seconds: float = 0.0) -> float:
            async with one.session(name, store) as session:
                await session.send(json.dumps([rounds, seconds]))
                return await timed(store.settled(name))

        floor = median([await empty(STEPS) for _ in range(5)])
        print(f"an empty step of Restate      {floor * 1e3:6.2f} ms")
        await turn("warm", 3)
        took = await turn("deep", ROUNDS)
        entries = [decode_entry(entry) for entry in await store.load("deep")]
        print(f"an entry of a session         {took / len(entries) * 1e3:6.2f} ms")
        at = [time_of(entry) for entry in entries]
        for last in (2 * SAMPLE, len(at)):
            rounds = [later - before for before, later in zip(at, at[2:], strict=False)][last - SAMPLE : last]
            print(f"a round of a turn, near {last // 2:5} {median(rounds) * 1e3:6.2f} ms")
        each = [await turn("long", 1) for _ in range(TURNS)]
        for last in (SAMPLE, TURNS // 2, TURNS):
            print(f"a turn of one round, near {last:4} {median(each[last - SAMPLE : last]) * 1e3:5.1f} ms")
        took = await timed(asyncio.gather(*[empty(EACH) for _ in range(AT_ONCE)]))
        print(f"empty steps of {AT_ONCE} at once    {AT_ONCE * EACH / took:6.0f} a second")
        many = [f"many-{number}" for number in range(AT_ONCE)]
        took = await timed(asyncio.gather(*[turn(name, EACH) for name in many]))
        kept = sum([len(await store.load(name)) for name in many])
        print(f"entries of {AT_ONCE} at once        {kept / took:6.0f} a second, in two workers")
        lost = [f"lost-{number}" for number in range(SESSIONS)]
        turns = asyncio.gather(*[turn(name, 4, 1.0) for name in lost])
        said = None
        # The first tool says which worker it is that Restate calls.
        while said is None:
            await asyncio.sleep(0.1)
            said = re.search(rb" by (\d+)", b"".join(await store.load(lost[0])))
        os.kill(int(said[1]), signal.SIGKILL)
        killed = time.time()
        await turns
        journals = [[decode_entry(entry) for entry in await store.load(name)] for name in lost]
        after = [entry.at - killed for each in journals for entry in each if isinstance(entry, TakenOver)]
        print(f"taken over after a kill       {len(after)} of {SESSIONS} sessions", end="")
        print(f", median {median(after or [0]):.2f} s, at most {max(after or [0]):.2f} s")
    await store.close()


def main() -> None:
    if sys.argv[1] == "--worker":
        asyncio.run(RestateWorker({"assistant": agent()}).serve(f"127.0.0.1:{sys.argv[2]}"))
    elif sys.argv[1] == "--empty":
        asyncio.run(serve_empty(int(sys.argv[2])))
    else:
        ports = [free_port() for _ in range(5)]
        names = ("INGRESS__BIND_ADDRESS", "ADMIN__BIND_ADDRESS", "BIND_ADDRESS")
        env = {f"RESTATE_{name}": f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=False)}
        with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
            server = [sys.argv[1], "--base-dir", folder, "--listen-mode", "tcp", "--no-logo"]
            ours = [sys.executable, __file__]
            with Path(folder, "log").open("wb") as log:
                worker = [*ours, "--worker", str(ports[3])]
                for command in (server, worker, worker, [*ours, "--empty", str(ports[4])]):
                    process = subprocess.Popen(
                        command,
                        env={**os.environ, **env, "RESTATE_DISABLE_TELEMETRY": "true"},
                        stdout=log,
                        stderr=log,
                    )
                    stack.callback(process.wait)
                    stack.callback(process.kill)
            ingress, admin, *workers = [f"http://127.0.0.1:{ports[at]}" for at in (0, 1, 3, 4)]
            asyncio.run(measured(ingress, admin, workers))


if __name__ == "__main__":
    main()
