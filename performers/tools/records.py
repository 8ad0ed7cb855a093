"""Classes with named fields, of whatever library, as a list of their fields."""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import Any, final, get_args, get_origin, get_type_hints

import attrs
import msgspec

# What stands around the type of a key of a TypedDict.
_QUALIFIERS = frozenset({"Required", "NotRequired", "ReadOnly"})

# Defaults that a schema can show. Any other is left to the class, which has it anyway.
_IN_SCHEMAS = (str, int, float, bool, type(None), Enum)


@final
@attrs.frozen
class RecordField:
    """A field: the *name* that its class takes it by, its *key* in JSON, its type and its *default*."""

    name: str
    key: str
    kind: Any
    default: Any = msgspec.NODEFAULT


def is_record(kind: Any) -> bool:  # noqa: ANN401  # any type form
    """Whether *kind* is a dataclass, an attrs class, a struct, a named tuple or a TypedDict."""
    if not isinstance(kind, type):
        return False
    names = ("__dataclass_fields__", "__attrs_attrs__", "__struct_fields__", "__required_keys__")
    return is_named_tuple(kind) or any(hasattr(kind, name) for name in names)


def is_named_tuple(kind: Any) -> bool:  # noqa: ANN401  # any type form
    """Whether *kind* is a tuple with named fields."""
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def fields_of(kind: Any) -> tuple[RecordField, ...]:  # noqa: ANN401  # any such class
    """The fields of the record *kind*; raises what the evaluation of its annotations raises."""
    written = get_type_hints(kind, include_extras=True)
    hints = {name: _bare(hint) for name, hint in written.items()}
    rows: list[tuple[str, str, str, Any]]
    if is_named_tuple(kind):
        defaults = kind._field_defaults
        rows = [(name, name, name, defaults.get(name, msgspec.NODEFAULT)) for name in kind._fields]
    elif hasattr(kind, "__required_keys__"):
        rows = [(key, key, key, _of_typed_dict(kind, key, hint)) for key, hint in written.items()]
    elif hasattr(kind, "__struct_fields__"):
        fields = msgspec.structs.fields(kind)
        rows = [(each.name, each.name, each.encode_name, _of_struct(each)) for each in fields]
    elif hasattr(kind, "__attrs_attrs__"):
        made = [each for each in kind.__attrs_attrs__ if each.init]
        rows = [(each.alias, each.name, each.alias, _unless(each.default, attrs.NOTHING)) for each in made]
    else:
        own = [each for each in dataclasses.fields(kind) if each.init]
        rows = [(each.name, each.name, each.name, _of_dataclass(each)) for each in own]
    return tuple([RecordField(name, key, hints.get(at, Any), _shown(value)) for name, at, key, value in rows])


def _bare(hint: Any) -> Any:  # noqa: ANN401  # any type form
    while getattr(get_origin(hint), "_name", "") in _QUALIFIERS:
        hint = get_args(hint)[0]
    return hint


def _unless(value: object, missing: object) -> object:
    return msgspec.NODEFAULT if value is missing else value


def _of_typed_dict(kind: Any, key: str, hint: object) -> object:  # noqa: ANN401  # any TypedDict
    # Where annotations are text, the class itself does not know what stands around them.
    qualifier = getattr(get_origin(hint), "_name", "")
    required = qualifier != "NotRequired" and (qualifier == "Required" or key in kind.__required_keys__)
    return msgspec.NODEFAULT if required else msgspec.UNSET


def _of_struct(field: msgspec.structs.FieldInfo) -> object:
    if field.required or field.default is not msgspec.NODEFAULT:
        return field.default
    return msgspec.UNSET


def _of_dataclass(field: dataclasses.Field[Any]) -> object:
    if field.default_factory is not dataclasses.MISSING:
        return msgspec.UNSET
    return _unless(field.default, dataclasses.MISSING)


def _shown(default: object) -> object:
    if type(default).__module__.startswith("pydantic"):
        msg = f"a field has the default {default!r}, which only a class of pydantic reads; make it one"
        raise ValueError(msg)
    if default is msgspec.NODEFAULT or isinstance(default, _IN_SCHEMAS):
        return default
    return msgspec.field(default_factory=_unset)


def _unset() -> msgspec.UnsetType:
    return msgspec.UNSET
