"""What a person is told of a run whose process was lost: what became of the work it left."""

from __future__ import annotations

from collections.abc import Iterator

from ..effects.events import Event, ModelFailed, ToolFinished
from ..effects.messages import Outcome, ToolCall
from ..effects.requests import AskApproval, Cancel, FireHook, Request, RunAgent, RunTool, SetTimer
from ..engine.machine import Machine
from ..engine.recovery import questions, recover
from ..engine.session import Session
from ..states.state import Compacting, Confirming, Dispatching, Executing, Thinking
from .gist import essence

WIDTH = 80
"""Columns for what a call is about."""


def calls(machine: Machine) -> tuple[ToolCall, ...]:
    """The calls that *machine*'s run is busy with."""
    if isinstance(machine.state, Executing | Confirming | Dispatching):
        return tuple(call.call for call in machine.state.batch.calls)
    return ()


def asked(session: Session) -> Iterator[AskApproval]:
    """The questions of *session* and its children; also those whose answers nobody has heeded yet."""
    sessions = (session, *[session.child(link.call) for link in session.children])
    for machine in [each.machine for each in sessions]:
        yield from () if machine is None else questions(machine)


def told(machine: Machine, now: float) -> Iterator[str]:
    """What is done about each piece of work that was open, a line each; *now* in seconds since the epoch."""
    recovery = recover(machine, now, kept=True)
    names = _names(machine)
    for event in recovery.events:
        yield from _of_event(event, names)
    for request in recovery.again:
        if not isinstance(request, SetTimer):
            yield from _of_request(request, names)
        elif isinstance(machine.state, Thinking | Compacting):  # else it is a question's deadline
            yield "recovered: the model is asked again when its time has come"


def _names(machine: Machine) -> dict[str, str]:
    """What each open request of a batch is about."""
    if not isinstance(machine.state, Executing | Confirming | Dispatching):
        return {}
    return {
        request: f"{call.call.name} {essence(call.call.name, call.call.arguments, WIDTH)}".rstrip()
        for call in machine.state.batch.calls
        for request in call.open
    }


def _of_event(event: Event, names: dict[str, str]) -> Iterator[str]:
    match event:
        case ModelFailed():
            yield "recovered: the answer that was under way is lost, the model is asked again"
        case ToolFinished(request=request, outcome=Outcome.UNKNOWN):
            yield f"recovered: {names.get(request, 'a tool')} - it may have run and is not run again"
        case ToolFinished(request=request):
            yield f"recovered: {names.get(request, 'a tool')} - cancelled"
        case _:
            pass


def _of_request(request: Request | Cancel, names: dict[str, str]) -> Iterator[str]:
    match request:
        case RunTool():
            yield f"recovered: {names.get(request.id, request.tool)} - is run again"
        case RunAgent():
            yield f"recovered: agent {request.agent} - goes on"
        case FireHook(names=hooks):
            yield f"recovered: hooks are asked again: {', '.join(hooks)}"
        case _:
            pass
