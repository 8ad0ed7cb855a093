"""The JSON Schema of the arguments of a tool, from the struct that decodes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from functools import partial
from typing import Any, cast

import msgspec

from .forms import REF, Defs, schema_of
from .plain import NoJSON, plain


def json_schema(struct: type[msgspec.Struct], descriptions: Mapping[str, str]) -> str:
    """
    The JSON Schema of *struct* as text, an object with the parameters as its properties.

    Types within are written where they are used, since not every provider follows references; only one
    that contains itself stays a reference. A description given by `msgspec.Meta` goes before *descriptions*.
    """
    defs: Defs = {}
    own = defs.pop(schema_of(struct, defs)["$ref"].removeprefix(REF))
    del own["title"]  # the name of a struct that the model has no use for
    for field in msgspec.structs.fields(struct):
        # A default that is copied for each call.
        if isinstance(field.default_factory, partial):
            with suppress(NoJSON):  # it may mark that there is none
                own["properties"][field.name].setdefault("default", plain(field.default_factory.args[0]))
    for name, property_ in own["properties"].items():
        if name in descriptions:
            property_.setdefault("description", descriptions[name])
    return msgspec.json.encode(_inlined(own, defs)).decode()


# Digits of the longest number that is taken for an integer.
_MAX_DIGITS = 20

_AS_WRITTEN = msgspec.json.Encoder(decimal_format="number")


def with_integers(arguments: str, schema: str) -> str:
    """The JSON text *arguments* with 3 in the place of 3.0 where *schema* wants an integer."""
    # Decimals, since another number must stay as it was written.
    value: object = msgspec.json.Decoder(float_hook=Decimal).decode(arguments)
    root = json.loads(schema)
    return _AS_WRITTEN.encode(_whole(value, root, root)).decode()


def _whole(value: Any, schema: Any, root: Mapping[str, Any]) -> Any:  # noqa: ANN401  # JSON
    """*value* with whole numbers as integers where *schema*, a part of *root*, wants such."""
    if not isinstance(schema, dict):
        return value
    node = cast("dict[str, Any]", schema)
    if "$ref" in node:
        return _whole(value, root.get("$defs", {}).get(node["$ref"].removeprefix(REF)), root)
    for part in (*node.get("anyOf", ()), *node.get("oneOf", ()), *node.get("allOf", ())):
        value = _whole(value, part, root)
    match value:
        case Decimal():
            exact = value.adjusted() < _MAX_DIGITS and value == value.to_integral_value()
            return int(value) if exact and _wants_integer(node, value) else value
        case dict():
            known, others = node.get("properties", {}), node.get("additionalProperties")
            return {key: _whole(each, known.get(key, others), root) for key, each in value.items()}
        case list():
            first, items = node.get("prefixItems", ()), node.get("items")
            parts = [*first, *[items] * (len(value) - len(first))]
            return [_whole(each, part, root) for each, part in zip(value, parts, strict=False)]
        case _:
            return value


def _wants_integer(schema: Mapping[str, Any], value: Decimal) -> bool:
    """Whether *schema* has the type of integers, or lists *value* as one."""
    kinds = schema.get("type", ())
    listed = [each for each in (*schema.get("enum", ()), schema.get("const")) if type(each) is int]
    return "integer" in ([kinds] if isinstance(kinds, str) else kinds) or value in listed


def _inlined(own: dict[str, Any], defs: Defs) -> dict[str, Any]:
    """*own* with the types of *defs* in the places where it refers to them."""
    kept: set[str] = set()

    def inline(node: Any, inside: tuple[str, ...]) -> Any:  # noqa: ANN401  # a part of a schema
        """*node* with references replaced by what they name; those that lead back *inside* go to *kept*."""
        match node:
            case {"$ref": str(ref), **beside} if (name := ref.removeprefix(REF)) in defs:
                if name not in inside:
                    return inline(defs[name], (*inside, name)) | beside
                kept.add(name)
                return node
            case dict():
                return {key: inline(value, inside) for key, value in node.items()}
            case list():
                return [inline(item, inside) for item in node]
            case _:
                return node

    schema: dict[str, Any] = inline(own, ())
    written: Defs = {}
    while missing := sorted(kept - written.keys()):
        written |= {name: inline(defs[name], (name,)) for name in missing}
    if written:
        schema["$defs"] = written
    return schema
