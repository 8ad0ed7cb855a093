"""Format spend for a person: turns, tokens, money and time."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from ...effects.usage import Spent
from .call_summary import duration, number

MIN_SHOWN_DOLLARS = Decimal("0.0001")
"""The smallest cost in US dollars that is shown as a number."""


def money(spent: Spent) -> str:
    """The cost of *spent*, as far as prices are known; the rest in tokens."""
    if spent.unpriced and not spent.cost and spent.unpriced >= spent.usage.total:
        return "no price known"
    return f"{_dollars(spent.cost)}{_unpriced(spent)}"


def _dollars(cost: Decimal) -> str:
    if not cost:
        return "$0"
    return f"${cost:,.4f}" if cost >= MIN_SHOWN_DOLLARS else f"<${MIN_SHOWN_DOLLARS}"


def _unpriced(spent: Spent) -> str:
    return f" + {number(spent.unpriced, 'token')} without a price" if spent.unpriced else ""


def bill(spent: Spent) -> Iterator[str]:
    """The spend of a run, fact by fact."""
    usage = spent.usage
    cached = f" ({usage.cached:,} cached)" if usage.cached else ""
    if spent.turns:  # a turn that was interrupted is not counted
        yield number(spent.turns, "turn")
    yield f"{usage.input:,} tokens in{cached}, {usage.output:,} out"
    yield money(spent)
    yield f"{spent.seconds:.1f} s active"


def brief(spent: Spent) -> Iterator[str]:
    """The spend of a child in fewer words, since it is part of its parent's."""
    if spent.turns:
        yield number(spent.turns, "turn")
    yield number(spent.usage.total, "token")
    yield money(spent)
    if spent.seconds:
        yield duration(spent.seconds)


def cell(spent: Spent) -> str:
    """The cost of *spent* in a table; a question mark stands for tokens without a price."""
    if not spent.unpriced:
        return _dollars(spent.cost)
    return f"{_dollars(spent.cost)} + ?" if spent.cost else "?"


def figures(spent: Spent) -> dict[str, object]:
    """*spent* as JSON data; *unpriced_tokens* are not in the cost, seconds are active ones."""
    usage = spent.usage
    return {
        "turns": spent.turns,
        "tokens": usage.total,
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "cached_tokens": usage.cached,
        "cache_write_tokens": usage.cache_write,
        "reasoning_tokens": usage.reasoning,
        "estimated_tokens": usage.estimated,
        "unpriced_tokens": spent.unpriced,
        "cost_usd": float(spent.cost),
        "seconds": spent.seconds,
    }
