"""
Dispatching: a child agent is at work.

The child is a machine of its own; here it is one request with one answer. How a batch goes on is the same
under its three names; see `calls`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .batch.step import step
from .state import Confirming, Dispatching, Executing, Thinking

if TYPE_CHECKING:
    from ..effects import Effect
    from .context import Context


def handle(
    state: Dispatching, ctx: Context
) -> tuple[Executing | Confirming | Dispatching | Thinking, tuple[Effect, ...]]:
    """What *ctx*'s event does while a child is at work."""
    return step(state, ctx)
