"""What a small world is: settings, what its model and its tools may do, and what people may."""

from __future__ import annotations

from typing import final

import attrs

from ...effects.config import Config
from ...effects.events import Approve, ApproveAlways, Decision, Deny
from ...effects.messages import Outcome
from ...effects.policy import Steering
from ...effects.records import Change
from ...effects.usage import Spent, Usage

SMALL = 1_000
"""Tokens of a window in which the size of a conversation matters."""


@final
@attrs.frozen(kw_only=True)
class World:
    """
    A small world under *config*, whose model makes these *calls* in its first answer, and then *more*.

    After that it only talks. Where it *fails*, its answers are cut, fail and are streamed, too. *prompt* is
    what it begins with, *used* what each answer says it used, *content* what each tool comes back with, and
    *ends* how tools and children end, after how many seconds. It *speaks* where these, and who summarises,
    are heard of before they are over. People answer questions with these *decisions*.

    As often as it *says*, somebody may send another prompt, steer in one of these ways, or make one of the
    *changes*; before that they may give up calls, where there are *cancels*.

    Where it *crashes*, whoever works is lost at any time, and somebody else takes over, under the same
    settings or once under one of *others*. *by_hand*: somebody steps the machine, so that something may come
    in where it waits for nothing.
    """

    name: str
    config: Config
    calls: tuple[str, ...]
    more: tuple[tuple[str, ...], ...] = ()
    prompt: str = "the prompt"
    used: Usage = Usage(input=10, output=10)
    content: str = "fine"
    ends: tuple[tuple[Outcome, float], ...] = ((Outcome.OK, 1.0),)
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
        """Whether anything depends on what was said before the last message."""
        return bool(self.more) or self.config.model.window < SMALL

    def counted(self, spent: Spent) -> tuple[object, ...]:
        """What of *spent* anything depends on: the turns, and units of which there are only so many."""
        limits = [limits for one in self.configs for limits in (one.limits, one.session_limits)]
        units = {"seconds": spent.seconds, "tokens": spent.usage.total, "usd": spent.cost}
        met = [units[unit] for unit in units if any(getattr(one, unit) is not None for one in limits)]
        return (spent.turns, *met)
