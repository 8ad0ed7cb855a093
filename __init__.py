"""turnwheel: an explicit state-machine engine for LLM agent loops, with pure transition functions."""

from __future__ import annotations

from turnwheel.effects.config import (
    Approval,
    ChildSpec,
    Concurrency,
    Config,
    Gates,
    Limits,
    ModelSpec,
    OnDenial,
    OnMaxTokens,
    Policy,
    Price,
    Retries,
    SideEffect,
    Steering,
    ToolSpec,
)
from turnwheel.effects.errors import TurnwheelError
from turnwheel.effects.events import Approve, ApproveAlways, Deny
from turnwheel.effects.hooks import Hook, HookAnswer
from turnwheel.effects.messages import Binary
from turnwheel.effects.notices import DoneReason
from turnwheel.effects.performers.hooks import HookCall, command_hook, hook
from turnwheel.effects.performers.stores.memory import MemoryStore
from turnwheel.effects.performers.stores.sqlite import SQLiteStore
from turnwheel.effects.performers.tools import Tool, ToolContext, builtin_tools, tool
from turnwheel.effects.permissions import PermissionMode, Rule, Verdict
from turnwheel.effects.records import SetMode, SetModel, SetThinking
from turnwheel.engine.agent import Agent
from turnwheel.engine.driver import Driver
from turnwheel.engine.handle import Handle
from turnwheel.engine.machine import Machine, drive
from turnwheel.engine.result import Result
from turnwheel.engine.session import Session
from turnwheel.engine.singleton import Singleton
from turnwheel.engine.transition import transition

__all__ = [
    "Agent",
    "Approval",
    "Approve",
    "ApproveAlways",
    "Binary",
    "ChildSpec",
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
    "Machine",
    "MemoryStore",
    "ModelSpec",
    "OnDenial",
    "OnMaxTokens",
    "PermissionMode",
    "Policy",
    "Price",
    "Result",
    "Retries",
    "Rule",
    "SQLiteStore",
    "Session",
    "SetMode",
    "SetModel",
    "SetThinking",
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
    "tool",
    "transition",
]
