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
from ...effects.notices import Notice, NoticesMissed, notices_in
from ..journal.fold import SessionState, initial_state, read
from .delivery import PASSING, Position

if TYPE_CHECKING:
    from .delivery import Subscription
    from .runner import SessionRunner
    from .session_log import SessionLog


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


async def watch(runner: SessionRunner, last: Position) -> AsyncGenerator[Watched, None]:
    """The notices of the session of *runner* behind the position *last*, until the session is closed."""
    journal, begun = JournalReader(runner.log), None
    # Subscribed first: what is written from here on comes through it.
    async with runner.broker.subscribe() as live, aclosing(_heard(live, runner.environment.poll)) as heard:
        async for notice in heard:
            if missed := isinstance(notice, NoticesMissed):
                yield Watched(notice)
            # Where no run goes on here, and before each that begins here, another process may have written.
            if missed or begun != runner.log.begun or (notice is None and runner.driver is None):
                begun = runner.log.begun
                async with aclosing(journal.news()) as news:
                    async for at, kept in news:
                        if at > last:
                            last = at
                            yield _watched(kept, at)
            if isinstance(notice, PASSING):
                # One that waited here while the journal was read may be of an answer that is complete by now.
                if live.at is None or live.at >= last:
                    yield Watched(notice)
            # A question that a takeover asks again has no position: the journal has it already.
            elif notice is not None and live.at is not None and live.at > last:
                last = live.at
                yield _watched(notice, last)


async def _heard(live: Subscription, poll: float) -> AsyncGenerator[Notice | None, None]:
    """What *live* has; None at first, and after each *poll* seconds without any."""
    yield None
    while True:
        try:
            async with asyncio.timeout(poll):
                notice = await live.next()
        except TimeoutError:
            yield None
            continue
        if notice is None:
            return
        yield notice


def _watched(notice: Notice, at: Position) -> Watched:
    return Watched(notice, f"{at[0]}.{at[1]}")


@final
class JournalReader:
    """Reads the notices of the journal of *log*, from its beginning on and as far as it goes each time."""

    def __init__(self, log: SessionLog) -> None:
        self._log = log
        self._state = SessionState()
        self._known = 0

    async def news(self) -> AsyncGenerator[tuple[Position, Notice], None]:
        """The notices of the new entries, or of all of them, each with its position."""
        self._known, entries = await self._log.load_new(self._known)
        if not self._known:
            self._state = initial_state(entries)
        for _, effects in read(entries, self._log.session, self._state, self._known):
            notices = [one for one in notices_in(effects) if not isinstance(one, PASSING)]
            for place, notice in enumerate(notices):
                yield (self._known, place), notice
            self._known += 1
        # Each holds a whole history, and where one is gone back to, all is read again.
        self._state.drop_ends()
