"""Confirming: a person is being asked."""

# An answer names the request that it answers. So several questions may be open and be answered in any
# order, and a tool that was started before goes on meanwhile: a person may take a day.

from __future__ import annotations

from typing import TYPE_CHECKING

from .batch.step import BatchStep, step

if TYPE_CHECKING:
    from .context import Context
    from .state import Confirming


def handle(state: Confirming, ctx: Context) -> BatchStep:
    """What *ctx*'s event does while a question is open."""
    return step(state, ctx)
