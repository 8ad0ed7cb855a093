"""A balancer before workers, which gives up those that do not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress

import httpx
from support.proxy import Proxy

# Seconds between two looks at a worker, and for its answer: one that has a lot to do is not given up.
LOOK, ANSWER = 0.2, 2.0


@asynccontextmanager
async def balanced(port: int, there: Sequence[int]) -> AsyncGenerator[None]:
    """
    Share connections to *port* out over the ports *there* of workers that answer at /health.

    One that does not answer loses its connections, and gets no new ones until it does.
    """
    async with httpx.AsyncClient(trust_env=False, timeout=ANSWER) as client:
        tasks = [asyncio.create_task(_passed_on(client, port, each)) for each in there]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _passed_on(client: httpx.AsyncClient, port: int, worker: int) -> None:
    while True:
        if await _answers(client, worker):
            async with Proxy(worker, port):
                while await _answers(client, worker):  # noqa: ASYNC110  # another process
                    await asyncio.sleep(LOOK)
        await asyncio.sleep(LOOK)


async def _answers(client: httpx.AsyncClient, worker: int) -> bool:
    with suppress(httpx.TransportError):
        answer = await client.get(f"http://127.0.0.1:{worker}/health")
        return answer.is_success
    return False
