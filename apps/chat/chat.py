"""
`turnwheel chat`: a conversation in which a person types while the agent works.

Theory of operation. One task reads lines and applies them to the session. Another task runs the session as
long as inputs wait. They share only the session, so an input of another process counts as one typed here. An
accepted input is in the journal before any work follows from it.
"""

from __future__ import annotations

import asyncio
import sys
import termios
from collections.abc import Generator
from contextlib import aclosing, contextmanager, suppress
from typing import Any, final

from ...effects.errors import SessionBusy
from ...effects.messages import Role
from ...effects.notices import Notice, RunEnded, RunStarted
from ...effects.requests import AskApproval
from ...performers.base import Performer
from ..cli.ending_codes import exit_for
from ..cli.exit_codes import MEANINGS, Exit
from ..cli.run_options import RunOptions
from ..cli.workspace import Workspace, apply_choices, open_workspace
from ..stand_in.server import CLI_PACE
from ..terminal.approval_prompt import say_yes
from ..terminal.call_summary import number
from ..terminal.log_lines import log_lines
from ..terminal.outcome import show_resting
from ..terminal.signals import Signals
from .actions import LineActions
from .line_source import Lines, PipedLines, TypedLines
from .raw_input import Keyboard
from .view import ChatFace

POLL_SECONDS = 0.5
"""Seconds between two reads of the journal while the session is idle, for inputs from elsewhere."""

REST_CHECK_SECONDS = 0.05
"""Seconds between two checks whether a run rests, once no more answers can come."""


OTHER_WORKER = "another process works on this session; what you type waits for it"
"""Shown when another process has begun a run."""


@final
class ChatCommand:
    """One chat, until the person leaves or the pipe ends."""

    def __init__(self, options: RunOptions) -> None:
        self.options = options
        self.face = ChatFace(options)
        self.signals = Signals(self._ctrl_c if self.face.typed else None, self._say)
        self.code = Exit.ENDED
        self._lines: Lines | None = None
        self._reading: asyncio.Task[None] | None = None
        self._working: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._woken = True
        self._all_read = False

    async def do(self) -> Exit:
        """Chat to the end; returns the exit code."""
        return await self.signals.guard(self._do)

    async def _do(self) -> Exit:
        pace = CLI_PACE if self.face.out.is_terminal else 0.0
        performers: dict[type, Performer[Any]] = {AskApproval: say_yes} if self.options.yes else {}
        opened = open_workspace(self.options, performers, pace)
        with log_lines(self.face.aside):
            async with opened as workspace:
                return await self._done(workspace)

    async def _done(self, workspace: Workspace) -> Exit:
        await apply_choices(self.options, workspace)
        self.face.begin(workspace)
        self.signals.interrupts(workspace.session)
        self._lines = self._source(workspace)
        try:
            await self._talk(workspace, self._lines)
        except asyncio.CancelledError:
            self._cut_off(workspace)
            raise
        if self.signals.ended_by is not None:
            self._cut_off(workspace)
            return self.signals.ended_by
        return self._left(workspace)

    async def _talk(self, workspace: Workspace, lines: Lines) -> None:
        """Read and work until the person leaves, then end both tasks."""
        self._reading = asyncio.ensure_future(self._read(workspace, lines))
        self._working = asyncio.ensure_future(self._work(workspace))
        try:
            await self._wait_until_left(self._reading, self._working, workspace)
        finally:
            await _cancel_all(self._reading, self._working)

    def _source(self, workspace: Workspace) -> Lines:
        if not self.face.typed:
            return PipedLines(sys.stdin.fileno())
        before = [message.text for message in workspace.session.history if message.role is Role.USER]
        return TypedLines(Keyboard(sys.stdin.fileno()), self.face.out, self.face.status, before)

    def _ctrl_c(self) -> None:
        """Handle Ctrl-C without a run: clear the line, or leave if it is empty."""
        if not (isinstance(self._lines, TypedLines) and self._lines.clear()) and self._reading is not None:
            self._reading.cancel()

    # Reading

    async def _read(self, workspace: Workspace, lines: Lines) -> None:
        """Apply each line until there are no more, or the person wants to leave."""
        acts = LineActions(workspace, self.face, lines, base_url=self.options.base_url, away=self._away)
        async with aclosing(lines.read()) as typed:
            async for line in typed:
                if not await acts.do(line):
                    return
                self._news.set()
        self._all_read = not self.face.typed  # the prompts of a pipe are all answered; Ctrl-D leaves at once

    @contextmanager
    def _away(self) -> Generator[None]:
        with self.signals.ignore_ctrl_c(), self.face.away():
            yield

    async def _wait_until_left(
        self, reading: asyncio.Task[None], working: asyncio.Task[None], workspace: Workspace
    ) -> None:
        await asyncio.wait({reading, working}, return_when=asyncio.FIRST_COMPLETED)
        if reading.done() and not reading.cancelled():
            try:
                await reading  # raises its error
            except (EOFError, termios.error):  # the terminal is closed
                self.signals.hang_up()
        if self._all_read:
            self._news.set()
            while not working.done():
                self._rest(workspace)
                await asyncio.wait({working}, timeout=REST_CHECK_SECONDS)
        if working.done() and not working.cancelled():
            await working

    # Working

    async def _work(self, workspace: Workspace) -> None:
        """Run while prompts wait; then wait for news."""
        session, ours = workspace.session, True
        while True:
            # An unfinished run is ours only at the start. One that appears later belongs to another worker.
            if ours if session.unfinished else self._due(workspace):
                try:
                    await self._run(workspace, takeover=ours and self.options.takeover)
                except SessionBusy:
                    self.face.aside.line(OTHER_WORKER, "yellow")
                    await self._look(workspace)
                if self.signals.ended_by is not None:
                    return  # SIGTERM drained the run
            elif self._all_read:
                return
            else:
                await self._look(workspace)
            ours = False

    def _due(self, workspace: Workspace) -> bool:
        """
        Whether a prompt waits for this process.

        A prompt typed here does. One from elsewhere does after `POLL_SECONDS`, since its sender may be about
        to run it.
        """
        queue, now = workspace.session.queue, workspace.agent.clock.now()
        return bool(queue) and (self._woken or self._all_read or now - queue[0].at > POLL_SECONDS)

    async def _run(self, workspace: Workspace, *, takeover: bool) -> None:
        stream = workspace.session.stream(wait=True, takeover=takeover)
        async with self.face.busy(), aclosing(stream) as notices:
            async for notice in notices:
                self._track(notice)
                editing = self.face.editing
                self.face.notice(notice)
                if self.face.editing is not editing and isinstance(self._lines, TypedLines):
                    self._lines.clear()  # the question is closed

    def _track(self, notice: Notice) -> None:
        if isinstance(notice, RunStarted):
            self.signals.new_run()
        elif isinstance(notice, RunEnded):
            self.code = exit_for(notice.reason)

    def _rest(self, workspace: Workspace) -> None:
        """Leave a run that rests on a question without a deadline, once no answer can come from here."""
        if self.options.yes or workspace.waits or self._working is None:
            return
        if workspace.session.resting:
            self._working.cancel()

    async def _look(self, workspace: Workspace) -> None:
        """Wait for an input, from here or from elsewhere."""
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_SECONDS):
                await self._news.wait()
        # A prompt typed here is due at once; see `_due`.
        self._woken = self._news.is_set()
        self._news.clear()
        before = workspace.session.unfinished
        await workspace.session.load()
        if workspace.session.unfinished and not before:
            self.face.aside.line(OTHER_WORKER, "yellow")

    # The end

    def _left(self, workspace: Workspace) -> Exit:
        """Report the state of the session after the person left; returns the exit code."""
        session, aside = workspace.session, self.face.aside
        if session.waiting:
            show_resting(session, self.options, aside)
        elif session.unfinished:
            aside.line("the run is not over", "yellow")
        if session.queue:
            aside.line(f"{number(len(session.queue), 'prompt')} waiting", "yellow")
        if self.face.typed or session.unfinished:
            aside.line(f"go on with: {self.options.again('chat', session.id)}", "dim")
        if session.unfinished:
            return Exit.RESTING
        return Exit.ENDED if self.face.typed else self.code

    def _say(self, text: str) -> None:
        with suppress(OSError):  # a closed terminal takes no message
            self.face.aside.line(text, "yellow")

    def _cut_off(self, workspace: Workspace) -> None:
        """Say which signal ended the chat."""
        if self.signals.ended_by is None:
            return
        with suppress(OSError):  # a closed terminal takes no message
            self.face.aside.line(MEANINGS[self.signals.ended_by], "yellow")
            self.face.aside.line(f"go on with: {self.options.again('chat', workspace.session.id)}")


async def _cancel_all(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
