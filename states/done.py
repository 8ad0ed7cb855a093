"""Done: the run is over. Nothing that comes changes anything."""

from __future__ import annotations

from ..effects import Effect
from .builder import ignore
from .context import Context
from .state import Done


def handle(state: Done, ctx: Context) -> tuple[Done, tuple[Effect, ...]]:
    """The same state, whatever *ctx*'s event is."""
    # Not an error: answers of cancelled work may still be under way when a run ends. A prompt does not wake
    # it: the session opens a run of its own for each.
    return state, ignore(state, ctx)
