"""
The pictures of the machine: nodes, and arrows between them. Other modules draw them.

The overview has the states, each a box with its stages, and one arrow for each event that leads from one
to another. A detail has the stages of one state with all their rows, and the states before and after it.
The look of a node follows from its rows, so a new row or a new stage needs no change here.
"""

from __future__ import annotations

import re
from enum import StrEnum
from inspect import cleandoc
from typing import final, get_args

import attrs

from ..effects.errors import ConfigError
from ..effects.events import ApprovalGiven, Entered
from ..states.state import State
from ..states.table import IGNORED, TABLE, WELCOME

# The name of the overview; a detail has the name of its state.
OVERVIEW = "machine"

# Every label there is, in the order of the table.
LABELS: tuple[str, ...] = tuple(dict.fromkeys([*(row.state for row in TABLE), *IGNORED]))

# The states by their names, in the order of their union.
STATE_CLASSES: dict[str, type[State]] = {state.__name__.lower(): state for state in get_args(State)}


def check_label(label: str) -> None:
    """Raise `ConfigError` where no row of the table has that *label*."""
    if label not in LABELS:
        msg = f"no state {label!r} in the table; there are {', '.join(LABELS)}"
        raise ConfigError(msg)


class NodeKind(StrEnum):
    """What an agent waits for at a node, which decides the colour."""

    PASSES = "passes"
    WORLD = "world"
    PERSON = "person"
    END = "end"
    # A state as a whole, whose stages may be of several kinds.
    BOX = "box"


KIND_WORDS = {
    NodeKind.PASSES: "waits for nothing",
    NodeKind.WORLD: "waits for the world",
    NodeKind.PERSON: "waits for a person",
    NodeKind.END: "is the end",
}


@final
@attrs.frozen
class Node:
    """A box with *text*; *inside* is the id of the box around it, if there is one."""

    id: str
    text: str
    kind: NodeKind
    inside: str = ""


@final
@attrs.frozen
class Arrow:
    """From the node *source* on *event*, the name of its class, to the node *target*."""

    source: str
    target: str
    event: str
    why: str = ""


@final
@attrs.frozen
class Picture:
    """Nodes and the arrows between them. A run begins at the node *start*, where the picture has that one."""

    name: str
    nodes: tuple[Node, ...]
    arrows: tuple[Arrow, ...]
    start: str = ""

    @property
    def bundles(self) -> dict[tuple[str, str], list[Arrow]]:
        """The arrows by the two nodes they join. Those that stay at one node come last."""
        bundles: dict[tuple[str, str], list[Arrow]] = {}
        for arrow in sorted(self.arrows, key=lambda arrow: arrow.source == arrow.target):
            bundles.setdefault((arrow.source, arrow.target), []).append(arrow)
        return bundles

    def node(self, known: str) -> Node:
        """The node with the id *known*."""
        return next(node for node in self.nodes if node.id == known)


def state_of(label: str) -> str:
    """The name of the state that *label* is a stage of."""
    return label.partition(".")[0]


def stage_of(label: str) -> str:
    """The name of the stage *label*. A plain label names a stage like its state."""
    return label.rpartition(".")[2]


def id_of(label: str) -> str:
    """The id of the node for *label*. The box around it has the name of the state for an id."""
    return f"{state_of(label)}_{stage_of(label)}"


def labels_of(state: str) -> tuple[str, ...]:
    """The labels of *state*."""
    return tuple([label for label in LABELS if state_of(label) == state])


def kind_of(label: str) -> NodeKind:
    """The kind of *label*, which follows from its rows."""
    # Events that come to every state say nothing about this one.
    events = {row.event for row in TABLE if row.state == label} - set(WELCOME)
    if not events:
        return NodeKind.END
    if ApprovalGiven in events:
        return NodeKind.PERSON
    return NodeKind.PASSES if events == {Entered} else NodeKind.WORLD


def caption_of(state: str) -> str:
    """What *state* means: the first words of the docstring of its class."""
    return re.split(r"[.:;,]", cleandoc(STATE_CLASSES[state].__doc__ or ""))[0]


def _node(label: str, inside: str = "") -> Node:
    return Node(id_of(label), label, kind_of(label), inside)


def overview() -> Picture:
    """The whole machine. Between states the arrows join the boxes, within one state its stages."""
    arrows: dict[Arrow, None] = {}
    # Several rows may give one arrow. A row that stays at its label gives none.
    for row in TABLE:
        source, target = state_of(row.state), state_of(row.target)
        if source != target:
            arrows[Arrow(source, target, row.event.__name__)] = None
        elif row.state != row.target:
            arrows[Arrow(id_of(row.state), id_of(row.target), row.event.__name__)] = None
    # A state without stages needs no box around itself.
    bare = [state for state in STATE_CLASSES if labels_of(state) == (state,)]
    boxes = [Node(state, state, kind_of(state) if state in bare else NodeKind.BOX) for state in STATE_CLASSES]
    stages = [_node(label, inside=state_of(label)) for label in LABELS if label not in bare]
    return Picture(OVERVIEW, (*boxes, *stages), tuple(arrows), start=state_of(LABELS[0]))


def detail(state: str) -> Picture:
    """
    The stages of *state* with their rows, the targets of these, and the other states that lead here.

    Raises `ConfigError` where there is no such state.
    """
    own = labels_of(state)
    if not own:
        msg = f"no state {state!r}; there are {', '.join(STATE_CLASSES)}"
        raise ConfigError(msg)
    rows = [row for row in TABLE if row.state in own and not row.welcome]
    into = [row for row in TABLE if row.target in own and row.state not in own]
    # A state may be both before and after this one, so as a source it is a node of its own.
    sources = dict.fromkeys(state_of(row.state) for row in into)
    targets = {row.target for row in rows} - set(own)
    before = [Arrow(f"from_{state_of(row.state)}", id_of(row.target), row.event.__name__) for row in into]
    return Picture(
        state,
        nodes=(
            *(_node(label) for label in own),
            *(Node(f"from_{source}", f"from {source}", NodeKind.BOX) for source in sources),
            *(_node(label) for label in LABELS if label in targets),
        ),
        arrows=(
            *(Arrow(id_of(row.state), id_of(row.target), row.event.__name__, row.why) for row in rows),
            *dict.fromkeys(before),
        ),
        start=id_of(LABELS[0]) if LABELS[0] in own else "",
    )


def pictures() -> tuple[Picture, ...]:
    """All pictures: the overview, then one of each state."""
    return (overview(), *map(detail, STATE_CLASSES))
