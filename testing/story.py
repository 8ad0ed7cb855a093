"""Values as source text: a run that went wrong, told as a test to paste."""

from __future__ import annotations

from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, cast

import attrs

from ..effects.config import Config
from ..effects.history import History
from ..effects.pieces import Rope

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..engine.machine import Machine
    from .steps import Happening


def source(value: object) -> str:
    """*value* as Python text; fields at their default are left out."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, tuple):
        items = [source(item) for item in cast("tuple[object, ...]", value)]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    if isinstance(value, History | Rope):
        return _shared(value)
    if isinstance(value, Decimal):
        return f'Decimal("{value}")'
    if attrs.has(type(value)):
        return _instance(cast("attrs.AttrsInstance", value))
    return repr(value)


def _shared(value: History | Rope) -> str:
    if isinstance(value, Rope):
        return f"Rope.of({source(value.pieces)}, {value.count})"
    revision = [f"revision={value.revision}"] if value.revision else []
    return f"History.of({', '.join([*map(source, value), *revision])})"


def _instance(value: attrs.AttrsInstance) -> str:
    said: list[str] = []
    named = False
    for field in attrs.fields(type(value)):
        part = getattr(value, field.name)
        named = named or field.kw_only
        if field.default is attrs.NOTHING or part != field.default:
            said.append(f"{field.name}={source(part)}" if named else source(part))
        else:
            named = True  # what follows is in no place of its own any more
    return f"{type(value).__name__}({', '.join(said)})"


def told(began: Machine, journal: Iterable[Happening]) -> str:
    """A test that plays *journal* to a machine that *began* so."""
    return "\n".join(
        [
            "def test_found() -> None:",
            f"    config = {source(began.config)}",
            f"    machine = Machine(config, {source(began.state)}, {source(began.memory)})",
            "    machine.advance()",
            *[
                f"    machine.{'reconfigure' if isinstance(one, Config) else 'advance'}({source(one)})"
                for one in journal
            ],
        ]
    )
