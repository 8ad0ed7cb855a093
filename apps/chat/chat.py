"""
`turnwheel chat`: a conversation in a terminal, or through a pipe, in which one types while the agent works.

Theory of operation. One task reads lines and does what they mean to the session; another one works for as
long as anything waits there. They share nothing but the session, so what another process posts is heeded just
as what is typed here, and what was accepted is in the journal before anything is done about it.
"""

from __future__ import annotations

import asyncio
import sys
import termios
from collections.abc import Generator
from contextlib import aclosing, contextmanager, suppress
from typing import Any, final

from ...effects.messages import Role
from ...effects.notices import Notice, RunEnded, RunStarted
from ...effects.requests import AskApproval
from ...performers.base import Performer
from ..cli.exit_codes import MEANINGS, Exit, exit_for
from ..cli.run_options import RunOptions
from ..cli.signals import Signals
from ..cli.workspace import Workspace, apply_choices, open_workspace
from ..stand_in.server import CLI_PACE
from ..terminal.approval_prompt import say_yes
from ..terminal.call_summary import number
from ..terminal.outcome import show_resting
from .actions import LineActions
from .line_source import Lines, PipedLines, TypedLines
from .raw_input import Keyboard
from .view import ChatFace

POLL_SECONDS = 0.5
"""Seconds between two looks at what others have sent to a session in which nothing goes on."""

REST_CHECK_SECONDS = 0.05
"""Seconds between two looks at whether a run rests, where nobody can answer any more."""


OTHER_WORKER = "another process works on this session; what you type waits for it"
"""Told where a run began that is not ours."""


@final
class ChatCommand:
    """Does *job*: talks, until whoever talks leaves."""

    def __init__(self, options: RunOptions) -> None:
        self.options = options
        self.face = ChatFace(options)
        self.signals = Signals(self._ctrl_c if self.face.typed else None, self._say)
        self.code = Exit.ENDED
        self._lines: Lines | None = None
        self._reading: asyncio.Task[None] | None = None
        self._working: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._told = True
        self._heard_all = False

    async def do(self) -> Exit:
        """Talk to the end; returns what to tell the shell."""
        return await self.signals.guard(self._do)

    async def _do(self) -> Exit:
        pace = CLI_PACE if self.face.out.is_terminal else 0.0
        performers: dict[type, Performer[Any]] = {AskApproval: say_yes} if self.options.yes else {}
        async with open_workspace(self.options, performers, pace) as workspace:
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
        """Read and work, until somebody leaves; then neither goes on."""
        self._reading = asyncio.ensure_future(self._read(workspace, lines))
        self._working = asyncio.ensure_future(self._work(workspace))
        try:
            await self._until_left(self._reading, self._working, workspace)
        finally:
            await _cancel_all(self._reading, self._working)

    def _source(self, workspace: Workspace) -> Lines:
        if not self.face.typed:
            return PipedLines(sys.stdin.fileno())
        before = [message.text for message in workspace.session.history if message.role is Role.USER]
        return TypedLines(Keyboard(sys.stdin.fileno()), self.face.out, self.face.status, before)

    def _ctrl_c(self) -> None:
        """Where nothing goes on, Ctrl-C forgets what is being typed, or else leaves."""
        if not (isinstance(self._lines, TypedLines) and self._lines.clear()) and self._reading is not None:
            self._reading.cancel()

    # Reading

    async def _read(self, workspace: Workspace, lines: Lines) -> None:
        """Do what is typed, until there is no more, or somebody wants to leave."""
        acts = LineActions(workspace, self.face, lines, base_url=self.options.base_url, away=self._away)
        async with aclosing(lines.read()) as typed:
            async for line in typed:
                if not await acts.do(line):
                    return
                self._news.set()
        self._heard_all = not self.face.typed  # what a pipe said is worked off; Ctrl-D leaves at once

    @contextmanager
    def _away(self) -> Generator[None]:
        with self.signals.ignore_ctrl_c(), self.face.away():
            yield

    async def _until_left(
        self, reading: asyncio.Task[None], working: asyncio.Task[None], workspace: Workspace
    ) -> None:
        await asyncio.wait({reading, working}, return_when=asyncio.FIRST_COMPLETED)
        if reading.done() and not reading.cancelled():
            try:
                await reading  # raises what went wrong
            except (EOFError, termios.error):  # the terminal is gone
                self.signals.hang_up()
        if self._heard_all:
            self._news.set()
            while not working.done():
                self._rest(workspace)
                await asyncio.wait({working}, timeout=REST_CHECK_SECONDS)
        if working.done() and not working.cancelled():
            await working

    # Working

    async def _work(self, workspace: Workspace) -> None:
        """Work as long as anything waits; then see whether anything comes."""
        session, ours = workspace.session, True
        while True:
            if ours if session.unfinished else self._due(workspace):
                await self._run(workspace)
                if self.signals.ended_by is not None:
                    return  # it was drained
            elif self._heard_all:
                return
            else:
                await self._look(workspace)
            ours = False

    def _due(self, workspace: Workspace) -> bool:
        """
        Whether a prompt waits for us: one that was typed here, or that nobody else has taken up.

        Whoever runs a session writes down a prompt and begins a run with it; that takes a moment.
        """
        queue, now = workspace.session.queue, workspace.agent.clock.now()
        return bool(queue) and (self._told or self._heard_all or now - queue[0].at > POLL_SECONDS)

    async def _run(self, workspace: Workspace) -> None:
        async with self.face.busy(), aclosing(workspace.session.stream(wait=True)) as notices:
            async for notice in notices:
                self._track(notice)
                editing = self.face.editing
                self.face.notice(notice)
                if self.face.editing is not editing and isinstance(self._lines, TypedLines):
                    self._lines.clear()  # nobody asks about these arguments any more

    def _track(self, notice: Notice) -> None:
        if isinstance(notice, RunStarted):
            self.signals.new_run()
        elif isinstance(notice, RunEnded):
            self.code = exit_for(notice.reason)

    def _rest(self, workspace: Workspace) -> None:
        """Leave a run that waits for an answer, where none can come any more, and no deadline either."""
        if self.options.yes or workspace.waits or self._working is None:
            return
        if workspace.session.resting:
            self._working.cancel()

    async def _look(self, workspace: Workspace) -> None:
        """Wait for something to do, from here or from elsewhere."""
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_SECONDS):
                await self._news.wait()
        self._told = self._news.is_set()
        self._news.clear()
        before = workspace.session.unfinished
        await workspace.session.load()
        if workspace.session.unfinished and not before:
            self.face.aside.line(OTHER_WORKER, "yellow")

    # The end

    def _left(self, workspace: Workspace) -> Exit:
        """Whoever talked has left; what to tell the shell."""
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
            return Exit.RESTS
        return Exit.ENDED if self.face.typed else self.code

    def _say(self, text: str) -> None:
        with suppress(OSError):  # as below
            self.face.aside.line(text, "yellow")

    def _cut_off(self, workspace: Workspace) -> None:
        """A signal ended it."""
        if self.signals.ended_by is None:
            return
        with suppress(OSError):  # a terminal that is gone can be told nothing
            self.face.aside.line(MEANINGS[self.signals.ended_by], "yellow")
            self.face.aside.line(f"go on with: {self.options.again('chat', workspace.session.id)}")


async def _cancel_all(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
