"""
The small worlds that are searched to their end: settings, the two calls of an answer, and what people do.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, final

import attrs

from ..effects.config import ChildSpec, Config, Limits
from ..effects.hooks import Hook, HookSpec
from ..effects.model import ModelSpec
from ..effects.permissions import PermissionMode
from ..effects.policy import Concurrency, Gates, OnDenial, OnMaxTokens, Policy, Steering
from ..effects.records import Change, SetMode, SetModel, SetThinking
from ..effects.upkeep import Compaction, Loops, Retries
from ..effects.usage import Usage
from .settings import CHILDREN, HOOKS, OTHER, RULES, SPARE, TOOLS

PAIRS = (("look", "write"), ("write", "look"), ("peek", "ranger"), ("write", "send"), ("note", "nowhere"))
"""The two calls of the one answer that has any."""

GUARD = HookSpec(name="guard", hook=Hook.PRE_TOOL_USE, tool="w*")
CLERK = HookSpec(name="clerk", hook=Hook.PRE_COMPACT)

NARROW = ModelSpec(name="wire:model", window=150)
FULL = Usage(input=120, output=10)
"""A model with a small window, and what it says where that is full."""


@final
@attrs.frozen(kw_only=True)
class World:
    """
    A small world under *config*, whose model makes these *calls* in its first answer, and then *more*.

    After that it only talks. *prompt* is what it begins with, *used* what each answer says it used, *content*
    what each tool comes back with.

    Once in a run, somebody may send another prompt, steer in one of these ways, make one of the *changes*, or
    give up a call.
    """

    config: Config
    calls: tuple[str, ...]
    more: tuple[tuple[str, ...], ...] = ()
    prompt: str = "the prompt"
    used: Usage = Usage(input=10, output=10)
    content: str = "fine"
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
    yield from _long()


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
    yield World(config=attrs.evolve(settings(parallel), hooks=(CLERK,)), calls=("look", "look"))


def _long() -> Iterator[World]:
    """
    Worlds in which a run is kept going: a summary, another model, old results, circles, and several children.
    """
    serial, crowded = settings(Concurrency.SERIAL), settings(Concurrency.PARALLEL_READS)
    narrow = attrs.evolve(serial, model=NARROW, compaction=Compaction(failures=2))
    for hooks in ((), (CLERK,)):
        full = attrs.evolve(narrow, hooks=hooks)
        prompt = "do this and that " * 30
        yield World(config=full, calls=("send",), more=(("look",),), prompt=prompt, used=FULL)
    spare = attrs.evolve(crowded, models=(OTHER, SPARE), fallback=SPARE.name)
    yield World(config=spare, calls=("look",), more=(("note",),), changes=(SetModel(model=OTHER.name),))
    tidy = Compaction(clear_over=1, clear_keep=1, result_limit=700)
    for length in (600, 900):
        cleared = attrs.evolve(crowded, compaction=tidy, loops=Loops.never())
        more = (("look",), ("note",))
        yield World(config=cleared, calls=("look", "note"), more=more, content="a" * length)
    for stop, same in ((4, None), (None, 3)):
        circles = Loops(warn=2, withdraw=3, stop=stop, same=same, turns=1)
        looped = attrs.evolve(serial, loops=circles)
        yield World(config=looped, calls=("look",), more=(("look",), ("look",), ("look",), ("note",)))
    for seconds in (7.0, 9.0):
        kids = (ChildSpec(name="kid", limits=Limits(seconds=4.0)),)
        family = attrs.evolve(crowded, children=kids, limits=Limits(seconds=seconds))
        yield World(config=family, calls=("ranger", "ranger"))
        shared = attrs.evolve(family, limits=Limits(), session_limits=Limits(seconds=seconds))
        yield World(config=shared, calls=("ranger", "ranger", "look"))


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
