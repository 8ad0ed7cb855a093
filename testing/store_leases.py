"""What a store with leases promises, as checks; see `store_contract`."""

from __future__ import annotations

import asyncio

from ..performers.stores.base import Store
from .store_parts import Opened, same


async def a_lease_goes_only_from_the_one_that_is_there(store: Store) -> None:
    """Comparing and writing it are one step; it is no entry, and a deleted session has none."""
    if not store.keeps_leases:
        return
    for session in ("s", "t"):
        same("a lease that is free", await store.lease(session, None, None), None)
        same("a lease that was free", await store.lease(session, None, b"a"), b"a")
    for held, wanted in [(None, b"b"), (b"b", b"c"), (b"b", None), (None, None), (b"b", b"b")]:
        same("a lease that is held", await store.lease("s", held, wanted), b"a")
    same("a lease that is renewed", await store.lease("s", b"a", b"\0'"), b"\0'")
    same("a lease that is given up", await store.lease("s", b"\0'", None), None)
    same("a lease of another", await store.lease("s", b"\0'", b"d"), None)
    same("the sessions", list(await store.list()), [])
    await store.append("t", 0, [b"x"])
    await store.delete("t")
    same("the lease of a deleted session", await store.lease("t", None, None), None)
    await store.lease("u", None, b"a")
    await store.delete("u")
    same(
        "the lease of one that was deleted before its first entry",
        await store.lease("u", None, None),
        None,
    )


async def leases_are_renewed_together(store: Store) -> None:
    """Each goes only from the one that is there, whatever becomes of the others."""
    if not store.keeps_leases:
        return
    for session in ("a", "b", "c"):
        await store.lease(session, None, session.encode())
    renewals = {"a": (b"a", b"A"), "b": (b"x", b"B"), "c": (b"c", b"C"), "d": (b"d", b"D")}
    same("the sessions that have another one", sorted(await store.renew(renewals)), ["b", "d"])
    found = [await store.lease(session, None, None) for session in renewals]
    same("the leases that are there", found, [b"A", b"b", b"C", None])
    same("what is refused of none", list(await store.renew({})), [])


async def the_leases_are_those_that_are_held(store: Store) -> None:
    """By session; one of a session that was deleted is none."""
    if not store.keeps_leases:
        return
    for session in ("a", "b", "c"):
        await store.lease(session, None, session.encode())
    await store.delete("b")
    await store.lease("c", b"c", b"\0'")
    found = dict(await store.leases())
    same("the leases that are held", found, {"a": b"a", "c": b"\0'"})


async def of_many_that_want_a_lease_one_gets_it(share: Opened) -> None:
    """All others see whose it is."""
    opened = [await share() for _ in range(6)]
    wants = (store.lease("s", None, f"{n}".encode()) for n, store in enumerate(opened))
    found = await asyncio.gather(*wants)
    if opened[0].keeps_leases:
        same("how many got a lease of 6 that want it", len(set(found)), 1)
        same("whose it is", await opened[1].lease("s", None, None), found[0])
