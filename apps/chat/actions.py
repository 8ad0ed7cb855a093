"""Apply each line typed in a chat to its session."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, assert_never, final

from ...effects.errors import AnswerRefused, CallerError, ConfigError, UnknownSession
from ...effects.events import Deny
from ...effects.messages import Binary
from ...effects.records import Change, SetModel
from ...engine.core.machine import calls_in
from ..cli.build_settings import switch_problem
from ..cli.option_types import ALL
from ..cli.workspace import Workspace
from ..terminal.approval_card import Question, error_position, on_one_line, pretty
from ..terminal.call_summary import number
from ..terminal.editor import edit_text, editor_command
from ..terminal.notice_lines import change_text
from ..terminal.sanitize import one_line
from .attachments import attach
from .commands import (
    ActionLine,
    AnswerLine,
    CancelLine,
    ChangeLine,
    ClearLine,
    EditLine,
    ModelLine,
    ParsedLine,
    PromptLine,
    QuitLine,
    SessionsLine,
    SteerLine,
    ViewLine,
    WithdrawLine,
    parse_line,
)
from .lookups import Lookups, picked
from .piped_lines import Typed
from .questions import effective_decision
from .view import ChatFace

if TYPE_CHECKING:
    from .prompt import ChatPrompt


@final
class Then(Enum):
    """What follows a line: the next one, the end of the chat, or another session."""

    NEXT_LINE = auto()
    LEAVE = auto()
    OTHER_SESSION = auto()


@final
class LineActions:
    """
    Applies lines to the session of *workspace*, and shows replies on *face*.

    *prompt* is where a person types them, None for a pipe. *base_url* is the address of the session's model,
    if it is not the provider's. *away* leaves the terminal to an editor.
    """

    def __init__(
        self,
        workspace: Workspace,
        face: ChatFace,
        prompt: ChatPrompt | None,
        lookups: Lookups,
        *,
        base_url: str | None,
        away: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._workspace = workspace
        self._face = face
        self._prompt = prompt
        self._lookups = lookups
        self._base_url = base_url
        self._away = away
        self.session: str | None = None
        """The session to go to with `Then.OTHER_SESSION`; None for a new one."""

    async def do(self, typed: Typed) -> Then:
        """Apply *typed*; returns what follows."""
        try:
            # While arguments are edited on the line, Enter takes the line as arguments, never as a prompt.
            if (question := self._face.editing) is not None:
                self._take_edited(question, typed.text)
                return Then.NEXT_LINE
            questions = self._face.questions
            asked = bool(questions.open) or questions.closed > typed.started
            return await self._apply(parse_line(typed.text, asked=asked), typed)
        except CallerError as error:
            self._face.aside.say(str(error), "error")
        return Then.NEXT_LINE

    async def _apply(self, word: ParsedLine, typed: Typed) -> Then:
        match word:
            case QuitLine():
                return Then.LEAVE
            case ClearLine():
                self._check_idle("/clear")
                self.session = None
                return Then.OTHER_SESSION
            case SessionsLine(name=""):
                await self._lookups.list_sessions(typed.text)
            case SessionsLine(name=name):
                return await self._go_to(name)
            case ModelLine(name=""):
                self._lookups.list_models(typed.text)
            case (
                PromptLine()
                | SteerLine()
                | ChangeLine()
                | CancelLine()
                | AnswerLine()
                | EditLine()
                | ViewLine()
                | ModelLine()
                | WithdrawLine()
            ):
                await self._act(word, typed.started)
            case _:
                await self._lookups.tell(typed.text, word)
        return Then.NEXT_LINE

    async def _act(self, word: ActionLine, started: float) -> None:
        session = self._workspace.session
        match word:
            case PromptLine(text=text):
                await self._say(text)
            case SteerLine(text=text, how=how):
                text, files = self._attached(text)
                await session.steer(text, how, files=files)
            case ChangeLine(change=change):
                await self._alter(change)
            case ModelLine(name=name):
                models = [model for model, _ in self._lookups.models()]
                await self._alter(SetModel(model=picked(name, models)))
            case CancelLine(name=name):
                await session.cancel(self._call(name))
            case WithdrawLine():
                await self._take_back(word)
            case AnswerLine() | EditLine() | ViewLine():
                await self._asked(word, started)
            case _:
                assert_never(word)

    # Prompts

    async def _say(self, text: str) -> None:
        session = self._workspace.session
        whole, files = self._attached(text)
        await session.send(whole, files=files)
        if session.unfinished and not session.running:
            self._face.aside.line(f"{text!r} waits for its turn", "dim")

    async def _take_back(self, withdrawal: WithdrawLine) -> None:
        session = self._workspace.session
        mail = self._lookups.prompt(withdrawal.name)
        if withdrawal.edits and self._prompt is None:
            msg = f"no editor here; take it back with /queue drop {withdrawal.name}, and send another"
            raise ConfigError(msg)
        # Before the run here tells it as a notice, which has no text.
        self._face.taken_back.add(mail.id)
        await session.withdraw(mail.id)
        label = "taken back: "
        self._face.aside.line(label + one_line(mail.text, self._face.aside.width - len(label)), "dim")
        if mail.files and withdrawal.edits:
            self._face.aside.line("its files are not put back; attach them again", "warning")
        if withdrawal.edits and self._prompt is not None:
            # A blank keeps a line a prompt that would be a command.
            plain = isinstance(parse_line(mail.text, asked=True), PromptLine)
            self._prompt.begin(mail.text if plain else f" {mail.text}")

    def _attached(self, text: str) -> tuple[str, tuple[Binary, ...]]:
        """*text* with the files that it names."""
        # A program may pipe in lines of others, which must not name files of this machine.
        if self._prompt is None:
            return text, ()
        found = attach(text, Path(self._workspace.agent.cwd))
        for name in found.missing:
            self._face.aside.line(f"no file {name!r}: @{name} is sent as text", "warning")
        for name in found.folders:
            self._face.aside.line(f"{name!r} is a folder: @{name} is sent as text", "warning")
        for file in found.files:
            self._face.aside.line(
                f"attached {file.name} ({file.media_type}, {len(file.data):,} bytes)", "dim"
            )
        return found.text, found.files

    # Settings and sessions

    async def _alter(self, change: Change) -> None:
        session = self._workspace.session
        if isinstance(change, SetModel) and (
            problem := switch_problem(self._workspace.agent.config, change.model, self._base_url)
        ):
            msg = f"cannot switch to {change.model!r}: {problem}"
            raise ConfigError(msg)
        if isinstance(change, SetModel):
            self._check_configured(change.model)
        await session.control(change)
        if not session.running:
            self._face.chosen(change)
            self._face.aside.line(f"from the next run on: {change_text(change)}", "setting")

    def _check_configured(self, model: str) -> None:
        """Raise `ConfigError` unless *model* is one of those that are listed."""
        models = [name for name, _ in self._lookups.models()]
        if model not in models:
            how = f"start with it: turnwheel chat --model {model}, or --also-model {model}"
            msg = f"no model {model!r} in this chat; there are: {', '.join(models)}; {how}"
            raise ConfigError(msg)

    async def _go_to(self, name: str) -> Then:
        self._check_idle("/sessions")
        session = picked(name, [found for found, _ in await self._lookups.sessions()])
        if session == self._workspace.session.id:
            msg = f"session {session!r} is the one that you are in"
            raise ConfigError(msg)
        # Before this one is left: a typo changes nothing on screen.
        if await self._workspace.store.info(session) is None:
            raise UnknownSession(session)
        self.session = session
        return Then.OTHER_SESSION

    def _check_idle(self, command: str) -> None:
        session = self._workspace.session
        if session.running and not session.resting:
            msg = f"{command} would leave a run in the middle of its work; stop it first with Esc"
            raise ConfigError(msg)

    def _call(self, name: str) -> str:
        """The open call that *name* means."""
        machine = self._workspace.session.machine
        there = () if machine is None else calls_in(machine.state)
        return self._face.names.find(name, there)

    # Questions

    async def _asked(self, word: AnswerLine | EditLine | ViewLine, started: float) -> None:
        match word:
            case AnswerLine():
                await self._reply(word, started)
            case EditLine():
                await self._edit(word, started)
            case ViewLine(name=name):
                for question in self._face.questions.named(name, started):
                    self._face.show(question, whole=True)
            case _:
                assert_never(word)

    async def _reply(self, reply: AnswerLine, started: float) -> None:
        session, by = self._workspace.session, self._face.by
        questions = self._face.questions.named(reply.name, started)
        covered = [question.call for question in questions]
        # The person has not seen the calls behind these, so "all" must not cover them. A no skips them.
        tells = reply.name == ALL and not isinstance(reply.decision, Deny)
        if tells and (behind := self._face.waiting_behind(covered)):
            note = f"{number(behind, 'more call')} of the same answer: each is shown and asked about in turn"
            self._face.aside.line(note, "setting")
        for question in questions:
            try:
                await session.approve(question.request, effective_decision(question, reply.decision), by=by)
            except AnswerRefused as error:
                self._face.aside.say(str(error), "error")
                self._face.show(question)

    async def _edit(self, edit: EditLine, started: float) -> None:
        """Change the arguments: in an editor, on the line, or to those the line has."""
        question, *more = self._face.questions.named(edit.name, started)
        if more:
            msg = "several questions are open; name one"
            raise ConfigError(msg)
        if edit.arguments:
            self._changed(question, edit.arguments)
        elif self._prompt is None:
            arguments = on_one_line(question.arguments)
            msg = f"no editor here; write the arguments on the line: e {question.name} {arguments}"
            raise ConfigError(msg)
        elif command := editor_command():
            with self._away():
                async with self._prompt.lent():
                    text = await _in_editor(self._face.questions.draft(question), command)
            self._take_edited(question, text)
        else:
            self._begin_editing(question, self._face.questions.draft(question))

    def _begin_editing(self, question: Question, text: str, caret: int | None = None) -> None:
        if self._prompt is not None:
            self._face.editing = question
            self._prompt.begin(text, caret)

    def _take_edited(self, question: Question, text: str) -> None:
        self._face.editing = None
        if pretty(text) == pretty(question.arguments):
            self._face.questions.forget_draft(question)
            self._face.aside.line("the arguments stay as they were", "dim")
        else:
            self._changed(question, text)

    def _changed(self, question: Question, arguments: str) -> None:
        try:
            changed = self._face.questions.edit(question, arguments, self._workspace.agent.config)
        except ConfigError as error:
            if self._prompt is None:
                raise
            self._face.aside.say(str(error), "error")
            # The text is not lost: it is on the line, or in the editor with the next `e`.
            self._face.questions.keep_draft(question, arguments)
            if editor_command():
                self._face.show(question)
            else:
                self._begin_editing(question, arguments, error_position(arguments))
        else:
            self._face.show(changed)


async def _in_editor(text: str, command: tuple[str, ...]) -> str:
    """The arguments *text* after *command* edited them; raises `ConfigError` if that failed."""
    try:
        return await edit_text(pretty(text), command)
    except (OSError, ValueError) as error:
        msg = f"not edited: {error}"
        raise ConfigError(msg) from error
