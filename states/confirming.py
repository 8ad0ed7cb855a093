"""Confirming: a person is being asked."""

# An answer names the request that it answers. So several questions may be open and be answered in any
# order, and a tool that was started before goes on meanwhile: a person may take a day.

from __future__ import annotations

from collections.abc import Callable

from .batch.step import BatchStep, step
from .context import Context
from .state import Confirming

handle: Callable[[Confirming, Context], BatchStep] = step
