"""
Values of any type as JSON: text, numbers, lists and dicts in place of objects.

Theory of operation. msgspec writes most types by itself, but three of them not as a model needs them. A named
tuple becomes a list, bytes that are text become base64, and a pydantic dataclass is written without its own
serializer. So each value is walked first, and msgspec writes the result of the walk.

Types of libraries that may not be installed are known by their methods, and never imported.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import os
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Set as AbstractSet, ValuesView
from decimal import Decimal
from enum import Enum
from typing import Any, cast, final

import msgspec

from ...effects import clean

# Types that msgspec writes as they are. Its form of a moment or a duration is ISO 8601, of NaN it is null.
_NATIVE = frozenset(
    {
        bool,
        int,
        float,
        type(None),
        dt.datetime,
        dt.date,
        dt.time,
        dt.timedelta,
        uuid.UUID,
        Decimal,
    }
)


@final
class NoJSON(TypeError):
    """A value has no JSON form; *kind* is its type."""

    def __init__(self, kind: type) -> None:
        super().__init__(f"{kind.__name__} has no JSON form")
        self.kind = kind


def json_text(value: object) -> str:
    """
    The JSON text of *value*.

    Raises `NoJSON`, `RecursionError` for a value that contains itself, `ValueError` for a dict with two keys
    of the same text, and whatever the methods of *value* raise.
    """
    return msgspec.json.encode(plain(value)).decode()


def plain(value: object) -> object:
    """*value* of types that msgspec writes by itself; raises as `json_text` does."""
    kind = type(value)
    if kind in _NATIVE:
        return value
    if kind is str:
        text = cast("str", value)
        return text if text.isascii() else clean(text)
    if kind is list or kind is tuple:
        return [plain(each) for each in cast("Iterable[object]", value)]
    if kind is dict:
        return _object(cast("Mapping[object, object]", value).items())
    for fits, convert in _CONVERSIONS:
        if fits(kind):
            return convert(value)
    raise NoJSON(kind)


def _object(items: Iterable[tuple[object, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in items:
        name = _key(key)
        if name in found:
            msg = f"two keys of a dict are both {name!r} in JSON"
            raise ValueError(msg)
        found[name] = plain(value)
    return found


def _key(key: object) -> str:
    """The text of *key*, which is that of its JSON where it is no text."""
    shown = plain(key)
    if isinstance(shown, str):
        return shown
    if isinstance(shown, list | dict):
        raise NoJSON(type(key))
    return msgspec.json.encode(shown).decode().strip('"')


def _bytes(value: Any) -> str:  # noqa: ANN401  # any buffer
    """The text in *value*, or its base64 where it is not UTF-8."""
    data = bytes(value)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()


def _moment(value: Any) -> str:  # noqa: ANN401  # a subclass, such as a pandas.Timestamp
    return str(value.isoformat())


def _fields(value: object) -> dict[str, object]:
    """The fields of a record by their names; those that are not set are left out."""
    found: dict[str, object] = {}
    for key, name in _names(type(value)):
        field = getattr(value, name, msgspec.UNSET)
        if field is not msgspec.UNSET:
            found[key] = plain(field)
    return found


def _names(kind: Any) -> tuple[tuple[str, str], ...]:  # noqa: ANN401  # any class with fields
    """For each field of *kind* its key in JSON and the name of its attribute."""
    if issubclass(kind, msgspec.Struct):
        return tuple(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
    if hasattr(kind, "_fields"):
        return tuple([(name, name) for name in kind._fields])
    if dataclasses.is_dataclass(kind):
        return tuple([(field.name, field.name) for field in dataclasses.fields(kind)])
    # Private names of attrs classes are left out, and those of dataclasses are not, as msgspec does.
    names = [attribute.name for attribute in kind.__attrs_attrs__]
    return tuple([(name, name) for name in names if not name.startswith("_")])


def _struct(value: Any) -> object:  # noqa: ANN401  # any struct
    config = type(value).__struct_config__
    if config.array_like:
        return [plain(getattr(value, name)) for _, name in _names(type(value))]
    tag = {} if config.tag is None else {config.tag_field: config.tag}
    return tag | _fields(value)


def _dumped(value: Any) -> object:  # noqa: ANN401  # a model of pydantic
    return plain(value.model_dump(mode="json"))


def _serialized(value: Any) -> object:  # noqa: ANN401  # a dataclass of pydantic
    return plain(type(value).__pydantic_serializer__.to_python(value, mode="json"))


def _is_pydantic(kind: type) -> bool:
    """Whether *kind* is one of pydantic's own types, such as `SecretStr`, which masks its text, or a URL."""
    return any(base.__module__.partition(".")[0] in {"pydantic", "pydantic_core"} for base in kind.__mro__)


def _unordered(value: Any) -> list[object]:  # noqa: ANN401  # any set
    """The members of a set in the order of their JSON, which is the same in every process."""
    return sorted([plain(each) for each in value], key=msgspec.json.encode)


def _below(*kinds: type) -> Callable[[type], bool]:
    return lambda kind: issubclass(kind, kinds)


def _having(*names: str) -> Callable[[type], bool]:
    return lambda kind: all(hasattr(kind, name) for name in names)


def _is_array(kind: type) -> bool:
    """Whether *kind* is an array or a scalar of numpy, or a tensor."""
    # A series of pandas has all of this, too, and would lose its index.
    return hasattr(kind, "dtype") and hasattr(kind, "tolist") and not hasattr(kind, "to_dict")


# How values are converted that are no plain ones, by their types; the first that fits is taken.
_CONVERSIONS: tuple[tuple[Callable[[type], bool], Callable[[Any], object]], ...] = (
    (_below(Enum), lambda value: plain(value.value)),
    (_below(str), lambda value: clean(str.__str__(value))),
    (_below(int), int.__int__),
    (_below(float), float.__float__),
    (_below(bytes, bytearray, memoryview), _bytes),
    (_below(dt.date, dt.time), _moment),
    # A subclass, such as a pandas.Timedelta.
    (
        _below(dt.timedelta),
        lambda value: dt.timedelta(value.days, value.seconds, value.microseconds),
    ),
    (_below(uuid.UUID, Decimal), str),
    (_having("model_dump", "model_dump_json"), _dumped),
    (_having("__pydantic_serializer__"), _serialized),
    (_below(msgspec.Struct), _struct),
    (lambda kind: issubclass(kind, tuple) and hasattr(kind, "_fields"), _fields),
    (_having("__dataclass_fields__"), _fields),
    (_having("__attrs_attrs__"), _fields),
    (_is_array, lambda value: plain(value.tolist())),
    (_below(Mapping), lambda value: _object(value.items())),
    # Whatever `dict` takes, such as a row of sqlite3.
    (_having("keys", "__getitem__"), lambda value: _object(dict(value).items())),
    (_below(AbstractSet), _unordered),
    (_below(Collection, ValuesView), lambda value: [plain(each) for each in value]),
    (_below(os.PathLike), lambda value: plain(os.fspath(value))),
    (_is_pydantic, str),
)
