"""When a run has used what it may use, by itself or together with all others of its session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, TypeVar, final

import attrs

from ...effects.config import Approval, ChildSpec, Config, Limits, Price, SideEffect, ToolKind, ToolSpec
from ...effects.notices import DoneReason
from ...effects.usage import PER, Spent
from ...effects.validators import clean

N = TypeVar("N", int, float, Decimal)

NO_LIMITS = Limits()


def over_budget(limits: Limits, spent: Spent) -> DoneReason | None:
    """Which budget *spent* has reached: money, then tokens, then time; None for none."""
    # Reached and not exceeded: at the limit the next call can only go over it.
    if limits.usd is not None and spent.cost >= limits.usd:
        return DoneReason.MAX_BUDGET
    if limits.tokens is not None and spent.usage.total >= limits.tokens:
        return DoneReason.TOKEN_BUDGET
    if limits.seconds is not None and spent.seconds >= limits.seconds:
        return DoneReason.TIME_BUDGET
    return None


def exceeded(limits: Limits, spent: Spent) -> DoneReason | None:
    """Why no further model call may be made: the turns, then the budgets; None where one may."""
    # Turns are no budget of a batch: its calls belong to a turn that has been counted.
    if limits.turns is not None and spent.turns >= limits.turns:
        return DoneReason.MAX_TURNS
    return over_budget(limits, spent)


# What of a run's or a session's limits is reached.
LimitCheck = Callable[[Limits, Spent], DoneReason | None]


def may_not_go_on(
    config: Config, spent: Spent, earlier: Spent, check: LimitCheck = exceeded
) -> DoneReason | None:
    """
    Why a run that *spent* so much, in a session that spent *earlier*, may make no further model call.

    None where it may. *check* is `over_budget` where its turns do not matter.
    """
    # The run's own limits first: they are the closer reason, and what a person can change for the next run.
    if reason := check(config.limits, spent):
        return reason
    # Most sessions have none, and sums are dear where this is asked all the time.
    return None if config.session_limits == NO_LIMITS else check(config.session_limits, earlier + spent)


# The field of a limit that ends a run for each reason.
_LIMIT_FIELDS = {
    DoneReason.MAX_TURNS: "turns",
    DoneReason.TOKEN_BUDGET: "tokens",
    DoneReason.MAX_BUDGET: "usd",
    DoneReason.TIME_BUDGET: "seconds",
}


def limit_detail(reason: DoneReason, config: Config, spent: Spent, earlier: Spent) -> str:
    """Which limit of the session ends a run for *reason*; empty where it is the run's own."""
    name = _LIMIT_FIELDS[reason]
    own, all_runs = getattr(config.limits, name), getattr(config.session_limits, name)
    if all_runs is None:
        return ""
    used, total = _used(spent, reason), _used(earlier + spent, reason)
    if own is not None and own - used <= all_runs - total:
        return ""
    return f"ended by session_limits=Limits({name}={all_runs})"


def _used(spent: Spent, reason: DoneReason) -> Any:  # noqa: ANN401  # of the type of its limit
    """What *spent* has of the limit behind *reason*."""
    match reason:
        case DoneReason.MAX_TURNS:
            return spent.turns
        case DoneReason.TOKEN_BUDGET:
            return spent.usage.total
        case DoneReason.MAX_BUDGET:
            return spent.cost
        case _:
            return spent.seconds


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
    # `used - used` is a zero of the same type: money is a Decimal, time a float.
    return None if limit is None else max(limit - used, used - used)


def less(one: N | None, other: N | None) -> N | None:
    """The smaller of two limits, of which None is no limit."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


# What a request may cost at most is known before it leaves: its size, as estimated, and the longest answer.


ZERO = Decimal(0)

# Tokens of a small answer. Some providers take no lower limit, and for less nothing is worth its input.
SMALL_ANSWER = 16

# Tokens that a model thinks at least where it is told how many, since no provider takes a smaller number.
ROOM_TO_THINK = 1_024


def affordable(left: Left, asked: int, most: int, price: Price | None, least: int) -> int | DoneReason:
    """
    How many tokens, *most* or fewer, an answer at *price* may have; *asked* tokens are what it answers.

    Where *left* does not pay for *least* of them, the budget that is short.
    """
    if left.usd is not None and price is not None:
        # The dearest that each token can be: whether a provider still has it in its cache, it tells later.
        money = left.usd - asked * max(price.input, price.cache_write or ZERO) / PER
        each = max(price.output, price.reasoning or ZERO) / PER
        if money < least * each:
            return DoneReason.MAX_BUDGET
        most = min(most, int(money // each)) if each else most
    if left.tokens is not None:
        if left.tokens - asked < least:
            return DoneReason.TOKEN_BUDGET
        most = min(most, left.tokens - asked)
    return most


# What a child agent may have: a subset of its parent's tools, and no more than its parent has left.


def child_prompt(arguments: Mapping[str, object]) -> tuple[str, str]:
    """The child's name and what it is asked, from a call's *arguments*; empty where that is no text."""
    name, prompt = arguments.get("agent"), arguments.get("prompt")
    return (
        clean(name) if isinstance(name, str) else "",
        clean(prompt).strip() if isinstance(prompt, str) else "",
    )


def _unattended(tool: ToolSpec) -> bool:
    # A tool that only reads may still want a yes each time. By default a child stops at no question.
    return tool.side_effect is SideEffect.READ_ONLY and tool.approval is not Approval.ALWAYS


def child_tools(config: Config, child: ChildSpec) -> tuple[str, ...]:
    """The tools of *child*: its parent's, of those the ones it names, and never one that starts a child."""
    # A child never starts another: a chain of agents would be bounded by nothing but the budget.
    # Nor does it give the output of its parent's run.
    tools = [tool for tool in config.tools if tool.kind is ToolKind.FUNCTION]
    # What is not named is what nothing can go wrong with: a child has no person to ask.
    if child.tools is None:
        return tuple([tool.name for tool in tools if _unattended(tool)])
    return tuple([tool.name for tool in tools if child.names(tool.name)])


def granted(wanted: Limits, left: Left, held: Iterable[Limits]) -> Limits | str:
    """
    What is set aside for a child that wants *wanted*, or why it cannot start.

    *left* is what its parent has left, *held* what is set aside for other children at work. A child gets as
    much as it wants. Where its parent has less, it gets all of that if it is the only one; beside others it
    has to wait until they give back what they did not use.
    """
    # What is set aside for children counts as spent until they end. Otherwise five children started in one
    # answer could each use all that is left.
    others = list(held)
    found: list[str] = []
    free = Left(
        usd=rest(left.usd, sum([each.usd or ZERO for each in others], ZERO)),
        tokens=rest(left.tokens, sum([each.tokens or 0 for each in others])),
        seconds=rest(left.seconds, sum([each.seconds or 0.0 for each in others])),
    )
    for unit, want, have in (
        ("USD", wanted.usd, free.usd),
        ("tokens", wanted.tokens, free.tokens),
        ("seconds", wanted.seconds, free.seconds),
    ):
        # Its parent has no limit on it, so there is nothing to divide.
        if have is None:
            continue
        # Alone, a child gets what there is, if it is less than it wants. Beside others it waits: they may
        # give back what they do not use.
        if have <= 0 or (others and want is not None and want > have):
            found.append(f"{have} {unit}" if want is None else f"{have} of {want} {unit}")
    if found:
        return ", ".join(found)
    # Turns are the child's own, so they take nothing from what its parent has.
    return Limits(
        turns=wanted.turns,
        usd=less(wanted.usd, free.usd),
        tokens=less(wanted.tokens, free.tokens),
        seconds=less(wanted.seconds, free.seconds),
    )
