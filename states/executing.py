"""Executing: tools are at work, or about to be."""

# See `batch/step.py`: a batch of calls goes on the same way in the states executing, confirming and
# dispatching. The state says what the run waits for. A batch that waits for a person is confirming, else one
# that waits for a child is dispatching, else it is executing.

from __future__ import annotations

from collections.abc import Callable

from .batch.step import BatchStep, step
from .context import Context
from .state import Executing

handle: Callable[[Executing, Context], BatchStep] = step
