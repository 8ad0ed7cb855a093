"""What tests of several performers need: a scene, a gate that holds threads, and a look at processes."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from support.patience import PATIENCE

from turnwheel.effects.config import Config, ModelSpec
from turnwheel.effects.history import History
from turnwheel.performers.base import PerformContext, SystemClock


@pytest.fixture
def scene() -> PerformContext:
    config, clock = Config(model=ModelSpec(name="openai:none")), SystemClock()
    return PerformContext(
        session="s-1", run="r-1", config=config, history=History.of(), clock=clock, emit=lambda _: None
    )


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What a function that hangs waits for; opened at the end, so that no thread is left."""
    event = threading.Event()
    yield event
    event.set()


def is_alive(pid: int) -> bool:
    """Whether the process *pid* runs; one that is dead and not yet buried does not."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] not in {"Z", "X"}
    return False


@pytest.fixture
def alive() -> Callable[[int], bool]:
    return is_alive


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], Awaitable[None]]:
    async def wait(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():  # noqa: ASYNC110  # what is waited for is no event of ours
                await asyncio.sleep(0.01)

    return wait
