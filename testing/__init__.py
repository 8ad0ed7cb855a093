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

from typing import TYPE_CHECKING

from ..lazy import exports
from .clocks import AutoClock as AutoClock, ManualClock as ManualClock
from .scripted import (
    Reply as Reply,
    ScriptedModel as ScriptedModel,
    ScriptedTools as ScriptedTools,
    ScriptEnded as ScriptEnded,
    ScriptUnfinished as ScriptUnfinished,
    calls as calls,
    fails as fails,
    says as says,
    stalls as stalls,
)

if TYPE_CHECKING:
    from . import store_contract as store_contract, wire_rules as wire_rules
    from .harness import (
        CHILDREN as CHILDREN,
        TOOLS as TOOLS,
        MachineHarness as MachineHarness,
        call as call,
        config as config,
    )
    from .scenarios import (
        Scenario as Scenario,
        ScenarioError as ScenarioError,
        read_scenario as read_scenario,
        rewritten as rewritten,
    )
    from .scenarios_world import ScenarioWorld as ScenarioWorld, play_scenario as play_scenario
    from .state_fixtures import PLACES as PLACES, run_at as run_at
    from .store_parts import BrokenStore as BrokenStore, Check as Check, Lasts as Lasts
    from .stores import FaultyStore as FaultyStore, StoreOver as StoreOver

_MODULES = {
    "harness": ("CHILDREN", "MachineHarness", "TOOLS", "call", "config"),
    "scenarios": ("Scenario", "ScenarioError", "read_scenario", "rewritten"),
    "scenarios_world": ("ScenarioWorld", "play_scenario"),
    "state_fixtures": ("PLACES", "run_at"),
    "store_contract": (),
    "store_parts": ("BrokenStore", "Check", "Lasts"),
    "stores": ("FaultyStore", "StoreOver"),
    "wire_rules": (),
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__, _MODULES)
