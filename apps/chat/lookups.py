"""Answer the lines of a chat that only show something: the queue, the cost, the models, a result."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from functools import cache
from typing import assert_never, final

from ...effects.config import window_of
from ...effects.errors import ConfigError
from ...effects.permissions import PermissionMode
from ...engine.core.machine import calls_in
from ...engine.inspect.archive import costs, explain
from ...engine.inspect.listing import Listed, listed
from ...engine.journal.summary import SessionKind
from ...states.context import Mail
from ..cli.build_settings import switch_problem
from ..cli.call_report import report_lines
from ..cli.run_options import is_stand_in
from ..cli.tables.columns import id_cell
from ..cli.tables.session_table import age, state_of
from ..cli.tables.usage_table import listing
from ..cli.workspace import Workspace
from ..stand_in.script import MODELS
from ..terminal.approval_card import on_one_line
from ..terminal.sanitize import clean, exact, one_line, without_colors
from .commands import (
    HELP,
    PROMPT,
    CostLine,
    ExplainLine,
    HelpLine,
    InfoLine,
    ModeLine,
    QueueLine,
    ShowLine,
)
from .view import ChatFace

MOST_SESSIONS = 20
"""The latest sessions that are listed."""

LOOKED_AT = 500
"""The sessions of the store that are looked at for those of this directory."""

MOST_CALLS = 30
"""The latest calls that are offered."""

TITLE_COLUMNS = 40
"""Columns of a session's title in a list."""

MODE_HELP = {
    PermissionMode.DEFAULT: "asks before what changes something",
    PermissionMode.ACCEPT_EDITS: "edits files without a question",
    PermissionMode.PLAN: "only reads",
    PermissionMode.DONT_ASK: "refuses what it would ask about",
    PermissionMode.BYPASS: "runs everything",
}
"""Each mode in a few words."""


def picked(name: str, names: list[str]) -> str:
    """*name*, or the one of *names* whose number, counted from 1, or whose beginning it is."""
    if name.isdecimal() and name not in names:
        if not 1 <= int(name) <= len(names):
            msg = f"no number {name} in the list; it has {len(names)}"
            raise ConfigError(msg)
        return names[int(name) - 1]
    meant = [known for known in names if known.startswith(name)]
    return meant[0] if len(meant) == 1 and name not in names else name


@final
class Lookups:
    """Answers about the session of *workspace*, shown on *face*; *base_url* is its model's own address."""

    def __init__(self, workspace: Workspace, face: ChatFace, base_url: str | None) -> None:
        self._workspace = workspace
        self._face = face
        self._base_url = base_url
        # The numbers of the prompts that were listed.
        self._seen: dict[str, int] = {}

    async def tell(self, asked: str, word: InfoLine) -> None:
        """Show the answer to *word*, which was typed as *asked*."""
        match word:
            case CostLine():
                report = await costs(self._workspace.store, self._workspace.session.id)
                self._face.aside.line(f"{PROMPT}{asked}", "dim")
                listing(report, self._face.aside)
                self._face.aside.line()
            case ShowLine(name=name):
                await self._show(name)
            case _:
                self._print(asked, await self._answer(word))

    async def _answer(self, word: ExplainLine | QueueLine | HelpLine | ModeLine) -> str:
        session = self._workspace.session
        match word:
            case ExplainLine(name=name):
                call = self._face.names.find(name) if name else self._face.names.last
                if call is None:
                    msg = "no call yet"
                    raise ConfigError(msg)
                return "\n".join(report_lines(await explain(self._workspace.store, session.id, call)))
            case QueueLine():
                width = self._face.aside.width - len("99  ")
                prompts = [
                    f"{number}  {one_line(mail.text, width)}" for number, mail in self._prompts().items()
                ]
                return "\n".join(prompts) or "no prompt waits"
            case ModeLine():
                rows = [(mode, about, mode == self._face.mode) for mode, about in self.modes()]
                return "\n".join(_choices(rows, self._face.aside.width))
            case HelpLine():
                return HELP
            case _:
                assert_never(word)

    def list_models(self, asked: str) -> None:
        """Show the models, with their numbers."""
        rows = [(name, about, name == self._face.model_name) for name, about in self.models()]
        self._print(asked, "\n".join(_choices(rows, self._face.aside.width)))

    async def list_sessions(self, asked: str) -> None:
        """Show the sessions of this directory, with their numbers."""
        here = self._workspace.session.id
        rows = [
            (id_cell(name, self._face.aside), about, name == here) for name, about in await self.sessions()
        ]
        self._print(asked, "\n".join(_choices(rows, self._face.aside.width)) or "no sessions yet")

    def _print(self, asked: str, text: str) -> None:
        self._face.aside.line(f"{PROMPT}{asked}", "dim")
        self._face.aside.line(text)
        self._face.aside.line()

    # Results

    async def _show(self, name: str) -> None:
        """Show all of a result: in a pager if it has more lines than the screen."""
        call, text = self._result(name)
        text = exact(without_colors(text))
        lines = text.count("\n") + 1
        if self._face.typed and lines > self._face.height and (pager := shutil.which("less")):
            await self._face.page(text, pager)
            return
        self._face.show_result(call, text)

    def _result(self, name: str) -> tuple[str, str]:
        """The call *name* and its result; the last ones if it is empty."""
        call = self._face.names.find(name) if name else ""
        if (settled := self._face.result(call)) is not None:
            return settled.call, settled.content
        for message in reversed(self._workspace.session.history):
            for result in reversed(message.results):
                if call in {"", result.call}:
                    return result.call, result.content
        msg = f"call {name} has no result yet" if name else "no result yet"
        raise ConfigError(msg)

    # What may be chosen

    def models(self) -> Iterable[tuple[str, str]]:
        """The models that are configured, and can be switched to."""
        config = self._workspace.agent.config
        stand_ins = [f"openai:{name}" for name in MODELS] if is_stand_in(config.model.name) else []
        names = dict.fromkeys((*config.model_names, *stand_ins, self._face.model_name))
        for name in names:
            if not switch_problem(config, name, self._base_url):
                yield name, f"{window_of(name):,} tokens"

    def modes(self) -> Iterable[tuple[str, str]]:
        """The modes."""
        return [(mode.value, MODE_HELP[mode]) for mode in PermissionMode]

    def calls(self) -> Iterable[tuple[str, str]]:
        """The latest calls, by their numbers."""
        calls = [call for message in self._workspace.session.history for call in message.calls]
        for call in reversed(calls[-MOST_CALLS:]):
            yield self._face.names.name(call.id), f"{call.name} {on_one_line(call.arguments)}"

    def open_calls(self) -> Iterable[tuple[str, str]]:
        """The calls that have no result yet, by their numbers."""
        machine = self._workspace.session.machine
        for call in () if machine is None else calls_in(machine.state):
            yield self._face.names.name(call), ""

    def waiting(self) -> Iterable[tuple[str, str]]:
        """Actions on the prompts that wait, by their numbers."""
        for number, mail in self._prompts().items():
            yield f"drop {number}", mail.text
            yield f"edit {number}", mail.text

    def prompt(self, number: str) -> Mail:
        """The prompt that waits with this *number*; `ConfigError` where none does."""
        waiting = self._prompts()
        if not waiting:
            msg = "no prompt waits"
            raise ConfigError(msg)
        mail = waiting.get(int(number)) if number.isdecimal() else None
        if mail is None:
            numbers = ", ".join(map(str, waiting))
            msg = f"no prompt {number} waits; /queue lists those that do: {numbers}"
            raise ConfigError(msg)
        return mail

    def _prompts(self) -> dict[int, Mail]:
        """The prompts that wait, by their numbers."""
        # A number is that of one prompt for as long as any waits: by its place in the list, the one behind
        # would be taken back where the first was read meanwhile.
        queue = self._workspace.session.queue
        if not queue:
            self._seen.clear()
        for mail in queue:
            self._seen.setdefault(mail.id, len(self._seen) + 1)
        return {self._seen[mail.id]: mail for mail in queue}

    async def sessions(self) -> Iterable[tuple[str, str]]:
        """The latest sessions of this directory."""
        found = await listed(self._workspace.store, LOOKED_AT)
        # Real paths: a person may reach a directory through a link today and directly tomorrow.
        real = cache(os.path.realpath)
        here = real(str(self._workspace.agent.cwd))
        mine = [
            one
            for one in found
            if one.about.kind is not SessionKind.CHILD and one.about.cwd and real(one.about.cwd) == here
        ]
        return [(one.session, _about(one)) for one in mine[:MOST_SESSIONS]]


def _about(one: Listed) -> str:
    title = one_line(one.about.title, TITLE_COLUMNS)
    words = [f"'{clean(title)}'"] if title else []
    return ", ".join([*words, state_of(one.about), age(time.time() - one.updated)])


def _choices(rows: list[tuple[str, str, bool]], width: int) -> Iterable[str]:
    """*rows* of a name, its explanation and whether it holds now, with numbers, in *width* columns."""
    widest = max((len(name) for name, _, _ in rows), default=0)
    for number, (name, about, now) in enumerate(rows, 1):
        row = f"{'*' if now else ' '} {number:>2}  {name:<{widest}}  "
        yield f"{row}{one_line(about, max(0, width - len(row)))}".rstrip()
