"""
From what was told to `Settings`: every value checked where it stands, and all faults told at once.

The converter is cattrs' with its detailed validation. Each setting is read by a hook of its own, which also
runs the checks of its class: a class would stop at the first value that fails.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import GenericAlias
from typing import Any, cast, final

import attrs
import cattrs
from cattrs.errors import AttributeValidationNote
from cattrs.gen import make_dict_structure_fn, override

from ..effects.config import ChildSpec, ModelSpec
from ..effects.errors import ConfigError, TurnwheelError
from ..effects.permissions import Rule
from .areas import judged_rule
from .keys import (
    NONE,
    accepts,
    fields_of,
    is_area,
    item_of,
    meant,
)
from .settings import SECRET, Settings
from .sources import (
    AGENTS,
    FALSE,
    TRUE,
    Layer,
    Text,
    toml,
)

MOST = 100
"""Characters shown of a value that is not accepted."""

FACTORY: type = type(attrs.Factory(list))
"""The kind of default that is made of the other settings of its table."""

Way = tuple[str, ...]
"""The way to a value, with the numbers of what is in lists."""


@final
class _Refused(Exception):
    """A value is not *accepted*."""

    def __init__(self, accepted: str, value: object) -> None:
        super().__init__(accepted, value)
        self.accepted = accepted
        self.value = value


def read(told: Layer) -> Settings:
    """The settings that were *told*; raises one `ConfigError` for all that is wrong with them."""
    try:
        settings = _converter.structure(_tree(told), Settings)
    except cattrs.BaseValidationError as error:
        faults = [fault for way, each in _faults(error, ()) for fault in _said(way, each, told)]
        raise ConfigError(_together(faults)) from error
    return attrs.evolve(settings, sources={".".join(way): each.source for way, each in told.items()})


def _tree(told: Layer) -> dict[str, object]:
    """What was *told* as tables in tables."""
    tree: dict[str, object] = {}
    for way in sorted(told, key=len):
        table: Any = tree
        for name in way[:-1]:
            table = table.setdefault(name, {}) if isinstance(table, dict) else None
        if isinstance(table, dict):
            table[way[-1]] = told[way].value
    return tree


# Values


def _refuse(kind: Any, value: object) -> _Refused:  # noqa: ANN401  # an annotation
    return _Refused(accepts(kind), value)


def _text(value: object, kind: type[str]) -> str:
    if not isinstance(value, str):
        raise _refuse(kind, value)
    try:
        return kind(value) if issubclass(kind, StrEnum) else str(value)
    except ValueError as error:
        raise _refuse(kind, value) from error


def _bool(value: object, kind: Any) -> bool:  # noqa: ANN401  # an annotation
    if isinstance(value, Text) and value.strip().lower() in TRUE | FALSE:
        return value.strip().lower() in TRUE
    if not isinstance(value, bool):
        raise _refuse(kind, value)
    return value


def _int(value: object, kind: Any) -> int:  # noqa: ANN401  # an annotation
    if isinstance(value, Text):
        try:
            return int(value)
        except ValueError as error:
            raise _refuse(kind, value) from error
    if not isinstance(value, int) or isinstance(value, bool):
        raise _refuse(kind, value)
    return value


def _decimal(value: object, kind: Any) -> Decimal:  # noqa: ANN401  # an annotation
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise _refuse(kind, value)
    try:
        number = Decimal(str(value).strip())
    except InvalidOperation as error:
        raise _refuse(kind, value) from error
    if not number.is_finite():
        raise _refuse(kind, value)
    return number


def _float(value: object, kind: Any) -> float:  # noqa: ANN401  # an annotation
    if isinstance(value, str) and not isinstance(value, Text):
        raise _refuse(kind, value)
    number = float(_decimal(value, kind))
    if not math.isfinite(number):
        raise _refuse(kind, value)
    return number


def _path(value: object, kind: type[Path]) -> Path:
    if not isinstance(value, str | Path):
        raise _refuse(kind, value)
    return Path(value).expanduser()


def _rule(value: object, kind: type[Rule]) -> Rule:
    made = value if isinstance(value, Rule) else judged_rule(value) if isinstance(value, str) else None
    if made is None:
        raise _refuse(kind, value)
    return made


def _where(value: object, kind: Any) -> tuple[tuple[str, str], ...]:  # noqa: ANN401  # an annotation
    pairs = tuple(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(pairs, tuple) or not all(isinstance(part, str) for pair in pairs for part in pair):
        raise _refuse(kind, value)
    return cast("tuple[tuple[str, str], ...]", pairs)


def _tuple(value: object, kind: Any) -> tuple[Any, ...]:  # noqa: ANN401  # an annotation
    if isinstance(value, Text):
        listed = toml(value) if value.lstrip().startswith("[") else None
        value = (
            [Text(part.strip()) for part in value.split(",") if part.strip()] if listed is None else listed
        )
    if not isinstance(value, list | tuple):
        raise _refuse(kind, value)
    return tuple(_structure(value, GenericAlias(list, (item_of(kind),))))


def _children(value: object, kind: Any) -> tuple[ChildSpec, ...]:  # noqa: ANN401  # an annotation
    """Agents by name, each of which is told the name it stands under."""
    if not isinstance(value, Mapping):
        return _tuple(value, kind)
    named = {
        name: {**each, "name": name} if isinstance(each, Mapping) else each for name, each in value.items()
    }
    return tuple(_structure(named, dict[str, ChildSpec]).values())


# Settings and tables of them


def _setting(value: object, _: object, *, area: type, attribute: attrs.Attribute[Any]) -> object:
    """The *value* of a setting of *area*, checked as its class does."""
    kind, optional, _ = fields_of(area)[attribute.name]
    if optional and (value is None or (value == NONE and kind not in {str, Path})):
        return None
    if is_area(kind):
        return _structure(_over_default(value, kind, attribute), kind)
    try:
        made = _structure(value, kind)
        if attribute.converter is not None:
            made = cast("Any", attribute.converter)(made)
        if attribute.validator is not None:
            attribute.validator(object.__new__(area), attribute, made)
    except (_Refused, TurnwheelError) as error:  # a fault within a list is an error of its own kind
        raise _Refused(accepts(kind, attribute, optional=optional), value) from error
    return made


def _over_default(value: object, kind: type, attribute: attrs.Attribute[Any]) -> object:
    """A table over the default of its own setting, where that is not what its class has by itself."""
    usual = attribute.default
    if not isinstance(value, Mapping) or not isinstance(usual, kind) or "name" in value:
        return value  # another model is not what the usual one is
    own = {
        name: getattr(usual, name)
        for name, (_, _, each) in fields_of(kind).items()
        if not isinstance(each.default, FACTORY) and getattr(usual, name) != each.default
    }
    return own | dict(value)


def _table(value: object, kind: type, *, made: Callable[[Any, Any], Any]) -> object:
    """A table of settings, read by what cattrs has *made* for its class."""
    if isinstance(value, kind):
        return value
    if kind is ModelSpec and isinstance(value, str):
        return ModelSpec(name=value) if value.strip() else _table({"name": value}, kind, made=made)
    if not isinstance(value, Mapping):
        raise _refuse(kind, value)
    return made(dict(value), kind)


def _reader(area: type) -> Callable[[Any, Any], Any]:
    """What reads tables of the class *area*."""
    hooks: dict[str, Any] = {
        name: override(struct_hook=partial(_setting, area=area, attribute=attribute))
        if name in fields_of(area)
        else override(omit=True)
        for name, attribute in attrs.fields_dict(area).items()
    }
    return partial(_table, made=make_dict_structure_fn(area, _converter, **hooks))


def _is_list(kind: Any) -> bool:  # noqa: ANN401  # an annotation
    return item_of(kind) is not None


def _make_converter() -> cattrs.Converter:
    made = cattrs.Converter(detailed_validation=True, forbid_extra_keys=True)
    leaves: dict[Any, Callable[[Any, Any], Any]] = {
        str: _text,  # enums of texts, too
        bool: _bool,
        int: _int,
        float: _float,
        Decimal: _decimal,
        Path: _path,
    }
    for kind, hook in leaves.items():
        made.register_structure_hook(kind, hook)
    made.register_structure_hook_factory(is_area, _reader)
    # The last that fits is asked first.
    made.register_structure_hook_func(_is_list, _tuple)
    made.register_structure_hook_func(lambda kind: kind == tuple[tuple[str, str], ...], _where)
    made.register_structure_hook_func(lambda kind: kind == AGENTS, _children)
    made.register_structure_hook_func(lambda kind: kind is Rule, _rule)
    return made


_converter = _make_converter()

_structure: Callable[..., Any] = _converter.structure


# What is wrong


def _faults(error: Exception, way: Way) -> Iterator[tuple[Way, Exception]]:
    """Each single fault of *error*, and the way to what it is about."""
    if not isinstance(error, cattrs.ClassValidationError | cattrs.IterableValidationError):
        yield way, error
        return
    noted, rest = error.group_exceptions()
    for each, note in noted:
        name = note.name if isinstance(note, AttributeValidationNote) else note.index
        yield from _faults(each, (*way, f"[{name}]" if isinstance(name, int) else name))
    for each in rest:
        yield from _faults(each, way)


def _said(way: Way, error: Exception, told: Layer) -> Iterator[str]:
    """What to say of *error*, which is about the setting at the end of *way*."""
    match error:
        case _Refused(accepted=accepted, value=value):
            yield f"{_place(way, told)} must be {accepted}; got {_shown(way, value)}"
        case cattrs.ForbiddenExtraKeysError(extra_fields=extra, cl=area):
            for name in sorted(extra):
                unknown = (*way, name)
                yield f"{_place(unknown, told)} is not known: {meant(unknown, area)}"
        case KeyError():
            yield f"{_place(way, told)} is missing"
        case _:
            # A check of several settings together, which names the one that it is about.
            about = re.fullmatch(r"\w+\.(\w+) (.*)", str(error), re.DOTALL)
            name, problem = about.groups() if about else ("", str(error))
            yield f"{_place((*way, name) if name else way, told)} {problem}"


def _place(way: Way, told: Layer) -> str:
    """Where the setting at the end of *way* was told, or what it stands in, or what stands beside it."""
    for end in range(len(way), 0, -1):
        if way[:end] in told:
            return told[way[:end]].place(_key(way))
    beside = [each for known, each in told.items() if known[: len(way) - 1] == way[:-1]]
    return beside[0].place(_key(way)) if beside else _key(way)


def _key(way: Way) -> str:
    return ".".join(way).replace(".[", "[")


def _shown(way: Way, value: object) -> str:
    if way[0] in fields_of(Settings) and fields_of(Settings)[way[0]][2].metadata == SECRET:
        return "a value that is not shown"
    said = str(value) if isinstance(value, Decimal) else repr(value)
    return said if len(said) <= MOST else f"{said[:MOST]}..."


def _together(faults: list[str]) -> str:
    if len(faults) == 1:
        return faults[0]
    return "\n  ".join([f"{len(faults)} settings are wrong:", *faults])
