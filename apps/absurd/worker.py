"""
A worker: takes turns from Absurd's queue, and drives their sessions.

Theory of operation. A claimed turn opens its session and lets it go on until it rests: the run is over, or
waits for a person, and then the turn ends and nothing is held. While it goes on, the claim is extended; where
that stops, another worker claims the turn and goes on where the journal ends. What keeps two workers from one
session is its lease and the journal, as everywhere. All claims of a worker are extended together.

A session may have several turns, one for each input. A worker drives it for the first of its own, and ends
the others at once: the first one looks for more before it lets go, and is claimed again if it is lost. If it
is lost while it goes on here, the next try of it waits in its place, so that the queue still has it. A turn
that finds its session at work in another worker sleeps in the queue until that lets go, since what it came
for may be too late for the run there. It looks ever more rarely: should that worker die, its own turn is
claimed again. Only where a claim ran out may this be that turn, so a second try of a turn looks often.

Absurd's own loop claims a batch and waits for all of it, so one long turn would keep the worker from any
other. Here each turn is a task of its own, and more are claimed meanwhile, as many at once as there is room
for.

A turn whose tenant has as many sessions at work as it may sleeps in the queue, and holds nothing meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from itertools import cycle
from typing import TYPE_CHECKING, Any, cast, final

import absurd_sdk
import attrs
import psycopg
from psycopg.sql import SQL, Identifier

from ...effects.errors import ConfigError, SessionBusy, SessionClosed, SessionGone
from ...effects.validators import positive
from ...engine.agent import Agent
from ...engine.session.lapsed import LeaseWatch
from ...engine.session.tenant_bound import TenantBound
from ...performers.base import warn
from .sleepers import BusyElsewhere, Sleepers
from .turn_queue import QUEUE, TURN, TurnParams

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence

    from ...engine.session.session import Session
    from ...performers.stores.base import Store

# Seconds after which a turn whose worker was killed is claimed by another one.
CLAIM = 2

# Seconds between two looks into an empty queue: each is one query.
POLL = 0.1

# Seconds until a turn looks again at a session that is at work elsewhere, before it sleeps in the queue.
BUSY_AGAIN = 0.5

# Seconds in the queue of a turn that a worker hands over, and of one that is not due yet by its clock.
HANDED_OVER = 0.05

# Seconds before a worker whose database went away tries again.
LOST_AGAIN = 0.5

# Connections over which a worker claims turns, and tells how they began and ended. The first one claims, so
# that a claim does not wait for a hundred ends of turns.
CONNECTIONS = 4

# How many signs of life a worker gives within the time of a claim.
BEATS = 4

# Extends the claims of runs in one statement: with one for each, a hundred turns would be a hundred
# transactions, several times a second. `extend_claim` raises for a run that is not running, which would undo
# all; so those are left out first, and those that another transaction ends at this moment.
EXTEND = """
with held as materialized (
    select run_id from absurd.{runs}
    where run_id = any(%s::uuid[]) and state = 'running' and claim_expires_at is not null
    order by run_id for update skip locked
)
select run_id, absurd.extend_claim(%s, run_id, %s) from held
"""


@final
@attrs.define(eq=False)
class _AtWork:
    """
    The *run* of a turn of *task* that has a session here.

    It has it for so many *more* turns, and says when it is *over*.
    """

    task: str
    run: str
    more: int = 0
    over: asyncio.Event = attrs.field(factory=asyncio.Event)


# The turn that a task is for.
_given: ContextVar[absurd_sdk.ClaimedTask] = ContextVar("given")


@final
class _GivenTurns(absurd_sdk.AsyncAbsurd):
    """Has its turns not from the queue, but from the task that asks: another one claims many at once."""

    async def claim_tasks(self, *_: object, **__: object) -> list[absurd_sdk.ClaimedTask]:
        """The one of this task."""
        return [_given.get()]


@final
@attrs.define(eq=False)
class AbsurdWorker:
    """
    Takes the turns of sessions of *agents* in *store*, which Absurd has in its *queue* at *dsn*.

    At most *turns* at a time, and at most *tenant_working* sessions of one tenant at work over all workers on
    the store, None for any number. A turn is another worker's after *claim* whole seconds without a sign of
    life; the lease of its session is the agent's. *poll* is in seconds. The tables are Absurd's own: make
    them with ``absurdctl init`` and ``absurdctl create-queue``.
    """

    dsn: str
    agents: Mapping[str, Agent]
    store: Store
    queue: str = attrs.field(default=QUEUE, kw_only=True)
    turns: int = attrs.field(default=500, kw_only=True, validator=attrs.validators.ge(1))
    claim: int = attrs.field(default=CLAIM, kw_only=True, validator=attrs.validators.ge(1))
    poll: float = attrs.field(default=POLL, kw_only=True, validator=attrs.validators.gt(0))
    tenant_working: int | None = attrs.field(default=None, kw_only=True, validator=positive)
    _ending: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)
    _taken: set[asyncio.Task[None]] = attrs.field(factory=set, init=False)
    # The runs of the turns that were claimed, as Absurd calls them, and have not ended.
    _runs: set[str] = attrs.field(factory=set, init=False)
    # By session: the turn that is at it here.
    _at_work: dict[str, _AtWork] = attrs.field(factory=dict, init=False)
    _bound: TenantBound = attrs.field(init=False)
    _sleepers: Sleepers = attrs.field(init=False)
    _busy: BusyElsewhere = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        # A store without leases is one of which only the turns here are known, which are counted till they
        # end.
        watch = LeaseWatch(self.store, _name(), self.claim)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # see above
        self._bound = TenantBound(watch, self.tenant_working, tuple)
        self._sleepers = Sleepers(self.tenant_working)
        self._busy = BusyElsewhere(self.claim)

    async def run(self) -> None:
        """
        Take turns until `stop`, and then end those that were taken: their sessions are drained.

        A database that goes away is waited for. A cancel cuts the turns off, for other workers to go on with.
        Raises what Absurd raises where its tables are not there.
        """
        try:
            while not self._ending.is_set():
                await self._connected()
            # Again: its database may have been away when it was to stop.
            await self._drain()
        finally:
            # A turn that nothing waits for would go on without a claim, and no one could stop it.
            for task in self._taken:
                task.cancel()
            await self._all_over()

    async def _connected(self) -> None:
        """Take turns, until `stop` or until the database goes away."""
        beat = asyncio.create_task(self._beat())
        try:
            async with AsyncExitStack() as stack:
                connections = [
                    await stack.enter_async_context(self._connection()) for _ in range(CONNECTIONS)
                ]
                await self._take(connections)
                await self._drain()
        except psycopg.OperationalError as error:
            # The turns go on without a claim; those that would take them see that their sessions are at
            # work.
            warn("absurd worker", "takes no turn until its database is back", error)
            await self._pause(LOST_AGAIN)
        finally:
            beat.cancel()
            await asyncio.wait({beat})

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[psycopg.AsyncConnection]:
        connection = await psycopg.AsyncConnection.connect(self.dsn, autocommit=True)
        try:
            yield connection
        finally:
            await connection.close()

    async def _drain(self) -> None:
        """Drain the sessions of all turns, and wait until these have ended."""
        await asyncio.gather(*[agent.drain() for agent in self.agents.values()])
        await self._all_over()

    async def _all_over(self) -> None:
        if self._taken:
            await asyncio.wait(self._taken)

    def stop(self) -> None:
        """Take no more turns. Running ones hand their work over to other workers, as `Session.drain` says."""
        self._ending.set()

    async def _beat(self) -> None:
        """Extend the claims, again and again; while the database is away, they run out."""
        while True:
            # A connection of its own: behind the ends of a hundred turns, it would come too late.
            with suppress(psycopg.Error):
                async with self._connection() as connection:
                    while True:
                        await asyncio.sleep(self.claim / BEATS)
                        await self._extend(connection)
            await asyncio.sleep(self.claim / BEATS)

    async def _extend(self, connection: psycopg.AsyncConnection) -> None:
        """Extend the claims; raises `psycopg.Error` where the connection was lost."""
        there = {*self._runs}
        if not there:
            return
        try:
            extend = SQL(EXTEND).format(runs=Identifier(f"r_{self.queue}"))
            extended = await connection.execute(extend, ([*there], self.queue, self.claim))
        except psycopg.DatabaseError:
            # The connection is as good as before, and a claim lasts for several tries.
            if connection.closed:
                raise
            return
        # The next try of a lost one waits for it, here or at another worker.
        self._runs -= there - {str(run) async for run, _ in extended}

    async def _take(self, connections: Sequence[psycopg.AsyncConnection]) -> None:
        """Claim turns, as many at once as there is room for; raises where the database is away."""
        claims, name = absurd_sdk.AsyncAbsurd(connections[0], self.queue), _name()
        workers = [_GivenTurns(each, self.queue) for each in connections[1:]]
        for each in workers:
            each.register_task(TURN)(self._turn)
        turns = cycle(workers)
        while not self._ending.is_set():
            # With a claim of so many turns Absurd gives up so many claims that have run out. One at a time,
            # the last turns of a worker that died with a hundred would wait for a hundred looks.
            claimed = await claims.claim_tasks(self.turns - len(self._taken), self.claim, name)
            for given in claimed:
                # From now on, since many may wait to begin.
                self._runs.add(str(given["run_id"]))
                task = asyncio.create_task(self._one(next(turns), given))
                self._taken.add(task)
                task.add_done_callback(self._taken.discard)
            if not claimed:
                await self._pause(self.poll)
            while len(self._taken) >= self.turns and not self._ending.is_set():
                await _either(self._ending, self._taken)
            if any(each.closed for each in connections):
                msg = "a connection was lost"
                raise psycopg.OperationalError(msg)

    async def _one(self, worker: _GivenTurns, given: absurd_sdk.ClaimedTask) -> None:
        """Do the turn that was *given*."""
        _given.set(given)
        try:
            # After it was claimed the session has done what it could: where the end of the turn is not known
            # to the queue, another worker looks at the session again.
            with suppress(psycopg.OperationalError):
                await worker.work_batch(claim_timeout=self.claim)
        finally:
            self._runs.discard(str(given["run_id"]))

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ending.wait()

    async def _turn(self, params: Any, context: absurd_sdk.AsyncTaskContext) -> None:  # noqa: ANN401  # JSON
        """Let the session go on until it rests."""
        given = cast("TurnParams", params)
        name, run = given["session"], str(_given.get()["run_id"])
        with suppress(SessionClosed, SessionGone):
            try:
                while (there := self._at_work.get(name)) is not None:
                    if there.task != context.task_id and there.run in self._runs:
                        there.more += 1
                        return
                    # It goes on without a claim: where this worker ends now, only this turn is left.
                    await there.over.wait()
                self._at_work[name] = at_work = _AtWork(context.task_id, run)
                try:
                    await self._alone(name, given["agent"], at_work, context)
                finally:
                    at_work.over.set()
            finally:
                # Before Absurd is told that it is over: then nothing is left to extend.
                self._runs.discard(run)

    async def _alone(
        self, name: str, agent: str, at_work: _AtWork, context: absurd_sdk.AsyncTaskContext
    ) -> None:
        """Let the session *name* of *agent* go on, as the one turn that is *at_work* on it here."""
        async with AsyncExitStack() as stack:
            try:
                while not await self._begun(name, stack):
                    pause = self._sleepers.put_back(name, time.monotonic())
                    # As in `_hand_over`; where the time has gone by already, it looks again.
                    await context.sleep_for(f"full {time.time_ns()}", pause)
                session = await stack.enter_async_context(self._agent(agent).session(name, self.store))
                done, driven = -1, True
                while done != at_work.more:
                    done = at_work.more
                    driven = await self._drive(session)
            finally:
                # In the moment of the last look: a turn that comes from here on looks for itself.
                del self._at_work[name]
            if not driven:
                # Whatever is left there: an answer may have come while the run let go of the session.
                await context.sleep_for(f"elsewhere {time.time_ns()}", self._pause_of(context.task_id))
            self._busy.wake(context.task_id)
            await self._hand_over(session, context)

    def _pause_of(self, turn: str) -> float:
        """How long *turn* sleeps, whose session is at work elsewhere."""
        # The worker that goes on there may have lost this very turn, and have no claim that runs out with it.
        # Where it looks for turns itself, it soon gets this one back, and keeps it.
        return self._busy.put_back(turn, time.monotonic(), again=_given.get()["attempt"] > 1)

    async def _begun(self, session: str, stack: AsyncExitStack) -> bool:
        """Whether the tenant of *session* has a place, which is taken then until *stack* ends."""
        if not self._sleepers.is_next(session, time.monotonic()):
            return False
        async with AsyncExitStack() as place:
            if await place.enter_async_context(self._bound.begin(session)):
                await stack.enter_async_context(place.pop_all())
                self._sleepers.wake(session)
                return True
        return False

    def _agent(self, name: str) -> Agent:
        if name not in self.agents:
            # Another worker may have it, or this one after its next start: the turn comes again.
            msg = f"a turn is for agent {name!r}; this worker has {', '.join(map(repr, self.agents))}"
            raise ConfigError(msg)
        return self.agents[name]

    async def _drive(self, session: Session) -> bool:
        """Let *session* go on until its run rests and no prompt is left; False where another has it."""
        await session.load()
        waited = False
        while (session.unfinished or session.queue) and not self._ending.is_set():
            try:
                await session.resume()
            except SessionBusy:
                if waited:
                    return False
                # Most are about to let go, and one more look costs less than to sleep in the queue.
                await self._pause(BUSY_AGAIN)
                await session.load()
                waited = True
                continue
            # What came while the run let go of the session, its sender may have thought to be read by it.
            await session.load()
            if session.unfinished:
                break
        return True

    async def _hand_over(self, session: Session, context: absurd_sdk.AsyncTaskContext) -> None:
        """Leave to a later turn what is left: a question with a deadline, or work that was handed over."""
        if not (session.unfinished or session.queue):
            return
        # A step that Absurd knows by its name is over, so each has a new one.
        step = f"later {time.time_ns()}"
        dues = [each.due for each in session.waiting if each.due is not None]
        if dues:
            # A row of the queue until then, and nothing of a worker.
            await context.sleep_until(step, max(min(dues), time.time() + HANDED_OVER))
        elif not session.waiting:
            await context.sleep_for(step, HANDED_OVER)


def _name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


async def _either(event: asyncio.Event, tasks: Iterable[asyncio.Task[None]]) -> None:
    """Wait until *event* is set or one of *tasks* has ended."""
    there = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({there, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        there.cancel()
