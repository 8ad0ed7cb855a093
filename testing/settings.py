"""The settings a player plays under: a tool of each kind, and every policy, limit and window."""

from __future__ import annotations

from decimal import Decimal

from ..effects.config import (
    Approval,
    ChildSpec,
    Concurrency,
    Config,
    Grant,
    Limits,
    ModelSpec,
    OnDenial,
    OnMaxTokens,
    PermissionMode,
    Policy,
    Price,
    Retries,
    SideEffect,
    ToolKind,
    ToolSpec,
)
from .choices import Choices, chance, pick, weighted

PATH = """{
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": false
}"""
TASK = """{
    "type": "object",
    "properties": {"agent": {"type": "string"}, "prompt": {"type": "string"}},
    "required": ["agent"]
}"""

TOOLS = (
    ToolSpec(name="look", schema=PATH, side_effect=SideEffect.READ_ONLY),
    ToolSpec(name="peek", schema=PATH, side_effect=SideEffect.READ_ONLY, approval=Approval.ALWAYS),
    ToolSpec(name="write", schema=PATH),
    ToolSpec(name="note", schema=PATH, side_effect=SideEffect.IDEMPOTENT, approval=Approval.NEVER),
    ToolSpec(name="send", schema=TASK, kind=ToolKind.AGENT),
    ToolSpec(
        name="scout",
        schema=TASK,
        kind=ToolKind.AGENT,
        side_effect=SideEffect.READ_ONLY,
        approval=Approval.ALWAYS,
    ),
    ToolSpec(name="ranger", schema=TASK, kind=ToolKind.AGENT, side_effect=SideEffect.READ_ONLY),
)
"""One tool of each kind that makes a difference."""

CHILDREN = (
    ChildSpec(name="kid"),
    ChildSpec(name="heir", tools=("look", "write", "send", "scout", "nowhere")),
)


def config(choices: Choices) -> Config:
    """
    Settings of any kind: every policy, with and without limits, prices, rules and a tight window.

    One in three is a crowd: many calls at work at once and little time for them, where the rare rows are.
    """
    if chance(choices, 33):
        return _crowd(choices)
    return Config(
        model=ModelSpec(
            name="wire:model",
            window=weighted(choices, {200_000: 40, 400: 35, 150: 25}),
            price=Price(input="3", output="15", cached="0.3"),
        ),
        tools=TOOLS,
        children=CHILDREN,
        limits=limits(choices),
        policy=policy(choices),
        retries=Retries(overloaded=choices.below(3), failed=choices.below(3)),
        allow=weighted(
            choices, {(): 70, (Grant(tool="write", where=(("path", "a*"),)), Grant(tool="send")): 30}
        ),
    )


def _crowd(choices: Choices) -> Config:
    return Config(
        model=ModelSpec(name="wire:model"),
        tools=tuple([tool for tool in TOOLS if tool.side_effect is SideEffect.READ_ONLY]),
        children=CHILDREN,
        limits=Limits(seconds=float(3 + choices.below(9))),
        policy=Policy(concurrency=Concurrency.PARALLEL_READS, on_denial=OnDenial.SKIP_REST, max_parallel=9),
    )


def policy(choices: Choices) -> Policy:
    """Any policy."""
    return Policy(
        on_denial=pick(choices, tuple(OnDenial)),
        on_max_tokens=pick(choices, tuple(OnMaxTokens)),
        concurrency=weighted(choices, {Concurrency.SERIAL: 30, Concurrency.PARALLEL_READS: 70}),
        max_parallel=weighted(choices, {5: 70, 1: 15, 2: 15}),
        compact_at=weighted(choices, {0.8: 50, 0.3: 50}),
        mode=weighted(choices, {PermissionMode.DEFAULT: 90, PermissionMode.BYPASS: 10}),
    )


def limits(choices: Choices) -> Limits:
    """No limits, one of a kind, or all of them."""
    kind = weighted(choices, {"none": 40, "turns": 10, "tokens": 20, "usd": 5, "seconds": 20, "all": 5})
    return Limits(
        turns=1 + choices.below(4) if kind in {"turns", "all"} else None,
        tokens=100 * (1 + choices.below(40)) if kind in {"tokens", "all"} else None,
        usd=Decimal(1 + choices.below(20)) / 1000 if kind in {"usd", "all"} else None,
        seconds=float(1 + choices.below(30)) if kind in {"seconds", "all"} else None,
    )
