"""
The notices of a run for the caller that it works for, who loses none.

Theory of operation. While the reader is busy only deltas are buffered, and no other step is applied before it
comes back, but inputs of people and what stands before them. The worker has the buffer and not the stream:
one that is dropped lets go of its run.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias, final

from ...effects.errors import Choice
from ...effects.events import ModelStreamed
from ...performers.base import PassThroughNotice
from .notice_stream import NoticeStream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...effects.notices import Notice


@final
class RunBuffer:
    """
    The *unread* notices of a `RunStream`: of each step before the next, and of up to *size* deltas.

    *room* has the worker ask `admits` again.
    """

    def __init__(self, size: int, room: Callable[[], None]) -> None:
        self.unread: deque[Notice] = deque()
        # Set when there is something to read; there while the reader waits.
        self.news: asyncio.Future[None] | None = None
        # Whether an event was not let in, and waits for the reader.
        self.refused = False
        # Whether no more comes, since the work has ended or was left.
        self.ended = False
        self._size = size
        self.room = room

    def put(self, notices: Sequence[Notice]) -> None:
        """Keep the *notices* of one step."""
        if notices and not self.ended:
            self.unread.extend(notices)
            # As `wake`, which would be one more call for each delta.
            if (news := self.news) is not None:
                self.news = None
                with suppress(asyncio.InvalidStateError):
                    news.set_result(None)

    def admits(self, event: object) -> bool:
        """Whether the reader waits for more, or *event* is one of those of which some may be unread."""
        # First: each piece of a stream asks.
        if self.news is not None and not self.unread:
            return True
        passes = isinstance(event, ModelStreamed | PassThroughNotice) and len(self.unread) < self._size
        self.refused = not (passes or self.ended)
        return not self.refused

    def wake(self) -> None:
        """Have the reader look."""
        news, self.news = self.news, None
        if news is not None:
            # The reader may have been cancelled in this turn of the loop.
            with suppress(asyncio.InvalidStateError):
                news.set_result(None)

    def end(self, _: object = None) -> None:
        """Keep nothing more; what is here can be read."""
        self.ended = True
        self.wake()

    def leave(self) -> None:
        """Drop what is unread, and keep nothing more."""
        self.end()
        self.unread.clear()
        self.room()


# Begins the work, and lets go of it.
Begin: TypeAlias = "Callable[[], asyncio.Task[None]]"
Leave: TypeAlias = "Callable[[asyncio.Task[None]], None]"


class OnLeave(Choice):
    """What becomes of a run whose stream is left early."""

    LEAVE = "leave"
    """Its work stops, and it stays unfinished: `Session.resume` goes on with it."""
    CONTINUE = "continue"
    """It goes on in the background."""


@final
class RunStream(NoticeStream):
    """
    The notices of a run that is worked on while they are read; from `Session.stream`.

    Iterate it with ``async for``; nothing begins before the first notice is asked for. It is left early by
    `aclose`, at the end of an ``async with``, by a cancel of its reader's wait or where it is dropped; then
    *leave* is called with the task.
    """

    def __init__(self, begin: Begin, leave: Leave, buffer: RunBuffer, on_leave: OnLeave) -> None:
        self._begin = begin
        self._leave = leave
        self._stops = on_leave is OnLeave.LEAVE
        # The worker has this one and not the stream, whose last reference is its reader's.
        self._buffer = buffer
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop
        self._over = False

    @property
    def ended(self) -> bool:
        """Whether it was read to its end, or left."""
        return self._over

    async def __anext__(self) -> Notice:
        buffer, unread = self._buffer, self._buffer.unread
        while not unread:
            if self._over:
                raise StopAsyncIteration
            if self._task is None:
                self._task, self._loop = self._begin(), asyncio.get_running_loop()
                self._task.add_done_callback(buffer.end)
            elif buffer.ended:
                self._over = True
                # Raises what ended the work.
                self._task.result()
                raise StopAsyncIteration
            if buffer.news is not None:
                msg = "another task waits for the next notice of this stream"
                raise RuntimeError(msg)
            # Here and not in a method: it is awaited for nearly each delta.
            buffer.news = news = self._loop.create_future()
            if buffer.refused:
                buffer.room()
            try:
                await news
            except asyncio.CancelledError:
                await self._left()
                raise
        return unread.popleft()

    async def aclose(self) -> None:
        """Leave the run; where that stops the work, it has stopped when this returns."""
        if self._over:
            return
        await self._left()
        task = self._task
        # What went wrong while the work stopped. An error that ended it before was raised to the reader.
        if task is not None and self._stops and not task.cancelled() and (error := task.exception()):
            raise error

    async def _left(self) -> None:
        self._over = True
        task = self._task
        if task is None:
            return
        _let_go(self._buffer, self._leave, task)
        if self._stops:
            # May be cancelled, such as by the work that stops here: the next caller waits for that anyway.
            task.add_done_callback(_seen)
            await asyncio.wait({task})

    def __del__(self) -> None:
        task = self._task
        if self._over or task is None or task.done():
            return
        with suppress(RuntimeError):
            loop = task.get_loop()
            if loop is _running_loop():
                _let_go(self._buffer, self._leave, task)
            else:
                loop.call_soon_threadsafe(_let_go, self._buffer, self._leave, task)


def _seen(task: asyncio.Task[None]) -> None:
    """Take the error of *task*, whose caller is gone, for seen."""
    if not task.cancelled():
        task.exception()


# Not a method: a stream that is collected holds on to nothing of itself.
def _let_go(buffer: RunBuffer, leave: Leave, task: asyncio.Task[None]) -> None:
    buffer.leave()
    leave(task)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    with suppress(RuntimeError):
        return asyncio.get_running_loop()
    return None
