"""Memories as no event leads to them, for tests of what follows from one."""

from __future__ import annotations

from typing import Any

import attrs

from turnwheel.states.context import Memory


def remember(memory: Memory, **changes: Any) -> Memory:
    """*memory* with these fields changed, in whichever of its groups they are."""
    groups: dict[str, Any] = {}
    for name in ("session", "conversation", "progress"):
        group = getattr(memory, name)
        mine = {field.name for field in attrs.fields(type(group))} & changes.keys()
        groups[name] = attrs.evolve(group, **{each: changes.pop(each) for each in mine})
    return attrs.evolve(memory, **groups, **changes)
