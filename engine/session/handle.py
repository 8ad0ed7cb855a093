"""A run in the background: its messages, its end and its account."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, final

from ...effects.notices import DoneReason, Notice
from ...effects.usage import Spent, Usage

if TYPE_CHECKING:
    from decimal import Decimal

    from ..machine import Machine
    from .result import Result
    from .session import Session

BUFFER = 64
"""Notices that may wait for a reader. Beyond that the run waits: nothing is lost and nothing piles up."""


@final
class Handle:
    """
    What `Session.start` returns at once: the run goes on in a task of its own.

    Iterate it for the notices, none of which is lost: a run whose reader is slow waits for it, and several
    readers share them. `wait` reads what nobody else does. `interrupt` asks the run to stop and `close`
    leaves it. *session* is its session, through which more is said to it.
    """

    def __init__(self, session: Session, notices: AsyncGenerator[Notice, None]) -> None:
        self.session = session
        self._waiting: deque[Notice] = deque()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room_for: int | None = BUFFER
        self._readers = 0
        self._begun = False
        self._told = False
        self._task = asyncio.ensure_future(self._pump(notices))
        # Not in the task itself: one that is cancelled before its first step runs no line of its own.
        self._task.add_done_callback(lambda _: self._news.set())

    async def _pump(self, stream: AsyncGenerator[Notice, None]) -> None:
        async with aclosing(stream) as notices:
            async for notice in notices:
                self._begun = True
                while self._room_for is not None and len(self._waiting) >= self._room_for:
                    self._room.clear()
                    await self._room.wait()
                self._waiting.append(notice)
                self._news.set()

    async def __aiter__(self) -> AsyncGenerator[Notice, None]:
        self._readers += 1
        try:
            while self._waiting or not self.done:
                if self._waiting:
                    self._room.set()
                    yield self._waiting.popleft()
                else:
                    self._news.clear()
                    await self._news.wait()
        finally:
            self._readers -= 1
            self._news.set()  # whoever waits for the end reads on
        self._raise()

    async def wait(self) -> Result:
        """
        The result, once the run is over and no prompt waits; raises what ended it, where that was an error.

        Of one that was left it is how far it has come.
        """
        while True:
            if not self._readers:
                self._waiting.clear()
                self._room.set()
            if self.done:
                break
            self._news.clear()
            await self._news.wait()
        self._raise()
        return self.session.result()

    def _raise(self) -> None:
        """Raise what ended the run, if it was an error; being closed is none."""
        self._told = True
        if not self._task.cancelled() and (error := self._task.exception()) is not None:
            raise error

    async def interrupt(self) -> None:
        """Ask the run to stop; asked twice, nothing is waited for."""
        await self.session.interrupt()

    async def drain(self, within: float | None = None) -> None:
        """As `Session.drain`. It waits for no reader: notices that nobody has read can be read afterwards."""
        self._room_for = None
        self._room.set()
        await self.session.drain(within)

    async def close(self) -> None:
        """
        Leave the run: its work stops, and the session can go on with it. Closing twice is fine.

        Raises the error that had ended it, where nobody was told of that yet.
        """
        self._task.cancel()
        await asyncio.wait({self._task})
        if not self._told:
            self._raise()

    async def __aenter__(self) -> Handle:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._told = self._told or kind is not None  # an error of whoever used it comes first
        await self.close()

    # What is known of it, at any time

    @property
    def done(self) -> bool:
        """Whether it is over, or was left."""
        return self._task.done()

    @property
    def reason(self) -> DoneReason | None:
        """Why the latest run ended; None while it goes on."""
        return None if self._machine is None else self.session.result().reason

    @property
    def spent(self) -> Spent:
        """The account of the latest run so far."""
        return Spent() if self._machine is None else self._machine.memory.spent

    @property
    def _machine(self) -> Machine | None:
        """The machine of the latest run, which is none that was over before this began."""
        machine = self.session.machine
        return machine if self._begun or self.done or self.session.unfinished else None

    @property
    def turns(self) -> int:
        """Completed model responses."""
        return self.spent.turns

    @property
    def cost(self) -> Decimal:
        """USD, as far as prices are known."""
        return self.spent.cost

    @property
    def usage(self) -> Usage:
        """Tokens."""
        return self.spent.usage
