"""
Public names of the root and of rooms, imported on first use: a machine by hand pays for no HTTP and no store.

The names stand in one list, the stub `__init__.pyi` beside the `__init__.py`, as `lazy_loader` and SPEC 1 of
scientific Python have it. Type checkers and editors read the stub, and `exports` reads it when the program
runs.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module


def exports(room: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """
    The `__getattr__`, `__dir__` and `__all__` of the package *room*, from the stub beside its *file*.

    The stub has imports alone: `from .module import Name as Name`, or `from . import module as module`.
    Whatever packs a program into one file has to take the stubs along.
    """
    # A machine by hand needs no pathlib, and its import takes longer than all of this.
    with open(f"{file.rpartition('.')[0]}.pyi", "rb") as stub:  # noqa: PTH123  # see above
        statements = ast.parse(stub.read()).body
    homes = {
        alias.name: statement.module
        for statement in statements
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    names = sorted(homes)

    def find(name: str) -> object:
        if name not in homes:
            msg = f"module {room!r} has no attribute {name!r}"
            raise AttributeError(msg, name=name, obj=sys.modules.get(room))
        home = homes[name]
        module = import_module(f".{home or name}", room)
        value = getattr(module, name) if home else module
        # The next look finds the name in the package and does not come here.
        setattr(sys.modules[room], name, value)
        return value

    return find, lambda: names, names
