"""Dispatching: a child agent is at work."""

# The child is a machine of its own, with a journal of its own. Here it is one request with one answer, so a
# child that breaks, waits for a person or is taken over is nothing that this state has to know.

from __future__ import annotations

from typing import TYPE_CHECKING

from .batch.step import BatchStep, step

if TYPE_CHECKING:
    from .context import Context
    from .state import Dispatching


def handle(state: Dispatching, ctx: Context) -> BatchStep:
    """What *ctx*'s event does while a child is at work."""
    return step(state, ctx)
