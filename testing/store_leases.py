"""What a store with leases promises, as checks; see `store_contract`."""

from __future__ import annotations

import asyncio

from ..performers.stores.base import Store
from .store_parts import Opened, same


async def leased(store: Store, session: str, held: bytes | None, wanted: bytes | None) -> bytes | None:
    """What `lease` of *store* returns; as if each were granted where the store has none."""
    lease = getattr(store, "lease", None)
    return wanted if lease is None else await lease(session, held, wanted)


async def a_lease_goes_only_from_the_one_that_is_there(store: Store) -> None:
    """Comparing and writing it are one step; it is no entry, and a deleted session has none."""
    if not hasattr(store, "lease"):
        return
    for session in ("s", "t"):
        same("a lease that is free", await leased(store, session, None, None), None)
        same("a lease that was free", await leased(store, session, None, b"a"), b"a")
    for held, wanted in [(None, b"b"), (b"b", b"c"), (b"b", None), (None, None), (b"b", b"b")]:
        same("a lease that is held", await leased(store, "s", held, wanted), b"a")
    same("a lease that is renewed", await leased(store, "s", b"a", b"\0'"), b"\0'")
    same("a lease that is given up", await leased(store, "s", b"\0'", None), None)
    same("a lease of another", await leased(store, "s", b"\0'", b"d"), None)
    same("the sessions", list(await store.list()), [])
    await store.append("t", 0, [b"x"])
    await store.delete("t")
    same("the lease of a deleted session", await leased(store, "t", None, None), None)
    await leased(store, "u", None, b"a")
    await store.delete("u")
    same(
        "the lease of one that was deleted before its first entry",
        await leased(store, "u", None, None),
        None,
    )


async def leases_are_renewed_together(store: Store) -> None:
    """Each goes only from the one that is there, whatever becomes of the others."""
    renew = getattr(store, "renew", None)
    if renew is None:
        return
    for session in ("a", "b", "c"):
        await leased(store, session, None, session.encode())
    renewals = {"a": (b"a", b"A"), "b": (b"x", b"B"), "c": (b"c", b"C"), "d": (b"d", b"D")}
    same("the sessions that have another one", sorted(await renew(renewals)), ["b", "d"])
    found = [await leased(store, session, None, None) for session in renewals]
    same("the leases that are there", found, [b"A", b"b", b"C", None])
    same("what is refused of none", list(await renew({})), [])


async def the_leases_are_those_that_are_held(store: Store) -> None:
    """By session; one of a session that was deleted is none."""
    if not hasattr(store, "leases"):
        return
    for session in ("a", "b", "c"):
        await leased(store, session, None, session.encode())
    await store.delete("b")
    await leased(store, "c", b"c", b"\0'")
    found = dict(await store.leases())  # pyright: ignore[reportAttributeAccessIssue]  # it is optional
    same("the leases that are held", found, {"a": b"a", "c": b"\0'"})


async def of_many_that_want_a_lease_one_gets_it(share: Opened) -> None:
    """All others see whose it is."""
    opened = [await share() for _ in range(6)]
    wants = (leased(store, "s", None, f"{n}".encode()) for n, store in enumerate(opened))
    found = await asyncio.gather(*wants)
    if hasattr(opened[0], "lease"):
        same("how many got a lease of 6 that want it", len(set(found)), 1)
        same("whose it is", await leased(opened[1], "s", None, None), found[0])
