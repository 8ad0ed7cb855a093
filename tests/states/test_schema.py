"""What arguments are, what is wrong with them by a schema, and what a schema says of those left out."""

from __future__ import annotations

import json

import pytest

from turnwheel.effects.secrets import ANY, placeholder
from turnwheel.states.rules.schema import (
    arguments_of,
    defaults_of,
    nulls_of,
    problem,
    same_arguments,
    without_nulls,
)

HIDDEN = placeholder("key", "0123456789ab")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ('{"a": 1, "b": [2]}', '{"b":[2],"a":1}', True),
        ("", "{}", True),
        ("no object", "no object", True),
        ("no object", "[]", False),
        ('{"a": 1}', '{"a": 1.0}', False),
        ('{"a": [1]}', '{"a": [true]}', False),
        ('{"a": null}', "{}", False),
    ],
)
def test_arguments_are_the_same_if_each_rule_reads_the_same(one: str, other: str, *, same: bool) -> None:
    assert same_arguments(one, other) == same
    assert same_arguments(other, one) == same


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ('{"a": ' + "[" * 99 + "]" * 99 + "}", True),
        ('{"a": ' + "[" * 100 + "]" * 100 + "}", False),
        ('{"a": ' * 100 + "1" + "}" * 100, True),
        ('{"a": ' * 101 + "1" + "}" * 101, False),
        ('{"a": [' + ", ".join(["[[], {}]"] * 100) + "]}", True),
        ('{"a": [' + "[" * 98 + "]" * 98 + ", " + "[" * 98 + "]" * 98 + "]}", True),
        ('{"a": [' + "[" * 98 + "]" * 98 + ", " + "[" * 99 + "]" * 99 + "]}", False),
        ('{"a": [{}, ' + "[" * 98 + "]" * 98 + "]}", True),
        ('{"a": [{}, ' + "[" * 99 + "]" * 99 + "]}", False),
        ('{"a": [[], ' + "[" * 99 + "]" * 99 + "]}", False),
        ('{"a": "' + "[{" * 200 + '"}', True),
        ('{"a": "\\"' + "[{" * 200 + '", "b": [[]]}', True),
        ('{"a": 1e308}', True),
        ('{"a": 1e309}', False),
        ('{"a": [-1e999]}', False),
        ('{"a": {"b": Infinity}}', False),
        (" \n", True),
    ],
)
def test_arguments_are_read_as_deep_as_any_tool_wants_and_with_numbers_that_are_some(
    text: str, *, whole: bool
) -> None:
    expected = json.loads(text.strip() or "{}") if whole else None
    assert arguments_of(text) == expected


# What is wrong


def nested(levels: int) -> dict[str, object]:
    value: dict[str, object] = {}
    for _ in range(levels):
        value = {"x": value}
    return value


LINKED = json.dumps(
    {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/node"}},
        "$defs": {"node": {"type": "object", "properties": {"x": {"$ref": "#/$defs/node"}}}},
    }
)


@pytest.mark.parametrize(("levels", "fits"), [(1, True), (64, True), (65, False)])
def test_values_may_be_nested_so_deep_and_no_deeper(levels: int, *, fits: bool) -> None:
    path = ".".join("x" * levels)
    assert problem(LINKED, nested(levels)) == ("" if fits else f"{path} is nested too deeply")


def test_plain_values_may_be_nested_as_deep_as_others() -> None:
    deep = {"type": "object", "properties": {"x": {"$ref": "#/$defs/node"}, "n": {"type": "integer"}}}
    schema = json.dumps({**deep, "$defs": {"node": deep}})

    def with_number(levels: int) -> dict[str, object]:
        value: dict[str, object] = {"n": 1}
        for _ in range(levels):
            value = {"x": value}
        return value

    assert problem(schema, with_number(63)) == ""
    assert problem(schema, with_number(64)).endswith(".n is nested too deeply")


def test_a_schema_of_nothing_but_itself_is_told() -> None:
    rules = json.dumps(
        {
            "type": "object",
            "properties": {"x": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
        }
    )
    assert problem(rules, {"x": 1}) == "x cannot be checked: the schema refers to itself"


@pytest.mark.parametrize(
    ("rules", "value", "says"),
    [
        # the last alternative, and what none of them takes
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, None, ""),
        ({"oneOf": [{"type": "string"}, {"type": "null"}]}, 1, "x must be of type string or null"),
        (
            {"anyOf": [{"type": ["string", "null"]}, {"type": "integer"}]},
            [],
            "x must be of type string or null or integer",
        ),
        ({"anyOf": []}, 1, ""),
        # what is wrong beside alternatives, of which one is met
        ({"minimum": 5, "anyOf": [{"type": "integer"}]}, 1, "x must be at least 5"),
        # values of each kind behind one that is right
        ({"enum": ["a", "b"]}, "b", ""),
        ({"enum": [1, True]}, True, ""),
        ({"enum": [0]}, False, "x must be one of [0]"),
        ({"const": "a"}, "a", ""),
        ({"const": "a"}, "b", 'x must be "a"'),
        ({"const": None}, 0, "x must be null"),
        ({"type": "array", "items": {"type": "integer"}}, [1, 2, "3"], "x[2] must be of type integer"),
        ({"type": "array", "items": {"type": "integer"}}, [1, 2], ""),
        ({"type": "object", "properties": {"a": {"enum": [1]}}}, {"a": 2}, "x.a must be one of [1]"),
        ({"type": "object", "properties": {"a": {"type": "array"}}}, {"a": {}}, "x.a must be of type array"),
        (
            {"type": "object", "additionalProperties": False},
            {"a": 1},
            "x.a is not a parameter (there are: none)",
        ),
        (
            {"type": "object", "properties": {"b": {}, "c": {}}, "additionalProperties": False},
            {"b": 1, "a": 1},
            "x.a is not a parameter (there are: b, c)",
        ),
        ({"type": "object", "properties": {"b": {}}, "additionalProperties": False}, {"b": 1}, ""),
        (
            {"type": "object", "properties": {"b": {"type": "string"}}},
            {"a": 1, "b": 1},
            "x.b must be of type string",
        ),
        ({"type": "object", "required": ["a", "b"]}, {"a": 1}, "x.b is missing"),
        ({"type": "integer"}, 2.5, "x must be of type integer"),
        ({"type": "integer"}, 2.0, ""),
        ({"type": "string"}, 2.0, "x must be of type string"),
        ({"type": "number"}, True, "x must be of type number"),
        ({"type": "boolean"}, False, ""),
        ({"type": ["integer", "null"]}, "a", "x must be of type integer or null"),
        # bounds, each met and not met
        ({"minimum": 1, "maximum": 3}, 1, ""),
        ({"minimum": 1, "maximum": 3}, 3.0, ""),
        ({"minimum": 1}, 0.5, "x must be at least 1"),
        ({"maximum": 3}, 4, "x must be at most 3"),
        ({"exclusiveMinimum": 1}, 1, "x must be more than 1"),
        ({"exclusiveMaximum": 3}, 3, "x must be less than 3"),
        ({"exclusiveMinimum": 1, "exclusiveMaximum": 3}, 2, ""),
        ({"multipleOf": 5}, 7, "x must be a multiple of 5"),
        ({"multipleOf": 5}, 10, ""),
        ({"minLength": 2}, "a", "x must have at least 2 characters"),
        ({"maxLength": 2}, "abc", "x must have at most 2 characters"),
        ({"maxLength": 1}, "ab", "x must have at most 1 character"),
        ({"minLength": 2, "maxLength": 2}, "ab", ""),
        ({"minItems": 1}, [], "x must have at least 1 item"),
        ({"maxItems": 1}, [1, 2], "x must have at most 1 item"),
        ({"minItems": 1, "maxItems": 1}, [1], ""),
        ({"minProperties": 1}, {}, "x must have at least 1 property"),
        ({"maxProperties": 1}, {"a": 1, "b": 2}, "x must have at most 1 property"),
        # a tuple, and several schemas at once
        ({"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False}, [1, "a"], ""),
        ({"prefixItems": [{"type": "integer"}], "items": False}, ["a"], "x[0] must be of type integer"),
        ({"prefixItems": [{"type": "integer"}], "items": False}, [1, 2], "x[1] is not allowed"),
        ({"prefixItems": [{"type": "integer"}]}, [1, "more"], ""),
        ({"allOf": [{"type": "integer"}, {"minimum": 2}]}, 1, "x must be at least 2"),
        ({"allOf": [{"type": "integer"}, {"minimum": 2}]}, 2, ""),
        (True, 1, ""),
        (False, 1, "x is not allowed"),
        # what is not understood is let through
        ({"enum": "ab"}, "c", ""),
        ({"type": "object", "properties": ["a"]}, {"a": 1}, ""),
        ({"type": "object", "required": "abc"}, {}, ""),
        ({"anyOf": {"type": "string"}}, 1, ""),
        ({"type": "date"}, 1, ""),
        ({"minimum": "1", "maximum": True, "exclusiveMinimum": True}, 0, ""),
        ({"minimum": 1}, True, ""),
        ({"minimum": 1, "minLength": 3}, None, ""),
        ({"multipleOf": 0.5}, 0.7, ""),
        ({"multipleOf": 0}, 1, ""),
        ({"minLength": None, "maxLength": "0"}, "a", ""),
        # a pattern, which may take for ever
        ({"pattern": "^[A-Z]{3}$"}, "euro", ""),
        ({"pattern": "^(a+)+$"}, f"{'a' * 10_000}!", ""),
        ({"prefixItems": {"type": "string"}}, [1], ""),
        ({"allOf": {"type": "string"}}, 1, ""),
        ({"$ref": "#/properties/gone"}, 1, ""),
        ({"$ref": "#/$defs/gone/further"}, 1, ""),
        ([], 1, ""),
    ],
)
def test_the_first_thing_that_is_wrong_is_told(rules: object, value: object, says: str) -> None:
    schema = json.dumps({"type": "object", "properties": {"x": rules}})
    assert problem(schema, {"x": value}) == says
    if says:
        # Also behind an argument that is right, and inside of others.
        assert problem(schema, {"w": 1, "x": value}) == says
        inside = json.dumps({"type": "object", "properties": {"y": json.loads(schema)}})
        assert problem(inside, {"y": {"x": value}}) == f"y.{says}"


@pytest.mark.parametrize(
    ("schema", "value", "says"),
    [
        # The whole schema, which contains itself.
        ({"properties": {"n": {"type": "integer"}, "in": {"$ref": "#"}}}, {"in": {"in": {"n": 1}}}, ""),
        (
            {"properties": {"n": {"type": "integer"}, "in": {"$ref": "#"}}},
            {"in": {"in": {"n": "a"}}},
            "in.in.n must be of type integer",
        ),
        ({"properties": {"in": {"$ref": "#/"}}}, {"in": 1}, ""),
        # Other places of named schemas.
        (
            {"definitions": {"N": {"type": "integer"}}, "properties": {"n": {"$ref": "#/definitions/N"}}},
            {"n": "a"},
            "n must be of type integer",
        ),
        (
            {"$defs": {"a/b~c": {"type": "integer"}}, "properties": {"n": {"$ref": "#/$defs/a~1b~0c"}}},
            {"n": "a"},
            "n must be of type integer",
        ),
        (
            {"allOf": [{"type": "object"}, {"minProperties": 2}], "properties": {"n": {"$ref": "#/allOf/1"}}},
            {"n": {"a": 1}, "m": 1},
            "n must have at least 2 properties",
        ),
        # Which properties a pattern names, only a regular expression says.
        ({"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False}, {"x1": 1}, ""),
        (
            {"patternProperties": {"^x": {}}, "additionalProperties": {"type": "string"}},
            {"x1": 1, "y": "a"},
            "",
        ),
        (
            {
                "properties": {"n": {"type": "integer"}},
                "patternProperties": {"^x": {}},
                "additionalProperties": False,
            },
            {"n": "a", "x": 1},
            "n must be of type integer",
        ),
        (
            {"patternProperties": {}, "additionalProperties": False},
            {"x": 1},
            "x is not a parameter (there are: none)",
        ),
    ],
)
def test_a_schema_may_name_others_in_several_ways(
    schema: dict[str, object], value: dict[str, object], says: str
) -> None:
    assert problem(json.dumps({"type": "object", **schema}), value) == says


def test_all_that_is_missing_is_told_at_once_and_the_whole_has_a_name() -> None:
    schema = json.dumps({"type": "object", "required": ["a", "b", "c"]})
    assert problem(schema, {"b": 1}) == "a, c are missing"
    assert problem(json.dumps({"type": "object", "const": {}}), {"a": 1}) == "the arguments must be {}"


CAT = {"properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}}, "required": ["kind", "lives"]}
DOG = {
    "properties": {"kind": {"enum": ["dog", "pup"]}, "name": {"type": "string"}},
    "required": ["kind", "name"],
}
PETS = [{"type": "object", **CAT}, {"type": "object", **DOG}]
TAGGED = {"oneOf": PETS, "discriminator": {"propertyName": "kind"}}
# Told apart by no property: the fault is that of the member which comes closest.
PLAIN = [
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
    {"type": "object", "properties": {"c": {"type": "string"}}, "required": ["c"]},
    {"type": "string", "minLength": 2},
]


@pytest.mark.parametrize("union", [TAGGED, {"anyOf": PETS}, {"anyOf": [*PETS, {"type": "null"}]}])
@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"kind": "cat", "lives": 9}, ""),
        ({"kind": "dog", "lives": 1}, "pet.name is missing"),
        ({"kind": "pup", "name": 1}, "pet.name must be of type string"),
        ({"kind": "cat", "name": "Tom"}, "pet.lives is missing"),
        ({"kind": "bird"}, 'pet.kind must be one of ["cat", "dog", "pup"]'),
        ({"lives": 9}, 'pet.kind is missing; it is one of ["cat", "dog", "pup"]'),
    ],
)
def test_a_union_is_judged_by_the_member_whose_tag_was_sent(
    union: dict[str, object], value: object, says: str
) -> None:
    assert problem(json.dumps({"properties": {"pet": union}}), {"pet": value}) == says
    # Members that are references are the same members.
    members = {"anyOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}]}
    named = {"properties": {"pet": members}, "$defs": {"cat": CAT, "dog": DOG}}
    assert problem(json.dumps(named), {"pet": value}) == says


@pytest.mark.parametrize(
    ("members", "value", "says"),
    [
        (PLAIN, {"d": 1}, "x.a, x.b are missing or x.c is missing"),
        (PLAIN, {"a": 1}, "x.b is missing or x.c is missing"),
        (PLAIN, {"a": "1", "b": "2", "c": 1}, "x.c must be of type string"),
        (PLAIN, "a", "x must have at least 2 characters"),
        (PLAIN, 1, "x must be of type object or string"),
        ([{"const": "a"}, {"enum": ["b", "a"]}], "c", 'x must be one of ["a", "b"]'),
        # A tag that may be left out.
        (
            [{"type": "object", "properties": CAT["properties"], "required": ["lives"]}, PETS[1]],
            {"name": "Tom"},
            "x.lives is missing or x.kind is missing",
        ),
        # No tag: two members have the same value of it, or one member takes any.
        ([PETS[0], PETS[0]], {"kind": "dog", "lives": 1}, 'x.kind must be "cat"'),
        ([PETS[0], PLAIN[1]], {"kind": "dog", "lives": 1}, 'x.kind must be "cat" or x.c is missing'),
    ],
)
def test_a_union_without_a_tag_is_judged_by_the_members_that_come_closest(
    members: object, value: object, says: str
) -> None:
    assert problem(json.dumps({"properties": {"x": {"anyOf": members}}}), {"x": value}) == says


MANY = {
    "type": "object",
    "properties": {
        "a": {"type": "integer"},
        "b": {"type": "string"},
        "list": {"type": "array", "items": {"type": "integer"}},
        "inner": {"type": "object", "properties": {"c": {"minimum": 1}}, "additionalProperties": False},
    },
    "required": ["a", "b"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"a": "x", "b": 3}, "a must be of type integer; b must be of type string"),
        ({"a": "x", "e": 1}, "b is missing; a must be of type integer; e is not a parameter (there are: {})"),
        ({"e": 1, "a": 1, "f": 2, "b": ""}, "e, f are not parameters (there are: {})"),
        (
            {"a": 1, "b": "", "inner": {"c": 0, "d": 1}, "list": ["x"]},
            (
                "inner.c must be at least 1; inner.d is not a parameter (there are: c); "
                "list[0] must be of type integer"
            ),
        ),
        (
            {"a": 1, "b": "", "list": ["x"] * 5},
            "; ".join(f"list[{index}] must be of type integer" for index in range(5)),
        ),
        (
            {"a": "x", "b": "", "list": ["x"] * 9},
            "a must be of type integer; "
            + "; ".join(f"list[{index}] must be of type integer" for index in range(4))
            + "; and more",
        ),
        (
            dict.fromkeys("cdefghij", 1) | {"a": 1, "b": ""},
            "c, d, e, f, g are not parameters (there are: {})",
        ),
    ],
)
def test_several_problems_are_told_at_once_and_five_at_most(arguments: dict[str, object], says: str) -> None:
    assert problem(json.dumps(MANY), arguments) == says.replace("{}", "a, b, list, inner")


# Secrets

KEY = {"type": "object", "properties": {"key": {"type": "integer"}, "id": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("arguments", "secrets", "says"),
    [
        ({"key": HIDDEN}, ("key",), ""),
        ({"key": HIDDEN}, (ANY,), ""),
        ({"id": HIDDEN}, (ANY,), ""),
        ({"key": HIDDEN}, (), "key must be of type integer"),
        ({"id": HIDDEN}, ("key",), "id must be of type integer"),
        ({"key": "a text"}, ("key",), "key must be of type integer"),
        ({"key": HIDDEN, "id": HIDDEN}, ("key",), "id must be of type integer"),
        ({"key": HIDDEN, "id": HIDDEN}, (), "key must be of type integer; id must be of type integer"),
    ],
)
def test_what_stands_for_a_secret_is_right_where_one_may_be(
    arguments: dict[str, object], secrets: tuple[str, ...], says: str
) -> None:
    assert problem(json.dumps(KEY), arguments, secrets) == says


@pytest.mark.parametrize(
    ("secrets", "says"), [(("keys",), ""), (("key",), ""), ((), "keys[0].key must be of type integer")]
)
def test_what_is_inside_of_a_secret_argument_may_be_one_too(secrets: tuple[str, ...], says: str) -> None:
    inside = {"type": "object", "properties": {"keys": {"type": "array", "items": KEY}}}
    assert problem(json.dumps(inside), {"keys": [{"key": HIDDEN}]}, secrets) == says


def test_a_placeholder_meets_each_bound_of_a_text() -> None:
    schema = json.dumps({"properties": {"x": {"type": "string", "maxLength": 3}}})
    assert problem(schema, {"x": HIDDEN}) == ""
    assert problem(schema, {"x": f"with {HIDDEN} inside"}) == ""


# What is left out


def test_defaults_are_values_and_null_is_none() -> None:
    schema = json.dumps(
        {
            "type": "object",
            "properties": {
                "a": {"default": 1},
                "b": {"default": None},
                "c": {"type": "string"},
                "d": True,
                "e": {"default": False},
            },
        }
    )
    assert defaults_of(schema) == {"a": 1, "e": False}
    assert nulls_of(schema) == {"b": None}
    for nothing in ("{}", '{"properties": ["a"]}', '{"properties": {}}'):
        assert (defaults_of(nothing), nulls_of(nothing)) == ({}, {})


COUNTED = {"type": "object", "properties": {"n": {"type": "integer"}, "name": {"type": ["string", "null"]}}}


@pytest.mark.parametrize(
    ("schema", "value", "kept"),
    [
        (COUNTED, {"n": None, "name": None}, {"name": None}),
        ({"anyOf": [COUNTED, {"type": "null"}]}, {"n": None, "name": None}, {"name": None}),
        ({"oneOf": [{"type": "string"}, COUNTED]}, {"n": None}, {}),
        ({"type": "array", "items": COUNTED}, [{"n": None}, {"n": 1}], [{}, {"n": 1}]),
        ({**COUNTED, "required": ["n"]}, {"n": None}, {"n": None}),
        ({"$ref": "#/$defs/C"}, {"n": None}, {}),
    ],
)
def test_a_null_is_left_out_where_it_stands_for_nothing(
    schema: dict[str, object], value: object, kept: object
) -> None:
    whole = {"type": "object", "properties": {"x": schema}, "$defs": {"C": COUNTED}}
    assert without_nulls(json.dumps(whole), {"x": value}) == {"x": kept}
