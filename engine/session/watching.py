"""
Watches a session from any moment on: what its journal has, and then what happens.

Theory of operation. The notices of a journal are made again by folding it, so they are the same, and have the
same ids, for each watcher, in each process, at any time. A watcher subscribes first and reads the journal
then: nothing falls in between, and what comes twice is known by its position. It reads the journal again
where more may be in there than came to it: it was too slow, or another process may have been at work.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, final

import attrs

from ...effects.errors import ConfigError
from ...effects.notices import PASSING, Notice, NoticesMissed, lasting_notices
from ...performers.slices import Slices
from ..journal.fold import SessionState, initial_state, read
from .poller import Poller, Waiter
from .subscription import Position

if TYPE_CHECKING:
    from ..journal.journal import Journal
    from .session_log import SessionLog
    from .subscription import Subscription
    from .worker import Worker


@final
@attrs.frozen
class Watched:
    """
    A *notice* of a session, and its *id* there, such as ``"12.0"``: the number of its entry, and its place.

    Those of the moment have an empty id: deltas, progress and the notices of children. No journal has them.
    """

    notice: Notice
    id: str = ""


def position(since: int | str) -> Position:
    """The position behind which a watcher begins: that of the id *since*, or before the entry *since*."""
    # It may come from a header of a web client.
    found = re.fullmatch(r"([0-9]{1,18})(?:\.([0-9]{1,18}))?", str(since))
    if found is None:
        msg = (
            f"watch(since=...) must be the number of an entry or the id of a notice; got {str(since)[:50]!r}"
        )
        raise ConfigError(msg)
    entry, place = found.groups()
    return int(entry), -1 if place is None else int(place)


async def kept(log: SessionLog, last: Position) -> AsyncGenerator[Watched, None]:
    """The notices that the journal of *log* has now behind the position *last*."""
    async with aclosing(JournalReader(log.journal, last[0]).news()) as news:
        async for at, notice in news:
            if at > last:
                yield _watched(notice, at)


async def watch(worker: Worker, last: Position) -> AsyncGenerator[Watched, None]:
    """The notices of the session of *worker* behind the position *last*, until the session is closed."""
    journal, begun = JournalReader(worker.log.journal, last[0]), None
    told: Position = (0, -1)
    # Subscribed first: what is written from here on comes through it.
    async with worker.feed.subscribe() as live, aclosing(_heard(live, worker)) as heard:
        async for notice in heard:
            if missed := isinstance(notice, NoticesMissed):
                yield Watched(notice)
            # Where no run goes on here, and before each that begins here, another process may have written.
            if missed or begun != worker.log.begun or (notice is None and worker.driver is None):
                begun = worker.log.begun
                async with aclosing(journal.news()) as news:
                    async for told, found in news:
                        if told > last:
                            last = told
                            yield _watched(found, told)
            if isinstance(notice, PASSING):
                # One that waited here while the journal was read may be of an answer that is complete by now.
                # An entry to begin with may be one behind those of the answer under way, and ends none.
                if live.at is None or live.at >= told:
                    yield Watched(notice)
            # A question that a takeover asks again has no position: the journal has it already.
            elif notice is not None and live.at is not None and live.at > last:
                last = live.at
                yield _watched(notice, last)


async def _heard(live: Subscription, worker: Worker) -> AsyncGenerator[Notice | None, None]:
    """What *live* has; None at first, and when others may have written to the session of *worker*."""
    yield None
    # Whether there may be news, and the limit of the wait that is under way.
    there = False
    limit: asyncio.Timeout | None = None

    def wake() -> None:
        nonlocal there
        if limit is not None and not there:
            limit.reschedule(0)
        there = True

    def writer() -> object:
        # The notices of a run that goes on here come by themselves.
        return None if worker.driver is None else worker.log.journal

    poller = Poller.of(worker.log.journal.store, worker.environment.poll)
    poller.add(waiter := Waiter(worker.id, wake, writer))
    try:
        while True:
            try:
                async with asyncio.timeout(0 if there else None) as limit:
                    notice = await live.next()
            except TimeoutError:
                there, limit = False, None
                yield None
                continue
            limit = None
            if notice is None:
                return
            yield notice
    finally:
        limit = None  # a wake that is under way comes when the wait is over
        await poller.leave(waiter)


def _watched(notice: Notice, at: Position) -> Watched:
    return Watched(notice, f"{at[0]}.{at[1]}")


@final
class JournalReader:
    """
    Reads the notices of *journal*, as far as it goes each time.

    Those of entries before *since* may be left out.
    """

    def __init__(self, journal: Journal, since: int) -> None:
        self._journal = journal
        self._since = since
        self._state = SessionState()
        self._known = 0

    async def news(self) -> AsyncGenerator[tuple[Position, Notice], None]:
        """The notices of the new entries, or of all of them, each with its position."""
        # Once: from then on as far as it goes is known.
        if since := self._since:
            self._since = 0
            if (found := await self._journal.find(since)) is not None:
                self._state, self._known = found.state, found.length
        self._known, entries = await self._journal.load_new(self._known)
        if not self._known:
            self._state = initial_state(entries)
        reading = read(entries, self._journal.session, self._state, self._known)
        async for _, effects in Slices(reading):
            for place, notice in enumerate(lasting_notices(effects)):
                yield (self._known, place), notice
            self._known += 1
        # Each holds a whole history, and where one is gone back to, all is read again.
        self._state.drop_ends()
