"""What follows from the table: which transitions are legal, and what a state does not act on."""

from __future__ import annotations

from typing import get_args

from ..effects.events import Event
from .table import TABLE

_EVERY: frozenset[type[Event]] = frozenset(get_args(Event))

IGNORED: dict[str, frozenset[type[Event]]] = {
    state: _EVERY - {row.event for row in TABLE if row.state == state}
    for state in dict.fromkeys([*(row.state for row in TABLE), *(row.target for row in TABLE)])
}
"""What a state does not act on at all, by name. What it acts on may still name a request that is not open."""

LEGAL: frozenset[tuple[str, type[Event], str]] = frozenset((r.state, r.event, r.target) for r in TABLE)
"""The rows as a set, for the check after each transition."""
