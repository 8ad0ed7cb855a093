"""
The small worlds that are searched to their end. Each has something that no other one has, and little besides.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import attrs

from provers.model_check.budgets import budgets
from provers.model_check.outputs import outputs
from provers.model_check.worlds import (
    FULL,
    LONG,
    World,
    settings,
)
from provers.simulation.settings import (
    HOOKS,
    OTHER,
    RULES,
    SPARE,
    TOOLS,
    WEIGHED,
)
from turnwheel.effects.config import (
    ChildSpec,
    Compaction,
    Concurrency,
    Gates,
    Limits,
    Loops,
    ModelSpec,
    OnDenial,
    OnLost,
    Steering,
)
from turnwheel.effects.events import Approve, Decision, Deny
from turnwheel.effects.hooks import Hook, HookSpec
from turnwheel.effects.messages import Outcome
from turnwheel.effects.permissions import PermissionMode
from turnwheel.effects.records import (
    Change,
    SetMode,
    SetModel,
    SetThinking,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

SERIAL, READS, PARALLEL = Concurrency.SERIAL, Concurrency.PARALLEL_READS, Concurrency.PARALLEL

PAIRS = (("look", "write"), ("write", "look"), ("peek", "ranger"), ("write", "send"), ("note", "nowhere"))
"""The two calls of the one answer that has any."""

GUARD = HookSpec(name="guard", hook=Hook.PRE_TOOL_USE, tool="w*")
SENTRY = HookSpec(name="sentry", hook=Hook.PRE_TOOL_USE, tool="send", on_error="deny")
CLERK = HookSpec(name="clerk", hook=Hook.PRE_COMPACT, on_error="deny")
COACH = HookSpec(name="coach", hook=Hook.STOP)
DOORS = tuple([hook for hook in HOOKS if hook.hook in {Hook.SESSION_START, Hook.USER_PROMPT_SUBMIT}])

NARROW = ModelSpec(name="wire:model", window=150)

YES_OR_NO: tuple[Decision, ...] = (Approve(), Deny())
AT_LENGTH = ((Outcome.OK, 9.0),)
WELL_OR_NOT = ((Outcome.OK, 1.0), (Outcome.ERROR, 9.0))
"""How tools and children end: when more time than there is was used; as they should, or not at all."""

STEERS = tuple(Steering)
MODES: tuple[Change, ...] = (
    SetMode(mode=PermissionMode.PLAN),
    SetMode(mode=PermissionMode.BYPASS),
    SetModel(model=OTHER.name),
    SetThinking(tokens=0),
)
ANY_SETTING: tuple[Change, ...] = (SetThinking(tokens=0),)

MORE = '{"type":"object","required":["why"]}'
"""What a tool takes that wants more than it did."""

KIDS = (ChildSpec(name="kid", limits=Limits(seconds=4.0)),)
"""A child that wants little enough for two to be at work."""


def worlds() -> Iterator[World]:
    """All small worlds, the largest first."""
    yield everything()
    yield from _narrow()
    yield from _long()
    yield from _timed()
    yield from _crowded()
    yield from _hooked()
    yield from _looked_at()
    yield from _lost()
    yield from _meddled()
    yield from _plain()
    yield from budgets()
    yield from outputs()
    yield from _by_hand()


def everything() -> World:
    """
    All that can come together in one world, and still be searched to its end.

    Three answers, of which two have calls. One of these is asked about, behind a hook; one is a child's. The
    window is full after the first answer, so that a summary precedes the second. Answers fail and are tried
    again. Somebody steers once, and anybody may interrupt, or be lost, at any time.
    """
    config = attrs.evolve(settings(READS), model=NARROW, compaction=Compaction(failures=2), hooks=(GUARD,))
    return World(
        name="everything at once",
        config=config,
        calls=("ranger", "write"),
        more=(("look",),),
        prompt=LONG,
        used=FULL,
        decisions=YES_OR_NO,
        steers=(Steering.AFTER_TOOL,),
    )


def _plain() -> Iterator[World]:
    """Two calls, run in each order there is, with each policy about a denial, and with too little time."""
    for pair, denial in product(PAIRS, OnDenial):
        config, prompts = settings(SERIAL, denial), denial is OnDenial.SKIP_REST
        name = f"{_and(pair)}, serial, {denial}"
        yield World(name=name, config=config, calls=pair, ends=WELL_OR_NOT, prompts=prompts)
    for pair, concurrency in (*product(PAIRS, (READS,)), (("write", "send"), PARALLEL)):
        yield World(name=f"{_and(pair)}, {concurrency}", config=settings(concurrency), calls=pair)
    for pair, concurrency in product(PAIRS, Concurrency):
        timed = attrs.evolve(settings(concurrency), limits=Limits(seconds=3.0))
        name = f"{_and(pair)}, {concurrency}, in 3 s"
        yield World(name=name, config=timed, calls=pair, ends=WELL_OR_NOT)


def _and(calls: tuple[str, ...]) -> str:
    return " and ".join(calls)


def _hooked() -> Iterator[World]:
    """Hooks are asked: about calls and results, prompts and ends, and compactions."""
    for gates, pair in product(Gates, (("write", "note"), ("peek", "write"))):
        guarded = attrs.evolve(settings(PARALLEL, gates=gates), hooks=(GUARD,), rules=RULES)
        name = f"a hook before {_and(pair)}, {gates}"
        yield World(name=name, config=guarded, calls=pair, decisions=YES_OR_NO, fails=False)
    beside = attrs.evolve(settings(PARALLEL), hooks=(GUARD,))
    yield World(name="a hook beside a child", config=beside, calls=("ranger", "write"), fails=False)
    after = attrs.evolve(settings(PARALLEL), hooks=HOOKS[2:4])
    yield World(name="hooks after a call", config=after, calls=("note", "write"), ends=WELL_OR_NOT)
    stops = attrs.evolve(settings(PARALLEL, continues=1), hooks=(COACH,))
    yield World(
        name="a hook at the end",
        config=stops,
        calls=("look", "look"),
        prompts=True,
        steers=(Steering.WHEN_DONE,),
        changes=ANY_SETTING,
    )
    greeted = attrs.evolve(settings(PARALLEL), hooks=DOORS, instructions=("AGENTS.md",))
    yield World(
        name="hooks at the door",
        config=greeted,
        calls=("look",),
        prompts=True,
        steers=(Steering.AFTER_TOOL,),
        changes=ANY_SETTING,
    )
    for hooks, files in ((DOORS[1:], ()), ((), ("AGENTS.md",))):
        begun = attrs.evolve(settings(PARALLEL), hooks=hooks, instructions=files)
        yield World(name=f"begins with {len(hooks)} hooks, {len(files)} files", config=begun, calls=("look",))
    clerk = attrs.evolve(settings(PARALLEL), hooks=(CLERK,))
    yield World(name="a hook before a summary", config=clerk, calls=("look", "look"))


def _narrow() -> Iterator[World]:
    """The window is full, and what is old is summarised."""
    narrow = attrs.evolve(settings(SERIAL), model=NARROW, compaction=Compaction(failures=2))
    for hooks, decisions in (((), YES_OR_NO), ((CLERK,), (Approve(),))):
        yield World(
            name=f"two turns in a small window, {len(hooks)} hooks",
            config=attrs.evolve(narrow, hooks=hooks),
            calls=("send",),
            more=(("look",),),
            prompt=LONG,
            used=FULL,
            decisions=decisions,
            fails=not hooks,
        )
    yield World(
        name="things are said during a summary",
        config=attrs.evolve(narrow, hooks=(CLERK,)),
        calls=("note",),
        prompt=LONG,
        used=FULL,
        fails=False,
        speaks=True,
        prompts=True,
        steers=STEERS,
        changes=ANY_SETTING,
    )
    yield World(
        name="another model takes over a summary",
        config=attrs.evolve(narrow, models=(SPARE,), fallback=SPARE.name),
        calls=("note",),
        prompt=LONG,
        used=FULL,
        fails=False,
    )


def _long() -> Iterator[World]:
    """A run is kept going: another model, old results, circles, and several children."""
    serial, crowded = settings(SERIAL), settings(READS)
    spare = attrs.evolve(crowded, models=(OTHER, SPARE), fallback=SPARE.name)
    yield World(
        name="another model takes over",
        config=spare,
        calls=("look",),
        more=(("note",),),
        changes=(SetModel(model=OTHER.name),),
    )
    tidy = Compaction(clear_over=1, clear_keep=1, result_limit=700)
    for length in (600, 900):
        yield World(
            name=f"old results of {length} letters are left out",
            config=attrs.evolve(crowded, compaction=tidy, loops=Loops.never()),
            calls=("look", "note"),
            more=(("look",), ("note",)),
            content="a" * length,
        )
    for stop, same in ((4, None), (None, 3)):
        circles = Loops(warn=2, withdraw=3, stop=stop, same=same, turns=1)
        yield World(
            name=f"circles, stopped after {stop} or {same}",
            config=attrs.evolve(serial, loops=circles),
            calls=("look",),
            more=(("look",), ("look",), ("look",), ("note",)),
        )
    for seconds in (7.0, 9.0):
        family = attrs.evolve(crowded, children=KIDS, limits=Limits(seconds=seconds))
        name = f"two children in {seconds:.0f} s"
        yield World(name=name, config=family, calls=("ranger", "ranger"), ends=WELL_OR_NOT)
        shared = attrs.evolve(family, limits=Limits(), session_limits=Limits(seconds=seconds))
        yield World(
            name=f"{name} of a session",
            config=shared,
            calls=("ranger", "ranger", "look"),
            ends=WELL_OR_NOT,
            speaks=True,
        )


def _timed() -> Iterator[World]:
    """Several calls in several phases, and not enough time, or nobody who answers in time."""
    timed = attrs.evolve(settings(READS), children=KIDS, limits=Limits(seconds=9.0))
    busy = product(("look", "ranger"), repeat=2)
    for at_work in (("look",), ("ranger",), *busy):
        yield World(
            name=f"{_and(at_work)} use up the time while two are asked about",
            config=timed,
            calls=(*at_work, "peek", "write"),
            decisions=YES_OR_NO,
            ends=AT_LENGTH,
            fails=False,
        )
    hasty = settings(READS, answer_within=5.0)
    stopped = attrs.evolve(hasty, policy=attrs.evolve(hasty.policy, on_denial=OnDenial.INTERRUPT))
    for other in ("look", "ranger"):
        two = World(
            name=f"two questions and {other}",
            config=hasty,
            calls=(other, "peek", "write"),
            decisions=YES_OR_NO,
            fails=False,
        )
        yield attrs.evolve(two, speaks=True, prompts=True, steers=STEERS, changes=ANY_SETTING)
        yield attrs.evolve(two, name=f"{two.name}, which are given up", cancels=True)
    yield World(
        name="two questions, and a no becomes the end",
        config=hasty,
        calls=("ranger", "peek", "write"),
        decisions=YES_OR_NO,
        fails=False,
        others=(stopped,),
    )


def _crowded() -> Iterator[World]:
    """Several calls in several phases, where what one comes to is for others to wait for."""
    sentry = attrs.evolve(settings(READS, gates=Gates.RULES_FIRST), hooks=(SENTRY,))
    for others in ((), ("look",), ("ranger",)):
        crowd = World(
            name=f"a hook after a yes, {_and(('two questions', *others))}",
            config=sentry,
            calls=(*others, "send", "write", "peek"),
            decisions=YES_OR_NO,
            fails=False,
        )
        yield crowd if others else attrs.evolve(crowd, steers=(Steering.AFTER_TOOL,), cancels=True)
    yield World(
        name="always, said of one of two calls",
        config=settings(PARALLEL),
        calls=("write", "write"),
        fails=False,
    )
    guard = attrs.evolve(settings(READS, gates=Gates.RULES_FIRST), hooks=(GUARD,))
    yield World(
        name="a child waits for what a hook looks at",
        config=guard,
        calls=("write", "send", "peek"),
        decisions=YES_OR_NO,
        fails=False,
        cancels=True,
    )
    yield World(
        name="what waited is asked about in another order",
        config=settings(SERIAL),
        calls=("ranger", "note", "write"),
        decisions=YES_OR_NO,
        fails=False,
        cancels=True,
        others=(settings(READS),),
    )
    yield World(
        name="what was allowed is asked about after all",
        config=settings(READS, mode=PermissionMode.BYPASS, max_parallel=2),
        calls=("ranger", "look", "peek"),
        decisions=YES_OR_NO,
        fails=False,
        changes=(SetMode(mode=PermissionMode.DEFAULT),),
    )


def _looked_at() -> Iterator[World]:
    """What a path reaches decides about a call, beside questions and children, and behind a no."""
    serial = attrs.evolve(settings(SERIAL), rules=RULES)
    yield World(name="a child behind what is looked at", config=serial, calls=("write", "send"), fails=False)
    for concurrency, calls in (
        (READS, ("ranger", "write")),
        (READS, ("write", "send", "peek")),
        (READS, ("write", "peek", "peek")),
        (PARALLEL, ("ranger", "write", "peek")),
    ):
        yield World(
            name=f"{_and(calls)}, of which one is looked at, {concurrency}",
            config=attrs.evolve(settings(concurrency), rules=WEIGHED),
            calls=calls,
            decisions=YES_OR_NO,
            fails=False,
        )


def _lost() -> Iterator[World]:
    """A process is lost while unsafe tools are at work: that they may have run is told, or asked about."""
    for on_lost, concurrency in product(OnLost, (READS, PARALLEL)):
        crowd = World(
            name=f"may have run beside a child, {concurrency}, {on_lost}",
            config=settings(concurrency, on_lost=on_lost),
            calls=("write", "send", "peek") if concurrency is READS else ("ranger", "write", "peek"),
            decisions=YES_OR_NO,
            fails=False,
        )
        yield attrs.evolve(crowd, steers=(Steering.AFTER_TOOL,) if concurrency is PARALLEL else ())
    yield World(
        name="may have run beside two questions",
        config=settings(READS, on_lost=OnLost.ASK, answer_within=5.0),
        calls=("write", "peek", "peek"),
        decisions=YES_OR_NO,
        fails=False,
    )
    yield World(
        name="may have run beside a tool",
        config=settings(PARALLEL, mode=PermissionMode.BYPASS),
        calls=("note", "write"),
        fails=False,
        steers=(Steering.AFTER_TOOL,),
    )


def _meddled() -> Iterator[World]:
    """People do not wait: deadlines, steers, changed settings, calls that are given up."""
    for denial in OnDenial:
        config = settings(PARALLEL, denial, answer_within=5.0)
        calls = ("ranger", "peek") if denial is OnDenial.GO_ON else ("peek", "write")
        yield World(name=f"a deadline, {denial}", config=config, calls=calls)
    for how, pair in product(Steering, (("write", "note"), ("peek", "ranger"))):
        name = f"a steer {how}, {_and(pair)}"
        yield World(name=name, config=settings(PARALLEL), calls=pair, steers=(how,))
    wants = [attrs.evolve(tool, schema=MORE) if tool.name == "note" else tool for tool in TOOLS]
    yield World(
        name="changed settings",
        config=settings(PARALLEL),
        others=(attrs.evolve(settings(PARALLEL), tools=tuple(wants)),),
        calls=("write", "note"),
        decisions=YES_OR_NO,
        fails=False,
        changes=MODES,
    )
    for concurrency, pair in product((SERIAL, PARALLEL), (("write", "send"), ("note", "peek"))):
        config = settings(concurrency)
        name = f"{_and(pair)} given up, {concurrency}"
        yield World(name=name, config=config, calls=pair, fails=False, cancels=True)
    for mode in PermissionMode:
        ruled = attrs.evolve(settings(PARALLEL, mode=mode), rules=RULES)
        yield World(name=f"rules, mode {mode}", config=ruled, calls=("look", "write"))


def _by_hand() -> Iterator[World]:
    """Somebody steps the machine, so that people are heard in states that wait for nothing."""
    for says in (1, 2):
        yield World(
            name=f"stepped by hand, {says} inputs",
            config=attrs.evolve(settings(PARALLEL), model=NARROW),
            calls=("note",),
            prompt=LONG,
            used=FULL,
            fails=says == 1,
            says=says,
            prompts=True,
            steers=(Steering.AFTER_TOOL,),
            changes=ANY_SETTING,
            by_hand=True,
        )
