"""The worker as a process that serves."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

import hypercorn.asyncio
import pytest

from turnwheel import Agent
from turnwheel.apps import RestateWorker
from turnwheel.effects import CallModel
from turnwheel.testing import ScriptedModel


@pytest.fixture
def worker() -> RestateWorker:
    """One without sessions."""
    return RestateWorker({"assistant": Agent(performers={CallModel: ScriptedModel()})})


async def test_a_worker_that_was_told_to_end_ends_well_though_closing_a_connection_fails(
    worker: RestateWorker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve(*_: object, shutdown_trigger: Callable[[], Awaitable[None]]) -> None:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        await shutdown_trigger()
        msg = "unhandled errors in a TaskGroup"
        raise ExceptionGroup(msg, [KeyError(7)])

    monkeypatch.setattr(hypercorn.asyncio, "serve", serve)
    await worker.serve("127.0.0.1:0")
    assert "closed a connection badly" in caplog.text


async def test_a_server_that_fails_before_the_turns_are_drained_fails_the_worker(
    worker: RestateWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def serve(*_: object, shutdown_trigger: Callable[[], Awaitable[None]]) -> None:
        draining = asyncio.ensure_future(shutdown_trigger())
        os.kill(os.getpid(), signal.SIGTERM)
        await begun.wait()
        draining.cancel()
        msg = "no file descriptors"
        raise OSError(msg)

    async def drain(_: Agent, _within: float | None = None) -> None:
        begun.set()
        await asyncio.Event().wait()

    begun = asyncio.Event()
    monkeypatch.setattr(hypercorn.asyncio, "serve", serve)
    monkeypatch.setattr(Agent, "drain", drain)
    with pytest.raises(OSError, match="no file descriptors"):
        await worker.serve("127.0.0.1:0")


async def test_a_server_that_fails_by_itself_fails_the_worker(
    worker: RestateWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def serve(*_: object, **_triggers: object) -> None:
        msg = "no file descriptors"
        raise OSError(msg)

    monkeypatch.setattr(hypercorn.asyncio, "serve", serve)
    with pytest.raises(OSError, match="no file descriptors"):
        await worker.serve("127.0.0.1:0")
