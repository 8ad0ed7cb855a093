"""Asking a person whether a call may run, at a terminal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import final

from rich.text import Text

from ..effects.config import ToolSpec
from ..effects.events import Approve, ApproveAlways, Decision, Deny
from ..effects.requests import AskApproval
from ..states.rules.schema import arguments_of, problem
from .editor import chosen, edited
from .gist import PREVIEWED, essence, preview
from .keyboard import Keyboard
from .plain import clean, one_line
from .screen import INDENT, Screen
from .terminal import Terminal

STYLES = {"+": "green", "-": "red", "$": "bold"}
"""How the lines of a preview look, by their sign."""


@final
class Asker:
    """
    Asks at *keyboard* and *screen*, one question at a time; *face*, where there is one, is quiet meanwhile.

    *tools* are what can be asked about, *cwd* is where they work. *deaf* makes Ctrl-C the business of an
    editor while one is open.
    """

    def __init__(
        self,
        keyboard: Keyboard,
        screen: Screen,
        face: Terminal | None,
        cwd: Path,
        deaf: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.tools: Mapping[str, ToolSpec] = {}
        self._keyboard = keyboard
        self._screen = screen
        self._face = face
        self._cwd = cwd
        self._deaf = deaf
        self._one_at_a_time = asyncio.Lock()
        self._always: set[str] = set()

    async def __call__(self, question: AskApproval) -> Decision:
        """Ask until there is an answer."""
        async with self._one_at_a_time:
            if question.tool in self._always:  # said while this one waited
                return Approve()
            if self._face is not None:
                self._face.hold()
            try:
                return await self._ask(question)
            finally:
                self._screen.start_of_line()
                if self._face is not None:
                    self._face.release()

    async def _ask(self, question: AskApproval) -> Decision:
        arguments = question.arguments
        while True:
            as_it_was = arguments == question.arguments
            ask = partial(self._show, question.tool, arguments, always=as_it_was)
            match await self._keyboard.key("yane" if as_it_was else "yne", ask):
                case "y":
                    self._told(f"{self._screen.yes} yes", "green")
                    return Approve() if as_it_was else Approve(arguments=arguments)
                case "a":
                    self._told(f"{self._screen.yes} always {question.tool}", "green")
                    self._always.add(question.tool)
                    return ApproveAlways()
                case "n":
                    return await self._deny()
                case _:
                    self._told("edit", "dim")
                    arguments = await self._edit(question.tool, arguments)

    def _show(self, tool: str, arguments: str, *, always: bool) -> None:
        name = one_line(tool, 64)
        about = essence(tool, arguments, self._screen.width - len(name) - 4) if tool in PREVIEWED else ""
        head = Text.assemble(("? ", "bold yellow"), (name, "bold"), f" {about}")
        lines = [
            Text(f"{INDENT}{sign} {text}", style=STYLES.get(sign, ""))
            for sign, text in preview(tool, arguments, self._cwd)
        ]
        self._screen.lines(head, *lines)
        keys = [("y", "yes"), ("n", "no"), *([("a", f"always {name}")] if always else []), ("e", "edit")]
        self._offer(keys)

    def _offer(self, keys: list[tuple[str, str]]) -> None:
        """Show which *keys* can be pressed, and what each says."""
        self._screen.run_on(INDENT)
        for key, says in keys:
            self._screen.run_on(key, "bold yellow")
            self._screen.run_on(f" {says}   ", "yellow")

    def _told(self, what: str, style: str) -> None:
        """Show the key that was pressed, which the terminal did not."""
        self._screen.run_on(clean(what), style)
        self._screen.start_of_line()

    async def _deny(self) -> Deny:
        self._told(f"{self._screen.no} no", "red")
        return Deny(message=await self._line("why? (Enter: no reason)"))

    async def _line(self, what: str) -> str:
        line = await self._keyboard.line(lambda: self._screen.run_on(f"{INDENT}{what} ", "dim"))
        self._screen.typed(line)
        return line.strip()

    async def _edit(self, tool: str, arguments: str) -> str:
        """Other arguments, or the same where they are left alone; asks until they can be used."""
        text = _pretty(arguments)
        while True:
            try:
                text = await self._changed(text)
            except (OSError, ValueError) as error:
                self._screen.line(f"{INDENT}not edited: {error}", "red")
                return arguments
            if not text.strip():
                return arguments
            fault = self._fault(tool, text)
            if not fault:
                return arguments if _pretty(text) == _pretty(arguments) else text.strip()
            self._screen.line(f"{INDENT}{fault}", "red")
            again = [("e", "edit again"), ("n", "leave it as it was")]
            if await self._keyboard.key("en", partial(self._offer, again)) == "n":
                self._told("as it was", "dim")
                return arguments
            self._told("edit", "dim")

    async def _changed(self, text: str) -> str:
        """*text* after a person had it: in their editor, or typed anew on one line where they have none."""
        if command := chosen():
            with self._deaf():
                return await edited(text, command)
        flat = json.dumps(json.loads(text), ensure_ascii=False) if arguments_of(text) is not None else text
        self._screen.line(f"{INDENT}now: {flat}", "dim")
        return await self._line("new (JSON, one line; Enter leaves it):")

    def _fault(self, tool: str, text: str) -> str:
        """Why a call of *tool* cannot have the arguments *text*; empty where it can."""
        arguments = arguments_of(text)
        if arguments is None:
            return f"no JSON object: {one_line(text, 60)!r}"
        spec = self.tools.get(tool)
        return "" if spec is None else problem(spec.schema, arguments)


def _pretty(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), indent=2, ensure_ascii=False) + "\n"
    except (ValueError, RecursionError):
        return arguments
