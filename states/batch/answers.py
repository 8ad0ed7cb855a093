"""Answers: what a tool, a child, a hook or a person makes of one call of the batch."""

# An answer names a request and never a call. The request is looked for among those that are open *now*, so
# an answer that is late, doubled or meant for a process that is gone finds nothing and changes nothing.
# That is all there is to races here: whichever of two answers comes first closes the request for the other.

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
from ..rules.permission import NO_ANSWER, said_no
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
from .permission import approved, asked_again, cleared, hooks_answered, law, spec_of, tell_judged
from .settle import account_of, give_up, result_of, settled, tell, withdraw
from .start import within_budget

if TYPE_CHECKING:
    from ...effects.messages import ToolResult
    from ..builder import Draft
    from ..context import Context

# The events that answer a request of a call.
Answered = ToolFinished | ToolLost | AgentFinished | ApprovalGiven | HookAnswered | TimerFired


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
        # A tool that was lost while a person had already asked it to stop is asked about no more; see
        # `asked_again`.
        case ToolLost(), Running():
            return batch.with_call(index, _lost(batch.calls[index], phase, batch, ctx, draft))
        case AgentFinished(), RunningChild():
            return _ran(batch, index, event, ctx, draft)
        case ApprovalGiven(), Asked() if event.request == phase.request:
            # The process may have been down when the time ran out, so the timer has not fired. A yes from
            # an approval page that was open over night must not run anything.
            if _too_late(event, phase):
                return _late(batch, index, event.request, ctx, draft)
            return _decided(batch, index, phase, event, ctx, draft)
        # The one other request of a question is its deadline.
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
    """Whether a yes came after its time; a no is never too late."""
    late = isinstance(phase.deadline, Timer) and event.at >= phase.deadline.due
    # A late no ends as the deadline would, and its message tells the model more.
    return late and not isinstance(event.decision, Deny)


# A tool or a child is over


def _ran(batch: Batch, index: int, event: ToolFinished | AgentFinished, ctx: Context, draft: Draft) -> Batch:
    """*batch*, in which a call is over, and its use is known."""
    call = batch.calls[index]
    if isinstance(event, ToolFinished):
        # Never below 0: a clock may be set back while the tool runs.
        spent, files = Spent(seconds=max(0.0, event.seconds)), event.files
    else:
        # A child's turns are its own. Its tokens, money and time are its parent's, who gave them.
        spent, files = account_of(_all_of(call.phase, event)), ()
    result = result_of(call, event.outcome, event.content, files)
    tell(result, spent.seconds, draft)
    if spent != Spent():
        draft.add(AddUsage(spent=spent))
    ended = _over(call, result, batch, ctx, draft)
    # Looked at after each call and not only between turns: ten calls of one answer could use ten budgets.
    return within_budget(batch.with_call(index, ended), ctx, draft)


def _lost(call: Call, phase: Running, batch: Batch, ctx: Context, draft: Draft) -> Call:
    """*call*, which may have run: a person is asked whether it runs again, or its model is told so."""
    # What it took is not known either, so no budget is looked at before the next call is over.
    if (asked := asked_again(call, phase, batch, ctx, draft)) is not None:
        return asked
    result = result_of(call, Outcome.UNKNOWN, model_messages.LOST)
    tell(result, 0.0, draft)
    return _over(call, result, batch, ctx, draft)


def _all_of(phase: Phase, event: AgentFinished) -> Spent:
    """What a child used in all: one that broke may end with less than it had told before."""
    told = phase.spent if isinstance(phase, RunningChild) else Spent()
    # By tokens: they only grow, and the money is not known for each model.
    return event.spent if event.spent.usage.total >= told.usage.total else told


def _over(call: Call, result: ToolResult, batch: Batch, ctx: Context, draft: Draft) -> Call:
    """*call*, which ended with *result*; hooks look at that first, unless the run is being interrupted."""
    # Hooks after a call are not asked in a run that is being interrupted: a person waits for its end.
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
    """*batch* after a person's answer. A yes only allows: when the call runs, its turn decides."""
    # "Always" is about calls to come, and none of them was asked about where a call may have run before.
    # A yes only allows: when the call runs is for its turn to decide, and a denial may still come in between.
    call, decision = batch.calls[index], event.decision
    withdraw(call, draft, closed=event.request)
    draft.add(ApprovalResolved(request=event.request, decision=decision, by=event.by))
    match decision:
        case Approve(arguments=edited):
            return batch.with_call(index, approved(call, phase, edited, batch, ctx, draft))
        case ApproveAlways() if call.tried is PriorAttempt.LOST:
            return batch.with_call(index, approved(call, phase, "", batch, ctx, draft))
        case ApproveAlways(where=where):
            # Exactly as wide as the person said. Without globs it is the whole tool, which is what the word
            # says.
            rule = Rule(verdict=Verdict.ALLOW, tool=call.call.name, where=where)
            draft.add(GrantRule(rule=rule))
            yes = approved(call, phase, "", batch, ctx, draft)
            return _answered_too(batch.with_call(index, yes), rule, ctx, draft)
        # The message of the person goes to the model as it is. It is the best hint there is what to do
        # instead.
        case Deny(message=message):
            tell_judged(call, said_no(message), draft)
            denied = settled(call, Outcome.DENIED, message or model_messages.DENIED, draft)
            return _denied(batch.with_call(index, denied), denied.tried, ctx, draft, ends=decision.interrupt)
        case _:
            assert_never(decision)


def _answered_too(batch: Batch, rule: Rule, ctx: Context, draft: Draft) -> Batch:
    """*batch*, with the open questions answered that *rule* covers, which a person has just granted."""
    # A person who said "always" would otherwise have to say it again for each question that is open already.
    for index, call in enumerate(batch.calls):
        phase, arguments = call.phase, arguments_of(call.call.arguments) or {}
        spec = spec_of(batch, call, ctx)
        if spec is None or not isinstance(phase, Asked) or not rule.covers(call.call.name, arguments):
            continue
        if call.tried is PriorAttempt.LOST:
            continue
        # A hook that asks for a person is not answered by a rule that a person made without seeing this call.
        found = law(ctx, draft).judge(spec, arguments, opinion(phase.hooks.said))
        if found.verdict is Verdict.ALLOW:
            withdraw(call, draft)
            tell_judged(call, found, draft)
            batch = batch.with_call(index, cleared(call, Basis.PERSON, phase.hooks, ctx, draft))
    return batch


def _late(batch: Batch, index: int, closed: str, ctx: Context, draft: Draft) -> Batch:
    """*batch*, in which a question was not answered in time: that counts as a no."""
    call, within = batch.calls[index], ctx.config.policy.answer_within
    withdraw(call, draft, closed=closed, late=True)
    tell_judged(call, NO_ANSWER, draft)
    denied = settled(call, Outcome.DENIED, model_messages.not_answered(within or 0.0), draft)
    return _denied(batch.with_call(index, denied), call.tried, ctx, draft, ends=False)


def _denied(batch: Batch, tried: PriorAttempt, ctx: Context, draft: Draft, *, ends: bool) -> Batch:
    """*batch* after a no, by policy; other open questions stay open unless the run is to end."""
    # A no to running again what was *tried* is none to what the model wanted: that may have run.
    if ends:
        return _stop_run(batch, draft)
    if tried is PriorAttempt.LOST:
        return batch
    match ctx.config.policy.on_denial:
        case OnDenial.GO_ON:
            return batch
        # The other calls of the answer were made in the belief that this one runs.
        case OnDenial.SKIP_REST:
            return give_up(batch, Stopping.DENIED, draft)
        case OnDenial.INTERRUPT:
            return _stop_run(batch, draft)


def _stop_run(batch: Batch, draft: Draft) -> Batch:
    """*batch*, given up because a no ends the run."""
    # Once: a hook and a person may both end the run, and watchers hear of one interrupt.
    if batch.stopping is not Stopping.INTERRUPTED:
        draft.add(InterruptRequested())
    return give_up(batch, Stopping.INTERRUPTED, draft)
