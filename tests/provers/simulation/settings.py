"""The settings a player plays under: a tool of each kind, and every policy, limit and window."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any

import attrs

from provers.choices import (
    Choices,
    chance,
    pick,
    weighted,
)
from provers.simulation import outputs
from turnwheel.effects.config import (
    Approval,
    ChildSpec,
    Compaction,
    Concurrency,
    Config,
    Gates,
    Limits,
    Loops,
    ModelSpec,
    OnDenial,
    OnLost,
    OnMaxTokens,
    Policy,
    Price,
    Retries,
    SideEffect,
    ToolKind,
    ToolSpec,
    with_output,
)
from turnwheel.effects.hooks import Hook, HookSpec
from turnwheel.effects.permissions import PermissionMode, Rule, Verdict

PATH = """{
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": false
}"""
LOOK = """{
    "type": "object",
    "properties": {"path": {"type": "string"}, "pattern": {"type": "string"}, "offset": {"type": "integer"}},
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

SPARE = ModelSpec(name="wire:spare", window=1_000, price=Price(input="2", output="2"))
"""A model that may take over."""

TOOLS = (
    ToolSpec(name="look", schema=LOOK, side_effect=SideEffect.READ_ONLY),
    ToolSpec(
        name="peek",
        schema=PATH,
        side_effect=SideEffect.READ_ONLY,
        approval=Approval.ALWAYS,
        resources=("keyhole",),
    ),
    ToolSpec(name="write", schema=PATH, edits=True, resources=("{path}",), paths=("path",)),
    ToolSpec(
        name="note",
        schema=PATH,
        side_effect=SideEffect.IDEMPOTENT,
        approval=Approval.NEVER,
        resources=("notes",),
        command="path",
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

HUNT = """{
    "type": "object",
    "properties": {
        "path": {"type": "string", "default": "."},
        "glob": {"type": ["string", "null"], "default": null}
    },
    "additionalProperties": false
}"""
SEARCH = ToolSpec(name="hunt", schema=HUNT, side_effect=SideEffect.READ_ONLY, paths=("path",), searches=True)
"""A tool that shows what lies below its path, and of whose arguments one is null where it is left out."""

SEARCHED = (
    Rule(verdict=Verdict.ASK, tool="read", where=(("path", "a/b*"),)),
    Rule(verdict=Verdict.ASK, tool="hunt", where=(("glob", "*"),)),
    Rule(verdict=Verdict.ASK, tool="h*", where=(("path", "a"),)),
    Rule(verdict=Verdict.DENY, tool="*", where=(("glob", "null"),)),
    Rule(verdict=Verdict.DENY, tool="hunt", where=(("path", "secret*"),)),
    Rule(verdict=Verdict.ALLOW, tool="hunt", where=(("glob", "nu*"),)),
    Rule(verdict=Verdict.ALLOW, tool="*", where=(("path", "a*"), ("glob", "*"))),
)
"""What may be said of a search, and of what it is not given."""

VETTED: Mapping[frozenset[str], int] = {
    frozenset({"peek", "write", "note", "send", "ranger"}): 65,
    frozenset({"write", "send"}): 35,
}
"""The names of those that are met in a vetted crowd: one of each kind, or only what is asked about."""

CHILDREN = (
    ChildSpec(name="kid"),
    ChildSpec(name="heir", tools=("look", "write", "send", "scout", "nowhere")),
)

SOON = Loops(warn=2, withdraw=3, stop=5, same=4, turns=2)
"""A model that repeats itself is soon told, and stopped."""

WANTS: Mapping[Limits, int] = {
    CHILDREN[0].limits: 30,
    Limits(tokens=300, seconds=3.0): 40,
    Limits(turns=2, seconds=2.0): 15,
    Limits(): 15,
}
"""What children want to use."""

RULES = (
    Rule(verdict=Verdict.ALLOW, tool="write", where=(("path", "a*"),)),
    Rule(verdict=Verdict.ALLOW, tool="send"),
    Rule(verdict=Verdict.ASK, tool="look", where=(("path", "b*"),)),
    Rule(verdict=Verdict.DENY, tool="*", where=(("path", "*secret*"),)),
)
"""One rule of each kind."""

WEIGHED = (Rule(verdict=Verdict.ASK, tool="write", where=(("path", "[ab]*"),)), *RULES[3:])
"""What a path reaches decides whether a call is asked about or denied."""

HOOKS = (
    HookSpec(name="guard", hook=Hook.PRE_TOOL_USE, tool="[lws]*"),
    HookSpec(name="second", hook=Hook.PRE_TOOL_USE, tool="write", on_error="deny"),
    HookSpec(name="audit", hook=Hook.POST_TOOL_USE),
    HookSpec(name="nurse", hook=Hook.POST_TOOL_USE_FAILURE, tool="w*"),
    HookSpec(name="porter", hook=Hook.USER_PROMPT_SUBMIT, on_error="deny"),
    HookSpec(name="usher", hook=Hook.SESSION_START),
    HookSpec(name="clerk", hook=Hook.PRE_COMPACT, on_error="deny"),
    HookSpec(name="coach", hook=Hook.STOP),
)
"""One hook for each place."""


def config(choices: Choices, kind: str = "") -> Config:
    """
    Settings of this *kind*, one of `KINDS`, or of any.

    More than half of them are crowds: many calls at work at once, and little time, where the rare rows are.
    """
    return KINDS[kind or weighted(choices, OFTEN)](choices)


def _any(choices: Choices) -> Config:
    """Every policy, with and without limits, prices, rules and a tight window."""
    rules = policy(choices)
    return Config(
        model=ModelSpec(
            name="wire:model",
            window=weighted(choices, {200_000: 40, 400: 35, 150: 25}),
            thinking=weighted(choices, {None: 70, 1_000: 30}),
            price=Price(input="3", output="15", cached="0.3"),
        ),
        models=(OTHER, SPARE),
        fallback=weighted(choices, {"": 60, "wire:spare": 40}),
        system="be kind",
        tools=TOOLS,
        children=children(choices),
        limits=limits(choices),
        session_limits=weighted(choices, {Limits(): 85, Limits(tokens=3_000): 10, Limits(turns=6): 5}),
        policy=rules,
        retries=retries(choices),
        compaction=compaction(choices, rules),
        loops=loops(choices),
        rules=weighted(choices, {(): 60, RULES: 40}),
        protected=weighted(choices, {(): 60, ("b*",): 40}),
        hooks=weighted(choices, {(): 50, HOOKS: 35, HOOKS[:3]: 15}),
        instructions=weighted(choices, {(): 80, ("AGENTS.md",): 20}),
    )


def _crowd(choices: Choices) -> Config:
    """Many reads side by side, questions about some, and little time."""
    return Config(
        model=ModelSpec(name="wire:model"),
        tools=tuple([tool for tool in TOOLS if tool.side_effect is SideEffect.READ_ONLY]),
        children=children(choices),
        limits=Limits(seconds=float(4 + choices.below(12))),
        loops=Loops.never(),
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
        children=children(choices),
        loops=weighted(choices, {Loops.never(): 70, Loops(): 30}),
        rules=weighted(choices, {(): 50, RULES[:1]: 25, (RULES[0], RULES[-1]): 25}),
        hooks=(HookSpec(name="guard", hook=Hook.PRE_TOOL_USE, tool="[nw]*"), *HOOKS[3:4]),
        policy=Policy(
            concurrency=weighted(
                choices, {Concurrency.PARALLEL: 40, Concurrency.PARALLEL_READS: 50, Concurrency.SERIAL: 10}
            ),
            gates=weighted(choices, {Gates.RULES_FIRST: 70, Gates.HOOKS_FIRST: 30}),
            mode=weighted(choices, {PermissionMode.DEFAULT: 85, PermissionMode.BYPASS: 15}),
            on_denial=OnDenial.SKIP_REST,
            on_lost=pick(choices, tuple(OnLost)),
            max_parallel=9,
            answer_within=weighted(choices, {None: 50, 3.0: 50}),
        ),
    )


def _long(choices: Choices) -> Config:
    """A long conversation in a small window, with much to read, failures, and a model that repeats itself."""
    rules = attrs.evolve(policy(choices), mode=PermissionMode.BYPASS)
    return Config(
        model=ModelSpec(
            name="wire:model",
            window=weighted(choices, {1_000: 50, 500: 30, 200: 20}),
            price=Price(input="3", output="15"),
        ),
        models=(OTHER, SPARE),
        fallback=weighted(choices, {"wire:spare": 70, "": 30}),
        tools=tuple([tool for tool in TOOLS if tool.kind is ToolKind.FUNCTION]),
        policy=rules,
        hooks=weighted(choices, {(): 70, HOOKS[-2:-1]: 30}),
        retries=retries(choices),
        compaction=attrs.evolve(compaction(choices, rules), clear_over=pick(choices, (2, 4)), clear_keep=1),
        loops=loops(choices),
    )


def _family(choices: Choices) -> Config:
    """Several children at once, and not enough for all of them."""
    wants = (Limits(usd=Decimal("0.01"), seconds=4.0), Limits(tokens=400, seconds=2.0), Limits())
    budget = weighted(choices, {"tokens": 40, "usd": 30, "seconds": 30})
    shared = Limits(
        tokens=500 * (2 + choices.below(6)) if budget == "tokens" else None,
        usd=Decimal(2 + choices.below(5)) / 100 if budget == "usd" else None,
        seconds=float(4 + choices.below(12)) if budget == "seconds" else None,
    )
    alone = chance(choices, 50)
    return Config(
        model=ModelSpec(name="wire:model", price=Price(input="3", output="15")),
        tools=tuple([tool for tool in TOOLS if tool.name in {"look", "send", "ranger"}]),
        children=(
            ChildSpec(name="kid", limits=pick(choices, wants)),
            ChildSpec(name="heir", limits=wants[0]),
        ),
        limits=shared if alone else Limits(),
        session_limits=Limits() if alone else shared,
        loops=Loops.never(),
        policy=Policy(
            concurrency=pick(choices, (Concurrency.PARALLEL, Concurrency.PARALLEL_READS)),
            mode=PermissionMode.BYPASS,
            max_parallel=9,
        ),
    )


def _doubted(choices: Choices) -> Config:
    """Tools that must not run twice unknowingly, side by side with children, all of which are asked about."""
    return Config(
        model=ModelSpec(name="wire:model"),
        tools=tuple([tool for tool in TOOLS if tool.name in {"write", "send"}]),
        children=children(choices),
        loops=Loops.never(),
        rules=weighted(choices, {(): 30, RULES[-1:]: 70}),
        hooks=weighted(choices, {(): 70, HOOKS[2:4]: 30}),
        policy=Policy(
            concurrency=pick(choices, (Concurrency.PARALLEL, Concurrency.PARALLEL_READS)),
            on_denial=OnDenial.SKIP_REST,
            on_lost=pick(choices, tuple(OnLost)),
            max_parallel=9,
        ),
    )


def _searching(choices: Choices) -> Config:
    """Searches, and all that rules can say of them."""
    spec = attrs.evolve(
        SEARCH,
        fills=chance(choices, 80),
        approval=weighted(choices, {Approval.BY_SIDE_EFFECT: 70, Approval.ALWAYS: 30}),
    )
    return Config(
        model=ModelSpec(name="wire:model"),
        tools=(spec, *[tool for tool in TOOLS if tool.name in {"look", "write"}]),
        loops=Loops.never(),
        rules=tuple([rule for rule in SEARCHED if chance(choices, 40)]),
        hooks=weighted(choices, {(): 70, HOOKS[:1]: 30}),
        policy=policy(choices),
    )


def _coming_to(choices: Choices) -> Config:
    """A run that is to come to an output, in one of the other worlds, mostly with little time."""
    world = weighted(choices, {_any: 35, _crowd: 25, _vetted: 10, _long: 5, _family: 25})(choices)
    hooks = world.hooks
    if not any(hook.hook is Hook.POST_TOOL_USE for hook in hooks) and chance(choices, 50):
        hooks = (*hooks, HOOKS[2])
    if not any(hook.hook is Hook.USER_PROMPT_SUBMIT for hook in hooks) and chance(choices, 30):
        hooks = (*hooks, HOOKS[4])
    if chance(choices, 50):
        world = attrs.evolve(world, limits=Limits(seconds=90.0))
    retries = attrs.evolve(world.retries, output=choices.below(3))
    return with_output(attrs.evolve(world, hooks=hooks, retries=retries), outputs.spec(choices))


KINDS: Mapping[str, Callable[[Choices], Config]] = {
    "any": _any,
    "crowd": _crowd,
    "vetted": _vetted,
    "long": _long,
    "family": _family,
    "doubted": _doubted,
    "searching": _searching,
    "coming to": _coming_to,
}
OFTEN: Mapping[str, int] = {
    "any": 22,
    "crowd": 24,
    "vetted": 30,
    "long": 8,
    "family": 4,
    "doubted": 9,
    "searching": 3,
    "coming to": 12,
}
"""The kinds of worlds, and how often each is met."""


def changed(  # noqa: PLR0911  # one return for each thing that may be another
    choices: Choices, config: Config
) -> Config:
    """*config* as another process may have it, which goes on with the run: one thing is different."""
    match pick(choices, ("policy", "denial", "tools", "rules", "hooks", "model", "upkeep", "limits")):
        case "policy":
            changed = attrs.evolve(policy(choices), compact_at=config.policy.compact_at)
            return attrs.evolve(config, policy=changed)
        case "denial":
            return _decides(config, on_denial=pick(choices, tuple(OnDenial)))
        case "tools":
            gone = pick(choices, ("none", *[tool.name for tool in TOOLS]))
            given = [tool for tool in config.tools if tool.kind is ToolKind.OUTPUT]
            there = [tool for tool in TOOLS if tool.name != gone]
            return attrs.evolve(config, tools=(*there, *given))
        case "rules":
            return attrs.evolve(config, rules=pick(choices, ((), RULES)))
        case "hooks":
            return attrs.evolve(config, hooks=pick(choices, ((), HOOKS, HOOKS[:3])))
        case "model":
            model = attrs.evolve(config.model, name=pick(choices, ("wire:model", "wire:newer")))
            return attrs.evolve(config, model=model)
        case "upkeep":
            return attrs.evolve(
                config,
                retries=attrs.evolve(retries(choices), output=config.retries.output),
                compaction=attrs.evolve(compaction(choices, config.policy), model=""),
                loops=loops(choices),
                models=pick(choices, (config.models, ())),
                fallback="",
            )
        case _:
            # Not lower: what is under way when a limit falls is let come to its next check.
            return attrs.evolve(config, limits=Limits(), session_limits=Limits())


def _decides(config: Config, **news: Any) -> Config:  # fields of a policy
    """*config* with *news* in its policy."""
    return attrs.evolve(config, policy=attrs.evolve(config.policy, **news))


def policy(choices: Choices) -> Policy:
    """Any policy."""
    return Policy(
        on_denial=pick(choices, tuple(OnDenial)),
        on_lost=pick(choices, tuple(OnLost)),
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
        pauses=weighted(choices, {10: 80, 1: 10, 0: 10}),
        coalesce=weighted(choices, {0.0: 70, 2.0: 30}),
        coalesce_longest=weighted(choices, {0.0: 50, 3.0: 50}),
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


def children(choices: Choices) -> tuple[ChildSpec, ...]:
    """The children, which may want little or as much as there is."""
    return tuple([attrs.evolve(child, limits=weighted(choices, WANTS)) for child in CHILDREN])


def retries(choices: Choices) -> Retries:
    """Some patience, or hardly any."""
    return Retries(
        overloaded=choices.below(3),
        failed=choices.below(3),
        longest=weighted(choices, {3600.0: 65, 5.0: 35}),
        fallback_after=weighted(choices, {10.0: 55, 3.0: 30, 1.0: 15}),
    )


def compaction(choices: Choices, policy: Policy) -> Compaction:
    """As it is by default, or so that it is met early; less stays than *policy* allows."""
    over, most = weighted(choices, {(15, 5): 40, (None, 5): 10, (2, 2): 30, (4, 4): 20})
    return Compaction(
        keep=weighted(choices, {0.25: 60, 0.75 * policy.compact_at: 40}),
        model=weighted(choices, {"": 80, OTHER.name: 20}),
        tokens=weighted(choices, {4_000: 50, 50: 50}),
        failures=1 + choices.below(3),
        clear_over=over,
        clear_keep=choices.below(1 + most),
        result_limit=weighted(choices, {20_000: 50, 400: 50}),
    )


def loops(choices: Choices) -> Loops:
    """As they are by default, never, or soon."""
    same = attrs.evolve(SOON, withdraw=None, same=3)
    back = attrs.evolve(SOON, stop=None, same=None, turns=1)
    return weighted(choices, {Loops(): 30, Loops.never(): 15, SOON: 30, same: 12, back: 13})


CHANGES: Mapping[str, Callable[[Config], Config]] = {
    "side by side": partial(_decides, concurrency=Concurrency.PARALLEL),
    "no is the end": partial(_decides, on_denial=OnDenial.INTERRUPT),
    "no skips nothing": partial(_decides, on_denial=OnDenial.GO_ON),
    "lost is told": partial(_decides, on_lost=OnLost.REPORT),
    "lost is asked": partial(_decides, on_lost=OnLost.ASK),
}
"""Changes that lead, in the right moment, where nothing else does."""
