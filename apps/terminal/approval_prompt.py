"""Ask a person at the terminal, key by key, whether a call may run."""

from __future__ import annotations

import asyncio
import termios
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import final

import attrs

from ...effects.events import (
    ApprovalGiven,
    Approve,
    ApproveAlways,
    Decision,
    Deny,
)
from ...effects.requests import AskApproval
from ...performers.base import PerformContext
from .approval_card import (
    VIEWS,
    Question,
    argument_problem,
    argument_rows,
    card,
    pretty,
)
from .editor import edit_text, editor_command
from .keyboard import Keyboard
from .sanitize import clean, one_line
from .screen import INDENT, Screen
from .terminal import Terminal

BY_OPTION = "--yes"
"""The approver in the journal if `--yes` answers."""


async def say_yes(request: AskApproval, scene: PerformContext) -> ApprovalGiven:
    """Approve *request*, since the command line has approved every question."""
    return ApprovalGiven(at=scene.clock.now(), request=request.id, decision=Approve(), by=BY_OPTION)


@final
class TerminalApprover:
    """
    Performs questions at *keyboard* and *screen*, one at a time; *face* holds its output meanwhile.

    *cwd* is the directory of the tools, *by* the approver. *ignore_ctrl_c* leaves Ctrl-C to an open editor;
    *gone* is called if the terminal is closed.
    """

    def __init__(  # noqa: PLR0913  # each is a part of the terminal
        self,
        keyboard: Keyboard,
        screen: Screen,
        face: Terminal | None,
        *,
        cwd: Path,
        by: str,
        ignore_ctrl_c: Callable[[], AbstractContextManager[None]],
        gone: Callable[[], None],
    ) -> None:
        self._keyboard = keyboard
        self._screen = screen
        self._face = face
        self._cwd = cwd
        self._by = by
        self._ignores_ctrl_c = ignore_ctrl_c
        self._gone = gone
        self._one_at_a_time = asyncio.Lock()
        self._asking: dict[str, asyncio.Future[Decision]] = {}

    async def __call__(self, request: AskApproval, scene: PerformContext) -> ApprovalGiven | None:
        """Ask until there is a decision; None if another approver answered."""
        asking = asyncio.ensure_future(self._in_turn(request, scene))
        self._asking[request.id] = asking
        try:
            decision = await asking
        except asyncio.CancelledError:
            # `answered` removed it, so another approver was first. Otherwise the run itself is cancelled.
            if request.id not in self._asking:
                return None
            raise
        except (EOFError, OSError, termios.error):  # a closed terminal is no denial: the question stays open
            self._gone()
            raise asyncio.CancelledError from None
        finally:
            self._asking.pop(request.id, None)
        return ApprovalGiven(at=scene.clock.now(), request=request.id, decision=decision, by=self._by)

    def answered(self, request: str) -> None:
        """Stop asking *request*, which has an answer or is withdrawn."""
        if (asking := self._asking.pop(request, None)) is not None:
            asking.cancel()

    async def _in_turn(self, request: AskApproval, scene: PerformContext) -> Decision:
        async with self._one_at_a_time:
            if self._face is not None:
                self._face.hold()
            try:
                return await self._ask(request, scene)
            finally:
                self._screen.start_of_line()
                if self._face is not None:
                    self._face.release()

    async def _ask(self, request: AskApproval, scene: PerformContext) -> Decision:
        question = Question.of(request, scene.config.policy.answer_within, agent=scene.config.agent)
        whole = False
        while True:
            show = partial(self._show, question, whole=whole)
            match await self._keyboard.key(_keys(question), show):
                case "v":
                    self._echo("all of it", "dim")
                    whole = True
                case "y":
                    self._echo(f"{self._screen.yes} yes", "success")
                    return Approve(arguments=question.arguments) if question.edited else Approve()
                case "a":
                    self._echo(f"{self._screen.yes} always {question.tool}", "success")
                    return ApproveAlways()
                case "n":
                    self._echo(f"{self._screen.no} no", "error")
                    return Deny(message=await self._line("why? (Enter: no reason)"))
                case "s":
                    self._echo(f"{self._screen.no} no, and stop", "error")
                    return Deny(message=await self._line("why? (Enter: no reason)"), interrupt=True)
                case _:
                    self._echo("edit", "dim")
                    question = await self._edit(question, scene)

    def _show(self, question: Question, *, whole: bool) -> None:
        shown = card(question, self._cwd, self._screen.width, whole=whole, more=VIEWS)
        self._screen.lines(*shown)
        always = [("a", f"always {one_line(question.tool, 64)}")] if "a" in _keys(question) else []
        yes = "run it again" if question.again else "yes"
        self._offer([("y", yes), ("n", "no"), *always, ("e", "edit"), ("s", "no, and stop")])

    def _offer(self, keys: list[tuple[str, str]]) -> None:
        """Show the *keys* with the meaning of each."""
        self._screen.run_on(INDENT)
        for key, says in keys:
            self._screen.run_on(key, "key")
            self._screen.run_on(f" {says}   ")

    def _echo(self, what: str, style: str) -> None:
        """Echo the pressed key, since the terminal does not."""
        self._screen.run_on(clean(what), style)
        self._screen.start_of_line()

    async def _line(self, what: str) -> str:
        line = await self._keyboard.line(lambda: self._screen.run_on(f"{INDENT}{what} ", "dim"))
        self._screen.typed(line)
        return line.strip()

    async def _edit(self, question: Question, scene: PerformContext) -> Question:
        """*question* with valid new arguments; unchanged if the person leaves them as they were."""
        text = pretty(question.arguments)
        while True:
            try:
                text = await self._changed(text)
            except (OSError, ValueError) as error:
                self._screen.line(f"{INDENT}not edited: {error}", "error")
                return question
            if not text.strip() or pretty(text) == pretty(question.arguments):
                return question
            wrong = argument_problem(question.tool, text, scene.config)
            if not wrong:
                return attrs.evolve(question, arguments=text.strip(), edited=True)
            self._screen.line(f"{INDENT}{wrong}", "error")
            again = [("e", "edit again"), ("n", "leave it as it was")]
            if await self._keyboard.key("en", partial(self._offer, again)) == "n":
                self._echo("as it was", "dim")
                return question
            self._echo("edit", "dim")

    async def _changed(self, text: str) -> str:
        """*text* after the person edited it, in an editor or typed anew on one line."""
        if command := editor_command():
            with self._ignores_ctrl_c():
                return await edit_text(text, command)
        self._screen.lines(*argument_rows(text, self._screen.width))
        return await self._line("new (JSON, one line; Enter leaves it):")


def _keys(question: Question) -> str:
    return "ynesv" if question.edited or question.again else "yanesv"
