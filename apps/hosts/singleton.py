"""One agent for many channels: they feed one conversation, which answers one prompt after another."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, final

from ...effects.errors import (
    ArgumentError,
    ConfigError,
    QueueFull,
    SessionBusy,
    SessionClosed,
    SessionGone,
    SessionNotRead,
    WorldError,
)
from ...engine.session.poller import Poller, Waiter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...effects.messages import Binary
    from ...engine.session.session import Session
    from ...engine.session.subscription import Subscription


@final
class Singleton:
    """
    Works *session* for ever: prompts from any channel are queued there and answered in turn.

    Use it as an async context manager; within it the work goes on by itself. Prompts of one sender within the
    policy's `coalesce` seconds become one. At most *max_queue* prompts may wait, None for no limit. The queue
    is in the session's journal, so an accepted prompt survives the process.

    A fault of a model or a tool ends one run, and the next prompt gets its own. An error, such as a store
    that fails, ends the work: `post`, `idle` and the end of the context raise it. Accepted prompts then wait
    for the next `Singleton` over the same store. What other processes write is looked for every *poll*
    seconds, together with all others that wait for that store.
    """

    def __init__(self, session: Session, *, max_queue: int | None = None, poll: float = 0.5) -> None:
        if max_queue is not None and max_queue < 1:
            msg = f"max_queue must be at least 1; got {max_queue!r} (None for no limit)"
            raise ConfigError(msg)
        if not hasattr(session, "_log"):
            fix = "write Singleton(agent.session(id))"
            msg = f"Singleton.session must be a Session; got {session!r:.80} ({fix})"
            raise ArgumentError(msg)
        self.session = session
        self._max_queue = max_queue
        self._poll = poll
        self._gate = asyncio.Lock()
        self._news = asyncio.Event()
        self._idle = asyncio.Event()
        self._work: asyncio.Task[None] | None = None
        self._journal = session._log.journal  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # no part of what a session shows
        # What its own runs write is no news to it.
        self._waiter = Waiter(session.id, self._news.set, lambda: self._journal)
        self._poller: Poller | None = None

    async def post(
        self,
        text: str,
        *,
        channel: str = "",
        group: str = "",
        sender: str = "",
        files: Sequence[Binary] = (),
        id: str | None = None,  # noqa: A002  # the word of sessions
    ) -> str:
        """
        Accept a prompt of *sender* in *group* of *channel*, and return its id (*id*, where given).

        The prompt is stored when this returns. `InputTaken` and the `response` of `AgentEvents` name the id.
        Raises `QueueFull` where *max_queue* prompts wait.
        """
        # One name for all three: the same person in two groups is two senders, whose prompts must not merge.
        origin = f"{channel}/{group}/{sender}" if channel or group or sender else ""
        # One by one: callers that check the queue together would all find the same free place.
        async with self._gate:
            # First: after an error no loop would ever answer this prompt.
            self._raise()
            if self._max_queue is not None:
                await self._check_room(self._max_queue)
            try:
                return await self.session.send(text, files=files, id=id, sender=origin)
            finally:
                # Also where sending failed: the entry may be in the store all the same, and the loop looks.
                # `_idle` is cleared first: a caller that awaits `idle` next must wait for this prompt.
                self._idle.clear()
                self._news.set()

    async def _check_room(self, most: int) -> None:
        try:
            waiting = len(self.session.queue)
        except SessionNotRead:
            waiting = len((await self.session.load()).queue)
        if waiting >= most:
            raise QueueFull(self.session.id, waiting)

    async def cancel(self) -> None:
        """Interrupt the running prompt; the next one in the queue follows."""
        await self.session.interrupt()

    def subscribe(self) -> Subscription:
        """Watch, as `Session.subscribe`."""
        return self.session.subscribe()

    async def idle(self) -> None:
        """Return when the queue is empty and no run goes on; raise the error that ended the work, if any."""
        # Work that has ended sets `_idle` no more, except once by its callback.
        if self._work is not None and not self._work.done():
            await self._idle.wait()
        self._raise()

    def _raise(self) -> None:
        work = self._work
        # Cancelled is how the context ends, and is no error.
        if work is not None and work.done() and not work.cancelled() and (error := work.exception()):
            raise error

    async def _loop(self) -> None:
        while True:
            # Cleared before the queue is looked at: a prompt that comes during the run sets it again.
            self._news.clear()
            if self.session.unfinished or self.session.queue:
                try:
                    # As a stream, which a cancel leaves between two steps, and never inside an append.
                    async for _ in self.session.stream(wait=True):
                        pass
                except SessionClosed:
                    # Drained: a caller that posts now gets the same error from the session.
                    return
                except SessionBusy:
                    # Another process is at work, and answers the queue, too. Where it is lost, this goes on.
                    await asyncio.sleep(self._poll)
                    await self._look()
                    continue
            if not self._news.is_set():
                self._idle.set()
                await self._wait_for_news()

    async def _wait_for_news(self) -> None:
        """Wait for a prompt, posted here or by another process."""
        while True:
            with suppress(TimeoutError):
                # Without a store nothing tells of a prompt that was sent by way of the session itself.
                async with asyncio.timeout(self._poll if self._poller is None else None):
                    await self._news.wait()
            # One that was posted here is known already.
            if not self._idle.is_set():
                return
            self._news.clear()
            await self._look()
            # An unfinished run is another process's, which answers the queue as well. Taking it over would
            # steal the session from a process that is alive.
            if self.session.queue and not self.session.unfinished:
                self._idle.clear()
                return

    async def _look(self) -> None:
        """Take in what other processes wrote."""
        try:
            await self.session.load()
        except SessionGone:
            raise
        except WorldError:
            # A store that is away while nothing happens is no error yet: the next post raises it.
            if self._poller is not None:
                self._poller.look_again(self._waiter)

    async def __aenter__(self) -> Singleton:
        # Prompts that an earlier process accepted are in the journal: the loop begins with them.
        await self.session.load()
        if self._journal.kept:
            self._poller = Poller.of(self._journal.store, self._poll)
            self._poller.add(self._waiter)
        self._work = asyncio.ensure_future(self._loop())
        # However the loop ends: a caller in `idle` would wait for ever otherwise.
        self._work.add_done_callback(lambda _: self._idle.set())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._work is not None:
            self._work.cancel()
            # The stream must have ended before `close`, or its last step would find a closed session.
            await asyncio.wait({self._work})
        if self._poller is not None:
            await self._poller.leave(self._waiter)
        await self.session.close()
        # An error from inside the context comes first; this one would hide it.
        if kind is None:
            self._raise()
