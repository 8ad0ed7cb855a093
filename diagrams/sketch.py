"""A picture handed to `transitions`, which knows how a machine is written down for Mermaid and Graphviz."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, final

from transitions.extensions.diagrams import GraphMachine, HierarchicalGraphMachine
from transitions.extensions.nesting import NestedState

from .picture import EVENTS

if TYPE_CHECKING:
    from transitions.extensions.diagrams_base import GraphProtocol

    from .picture import Picture, Place


@final
class _Labelled(NestedState):
    """A state that is drawn under another name than it is known by: ids cannot have dots."""

    def __init__(self, name: str, label: str = "", *, ignore_invalid_triggers: bool = False) -> None:
        super().__init__(name, ignore_invalid_triggers=ignore_invalid_triggers)
        self.label = label


@final
class _Flat(GraphMachine):
    state_cls = _Labelled


@final
class _Nested(HierarchicalGraphMachine):
    state_cls = _Labelled


def sketch(
    picture: Picture, engine: Literal["mermaid", "pygraphviz"], style: dict[str, Any], **settings: str
) -> GraphProtocol:
    """
    *picture* as a graph of *engine*, with *settings* for the graph as a whole.

    *style* has, by `node` and `edge`, named groups of what *engine* calls the attributes of either.
    """
    nested = any(place.inside for place in picture.places)
    machine = (_Nested if nested else _Flat)(
        model=None,
        states=[_state(place, picture) for place in picture.places if not place.inside],
        initial=picture.start or None,
        auto_transitions=False,
        graph_engine=engine,
    )
    # What stands at one arrow is listed in the order in which its events were first heard of.
    for arrow in sorted(picture.arrows, key=lambda arrow: EVENTS.index(arrow.event)):
        if not arrow.stays:
            machine.add_transition(arrow.event, arrow.source, arrow.target)
    machine.machine_attributes = settings
    machine.style_attributes = style
    graph = machine.graph_cls(machine)
    for place in picture.places:
        graph.set_node_style(place.id, str(place.kind))
    # For Mermaid, what is called title is all that stands in front of the diagram.
    return graph.get_graph(title="config:\n  theme: neutral" if engine == "mermaid" else None)


def _state(place: Place, picture: Picture) -> dict[str, Any]:
    # To the name of a nested state `transitions` adds that of its box.
    children = [
        {"name": inner.id.removeprefix(f"{place.id}_"), "label": inner.text}
        for inner in picture.places
        if inner.inside == place.id
    ]
    known = {"name": place.id, "label": place.text}
    return {**known, "children": children} if children else known
