"""turnwheel: an explicit state-machine engine for LLM agent loops, with pure transition functions."""

from __future__ import annotations

from turnwheel.effects.config import (
    Approval,
    ChildSpec,
    Concurrency,
    Config,
    Grant,
    Limits,
    ModelSpec,
    OnDenial,
    OnMaxTokens,
    PermissionMode,
    Policy,
    Price,
    Retries,
    SideEffect,
    ToolSpec,
)
from turnwheel.effects.errors import TurnwheelError
from turnwheel.effects.events import Approve, ApproveAlways, Deny
from turnwheel.effects.notices import DoneReason
from turnwheel.effects.performers.stores.memory import MemoryStore
from turnwheel.effects.performers.stores.sqlite import SQLiteStore
from turnwheel.effects.performers.tools import Tool, ToolContext, builtin_tools, tool
from turnwheel.engine.agent import Agent
from turnwheel.engine.driver import Driver
from turnwheel.engine.machine import Machine, drive
from turnwheel.engine.result import Result
from turnwheel.engine.session import Session
from turnwheel.engine.transition import transition

__all__ = [
    "Agent",
    "Approval",
    "Approve",
    "ApproveAlways",
    "ChildSpec",
    "Concurrency",
    "Config",
    "Deny",
    "DoneReason",
    "Driver",
    "Grant",
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
    "SQLiteStore",
    "Session",
    "SideEffect",
    "Tool",
    "ToolContext",
    "ToolSpec",
    "TurnwheelError",
    "builtin_tools",
    "drive",
    "tool",
    "transition",
]
