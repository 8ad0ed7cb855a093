"""
Taking over a run whose process is gone: what becomes of the requests that were open.

A request in the journal was perhaps started, perhaps finished, and nobody knows. Models are asked again, and
what they had said is dropped. Reads run again, idempotent tools run again with the key they had; an unsafe
tool is reported as one that may have run. Questions, children and timers are simply open again. Exactly once
is never claimed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from ..effects.config import SideEffect
from ..effects.events import Event, Failure, ModelFailed, ToolFinished
from ..effects.messages import Outcome
from ..effects.requests import AskApproval, Request, RunAgent, RunTool, SetTimer
from ..states.rules import texts
from ..states.rules.children import child_prompt, child_tools, remainder
from ..states.rules.schema import arguments_of
from ..states.state import (
    Asked,
    Batch,
    Call,
    Compacting,
    Confirming,
    Delegated,
    Dispatching,
    Executing,
    Retry,
    Running,
    Stopping,
    Streaming,
    Summary,
    Thinking,
)

if TYPE_CHECKING:
    from ..effects.config import Config
    from ..states.context import Memory
    from .machine import Machine


@final
@attrs.frozen(kw_only=True)
class Recovery:
    """What to do with a run that is taken over: *again* are requests to perform, *events* to apply."""

    again: tuple[Request, ...] = ()
    events: tuple[Event, ...] = ()


def recover(machine: Machine, now: float) -> Recovery:
    """How *machine*, folded from its journal, goes on at the time *now*."""
    state = machine.state
    match state:
        case Streaming(request=request) | Compacting(stage=Summary(request=request)):
            lost = "the process that waited for the answer is gone"
            event = ModelFailed(at=now, request=request, failure=Failure.LOST, message=lost)
            return Recovery(events=(event,))
        case Thinking(stage=Retry(request=request, due=due)):
            return Recovery(again=(SetTimer(id=request, due=due),))
        case Executing(batch=batch) | Confirming(batch=batch) | Dispatching(batch=batch):
            return _batch(batch, machine.config, machine.memory, now)
        case _:
            return Recovery()


def _batch(batch: Batch, config: Config, memory: Memory, now: float) -> Recovery:
    found = [_call(call, batch.stopping, config, memory, now) for call in batch.calls]
    return Recovery(
        again=tuple([request for request in found if isinstance(request, RunTool | AskApproval | RunAgent)]),
        events=tuple([event for event in found if isinstance(event, ToolFinished)]),
    )


def _call(
    call: Call, stopping: Stopping, config: Config, memory: Memory, now: float
) -> RunTool | AskApproval | RunAgent | ToolFinished | None:
    wish = call.call
    match call.phase:
        case Asked(request=request):
            return AskApproval(id=request, call=wish.id, tool=wish.name, arguments=wish.arguments)
        case Delegated(request=request):
            return _child(call, request, config, memory)
        case Running(request=request):
            return _tool(call, request, stopping, config, now)
        case _:
            return None


def _tool(call: Call, request: str, stopping: Stopping, config: Config, now: float) -> RunTool | ToolFinished:
    wish = call.call
    spec = config.tool(wish.name)
    if spec is None or spec.side_effect is SideEffect.UNSAFE:
        return ToolFinished(at=now, request=request, content=texts.LOST, outcome=Outcome.UNKNOWN)
    if stopping is Stopping.INTERRUPTED:
        return ToolFinished(at=now, request=request, content=texts.CANCELLED, outcome=Outcome.CANCELLED)
    return RunTool(id=request, call=wish.id, tool=wish.name, arguments=wish.arguments, timeout=spec.timeout)


def _child(call: Call, request: str, config: Config, memory: Memory) -> RunAgent | None:
    name, prompt = child_prompt(arguments_of(call.call.arguments) or {})
    child = config.child(name)
    return RunAgent(
        id=request,
        call=call.call.id,
        agent=name,
        prompt=prompt,
        tools=() if child is None else child_tools(config, child),
        limits=remainder(child.limits if child else config.limits, config.limits, memory.spent),
    )
