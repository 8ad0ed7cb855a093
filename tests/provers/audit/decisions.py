"""Whether whoever watches is told what is asked of the world and what came of it: each thing once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnwheel.effects.events import (
    ApprovalGiven,
    Deny,
    HookAnswered,
    UserSent,
    UserSteered,
)
from turnwheel.effects.messages import Outcome
from turnwheel.effects.notices import (
    AgentStarted,
    ApprovalRequested,
    ApprovalResolved,
    CallSettled,
    CompactionStarted,
    HookAsked,
    HookEnded,
    InputReceived,
    ModelCalled,
    ToolStarted,
)
from turnwheel.effects.requests import (
    AskApproval,
    CallModel,
    FireHook,
    Purpose,
    RunAgent,
    RunTool,
)
from turnwheel.states.rules import model_messages
from turnwheel.states.state import Compacting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from turnwheel.effects.notices import Notice
    from turnwheel.effects.requests import Request
    from turnwheel.engine.inspect.transitions import Transition

TOLD = (
    AgentStarted,
    ApprovalResolved,
    ApprovalRequested,
    CompactionStarted,
    HookAsked,
    HookEnded,
    InputReceived,
    ModelCalled,
    ToolStarted,
)
"""Notices that follow from a request that leaves or from the event itself, and from nothing else."""


def telling_faults(now: Transition, answered: Request | None) -> list[str]:
    """Whether *now* tells what it has to tell, and in this order; *answered* is what its event closed."""
    told = [effect for effect in now.effects if isinstance(effect, TOLD)]
    due = [*_of_the_event(now, answered), *_of_the_requests(now)]
    return [] if told == due else [f"told is {told}, and to be told were {due}"]


def _of_the_event(now: Transition, answered: Request | None) -> Iterator[Notice]:
    match now.event, answered:
        case HookAnswered() as event, FireHook() as asked:
            yield HookEnded(request=asked.id, hook=asked.hook, said=event.said, call=asked.call)
        case ApprovalGiven() as event, AskApproval(due=due) if not _too_late(event, due):
            yield ApprovalResolved(request=event.request, decision=event.decision, by=event.by)
        case (UserSent() | UserSteered()) as event, _:
            yield InputReceived(id=event.id)
        case _:
            pass


def _of_the_requests(now: Transition) -> Iterator[Notice]:
    for effect in now.effects:
        match effect:
            case FireHook():
                yield HookAsked(request=effect.id, hook=effect.hook, names=effect.names, call=effect.call)
            case AskApproval():
                yield ApprovalRequested(
                    request=effect.id,
                    call=effect.call,
                    tool=effect.tool,
                    arguments=effect.arguments,
                    why=effect.why,
                    due=effect.due,
                )
            case RunTool():
                yield ToolStarted(call=effect.call, tool=effect.tool, arguments=effect.arguments)
            case CallSettled(outcome=Outcome.OK, content=model_messages.OUTPUT_TAKEN):
                # It begins and ends at once.
                (wish,) = [each for each in now.memory.history[-1].calls if each.id == effect.call]
                yield ToolStarted(call=wish.id, tool=wish.name, arguments=wish.arguments)
            case RunAgent():
                yield AgentStarted(call=effect.call, agent=effect.agent, prompt=effect.prompt)
            case CallModel(purpose=Purpose.SUMMARY, attempt=1) if isinstance(now.state, Compacting):
                yield CompactionStarted(size=now.memory.conversation.size, reason=now.state.reason)
            case CallModel(purpose=Purpose.TURN):
                yield ModelCalled(request=effect.id, model=effect.model, attempt=effect.attempt)
            case _:
                pass


def _too_late(event: ApprovalGiven, due: float | None) -> bool:
    """A yes may come too late, a no never does."""
    return due is not None and event.at >= due and not isinstance(event.decision, Deny)
