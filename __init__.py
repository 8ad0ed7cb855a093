"""turnwheel: an explicit state-machine engine for LLM agent loops, with pure transition functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .effects.config import (
    Approval,
    ChildSpec,
    Compaction,
    Concurrency,
    Config,
    Gates,
    Limits,
    Loops,
    ModelSpec,
    OnDenial,
    OnLost,
    OnMaxTokens,
    Policy,
    Price,
    Retries,
    SideEffect,
    Steering,
    ToolSpec,
)
from .effects.errors import TurnwheelError
from .effects.events import Approve, ApproveAlways, Deny
from .effects.hooks import Hook, HookAnswer
from .effects.messages import Binary
from .effects.notices import DoneReason
from .effects.permissions import PermissionMode, Rule, Verdict
from .effects.records import SetMode, SetModel, SetThinking
from .effects.secrets import Secrets
from .engine.agent import Agent
from .engine.driver import Driver
from .engine.machine import Machine, drive
from .engine.prices import price_of
from .engine.session.session import Handle, Result, Session
from .engine.session.singleton import Singleton
from .engine.transition import transition
from .performers.hooks import HookCall, command_hook, hook
from .performers.stores.memory import MemoryStore
from .performers.tools.decorator import Tool, ToolContext, tool

if TYPE_CHECKING:
    from .performers.stores.sqlite import SQLiteStore
    from .performers.tools.builtin import builtin_tools
    from .settings import Settings

__all__ = [
    "Agent",
    "Approval",
    "Approve",
    "ApproveAlways",
    "Binary",
    "ChildSpec",
    "Compaction",
    "Concurrency",
    "Config",
    "Deny",
    "DoneReason",
    "Driver",
    "Gates",
    "Handle",
    "Hook",
    "HookAnswer",
    "HookCall",
    "Limits",
    "Loops",
    "Machine",
    "MemoryStore",
    "ModelSpec",
    "OnDenial",
    "OnLost",
    "OnMaxTokens",
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
    "SideEffect",
    "Singleton",
    "Steering",
    "Tool",
    "ToolContext",
    "ToolSpec",
    "TurnwheelError",
    "Verdict",
    "builtin_tools",
    "command_hook",
    "drive",
    "hook",
    "price_of",
    "tool",
    "transition",
]


def __getattr__(name: str) -> object:
    """Import what takes its time when it is asked for: many agents have no file, tools or settings."""
    homes = {
        "SQLiteStore": ".performers.stores.sqlite",
        "Settings": ".settings",
        "builtin_tools": ".performers.tools.builtin",
    }
    if name not in homes:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from importlib import import_module  # noqa: PLC0415  # most imports of this package ask for none of them

    return getattr(import_module(homes[name], __name__), name)
