"""
Pictures of the machine, all from its table.

`mermaid()` is the one for a notebook, and `svg_of()` draws each of `pictures()`. The command
`python -m turnwheel.diagrams` writes the committed ones, and the pages on states and controls.
"""

from .drawing import svg_of
from .pages import controls_page, states_page
from .picture import (
    Arrow,
    Node,
    NodeKind,
    Picture,
    detail,
    overview,
    pictures,
)
from .text import mermaid, mermaid_of

__all__ = [
    "Arrow",
    "Node",
    "NodeKind",
    "Picture",
    "controls_page",
    "detail",
    "mermaid",
    "mermaid_of",
    "overview",
    "pictures",
    "states_page",
    "svg_of",
]
