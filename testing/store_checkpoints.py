"""What a store with checkpoints promises and what each says of itself, as checks; see `store_contract`."""

from __future__ import annotations

from ..performers.stores.base import Store
from .store_parts import same


async def a_store_says_what_it_keeps(store: Store) -> None:
    """A store that keeps leases, deadlines, checkpoints or meters has the attribute that says so."""
    await store.append("s", 0, [b"a"])
    if not store.keeps_leases:
        await store.lease("s", None, b"one")
        same("a lease where keeps_leases is False", await store.lease("s", None, b"other"), b"other")
    if not store.keeps_deadlines:
        await store.set_deadline("s", 1.0)
        same("what is overdue where keeps_deadlines is False", list(await store.overdue(1.0)), [])
    if not store.keeps_checkpoints:
        await store.keep_checkpoint("s", 1, b"x", 1)
        same("checkpoints where keeps_checkpoints is False", list(await store.checkpoints("s")), [])
    if not store.keeps_meters:
        await store.meter("m", None, b"one")
        same("a meter where keeps_meters is False", (await store.meter("m", None, b"other"))[0], None)


async def of_checkpoints_those_between_the_first_and_the_new_one_stay(store: Store) -> None:
    """They are given by position; they are no entries, and a deleted session has none."""
    if not store.keeps_checkpoints:
        return
    keep, kept = store.keep_checkpoint, store.checkpoints
    await keep("s", 1, b"x", 1)
    same("the checkpoints of a session that is not there", list(await kept("s")), [])
    for session in ("s", "t"):
        await store.append(session, 0, [b"e"] * 9)
    for position, first in [(1, 1), (3, 1), (8, 1)]:
        await keep("s", position, b"\0%d" % position, first)
        await keep("t", position, b"t", first)
    same("the checkpoints", list(await kept("s")), [b"\x001", b"\x003", b"\x008"])
    await keep("s", 7, b"7", 2)
    same("those from the first on and before a new one", list(await kept("s")), [b"\x003", b"7"])
    same("the checkpoints of another session", list(await kept("t")), [b"t"] * 3)
    same("the entries", list(await store.load("s")), [b"e"] * 9)
    await store.delete("s")
    await store.append("s", 0, [b"x"])
    same("the checkpoints of a session that was deleted", list(await kept("s")), [])
