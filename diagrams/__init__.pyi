from .drawing import svg_of as svg_of
from .hierarchy import hierarchical_machine as hierarchical_machine
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
from .svg import SVG as SVG
from .text import mermaid as mermaid, mermaid_of as mermaid_of
from .timeline import Party as Party, Said as Said, Took as Took, calls as calls, sequence as sequence
