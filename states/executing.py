"""Executing: tools are at work, or about to be."""

# A batch goes on the same way under each of its three names; `batch.step` has it. The name is for those who
# look on: it says what the run is waiting for, and a tool is the last of the three that is named.

from __future__ import annotations

from collections.abc import Callable

from .batch.step import BatchStep, step
from .context import Context
from .state import Executing

handle: Callable[[Executing, Context], BatchStep] = step
