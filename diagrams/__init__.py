"""
What draws the machine: Mermaid and SVG pictures and the page on the states, all from the one table.

`mermaid()` is the picture for a notebook; `python -m turnwheel.diagrams` writes the committed ones.
"""

from .text import mermaid

__all__ = ["mermaid"]
