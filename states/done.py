"""Done: the run is over. Nothing that comes changes anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .builder import ignore
from .state import Done

if TYPE_CHECKING:
    from ..effects import Effect
    from .context import Context


def handle(state: Done, ctx: Context) -> tuple[Done, tuple[Effect, ...]]:
    """The same state, whatever *ctx*'s event is."""
    # Not an error: answers of cancelled work may still be under way when a run ends. A prompt does not wake
    # it: the session opens a run of its own for each.
    return state, ignore(state, ctx)
