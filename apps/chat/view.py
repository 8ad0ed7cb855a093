"""Show a chat: the conversation, the open questions, and the rows around the prompt."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Callable, Collection, Generator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, final

from rich.spinner import Spinner
from rich.text import Text

from ...effects.config import Config, window_of
from ...effects.events import ApproveAlways, Deny
from ...effects.messages import Role
from ...effects.notices import (
    AgentNoticed,
    AgentStarted,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalWithdrawn,
    CallSettled,
    InputDropped,
    InputReceived,
    Notice,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolStarted,
    TurnEnded,
)
from ...effects.permissions import PermissionMode
from ...effects.records import Change, MailKind, SetMode, SetModel
from ...engine.core.machine import calls_at
from ...engine.session.session import Session
from ...states.batch.batch import Queued
from ...states.context import Mail
from ..cli.ending_codes import exit_for
from ..cli.exit_codes import Exit
from ..cli.json_lines import JsonLines
from ..cli.option_types import ALL
from ..cli.run_options import OutputStyle, RunOptions
from ..cli.workspace import Workspace, answerer
from ..terminal.approval_card import VIEWS, Question, card, outside_grant, question_line
from ..terminal.call_summary import number
from ..terminal.notice_lines import decision_text
from ..terminal.outcome import ending_line
from ..terminal.pager import run_pager
from ..terminal.recovery_notes import batch_calls, open_questions, recovery_lines
from ..terminal.sanitize import one_line
from ..terminal.screen import INDENT, SIGNS, Screen
from ..terminal.spend_format import money
from ..terminal.terminal import Terminal
from .call_names import CallNames
from .questions import Questions

if TYPE_CHECKING:
    from .prompt import ChatPrompt
    from .transcript import ChatTranscript

MOST_ASKED_ROWS = 4
"""The most open questions that are named above the keys."""

STEP_SECONDS = 0.3
"""Seconds after a notice in which the others of the same step are shown."""

FRAME_SECONDS = 0.1
"""Seconds between two updates of the status line."""

ANSWER_KEYS = (("y", "yes"), ("n", "no"), ("a", "always"), ("e", "edit"), ("s", "no, and stop"))
"""The keys that answer a question."""


@final
class ChatFace:
    """
    Shows the chat of *options*: the conversation on `out`, notes about the input on `aside`.

    `typed`: a person types at the bottom of a terminal.
    """

    def __init__(self, options: RunOptions) -> None:
        self.by = answerer("chat")
        self.out = Screen(sys.stdout)
        both = sys.stdout.isatty() and sys.stderr.isatty()
        self.aside = self.out if both else Screen(sys.stderr)
        self.typed = options.output is OutputStyle.HUMAN and both and sys.stdin.isatty() and self.out.can_spin
        self.names = CallNames()
        """The names of the calls on screen."""
        self.taken_back: set[str] = set()
        """The inputs that were taken back in this chat, which has said so."""
        self.questions = Questions(lambda: asyncio.get_running_loop().time(), self.names)
        self.editing: Question | None = None
        """The question whose arguments are on the line."""
        self._cwd = options.cwd
        self._face = Terminal(
            self.out, verbose=options.verbose, by=self.by, mail=self._mail, name=self.names.name
        )
        self._transcript: ChatTranscript | None = None
        self._next_model = ""
        self._next_mode: PermissionMode | None = None
        self._prompt: ChatPrompt | None = None
        self._json = JsonLines(sys.stdout.buffer) if options.output is OutputStyle.JSON else None
        self._spinner = Spinner("dots" if self.out.dot == SIGNS[0] else "line", style="dim")
        self._workspace: Workspace | None = None
        self._busy = self._elsewhere = False
        self._held: list[Callable[[], None]] | None = None

    def attach(self, prompt: ChatPrompt) -> AbstractContextManager[None]:
        """A context in which the conversation stands above *prompt*."""
        self._prompt = prompt
        return self.out.above(prompt)

    def begin(self, workspace: Workspace) -> None:
        """Show the model, the session and its last messages."""
        self._workspace = workspace
        self.questions.clear()
        self.names.clear()
        self.editing = None
        self._next_model, self._next_mode = "", None
        if self.typed:
            from .transcript import ChatTranscript  # noqa: PLC0415  # Markdown takes 0.1 s to import

            self._transcript = ChatTranscript(self.out, self._face, self.redraw, self._cwd)
        machine = workspace.session.machine
        if self._json is None:
            self._face.begin(workspace.model, workspace.session.id, workspace.about)
        if machine is None:
            return
        self.names.add(workspace.session.history)
        for call in batch_calls(machine):
            self._face.remember(call.id, call.name, call.arguments)
        for question in open_questions(workspace.session):
            self._face.remember_question(question)
        if not machine.done:
            return
        if self._transcript is not None:
            self._transcript.retell(tuple(workspace.session.history))
        elif self._json is None:
            self._last_words(workspace)

    def recovers(self) -> None:
        """Show how this process goes on with the open work of an unfinished run."""
        session, agent = self._session, self._work.agent
        if session.machine is None or session.machine.done:
            return
        now, unbegun, tries = agent.clock.now(), session.unbegun, session.tries
        for line in recovery_lines(session.machine, agent.config, now, unbegun, tries):
            self.aside.line(line, "warning")

    def _last_words(self, workspace: Workspace) -> None:
        """Show the last prompt and answer on a screen without a prompt."""
        prompts = [message.text for message in workspace.session.history if message.role is Role.USER]
        if prompts:
            self._face.prompted(prompts[-1])
        answer = workspace.session.result().text.strip()
        if answer:
            self.out.line(answer)
            self.out.line()

    @property
    def _work(self) -> Workspace:
        if self._workspace is None:
            msg = "the chat has not begun"
            raise RuntimeError(msg)
        return self._workspace

    @property
    def _session(self) -> Session:
        return self._work.session

    @property
    def _config(self) -> Config:
        return self._work.agent.config

    def _mail(self, name: str) -> Mail | None:
        """The waiting input *name*."""
        machine = None if self._workspace is None else self._workspace.session.machine
        return (
            None
            if machine is None
            else next((one for one in machine.memory.session.mail if one.id == name), None)
        )

    # Notices

    def notice(self, notice: Notice) -> None:
        """Show *notice*, at once or after the editor has closed."""
        if self._held is not None:
            self._held.append(partial(self.notice, notice))
            return
        if self._json is not None:
            if isinstance(notice, ToolStarted | ApprovalRequested | CallSettled | AgentStarted):
                self.names.name(notice.call)
            self._json.notice(notice)
        else:
            if isinstance(notice, InputDropped) and notice.id in self.taken_back:
                return
            (self._transcript or self._face).notice(notice)
        if isinstance(notice, AgentNoticed):
            self._track(notice.notice, notice.call)
        elif isinstance(notice, RunStarted):
            self._next_model, self._next_mode = "", None
        elif isinstance(notice, RunEnded):
            self.questions.clear()
            self._ended(notice)
        else:
            self._track(notice)

    def followed(self, notice: Notice) -> None:
        """Show *notice* of a run in another process, which comes without deltas."""
        if self._json is None:
            if isinstance(notice, TurnEnded) and (text := notice.message.text):
                self.notice(TextDelta(text, at=notice.at))
            # A prompt was announced where it was typed.
            mail = self._mail(notice.id) if isinstance(notice, InputReceived) else None
            if mail is not None and mail.lane is MailKind.PROMPT:
                return
        self.notice(notice)

    def _track(self, notice: Notice, child: str = "") -> None:
        """Track the open questions, those of the *child* on a call among them."""
        match notice:
            case ApprovalRequested():
                self._asked(notice, child)
            case ApprovalResolved(request=request) | ApprovalWithdrawn(request=request):
                self._closed(notice, request)
            case _:
                pass

    def _asked(self, notice: ApprovalRequested, child: str) -> None:
        within = None if notice.due is None else max(1.0, round(notice.due - time.time()))
        links = () if self._workspace is None else self._workspace.session.children
        agent = next((link.agent for link in links if link.call == child), "")
        question = self.questions.add(notice, within, agent)
        if self._json is None:
            self.show(question)
        if self._prompt is not None:
            self._prompt.bell()

    def show(self, question: Question, *, whole: bool = False) -> None:
        """Show *question*, all of it if it is to be *whole*, and its keys."""
        self.out.lines(*card(question, self._cwd, self.out.width, whole=whole, more=VIEWS))
        if not self.typed:
            self.out.line(f"{INDENT}{self._keys().plain.rstrip()}", "warning")
        self.out.line()

    def _closed(self, notice: ApprovalResolved | ApprovalWithdrawn, request: str) -> None:
        question = self.questions.close(request)
        if self.editing is not None and self.editing.request == request:
            self.editing = None
        if self._json is not None or question is None or not isinstance(notice, ApprovalResolved):
            return
        if notice.by == self.by and not isinstance(
            notice.decision, Deny
        ):  # a denial shows in the call's result
            answer = decision_text(notice.decision)
            if outside_grant(notice.decision, question.tool, question.arguments):
                answer += "; this call does not fit, and runs all the same"
            self.out.line(f"{self.out.yes} {question.tool} #{question.name}: {answer}", "success")
            if isinstance(notice.decision, ApproveAlways):
                # The same step closes those that it covers.
                asyncio.get_running_loop().call_later(
                    STEP_SECONDS, self._still_open, question.tool, notice.decision
                )

    def _still_open(self, tool: str, decision: ApproveAlways) -> None:
        """Say of the open questions that *decision* seems to cover that they need an answer of their own."""
        names = [
            f"#{one.name}"
            for one in self.questions.open
            if one.tool == tool and not one.agent and not outside_grant(decision, tool, one.arguments)
        ]
        if names:
            self.note(f"{' and '.join(names)} was asked before that; answer it, too", "setting")

    def _ended(self, notice: RunEnded) -> None:
        if self._json is not None or self._workspace is None:
            return
        # By the notice: a run of another process may be over while the session is at the next one already.
        if exit_for(notice.reason) is not Exit.ENDED:
            machine = self._workspace.session.machine
            self.out.say(*ending_line(notice, None if machine is None else machine.config))
        self._face.bill(notice.spent)
        self.out.line()

    def note(self, text: str, style: str) -> None:
        """Write *text* as a line on `aside`, at once or after the editor has closed."""
        if self._held is not None:
            self._held.append(partial(self.note, text, style))
        else:
            self.aside.line(text, style)

    # Results

    @property
    def height(self) -> int:
        """Rows of the screen."""
        return self.out.height

    def result(self, call: str) -> CallSettled | None:
        """The result of *call* in this chat, or the last one if that is empty; None if it is not kept."""
        return None if self._transcript is None else self._transcript.result(call)

    def show_result(self, call: str, text: str) -> None:
        """Show the whole *text* of the result of *call*, which is clean."""
        self.aside.line(f"{self.out.elbow} #{self.names.name(call)}", "dim")
        self.aside.line(text)
        self.aside.line()

    async def page(self, text: str, pager: str) -> None:
        """Show *text*, which is clean, in the program *pager*."""
        if self._prompt is not None:
            with self.away():
                async with self._prompt.lent():
                    await run_pager(text, pager)

    # What goes on

    @asynccontextmanager
    async def busy(self, *, elsewhere: bool = False) -> AsyncGenerator[None, None]:
        """Show the status line while the context is open; *elsewhere*: another process is at work."""
        self._busy, self._elsewhere = True, elsewhere
        ticks = asyncio.ensure_future(self._tick()) if self.typed else None
        try:
            yield
        finally:
            self._busy = False
            if ticks is not None:
                ticks.cancel()
            self._face.silence()
            self.out.still()
            self.redraw()

    async def _tick(self) -> None:
        while True:
            self.redraw()
            # A question may stay open for hours. Next to it only seconds count on.
            await asyncio.sleep(1.0 if self.questions.open else FRAME_SECONDS)

    def redraw(self) -> None:
        """Draw the rows around the prompt again, soon."""
        if self._prompt is not None:
            self._prompt.draw()

    def live(self, width: int, rows: int) -> list[Text]:
        """The work in progress, in at most so many *rows* of *width* columns."""
        return [] if self._transcript is None else self._transcript.live(width, rows)

    def status(self) -> Text | None:
        """The row above the input, or None."""
        if self.editing is not None:
            return Text(f"the arguments of #{self.editing.name}; Enter takes them", style="warning")
        if self.questions.open:
            return Text("\n").join([*self._asked_rows(), self._keys()])
        if not self._busy:
            return None
        says = self.out.waits_for
        where = ["another process"] if self._elsewhere else []
        parts = [says().strip() if says is not None else "at work", *where, "Esc stops"]
        text = self._spinner.render(time.monotonic())
        return Text.assemble(
            text if isinstance(text, Text) else "", (" " + f" {self.out.middle} ".join(parts), "dim")
        )

    def bottom(self, width: int) -> Text:
        """The last row: model, mode, context, cost and waiting prompts, in *width* columns."""
        waiting, spent = len(self._session.queue), self._session.spent
        parts = [
            self._next_model or self._work.model.removesuffix(" (no model, no key)"),
            f"mode {self.mode}",
            f"context {self._context()}",
            *([money(spent)] if spent.usage.total else []),
            *([f"{number(waiting, 'prompt')} waiting"] if waiting else []),
        ]
        return Text(one_line(f" {self.out.middle} ".join(parts), width), style="dim")

    def chosen(self, change: Change) -> None:
        """Show *change* in the last row, though it holds from the next run on."""
        match change:
            case SetModel(model=model):
                self._next_model = model
            case SetMode(mode=mode):
                self._next_mode = mode
            case _:
                pass

    @property
    def model_name(self) -> str:
        """The model that the session asks."""
        machine = self._session.machine
        now = self._config.model.name if machine is None else machine.memory.session.model
        return self._next_model or now

    @property
    def mode(self) -> PermissionMode:
        """The permission mode of the session."""
        machine = self._session.machine
        now = self._config.policy.mode if machine is None else machine.memory.session.mode
        return self._next_mode or now

    def _context(self) -> str:
        """The share of the model's window that the conversation fills."""
        machine = self._session.machine
        size = 0 if machine is None else machine.memory.conversation.size
        known = {spec.name: spec.window for spec in (self._config.model, *self._config.models)}
        window = known.get(self.model_name) or window_of(self.model_name)
        return f"{size / window:.0%}"

    def _asked_rows(self) -> list[Text]:
        """A row for each open question, since its card may have scrolled away."""
        asked = self.questions.open
        rows: list[Text] = []
        for question in asked[:MOST_ASKED_ROWS]:
            behind = f"  #{question.name}" if len(asked) > 1 else self._place(question.call)
            about = question_line(question, self.out.width - len("? ") - len(behind) - 1)
            rows.append(Text.assemble(("? ", "question"), (about, "bold"), behind))
        if more := len(asked) - len(rows):
            rows.append(Text(f"... {number(more, 'more question')}", style="dim"))
        return rows

    def _place(self, call: str) -> str:
        """Which one *call* is of the calls of its answer, such as ``1 of 4``; empty for the only one."""
        machine = self._session.machine
        calls = () if machine is None else tuple([each.id for each in batch_calls(machine)])
        return f"  {calls.index(call) + 1} of {len(calls)}" if call in calls and len(calls) > 1 else ""

    def waiting_behind(self, calls: Collection[str]) -> int:
        """How many calls of the same answer as *calls* wait until those have ended."""
        machine = self._session.machine
        batch = () if machine is None else calls_at(machine.state)
        if not any(each.call.id in calls for each in batch):
            return 0
        return sum(isinstance(each.phase, Queued) for each in batch)

    def _keys(self) -> Text:
        """The keys for the open questions, with their names if there are several."""
        names = [question.name for question in self.questions.open]
        text = Text(f"about {', '.join(names)} or {ALL}: " if len(names) > 1 else "")
        for key, says in ANSWER_KEYS:
            text.append(key, "key").append(f" {says}   ")
        return text

    @contextmanager
    def away(self) -> Generator[None]:
        """Hold notices and notes back while another program has the screen."""
        # Output would end up in the middle of that program's screen.
        self._held = []
        try:
            yield
        finally:
            held, self._held = self._held, None
            for show in held:
                show()
