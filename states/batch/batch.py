"""The batch: all calls of one answer, each in its own phase on its way to its result."""

# A call goes through these phases from left to right, and never back but for the last case below:
#
#   Queued, AwaitingHooks, Inspecting, Asked, AllowedAwaitingHooks, Allowed, AllowedInspecting, Running,
#   Reviewed, Settled
#
# - Each but the first and the last may be left out. Hooks are asked before the rules or after, by policy.
# - What a call reaches is looked at where a rule could speak about it: before it is judged, and once more
#   where it has waited since. So `AllowedInspecting` leads back to `Allowed`.
# - Each may be followed by `Settled` at once: a call that is denied, skipped or wrong has its result.
# - `Held` is a call that nothing runs: it has the output of the run, and waits until all others are settled.
# - `RunningChild` stands in the place of `Running` where the tool starts a child agent.
# - A call that was lost while it ran goes back to `Asked`, marked by `PriorAttempt`.
#
# A phase names the request that it waits for, so the phases of a batch are all that is open in it.
# `Executing`, `Confirming` and `Dispatching` are one batch under three names; see `state`.

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import final

import attrs

from ...effects.config import Limits
from ...effects.findings import Finding
from ...effects.hooks import Hook, HookSaid
from ...effects.messages import ToolCall, ToolResult
from ...effects.permissions import Basis, Rule
from ...effects.usage import Spent


class Stopping(IntEnum):
    """How much of a state's work is given up. It only rises, so a weaker wish undoes nothing."""

    NONE = 0
    # A person denied a call: queued ones are skipped, open questions stay open.
    DENIED = 1
    # A person said something new: questions are withdrawn, too.
    STEERED = 2
    # The same, and they do not want to wait: what runs is cancelled.
    HURRIED = 3
    # The budget is used up: nothing starts any more, what runs is let finish.
    OVER_BUDGET = 4
    # What runs is cancelled, and the run ends with the batch.
    INTERRUPTED = 5


@final
@attrs.frozen(kw_only=True)
class Queued:
    """Its turn has not come."""


@final
@attrs.frozen(kw_only=True)
class Held:
    """It has the output of the run, which is taken if all other calls end well."""


@final
@attrs.frozen(kw_only=True)
class HookRound:
    """The host's hooks that were *asked* about a call before it runs, and what they *said* so far."""

    asked: tuple[str, ...] = ()
    said: tuple[HookSaid, ...] = ()


@final
@attrs.frozen(kw_only=True)
class AwaitingHooks:
    """It has not been judged, and hooks are asked about it."""

    request: str
    hooks: HookRound = HookRound()


@final
@attrs.frozen(kw_only=True)
class Inspecting:
    """It has not been judged, and its arguments are being looked at; *hooks* have had their say."""

    request: str
    hooks: HookRound = HookRound()


@final
@attrs.frozen(kw_only=True)
class Timer:
    """A timer, *request*, that is set to *due*, in seconds since the epoch."""

    request: str
    due: float


@final
@attrs.frozen(kw_only=True)
class Forever:
    """A question waits as long as it takes."""


@final
@attrs.frozen(kw_only=True)
class Asked:
    """
    A person was asked and has until the *deadline*, because of *ground*; *why* says more.

    *hooks* are those that have had their say, *finding* is what was known of its arguments. *asked_by* are
    the rules that ask, which "always" outvotes.
    """

    request: str
    ground: Basis = Basis.TOOL
    why: str = ""
    asked_by: tuple[Rule, ...] = ()
    hooks: HookRound = HookRound()
    deadline: Timer | Forever = Forever()
    finding: Finding = Finding()


@final
@attrs.frozen(kw_only=True)
class AllowedAwaitingHooks:
    """It was allowed on *ground*, and hooks are asked about it."""

    request: str
    ground: Basis
    hooks: HookRound = HookRound()


@final
@attrs.frozen(kw_only=True)
class Allowed:
    """It may run when its turn comes; *ground* is why, *inspection* the request by which that was found."""

    ground: Basis
    inspection: str = ""


@final
@attrs.frozen(kw_only=True)
class AllowedInspecting:
    """It was allowed on *ground* and its turn has come; its arguments are looked at once more."""

    request: str
    ground: Basis


class Order(StrEnum):
    """The last word to a tool or child at work: run, or stop, after which its answer is still awaited."""

    RUN = "run"
    STOP = "stop"


@final
@attrs.frozen(kw_only=True)
class Running:
    """A tool is at work; *finding* is what was known of its arguments when it began."""

    request: str
    told: Order = Order.RUN
    finding: Finding = Finding()


@final
@attrs.frozen(kw_only=True)
class RunningChild:
    """A child agent is at work; *limits* are set aside for it, of which it has *spent* so much."""

    request: str
    limits: Limits = Limits()
    spent: Spent = Spent()
    told: Order = Order.RUN


@final
@attrs.frozen(kw_only=True)
class Reviewed:
    """It is over, with *result*, and hooks are asked about that; *hook* says which."""

    request: str
    hook: Hook
    result: ToolResult


@final
@attrs.frozen(kw_only=True)
class Settled:
    """It has its result."""

    result: ToolResult


# Where a call is on its way to its result.
Phase = (
    Queued
    | Held
    | AwaitingHooks
    | Inspecting
    | Asked
    | AllowedAwaitingHooks
    | Allowed
    | AllowedInspecting
    | Running
    | RunningChild
    | Reviewed
    | Settled
)

# Phases of a call that has not started.
Unstarted = (
    Queued | Held | AwaitingHooks | Inspecting | Asked | AllowedAwaitingHooks | Allowed | AllowedInspecting
)

# Phases of a call whose tool or child is at work.
Working = Running | RunningChild

# Phases of a call of which more is to be known before it starts.
Looking = AwaitingHooks | AllowedAwaitingHooks | Inspecting | AllowedInspecting

# Phases that wait for an answer to their *request*.
AtWork = Looking | Asked | Running | RunningChild | Reviewed


class PriorAttempt(StrEnum):
    """Whether a call was tried before: never, or by a process that was lost, so that it may have run."""

    NEVER = "never"
    LOST = "lost"


@final
@attrs.frozen(kw_only=True)
class Call:
    """
    One call of a batch. *call* has the arguments it will run with, which a person may have edited.

    *tried* is about what was before its *phase*.
    """

    call: ToolCall
    phase: Phase = Queued()
    tried: PriorAttempt = PriorAttempt.NEVER

    def at(self, phase: Phase) -> Call:
        """This call in *phase*."""
        return Call(call=self.call, phase=phase, tried=self.tried)

    def given(self, arguments: str) -> Call:
        """This call with other *arguments*."""
        # Only in the batch. The history keeps the arguments that the model wrote, since it will read them
        # again.
        wish = attrs.evolve(self.call, arguments=arguments)
        return Call(call=wish, phase=self.phase, tried=self.tried)

    @property
    def open(self) -> tuple[str, ...]:
        """The ids of this call's open requests."""
        phase = self.phase
        # A question with a deadline is two requests. Whichever is answered first closes the other.
        if isinstance(phase, Asked) and isinstance(phase.deadline, Timer):
            return (phase.request, phase.deadline.request)
        return (phase.request,) if isinstance(phase, AtWork) else ()


@final
@attrs.frozen(kw_only=True)
class Batch:
    """
    All calls of one assistant message, in the model's order.

    *offered* are the tools of the request that was answered: no other runs, whatever is configured later.
    """

    calls: tuple[Call, ...]
    offered: tuple[str, ...] = ()
    stopping: Stopping = Stopping.NONE

    @property
    def open(self) -> tuple[str, ...]:
        """The ids of the requests that are open."""
        return tuple([request for call in self.calls for request in call.open])

    def waiting_for(self, request: str) -> int | None:
        """The index of the call that has *request* open, or None."""
        for index, call in enumerate(self.calls):
            if request in call.open:
                return index
        return None

    @property
    def phases(self) -> frozenset[type[Phase]]:
        """The kinds of phases that its calls are in."""
        return frozenset([type(call.phase) for call in self.calls])

    @property
    def settled(self) -> bool:
        """Whether every call has its result."""
        return {type(call.phase) for call in self.calls} <= {Settled}

    @property
    def rests(self) -> bool:
        """Whether all that is open are questions and their deadlines."""
        # A run that rests costs nothing, so a worker may leave it and a drain need not wait for it.
        waiting = [call.phase for call in self.calls if isinstance(call.phase, AtWork)]
        return bool(waiting) and all(isinstance(phase, Asked) for phase in waiting)

    def with_call(self, index: int, call: Call) -> Batch:
        """This batch with *call* at *index*."""
        return self.with_calls([*self.calls[:index], call, *self.calls[index + 1 :]], self.stopping)

    def with_calls(self, calls: list[Call], stopping: Stopping) -> Batch:
        """This batch with *calls* in place of its own, and *stopping*."""
        return Batch(calls=tuple(calls), offered=self.offered, stopping=stopping)
