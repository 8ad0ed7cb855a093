"""What a check of a store is made of; see `conformance`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from enum import IntEnum
from inspect import isawaitable
from typing import TYPE_CHECKING, NoReturn, final

import attrs

if TYPE_CHECKING:
    from ...effects.performers.stores.base import Store

SHOWN = 200
"""How much of a value an error shows."""

Open = Callable[[], "Store | Awaitable[Store]"]
"""Opens a store: always at the same place, if it lasts at all."""


class Lasts(IntEnum):
    """
    How long what is in a store is there.

    While it is open, also when it is opened again, or at the same time for others who have it open too.
    """

    WHILE_OPEN = 0
    REOPENED = 1
    SHARED = 2


@final
class BrokenStore(AssertionError):
    """In the matter of *what*, a store did *found* and had promised *promised*."""

    def __init__(self, what: str, found: object, promised: object) -> None:
        self.what = what
        self.found = found
        self.promised = promised
        super().__init__(what, found, promised)

    def __str__(self) -> str:
        return f"{self.what}: {_shown(self.found)}, and promised is {_shown(self.promised)}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text):,} characters)"


def broken(what: str, found: object, promised: object) -> NoReturn:
    """Say that in the matter of *what* a promise was not kept."""
    raise BrokenStore(what, found, promised)


def same(what: str, found: object, promised: object) -> None:
    """Raise `BrokenStore` where what was *found* is not what was *promised*, or of another type."""
    if type(found) is not type(promised) or found != promised:
        broken(what, found, promised)


@final
class Place:
    """Where a check is made: it opens stores there, and closes them in the end."""

    def __init__(self, opens: Open, stack: AsyncExitStack) -> None:
        self._opens = opens
        self._stack = stack

    async def store(self) -> Store:
        """A store that is opened here; the second one, over what the first one kept."""
        opened = self._opens()
        store = await opened if isawaitable(opened) else opened
        self._stack.push_async_callback(store.close)
        return store


Promise = Callable[[Place], Awaitable[None]]
"""Raises `BrokenStore` where stores that are opened at this place do not keep it."""


@final
@attrs.frozen
class Check:
    """
    One promise, called by its *name*; call it with what opens a store. It applies to those that last so long.
    """

    name: str
    lasts: Lasts
    _promise: Promise

    def __str__(self) -> str:
        return self.name

    async def __call__(self, opens: Open) -> None:
        """Raise `BrokenStore` where the stores that *opens* makes do not keep this promise."""
        async with AsyncExitStack() as stack:
            await self._promise(Place(opens, stack))
