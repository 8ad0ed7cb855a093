"""Pictures as Mermaid text, which GitHub and notebooks draw in place. The library `transitions` writes it."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, final

from transitions.extensions.diagrams import HierarchicalGraphMachine

from ..effects.errors import ConfigError
from .drawing import INK, NODE_LOOKS
from .picture import LABELS, OVERVIEW, overview

if TYPE_CHECKING:
    from transitions.extensions.markup import MarkupConfig

    from .picture import Arrow, Node, Picture

LIVE = "fill:#c8445a,stroke:#8a2338,color:#ffffff,stroke-width:3px"
"""The one loud look, for the stage where a session is."""


def mermaid(current: str | None = None) -> str:
    """
    The whole machine as Mermaid text, in which the label *current* stands out.

    Raises `ConfigError` where no row of the table has that label.
    """
    text, ids = _overview()
    if current is None:
        return text
    if current not in LABELS:
        msg = f"no state {current!r} in the table; there are {', '.join(LABELS)}"
        raise ConfigError(msg)
    return f"{text}  classDef current {LIVE}\n  class {ids[current]} current\n"


@cache
def _overview() -> tuple[str, dict[str, str]]:
    picture = overview()
    # A stage may have the text of its box. It comes after the box, so the id of the stage stays.
    return mermaid_of(picture), {node.text: node.id for node in picture.nodes}


def mermaid_of(picture: Picture) -> str:
    """*picture* as a Mermaid state diagram."""
    # An arrow without label must not end in a colon.
    lines = [re.sub(r"(-->.*): +$", r"\1", line).rstrip() for line in _Sketch(picture).written().splitlines()]
    # `transitions` gives no class to a node in a box.
    lines += [f"  class {node.id} s_{node.kind}" for node in picture.nodes if node.inside]
    # A detail has too many words for its arrows, so each stands in the node where the arrow begins.
    if picture.name != OVERVIEW:
        lines += [f"  {arrow.source}: {_row(arrow, picture)}" for arrow in picture.arrows]
    return "\n".join([*lines, ""])


def _row(arrow: Arrow, picture: Picture) -> str:
    goal = (
        "stays" if arrow.source == arrow.target else f"\N{RIGHTWARDS ARROW} {picture.node(arrow.target).text}"
    )
    # A colon or a semicolon would end the line for Mermaid.
    why = arrow.why.replace(";", "#59;").replace(":", "#58;")
    return f"{arrow.event} {goal} ({why})" if why else f"{arrow.event} {goal}"


@final
class _Sketch(HierarchicalGraphMachine):
    """*picture* in the form in which `transitions` hands a machine to its Mermaid writer."""

    def __init__(self, picture: Picture) -> None:
        super().__init__(model=None, initial=picture.start or None, graph_engine="mermaid")
        self.picture = picture
        self.machine_attributes = {"rankdir": "TB" if picture.name == OVERVIEW else "LR"}
        self.style_attributes = {
            "node": {
                str(kind): {"fill": look.fill, "stroke": look.line, "color": INK}
                for kind, look in NODE_LOOKS.items()
            }
        }

    def written(self) -> str:
        """The Mermaid text."""
        graph = self.graph_cls(self)
        for node in self.picture.nodes:
            graph.set_node_style(node.id, str(node.kind))
        # The writer sets its title in front of the diagram: that is where Mermaid looks for settings.
        return graph.get_graph(title="config:\n  theme: neutral").draw(None) or ""

    def get_markup_config(self) -> MarkupConfig:
        """
        The nodes and arrows, in the order of the table.

        A machine of `transitions` would list arrows by event, and then more of them cross.
        """
        nodes, bundles = self.picture.nodes, self.picture.bundles
        return {
            **super().get_markup_config(),
            "states": [self._state(node) for node in nodes if not node.inside],
            "transitions": [
                {"source": source, "dest": target, "trigger": self._label(arrows)}
                for (source, target), arrows in bundles.items()
                if source != target
            ],
        }

    def _label(self, arrows: tuple[Arrow, ...]) -> str:
        # An arrow without any label is left out, so a blank stands for none.
        return "<br/>".join([arrow.event for arrow in arrows]) if self.picture.name == OVERVIEW else " "

    def _state(self, node: Node) -> dict[str, Any]:
        # The writer puts the id of the box in front of the name of each node in it.
        inner = [
            {"name": stage.id.removeprefix(f"{node.id}_"), "label": stage.text}
            for stage in self.picture.nodes
            if stage.inside == node.id
        ]
        return {"name": node.id, "label": node.text} | ({"children": inner} if inner else {})
