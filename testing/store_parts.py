"""The parts of a check of a store: how it opens stores, and what it raises for a broken promise."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from enum import IntEnum
from inspect import isawaitable
from typing import NoReturn, final

import attrs

from ..performers.stores.base import Store

# Characters of a value that an error shows.
MOST_SHOWN = 200

# Opens a store, each time over what the one before has kept.
Open = Callable[[], Store | Awaitable[Store]]


class Lasts(IntEnum):
    """
    How long the contents of a store last.

    While it is open; until it is opened again; or for others too, which have it open at the same time.
    """

    WHILE_OPEN = 0
    REOPENED = 1
    SHARED = 2


@final
class BrokenStore(AssertionError):
    """A store broke a promise: about *what*, the check *found* one thing, and *promised* was another."""

    def __init__(self, what: str, found: object, promised: object) -> None:
        super().__init__(what, found, promised)
        self.what, self.found, self.promised = what, found, promised

    def __str__(self) -> str:
        return f"{self.what}: {_shown(self.found)}, and promised is {_shown(self.promised)}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}... ({len(text):,} characters)"


def broken(what: str, found: object, promised: object) -> NoReturn:
    """Raise `BrokenStore`."""
    raise BrokenStore(what, found, promised)


def same(what: str, found: object, promised: object) -> None:
    """Raise `BrokenStore` if *found* differs from *promised*, or is of another type."""
    if type(found) is not type(promised) or found != promised:
        broken(what, found, promised)


# Opens one more store over the same contents, which is closed at the end of the check.
Opened = Callable[[], Awaitable[Store]]


@final
@attrs.frozen
class Check:
    """
    One promise of the stores that *last* so long, by its *name*. Call it with a function that opens a store.
    """

    name: str
    lasts: Lasts
    _promise: Callable[..., Awaitable[None]]

    def __str__(self) -> str:
        return self.name

    async def __call__(self, opens: Open) -> None:
        """Raise `BrokenStore` if the stores that *opens* opens do not keep this promise."""
        async with AsyncExitStack() as stack:

            async def one_more() -> Store:
                opened = opens()
                store = await opened if isawaitable(opened) else opened
                stack.push_async_callback(store.close)
                return store

            await self._promise(await one_more() if self.lasts is Lasts.WHILE_OPEN else one_more)
