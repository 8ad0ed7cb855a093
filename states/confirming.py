"""
Confirming: a person is being asked.

An answer names the request it answers, so several questions may be open and be answered in any order; a tool
that was started before goes on meanwhile. How a batch goes on is the same under its three names; see `calls`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .batch.step import step
from .state import Confirming, Dispatching, Executing, Thinking

if TYPE_CHECKING:
    from ..effects import Effect
    from .context import Context


def handle(
    state: Confirming, ctx: Context
) -> tuple[Executing | Confirming | Dispatching | Thinking, tuple[Effect, ...]]:
    """What *ctx*'s event does while a question is open."""
    return step(state, ctx)
