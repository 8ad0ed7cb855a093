"""How a session is watched: what whoever looks on is told, and how far they may lag behind."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing, suppress
from itertools import groupby
from typing import TYPE_CHECKING, final
from weakref import WeakSet

import attrs

from ...effects.errors import ConfigError
from ...effects.notices import AnswerDropped, Notice, ReasoningDelta, RunEnded, TextDelta, TurnEnded
from ...effects.validators import positive

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator


SUBSCRIBER_BUFFER = 64
"""Notices a subscriber may lag behind, where nothing else is said: about a second of streamed text."""


@final
class _Buffer:
    """
    What one subscriber has not read yet: up to *size* notices, and however many ends of runs.

    *dropped* counts what did not fit, *over* says that nothing comes any more.
    """

    def __init__(self, size: int, awaited: set[_Buffer]) -> None:
        self.waiting: deque[Notice] = deque()
        self.dropped = 0
        self.over = False
        self._size = size
        self._awaited = awaited
        self._news = asyncio.Event()

    def put(self, notice: Notice) -> None:
        """Keep *notice* if there is room; the end of a run finds room, or takes it from something else."""
        if self.over:
            return
        if len(self.waiting) >= self._size:
            if not isinstance(notice, RunEnded):
                self.dropped += 1
                return
            self._evict()
        self.waiting.append(notice)
        self._wake()

    def _evict(self) -> None:
        """
        Make room by giving up the oldest notice that is no end.

        Where all are ends none goes: the buffer then grows, by one for each run that nobody looked at.
        """
        for index, kept in enumerate(self.waiting):
            if not isinstance(kept, RunEnded):
                del self.waiting[index]
                self.dropped += 1
                return

    def end(self) -> None:
        """Take nothing any more; what is here can still be read."""
        self.over = True
        self._wake()

    def _wake(self) -> None:
        # Whoever waits in an event loop that was closed under it cannot be woken; the others can.
        with suppress(RuntimeError):
            self._news.set()

    async def come(self) -> None:
        """Return when there may be something new."""
        self._news.clear()
        self._awaited.add(self)
        try:
            await self._news.wait()
        finally:
            self._awaited.discard(self)


@final
class Subscription:
    """
    What one subscriber sees, from `Broker.subscribe` on. Iterate it; leave with ``async with`` or `aclose`.

    Cancelled while it waits, it is over: put a time limit around the loop, not around each notice. One that
    nobody holds any more is over, too.
    """

    def __init__(self, buffer: _Buffer) -> None:
        self._buffer = buffer

    @property
    def dropped(self) -> int:
        """How many notices this subscriber was too slow for."""
        return self._buffer.dropped

    async def aclose(self) -> None:
        """Stop listening and forget what was not read. Whoever waits for a notice here is let go."""
        self._leave()

    def _leave(self) -> None:
        self._buffer.end()
        self._buffer.waiting.clear()

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Notice:
        buffer = self._buffer
        while not buffer.waiting:
            if buffer.over:
                raise StopAsyncIteration
            try:
                await buffer.come()
            except asyncio.CancelledError:
                self._leave()
                raise
        return buffer.waiting.popleft()

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


@final
class Broker:
    """
    Passes notices on to whoever has subscribed, each with a buffer of *size* notices.

    A full buffer drops what comes; the end of a run takes the place of the oldest notice that is none. All
    methods belong to one event loop, and none of them waits.
    """

    def __init__(self, size: int = SUBSCRIBER_BUFFER) -> None:
        if type(size) is not int or size < 1:
            msg = f"Broker.size must be a whole number above 0; got {size!r}"
            raise ConfigError(msg)
        self._size = size
        self._closed = False
        # Weakly held: a subscriber that broke out of its loop and forgot to close must not be fed for ever.
        self._buffers: WeakSet[_Buffer] = WeakSet()
        # Held while somebody waits: nothing else need hold a task whose only wish is the next notice.
        self._awaited: set[_Buffer] = set()

    def subscribe(self) -> Subscription:
        """A subscription to all that is published from now on; on a closed broker, one that is over."""
        buffer = _Buffer(self._size, self._awaited)
        if self._closed:
            buffer.end()
        else:
            self._buffers.add(buffer)
        return Subscription(buffer)

    def publish(self, notice: Notice) -> None:
        """Pass *notice* on. No subscriber can make it wait or fail; on a closed broker it reaches nobody."""
        for buffer in self._buffers:
            buffer.put(notice)

    def close(self) -> None:
        """End every subscription after what it has. Closing twice is fine."""
        self._closed = True
        for buffer in self._buffers:
            buffer.end()
        self._buffers.clear()


@final
@attrs.frozen(kw_only=True)
class Delivery:
    """
    What those who watch a session are told.

    Without *include_partial* a text comes whole, once the model has answered, and not delta by delta; of an
    answer that broke off nothing is told. *buffer* is how many notices a subscriber may lag behind.
    """

    include_partial: bool = True
    buffer: int = attrs.field(default=SUBSCRIBER_BUFFER, validator=positive)

    def shown(self, notices: AsyncGenerator[Notice, None]) -> AsyncGenerator[Notice, None]:
        """What of *notices* is told, which end with this."""
        return notices if self.include_partial else _without_partial(notices)


async def _without_partial(notices: AsyncGenerator[Notice, None]) -> AsyncGenerator[Notice, None]:
    whole = _Whole()
    async with aclosing(notices):
        async for notice in notices:
            for each in whole.after(notice):
                yield each
        for each in whole.rest():
            yield each


ENDS = TurnEnded | RunEnded
"""With which the text of an answer is whole; what comes in between, such as an input, is told at once."""


@final
class _Whole:
    """Holds the deltas of an answer back until it is whole."""

    def __init__(self) -> None:
        self._held: list[TextDelta | ReasoningDelta] = []

    def after(self, notice: Notice) -> Iterator[Notice]:
        """What is told when *notice* comes."""
        match notice:
            case TextDelta() | ReasoningDelta():
                self._held.append(notice)
            case AnswerDropped():
                self._held.clear()
            case _:
                if isinstance(notice, ENDS):
                    yield from self.rest()
                yield notice

    def rest(self) -> Iterator[Notice]:
        """What is held back: neighbours of one kind as one."""
        for kind, deltas in groupby(self._held, type):
            yield kind("".join([delta.text for delta in deltas]))
        self._held.clear()
