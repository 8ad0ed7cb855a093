"""
Runs one session: claims it, opens or takes over its runs one after another, and lets go of it.

Theory of operation. A caller that streams claims the session before its first await, so two callers cannot
both begin. Runs follow each other until no prompt is left: an unfinished run is taken over first, then each
prompt gets a run of its own. Inputs pass one lock: they are journaled first, and then posted to the driver.
An interrupt of the run that goes on here is journaled with the step that it causes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, final

import attrs

from ...effects import errors
from ...effects.events import ApprovalGiven, ControlReceived, Event, Interrupted, Post, UserSent
from ...effects.notices import ApprovalRequested, Notice, SettingChanged, Warned, notices_in
from ...effects.records import SetMode
from ...effects.requests import AskApproval, RunAgent
from ...performers.base import noop
from ...states.rules.inputs import joins_until
from ...states.state import Done
from ..driver import Driver, Performers
from ..inputs import check_room
from ..journal.entries import HandedOver, Posted, TakenOver, Titled
from ..machine import with_denials
from ..recovery import recover
from .children import Children, ChildRunner
from .delivery import Broker
from .environment import Titles
from .lease import SessionLease
from .polled import Polled
from .redactor import redacting
from .refusals import check_reader, check_runner, check_tools, models_of
from .titles import begin_title

if TYPE_CHECKING:
    from ...effects import Effect
    from ...effects.config import Config
    from ...performers.base import Performer
    from ..inputs import Input
    from ..machine import Machine
    from .environment import Environment, OpenSession
    from .session_log import SessionLog

# Turns of the event loop after which a stream that was merely dropped (a ``break`` without `aclosing`) has
# begun to close: asyncio closes it in a task of its own.
TURNS_TO_NOTICE = 5

# Seconds that the reader of a stream has to see its end, once the work has been left.
LAST_WORDS = 1.0

# How often an input is tried where another process, which may be busy, wrote first. A try is one append where
# the store says what that was.
POST_TRIES = 50


class Owner(Enum):
    """Who uses a session object now."""

    NONE = auto()
    # A caller is about to run it.
    CLAIMING = auto()
    # A run goes on here.
    DRIVING = auto()
    # The caller left its stream; the work is being stopped.
    LEAVING = auto()
    # The session object was closed.
    CLOSED = auto()


RUNNING = frozenset({Owner.CLAIMING, Owner.DRIVING})

# Takes the notices of a started run; it must not wait for a reader.
Put = Callable[[Notice], Awaitable[None]]

# The started runs until they end: a loop holds its tasks only weakly, and no caller need hold them.
STARTED: set[asyncio.Task[None]] = set()


@final
class SessionRunner:
    """Runs the session of *log* in *environment*; *opens* makes child sessions."""

    # As slots, since thousands of them may wait in one process.
    __slots__ = (
        "_free",
        "_line",
        "_lock",
        "_ran",
        "_title",
        "_titles",
        "broker",
        "children",
        "drains",
        "driver",
        "environment",
        "id",
        "lease",
        "log",
        "owner",
    )

    def __init__(self, log: SessionLog, environment: Environment, opens: OpenSession) -> None:
        self.id = log.journal.session
        self.log = log
        self.environment = environment
        self.children = Children(self.log, environment, opens)
        self.lease = SessionLease(log.journal, environment, self.children.first_due)
        self.broker = Broker(environment.watch.buffer)
        self.owner = Owner.NONE
        # None while no run goes on in this process.
        self.driver: Driver | None = None
        # A child is found through its parent, and in a list by its agent: it needs no title.
        self._titles = Titles.OFF if environment.config.agent else environment.titles
        # One try for each session object: a model that gave no title would give none after each run, and
        # every try costs money. The task is held here, since asyncio keeps only a weak reference.
        self._title: asyncio.Task[None] | None = None
        # Set when a stream has ended altogether; made by those that wait for it.
        self._free: asyncio.Event | None = None
        # Held for one read or one write, not for the length of a run.
        self._lock = asyncio.Lock()
        # Places before the lock, set once they are first. Empty but for a run that was started and has not
        # had its turn: what is called behind it waits for that.
        self._line: list[asyncio.Event] = []
        self._ran = False
        # Set by `drain`: no new run opens. A driver may end without applying an event that is posted now, so
        # inputs must be journaled.
        self.drains = False

    async def load(self) -> None:
        """Read the new entries of the journal, and of the running children."""
        async with self._lock:
            if self.owner in RUNNING:
                # Its journal may have a step already that is not known here before its append returns.
                await self.log.appended()
            # The owner knows more than the store: it has pieces of a stream that are not written yet. Where
            # its append failed, only the store says whether it has the step.
            if self.owner not in RUNNING or (self.driver is not None and self.log.unread):
                await self._read()
                self.log.rest(self.environment.config)
        # Children of a run that has ended change nothing any more.
        if self.log.state.unfinished:
            await self.children.load()

    async def _read(self) -> None:
        if self.owner is Owner.CLOSED:
            raise errors.SessionClosed(self.id)
        await self.log.read()

    # Running it

    def start(self, prompt: Input | None, put: Put) -> asyncio.Task[None]:
        """As `stream`, in a task that gives notices to *put*; it comes before what is called later."""
        # First, since it raises where no loop runs: a place in the line would never be left.
        loop = asyncio.get_running_loop()
        place = self._join()

        async def run() -> None:
            # It waits for approvals: a run in the background has no caller who would resume it.
            async with aclosing(self.stream(prompt, wait=True, place=place)) as notices:
                async for notice in notices:
                    await put(notice)

        def over(task: asyncio.Task[None]) -> None:
            STARTED.discard(task)
            self._leave(place)
            # It was refused, or cancelled before its first step, and no stream has let go of it.
            if self.owner in {Owner.NONE, Owner.CLOSED}:
                self.environment.at_work.discard(self.drain)

        # Now, too: a caller that drains the agent next means this run.
        self.environment.at_work.add(self.drain)
        task = loop.create_task(run())
        STARTED.add(task)
        task.add_done_callback(over)
        return task

    def _join(self) -> asyncio.Event:
        """A place in the line, taken now; to be left in any case."""
        place = asyncio.Event()
        self._line.append(place)
        self._line[0].set()
        return place

    def _leave(self, place: asyncio.Event | None) -> None:
        if place in self._line:
            self._line.remove(place)
        if self._line:
            self._line[0].set()

    async def _turn(self, mine: asyncio.Event | None = None) -> None:
        """Wait for the turn of the place *mine*, or else until what was called before has had its."""
        if mine is not None:
            await mine.wait()
            return
        place = self._join()
        try:
            await place.wait()
        finally:
            self._leave(place)

    async def stream(
        self,
        prompt: Input | None,
        *,
        wait: bool,
        takeover: bool = False,
        place: asyncio.Event | None = None,
    ) -> AsyncGenerator[Notice, None]:
        """Post *prompt*, and run until no prompt is left; see `Session.stream`. *place* is in the line."""
        await self._turn(place)
        # Before the `try`: a caller that is refused must not free the session of the one that has it.
        await self._claim()
        try:
            begun = await self._first(prompt, place, takeover=takeover)
            while begun is not None:
                shown = self.environment.watch.shown(self._drive(*begun, wait=wait))
                async with aclosing(shown) as steps:
                    try:
                        async for notices in steps:
                            for notice in notices:
                                if self.broker.used:
                                    self.broker.publish(notice, begun[0].entry)
                                yield notice
                    except GeneratorExit:
                        # Changed before the work stops, which may take a while. The next caller then waits
                        # and gets no `SessionBusy`.
                        self._change_owner(Owner.LEAVING)
                        raise
                begun = await self._next(begun[0])
        except errors.WorldError:
            # Another process may have gone on, or a step may be stored although its append failed.
            with suppress(errors.TurnwheelError):
                async with self._lock:
                    await self.log.read()
            raise
        finally:
            # From here on an input is only journaled: this driver has ended, and nothing holds it.
            self.log.listener, self.log.state.interrupts = None, []
            self.children.wake, self.children.abort = noop, noop
            # The next caller waits until the lease is given up, too.
            self._change_owner(Owner.LEAVING)
            try:
                await self.lease.release()
                # Last: it may be cut off, and a lease that stayed would keep others out.
                await self.log.journal.checkpoints.settled()
            finally:
                self._change_owner(Owner.NONE)
                self.environment.at_work.discard(self.drain)
                self.log.rest(self.environment.config)
                # Last: a caller that waits for `_free` reads `owner` next.
                self._set_free()

    def _change_owner(self, owner: Owner, driver: Driver | None = None) -> None:
        # Closed is final: a stream that ends after `close` must not reopen the session.
        if self.owner is not Owner.CLOSED:
            self.owner, self.driver = owner, driver
        # One that is closed in the middle is in use until its stream has ended.
        if owner is not Owner.CLOSED:
            self.log.in_use = owner is not Owner.NONE

    async def _claim(self) -> None:
        # A caller may break out of a stream and begin the next one at once. The first stream gets a few turns
        # of the loop to notice, and the caller is not refused.
        for _ in range(TURNS_TO_NOTICE):
            if self.owner not in RUNNING:
                break
            await asyncio.sleep(0)
        while self.owner is Owner.LEAVING:
            await self._freed()
        # No await between looking and taking: no other caller gets a turn in between.
        if self.owner is Owner.CLOSED or self.drains:
            raise errors.SessionClosed(self.id)
        if self.owner is not Owner.NONE:
            raise errors.SessionBusy(self.id, errors.Workplace.HERE)
        self._change_owner(Owner.CLAIMING)
        # A child is drained by its parent, and must not be drained a second time by the agent.
        if self.environment.task is None:
            self.environment.at_work.add(self.drain)

    def _set_free(self) -> None:
        if self._free is not None:
            self._free.set()
            self._free = None

    async def _freed(self) -> None:
        """Wait until the stream has ended altogether."""
        self._free = self._free or asyncio.Event()
        await self._free.wait()

    async def _first(
        self, prompt: Input | None, place: asyncio.Event | None, *, takeover: bool
    ) -> tuple[Driver, tuple[Effect, ...]] | None:
        """The driver of the run that is opened or taken over; None where there is none."""
        log = self.log
        # Held until there is a driver: an interrupt that comes meanwhile waits, and then finds it.
        async with self._lock:
            # From here on the lock keeps the order.
            self._leave(place)
            # A call that is refused must not have taken the lease from a process at work.
            if takeover:
                await self._read()
                self._check(prompt)
            # Before the journal is read, which no other process drives any more then. No other process knows
            # an id that was just made: the lease of that one can wait for the poller.
            if not log.fresh:
                await self.lease.take(takeover=takeover)
            await self._read()
            self._check(prompt)
            event = None if prompt is None else await self._posted(prompt)
            if log.state.unfinished or self._due() is None:
                return await self._begin(event)
        return await self._settled()

    def _check(self, prompt: Input | None) -> None:
        """Refuse a run that cannot begin or go on here."""
        log, environment, state = self.log, self.environment, self.log.state
        check_runner(log, environment)
        if environment.ready is not None and (prompt or state.unfinished or state.prompted):
            environment.ready(*models_of(log, environment))
        if prompt is None and state.machine is None and not state.prompted:
            raise errors.UnknownSession(self.id)
        machine = state.machine if state.unfinished else None
        if machine is None:
            return
        # An unfinished run may hold a question or a paid result: only `resume` goes on with it. Not so a
        # child's own task: a process that lost the session may have begun on it a moment ago.
        if prompt is not None and (environment.task is None or prompt.id != environment.task.id):
            raise errors.SessionBusy(self.id, errors.Workplace.NOWHERE)
        check_tools(log, machine, environment)

    async def _posted(self, prompt: Input) -> UserSent | None:
        """The event of *prompt*, to be journaled with the run that it opens; None where it is journaled."""
        log, environment = self.log, self.environment
        # The sender may add to the prompt for some seconds, so it is journaled before that wait. `add` is
        # False where another process wrote first, perhaps the same prompt: then this looks again.
        if environment.config.policy.coalesce:
            while not log.state.knows(prompt.id):
                await log.add(lambda: Posted(event=prompt.sent(environment.clock.now())))
        return None if log.state.knows(prompt.id) else prompt.sent(environment.clock.now())

    async def _next(self, driver: Driver) -> tuple[Driver, tuple[Effect, ...]] | None:
        """The driver of the run after that of *driver*, for a prompt that came meanwhile; or None."""
        if not self.drains:
            # Asked for after the run. Earlier it would use up the provider's limits.
            if self._titles is Titles.MODEL and self._title is None:
                self._title = begin_title(self.log, self.environment, partial(self.add, closed=True))
        elif self.log.state.unfinished:
            # Only this process knows which requests never began. The next owner begins those as new, and does
            # not tell the model that they may have been done.
            await self.log.own(HandedOver(at=self.environment.clock.now(), unbegun=driver.unbegun))
        # No driver any more: inputs wait in the journal until the next run is open.
        self.log.listener = None
        # The session is kept for this caller between two runs.
        self._change_owner(Owner.CLAIMING)
        # A run that rests or was drained is unfinished, and only `resume` goes on with it.
        over = self.log.state.unfinished or self.owner is Owner.CLOSED
        return None if over else await self._settled()

    async def _settled(self) -> tuple[Driver, tuple[Effect, ...]] | None:
        """The driver of a run for the next prompt, after the time in which its sender may add to it."""
        while True:
            async with self._lock:
                # It may have run out while this waited for the sender.
                await self.lease.take()
                await self._read()
                self._check(None)
                due = self._due()
                if due is None:
                    return await self._begin()
            # Outside the lock, which the sender's next input needs.
            await self.environment.clock.sleep_until(due)

    def _due(self) -> float | None:
        """Until when the sender of the next prompt may add to it; None where that time is over."""
        policy = self.environment.config.policy
        until, now = joins_until(self.log.state.prompts, policy), self.environment.clock.now()
        # A prompt of the future comes from another machine's clock, which may be hours ahead: not waited for.
        return until if until is not None and until - policy.coalesce <= now < until else None

    async def _begin(self, prompt: UserSent | None = None) -> tuple[Driver, tuple[Effect, ...]] | None:
        log, environment, at = self.log, self.environment, self.environment.clock.now()
        if self.drains and prompt is not None:
            # It is written nowhere, so its sender has to know.
            raise errors.SessionClosed(self.id)
        if self.drains or not (prompt or log.state.unfinished or log.state.prompted):
            return None
        unfinished = log.state.machine if log.state.unfinished else None
        if unfinished is not None:
            self.lease.went_on()
        before = None if log.state.machine is None else log.state.machine.config
        config = with_denials(environment.config, before, environment.lifted)
        events: tuple[Event, ...] = ()
        if unfinished is not None:
            first, events = await take_over(log, unfinished, config, at)
            entry = None
        else:
            task = environment.task if log.state.machine is None else None
            # A child's first run has its task's name: begun again after a crash, its requests have the same
            # ids.
            name = environment.new_id() if task is None else task.id
            titled = self._titles is Titles.INLINE
            first = await log.open_run(name, config, at, prompt, titled=titled)
            entry = log.begun if log.journal.kept else None
        # Closed during the append: the run is in the journal, and the next owner takes it over.
        if log.state.machine is None or self.owner is Owner.CLOSED:
            raise errors.SessionClosed(self.id)
        driver = Driver(
            machine=log.state.machine,
            performers=self._performers(),
            session=self.id,
            journal=log,
            clock=environment.clock,
            full_result=log.full_result,
            store=log.journal.store if log.journal.kept else None,
            rested=environment.rested,
            entry=entry,
        )
        # Inputs before the answers that recovery made up: an interrupt must find the calls still open.
        for event in (*log.state.posted, *events):
            driver.post(event)
        # Set only now. Earlier inputs were posted just above, and there is no await in between: none comes
        # twice or is lost.
        log.listener = driver.post
        # One that came after the last run's end was for that run.
        log.state.interrupts = []
        if environment.redactor is not None:
            environment.redactor.mark_running()
        self._change_owner(Owner.DRIVING, driver)
        self._ran = True
        lifted = [each for each in environment.lifted if before and each in before.rules]
        lost = [Warned(text=f"lifted: {each}") for each in lifted if each not in config.rules]
        return driver, (*first, *lost)

    def _performers(self) -> Performers:
        """The performers of a run, around which secrets are taken out."""
        environment, made = self.environment, self.environment.performers
        # A host's own performer of `RunAgent` replaces this one.
        if environment.config.children:
            runner: Performer[RunAgent] = ChildRunner(self.children)  # pyright: ignore[reportAssignmentType]  # async
            made = {RunAgent: runner, **made}
        return made if environment.redactor is None else redacting(made, environment.redactor)

    async def _drive(
        self, driver: Driver, first: tuple[Effect, ...], *, wait: bool
    ) -> AsyncGenerator[Sequence[Notice], None]:
        """Drive the run of *driver*; the notices of each step."""
        found: list[errors.TurnwheelError] = []

        def stop(error: errors.TurnwheelError) -> None:
            found.append(error)
            # The inbox is closed and the task not cancelled: the driver then ends between two steps, never
            # inside an append.
            driver.inbox.close()

        # Set for each run: the inbox of the last driver has no reader. A child that finds another owner calls
        # `abort`, and this run ends, too, because that owner drives both.
        self.children.wake, self.children.abort = driver.inbox.wake, stop
        steps = driver.steps(first, wait=wait)

        # A run that rests may be taken over; a closed session must not take its lease back.
        def works() -> bool:
            return not (self.owner is Owner.CLOSED or driver.resting)

        # Left in reverse order: another owner is looked for until the work has stopped.
        async with Polled(self.log, self.lease, works, stop), aclosing(steps):
            async for effects in steps:
                notices = notices_in(effects)
                # A mode holds for the children, too. After the parent's own step: a crash in between leaves
                # them with the old one, which `take_over` makes good.
                if self.children.here:
                    for notice in notices:
                        if isinstance(notice, SettingChanged):
                            await self.children.follow(notice.change)
                yield notices
        # The driver ended because of it, and knows no error itself.
        if found:
            raise found[0]

    # Inputs

    async def post(self, event: Callable[[], Post | None]) -> None:
        """
        Journal the event that *event* makes of the present state, and post it to the driver.

        *event* is called under the lock, and again where another process wrote first; None posts nothing.
        """

        def entry() -> Posted | None:
            made = event()
            if made is None:
                return None
            check_room(made, self.log.state, self.id)
            # While a child runs here, its own machine says what becomes of the input.
            if self.owner not in RUNNING:
                check_reader(self.log, self.environment, made)
            return Posted(event=made)

        await self.add(entry)

    def interrupted(self, event: Interrupted) -> bool:
        """Post *event* to the driver; whether there is one that goes on until it is applied."""
        if self.driver is None or self.drains:
            return False
        # Not journaled first: a person who stops a run must not wait for a slow store. Known at once all the
        # same: who answers a question behind it must not believe that it counts.
        self.log.state.interrupts.append(event)
        self.driver.post(event)
        return True

    async def add(self, entry: Callable[[], Posted | Titled | None], *, closed: bool = False) -> None:
        """As `post`, for any concurrent entry, also once *closed*."""
        await self._turn()
        # A bounded number of tries: a process that writes without end must not hang the caller.
        async with self._lock:
            # Whether what came first has to be read.
            behind = False
            for _ in range(POST_TRIES):
                # A driver whose own append failed ends, and takes nothing in any more.
                driven = self.driver is not None and not self.log.unread
                if self.owner is Owner.CLOSED and not closed:
                    raise errors.SessionClosed(self.id)
                # A driver takes in foreign entries by itself; reading under it would race with it. If the
                # state is old, the store refuses the append; an error, and nothing, are not appended.
                if not driven and (behind or self.log.unread or self.log.fresh or not _makes(entry)):
                    await self.log.read()
                try:
                    if await self._has_task() and await self.log.add(entry):
                        return
                except errors.CallerError:
                    # Refused by a state that is old: the append of the run here failed meanwhile.
                    if not self.log.unread:
                        raise
                except errors.StoreConflict:
                    # The run here lost the session: its driver finds out by itself, the caller now. Not so
                    # where the other entry is the driver's own, whose append was cut off while this waited.
                    if driven and not self.log.unread:
                        raise
                    behind = True
        msg = f"session {self.id!r}: other processes keep writing to it; try again"
        raise errors.StoreError(msg)

    async def _has_task(self) -> bool:
        """Whether a child's task is journaled; journals it where it is not."""
        # Before any other input: one that came first would be taken for the task by the next owner.
        task, state = self.environment.task, self.log.state
        if task is None or state.machine is not None or state.knows(task.id):
            return True
        posted = Posted(event=task.sent(self.environment.clock.now()))
        return await self.log.add(lambda: None if state.knows(task.id) else posted)

    @asynccontextmanager
    async def at_rest(self) -> AsyncGenerator[SessionLog, None]:
        """The log, while no caller can run the session; `SessionBusy` where a run is unfinished."""
        await self._turn()
        # The lock keeps out what begins here. Another process that begins makes the append a `StoreConflict`.
        async with self._lock:
            if self.owner in {*RUNNING, Owner.LEAVING}:
                raise errors.SessionBusy(self.id, errors.Workplace.HERE)
            await self._read()
            if self.log.state.unfinished:
                await self.lease.check()
                raise errors.SessionBusy(self.id, errors.Workplace.NOWHERE)
            yield self.log

    # Letting go of it

    async def drain(self, within: float | None) -> None:
        """Let the running work end, begin nothing more, and let go; see `Session.drain`."""
        # First: a stream that is about to open a run looks at it, and opens none.
        self.drains = True
        if (driver := self.driver) is not None:
            driver.drain()
        # Together with the children: the time is for all of them, not for one after the other.
        known = [child.drain(within) for child in self.children.here.values()]
        children = asyncio.gather(*known, return_exceptions=True)
        await self._over(within)
        await children
        if (driver := self.driver) is not None:
            # Out of time: the work is cut off, and its stream gets a moment to hand over.
            await driver.leave()
            await self._over(LAST_WORDS)
        await self.close()

    async def _over(self, within: float | None) -> None:
        """Wait until the stream has ended, for at most *within* seconds (None: however long it takes)."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self.owner in {*RUNNING, Owner.LEAVING}:
                    await self._freed()

    async def close(self) -> None:
        """Let go; a running run is left unfinished. Closing twice is fine."""
        if self.owner is Owner.CLOSED:
            return
        driver = self.driver
        # Before the first await: nothing may begin while the rest is being stopped.
        self._change_owner(Owner.CLOSED)
        try:
            if driver is not None:
                await driver.leave()
            # Here, too: the reader of the stream may never look at its end.
            await self.lease.release()
        finally:
            # The parent's work is over by now, so no child is opened behind this.
            if self.children.here:
                await self.children.close()
            if self._title is not None:
                # The tokens used until then are journaled. How it ended is logged, and must not break this.
                self._title.cancel()
                await asyncio.wait({self._title})
            self.broker.close()
            # Hooks last: whatever they do finds the session at rest. One that only looked at it ran nothing.
            ended = self.environment.ended
            if self._ran and ended is not None and (machine := self.log.state.machine) is not None:
                over = machine.state
                await ended(self.id, over.reason if isinstance(over, Done) else "unfinished")


def _makes(entry: Callable[[], Posted | Titled | None]) -> bool:
    """Whether *entry* makes one of the state as it is known."""
    with suppress(errors.CallerError):
        return entry() is not None
    return False


# Other processes


async def take_over(
    log: SessionLog, machine: Machine, config: Config, at: float
) -> tuple[tuple[Effect, ...], tuple[Event, ...]]:
    """
    Take over the run of *log* and *machine* under *config*: the effects to repeat, and the events to apply.

    A question that has its answer already is not asked again.
    """
    # Read first: the entry clears it, since from then on this process may begin them.
    unbegun, tries = log.state.unbegun, log.state.tries
    # The entry says only what changed: most processes take over with the same configuration. Written before
    # anything is performed: of two processes one loses here, and a lost owner that still works sees the entry
    # at its next append.
    await log.own(TakenOver(at=at, config=None if machine.under(config) else config))
    recovery = recover(machine, at, unbegun, tries)
    posted = log.state.posted
    answered = {event.request for event in posted if isinstance(event, ApprovalGiven)}
    # A child may never have begun, and would start in the mode of the time when it was asked for. Of several
    # changes since, the last one holds.
    changes = [event.change for event in posted if isinstance(event, ControlReceived)]
    modes = [change.mode for change in changes if isinstance(change, SetMode)]
    again = [
        attrs.evolve(request, mode=modes[-1]) if modes and isinstance(request, RunAgent) else request
        for request in recovery.again
        if not isinstance(request, AskApproval) or request.id not in answered
    ]
    # A subscriber of the new process has not seen the notice that the old one gave.
    notices = [ApprovalRequested.of(request) for request in again if isinstance(request, AskApproval)]
    return (*again, *notices), recovery.events
