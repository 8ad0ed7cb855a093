"""
The sessions that this process has open: their runs begin and go on by themselves here.

Theory of operation. A request or a stream uses a session object while it lasts. One that nothing uses and
that does no work is kept for a while, the latest used longest, and then closed: it is rows in the store, as a
run that rests on questions is. Runs are driven in tasks of their own, so no reader holds one up, and none
needs one. With a turn queue none is driven here: a turn of its session is queued, for a worker to go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol, final

import attrs

from ...effects.errors import (
    SessionBusy,
    SessionClosed,
    SessionGone,
    StoreConflict,
    TurnwheelError,
    UnknownSession,
)
from ...engine.agent import Agent
from ...engine.inspect.listing import described, each_listed
from ...engine.journal.summary import SessionKind, SessionStatus
from ...engine.session.lease import owner_of
from ...performers.base import clock_of
from ..hosts.tenant_bound import TenantBound
from .access import Namespace
from .feed import SessionFeed
from .left_runs import LeftRuns, is_left
from .problems import Refused

if TYPE_CHECKING:
    from ...engine.inspect.listing import Listed
    from ...engine.session.session import Session
    from ...performers.stores.base import Store
    from .limits import ServerLimits


# Seconds that a request waits for the run that it begins, and between two looks at it.
BEGUN_WITHIN, LOOK_AGAIN = 1.0, 0.002


class Turns(Protocol):
    """Where a turn of a session is queued for workers, such as `TurnQueue`."""

    async def wake(self, agent: str, id: str) -> None:  # noqa: A002  # the word of sessions
        """Queue a turn of the session *id* in the store. Raises `StoreError` where that fails."""
        ...


@final
@attrs.define(eq=False)
class LiveSession:
    """
    A *session* of *agent*, known outside as *id*; *users* are the requests and streams that have it.

    Its *feed* has the streams' readers; *left* gets to know what its run leaves undone.
    """

    name: str
    id: str
    agent: str
    session: Session
    feed: SessionFeed
    left: LeftRuns
    users: int = 0
    _work: asyncio.Task[None] | None = attrs.field(default=None, init=False)

    @property
    def working(self) -> bool:
        """Whether a run goes on here, or rests on questions."""
        return self._work is not None and not self._work.done()

    @property
    def at_work(self) -> bool:
        """Whether a run goes on here, and does not rest."""
        return self.working and not self.session.resting

    @property
    def idle(self) -> bool:
        """Whether it can be closed without loss: only what is stored matters."""
        # A question with a deadline needs a process that counts the time.
        waits = self.session.resting and all(each.due is None for each in self.session.waiting)
        return not self.users and (not self.working or waits)

    @property
    def unfinished(self) -> bool:
        """Whether a run is under way or was left in the middle, or prompts wait for one."""
        return self.session.unfinished or bool(self.session.queue)

    @property
    def child(self) -> bool:
        """Whether its run is a part of that of the session *parent*."""
        machine = self.session.machine
        return machine is not None and bool(machine.config.agent)

    @property
    def parent(self) -> str:
        """The id of the session that a child belongs to."""
        return self.id.rpartition(".")[0]

    async def wake(self) -> None:
        """Go on with an unfinished run, and with the prompts in the queue, unless that is done already."""
        if self.working:
            # One that rested begins to work: others must see that it has to be taken over if this ends here.
            await self.session.keep_lease()
        elif self.unfinished:
            self._work = work = asyncio.create_task(self._drive())
            # The caller's next look should find the run begun. A process of another machine, of which only
            # time tells whether it works, is not waited for.
            with suppress(TimeoutError):
                async with asyncio.timeout(BEGUN_WITHIN):
                    while not (work.done() or self.session.running):  # noqa: ASYNC110  # no event tells it
                        await asyncio.sleep(LOOK_AGAIN)

    async def _drive(self) -> None:
        try:
            await self.session.resume(wait=True)
            # One may have come after the run looked for the last time, and before it let go.
            while self.session.queue and not self.session.unfinished:
                await self.session.resume(wait=True)
        except SessionGone:
            return
        except StoreConflict as error:
            # Most often taken over by another process, which reads all inputs that came until then.
            await self.left.lost(self.name, error)
            return
        except SessionBusy:
            # Another process drives it and finds the input in the journal, if it looks once more.
            self.left.busy(self.name)
            return
        except SessionClosed:
            pass
        except Exception as error:  # noqa: BLE001  # also what an agent raises that is made to (`on_error`)
            self.left.failed(self.name, error)
        else:
            self.left.settled(self.name)
        if self.unfinished:
            await self.left.leave(self.name)

    async def close(self) -> None:
        """Close the session; a run is left as it is in the store."""
        await self.session.close()
        if self._work is not None:
            await asyncio.wait({self._work})


@final
class OpenSessions:
    """
    The open sessions of *agents* over *store*.

    At most about as many as *limits* has kept are held without work, and as many as it has working may be at
    work. With *turns*, none is at work here.
    """

    def __init__(
        self, agents: Mapping[str, Agent], store: Store, *, limits: ServerLimits, turns: Turns | None
    ) -> None:
        self.agents = agents
        self.store = store
        self.turns = turns
        self._limits = limits
        # In the order of their latest use.
        self._open: dict[str, LiveSession] = {}
        self._closing: dict[str, asyncio.Task[None]] = {}
        self.draining = asyncio.Event()
        first = next(iter(agents.values()))
        self.left = LeftRuns(store, first.worker, first.lease, clock_of(first.clock, store))
        self._tenants = TenantBound(self.left.watch, limits.tenant_working, self._at_work)

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._open)

    @property
    def working(self) -> int:
        """How many are at work; those that rest are not."""
        return len(self._at_work())

    def _at_work(self) -> list[str]:
        return [name for name, one in self._open.items() if one.at_work]

    @property
    def room(self) -> int:
        """How many more may be at work."""
        return max(0, self._limits.working - self.working)

    def check_room(self) -> None:
        """Refuse to begin more work than this process may do at a time."""
        if self.draining.is_set():
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "the server is ending; ask another one, or later")
        if not self.room:
            detail = f"{self._limits.working} sessions are at work, as many as may; try again later"
            raise Refused(HTTPStatus.TOO_MANY_REQUESTS, detail, {"Retry-After": "1"})

    @asynccontextmanager
    async def place(self, names: Namespace, one: LiveSession, *, begins: bool) -> AsyncGenerator[None, None]:
        """
        A place at work for *one*, where what is done inside *begins* its run; raises `Refused` without one.

        Other servers count it until it has a lease of its own.
        """
        if not begins or one.at_work or self.turns is not None:
            yield
        elif one.child:
            async with self.main(names, one) as parent, self.place(names, parent, begins=True):
                yield
        else:
            async with self._tenants.begin(one.name) as there_is:
                if not there_is:
                    most = self._limits.tenant_working
                    detail = f"{most} sessions of yours are at work, as many as may; try again later"
                    raise Refused(HTTPStatus.TOO_MANY_REQUESTS, detail, {"Retry-After": "1"})
                yield

    async def find(self, names: Namespace, id: str) -> tuple[str, str]:  # noqa: A002  # the word of sessions
        """The agent of the session *id*, and its name in the store. Raises `UnknownSession`."""
        for agent in names.agents:
            name = names.stored(agent, id)
            # A slash would make it a name of another tenant.
            if names.public(name) == (agent, id) and await self.store.info(name) is not None:
                return agent, name
        raise UnknownSession(id)

    @asynccontextmanager
    async def use(self, names: Namespace, id: str) -> AsyncGenerator[LiveSession, None]:  # noqa: A002  # as above
        """The session *id*, which is there, loaded and open inside the context."""
        agent, _ = await self.find(names, id)
        async with self.begin(names, agent, id) as one:
            yield one

    @asynccontextmanager
    async def begin(self, names: Namespace, agent: str, id: str) -> AsyncGenerator[LiveSession, None]:  # noqa: A002  # as above
        """As `use`, for a session that need not be there yet."""
        name, loaded = names.stored(agent, id), False
        while not loaded:
            one = await self._opened(name, agent, id)
            one.users += 1
            try:
                await one.session.load()
                loaded = True
                yield one
            except SessionGone:
                # Another process deleted it: the next one of this name is another session.
                self._close(one)
                if loaded:
                    raise
            finally:
                one.users -= 1
                self._tidy()

    async def _opened(self, name: str, agent: str, id: str) -> LiveSession:  # noqa: A002  # as above
        while (closing := self._closing.get(name)) is not None:
            await asyncio.wait({closing})
        one = self._open.pop(name, None)
        if one is None:
            session = self.agents[agent].session(name, self.store)
            clock, partial = self.agents[agent].clock, self.agents[agent].watch.include_partial
            feed = SessionFeed(session, self.store, clock, partial=partial)
            one = LiveSession(name, id, agent, session, feed, self.left)
        self._open[name] = one
        return one

    def _tidy(self) -> None:
        """Close those used longest ago, as far as too many are open."""
        spare = len(self._open) - self._limits.kept
        for one in [one for one in self._open.values() if one.idle][: max(0, spare)]:
            self._close(one)

    def _close(self, one: LiveSession) -> asyncio.Task[None] | None:
        if self._open.get(one.name) is not one:
            return None
        del self._open[one.name]
        task = asyncio.create_task(one.close())
        self._closing[one.name] = task
        task.add_done_callback(lambda _: self._closing.pop(one.name, None))
        return task

    async def at_work(self, name: str) -> str:
        """Which process is at work on the session with that *name* in the store, in words; empty for none."""
        live = self._open.get(name)
        if live is not None and live.working:
            return "this server" if live.session.unfinished and not live.session.resting else ""
        row = await described(self.store, name)
        # The lease outlives its run for a moment.
        if row is None or row.about.state is not SessionStatus.UNFINISHED:
            return ""
        owner = await owner_of(self.store, name)
        return "" if owner is None else str(owner)

    async def forget(self, name: str) -> None:
        """Close the session with that *name* in the store, whatever it does."""
        one = self._open.get(name)
        if one is not None and (task := self._close(one)) is not None:
            await asyncio.wait({task})

    async def wake(self, names: Namespace, one: LiveSession) -> None:
        """Let the run of *one* go on by itself; that of a child goes on with its parent's."""
        async with self.main(names, one) as main:
            if self.turns is None:
                await main.wake()
            elif main.unfinished:
                await self.turns.wake(main.agent, main.name)

    @asynccontextmanager
    async def main(self, names: Namespace, one: LiveSession) -> AsyncGenerator[LiveSession, None]:
        """The session whose work *one* is: the parent of a child, or itself."""
        if not one.child:
            yield one
            return
        async with self.use(names, one.parent) as parent:
            yield parent

    def id_here(self, names: Namespace, row: Listed) -> str | None:
        """The id in *names* of the session *row*; None where this server does not go on with it by itself."""
        known = names.public(row.session)
        if known is None or row.about.kind is SessionKind.CHILD:
            return None
        # What began in another directory belongs to an agent of there, unless an input came here.
        here = row.about.cwd in {"", self.agents[known[0]].config.cwd} or self.left.owes(row.session)
        return known[1] if here else None

    async def go_on(self, names: Namespace) -> None:
        """Go on with the runs of *names* that were left in the middle and have no lease, lapsed or not."""
        leased = (await self.left.watch.look()).there
        async with aclosing(each_listed(self.store, names.prefix)) as rows:
            async for row in rows:
                known = self.id_here(names, row)
                # A run that rests is left alone: there is nothing to do before its questions are answered.
                if known is not None and is_left(row) and row.session not in leased:
                    with suppress(TurnwheelError):
                        async with self.use(names, known) as session:
                            await session.wake()

    async def drain(self, within: float | None) -> None:
        """Let running work end, begin nothing more, and close every session."""
        self.draining.set()
        for one in self._open.values():
            one.feed.end()
        await asyncio.gather(*[agent.drain(within) for agent in self.agents.values()])
        tasks = [self._close(one) for one in list(self._open.values())]
        await asyncio.gather(*[task for task in tasks if task is not None], *self._closing.values())
