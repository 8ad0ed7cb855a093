"""`turnwheel usage`: print the cost of a session, by model, title and child."""

from __future__ import annotations

from collections.abc import Iterator

from ....effects.usage import Spent
from ....engine.inspect.costs import Costs
from ...terminal.call_summary import duration
from ...terminal.sanitize import clean, one_line
from ...terminal.screen import INDENT, Screen
from ...terminal.spend_format import figures, money
from .columns import id_cell, show

USAGE_HEADINGS = ("account", "turns", "in", "cached", "out", "active", "cost")

USAGE_NUMBERS = USAGE_HEADINGS[1:-1]
"""The right-aligned columns."""

ACCOUNT_TITLE_WIDTH = 40
"""Columns of a session's title, at most."""

NARROW_TITLE_WIDTH = 10
"""Its columns where the terminal has few."""

BESIDE_TITLE = 60
"""Columns that the id and the numbers of most sessions take."""

UsageRow = tuple[str, ...]


def listing(report: Costs, screen: Screen) -> None:
    """Print *report* in columns, with a line for each model without a price."""
    show(USAGE_HEADINGS, list(_rows(report, 0, screen)), screen, USAGE_NUMBERS)
    for model in report.unpriced:
        screen.say(f"no price was known for {model}: its cost is not included", "warning")


def _rows(report: Costs, depth: int, screen: Screen) -> Iterator[UsageRow]:
    """The row of the session, which is the sum of the indented rows below it."""
    room = max(NARROW_TITLE_WIDTH, screen.width - BESIDE_TITLE) if screen.is_terminal else ACCOUNT_TITLE_WIDTH
    about = report.agent or one_line(report.title, min(ACCOUNT_TITLE_WIDTH, room))
    yield _row(f"{id_cell(report.session, screen)}  {clean(about)}".rstrip(), depth, report.total)
    for share in report.models:
        yield _row(clean(share.model), depth + 1, share.spent)
    tools = report.own.seconds - sum(share.spent.seconds for share in report.models)
    # A tool takes more than a microsecond. What is left of a sum of floats is less, and no tool.
    if round(tools, 6) > 0:
        yield _row("tools", depth + 1, Spent(seconds=tools))
    if report.title_spent != Spent():
        yield _row("title", depth + 1, report.title_spent)
    for child in report.children:
        yield from _rows(child, depth + 1, screen)


def _row(name: str, depth: int, spent: Spent) -> UsageRow:
    """The cells of a row; a count of zero stays empty, such as the turns of a title."""
    usage = spent.usage
    counts = (spent.turns, usage.input, usage.cached, usage.output)
    active = duration(spent.seconds) if spent.seconds else ""
    cost = money(spent) if usage.total else ""
    return (INDENT * depth + name, *[f"{count:,}" if count else "" for count in counts], active, cost)


def as_plain(report: Costs) -> dict[str, object]:
    """*report* as JSON data; *total* is the sum of *own*, *title_spent* and the totals of *children*."""
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
