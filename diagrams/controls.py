"""The page on what people can do when, in Markdown: each state against each event that comes from outside."""

from __future__ import annotations

from inspect import cleandoc
from typing import TYPE_CHECKING, get_args

from ..effects.events import Post
from ..states.table import TABLE, WELCOME
from .picture import LABELS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..effects.events import Event
    from ..states.table import Row

OPENING = """\
<!-- Written by `python -m turnwheel.diagrams`; change states/table.py and write it again. -->

# What people can do when

What comes in from outside, from whichever process, and what happens to it in each [state](states.md) of a
run. A session takes all of it at any time: what comes while no run is under way is kept for the next one.
"""

LEGEND = """
A dash: it changes nothing there. Which of several goals is reached is said below. After `done` a prompt or a
steer begins the next run, a changed setting holds for it, and everything else is too late.
"""

METHODS = {
    "ApprovalGiven": "`session.approve`, `turnwheel approve` and `deny`",
    "UserSent": "`session.send`, `turnwheel send`",
    "UserSteered": "`session.steer`, `turnwheel steer`",
    "Interrupted": "`session.interrupt`, `turnwheel interrupt`, Ctrl-C",
    "ControlReceived": "`session.control`, `turnwheel control`",
    "CallCancelled": "`session.cancel`, `turnwheel cancel`",
}
"""How each is said, in Python and in a terminal."""


def controls() -> str:
    """The whole page."""
    events: tuple[type[Event], ...] = get_args(Post)
    head = ["in", *[f"`{event.__name__}`" for event in events]]
    lines = [_line(head), _line(["---"] * len(head))]
    lines += [_line([f"`{label}`", *[_cell(label, event) for event in events]]) for label in LABELS]
    return "\n".join([OPENING, *lines, LEGEND, *map(_section, events)])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(label: str, event: type[Event]) -> str:
    goals = [row.target for row in TABLE if row.state == label and row.event is event]
    return ", ".join("stays" if goal == label else f"`{goal}`" for goal in goals) or "-"


def _section(event: type[Event]) -> str:
    lines = [
        f"## `{event.__name__}`\n",
        f"{cleandoc(event.__doc__ or '')}\n",
        f"It comes from {METHODS[event.__name__]}.\n",
    ]
    if event in WELCOME:
        lines.append(
            f"Wherever else it comes in before `done`, the state stays as it is: {WELCOME[event]}.\n"
        )
    rows = [row for row in TABLE if row.event is event and not row.welcome]
    told = [_line([f"`{row.state}`", _goal(row), row.why]) for row in rows]
    if told:
        lines += ["| in | it leads to | because |", "| --- | --- | --- |", *told, ""]
    return "\n".join(lines)


def _goal(row: Row) -> str:
    return "stays" if row.target == row.state else f"`{row.target}`"
