"""Runs in the background, as the caller that began them sees them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NoReturn, final

from ...effects.errors import ArgumentError, SessionClosed
from ...effects.events import Interrupted
from ...effects.usage import Spent, Usage
from .followed import Followed
from .subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Sequence
    from decimal import Decimal

    from ...effects.config import Steering
    from ...effects.messages import Binary
    from ...effects.notices import DoneReason, Notice
    from ...effects.records import Change
    from ..core.inputs import Input
    from .background import Background
    from .environment import Result, SpokenSession
    from .subscription import Position


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
        self._worker = worker = background.worker
        self._unread = unread = Subscription(buffer, set())
        self._runs = Followed(set() if prompt is None else {prompt.id}, prompt is None, unread.end)
        # Whether the error that ended the latest run was raised to some caller.
        self._raised = False
        worker.report.follow(self._runs)
        worker.feed.attach(self)
        # Begun now and not with the first reader: a caller may start a run and never look.
        self._task = background.start(prompt)
        self._task.add_done_callback(self._began)

    def _began(self, task: asyncio.Task[None]) -> None:
        # Refused, or cancelled before it had its turn: then no worker knows of the prompt.
        if task.cancelled():
            self._runs.refused(SessionClosed(self.session))
        elif (error := task.exception()) is not None:
            self._runs.refused(error)

    # What the feed asks of its readers

    @property
    def behind(self) -> bool:
        """Whether a reader waits that has had no turn yet to read what fills the buffer."""
        return self._unread.behind

    def put(self, notice: Notice, at: Position | None = None) -> None:
        """Keep *notice*, at its position, where it is of one of these runs."""
        if self._runs.run:
            self._unread.put(notice, at)

    def end(self) -> None:
        """Nothing: what was told can still be read, and the worker says when these runs are over."""

    # Its reader

    async def __aiter__(self) -> AsyncGenerator[Notice, None]:
        # Not the loop of the subscription: a reader that is cancelled leaves the rest to the next one.
        while (notice := await self._unread.next()) is not None:
            yield notice
        # To each reader: the end of a loop must not look like success.
        self._raise()

    async def wait(self) -> Result:
        """
        The result of the latest of its runs, once all of them are over; raises the error that ended it.

        After `close` it is how far the run came, and `SessionClosed` where none had begun.
        """
        await self._runs.over.wait()
        self._raise()
        if self._runs.result is None:
            raise SessionClosed(self.session)
        return self._runs.result

    def _raise(self) -> None:
        # Noted before it is raised: `close` behind a failed loop must not raise the error again.
        self._raised = True
        if self._runs.error is not None:
            raise self._runs.error

    # Inputs

    async def send(self, text: str, *, files: Sequence[Binary] = (), id: str | None = None) -> str:
        """As `Session.send`; the run that answers is one of this handle, and begins here if none goes on."""
        name = self._worker.environment.new_id() if id is None else id
        return await self._sent(name, self._speaks.send(text, files=files, id=name, start=True))

    async def steer(
        self,
        text: str,
        how: Steering | None = None,
        *,
        files: Sequence[Binary] = (),
        id: str | None = None,
    ) -> str:
        """As `Session.steer`; once the run has ended, as `send`."""
        name = self._worker.environment.new_id() if id is None else id
        return await self._sent(name, self._speaks.steer(text, how, files=files, id=name, start=True))

    async def _sent(self, name: str, sent: Awaitable[str]) -> str:
        runs, state = self._runs, self._worker.log.state
        if not state.knows(name):
            # Before it is journaled: from then on a run may take it.
            runs.expect(name)
            self._worker.report.follow(runs)
            self._unread.reopen()
            self._raised = False
        try:
            return await sent
        except BaseException:
            runs.waiting.discard(name)
            raise
        finally:
            # It steers the run that goes on, or another process took it.
            if name not in self._worker.log.state.waiting:
                runs.waiting.discard(name)
            runs.settle()

    async def control(self, change: Change) -> None:
        """As `Session.control`."""
        await self._speaks.control(change)

    async def interrupt(self) -> None:
        """Stop the run; a second interrupt waits for no work. No other run of the session is stopped."""
        if self._runs.run:
            await self._speaks.interrupt()
        elif not self.done:
            # Behind what opens a run now: it may be one of these.
            stop = Interrupted(at=self._worker.environment.clock.now())
            await self._worker.post(lambda: stop if self._runs.run else None)

    # The end

    if not TYPE_CHECKING:
        # Type checkers report the await by themselves.
        def __await__(self) -> NoReturn:
            msg = "start() is not awaited; write 'handle = session.start(...)', then 'await handle.wait()'"
            raise ArgumentError(msg)

    async def close(self) -> None:
        """
        Leave its runs: their work stops, and the session can go on with them. Closing twice is fine.

        A prompt that waits in the queue stays there. Raises the error that ended the latest run, where no
        caller has seen it yet.
        """
        worker, runs = self._worker, self._runs
        begins = not (self.done or self._task.done()) and worker.driver is None
        runs.forget()
        if runs.run:
            await worker.leave_run()
        elif begins:
            # It waits for its turn, for the lease or for the journal.
            worker.leave(self._task)
        if worker.task is None:
            # Nothing is at work: what it began is about to end.
            await asyncio.wait({self._task})
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
        """Whether all of its runs are over, or were left."""
        return self._runs.over.is_set()

    @property
    def dropped(self) -> int:
        """How many notices the readers were too slow for."""
        return self._unread.dropped

    @property
    def reason(self) -> DoneReason | None:
        """Why the latest of its runs ended; None while one goes on, and where it was left."""
        return None if self._runs.run or self._runs.result is None else self._runs.result.reason

    @property
    def spent(self) -> Spent:
        """The account of all its runs, so far."""
        state, runs = self._worker.log.state, self._runs
        goes_on = runs.run or (runs.first and state.unfinished)
        return runs.spent + (state.machine.memory.spent if state.machine and goes_on else Spent())

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
