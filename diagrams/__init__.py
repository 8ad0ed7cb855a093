"""
Pictures of the machine, all from its table.

`chart()` is the whole machine with a state lit and the path of a session marked. `mermaid()` is the same as
text without a path, and `svg_of()` draws each of `pictures()`. The command `python -m turnwheel.diagrams`
writes the committed ones, and the pages on states and controls.
"""

from .drawing import svg_of as svg_of
from .machine_chart import chart as chart
from .pages import controls_page as controls_page, states_page as states_page
from .picture import (
    Arrow as Arrow,
    Node as Node,
    NodeKind as NodeKind,
    Picture as Picture,
    detail as detail,
    overview as overview,
    pictures as pictures,
)
from .text import mermaid as mermaid, mermaid_of as mermaid_of
from .timeline import Party as Party, Said as Said, Took as Took, calls as calls, sequence as sequence
