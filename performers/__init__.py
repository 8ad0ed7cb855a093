"""
The room of those who do the work: models, tools, hooks and stores. They touch the world and decide nothing.

Theory of operation. The loop hands each request to the `Performer` for its type, with a `PerformContext`, and
gets one answer. `Models` asks a model on its wire, `ToolRunner` runs tools, and `HookRunner` asks hooks. A
`Store` keeps journals, and a `Vault` keeps secrets. Hosts write a `tool`, a `hook`, a store, or a wire out of
`Wire`, `Parser` and `HTTPModel`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import exports

if TYPE_CHECKING:
    from .base import (
        Clock as Clock,
        PassThroughNotice as PassThroughNotice,
        PerformContext as PerformContext,
        Performer as Performer,
        SystemClock as SystemClock,
    )
    from .hooks import (
        HookCall as HookCall,
        HookRunner as HookRunner,
        HostHook as HostHook,
        command_hook as command_hook,
        hook as hook,
    )
    from .instructions import InstructionReader as InstructionReader
    from .models.anthropic import AnthropicMessages as AnthropicMessages
    from .models.encoding import transcript as transcript
    from .models.http import Endpoint as Endpoint, HTTPModel as HTTPModel, HTTPOptions as HTTPOptions
    from .models.openai import OpenAIChat as OpenAIChat
    from .models.rate_limits import RateLimit as RateLimit
    from .models.router import Models as Models, wire_of as wire_of
    from .models.wire import (
        AnswerEnd as AnswerEnd,
        Broken as Broken,
        Complete as Complete,
        HTTPRequest as HTTPRequest,
        Parser as Parser,
        Wire as Wire,
    )
    from .secrets import MemoryVault as MemoryVault, Vault as Vault
    from .stores.base import (
        CallingStore as CallingStore,
        CheckpointingStore as CheckpointingStore,
        DeadlineStore as DeadlineStore,
        Durability as Durability,
        Entries as Entries,
        LeasingStore as LeasingStore,
        MeteringStore as MeteringStore,
        SessionInfo as SessionInfo,
        Store as Store,
        TellingStore as TellingStore,
    )
    from .stores.memory import MemoryStore as MemoryStore
    from .stores.postgres.store import PostgresStore as PostgresStore
    from .stores.sqlite import SQLiteStore as SQLiteStore
    from .tools.builtin import builtin_tools as builtin_tools
    from .tools.decorator import Tool as Tool, ToolContext as ToolContext, tool as tool
    from .tools.runner import ErrorResult as ErrorResult, ToolRunner as ToolRunner

_MODULES = {
    "base": ("Clock", "PassThroughNotice", "PerformContext", "Performer", "SystemClock"),
    "hooks": ("HookCall", "HookRunner", "HostHook", "command_hook", "hook"),
    "instructions": ("InstructionReader",),
    "models.anthropic": ("AnthropicMessages",),
    "models.encoding": ("transcript",),
    "models.http": ("Endpoint", "HTTPModel", "HTTPOptions"),
    "models.openai": ("OpenAIChat",),
    "models.rate_limits": ("RateLimit",),
    "models.router": ("Models", "wire_of"),
    "models.wire": ("AnswerEnd", "Broken", "Complete", "HTTPRequest", "Parser", "Wire"),
    "secrets": ("MemoryVault", "Vault"),
    "stores.base": (
        *(
            "CallingStore",
            "CheckpointingStore",
            "DeadlineStore",
            "Durability",
            "Entries",
            "LeasingStore",
            "MeteringStore",
            "SessionInfo",
            "Store",
            "TellingStore",
        ),
    ),
    "stores.memory": ("MemoryStore",),
    "stores.postgres.store": ("PostgresStore",),
    "stores.sqlite": ("SQLiteStore",),
    "tools.builtin": ("builtin_tools",),
    "tools.decorator": ("Tool", "ToolContext", "tool"),
    "tools.runner": ("ErrorResult", "ToolRunner"),
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__, _MODULES)
