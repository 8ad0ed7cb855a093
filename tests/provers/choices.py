"""
Where a player's decisions come from: one small protocol, so that a seed and Hypothesis drive the same player.

The first of several options is the simplest one, to which a shrinking source goes back.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Protocol, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

T = TypeVar("T")


class Choices(Protocol):
    """A source of decisions."""

    def below(self, bound: int) -> int:
        """A number from 0 to *bound* - 1; 0 is the simplest."""
        ...


@final
class Seeded:
    """Decisions that a *seed* determines."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # it plays, and keeps no secret

    def below(self, bound: int) -> int:
        """A number from 0 to *bound* - 1."""
        return int(self._random.random() * bound)


def pick(choices: Choices, options: Sequence[T]) -> T:
    """One of *options*, each as likely as the others."""
    return options[choices.below(len(options))]


def weighted(choices: Choices, options: Mapping[T, int]) -> T:
    """One of *options*, each as likely as its number says."""
    left = choices.below(sum(options.values()))
    for option, weight in options.items():
        if left < weight:
            return option
        left -= weight
    msg = f"a choice outside of {dict(options)!r}"
    raise ValueError(msg)


def chance(choices: Choices, percent: int) -> bool:
    """True in *percent* of a hundred cases; False is the simplest."""
    return choices.below(100) >= 100 - percent
