"""
Works on one session: claims it, opens or takes over its runs one after another, and lets go of it.

Theory of operation.

1. `work` runs in the task of its caller, or in one that `background.begin` made. It claims the session, so
   two callers cannot both begin, takes the lease and reads the journal.
2. An unfinished run is taken over first. Then each prompt gets a run of its own, until none is left.
3. The driver is asked for one step after another. The notices of each go to the feed, and to the buffer of
   the caller that reads them, which says when there is room for more.
4. At the end the lease is given up, and the session is free for the next caller.

Inputs pass one lock: they are journaled first, and then posted to the driver. An interrupt of the run that
goes on here is journaled with the step that it causes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, final

import attrs

from ...effects import errors
from ...effects.events import Event, Interrupted, Post, UserSent
from ...effects.notices import InputDropped, LeftBecause, Notice, RunEnded, notices_in
from ...performers.base import look_at
from ...states.rules.inputs import joins_until
from ...states.state import Done
from ..core.inputs import check_room
from ..driver import Inbox
from ..journal.entries import HandedOver, Posted, Titled
from .children import Children
from .environment import Titles
from .feed import Feed
from .lease import SessionLease
from .polled import Polled
from .refusals import check_reader, check_repeat, check_run, left_unfinished
from .run_report import RunReport
from .takeover import (
    begin_run,
    lifted_rules,
    name_of,
    new_driver,
    resumed_trace,
    run_config,
    show,
    show_questions,
    take_over,
    waits_for_answers,
)
from .titles import TITLE_WITHIN, TitleRequest, begin_title, end_title
from .waiting_line import WaitingLine

if TYPE_CHECKING:
    from ...effects import Effect
    from ..core.inputs import Input
    from ..driver import Driver
    from .completed_texts import NoticeFilter
    from .environment import Environment, OpenSession
    from .run_stream import RunBuffer
    from .session_log import SessionLog

# A driver, and what its run does first.
Begun: TypeAlias = "tuple[Driver, tuple[Effect, ...], tuple[Notice, ...]]"

# How often an input is tried where another process, which may be busy, wrote first. A try is one append where
# the store says what that was.
POST_TRIES = 50


class Use(Enum):
    """What a session object is used for now."""

    FREE = auto()
    # A caller is about to run it.
    CLAIMING = auto()
    # A run goes on here.
    DRIVING = auto()
    # The caller left its stream; the work is being stopped.
    LEAVING = auto()
    # The session object was closed.
    CLOSED = auto()


# The last effects of steps of which callers are told that wait for prompts.
REPORTED = frozenset({RunEnded, InputDropped})

RUNNING = frozenset({Use.CLAIMING, Use.DRIVING})

# A caller that wants to work on the session waits for its end.
BUSY = RUNNING | {Use.LEAVING}


@final
@attrs.define(eq=False, repr=False)
class Worker:
    """Works on the session of *log* in *environment*; *opens* makes child sessions."""

    log: SessionLog
    environment: Environment
    _opens: OpenSession
    id: str = attrs.field(init=False)
    children: Children = attrs.field(init=False)
    lease: SessionLease = attrs.field(init=False)
    feed: Feed = attrs.field(init=False)
    report: RunReport = attrs.field(init=False)
    use: Use = attrs.field(default=Use.FREE, init=False)
    # None while no run goes on in this process.
    driver: Driver | None = attrs.field(default=None, init=False)
    # That which has claimed the session, and the buffer of its reader.
    task: asyncio.Task[None] | None = attrs.field(default=None, init=False)
    _buffer: RunBuffer | None = attrs.field(default=None, init=False)
    # One try for each session object: a model that gave no title would give none after each run, and every
    # try costs money.
    _title: TitleRequest | None = attrs.field(default=None, init=False)
    # Set when the work has ended altogether; made by those that wait for it.
    _free: asyncio.Event | None = attrs.field(default=None, init=False)
    # Held for one read or one write, not for the length of a run.
    _lock: asyncio.Lock = attrs.field(factory=asyncio.Lock, init=False)
    # Before the lock: a run that was started, and has not had its turn.
    line: WaitingLine = attrs.field(factory=WaitingLine, init=False)
    # Whether a run was opened or taken over here.
    _ran: bool = attrs.field(default=False, init=False)
    # Set by `drain`: no new run opens. A driver may end without applying an event that is posted now, so
    # inputs must be journaled.
    drains: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self.id = self.log.journal.session
        self.children = Children(self.log, self.environment, self._opens)
        self.lease = SessionLease(self.log.journal, self.environment, self.children.first_due)
        self.feed = Feed(self.environment.watch.buffer)
        self.report = RunReport(self.log, self.children, self.feed, self.environment.outputs)

    async def load(self) -> None:
        """Read the new entries of the journal, and of the running children."""
        async with self._lock:
            if self.use in RUNNING:
                # Its journal may have a step already that is not known here before its append returns.
                await self.log.appended()
            # The owner knows more than the store: it has pieces of a stream that are not written yet. Where
            # its append failed, only the store says whether it has the step.
            if self.driver is None or self.log.unread:
                await self._read()
                self.log.park_soon(self.environment.config)
        # Children of a run that has ended change nothing any more.
        if self.log.state.unfinished:
            await self.children.load()

    async def _read(self) -> None:
        if self.use is Use.CLOSED:
            raise errors.SessionClosed(self.id)
        await look_at(self.environment.clock)
        await self.log.read()

    # Working on it

    def leave(self, task: asyncio.Task[None]) -> None:
        """Have *task* stop the work and leave the run unfinished; from the event loop."""
        if task is not self.task or self.use is Use.CLAIMING:
            # It waits for its turn, for the lease or for the journal.
            task.cancel()
        elif (driver := self.driver) is not None:
            # Before the work stops, which may take a while. The next caller then waits, and gets no
            # `SessionBusy`.
            self._change_use(Use.LEAVING)
            driver.leave()

    async def leave_run(self) -> None:
        """Leave the run under way unfinished; returns when the work has stopped."""
        if (driver := self.driver) is not None:
            self._change_use(Use.LEAVING)
            driver.leave()
        if self.use in BUSY:
            await self.freed()

    def room(self) -> None:
        """Have the driver ask again whether there is room in the buffer."""
        if self.driver is not None:
            self.driver.inbox.room()

    async def work(
        self,
        prompt: Input | None,
        buffer: RunBuffer | None = None,
        *,
        wait: bool,
        takeover: bool = False,
        place: asyncio.Event | None = None,
    ) -> None:
        """
        Post *prompt*, and work until no prompt is left; *buffer* gets the notices. See `Session.stream`.

        *place* is in the line.
        """
        await self.line.turn(place)
        # Before the `try`: a caller that is refused must not free the session of the one that has it.
        await self._claim()
        self._buffer = buffer
        error: BaseException | None = None
        rests = False
        try:
            begun = await self._first(prompt, place, wait=wait, takeover=takeover)
            while begun is not None:
                rests = await self._drive(*begun, wait=wait)
                begun = await self._next(begun[0])
        except BaseException as failed:
            error = failed
            if isinstance(failed, errors.WorldError):
                with suppress(errors.TurnwheelError):
                    async with self._lock:
                        await _read_again(self.log)
            raise
        finally:
            at = self.environment.clock.now()
            self.report.stops(error, let_go(self.use, drains=self.drains), at, rests=rests)
            # From here on an input is only journaled: this driver has ended, and nothing holds it.
            self.log.listen(None)
            # The next caller waits until the lease is given up, too.
            self._change_use(Use.LEAVING)
            try:
                await self.lease.release()
                # Last: it may be cut off, and a lease that stayed would keep others out.
                await self.log.journal.checkpoints.settled()
            finally:
                self.task = self._buffer = None
                self._change_use(Use.FREE)
                self.environment.at_work.discard(self.drain)
                self.report.over(error, let_go(self.use, drains=self.drains))
                # Last: a caller that waits for `_free` reads `use` next.
                free, self._free = self._free, None
                if free is not None:
                    free.set()
                # Its traceback has this frame.
                error = None

    def _change_use(self, use: Use, driver: Driver | None = None) -> None:
        # Closed is final: a stream that ends after `close` must not reopen the session.
        if self.use is not Use.CLOSED:
            self.use, self.driver = use, driver
        # One that is closed in the middle is in use until its stream has ended.
        if use is Use.FREE:
            self.log.end_use(self.environment.config)
        elif use is not Use.CLOSED:
            self.log.begin_use()

    async def _claim(self) -> None:
        while self.use is Use.LEAVING:
            await self.freed()
        # No await between looking and taking: no other caller gets a turn in between.
        if self.use is Use.CLOSED or self.drains:
            raise errors.SessionClosed(self.id)
        if self.use is not Use.FREE:
            raise errors.SessionBusy(self.id, errors.Workplace.HERE)
        self._change_use(Use.CLAIMING)
        self.task = asyncio.current_task()
        # A child is drained by its parent, and must not be drained a second time by the agent.
        if self.environment.task is None:
            self.environment.at_work.add(self.drain)

    async def idle(self) -> None:
        """Wait until nothing is at work, nor about to be."""
        while self.use in BUSY:
            await self.freed()

    async def freed(self) -> None:
        """Wait until the work under way has ended altogether."""
        self._free = self._free or asyncio.Event()
        await self._free.wait()

    async def _first(
        self, prompt: Input | None, place: asyncio.Event | None, *, wait: bool, takeover: bool
    ) -> Begun | None:
        """The driver of the run that is opened or taken over; None where there is none."""
        log, environment = self.log, self.environment
        # Held until there is a driver: an interrupt that comes meanwhile waits, and then finds it.
        async with self._lock:
            # From here on the lock keeps the order.
            self.line.leave(place)
            # A call that is refused must not have taken the lease from a process at work.
            if takeover:
                await self._read()
                check_run(self.log, self.environment, prompt)
            # Before the journal is read, which no other process drives any more then. No other process knows
            # an id that was just made: the lease of that one can wait for the poller.
            if not log.fresh:
                await self.lease.take(takeover=takeover)
            await self._read()
            check_run(self.log, self.environment, prompt)
            if prompt is not None and environment.task is None and log.state.knows(prompt.id):
                await check_repeat(log, prompt)
            # A process that waits for the answers would lose the run to this one, which cannot go on with it.
            if prompt is None and not (wait or takeover) and waits_for_answers(log, environment):
                await show_questions(log, environment.clock.now(), self.feed, self._buffer)
                return None
            event = None if prompt is None else await _posted(log, environment, prompt)
            if log.state.unfinished or _due(log, environment) is None:
                return await self._open(event)
        return await self._open_when_due()

    async def _next(self, driver: Driver) -> Begun | None:
        """The driver of the run after that of *driver*, for a prompt that came meanwhile; or None."""
        if not self.drains:
            # Asked for after the run. Earlier it would use up the provider's limits.
            if self.environment.titles is Titles.MODEL and self._title is None:
                self._title = begin_title(self.log, self.environment, partial(self.add, closed=True))
        elif self.log.state.unfinished:
            # Only this process knows which requests never began. The next owner begins those as new, and does
            # not tell the model that they may have been done.
            await self.log.own(HandedOver(at=self.environment.clock.now(), unbegun=driver.unbegun))
        # No driver any more: inputs wait in the journal until the next run is open.
        self.log.listen(None)
        # A run that rests, was drained or was left is unfinished, and only `resume` goes on with it.
        if self.log.state.unfinished or self.use is not Use.DRIVING:
            return None
        # The session is kept for this caller between two runs.
        self._change_use(Use.CLAIMING)
        return await self._open_when_due()

    async def _open_when_due(self) -> Begun | None:
        """The driver of a run for the next prompt, after the time in which its sender may add to it."""
        while True:
            async with self._lock:
                # It may have run out while this waited for the sender.
                await self.lease.take()
                await self._read()
                check_run(self.log, self.environment, None)
                due = _due(self.log, self.environment)
                if due is None:
                    return await self._open()
            # Outside the lock, which the sender's next input needs.
            await self.environment.clock.sleep_until(due)

    async def _open(self, prompt: UserSent | None = None) -> Begun | None:
        """The driver of a run that is opened or taken over, with what `_drive` takes; None for none."""
        log, environment, at = self.log, self.environment, self.environment.clock.now()
        if self.drains and prompt is not None:
            # It is written nowhere, so its sender has to know.
            raise errors.SessionClosed(self.id)
        if self.drains or not (prompt or log.state.unfinished or log.state.waiting):
            return None
        unfinished, trace = log.state.machine if log.state.unfinished else None, None
        before = None if log.state.machine is None else log.state.machine.config
        config = run_config(log, environment, prompt)
        events: tuple[Event, ...] = ()
        waiting = log.state.waiting | log.state.withdrawn | ({prompt.id} if prompt else set())
        if unfinished is not None:
            self.lease.went_on()
            self.report.opening(unfinished.memory.run, resumed=True)
            if environment.telemetry is not None:
                trace = resumed_trace(environment.telemetry, log, config, at)
            first, asked_again, events = await take_over(log, unfinished, config, at, name_of(trace))
        else:
            begun = await begin_run(log, environment, self.report, prompt, at)
            if begun is None:
                return None
            opened, trace = begun
            first, asked_again = opened, ()
        self.report.opened(first, waiting)
        # Closed during the append: the run is in the journal, and the next owner takes it over.
        if log.state.machine is None or self.use is Use.CLOSED:
            raise errors.SessionClosed(self.id)
        inbox = Inbox() if self._buffer is None else Inbox(self._buffer.admits)
        driver = new_driver(log, environment, self.children, inbox, trace)
        # Inputs before the answers that recovery made up: an interrupt must find the calls still open.
        for event in (*log.state.posted, *events):
            driver.post(event)
        # Only now. Earlier inputs were posted just above, and there is no await in between: none comes twice
        # or is lost.
        log.listen(driver.post)
        if environment.redactor is not None:
            environment.redactor.mark_running()
        self._change_use(Use.DRIVING, driver)
        self._ran = True
        return driver, first, (*asked_again, *lifted_rules(environment, before, config, at))

    async def _drive(
        self, driver: Driver, first: tuple[Effect, ...], unkept: tuple[Notice, ...], *, wait: bool
    ) -> bool:
        """
        Drive the run of *driver* from its *first* effects on; whether it rests at the end.

        No journal has the notices *unkept*.
        """

        # A run that rests may be taken over; a closed session must not take its lease back.
        def works() -> bool:
            return not (self.use is Use.CLOSED or driver.resting)

        if self.drains:
            # Since before there was a driver that could be told.
            driver.drain()
        feed, buffer = self.feed, self._buffer
        output = driver.machine.config.output
        notice_filter = self.environment.watch.filter(output, lambda: buffer is not None or feed.used)
        # Left in reverse order: another owner is looked for until the work has stopped.
        # The inbox is closed and the task not cancelled: the driver then ends between two steps, never inside
        # an append.
        async with Polled(self.log, self.lease, works, driver.inbox.close):
            try:
                effects = driver.begin(first)
                while effects is not None:
                    notices: Sequence[Notice] = notices_in(effects)
                    if self.children.here:
                        await self.children.pass_modes(notices)
                    if notice_filter is not None:
                        notices = notice_filter.filtered(notices)
                    if feed.used:
                        await feed.pass_on(notices, driver.entry)
                    if buffer is not None:
                        buffer.put(notices)
                    if unkept:
                        await show(unkept, None, feed, buffer)
                        unkept = ()
                    if effects and type(effects[-1]) in REPORTED:
                        self.report.tell(effects[-1])
                    effects = await driver.next(wait=wait)
                rests = driver.resting
            finally:
                # What comes from now on has no reader.
                driver.leave()
                await driver.end()
        return await self._driven(driver, notice_filter) and rests

    async def _driven(self, driver: Driver, notice_filter: NoticeFilter | None) -> bool:
        """Show notices that are held back; whether *driver* ended by itself. Raises the error of the work."""
        if self.use is Use.LEAVING:
            return False
        if driver.inbox.error is not None:
            # It came when the driver had ended.
            raise driver.inbox.error
        if notice_filter is not None:
            await show(notice_filter.held_back(), driver.entry, self.feed, self._buffer)
        return True

    # Inputs

    async def post(self, event: Callable[[], Post | None], place: asyncio.Event | None = None) -> None:
        """
        Journal the event that *event* makes of the present state, and post it to the driver.

        *event* is called under the lock, and again where another process wrote first; None posts nothing.
        *place* is in the line.
        """

        def entry() -> Posted | None:
            made = event()
            if made is None:
                return None
            check_room(made, self.log.state, self.id)
            # While a child runs here, its own machine says what becomes of the input.
            if self.use not in RUNNING:
                check_reader(self.log, self.environment, made)
            return Posted(event=made)

        await self.add(entry, place)

    async def send(
        self,
        sent: Input,
        event: Callable[[], Post],
        place: asyncio.Event | None = None,
    ) -> None:
        """
        Journal the input *sent* as the *event* that is made of the present state, unless its id is known.

        Raises `InputConflict` where the id is that of another input.
        """
        repeated = False

        def posted() -> Post | None:
            nonlocal repeated
            # A sender that got no answer sends again: the id makes that safe, across processes and crashes.
            repeated = self.log.state.knows(sent.id)
            return None if repeated else event()

        await self.post(posted, place)
        if repeated:
            await check_repeat(self.log, sent)

    def interrupted(self, event: Interrupted) -> bool:
        """Post *event* to the driver; whether there is one that goes on until it is applied."""
        # One that ends applies nothing any more.
        if self.driver is None or self.driver.inbox.closed or self.drains:
            return False
        # Not journaled first: a person who stops a run must not wait for a slow store. Known at once all the
        # same: who answers a question behind it must not believe that it counts.
        self.log.state.interrupted(event)
        self.driver.post(event)
        return True

    async def add(
        self,
        entry: Callable[[], Posted | Titled | None],
        place: asyncio.Event | None = None,
        *,
        closed: bool = False,
    ) -> None:
        """As `post`, for any concurrent entry, also once *closed*."""
        await self.line.turn(place)
        # A bounded number of tries: a process that writes without end must not hang the caller.
        async with self._lock:
            self.line.leave(place)
            # Whether what came first has to be read.
            behind = False
            for _ in range(POST_TRIES):
                # A driver whose own append failed ends, and takes nothing in any more.
                driven = self.driver is not None and not self.log.unread
                if self.use is Use.CLOSED and not closed:
                    raise errors.SessionClosed(self.id)
                # A driver takes in foreign entries by itself; reading under it would race with it. If the
                # state is old, the store refuses the append; an error, and nothing, are not appended.
                if not driven and (behind or self.log.unread or self.log.fresh or not _makes(entry)):
                    await self.log.read()
                try:
                    if driven and behind:
                        await self.log.look()
                    if await self._has_task() and await self.log.add(entry):
                        return
                except errors.CallerError:
                    # Refused by a state that is old where the append of the run here failed meanwhile. It may
                    # be old where another process took the run over, which is not known here yet.
                    if not self.log.unread and (behind or not driven):
                        raise
                    behind = True
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
        await self.line.turn()
        # The lock keeps out what begins here. Another process that begins makes the append a `StoreConflict`.
        async with self._lock:
            if self.use in BUSY:
                raise errors.SessionBusy(self.id, errors.Workplace.HERE)
            await self._read()
            if self.log.state.unfinished:
                await self.lease.check()
                raise left_unfinished(self.log)
            yield self.log

    # Letting go of it

    async def drain(self, within: float | None) -> None:
        """Let the running work end, begin nothing more, and let go; see `Session.drain`."""
        loop = asyncio.get_running_loop()
        until = None if within is None else loop.time() + within
        if self.task is not None and self.task.get_loop() is not loop:
            # What works in another event loop can be neither told nor awaited from here.
            raise errors.SessionBusy(self.id, errors.Workplace.HERE)
        # First: a stream that is about to open a run looks at it, and opens none.
        self.drains = True
        if (driver := self.driver) is not None:
            driver.drain()
        # Together with the children: the time is for all of them, not for one after the other.
        known = [child.drain(within) for child in self.children.here.values()]
        children = asyncio.gather(*known, return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self.idle()
        await children
        if (driver := self.driver) is not None:
            # Out of time: the work is cut off, and the worker hands over.
            driver.leave()
            await self.idle()
        left = TITLE_WITHIN if until is None else max(0.0, until - loop.time())
        await self.close(min(left, TITLE_WITHIN))

    async def close(self, title_within: float = TITLE_WITHIN) -> None:
        """
        Let go; a running run is left unfinished. Closing twice is fine.

        A title that was asked for may come within *title_within* seconds.
        """
        if self.use is Use.CLOSED:
            return
        driver, working = self.driver, self.task is not None
        # Before the first await: nothing may begin while the rest is being stopped.
        self._change_use(Use.CLOSED)
        try:
            if driver is not None:
                driver.leave()
            # The lease is given up last.
            if working:
                await self.freed()
        finally:
            # The parent's work is over by now, so no child is opened behind this.
            if self.children.here:
                await self.children.close()
            try:
                # A session that was only looked at has no run to give it a title.
                if self.environment.titles is Titles.MODEL and self._ran:
                    await end_title(
                        self._title, self.log, self.environment, partial(self.add, closed=True), title_within
                    )
            finally:
                self.feed.close()
            # Hooks last: whatever they do finds the session at rest. One that only looked at it ran nothing.
            ended = self.environment.ended
            if self._ran and ended is not None and (machine := self.log.state.machine) is not None:
                over = machine.state
                await ended(self.id, over.reason if isinstance(over, Done) else "unfinished")


async def _posted(log: SessionLog, environment: Environment, prompt: Input) -> UserSent | None:
    """The event of *prompt*, to be journaled with the run that it opens; None where it is journaled."""
    # The sender may add to the prompt for some seconds, so it is journaled before that wait. `add` is False
    # where another process wrote first, perhaps the same prompt: then this looks again.
    if environment.config.policy.coalesce:
        while not log.state.knows(prompt.id):
            await log.add(lambda: Posted(event=prompt.sent(environment.clock.now())))
    return None if log.state.knows(prompt.id) else prompt.sent(environment.clock.now())


def _due(log: SessionLog, environment: Environment) -> float | None:
    """Until when the sender of the next prompt may add to it; None where that time is over."""
    policy = environment.config.policy
    until, now = joins_until(log.state.prompts, policy), environment.clock.now()
    # A prompt of the future comes from another machine's clock, which may be hours ahead: not waited for.
    return until if until is not None and until - policy.coalesce <= now < until else None


async def _read_again(log: SessionLog) -> None:
    """Read what is stored, and journal the interrupts that were not applied, for the next owner."""
    runs = log.state.runs
    # Another process may have gone on, or a step may be stored although its append failed.
    await log.read()
    waiting = [Posted(event=each) for each in log.state.interrupts]
    for _ in range(POST_TRIES):
        if not waiting:
            break
        try:
            if await log.add(lambda: waiting[0] if log.state.unfinished and log.state.runs == runs else None):
                del waiting[0]
        except errors.StoreConflict:
            await log.read()


def let_go(use: Use, *, drains: bool) -> LeftBecause | None:
    """Why a session in this *use* is let go of, if it is."""
    return LeftBecause.CLOSED if use is Use.CLOSED else LeftBecause.DRAINED if drains else None


def _makes(entry: Callable[[], Posted | Titled | None]) -> bool:
    """Whether *entry* makes one of the state as it is known."""
    with suppress(errors.CallerError):
        return entry() is not None
    return False
