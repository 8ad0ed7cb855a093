"""Pictures as Mermaid text, which GitHub and notebooks draw where it stands."""

from __future__ import annotations

from functools import cache

from ..effects.errors import ConfigError
from .picture import (
    LABELS,
    OVERVIEW,
    Arrow,
    Picture,
    overview,
)
from .style import INK, LOOKS

ARROW = " --> "
CURRENT = "fill:#c8445a,stroke:#8a2338,color:#ffffff,stroke-width:3px"
"""Where a session is: the one loud colour."""


def mermaid(current: str | None = None) -> str:
    """
    The whole machine as Mermaid text, with the label *current* set off where it is given.

    Raises `ConfigError` where no row of the table has that label.
    """
    text, places = _overview()
    if current is None:
        return text
    if current not in LABELS:
        msg = f"no state {current!r} in the table; there are {', '.join(LABELS)}"
        raise ConfigError(msg)
    return f"{text}  classDef current {CURRENT}\n  class {places[current]} current\n"


@cache
def _overview() -> tuple[str, dict[str, str]]:
    """The text, and the id of the place of each label: a stage comes after a box of the same name."""
    picture = overview()
    return text_of(picture), {place.text: place.id for place in picture.places}


def text_of(picture: Picture) -> str:
    """*picture* as a Mermaid state diagram."""
    from .sketch import sketch  # noqa: PLC0415  # `transitions` takes its time, and few look at pictures

    looks = {
        str(kind): {"fill": look.fill, "stroke": look.line, "color": INK} for kind, look in LOOKS.items()
    }
    is_overview = picture.name == OVERVIEW
    graph = sketch(picture, "mermaid", {"node": looks}, rankdir="TB" if is_overview else "LR")
    lines = [line.rstrip() for line in (graph.draw(None) or "").splitlines()]
    # `transitions` leaves what is in a box without a class.
    inner = [f"  class {place.id} s_{place.kind}" for place in picture.places if place.inside]
    # On the overview arrows have words; in a detail these are many, and stand where the arrow comes from.
    rows = [f"  {arrow.source}: {_row(arrow, picture)}" for arrow in picture.arrows if not is_overview]
    places = [line for line in lines if ARROW not in line]
    arrows = _in_order([line for line in lines if ARROW in line], picture)
    if not is_overview:
        arrows = [line.partition(": ")[0] for line in arrows]
    return "\n".join([*places, *inner, *rows, "", *arrows, ""])


def _in_order(lines: list[str], picture: Picture) -> list[str]:
    """The *lines* that are arrows, in the order of the table: with it fewer cross than by event."""
    pairs = [f"{arrow.source}{ARROW}{arrow.target}" for arrow in picture.arrows]
    found = {line.strip().partition(": ")[0]: line.replace(" | ", "<br/>") for line in lines}
    # The arrow from nowhere, to where a run begins, is none of the picture's.
    return [
        found[pair] for pair in sorted(found, key=lambda pair: pairs.index(pair) if pair in pairs else -1)
    ]


def _row(arrow: Arrow, picture: Picture) -> str:
    """The line for *arrow* in the place it comes from."""
    target = "stays" if arrow.stays else f"\N{RIGHTWARDS ARROW} {picture.text_of(arrow.target)}"
    # A colon or a semicolon would end the line for Mermaid.
    why = arrow.why.replace(";", "#59;").replace(":", "#58;")
    return f"{arrow.event} {target} ({why})" if why else f"{arrow.event} {target}"
