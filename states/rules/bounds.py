"""The bounds that a JSON Schema sets to a value: the range of a number, the length of a text."""

# Bounds that are no numbers are not checked, as other keywords that are not known: the tool's own decoder has
# the last word. No pattern is run: the text comes from a model, the pattern may come from a server of tools,
# and the two could take a transition for ever. JSON Schema has the dialect of JavaScript besides.

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard

from ...effects.secrets import PLACEHOLDER_MARK, Json

# Keyword: the comparison of a number with the bound, and its words.
_NUMBER_BOUNDS: dict[str, tuple[Callable[[float, float], bool], str]] = {
    "minimum": (lambda value, bound: value >= bound, "at least"),
    "maximum": (lambda value, bound: value <= bound, "at most"),
    "exclusiveMinimum": (lambda value, bound: value > bound, "more than"),
    "exclusiveMaximum": (lambda value, bound: value < bound, "less than"),
}
# Type of the value: the keywords of its least and its greatest length, and the unit: one of it, several.
_LENGTH_BOUNDS: dict[type, tuple[str, str, str, str]] = {
    str: ("minLength", "maxLength", "character", "characters"),
    list: ("minItems", "maxItems", "item", "items"),
    dict: ("minProperties", "maxProperties", "property", "properties"),
}
# The keywords of this module.
BOUNDS = frozenset({*_NUMBER_BOUNDS, "multipleOf"}) | {
    keyword for least, most, _, _ in _LENGTH_BOUNDS.values() for keyword in (least, most)
}


def bound_problem(value: Json, schema: dict[str, Json]) -> str:
    """The bound of *schema* that *value* does not meet, such as "must be at least 1"; else empty."""
    match value:
        case None | bool():
            return ""
        case int() | float():
            return _number_problem(value, schema)
        # The secret that takes the place of a placeholder has another length.
        case str() if PLACEHOLDER_MARK in value:
            return ""
        case str():
            return _length_problem(value, schema)
        case _:
            return _length_problem(value, schema)


def _length_problem(value: str | list[Json] | dict[str, Json], schema: dict[str, Json]) -> str:
    least, most, unit, units = _LENGTH_BOUNDS[type(value)]
    if _is_number(bound := schema.get(least)) and len(value) < bound:
        return f"must have at least {bound} {unit if bound == 1 else units}"
    if _is_number(bound := schema.get(most)) and len(value) > bound:
        return f"must have at most {bound} {unit if bound == 1 else units}"
    return ""


def _is_number(bound: Json) -> TypeGuard[float]:
    return isinstance(bound, int | float) and not isinstance(bound, bool)


def _number_problem(value: float, schema: dict[str, Json]) -> str:
    for keyword, (meets, words) in _NUMBER_BOUNDS.items():
        if _is_number(bound := schema.get(keyword)) and not meets(value, bound):
            return f"must be {words} {bound}"
    factor = schema.get("multipleOf")
    # Of integers only: 0.3 is no multiple of 0.1 to a computer.
    if isinstance(factor, int) and isinstance(value, int) and factor > 0 and value % factor:
        return f"must be a multiple of {factor}"
    return ""
