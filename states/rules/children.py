"""What a child agent may have: a subset of its parent's tools, and no more than its parent has left."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from ...effects.config import Approval, Limits, SideEffect, ToolKind
from ...effects.text import clean
from .limits import Left, less, rest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ...effects.config import ChildSpec, Config, ToolSpec

ZERO = Decimal(0)


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


def granted(wanted: Limits, left: Left, held: Iterable[Limits]) -> Limits | str:
    """
    What is set aside for a child that wants *wanted*, or why it cannot start.

    *left* is what its parent has left, *held* what is set aside for other children at work. A child gets as
    much as it wants. Where its parent has less, it gets all of that if it is the only one; beside others it
    has to wait until they give back what they did not use.
    """
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
        if have is None:
            continue
        if have <= 0 or (others and want is not None and want > have):
            found.append(f"{have} {unit}" if want is None else f"{have} of {want} {unit}")
    if found:
        return ", ".join(found)
    return Limits(
        turns=wanted.turns,
        usd=less(wanted.usd, free.usd),
        tokens=less(wanted.tokens, free.tokens),
        seconds=less(wanted.seconds, free.seconds),
    )
