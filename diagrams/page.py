"""The page on the states, in Markdown: what the table says, in the order in which one asks."""

from __future__ import annotations

from inspect import cleandoc
from typing import get_args

from ..states.state import State
from ..states.table import IGNORED, TABLE
from .picture import (
    EVENTS,
    STATES,
    WORDS,
    kind_of,
    labels_of,
)
from .text import mermaid

OPENING = """\
<!-- Written by `python -m turnwheel.diagrams`; change states/table.py and write it again. -->

# The states

An agent is in one of seven states, and some of them have stages. A label such as `thinking.go` names both;
a state that is being given up has `.stopping` in its name. What is not in a table below cannot happen: each
event in each state has a row, or is ignored by name.

Prompts, steers and changed settings (`UserSent`, `UserSteered`, `ControlReceived`) are welcome in every state
but `done`: where nothing else is said of them they wait, or hold from then on, and the state stays as it is.
[What people can do when](controls.md) has that by state.

`Entered` is fed to a state that waits for nothing, until one waits. An event with several rows goes where the
reason says; an event that answers a request which is not open changes nothing, wherever it comes.
"""

LEGEND = """\
Grey waits for nothing, blue for the world (a model, a tool, a child, a timer), amber for a person; green is
the end.
"""


def page() -> str:
    """The whole page."""
    overview = f"```mermaid\n{mermaid()}```\n"
    return "\n".join([OPENING, overview, LEGEND, *(_section(state) for state in STATES)])


def _section(state: str) -> str:
    classes = {found.__name__.lower(): found for found in get_args(State)}
    meaning = cleandoc(classes[state].__doc__ or "")
    picture = f"![The stages of {state}, with all their rows](../diagrams/{state}.svg)"
    return "\n".join([f"## {state}\n", f"{meaning}\n", f"{picture}\n", *map(_label, labels_of(state))])


def _label(label: str) -> str:
    lines = [f"### `{label}`\n", f"It {WORDS[kind_of(label)]}.\n"]
    rows = [
        f"| `{row.event.__name__}` | {_goal(row.target, label)} | {_escaped(row.why)} |"
        for row in TABLE
        if row.state == label and not row.welcome
    ]
    if rows:
        lines += ["| on | to | because |", "| --- | --- | --- |", *rows, ""]
    ignored = sorted([event.__name__ for event in IGNORED[label]], key=EVENTS.index)
    named = ", ".join([f"`{event}`" for event in ignored])
    lines.append(f"Ignored: {'everything' if len(ignored) == len(EVENTS) else named}.\n")
    return "\n".join(lines)


def _goal(target: str, label: str) -> str:
    # GitHub makes the anchor of a heading from its letters alone.
    return "stays" if target == label else f"[`{target}`](#{target.replace('.', '')})"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
