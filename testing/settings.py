"""The settings a player plays under: a tool of each kind, and every policy, limit and window."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any

import attrs

from ..effects.config import (
    Approval,
    ChildSpec,
    Concurrency,
    Config,
    Gates,
    Limits,
    ModelSpec,
    OnDenial,
    OnMaxTokens,
    Policy,
    Price,
    Retries,
    SideEffect,
    ToolKind,
    ToolSpec,
)
from ..effects.hooks import Hook, HookSpec
from ..effects.permissions import PermissionMode, Rule, Verdict
from .choices import Choices, pick, weighted

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

OTHER = ModelSpec(name="wire:other", window=300, thinking=500, price=Price(input="1", output="5"))
"""A model that a run may be switched to: cheaper, smaller, and with a budget to think."""

TOOLS = (
    ToolSpec(name="look", schema=PATH, side_effect=SideEffect.READ_ONLY),
    ToolSpec(
        name="peek",
        schema=PATH,
        side_effect=SideEffect.READ_ONLY,
        approval=Approval.ALWAYS,
        resources=("keyhole",),
    ),
    ToolSpec(name="write", schema=PATH, edits=True, resources=("{path}",)),
    ToolSpec(
        name="note",
        schema=PATH,
        side_effect=SideEffect.IDEMPOTENT,
        approval=Approval.NEVER,
        resources=("notes",),
    ),
    ToolSpec(name="send", schema=TASK, kind=ToolKind.AGENT, resources=("agent {agent}",)),
    ToolSpec(
        name="scout",
        schema=TASK,
        kind=ToolKind.AGENT,
        side_effect=SideEffect.READ_ONLY,
        approval=Approval.ALWAYS,
    ),
    ToolSpec(
        name="ranger",
        schema=TASK,
        kind=ToolKind.AGENT,
        side_effect=SideEffect.READ_ONLY,
        resources=("woods",),
    ),
)
"""One tool of each kind that makes a difference."""

VETTED: Mapping[frozenset[str], int] = {
    frozenset({"peek", "write", "note", "send", "ranger"}): 65,
    frozenset({"write", "send"}): 35,
}
"""The names of those that are met in a vetted crowd: one of each kind, or only what is asked about."""

CHILDREN = (
    ChildSpec(name="kid"),
    ChildSpec(name="heir", tools=("look", "write", "send", "scout", "nowhere")),
)


RULES = (
    Rule(verdict=Verdict.ALLOW, tool="write", where=(("path", "a*"),)),
    Rule(verdict=Verdict.ALLOW, tool="send"),
    Rule(verdict=Verdict.ASK, tool="look", where=(("path", "b*"),)),
    Rule(verdict=Verdict.DENY, tool="*", where=(("path", "*secret*"),)),
)
"""One rule of each kind."""

HOOKS = (
    HookSpec(name="guard", hook=Hook.PRE_TOOL_USE, tool="[lws]*"),
    HookSpec(name="second", hook=Hook.PRE_TOOL_USE, tool="write"),
    HookSpec(name="audit", hook=Hook.POST_TOOL_USE),
    HookSpec(name="nurse", hook=Hook.POST_TOOL_USE_FAILURE, tool="w*"),
    HookSpec(name="porter", hook=Hook.USER_PROMPT_SUBMIT),
    HookSpec(name="usher", hook=Hook.SESSION_START),
    HookSpec(name="clerk", hook=Hook.PRE_COMPACT),
    HookSpec(name="coach", hook=Hook.STOP),
)
"""One hook for each place."""


def config(choices: Choices) -> Config:
    """
    Settings of any kind: every policy, with and without limits, prices, rules and a tight window.

    More than half of them are crowds: many calls at work at once, and little time, where the rare rows are.
    """
    match weighted(choices, {"any": 30, "crowd": 30, "vetted": 40}):
        case "crowd":
            return _crowd(choices)
        case "vetted":
            return _vetted(choices)
        case _:
            return Config(
                model=ModelSpec(
                    name="wire:model",
                    window=weighted(choices, {200_000: 40, 400: 35, 150: 25}),
                    thinking=weighted(choices, {None: 70, 1_000: 30}),
                    price=Price(input="3", output="15", cached="0.3"),
                ),
                models=(OTHER,),
                system="be kind",
                tools=TOOLS,
                children=CHILDREN,
                limits=limits(choices),
                policy=policy(choices),
                retries=Retries(overloaded=choices.below(3), failed=choices.below(3)),
                rules=weighted(choices, {(): 60, RULES: 40}),
                hooks=weighted(choices, {(): 50, HOOKS: 35, HOOKS[:3]: 15}),
                instructions=weighted(choices, {(): 80, ("AGENTS.md",): 20}),
            )


def _crowd(choices: Choices) -> Config:
    """Many reads side by side, questions about some, and little time."""
    return Config(
        model=ModelSpec(name="wire:model"),
        tools=tuple([tool for tool in TOOLS if tool.side_effect is SideEffect.READ_ONLY]),
        children=CHILDREN,
        limits=Limits(seconds=float(4 + choices.below(12))),
        hooks=weighted(choices, {(): 55, HOOKS[:3]: 25, HOOKS[-1:]: 20}),
        policy=Policy(
            concurrency=Concurrency.PARALLEL_READS,
            on_denial=OnDenial.SKIP_REST,
            max_parallel=9,
            answer_within=weighted(choices, {None: 50, 3.0: 50}),
        ),
    )


def _vetted(choices: Choices) -> Config:
    """Calls that are judged, asked about and then looked at by hooks, side by side with several children."""
    met = weighted(choices, VETTED)
    return Config(
        model=ModelSpec(name="wire:model"),
        tools=tuple([tool for tool in TOOLS if tool.name in met]),
        children=CHILDREN,
        rules=weighted(choices, {(): 60, RULES[:1]: 40}),
        hooks=(HookSpec(name="guard", hook=Hook.PRE_TOOL_USE, tool="[nw]*"), *HOOKS[3:4]),
        policy=Policy(
            concurrency=weighted(
                choices, {Concurrency.PARALLEL: 50, Concurrency.PARALLEL_READS: 30, Concurrency.SERIAL: 20}
            ),
            gates=weighted(choices, {Gates.RULES_FIRST: 70, Gates.HOOKS_FIRST: 30}),
            mode=weighted(choices, {PermissionMode.DEFAULT: 85, PermissionMode.BYPASS: 15}),
            on_denial=OnDenial.SKIP_REST,
            max_parallel=9,
            answer_within=weighted(choices, {None: 50, 3.0: 50}),
        ),
    )


def changed(  # noqa: PLR0911  # one return for each thing that may be another
    choices: Choices, config: Config
) -> Config:
    """*config* as another process may have it, which goes on with the run: one thing is different."""
    match pick(choices, ("policy", "denial", "tools", "rules", "hooks", "model", "limits")):
        case "policy":
            return attrs.evolve(config, policy=policy(choices))
        case "denial":
            return _decides(config, on_denial=pick(choices, tuple(OnDenial)))
        case "tools":
            gone = pick(choices, ("none", *[tool.name for tool in TOOLS]))
            return attrs.evolve(config, tools=tuple([tool for tool in TOOLS if tool.name != gone]))
        case "rules":
            return attrs.evolve(config, rules=pick(choices, ((), RULES)))
        case "hooks":
            return attrs.evolve(config, hooks=pick(choices, ((), HOOKS, HOOKS[:3])))
        case "model":
            model = attrs.evolve(config.model, name=pick(choices, ("wire:model", "wire:newer")))
            return attrs.evolve(config, model=model)
        case _:
            # Not lower: what is under way when a limit falls is let come to its next check.
            return attrs.evolve(config, limits=Limits())


def _decides(config: Config, **news: Any) -> Config:  # noqa: ANN401  # fields of a policy
    """*config* with *news* in its policy."""
    return attrs.evolve(config, policy=attrs.evolve(config.policy, **news))


def policy(choices: Choices) -> Policy:
    """Any policy."""
    return Policy(
        on_denial=pick(choices, tuple(OnDenial)),
        on_max_tokens=pick(choices, tuple(OnMaxTokens)),
        concurrency=weighted(
            choices, {Concurrency.SERIAL: 25, Concurrency.PARALLEL_READS: 45, Concurrency.PARALLEL: 30}
        ),
        max_parallel=weighted(choices, {5: 70, 1: 15, 2: 15}),
        compact_at=weighted(choices, {0.8: 50, 0.3: 50}),
        mode=weighted(choices, {PermissionMode.DEFAULT: 70, **dict.fromkeys(list(PermissionMode)[1:], 8)}),
        gates=weighted(choices, {Gates.HOOKS_FIRST: 60, Gates.RULES_FIRST: 40}),
        answer_within=weighted(choices, {None: 75, 3.0: 25}),
        continues=choices.below(3),
        coalesce=weighted(choices, {0.0: 70, 2.0: 30}),
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


CHANGES: Mapping[str, Callable[[Config], Config]] = {
    "side by side": partial(_decides, concurrency=Concurrency.PARALLEL),
    "no is the end": partial(_decides, on_denial=OnDenial.INTERRUPT),
}
"""Changes that lead, in the right moment, where nothing else does."""
