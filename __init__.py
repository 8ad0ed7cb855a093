"""
turnwheel: an explicit state-machine engine for LLM agent loops, with pure transition functions.

Here is what most agents need. The rooms have the rest: `turnwheel.effects` all words, `turnwheel.states` the
seven states, `turnwheel.engine` sessions and journals, `turnwheel.performers` models, tools and stores,
`turnwheel.projections` other vocabularies, `turnwheel.settings`, `turnwheel.testing`, `turnwheel.diagrams`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

# ruff: noqa: F403, F405  # the rooms have the names, and `__all__` says which of them are here
if TYPE_CHECKING:
    from .effects import *
    from .engine import *
    from .performers import *
    from .settings import *
    from .states import *

__all__ = [
    "Agent",
    "Approve",
    "ApproveAlways",
    "ChildSpec",
    "Compaction",
    "Config",
    "Context",
    "Deny",
    "DoneReason",
    "Handle",
    "Hook",
    "HookAnswer",
    "HookCall",
    "Limits",
    "Loops",
    "Machine",
    "MemoryStore",
    "ModelSpec",
    "PermissionMode",
    "Policy",
    "Price",
    "Result",
    "Retries",
    "Rule",
    "SQLiteStore",
    "Secrets",
    "Session",
    "SetMode",
    "SetModel",
    "SetThinking",
    "Settings",
    "Singleton",
    "Tool",
    "ToolContext",
    "ToolSpec",
    "TurnwheelError",
    "builtin_tools",
    "hook",
    "tool",
    "transition",
]

if not TYPE_CHECKING:  # a type checker would let every name through

    def __getattr__(name: str) -> object:
        """Import *name* from its room on first use: a machine by hand pays for no HTTP and no store."""
        if name in __all__:
            # The light rooms come first: each is imported until one has the name.
            for room in ("effects", "performers", "states", "engine", "settings"):
                module = import_module(f".{room}", __name__)
                if name in dir(module):
                    return getattr(module, name)
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)


def __dir__() -> list[str]:
    return __all__
