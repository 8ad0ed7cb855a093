"""
The runs that were left in the middle, by servers that are gone and by this one: which of them are due here.

Theory of operation. A dead server leaves its leases, which lapse. One that drains leaves a lapsed lease on
purpose. So the leases of the store, which one question gives, say which sessions have no process. Besides,
this server owes a look to sessions that another process had when an input came in here: it may have looked
for inputs for the last time before it let go. And a run that failed here is tried again, a bounded number of
times; others see its lapsed lease and may have more luck. A journal that cannot be read is logged once, and
read again ever more rarely: a person may mend it, or that of a child. A run that rests has no lease; where a
question of it has a deadline, the store knows that, and tells which are over without a process that saw to
them.
"""

from __future__ import annotations

import logging
import math
import time
from contextlib import suppress
from typing import TYPE_CHECKING, final

import attrs

from ...effects.errors import JournalError, StoreConflict, WorldError
from ...engine.inspect.listing import described
from ...engine.journal.encoding import decode_entry
from ...engine.journal.entries import Posted
from ...engine.journal.summary import SessionStatus
from ...performers.base import look_at
from ...performers.logs import warn
from ...performers.stores.base import MAX_OVERDUE
from ..hosts.lapsed import LeaseWatch

if TYPE_CHECKING:
    from ...engine.inspect.listing import Listed
    from ...performers.base import Clock
    from ...performers.stores.base import Store

# Seconds between two questions for deadlines that are over.
DEADLINES_EVERY = 2.0

# Seconds behind a deadline in which the process that waited for it has begun.
BEGINS_WITHIN = 2.0

# How often a run that fails is begun again here, and the seconds before the first time; they double.
TRIES, FIRST_PAUSE = 5, 1.0

# Seconds until a journal that cannot be read is read again: at first, and at most; they double.
UNREADABLE_PAUSE, LONGEST_UNREADABLE = 10.0, 300.0


def is_left(row: Listed) -> bool:
    """Whether there is something to do in the session *row* before a person answers."""
    state = row.about.state
    # Prompts behind a question wait for its answer.
    return state is SessionStatus.UNFINISHED or (state is SessionStatus.IDLE and row.about.prompts > 0)


@final
@attrs.define(eq=False)
class Debt:
    """
    A session that is to be looked at again, from *due* on by the monotonic clock; it *failed* so often.

    Of a journal that cannot be read, it was logged at which stamp, and why: that is *unreadable*. It is read
    again after *pause* seconds.
    """

    failed: int = 0
    due: float = 0.0
    unreadable: tuple[int, str] | None = None
    pause: float = 0.0


@final
class LeftRuns:
    """
    The runs in *store* that no process drives; *seconds* is how long a claim of *worker* holds.

    Deadlines are judged by *clock*.
    """

    def __init__(self, store: Store, worker: str, seconds: float, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.watch = LeaseWatch(store, worker, seconds)
        self._debts: dict[str, Debt] = {}
        # The sessions whose deadline is over, or some of many; when the store is asked for them again, and
        # how many it is to pass over then.
        self._overdue: frozenset[str] = frozenset()
        self._asks_at, self._skips = 0.0, 0

    def busy(self, session: str) -> None:
        """Another process has *session*: look at it again once that has let go."""
        self._debts.setdefault(session, Debt())

    def failed(self, session: str, error: Exception) -> None:
        """A run of *session* failed here with *error*: try again later, if it did not fail too often."""
        warn("a run in the background failed", error, level=logging.ERROR, session=session)
        debt = self._debts.setdefault(session, Debt())
        # The first time is no new try.
        debt.due = time.monotonic() + FIRST_PAUSE * 2**debt.failed if debt.failed < TRIES else math.inf
        debt.failed += 1

    async def lost(self, session: str, error: StoreConflict) -> None:
        """A run of *session* ended here with *error*: another process has it, or it failed."""
        if not self._store.keeps_leases:
            # Nothing tells the two apart, and a run that another process has must not be taken back.
            return
        with suppress(WorldError):
            row = await described(self._store, session)
            if row is None or not is_left(row):
                return
            if await self.watch.lease(session) is not None:
                # It may let go without an end, as a script that is closed does.
                self.busy(session)
                return
        # A process that takes a run over puts its lease there first. Without one, the store refused an entry
        # of this process, and nothing tells others that there is something to do.
        self.failed(session, error)
        await self.leave(session)

    def unreadable(self, row: Listed, error: JournalError) -> None:
        """The journal of the session *row*, or of a child of it, cannot be read, as *error* says."""
        debt, why = self._debts.setdefault(row.session, Debt()), (row.stamp, str(error))
        if debt.unreadable == why:
            debt.pause = min(2 * debt.pause, LONGEST_UNREADABLE)
        else:
            warn("a journal cannot be read; its run waits until that changes", error, session=row.session)
            debt.unreadable, debt.pause = why, UNREADABLE_PAUSE
        debt.due = time.monotonic() + debt.pause

    def is_past(self, row: Listed) -> bool:
        """Whether the session *row* could not be read here, and others have come to the end of it."""
        debt = self._debts.get(row.session, Debt())
        return debt.unreadable is not None and not is_left(row) and not self.is_overdue(row.session)

    def owes(self, session: str) -> bool:
        """Whether this server owes a look to *session*, whatever others do with it."""
        return session in self._debts

    def taken(self, session: str) -> None:
        """*session* is at work here again; that it failed is remembered until its run ends."""
        if session in self._debts and not self._debts[session].failed:
            del self._debts[session]

    def settled(self, session: str) -> None:
        """There is nothing to do in *session* any more."""
        self._debts.pop(session, None)

    async def leave(self, session: str) -> None:
        """Leave *session* to others, where its run has not ended and no other process has it."""
        # Where the store fails, the debt stays, or the next server finds it when it starts.
        with suppress(WorldError):
            row = await described(self._store, session)
            if row is not None and is_left(row):
                await self.watch.vacate(session, row.incarnation)

    def is_overdue(self, session: str) -> bool:
        """Whether a deadline of *session* is over, and no process saw to it."""
        return session in self._overdue

    async def seen_to(self, row: Listed) -> None:
        """The session *row* is over, and what the store keeps is no deadline of it any more."""
        self._overdue -= {row.session}
        await self._store.set_deadline(row.session, None, row.incarnation)

    async def rests(self, row: Listed) -> bool:
        """Whether the session *row* waits for people only: its worker may wait with it and needs no lease."""
        if self.is_overdue(row.session):
            return False
        info = await self._store.info(row.session)
        if info is None or row.about.state is not SessionStatus.RESTING:
            return False
        last = await self._store.load(row.session, info.length - 1)
        return not (last and isinstance(decode_entry(last[-1]), Posted))

    async def claim(self, session: str, lapsed: bytes | None) -> tuple[bool, bytes | None]:
        """Whether *session* may be taken up here, and the claim: what only this server owes needs none."""
        if lapsed is None and not self.is_overdue(session):
            return True, None
        claim = await self.watch.claim(session, lapsed)
        return claim is not None, claim

    async def due(self, *, deadlines: bool) -> dict[str, bytes | None]:
        """The sessions to take up now, each with the lapsed lease that is there; perhaps for *deadlines*."""
        leases = await self.watch.look()
        if deadlines and self._store.keeps_leases:
            await self._look_at_deadlines()
        free = [name for name in (*self._debts, *self._overdue) if name not in leases.there]
        found = {*leases.lapsed, *free}
        now, none = time.monotonic(), Debt()
        return {name: leases.there.get(name) for name in found if self._debts.get(name, none).due <= now}

    async def _look_at_deadlines(self) -> None:
        if time.monotonic() >= self._asks_at:
            # A process that counts the time itself gets a moment to begin.
            await look_at(self._clock)
            moment = self._clock.now() - min(self.watch.seconds, BEGINS_WITHIN)
            found = await self._store.overdue(moment, self._skips)
            # Those of other servers may stay for long, and must not hide the ones behind them.
            self._skips = self._skips + len(found) if len(found) >= MAX_OVERDUE else 0
            self._overdue = frozenset(found)
            self._asks_at = time.monotonic() + DEADLINES_EVERY
