"""Show a question as a card, and check the arguments that a person edits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import final

import attrs
from rich.cells import cell_len
from rich.text import Text

from ...effects.config import Config
from ...effects.events import ApproveAlways, Decision
from ...effects.notices import ApprovalRequested
from ...effects.permissions import Basis, Rule, Verdict, runs_again
from ...effects.requests import AskApproval
from ...states.batch.permission import edit_fault
from ...states.rules.permission import RUN_AGAIN
from ...states.rules.schema import arguments_of
from ..cli.option_types import short
from .call_summary import LEADS_TO, PREVIEWED, PreviewPart, essence, number, preview
from .diff_view import PreviewLine, numbered
from .sanitize import clean, exact, one_line
from .screen import INDENT

PREVIEW_STYLES = {"-": "removed", "$": "bold", LEADS_TO: "dim"}
"""The style of a preview line, by its sign."""

PREVIEW_SIGNS = {"+": "sign.added", "-": "sign.removed"}
"""The style of the sign itself, where it is another one."""

WRAPPED = ">"
"""Stands before a row that goes on with the line above it."""

VIEWS = "v shows all"
"""Stands behind a cut where a person has keys."""

MIN_COLUMNS = 20
"""Columns of a row at the least, however narrow the screen is."""


@final
@attrs.frozen(kw_only=True)
class Question:
    """
    An open question on screen: its *request*, and the *call* of *tool* that it is about.

    *arguments* are those a yes would cover, which the person may have *edited*. *why* is the reason for the
    question and *agent* the child that asks. It waits *within* seconds and is shown *since* that time. The
    call is called *called* on screen, if that is not the number in its id.
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
    called: str = ""

    @classmethod
    def of(
        cls,
        asked: AskApproval | ApprovalRequested,
        within: float | None = None,
        since: float = 0.0,
        agent: str = "",
        called: str = "",
    ) -> Question:
        """
        The question *asked*, by the child *agent* unless that is empty.

        It waits *within* seconds, and is shown *since* that time. Its call is called *called* on screen.
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
            called=called,
        )

    @property
    def name(self) -> str:
        """Its name on screen."""
        return self.called or short(self.call)

    @property
    def again(self) -> bool:
        """Whether the call may have run before, so that a yes runs it again."""
        return runs_again(self.why)


def question_line(question: Question, width: int) -> str:
    """
    The tool of *question* and what it is about, on a line of at most *width* columns.

    The text of a file that would be written is long, so its lines are only counted.
    """
    tool = one_line(question.tool, 64)
    content = (arguments_of(question.arguments) or {}).get("content")
    written = question.tool == "write" and isinstance(content, str)
    size = f" ({number(len(str(content).splitlines()), 'line')})" if written else ""
    room = max(MIN_COLUMNS, width - cell_len(tool) - len(size) - 1)
    about = essence(question.tool, question.arguments, room)
    return f"{tool} {about}".rstrip() + size


def card(  # each says how much is shown
    question: Question,
    cwd: Path | None,
    width: int,
    *,
    always_why: bool = False,
    whole: bool = False,
    more: str = "",
) -> list[Text]:
    """
    *question* as lines of at most *width* columns where possible; without keys.

    The paths of built-in tools begin in *cwd*; without it they are not looked up. *always_why*: show the
    reason even if it is just the nature of the tool. *whole*: cut no long text; else *more* says how to see
    it whole.
    """
    tool = one_line(question.tool, 64)
    name = clean(f"  #{question.name}")
    about = _heading(question, width - len(tool) - len(name) - 4)
    head = Text.assemble(("? ", "question"), (tool, "bold"), f" {about}".rstrip(), (name, "dim"))
    lines = [
        row
        for part in preview(question.tool, question.arguments, cwd, headed=bool(about))
        for row in part_rows(part, width, more, whole=whole)
    ]
    if question.again:
        lines.append(Text(f"{INDENT}{one_line(RUN_AGAIN.detail, width - len(INDENT))}", style="warning"))
    return [head, *lines, *_notes(question, width, always_why=always_why)]


def argument_rows(arguments: str, width: int) -> list[Text]:
    """*arguments* on one line, wrapped as in a card: a terminal would begin a row with any part of it."""
    part = PreviewPart((PreviewLine("", f"now: {exact(on_one_line(arguments))}"),))
    return [*part_rows(part, width, "", whole=True)]


def _heading(question: Question, room: int) -> str:
    """The path of a change of a file, if it is plain and fits into *room* columns, or nothing."""
    path = (arguments_of(question.arguments) or {}).get("path")
    plain = isinstance(path, str) and " ".join(exact(path).split()) == path
    return str(path) if question.tool in PREVIEWED and plain and cell_len(str(path)) <= room else ""


def part_rows(part: PreviewPart, width: int, more: str, *, whole: bool) -> Iterator[Text]:
    """The lines of *part* on a screen of *width* columns; how much is not shown stands below them."""
    count = 0
    for at, (gutter, line) in enumerate(numbered(part.lines)):
        shown, room = 0, max(MIN_COLUMNS, width - len(INDENT) - len(gutter) - 2)
        for row in _wrapped(line.text, room):
            if count == part.rows and not whole:
                rest = [number(len(line.text) - shown, "more character")] if shown else []
                lines = len(part.lines) - at - bool(shown)
                rest += [number(lines, "more line")] if lines else []
                yield Text(f"{INDENT}  ... {', '.join(rest)}{f' ({more})' if more else ''}", style="dim")
                return
            before = " " * len(gutter) if shown else gutter
            mark = WRAPPED if shown else line.sign
            style = PREVIEW_STYLES.get(line.sign, "")
            sign = (f"{mark:1}", PREVIEW_SIGNS.get(line.sign, style))
            yield Text.assemble(INDENT, (before, "dim"), sign, (f" {row}", style))
            shown += len(row)
            count += 1


def _wrapped(text: str, width: int) -> Iterator[str]:
    """*text* on rows of at most *width* columns, one by one, since a text may be huge."""
    start, used = 0, 0
    for at, char in enumerate(text):
        cells = cell_len(char)
        if used + cells > width:
            yield text[start:at]
            start, used = at, 0
        used += cells
    yield text[start:]


def _notes(question: Question, width: int, *, always_why: bool) -> list[Text]:
    """The asking child, the reason, unless it is just the nature of the tool, and the deadline."""
    notes = [f"asked by {question.agent}"] if question.agent else []
    nature, _, more = question.why.partition("; ")
    if always_why or not nature.startswith(f"{Basis.TOOL}:"):
        more = question.why
    if not question.again:
        notes.append(more)
    if question.within is not None:
        notes.append(f"a no after {question.within:g} s")
    text = one_line("; ".join(filter(None, notes)), width - len(INDENT))
    return [Text(f"{INDENT}{text}", style="dim")] if text else []


def pretty(arguments: str) -> str:
    """*arguments* formatted for an editor, or unchanged if they are not JSON."""
    try:
        return json.dumps(json.loads(arguments), indent=2, ensure_ascii=False) + "\n"
    except (ValueError, RecursionError):
        return arguments


def on_one_line(arguments: str) -> str:
    """*arguments* formatted for one line."""
    if arguments_of(arguments) is None:
        return arguments
    return json.dumps(json.loads(arguments), ensure_ascii=False)


def outside_grant(decision: Decision, tool: str, arguments: str) -> bool:
    """Whether *decision* is a yes to all calls like some, and the call at hand is not one, by its text."""
    if not isinstance(decision, ApproveAlways):
        return False
    rule = Rule(verdict=Verdict.ALLOW, tool=tool, where=decision.where)
    values = arguments_of(arguments) or {}
    return not all(rule.meets(name, glob, values) for name, glob in decision.where)


def argument_problem(tool: str, arguments: str, config: Config) -> str:
    """Why a call of *tool* cannot run with *arguments* under *config*; empty if it can."""
    if arguments_of(arguments) is None:
        return f"not a JSON object: {_json_problem(arguments)}"
    return edit_fault(tool, arguments, config)


def _json_problem(arguments: str) -> str:
    """What is wrong with *arguments*, which are not a JSON object, and where."""
    try:
        value: object = json.loads(arguments)
    except json.JSONDecodeError as error:
        near = one_line(arguments[error.pos : error.pos + 20], 20)
        where = f"line {error.lineno}, column {error.colno}"
        # Some of these messages end in "at" themselves.
        what = error.msg.removesuffix(" at")
        return f"{what[:1].lower()}{what[1:]} at {where}{f', before {near!r}' if near else ''}"
    except (ValueError, RecursionError):
        return one_line(arguments, 60)
    return f"got {one_line(json.dumps(value), 60)}"


def error_position(arguments: str) -> int | None:
    """The index in *arguments* at which they stop to be JSON; None if they are JSON."""
    try:
        json.loads(arguments)
    except json.JSONDecodeError as error:
        return error.pos
    except (ValueError, RecursionError):
        return None
    return None
