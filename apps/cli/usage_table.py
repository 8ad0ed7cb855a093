"""`turnwheel usage`: the bill of a session, down to each model, its title and its children."""

from __future__ import annotations

from collections.abc import Iterator

from ...effects.usage import Spent
from ...engine.inspect.costs import Costs
from ..terminal.call_summary import took
from ..terminal.sanitize import clean, one_line
from ..terminal.screen import INDENT, Screen
from ..terminal.spend_format import figures, money
from .columns import show

HEADINGS = ("account", "turns", "in", "cached", "out", "active", "cost")

NUMBERS = HEADINGS[1:-1]
"""The columns of numbers."""

TITLE_WIDTH = 40
"""Columns of a session's title."""

Row = tuple[str, ...]


def listing(report: Costs, screen: Screen) -> None:
    """Write *report* in columns, and what is missing in it."""
    show(HEADINGS, list(_rows(report, 0)), screen, NUMBERS)
    for model in report.unpriced:
        screen.say(f"no price was known for {model}: what it cost is not in this bill", "yellow")


def _rows(report: Costs, depth: int) -> Iterator[Row]:
    """A row for the session, which is the sum of what stands below it, set in."""
    about = report.agent or one_line(report.title, TITLE_WIDTH)
    yield _row(clean(f"{report.session}  {about}").rstrip(), depth, report.total)
    for share in report.models:
        yield _row(clean(share.model), depth + 1, share.spent)
    tools = report.own.seconds - sum(share.spent.seconds for share in report.models)
    if round(tools, 3) > 0:
        yield _row("tools", depth + 1, Spent(seconds=tools))
    if report.title_spent != Spent():
        yield _row("title", depth + 1, report.title_spent)
    for child in report.children:
        yield from _rows(child, depth + 1)


def _row(name: str, depth: int, spent: Spent) -> Row:
    """Only what there is: a tool has its time, a title no turn."""
    usage = spent.usage
    counts = (spent.turns, usage.input, usage.cached, usage.output)
    active = took(spent.seconds) if spent.seconds else ""
    cost = money(spent) if usage.total else ""
    return (INDENT * depth + name, *[f"{count:,}" if count else "" for count in counts], active, cost)


def as_plain(report: Costs) -> dict[str, object]:
    """*report* as plain data; *total* is the sum of *own*, *title_spent* and the totals of *children*."""
    return {
        "session": report.session,
        "title": report.title,
        "agent": report.agent,
        "total": figures(report.total),
        "own": figures(report.own),
        "models": [{"model": share.model, **figures(share.spent)} for share in report.models],
        "title_spent": figures(report.title_spent),
        "unpriced_models": list(report.unpriced),
        "children": [as_plain(child) for child in report.children],
    }
