"""
A worker of a host: `python -m hosts.worker KIND FOLDER PACE LEASE ...` prints a line when it is at work.

    server FOLDER PACE LEASE STORE          serves the suite's agent over the store, and prints its address
    absurd FOLDER PACE LEASE STORE QUEUE    takes turns from the queue in the database of the store
    restate FOLDER PACE LEASE BIND          serves the suite's agent for a server of Restate
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from hosts.desk import SERVICE, make_agent, open_store
from hosts.newer import become_newer, is_newer
from turnwheel import Agent

# Each kind imports what it needs itself, so that a new one is soon at work, as it would be where it is used.


async def serve(agent: Agent, place: str) -> None:
    """Serve *agent* over HTTP."""
    import uvicorn  # noqa: PLC0415  # see above

    from turnwheel.apps import create_app  # noqa: PLC0415  # see above

    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    app = create_app(agent, open_store(place))

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)

    await Server(uvicorn.Config(app, log_config=None, access_log=False)).serve([listening])


async def take_turns(agent: Agent, place: str, queue: str) -> None:
    """Take the turns of *queue*."""
    from turnwheel.apps import AbsurdWorker  # noqa: PLC0415  # see above

    dsn, _, _ = place.partition("#")
    print("at work", flush=True)
    # Whole seconds. It is extended by one statement for all turns, so it may be shorter than a lease.
    claim = max(1, round(agent.lease / 2))
    await AbsurdWorker(dsn, {SERVICE: agent}, open_store(place), queue=queue, claim=claim).run()


async def serve_restate(agent: Agent, bind: str) -> None:
    """Serve *agent* for Restate at *bind*."""
    from turnwheel.apps import RestateWorker  # noqa: PLC0415  # see above

    print("at work", flush=True)
    await RestateWorker({SERVICE: agent}, beat=agent.lease / 4).serve(bind)


KINDS: Mapping[str, Callable[..., Awaitable[Any]]] = {
    "server": serve,
    "absurd": take_turns,
    "restate": serve_restate,
}


async def main(kind: str, folder: str, pace: str, lease: str, *more: str) -> None:
    """Work until the process is ended."""
    agent = make_agent(Path(folder), float(pace), cwd=Path(folder), lease=float(lease))
    await KINDS[kind](agent, *more)


def run(kind: str, *given: str) -> None:
    """As `main`, on the event loop that is best for this *kind*."""
    if kind == "restate":
        # The server writes each frame of HTTP/2 by itself, and this loop sends what comes together at once.
        import uvloop  # noqa: PLC0415  # see above

        uvloop.run(main(kind, *given))
    else:
        asyncio.run(main(kind, *given))


if __name__ == "__main__":
    if is_newer():
        become_newer()
    run(*sys.argv[1:])
