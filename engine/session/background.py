"""Work on a session that no caller waits for."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, final

from ...effects import errors
from ...performers.logs import warn
from .refusals import check_models, check_not_child
from .worker import RUNNING, Use, let_go

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ..core.inputs import Input
    from .worker import Worker

# The tasks of all workers until they end: a loop holds its tasks only weakly, and no caller need hold them.
WORKING: set[asyncio.Task[None]] = set()


def begin(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """A task for *work*, in the context of the caller, which is kept until it ends."""
    task = asyncio.get_running_loop().create_task(work)
    WORKING.add(task)
    task.add_done_callback(WORKING.discard)
    return task


@final
class Background:
    """Has *worker* work in the background."""

    # As slots, since thousands of sessions may wait in one process.
    __slots__ = ("_attendant", "worker")

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        # The latest task that an input began.
        self._attendant: asyncio.Task[None] | None = None

    def start(self, prompt: Input | None) -> asyncio.Task[None]:
        """
        Work on *prompt* and on what waits, or without one on what waits; before what is called later.

        Where a run goes on here, *prompt* waits for its turn in the queue. Approvals are waited for.
        """
        # First, since it raises where no loop runs: a place in the line would never be left.
        try:
            asyncio.get_running_loop()
        except RuntimeError as error:
            msg = "no running event loop; call start() in an async function"
            raise RuntimeError(msg) from error
        worker = self.worker
        place, at_work = worker.line.join(), worker.environment.at_work

        def over(_: asyncio.Task[None]) -> None:
            worker.line.leave(place)
            # It was refused, or cancelled before its first step, and no work has let go of it.
            if worker.use in {Use.FREE, Use.CLOSED}:
                at_work.discard(worker.drain)

        # Now, too: a caller that drains the agent next means this run.
        at_work.add(worker.drain)
        task = begin(self._serve(prompt, place))
        task.add_done_callback(over)
        self.go_on(task)
        return task

    async def _serve(self, prompt: Input | None, place: asyncio.Event) -> None:
        worker = self.worker
        await worker.line.turn(place)
        if prompt is not None and worker.use in RUNNING:
            # The worker of that run answers it, too.
            await worker.send(prompt, lambda: prompt.sent(worker.environment.clock.now()), place)
            self.attend()
        else:
            # It waits for approvals: a run in the background has no caller who would resume it.
            await worker.work(prompt, wait=True, place=place)

    def attend(self) -> None:
        """Answer the queue, where the work that goes on here does not; a failure is logged."""
        if self._attendant is None or self._attendant.done():
            self._attendant = begin(self._attend())
            self._attendant.add_done_callback(self._attended)

    async def _attend(self) -> None:
        worker = self.worker
        await worker.line.turn()
        # It may stop before it comes to the prompts in the queue.
        await worker.idle()
        state, gone = worker.log.state, let_go(worker.use, drains=worker.drains)
        if state.unfinished or gone is not None:
            # What came meanwhile waits, too.
            worker.report.over(None, gone)
        elif state.prompts:
            await worker.work(None, wait=True)

    def go_on(self, task: asyncio.Task[None]) -> None:
        """Let *task* go on, whose caller left it; a failure is logged."""
        task.add_done_callback(self._warn)

    def _attended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        # The input is stored, and the process at work answers it.
        if not (isinstance(error, errors.SessionBusy) and error.at_work is errors.Workplace.ELSEWHERE):
            self._warn(task)

    def _warn(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            worker = self.worker
            machine = worker.log.state.machine
            about = {"session": worker.id, "run": "" if machine is None else machine.memory.run}
            redact = worker.environment.redact
            warn("a run in the background failed", error, redact, level=logging.ERROR, **about)

    def check(self, *, prompted: bool) -> None:
        """Raise what is known at once of why nothing can be begun, with a prompt or without one."""
        worker = self.worker
        if worker.use is Use.CLOSED or worker.drains:
            raise errors.SessionClosed(worker.id)
        if worker.use in RUNNING:
            if not prompted:
                raise errors.SessionBusy(worker.id, errors.Workplace.HERE)
            return
        check_not_child(worker.log, worker.environment)
        check_models(worker.log, worker.environment)
