"""What was used: tokens, money and active time."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import final

import attrs

from .config import Price

# Prices are per this many tokens.
PER = Decimal(1_000_000)


@final
@attrs.frozen(kw_only=True)
class Usage:
    """
    Tokens of one or many model calls.

    *cached* and *cache_write* are part of *input*, *reasoning* of *output*. *estimated* says how many of
    them were guessed because a stream was cut before it told.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0
    estimated: int = 0

    def __attrs_post_init__(self) -> None:
        # All at once: accounts are added up several times in each round, and next to none is wrong.
        if min(self.input, self.output, self.cached, self.cache_write, self.reasoning, self.estimated) >= 0:
            return
        for name in _COUNTS:
            if getattr(self, name) < 0:
                msg = f"Usage.{name} must not be negative; got {getattr(self, name)!r}"
                raise ValueError(msg)

    @property
    def total(self) -> int:
        """Input and output tokens."""
        return self.input + self.output

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cached=self.cached + other.cached,
            cache_write=self.cache_write + other.cache_write,
            reasoning=self.reasoning + other.reasoning,
            estimated=self.estimated + other.estimated,
        )

    def __sub__(self, other: Usage) -> Usage:
        return Usage(**{name: getattr(self, name) - getattr(other, name) for name in _COUNTS})


_COUNTS = tuple([field.name for field in attrs.fields(Usage)])


@final
@attrs.frozen(kw_only=True)
class Spent:
    """
    The account of a run: *turns* completed model responses, *cost* in USD, *seconds* of active time.

    *unpriced* is how many tokens no price was known for: their cost is not in *cost*.
    """

    turns: int = 0
    usage: Usage = Usage()
    cost: Decimal = Decimal(0)
    seconds: float = 0.0
    unpriced: int = 0

    @property
    def known_cost(self) -> Decimal | None:
        """The cost in USD; None where some tokens have no price."""
        return None if self.unpriced else self.cost

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            turns=self.turns + other.turns,
            usage=self.usage + other.usage,
            cost=self.cost + other.cost,
            seconds=self.seconds + other.seconds,
            unpriced=self.unpriced + other.unpriced,
        )

    def __sub__(self, other: Spent) -> Spent:
        return Spent(
            turns=self.turns - other.turns,
            usage=self.usage - other.usage,
            cost=self.cost - other.cost,
            seconds=max(0.0, self.seconds - other.seconds),  # what is left of nothing may be a little less
            unpriced=self.unpriced - other.unpriced,
        )


def cost(usage: Usage, price: Price | None) -> Decimal:
    """The cost of *usage* in USD at *price*; nothing where no price is known."""
    if price is None:
        return Decimal(0)
    cached = price.input if price.cached is None else price.cached
    write = price.input if price.cache_write is None else price.cache_write
    # A provider that tells more cached tokens than it read does not pay us.
    plain = max(0, usage.input - usage.cached - usage.cache_write)
    thought = min(usage.reasoning, usage.output)
    reasoning = price.output if price.reasoning is None else price.reasoning
    return (
        plain * price.input
        + usage.cached * cached
        + usage.cache_write * write
        + (usage.output - thought) * price.output
        + thought * reasoning
    ) / PER


class CacheMissReason(StrEnum):
    """What changed in the beginning of a prompt that the provider had in its cache."""

    SYSTEM = "system"
    TOOLS = "tools"
    SETTINGS = "settings"
    # The conversation was summarised, so the messages are others.
    COMPACTED = "compacted"
    # Old tool results are left out from here on.
    CLEARED = "cleared"
    # The prompt begins as the one before: the provider lost it, or did not look.
    UNCHANGED = "unchanged"
