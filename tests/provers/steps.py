"""What provers say of a step, and a machine that is thrown away and restored."""

from __future__ import annotations

from turnwheel.effects.config import Config
from turnwheel.effects.events import Event
from turnwheel.engine.core.machine import Machine
from turnwheel.states.batch.batch import Stopping
from turnwheel.states.state import State

Happening = Event | Config
"""An event, or a configuration under which the machine continues."""


def restore_from_snapshot(machine: Machine) -> Machine:
    """The machine that another process makes of the snapshot of *machine*."""
    return Machine.restore(machine.snapshot(), machine.config, machine.memory.history)


def stopping(state: State) -> Stopping:
    """How much of its work *state* is giving up."""
    found: Stopping = getattr(getattr(state, "batch", state), "stopping", Stopping.NONE)
    return found
