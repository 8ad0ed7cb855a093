"""
Many sessions that wait for a person: ``python -m benchmarks.waiting SESSIONS``.

It prints one JSON object: the bytes of a session at rest (`rests`) and of one whose run waits (`waits`), as
tracemalloc counts them, and the share of a core that so many runs take which wait (`idle`), in percent.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

from turnwheel import Agent, Session, SQLiteStore, tool
from turnwheel.effects import CallModel
from turnwheel.testing import ScriptedModel, calls

SECONDS = 3.0
"""How long the waiting is measured."""

SETTLED = 0.5
"""Seconds after which a session that rests is packed."""


@tool(side_effect="unsafe")
async def pay(amount: int) -> str:
    """Pay *amount*."""
    return f"paid {amount}"


async def measured(path: Path, sessions: int, *, wait: bool) -> dict[str, float]:
    """Bytes of each of so many *sessions*, and the CPU of all while they wait."""
    model = ScriptedModel(*[calls(("pay", {"amount": 5}))] * (sessions + 1))
    async with Agent(performers={CallModel: model}, tools=[pay], store=SQLiteStore(path, "process")) as agent:
        await agent.session("warm").run("pay")
        await asyncio.sleep(SETTLED)
        gc.collect()
        tracemalloc.start()
        kept: list[Session] = [agent.session(f"s{number}") for number in range(sessions)]
        for session in kept:
            if wait:
                session.start("please pay 5")
                while not session.resting:  # noqa: ASYNC110  # no event tells of it
                    # Not 0: under tracemalloc, a loop without a pause leaves the store's thread no turn.
                    await asyncio.sleep(0.001)
            else:
                await session.run("please pay 5")
        await asyncio.sleep(SETTLED)
        gc.collect()
        each = tracemalloc.get_traced_memory()[0] / sessions
        tracemalloc.stop()
        begun = time.process_time()
        await asyncio.sleep(SECONDS)
        return {"bytes": each, "idle": (time.process_time() - begun) / SECONDS * 100}


async def main(sessions: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        rests = await measured(Path(folder, "rests.db"), sessions, wait=False)
        waits = await measured(Path(folder, "waits.db"), sessions, wait=True)
    print(json.dumps({"rests": rests["bytes"], "waits": waits["bytes"], "idle": waits["idle"]}))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
