"""What was used, as a person reads it: turns, tokens, money, time."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from ...effects.usage import Spent
from .call_summary import duration, number

MIN_SHOWN_DOLLARS = Decimal("0.0001")
"""US dollars that are told; what is less is told as that."""


def money(spent: Spent) -> str:
    """What *spent* cost, as far as prices are known; what has none is told in tokens."""
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
    """What a run used, fact by fact."""
    usage = spent.usage
    cached = f" ({usage.cached:,} cached)" if usage.cached else ""
    yield number(spent.turns, "turn")
    yield f"{usage.input:,} tokens in{cached}, {usage.output:,} out"
    yield money(spent)
    yield f"{spent.seconds:.1f} s active"


def brief(spent: Spent) -> Iterator[str]:
    """The same of a child, which is part of its parent's bill, in fewer words."""
    yield number(spent.turns, "turn")
    yield number(spent.usage.total, "token")
    yield money(spent)
    if spent.seconds:
        yield duration(spent.seconds)


def cell(spent: Spent) -> str:
    """The cost of *spent* in a table, where a question mark stands for what has no price."""
    if not spent.unpriced:
        return _dollars(spent.cost)
    return f"{_dollars(spent.cost)} + ?" if spent.cost else "?"


def figures(spent: Spent) -> dict[str, object]:
    """*spent* as plain data: tokens, of which those *unpriced* are not in the cost, and active seconds."""
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
