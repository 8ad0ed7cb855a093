"""The open work of a machine: its questions, its calls that have no result, its children."""

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
    """The open questions of *machine*."""
    state = machine.state
    # In Dispatching a question may be answered already, and a hook still has its say: nothing to answer.
    if not isinstance(state, Confirming):
        return ()
    # Made anew from the phases: a state that was restored from a journal has no list of questions.
    return tuple(
        [question(call.call, call.phase) for call in state.batch.calls if isinstance(call.phase, Asked)]
    )


def calls_of(machine: Machine) -> tuple[str, ...]:
    """The ids of the calls of *machine* that have no result yet."""
    return calls_in(machine.state)


def calls_in(state: State | None) -> tuple[str, ...]:
    """The ids of the calls in *state* that have no result yet; none without a batch."""
    # A reviewed call has its result: only a hook's remark on it is still to come, so cancelling is too late.
    if not isinstance(state, Executing | Confirming | Dispatching):
        return ()
    return tuple(
        [call.call.id for call in state.batch.calls if not isinstance(call.phase, Settled | Reviewed)]
    )


@final
@attrs.frozen(kw_only=True)
class ChildLink:
    """A running child: the *call* it works for, the id of its *session*, and its *agent*."""

    call: str
    session: str
    agent: str


def links_of(state: State, session: str) -> tuple[ChildLink, ...]:
    """The running children of *session* in *state*, in call order."""
    # The name is made from the parent and the call: any process finds the child without a directory of them.
    if not isinstance(state, Executing | Confirming | Dispatching):
        return ()
    return tuple(
        [
            ChildLink(call=one.call.id, session=f"{session}.{one.call.id}", agent=_agent(one.call))
            for one in state.batch.calls
            # A call whose permission is still open has no child yet, and a settled one has none any more.
            if isinstance(one.phase, RunningChild)
        ]
    )


def _agent(call: ToolCall) -> str:
    # Arguments that cannot be read never started a child, so an empty name stands for no agent.
    name, _ = child_prompt(arguments_of(call.arguments) or {})
    return name


def agent_before(call: str, machine: Machine | None) -> str:
    """The agent that *call* of *machine*'s history started; empty where it started none."""
    # Nothing has run yet, so no call can have started a child.
    if machine is None:
        return ""
    history = machine.memory.history
    # From the end: a person asks for a child that ended just now, and histories may be long.
    for index in range(len(history) - 1, -1, -1):
        for made in history[index].calls:
            # By kind and not by name: a host may have a tool of its own that is called run_agent.
            spec = machine.config.tool(made.name)
            if made.id == call and spec is not None and spec.kind is ToolKind.AGENT:
                return _agent(made)
    return ""
