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
    AnswerFailed,
    ApprovalRequested,
    ApprovalResolved,
    CallSettled,
    CompactionStarted,
    HookAsked,
    HookEnded,
    InputReceived,
    ModelCalled,
    SummaryEnded,
    ToolStarted,
    TurnEnded,
    is_notice,
)
from turnwheel.effects.records import AddUsage
from turnwheel.effects.requests import (
    AskApproval,
    CallModel,
    FireHook,
    Purpose,
    RunAgent,
    RunTool,
)
from turnwheel.effects.usage import Spent
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
    faults = [] if told == due else [f"told is {told}, and to be told were {due}"]
    return faults + ending_faults(now, answered)


def _of_the_event(now: Transition, answered: Request | None) -> Iterator[Notice]:
    match now.event, answered:
        case HookAnswered() as event, FireHook() as asked:
            yield HookEnded(
                request=asked.id, hook=asked.hook, said=event.said, call=asked.call, at=now.event.at
            )
        case ApprovalGiven() as event, AskApproval(due=due) if not _too_late(event, due):
            yield ApprovalResolved(
                request=event.request, decision=event.decision, by=event.by, at=now.event.at
            )
        case (UserSent() | UserSteered()) as event, _:
            yield InputReceived(id=event.id, at=now.event.at)
        case _:
            pass


def _of_the_requests(now: Transition) -> Iterator[Notice]:
    for effect in now.effects:
        match effect:
            case FireHook():
                yield HookAsked(
                    request=effect.id, hook=effect.hook, names=effect.names, call=effect.call, at=now.event.at
                )
            case AskApproval():
                yield ApprovalRequested(
                    request=effect.id,
                    call=effect.call,
                    tool=effect.tool,
                    arguments=effect.arguments,
                    why=effect.why,
                    due=effect.due,
                    at=now.event.at,
                )
            case RunTool():
                yield ToolStarted(
                    call=effect.call, tool=effect.tool, arguments=effect.arguments, at=now.event.at
                )
            case CallSettled(outcome=Outcome.OK, content=model_messages.OUTPUT_TAKEN):
                # It begins and ends at once.
                (wish,) = [each for each in now.memory.history[-1].calls if each.id == effect.call]
                yield ToolStarted(call=wish.id, tool=wish.name, arguments=wish.arguments, at=now.event.at)
            case RunAgent():
                parent = now.memory.session.session_id
                session = f"{parent}.{effect.call}" if parent else ""
                yield AgentStarted(
                    call=effect.call,
                    agent=effect.agent,
                    prompt=effect.prompt,
                    session=session,
                    at=now.event.at,
                )
            case CallModel():
                if effect.purpose is Purpose.SUMMARY and effect.attempt == 1:
                    assert isinstance(now.state, Compacting)
                    size, reason = now.memory.conversation.size, now.state.reason
                    yield CompactionStarted(at=now.event.at, size=size, reason=reason)
                yield _called(effect, now)
            case _:
                pass


def _called(asked: CallModel, now: Transition) -> ModelCalled:
    spec = now.config.spec(asked.model)
    return ModelCalled(
        at=now.event.at,
        request=asked.id,
        model=asked.model,
        attempt=asked.attempt,
        purpose=asked.purpose,
        max_output=asked.max_output or spec.max_output,
        thinking=asked.thinking,
        temperature=spec.temperature,
        top_p=spec.top_p,
        seed=spec.seed,
        tool_choice=asked.tool_choice,
        tools=asked.tools,
        output=asked.output,
    )


def ending_faults(now: Transition, answered: Request | None) -> list[str]:
    """Whether *now* tells how a model call ended that its event *answered*, and what was paid for it."""
    told = [effect for effect in now.effects if isinstance(effect, TurnEnded | SummaryEnded | AnswerFailed)]
    faults = [f"{effect} is of another time than {now.event}" for effect in _misdated(now)]
    if isinstance(answered, CallModel) and [effect.request for effect in told] != [answered.id]:
        faults.append(f"the end of {answered} is told as {told}")
    paid = [effect.spent for effect in now.effects if isinstance(effect, AddUsage)]
    for one in told:
        spent = paid[0] if paid else Spent()
        cost = None if spent.unpriced else spent.cost
        if (one.usage, one.cost, one.seconds) != (spent.usage, cost, spent.seconds):
            faults.append(f"{one} was paid by {paid}")
    return faults


def _misdated(now: Transition) -> list[Notice]:
    return [effect for effect in now.effects if is_notice(effect) and effect.at != now.event.at]


def _too_late(event: ApprovalGiven, due: float | None) -> bool:
    """A yes may come too late, a no never does."""
    return due is not None and event.at >= due and not isinstance(event.decision, Deny)
