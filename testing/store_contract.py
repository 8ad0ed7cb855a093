"""
The promises of a store, as checks for any store.

    @pytest.mark.parametrize("check", checks(), ids=str)
    async def test_my_store_keeps_its_promises(check: Check, tmp_path: Path) -> None:
        await check(lambda: MyStore(tmp_path))

A check takes a function that opens a store, empty at first, and raises `BrokenStore` for a broken promise. It
needs no test framework. A store that ends with its process has fewer promises: ``checks(Lasts.WHILE_OPEN)``.
`survives_kill` checks what a store has kept when its process is killed.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import random
import sys
from inspect import isawaitable

from ..performers.stores.base import Store
from .store_promises import CHECKS, BrokenStore, Check, Lasts, Open, same

__all__ = ["BrokenStore", "Check", "Lasts", "Open", "checks", "survives_kill"]


def checks(lasts: Lasts = Lasts.SHARED) -> tuple[Check, ...]:
    """The promises of a store whose contents last so long."""
    return tuple([check for check in CHECKS if check.lasts <= lasts])


# The sessions that a process appends to, all at once, until it is killed.
SESSIONS = ("a", "b", "c")


async def survives_kill(opens: str, place: str, kills: int = 3, *, seed: int = 0) -> int:
    """
    Check the contents of a store whose process is killed in the middle of its appends, *kills* times.

    *opens* names a function that opens a store, as ``package.module:function``. It is called with *place*, in
    other processes too. Appends that returned are there, whole and in order, and at most one more.
    Returns the number of entries in the end; raises `BrokenStore`.
    """
    draw = random.Random(seed)  # noqa: S311  # when to kill, which is no secret
    before: dict[str, int] = dict.fromkeys(SESSIONS, 0)
    for _ in range(kills):
        told = await _killed(opens, place, before, draw)
        store = await _opened(opens, place)
        try:
            for session, length in told.items():
                before[session] = await _left(store, session, length)
        finally:
            await store.close()
    return sum(before.values())


async def _killed(opens: str, place: str, before: dict[str, int], draw: random.Random) -> dict[str, int]:
    """Let a process append for a while and kill it; the lengths that it printed until then."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__, opens, place),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    told, out, appends = dict(before), process.stdout, draw.randrange(5, 60)
    while out is not None and (line := await out.readline()):
        session, length = line.split()
        told[session.decode()] = int(length)
        appends -= 1
        if not appends:
            await asyncio.sleep(draw.random() / 50)
            process.kill()
    await process.wait()
    same("how many appends a process made less than until it was killed", max(appends, 0), 0)
    return told


async def _left(store: Store, session: str, told: int) -> int:
    """The number of entries of *session*, of which the process had reported *told*."""
    entries = list(await store.load(session))
    whole = len(entries) % 3 != 2  # noqa: PLR2004  # see `_append_for_ever`
    same(f"whether the {len(entries)} entries of {session!r} are whole appends", whole, promised=True)
    under_way = len(entries) - told
    same(f"whether {under_way} entries are left more than were told", under_way in {0, 1, 2}, promised=True)
    same(f"the entries of {session!r}", entries, [_entry(session, number) for number in range(len(entries))])
    return len(entries)


def _entry(session: str, number: int) -> bytes:
    return f"{session} {number};".encode() * (1 + number % 40)


async def _opened(opens: str, place: str) -> Store:
    module, _, name = opens.partition(":")
    opened = getattr(importlib.import_module(module), name)(place)
    store: Store = await opened if isawaitable(opened) else opened
    return store


async def _append_for_ever(opens: str, place: str) -> None:
    """The work of the process that is killed: one task for each session."""
    store = await _opened(opens, place)

    async def append(session: str) -> None:
        length = len(await store.load(session))
        while True:
            # So the lengths are 0, 1, 3, 4, 6, 7 and so on, and never 2 more than a third one.
            added = [_entry(session, length + more) for more in range(1 + length % 3)]
            await store.append(session, length, added)
            length += len(added)
            os.write(sys.stdout.fileno(), f"{session} {length}\n".encode())

    await asyncio.gather(*map(append, SESSIONS))


if __name__ == "__main__":
    asyncio.run(_append_for_ever(*sys.argv[1:]))
