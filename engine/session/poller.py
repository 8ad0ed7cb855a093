"""
Tells waiting sessions what was written to their store: one look for all of them, at most once a pause.

Theory of operation. A session that runs or is watched here has to learn what other processes write to it. All
that wait for the same store, in the same event loop, share one timer. Where the store can say which of them
were written to, only those read their journals, and a thousand that wait cost one short question. What this
process writes wakes them at once. A store that calls where others write is looked at then. The same timer
renews the leases of those that work, in one step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, cast, final

import attrs

from ...effects.errors import WorldError
from ...performers.base import noop

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from typing import Any

    from ...performers.stores.base import Mark, Store
    from .lease import SessionLease

# Seconds from a call of the store to the look: others may write all the time, and this is for all of it.
SOON = 0.01

# In the place of a session's name: all sessions of the store.
ANY_SESSION = ""


def _never() -> bool:
    return False


@final
@attrs.frozen(eq=False)
class Waiter:
    """
    Waits for news of *session*: *wake* is called where others than its *writer* may have written to it.

    A waiter for `ANY_SESSION` is woken where a look finds news of any. Its *lease* is kept while it *works*.
    """

    session: str
    wake: Callable[[], None]
    writer: Callable[[], object] = noop
    lease: SessionLease | None = None
    works: Callable[[], bool] = _never


@final
@attrs.define(eq=False)
class Poller:
    """Looks at *store* every *pause* seconds, while sessions wait."""

    store: Store
    pause: float
    loop: asyncio.AbstractEventLoop = attrs.field(factory=asyncio.get_running_loop, init=False)
    # By session: one may be run and watched at the same time.
    waiting: dict[str, list[Waiter]] = attrs.field(factory=dict, init=False)
    # Those that came since the latest look at the store began: it may have missed what was written between
    # their own look and their coming.
    _fresh: set[str] = attrs.field(factory=set, init=False)
    _mark: Mark | None = attrs.field(default=None, init=False)
    _timer: asyncio.TimerHandle | None = attrs.field(default=None, init=False)
    _tasks: set[asyncio.Task[None]] = attrs.field(factory=set, init=False)
    # Whether the store called since the latest look began, and what ends its calls.
    _called: bool = attrs.field(init=False)
    _stop_calls: Callable[[], None] | None = attrs.field(default=None, init=False)

    @classmethod
    def of(cls, store: Store, pause: float) -> Poller:
        """The poller of *store* for this event loop and *pause*."""
        loop = asyncio.get_running_loop()
        known = POLLERS.setdefault(id(store), [])
        for one in known:
            if one.pause == pause and one.loop is loop:
                return one
        known.append(made := cls(store, pause))
        return made

    def add(self, one: Waiter) -> None:
        """Wake *one* from now on, until it leaves."""
        self.waiting.setdefault(one.session, []).append(one)
        self._fresh.add(one.session)
        if self._timer is None:
            self._timer = self.loop.call_later(self.pause, self._begin)
        if self._stop_calls is None:
            # It is away: the first that comes when it is there again has another try.
            with suppress(WorldError):
                self._stop_calls = self.store.on_news(self._hear)
        # It has none yet, or takes it back: not to be left to the next look.
        if one.lease is not None and one.lease.due and one.works():
            self._start(one.lease.keep())

    async def leave(self, one: Waiter) -> None:
        """Wake *one* no more; the last one waits until a look that is under way has ended."""
        self.waiting[one.session].remove(one)
        if not self.waiting[one.session]:
            del self.waiting[one.session]
        if self.waiting:
            return
        if self._stop_calls is not None:
            self._stop_calls()
            self._stop_calls = None
        # There is one as long as any waits.
        cast("asyncio.TimerHandle", self._timer).cancel()
        self._timer = None
        self._forget()
        for task in (under_way := {*self._tasks}):
            task.cancel()
        if under_way:
            await asyncio.wait(under_way)
            for task in under_way:
                with suppress(asyncio.CancelledError):
                    # A poller that broke is a bug, and must not go unnoticed.
                    task.result()

    def _forget(self) -> None:
        """Make room for another poller of this store, where none waits here and nothing is under way."""
        pollers = POLLERS.get(id(self.store), [])
        if self in pollers and not (self.waiting or self._tasks):
            pollers.remove(self)
        if not pollers:
            POLLERS.pop(id(self.store), None)

    def look_again(self, one: Waiter) -> None:
        """Wake *one* at the next look, too: it could not read."""
        self._fresh.add(one.session)

    def _hear(self, concerns: Callable[[str], bool]) -> None:
        # From a thread of the store; the loop may be closed by now.
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._call, concerns)

    def _call(self, concerns: Callable[[str], bool]) -> None:
        if not any(map(concerns, self.waiting)):
            return
        self._called = True
        # There is one as long as any waits.
        timer = cast("asyncio.TimerHandle", self._timer)
        # One that is over stands for a look that is under way, which another one follows.
        if timer.when() > self.loop.time() + SOON:
            timer.cancel()
            self._timer = self.loop.call_later(SOON, self._begin)

    def _begin(self) -> None:
        # The timer stays, although it is over, until the look is: no second one begins meanwhile.
        self._called = False
        self._start(self._look(self._timer))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        # One that broke stays, for the last one that leaves to raise it.
        if task.cancelled() or task.exception() is None:
            self._tasks.discard(task)
        self._forget()

    async def _look(self, began: asyncio.TimerHandle | None) -> None:
        try:
            await self._keep()
            news = await self._news()
            # In the order in which they came to wait: that of a set is chance, and a play would not repeat.
            for session in [name for name in self.waiting if name in news]:
                for waiter in self.waiting[session]:
                    waiter.wake()
        finally:
            # Where the last one left meanwhile, those that came since have a timer of its own.
            if self._timer is began:
                # Real seconds and not a session's clock: other processes do not live by a test's time.
                pause = min(SOON, self.pause) if self._called else self.pause
                self._timer = self.loop.call_later(pause, self._begin)

    async def _news(self) -> set[str]:
        """The sessions that may have been written to since the look before."""
        fresh, self._fresh = self._fresh, set()
        if not self.store.tells_news:
            return {*self.waiting}
        before, named = self._mark, tuple([name for name in self.waiting if name != ANY_SESSION])
        try:
            self._mark, found = await self.store.news(named, before)
        except WorldError:
            # It fails now and then; what came meanwhile is found by the next look.
            self._fresh |= fresh
            return set()
        return {*found, *fresh, *(() if self._mark == before else (ANY_SESSION,))}

    async def _keep(self) -> None:
        """Renew the leases of those that work, and give up those of all others."""
        due: list[SessionLease] = []
        over: list[SessionLease] = []
        for each in self.waiting.values():
            for one in each:
                lease = one.lease
                if lease is None:
                    continue
                # In this order: of a thousand sessions that wait here, most rest.
                if not one.works():
                    if lease.held:
                        over.append(lease)
                elif lease.due:
                    due.append(lease)
        await asyncio.gather(*[lease.release() for lease in over])
        await renew(self.store, due)


async def renew(store: Store, leases: Sequence[SessionLease]) -> None:
    """Take or renew *leases*, which are due: all that are held in one step."""
    renewals: dict[str, tuple[bytes, bytes]] = {}
    # One for each session: a second object of a session has no lease of it.
    held = {lease.session: lease for lease in leases if lease.held}
    with suppress(WorldError):
        async with AsyncExitStack() as stack:
            for lease in held.values():
                await stack.enter_async_context(lease.renewing(renewals))
            for session in await store.renew(renewals) if renewals else ():
                del renewals[session]
    # Those that another process has, or that were not held yet, each by itself.
    await asyncio.gather(*[lease.keep() for lease in leases if lease.session not in renewals])


# Those that have sessions waiting, by the identity of their store: a store need not be hashable.
POLLERS: dict[int, list[Poller]] = {}


def written(store: int, session: str, writer: object) -> None:
    """Wake what waits here for *session*, to which *writer* just wrote; *store* is the `id` of its store."""
    # Nothing is called where only the writer waits: this is done for each append.
    for poller in POLLERS[store] if store in POLLERS else ():  # noqa: SIM401  # as said
        for one in poller.waiting[session] if session in poller.waiting else ():  # noqa: SIM401  # as said
            if one.writer() is not writer:
                # Not now, since the writer is in the middle of it; and it may be in another thread.
                poller.loop.call_soon_threadsafe(one.wake)
