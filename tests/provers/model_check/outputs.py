"""The small worlds of runs that come to an output: each way to ask, right and wrong ones, refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from provers.model_check.worlds import World, settings
from provers.simulation.outputs import BY_TOOL, OUTPUT, RIGHT
from provers.simulation.settings import HOOKS, SPARE
from turnwheel.effects.config import (
    ChildSpec,
    Concurrency,
    Config,
    Limits,
    Retries,
    Steering,
    with_output,
)
from turnwheel.effects.hooks import Hook, HookSpec
from turnwheel.effects.messages import Outcome
from turnwheel.effects.output import OutputMode
from turnwheel.effects.records import SetThinking

if TYPE_CHECKING:
    from collections.abc import Iterator

    from turnwheel.effects.output import OutputSpec

GIVES = (RIGHT, '{"value": -1}')
"""A right output, and a wrong one."""

COACH = HookSpec(name="coach", hook=Hook.STOP)
CRITIC = HookSpec(name="critic", hook=Hook.POST_TOOL_USE)
KIDS = (ChildSpec(name="kid", limits=Limits(seconds=4.0)),)


def outputs() -> Iterator[World]:
    """Those that are asked for by words, natively and by a tool, alone and beside other calls."""
    yield World(
        name="an output by words",
        config=_config(OUTPUT),
        calls=("look",),
        gives=GIVES,
        prompts=True,
        steers=(Steering.WHEN_DONE,),
        changes=(SetThinking(tokens=0),),
    )
    native = attrs.evolve(OUTPUT, mode=OutputMode.NATIVE, decoded=False)
    yield World(
        name="a native output, and a hook at the end",
        config=_config(native, hooks=(COACH,)),
        calls=("look",),
        gives=GIVES,
        fails=False,
    )
    spare = attrs.evolve(BY_TOOL, modes=((SPARE.name, OutputMode.PROMPTED),))
    yield World(
        name="another model gives the output in another way",
        config=_config(spare, models=(SPARE,), fallback=SPARE.name),
        calls=("output",),
        gives=GIVES,
    )
    yield from _beside()
    by_hand = World(
        name="an output, stepped by hand",
        config=_config(OUTPUT),
        calls=("note",),
        gives=GIVES,
        fails=False,
        changes=(SetThinking(tokens=0),),
        by_hand=True,
    )
    yield attrs.evolve(by_hand, prompts=True, steers=(Steering.AFTER_TOOL,))
    porter = (next(hook for hook in HOOKS if hook.hook is Hook.USER_PROMPT_SUBMIT),)
    yield World(
        name="a steer is taken back or denied where an output was given",
        config=_config(attrs.evolve(OUTPUT, decoded=False), hooks=porter),
        calls=("look",),
        gives=GIVES,
        fails=False,
        prompts=True,
        steers=(Steering.WHEN_DONE,),
    )


def _beside() -> Iterator[World]:
    """What else is called in the message that has the output: it ends well, fails, takes long, is denied."""
    ends = ((Outcome.OK, 1.0), (Outcome.ERROR, 9.0))
    for calls in (("output", "write"), ("ranger", "output"), ("output", "output")):
        yield World(
            name=f"{' and '.join(calls)} in one message",
            config=_config(BY_TOOL),
            calls=calls,
            gives=GIVES,
            ends=ends,
            fails=False,
            steers=(Steering.AFTER_TOOL,),
        )
    yield World(
        name="a hook looks at what was called beside an output",
        config=_config(BY_TOOL, hooks=(CRITIC,), limits=Limits(seconds=8.0)),
        calls=("output", "look", "look"),
        gives=GIVES,
        ends=((Outcome.OK, 9.0), (Outcome.OK, 1.0)),
        fails=False,
    )
    for other in ("look", "ranger"):
        yield World(
            name=f"{other} twice beside an output, in 8 s",
            config=_config(BY_TOOL, limits=Limits(seconds=8.0), children=KIDS),
            calls=("output", other, other),
            gives=GIVES,
            ends=((Outcome.OK, 9.0), (Outcome.OK, 1.0)),
            fails=False,
        )


def _config(output: OutputSpec, **more: Any) -> Config:  # fields of a Config
    """Settings whose runs come to *output*, which may be wrong once."""
    config = attrs.evolve(settings(Concurrency.PARALLEL_READS), **more)
    retries = Retries(overloaded=1, failed=1, output=1)
    return with_output(attrs.evolve(config, retries=retries), output)
