"""
What must always hold, as pure checks of values. Each gives a list of faults, empty where all is well.

A single state, memory or history is checked here; what holds over a whole run needs a `Ledger`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from ..effects.config import Approval, Concurrency, SideEffect
from ..effects.events import AgentFinished, ModelFailed, ModelFinished, ToolFinished
from ..effects.messages import Role
from ..effects.notices import Compacted
from ..effects.records import AddUsage, ReplaceHistory
from ..effects.requests import Purpose
from ..effects.usage import Spent, Usage
from ..states.rules.sizes import history_size
from ..states.rules.validity import history_faults
from ..states.state import (
    Asked,
    Confirming,
    Delegated,
    Dispatching,
    Done,
    Executing,
    Queued,
    Running,
    Settled,
)

if TYPE_CHECKING:
    from decimal import Decimal

    from ..effects.config import Config, Limits, ToolSpec
    from ..effects.requests import CallModel
    from ..states.context import Memory
    from ..states.state import Batch, Call, State
    from .steps import Step


# The conversation


def request_faults(request: CallModel, memory: Memory) -> list[str]:
    """Whether the model of *request* is shown a conversation that every provider takes."""
    view, history = request.view, memory.history
    if view.revision != history.revision or not 0 < view.length <= len(history):
        return [f"{request.id} is to see {view}, the history is {history}"]
    seen = history.slice(0, view.length)
    faults = history_faults(seen)
    if request.purpose is Purpose.TURN:
        if view.length != len(history):
            faults.append(f"{request.id} sees {view.length} of {len(history)} messages")
        if seen[-1].role not in {Role.USER, Role.TOOL}:
            faults.append(f"{request.id} sees a conversation that ends with {seen[-1].role}")
    return faults


# The state


def state_faults(state: State, memory: Memory, config: Config) -> list[str]:
    """Whether *state* fits *memory* and itself: it lists what is open, and has the name that says so."""
    if isinstance(state, Executing | Confirming | Dispatching):
        faults = _batch_faults(state, memory, config)
    else:
        faults = history_faults(memory.history)
    if len(set(state.open)) != len(state.open):
        faults.append(f"{state.label} waits twice for one request: {state.open}")
    return faults


def _batch_faults(state: Executing | Confirming | Dispatching, memory: Memory, config: Config) -> list[str]:
    batch = state.batch
    faults = history_faults(memory.history, [call.call.id for call in batch.calls])
    phases = {type(call.phase) for call in batch.calls}
    named = Confirming if Asked in phases else Dispatching if Delegated in phases else Executing
    if type(state) is not named:
        faults.append(f"{state.label} has the phases {sorted(phase.__name__ for phase in phases)}")
    faults += [
        f"the result of {call.call.id} is for {call.phase.result.call}"
        for call in batch.calls
        if isinstance(call.phase, Settled) and call.phase.result.call != call.call.id
    ]
    if batch.stopping and Queued in phases:
        faults.append(f"{state.label} is being given up and still has calls in the queue")
    if not batch.open and phases != {Queued}:
        faults.append(f"{state.label} is stuck: it has begun, is not over and waits for nothing")
    return faults + concurrency_faults(batch, config)


def concurrency_faults(batch: Batch, config: Config) -> list[str]:
    """Whether the calls at work may be at work together."""
    at_work = [index for index, call in enumerate(batch.calls) if isinstance(call.phase, Running | Delegated)]
    if config.policy.concurrency is Concurrency.SERIAL:
        return [f"calls {at_work} run at once in a serial batch"] if len(at_work) > 1 else []
    faults: list[str] = []
    for index in at_work:
        before = [call for call in batch.calls[:index] if not isinstance(call.phase, Settled)]
        if not _reads(batch.calls[index], config) and before:
            faults.append(f"call {index} is no read and runs before {len(before)} earlier ones are settled")
        if not all(_reads(call, config) for call in before):
            faults.append(f"call {index} runs before an earlier one that is no read is settled")
    if len(at_work) > config.policy.max_parallel:
        faults.append(f"{len(at_work)} calls run at once, allowed are {config.policy.max_parallel}")
    return faults


def _reads(call: Call, config: Config) -> bool:
    spec = config.tool(call.call.name)
    return spec is not None and spec.side_effect is SideEffect.READ_ONLY


def waits_faults(state: State) -> list[str]:
    """Whether *state*, in which a machine rests, waits for something or is the end."""
    return [] if state.open or isinstance(state, Done) else [f"{state.label} waits for nothing"]


# One step


def untouched_faults(now: Step) -> list[str]:
    """Whether a step that was ignored changed nothing at all."""
    same = now.following is now.state and now.remembered is now.memory
    return [] if same else [f"an ignored {type(now.event).__name__} changed {now.state.label}"]


def growth_faults(spent: Spent) -> list[str]:
    """Whether *spent*, which is added to an account, takes nothing back."""
    grows = (
        spent.turns >= 0 and spent.cost >= 0 and spent.seconds >= 0 and min(attrs.astuple(spent.usage)) >= 0
    )
    return [] if grows else [f"{spent} takes something back"]


def payment_faults(now: Step) -> list[str]:
    """Whether all that the answer in *now* says it used is added to the account, and no time twice."""
    event = now.event
    match event:
        case ModelFinished() | ModelFailed():
            told, seconds = event.usage or Usage(), event.seconds
        case ToolFinished():
            told, seconds = Usage(), event.seconds
        case AgentFinished():
            told, seconds = event.spent.usage, event.spent.seconds
        case _:
            told, seconds = Usage(), 0.0
    added = [effect.spent for effect in now.effects if isinstance(effect, AddUsage)]
    paid = sum([spent.usage.total for spent in added])
    if paid < told.total or sum([spent.seconds for spent in added]) != seconds:
        return [f"{event} used {told.total} tokens and {seconds} seconds, added were {added}"]
    return []


def shrink_faults(effect: ReplaceHistory | Compacted, now: Step) -> list[str]:
    """Whether a compaction made the conversation smaller, and kept what it says it keeps."""
    if isinstance(effect, Compacted):
        return [] if effect.after < effect.before else [f"{effect} made it no smaller"]
    before = now.memory.history
    replaced = before.replace(effect.head, effect.keep)
    kept = list(replaced)[len(effect.head) :] == list(before)[effect.keep :]
    smaller = history_size(replaced) < history_size(before)
    return [] if smaller and kept else [f"{effect} made {replaced} of {before}"]


def over_limit(limits: Limits, spent: Spent) -> bool:
    """Whether *spent* has used up a budget of *limits*."""
    return (
        (limits.usd is not None and spent.cost >= limits.usd)
        or (limits.tokens is not None and spent.usage.total >= limits.tokens)
        or (limits.seconds is not None and spent.seconds >= limits.seconds)
    )


def beyond(wanted: Limits, limits: Limits, spent: Spent) -> list[str]:
    """What of *wanted* is more than *limits* leave after *spent*."""
    left = (
        ("usd", wanted.usd, limits.usd, spent.cost),
        ("tokens", wanted.tokens, limits.tokens, spent.usage.total),
        ("seconds", wanted.seconds, limits.seconds, spent.seconds),
    )
    return [name for name, *numbers in left if _too_much(*[_plain(number) for number in numbers])]


def _plain(number: Decimal | float | None) -> float | None:
    return None if number is None else float(number)


def _too_much(wanted: float | None, limit: float | None, used: float | None) -> bool:
    if limit is None:
        return False
    # Subtracting as floats may differ in the last digit.
    return wanted is None or wanted > limit - (used or 0.0) + 1e-9


def needs_asking(spec: ToolSpec) -> bool:
    """Whether a person is asked about *spec* where no rule answers."""
    by_effect = spec.approval is Approval.BY_SIDE_EFFECT and spec.side_effect is not SideEffect.READ_ONLY
    return spec.approval is Approval.ALWAYS or by_effect
