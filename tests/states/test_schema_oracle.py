"""What is wrong with a value, and what another validator of JSON Schema says of it."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, strategies as st, target
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # its types are another package

from turnwheel.states.rules.schema import problem

Schema = dict[str, Any]

NAMES = ("a", "b", "c")
SCALARS = st.sampled_from([None, True, False, 0, 1, 2, -1, 3.0, 0.5, "", "a", "ab", "abc", "é"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=6,
)
FEW = st.integers(0, 3)
TYPES = st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null"])


def inside(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    """Schemas of what has others inside, or beside it for the same value."""
    several = st.lists(inner, min_size=1, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
            "properties": st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
            "required": st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
            "additionalProperties": st.booleans() | inner,
            "items": st.booleans() | inner,
            "prefixItems": several,
            "minProperties": FEW,
            "maxItems": FEW,
            "anyOf": several,
            "allOf": several,
            "$ref": st.sampled_from(["#/$defs/one", "#/$defs/two", "#/definitions/three", "#"]),
        },
    )


PLAIN = st.fixed_dictionaries(
    {},
    optional={
        "type": TYPES,
        "enum": st.lists(VALUES, min_size=1, max_size=3),
        "const": VALUES,
        "minimum": FEW,
        "exclusiveMaximum": FEW,
        "minLength": FEW,
        "maxLength": FEW,
        "minItems": FEW,
    },
)
SCHEMAS = st.recursive(PLAIN, inside, max_leaves=6)


@given(SCHEMAS, PLAIN, SCHEMAS, VALUES)
def test_a_value_is_wrong_where_another_validator_finds_it_wrong(
    schema: Schema, one: Schema, two: Schema, value: object
) -> None:
    """Siblings of references and unions, too; `oneOf` is read as `anyOf`, what is not known let through."""
    # A reference that leads back to itself for the same value has no answer.
    two = {key: each for key, each in two.items() if key not in {"$ref", "anyOf", "allOf"}}
    whole = {"type": "object", "properties": {"value": schema}, "$defs": {"one": one, "two": two}}
    whole["definitions"] = {"three": one}
    arguments: Any = {"value": value}
    found = problem(json.dumps(whole), arguments)
    errors = [each.message for each in Draft202012Validator(whole).iter_errors(arguments)]
    target(float(len(errors)))
    assert bool(found) == bool(errors), (found, errors)
