"""
Which old tool results a model is no longer shown.

They are left out in leaps and not one by one: each leap changes what a provider has cached of the
conversation. The results of one answer stay or go together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...effects.messages import Role
from ...effects.shown import left_out

if TYPE_CHECKING:
    from ...effects.history import History
    from ...effects.upkeep import Compaction


def before(settings: Compaction, history: History, cleared: int, results: int) -> int | None:
    """
    The index of the first message whose results stay, if some are left out now; None if not.

    *results* are shown of *history*, whose messages before index *cleared* are dealt with.
    """
    if settings.clear_over is None or results <= settings.clear_over:
        return None
    index, kept = len(history), 0
    while index > cleared:
        message = history[index - 1]
        if message.role is Role.TOOL:
            # Those of the latest answer stay, whatever is to be kept: no model has seen them yet.
            if kept and kept >= settings.clear_keep:
                return index
            kept += len(message.parts)
        index -= 1
    return None


def count(history: History, start: int, stop: int) -> int:
    """How many results are left out of the messages from index *start* up to *stop*."""
    return sum(left_out(part) for message in history.slice(start, stop) for part in message.parts)
