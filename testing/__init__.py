"""
The kit for tests of your agents. No test with it needs a model, a network, a key or a sleep.

    scripted        a model that answers from a script, for whole agents
    clocks          clocks that move only when a test moves them
    harness         a machine stepped by hand; `state_fixtures` has one in each state
    scenarios       stories in text, with their recorded outcome; `scenario_files` puts them to your agent
    stores          a store to derive others from, and one that fails on demand
    store_contract  the promises of a store, as checks
    wire_rules      the rules of real providers, for authors of a wire
"""

from __future__ import annotations

from ..lazy import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
