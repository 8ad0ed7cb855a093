"""Apply each line typed in a chat to its session."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import assert_never, final

from ...effects.errors import AnswerRefused, CallerError, ConfigError, UnknownCall
from ...effects.records import Change, SetModel
from ...engine.core.machine import calls_in
from ..cli.build_settings import switch_problem
from ..cli.call_report import find_call, report_lines
from ..cli.option_types import resolve_name, short
from ..cli.workspace import Workspace
from ..terminal.approval_card import Question, on_one_line, pretty
from ..terminal.editor import edit_text, editor_command
from ..terminal.notice_lines import change_text
from ..terminal.sanitize import one_line
from .commands import (
    HELP,
    ActionLine,
    AnswerLine,
    CancelLine,
    ChangeLine,
    EditLine,
    ExplainLine,
    HelpLine,
    InfoLine,
    PromptLine,
    QueueLine,
    QuitLine,
    SteerLine,
    ViewLine,
    parse_line,
)
from .line_source import (
    PROMPT,
    Lines,
    Typed,
    TypedLines,
)
from .questions import effective_decision
from .view import ChatFace


@final
class LineActions:
    """
    Applies *lines* to the session of *workspace*, and shows replies on *face*.

    *base_url* is the address of its model, if it is not the provider's. *away* leaves the terminal to an
    editor.
    """

    def __init__(
        self,
        workspace: Workspace,
        face: ChatFace,
        lines: Lines,
        *,
        base_url: str | None,
        away: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._workspace = workspace
        self._face = face
        self._lines = lines
        self._base_url = base_url
        self._away = away

    async def do(self, typed: Typed) -> bool:
        """Apply *typed*; returns False if the person wants to leave."""
        try:
            # While arguments are edited on the line, Enter takes the line as arguments, never as a prompt.
            if (question := self._face.editing) is not None:
                self._take_edited(question, typed.text)
                return True
            questions = self._face.questions
            asked = bool(questions.open) or questions.closed > typed.started
            word = parse_line(typed.text, asked=asked)
            if isinstance(word, QuitLine):
                return False
            if isinstance(word, InfoLine):
                self._tell(typed.text, await self._asked_for(word))
            else:
                await self._act(word, typed.started)
        except CallerError as error:
            self._face.aside.say(str(error), "red")
        return True

    async def _act(self, word: ActionLine, started: float) -> None:
        session = self._workspace.session
        match word:
            case PromptLine(text=text):
                await self._say(text)
            case SteerLine(text=text, how=how):
                await session.steer(text, how)
            case ChangeLine(change=change):
                await self._alter(change)
            case CancelLine(name=name):
                await session.cancel(self._call(name))
            case AnswerLine():
                await self._reply(word, started)
            case EditLine():
                await self._edit(word, started)
            case ViewLine(name=name):
                for question in self._face.questions.named(name, started):
                    self._face.show(question, whole=True)
            case _:
                assert_never(word)

    async def _asked_for(self, word: InfoLine) -> str:
        session = self._workspace.session
        match word:
            case ExplainLine(name=name):
                return "\n".join(report_lines(await find_call(self._workspace.store, session.id, name)))
            case QueueLine():
                width = self._face.aside.width - len("99  ")
                prompts = [one_line(prompt.text, width) for prompt in session.queue]
                return "\n".join(f"{n}  {text}" for n, text in enumerate(prompts, 1)) or "no prompt waits"
            case HelpLine():
                return HELP

    def _tell(self, asked: str, text: str) -> None:
        self._face.aside.line(f"{PROMPT}{asked}", "dim")
        self._face.aside.line(text)
        self._face.aside.line()

    async def _say(self, text: str) -> None:
        session = self._workspace.session
        await session.send(text)
        if session.unfinished and not session.running:
            self._face.aside.line(f"{text!r} waits for its turn", "cyan dim")

    async def _alter(self, change: Change) -> None:
        session = self._workspace.session
        if isinstance(change, SetModel) and (
            problem := switch_problem(self._workspace.agent.config, change.model, self._base_url)
        ):
            msg = f"cannot switch to {change.model!r}: {problem}"
            raise ConfigError(msg)
        await session.control(change)
        if not session.running:
            self._face.aside.line(f"from the next run on: {change_text(change)}", "cyan")

    def _call(self, name: str) -> str:
        """The open call that *name* means."""
        machine = self._workspace.session.machine
        there = () if machine is None else calls_in(machine.state)
        found = resolve_name(name, there)
        if found is None:
            raise UnknownCall(name, tuple([short(call) for call in there]))
        return found

    # Questions

    async def _reply(self, reply: AnswerLine, started: float) -> None:
        session, by = self._workspace.session, self._face.by
        for question in self._face.questions.named(reply.name, started):
            try:
                await session.approve(question.request, effective_decision(question, reply.decision), by=by)
            except AnswerRefused:
                self._face.show(question)
                raise

    async def _edit(self, edit: EditLine, started: float) -> None:
        """Change the arguments: in an editor, on the line, or to those the line has."""
        question, *more = self._face.questions.named(edit.name, started)
        if more:
            msg = "several questions are open; name one"
            raise ConfigError(msg)
        if edit.arguments:
            self._changed(question, edit.arguments)
        elif not isinstance(self._lines, TypedLines):
            arguments = on_one_line(question.arguments)
            msg = f"no editor here; write the arguments on the line: e {question.name} {arguments}"
            raise ConfigError(msg)
        elif command := editor_command():
            with self._away(), self._lines.lent():
                text = await _in_editor(question, command)
            self._take_edited(question, text)
        else:
            self._face.editing = question
            self._lines.begin(on_one_line(question.arguments))

    def _take_edited(self, question: Question, text: str) -> None:
        self._face.editing = None
        if pretty(text) == pretty(question.arguments):
            self._face.aside.line("the arguments stay as they were", "dim")
        else:
            self._changed(question, text)

    def _changed(self, question: Question, arguments: str) -> None:
        config = self._workspace.agent.config
        self._face.show(self._face.questions.edit(question, arguments, config))


async def _in_editor(question: Question, command: tuple[str, ...]) -> str:
    """The arguments of *question* after *command* edited them; raises `ConfigError` if that failed."""
    try:
        return await edit_text(pretty(question.arguments), command)
    except (OSError, ValueError) as error:
        msg = f"not edited: {error}"
        raise ConfigError(msg) from error
