"""
A process that is attacked by a server, and says how much memory that took: for test_hostile_server.py.

    hostile_child.py DIALECT NAME...   prints a line for each: seconds, megabytes more at its height, its end
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from provers.hostile_server.attacks import SECRET, attacks
from provers.hostile_server.server import Hostile
from provers.streams import DIALECTS

from turnwheel import Agent, Limits, Retries
from turnwheel.testing.clocks import AutoClock


def resident(what: str) -> float:
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(what))


async def main(name: str, wanted: list[str]) -> None:
    dialect = DIALECTS[name]
    for attack in attacks():
        if attack.name not in wanted:
            continue
        async with Hostile(attack.answers(dialect)) as server:
            agent = Agent(
                model=dialect.model,
                base_url=server.url,
                api_key=SECRET,
                clock=AutoClock(),
                retries=Retries(overloaded=0, failed=0),
                limits=Limits(turns=2),
            )
            Path("/proc/self/clear_refs").write_text("5", "ascii")  # the height is what it is now
            before, begun = resident("VmRSS"), time.monotonic()
            async with agent:
                result = await agent.run("hi")
            took, height = time.monotonic() - begun, resident("VmHWM") - before
        print(
            f"{took:7.2f} s {height:7.1f} MB  {attack.name}: {result.reason} {result.detail[:100]}",
            flush=True,
        )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
