"""``python -m hosts.worker STORE FOLDER PACE``: serves the suite's agent, and prints its address."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import uvicorn

from hosts.desk import make_agent
from hosts.processes import open_store
from turnwheel.apps import create_app


async def main(place: str, folder: Path, pace: float) -> None:
    """Serve until the process is ended."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    app = create_app(make_agent(folder, pace, cwd=folder), open_store(place))

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)

    await Server(uvicorn.Config(app, log_config=None, access_log=False)).serve([listening])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])))
