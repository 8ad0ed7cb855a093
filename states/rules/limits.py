"""When a run has used what it may use, by itself or together with all others of its session."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, TypeVar, final

import attrs

from ...effects.config import Limits
from ...effects.notices import DoneReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...effects.config import Config
    from ...effects.usage import Spent

N = TypeVar("N", int, float, Decimal)

NONE = Limits()


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


def out_of_budget(config: Config, spent: Spent, earlier: Spent) -> DoneReason | None:
    """Which budget of *config* a run has reached that *spent* so much, in a session that spent *earlier*."""
    return _reached(over_budget, config, spent, earlier)


def may_not_go_on(config: Config, spent: Spent, earlier: Spent) -> DoneReason | None:
    """As `out_of_budget`, with the turns: why no further model call may be made."""
    return _reached(exceeded, config, spent, earlier)


def _reached(
    check: Callable[[Limits, Spent], DoneReason | None], config: Config, spent: Spent, earlier: Spent
) -> DoneReason | None:
    """What *check* says of the run's limits, else of its session's."""
    if reason := check(config.limits, spent):
        return reason
    # Most sessions have none, and sums are dear where this is asked all the time.
    return None if config.session_limits == NONE else check(config.session_limits, earlier + spent)


@final
@attrs.frozen(kw_only=True)
class Left:
    """What is left of the budgets, never below 0; None where there is none."""

    usd: Decimal | None = None
    tokens: int | None = None
    seconds: float | None = None


def left(config: Config, spent: Spent, earlier: Spent) -> Left:
    """What a run under *config* has left that *spent* so much, in a session that spent *earlier*."""
    run, session, total = config.limits, config.session_limits, earlier + spent
    return Left(
        usd=less(rest(run.usd, spent.cost), rest(session.usd, total.cost)),
        tokens=less(rest(run.tokens, spent.usage.total), rest(session.tokens, total.usage.total)),
        seconds=less(rest(run.seconds, spent.seconds), rest(session.seconds, total.seconds)),
    )


def rest(limit: N | None, used: N) -> N | None:
    """What is left of *limit*, never below 0."""
    return None if limit is None else max(limit - used, used - used)


def less(one: N | None, other: N | None) -> N | None:
    """The smaller of two limits, of which None is no limit."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
