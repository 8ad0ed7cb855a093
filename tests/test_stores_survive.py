"""What is left of a store when its process or its machine is lost."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from turnwheel.effects.performers.stores.sqlite import Durability, SQLiteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a file is to be made."""
    return tmp_path / "agent.db"


WRITER = """
import asyncio, sys
from turnwheel.effects.performers.stores.sqlite import Durability, SQLiteStore

async def write() -> None:
    store = SQLiteStore(sys.argv[1], sys.argv[2])
    for length in range(1_000_000):
        await store.append("s", length, [str(length).encode()])
        print(length, flush=True)

asyncio.run(write())
"""


@pytest.mark.parametrize("durability", get_args(Durability))
async def test_what_was_appended_survives_kill_9(path: Path, durability: Durability) -> None:
    """A process killed in the middle of its appends has lost none that returned, and the file is whole."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), durability], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        told = [int(process.stdout.readline()) for _ in range(50)]
        process.send_signal(signal.SIGKILL)
        told += [int(line) for line in process.stdout.read().split(b"\n")[:-1]]
    store = SQLiteStore(path)
    kept = [int(entry) for entry in await store.load("s")]
    assert kept == list(range(len(kept)))
    assert len(kept) - len(told) in {0, 1}  # the one under way may be there too
    assert await store.append("s", len(kept), [b"on"]) == len(kept) + 1
    await store.close()
