"""What a child agent may have: a subset of its parent's tools, and no more than its parent has left."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, TypeVar

from ...effects.config import Approval, Limits, SideEffect, ToolKind
from ...effects.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...effects.config import ChildSpec, Config, ToolSpec
    from ...effects.usage import Spent

PENNY = Decimal("0.000001")
INSTANT = 0.001

N = TypeVar("N", int, float, Decimal)


def child_prompt(arguments: Mapping[str, object]) -> tuple[str, str]:
    """The child's name and what it is asked, from a call's *arguments*; empty where that is no text."""
    name, prompt = arguments.get("agent"), arguments.get("prompt")
    return (
        clean(name) if isinstance(name, str) else "",
        clean(prompt).strip() if isinstance(prompt, str) else "",
    )


def _unattended(tool: ToolSpec) -> bool:
    return tool.side_effect is SideEffect.READ_ONLY and tool.approval is not Approval.ALWAYS


def child_tools(config: Config, child: ChildSpec) -> tuple[str, ...]:
    """The tools of *child*: its parent's, of those the ones it names, and never one that starts a child."""
    tools = [tool for tool in config.tools if tool.kind is not ToolKind.AGENT]
    if child.tools is None:
        return tuple([tool.name for tool in tools if _unattended(tool)])
    return tuple([tool.name for tool in tools if tool.name in child.tools])


def remainder(wanted: Limits, limits: Limits, spent: Spent) -> Limits:
    """The limits of a child that wants *wanted*, of a parent with *limits* that has *spent*."""
    # Nothing left is not "no limit": the child then gets so little that it ends at its first check.
    usd = None if limits.usd is None else max(limits.usd - spent.cost, PENNY)
    tokens = None if limits.tokens is None else max(limits.tokens - spent.usage.total, 1)
    seconds = None if limits.seconds is None else max(limits.seconds - spent.seconds, INSTANT)
    return Limits(
        turns=wanted.turns,
        usd=_less(wanted.usd, usd),
        tokens=_less(wanted.tokens, tokens),
        seconds=_less(wanted.seconds, seconds),
    )


def _less(wanted: N | None, left: N | None) -> N | None:
    if wanted is None or left is None:
        return left if wanted is None else wanted
    return min(wanted, left)
