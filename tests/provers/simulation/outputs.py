"""The output that a played run is to come to, and what a played model gives for it: mostly the right one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import attrs

from provers.choices import Choices, chance, pick, weighted
from provers.simulation.replies import Speech
from turnwheel.effects.history import CallPiece, Piece, TextPiece
from turnwheel.effects.messages import StopReason
from turnwheel.effects.output import OutputMode, OutputSpec

if TYPE_CHECKING:
    from turnwheel.effects.requests import CallModel

SCHEMA = """{
    "type": "object",
    "properties": {"value": {"type": "integer", "minimum": 0}, "unit": {"type": "string"}},
    "required": ["value"],
    "additionalProperties": false
}"""
OUTPUT = OutputSpec(schema=SCHEMA, description="a length", decoded=True)
"""An output that is asked for by words, and on which a class has the last word."""

BY_TOOL = attrs.evolve(OUTPUT, mode=OutputMode.TOOL)
RIGHT = '{"value": 7}'

HARMLESS = {
    "ranger": {"agent": "kid", "prompt": "go"},
    "look": {"path": "a.txt"},
    "note": {"path": "a.txt"},
}
"""Calls that mostly end well, by the name of the tool."""

GIVEN = {
    RIGHT: 60,
    '{"value": 3.0, "unit": null}': 8,
    f"```json\n{RIGHT}\n```": 8,
    '{"value": -1}': 6,
    '{"value": "7"}': 5,
    '{"value": 7, "more": 1}': 4,
    '{"value": 7': 4,
    "": 3,
    "[7]": 2,
}
"""What a model gives for an output, and how often."""


def spec(choices: Choices) -> OutputSpec:
    """Any output: each model may be asked in another way."""
    modes = tuple(OutputMode)
    return attrs.evolve(
        OUTPUT,
        mode=weighted(choices, {OutputMode.TOOL: 60, OutputMode.PROMPTED: 20, OutputMode.NATIVE: 20}),
        modes=(("wire:spare", modes[choices.below(len(modes))]),) if chance(choices, 30) else (),
        decoded=chance(choices, 70),
    )


def right(text: str) -> bool:
    """Whether *text* is an output by `SCHEMA`, judged without any code of turnwheel's."""
    bare = text.strip().removeprefix("```json").removesuffix("```").strip()
    try:
        given = json.loads(bare)
    except ValueError:
        return False
    if not isinstance(given, dict) or not {"value"} <= given.keys() <= {"value", "unit"}:
        return False
    value, unit = given["value"], given.get("unit")
    whole = isinstance(value, int | float) and not isinstance(value, bool) and value == int(value) >= 0
    return whole and (unit is None or isinstance(unit, str))


def _good(choices: Choices, request: CallModel) -> list[CallPiece]:
    """Calls that mostly end well: output is taken beside no others."""
    there = [name for name in HARMLESS if name in request.tools]
    names = [pick(choices, there) for _ in range(1 + choices.below(2))] if there else []
    return [CallPiece(0, "", name, json.dumps(HARMLESS[name])) for name in names]


def last_words(choices: Choices, request: CallModel) -> Speech:
    """An answer that ends a run, where nobody is still to be heard: a right output, where one is wanted."""
    if request.output is not OutputMode.TOOL:
        return Speech(pieces=(TextPiece("that is all" if request.output is None else RIGHT),))
    beside = pick(choices, ([], ["look", "note"], ["ranger", "ranger"], ["ranger", "look"]))
    wishes = [(name, json.dumps(HARMLESS[name])) for name in beside if name in request.tools]
    calls = [CallPiece(index, "", *wish) for index, wish in enumerate([*wishes, ("output", RIGHT)])]
    return Speech(pieces=tuple(calls), stop=StopReason.TOOL_USE)


def with_output(choices: Choices, said: Speech, request: CallModel) -> Speech:
    """*said*, or instead of it or beside it an output."""
    if request.output is None or said.failure is not None or chance(choices, 45):
        return said
    calls = [piece for piece in said.pieces if isinstance(piece, CallPiece)]
    given = weighted(choices, GIVEN)
    if "output" not in request.tools:
        if calls:
            return said
        return attrs.evolve(said, pieces=(TextPiece(given),))
    count = weighted(choices, {1: 85, 2: 15})
    kept: list[Piece] = [piece for piece in said.pieces if not isinstance(piece, CallPiece)]
    beside = weighted(choices, {"none": 20, "some": 30, "all": 20, "good": 30})
    others = {"none": [], "some": calls[: 1 + choices.below(2)], "all": calls}.get(
        beside, _good(choices, request)
    )
    wishes = [*others, *[CallPiece(0, "", "output", weighted(choices, GIVEN)) for _ in range(count)]]
    if chance(choices, 30):
        wishes.reverse()
    for index, wish in enumerate(wishes):
        kept.append(CallPiece(index, wish.wire_id, wish.name, wish.arguments))
    return attrs.evolve(said, pieces=tuple(kept), stop=StopReason.TOOL_USE)
