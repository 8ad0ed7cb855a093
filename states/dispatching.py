"""Dispatching: a child agent is at work."""

# The child is a machine of its own, with a journal of its own. Here it is one request with one answer, so a
# child that breaks, waits for a person or is taken over is nothing that this state has to know.

from __future__ import annotations

from collections.abc import Callable

from .batch.step import BatchStep, step
from .context import Context
from .state import Dispatching

handle: Callable[[Dispatching, Context], BatchStep] = step
