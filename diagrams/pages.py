"""Two pages in Markdown, both from the table: the states, and the controls that a person has in each."""

from __future__ import annotations

from inspect import cleandoc
from typing import get_args

from ..effects.events import Event, Post
from ..states.table import IGNORED, TABLE, WELCOME, Row
from .picture import KIND_WORDS, LABELS, STATE_CLASSES, kind_of, labels_of
from .text import mermaid

NOTICE = "<!-- Written by `python -m turnwheel.diagrams`; change states/table.py and write it again. -->"
STATES_TEXT = """
# The states

An agent is in exactly one state, and some states have stages. A label such as `thinking.go` names both.
`.stopping` in a label means that the agent gives this state up. Nothing happens that no table below lists:
each event in each state has a row, or the state ignores it by name.

Prompts, steers, their withdrawals and changed settings (`UserSent`, `UserSteered`, `InputWithdrawn`,
`ControlReceived`) are welcome in every state but `done`. Where no row says more, they wait, drop what waits
or hold from then on, and the state stays as it is.
[What people can do when](controls.md) lists them by state.

The engine feeds `Entered` to a state that waits for nothing, until one waits. An event with several rows goes
where the reason says. An event that answers a request which is not open changes nothing in any state.
"""
COLOURS_TEXT = """\
Grey waits for nothing. Blue waits for the world: a model, a tool, a child, a timer. Amber waits for a person.
Green is the end.
"""
CONTROLS_TEXT = """
# What people can do when

The inputs that any process can send, and their effect in each [state](states.md) of a run. A session takes
all of them at any time: an input that comes while no run is under way waits for the next one.
"""
CELLS_TEXT = """
A dash means no effect. Where a cell has several goals, the tables below say when each is reached. After
`done` a prompt or a steer begins the next run, a changed setting holds for it, and all else is too late.
"""
# How a person sends each input, in Python and in a terminal.
SENT_BY = {
    "ApprovalGiven": "`session.approve`, `turnwheel approve` and `deny`",
    "UserSent": "`session.send`, `turnwheel send`",
    "UserSteered": "`session.steer`, `turnwheel steer`",
    "InputWithdrawn": "`session.withdraw`, `turnwheel withdraw`",
    "Interrupted": "`session.interrupt`, `turnwheel interrupt`, Ctrl-C",
    "ControlReceived": "`session.control`, `turnwheel control`",
    "CallCancelled": "`session.cancel`, `turnwheel cancel`",
}


def states_page() -> str:
    """The page on the states: what each waits for, its rows with their reasons, and what it ignores."""
    overview = f"```mermaid\n{mermaid()}```\n"
    return "\n".join([NOTICE, STATES_TEXT, overview, COLOURS_TEXT, *map(_state, STATE_CLASSES)])


def controls_page() -> str:
    """The page on controls: each state against each input, then the rows of each input."""
    inputs: tuple[type[Event], ...] = get_args(Post)
    cells = [[f"`{label}`", *[_cell(label, event) for event in inputs]] for label in LABELS]
    table = _table(["in", *[f"`{event.__name__}`" for event in inputs]], cells)
    return "\n".join([NOTICE, CONTROLS_TEXT, *table, CELLS_TEXT, *map(_input, inputs)])


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    # A bar in a reason would end its cell.
    cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return [f"| {' | '.join(line)} |" for line in cells]


def _goal(row: Row) -> str:
    return "stays" if row.target == row.state else f"`{row.target}`"


def _state(state: str) -> str:
    meaning = cleandoc(STATE_CLASSES[state].__doc__ or "")
    picture = f"![The stages of {state}, with all their rows](../diagrams/{state}.svg)"
    return "\n".join([f"## {state}\n", f"{meaning}\n", f"{picture}\n", *map(_stage, labels_of(state))])


def _stage(label: str) -> str:
    rows = [
        [
            f"`{row.event.__name__}`",
            # GitHub makes the anchor of a heading from its letters alone.
            "stays" if row.target == label else f"[{_goal(row)}](#{row.target.replace('.', '')})",
            row.why,
        ]
        for row in TABLE
        if row.state == label and not row.welcome
    ]
    ignored = [f"`{event.__name__}`" for event in get_args(Event) if event in IGNORED[label]]
    named = "everything" if len(ignored) == len(get_args(Event)) else ", ".join(ignored)
    lines = [f"### `{label}`\n", f"It {KIND_WORDS[kind_of(label)]}.\n"]
    if rows:
        lines += [*_table(["on", "to", "because"], rows), ""]
    return "\n".join([*lines, f"Ignored: {named}.\n"])


def _cell(label: str, event: type[Event]) -> str:
    return ", ".join([_goal(row) for row in TABLE if row.state == label and row.event is event]) or "-"


def _input(event: type[Event]) -> str:
    lines = [
        f"## `{event.__name__}`\n",
        f"{cleandoc(event.__doc__ or '')}\n",
        f"It comes from {SENT_BY[event.__name__]}.\n",
    ]
    if event in WELCOME:
        lines.append(f"In all other states before `done`, the state stays as it is: {WELCOME[event]}.\n")
    rows = [
        [f"`{row.state}`", _goal(row), row.why] for row in TABLE if row.event is event and not row.welcome
    ]
    if rows:
        lines += [*_table(["in", "it leads to", "because"], rows), ""]
    return "\n".join(lines)
