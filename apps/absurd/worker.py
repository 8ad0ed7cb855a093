"""
A worker: takes turns from Absurd's queue, and drives their sessions.

Theory of operation. A claimed turn opens its session and lets it go on until it rests: the run is over, or
waits for a person, and then the turn ends and nothing is held. While it goes on, the claim is extended; where
that stops, another worker claims the turn and goes on where the journal ends. What keeps two workers from one
session is its lease and the journal, as everywhere. All claims of a worker are extended together.

A session may have several turns, one for each input. A worker drives it for the first of its own, and ends
the others at once: the first one looks for more before it lets go, and is claimed again if it is lost. If it
is lost while it goes on here, the next one waits in its place, so that the queue still has it. A turn that
finds its session at work in another worker sleeps in the queue until that lets go, since what it came for may
be too late for the run there. It looks ever more rarely: should that worker die, its own turn is claimed
again. Only where a claim ran out may this be that turn, so a second try of a turn looks often.

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
from contextlib import AsyncExitStack, suppress
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any, NoReturn, cast, final

import absurd_sdk
import attrs
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL, Identifier

from ...effects.errors import ConfigError, SessionBusy, SessionClosed, SessionGone
from ...effects.validators import positive
from ...engine.agent import Agent
from ...performers.base import SystemClock
from ...performers.logs import warn
from ...performers.stores.base import checked_store
from ..hosts.lapsed import LeaseWatch
from ..hosts.tenant_bound import TenantBound
from .sleepers import BusyElsewhere, Sleepers
from .turn_queue import QUEUE, TURN, TurnParams

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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

# Connections over which a worker tells how its turns begin and end: over one, each would wait for all others.
# Two more claim turns and extend their claims, for which nothing is to wait.
TURN_CONNECTIONS = 3

# The other side of a silent connection is asked after so many seconds whether it is there, and given up after
# so many milliseconds without an answer. A connection that is seldom used may be dropped on the way, and what
# waits for it would wait for a quarter of an hour.
KEEPALIVE: Mapping[str, int] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}

# How many signs of life a worker gives within the time of a claim.
BEATS = 4

# The runs that a worker still has.
STILL_CLAIMED = """
select run_id from absurd.{runs} where run_id = any(%s::uuid[]) and state = 'running' and claimed_by = %s
"""

# Extends the claims of runs, as `absurd.extend_claim` does for one. That takes half a millisecond each: with
# two hundred turns, several times a second, a fifth of a core. Those that another transaction has locked wait
# for the next time.
EXTEND = """
with held as materialized (
    select run_id from absurd.{runs}
    where run_id = any(%s::uuid[]) and state = 'running' and claim_expires_at is not null
    order by run_id for update skip locked
)
update absurd.{runs} run set claim_expires_at = absurd.current_time() + make_interval(secs => %s)
from held where run.run_id = held.run_id
"""


@final
@attrs.define(eq=False)
class _Turn:
    """
    A claimed turn: its *run*, as Absurd calls it, which is the try with that *number*.

    It is *held* while its claim is extended: until it ends, or another worker has it.
    """

    run: str
    number: int
    held: bool = True


@final
@attrs.define(eq=False)
class _AtWork:
    """
    The *turn* of the task *task* that has a session here.

    It has it for so many *more* turns, and says when it is *over*.
    """

    turn: _Turn
    task: str
    more: int = 0
    over: asyncio.Event = attrs.field(factory=asyncio.Event)


@final
class _ClaimedTurn(absurd_sdk.AsyncAbsurd):
    """Works on *claimed* over *connection*, and claims nothing itself."""

    def __init__(
        self, connection: psycopg.AsyncConnection, queue: str, claimed: absurd_sdk.ClaimedTask
    ) -> None:
        super().__init__(connection, queue)
        self._claimed = claimed

    async def claim_tasks(self, *_: object, **__: object) -> list[absurd_sdk.ClaimedTask]:
        """The one that there is."""
        return [self._claimed]


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
    # Those that were claimed and have not ended.
    _turns: set[_Turn] = attrs.field(factory=set, init=False)
    # By session: the turn that is at it here.
    _at_work: dict[str, _AtWork] = attrs.field(factory=dict, init=False)
    _bound: TenantBound = attrs.field(init=False)
    _sleepers: Sleepers = attrs.field(init=False)
    _busy: BusyElsewhere = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        checked_store(self.store)
        watch = LeaseWatch(self.store, _name(), self.claim)
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
                await self._take(stack)
                await self._drain()
        except psycopg.OperationalError as error:
            # The turns go on, and cannot tell how they end. Workers that would take them see that their
            # sessions are at work.
            warn("the absurd worker takes no turn until its database is back", error)
            await self._pause(LOST_AGAIN)
        finally:
            beat.cancel()
            await asyncio.wait({beat})

    async def _connect(self, stack: AsyncExitStack) -> psycopg.AsyncConnection:
        """A connection that is closed with *stack*; what the address says of it goes first."""
        given = conninfo_to_dict(self.dsn)
        options = {option: value for option, value in KEEPALIVE.items() if option not in given}
        connection = await psycopg.AsyncConnection.connect(
            make_conninfo(self.dsn, **options), autocommit=True
        )
        stack.push_async_callback(_close, connection)
        return connection

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
            try:
                async with AsyncExitStack() as stack:
                    # Of its own: behind the ends of a hundred turns, it would come too late.
                    connection = await self._connect(stack)
                    while True:
                        await asyncio.sleep(self.claim / BEATS)
                        await self._extend(connection)
            except psycopg.Error as error:
                warn("the absurd worker cannot extend the claims of its turns", error)
            await asyncio.sleep(self.claim / BEATS)

    async def _extend(self, connection: psycopg.AsyncConnection) -> None:
        """Extend the claims; raises `psycopg.Error` where the connection was lost."""
        turns = [turn for turn in self._turns if turn.held]
        if not turns:
            return
        running = await self._claimed(connection, turns)
        try:
            extend = SQL(EXTEND).format(runs=Identifier(f"r_{self.queue}"))
            await connection.execute(extend, ([*running], self.claim))
        except psycopg.DatabaseError as error:
            # A claim lasts for several tries, where the connection is as good as before.
            if connection.closed:
                raise
            warn("the absurd worker extends the claims of its turns later", error)

    async def _claimed(self, connection: psycopg.AsyncConnection, turns: Sequence[_Turn]) -> set[str]:
        """The runs of those of *turns* that this worker still has; the others are not held any more."""
        query = SQL(STILL_CLAIMED).format(runs=Identifier(f"r_{self.queue}"))
        rows = await connection.execute(query, ([turn.run for turn in turns], _name()))
        running = {str(run) async for (run,) in rows}
        for turn in turns:
            # The next try of a lost one waits for it, here or at another worker.
            turn.held = turn.held and turn.run in running
        return running

    async def _take(self, stack: AsyncExitStack) -> None:
        """Claim turns, as many at once as there is room for; raises where the database is away."""
        claims = absurd_sdk.AsyncAbsurd(await self._connect(stack), self.queue)
        connections = [await self._connect(stack) for _ in range(TURN_CONNECTIONS)]
        next_place = cycle(range(TURN_CONNECTIONS))
        while True:
            while len(self._taken) >= self.turns and not self._ending.is_set():
                await _either(self._ending, self._taken)
            if self._ending.is_set():
                return
            # With a claim of so many turns Absurd gives up so many claims that have run out. One at a time,
            # the last turns of a worker that died with a hundred would wait for a hundred looks.
            claimed = await claims.claim_tasks(self.turns - len(self._taken), self.claim, _name())
            for each in claimed:
                turn = _Turn(str(each["run_id"]), each["attempt"])
                # From now on: it may wait before it begins.
                self._turns.add(turn)
                place = next(next_place)
                if connections[place].closed:
                    connections[place] = await self._connect(stack)
                task = asyncio.create_task(self._one(turn, connections[place], each))
                self._taken.add(task)
                task.add_done_callback(self._taken.discard)
            if not claimed:
                await self._pause(self.poll)

    async def _one(
        self, turn: _Turn, connection: psycopg.AsyncConnection, claimed: absurd_sdk.ClaimedTask
    ) -> None:
        """Do *turn*, which was *claimed*, over *connection*."""
        client = _ClaimedTurn(connection, self.queue, claimed)
        client.register_task(TURN)(partial(self._turn, turn, connection))
        try:
            await client.work_batch(claim_timeout=self.claim)
        except psycopg.Error as error:
            # The session has done what it could, and the queue may not know it: then the turn comes again.
            warn("the absurd worker could not tell how a turn ended", error)
        finally:
            self._turns.discard(turn)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ending.wait()

    async def _turn(
        self,
        turn: _Turn,
        connection: psycopg.AsyncConnection,
        params: Any,  # noqa: ANN401  # JSON
        context: absurd_sdk.AsyncTaskContext,
    ) -> None:
        """Let the session go on until it rests."""
        told = cast("TurnParams", params)
        name = told["session"]
        try:
            while (first := self._at_work.get(name)) is not None:
                if first.task != context.task_id and first.turn.held:
                    first.more += 1
                    # Asked for now: where it is lost later, its next try finds what this turn came for.
                    if await self._claimed(connection, [first.turn]):
                        return
                # It goes on without a claim: where this worker ends now, only this turn is left.
                await first.over.wait()
            self._at_work[name] = at_work = _AtWork(turn, context.task_id)
            try:
                again = await self._alone(name, told["agent"], at_work)
            except SessionGone:
                return
            finally:
                at_work.over.set()
            if again is not None:
                await _sleep(context, again)
        finally:
            # Before Absurd is told that it is over: then nothing is left to extend.
            turn.held = False

    async def _alone(self, name: str, agent: str, at_work: _AtWork) -> float | None:
        """
        Let the session *name* of *agent* go on, as the one turn that is *at_work* on it here.

        The answer is in how many seconds a turn has to look at it again, None for never.
        """
        async with AsyncExitStack() as stack:
            try:
                if not await self._begun(name, stack):
                    return self._sleepers.put_back(name, time.monotonic())
                session = await stack.enter_async_context(self._agent(agent).session(name, self.store))
                return await self._drive_for_all(session, at_work)
            finally:
                # In the moment of the last look: a turn that comes from here on looks for itself.
                del self._at_work[name]

    async def _drive_for_all(self, session: Session, at_work: _AtWork) -> float | None:
        """Let *session* go on, for the turns that end meanwhile, too; the answer is as in `_alone`."""
        while True:
            done = at_work.more
            try:
                driven = await self._drive(session)
            except SessionClosed:
                # It was drained. What is left, and what other turns came for, is for another worker.
                return HANDED_OVER
            if done == at_work.more:
                break
            if self._ending.is_set():
                return HANDED_OVER
        if not driven:
            # Whatever is left there: an answer may have come while the run let go of the session.
            return self._pause_of(at_work)
        self._busy.wake(at_work.task)
        return _wanted_again(session, SystemClock(self.store).now())

    def _pause_of(self, at_work: _AtWork) -> float:
        """How long the turn sleeps whose session is at work elsewhere."""
        # The worker that goes on there may have lost this very turn, and have no claim that runs out with it.
        # Where it looks for turns itself, it soon gets this one back, and keeps it.
        return self._busy.put_back(at_work.task, time.monotonic(), again=at_work.turn.number > 1)

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


def _wanted_again(session: Session, now: float) -> float | None:
    """Seconds from *now* until a turn has to look at *session*, which rests or was left; None for never."""
    if not (session.unfinished or session.queue):
        return None
    dues = [each.due for each in session.waiting if each.due is not None]
    if dues:
        # A row of the queue until then, and nothing of a worker.
        return max(min(dues) - now, HANDED_OVER)
    return None if session.waiting else HANDED_OVER


async def _sleep(context: absurd_sdk.AsyncTaskContext, seconds: float) -> NoReturn:
    """Put the turn back into the queue for so many *seconds*."""
    while True:
        # A step that Absurd knows by its name is over, so each has a new one.
        await context.sleep_for(f"again {time.time_ns()}", seconds)
        # The time went by before Absurd had it, which then goes on with the turn.
        seconds = max(2 * seconds, HANDED_OVER)


def _name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


async def _close(connection: psycopg.AsyncConnection) -> None:
    """
    Close *connection*, behind the statement that is under way on it, which fails at once.

    `AsyncConnection.close` frees memory that the coroutine of that statement goes on to read: the process
    would end with a segmentation fault, and all of its turns with it.
    """
    if connection.lock.locked():
        with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as wire:
            wire.shutdown(socket.SHUT_RDWR)
    async with connection.lock:
        await connection.close()


async def _either(event: asyncio.Event, tasks: Iterable[asyncio.Task[None]]) -> None:
    """Wait until *event* is set or one of *tasks* has ended."""
    there = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({there, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        there.cancel()
