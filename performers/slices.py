"""Long work in slices: between two of them, the event loop does what others want."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from time import perf_counter
from typing import Generic, TypeVar, final

T = TypeVar("T")

# Bounds of one iteration of the event loop: items of one work, and seconds of all works together. A few
# items are done in any case, so that what is short takes the same iterations on a busy machine.
AT_ONCE, SECONDS, FEW = 50, 0.004, 10

# The event loop in which a slice was begun, and when all slices end that are done in this iteration.
_slice: tuple[asyncio.AbstractEventLoop | None, float] = (None, 0.0)


@final
class Slices(AsyncIterator[T], Generic[T]):
    """
    *items*; others have an iteration of the event loop after *at_once* of them, or fewer that take long.

    No generator: one that is not iterated to its end would have to be closed.
    """

    def __init__(self, items: Iterable[T], at_once: int = AT_ONCE) -> None:
        self._items = iter(items)
        self._at_once = at_once
        self._number = 0
        self._ends = _end_of_slice()

    async def __anext__(self) -> T:
        if self._number == self._at_once or (self._number >= FEW and perf_counter() > self._ends):
            await asyncio.sleep(0)
            self._number, self._ends = 0, _end_of_slice()
        self._number += 1
        for item in self._items:
            return item
        raise StopAsyncIteration


def _end_of_slice() -> float:
    global _slice  # noqa: PLW0603  # all works share it
    loop = asyncio.get_running_loop()
    if _slice[0] is not loop:
        _slice = loop, perf_counter() + SECONDS
        # Called first in the next iteration, before the works that go on in it.
        loop.call_soon(_over)
    return _slice[1]


def _over() -> None:
    global _slice  # noqa: PLW0603  # as above
    _slice = None, 0.0
