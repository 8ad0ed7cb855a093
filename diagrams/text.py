"""Pictures as Mermaid text, which GitHub and notebooks draw in place. The library `transitions` writes it."""

from __future__ import annotations

import re
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from .drawing import INK, NODE_LOOKS
from .picture import OVERVIEW, Arrow, Picture, check_label, overview

if TYPE_CHECKING:
    from transitions.extensions.diagrams_mermaid import NestedGraph

# The one loud look, for the stage where a session is.
LIVE = "fill:#c8445a,stroke:#8a2338,color:#ffffff,stroke-width:3px"


def mermaid(current: str | None = None) -> str:
    """
    The whole machine as Mermaid text, in which the label *current* stands out.

    Raises `ConfigError` where no row of the table has that label.
    """
    picture = overview()
    text = mermaid_of(picture)
    if current is None:
        return text
    check_label(current)
    # A stage may have the text of its box, and comes after it.
    *_, live = [node.id for node in picture.nodes if node.text == current]
    return f"{text}  classDef current {LIVE}\n  class {live} current\n"


@cache
def mermaid_of(picture: Picture) -> str:
    """*picture* as a Mermaid state diagram."""
    # The writer sets its title in front of the diagram: that is where Mermaid looks for settings.
    written = _sketch(picture).get_graph(title="config:\n  theme: neutral").source
    # An arrow without label must not end in a colon.
    lines = [re.sub(r"(-->.*): +$", r"\1", line).rstrip() for line in written.splitlines()]
    # `transitions` gives no class to a node in a box.
    lines += [f"  class {node.id} s_{node.kind}" for node in picture.nodes if node.inside]
    # A detail has too many words for its arrows, so each stands in the node where the arrow begins.
    if picture.name != OVERVIEW:
        lines += [f"  {arrow.source}: {_row(arrow, picture)}" for arrow in picture.arrows]
    return "\n".join([*lines, ""])


def _row(arrow: Arrow, picture: Picture) -> str:
    stays = arrow.source == arrow.target
    goal = "stays" if stays else f"\N{RIGHTWARDS ARROW} {picture.node(arrow.target).text}"
    # A colon or a semicolon would end the line for Mermaid.
    why = arrow.why.replace(";", "#59;").replace(":", "#58;")
    return f"{arrow.event} {goal} ({why})" if why else f"{arrow.event} {goal}"


def _sketch(picture: Picture) -> NestedGraph:
    """*picture* in the hands of the Mermaid writer of `transitions`."""
    # The library costs more than all else that draws, and an SVG needs nothing of it.
    from transitions.extensions.diagrams_mermaid import NestedGraph  # noqa: PLC0415  # see above
    from transitions.extensions.nesting import NestedState  # noqa: PLC0415  # as above

    whole = picture.name == OVERVIEW
    states: dict[str, dict[str, Any]] = {}
    for node in picture.nodes:
        # The writer puts the id of the box in front of the name of each node in it.
        states[node.id] = {"name": node.id.removeprefix(f"{node.inside}_"), "label": node.text}
        if node.inside:
            states[node.inside].setdefault("children", []).append(states.pop(node.id))
    arrows = [
        # An arrow without any label is left out, so a blank stands for none.
        {
            "source": start,
            "dest": end,
            "trigger": "<br/>".join([one.event for one in bundle] if whole else " "),
        }
        for (start, end), bundle in picture.bundles.items()
        if start != end
    ]
    looks = {
        str(kind): {"fill": fill, "stroke": line, "color": INK} for kind, (fill, line) in NODE_LOOKS.items()
    }
    # In place of a machine of `transitions`: that would list arrows by event, and then more of them cross.
    machine = SimpleNamespace(
        get_markup_config=lambda: {"states": [*states.values()], "transitions": arrows},
        machine_attributes={"rankdir": "TB" if whole else "LR"},
        style_attributes={"node": looks},
        initial=picture.start,
        state_cls=NestedState,
        show_state_attributes=False,
        show_conditions=False,
    )
    graph = NestedGraph(machine)
    graph.custom_styles["node"].update({node.id: str(node.kind) for node in picture.nodes})
    return graph
