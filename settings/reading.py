"""
Reads settings from a file, the environment and Python, by precedence, and finds all mistakes at once.

Theory of operation. Each source becomes a `Layer`: for each key its value and its source. Layers are laid
over each other key by key; a list is one value. The result becomes a tree of tables, of which a `_Reader`
makes objects. It runs the checks of each class value by value, since a class stops at its first fault, and
names the source of each fault. The class of all settings is an argument, *root*: this module knows only its
parts.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar, cast, final

import attrs

from ..effects.config import ChildSpec, Loops, ModelSpec, Policy
from ..effects.errors import ConfigError, TooLarge, TurnwheelError
from ..effects.permissions import Rule
from ..effects.validators import within
from .areas import ArgumentGlobs, CommandHook, Debug, Level, Preset, judged_rule
from .keys import (
    ENV_PREFIX,
    NESTED,
    NONE_WORD,
    NOT_DATA,
    OTHER_NAMES,
    SECRET,
    Way,
    accepts,
    fields_of,
    is_area,
    item_of,
    nearest,
    suggestion,
    variable,
)

T = TypeVar("T")

FILE = "turnwheel.toml"
"""The file that is read if it is there and no other one is named."""

MAX_SETTINGS = 1_000_000
"""Bytes of a settings file: a thousand times those of a usual one."""

MAX_SHOWN_VALUE = 100
"""Characters of a wrong value in a fault."""

AGENTS = tuple[ChildSpec, ...]
"""The kind of the one list that is written as a table, by the names of its items."""

ARGUMENT = "argument"
"""The source of settings in Python."""

TRUE = frozenset({"1", "true", "yes", "on"})
FALSE = frozenset({"0", "false", "no", "off"})
"""The words of a variable for true and for false."""

FACTORY: type = type(attrs.Factory(list))
"""The type of a default that depends on the other settings of its table."""


@final
class EnvText(str):
    """The text of a variable, which may stand for a value of any kind."""

    __slots__ = ()


@final
@attrs.frozen
class Source:
    """The *value* of a setting, and the *source* that gave it."""

    value: object
    source: str

    def place(self, key: str) -> str:
        """The source and *key*, for an error."""
        if self.source.startswith(ENV_PREFIX):
            here = variable(tuple(key.split("."))) == self.source
            return self.source if here else f"{self.source}: {key}"
        return f"{self.source} {key}" if self.source == ARGUMENT else f"{self.source}: {key}"


Layer = dict[Way, Source]
"""The settings of one source, by the way to each."""


def read(
    root: type[T], file: str | os.PathLike[str] | None, env: Mapping[str, str], told: Mapping[str, object]
) -> tuple[T, dict[str, str]]:
    """
    The *root* of all settings, from *told* over *env* over *file* over the defaults, and the source of each.

    Raises one `ConfigError` for all mistakes.
    """
    merged: Layer = {}
    for layer in (_of_file(root, file), _of_environment(root, env), dict(_flat(told, root, (), ARGUMENT))):
        _lay(layer, over=merged, root=root)
    whole = _of_preset(merged[("preset",)]) if ("preset",) in merged else {}
    _lay(merged, over=whole, root=root)
    reader = _Reader(root, whole)
    made = reader.table(_tree(whole), root, ())
    if reader.faults:
        several = f"{len(reader.faults)} settings are wrong:"
        raise ConfigError(
            "\n  ".join(reader.faults if len(reader.faults) == 1 else [several, *reader.faults])
        )
    return cast("T", made), {".".join(way): each.source for way, each in whole.items()}


# Layers


def _lay(layer: Layer, *, over: Layer, root: type) -> None:
    """Lay *layer* over another one, which loses the settings that it replaces."""
    for way, told in layer.items():
        gone = way
        if way[-1] == "name" and _kind(root, way[:-1]) is ModelSpec:
            # Price and window belong to a model: a layer that names another one drops them.
            gone = () if way in over and over[way].value == told.value else way[:-1]
        elif isinstance(told.value, dict):
            gone = ()  # a table adds to the one below
        for below in [known for known in over if gone and known[: len(gone)] == gone]:
            del over[below]
    over.update(layer)


def _tree(told: Layer) -> dict[str, object]:
    """The settings of a layer as tables in tables."""
    tree: dict[str, object] = {}
    for way in sorted(told, key=len):
        table: Any = tree
        for name in way[:-1]:
            table = table.setdefault(name, {}) if isinstance(table, dict) else None
        if isinstance(table, dict):
            table[way[-1]] = told[way].value
    return tree


def _kind(root: type, way: Way) -> Any:  # noqa: ANN401  # an annotation
    """The kind of the setting at the end of *way*; None if there is no such setting."""
    kind: Any = root
    for name in way:
        if kind == AGENTS:
            kind = ChildSpec
        elif is_area(kind) and name in fields_of(kind):
            kind = fields_of(kind)[name][0]
        else:
            return None
    return kind


def _flat(value: object, kind: Any, way: Way, source: str) -> Iterator[tuple[Way, Source]]:  # noqa: ANN401  # an annotation
    """The settings in *value*, which stands at the end of *way* and is of *kind*."""
    value = _written_out(value, kind)
    if not _is_table(kind) or not isinstance(value, Mapping):
        yield way, Source(value, source)
        return
    if way and not value:
        yield way, Source({}, source)
    for name, each in value.items():
        inner = ChildSpec if kind == AGENTS else fields_of(kind).get(name, (None,))[0]
        yield from _flat(each, inner, (*way, str(name)), source)


def _is_table(kind: Any) -> bool:  # noqa: ANN401  # an annotation
    return kind == AGENTS or is_area(kind)


def _written_out(value: object, kind: Any) -> object:  # noqa: ANN401  # an annotation
    """The table that a short form stands for; any other *value* as it is."""
    if kind is ModelSpec and isinstance(value, str):
        return {"name": value}
    if kind is Debug and isinstance(value, str | bool):
        text = str(value).lower()
        return {"level": Level.DEBUG if text in TRUE else Level.OFF if text in FALSE else text}
    if kind is Loops and (value is False or (isinstance(value, EnvText) and value.lower() in FALSE)):
        return Loops.never()
    return value


def _of_preset(preset: Source) -> Layer:
    """The settings of a preset, where they differ from the usual policy."""
    if preset.value not in tuple(Preset):
        return {}
    policy, usual = Preset(str(preset.value)).policy, Policy()
    return {
        ("policy", name): Source(getattr(policy, name), f"preset {preset.value}")
        for name in fields_of(Policy)
        if getattr(policy, name) != getattr(usual, name)
    }


# The file


def _of_file(root: type, file: str | os.PathLike[str] | None) -> Layer:
    import tomllib  # noqa: PLC0415  # 5 ms, for a file only

    path = Path(FILE if file is None else file).expanduser()
    try:
        with path.open("rb") as opened:
            data = opened.read(MAX_SETTINGS + 1)
        within(f"the file of settings {str(path)!r}", len(data), MAX_SETTINGS, "bytes")
        told = tomllib.loads(data.decode().replace("\r", "\n"), parse_float=Decimal)
    except TooLarge as error:
        raise ConfigError(str(error)) from error
    except FileNotFoundError as error:
        if file is None:
            return {}
        msg = f"there is no file of settings {str(path)!r}"
        raise ConfigError(msg) from error
    except (OSError, UnicodeDecodeError) as error:
        msg = f"the settings in {str(path)!r} cannot be read: {error}"
        raise ConfigError(msg) from error
    except (ValueError, RecursionError) as error:  # also huge numbers and deep nesting
        msg = f"the settings in {str(path)!r} are no TOML: {error}"
        raise ConfigError(msg) from error
    return {
        way: attrs.evolve(each, value=_based(each.value, _kind(root, way), path.parent))
        for way, each in _flat(told, root, (), str(path))
    }


def _based(value: object, kind: Any, folder: Path) -> object:  # noqa: ANN401  # an annotation
    """*value* with its paths as seen from here: in a file they begin at its *folder*."""
    match value:
        case str() if kind is Path:
            return str(folder / Path(value).expanduser())
        case [*items] if item_of(kind) in {Path, CommandHook}:
            return [_based(item, item_of(kind), folder) for item in items]
        case {"command": [str(program), *more]} if kind is CommandHook and "/" in program:
            seen = str(folder.absolute() / Path(program).expanduser())
            return {**cast("dict[str, object]", value), "command": [seen, *more]}
        case _:
            return value


# The environment


def _of_environment(root: type, env: Mapping[str, str]) -> Layer:
    told: Layer = {}
    for name in sorted(env):
        way = tuple(name.removeprefix(ENV_PREFIX).lower().split(NESTED))
        if name.startswith(ENV_PREFIX) and env[name].strip() and _is_ours(root, way):
            kind, text = _kind(root, way), env[name]
            table = _is_table(kind) and text.lstrip().startswith("{")
            told.update(_flat(_toml(text) if table else EnvText(text), kind, way, name))
    return told


def _toml(text: str) -> object:
    """The value of *text* in TOML; *text* itself if it is none."""
    import tomllib  # noqa: PLC0415  # 5 ms, for a list or a table only

    try:
        return tomllib.loads(f"value = {text}", parse_float=Decimal)["value"]
    except tomllib.TOMLDecodeError:
        return text


def _is_ours(root: type, way: Way) -> bool:
    """Whether the variable of *way* is for turnwheel."""
    # A misspelt one is, or it would be lost silently. But the prefix is not ours alone: where a service is
    # called turnwheel, Kubernetes sets TURNWHEEL_PORT.
    first, *more = way
    known = more or _kind(root, way) is not None or first in {*OTHER_NAMES, *NOT_DATA}
    return bool(known) or nearest(root, way) is not None


# Values


class _Refused(ValueError):
    """A value that its kind does not accept; `int` and enums raise a plain ValueError."""


def _text(value: object, kind: type[str]) -> str:
    if not isinstance(value, str):
        raise _Refused
    return kind(value) if issubclass(kind, StrEnum) else str(value)


def _bool(value: object) -> bool:
    if isinstance(value, EnvText) and value.strip().lower() in TRUE | FALSE:
        return value.strip().lower() in TRUE
    if not isinstance(value, bool):
        raise _Refused
    return value


def _int(value: object) -> int:
    if isinstance(value, EnvText):
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _Refused
    return value


def _decimal(value: object) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise _Refused
    number = Decimal(str(value).strip())
    if not number.is_finite():
        raise _Refused
    return number


def _float(value: object) -> float:
    if isinstance(value, str) and not isinstance(value, EnvText):
        raise _Refused
    number = float(_decimal(value))
    if not math.isfinite(number):
        raise _Refused
    return number


def _path(value: object) -> Path:
    if not isinstance(value, str | Path):
        raise _Refused
    return Path(value).expanduser()


def _rule(value: object) -> Rule:
    made = value if isinstance(value, Rule) else judged_rule(value) if isinstance(value, str) else None
    if made is None:
        raise _Refused
    return made


def _globs(value: object) -> ArgumentGlobs:
    pairs = tuple(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(pairs, tuple) or not all(isinstance(part, str) for pair in pairs for part in pair):
        raise _Refused
    return cast("ArgumentGlobs", pairs)


_VALUES: Mapping[Any, Callable[[object], object]] = {
    bool: _bool,
    int: _int,
    float: _float,
    Decimal: _decimal,
    Path: _path,
    Rule: _rule,
    ArgumentGlobs: _globs,
}


@final
class _Reader:
    """Makes objects of tables; `faults` collects every fault, each with its source."""

    def __init__(self, root: type, told: Layer) -> None:
        self._root = root
        self._told = told
        self.faults: list[str] = []

    def table(self, value: object, area: type, way: Way) -> object:
        """The *area* object of the table *value* at the end of *way*; None behind a fault."""
        value = _written_out(value, area)
        if isinstance(value, area):
            return value
        if not isinstance(value, Mapping):
            raise _Refused
        before = len(self.faults)
        made: dict[str, object] = {}
        for name, (_, _, attribute) in fields_of(area).items():
            if name in value:
                made[name] = self._setting(value[name], area, name, (*way, name))
            elif attribute.default is attrs.NOTHING:
                self._fault((*way, name), "is missing")
        for name in sorted(map(str, value.keys() - fields_of(area).keys())):
            unknown = (*way, name)
            self._fault(unknown, f"is not known: {suggestion(self._root, unknown, area)}")
        try:
            return None if len(self.faults) > before else area(**made)
        except TurnwheelError as error:
            # A check of several settings together, which names the one that it is about.
            about = re.fullmatch(r"\w+\.(\w+) (.*)", str(error), re.DOTALL)
            name, problem = about.groups() if about else ("", str(error))
            self._fault((*way, name) if name else way, problem)
            return None

    def _setting(self, value: object, area: type, name: str, way: Way) -> object:
        """The *value* of the setting *name* of *area*, checked as its class does."""
        kind, optional, attribute = fields_of(area)[name]
        if optional and (value is None or (value == NONE_WORD and kind not in {str, Path})):
            return None
        before = len(self.faults)
        try:
            made = self._value(_over_default(value, kind, attribute), kind, way)
            if len(self.faults) == before and not is_area(kind):
                if attribute.converter is not None:
                    made = cast("Any", attribute.converter)(made)
                if attribute.validator is not None:
                    attribute.validator(object.__new__(area), attribute, made)
        except (ValueError, ArithmeticError, TurnwheelError):
            self._refuse(way, accepts(kind, attribute, optional=optional and not is_area(kind)), value)
            return None
        return made

    def _value(self, value: object, kind: Any, way: Way) -> object:  # noqa: ANN401  # an annotation
        if kind == AGENTS and isinstance(value, Mapping):
            named = {
                name: {**each, "name": name} if isinstance(each, Mapping) else each
                for name, each in value.items()
            }
            return tuple([self._item(each, ChildSpec, (*way, name)) for name, each in named.items()])
        if kind in _VALUES:
            return _VALUES[kind](value)
        if (item := item_of(kind)) is not None:
            return tuple([self._item(each, item, (*way, f"[{at}]")) for at, each in enumerate(_items(value))])
        return self.table(value, kind, way) if is_area(kind) else _text(value, kind)

    def _item(self, value: object, kind: Any, way: Way) -> object:  # noqa: ANN401  # an annotation
        try:
            return self._value(value, kind, way)
        except (ValueError, ArithmeticError):
            self._refuse(way, accepts(kind), value)
            return None

    def _refuse(self, way: Way, accepted: str, value: object) -> None:
        shown = str(value) if isinstance(value, Decimal) else repr(value)
        shown = shown if len(shown) <= MAX_SHOWN_VALUE else f"{shown[:MAX_SHOWN_VALUE]}..."
        if way[0] in fields_of(self._root) and fields_of(self._root)[way[0]][2].metadata == SECRET:
            shown = "a value that is not shown"
        self._fault(way, f"must be {accepted}; got {shown}")

    def _fault(self, way: Way, problem: str) -> None:
        """Add *problem* of the setting at the end of *way*, with its source, or that of its table."""
        key = ".".join(way).replace(".[", "[")
        at = [self._told[way[:end]] for end in range(len(way), 0, -1) if way[:end] in self._told]
        beside = [each for known, each in self._told.items() if known[: len(way) - 1] == way[:-1]]
        self.faults.append(f"{(at or beside)[0].place(key) if at or beside else key} {problem}")


def _items(value: object) -> Sequence[object]:
    """The items of a list; a variable writes it with commas, or as in TOML."""
    if isinstance(value, EnvText):
        value = (
            _toml(value)
            if value.lstrip().startswith("[")
            else [EnvText(part.strip()) for part in value.split(",") if part.strip()]
        )
    if not isinstance(value, list | tuple):
        raise _Refused
    return value


def _over_default(value: object, kind: Any, attribute: attrs.Attribute[Any]) -> object:  # noqa: ANN401  # an annotation
    """A table over the default of its own setting, where that differs from the defaults of its class."""
    usual = attribute.default
    if not is_area(kind) or not isinstance(value, Mapping) or not isinstance(usual, kind) or "name" in value:
        return value  # a model with a name is another one than the default
    own = {
        name: getattr(usual, name)
        for name, (_, _, each) in fields_of(kind).items()
        if not isinstance(each.default, FACTORY) and getattr(usual, name) != each.default
    }
    return own | dict(value)
