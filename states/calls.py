"""
The batch: the one place that knows how tool calls go from the model's wish to their results.

Every event changes one call; then the batch is settled (what is being given up gets its result), started
(what may go on does) and named (a question open: confirming; else a child at work: dispatching; else
executing). When every call has its result, one message with all of them, in call order, enters the history
and the batch ends. So a call can never be left without a result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import attrs

from ..effects.config import Grant, OnDenial, ToolSpec
from ..effects.events import (
    AgentFinished,
    ApprovalGiven,
    Approve,
    ApproveAlways,
    Deny,
    Entered,
    Interrupted,
    ToolFinished,
    ToolProgressed,
    UserSent,
)
from ..effects.messages import Message, Outcome, Role
from ..effects.notices import (
    ApprovalAnswered,
    ApprovalWithdrawn,
    DoneReason,
    InputReceived,
    InterruptRequested,
    ToolProgress,
)
from ..effects.records import AddUsage, AppendMessage, GrantRule
from ..effects.requests import Cancel
from ..effects.usage import Spent
from .draft import Draft
from .rules import texts
from .settling import abandon, give_up, settled
from .starting import fault_in, spec_of, start, within_budget
from .state import (
    Allowed,
    Asked,
    Batch,
    Call,
    Confirming,
    Delegated,
    Dispatching,
    End,
    Executing,
    Go,
    Running,
    Settled,
    Stopping,
    Thinking,
)

if TYPE_CHECKING:
    from ..effects import Effect
    from .context import Context

Step = tuple[Executing | Confirming | Dispatching | Thinking, tuple["Effect", ...]]
"""
Where a batch can lead, with the effects.

Every handler of a batch can lead to each of these: which name fits depends on what is open then, not on what
was open before.
"""


def step(batch: Batch, ctx: Context) -> Step | None:  # noqa: PLR0911  # one return for each kind of event
    """
    What *ctx*'s event does to *batch*; None where it does not apply.

    Call it from the handler of each of the three states, with nothing decided before: whether an answer is
    for an open call is found out here.
    """
    draft = Draft(ctx)
    match ctx.event:
        case Entered() if not batch.open:
            # The answer's usage is in the memory by now, so a budget is seen before its first tool runs.
            return _proceed(within_budget(batch, ctx, draft), ctx, draft)
        case ToolFinished() | AgentFinished() | ApprovalGiven() as event:
            changed = _answered(batch, event, ctx, draft)
            return changed and _proceed(changed, ctx, draft)
        case ToolProgressed(request=request, text=text):
            index = batch.find(request, Running)
            if index is None:
                return None
            draft.add(ToolProgress(call=batch.calls[index].call.id, text=text))
            return draft.to(_named(batch))
        case UserSent(id=sender):
            draft.add(InputReceived(id=sender))
            return draft.to(_named(batch))
        case Interrupted():
            return _proceed(_interrupted(batch, ctx, draft), ctx, draft)
        case _:
            return None


def _answered(
    batch: Batch, event: ToolFinished | AgentFinished | ApprovalGiven, ctx: Context, draft: Draft
) -> Batch | None:
    """*batch* with the one call changed that *event* answers; None where no such request is open."""
    if isinstance(event, ApprovalGiven):
        index = batch.find(event.request, Asked)
        return None if index is None else _decided(batch, index, event, ctx, draft)
    if isinstance(event, ToolFinished):
        index = batch.find(event.request, Running)
        spent = Spent(seconds=max(0.0, event.seconds))
    else:
        index = batch.find(event.request, Delegated)
        # A child's turns are its own; everything else it used, its parent used.
        spent = attrs.evolve(event.spent, turns=0)
    if index is None:
        return None
    call = settled(batch.calls[index], event.outcome, event.content, draft, seconds=spent.seconds)
    if spent != Spent():
        draft.add(AddUsage(spent=spent))
    return within_budget(batch.with_call(index, call), ctx, draft)


def _decided(batch: Batch, index: int, event: ApprovalGiven, ctx: Context, draft: Draft) -> Batch:
    """*batch* after a person's answer. A yes only allows: when the call runs, its turn decides."""
    call = batch.calls[index]
    draft.add(ApprovalAnswered(request=event.request, decision=event.decision))
    match event.decision:
        case Approve(arguments=""):
            return batch.with_call(index, Call(call=call.call, phase=Allowed()))
        case Approve(arguments=edited):
            return batch.with_call(index, _edited(call, edited, spec_of(batch, call, ctx), draft))
        case ApproveAlways():
            draft.add(GrantRule(grant=Grant(tool=call.call.name)))
            return _answered_too(batch.with_call(index, Call(call=call.call, phase=Allowed())), call, draft)
        case Deny(message=message):
            denied = settled(call, Outcome.DENIED, message or texts.DENIED, draft)
            return _denied(batch.with_call(index, denied), ctx, draft)
        case _:
            assert_never(event.decision)


def _answered_too(batch: Batch, always: Call, draft: Draft) -> Batch:
    """
    *batch*, where nobody is asked about the tool of the call *always* any more.

    Whoever said "always" would otherwise have to say it again for each question that was open already.
    """
    calls: list[Call] = []
    for call in batch.calls:
        if isinstance(call.phase, Asked) and call.call.name == always.call.name:
            draft.add(Cancel(request=call.phase.request), ApprovalWithdrawn(request=call.phase.request))
            calls.append(Call(call=call.call, phase=Allowed()))
        else:
            calls.append(call)
    return batch.with_calls(calls, batch.stopping)


def _edited(call: Call, arguments: str, spec: ToolSpec | None, draft: Draft) -> Call:
    """
    *call* with a person's arguments, checked as the model's were; no second question is asked.

    The history keeps what the model wrote: it is what the model said. Arguments that do not fit are an
    error result, since the person has had their say and the model can try again.
    """
    edited = Call(call=attrs.evolve(call.call, arguments=arguments), phase=Allowed())
    fault = texts.not_found(call.call.name, ()) if spec is None else fault_in(edited, spec)
    return settled(edited, Outcome.ERROR, fault, draft) if fault else edited


def _denied(batch: Batch, ctx: Context, draft: Draft) -> Batch:
    """*batch* after a no, by policy; other open questions stay open unless the run is to end."""
    match ctx.config.policy.on_denial:
        case OnDenial.GO_ON:
            return batch
        case OnDenial.SKIP_REST:
            return give_up(batch, Stopping.DENIED, draft)
        case OnDenial.INTERRUPT:
            draft.add(InterruptRequested())
            return give_up(batch, Stopping.INTERRUPTED, draft)


def _interrupted(batch: Batch, ctx: Context, draft: Draft) -> Batch:
    """*batch* after an interrupt: the first waits for what was cancelled, the second for nothing."""
    if batch.stopping is Stopping.INTERRUPTED:
        return abandon(batch, ctx.config, draft)
    draft.add(InterruptRequested())
    return give_up(batch, Stopping.INTERRUPTED, draft)


def _named(batch: Batch) -> Executing | Confirming | Dispatching:
    """*batch* under the name that answers "is it waiting for me?": a person comes first, then a child."""
    phases = [call.phase for call in batch.calls]
    if any(isinstance(phase, Asked) for phase in phases):
        return Confirming(batch=batch)
    if any(isinstance(phase, Delegated) for phase in phases):
        return Dispatching(batch=batch)
    return Executing(batch=batch)


def _proceed(batch: Batch, ctx: Context, draft: Draft) -> Step:
    """
    Start what may start; leave when every call has its result.

    A batch ends in one message with all results, in call order, whatever order they came in: providers
    reject a history in which a call has no result right behind it. Back in `Go` the limits are read again.
    """
    batch = start(batch, ctx, draft)
    results = [call.phase.result for call in batch.calls if isinstance(call.phase, Settled)]
    if len(results) < len(batch.calls):
        return draft.to(_named(batch))
    draft.add(AppendMessage(message=Message(role=Role.TOOL, parts=tuple(results), at=ctx.now)))
    if batch.stopping is Stopping.INTERRUPTED:
        return draft.to(Thinking(stage=End(reason=DoneReason.INTERRUPTED)))
    return draft.to(Thinking(stage=Go()))
