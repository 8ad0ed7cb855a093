"""The table as a machine of the library `transitions`, for its graphs and its markup, and to run it there."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ..states.table import TABLE
from .picture import LABELS, check_label

if TYPE_CHECKING:
    from transitions import EventData
    from transitions.extensions import HierarchicalGraphMachine


def hierarchical_machine(initial: str = LABELS[0]) -> HierarchicalGraphMachine:
    """
    The table as a machine of `transitions` in the state *initial*: states with stages, events as triggers.

    Its names are those of the table: ``machine.state`` is ``"thinking.go"``, and
    ``machine.trigger("ModelFinished", target="executing")`` returns whether a row leads there. Without
    *target* the first row is taken, since only a handler knows which of several applies. An event without a
    row in a state raises `transitions.MachineError`, one that is ignored there, too. `get_graph().source` is
    Mermaid, and `markup` plain data.

    Raises `ConfigError` where no row of the table has the label *initial*.
    """
    # The library takes longer to import than all else that draws.
    from transitions.extensions import HierarchicalGraphMachine  # noqa: PLC0415  # see above
    from transitions.extensions.nesting import NestedState  # noqa: PLC0415  # as above

    class LabelledState(NestedState):
        separator = "."

    class TableMachine(HierarchicalGraphMachine):
        state_cls = LabelledState

    check_label(initial)
    stages: dict[str, list[str]] = {}
    for label in LABELS:
        state, _, stage = label.partition(".")
        stages.setdefault(state, []).extend([stage] if stage else [])
    return TableMachine(
        states=[{"name": state, "children": names} for state, names in stages.items()],
        initial=initial,
        transitions=[
            {
                "trigger": row.event.__name__,
                "source": row.state,
                "dest": row.target,
                # A stage would have the rows of its state, too.
                "conditions": [partial(_is_at, row.state), partial(_may_go, row.target)],
            }
            for row in TABLE
        ],
        auto_transitions=False,
        send_event=True,
        graph_engine="mermaid",
        show_conditions=False,
    )


def _is_at(label: str, event: EventData) -> bool:
    model: Any = event.model
    return bool(model.state == label)


def _may_go(target: str, event: EventData) -> bool:
    return bool(event.kwargs.get("target", target) == target)
