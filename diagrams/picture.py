"""
What is in a picture: places, and arrows between them. Nothing here knows how either is drawn.

The overview has the seven states, each a box with its stages, and one arrow for each event that leads from
one to another. A detail has the stages of one state, all their rows, and where they come from and lead to.
What a place looks like follows from its rows, so a new row or a new stage is drawn without a word here.
"""

from __future__ import annotations

import re
from enum import StrEnum
from inspect import cleandoc
from typing import final, get_args

import attrs

from ..effects.errors import ConfigError
from ..effects.events import ApprovalGiven, Entered, Event
from ..states.state import State
from ..states.table import IGNORED, TABLE

OVERVIEW = "machine"
"""The name of the overview; a detail has the name of its state."""

LABELS: tuple[str, ...] = tuple(dict.fromkeys([*(row.state for row in TABLE), *IGNORED]))
"""Every label there is, in the order of the table."""

STATES: tuple[str, ...] = tuple([state.__name__.lower() for state in get_args(State)])
"""The names of the seven states, in the order of their union."""

EVENTS: tuple[str, ...] = tuple([event.__name__ for event in get_args(Event)])
"""The names of all events, in the order of their union, in which they are listed wherever several are."""


class Kind(StrEnum):
    """What an agent waits for in a place; it decides the colour."""

    PASSES = "passes"
    WORLD = "world"
    PERSON = "person"
    END = "end"
    BOX = "box"
    """A state as a whole, which may have stages of each kind."""


WORDS = {
    Kind.PASSES: "waits for nothing",
    Kind.WORLD: "waits for the world",
    Kind.PERSON: "waits for a person",
    Kind.END: "is the end",
}
"""What is said of a label of each kind."""


@final
@attrs.frozen
class Place:
    """A box with *text*; *inside* is the id of the box around it, if there is one."""

    id: str
    text: str
    kind: Kind
    inside: str = ""


@final
@attrs.frozen
class Arrow:
    """From the place *source* on *event*, the name of its class, to the place *target*."""

    source: str
    target: str
    event: str
    why: str = ""

    @property
    def stays(self) -> bool:
        """Whether it leads back to where it comes from."""
        return self.source == self.target


@final
@attrs.frozen
class Picture:
    """Places and the arrows between them. A run begins at the place *start*, where that is in the picture."""

    name: str
    places: tuple[Place, ...]
    arrows: tuple[Arrow, ...]
    start: str = ""

    @property
    def bundles(self) -> dict[tuple[str, str], tuple[Arrow, ...]]:
        """The arrows by the two places they join, those that stay last."""
        ends = dict.fromkeys((arrow.source, arrow.target) for arrow in self.arrows)
        return {
            pair: tuple([arrow for arrow in self.arrows if (arrow.source, arrow.target) == pair])
            for pair in sorted(ends, key=lambda pair: pair[0] == pair[1])
        }

    def text_of(self, place: str) -> str:
        """What stands in the place with the id *place*."""
        return next(found.text for found in self.places if found.id == place)


def state_of(label: str) -> str:
    """The name of the state that *label* is a stage of."""
    return label.partition(".")[0]


def id_of(label: str) -> str:
    """The place of *label*. A state's plain label is a place inside the box of the same name."""
    state, _, stage = label.partition(".")
    return f"{state}_{stage or state}"


def labels_of(state: str) -> tuple[str, ...]:
    """The labels of *state*."""
    return tuple([label for label in LABELS if state_of(label) == state])


def kind_of(label: str) -> Kind:
    """What an agent waits for at *label*, by the rows it has, but for what is welcome anywhere."""
    events = {row.event for row in TABLE if row.state == label and not row.welcome}
    if not events:
        return Kind.END
    if ApprovalGiven in events:
        return Kind.PERSON
    return Kind.PASSES if events == {Entered} else Kind.WORLD


def caption_of(state: str) -> str:
    """What *state* means, in the first words of its class."""
    classes = {found.__name__.lower(): found for found in get_args(State)}
    return re.split(r"[.;,]", cleandoc(classes[state].__doc__ or ""))[0]


def _place(label: str, inside: str = "") -> Place:
    return Place(id_of(label), label, kind_of(label), inside)


def overview() -> Picture:
    """
    The whole machine. Between states the arrows join the boxes, within one its stages.

    What stays where it is is left out, and what several rows say alike is said once.
    """
    arrows: dict[Arrow, None] = {}
    for row in TABLE:
        source, target = state_of(row.state), state_of(row.target)
        if source != target:
            arrows[Arrow(source, target, row.event.__name__)] = None
        elif row.state != row.target:
            arrows[Arrow(id_of(row.state), id_of(row.target), row.event.__name__)] = None
    # A state that has no stages needs no box around itself.
    bare = [state for state in STATES if labels_of(state) == (state,)]
    boxes = [Place(state, state, kind_of(state) if state in bare else Kind.BOX) for state in STATES]
    stages = [_place(label, inside=state_of(label)) for label in LABELS if label not in bare]
    return Picture(OVERVIEW, (*boxes, *stages), tuple(arrows), start=state_of(LABELS[0]))


def detail(state: str) -> Picture:
    """
    One state: its stages with their rows, where these lead, and which other states lead here.

    What is welcome anywhere and stays is left out.

    A state that leads here is a place of its own, ``from_...``: as a target it may be there once more.
    """
    own = labels_of(state)
    if not own:
        msg = f"no state {state!r}; there are {', '.join(STATES)}"
        raise ConfigError(msg)
    rows = [row for row in TABLE if row.state in own and not row.welcome]
    into = [row for row in TABLE if row.target in own and row.state not in own]
    arrows = {
        Arrow(f"from_{state_of(row.state)}", id_of(row.target), row.event.__name__): None for row in into
    }
    origins = dict.fromkeys(state_of(row.state) for row in into)
    targets = {row.target for row in rows} - set(own)
    return Picture(
        state,
        places=(
            *(_place(label) for label in own),
            *(Place(f"from_{origin}", f"from {origin}", Kind.BOX) for origin in origins),
            *(_place(label) for label in LABELS if label in targets),
        ),
        arrows=(
            *(Arrow(id_of(row.state), id_of(row.target), row.event.__name__, row.why) for row in rows),
            *arrows,
        ),
        start=id_of(LABELS[0]) if LABELS[0] in own else "",
    )


def pictures() -> tuple[Picture, ...]:
    """All there are: the overview, then one per state."""
    return (overview(), *(detail(state) for state in STATES))
