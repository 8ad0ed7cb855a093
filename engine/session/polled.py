"""While a run goes on: what other processes write to its session is taken in, and its lease is kept."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, final

import attrs

from ...effects.errors import JournalError, SessionGone, StoreConflict, WorldError
from .poller import Poller, Waiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from .lease import SessionLease
    from .session_log import SessionLog


@final
@attrs.define(eq=False)
class Polled:
    """
    Within it, what others write to the session of *log* is taken in, and its *lease* kept.

    The lease is wanted while *works* says so. Where the session is another process's now, was deleted, or has
    an unreadable entry, *stop* gets the error: the run stays as it is journaled.
    """

    log: SessionLog
    lease: SessionLease
    _works: Callable[[], bool]
    _stop: Callable[[WorldError], None]
    # The writer is the journal, which has all that it wrote itself.
    _waiter: Waiter = attrs.field(init=False)
    _poller: Poller | None = attrs.field(default=None, init=False)
    _look: asyncio.Task[None] | None = attrs.field(default=None, init=False)
    _news: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        journal = self.log.journal
        self._waiter = Waiter(journal.session, self.wake, lambda: journal, self.lease, self._works)

    def wake(self) -> None:
        """Take in what was written; nothing once the run has ended."""
        # A writer of this process calls in the next turn of the event loop, when the run may be over. A look
        # would then race with the read before the next run, and count entries twice.
        if self._poller is None:
            return
        # One look at a time; one that has begun may have read already.
        self._news = True
        if self._look is None:
            self._look = asyncio.ensure_future(self._take_in())

    async def _take_in(self) -> None:
        while self._news:
            self._news = False
            try:
                await self.log.look()
            except (StoreConflict, SessionGone, JournalError) as error:
                # No look follows: the run is over.
                self._stop(error)
                return
            except WorldError:
                # A store that fails now and then. If it keeps failing, the driver's next append says so.
                if self._poller is not None:
                    self._poller.look_again(self._waiter)
            # Work may have begun again on what was taken in.
            if self._works():
                await self.lease.keep()
        self._look = None

    async def __aenter__(self) -> None:
        # Without a store there is no other process.
        if self.log.journal.kept:
            self.lease.begin()
            self._poller = Poller.of(self.log.journal.store, self.lease.pause)
            self._poller.add(self._waiter)

    async def __aexit__(self, *_: object) -> None:
        self.lease.end()
        poller, self._poller = self._poller, None
        if poller is not None:
            await poller.leave(self._waiter)
        if self._look is not None:
            self._look.cancel()
            await asyncio.wait({self._look})
            with suppress(asyncio.CancelledError):
                # A look that broke is a bug, and must not go unnoticed.
                self._look.result()
