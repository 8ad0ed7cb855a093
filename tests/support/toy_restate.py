"""A toy of Restate in memory: objects, their turns, and attempts that are cut off anywhere."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count, islice
from typing import Any

import attrs

from turnwheel.apps.restate.asks import Append, AskAnswer, AskingStore, Given, StoreAsk
from turnwheel.apps.restate.shelf import Shelf
from turnwheel.apps.restate.turn import TurnWork, take_turn
from turnwheel.effects.errors import StoreError
from turnwheel.performers.stores.base import SessionInfo


@attrs.define
class Kept:
    """A state by keys; counts the keys that were read, in how many exchanges, and those that were kept."""

    values: dict[str, bytes] = attrs.field(factory=dict)
    reads: int = 0
    exchanges: int = 0
    changes: int = 0

    async def read(self, keys: Sequence[str]) -> Sequence[bytes | None]:
        self.reads += len(keys)
        self.exchanges += 1
        return [self.values.get(key) for key in keys]

    async def keys(self) -> Sequence[str]:
        return sorted(self.values)

    def keep(self, key: str, value: bytes | None) -> None:
        self.changes += 1
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value


class Died(BaseException):
    """The worker was killed."""


@attrs.define
class Attempt:
    """An attempt of a turn, which has a *journal* already."""

    object: ToyObject
    journal: list[bytes | Given]
    done: int = 0
    step: asyncio.Future[bytes] | None = None

    async def next(self, step: Callable[[], Awaitable[bytes]]) -> bytes | Given:
        if self.done == len(self.journal):
            self.step = self.step or asyncio.ensure_future(step())
            rung = asyncio.ensure_future(self.object.rung.wait())
            both: set[asyncio.Future[Any]] = {self.step, rung}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            rung.cancel()
            if self.object.records in self.object.dies:
                self.object.dies.remove(self.object.records)
                self.step.cancel()
                raise Died
            self.object.records += 1
            if self.object.signals:
                self.journal.append(self.object.signals.popleft())
                if not self.object.signals:
                    self.object.rung.clear()
            else:
                self.journal.append(self.step.result())
        came = self.journal[self.done]
        self.done += 1
        if not isinstance(came, Given):
            self.step = None
        return came

    def reply(self, awakeable: str, answer: AskAnswer) -> None:
        if not self.object.replies[awakeable].done():
            self.object.replies[awakeable].set_result(answer)

    def wake(self, seconds: float) -> None:
        self.object.wakes.append(seconds)


@attrs.define(eq=False)
class ListingStore(AskingStore):
    """What the server's look at all objects is to a `RestateStore`."""

    state: Kept = attrs.field(factory=Kept, init=False)
    numbers: Iterator[str] = attrs.field(factory=lambda: map(str, count(1)), init=False)

    async def list(
        self, limit: int | None = None, after: int | None = None, prefix: str = ""
    ) -> Sequence[SessionInfo]:
        names = [key.removeprefix("info/") for key in self.state.values if key.startswith(f"info/{prefix}")]
        found = [info for name in names if (info := await self.info(name)) is not None]
        found.sort(key=lambda one: -one.stamp)
        return [*islice((one for one in found if after is None or one.stamp < after), limit)]


class ShelfStore(ListingStore):
    """A store on a shelf of its own, without Restate."""

    async def _ask(self, ask: StoreAsk) -> AskAnswer:
        return await Shelf(self.state, self.numbers.__next__).answer(ask)


@attrs.define(eq=False)
class ToyObject(ListingStore):
    """
    An object with its state, and a store of it for other processes.

    Its worker dies once after each number of records in *dies*.
    """

    work: Callable[[str], TurnWork]
    dies: set[int] = attrs.field(factory=set)
    signals: deque[Given] = attrs.field(factory=deque)
    rung: asyncio.Event = attrs.field(factory=asyncio.Event)
    replies: dict[str, asyncio.Future[AskAnswer]] = attrs.field(factory=dict)
    wakes: list[float] = attrs.field(factory=list)
    inbox: deque[Given] = attrs.field(factory=deque)
    # Whether a turn goes on, which hears signals.
    at_work: bool = False
    attempts: int = 0
    records: int = 0
    # Appends that came to no turn.
    refused: int = 0
    # The task that takes the turns.
    working: asyncio.Future[None] | None = None

    async def _ask(self, ask: StoreAsk) -> AskAnswer:
        shelf = Shelf(self.state, lambda: "unused")
        if not isinstance(ask, Append):
            return await shelf.answer(ask)
        if (refusal := await shelf.refusal(ask)) is not None:
            self.refused += 1
            return refusal
        given = Given(append=ask, answer=next(self.numbers))
        self.inbox.append(given)
        if self.at_work:
            self.signals.append(given)
            self.rung.set()
        elif self.working is None or self.working.done():
            self.working = asyncio.ensure_future(self._turns())
        self.replies[given.answer] = asyncio.get_running_loop().create_future()
        return await self.replies[given.answer]

    async def settled(self) -> None:
        """Return when all turns are over."""
        if self.working is not None:
            await self.working

    async def _turns(self) -> None:
        while self.inbox:
            await self._turn(self.inbox.popleft())

    async def _turn(self, given: Given) -> None:
        journal: list[bytes | Given] = []
        before, self.at_work = dict(self.state.values), True
        while True:
            self.attempts += 1
            attempt = Attempt(self, journal)
            # What was done to the state is done again, from the beginning.
            self.state.values.clear()
            self.state.values.update(before)
            assert given.append is not None
            ids = iter([f"{given.answer}-{number}" for number in range(10)])
            with suppress(Died, StoreError):
                work = self.work(given.append.session.partition(".")[0])
                await take_turn(attempt, Shelf(self.state, ids.__next__), work, given)
                self.at_work = False
                # A turn that is over hears no signal.
                self.signals.clear()
                self.rung.clear()
                return
