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
from ..effects.events import AgentFinished, Event, Failure, ModelFailed, ToolFinished
from ..effects.messages import Outcome
from ..effects.requests import AskApproval, Cancel, Request, RunAgent, RunTool, SetTimer
from ..states.rules import texts
from ..states.rules.children import child_prompt, child_tools
from ..states.rules.schema import arguments_of
from ..states.starting import child_run, question, reads, tool_run
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
    from .machine import Machine


@final
@attrs.frozen(kw_only=True)
class Recovery:
    """What to do with a run that is taken over: *again* are requests to perform, *events* to apply."""

    again: tuple[Request | Cancel, ...] = ()
    events: tuple[Event, ...] = ()


def recover(machine: Machine, now: float, *, kept: bool) -> Recovery:
    """
    How *machine*, folded from its journal, goes on at the time *now*.

    *kept* says whether children have journals of their own. Where they have not, one that was at work is
    what an unsafe tool is.
    """
    state = machine.state
    match state:
        case Streaming(request=request) | Compacting(stage=Summary(request=request)):
            lost = "the process that waited for the answer is gone"
            event = ModelFailed(at=now, request=request, failure=Failure.LOST, message=lost)
            return Recovery(events=(event,))
        case Thinking(stage=Retry(request=request, due=due)):
            return Recovery(again=(SetTimer(id=request, due=due),))
        case Executing(batch=batch) | Confirming(batch=batch) | Dispatching(batch=batch):
            found = [effect for call in batch.calls for effect in _call(call, batch, machine, now, kept=kept)]
            return Recovery(
                again=tuple([one for one in found if not isinstance(one, ToolFinished | AgentFinished)]),
                events=tuple([one for one in found if isinstance(one, ToolFinished | AgentFinished)]),
            )
        case _:
            return Recovery()


def questions(machine: Machine) -> tuple[AskApproval, ...]:
    """The questions that are open in *machine*."""
    state = machine.state
    if not isinstance(state, Confirming):
        return ()
    asked = [call for call in state.batch.calls if isinstance(call.phase, Asked)]
    return tuple([question(call.call, request) for call in asked for request in call.open])


def _call(
    call: Call, batch: Batch, machine: Machine, now: float, *, kept: bool
) -> tuple[RunTool | AskApproval | RunAgent | Cancel | ToolFinished | AgentFinished, ...]:
    """What becomes of the open request of *call*, if it has one."""
    match call.phase:
        case Asked(request=request):
            return (question(call.call, request),)
        case Delegated(request=request):
            return _child(call, request, batch.stopping, machine, now, kept=kept)
        case Running(request=request):
            return (_tool(call, request, batch.stopping, machine.config, now),)
        case _:
            return ()


def _tool(call: Call, request: str, stopping: Stopping, config: Config, now: float) -> RunTool | ToolFinished:
    wish = call.call
    spec = config.tool(wish.name)
    if spec is None or spec.side_effect is SideEffect.UNSAFE:
        return ToolFinished(at=now, request=request, content=texts.LOST, outcome=Outcome.UNKNOWN)
    if stopping is Stopping.INTERRUPTED:
        return ToolFinished(at=now, request=request, content=texts.CANCELLED, outcome=Outcome.CANCELLED)
    return tool_run(wish, spec, request)


def _child(
    call: Call, request: str, stopping: Stopping, machine: Machine, now: float, *, kept: bool
) -> tuple[RunAgent | Cancel | AgentFinished, ...]:
    config = machine.config
    name, _ = child_prompt(arguments_of(call.call.arguments) or {})
    child = config.child(name)
    if child is None or not (kept or all(map(reads, map(config.tool, child_tools(config, child))))):
        return (AgentFinished(at=now, request=request, content=texts.LOST, outcome=Outcome.UNKNOWN),)
    again = child_run(call.call, child, config, machine.memory.spent, request)
    # An interrupt that was accepted holds, also for the child, whose own journal may not know of it.
    return (again, Cancel(request=request)) if stopping is Stopping.INTERRUPTED else (again,)
