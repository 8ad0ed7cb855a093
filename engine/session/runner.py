"""
Runs one session: claims it, opens or takes over its runs one after another, and lets go of it.

Theory of operation. A caller that streams claims the session before its first await, so two callers cannot both
begin. Runs follow each other until nothing waits: an unfinished run is taken over first, then each prompt gets
a run of its own. Inputs that come in meanwhile pass one lock: they are journaled first, and then handed to the
run that is under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Self, final

import attrs

from ...effects import is_notice
from ...effects.errors import (
    ConfigError,
    JournalError,
    SessionBusy,
    SessionClosed,
    StoreConflict,
    StoreError,
    TurnwheelError,
    UnknownSession,
    WorldError,
)
from ...effects.events import ApprovalGiven, ControlReceived, Event, Post, UserSent
from ...effects.notices import ApprovalRequested, Notice, SettingChanged
from ...effects.records import SetMode
from ...effects.requests import AskApproval, Cancel, Request, RunAgent
from ...states.context import INPUTS
from ...states.rules.inputs import prompt_group
from ...states.state import Done
from ..driver import Driver, Performers
from ..inputs import check_room
from ..journal.entries import Posted, Titled
from ..recovery import recover
from .children import Children, ChildRunner
from .delivery import Broker
from .environment import Titles
from .session_log import SessionLog
from .titles import Titler

if TYPE_CHECKING:
    from ...effects import Effect
    from ...performers.base import Performer
    from ...performers.stores.base import Store
    from ..inputs import Input
    from .environment import Environment, OpenSession

TURNS_TO_NOTICE = 5
"""
Turns of the event loop after which a stream that was merely dropped (a ``break`` without `aclosing`) has
begun to close: asyncio closes it in a task of its own.
"""

LAST_WORDS = 1.0
"""Seconds that the reader of a stream has to see its end, once the work has been left."""

POST_TRIES = 20
"""How often an entry is tried again where another process wrote in between, a few times a turn."""


@final
@attrs.frozen
class Unowned:
    """No caller runs it here."""


@final
@attrs.frozen
class Claiming:
    """A caller is about to run it."""


@final
@attrs.frozen
class Driving:
    """A run is under way here."""

    driver: Driver


@final
@attrs.frozen
class Leaving:
    """The caller that ran it has left; its work is being stopped."""


@final
@attrs.frozen
class Closed:
    """The session object was closed."""


Ownership = Unowned | Claiming | Driving | Leaving | Closed
"""What a session object is being used for."""


@final
class SessionRunner:
    """Runs the session *id* in *environment*, over what *store* keeps of it; *opens* makes its children's."""

    def __init__(
        self,
        id: str,  # noqa: A002  # the field's word
        environment: Environment,
        store: Store | None,
        opens: OpenSession,
        *,
        fresh: bool = False,
    ) -> None:
        self.id = id
        self.environment = environment
        self.performers: Performers = environment.performers
        self.log = SessionLog(id, store, environment.redactor, fresh=fresh)
        self._store = store
        self._opens = opens
        self._children: Children | None = None
        self._broker: Broker | None = None
        if environment.config.children:
            runner: Performer[RunAgent] = ChildRunner(self.children)  # pyright: ignore[reportAssignmentType]  # async
            self.performers = {RunAgent: runner, **environment.performers}
        self.owner: Ownership = Unowned()
        named = (
            Titles.OFF if environment.config.agent else environment.titles
        )  # a child's session has no title
        self._titled = named is Titles.INLINE
        self._titler = None
        if named is Titles.MODEL:
            self._titler = Titler(id, lambda: self.log.state, environment, self.add)
        self._free = asyncio.Event()
        self._lock = asyncio.Lock()
        self._ran = False
        self._drains = False

    @property
    def children(self) -> Children:
        """The children of the session, also those that another process runs."""
        if self._children is None:
            self._children = Children(self.id, self.environment, self._store, self._opens)
        return self._children

    @property
    def broker(self) -> Broker:
        """Passes the notices of runs here on to subscribers."""
        if self._broker is None:
            self._broker = Broker(self.environment.watch.buffer)
            if isinstance(self.owner, Closed):
                self._broker.close()
        return self._broker

    @property
    def driver(self) -> Driver | None:
        """The driver of the run that is under way here, if there is one."""
        return self.owner.driver if isinstance(self.owner, Driving) else None

    async def load(self) -> None:
        """Read what is new in the journal; while a run is under way here, it knows more than the store."""
        async with self._lock:
            if not isinstance(self.owner, Claiming | Driving):
                await self._read()

    async def _read(self) -> None:
        if isinstance(self.owner, Closed):
            raise SessionClosed(self.id)
        await self.log.read()

    # Running it

    async def stream(self, prompt: Input | None, *, wait: bool) -> AsyncGenerator[Notice, None]:
        """Post *prompt*, and run until nothing waits any more; see `Session.stream`."""
        await self._claim()
        try:
            begun = await self._first(prompt)
            while begun is not None:
                async with aclosing(self._shown(self._drive(*begun, wait=wait))) as notices:
                    try:
                        async for notice in notices:
                            if self._broker is not None:
                                self._broker.publish(notice)
                            yield notice
                    except GeneratorExit:
                        # Before the work is stopped, which may take a while: a next caller waits for that
                        # instead of being refused.
                        self._change_owner(Leaving())
                        raise
                await self._hand_over(begun[0])
                begun = await self._next()
        except TurnwheelError:
            await self._reread()
            raise
        finally:
            self.log.listener = None
            self._change_owner(Unowned())
            self.environment.at_work.discard(self)
            self._free.set()

    def _shown(self, notices: AsyncGenerator[Notice, None]) -> AsyncGenerator[Notice, None]:
        watch = self.environment.watch
        return notices if watch.include_partial else watch.shown(notices)

    async def _reread(self) -> None:
        """After a failure the journal holds: what was not kept did not happen, whatever the machine says."""
        if self.log.kept and self.log.stale:
            with suppress(TurnwheelError):
                async with self._lock:
                    await self.log.read()

    def _change_owner(self, owner: Ownership) -> None:
        # Closed is final: a stream that ends after `close` must not open the session again.
        if not isinstance(self.owner, Closed):
            self.owner = owner

    async def _claim(self) -> None:
        # A caller that broke out of a stream and begins the next one in the same breath is not refused: the
        # first stream is given a few turns of the loop to notice.
        for _ in range(TURNS_TO_NOTICE):
            if not isinstance(self.owner, Claiming | Driving):
                break
            await asyncio.sleep(0)
        while isinstance(self.owner, Leaving):
            await self._free.wait()
        # No await between looking and taking: no other caller gets a turn in between.
        if isinstance(self.owner, Closed) or self._drains:
            raise SessionClosed(self.id)
        if not isinstance(self.owner, Unowned):
            raise SessionBusy(self.id)
        self.owner = Claiming()
        if self.environment.task is None:
            self.environment.at_work.add(self)
        self._free.clear()

    async def _first(self, prompt: Input | None) -> tuple[Driver, tuple[Effect, ...]] | None:
        """The driver of the run that is opened or taken over; None where there is nothing to do."""
        log, environment = self.log, self.environment
        # Held until there is a driver, so that an interrupt that comes meanwhile finds it.
        async with self._lock:
            await self._read()
            state = log.state
            check_runner(log, environment)
            event = None
            if prompt is not None:
                if state.unfinished:
                    raise SessionBusy(self.id)
                event = await self._posted(prompt)
            elif state.machine is None and not state.prompted:
                raise UnknownSession(self.id)
            if event is not None or log.state.unfinished or self._due() is None:
                return await self._begin(event)
        return await self._settled()

    async def _posted(self, prompt: Input) -> UserSent | None:
        """The event of *prompt*, to be journaled with the run that it opens; None where it is journaled."""
        log, environment = self.log, self.environment
        if log.state.knows(prompt.id):
            return None
        if not environment.config.policy.coalesce:
            return prompt.sent(environment.clock.now())
        # Its sender has time to add to it, so it is kept before this waits.
        while not log.state.knows(prompt.id):
            if await log.post(prompt.sent(environment.clock.now())):
                break
        return None

    async def _next(self) -> tuple[Driver, tuple[Effect, ...]] | None:
        """The driver of the next run, for a prompt that came in meanwhile; None where none did."""
        self.log.listener = None
        self._change_owner(Claiming())
        over = self.log.state.unfinished or isinstance(self.owner, Closed)
        return None if over else await self._settled()

    async def _settled(self) -> tuple[Driver, tuple[Effect, ...]] | None:
        """The driver of a run for the next prompt, once its sender has had time to add to it."""
        while True:
            async with self._lock:
                await self._read()
                due = self._due()
                if due is None:
                    return await self._begin()
            # Outside the lock: what the sender adds has to come in meanwhile.
            await self.environment.clock.sleep_until(due)

    def _due(self) -> float | None:
        """Until when the sender of the next prompt may add to it; None where that time is over."""
        window = self.environment.config.policy.coalesce
        group = prompt_group(self.log.state.prompts, window)
        if not group or not group[0].sender:
            return None
        sent = group[-1].at
        # A time that another clock calls later than now is not waited for: it may be hours ahead.
        return sent + window if sent <= self.environment.clock.now() < sent + window else None

    async def _begin(self, prompt: UserSent | None = None) -> tuple[Driver, tuple[Effect, ...]] | None:
        log, environment, at = self.log, self.environment, self.environment.clock.now()
        if self._drains or not (prompt or log.state.unfinished or log.state.prompted):
            return None
        # Until the run is over: left in the middle, however that comes, the journal holds.
        log.stale = log.kept
        events: tuple[Event, ...] = ()
        if log.state.unfinished:
            first, events = await take_over(log, environment, at)
        else:
            task = environment.task if log.state.machine is None else None
            name = environment.new_id() if task is None else task.id
            first = await log.open_run(name, environment.config, at, prompt, titled=self._titled)
        if log.state.machine is None or isinstance(self.owner, Closed):
            raise SessionClosed(self.id)
        driver = Driver(
            machine=log.state.machine,
            performers=self.performers,
            session=self.id,
            journal=log,
            clock=environment.clock,
            full_result=log.full_result,
            rested=environment.rested,
        )
        if self._children is not None:
            self._children.wake, self._children.check_ownership = driver.inbox.wake, log.look
        for event in (*log.state.posted, *events):
            driver.post(event)
        log.listener = driver.post
        if environment.redactor is not None:
            environment.redactor.drives()
        self.owner, self._ran = Driving(driver), True
        return driver, first

    async def _hand_over(self, driver: Driver) -> None:
        if not self._drains:
            if self._titler is not None:
                self._titler.after_run()
        elif self.log.state.unfinished:
            # Only this process knows which requests it never began; the next owner may begin them as new.
            await self.log.hand_over(driver.unbegun, self.environment.clock.now())

    async def _drive(
        self, driver: Driver, first: tuple[Effect, ...], *, wait: bool
    ) -> AsyncGenerator[Notice, None]:
        effects = driver.effects(first, wait=wait)
        async with StorePoller(self.log, driver, self.environment.poll) as poller, aclosing(effects):
            if self._children is not None:
                self._children.abort = poller.stop
            async for effect in effects:
                if self._children is not None and isinstance(effect, SettingChanged):
                    await self._children.follow(effect.change, driver.machine)
                if is_notice(effect):
                    yield effect
        if poller.found is not None:
            raise poller.found
        if not isinstance(self.owner, Closed):
            self.log.stale = False

    # Inputs

    async def post(self, event: Callable[[], Post | None]) -> None:
        """
        Keep the event that *event* makes of the present state, and hand it to the run that is under way.

        *event* is called under the lock, and again where another process wrote first; None posts nothing.
        """

        def entry() -> Posted | None:
            made = event()
            if made is None:
                return None
            check_room(made, self.log.state, self.id)
            if not isinstance(self.owner, Claiming | Driving):
                check_reader(self.log, self.environment, made)
            return Posted(event=made)

        await self.add(entry)

    async def add(self, entry: Callable[[], Posted | Titled | None], *, closed: bool = False) -> None:
        """As `post`, for any entry that may be written while another process drives, also once *closed*."""
        async with self._lock:
            for _ in range(POST_TRIES):
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
                    # A journal that is shorter than it was has been deleted: what is known here is of no use.
                    self.log.stale = conflict.actual < conflict.expected
        msg = f"session {self.id!r}: other processes keep writing to it; try again"
        raise StoreError(msg)

    async def _has_task(self) -> bool:
        """Whether a child's task is journaled, which comes before any other input to it; as `add`."""
        task, state = self.environment.task, self.log.state
        if task is None or state.machine is not None or state.knows(task.id):
            return True
        return await self.log.post(task.sent(self.environment.clock.now()))

    @asynccontextmanager
    async def at_rest(self) -> AsyncGenerator[SessionLog, None]:
        """The log of the session, while no caller may run it; `SessionBusy` where a run is not over."""
        async with self._lock:
            if isinstance(self.owner, Claiming | Driving | Leaving):
                raise SessionBusy(self.id)
            await self._read()
            if self.log.state.unfinished:
                raise SessionBusy(self.id)
            yield self.log

    # Letting go of it

    @property
    def heeds(self) -> Driver | None:
        """The driver of a run here that will apply every event it is given; one that drains may not."""
        return None if self._drains else self.driver

    async def drain(self, within: float | None) -> None:
        """Let the work that is under way end, begin nothing more, and let go; see `Session.drain`."""
        self._drains = True
        if (driver := self.driver) is not None:
            driver.drain()
        known = [] if self._children is None else self._children.drained(within)
        children = asyncio.gather(*known, return_exceptions=True)
        over = await self._over(within)
        await children
        if not over and (driver := self.driver) is not None:
            await driver.leave()
            await self._over(LAST_WORDS)
        await self.close()

    async def _over(self, within: float | None) -> bool:
        """Whether no caller runs it here any more, *within* so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while isinstance(self.owner, Claiming | Driving | Leaving):
                    await self._free.wait()
                return True
        return False

    async def close(self) -> None:
        """Let go; a run that is under way is left. Closing twice is fine."""
        driver, before = self.driver, self.owner
        self.owner = Closed()
        if isinstance(before, Closed):
            return
        try:
            if driver is not None:
                await driver.leave()
        finally:
            if self._children is not None:
                await self._children.close()
            if self._titler is not None:
                await self._titler.stop()
            if self._broker is not None:
                self._broker.close()
            if self._ran and self.environment.ended is not None:
                over = self.log.state.machine is not None and self.log.state.machine.state
                reason = over.reason if isinstance(over, Done) else "unfinished"
                await self.environment.ended(self.id, reason)


# Children are run by their parents


def child_agent(log: SessionLog, environment: Environment) -> str:
    """Which child agent the session of *log* belongs to, empty for none: a copy of a child's is its own."""
    if log.state.copied:
        return ""
    machine = log.state.machine
    return environment.config.agent if machine is None else machine.config.agent


def check_runner(log: SessionLog, environment: Environment) -> None:
    """Refuse to run a child by itself: only its parent knows what it grants the child."""
    agent = child_agent(log, environment)
    if agent and (agent != environment.config.agent or environment.task is None):
        msg = f"session {log.session!r} is a child's: it goes on when its parent does"
        raise ConfigError(msg)


def check_reader(log: SessionLog, environment: Environment, event: Post) -> None:
    """Refuse an input that no run would ever read: a child that is over is not run again."""
    machine = log.state.machine
    if not child_agent(log, environment) or not isinstance(event, INPUTS):
        return
    if machine is None and environment.task is None:
        raise UnknownSession(log.session)
    if machine is not None and machine.done:
        msg = f"session {log.session!r} is a child that is over; send the input to its parent"
        raise ConfigError(msg)


# Other processes


@final
class StorePoller:
    """
    Reads every *poll* seconds what others post to the session of *log*, which *driver* runs.

    Where another process goes on with the session, or wrote an entry that cannot be read here, *driver*
    stops: the run stays as it is kept, and `found` is why.
    """

    def __init__(self, log: SessionLog, driver: Driver, poll: float) -> None:
        self.found: WorldError | None = None
        self._log = log
        self._driver = driver
        self._poll = poll
        self._task: asyncio.Task[None] | None = None

    def stop(self, error: WorldError) -> None:
        """Stop the driver because of *error*."""
        self.found = error
        self._driver.inbox.close()

    async def _look(self) -> None:
        while self.found is None:
            await asyncio.sleep(self._poll)
            try:
                await self._log.look()
            except (StoreConflict, JournalError) as error:
                self.stop(error)
            except WorldError:
                # A store that fails now and then: the driver's next entry fails too and says so.
                continue

    async def __aenter__(self) -> Self:
        if self._log.kept:
            self._task = asyncio.ensure_future(self._look())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            with suppress(asyncio.CancelledError):
                # A poller that broke is a bug: it must not pass unseen.
                self._task.result()


async def take_over(
    log: SessionLog, environment: Environment, at: float
) -> tuple[tuple[Effect, ...], tuple[Event, ...]]:
    """
    Go on with the unfinished run of *log*: the requests to perform again, and the events to apply.

    A question that was answered meanwhile is not asked again.
    """
    unbegun = log.state.unbegun
    machine = await log.take_over(environment.config, at)
    recovery = recover(machine, at, unbegun)
    posted = log.state.posted
    answered = {event.request for event in posted if isinstance(event, ApprovalGiven)}
    again = [
        in_mode(request, posted)
        for request in recovery.again
        if not isinstance(request, AskApproval) or request.id not in answered
    ]
    asked = [_asked(request) for request in again if isinstance(request, AskApproval)]
    return (*again, *asked), recovery.events


def _asked(question: AskApproval) -> ApprovalRequested:
    # A subscriber of the new process has not seen the notice that the old one gave.
    return ApprovalRequested(
        request=question.id,
        call=question.call,
        tool=question.tool,
        arguments=question.arguments,
        why=question.why,
        due=question.due,
    )


def in_mode(request: Request | Cancel, posted: Iterable[Post]) -> Request | Cancel:
    """*request*; one for a child in the mode that was chosen since, by an event in *posted*."""
    if isinstance(request, RunAgent):
        for event in posted:
            if isinstance(event, ControlReceived) and isinstance(event.change, SetMode):
                request = attrs.evolve(request, mode=event.change.mode)
    return request
