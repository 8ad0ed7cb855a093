"""
What is left of a store when its process is killed, and when the power goes.

No test can cut the power. What is done instead: the file and its log are taken as they were written,
and what a disk may have made of them is made of them, byte by byte and sector by sector. That SQLite asks the
disk to keep something, and when, is seen with strace; that the disk then does is the disk's promise.
"""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import attrs
import pytest

from turnwheel.performers import Durability, SQLiteStore
from turnwheel.testing.store_contract import survives_kill

SECTOR = 512
"""What a disk writes whole or not at all."""

HEAD = 32
FRAME = 24 + 4096
"""A log is a head and frames, each a page with a head of its own."""

State = dict[str, list[bytes]]
"""The entries of each session."""


# The process is killed


OPENS = """
from turnwheel import SQLiteStore

def power(place):
    return SQLiteStore(place, "power")

def process(place):
    return SQLiteStore(place, "process")
"""


@pytest.mark.parametrize("durability", get_args(Durability))
async def test_it_survives_kill_9(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: Durability
) -> None:
    (tmp_path / "survivors.py").write_text(OPENS, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert await survives_kill(f"survivors:{durability}", str(tmp_path / "agent.db"), kills=2, seed=1) > 15


# The power goes


@attrs.frozen
class Moment:
    """When an append had returned: what was kept by then, and how much of the log was written."""

    kept: State
    log: int


@attrs.frozen
class Life:
    """A store's life: its file and its log in the end, and the *moments* since it began."""

    file: bytes
    log: bytes
    moments: list[Moment]

    def kept(self, number: int) -> State:
        return self.moments[number].kept


def log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def written(log: bytes) -> int:
    end = HEAD
    while log[end + 8 : end + 16] == log[16:24] and log[end:]:
        end += FRAME
    return end


async def live(
    store: SQLiteStore, path: Path, moments: list[Moment], steps: int, draw: random.Random
) -> None:
    kept = {name: list(entries) for name, entries in moments[-1].kept.items()}
    for _ in range(steps):
        names = draw.sample("abc", draw.choice([1, 1, 1, 3]))
        more = {name: [draw.randbytes(draw.choice([20, 400, 9_000])) for _ in range(2)] for name in names}
        await asyncio.gather(*(store.append(name, len(kept[name]), new) for name, new in more.items()))
        for name, new in more.items():
            kept[name] = kept[name] + new
        moments.append(Moment(dict(kept), written(log_of(path).read_bytes())))


async def begun(path: Path, durability: Durability) -> tuple[SQLiteStore, list[Moment]]:
    store = SQLiteStore(path, durability)
    for name in "abc":
        await store.append(name, 0, [name.encode()])
    await store.close()
    return SQLiteStore(path, durability), [Moment({name: [name.encode()] for name in "abc"}, 0)]


async def lived(path: Path, durability: Durability, steps: int = 8) -> Life:
    store, moments = await begun(path, durability)
    await live(store, path, moments, steps, random.Random(3))
    life = Life(path.read_bytes(), log_of(path).read_bytes(), moments)
    await store.close()
    assert len({one.log for one in moments}) == steps + 1
    return life


async def left_of(place: Path, file: bytes, log: bytes) -> State:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    (place / "agent.db").write_bytes(file)
    (place / "agent.db-wal").write_bytes(log)
    store = SQLiteStore(place / "agent.db", "process")
    found = {info.session: list(await store.load(info.session)) for info in await store.list()}
    assert {info.session: info.length for info in await store.list()} == {
        name: len(entries) for name, entries in found.items()
    }
    await store.close()
    return found


def check(found: State, life: Life, at_least: int) -> None:
    numbers = [number for number, moment in enumerate(life.moments) if moment.kept == found]
    # Appends that were made together may have been kept one before the other.
    between = [
        number
        for number, (one, other) in enumerate(zip(life.moments, life.moments[1:], strict=False))
        if all(found[name] in (one.kept[name], other.kept[name]) for name in found)
    ]
    assert max(numbers + between, default=-1) >= at_least


def cuts(log: bytes) -> Iterator[int]:
    for start in range(HEAD, len(log) + 1, FRAME):
        yield from (start + more for more in (0, 24, FRAME - 1) if start + more <= len(log))
    yield from (0, HEAD - 1, HEAD + 1)


async def test_wherever_the_log_ends_what_is_before_is_whole(tmp_path: Path) -> None:
    life = await lived(tmp_path / "agent.db", "power")
    for cut in cuts(life.log):
        found = await left_of(tmp_path / "left", life.file, life.log[:cut])
        check(found, life, max(number for number, one in enumerate(life.moments) if one.log <= cut))


def lossy(before: bytes, after: bytes, kept: int, draw: random.Random) -> bytes:
    made = bytearray(after)
    for start in range(kept - kept % SECTOR, len(after), SECTOR):
        if draw.random() < draw.choice([0.1, 0.5]):
            first = max(start, kept)
            old = before[first : start + SECTOR].ljust(min(start + SECTOR, len(after)) - first, b"\0")
            made[first : start + SECTOR] = old
    return bytes(made)


@pytest.mark.parametrize("durability", get_args(Durability))
async def test_what_the_disk_was_not_asked_for_may_be_lost(tmp_path: Path, durability: Durability) -> None:
    life, draw = await lived(tmp_path / "agent.db", durability), random.Random(4)
    for _ in range(60):
        number = draw.randrange(len(life.moments))
        asked_for = life.moments[number].log if durability == "power" else 0
        found = await left_of(tmp_path / "left", life.file, lossy(b"", life.log, asked_for, draw))
        check(found, life, number if durability == "power" else 0)


async def test_a_file_that_is_torn_while_the_log_is_moved_into_it(tmp_path: Path) -> None:
    life, draw = await lived(tmp_path / "agent.db", "power"), random.Random(5)
    after = (tmp_path / "agent.db").read_bytes()  # it was closed, and so the log is in it
    assert len(after) > len(life.file)
    for _ in range(40):
        torn = lossy(life.file, after, 0, draw)[: draw.randrange(len(life.file), len(after) + 1)]
        found = await left_of(tmp_path / "left", torn, life.log)
        assert found == life.kept(-1)


@pytest.mark.parametrize("durability", get_args(Durability))
async def test_a_log_that_is_written_again_from_its_beginning(tmp_path: Path, durability: Durability) -> None:
    path, draw = tmp_path / "agent.db", random.Random(6)
    store, moments = await begun(path, durability)
    await live(store, path, moments, 8, draw)
    old = log_of(path).read_bytes()
    await store._do(lambda db: db.execute("pragma wal_checkpoint(restart)").fetchall())  # pyright: ignore[reportPrivateUsage]  # as it is done after 1,000 pages
    moments = [Moment(moments[-1].kept, HEAD)]
    await live(store, path, moments, 4, draw)
    life = Life(path.read_bytes(), log_of(path).read_bytes(), moments)
    await store.close()
    assert HEAD < written(life.log) < len(old)
    for _ in range(60):
        number = draw.randrange(len(life.moments))
        # The head is on the disk before anything is written behind it.
        asked_for = life.moments[number].log if durability == "power" else HEAD
        found = await left_of(tmp_path / "left", life.file, lossy(old, life.log, asked_for, draw))
        check(found, life, number if durability == "power" else 0)


# What the disk is asked for


APPENDS = """
import asyncio, os, sys
from turnwheel.performers.stores.sqlite import SQLiteStore

async def write():
    store = SQLiteStore(sys.argv[1], sys.argv[2])
    await store.append("s", 0, [b"x"])
    for length in range(1, 11):
        os.write(1, b"begin")
        await store.append("s", length, [b"x" * 300])
        os.write(1, b"told")

asyncio.run(write())
"""


def traced(path: Path, durability: Durability) -> list[str]:
    calls = path.with_name("calls")
    strace = ["strace", "-f", "-y", "-e", "trace=write,pwrite64,fsync,fdatasync", "-o", str(calls)]
    command = [*strace, sys.executable, "-c", APPENDS, str(path), durability]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("needs strace, and the right to use it")
    said: list[str] = []
    for line in calls.read_text("utf-8").splitlines():
        if told := re.search(r'write\(1.*, "(begin|told)"', line):
            said.append(told[1])
        elif call := re.search(r"(pwrite64|fsync|fdatasync)\(\d+<[^>]*-wal>", line):
            said.append("write" if call[1] == "pwrite64" else "sync")
    return said


@pytest.mark.parametrize(("durability", "asks"), [("power", "ws!"), ("process", "w!")])
def test_the_disk_is_asked_before_an_append_returns(
    tmp_path: Path, durability: Durability, asks: str
) -> None:
    letters = {"begin": "\n", "told": "!", "write": "w", "sync": "s"}
    told = "".join(letters[one] for one in traced(tmp_path / "agent.db", durability))
    assert re.findall(r"\n([ws]*!)", re.sub("w+", "w", told)) == [asks] * 10
