"""What a played model does over and over: mostly nothing; or it is stuck, goes in circles, or reads on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, final

import attrs

from provers.choices import (
    Choices,
    chance,
    pick,
    weighted,
)
from turnwheel.effects.config import ToolKind
from turnwheel.effects.history import CallPiece, Piece

if TYPE_CHECKING:
    from turnwheel.effects.config import Config


@final
@attrs.frozen
class Habit:
    """
    *calls* are made over and over, one after the other: a tool and its arguments each, or there are none.

    *fails* is how likely an answer fails, where one that calls has 82.
    """

    calls: tuple[tuple[str, str], ...] = ()
    fails: int = 8

    def again(self, choices: Choices) -> tuple[Piece, ...]:
        """Some of the calls, mostly one or all of them."""
        count = weighted(choices, {1: 50, len(self.calls): 35, 2 * len(self.calls): 15})
        first = choices.below(len(self.calls)) if count == 1 else 0
        made = [self.calls[(first + index) % len(self.calls)] for index in range(count)]
        return tuple([CallPiece(index, "", tool, given) for index, (tool, given) in enumerate(made)])


def habit(choices: Choices, config: Config) -> Habit:
    """The habit of a model that is played under *config*; some are not to be relied on."""
    return Habit(_calls(choices, config), weighted(choices, {8: 75, 60: 25}) if config.models else 8)


def _calls(choices: Choices, config: Config) -> tuple[tuple[str, str], ...]:
    tools = [tool.name for tool in config.tools if tool.kind is ToolKind.FUNCTION]
    looked_for = 0 if config.loops.off else 40
    weights = {"none": 64 - looked_for, "stuck": 10, "circles": 10, "pages": 8, "nearly": 8}
    kind = weighted(choices, weights)
    if kind == "none" or not tools:
        return ()
    if kind in {"pages", "nearly"}:
        name = "offset" if kind == "pages" else "pattern"
        values = range(0, 90, 10) if kind == "pages" else "abcdefghi"
        return tuple([("look", json.dumps({"path": "a.txt", name: value})) for value in values])
    if kind == "stuck":
        return ((pick(choices, tools), _path(choices)),)
    return tuple([(pick(choices, tools), _path(choices)) for _ in range(2 + choices.below(2))])


def _path(choices: Choices) -> str:
    """Mostly what fits; else a call that fails each time."""
    return "{}" if chance(choices, 20) else json.dumps({"path": pick(choices, ("a.txt", "b.txt"))})
