"""
Who runs a session, and when: the life of a session object.

Theory of operation. Whoever streams claims the session before the first await, so two cannot both begin. Runs
follow each other until nothing waits: one that is not over is taken over first, then each prompt gets a run
of its own. What is said meanwhile goes through one lock, is written down first, and is then handed to the run
that is under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, final

import attrs

from ...effects import is_notice
from ...effects.errors import (
    SessionBusy,
    SessionClosed,
    StoreConflict,
    StoreError,
    TurnwheelError,
    UnknownSession,
)
from ...effects.events import Event, Post
from ...effects.notices import Notice, SettingChanged
from ...effects.requests import RunAgent
from ...performers.base import noop
from ...states.rules.inputs import prompt_group
from ...states.state import Done
from ..driver.driver import Driver, Performers
from ..journal.entries import Posted, Titled
from .broker import Broker
from .child_runner import ChildRunner
from .children import Children, check_heard, check_runner
from .delivery import Delivery
from .inputs import check_room
from .ownership import (
    Claiming,
    Closed,
    Driving,
    Leaving,
    Ownership,
    Unowned,
)
from .poller import StorePoller
from .session_state import SessionLog
from .takeover import take_over
from .titles import Titler, Titles

if TYPE_CHECKING:
    from ...effects import Effect
    from ...effects.config import Config
    from ...performers.base import Clock, Performer
    from ...performers.stores.base import Store
    from .inputs import Input
    from .redactor import Redactor

TURNS_TO_NOTICE = 5
"""
Turns of the event loop after which a stream that was merely dropped (a ``break`` without `aclosing`) has
begun to close: asyncio closes it in a task of its own.
"""

LAST_WORDS = 1.0
"""Seconds that whoever reads a stream has to see its end, once what was at work has been left."""

TRIES = 20
"""How often something is posted again where another process wrote in between, a few times a turn."""


@final
@attrs.frozen(kw_only=True)
class Environment:
    """
    What a session works with: its *config* and *clock*, and who performs what.

    *ended* is told when a session that had a run is closed, and why that run ended. *titles* says how it gets
    its title; a child gets none. *watch* says what those are told who look on. *poll* is how often it is
    looked what other processes posted to a run that is under way here, in seconds. *sealer* takes secrets
    out of what people answer. *at_work* are the sessions of an agent that somebody runs here. Of a child,
    *task* is the first that it is asked, and *rested* is told when it waits for people and for nothing else.
    """

    config: Config
    performers: Performers
    clock: Clock
    new_id: Callable[[], str]
    ended: Callable[[str, str], Awaitable[None]] | None = None
    poll: float = 0.5
    titles: Titles = Titles.OFF
    watch: Delivery = Delivery()
    task: Input | None = None
    sealer: Redactor | None = None
    at_work: set[SessionRunner] = attrs.field(factory=set)
    rested: Callable[[], None] = noop


@final
class SessionRunner:
    """Runs the session *id* with what *setting* says, over what is kept of it in *store*."""

    def __init__(self, id: str, setting: Environment, store: Store | None) -> None:  # noqa: A002  # the field's word
        self.id = id
        self.setting = setting
        self.children = Children(id, setting, store)
        runner: Performer[RunAgent] = ChildRunner(self.children)  # pyright: ignore[reportAssignmentType]  # async
        self.performers: Performers = {RunAgent: runner, **setting.performers}
        self.log = SessionLog(id, store, setting.sealer)
        self.broker = Broker(setting.watch.buffer)
        self.use: Ownership = Unowned()
        self._titler = Titler(self.log, setting, self.add)
        self._free = asyncio.Event()
        self._lock = asyncio.Lock()
        self._ran = False
        self._drains = False

    @property
    def driver(self) -> Driver | None:
        """Whoever drives a run here, now."""
        return self.use.driver if isinstance(self.use, Driving) else None

    async def load(self) -> None:
        """Read what is new in the journal; while a run is under way here, it knows more than the store."""
        async with self._lock:
            if not isinstance(self.use, Claiming | Driving):
                await self._read()

    async def _read(self) -> None:
        if isinstance(self.use, Closed):
            raise SessionClosed(self.id)
        await self.log.read()

    # Running it

    async def stream(self, said: Input | None, *, wait: bool) -> AsyncGenerator[Notice, None]:
        """Post what was *said*, and run until nothing waits any more; see `Session.stream`."""
        await self._claim()
        try:
            begun = await self._first(said)
            while begun is not None:
                async with aclosing(self.setting.watch.told(self._drive(*begun, wait=wait))) as notices:
                    try:
                        async for notice in notices:
                            self.broker.publish(notice)
                            yield notice
                    except GeneratorExit:
                        self._now_used_for(Leaving())  # before the work is stopped, which may take a while
                        raise
                await self._hand_over(begun[0])
                begun = await self._next()
        except TurnwheelError:
            await self._see_what_holds()
            raise
        finally:
            self.log.listener = None
            self._now_used_for(Unowned())
            self.setting.at_work.discard(self)
            self._free.set()

    async def _see_what_holds(self) -> None:
        """After a failure: what was not kept did not happen, whatever the machine here says."""
        if self.log.kept and self.log.stale:
            with suppress(TurnwheelError):
                async with self._lock:
                    await self.log.read()

    def _now_used_for(self, use: Ownership) -> None:
        if not isinstance(self.use, Closed):
            self.use = use

    async def _claim(self) -> None:
        """Be the one who runs. Between looking and taking nobody else gets a turn."""
        for _ in range(TURNS_TO_NOTICE):
            if not isinstance(self.use, Claiming | Driving):
                break
            await asyncio.sleep(0)
        while isinstance(self.use, Leaving):
            await self._free.wait()
        if isinstance(self.use, Closed) or self._drains:
            raise SessionClosed(self.id)
        if not isinstance(self.use, Unowned):
            raise SessionBusy(self.id)
        self.use = Claiming()
        if self.setting.task is None:
            self.setting.at_work.add(self)
        self._free.clear()

    async def _first(self, said: Input | None) -> tuple[Driver, tuple[Effect, ...]] | None:
        """
        The driver of the run that is opened or taken over; None where there is nothing to do.

        The lock is held until there is one, so that an interrupt that comes meanwhile finds it.
        """
        log, setting = self.log, self.setting
        async with self._lock:
            await self._read()
            check_runner(log, setting)
            if said is not None:
                if log.unfinished:
                    raise SessionBusy(self.id)
                while not log.knows(said.id) and not await log.post(said.sent(self.setting.clock.now())):
                    pass
            elif log.machine is None and not log.prompted:
                raise UnknownSession(self.id)
            if log.unfinished or self._due() is None:
                return await self._begin()
        return await self._settled()

    async def _next(self) -> tuple[Driver, tuple[Effect, ...]] | None:
        """The driver of the next run, for a prompt that came in meanwhile; None where none did."""
        self.log.listener = None
        self._now_used_for(Claiming())
        return None if self.log.unfinished or isinstance(self.use, Closed) else await self._settled()

    async def _settled(self) -> tuple[Driver, tuple[Effect, ...]] | None:
        """The driver of a run for the next prompt, once its sender has had time to say more."""
        while True:
            async with self._lock:
                await self._read()
                due = self._due()
                if due is None:
                    return await self._begin()
            await self.setting.clock.sleep_until(due)

    def _due(self) -> float | None:
        """Until when the sender of the next prompt has time to say more; None where that is over."""
        window = self.setting.config.policy.coalesce
        group = prompt_group(self.log.prompts, window)
        if not group or not group[0].sender:
            return None
        said = group[-1].at
        # What another clock calls later than now is not waited for: it may be hours ahead.
        return said + window if said <= self.setting.clock.now() < said + window else None

    async def _begin(self) -> tuple[Driver, tuple[Effect, ...]] | None:
        log, setting, at = self.log, self.setting, self.setting.clock.now()
        if self._drains or not (log.unfinished or log.prompted):
            return None
        log.stale = log.kept  # left in the middle, by whatever, the journal is what holds
        events: tuple[Event, ...] = ()
        if log.unfinished:
            first, events = await take_over(log, setting.config, at)
        else:
            task = setting.task if log.machine is None else None
            name = setting.new_id() if task is None else task.id
            first = await log.open_run(name, setting.config, at, titled=self._titler.inline)
        if log.machine is None or isinstance(self.use, Closed):
            raise SessionClosed(self.id)
        driver = Driver(
            machine=log.machine,
            performers=self.performers,
            session=self.id,
            journal=log,
            clock=setting.clock,
            whole=log.whole,
            child_rests=self.children.rest,
            rested=setting.rested,
        )
        self.children.nudge, self.children.ours = driver.inbox.nudge, log.look
        for event in (*log.pending, *events):
            driver.post(event)
        log.listener = driver.post
        if setting.sealer is not None:
            setting.sealer.drives()
        self.use, self._ran = Driving(driver), True
        return driver, first

    async def _hand_over(self, driver: Driver) -> None:
        """After a run: where it was drained, say what *driver* never began, for whoever goes on with it."""
        if not self._drains:
            self._titler.after_run()
        elif self.log.unfinished:
            await self.log.hand_over(driver.unbegun, self.setting.clock.now())

    async def _drive(
        self, driver: Driver, first: tuple[Effect, ...], *, wait: bool
    ) -> AsyncGenerator[Notice, None]:
        effects = driver.effects(first, wait=wait)
        async with StorePoller(self.log, driver, self.setting.poll) as lookout, aclosing(effects):
            self.children.leave = lookout.stop
            async for effect in effects:
                if isinstance(effect, SettingChanged):
                    await self.children.follow(effect.change, driver.machine)
                if is_notice(effect):
                    yield effect
        if lookout.found is not None:
            raise lookout.found
        if not isinstance(self.use, Closed):
            self.log.stale = False

    # What is said to it

    async def post(self, event: Callable[[], Post | None]) -> None:
        """
        Keep the event that *event* makes of what the session is now, and hand it to whoever runs it.

        It is called under the lock, and again where another process wrote something first; None posts
        nothing.
        """

        def entry() -> Posted | None:
            made = event()
            if made is None:
                return None
            check_room(made, self.log)
            if not isinstance(self.use, Claiming | Driving):
                check_heard(self.log, self.setting, made)
            return Posted(event=made)

        await self.add(entry)

    async def add(self, entry: Callable[[], Posted | Titled | None], *, closed: bool = False) -> None:
        """As `post`, for any entry that may be written while somebody else drives, also once *closed*."""
        async with self._lock:
            for _ in range(TRIES):
                driven = self.driver is not None
                if not driven:
                    await (self.log.read() if closed else self._read())
                made = entry()
                try:
                    if made is None or (await self._has_task() and await self.log.add(made)):
                        return
                except StoreConflict as conflict:
                    if driven:
                        raise
                    self.log.stale = conflict.actual < conflict.expected  # it was deleted meanwhile
        msg = f"session {self.id!r} is written to all the time; try again"
        raise StoreError(msg)

    async def _has_task(self) -> bool:
        """Whether a child's task is written down, which comes before what else is said to it; as `add`."""
        task, log = self.setting.task, self.log
        if task is None or log.machine is not None or log.knows(task.id):
            return True
        return await log.post(task.sent(self.setting.clock.now()))

    # Where it goes on from

    @asynccontextmanager
    async def at_rest(self) -> AsyncGenerator[SessionLog, None]:
        """What is known of the session, while nobody may run it; `SessionBusy` where a run is not over."""
        async with self._lock:
            if isinstance(self.use, Claiming | Driving | Leaving):
                raise SessionBusy(self.id)
            await self._read()
            if self.log.unfinished:
                raise SessionBusy(self.id)
            yield self.log

    # Letting go of it

    @property
    def heeds(self) -> Driver | None:
        """Whoever drives a run here and will see all that it is told; one that is drained may not."""
        return None if self._drains else self.driver

    async def drain(self, within: float | None) -> None:
        """Let what is at work come to its end, begin nothing any more, and let go; see `Session.drain`."""
        self._drains = True
        if (driver := self.driver) is not None:
            driver.drain()
        children = asyncio.gather(*self.children.drained(within), return_exceptions=True)
        over = await self._over(within)
        await children
        if not over and (driver := self.driver) is not None:
            await driver.leave()
            await self._over(LAST_WORDS)
        await self.close()

    async def _over(self, within: float | None) -> bool:
        """Whether nobody runs it here any more, *within* so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while isinstance(self.use, Claiming | Driving | Leaving):
                    await self._free.wait()
                return True
        return False

    async def close(self) -> None:
        """Let go; a run that is under way is left. Closing twice is fine."""
        driver, before = self.driver, self.use
        self.use = Closed()
        if isinstance(before, Closed):
            return
        try:
            if driver is not None:
                await driver.leave()
        finally:
            await self.children.close()
            await self._titler.stop()
            self.broker.close()
            if self._ran and self.setting.ended is not None:
                over = self.log.machine is not None and self.log.machine.state
                reason = over.reason if isinstance(over, Done) else "unfinished"
                await self.setting.ended(self.id, reason)
