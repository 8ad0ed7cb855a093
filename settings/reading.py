"""
Reads settings from a file, the environment and Python, by precedence, and finds all mistakes at once.

Theory of operation. Each source is a table of tables. Sources are laid over each other key by key, which
makes a `Layer`: for each key its value and its source. A list is one value. The layer becomes a tree of
tables, of which a `_Reader` makes objects. It runs the checks of each class value by value, since a class
stops at its first fault, and names the source of each fault. The class of all settings is an argument,
*root*: this module knows only its parts.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast, final

import attrs

from ..effects.config import ChildSpec, Loops, ModelSpec, Policy, Retries
from ..effects.errors import ConfigError, TooLarge, TurnwheelError
from ..effects.permissions import ArgumentGlobs, Rule, as_rule
from ..effects.request_extras import (
    HeaderPairs,
    JSONObjectText,
    ProviderTools,
    as_header_pairs,
    as_object_text,
    as_provider_tools,
)
from ..effects.spelling import meant
from ..effects.validators import as_globs, as_money, within
from ..performers.stores.place import StorePlace, store_place
from ..performers.stores.postgres.address import DatabaseAddress, is_url
from . import keys
from .areas import CommandHook, Debug, Level, Preset, Telemetry
from .keys import SettingKey, Way, fields_of, is_area, item_of

T = TypeVar("T")

# The file that is read if it is there and no other one is named.
FILE = "turnwheel.toml"

# Bytes of a settings file: a thousand times those of a usual one.
MAX_SETTINGS = 1_000_000

# Characters of a wrong value in a fault.
MAX_SHOWN_VALUE = 100

# The source of settings in Python.
ARGUMENT = "argument"

TRUE = ("1", "true", "yes", "on")
# The words of a variable for true and for false.
TRUTH_WORDS = {word: word in TRUE for word in (*TRUE, "0", "false", "no", "off")}

# Converts and checks a value as its class does.
CONVERT_AND_CHECK = attrs.setters.pipe(attrs.setters.convert, attrs.setters.validate)

# The type of a default that depends on the other settings of its table.
FACTORY: type = type(attrs.Factory(list))


@final
class EnvText(str):
    """The text of a variable, which may stand for a value of any kind."""

    __slots__ = ()


@final
class Source(NamedTuple):
    """The *value* of a setting, and the *source* that gave it."""

    value: object
    source: str


# The settings of one source, by the way to each.
Layer = dict[Way, Source]


def read(
    root: type[T], file: str | os.PathLike[str] | None, env: Mapping[str, str], told: Mapping[str, object]
) -> tuple[T, dict[str, str]]:
    """
    The *root* of all settings, from *told* over *env* over *file* over the defaults, and the source of each.

    Raises one `ConfigError` for all mistakes.
    """
    whole: Layer = {}
    for source, table in (_of_file(root, file), *_of_environment(root, env), (ARGUMENT, told)):
        _lay(whole, table, root, (), source)
    _lay_preset(whole)
    reader = _Reader(root, whole)
    made = reader.table(_tree(whole), root, ())
    if reader.faults:
        several = [f"{len(reader.faults)} settings are wrong:"] if len(reader.faults) > 1 else []
        raise ConfigError("\n  ".join([*several, *reader.faults]))
    return cast("T", made), {".".join(way): each.source for way, each in whole.items()}


# Layers


def _lay(over: Layer, value: Any, kind: Any, way: Way, source: str) -> None:  # noqa: ANN401  # any value, an annotation
    """Lay *value*, which stands at the end of *way* and is of *kind*, over what other sources told."""
    if isinstance(value, EnvText) and _is_table(kind) and value.lstrip().startswith("{"):
        value = _toml(value)
    value = _written_out(value, kind)
    table = value if isinstance(value, Mapping) and _is_table(kind) else None
    model = over.get((*way, "name"), Source(None, "")).value
    # A table adds to the one below. But price and window belong to a model: another name drops them.
    if table is None or (kind is ModelSpec and table.get("name", model) != model):
        variable = source.startswith(keys.ENV_PREFIX)
        for below, each in [*over.items()]:
            # Variables come in any order, so they add to each other.
            if below[: len(way)] == way and not (variable and each.source.startswith(keys.ENV_PREFIX)):
                del over[below]
    if way and not table:
        over[way] = Source(value if table is None else {}, source)
    for name, inner in (table or {}).items():
        _lay(over, inner, _inner(kind, name), (*way, str(name)), source)


def _lay_preset(over: Layer) -> None:
    """Add the settings of the preset that differ from the usual ones, where no source told others."""
    preset = over.get(("preset",))
    if preset is None or preset.value not in tuple(Preset):
        return
    named = Preset(str(preset.value))
    areas: dict[str, Policy | Retries] = {"policy": named.policy, "retries": named.retries}
    for area, whole in areas.items():
        told, usual = over.get((area,)), attrs.asdict(type(whole)())
        for name, value in {} if told and told.value else attrs.asdict(whole).items():
            if value != usual[name]:
                over.setdefault((area, name), Source(value, f"preset {preset.value}"))


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


def _inner(kind: Any, name: str) -> Any:  # noqa: ANN401  # an annotation
    """The kind of the setting *name* of the table *kind*; None if there is no such setting."""
    if kind == keys.AGENTS:
        return ChildSpec
    return fields_of(kind)[name].kind if is_area(kind) and name in fields_of(kind) else None


def _is_table(kind: Any) -> bool:  # noqa: ANN401  # an annotation
    return kind == keys.AGENTS or is_area(kind)


def _written_out(value: object, kind: Any) -> object:  # noqa: ANN401  # an annotation
    """The table that a short form stands for; any other *value* as it is."""
    if kind is ModelSpec and isinstance(value, str):
        return {"name": value}
    if kind is Debug and isinstance(value, str | bool):
        text = str(value).lower()
        return {"level": text if text not in TRUTH_WORDS else Level.DEBUG if TRUTH_WORDS[text] else Level.OFF}
    if kind is Telemetry and isinstance(value, str | bool):
        on = TRUTH_WORDS.get(str(value).lower())
        return value if on is None else {} if on else None
    said = TRUTH_WORDS.get(value.lower()) if isinstance(value, EnvText) else value
    return Loops.never() if kind is Loops and said is False else value


# The file


def _of_file(root: type, file: str | os.PathLike[str] | None) -> tuple[str, object]:
    path = Path(FILE if file is None else file).expanduser()
    try:
        data = _read_file(path)
        within(f"the file of settings {str(path)!r}", len(data), MAX_SETTINGS, "bytes")
        told = _parsed(data.decode().replace("\r", "\n"))
    except TooLarge as error:
        raise ConfigError(str(error)) from error
    except FileNotFoundError as error:
        if file is None:
            return FILE, {}
        msg = f"there is no file of settings {str(path)!r}"
        raise ConfigError(msg) from error
    except (OSError, UnicodeDecodeError) as error:
        msg = f"the settings in {str(path)!r} cannot be read: {error}"
        raise ConfigError(msg) from error
    except (ValueError, RecursionError) as error:  # also huge numbers and deep nesting
        msg = f"the settings in {str(path)!r} are no TOML: {error}"
        raise ConfigError(msg) from error
    return str(path), _based(told, root, path.parent)


def _read_file(path: Path) -> bytes:
    """The beginning of the regular file at *path*; raises `OSError` for what is none."""

    def opener(name: str, flags: int) -> int:
        # Without O_NONBLOCK, opening a named pipe waits for a process that writes.
        return os.open(name, flags | os.O_NONBLOCK)

    with open(path, "rb", opener=opener) as opened:
        # A device may have no end.
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            msg = "it is not a regular file"
            raise OSError(msg)
        return opened.read(MAX_SETTINGS + 1)


def _based(value: object, kind: Any, folder: Path) -> object:  # noqa: ANN401  # an annotation
    """*value* with its paths as seen from here: in a file they begin at its *folder*."""
    match value:
        case str() if kind is Path or (kind == StorePlace and not is_url(value)):
            return str(folder / Path(value).expanduser())
        case [*items] if item_of(kind) in {Path, CommandHook}:
            return [_based(item, item_of(kind), folder) for item in items]
        case {"command": [str(program), *more]} if kind is CommandHook and "/" in program:
            seen = str(folder.absolute() / Path(program).expanduser())
            return {**cast("dict[str, object]", value), "command": [seen, *more]}
        case dict() if _is_table(kind):
            return {name: _based(each, _inner(kind, name), folder) for name, each in value.items()}
        case _:
            return value


# The environment


def _of_environment(root: type, env: Mapping[str, str]) -> Iterator[tuple[str, object]]:
    for name in sorted(env):
        way = tuple(name.removeprefix(keys.ENV_PREFIX).lower().split(keys.NESTED))
        if name.startswith(keys.ENV_PREFIX) and env[name].strip() and _is_ours(root, way):
            told: object = EnvText(env[name])
            for part in reversed(way):
                told = {part: told}
            yield name, told


def _is_ours(root: type, way: Way) -> bool:
    """Whether the variable of *way* is for turnwheel."""
    # A misspelt one is, or it would be lost silently. But the prefix is not ours alone: where a service is
    # called turnwheel, Kubernetes sets TURNWHEEL_PORT.
    first, *more = way
    known = {*fields_of(root), *keys.OTHER_NAMES, *keys.NOT_DATA}
    return bool(more) or first in known or keys.nearest(root, way) is not None


def _toml(text: str) -> object:
    """The value of *text* in TOML; *text* itself if it is none."""
    try:
        return _parsed(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return str(text)


def _parsed(text: str) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415  # 5 ms, only where there is TOML

    return tomllib.loads(text, parse_float=Decimal)


# Values


class _Refused(ValueError):
    """A value that its kind does not accept; enums raise a plain ValueError."""


def _finite(value: Any) -> float | None:  # noqa: ANN401  # any number
    number = float(value)
    return number if math.isfinite(number) else None


def _headers(value: Any) -> HeaderPairs:  # noqa: ANN401  # one of the types of its kind
    return as_header_pairs(_inline(value))


def _object(value: Any) -> JSONObjectText:  # noqa: ANN401  # as above
    return as_object_text(_inline(value))


def _provider_tools(value: Any) -> ProviderTools:  # noqa: ANN401  # as above
    listed = isinstance(value, EnvText) and value.lstrip().startswith("[")
    return as_provider_tools(cast("list[Mapping[str, object]]", _toml(value)) if listed else value)


def _inline(value: Any) -> Any:  # noqa: ANN401  # as above
    """The table that a variable has in TOML; any other value, JSON among them, as it is."""
    return _toml(value) if isinstance(value, EnvText) and value.lstrip().startswith("{") else value


# Kinds whose values may hold a credential that was written out; their errors name none.
CREDENTIAL_KINDS = (HeaderPairs, JSONObjectText, ProviderTools, StorePlace)

# For each kind of setting the types that it is made of, and its maker, which makes None of a wrong value.
MAKERS: Mapping[Any, tuple[type | tuple[type, ...], Callable[[Any], object]]] = {
    bool: (bool, bool),
    int: (int, int),
    float: ((int, float, Decimal), _finite),
    Decimal: ((int, float, Decimal, str), as_money),
    Path: ((str, Path), lambda path: Path(path).expanduser()),
    StorePlace: ((str, Path, DatabaseAddress), store_place),
    Rule: ((str, Rule), as_rule),
    ArgumentGlobs: ((Mapping, tuple), as_globs),
    HeaderPairs: ((Mapping, tuple, str), _headers),
    JSONObjectText: ((Mapping, str), _object),
    ProviderTools: ((list, tuple, str), _provider_tools),
}


def _single(value: object, kind: Any) -> object:  # noqa: ANN401  # an annotation
    """The setting of *kind* that *value* stands for, up to the converter of its class."""
    if isinstance(value, EnvText):
        if kind is bool:
            value = TRUTH_WORDS.get(value.strip().lower(), value)
        elif kind in {int, float}:
            value = kind(value)
    types, make = MAKERS.get(kind, (str, kind))
    # True is a number to Python, and a mistake in a limit.
    fits = isinstance(value, types) and isinstance(value, bool) is (kind is bool)
    made = make(value) if fits else None
    if made is None:
        raise _Refused
    return made


def _items(value: object, kind: Any) -> Sequence[tuple[str, object]]:  # noqa: ANN401  # an annotation
    """The items of a list, with their parts of the key; a variable writes it with commas, or as in TOML."""
    if kind == keys.AGENTS and isinstance(value, Mapping):
        agents = value.items()
        return [(name, {**each, "name": name} if isinstance(each, dict) else each) for name, each in agents]
    if isinstance(value, EnvText):
        texts = [EnvText(part.strip()) for part in value.split(",") if part.strip()]
        value = _toml(value) if value.lstrip().startswith("[") else texts
    if not isinstance(value, list | tuple):
        raise _Refused
    return [(f"[{at}]", each) for at, each in enumerate(value)]


@final
class _Reader:
    """Makes objects of tables; `faults` collects every fault, each with its source."""

    def __init__(self, root: type, told: Layer) -> None:
        self._root = root
        self._told = told
        self.faults: list[str] = []

    def setting(self, value: object, key: SettingKey, way: Way) -> object:
        """The *value* of the setting *key* at *way*, as its class checks it; None behind a fault."""
        kind, attribute = key.kind, key.attribute
        if key.optional and (value is None or (value == keys.NONE_WORD and kind not in keys.ANY_TEXT)):
            return None
        try:
            if is_area(kind):
                return self.table(value, kind, way, attribute.default if attribute else None)
            if kind in MAKERS or item_of(kind) is None:
                made = _single(value, kind)
            else:
                item = SettingKey((), item_of(kind))
                made = tuple([self.setting(each, item, (*way, at)) for at, each in _items(value, kind)])
                if None in made:
                    return None
            return made if attribute is None else CONVERT_AND_CHECK(None, attribute, made)
        except (ValueError, ArithmeticError, TurnwheelError) as error:
            if kind in CREDENTIAL_KINDS and isinstance(error, ConfigError):
                # As the error has it: the value itself may hold a credential.
                problem = str(error).partition(" ")[2]
                self._fault(way, problem if problem.startswith("must") else f"is refused: {problem}")
            else:
                self._refuse(way, key, value)
            return None

    def table(self, value: object, area: type, way: Way, usual: object = None) -> object:
        """The *area* object of the table *value*, over *usual*, the default there; None behind a fault."""
        value = _written_out(value, area)
        if isinstance(value, area):
            return value
        if not isinstance(value, Mapping):
            raise _Refused
        before, made = len(self.faults), dict[str, object]()
        # A model with a name is another one than the default.
        has_usual = isinstance(usual, area) and "name" not in value
        for name, key in fields_of(area).items():
            default = key.attribute.default
            if name in value:
                made[name] = self.setting(value[name], key, (*way, name))
            elif has_usual and not isinstance(default, FACTORY):
                made[name] = getattr(usual, name)
            elif default is attrs.NOTHING:
                self._fault((*way, name), "is missing")
        for name in sorted(map(str, value.keys() - fields_of(area).keys())):
            unknown = (*way, name)
            of_variable = self._nearest(unknown).source.startswith(keys.ENV_PREFIX)
            hint = keys.suggestion(self._root, unknown, area, of_variable=of_variable)
            self._fault(unknown, f"is not known: {hint}")
        try:
            return None if len(self.faults) > before else area(**made)
        except TurnwheelError as error:
            # A check of several settings together, which names the one that it is about.
            about = re.fullmatch(r"\w+\.(\w+) (.*)", str(error), re.DOTALL)
            name, problem = about.groups() if about else ("", str(error))
            self._fault((*way, name) if name else way, problem)
            return None

    def _refuse(self, way: Way, key: SettingKey, value: object) -> None:
        shown = str(value) if isinstance(value, Decimal) else repr(value)
        shown = shown if len(shown) <= MAX_SHOWN_VALUE else f"{shown[:MAX_SHOWN_VALUE]}..."
        if fields_of(self._root)[way[0]].secret:
            shown = "a value that is not shown"
        words = tuple(key.kind) if isinstance(key.kind, type) and issubclass(key.kind, StrEnum) else ()
        near = meant(value, words) if isinstance(value, str) and words else ""
        self._fault(way, f"must be {key.accepts}; got {shown}{near and f' ({near})'}")

    def _nearest(self, way: Way) -> Source:
        """The setting that was told at *way*, or that which shares most of it."""
        ends = range(1, len(way) + 1)
        return self._told[
            max(self._told, key=lambda one: ([one[:end] == way[:end] for end in ends], -len(one)))
        ]

    def _fault(self, way: Way, problem: str) -> None:
        """Add *problem* of the setting at the end of *way*, with its source, or that of the nearest one."""
        source, key = self._nearest(way).source, ".".join(way).replace(".[", "[")
        place = f"{source} {key}" if source == ARGUMENT else f"{source}: {key}"
        self.faults.append(f"{source if source == keys.variable(way) else place} {problem}")
