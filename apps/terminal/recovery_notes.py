"""Describe the recovery of a run whose process was lost: the outcome of each open request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...effects.config import Config
from ...effects.events import (
    AgentFinished,
    Event,
    Failure,
    HookAnswered,
    ModelFailed,
    ToolFinished,
    ToolLost,
)
from ...effects.messages import ToolCall
from ...effects.requests import (
    AskApproval,
    Cancel,
    FireHook,
    Request,
    RunAgent,
    RunTool,
    SetTimer,
)
from ...engine.core.machine import Machine, calls_at, is_deadline, questions
from ...engine.core.recovery import recover
from ...engine.session.session import Session
from .call_summary import essence

NOTE_WIDTH = 80
"""Columns for the arguments of a call."""


def batch_calls(machine: Machine) -> tuple[ToolCall, ...]:
    """The calls of the current batch of *machine*."""
    return tuple(call.call for call in calls_at(machine.state))


def open_questions(session: Session) -> Iterator[AskApproval]:
    """
    The open questions of *session* and its children, also those with an answer that no worker has taken up.
    """
    sessions = (session, *[session.child(link.call) for link in session.children])
    for machine in [each.machine for each in sessions]:
        yield from () if machine is None else questions(machine)


def recovery_lines(
    machine: Machine,
    config: Config,
    now: float,
    unbegun: frozenset[str] = frozenset(),
    tries: Mapping[str, int] | None = None,
) -> Iterator[str]:
    """
    A line for each open request, as the next worker under *config* will treat it.

    *now* is in seconds since the epoch. The requests *unbegun* never started; *tries* are the others'.
    """
    ahead = Machine(machine.config, machine.state, machine.memory)
    ahead.reconfigure(config)
    recovery = recover(ahead, now, unbegun, tries)
    names = _names(machine)
    for event in recovery.events:
        open_questions = [one for one in ahead.advance(event) if isinstance(one, AskApproval) and one.again]
        yield from _of_event(event, names, asks=bool(open_questions))
    for request in recovery.again:
        if isinstance(request, RunTool) and request.id in unbegun:
            yield f"handed over: {names.get(request.id, request.tool)} - begins now"
        elif not isinstance(request, SetTimer):
            yield from _of_request(request, names)
        elif not is_deadline(request, machine.state):
            yield "recovered: the model is asked again at the planned time"


def _names(machine: Machine) -> dict[str, str]:
    """A summary of the call of each open request."""
    return {
        request: f"{call.call.name} {essence(call.call.name, call.call.arguments, NOTE_WIDTH)}".rstrip()
        for call in calls_at(machine.state)
        for request in call.open
    }


def _of_event(event: Event, names: dict[str, str], *, asks: bool) -> Iterator[str]:
    """The lines for a recovery *event*; *asks*: the machine asks a person about it."""
    match event:
        case ModelFailed(failure=Failure.UNBEGUN):
            yield "handed over: the model is asked now"
        case ModelFailed(should_retry=False):
            yield "recovered: the unfinished answer is lost once more, the model is not asked again"
        case HookAnswered(said=said) if said:
            yield f"recovered: hooks are lost once more, and failed: {', '.join(one.name for one in said)}"
        case ModelFailed():
            yield "recovered: the unfinished answer is lost, the model is asked again"
        case AgentFinished(request=request):
            yield f"recovered: {names.get(request, 'an agent')} - it no longer exists, and may have run"
        case ToolLost(request=request):
            then = "; you are asked about it" if asks else " and is not run again"
            yield f"recovered: {names.get(request, 'a tool')} - it may have run{then}"
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
