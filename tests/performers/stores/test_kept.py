"""Each store of ours keeps what every store promises; what the checks are worth shows test_conformance.py."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from turnwheel import MemoryStore, SQLiteStore
from turnwheel.performers.stores.base import Store
from turnwheel.testing.store_contract import Check, Lasts, checks

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "own_store.py"


@pytest.mark.parametrize("check", checks(Lasts.WHILE_OPEN), ids=str)
async def test_in_memory(check: Check) -> None:
    await check(MemoryStore)


@pytest.mark.parametrize("check", checks(), ids=str)
async def test_in_a_file(check: Check, tmp_path: Path) -> None:
    await check(lambda: SQLiteStore(tmp_path / "agent.db"))
    await check(lambda: SQLiteStore(tmp_path / "process.db", "process"))


def test_in_a_store_of_ones_own() -> None:
    shown = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, check=True).stdout
    *lines, last = shown.splitlines()
    assert lines == [f"ok  {check}" for check in checks()]
    assert last.endswith("entries survived")


@pytest.mark.parametrize("make", [lambda _: MemoryStore(), SQLiteStore], ids=["memory", "sqlite"])
def test_a_store_outlives_an_event_loop(make: Callable[[Path], Store], tmp_path: Path) -> None:
    store = make(tmp_path / "agent.db")

    async def write(session: str, length: int) -> None:
        await store.append(session, length, [str(length).encode()])

    for length in range(3):
        threads = [threading.Thread(target=asyncio.run, args=(write(one, length),)) for one in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for session in "abc":
        assert list(asyncio.run(store.load(session))) == [b"0", b"1", b"2"]
    asyncio.run(store.close())
