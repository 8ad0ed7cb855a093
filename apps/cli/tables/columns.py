"""Print rows in columns: each as wide as its cells, the last one as wide as the screen allows."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from rich.cells import cell_len, set_cell_size

from ...terminal.sanitize import one_line, whole_name
from ...terminal.screen import Screen

GAP = "  "
"""The space between two columns."""

WIDE = 120
"""Columns of a terminal from which on ids are shown whole."""

SHORT_ID = 8
"""Digits of an id that are shown else: commands take the beginning of an id, too."""

_GENERATED_ID = re.compile(r"[0-9a-f]{32}")

MIN_LAST_COLUMN = 8
"""The least width of the last column."""


def id_cell(session: str, screen: Screen) -> str:
    """The id *session* for a table: whole for a program and on a wide screen, else its beginning."""
    name = whole_name(session)
    if not screen.is_terminal or screen.width >= WIDE:
        return name
    return _GENERATED_ID.sub(lambda generated: generated[0][:SHORT_ID], name)


def show(
    headings: Sequence[str], rows: Sequence[Sequence[str]], screen: Screen, numbers: Collection[str] = ()
) -> None:
    """
    Print *rows*, with one cell for each of *headings*; the columns in *numbers* are right-aligned.

    A pipe gets no headings, since programs read it. All cells but the last are shown whole; they must be
    clean.
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
