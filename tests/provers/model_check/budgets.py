"""
The small worlds in which turns, tokens, money or time run out: in a run, or in what its session has left.

Each answer uses up all there is, or what it leaves is less than the next one takes, so that one call too many
is one that the books see.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import attrs

from provers.model_check.worlds import (
    FULL,
    LONG,
    World,
    settings,
)
from turnwheel.effects.config import ChildSpec, Concurrency, Limits, ModelSpec, Price
from turnwheel.effects.usage import Spent, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

PRICED = ModelSpec(name="wire:model", price=Price(input="10", output="10"))

ANSWER = Spent(turns=1, usage=Usage(input=150, output=150), cost=Decimal("0.003"), seconds=2.0)
"""What an answer uses, but for its seconds; and what a session had spent that has a past."""

ONE = {
    "a turn": Limits(turns=1),
    "300 tokens": Limits(tokens=300),
    "0.003 USD": Limits(usd=Decimal("0.003")),
}
"""Enough for one answer."""

TWO = {
    "2 turns": Limits(turns=2),
    "600 tokens": Limits(tokens=600),
    "0.006 USD": Limits(usd=Decimal("0.006")),
}
"""Enough for two."""

LEFT = {
    "3 turns": Limits(turns=3),
    "750 tokens": Limits(tokens=750),
    "0.0075 USD": Limits(usd=Decimal("0.0075")),
    "5 s": Limits(seconds=5.0),
}
"""Enough for an answer and most of a child in a session with a past."""

KIDS = (ChildSpec(name="kid", limits=Limits(tokens=300, usd=Decimal("0.003"), seconds=4.0)),)
"""A child that wants more than is left."""


def budgets() -> Iterator[World]:
    """Those with one answer, with two, with a summary, and with a child in a session that has a past."""
    config = attrs.evolve(settings(Concurrency.PARALLEL_READS), model=PRICED, children=KIDS)
    for name, limits in ONE.items():
        little = attrs.evolve(config, limits=limits)
        yield World(name=f"a run of {name}", config=little, calls=("look",), used=ANSWER.usage)
    for name, limits in TWO.items():
        more = attrs.evolve(config, limits=limits)
        yield World(
            name=f"a run of {name}", config=more, calls=("look",), more=(("note",),), used=ANSWER.usage
        )
    for name, limits in LEFT.items():
        yield World(
            name=f"a session of {name}, some of which are gone",
            config=attrs.evolve(config, session_limits=limits),
            calls=("look", "ranger"),
            more=(("look",),),
            hired=Spent(usage=Usage(input=30, output=15), cost=Decimal("0.00045")),
            used=ANSWER.usage,
            earlier=ANSWER,
        )
    narrow = attrs.evolve(config, model=attrs.evolve(PRICED, window=150), limits=Limits(turns=1))
    yield World(name="a summary and one turn", config=narrow, calls=("look",), prompt=LONG, used=FULL)
