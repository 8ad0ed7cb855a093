"""The JSON Schema of the arguments of a tool, from the struct that decodes them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

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
