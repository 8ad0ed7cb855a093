"""
The lease of a session: a record in its store that says which process is at work on it.

Theory of operation. A process that works on a session keeps a record in the store and renews it. Another one
looks at that record first, and takes the work over only from a process that is gone or hangs, or where a
caller insists. The record protects work and not the journal: the compare-and-set of the journal decides who
goes on, as it does for a store without leases. A clock that is set changes nothing here. On one boot of a
machine all processes share the monotonic clock; of another machine's process an observer knows only whether
it renews its record while the observer watches.

A run that rests needs no process, and its lease is given up. Where one of its questions has a deadline, the
store is told of that first, so that some process goes on with the session then.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, cast, final
from uuid import uuid4

import attrs

from ...effects.errors import SessionBusy, SessionOwner, Workplace, WorldError
from ...performers.processes import born_here, machine, runs
from ...performers.stores.absence import Absence
from ...performers.worker_pool import finish

if TYPE_CHECKING:
    from ...performers.stores.base import Store
    from ..journal.journal import Journal
    from .environment import Environment

# Renewals within the time of a lease: one that comes late loses nothing.
RENEWALS, RENEWED_EVERY = 3, 0.5

# Seconds between two looks of an observer at the lease of another machine.
WATCH_PAUSE = 0.5


@final
@attrs.frozen(kw_only=True)
class LeaseRecord:
    """
    What the store keeps: *owner* is at work for *seconds* from *renewed* on, by the clock of *machine*.

    *born* tells its process from a later one with the same pid, *token* its session object from others.
    *presence* is the mark of the process at the store.
    """

    host: str
    pid: int
    worker: str
    since: float
    machine: str
    born: str
    token: str
    seconds: float
    renewed: float
    presence: str = ""

    @property
    def owner(self) -> SessionOwner:
        """The process, for people."""
        return SessionOwner(self.host, self.pid, self.worker, self.since)

    @property
    def at_work(self) -> Workplace | None:
        """Where its process is at work now; None for one of another machine, of which that is not known."""
        if not self.machine or self.machine != machine():
            return None
        if time.monotonic() - self.renewed > self.seconds or not runs(self.pid, self.born):
            return Workplace.NOWHERE
        if self.pid != os.getpid():
            return Workplace.ELSEWHERE
        # One that this process could not give up is over all the same.
        return Workplace.HERE if self.token in held_here else Workplace.NOWHERE


# The tokens of the leases that this process has now.
held_here: set[str] = set()


def decoded(data: bytes | None) -> LeaseRecord | None:
    """The record that *data* holds; None where it holds none."""
    with suppress(ValueError, TypeError, KeyError):
        # None is no text, and so no record.
        known = json.loads(cast("bytes", data))
        return LeaseRecord(
            **{each.name: known[each.name] for each in attrs.fields(LeaseRecord) if each.name in known}
        )
    return None


async def owner_of(store: Store, session: str) -> SessionOwner | None:
    """The process at work on *session* of *store*, as far as is known; None where there is none."""
    # The record and not a `Session`: one that cannot be read has an owner, too.
    record = decoded(await store.lease(session, None, None)) if store.keeps_leases else None
    return None if record is None or record.at_work is Workplace.NOWHERE else record.owner


def encoded(worker: str, token: str, since: float, seconds: float, presence: str) -> bytes:
    """The record of *worker* in this process, which is *presence* at the store; from now on for *seconds*."""
    record = LeaseRecord(
        host=socket.gethostname(),
        pid=os.getpid(),
        worker=worker,
        since=since,
        machine=machine(),
        born=born_here(os.getpid()),
        token=token,
        seconds=seconds,
        renewed=time.monotonic(),
        presence=presence,
    )
    return json.dumps(attrs.asdict(record)).encode()


@final
@attrs.define(eq=False)
class SessionLease:
    """
    The lease of the session of *journal*, which works in *environment*; it does nothing where there are none.

    *first_due* says when the first question of the run is over. A child has none: it is its parent's work.
    """

    journal: Journal
    environment: Environment
    _first_due: Callable[[], float | None]
    _since: float = attrs.field(default=0.0, init=False)
    # Whether work goes on for which it is to be kept.
    _wanted: bool = attrs.field(default=False, init=False)
    # The latest record that was written for this object, or may have been.
    _record: bytes | None = attrs.field(default=None, init=False)
    # The deadline that the store was told of.
    _deadline: float | None = attrs.field(default=None, init=False)
    # When it is to be renewed, by the monotonic clock.
    _due: float = attrs.field(default=0.0, init=False)
    # A renewal and a release at the same time could leave a record behind.
    _lock: asyncio.Lock = attrs.field(factory=asyncio.Lock, init=False)

    @cached_property
    def _token(self) -> str:
        return uuid4().hex

    @property
    def _leases(self) -> bool:
        """Whether this session has a lease: a child is its parent's work."""
        return self.journal.kept and self.environment.task is None and self.journal.store.keeps_leases

    async def _swap(self, held: bytes | None, wanted: bytes | None) -> bytes | None:
        """See `Store.lease`; where there are none, any is granted."""
        if not self._leases:
            return wanted
        return await self.journal.store.lease(self.journal.session, held, wanted, self.journal.incarnation)

    @property
    def session(self) -> str:
        """The name of its session."""
        return self.journal.session

    @property
    def held(self) -> bool:
        """Whether a record is there for this object, or may be."""
        return self._record is not None

    @property
    def due(self) -> bool:
        """Whether it has to be taken or renewed now, since the next look may come too late for that."""
        return self._leases and time.monotonic() + self.pause > self._due

    @property
    def pause(self) -> float:
        """Seconds between two looks of a poller that renews this lease."""
        return min(self.environment.poll, self.environment.lease / RENEWALS)

    async def take(self, *, takeover: bool = False) -> None:
        """
        Take the lease, for work that is about to begin; with *takeover* also from a process at work.

        Raises `SessionBusy`. It waits up to the time of a lease for a process of another machine.
        """
        # Between two runs it is here, and young.
        if not self._leases or time.monotonic() < self._due:
            return
        async with self._lock:
            found = await self._put(_any if takeover else self._over)
        if found is not None:
            raise self._busy(found)

    def begin(self) -> None:
        """Work goes on for which it is to be kept."""
        self._wanted = True

    def end(self) -> None:
        """No such work goes on: it is not taken any more."""
        self._wanted = False

    async def keep(self) -> None:
        """Take or renew it where that is due."""
        if self.due:
            # A store that fails is tried again at the next look.
            async with self._lock:
                with suppress(WorldError):
                    # Where another process has it, that one is about to write to the journal, which decides.
                    # The work may have ended by now, and given its lease up.
                    if self._wanted:
                        await self._put(_known_over)

    @asynccontextmanager
    async def renewing(self, renewals: dict[str, tuple[bytes, bytes]]) -> AsyncGenerator[None, None]:
        """Put the renewal of this lease, which is held, among the *renewals* that are made inside."""
        async with self._lock:
            if (held := self._record) is not None:
                # Kept before the store has it, as in `_put`.
                self._record = made = self._made()
                renewals[self.journal.session] = held, made
            yield
            # It is out again where another record was there.
            if self.journal.session in renewals:
                self._renewed()

    def _renewed(self) -> None:
        # Often, however long it is: who looks at it sees soon that its process is at work.
        self._due = time.monotonic() + min(self.environment.lease / RENEWALS, RENEWED_EVERY)

    async def release(self) -> None:
        """Give it up, where it is here, also when this is cancelled; where the store fails it runs out."""
        if self._record is not None:
            try:
                await self._give_up()
            except asyncio.CancelledError:
                # How far it came is not known, and giving up twice harms nothing.
                await finish(self._give_up())
                raise

    def went_on(self) -> None:
        """Forget which deadline the store was told of: a run goes on that another process may have left."""
        # That one may have ended before it told the store.
        self._deadline = math.nan

    async def _tell_deadline(self) -> None:
        """Tell the store when a process is wanted again, where that has changed."""
        due = self._first_due()
        if due != self._deadline:
            await self.journal.store.set_deadline(self.journal.session, due, self.journal.incarnation)
            self._deadline = due

    async def _give_up(self) -> None:
        async with self._lock:
            # Where the store fails it stays, and lapses: then others look at the session.
            with suppress(WorldError):
                # First: between the two no process would be wanted.
                await self._tell_deadline()
                found = await self._swap(self._record, None)
                # A renewal that was cut off may not have come to the store.
                there = decoded(found)
                if there is not None and there.token == self._token:
                    await self._swap(found, None)
            self._record, self._due = None, 0.0
            held_here.discard(self._token)

    async def check(self) -> None:
        """Raise `SessionBusy` where another object has it; it waits as `take` does."""
        found = decoded(await self._swap(None, None))
        if found is not None and not await self._over(found):
            raise self._busy(found)

    async def _put(self, over: Callable[[LeaseRecord], Awaitable[bool]]) -> LeaseRecord | None:
        """Write a record in the place of none, of ours or of one that is *over*; else the one that stays."""
        held = self._record
        if held is None:
            self._since = time.time()
        while True:
            # Kept before the store has it: where this is cut off, `release` has to look for it.
            self._record = wanted = self._made()
            held_here.add(self._token)
            found = await self._swap(held, wanted)
            if found == wanted:
                self._renewed()
                return None
            there = decoded(found)
            if there is not None and there.token != self._token and not await over(there):
                self._record, self._due = None, 0.0
                held_here.discard(self._token)
                return there
            held = found

    def _made(self) -> bytes:
        worker, seconds = self.environment.worker, self.environment.lease
        return encoded(worker, self._token, self._since, seconds, self.journal.store.presence)

    async def _over(self, found: LeaseRecord) -> bool:
        """Whether the work that *found* stands for is over; of another machine's, once it was watched."""
        ours, where = found.token == self._token, found.at_work
        if ours or where is not None:
            return ours or where is Workplace.NOWHERE
        end, absence = time.monotonic() + found.seconds, Absence(self.journal.store)
        while time.monotonic() < end and not await absence.gone([found.presence]):
            await asyncio.sleep(min(WATCH_PAUSE, found.seconds / 4))
            now = decoded(await self._swap(None, None))
            if now != found:
                return now is None
        return True

    def _busy(self, found: LeaseRecord) -> SessionBusy:
        where = Workplace.HERE if found.at_work is Workplace.HERE else Workplace.ELSEWHERE
        return SessionBusy(self.journal.session, where, found.owner)


async def _any(_: LeaseRecord) -> bool:
    return True


async def _known_over(found: LeaseRecord) -> bool:
    return found.at_work is Workplace.NOWHERE
