"""
turnwheel: an explicit state-machine engine for LLM agent loops, with pure transition functions.

Here is what most agents need. The rooms have the rest: `turnwheel.effects` all words, `turnwheel.states` the
seven states, `turnwheel.engine` sessions and journals, `turnwheel.performers` models, tools and stores,
`turnwheel.projections` other vocabularies, `turnwheel.settings`, `turnwheel.testing`, `turnwheel.diagrams`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .effects.config import (
        ChildSpec,
        Compaction,
        Config,
        Limits,
        Loops,
        ModelSpec,
        Policy,
        Price,
        Retries,
        ToolSpec,
    )
    from .effects.errors import TurnwheelError
    from .effects.events import Approve, ApproveAlways, Deny
    from .effects.hooks import Hook, HookAnswer
    from .effects.notices import DoneReason
    from .effects.permissions import PermissionMode, Rule
    from .effects.records import SetMode, SetModel, SetThinking
    from .effects.secrets import Secrets
    from .engine.agent import Agent
    from .engine.machine import Machine
    from .engine.session.session import Handle, Result, Session
    from .engine.session.singleton import Singleton
    from .engine.transition import transition
    from .performers.hooks import HookCall, hook
    from .performers.stores.memory import MemoryStore
    from .performers.stores.sqlite import SQLiteStore
    from .performers.tools.builtin import builtin_tools
    from .performers.tools.decorator import Tool, ToolContext, tool
    from .settings.settings import Settings
    from .states.context import Context

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

_MODULES = {
    "effects.config": (
        "ChildSpec",
        "Compaction",
        "Config",
        "Limits",
        "Loops",
        "ModelSpec",
        "Policy",
        "Price",
        "Retries",
        "ToolSpec",
    ),
    "effects.errors": ("TurnwheelError",),
    "effects.events": ("Approve", "ApproveAlways", "Deny"),
    "effects.hooks": ("Hook", "HookAnswer"),
    "effects.notices": ("DoneReason",),
    "effects.permissions": ("PermissionMode", "Rule"),
    "effects.records": ("SetMode", "SetModel", "SetThinking"),
    "effects.secrets": ("Secrets",),
    "engine.agent": ("Agent",),
    "engine.machine": ("Machine",),
    "engine.session.session": ("Handle", "Result", "Session"),
    "engine.session.singleton": ("Singleton",),
    "engine.transition": ("transition",),
    "performers.hooks": ("HookCall", "hook"),
    "performers.stores.memory": ("MemoryStore",),
    "performers.stores.sqlite": ("SQLiteStore",),
    "performers.tools.builtin": ("builtin_tools",),
    "performers.tools.decorator": ("Tool", "ToolContext", "tool"),
    "settings.settings": ("Settings",),
    "states.context": ("Context",),
}

if not TYPE_CHECKING:  # a type checker would let every name through

    def __getattr__(name: str) -> object:
        """Import the module of *name* on first use: a machine by hand pays for no HTTP and no store."""
        for module, names in _MODULES.items():
            if name in names:
                return getattr(import_module(f".{module}", __name__), name)
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)


def __dir__() -> list[str]:
    return __all__
