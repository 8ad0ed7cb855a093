"""
A worker: takes turns from Absurd's queue, and drives their sessions.

Theory of operation. A claimed turn opens its session and lets it go on until it rests: the run is over, or
waits for a person, and then the turn ends and nothing is held. While it goes on, the claim is extended; where
that stops, another worker claims the turn and goes on where the journal ends. What keeps two workers from one
session is its lease and the journal, as everywhere.

A session may have several turns, one for each input. A worker drives it for the first of its own, and ends
the others at once: the first one looks for more before it ends, and is claimed again if it is lost. A turn
that finds its session at work in another worker waits until that lets go, since what it came for may be too
late for the run there.

Absurd's own loop claims a batch and waits for all of it, so one long turn would keep the worker from any
other. Here one task at a time waits for a turn, and the next one begins to wait as soon as it has one.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast, final

import absurd_sdk
import attrs
import psycopg

from ...effects.errors import ConfigError, SessionBusy, SessionClosed, SessionGone
from ...engine.agent import Agent
from ...performers.base import warn
from .turn_queue import QUEUE, TURN, TurnParams

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ...engine.session.session import Session
    from ...performers.stores.base import Store

# Seconds after which a turn whose worker was killed is claimed by another one.
CLAIM = 2

# Seconds between two looks into an empty queue: each is one query.
POLL = 0.1

# Seconds until a turn looks again at a session that is at work elsewhere.
BUSY_AGAIN = 0.5

# Seconds in the queue of a turn that a worker hands over, and of one that is not due yet by its clock.
HANDED_OVER = 0.05

# Seconds before a worker whose database went away tries again.
LOST_AGAIN = 0.5

# Set by the turn that was claimed, for the task that waits for the next one.
_claimed: ContextVar[asyncio.Event] = ContextVar("claimed")


@final
@attrs.define(eq=False)
class AbsurdWorker:
    """
    Takes the turns of sessions of *agents* in *store*, which Absurd has in its *queue* at *dsn*.

    At most *turns* at a time. A turn is another worker's after *claim* whole seconds without a sign of life;
    the lease of its session is the agent's. *poll* is in seconds. The tables are Absurd's own: make them with
    ``absurdctl init`` and ``absurdctl create-queue``.
    """

    dsn: str
    agents: Mapping[str, Agent]
    store: Store
    queue: str = attrs.field(default=QUEUE, kw_only=True)
    turns: int = attrs.field(default=100, kw_only=True, validator=attrs.validators.ge(1))
    claim: int = attrs.field(default=CLAIM, kw_only=True, validator=attrs.validators.ge(1))
    poll: float = attrs.field(default=POLL, kw_only=True, validator=attrs.validators.gt(0))
    _ending: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)
    _taken: set[asyncio.Task[None]] = attrs.field(factory=set, init=False)
    # The sessions that turns are at here, and how many other turns there were of each.
    _more: dict[str, int] = attrs.field(factory=dict, init=False)

    async def run(self) -> None:
        """
        Take turns until `stop`, and then end those that were taken: their sessions are drained.

        A database that goes away is waited for. Raises what Absurd raises where its tables are not there.
        """
        while not self._ending.is_set():
            app = absurd_sdk.AsyncAbsurd(self.dsn, self.queue)
            app.register_task(TURN)(self._turn)
            try:
                await self._take(app)
                await asyncio.gather(*[agent.drain() for agent in self.agents.values()])
                if self._taken:
                    await asyncio.wait(self._taken)
            except psycopg.OperationalError as error:
                # The turns go on without a claim; those that would take them see that their sessions are at
                # work.
                warn("absurd worker", "takes no turn until its database is back", error)
                await self._pause(LOST_AGAIN)
            finally:
                await app.close()

    def stop(self) -> None:
        """Take no more turns. Running ones hand their work over to other workers, as `Session.drain` says."""
        self._ending.set()

    async def _take(self, app: absurd_sdk.AsyncAbsurd) -> None:
        """Claim one turn after another; raises where the database is away."""
        name = f"{socket.gethostname()}:{os.getpid()}"
        while not self._ending.is_set():
            claimed = asyncio.Event()
            task = asyncio.create_task(self._one(app, name, claimed))
            self._taken.add(task)
            task.add_done_callback(self._taken.discard)
            found = asyncio.create_task(claimed.wait())
            await asyncio.wait({task, found}, return_when=asyncio.FIRST_COMPLETED)
            found.cancel()
            if task.done():
                task.result()
                if not claimed.is_set():
                    await self._pause(self.poll)
            while len(self._taken) >= self.turns:
                await asyncio.wait(self._taken, return_when=asyncio.FIRST_COMPLETED)

    async def _one(self, app: absurd_sdk.AsyncAbsurd, name: str, claimed: asyncio.Event) -> None:
        """Do one turn, if there is any."""
        _claimed.set(claimed)
        try:
            await app.work_batch(name, self.claim, 1)
        except psycopg.OperationalError:
            # After it was claimed the session has done what it could: the end of the turn is not known to
            # the queue, so another worker looks at the session again.
            if not claimed.is_set():
                raise

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ending.wait()

    async def _turn(self, params: Any, context: absurd_sdk.AsyncTaskContext) -> None:  # noqa: ANN401  # JSON
        """Let the session go on until it rests."""
        _claimed.get().set()
        given = cast("TurnParams", params)
        name = given["session"]
        if name in self._more:
            self._more[name] += 1
            return
        # Until it has looked for the last time: a turn that comes later is for a look of its own.
        with ExitStack() as first, suppress(SessionClosed, SessionGone):
            self._more[name] = 0
            first.callback(self._more.pop, name)
            async with self._alive(context), self._agent(given["agent"]).session(name, self.store) as session:
                done = -1
                while done != self._more[name]:
                    done = self._more[name]
                    await self._drive(session)
                first.close()
                await self._hand_over(session, context)

    def _agent(self, name: str) -> Agent:
        if name not in self.agents:
            # Another worker may have it, or this one after its next start: the turn comes again.
            msg = f"a turn is for agent {name!r}; this worker has {', '.join(map(repr, self.agents))}"
            raise ConfigError(msg)
        return self.agents[name]

    async def _drive(self, session: Session) -> None:
        """Let *session* go on until its run rests and no prompt is left, here or elsewhere."""
        await session.load()
        while (session.unfinished or session.queue) and not self._ending.is_set():
            try:
                await session.resume()
            except SessionBusy:
                await self._pause(BUSY_AGAIN)
                await session.load()
                continue
            # What came while the run let go of the session, its sender may have thought to be read by it.
            await session.load()
            if session.unfinished:
                return

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

    @asynccontextmanager
    async def _alive(self, context: absurd_sdk.AsyncTaskContext) -> AsyncGenerator[None, None]:
        """Extend the claim while the context lasts."""
        beat = asyncio.create_task(self._beat(context))
        try:
            yield
        finally:
            beat.cancel()
            await asyncio.wait({beat})

    async def _beat(self, context: absurd_sdk.AsyncTaskContext) -> None:
        while True:
            await asyncio.sleep(self.claim / 4)
            try:
                await context.heartbeat(self.claim)
            except (psycopg.Error, absurd_sdk.FailedTask, absurd_sdk.CancelledTask):
                # Another worker has the turn by now, and finds the session at work here.
                return
