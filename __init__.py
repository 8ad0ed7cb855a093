"""turnwheel: an explicit state-machine engine for LLM agent loops, with pure transition functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnwheel.effects.config import Approval, ChildSpec, Config, Limits, SideEffect, ToolSpec
from turnwheel.effects.errors import TurnwheelError
from turnwheel.effects.events import Approve, ApproveAlways, Deny
from turnwheel.effects.hooks import Hook, HookAnswer
from turnwheel.effects.messages import Binary
from turnwheel.effects.model import ModelSpec, Price
from turnwheel.effects.notices import DoneReason
from turnwheel.effects.performers.hooks import HookCall, command_hook, hook
from turnwheel.effects.performers.stores.memory import MemoryStore
from turnwheel.effects.performers.stores.sqlite import SQLiteStore
from turnwheel.effects.performers.tools import Tool, ToolContext, builtin_tools, tool
from turnwheel.effects.permissions import PermissionMode, Rule, Verdict
from turnwheel.effects.policy import Concurrency, Gates, OnDenial, OnLost, OnMaxTokens, Policy, Steering
from turnwheel.effects.records import SetMode, SetModel, SetThinking
from turnwheel.effects.secrets import Secrets
from turnwheel.effects.upkeep import Compaction, Loops, Retries
from turnwheel.engine.agent import Agent
from turnwheel.engine.driver import Driver
from turnwheel.engine.handle import Handle
from turnwheel.engine.machine import Machine, drive
from turnwheel.engine.prices import price_of
from turnwheel.engine.result import Result
from turnwheel.engine.session import Session
from turnwheel.engine.singleton import Singleton
from turnwheel.engine.transition import transition

if TYPE_CHECKING:
    from turnwheel.engine.settings import Settings

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
    """`Settings` is imported when somebody asks for it: many agents are told all in Python."""
    if name != "Settings":
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from turnwheel.engine.settings import Settings  # noqa: PLC0415  # as said above

    return Settings
