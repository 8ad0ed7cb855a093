"""Values as source text: a run that went wrong, told as a test to paste."""

from __future__ import annotations

from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, cast

import attrs

from ..effects.history import History
from ..effects.pieces import Rope

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..effects.events import Event
    from ..engine.machine import Machine


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
    return f"History.of({', '.join(map(source, value))})"


def _instance(value: attrs.AttrsInstance) -> str:
    said: list[str] = []
    for field in attrs.fields(type(value)):
        part = getattr(value, field.name)
        if field.default is attrs.NOTHING or part != field.default:
            said.append(f"{field.name}={source(part)}" if field.kw_only else source(part))
    return f"{type(value).__name__}({', '.join(said)})"


def told(began: Machine, journal: Iterable[Event]) -> str:
    """A test that plays *journal* to a machine that *began* so."""
    memory = began.memory
    prompt = memory.mail[0].text if memory.mail else ""
    before = f", history={source(memory.history)}" if len(memory.history) else ""
    return "\n".join(
        [
            "def test_found() -> None:",
            f"    config = {source(began.config)}",
            f"    machine = Machine.start(config, {prompt!r}, run={memory.run!r}{before})",
            "    machine.advance()",
            *[f"    machine.advance({source(event)})" for event in journal],
        ]
    )
