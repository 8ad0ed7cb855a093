"""The JSON Schema of the arguments of a tool, from the struct that decodes them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

_REF = "#/$defs/"


def schema_of(kind: Any, defs: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401  # any class
    """The JSON Schema of the pydantic model *kind*; what it refers to goes to *defs*."""
    # Known by what it can do: pydantic need not be there.
    if not hasattr(kind, "model_json_schema"):
        raise NotImplementedError
    schema: dict[str, Any] = kind.model_json_schema(ref_template=f"{_REF}{kind.__name__}.{{model}}")
    defs |= {f"{kind.__name__}.{name}": each for name, each in schema.pop("$defs", {}).items()}
    return schema


def model_of(kind: Any, value: object) -> Any:  # noqa: ANN401  # any class
    """The pydantic model *kind* of the JSON *value*."""
    return kind.model_validate_json(msgspec.json.encode(value), strict=True)


def json_schema(struct: type[msgspec.Struct], descriptions: Mapping[str, str]) -> str:
    """
    The JSON Schema of *struct* as text, an object with the parameters as its properties.

    Types within are written where they are used, since not every provider follows references; only one
    that contains itself stays a reference. A description given by `msgspec.Meta` goes before *descriptions*.
    """
    more: dict[str, Any] = {}
    hook, name = partial(schema_of, defs=more), f"{_REF}{{name}}"
    (reference,), defs = msgspec.json.schema_components([struct], schema_hook=hook, ref_template=name)
    defs |= more
    own = defs[reference["$ref"].removeprefix(_REF)]
    del own["title"]  # the name of a struct that the model has no use for
    for name, property_ in own["properties"].items():
        if name in descriptions:
            property_.setdefault("description", descriptions[name])
    kept: set[str] = set()

    def inline(node: Any, inside: tuple[str, ...]) -> Any:  # noqa: ANN401  # a part of a schema
        """*node* with references replaced by what they name; those that lead back *inside* go to *kept*."""
        match node:
            case {"$ref": str(ref), **beside} if (name := ref.removeprefix(_REF)) in defs:
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

    schema, written = inline(own, ()), dict[str, Any]()
    while missing := sorted(kept - written.keys()):
        written |= {name: inline(defs[name], (name,)) for name in missing}
    if written:
        schema["$defs"] = written
    return msgspec.json.encode(schema).decode()
