"""Names of a room that are imported on first use, so that a machine by hand pays for no HTTP and no store."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def exports(
    room: str, modules: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """
    The `__getattr__` and `__dir__` of *room*, whose public names stand behind their *modules*.

    A module with no names is public itself. Names that the room imports at once need not stand there.

    Type checkers read imports, not this: give them the same names `if TYPE_CHECKING`, and keep this from
    them, since a `__getattr__` would let every name through.
    """
    homes = {name: module for module, names in modules.items() for name in names or (module,)}

    def find(name: str) -> object:
        if name not in homes:
            msg = f"module {room!r} has no attribute {name!r}"
            raise AttributeError(msg)
        module = import_module(f".{homes[name]}", room)
        found = getattr(module, name) if modules[homes[name]] else module
        # From now on it is a name of the room as any other.
        setattr(sys.modules[room], name, found)
        return found

    return find, lambda: list({*vars(sys.modules[room]), *homes})
