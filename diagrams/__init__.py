"""
Pictures of the machine, all from its table.

`chart()` is the whole machine with a state lit and the path of a session marked. `mermaid()` is the same as
text without a path, and `svg_of()` draws each of `pictures()`. The command `python -m turnwheel.diagrams`
writes the committed ones, and the pages on states and controls.
"""

from __future__ import annotations

from ..lazy import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
