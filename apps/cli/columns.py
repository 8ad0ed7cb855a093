"""Rows in columns: as wide as they need, the last one as wide as there is room."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.cells import cell_len, set_cell_size

from ..terminal.sanitize import one_line
from ..terminal.screen import Screen

GAP = "  "
"""Between two columns."""

MIN_LAST_COLUMN = 8
"""Columns of the last one at the least."""


def show(
    headings: Sequence[str], rows: Sequence[Sequence[str]], screen: Screen, numbers: Collection[str] = ()
) -> None:
    """
    Write *rows*, of which each has a cell below each of *headings*; those of *numbers* are flush right.

    A pipe gets no headings. Cells but the last are shown whole, and have been cleaned.
    """
    cells = [*([headings] if screen.is_terminal else []), *rows]
    if not cells:
        return
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)][:-1]
    room = max(MIN_LAST_COLUMN, screen.width - sum(widths) - len(GAP) * len(widths))
    for row in cells:
        padded = [
            " " * (width - cell_len(cell)) + cell if heading in numbers else set_cell_size(cell, width)
            for heading, cell, width in zip(headings, row, widths, strict=False)
        ]
        line = GAP.join([*padded, one_line(row[-1], room)]).rstrip()
        screen.line(line, "dim" if row is headings else "")
