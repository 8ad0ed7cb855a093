"""
From a function's signature to what a model may pass: a struct that decodes it and a JSON Schema of it.

Both come from the same `msgspec` struct, so the schema never promises what decoding refuses. Whatever a
model could not fill in is refused here, when the program starts, and not at the first call.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeAlias, get_origin, get_type_hints

import attrs
import msgspec

from ...errors import ToolDefinitionError
from .context import ToolContext

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

# The way out of every refused type.
_USE = (
    "use str, int, float, bool, None, list, dict, Literal, an Enum, or a dataclass, attrs class or "
    "msgspec.Struct of these"
)

_REF = "#/$defs/"

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
"""``{name}`` in the key of a resource."""

Json: TypeAlias = "dict[str, Json] | list[Json] | str | float | bool | None"
"""What a schema is made of."""


@attrs.frozen
class Parameters:
    """*struct* decodes what the model wrote; *injected* are the names of the parameters we fill in."""

    struct: type[msgspec.Struct]
    injected: tuple[str, ...]


def refusal(function: Callable[..., object], problem: str) -> ToolDefinitionError:
    """The error that says why *function* cannot be a tool."""
    name = getattr(function, "__qualname__", None) or repr(function)
    return ToolDefinitionError(f"{name!r} cannot be a tool: {problem}")


def parameters(function: Callable[..., object]) -> Parameters:
    """Read the signature of *function*; raises `ToolDefinitionError` where a model could not fill it in."""
    fields: list[tuple[str, Any, Any]] = []
    injected: list[str] = []
    for parameter in _signature(function).parameters.values():
        if parameter.kind not in _NAMED:
            shown = str(parameter.replace(annotation=inspect.Parameter.empty))  # with its stars
            problem = f"parameter {shown!r} has no name a model could pass it by; spell each one out"
            raise refusal(function, problem)
        hint = _hint(function, parameter)
        if hint is ToolContext or get_origin(hint) is ToolContext:
            injected.append(parameter.name)
        else:
            _check(function, parameter.name, hint)
            fields.append((parameter.name, hint, _default(parameter.default)))
    try:
        struct = msgspec.defstruct(function.__name__, fields, forbid_unknown_fields=True, kw_only=True)
    except (TypeError, ValueError) as error:
        raise refusal(function, f"its parameters cannot be decoded: {error}") from error
    return Parameters(struct, tuple(injected))


def _signature(function: Callable[..., object]) -> inspect.Signature:
    """The signature of *function*, or of what it wraps."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError, NameError) as error:
        raise refusal(function, f"its signature cannot be read: {error}") from error


def _hint(function: Callable[..., object], parameter: inspect.Parameter) -> Any:  # noqa: ANN401  # a type form
    """The type of *parameter*, evaluated by itself: a name known to type checkers only harms no other."""
    name = parameter.name
    if parameter.annotation is inspect.Parameter.empty:
        raise refusal(function, f"parameter {name!r} has no type; annotate it")
    holder = SimpleNamespace(__annotations__={name: parameter.annotation})
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return get_type_hints(holder, scope, include_extras=True)[name]
    except Exception as error:  # an annotation is any code
        problem = f"the type {parameter.annotation!r} of parameter {name!r} cannot be evaluated ({error})"
        raise refusal(function, f"{problem}; import or define it at the top of the module") from error


def _check(function: Callable[..., object], name: str, hint: object) -> None:
    """Refuse a type *hint* that has no JSON; by itself, since an error of the whole names no parameter."""
    try:
        msgspec.json.schema_components([hint])
    except Exception as error:  # msgspec looks into classes of any making
        *_, reason = str(error).splitlines() or [type(error).__name__]
        raise refusal(function, f"parameter {name!r} has a type no JSON fits: {reason}; {_USE}") from error


def _default(value: object) -> Any:  # noqa: ANN401  # what defstruct takes
    """*value* as a struct takes it: a filled list or dict is copied for every call."""
    if value is inspect.Parameter.empty:
        return msgspec.NODEFAULT
    if type(value).__hash__ is None and value:
        return msgspec.field(default_factory=partial(copy.deepcopy, value))
    return value


def resource_keys(
    function: Callable[..., object], keys: Iterable[str], accepted: Parameters
) -> tuple[str, ...]:
    """
    *keys* of what *function* works on; raises `ToolDefinitionError` where one could never be filled in.

    Such as ``account:{id}``, in which ``{id}`` stands for an argument that a model passes.
    """
    if isinstance(keys, str):
        raise refusal(function, f"its resources are several keys; write [{keys!r}]")
    found = tuple(keys)
    for key in found:
        if problem := _unfillable(key, accepted.struct.__struct_fields__):
            raise refusal(function, f"the resource {key!r} {problem}")
    return found


def names_in(function: Callable[..., object], names: Iterable[object]) -> tuple[str, ...]:
    """*names* of arguments of *function*; raises `ToolDefinitionError` where they are none."""
    if isinstance(names, str):
        raise refusal(function, f"several names are wanted, not one: write [{names!r}]")
    found = tuple(names)
    if wrong := [name for name in found if not isinstance(name, str)]:
        raise refusal(function, f"a name is text, not {wrong[0]!r}")
    return tuple(map(str, found))


def _unfillable(key: object, arguments: tuple[str, ...]) -> str:
    """What is wrong with the *key* of a resource, where *arguments* are what there is; empty if nothing."""
    if not isinstance(key, str):
        return "is no text"
    if re.search(r"[{}]", _PLACEHOLDER.sub("", key)):
        return "has a brace that belongs to no {name}"
    missing = [name for name in _PLACEHOLDER.findall(key) if name not in arguments]
    return f"names no argument {missing[0]!r}; there are: {', '.join(arguments) or 'none'}" if missing else ""


def schema_of(struct: type[msgspec.Struct], descriptions: Mapping[str, str]) -> str:
    """
    The JSON Schema of *struct* as text, an object with the parameters as its properties.

    Types within are written where they are used, since not every provider follows references; only one
    that contains itself stays a reference. A description given by `msgspec.Meta` goes before *descriptions*.
    """
    (reference,), defs = msgspec.json.schema_components([struct], ref_template=_REF + "{name}")
    own = defs[reference["$ref"].removeprefix(_REF)]
    del own["title"]
    for name, property_ in own["properties"].items():
        if name in descriptions:
            property_.setdefault("description", descriptions[name])
    kept: set[str] = set()
    schema = {key: _inline(value, defs, frozenset(), kept) for key, value in own.items()}
    written: dict[str, Json] = {}
    while missing := sorted(kept - written.keys()):
        for name in missing:
            written[name] = _inline(defs[name], defs, frozenset({name}), kept)
    if written:
        schema["$defs"] = written
    return msgspec.json.encode(schema).decode()


def _inline(node: Json, defs: Mapping[str, Json], inside: frozenset[str], kept: set[str]) -> Json:
    """*node* with references replaced by what they name; those that lead back *inside* go to *kept*."""
    if isinstance(node, list):
        return [_inline(item, defs, inside, kept) for item in node]
    if not isinstance(node, dict):
        return node
    ref = node.get("$ref")
    if not isinstance(ref, str) or (name := ref.removeprefix(_REF)) not in defs:
        return {key: _inline(value, defs, inside, kept) for key, value in node.items()}
    if name in inside:
        kept.add(name)
        return node
    named = _inline(defs[name], defs, inside | {name}, kept)
    beside = {key: value for key, value in node.items() if key != "$ref"}
    return named | beside if isinstance(named, dict) else named
