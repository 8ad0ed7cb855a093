"""What a store promises about being closed, left alone and opened again; see `conformance`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from ...effects.errors import StoreConflict, StoreError
from .promises import Place, broken, same
from .sessions import kept, told

if TYPE_CHECKING:
    from ...effects.performers.stores.base import SessionInfo, Store

LATER = 0.05
"""Seconds in which what was left behind would happen."""

METHODS: dict[str, Callable[[Store], Awaitable[object]]] = {
    "append": lambda store: store.append("s", 1, [b"b"]),
    "load": lambda store: store.load("s"),
    "list": lambda store: store.list(),
    "delete": lambda store: store.delete("s"),
}


async def everything(store: Store) -> dict[str, tuple[SessionInfo, list[bytes]]]:
    """All that is kept, by session."""
    return {info.session: (info, await kept(store, info.session)) for info in await store.list()}


# Whatever it lasts


async def a_closed_store_says_so(place: Place) -> None:
    """Every method of it raises `StoreError`; closing it again, also at the same time, is fine."""
    store = await place.store()
    await store.append("s", 0, [b"a"])
    await asyncio.gather(store.close(), store.close())
    await store.close()
    for name, method in METHODS.items():
        try:
            found = await method(store)
        except StoreError:
            continue
        broken(f"{name} of a closed store", found, StoreError)


async def closing_comes_after_what_was_asked_before(place: Place) -> None:
    """Appends that are under way are done by then, and have gone well."""
    store = await place.store()
    writing = [asyncio.create_task(store.append("s", length, [b"x"])) for length in range(5)]
    await asyncio.sleep(0)
    await store.close()
    done = [task.done() for task in writing]
    same("which appends are over when it is closed", done, [True] * 5)
    same("how they went", [task.result() for task in writing], [1, 2, 3, 4, 5])


async def whoever_is_cancelled_leaves_nothing_in_doubt(place: Place) -> None:
    """When the cancellation is raised an append is kept, or never will be, and the store works on."""
    store = await place.store()
    for turns in range(12):
        session = f"s{turns}"
        await store.append(session, 0, [b"first"])
        writing = asyncio.create_task(store.append(session, 1, [b"second"] * 3))
        for _ in range(turns):
            await asyncio.sleep(0)
        writing.cancel()
        with suppress(asyncio.CancelledError):
            same("the length of one that was not cancelled", await writing, 4)
        at_once = len(await kept(store, session))
        if at_once not in {1, 4} or (at_once == 1 and not writing.cancelled()):
            broken("what is kept of 3 entries behind 1, appended and cancelled", at_once, "1 or 4")
        await asyncio.sleep(LATER if turns % 4 == 1 else 0)
        same("what is kept of it later", len(await kept(store, session)), at_once)
        same("the length after the next", await store.append(session, at_once, [b"x"]), at_once + 1)


async def a_long_history_is_as_it_was_told(place: Place) -> None:
    """Whatever is appended, refused, deleted and said, in any order, each session is what came of it."""
    store, draw = await place.store(), random.Random(7)  # noqa: S311  # the same for everybody
    promised: dict[str, list[bytes]] = {}
    about: dict[str, bytes] = {}
    for number in range(250):
        session = draw.choice("abcd")
        length = len(promised.get(session, ()))
        said = draw.choice([None, str(number).encode()])
        match draw.randrange(8):
            case 0:
                same("whether it was deleted", await store.delete(session), promised=bool(length))
                promised.pop(session, None)
                about.pop(session, None)
            case 1:
                with suppress(StoreConflict):
                    wrong = length + draw.choice([-1, 1, 2])
                    broken("a wrong length", await store.append(session, wrong, [b"x"]), "refused")
            case 2:
                same("the length", await store.append(session, length, [], said), length)
                if length and said is not None:
                    about[session] = said
            case _:
                added = [f"{number} {one}".encode() for one in range(draw.randrange(1, 5))]
                same("the length", await store.append(session, length, added, said), length + len(added))
                promised.setdefault(session, []).extend(added)
                about[session] = about.get(session, b"") if said is None else said
        start = draw.randrange(length + 1)
        same("what is loaded", await kept(store, session, start), promised.get(session, [])[start:])
    found = await everything(store)
    same("what is kept", {name: entries for name, (_, entries) in found.items()}, promised)
    same("what it is about", {name: info.about for name, (info, _) in found.items()}, about)
    same("the lengths", [info.length for info, _ in found.values()], [len(promised[name]) for name in found])


# Until it is opened again


async def what_was_kept_is_there_when_it_is_opened_again(place: Place) -> None:
    """With its times and what it is about, and without what was deleted; and it goes on."""
    store = await place.store()
    await store.append("s", 0, [b"a", b""], b"about")
    await store.append("t", 0, [b"x"])
    await store.append("gone", 0, [b"x"])
    await store.append("s", 2, [b"c"])
    await store.delete("gone")
    before = await everything(store)
    await store.close()
    again = await place.store()
    same("what is kept", await everything(again), before)
    same("the length", await again.append("s", 3, [b"d"]), 4)
    same("its entries", await kept(again), [b"a", b"", b"c", b"d"])


async def what_was_cancelled_is_there_or_not_when_it_is_opened_again(place: Place) -> None:
    """As it was when the cancellation was raised."""
    store = await place.store()
    writing = [asyncio.create_task(store.append(f"s{number}", 0, [b"x"])) for number in range(8)]
    await asyncio.sleep(0)
    for task in writing:
        task.cancel()
    await asyncio.gather(*writing, return_exceptions=True)
    before = await everything(store)
    await store.close()
    same("what is kept", await everything(await place.store()), before)


# For others at the same time


async def what_returned_is_there_for_others(place: Place) -> None:
    """An append, or one about nothing else, is kept when it returns and not when the store is closed."""
    store, other = await place.store(), await place.store()
    for length in range(5):
        await store.append("s", length, [b"x"], str(length).encode())
        same("what another one loads", len(await kept(other)), length + 1)
        same("what another one lists", (await told(other)).about, str(length).encode())
        same("what a new one loads", len(await kept(await place.store())), length + 1)
    await store.append("s", 5, [], b"told")
    same("what another one lists", (await told(other)).about, b"told")
    await store.delete("s")
    same("what another one lists", list(await other.list()), [])


async def of_writers_in_many_stores_one_goes_on(place: Place) -> None:
    """Comparing the length and writing is one, whoever else has it open."""
    stores = [await place.store() for _ in range(6)]
    for length in range(0, 9, 3):
        tries = (store.append("s", length, [f"{n}".encode()] * 3) for n, store in enumerate(stores))
        outcomes = await asyncio.gather(*tries, return_exceptions=True)
        winners = [str(number).encode() for number, outcome in enumerate(outcomes) if outcome == length + 3]
        same("how many of 6 writers went on", len(winners), 1)
        others = {type(outcome) for outcome in outcomes if outcome != length + 3}
        same("what the others are told", others, {StoreConflict})
        same("the last entries", await kept(stores[length % 6], "s", length), winners * 3)


async def many_may_make_the_place_at_once(place: Place) -> None:
    """Stores that are the first to come, at the same time, all use the same place."""
    stores = [await place.store() for _ in range(6)]
    await asyncio.gather(*(store.append(f"s{number}", 0, [b"x"]) for number, store in enumerate(stores)))
    promised = [f"s{number}" for number in range(6)]
    for store in stores:
        same("the sessions", sorted(info.session for info in await store.list()), promised)


WHILE_OPEN = (
    a_closed_store_says_so,
    closing_comes_after_what_was_asked_before,
    whoever_is_cancelled_leaves_nothing_in_doubt,
    a_long_history_is_as_it_was_told,
)
REOPENED = (
    what_was_kept_is_there_when_it_is_opened_again,
    what_was_cancelled_is_there_or_not_when_it_is_opened_again,
)
SHARED = (
    what_returned_is_there_for_others,
    of_writers_in_many_stores_one_goes_on,
    many_may_make_the_place_at_once,
)
