"""
What must hold of money, tokens and time: all that is used is counted, and nothing is promised twice.

What a child may use is set aside for it while it works, so what a run has spent and what its children may
spend never come to more than it may use. The sums are of decimals, which are exact.
"""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, final

import attrs

from provers.steps import stopping
from turnwheel.effects.config import Limits
from turnwheel.effects.events import (
    AgentFinished,
    AgentProgressed,
    Interrupted,
    ToolFinished,
)
from turnwheel.effects.records import AddUsage
from turnwheel.effects.requests import RunAgent
from turnwheel.effects.usage import Spent
from turnwheel.states.batch.batch import RunningChild, Stopping

if TYPE_CHECKING:
    from collections.abc import Mapping

    from turnwheel.effects.config import Config, ModelSpec
    from turnwheel.effects.requests import Request
    from turnwheel.engine.inspect.transitions import Transition
    from turnwheel.states.context import Memory

Amounts = dict[str, Decimal]
"""So much of each unit: USD, tokens, seconds. A unit that is missing has no limit."""

NOTHING: Mapping[str, Decimal] = dict.fromkeys(("usd", "tokens", "seconds"), Decimal(0))


def used(spent: Spent) -> Amounts:
    """What *spent* is of each unit."""
    tokens, seconds = Decimal(spent.usage.total), Decimal(spent.seconds)
    return {"usd": spent.cost, "tokens": tokens, "seconds": seconds}


@lru_cache
def allowed(limits: Limits) -> Mapping[str, Decimal]:
    """What *limits* allow of each unit that they name; turns are no unit that is set aside."""
    amounts = {"usd": limits.usd, "tokens": limits.tokens, "seconds": limits.seconds}
    return {unit: Decimal(amount) for unit, amount in amounts.items() if amount is not None}


@final
@attrs.define(kw_only=True)
class SpendBook:
    """
    What one run *spent*, what its session had spent *earlier*, and what is *held* for children, by request.

    *told* is what those have spent until now. *unplanned* is what was used beside that since the last child
    was started: by tools, and by children that used more than was set aside for them.
    """

    earlier: Spent
    spent: Spent = Spent()
    held: dict[str, Limits] = attrs.field(factory=dict)
    told: dict[str, Spent] = attrs.field(factory=dict)
    unplanned: Amounts = attrs.field(factory=lambda: dict(NOTHING))

    @classmethod
    def of(cls, memory: Memory) -> SpendBook:
        """A new purse for a run that begins with *memory*."""
        return cls(earlier=memory.earlier)

    def copy(self) -> SpendBook:
        """A purse that goes on from here on its own."""
        return SpendBook(
            earlier=self.earlier,
            spent=self.spent,
            held=dict(self.held),
            told=dict(self.told),
            unplanned=dict(self.unplanned),
        )

    def left(self, config: Config) -> Amounts:
        """What is left under *config*, of each unit that has a limit, beside what is held; may be below 0."""
        accounts = (config.limits, self.spent), (config.session_limits, self.earlier + self.spent)
        left: Amounts = {}
        for limits, spent in accounts:
            for unit, limit in allowed(limits).items():
                rest = limit - used(spent)[unit] - self._held(unit)
                left[unit] = min(left.get(unit, rest), rest)
        return left

    def _held(self, unit: str) -> Decimal:
        return sum([allowed(limits).get(unit, Decimal(0)) for limits in self.held.values()], Decimal(0))

    def over(self, config: Config) -> bool:
        """Whether a budget of *config* is used up."""
        accounts = (config.limits, self.spent), (config.session_limits, self.earlier + self.spent)
        return any(
            used(spent)[unit] >= limit
            for limits, spent in accounts
            for unit, limit in allowed(limits).items()
        )

    def may_call(self, config: Config) -> bool:
        """Whether a model may be called under *config*: no budget is used up, and there are turns left."""
        turns = (config.limits.turns, self.spent), (config.session_limits.turns, self.earlier + self.spent)
        out_of_turns = any(limit is not None and spent.turns >= limit for limit, spent in turns)
        return not (out_of_turns or self.over(config))

    def room(self, config: Config, model: ModelSpec, asked: int) -> Decimal:
        """How long an answer of *model* to *asked* tokens can be paid; below 0 where not even those can."""
        left, price, room = self.left(config), model.price, Decimal("inf")
        if "tokens" in left:
            room = left["tokens"] - asked
        if "usd" in left and price is not None:
            money = left["usd"] * 1_000_000 - asked * max(price.input, price.cache_write or 0)
            each = max(price.output, price.reasoning or 0)
            room = money if money < 0 else min(room, money // each) if each else room
        return room

    # Children

    def fits(self, wanted: Limits, config: Config) -> bool:
        """
        Whether a child that wants *wanted* can start now.

        Alone it starts with whatever there is; beside others only where there is all that it wants.
        """
        wants = allowed(wanted)
        return all(
            rest > 0 and (not self.held or wants.get(unit, rest) <= rest)
            for unit, rest in self.left(config).items()
        )

    def grant(self, request: RunAgent, config: Config) -> list[str]:
        """What is wrong with what *request* sets aside; it is held from now on."""
        child = config.child(request.agent)
        wanted = Limits() if child is None else child.limits
        faults = [] if self.fits(wanted, config) else [f"{request} starts, left are {self.left(config)}"]
        left, wants = self.left(config), allowed(wanted)
        due = {
            unit: min([amounts[unit] for amounts in (left, wants) if unit in amounts])
            for unit in {**left, **wants}
        }
        if (allowed(request.limits), request.limits.turns) != (due, wanted.turns):
            faults.append(f"{request} may use {request.limits}, due were {due} of {left}")
        self.held[request.id], self.told[request.id] = request.limits, Spent()
        self.unplanned = dict(NOTHING)
        return faults + self._overspent(config)

    def _overspent(self, config: Config) -> list[str]:
        """Whether what is spent and what is held come to more than there is, but for what nobody planned."""
        return [
            f"{self.held} are set aside, and there are {rest} {unit} too few"
            for unit, rest in (self.left(config) if self.held else {}).items()
            if rest + self.unplanned[unit] < 0
        ]

    # One step

    def take(self, now: Transition, answered: Request | None) -> list[str]:
        """What is used in *now*, whose event closed *answered*; what children get comes later, by `grant`."""
        event, due = now.event, None
        if isinstance(event, AgentFinished) and isinstance(answered, RunAgent):
            due = self._returned(event, answered)
        elif isinstance(event, AgentProgressed):
            self.told[event.request], due = event.spent, Spent()
        elif isinstance(event, ToolFinished):
            self.unplanned["seconds"] += Decimal(max(0.0, event.seconds))
        elif isinstance(event, Interrupted) and stopping(now.state) is Stopping.INTERRUPTED and self.held:
            # Asked twice: nobody waits for them any more, and what they told is all there is to know.
            due = sum(self.told.values(), Spent())
            self.held, self.told = {}, {}
        added = [effect.spent for effect in now.effects if isinstance(effect, AddUsage)]
        faults = [f"{spent} takes something back" for spent in added if _takes(spent)]
        if due is not None and sum(added, Spent()) != attrs.evolve(due, turns=0):
            faults.append(f"children used {due} until {event}, added were {added}")
        self.spent = sum(added, self.spent)
        return faults

    def _returned(self, event: AgentFinished, asked: RunAgent) -> Spent:
        """What the child that *asked* is over for used in all: a broken one may know less than it told."""
        given, told = allowed(self.held.pop(asked.id)), self.told.pop(asked.id)
        spent = event.spent if event.spent.usage.total >= told.usage.total else told
        for unit, amount in used(spent).items():
            self.unplanned[unit] += max(Decimal(0), amount - given.get(unit, amount))
        return spent

    def faults(self, now: Transition) -> list[str]:
        """Whether the books balance after *now*."""
        memory = now.remembered
        faults = self._overspent(now.config)
        if memory.spent != self.spent or memory.earlier != self.earlier:
            was = self.earlier, self.spent
            faults.append(f"used were {was}, the memory has {(memory.earlier, memory.spent)}")
        calls = [one.phase for one in getattr(getattr(now.following, "batch", None), "calls", ())]
        children = [phase for phase in calls if isinstance(phase, RunningChild)]
        given = {phase.request: phase.limits for phase in children}
        told = {phase.request: phase.spent for phase in children}
        if (given, told) != (self.held, self.told):
            faults.append(f"{self.held} are set aside, {self.told} used of it; the state has {given}, {told}")
        return faults


def _takes(spent: Spent) -> bool:
    amounts = (spent.turns, spent.seconds, spent.unpriced, *attrs.astuple(spent.usage))
    return spent.cost < 0 or any(amount < 0 for amount in amounts)
