"""What a small world is: settings, what its model and its tools may do, and what people may."""

from __future__ import annotations

from typing import Any, final

import attrs

from provers.simulation.settings import CHILDREN, TOOLS
from turnwheel.effects.config import (
    Concurrency,
    Config,
    Limits,
    ModelSpec,
    OnDenial,
    OnMaxTokens,
    Policy,
    Retries,
    Steering,
)
from turnwheel.effects.events import (
    Approve,
    ApproveAlways,
    Decision,
    Deny,
)
from turnwheel.effects.messages import Outcome
from turnwheel.effects.records import Change
from turnwheel.effects.usage import Spent, Usage

SMALL = 1_000
"""Tokens of a window in which the size of a conversation matters."""

FULL = Usage(input=120, output=10)
LONG = "do this and that " * 30
"""What an answer uses where a window of 150 tokens is full, and a prompt that fills it."""


@final
@attrs.frozen(kw_only=True)
class World:
    """
    A small world under *config*, whose model makes these *calls* in its first answer, and then *more*.

    After that it only talks, or *gives* one of these for an output. Where it *fails*, its answers are cut,
    fail and are streamed, too. *prompt* is what it begins with, *used* what each answer says it used,
    *content* what each tool comes back with, and *ends* how tools and children end, after how many seconds;
    *hired* is what a child used beside these. It *speaks* where these, and who summarises, are heard of early
    on. People answer questions with these *decisions*. Its session had spent so much *earlier*,
    before the run began.

    As often as it *says*, somebody may send another prompt, steer in one of these ways, or make one of the
    *changes*; before that they may give up calls, where there are *cancels*. Where there are *prompts*, what
    waits may be taken back.

    Where it *crashes*, whoever works is lost at any time, and somebody else takes over, under the same
    settings or once under one of *others*. *by_hand*: somebody steps the machine, so that something may come
    in where it waits for nothing.
    """

    name: str
    config: Config
    calls: tuple[str, ...]
    more: tuple[tuple[str, ...], ...] = ()
    gives: tuple[str, ...] = ()
    prompt: str = "the prompt"
    used: Usage = Usage(input=10, output=10)
    content: str = "fine"
    ends: tuple[tuple[Outcome, float], ...] = ((Outcome.OK, 1.0),)
    hired: Spent = Spent()
    earlier: Spent = Spent()
    fails: bool = True
    speaks: bool = False
    decisions: tuple[Decision, ...] = (Approve(), ApproveAlways(), Deny(), Deny(interrupt=True))
    says: int = 1
    prompts: bool = False
    steers: tuple[Steering, ...] = ()
    changes: tuple[Change, ...] = ()
    cancels: bool = False
    crashes: bool = True
    others: tuple[Config, ...] = ()
    by_hand: bool = False

    @property
    def configs(self) -> tuple[Config, ...]:
        """All settings that its run can be under."""
        return (self.config, *self.others)

    @property
    def looks_back(self) -> bool:
        """Whether anything depends on what was said before the last message; what is lost costs by size."""
        paid = any(limits.tokens is not None or limits.usd is not None for limits in self._limits)
        return bool(self.more) or self.config.model.window < SMALL or paid

    def counted(self, spent: Spent) -> tuple[object, ...]:
        """What of *spent* anything depends on: the turns, and units of which there are only so many."""
        units = {"seconds": spent.seconds, "tokens": spent.usage.total, "usd": spent.cost}
        met = [units[unit] for unit in units if any(getattr(one, unit) is not None for one in self._limits)]
        return (spent.turns, *met)

    @property
    def _limits(self) -> list[Limits]:
        """All limits that count in it."""
        return [limits for one in self.configs for limits in (one.limits, one.session_limits)]


def settings(
    concurrency: Concurrency,
    denial: OnDenial = OnDenial.SKIP_REST,
    **more: Any,  # fields of a policy
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
