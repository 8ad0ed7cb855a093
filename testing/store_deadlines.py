"""What a store with deadlines promises, as checks; see `store_contract`."""

from __future__ import annotations

from ..effects.errors import SessionGone
from ..performers.stores.base import MAX_OVERDUE, Store
from .store_parts import Opened, broken, same


async def a_session_is_overdue_from_its_deadline_on(store: Store) -> None:
    """The earliest come first; each session has one deadline, which goes with it."""
    if not store.keeps_deadlines:
        return
    for session, due in (("late", 9.0), ("s", 2.5), ("soon", 1.0)):
        await store.append(session, 0, [b"x"])
        await store.set_deadline(session, due)
    await store.set_deadline("not there", 1.0)
    for moment, found in [(0.5, []), (2.5, ["soon", "s"]), (10.0, ["soon", "s", "late"])]:
        same(f"what is overdue at {moment}", list(await store.overdue(moment)), found)
    await store.set_deadline("s", 0.0)
    await store.set_deadline("soon", None)
    same("what is overdue once deadlines have changed", list(await store.overdue(5.0)), ["s"])
    incarnation = (await store.load("s")).incarnation
    await store.delete("s")
    await store.append("s", 0, [b"another"])
    same("what is overdue once a session was deleted", list(await store.overdue(5.0)), [])
    try:
        await store.set_deadline("s", 1.0, incarnation)
    except SessionGone:
        same("what is overdue in the place of a deleted session", list(await store.overdue(5.0)), [])
    else:
        broken("a deadline of a deleted session", "kept", "SessionGone")


async def of_many_that_are_overdue_some_are_told(store: Store) -> None:
    """No more than a hundred, so that one question stays cheap."""
    if not store.keeps_deadlines:
        return
    names = [f"{number:03}" for number in range(MAX_OVERDUE + 1)]
    for due, session in enumerate(names):
        await store.append(session, 0, [b"x"])
        await store.set_deadline(session, float(due))
    same("what is overdue of many", list(await store.overdue(1e9)), names[:MAX_OVERDUE])
    same("what is behind the first", list(await store.overdue(1e9, 99)), names[99:])


async def a_deadline_is_there_for_others(share: Opened) -> None:
    """Also for those that had opened the store before."""
    one, other = await share(), await share()
    if not one.keeps_deadlines:
        return
    await one.append("s", 0, [b"x"])
    await one.set_deadline("s", 1.0)
    same("what is overdue for others", list(await other.overdue(1.0)), ["s"])
