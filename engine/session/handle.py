"""Runs in the background, as the caller that began them sees them."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, final

from ...effects.notices import Notice, RunEnded, RunLeft, RunStarted
from ...effects.usage import Spent, Usage
from ..inputs import Input
from .feed import Subscription

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
    from decimal import Decimal

    from ...effects.config import Steering
    from ...effects.messages import Binary
    from ...effects.notices import DoneReason
    from ...effects.records import Change
    from .background import Background
    from .environment import Result, SpokenSession
    from .feed import Position
    from .session_log import SessionLog


@final
class OwnRuns:
    """
    Tells the runs of a session that take the prompts in *waiting* from its other runs.

    `takes` is asked about each notice of the session, in their order. *result_now* is called at the end of
    such a run. Without *waiting* these are the run that goes on next, and those of the prompts in the queue
    then.
    """

    def __init__(
        self, log: SessionLog, result_now: Callable[[], Result], waiting: set[str] | None = None
    ) -> None:
        # The prompts that no run has taken yet.
        self.waiting = set[str]() if waiting is None else waiting
        # Whether one of these runs goes on.
        self.going = waiting is None and log.state.unfinished
        # The result of the latest of them that ended, and the account of all that ended.
        self.result: Result | None = None
        self.spent = Spent()
        self._log = log
        self._result_now = result_now
        self._first = waiting is None

    def takes(self, notice: Notice) -> bool:
        """Whether *notice* is of one of these runs."""
        if self._first and not isinstance(notice, RunLeft):
            self._first, self.going = False, True
            self.waiting.update([mail.id for mail in self._log.state.prompts])
        elif isinstance(notice, RunStarted):
            state = self._log.state
            # A run takes several prompts of one sender. They are known, and wait no more.
            queued = {mail.id for mail in state.prompts}
            taken = {name for name in self.waiting if name not in queued and state.knows(name)}
            self.waiting -= taken
            self.going = bool(taken)
        its = self.going
        if isinstance(notice, RunEnded | RunLeft):
            if its and isinstance(notice, RunEnded):
                # Now: the run of a later prompt may follow.
                self.result = self._result_now()
                self.spent += notice.spent
            self.going = False
        return its

    @property
    def latest(self) -> Result | None:
        """The result of the latest of these runs; of one that goes on, how far it has come."""
        return self._result_now() if self.going else self.result

    @property
    def over(self) -> bool:
        """Whether none of these runs goes on, or is to come."""
        return not (self.going or self.waiting or self._first)

    def forget(self) -> None:
        """Look for no further runs."""
        self.waiting.clear()
        self.going = self._first = False


@final
class RunOutcome:
    """The audience of a caller that only wants the result of the run that takes its prompt."""

    def __init__(self, runs: OwnRuns) -> None:
        self._runs = runs

    def put(self, notices: Sequence[Notice]) -> None:
        """Look for the end of that run."""
        for notice in notices:
            self._runs.takes(notice)

    def admits(self, _: object) -> bool:
        """Always: there is no reader."""
        return True


@final
class OwnNotices:
    """The unread notices of *runs*, up to *size*, and whether all of these runs are over: a `Reader`."""

    def __init__(self, runs: OwnRuns, log: SessionLog, size: int) -> None:
        self.unread = Subscription(size, set())
        # Set while none of the runs goes on or is to come.
        self.over = asyncio.Event()
        self._runs = runs
        self._log = log

    def begin(self) -> None:
        """One of the runs is to come."""
        self.over.clear()
        self.unread.reopen()

    def finish(self) -> None:
        """No run is to come."""
        self._runs.forget()
        self.over.set()
        self.unread.end()

    @property
    def behind(self) -> bool:
        """Whether a reader waits that has had no turn yet to read what fills the buffer."""
        return self.unread.behind

    def put(self, notice: Notice, at: Position | None = None) -> None:
        """Keep *notice*, at its position, where it is of one of the runs."""
        if self._runs.takes(notice):
            self.unread.put(notice, at)
        # At the end of the last one the lease is still to be given up. That is waited for, but no other run.
        others = isinstance(notice, RunEnded | RunLeft) and self._log.state.prompts
        if self._runs.over and not self.over.is_set() and (others or isinstance(notice, RunStarted)):
            self.finish()

    def end(self) -> None:
        """Nothing: what was told can still be read, and the work says when it is over."""


@final
class Handle:
    """
    Runs in the background: the one of `Session.start`, and of each later `send`.

    They go on to their ends without a handle or a reader. Iterate it for their notices, and for those of no
    other run of the session. Notices wait as for a subscriber: a slow reader delays no run and misses some,
    which `dropped` counts, but never the end. Several readers share the notices. `interrupt` stops the run,
    `close` leaves it. *session* is the id of the session.
    """

    def __init__(
        self, speaks: SpokenSession, background: Background, prompt: Input | None, buffer: int
    ) -> None:
        self.session = speaks.id
        self._speaks = speaks
        self._background = background
        self._worker = worker = background.worker
        self._runs = OwnRuns(worker.log, speaks.result, None if prompt is None else {prompt.id})
        self._notices = OwnNotices(self._runs, worker.log, buffer)
        self._tasks = set[asyncio.Task[None]]()
        # How many prompts are being sent, which are to be followed.
        self._sending = 0
        # The error that ended the work, and whether it was raised to some caller.
        self._error: BaseException | None = None
        self._raised = False
        worker.feed.attach(self._notices)
        # Begun now and not with the first reader: a caller may start a run and never look.
        self._work(prompt)

    def _work(self, prompt: Input | None) -> None:
        task = self._background.start(prompt)
        self._tasks.add(task)
        # A callback sets the event. A task that is cancelled before its first step runs none of its own code,
        # and `wait` would then wait for ever.
        task.add_done_callback(self._worked)

    def _worked(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._error, self._raised = error, False
        self._finish_if_idle()

    def _finish_if_idle(self) -> None:
        if not (self._tasks or self._sending):
            self._notices.finish()

    # Its reader

    async def __aiter__(self) -> AsyncGenerator[Notice, None]:
        # Not the loop of the subscription: a reader that is cancelled leaves the rest to the next one.
        while (notice := await self._notices.unread.next()) is not None:
            yield notice
        # To each reader: the end of a loop must not look like success.
        self._raise()

    async def wait(self) -> Result:
        """
        The result of the latest of its runs, once all of them have ended; raises the error that ended one.

        After `close` it is how far the run came.
        """
        await self._notices.over.wait()
        self._raise()
        return self._runs.latest or self._speaks.result()

    def _raise(self) -> None:
        """Raise the error that ended the work, if any; being closed is none."""
        # Noted before it is raised: `close` behind a failed loop must not raise the error again.
        self._raised = True
        if self._error is not None:
            raise self._error

    # Inputs

    async def send(self, text: str, *, files: tuple[Binary, ...] = (), id: str | None = None) -> str:
        """As `Session.send`; the run that answers is one of this handle, and begins here if none goes on."""
        name = self._worker.environment.new_id() if id is None else id
        return await self._sent(Input(text=text, files=files, id=name), self._speaks.send)

    async def steer(
        self,
        text: str,
        how: Steering | None = None,
        *,
        files: tuple[Binary, ...] = (),
        id: str | None = None,
    ) -> str:
        """As `Session.steer`; once the run has ended, as `send`."""
        name = self._worker.environment.new_id() if id is None else id
        return await self._sent(Input(text=text, files=files, id=name), partial(self._speaks.steer, how=how))

    async def _sent(self, prompt: Input, post: Callable[..., Awaitable[str]]) -> str:
        runs, name = self._runs, prompt.id
        if self._worker.log.state.knows(name):
            return await post(prompt.text, files=prompt.files, id=name)
        # Before it is journaled: from then on a run may take it.
        runs.waiting.add(name)
        self._notices.begin()
        self._sending += 1
        try:
            await post(prompt.text, files=prompt.files, id=name, start=True)
            if name in runs.waiting and name not in [mail.id for mail in self._worker.log.state.prompts]:
                # It steers the run that goes on, or was known before.
                runs.waiting.discard(name)
            else:
                self._work(prompt)
        except BaseException:
            runs.waiting.discard(name)
            raise
        finally:
            self._sending -= 1
            self._finish_if_idle()
        return name

    async def control(self, change: Change) -> None:
        """As `Session.control`."""
        await self._speaks.control(change)

    async def interrupt(self) -> None:
        """Stop the run; a second interrupt waits for no work. Another run of the session goes on."""
        if self._runs.going or self._worker.driver is None:
            await self._speaks.interrupt()

    # The end

    async def close(self) -> None:
        """
        Leave its runs: their work stops, and the session can go on with them. Closing twice is fine.

        A prompt that no run has taken yet stays in the queue. Raises the error that ended the work, where no
        caller has seen it yet.
        """
        worker, going = self._worker, self._runs.going
        # A run of others goes on, also where a task of this handle works on it.
        kept = None if going or worker.driver is None else worker.task
        left = {*self._tasks, *([worker.task] if going and worker.task is not None else [])} - {kept}
        for task in left:
            worker.leave(task)
        # `wait` and not `await`: the error is raised below, and only once.
        if left:
            await asyncio.wait(left)
        self._notices.finish()
        if not self._raised:
            self._raise()

    async def __aenter__(self) -> Handle:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # The caller's own error comes first; the run's would hide it.
        self._raised = self._raised or kind is not None
        await self.close()

    # What is known of its runs

    @property
    def done(self) -> bool:
        """Whether all of its runs have ended, or were left."""
        return self._notices.over.is_set()

    @property
    def dropped(self) -> int:
        """How many notices the readers were too slow for."""
        return self._notices.unread.dropped

    @property
    def reason(self) -> DoneReason | None:
        """Why the latest of its runs ended; None while one goes on."""
        return None if (latest := self._runs.latest) is None else latest.reason

    @property
    def spent(self) -> Spent:
        """The account of all its runs, so far."""
        machine = self._worker.log.state.machine
        return self._runs.spent + (machine.memory.spent if machine and self._runs.going else Spent())

    @property
    def turns(self) -> int:
        """Completed model responses."""
        return self.spent.turns

    @property
    def cost(self) -> Decimal:
        """USD, as far as prices are known."""
        return self.spent.cost

    @property
    def usage(self) -> Usage:
        """Tokens."""
        return self.spent.usage
