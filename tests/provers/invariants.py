"""
What must always hold, as pure checks of values. Each gives a list of faults, empty where all is well.

A single state, memory or history is checked here; what holds over a whole run needs a `Ledger`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnwheel.effects.config import Concurrency, SideEffect
from turnwheel.effects.events import (
    AgentFinished,
    Failure,
    Interrupted,
    ModelFailed,
    ModelFinished,
    ToolFinished,
)
from turnwheel.effects.messages import Role, StopReason
from turnwheel.effects.records import AddUsage
from turnwheel.effects.requests import Purpose
from turnwheel.effects.usage import Spent, Usage
from turnwheel.engine.core.machine import calls_at
from turnwheel.states.batch.batch import (
    Asked,
    Batch,
    Held,
    Queued,
    Running,
    RunningChild,
    Settled,
)
from turnwheel.states.rules.history_check import history_faults
from turnwheel.states.rules.schema import arguments_of
from turnwheel.states.state import (
    Confirming,
    Dispatching,
    Done,
    Executing,
    Streaming,
    batch_of,
)

if TYPE_CHECKING:
    from turnwheel.effects.config import Config
    from turnwheel.effects.requests import CallModel
    from turnwheel.engine.inspect.transitions import Transition
    from turnwheel.states.batch.batch import Call
    from turnwheel.states.context import Memory
    from turnwheel.states.state import State


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
        # A paused answer goes on: the wire says how, for its own model and for another one.
        if seen[-1].role not in {Role.USER, Role.TOOL} and seen[-1].stop is not StopReason.PAUSED:
            faults.append(f"{request.id} sees a conversation that ends with {seen[-1].role}")
    return faults


# The state


def state_faults(state: State, memory: Memory) -> list[str]:
    """Whether *state* fits *memory* and itself: it lists what is open, and has the name that says so."""
    return history_faults(memory.history, _unanswered(state)) + _name_faults(state)


def step_faults(now: Transition) -> list[str]:
    """As `state_faults`, of the state that *now* led to; the same conversation is not read again."""
    calls, memory = _unanswered(now.following), now.remembered
    same = memory.history is now.memory.history and calls == _unanswered(now.state)
    return ([] if same else history_faults(memory.history, calls)) + _name_faults(now.following)


def _unanswered(state: State) -> list[str]:
    """The calls that have no result in the conversation yet, as *state* lists them."""
    return [call.call.id for call in calls_at(state)]


def _name_faults(state: State) -> list[str]:
    batch = batch_of(state)
    faults = [] if batch is None else _batch_faults(state, batch)
    if len(set(state.open)) != len(state.open):
        faults.append(f"{state.label} waits twice for one request: {state.open}")
    return faults


def _batch_faults(state: State, batch: Batch) -> list[str]:
    phases = {type(call.phase) for call in batch.calls}
    faults: list[str] = []
    named = Confirming if Asked in phases else Dispatching if RunningChild in phases else Executing
    if type(state) is not named:
        faults.append(f"{state.label} has the phases {sorted(phase.__name__ for phase in phases)}")
    faults += [
        f"the result of {call.call.id} is for {call.phase.result.call}"
        for call in batch.calls
        if isinstance(call.phase, Settled) and call.phase.result.call != call.call.id
    ]
    if batch.stopping and Queued in phases:
        faults.append(f"{state.label} is being given up and still has calls in the queue")
    if not batch.open and not phases <= {Queued, Held}:
        faults.append(f"{state.label} is stuck: it has begun, is not over and waits for nothing")
    return faults


def start_faults(call: str, now: Transition) -> list[str]:
    """Whether *call*, which is started in *now*, may be at work beside what is, and before what waits."""
    config, batch = now.config, getattr(now.following, "batch", Batch(calls=()))
    calls: tuple[Call, ...] = batch.calls
    index = [one.call.id for one in calls].index(call)
    at_work = [one for one in calls if isinstance(one.phase, Running | RunningChild)]
    if len(at_work) > config.policy.max_parallel:
        return [f"{len(at_work)} calls run at once, allowed are {config.policy.max_parallel}"]
    before = [one for one in calls[:index] if not isinstance(one.phase, Settled | Held)]
    others = before + [one for one in at_work if one not in before and one is not calls[index]]
    if config.policy.concurrency is Concurrency.SERIAL:
        return [f"{call} is started beside {others} in a serial batch"] if others else []
    mine = _touched(calls[index], config)
    disturbed = [one for one in others if not _apart(mine, _touched(one, config))]
    return [f"{call} is started before {disturbed} are over, which it may disturb"] if disturbed else []


Touched = tuple[bool, frozenset[str] | None]


def _touched(call: Call, config: Config) -> Touched:
    """Whether *call* only reads, and the keys of what it works on; None where it may touch anything."""
    spec = config.tool(call.call.name)
    if spec is None:
        return False, None
    reads = spec.side_effect is SideEffect.READ_ONLY
    if spec.resources is None or config.policy.concurrency is not Concurrency.PARALLEL:
        return reads, None
    given = arguments_of(call.call.arguments) or {}
    try:
        return reads, frozenset([key.format_map(given) for key in spec.resources])
    except KeyError:
        return reads, None


def _apart(one: Touched, other: Touched) -> bool:
    """Whether calls that touch this and that may run side by side."""
    (reads, keys), (others_read, others_keys) = one, other
    disjoint = keys is not None and others_keys is not None and keys.isdisjoint(others_keys)
    return disjoint or (reads and others_read)


def waits_faults(state: State) -> list[str]:
    """Whether *state*, in which a machine rests, waits for something or is the end."""
    return [] if state.open or isinstance(state, Done) else [f"{state.label} waits for nothing"]


# One step


def untouched_faults(now: Transition) -> list[str]:
    """Whether a step that was ignored changed nothing at all."""
    same = now.following is now.state and now.remembered is now.memory
    return [] if same else [f"an ignored {type(now.event).__name__} changed {now.state.label}"]


def payment_faults(now: Transition) -> list[str]:
    """Whether all that the answer in *now* used is added once: as it says, or as estimated if it was lost."""
    event = now.event
    paid = sum([effect.spent for effect in now.effects if isinstance(effect, AddUsage)], Spent())
    if isinstance(event, AgentFinished | Interrupted):
        return []  # what children used the purse knows
    seconds = event.seconds if isinstance(event, ModelFinished | ModelFailed | ToolFinished) else 0.0
    told = event.usage if isinstance(event, ModelFinished | ModelFailed) else None
    known = told is not None and told.total > 0
    if paid.seconds != seconds or (known and paid.usage != told):
        return [f"{event} used {told} and {seconds} seconds, added were {paid}"]
    lost = isinstance(event, ModelFailed) and event.failure is Failure.LOST
    return _estimate_faults(paid.usage, now) if lost and not known else []


def _estimate_faults(added: Usage, now: Transition) -> list[str]:
    """Whether what was lost in *now*, and told of no usage, was *added* as an estimate of what it read."""
    least = (
        now.memory.conversation.size if isinstance(now.state, Streaming) else 1
    )  # a summary reads a part of it
    right = added.estimated == added.total and added.input >= least
    return [] if right else [f"{now.event} may have cost {least} tokens or more, added were {added}"]
