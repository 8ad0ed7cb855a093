"""One agent for everybody: many channels feed one conversation, and it works one turn at a time."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, final

from ...effects.errors import (
    ConfigError,
    QueueFull,
    SessionClosed,
    WorldError,
)

if TYPE_CHECKING:
    from ...effects.messages import Binary
    from .delivery import Subscription
    from .session import Session


@final
class Singleton:
    """
    Works *session* for ever: whatever comes in through any channel is queued there and answered in turn.

    Within it, as an async context manager, the work goes on by itself. Prompts of one sender that follow each
    other within the policy's `coalesce` seconds become one. *max_queue* prompts may wait, None for any.
    Nothing that was accepted is lost when the process is: the queue is in the session's journal. There is one
    conversation, so nothing here branches it.

    What goes wrong with a model or a tool ends a run, and the next prompt gets its own. An error, such as a
    store that fails, ends the work: `post`, `idle` and the end of the context raise it, and what was accepted
    waits for the next `Singleton` over the same store. *poll* is how often it is looked, while nothing goes
    on, what other processes sent, in seconds.
    """

    def __init__(self, session: Session, *, max_queue: int | None = None, poll: float = 0.5) -> None:
        if max_queue is not None and max_queue < 1:
            msg = f"max_queue must be at least 1, or None for no limit; got {max_queue!r}"
            raise ConfigError(msg)
        self.session = session
        self._max_queue = max_queue
        self._poll = poll
        self._gate = asyncio.Lock()
        self._news = asyncio.Event()
        self._idle = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    async def post(
        self,
        text: str,
        *,
        channel: str = "",
        group: str = "",
        sender: str = "",
        files: tuple[Binary, ...] = (),
        id: str | None = None,  # noqa: A002  # the field's word
    ) -> str:
        """
        Accept a prompt of *sender* in *group* of *channel*; its id, which is *id* where the sender gave one.

        When this returns it is kept. Raises `QueueFull` where *max_queue* prompts wait, and accepts nothing
        then.
        """
        who = f"{channel}/{group}/{sender}" if channel or group or sender else ""
        async with self._gate:  # one by one, or all would find the same room in the queue
            self._raise()
            waiting = len(self.session.queue)
            if self._max_queue is not None and waiting >= self._max_queue:
                raise QueueFull(self.session.id, waiting)
            try:
                return await self.session.send(text, files=files, id=id, sender=who)
            finally:
                self._idle.clear()
                self._news.set()

    async def cancel(self) -> None:
        """Interrupt what is being worked on; what waits comes next."""
        await self.session.interrupt()

    def subscribe(self) -> Subscription:
        """Watch from aside, as `Session.subscribe`."""
        return self.session.subscribe()

    async def idle(self) -> None:
        """Return when nothing waits and nothing is worked on; raise what ended the work, if anything did."""
        if self._work is not None and not self._work.done():
            await self._idle.wait()
        self._raise()

    def _raise(self) -> None:
        work = self._work
        if work is not None and work.done() and not work.cancelled() and (error := work.exception()):
            raise error

    async def _loop(self) -> None:
        while True:
            self._news.clear()
            if self.session.unfinished or self.session.queue:
                try:
                    async for _ in self.session.stream(wait=True):
                        pass
                except SessionClosed:
                    return  # it was drained; to whoever posts, it says so itself
            if not self._news.is_set():
                self._idle.set()
                await self._come()

    async def _come(self) -> None:
        """Wait until something is posted here, or somebody else sent something."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll):
                    await self._news.wait()
                    return
            with suppress(WorldError):  # the next post says so
                await self.session.load()
            if self.session.queue and not self.session.unfinished:  # else somebody else is at it
                self._idle.clear()
                return

    async def __aenter__(self) -> Singleton:
        await self.session.load()
        self._work = asyncio.ensure_future(self._loop())
        self._work.add_done_callback(lambda _: self._idle.set())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait({self._work})
        await self.session.close()
        if kind is None:
            self._raise()
