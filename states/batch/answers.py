"""What the answer to a call's request makes of that call: a person's, a hook's, a tool's, a child's."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from ...effects.config import OnDenial
from ...effects.events import (
    AgentFinished,
    ApprovalGiven,
    Approve,
    ApproveAlways,
    Deny,
    HookAnswered,
    TimerFired,
    ToolFinished,
    ToolLost,
)
from ...effects.hooks import Hook
from ...effects.messages import Outcome
from ...effects.notices import ApprovalResolved, InterruptRequested
from ...effects.permissions import Basis, Rule, Verdict
from ...effects.records import AddUsage, GrantRule
from ...effects.usage import Spent
from ..builder import ask_hooks, record_answers
from ..rules import model_messages
from ..rules.hooks import asked_at, opinion, told_of_result
from ..rules.permission import Judgement
from ..rules.schema import arguments_of
from .batch import (
    AllowedAwaitingHooks,
    Asked,
    AwaitingHooks,
    Batch,
    Call,
    Phase,
    PriorAttempt,
    Reviewed,
    Running,
    RunningChild,
    Settled,
    Stopping,
    Timer,
)
from .permission import (
    approved,
    asked_again,
    cleared,
    hooks_answered,
    law,
    spec_of,
    tell_judged,
)
from .settle import (
    account_of,
    give_up,
    result_of,
    settled,
    tell,
    withdraw,
)
from .start import within_budget

if TYPE_CHECKING:
    from ...effects.messages import ToolResult
    from ..builder import Draft
    from ..context import Context

Answered = ToolFinished | ToolLost | AgentFinished | ApprovalGiven | HookAnswered | TimerFired
"""The events that answer a request of a call."""


def answered(  # noqa: PLR0911  # one return for each kind of answer
    batch: Batch, event: Answered, ctx: Context, draft: Draft
) -> Batch | None:
    """*batch* with the one call changed that *event* answers; None where no such request is open."""
    index = batch.waiting_for(event.request)
    if index is None:
        return None
    phase = batch.calls[index].phase
    match event, phase:
        case ToolFinished(), Running():
            return _ran(batch, index, event, ctx, draft)
        case ToolLost(), Running():
            return batch.with_call(index, _lost(batch.calls[index], phase, batch, ctx, draft))
        case AgentFinished(), RunningChild():
            return _ran(batch, index, event, ctx, draft)
        case ApprovalGiven(), Asked() if event.request == phase.request:
            if _too_late(event, phase):
                return _late(batch, index, event.request, ctx, draft)
            return _decided(batch, index, phase, event, ctx, draft)
        case TimerFired(), Asked() if event.request != phase.request:
            return _late(batch, index, event.request, ctx, draft)
        case HookAnswered(), AwaitingHooks() | AllowedAwaitingHooks():
            return _vetted(batch, index, phase, event, ctx, draft)
        case HookAnswered(), Reviewed():
            record_answers(phase.hook, event, draft, batch.calls[index].call.id)
            return batch.with_call(index, batch.calls[index].at(Settled(result=phase.result)))
        case _:
            return None


def _too_late(event: ApprovalGiven, phase: Asked) -> bool:
    """Whether a yes came after its time, when nobody drove the run; a no is never too late."""
    late = isinstance(phase.deadline, Timer) and event.at >= phase.deadline.due
    return late and not isinstance(event.decision, Deny)


# A tool or a child is over


def _ran(batch: Batch, index: int, event: ToolFinished | AgentFinished, ctx: Context, draft: Draft) -> Batch:
    """*batch*, in which a call is over, and what that used is known."""
    call = batch.calls[index]
    if isinstance(event, ToolFinished):
        spent, files = Spent(seconds=max(0.0, event.seconds)), event.files
    else:
        spent, files = account_of(_all_of(call.phase, event)), ()
    result = result_of(call, event.outcome, event.content, files)
    tell(result, spent.seconds, draft)
    if spent != Spent():
        draft.add(AddUsage(spent=spent))
    ended = _over(call, result, batch, ctx, draft)
    return within_budget(batch.with_call(index, ended), ctx, draft)


def _lost(call: Call, phase: Running, batch: Batch, ctx: Context, draft: Draft) -> Call:
    """
    *call*, of which nobody knows whether it has run: a person is asked, or its model is told so.

    What it took is not known either, so no budget is looked at before the next call is over.
    """
    if (asked := asked_again(call, phase, batch, ctx, draft)) is not None:
        return asked
    result = result_of(call, Outcome.UNKNOWN, model_messages.LOST)
    tell(result, 0.0, draft)
    return _over(call, result, batch, ctx, draft)


def _all_of(phase: Phase, event: AgentFinished) -> Spent:
    """What a child used in all: one that broke may end with less than it had told before."""
    told = phase.spent if isinstance(phase, RunningChild) else Spent()
    return event.spent if event.spent.usage.total >= told.usage.total else told


def _over(call: Call, result: ToolResult, batch: Batch, ctx: Context, draft: Draft) -> Call:
    """*call*, which ended with *result*; hooks look at that first, unless the run is being interrupted."""
    over = call.at(Settled(result=result))
    if batch.stopping is Stopping.INTERRUPTED or not ctx.config.hooks:
        return over
    hook = Hook.POST_TOOL_USE_FAILURE if result.is_error else Hook.POST_TOOL_USE
    arguments = arguments_of(call.call.arguments) or {}
    names = asked_at(ctx.config, hook, call.call.name, arguments)
    if not names:
        return over
    request = ask_hooks(hook, names, told_of_result(result, arguments), draft, call.call.id)
    return call.at(Reviewed(request=request, hook=hook, result=result))


# Hooks and people


def _vetted(
    batch: Batch,
    index: int,
    phase: AwaitingHooks | AllowedAwaitingHooks,
    event: HookAnswered,
    ctx: Context,
    draft: Draft,
) -> Batch:
    """*batch* after the hooks looked at a call that has not started; one may end the whole run."""
    call, said = hooks_answered(batch.calls[index], phase, event, batch, ctx, draft)
    batch = batch.with_call(index, call)
    return _stop_run(batch, draft) if said.interrupt else batch


def _decided(
    batch: Batch, index: int, phase: Asked, event: ApprovalGiven, ctx: Context, draft: Draft
) -> Batch:
    """
    *batch* after a person's answer. A yes only allows: when the call runs, its turn decides.

    "Always" is about calls to come, and none of them was asked about where a call may have run before.
    """
    call, decision = batch.calls[index], event.decision
    withdraw(call, draft, closed=event.request)
    draft.add(ApprovalResolved(request=event.request, decision=decision, by=event.by))
    match decision:
        case Approve(arguments=edited):
            return batch.with_call(index, approved(call, phase, edited, batch, ctx, draft))
        case ApproveAlways() if call.tried is PriorAttempt.LOST:
            return batch.with_call(index, approved(call, phase, "", batch, ctx, draft))
        case ApproveAlways(where=where):
            rule = Rule(verdict=Verdict.ALLOW, tool=call.call.name, where=where)
            draft.add(GrantRule(rule=rule))
            yes = approved(call, phase, "", batch, ctx, draft)
            return _answered_too(batch.with_call(index, yes), rule, ctx, draft)
        case Deny(message=message):
            _tell_denied(call, message, draft)
            denied = settled(call, Outcome.DENIED, message or model_messages.DENIED, draft)
            return _denied(batch.with_call(index, denied), denied.tried, ctx, draft, ends=decision.interrupt)
        case _:
            assert_never(decision)


def _tell_denied(call: Call, why: str, draft: Draft) -> None:
    tell_judged(call, Judgement(Verdict.DENY, Basis.PERSON, why), draft)


def _answered_too(batch: Batch, rule: Rule, ctx: Context, draft: Draft) -> Batch:
    """
    *batch*, where nobody is asked any more about what *rule* covers, which a person has just granted.

    Whoever said "always" would otherwise have to say it again for each question that was open already.
    """
    for index, call in enumerate(batch.calls):
        phase, arguments = call.phase, arguments_of(call.call.arguments) or {}
        spec = spec_of(batch, call, ctx)
        if spec is None or not isinstance(phase, Asked) or not rule.covers(call.call.name, arguments):
            continue
        if call.tried is PriorAttempt.LOST:
            continue
        # What a hook wants somebody to look at, somebody still looks at.
        found = law(ctx, draft).judge(spec, arguments, opinion(phase.hooks.said))
        if found.verdict is Verdict.ALLOW:
            withdraw(call, draft)
            tell_judged(call, found, draft)
            batch = batch.with_call(index, cleared(call, Basis.PERSON, phase.hooks, ctx, draft))
    return batch


def _late(batch: Batch, index: int, closed: str, ctx: Context, draft: Draft) -> Batch:
    """*batch*, in which nobody answered a question in time: that counts as a no."""
    call, within = batch.calls[index], ctx.config.policy.answer_within
    withdraw(call, draft, closed=closed, late=True)
    why = model_messages.not_answered(within or 0.0)
    _tell_denied(call, "nobody answered in time", draft)
    denied = settled(call, Outcome.DENIED, why, draft)
    return _denied(batch.with_call(index, denied), call.tried, ctx, draft, ends=False)


def _denied(batch: Batch, tried: PriorAttempt, ctx: Context, draft: Draft, *, ends: bool) -> Batch:
    """
    *batch* after a no, by policy; other open questions stay open unless the run is to end.

    A no to running again what was *tried* is none to what the model wanted: that may have run.
    """
    if ends:
        return _stop_run(batch, draft)
    if tried is PriorAttempt.LOST:
        return batch
    match ctx.config.policy.on_denial:
        case OnDenial.GO_ON:
            return batch
        case OnDenial.SKIP_REST:
            return give_up(batch, Stopping.DENIED, draft)
        case OnDenial.INTERRUPT:
            return _stop_run(batch, draft)


def _stop_run(batch: Batch, draft: Draft) -> Batch:
    """*batch*, given up because somebody's no ends the run."""
    if batch.stopping is not Stopping.INTERRUPTED:
        draft.add(InterruptRequested())
    return give_up(batch, Stopping.INTERRUPTED, draft)
