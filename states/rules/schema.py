"""
Whether a call's arguments are whole, valid JSON for its tool's schema.

Checks the part of JSON Schema that describes function arguments: types, required and unknown properties,
enums, constants, array items, unions and local references. A keyword that is not known here is not checked:
the tool's own decoder has the last word. Written here because a transition may import no validator.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import cast

Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None

MAX_DEPTH = 64
"""Deeper values are refused: no tool takes them, and a reference may point at itself."""

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


@lru_cache(maxsize=1024)
def _parsed(schema: str) -> dict[str, Json]:
    return cast("dict[str, Json]", json.loads(schema))


def arguments_of(text: str) -> dict[str, object] | None:
    """The arguments in *text*, or None where it is no JSON object. Empty text is no arguments."""
    if not text.strip():
        return {}
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, object]", value) if isinstance(value, dict) else None


def problem(schema: str, arguments: dict[str, object]) -> str:
    """What is wrong with *arguments* by *schema*, in words for a model; empty where nothing is."""
    root = _parsed(schema)
    return _check(cast("Json", arguments), root, root, "", 0)


def _check(value: Json, schema: Json, root: dict[str, Json], path: str, depth: int) -> str:  # noqa: PLR0911
    if depth > MAX_DEPTH:
        return f"{path or 'the arguments'} is nested too deeply"
    if not isinstance(schema, dict):
        return f"{path} is not allowed" if schema is False else ""
    if (reference := schema.get("$ref")) is not None:
        return _check(value, _resolve(str(reference), root), root, path, depth + 1)
    if isinstance(options := schema.get("anyOf", schema.get("oneOf")), list):
        problems = [_check(value, option, root, path, depth + 1) for option in options]
        return "" if "" in problems else next(iter(problems), "")
    if not _has_type(value, schema.get("type")):
        return f"{path or 'the arguments'} must be of type {_names(schema.get('type'))}"
    if isinstance(allowed := schema.get("enum"), list) and value not in allowed:
        return f"{path} must be one of {json.dumps(allowed)}"
    if "const" in schema and value != schema["const"]:
        return f"{path} must be {json.dumps(schema['const'])}"
    return _check_inside(value, schema, root, path, depth)


def _check_inside(value: Json, schema: dict[str, Json], root: dict[str, Json], path: str, depth: int) -> str:
    if isinstance(value, dict):
        return _check_object(value, schema, root, path, depth)
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            if found := _check(item, schema["items"], root, f"{path}[{index}]", depth + 1):
                return found
    return ""


def _check_object(
    value: dict[str, Json], schema: dict[str, Json], root: dict[str, Json], path: str, depth: int
) -> str:
    required = schema.get("required")
    missing = [name for name in required if name not in value] if isinstance(required, list) else []
    if missing:
        return f"{', '.join(_at(path, str(name)) for name in missing)} is missing"
    declared = schema.get("properties")
    properties = declared if isinstance(declared, dict) else {}
    others = schema.get("additionalProperties", True)
    for name, item in value.items():
        if name not in properties and others is False:
            return f"{_at(path, name)} is not a parameter; there are: {', '.join(properties) or 'none'}"
        if found := _check(item, properties.get(name, others), root, _at(path, name), depth + 1):
            return found
    return ""


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _resolve(reference: str, root: dict[str, Json]) -> Json:
    here: Json = root
    for step in reference.removeprefix("#/").split("/"):
        here = here.get(step, True) if isinstance(here, dict) else True
    return here


def _has_type(value: Json, declared: Json) -> bool:
    names = declared if isinstance(declared, list) else [declared]
    for name in names:
        types = _TYPES.get(str(name))
        if types is None:
            return True
        if isinstance(value, types) and (bool in types or not isinstance(value, bool)):
            return True
        if name == "integer" and isinstance(value, float) and value.is_integer():
            return True
    return False


def _names(declared: Json) -> str:
    return " or ".join(map(str, declared)) if isinstance(declared, list) else str(declared)
