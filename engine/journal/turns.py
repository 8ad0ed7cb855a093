"""Long work in turns: between two parts of it, the event loop does what others want."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from time import perf_counter
from typing import Generic, TypeVar, final

from .fold import SessionState, initial_state, read

T = TypeVar("T")

# What is done in one turn of the event loop: items of one work, and seconds of all works together.
AT_ONCE, SECONDS = 50, 0.004

# The event loop whose turn it is, and when the works in it have to end.
_turn: tuple[asyncio.AbstractEventLoop | None, float] = (None, 0.0)


@final
class InTurns(AsyncIterator[T], Generic[T]):
    """
    *items*, with a turn of the event loop for others after *at_once* of them, or where they take long.

    No generator: one that is not iterated to its end would have to be closed.
    """

    def __init__(self, items: Iterable[T], at_once: int = AT_ONCE) -> None:
        self._items = iter(items)
        self._at_once = at_once
        self._number = 0
        self._ends = _end_of_turn()

    async def __anext__(self) -> T:
        if self._number == self._at_once or perf_counter() > self._ends:
            await asyncio.sleep(0)
            self._number, self._ends = 0, _end_of_turn()
        self._number += 1
        for item in self._items:
            return item
        raise StopAsyncIteration


def _end_of_turn() -> float:
    global _turn  # noqa: PLW0603  # all works share a turn
    loop = asyncio.get_running_loop()
    if _turn[0] is not loop:
        _turn = loop, perf_counter() + SECONDS
        # Called at the beginning of the next turn, before the works that go on in it.
        loop.call_soon(_over)
    return _turn[1]


def _over() -> None:
    global _turn  # noqa: PLW0603  # as above
    _turn = None, 0.0


async def fold_in_turns(
    entries: Sequence[bytes], session: str, state: SessionState | None = None, known: int = 0
) -> SessionState:
    """As `fold`, in turns."""
    state = initial_state(entries) if state is None else state
    async for _ in InTurns(read(entries, session, state, known)):
        pass
    return state
