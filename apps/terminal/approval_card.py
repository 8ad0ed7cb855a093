"""What a person is shown of a question, and how they change the arguments of the call it is about."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import final

import attrs
from rich.text import Text

from ...effects.config import ToolSpec
from ...effects.notices import ApprovalRequested
from ...effects.permissions import Basis, runs_again
from ...effects.requests import AskApproval
from ...states.rules import model_messages
from ...states.rules.schema import arguments_of, problem
from ..cli.option_types import short
from .call_summary import PREVIEWED, essence, preview
from .sanitize import clean, one_line
from .screen import INDENT

PREVIEW_STYLES = {"+": "green", "-": "red", "$": "bold"}
"""How the lines of a preview look, by their sign."""


@final
@attrs.frozen(kw_only=True)
class Question:
    """
    A question that is open, as it is shown: its *request*, and the *call* of *tool* it is about.

    *arguments* are those a person would say yes to, which they may have *edited*. *why* is what made it a
    question, *agent* which child asks, *within* how many seconds it waits, *since* when it is shown.
    """

    request: str
    call: str
    tool: str
    arguments: str
    why: str = ""
    agent: str = ""
    within: float | None = None
    edited: bool = False
    since: float = 0.0

    @classmethod
    def of(
        cls,
        asked: AskApproval | ApprovalRequested,
        within: float | None = None,
        since: float = 0.0,
        agent: str = "",
    ) -> Question:
        """
        What was *asked*, by the child *agent* unless that is empty.

        It waits *within* seconds, *since* it is shown.
        """
        return cls(
            request=asked.id if isinstance(asked, AskApproval) else asked.request,
            call=asked.call,
            tool=asked.tool,
            arguments=asked.arguments,
            why=asked.why,
            agent=agent,
            within=within,
            since=since,
        )

    @property
    def name(self) -> str:
        """What it is called on screen."""
        return short(self.call)

    @property
    def again(self) -> bool:
        """Whether the call may have run before: a yes makes it run again."""
        return runs_again(self.why)


def card(question: Question, cwd: Path, width: int, *, told: bool = False) -> list[Text]:
    """
    *question* on lines of at most *width* columns, as far as they need not be longer; no keys.

    *told*: say in any case why it is asked.
    """
    tool = one_line(question.tool, 64)
    number = f"  #{question.name}"
    room = width - len(tool) - len(number) - 4
    about = essence(question.tool, question.arguments, room) if question.tool in PREVIEWED else ""
    head = Text.assemble(("? ", "bold yellow"), (tool, "bold"), f" {about}".rstrip(), (clean(number), "dim"))
    lines = [
        Text(f"{INDENT}{sign} {text}", style=PREVIEW_STYLES.get(sign, ""))
        for sign, text in preview(question.tool, question.arguments, cwd)
    ]
    if question.again:
        lines.append(Text(f"{INDENT}{one_line(model_messages.AGAIN, width - len(INDENT))}", style="yellow"))
    return [head, *lines, *_notes(question, width, told=told)]


def _notes(question: Question, width: int, *, told: bool) -> list[Text]:
    """What else there is to know: why a call is asked about, unless that is its nature; until when."""
    said = [f"asked by {question.agent}"] if question.agent else []
    if not question.again and (told or not question.why.startswith(f"{Basis.TOOL}:")):
        said.append(question.why)
    if question.within is not None:
        said.append(f"a no after {question.within:g} s")
    text = one_line("; ".join(filter(None, said)), width - len(INDENT))
    return [Text(f"{INDENT}{text}", style="dim")] if text else []


def pretty(arguments: str) -> str:
    """*arguments* as a person edits them, or as they are where they are no JSON."""
    try:
        return json.dumps(json.loads(arguments), indent=2, ensure_ascii=False) + "\n"
    except (ValueError, RecursionError):
        return arguments


def on_one_line(arguments: str) -> str:
    """*arguments* as a person edits them on one line."""
    if arguments_of(arguments) is None:
        return arguments
    return json.dumps(json.loads(arguments), ensure_ascii=False)


def argument_problem(tool: str, arguments: str, tools: Mapping[str, ToolSpec]) -> str:
    """Why a call of *tool*, one of *tools*, cannot have *arguments*; empty where it can."""
    values = arguments_of(arguments)
    if values is None:
        return f"no JSON object: {one_line(arguments, 60)!r}"
    spec = tools.get(tool)
    return "" if spec is None else problem(spec.schema, values)
