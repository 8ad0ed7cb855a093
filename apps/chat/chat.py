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
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    aclosing,
    contextmanager,
    nullcontext,
    suppress,
)
from typing import TYPE_CHECKING, Any, final

import attrs
from rich.text import Text

from ...effects.config import ModelSpec
from ...effects.errors import CallerError, SessionBusy, StoreConflict
from ...effects.messages import Role
from ...effects.notices import ApprovalRequested, Notice, RunEnded, RunStarted
from ...effects.requests import AskApproval
from ...performers.base import Performer
from ..cli.ending_codes import exit_for
from ..cli.exit_codes import MEANINGS, Exit
from ..cli.run_options import RunOptions
from ..cli.workspace import Workspace, apply_choices, open_workspace
from ..stand_in.server import CLI_PACE
from ..terminal.approval_prompt import say_yes
from ..terminal.call_summary import number
from ..terminal.keyboard import without_echo
from ..terminal.log_lines import log_lines
from ..terminal.outcome import show_resting
from ..terminal.signals import Signals
from .actions import LineActions, Then
from .attachments import pasted_text
from .commands import is_answer
from .following import Following
from .lookups import Lookups
from .piped_lines import PipedLines, Typed
from .view import ChatFace

if TYPE_CHECKING:
    from .completion import ChatCompleter
    from .prompt import ChatPrompt

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
        self._fresh = attrs.evolve(options, session=None, newest=False, title=None, takeover=False)
        self.signals = Signals(self.ctrl_c if self.face.typed else None, self._say)
        self.code = Exit.ENDED
        self._prompt: ChatPrompt | None = None
        self._completer: ChatCompleter | None = None
        self._lines: AsyncGenerator[Typed, None] | None = None
        self._open = AsyncExitStack()
        self._reading: asyncio.Task[None] | None = None
        self._working: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._woken = True
        self._all_read = False
        self._told = False
        """Whether the person knows that another process works on the session."""
        self._refused = ""
        """Why a session that the person wanted to go to could not be opened."""
        self._next: RunOptions | None = None
        """The options of the session that a person goes to."""

    async def do(self) -> Exit:
        """Chat to the end; returns the exit code."""
        with log_lines(self.face.note), self._silent_keys():
            return await self.signals.guard(self._do)

    def _silent_keys(self) -> AbstractContextManager[None]:
        """A context in which keys are not echoed in the middle of what is shown; the prompt shows them."""
        return without_echo(sys.stdin.fileno()) if self.face.typed else nullcontext()

    async def _do(self) -> Exit:
        async with AsyncExitStack() as stack:
            self._open = stack
            return await self._in_sessions()

    async def _in_sessions(self) -> Exit:
        """Chat in one session after the other, as the person goes to them; returns the last exit code."""
        code = await self._in_session()
        while self._next is not None:
            before, self.options, self._next = self.options, self._next, None
            try:
                code = await self._in_session()
            except CallerError as error:
                if self._reading is not None:  # the session was open, so its error ends the chat
                    raise
                self._next, self._refused = before, str(error)
        return code

    async def _in_session(self) -> Exit:
        """Chat in the session of the options until the person leaves it; returns the exit code."""
        pace = CLI_PACE if self.face.out.is_terminal else 0.0
        performers: dict[type, Performer[Any]] = {AskApproval: say_yes} if self.options.yes else {}
        self._reading = None
        async with open_workspace(self.options, performers, pace) as workspace:
            await apply_choices(self.options, workspace)
            if self._prompt is not None and self.options.resume is None and not self._refused:
                self._prompt.clear_screen()
            self.face.begin(workspace)
            if self._refused:
                # Below the session that is shown again, where the person looks.
                self.face.aside.say(self._refused, "error")
                self._refused = ""
            self.signals.interrupts(workspace.session)
            try:
                await self._talk(workspace)
            except asyncio.CancelledError:
                self._cut_off(workspace)
                raise
            if self.signals.ended_by is not None:
                self._next = None
                self._cut_off(workspace)
                return self.signals.ended_by
            if self._next is not None:
                session = workspace.session
                if session.machine is not None or session.queue:
                    self.options = attrs.evolve(self._fresh, resume=session.id)
                else:
                    self.options = attrs.evolve(self.options, session=session.id, resume=None)
                return self.code
            return self._left(workspace)

    async def _talk(self, workspace: Workspace) -> None:
        """Read and work until the person leaves, then end both tasks."""
        lookups = Lookups(workspace, self.face, self.options.base_url)
        if self._lines is None:
            source = self._prompt = self._new_prompt(workspace, lookups) if self.face.typed else None
            lines = (source or PipedLines(sys.stdin.fileno())).read()
            # Over all sessions, since a person may type while the next one is opened.
            self._lines = await self._open.enter_async_context(aclosing(lines))
            if self._prompt is not None:
                self._open.enter_context(self.face.attach(self._prompt))
        if self._completer is not None:
            self._completer.choices = lookups
        acts = LineActions(
            workspace, self.face, self._prompt, lookups, base_url=self.options.base_url, away=self._away
        )
        following = Following(workspace, self._followed)
        if not workspace.session.unfinished:
            await following.mark()
        self._reading = asyncio.ensure_future(self._read(self._lines, acts))
        self._working = asyncio.ensure_future(self._work(workspace, following))
        try:
            await self._wait_until_left(self._reading, self._working, workspace)
        finally:
            await _cancel_all(self._reading, self._working)

    def _new_prompt(self, workspace: Workspace, lookups: Lookups) -> ChatPrompt:
        from .completion import ChatCompleter  # noqa: PLC0415  # prompt_toolkit takes 0.1 s to import
        from .history import ChatHistory, history_file  # noqa: PLC0415  # as above
        from .prompt import ChatPrompt  # noqa: PLC0415  # as above

        before = [message.text for message in workspace.session.history if message.role is Role.USER]
        file = history_file() if self.options.settings.session.persist else None
        self._completer = ChatCompleter(lookups, self.options.cwd)
        return ChatPrompt(self, completer=self._completer, history=ChatHistory(file, before))

    # The prompt and its keys

    def live(self, width: int, rows: int) -> list[Text]:
        """The work in progress, in at most so many *rows* of *width* columns."""
        return self.face.live(width, rows)

    def status(self) -> Text | None:
        """The row above the input, or None."""
        return self.face.status()

    def bottom(self, width: int) -> Text:
        """The last row of all, in *width* columns."""
        return self.face.bottom(width)

    def escaped(self) -> None:
        """Leave the arguments that are edited as they were; else stop the run, here or in another process."""
        if self._leave_editing():
            return
        if self.signals.running:
            self.signals.interrupt()
        elif self.signals.runs_elsewhere:
            self.signals.interrupt_elsewhere()
            self.face.note("the other process is told to stop the run", "warning")
            self._news.set()

    def ctrl_c(self) -> None:
        """Stop the run; without one clear the line, or leave if it is empty."""
        if self._leave_editing():
            return
        if self.signals.running:
            self.signals.interrupt()
        elif not (self._prompt is not None and self._prompt.clear()) and self._reading is not None:
            self._reading.cancel()

    def _leave_editing(self) -> bool:
        if self.face.editing is None or self._prompt is None:
            return False
        self.face.editing = None
        self._prompt.clear()
        return True

    def remembers(self, text: str) -> bool:
        """Whether *text* goes into the history: answers and edited arguments may hold what no file should."""
        return self.face.editing is None and not (self.face.questions.open and is_answer(text))

    def pasted(self, text: str) -> str:
        """What to insert for the pasted *text*: an attachment for the path of a picture."""
        return text if self.face.editing is not None else pasted_text(text, self.options.cwd)

    # Reading

    async def _read(self, lines: AsyncGenerator[Typed, None], acts: LineActions) -> None:
        """Apply each line until there are no more, or the person wants to leave."""
        async for line in lines:
            then = await acts.do(line)
            if then is Then.OTHER_SESSION:
                to = acts.session
                self._next = self._new_session() if to is None else attrs.evolve(self._fresh, resume=to)
            if then is not Then.NEXT_LINE:
                return
            self._news.set()
        self._all_read = not self.face.typed  # the prompts of a pipe are all answered; Ctrl-D leaves at once

    def _new_session(self) -> RunOptions:
        """The options of a new session, with the model and the mode that hold now."""
        model, typed = self.face.model_name, self._fresh.model
        known = {spec.name for spec in self._fresh.models} | {model}
        models = [ModelSpec(name=typed)] if typed is not None and typed not in known else []
        return attrs.evolve(
            self._fresh,
            model=model,
            models=(*self._fresh.models, *models),
            stand_in=False,
            mode=self.face.mode,
        )

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
            except (EOFError, OSError, termios.error):  # the terminal is closed
                self.signals.hang_up()
        if self._all_read:
            self._news.set()
            while not working.done():
                self._rest(workspace)
                await asyncio.wait({working}, timeout=REST_CHECK_SECONDS)
        if working.done() and not working.cancelled():
            await working

    # Working

    async def _work(self, workspace: Workspace, following: Following) -> None:
        """Run while prompts wait; then wait for news, and follow the runs of other processes."""
        session, ours = workspace.session, True
        while True:
            # An unfinished run is ours at the start. One that appears later belongs to another worker, until
            # the person types something that no other worker takes up.
            if (ours or self._woken) if session.unfinished else self._due(workspace):
                try:
                    await self._run(workspace, takeover=ours and self.options.takeover)
                except SessionBusy:
                    await self._follow(workspace, following)
                except StoreConflict:
                    await self._taken(workspace, following)
                else:
                    await following.mark()
                if self.signals.ended_by is not None:
                    return  # SIGTERM drained the run
            elif self._all_read:
                return
            elif following.unseen:
                await self._follow(workspace, following)
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
        session = workspace.session
        if session.unfinished:
            if not takeover:
                await session.check_free()
            self.face.recovers()
        stream = session.stream(wait=True, takeover=takeover)
        async with self.face.busy(), aclosing(stream) as notices:
            async for notice in notices:
                self._track(notice)
                self._shown(self.face.notice, notice)
        self._told = False

    async def _taken(self, workspace: Workspace, following: Following) -> None:
        """Leave the run to the process that took it over, of which a notice has told."""
        # Lines typed before were for the run here, and are no reason to take it back.
        self._told, self._woken = True, False
        self._news.clear()
        await workspace.session.load()
        await following.mark()
        # The other process asks anew.
        self.face.questions.clear()
        for question in workspace.session.waiting:
            self.face.notice(ApprovalRequested.of(question, workspace.agent.clock.now()))

    def _shown(self, show: Callable[[Notice], None], notice: Notice) -> None:
        editing = self.face.editing
        show(notice)
        if self.face.editing is not editing and self._prompt is not None:
            self._prompt.clear()  # the question is closed

    async def _follow(self, workspace: Workspace, following: Following) -> None:
        """Show the runs of another process, until none goes on or this process is to go on with one."""
        session = workspace.session
        if session.unfinished and not self._told:
            self.face.aside.line(OTHER_WORKER, "warning")
        async with self.face.busy(elsewhere=True):
            self._woken = await following.follow(self._news, POLL_SECONDS, lambda: self._all_read)
        self._told = session.unfinished or bool(session.queue)

    def _followed(self, notice: Notice) -> None:
        self._track(notice)
        self._shown(self.face.followed, notice)

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
        await workspace.session.load()

    # The end

    def _left(self, workspace: Workspace) -> Exit:
        """Report the state of the session after the person left; returns the exit code."""
        session, aside = workspace.session, self.face.aside
        if session.waiting:
            show_resting(session, self.options, aside)
        elif session.unfinished:
            aside.line("the run is not over", "warning")
        if session.queue:
            aside.line(f"{number(len(session.queue), 'prompt')} waiting", "warning")
        if self.face.typed or session.unfinished:
            aside.line(f"go on with: {self.options.again('chat', session.id)}", "dim")
        if session.unfinished:
            return Exit.RESTING
        return Exit.ENDED if self.face.typed else self.code

    def _say(self, text: str) -> None:
        with suppress(OSError):  # a closed terminal takes no message
            self.face.aside.line(text, "warning")

    def _cut_off(self, workspace: Workspace) -> None:
        """Say which signal ended the chat."""
        if self.signals.ended_by is None:
            return
        with suppress(OSError):  # a closed terminal takes no message
            self.face.aside.line(MEANINGS[self.signals.ended_by], "warning")
            self.face.aside.line(f"go on with: {self.options.again('chat', workspace.session.id)}")


async def _cancel_all(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
