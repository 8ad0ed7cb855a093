"""
The way in: a process that has no worker writes an input to a session, and queues a turn for it.

Theory of operation. The input is an entry of the journal before its turn is queued, and a turn says nothing
but "look at this session". So a turn may run twice, late, or beside another one: the journal says what is to
be done, and its compare-and-set who does it. A sender that ends between the two writes is what a request that
got no answer is: the sender tries again, and an input with a known id is not written twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self, TypedDict, final

import absurd_sdk
import psycopg

from ...effects.errors import ConfigError, StoreError, TurnwheelError
from ...engine.agent import Agent
from ...performers.logs import warn

if TYPE_CHECKING:
    from types import TracebackType

    from ...engine.session.session import Session
    from ...performers.stores.base import Store

# The task that looks at a session, and the queue that it is in where no other one is named.
TURN = "turn"
QUEUE = "turnwheel"

# A turn is tried until it ends: what it may do again, and how often, is said by the journal. A lost worker is
# followed soon, and a turn that fails again and again comes at most once a minute.
ATTEMPTS = 1_000_000
RETRIES: absurd_sdk.RetryStrategy = {
    "kind": "exponential",
    "base_seconds": 0.1,
    "factor": 2.0,
    "max_seconds": 60.0,
}


class TurnParams(TypedDict):
    """What a turn is told: the *session* to look at, and the name of its *agent*."""

    agent: str
    session: str


@final
class TurnQueue:
    """
    Writes inputs to sessions of *agents* in *store*, and queues their turns in Absurd's *queue* at *dsn*.

    The store is one that the workers share, and the agents are those that they have, by name: nothing is
    performed here. To be used as an async context manager.
    """

    def __init__(self, dsn: str, agents: Mapping[str, Agent], store: Store, *, queue: str = QUEUE) -> None:
        self._agents = dict(agents)
        self._store = store
        self._queue = queue
        self._dsn = dsn
        self._app = absurd_sdk.AsyncAbsurd(dsn, queue)
        # There is one connection, which a first call makes.
        self._spawning = asyncio.Lock()

    @asynccontextmanager
    async def session(self, agent: str, id: str) -> AsyncGenerator[Session, None]:  # noqa: A002  # the word of sessions
        """
        The session *id* of *agent*, to `send`, `steer`, `approve` or `interrupt`; a turn follows at the end.

        It follows also where something is raised inside, which goes on; where it cannot, a warning is logged.
        Raises `ConfigError` for an unknown agent, and `StoreError` where the turn could not be queued. What
        was written is kept then: do the same again, with the same ids.
        """
        if agent not in self._agents:
            msg = f"there is no agent {agent!r}; the agents are {', '.join(map(repr, self._agents))}"
            raise ConfigError(msg)
        async with self._agents[agent].session(id, self._store) as session:
            await session.load()
            try:
                yield session
            except BaseException:
                try:
                    # It may have been cancelled within an append, which is kept all the same.
                    await session.load()
                    await self._follow(agent, session)
                except (TurnwheelError, psycopg.Error) as error:
                    # Not raised: the caller has to see what it raised itself.
                    warn("no turn was queued for what was written; queue one with wake", error, session=id)
                raise
            await self._follow(agent, session)

    async def _follow(self, agent: str, session: Session) -> None:
        if session.unfinished or session.queue:
            await self.wake(agent, session.id)

    async def wake(self, agent: str, id: str) -> None:  # noqa: A002  # as above
        """Queue a turn of the session *id* of *agent*. Raises `StoreError` where that fails."""
        params: TurnParams = {"agent": agent, "session": id}
        async with self._spawning:
            try:
                await self._spawn(params)
            except StoreError:
                # Lost since the database was started again, perhaps; and two turns are as good as one.
                await self._spawn(params)

    async def _spawn(self, params: TurnParams) -> None:
        try:
            await self._app.spawn(TURN, params, ATTEMPTS, RETRIES, queue=self._queue)
        except psycopg.OperationalError as error:
            # Its connection is lost for good; the next call makes another one.
            await self._app.close()
            self._app = absurd_sdk.AsyncAbsurd(self._dsn, self._queue)
            msg = f"no turn was queued for session {params['session']!r}: {error}; try again"
            raise StoreError(msg) from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Behind a turn that is being queued: what psycopg closes under a statement ends the process.
        async with self._spawning:
            await self._app.close()
