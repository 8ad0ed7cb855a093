"""What a store with deadlines promises, as checks; see `store_contract`."""

from __future__ import annotations

from ..effects.errors import SessionGone
from ..performers.stores.base import MOST_OVERDUE, DeadlineStore, Store
from .store_parts import Opened, broken, same


def _keeping(store: Store) -> DeadlineStore | None:
    """*store*, if it keeps deadlines."""
    return store if hasattr(store, "overdue") else None  # type: ignore[return-value]  # pyright: ignore[reportReturnType]  # it is optional


async def a_session_is_overdue_from_its_deadline_on(store: Store) -> None:
    """The earliest come first; each session has one deadline, which goes with it."""
    if (keeping := _keeping(store)) is None:
        return
    for session, due in (("late", 9.0), ("s", 2.5), ("soon", 1.0)):
        await store.append(session, 0, [b"x"])
        await keeping.set_deadline(session, due)
    await keeping.set_deadline("not there", 1.0)
    for moment, found in [(0.5, []), (2.5, ["soon", "s"]), (10.0, ["soon", "s", "late"])]:
        same(f"what is overdue at {moment}", list(await keeping.overdue(moment)), found)
    await keeping.set_deadline("s", 0.0)
    await keeping.set_deadline("soon", None)
    same("what is overdue once deadlines have changed", list(await keeping.overdue(5.0)), ["s"])
    incarnation = (await store.load("s")).incarnation
    await store.delete("s")
    await store.append("s", 0, [b"another"])
    same("what is overdue once a session was deleted", list(await keeping.overdue(5.0)), [])
    try:
        await keeping.set_deadline("s", 1.0, incarnation)
    except SessionGone:
        same("what is overdue in the place of a deleted session", list(await keeping.overdue(5.0)), [])
    else:
        broken("a deadline of a deleted session", "kept", "SessionGone")


async def of_many_that_are_overdue_some_are_told(store: Store) -> None:
    """No more than a hundred, so that one question stays cheap."""
    if (keeping := _keeping(store)) is None:
        return
    names = [f"{number:03}" for number in range(MOST_OVERDUE + 1)]
    for due, session in enumerate(names):
        await store.append(session, 0, [b"x"])
        await keeping.set_deadline(session, float(due))
    same("what is overdue of many", list(await keeping.overdue(1e9)), names[:MOST_OVERDUE])
    same("what is behind the first", list(await keeping.overdue(1e9, 99)), names[99:])


async def a_deadline_is_there_for_others(share: Opened) -> None:
    """Also for those that had opened the store before."""
    one, other = await share(), await share()
    keeping, others = _keeping(one), _keeping(other)
    if keeping is None or others is None:
        return
    await one.append("s", 0, [b"x"])
    await keeping.set_deadline("s", 1.0)
    same("what is overdue for others", list(await others.overdue(1.0)), ["s"])
