"""Which models take a JSON Schema for their answer, and the subset of it in which they take one."""

# The subset suits OpenAI and Anthropic alike: the root is an object, each object is closed and needs all of
# its properties, and what may be left out is null instead. There are no bounds, defaults, maps or recursion.
# Bounds of a value move into its description, where the model reads them. The loop checks them afterwards;
# the class of the caller checks patterns and formats.

from __future__ import annotations

import json
from typing import Any, cast

from .anthropic import claude_version
from .providers import KNOWN_HOSTS, PROVIDERS, bare_name, host_of

# The first of Claude's versions that takes one: docs.claude.com/en/docs/build-with-claude/structured-outputs.
CLAUDE = (4, 5)

# How the names of OpenAI's models begin that take one: platform.openai.com/docs/guides/structured-outputs.
OPENAI = ("gpt-4o", "gpt-4.1", "gpt-5", "o1", "o3", "o4")

# Keywords that providers refuse, in the words of a description.
_BOUNDS_IN_WORDS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "pattern": "matches {}",
    "format": "format {}",
    "default": "usually {}",
}

# Keywords that may allow properties or items, and are not in the subset.
_UNSUPPORTED = frozenset(
    {
        *("$ref", "$dynamicRef", "allOf", "prefixItems", "patternProperties"),
        *("if", "then", "else", "dependentSchemas"),
    }
)

# Keywords that have no place beside a union, or a list of values: the model could not give what they allow.
_NOT_BESIDE_UNION = frozenset({"properties", "required", "additionalProperties", "items", "enum", "const"})

# Keywords that stay as they are.
_KEPT = ("type", "enum", "const", "description", "title")


class _NotInSubset(Exception):
    """Raised for a schema that has no form in the subset."""


def takes_schema(model: str, prefix: str, base_url: str | None) -> bool:
    """Whether *model*, which is asked as names with *prefix* are, at *base_url* if there, takes a schema."""
    name = bare_name(model.removeprefix(f"{prefix}:"))
    row = PROVIDERS.get(prefix)
    if row is None:
        return False
    if prefix == "anthropic":
        return base_url in {None, row.address} and claude_version(name) >= CLAUDE
    # Other servers take the field in many ways, and some of them skip it.
    known = base_url is None or KNOWN_HOSTS.get(host_of(base_url)) is PROVIDERS["openai"]
    return prefix in {"openai", "openai-responses"} and known and name.startswith(OPENAI)


def strict_form(schema: str) -> str | None:
    """*schema*, that of an object, in the subset that providers take; None where it does not fit in there."""
    try:
        strict = _strict(json.loads(schema))
    except _NotInSubset:
        return None
    is_object = strict.get("type") == "object" and "anyOf" not in strict
    return json.dumps(strict, ensure_ascii=False) if is_object else None


def _strict(node: Any) -> dict[str, Any]:  # noqa: ANN401  # a part of a schema
    if not isinstance(node, dict) or not node or not _UNSUPPORTED.isdisjoint(cast("dict[str, Any]", node)):
        raise _NotInSubset
    schema = cast("dict[str, Any]", node)
    strict = {key: schema[key] for key in _KEPT if key in schema}
    bounds = [text.format(json.dumps(schema[key])) for key, text in _BOUNDS_IN_WORDS.items() if key in schema]
    if bounds:
        strict["description"] = "; ".join(filter(None, [strict.get("description", ""), ", ".join(bounds)]))
    options = schema.get("anyOf", schema.get("oneOf"))
    if options is not None:
        if {"anyOf", "oneOf"} <= schema.keys() or not _NOT_BESIDE_UNION.isdisjoint(schema):
            raise _NotInSubset
        return strict | {"anyOf": [_strict(option) for option in options]}
    if "enum" in schema or "const" in schema:
        if "properties" in schema or "items" in schema:
            raise _NotInSubset
        return strict | _typed(schema)
    # The name of a type, or a list of such names.
    types = schema.get("type")
    if types is None:
        raise _NotInSubset
    if "array" in types:
        strict["items"] = _strict(schema.get("items"))
    return strict | _closed(schema) if "object" in types else strict


def _typed(schema: dict[str, Any]) -> dict[str, Any]:
    """The types of the values that *schema* lists, unless it has them; lists and objects have none here."""
    values = schema.get("enum", [schema.get("const")])
    names = {str: "string", int: "integer", bool: "boolean", type(None): "null", float: "number"}
    types = sorted({names[type(value)] for value in values if type(value) in names})
    return {} if "type" in schema or not types else {"type": types[0] if len(types) == 1 else types}


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The properties of an object, all of which must be there."""
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not properties or schema.get("additionalProperties", False) is not False:
        raise _NotInSubset  # a map, or an object that may have anything
    if not properties.keys() >= {*required}:
        raise _NotInSubset  # a property of which nothing is known
    strict = {name: _strict(each) for name, each in properties.items()}
    return {
        "properties": {name: each if name in required else _or_null(each) for name, each in strict.items()},
        "required": [*strict],
        "additionalProperties": False,
    }


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """*schema*, or null."""
    options: list[Any] = schema.get("anyOf", [schema])
    if {"type": "null"} in options or "null" in schema.get("type", ()):
        return schema
    # With a union the description stands beside it, else it is part of the first option.
    beside = {"description": schema["description"]} if "anyOf" in schema and "description" in schema else {}
    return beside | {"anyOf": [*options, {"type": "null"}]}
