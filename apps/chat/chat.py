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
from ..cli.exit_codes import MEANS, Exit, exit_for
from ..cli.run_options import RunOptions
from ..cli.signals import Signals
from ..cli.workspace import Workspace, insist, opened
from ..stand_in.server import CLI_PACE
from ..terminal.approval_prompt import say_yes
from ..terminal.call_summary import number
from ..terminal.outcome import tell_rest
from .actions import Acts
from .line_source import Lines, PipedLines, TypedLines
from .raw_input import Keyboard
from .view import ChatFace

LOOKS = 0.5
"""Seconds between two looks at what others have sent to a session in which nothing goes on."""

PAUSE = 0.05
"""Seconds between two looks at whether a run rests, where nobody can answer any more."""


ELSEWHERE = "another process works on this session; what you type waits for it"
"""Told where a run began that is not ours."""


@final
class Chat:
    """Does *job*: talks, until whoever talks leaves."""

    def __init__(self, job: RunOptions) -> None:
        self.job = job
        self.face = ChatFace(job)
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
        return await self.signals.heeded(self._do)

    async def _do(self) -> Exit:
        pace = CLI_PACE if self.face.out.is_terminal else 0.0
        performers: dict[type, Performer[Any]] = {AskApproval: say_yes} if self.job.yes else {}
        async with opened(self.job, performers, pace) as place:
            await insist(self.job, place)
            self.face.begin(place)
            self.signals.interrupts(place.session)
            self._lines = self._source(place)
            try:
                await self._talk(place, self._lines)
            except asyncio.CancelledError:
                self._cut_off(place)
                raise
            if self.signals.ended_by is not None:
                self._cut_off(place)
                return self.signals.ended_by
            return self._left(place)

    async def _talk(self, place: Workspace, lines: Lines) -> None:
        """Read and work, until somebody leaves; then neither goes on."""
        self._reading = asyncio.ensure_future(self._read(place, lines))
        self._working = asyncio.ensure_future(self._work(place))
        try:
            await self._until_left(self._reading, self._working, place)
        finally:
            await _end(self._reading, self._working)

    def _source(self, place: Workspace) -> Lines:
        if not self.face.typed:
            return PipedLines(sys.stdin.fileno())
        before = [message.text for message in place.session.history if message.role is Role.USER]
        return TypedLines(Keyboard(sys.stdin.fileno()), self.face.out, self.face.status, before)

    def _ctrl_c(self) -> None:
        """Where nothing goes on, Ctrl-C forgets what is being typed, or else leaves."""
        if not (isinstance(self._lines, TypedLines) and self._lines.clear()) and self._reading is not None:
            self._reading.cancel()

    # Reading

    async def _read(self, place: Workspace, lines: Lines) -> None:
        """Do what is typed, until there is no more, or somebody wants to leave."""
        acts = Acts(place, self.face, lines, base_url=self.job.base_url, away=self._away)
        async with aclosing(lines.read()) as typed:
            async for line in typed:
                if not await acts.do(line):
                    return
                self._news.set()
        self._heard_all = not self.face.typed  # what a pipe said is worked off; Ctrl-D leaves at once

    @contextmanager
    def _away(self) -> Generator[None]:
        with self.signals.deaf(), self.face.away():
            yield

    async def _until_left(
        self, reading: asyncio.Task[None], working: asyncio.Task[None], place: Workspace
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
                self._rest(place)
                await asyncio.wait({working}, timeout=PAUSE)
        if working.done() and not working.cancelled():
            await working

    # Working

    async def _work(self, place: Workspace) -> None:
        """Work as long as anything waits; then see whether anything comes."""
        session, ours = place.session, True
        while True:
            if ours if session.unfinished else self._due(place):
                await self._run(place)
                if self.signals.ended_by is not None:
                    return  # it was drained
            elif self._heard_all:
                return
            else:
                await self._look(place)
            ours = False

    def _due(self, place: Workspace) -> bool:
        """
        Whether a prompt waits for us: one that was typed here, or that nobody else has taken up.

        Whoever runs a session writes down a prompt and begins a run with it; that takes a moment.
        """
        queue, now = place.session.queue, place.agent.clock.now()
        return bool(queue) and (self._told or self._heard_all or now - queue[0].at > LOOKS)

    async def _run(self, place: Workspace) -> None:
        async with self.face.busy(), aclosing(place.session.stream(wait=True)) as notices:
            async for notice in notices:
                self._heed(notice)
                editing = self.face.editing
                self.face.notice(notice)
                if self.face.editing is not editing and isinstance(self._lines, TypedLines):
                    self._lines.clear()  # nobody asks about these arguments any more

    def _heed(self, notice: Notice) -> None:
        if isinstance(notice, RunStarted):
            self.signals.fresh()
        elif isinstance(notice, RunEnded):
            self.code = exit_for(notice.reason)

    def _rest(self, place: Workspace) -> None:
        """Leave a run that waits for an answer, where none can come any more, and no deadline either."""
        if self.job.yes or place.waits or self._working is None:
            return
        if place.session.resting:
            self._working.cancel()

    async def _look(self, place: Workspace) -> None:
        """Wait for something to do, from here or from elsewhere."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOKS):
                await self._news.wait()
        self._told = self._news.is_set()
        self._news.clear()
        before = place.session.unfinished
        await place.session.load()
        if place.session.unfinished and not before:
            self.face.aside.line(ELSEWHERE, "yellow")

    # The end

    def _left(self, place: Workspace) -> Exit:
        """Whoever talked has left; what to tell the shell."""
        session, aside = place.session, self.face.aside
        if session.waiting:
            tell_rest(session, self.job, aside)
        elif session.unfinished:
            aside.line("the run is not over", "yellow")
        if session.queue:
            aside.line(f"{number(len(session.queue), 'prompt')} waiting", "yellow")
        if self.face.typed or session.unfinished:
            aside.line(f"go on with: {self.job.again('chat', session.id)}", "dim")
        if session.unfinished:
            return Exit.RESTS
        return Exit.ENDED if self.face.typed else self.code

    def _say(self, text: str) -> None:
        with suppress(OSError):  # as below
            self.face.aside.line(text, "yellow")

    def _cut_off(self, place: Workspace) -> None:
        """A signal ended it."""
        if self.signals.ended_by is None:
            return
        with suppress(OSError):  # a terminal that is gone can be told nothing
            self.face.aside.line(MEANS[self.signals.ended_by], "yellow")
            self.face.aside.line(f"go on with: {self.job.again('chat', place.session.id)}")


async def _end(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
