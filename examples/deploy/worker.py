"""A worker: it takes turns until SIGTERM, and then hands over those that it has."""

import asyncio
import os
import signal
from pathlib import Path

from agents import agents

from turnwheel.apps import AbsurdWorker
from turnwheel.performers import PostgresStore


async def tell_alive() -> None:
    """Touch a file for the health check: a worker has no port to ask."""
    while True:
        Path(os.environ["ALIVE"]).touch()
        await asyncio.sleep(5)


async def main() -> None:
    dsn = os.environ["DATABASE_URL"]
    store = PostgresStore(dsn)
    worker = AbsurdWorker(dsn, agents, store)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    alive = asyncio.create_task(tell_alive())
    await worker.run()
    alive.cancel()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main())
