"""
The kit for tests of your agents. No test with it needs a model, a network, a key or a sleep.

    scripted        a model that answers from a script, for whole agents
    clocks          clocks that move only when a test moves them
    harness         a machine stepped by hand; `state_fixtures` has one in each state
    scenarios       stories in text, with their recorded outcome
    stores          a store to derive others from, and one that fails on demand
    store_contract  the promises of a store, as checks
    wire_rules      the rules of real providers, for authors of a wire
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import store_contract, wire_rules
    from .clocks import AutoClock, ManualClock
    from .harness import CHILDREN, TOOLS, MachineHarness, call, config
    from .scenarios import Scenario, ScenarioError, read_scenario, rewritten
    from .scenarios_world import ScenarioWorld, play_scenario
    from .scripted import (
        Reply,
        ScriptedModel,
        ScriptedTools,
        ScriptEnded,
        ScriptUnfinished,
        calls,
        fails,
        says,
        stalls,
    )
    from .state_fixtures import PLACES, run_at
    from .store_promises import BrokenStore, Check, Lasts
    from .stores import FaultyStore, StoreOver

__all__ = [
    "CHILDREN",
    "PLACES",
    "TOOLS",
    "AutoClock",
    "BrokenStore",
    "Check",
    "FaultyStore",
    "Lasts",
    "MachineHarness",
    "ManualClock",
    "Reply",
    "Scenario",
    "ScenarioError",
    "ScenarioWorld",
    "ScriptEnded",
    "ScriptUnfinished",
    "ScriptedModel",
    "ScriptedTools",
    "StoreOver",
    "call",
    "calls",
    "config",
    "fails",
    "play_scenario",
    "read_scenario",
    "rewritten",
    "run_at",
    "says",
    "stalls",
    "store_contract",
    "wire_rules",
]

_MODULES = {
    "clocks": ("AutoClock", "ManualClock"),
    "harness": ("CHILDREN", "MachineHarness", "TOOLS", "call", "config"),
    "scenarios": ("Scenario", "ScenarioError", "read_scenario", "rewritten"),
    "scenarios_world": ("ScenarioWorld", "play_scenario"),
    "scripted": (
        "Reply",
        "ScriptEnded",
        "ScriptUnfinished",
        "ScriptedModel",
        "ScriptedTools",
        "calls",
        "fails",
        "says",
        "stalls",
    ),
    "state_fixtures": ("PLACES", "run_at"),
    "stores": ("FaultyStore", "StoreOver"),
    "store_promises": ("BrokenStore", "Check", "Lasts"),
}

if not TYPE_CHECKING:  # a type checker would let every name through

    def __getattr__(name: str) -> object:
        """Import the module of *name* on first use: a machine by hand pays for no store and no wire."""
        if name in {"store_contract", "wire_rules"}:
            return import_module(f".{name}", __name__)
        for module, names in _MODULES.items():
            if name in names:
                return getattr(import_module(f".{module}", __name__), name)
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)


def __dir__() -> list[str]:
    return __all__
