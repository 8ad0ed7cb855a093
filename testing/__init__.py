"""
The kit for testing an agent: scripted models, clocks that stand still, a machine stepped by hand, stores.

    harness         a machine stepped by hand, in the words of a test; `state_fixtures` are states to stand in
    scripted        a model that answers what a script says, for whole agents
    clocks          clocks that only move when a test says so
    stores          a store to build others of, and one that fails on demand
    store_contract  what every store promises, as checks that any store can be put to
    wire_rules      what real providers refuse in a request body, for authors of a wire
    invariants      what must hold of any run
"""

from __future__ import annotations

from .clocks import AutoClock, ManualClock
from .harness import MachineHarness, call
from .scripted import ScriptedModel

__all__ = ["AutoClock", "MachineHarness", "ManualClock", "ScriptedModel", "call"]
