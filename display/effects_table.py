"""The effects of a step as a notebook shows them: a table of what is asked for, and the rest folded."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import islice
from typing import Final, final

from ..effects import Effect
from ..effects.notices import Notice
from ..effects.requests import Cancel, Request, orders_in
from ..states.rules.model_messages import count
from .notebook import CARD, LINES_SHOWN, folded_html, pre_html
from .rendering import line_of, printable

# Said at each cell: notebooks align the cells of their tables to the right.
CELL: Final = "text-align:left;vertical-align:top;padding:3px 16px 3px 0;white-space:pre-wrap"
# Kinds are words of ours; ids and texts of models may be long, and must not make the table wider.
WORD_CELL, LONG_CELL = f"{CELL};white-space:nowrap", f"{CELL};overflow-wrap:anywhere"
ID_CELL = f"{LONG_CELL};min-width:5em"


@final
class Effects(tuple[Effect, ...]):
    """
    The effects of a step. It is their tuple, and a notebook shows it as one table.

    Each request and each `Cancel` has a row. Records and notices are folded, unless there is nothing else.
    """

    __slots__ = ()

    def _repr_html_(self) -> str:  # pyright: ignore[reportUnusedFunction]  # notebooks call it
        orders = orders_in(self)
        rest = [effect for effect in self if not isinstance(effect, Request | Cancel)]
        parts = [_table(orders)] if orders else []
        if rest:
            lines = pre_html([line_of(effect) for effect in rest])
            parts.append(folded_html(_counted(rest), lines, is_open=not orders))
        return f'<div class="tw-card" style="{CARD}">{"".join(parts) or "<b>No effects</b>"}</div>'


def _counted(rest: Sequence[Effect]) -> str:
    """How many records and how many notices there are in *rest*."""
    notices = sum([isinstance(effect, Notice) for effect in rest])
    counts = ((len(rest) - notices, "record"), (notices, "notice"))
    return " and ".join([count(number, kind) for number, kind in counts if number])


def _table(orders: list[Request | Cancel]) -> str:
    rows = [_row(order) for order in islice(orders, LINES_SHOWN)]
    if (left_out := len(orders) - LINES_SHOWN) > 0:
        rows.append(f'<tr><td colspan="3" style="{CELL}">({left_out:,} more)</td></tr>')
    head = "".join([f'<th style="{WORD_CELL}">{name}</th>' for name in ("request", "id", "what")])
    style = "border-collapse:collapse;margin:0 0 4px;font-size:inherit"
    return f'<table style="{style}"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def _row(order: Request | Cancel) -> str:
    kind = type(order).__name__
    name = printable(order.request if isinstance(order, Cancel) else order.id)
    # The line of each has the kind and the id in front; that of a cancel has nothing else.
    what = line_of(order).removeprefix(kind).strip().removeprefix(name).strip() or "stop this request"
    cells = ((WORD_CELL, f"<b>{kind}</b>"), (ID_CELL, escape(name)), (LONG_CELL, escape(what)))
    columns = "".join([f'<td style="{style}">{text}</td>' for style, text in cells])
    return f"<tr>{columns}</tr>"
