"""`turnwheel run`: open a session, show its run to a person or a program, and report how it ended."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing, suppress
from typing import Any, final

import click

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
from ...performers.approvals import refuse
from ...performers.base import Performer
from ..stand_in.server import CLI_PACE
from ..terminal.approval_card import Question, card
from ..terminal.approval_prompt import TerminalApprover, say_yes
from ..terminal.keyboard import Keyboard
from ..terminal.log_lines import log_lines
from ..terminal.outcome import ending_line, show_resting
from ..terminal.recovery_notes import batch_calls, open_questions, recovery_lines
from ..terminal.screen import Screen
from ..terminal.signals import Signals
from ..terminal.terminal import Terminal
from .ending_codes import exit_for
from .exit_codes import MEANINGS, Exit, table
from .json_lines import JsonLines
from .options import attached, for_run, run_options_of
from .run_options import OutputStyle, RunOptions
from .workspace import (
    Workspace,
    answerer,
    apply_choices,
    open_workspace,
    resolve_newest,
)


@final
class RunCommand:
    """One `turnwheel run`. The run goes to stdout; questions and next steps go to stderr."""

    def __init__(self, options: RunOptions) -> None:
        self.options = options
        self.signals = Signals(say=self._say)
        self.out = Screen(sys.stdout)
        both = sys.stdout.isatty() and sys.stderr.isatty()
        self.aside = self.out if both else Screen(sys.stderr)
        self.lines = JsonLines(sys.stdout.buffer) if options.output is OutputStyle.JSON else None
        self.face: Terminal | None = None
        if options.output is OutputStyle.HUMAN:
            self.face = Terminal(self.out, verbose=options.verbose, by=answerer("run"))
        self.asker = self._asker()

    def _asker(self) -> TerminalApprover | None:
        """The approver at this terminal, or None if no person can answer here."""
        asks = self.options.output is not OutputStyle.JSON and not self.options.yes
        if not (asks and sys.stdin.isatty() and sys.stderr.isatty()):
            return None
        return TerminalApprover(
            Keyboard(sys.stdin.fileno()),
            self.aside,
            self.face,
            cwd=self.options.cwd,
            by=answerer("run"),
            ignore_ctrl_c=self.signals.ignore_ctrl_c,
            gone=self.signals.hang_up,
        )

    async def do(self) -> Exit:
        """Run to the end, or until the run rests; returns the exit code."""
        if self.options.prompt is None and self.options.resume is None:
            msg = "no prompt; give one, or a session to --resume"
            raise ConfigError(msg)
        return await self.signals.guard(self._do)

    async def _do(self) -> Exit:
        pace = CLI_PACE if self.out.is_terminal else 0.0
        opened = open_workspace(self.options, self._performers(), pace)
        with log_lines(self.aside.line):
            async with opened as workspace:
                return await self._done(workspace)

    async def _done(self, workspace: Workspace) -> Exit:
        if self.options.resume is not None and not self.options.takeover:
            # Before anything is changed or shown: its work is neither lost nor ours.
            await workspace.session.check_free()
        self._check(workspace)
        await apply_choices(self.options, workspace)
        self._begin(workspace)
        try:
            await self._watch(workspace)
        except asyncio.CancelledError:
            self._left(workspace)
            raise
        drained = self.signals.ended_by
        # A run that ended in time, with nothing queued, is reported as usual.
        if drained is not None and (workspace.session.unfinished or workspace.session.queue):
            self._left(workspace)
            return drained
        return self._end(workspace)

    def _performers(self) -> dict[type, Performer[Any]]:
        if self.options.yes:
            return {AskApproval: say_yes}
        if self.asker is None and not self.options.settings.session.persist:
            return {AskApproval: refuse}  # without a store, no other process can answer
        return {} if self.asker is None else {AskApproval: self.asker}

    # The run

    def _check(self, workspace: Workspace) -> None:
        options, session = self.options, workspace.session
        problem, again = "", self._again(workspace)
        if options.resume is None:
            if session.machine is not None or session.queue:
                problem = f"session {session.id!r} exists; continue it: {again}"
        elif session.unfinished:
            if options.prompt is not None:
                problem = f"session {session.id!r} has an unfinished run; continue it first: {again}"
        elif options.prompt is None and not session.queue:
            reason = session.result().reason
            problem = f"the last run of session {session.id!r} is over ({reason}); give a prompt for the next"
        if problem:
            raise ConfigError(problem)

    def _begin(self, workspace: Workspace) -> None:
        if self.face is not None:
            self.face.begin(workspace.model, workspace.session.id, workspace.about)
        machine = workspace.session.machine
        if machine is None or machine.done:
            return
        session, now = workspace.session, workspace.agent.clock.now()
        for line in recovery_lines(machine, workspace.agent.config, now, session.unbegun, session.tries):
            self.aside.line(line, "warning")
        if self.face is not None:
            for call in batch_calls(machine):
                self.face.remember(call.id, call.name, call.arguments)
            for question in open_questions(workspace.session):
                self.face.remember_question(question)

    async def _watch(self, workspace: Workspace) -> None:
        self.signals.interrupts(workspace.session)
        stream = workspace.session.stream(
            self.options.prompt,
            files=attached(self.options.files),
            wait=workspace.waits,
            takeover=self.options.takeover,
        )
        async with aclosing(stream) as notices:
            async for notice in notices:
                self._track(notice, workspace)
                if self.face is not None:
                    self.face.notice(notice)
                elif self.lines is not None:
                    self.lines.notice(notice)

    def _track(self, notice: Notice, workspace: Workspace) -> None:
        if isinstance(notice, RunStarted):
            self.signals.new_run()
        match notice.notice if isinstance(notice, AgentNoticed) else notice:
            case ApprovalRequested() as open_questions if (
                self.asker is None and not self.options.yes and workspace.waits
            ):
                self._waits_for(open_questions, workspace)
            case ApprovalResolved(request=request) | ApprovalWithdrawn(request=request):
                if self.asker is not None:
                    self.asker.answered(request)
            case _:
                pass

    def _waits_for(self, notice: ApprovalRequested, workspace: Workspace) -> None:
        """
        Show a question that no person can answer here, while the run waits for an answer from elsewhere.
        """
        question = Question.of(notice, workspace.agent.config.policy.answer_within)
        more = f"{self.options.reach('questions', workspace.session.id)} --whole shows all"
        self.aside.lines(*card(question, self.options.cwd, self.aside.width, more=more))
        answer = self.options.reach("approve", workspace.session.id)
        self.aside.line(f"answer with: {answer} {question.name}, or deny")

    # The end

    def _end(self, workspace: Workspace) -> Exit:
        result = workspace.session.result()
        if self.face is not None:
            self.face.bill(result.spent)
        elif self.options.output is OutputStyle.QUIET and result.text:
            self.out.line(result.text)
        if result.reason is None:
            show_resting(workspace.session, self.options, self.aside)
            self.aside.line(f"go on with: {self._again(workspace)}")
        elif exit_for(result.reason) is not Exit.ENDED:
            machine = workspace.session.machine
            self.aside.say(*ending_line(result, None if machine is None else machine.config))
            self.aside.line(f'go on with: {self._again(workspace)} "PROMPT"')
        return exit_for(result.reason)

    def _say(self, text: str) -> None:
        with suppress(OSError):  # a closed terminal takes no message
            self.aside.line(text, "warning")

    def _left(self, workspace: Workspace) -> None:
        """Say why the run was left, if a signal ended it."""
        if self.signals.ended_by is None:
            return
        with suppress(OSError):  # a closed terminal takes no message
            self.out.still()
            self.aside.line(MEANINGS[self.signals.ended_by], "warning")
            more = "" if workspace.session.unfinished else ' "PROMPT"'
            self.aside.line(f"go on with: {self._again(workspace)}{more}")

    def _again(self, workspace: Workspace) -> str:
        return self.options.again("run --resume", workspace.session.id)


@click.command(epilog=f"\b\nExit codes:\n{table()}")
@for_run
def run(**options: Any) -> Exit:  # noqa: ANN401  # the options, as click has them
    """
    Run an agent on PROMPT (- reads it from stdin), or continue a session.

    It needs --model, --base-url or a key in the environment; with --stand-in, a scripted stand-in answers.
    Ctrl-C stops the run and keeps the text so far. A run with a question rests until you resume it, if no
    person can answer here.
    """
    return asyncio.run(_run(options))


async def _run(options: dict[str, Any]) -> Exit:
    return await RunCommand(await resolve_newest(run_options_of(options))).do()
