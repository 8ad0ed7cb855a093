"""What a machine still waits for, by kind: its open questions, its calls that are not over, its children."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from ..effects.config import ToolKind
from ..states.batch.batch import Asked, Reviewed, RunningChild, Settled
from ..states.batch.permission import question
from ..states.rules.limits import child_prompt
from ..states.rules.schema import arguments_of
from ..states.state import Confirming, Dispatching, Executing

if TYPE_CHECKING:
    from ..effects.messages import ToolCall
    from ..effects.requests import AskApproval
    from ..states.state import State
    from .machine import Machine


def questions(machine: Machine) -> tuple[AskApproval, ...]:
    """The questions that are open in *machine*."""
    state = machine.state
    if not isinstance(state, Confirming):
        return ()
    return tuple(
        [question(call.call, call.phase) for call in state.batch.calls if isinstance(call.phase, Asked)]
    )


def calls_of(machine: Machine) -> tuple[str, ...]:
    """The ids of the calls that are not over in *machine*."""
    return calls_in(machine.state)


def calls_in(state: State | None) -> tuple[str, ...]:
    """The ids of the calls that are not over in *state*, if there is one."""
    if not isinstance(state, Executing | Confirming | Dispatching):
        return ()
    return tuple(
        [call.call.id for call in state.batch.calls if not isinstance(call.phase, Settled | Reviewed)]
    )


@final
@attrs.frozen(kw_only=True)
class ChildLink:
    """A child that is not over: the *call* it works for, the *session* it has and which *agent* it is."""

    call: str
    session: str
    agent: str


def links_of(state: State, session: str) -> tuple[ChildLink, ...]:
    """The children of *session* that are not over in *state*, in call order; each is named after its call."""
    if not isinstance(state, Executing | Confirming | Dispatching):
        return ()
    return tuple(
        [
            ChildLink(call=one.call.id, session=f"{session}.{one.call.id}", agent=_agent(one.call))
            for one in state.batch.calls
            if isinstance(one.phase, RunningChild)
        ]
    )


def _agent(wish: ToolCall) -> str:
    name, _ = child_prompt(arguments_of(wish.arguments) or {})
    return name


def agent_before(call: str, machine: Machine | None) -> str:
    """The agent that *call* of *machine*'s history was for; empty where it was for none."""
    if machine is None:
        return ""
    history = machine.memory.history
    for index in range(len(history) - 1, -1, -1):
        for wish in history[index].calls:
            spec = machine.config.tool(wish.name)
            if wish.id == call and spec is not None and spec.kind is ToolKind.AGENT:
                return _agent(wish)
    return ""
