"""
Where settings are told: a file, the environment, Python. Each becomes a flat layer of what was told.

Theory of operation. A layer says for each key what was told and where, so whatever turns out to be wrong can
be told with its place. Layers are laid over each other key by key; a list is one value. What is told of a
model is told of the one that is named beside it, so a layer that names another model drops the rest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast, final

import attrs

from ..effects.config import ChildSpec, Loops, ModelSpec, Policy
from ..effects.errors import ConfigError, TooLarge
from ..effects.validators import within
from .areas import (
    CommandHook,
    Debug,
    Level,
    Preset,
)
from .keys import (
    ELSEWHERE,
    NESTED,
    NOT_DATA,
    PREFIX,
    fields_of,
    is_area,
    item_of,
    nearest,
    variable,
)
from .settings import FILE, Settings

Way = tuple[str, ...]
"""The way to a setting, such as ``("limits", "usd")``."""

AGENTS = tuple[ChildSpec, ...]
"""The kind of the one list that is told as a table, by the names of what is in it."""

MAX_FILE = 1_000_000
"""Bytes of a file of settings: a thousand times those of a usual one."""

ARGUMENT = "argument"
"""The source of what Python code told."""

TRUE = frozenset({"1", "true", "yes", "on"})
FALSE = frozenset({"0", "false", "no", "off"})
"""What variables say for true and for false."""


@final
class Text(str):
    """A value of the environment: text that stands for a value of any kind."""

    __slots__ = ()


@final
@attrs.frozen
class Source:
    """The *value* of a setting, as *source* told it."""

    value: object
    source: str

    def place(self, key: str) -> str:
        """Where *key* was told, for an error."""
        if self.source.startswith(PREFIX):
            here = variable(tuple(key.split("."))) == self.source
            return self.source if here else f"{self.source}: {key}"
        return f"{self.source} {key}" if self.source == ARGUMENT else f"{self.source}: {key}"


Layer = dict[Way, Source]
"""What one source told, by the way to it."""


def layers(file: str | os.PathLike[str] | None, env: Mapping[str, str], told: Mapping[str, object]) -> Layer:
    """All that was told, the strongest on top; raises `ConfigError` where *file* cannot be read."""
    merged: Layer = {}
    for layer in (_of_file(file), _of_environment(env), dict(_flat(told, Settings, (), ARGUMENT))):
        _lay(layer, over=merged)
    whole = _of_preset(merged[("preset",)]) if ("preset",) in merged else {}
    _lay(merged, over=whole)
    return whole


def _lay(layer: Layer, *, over: Layer) -> None:
    """Lay *layer* over another one, which loses what is said anew."""
    for way, told in layer.items():
        gone = way
        if way[-1] == "name" and _kind(way[:-1]) is ModelSpec:
            gone = () if way in over and over[way].value == told.value else way[:-1]
        elif isinstance(told.value, dict):
            gone = ()  # a table adds to the one below
        for below in [known for known in over if gone and known[: len(gone)] == gone]:
            del over[below]
    over.update(layer)


def _kind(way: Way) -> Any:  # noqa: ANN401  # an annotation
    """What the setting at the end of *way* is; None where there is none."""
    kind: Any = Settings
    for name in way:
        if kind == AGENTS:
            kind = ChildSpec
        elif is_area(kind) and name in fields_of(kind):
            kind = fields_of(kind)[name][0]
        else:
            return None
    return kind


# Tables, from wherever


def _flat(value: object, kind: Any, way: Way, source: str) -> Iterator[tuple[Way, Source]]:  # noqa: ANN401  # an annotation
    """What *value*, told for a setting of *kind* at the end of *way*, says of which setting."""
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
    """What a short form of a table stands for."""
    if kind is ModelSpec and isinstance(value, str):
        return {"name": value}
    if kind is Debug and isinstance(value, str | bool):
        return {"level": _level(str(value).lower())}
    if kind is Loops and (value is False or (isinstance(value, Text) and value.lower() in FALSE)):
        return Loops.never()
    return value


def _level(text: str) -> str:
    return Level.DEBUG if text in TRUE else Level.OFF if text in FALSE else text


def _of_preset(preset: Source) -> Layer:
    """What a preset says of its policy, where that differs from the usual one."""
    if preset.value not in tuple(Preset):
        return {}
    policy, usual = Preset(str(preset.value)).policy, Policy()
    told = Source(None, f"preset {preset.value}")
    return {
        ("policy", name): attrs.evolve(told, value=getattr(policy, name))
        for name in fields_of(Policy)
        if getattr(policy, name) != getattr(usual, name)
    }


# The file


def _of_file(file: str | os.PathLike[str] | None) -> Layer:
    import tomllib  # noqa: PLC0415  # needed by those only who have a file
    from decimal import Decimal  # noqa: PLC0415  # as above

    path = Path(FILE if file is None else file).expanduser()
    try:
        with path.open("rb") as opened:
            data = opened.read(MAX_FILE + 1)
        within(f"the file of settings {str(path)!r}", len(data), MAX_FILE, "bytes")
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
    except (ValueError, RecursionError) as error:  # also numbers and nesting beyond all measure
        msg = f"the settings in {str(path)!r} are no TOML: {error}"
        raise ConfigError(msg) from error
    flat = dict(_flat(told, Settings, (), str(path)))
    return {
        key: attrs.evolve(each, value=_based(each.value, _kind(key), path.parent))
        for key, each in flat.items()
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


def _of_environment(env: Mapping[str, str]) -> Layer:
    told: Layer = {}
    for name in sorted(env):
        way = tuple(name.removeprefix(PREFIX).lower().split(NESTED))
        if name.startswith(PREFIX) and env[name].strip() and _ours(way):
            kind = _kind(way)
            told.update(_flat(_table(env[name], kind), kind, way, name))
    return told


def _table(text: str, kind: Any) -> object:  # noqa: ANN401  # an annotation
    """*text* as a table where it is written as one and one is wanted."""
    return toml(text) if _is_table(kind) and text.lstrip().startswith("{") else Text(text)


def toml(text: str) -> object:
    """The value that *text* is in TOML; *text* itself where it is none."""
    import tomllib  # noqa: PLC0415  # needed by those only who tell a list so
    from decimal import Decimal  # noqa: PLC0415  # as above

    try:
        return tomllib.loads(f"value = {text}", parse_float=Decimal)["value"]
    except tomllib.TOMLDecodeError:
        return text


def _ours(way: Way) -> bool:
    """
    Whether a variable is for us that leads this *way*. A slip of the pen is, or it would be lost silently.

    The prefix is not ours alone: where a service is called turnwheel, Kubernetes sets TURNWHEEL_PORT.
    """
    first, *more = way
    known = more or _kind(way) is not None or first in {*ELSEWHERE, *NOT_DATA}
    return bool(known) or nearest(way) is not None
