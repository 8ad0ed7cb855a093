"""Throwing a machine away and restoring it, as a process that ends and another one do."""

from __future__ import annotations

from ..engine.machine import Machine

KEY = bytes(range(32))
"""A key for tests, which is no secret."""


def put_back(machine: Machine) -> Machine:
    """*machine*, written down, signed and read, over the history and the settings that it goes with."""
    return Machine.restore(machine.snapshot(KEY), machine.config, machine.memory.history, KEY)
