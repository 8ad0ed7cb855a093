"""
The small worlds that are searched to their end: settings, the two calls of an answer, and what people do.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, final

import attrs

from ..effects.config import (
    Concurrency,
    Config,
    Gates,
    Limits,
    ModelSpec,
    OnDenial,
    OnMaxTokens,
    Policy,
    Retries,
    Steering,
)
from ..effects.hooks import Hook, HookSpec
from ..effects.permissions import PermissionMode
from ..effects.records import Change, SetMode, SetModel, SetThinking
from .settings import CHILDREN, HOOKS, RULES, TOOLS

PAIRS = (("look", "write"), ("write", "look"), ("peek", "ranger"), ("write", "send"), ("note", "nowhere"))
"""The two calls of the one answer that has any."""

GUARD = HookSpec(name="guard", hook=Hook.PRE_TOOL_USE, tool="w*")


@final
@attrs.frozen(kw_only=True)
class World:
    """
    A small world under *config*, whose model makes two *calls*.

    Once in a run, somebody may send another prompt, steer in one of these ways, make one of the *changes*, or
    give up a call.
    """

    config: Config
    calls: tuple[str, str]
    prompts: bool = False
    steers: tuple[Steering, ...] = ()
    changes: tuple[Change, ...] = ()
    cancels: bool = False


def settings(
    concurrency: Concurrency,
    denial: OnDenial = OnDenial.SKIP_REST,
    **more: Any,  # noqa: ANN401  # fields of a policy
) -> Config:
    """Settings for a small world, in which one failure is forgiven; *more* of the policy."""
    policy = Policy(concurrency=concurrency, on_denial=denial, on_max_tokens=OnMaxTokens.COMPACT)
    return Config(
        model=ModelSpec(name="wire:model"),
        tools=TOOLS,
        children=CHILDREN,
        policy=attrs.evolve(policy, **more),
        retries=Retries(overloaded=1, failed=1),
    )


def worlds() -> Iterator[World]:
    """All small worlds."""
    for pair, denial in product(PAIRS, OnDenial):
        prompts = denial is OnDenial.SKIP_REST
        yield World(config=settings(Concurrency.SERIAL, denial), calls=pair, prompts=prompts)
    for pair, concurrency in product(PAIRS, (Concurrency.PARALLEL_READS, Concurrency.PARALLEL)):
        yield World(config=settings(concurrency), calls=pair)
    for pair, concurrency in product(PAIRS, Concurrency):
        timed = attrs.evolve(settings(concurrency), limits=Limits(seconds=3.0))
        yield World(config=timed, calls=pair)
    yield from _hooked()
    yield from _meddled()


def _hooked() -> Iterator[World]:
    """Worlds in which hooks are asked: about calls and results, prompts and ends, and compactions."""
    parallel = Concurrency.PARALLEL
    for gates, pair in product(Gates, (("write", "note"), ("peek", "write"))):
        guarded = attrs.evolve(settings(parallel, gates=gates), hooks=(GUARD,), rules=RULES)
        yield World(config=guarded, calls=pair)
    after = HOOKS[2:4]
    yield World(config=attrs.evolve(settings(parallel), hooks=after), calls=("note", "write"))
    coach = HookSpec(name="coach", hook=Hook.STOP)
    stops = attrs.evolve(settings(parallel, continues=1), hooks=(coach,))
    yield World(config=stops, calls=("look", "look"), prompts=True, steers=(Steering.WHEN_DONE,))
    doors = tuple([hook for hook in HOOKS if hook.hook in {Hook.SESSION_START, Hook.USER_PROMPT_SUBMIT}])
    greeted = attrs.evolve(settings(parallel), hooks=doors, instructions=("AGENTS.md",))
    yield World(config=greeted, calls=("look", "look"), steers=(Steering.AFTER_TOOL,))
    clerk = HookSpec(name="clerk", hook=Hook.PRE_COMPACT)
    yield World(config=attrs.evolve(settings(parallel), hooks=(clerk,)), calls=("look", "look"))


def _meddled() -> Iterator[World]:
    """Worlds in which people do not wait: deadlines, steers, changed settings, calls that are given up."""
    parallel = Concurrency.PARALLEL
    for denial in OnDenial:
        yield World(config=settings(parallel, denial, answer_within=5.0), calls=("peek", "write"))
    for how in Steering:
        yield World(config=settings(parallel), calls=("write", "note"), steers=(how,))
        yield World(config=settings(parallel), calls=("peek", "ranger"), steers=(how,))
    changes = (
        SetMode(mode=PermissionMode.PLAN),
        SetMode(mode=PermissionMode.BYPASS),
        SetModel(model="wire:other"),
        SetThinking(tokens=0),
    )
    yield World(config=settings(parallel), calls=("write", "note"), changes=changes)
    for concurrency, pair in product((Concurrency.SERIAL, parallel), (("write", "send"), ("note", "peek"))):
        yield World(config=settings(concurrency), calls=pair, cancels=True)
    for mode in PermissionMode:
        ruled = attrs.evolve(settings(parallel, mode=mode), rules=RULES)
        yield World(config=ruled, calls=("look", "write"))
