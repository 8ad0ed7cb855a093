"""
A long day: very many turns over many sessions in one process, after which nothing is left of them.

Theory of operation. Turns are done in tenths. After each everything comes to rest: no session is open, what
is kept in memory is forgotten, and some agents come by and go, each with a store of its own. Each
conversation has a name that none had before. Then what is there is counted: bytes, blocks of the allocator,
objects by type, tasks, timers, threads and file descriptors. The first tenths fill caches; from then on all
of it has to stay as it is. How disagreeable the day is, is in `soak_service`. What a process has is read from
/proc, as Linux has it.

    python -m provers.soak                    100,000 turns over 1,000 sessions
    python -m provers.soak --turns 5000 --sessions 100 --trace
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import linecache
import os
import shutil
import sys
import tempfile
import threading
import time
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, final
from weakref import ref

import attrs

from provers.choices import Seeded
from provers.invariants import state_faults
from provers.options import whole
from provers.soak.service import FlakyStore, Service
from turnwheel.performers.stores.memory import MemoryStore
from turnwheel.performers.stores.sqlite import SQLiteStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from turnwheel.engine.session.session import Session

TENTHS = 10
SETTLED = 4
"""The first rest that is compared with those that follow: until then caches fill."""

VISITS, FEW = 100, 3
"""For so many turns one agent comes by, with a store of its own, and goes; at each rest at least a few do."""

BLOCKS, MANY_BLOCKS = 0.02, 1_000
"""Blocks of the allocator that a turn may leave behind, where that comes to more than so many in all."""

BYTES, MANY_BYTES = 40.0, 8_000_000
"""The same for bytes of the process, of which an allocator keeps now more and now less."""

MANY_OBJECTS = 100
"""Objects of one type by which there may be more: what is interned, or cached."""


@final
@attrs.frozen(kw_only=True)
class Rest:
    """
    What is there when nothing goes on, after so many *turns*.

    *resident* are bytes of the process, *objects* are counted by their type. *cycles* are the objects that
    had to be found by the collector of cycles until now, *garbage* those that it could not collect.
    """

    turns: int
    resident: int = 0
    blocks: int = 0
    objects: Counter[type] = attrs.field(factory=Counter)
    cycles: int = 0
    garbage: int = 0
    tasks: int = 0
    timers: int = 0
    threads: int = 0
    files: int = 0

    def __str__(self) -> str:
        return (
            f"{self.turns:>9,} turns: {self.resident / 1e6:6.1f} MB, {self.blocks:>9,} blocks,"
            f" {self.objects.total():>8,} objects, {self.tasks} tasks, {self.timers} timers,"
            f" {self.threads} threads, {self.files} files"
        )


def at_rest(turns: int) -> Rest:
    """What is there now, after so many *turns*, when all that can be has been let go of."""
    linecache.clearcache()  # the first traceback through a file has all its lines kept
    while gc.collect():
        pass
    return Rest(
        turns=turns,
        resident=int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGESIZE"),
        blocks=sys.getallocatedblocks(),
        objects=Counter(map(type, filter(_counts, gc.get_objects()))),
        cycles=sum(generation["collected"] for generation in gc.get_stats()),
        garbage=len(gc.garbage),
        tasks=len(asyncio.all_tasks()) - 1,
        timers=timers(),
        threads=threading.active_count(),
        files=len(list(Path("/proc/self/fd").iterdir())),
    )


def timers() -> int:
    """How many timers the event loop has."""
    loop: Any = asyncio.get_running_loop()
    # Nothing else tells of timers, and a task that is waiting for one is not the only thing that may be.
    return len([timer for timer in loop._scheduled if not timer.cancelled()])  # see above


def _counts(one: object) -> bool:
    """Whether *one* is more than a reference to what is gone: weak sets drop those now and then."""
    return not (isinstance(one, ref) and one() is None)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """By how much the second grows with the first, by least squares."""
    across, up = (sum(values) / len(points) for values in zip(*points, strict=True))
    spread = sum((x - across) ** 2 for x, _ in points)
    steep: float = sum((x - across) * (y - up) for x, y in points) / spread
    return steep


def growth(rests: Sequence[Rest]) -> tuple[float, float]:
    """Blocks, and bytes of the process, that each turn leaves behind once it has settled."""
    settled = rests[SETTLED - 1 :]
    blocks = slope([(rest.turns, rest.blocks) for rest in settled])
    return blocks, slope([(rest.turns, rest.resident) for rest in settled])


def faults(rests: Sequence[Rest], before: Rest, after: Rest) -> Iterator[str]:
    """What is wrong, where this was there at *rests*, and *before* anything and *after* all was closed."""
    first, last = rests[SETTLED - 1], rests[-1]
    blocks, resident = growth(rests)
    turns = last.turns - first.turns
    if blocks > BLOCKS and blocks * turns > MANY_BLOCKS:
        yield f"each turn leaves {blocks:.3f} blocks behind"
    if resident > BYTES and resident * turns > MANY_BYTES:
        yield f"each turn leaves {resident:.0f} bytes behind"
    for kind, count in last.objects.items():
        if count > first.objects[kind] + MANY_OBJECTS:
            yield f"of {kind.__module__}.{kind.__qualname__} {first.objects[kind]:,} became {count:,}"
    for rest in (*rests, after):
        if rest.tasks or rest.timers or rest.garbage:
            yield f"left over: {rest}, {rest.garbage} objects that cannot be collected"
    if len({(rest.threads, rest.files) for rest in rests}) > 1:
        yield f"threads and files were {[(rest.threads, rest.files) for rest in rests]}"
    if (after.threads, after.files) != (before.threads, before.files):
        yield f"there were {before.threads} threads and {before.files} files, left are {after}"


# The day


async def tenth(service: Service, asked: argparse.Namespace, until: int, names: list[str]) -> None:
    """
    Use the sessions of *service*, several at once, *until* there were so many turns; then all rest.

    *names* are what they are called: each in turn is in one of the stores.
    """
    waiting: asyncio.Queue[int] = asyncio.Queue()
    for number in range(len(names)):
        waiting.put_nowait(number)

    async def someone() -> None:
        while service.turns < until:
            number = await waiting.get()
            names[number] = await service.use(names[number], service.stores[number % len(service.stores)])
            waiting.put_nowait(number)

    async with asyncio.TaskGroup() as everybody:
        for _ in range(asked.at_once):
            everybody.create_task(someone())


async def rested(service: Service, asked: argparse.Namespace, names: list[str], folder: Path) -> None:
    """Forget what is in memory, and have others come by and go."""
    await forget(service.stores[0])
    for number in range(0, len(names), len(service.stores)):
        names[number] = service.fresh()
    choices = Seeded(asked.seed)
    for _ in range(max(FEW, asked.turns // TENTHS // VISITS)):
        store = SQLiteStore(folder / "visits.db", "process")
        visitor = Service((FlakyStore(store, choices, 0),), choices)
        await visitor.visit()
        await visitor.close()
    await quiet(1)


async def quiet(most: int) -> None:
    """
    Wait until no timer is left, and at most so many threads of stores.

    One that has closed its file ends soon, and a session that rests is packed a moment later.
    """
    for _ in range(100):
        threads = sum(thread.name == "turnwheel-sqlite" for thread in threading.enumerate())
        # While this sleeps it has a timer of its own.
        if threads <= most and not timers():
            return
        await asyncio.sleep(0.02)


async def forget(store: FlakyStore) -> None:
    """Delete all that is in *store*."""
    for info in await store.list():
        await store.delete(info.session)


async def ended(service: Service, store: FlakyStore) -> list[str]:
    """What is wrong with the sessions in *store*, once each has come to its end."""
    wrong: list[str] = []
    for info in await store.list():
        if "." in info.session:
            continue  # a child: it goes on with its parent
        async with service.session(info.session, store) as session:
            await _to_its_end(session)
            machine = session.machine
            if machine is None or not machine.done:
                wrong.append(f"{info.session} is not over: {machine}")
            else:
                wrong += state_faults(machine.state, machine.memory)
    return wrong


async def _to_its_end(session: Session) -> None:
    for _ in range(100):
        if not session.unfinished and not session.queue:
            return
        await session.resume()
        for question in session.waiting:
            await session.approve(question.id)


async def day(asked: argparse.Namespace, folder: Path) -> list[str]:
    """Live through as many turns as were *asked* for, and say how it went; what is wrong."""
    choices = Seeded(asked.seed)
    before = at_rest(0)
    memory = FlakyStore(MemoryStore(), choices, 400)
    disk = FlakyStore(SQLiteStore(folder / "sessions.db", "process"), choices, 400)
    service = Service((memory, disk), choices)
    names = [service.fresh() for _ in range(asked.sessions)]
    rests: list[Rest] = []
    traced: list[tracemalloc.Snapshot] = []
    for number in range(1, TENTHS + 1):
        await tenth(service, asked, asked.turns * number // TENTHS, names)
        await rested(service, asked, names, folder)
        rests.append(at_rest(service.turns))
        print(rests[-1], flush=True)  # the report
        if asked.trace:
            print("\n".join(grown(traced)), flush=True)  # as above
    disk.share = 0
    wrong = await ended(service, disk)
    await service.close()
    await quiet(0)
    after = at_rest(rests[-1].turns)  # while somebody holds on to all of them
    said = [service.done, service.told]
    print(f"{after}, when all is closed")  # as above
    for each in said:
        print(", ".join([f"{name} {count:,}" for name, count in each.most_common()]))  # as above
    blocks, resident = growth(rests)
    cycles = (rests[-1].cycles - rests[0].cycles) / (rests[-1].turns - rests[0].turns)
    print(
        f"a turn leaves {blocks:.4f} blocks and {resident:.1f} bytes, and {cycles:.0f} objects in cycles"
    )  # as above
    return [*wrong, *faults(rests, before, after)]


def grown(since: list[tracemalloc.Snapshot]) -> list[str]:
    """By which lines there is more than at the snapshot *since*, which is taken again."""
    here = tracemalloc.Filter(inclusive=False, filename_pattern=__file__)
    now = tracemalloc.take_snapshot().filter_traces([here])
    found = now.compare_to(since.pop(), "lineno") if since else []
    since.append(now)
    return [f"    {line}" for line in found[:5]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Live through a long day, and say how it went; the exit code is 1 where something is left of it."""
    parser = argparse.ArgumentParser(prog="provers.soak", description="A long day.")
    parser.add_argument("--turns", type=whole(TENTHS), default=100_000, help="answers of models")
    parser.add_argument("--sessions", type=whole(1), default=1_000, help="how many there are")
    parser.add_argument("--at-once", type=whole(1), default=300, help="how many are used at a time")
    parser.add_argument("--seed", type=int, default=0, help="what draws the day")
    parser.add_argument("--trace", action="store_true", help="say which lines allocate what stays; slow")
    asked = parser.parse_args(arguments)
    if asked.at_once > asked.turns // TENTHS:
        parser.error(f"--at-once: at most a tenth of the turns, {asked.turns // TENTHS}, or it is no day")
    if asked.trace:
        tracemalloc.start()
    folder = Path(tempfile.mkdtemp(prefix="turnwheel-soak-"))
    began = time.monotonic()
    try:
        wrong = asyncio.run(day(asked, folder))
    finally:
        shutil.rmtree(folder)
    print(f"{time.monotonic() - began:.0f} s")  # as above
    print("\n".join(wrong) or "nothing is left of it")  # as above
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
