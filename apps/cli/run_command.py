"""`turnwheel run`: a session put together, run under the eyes of a person or a program, and accounted for."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing, suppress
from typing import Any, final

from ...effects.errors import ConfigError
from ...effects.notices import (
    AgentNoticed,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalWithdrawn,
    Notice,
    RunStarted,
)
from ...effects.requests import AskApproval
from ...engine.session.children import refuse
from ...performers.base import Performer
from ..chat.raw_input import Keyboard
from ..stand_in.server import CLI_PACE
from ..terminal.approval_card import Question, card
from ..terminal.approval_prompt import TerminalApprover, say_yes
from ..terminal.outcome import ending, tell_rest
from ..terminal.recovery_notes import asked, calls, told
from ..terminal.screen import Screen
from ..terminal.terminal import Terminal
from .exit_codes import MEANS, Exit, exit_for
from .json_lines import JsonLines
from .run_options import Output, RunOptions
from .signals import Signals
from .workspace import (
    Workspace,
    insist,
    opened,
    somebody,
)


@final
class RunCommand:
    """Does *job*. What it shows goes to stdout, what is asked and what has to be done next to stderr."""

    def __init__(self, job: RunOptions) -> None:
        self.job = job
        self.signals = Signals(say=self._say)
        self.out = Screen(sys.stdout)
        both = sys.stdout.isatty() and sys.stderr.isatty()
        self.aside = self.out if both else Screen(sys.stderr)
        self.lines = JsonLines(sys.stdout.buffer) if job.output is Output.JSON else None
        self.face: Terminal | None = None
        if job.output is Output.HUMAN:
            self.face = Terminal(self.out, verbose=job.verbose, by=somebody("run"))
        self.asker = self._asker()

    def _asker(self) -> TerminalApprover | None:
        """Who asks, where somebody can be asked."""
        asks = self.job.output is not Output.JSON and not self.job.yes
        if not (asks and sys.stdin.isatty() and sys.stderr.isatty()):
            return None
        return TerminalApprover(
            Keyboard(sys.stdin.fileno()),
            self.aside,
            self.face,
            cwd=self.job.cwd,
            by=somebody("run"),
            deaf=self.signals.deaf,
            gone=self.signals.hang_up,
        )

    async def do(self) -> Exit:
        """Do it to its end, or until it rests; returns what to tell the shell."""
        if self.job.prompt is None and self.job.resume is None:
            msg = "nothing to do: give a prompt, or a session to --resume"
            raise ConfigError(msg)
        return await self.signals.heeded(self._do)

    async def _do(self) -> Exit:
        pace = CLI_PACE if self.out.is_terminal else 0.0
        async with opened(self.job, self._performers(), pace) as place:
            self._check(place)
            await insist(self.job, place)
            self._begin(place)
            try:
                await self._watch(place)
            except asyncio.CancelledError:
                self._left(place)
                raise
            drained = self.signals.ended_by
            if drained is not None and (place.session.unfinished or place.session.queue):
                self._left(place)
                return drained
            return self._end(place)

    def _performers(self) -> dict[type, Performer[Any]]:
        if self.job.yes:
            return {AskApproval: say_yes}
        if self.asker is None and not self.job.settings.session.persist:
            return {AskApproval: refuse}  # nobody could answer it from elsewhere
        return {} if self.asker is None else {AskApproval: self.asker}

    # The run

    def _check(self, place: Workspace) -> None:
        job, session = self.job, place.session
        problem = ""
        if job.resume is None:
            if session.machine is not None or session.queue:
                problem = f"session {session.id!r} is there already; go on with it: {self._again(place)}"
        elif session.unfinished:
            if job.prompt is not None:
                problem = f"session {session.id!r} has an unfinished run; end it first: {self._again(place)}"
        elif job.prompt is None and not session.queue:
            reason = session.result().reason
            problem = f"the last run of session {session.id!r} is over ({reason}); give a prompt for the next"
        if problem:
            raise ConfigError(problem)

    def _begin(self, place: Workspace) -> None:
        if self.face is not None:
            self.face.begin(place.model, place.session.id, place.about)
        machine = place.session.machine
        if machine is None or machine.done:
            return
        for line in told(machine, place.agent.config, place.agent.clock.now(), place.session.unbegun):
            self.aside.line(line, "yellow")
        if self.face is not None:
            for call in calls(machine):
                self.face.know(call.id, call.name, call.arguments)
            for question in asked(place.session):
                self.face.know_question(question)

    async def _watch(self, place: Workspace) -> None:
        self.signals.interrupts(place.session)
        async with aclosing(place.session.stream(self.job.prompt, wait=place.waits)) as notices:
            async for notice in notices:
                self._heed(notice, place)
                if self.face is not None:
                    self.face.notice(notice)
                elif self.lines is not None:
                    self.lines.notice(notice)

    def _heed(self, notice: Notice, place: Workspace) -> None:
        if isinstance(notice, RunStarted):
            self.signals.fresh()
        match notice.notice if isinstance(notice, AgentNoticed) else notice:
            case ApprovalRequested() as asked if self.asker is None and not self.job.yes and place.waits:
                self._waits_for(asked, place)
            case ApprovalResolved(request=request) | ApprovalWithdrawn(request=request):
                if self.asker is not None:
                    self.asker.answered(request)
            case _:
                pass

    def _waits_for(self, notice: ApprovalRequested, place: Workspace) -> None:
        """Say what is asked where nobody can be asked here, and the run waits for somebody elsewhere."""
        question = Question.of(notice, place.agent.config.policy.answer_within)
        self.aside.lines(*card(question, self.job.cwd, self.aside.width))
        answer = self.job.reach("approve", place.session.id)
        self.aside.line(f"answer with: {answer} {question.name}, or deny")

    # The end

    def _end(self, place: Workspace) -> Exit:
        result = place.session.result()
        if self.face is not None:
            self.face.bill(result.spent)
        elif self.job.output is Output.QUIET and result.text:
            self.out.line(result.text)
        if result.reason is None:
            tell_rest(place.session, self.job, self.aside)
            self.aside.line(f"go on with: {self._again(place)}")
        elif exit_for(result.reason) is not Exit.ENDED:
            self.aside.say(*ending(result))
            self.aside.line(f'go on with: {self._again(place)} "PROMPT"')
        return exit_for(result.reason)

    def _say(self, text: str) -> None:
        with suppress(OSError):  # as below
            self.aside.line(text, "yellow")

    def _left(self, place: Workspace) -> None:
        """The work was left because of a signal, where the run was."""
        if self.signals.ended_by is None:
            return
        with suppress(OSError):  # a terminal that is gone can be told nothing
            self.out.still()
            self.aside.line(MEANS[self.signals.ended_by], "yellow")
            more = "" if place.session.unfinished else ' "PROMPT"'
            self.aside.line(f"go on with: {self._again(place)}{more}")

    def _again(self, place: Workspace) -> str:
        return self.job.again("run --resume", place.session.id)
