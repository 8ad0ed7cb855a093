"""`turnwheel settings`: print the settings of a run that would begin here, with the source of each."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, final

import attrs
import click

from ...effects.config import ChildSpec
from ...effects.permissions import Rule
from ...effects.request_extras import HeaderPairs
from ...performers.stores.postgres.address import DatabaseAddress
from ...settings import Settings
from ...settings.keys import ANY_TEXT, NONE_WORD, SECRET, fields_of, is_area
from ...settings.reading import FILE
from ..terminal.sanitize import HIDDEN, without_password
from ..terminal.screen import Screen
from .apply_settings import refused_keys
from .build_settings import settings_for
from .run_options import RunOptions, model_or_none
from .stores import default_store

TEXT_TABLES = (tuple[tuple[str, str], ...], HeaderPairs)
"""The types of settings that are tables of texts: of globs, of headers."""

REFUSED_KEY = f"{FILE}, refused without --settings {FILE}"
"""The source of a setting that a run refuses, since the person did not name the file."""

FROM_DEFAULT = "default"
"""The source of a setting that no file, variable or preset sets."""


@final
class SettingRow(NamedTuple):
    """A setting: its *key*, its *value* as TOML or None, and its *source*."""

    key: str
    value: str | None
    source: str


@click.command("settings")
@click.option(
    "--settings",
    "file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file of settings, in TOML. [default: turnwheel.toml, if it is there]",
)
@click.option("--told", is_flag=True, help="Hide defaults.")
@click.option("--json", "json_lines", is_flag=True, help="Each setting as a line of JSON.")
def settings(file: Path | None, *, told: bool, json_lines: bool) -> None:
    """
    Show the settings of a run that would begin here, with the source of each.

    The output is a file of settings itself, except for secrets. A setting that a run refuses is a comment
    in it, with the way to allow it.
    """
    loaded = Settings.load(file)
    options = RunOptions(
        store=loaded.store or default_store(),
        cwd=loaded.cwd,
        directories=loaded.directories,
        base_url=loaded.base_url,
        settings=loaded,
    )
    unknown_model = model_or_none(options, None) is None
    # A run would be refused for want of a model. Its other settings are shown all the same.
    options = attrs.evolve(options, stand_in=unknown_model)
    effective = attrs.evolve(settings_for(options, None, base_url=options.base_url), store=options.store)
    if unknown_model:
        effective = attrs.evolve(effective, model=loaded.model)
    if file is None:
        refused = dict.fromkeys(refused_keys(loaded), REFUSED_KEY)
        effective = attrs.evolve(effective, sources={**effective.sources, **refused})
    found = [row for row in rows(effective) if not told or row.source != FROM_DEFAULT]
    if json_lines:
        for row in found:
            click.echo(json.dumps(row._asdict()))
    else:
        _show(found, Screen(sys.stdout))


def _show(found: list[SettingRow], screen: Screen) -> None:
    lines = [f"# {row.key}" if row.value is None else f"{row.key} = {row.value}" for row in found]
    # As a comment: the output is to be a file of the settings that count.
    lines = [
        f"# {line}" if row.source == REFUSED_KEY else line for line, row in zip(lines, found, strict=True)
    ]
    room = max((len(line) for line in lines if len(line) <= ALIGN_WIDTH), default=0)
    for line, row in zip(lines, found, strict=True):
        screen.line(f"{line:{room}}  # {row.source}", "dim" if row.source == FROM_DEFAULT else "")


ALIGN_WIDTH = 60
"""The widest setting that moves the column of sources; longer ones do not."""


def rows(settings: Settings) -> Iterator[SettingRow]:
    """All *settings*, in the order of their classes."""
    yield from _rows(settings, (), settings)


def _rows(area: Any, way: tuple[str, ...], settings: Settings) -> Iterator[SettingRow]:  # noqa: ANN401  # any table of settings
    of: type = type(area)
    for (name,), kind, _, attribute in fields_of(of).values():
        here, value = (*way, name), getattr(area, name)
        if isinstance(area, ChildSpec) and name == "name":
            continue  # the key has it already
        if kind == tuple[ChildSpec, ...]:
            for child in value:
                yield from _rows(child, (*here, child.name), settings)
        elif is_area(kind) and value is not None:
            yield from _rows(value, here, settings)
        elif attribute.metadata == SECRET:
            yield SettingRow(
                _dotted(here), None, f"{_source(here, settings)}, {HIDDEN}" if value else FROM_DEFAULT
            )
        else:
            text = None if value is None and kind in ANY_TEXT else _field(kind, value)
            yield SettingRow(_dotted(here), None if is_area(kind) else text, _source(here, settings))


def _dotted(way: tuple[str, ...]) -> str:
    return ".".join(part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else json.dumps(part) for part in way)


def _source(way: tuple[str, ...], settings: Settings) -> str:
    ends = (".".join(way[:end]) for end in range(len(way), 0, -1))
    return next((settings.sources[end] for end in ends if end in settings.sources), FROM_DEFAULT)


def to_toml(value: object) -> str:
    """*value* as TOML."""
    match value:
        case bool():
            return str(value).lower()
        case int() | float() | Decimal():
            return str(value)
        case None | str() | Path() | DatabaseAddress() | Rule():
            text = NONE_WORD if value is None else without_password(str(value))
            return json.dumps(text, ensure_ascii=False)
        case tuple():
            return f"[{', '.join(to_toml(each) for each in value)}]"
        case _:
            return _table(value)


def _table(value: Any) -> str:  # noqa: ANN401  # any table of settings
    of: type = type(value)
    fields = {
        name: (kind, getattr(value, name), each.default) for (name,), kind, _, each in fields_of(of).values()
    }
    pairs = [
        f"{name} = {_field(kind, each)}" for name, (kind, each, usual) in fields.items() if each != usual
    ]
    return f"{{ {', '.join(pairs)} }}"


def _field(kind: Any, value: Any) -> str:  # noqa: ANN401  # any setting
    if kind not in TEXT_TABLES:
        return to_toml(value)
    pairs = ", ".join(f"{_dotted((key,))} = {json.dumps(text)}" for key, text in value)
    return f"{{ {pairs} }}" if pairs else "{}"
