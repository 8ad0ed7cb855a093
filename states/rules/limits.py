"""When a run has used what it may use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...effects.notices import DoneReason

if TYPE_CHECKING:
    from ...effects.config import Limits
    from ...effects.usage import Spent


def over_budget(limits: Limits, spent: Spent) -> DoneReason | None:
    """Which budget *spent* has reached: money, then tokens, then time; None for none."""
    if limits.usd is not None and spent.cost >= limits.usd:
        return DoneReason.MAX_BUDGET
    if limits.tokens is not None and spent.usage.total >= limits.tokens:
        return DoneReason.TOKEN_BUDGET
    if limits.seconds is not None and spent.seconds >= limits.seconds:
        return DoneReason.TIME_BUDGET
    return None


def exceeded(limits: Limits, spent: Spent) -> DoneReason | None:
    """Why no further model call may be made: the turns, then the budgets; None where one may."""
    if limits.turns is not None and spent.turns >= limits.turns:
        return DoneReason.MAX_TURNS
    return over_budget(limits, spent)
