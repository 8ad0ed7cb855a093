"""What a store with meters or a clock of its own promises, as checks; see `store_contract`."""

from __future__ import annotations

import asyncio
import time

from ..performers.stores.base import Store
from .store_parts import Opened, same

# Seconds that the clock of a store may be off; beyond that it does not count from the epoch.
DAY = 86_400.0


async def _metered(store: Store, held: bytes | None = None, wanted: bytes | None = None) -> bytes | None:
    """The meter ``m`` that was there before *wanted* took the place of *held*."""
    found: bytes | None
    found, _ = await store.meter("m", held, wanted)
    return found


async def a_meter_goes_only_from_the_one_that_is_there(store: Store) -> None:
    """By any name, with the time of the store; it belongs to no session, and is no lease."""
    if not store.keeps_meters:
        return
    for name in ("", "a", "A", "a\0", "naïve 🦊"):
        same("a meter that was not there", (await store.meter(name, None, b"a"))[0], None)
    steps = [(None, b"b", b"a"), (b"b", None, b"a"), (None, None, b"a"), (b"a", b"\0'", b"a")]
    for held, wanted, found in [*steps, (b"\0'", b"", b"\0'"), (b"", None, b""), (b"", b"c", None)]:
        same("the meter that was there", (await store.meter("a", held, wanted))[0], found)
    await store.append("s", 0, [b"x"])
    same("the meter with the name of a session", (await store.meter("s", None, b"m"))[0], None)
    await store.delete("s")
    found, now = await store.meter("s", None, None)
    same("a meter with the name of a session that was deleted", found, b"m")
    same("whether its time counts from the epoch", abs(now - time.time()) < DAY, promised=True)
    same("the sessions", list(await store.list()), [])


async def a_time_counts_seconds_from_the_epoch(store: Store) -> None:
    """Seconds and no other unit: it may be a day off."""
    if store.keeps_time:
        off = abs(await store.time() - time.time())
        same("whether its time counts seconds from the epoch", off < DAY, promised=True)


async def of_many_that_change_a_meter_none_is_lost(share: Opened) -> None:
    """Each sees what the one before made of it."""
    opened = [await share() for _ in range(6)]
    if not opened[0].keeps_meters:
        return

    async def count(store: Store) -> None:
        for _ in range(5):
            held: bytes | None = b""
            there = await _metered(store)
            while held != there:
                held, there = there, await _metered(store, there, str(int(there or b"0") + 1).encode())

    await asyncio.gather(*map(count, opened))
    same("what six have counted to", await _metered(opened[0]), b"30")
