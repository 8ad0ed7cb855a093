"""
The room of those who do the work: models, tools, hooks and stores. They touch the world and decide nothing.

Theory of operation. The loop hands each request to the `Performer` for its type, with a `PerformContext`, and
gets one answer. `Models` asks a model on its wire, `ToolRunner` runs tools, and `HookRunner` asks hooks. A
`Store` keeps journals, and a `Vault` keeps secrets. Hosts write a `tool`, a `hook`, a store, or a wire out of
`Wire`, `Parser` and `HTTPModel`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .base import Clock, PassThroughNotice, PerformContext, Performer, SystemClock
    from .hooks import HookCall, HookRunner, HostHook, command_hook, hook
    from .instructions import InstructionReader
    from .models.anthropic import AnthropicMessages
    from .models.encoding import transcript
    from .models.http import Endpoint, HTTPModel, HTTPOptions
    from .models.openai import OpenAIChat
    from .models.router import Models, wire_of
    from .models.wire import AnswerEnd, Broken, Complete, HTTPRequest, Parser, Wire
    from .secrets import MemoryVault, Vault
    from .stores.base import Durability, SessionInfo, Store
    from .stores.memory import MemoryStore
    from .stores.sqlite import SQLiteStore
    from .tools.builtin import builtin_tools
    from .tools.decorator import Tool, ToolContext, tool
    from .tools.runner import ToolRunner

__all__ = [
    "AnswerEnd",
    "AnthropicMessages",
    "Broken",
    "Clock",
    "Complete",
    "Durability",
    "Endpoint",
    "HTTPModel",
    "HTTPOptions",
    "HTTPRequest",
    "HookCall",
    "HookRunner",
    "HostHook",
    "InstructionReader",
    "MemoryStore",
    "MemoryVault",
    "Models",
    "OpenAIChat",
    "Parser",
    "PassThroughNotice",
    "PerformContext",
    "Performer",
    "SQLiteStore",
    "SessionInfo",
    "Store",
    "SystemClock",
    "Tool",
    "ToolContext",
    "ToolRunner",
    "Vault",
    "Wire",
    "builtin_tools",
    "command_hook",
    "hook",
    "tool",
    "transcript",
    "wire_of",
]

_MODULES = {
    "base": ("Clock", "PassThroughNotice", "PerformContext", "Performer", "SystemClock"),
    "hooks": ("HookCall", "HookRunner", "HostHook", "command_hook", "hook"),
    "instructions": ("InstructionReader",),
    "models.anthropic": ("AnthropicMessages",),
    "models.encoding": ("transcript",),
    "models.http": ("Endpoint", "HTTPModel", "HTTPOptions"),
    "models.openai": ("OpenAIChat",),
    "models.router": ("Models", "wire_of"),
    "models.wire": ("AnswerEnd", "Broken", "Complete", "HTTPRequest", "Parser", "Wire"),
    "secrets": ("MemoryVault", "Vault"),
    "stores.base": ("Durability", "SessionInfo", "Store"),
    "stores.memory": ("MemoryStore",),
    "stores.sqlite": ("SQLiteStore",),
    "tools.builtin": ("builtin_tools",),
    "tools.decorator": ("Tool", "ToolContext", "tool"),
    "tools.runner": ("ToolRunner",),
}


def __getattr__(name: str) -> object:
    """Import the module of *name*: an agent without HTTP, SQLite or built-in tools pays for none of them."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f".{module}", __name__), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
