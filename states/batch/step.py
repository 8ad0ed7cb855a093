"""The batch: the one place that knows how tool calls go from the model's wish to their results."""

# An event changes one call, or gives up several. Then `start` starts what may run, and the state is named:
# confirming while a question is open, else dispatching while a child works, else executing. When every call
# has its result, one message with all of them, in call order, enters the history and the batch ends. So a
# call can never be left without a result.
#
# An answer names a request and never a call. The request is looked for among those that are open *now*, so
# an answer that is late, doubled or meant for a process that is gone finds nothing and changes nothing.
# Of two answers to one request the first closes it, and the second finds nothing open.

from __future__ import annotations

from typing import assert_never

import attrs

from ...effects import Effect, events
from ...effects.config import READER, Config, OnDenial, Steering
from ...effects.hooks import Hook
from ...effects.messages import Message, Outcome, Role, ToolResult
from ...effects.notices import ApprovalResolved, DoneReason, InputReceived, InterruptRequested, ToolOutput
from ...effects.permissions import Basis, Rule, Verdict
from ...effects.records import AddUsage, AppendMessage, GrantRule
from ...effects.usage import Spent
from ..builder import Draft, ask_hooks, hooks_at, received, record_answers, result_of
from ..context import Context
from ..rules import model_messages
from ..rules.hooks import opinion, told_of_result
from ..rules.inputs import skips_rest
from ..rules.permission import NO_ANSWER, said_no
from ..rules.rule_fit import allowing
from ..rules.schema import arguments_of
from ..state import Checking, Confirming, Dispatching, End, Executing, Go, Thinking
from . import batch as phases
from .batch import Batch, Call, HookRound, PriorAttempt, Stopping, Timer
from .permission import approved, asked_again, cleared, inspected, law, spec_of, tell_judged, vetted
from .settle import (
    abandon,
    account_of,
    give_up,
    settled,
    take_output,
    told_to_stop,
    unstarted,
    withdraw,
)
from .start import start, within_budget

# The states that a batch can lead to, with the effects. What is open after the event decides which.
BatchStep = tuple[Executing | Confirming | Dispatching | Thinking, tuple[Effect, ...]]

# What a tool or a child at work reports.
Progress = events.ToolProgressed | events.AgentProgressed

# The answers that end a tool or a child.
Ended = events.ToolFinished | events.AgentFinished

# The events that are for a request of a call.
Judging = events.ApprovalGiven | events.HookAnswered | events.CallInspected | events.TimerFired
Answered = Ended | Progress | events.ToolLost | Judging


def step(state: Executing | Confirming | Dispatching, ctx: Context) -> BatchStep:
    """What *ctx*'s event does to the batch of *state*."""
    # All three states use this handler. No earlier code has checked that the answer is for an open call; this
    # does.
    batch, draft = state.batch, Draft(ctx)
    changed = _changed(batch, ctx, draft)
    if changed is None:
        return state, received(state, ctx)
    # Progress starts nothing, so the pass over all calls is spared: a tool may report each line it prints.
    if isinstance(ctx.event, Progress):
        return draft.to(_named(changed, changed.phases))
    return _proceed(changed, ctx, draft)


def _changed(batch: Batch, ctx: Context, draft: Draft) -> Batch | None:
    """*batch* after *ctx*'s event; None where that leaves it as it is."""
    match ctx.event:
        case events.Entered() if not batch.open:
            # The usage of the answer that made these calls is in the memory only from here on. So a spent
            # budget stops them before the first one runs.
            batch = within_budget(batch, ctx, draft)
            # Where a person spoke while the model still answered, its calls are out of date.
            return give_up(batch, Stopping.STEERED, draft) if skips_rest(ctx.memory.session.mail) else batch
        case event if isinstance(event, Answered):
            index = batch.waiting_for(event.request)
            return None if index is None else _answered(batch, index, event, ctx, draft)
        # A steer with `WHEN_DONE` changes nothing here: it waits in the mail until all calls have ended.
        case events.UserSteered(id=sender, how=how) if how is not Steering.WHEN_DONE:
            draft.add(InputReceived(id=sender, at=draft.at))
            return give_up(batch, Stopping.HURRIED if how is Steering.NOW else Stopping.STEERED, draft)
        case events.CallCancelled(call=call):
            return _call_cancelled(batch, call, draft)
        case events.Interrupted():
            return _interrupted(batch, ctx, draft)
        case _:
            return None


def _call_cancelled(batch: Batch, name: str, draft: Draft) -> Batch | None:
    """*batch* without the call *name*: it does not start, or is told to stop and gives its own answer."""
    for index, call in enumerate(batch.calls):
        if call.call.id != name:
            continue
        if isinstance(call.phase, phases.Unstarted):
            # The others go on: only this call was given up, so the level of the batch stays.
            return batch.with_call(index, unstarted(call, Stopping.INTERRUPTED, draft))
        stopped = told_to_stop(call, draft)
        return None if stopped is None else batch.with_call(index, stopped)
    return None


def _interrupted(batch: Batch, ctx: Context, draft: Draft) -> Batch:
    """*batch* after an interrupt: the first waits for what was cancelled, the second for nothing."""
    if batch.stopping is Stopping.INTERRUPTED:
        # The second interrupt. What still runs may never answer, and a person has said twice that they will
        # not wait.
        return abandon(batch, ctx.config, draft)
    return _stop_run(batch, draft)


def _named(batch: Batch, now: frozenset[type[phases.Phase]]) -> Executing | Confirming | Dispatching:
    """*batch*, whose calls are in the phases *now*, under the name that answers "is it waiting for me?"."""
    # A person comes first, then a child.
    # A question is the one thing that only a person can close, so it is named before all else.
    if phases.Asked in now:
        return Confirming(batch=batch)
    if phases.RunningChild in now:
        return Dispatching(batch=batch)
    return Executing(batch=batch)


def append_results(batch: Batch, draft: Draft, ctx: Context) -> None:
    """Append the message with the results of *batch*, each of whose calls is settled."""
    results = [call.phase.result for call in batch.calls if isinstance(call.phase, phases.Settled)]
    parts = tuple([_within(result, ctx.config) for result in results])
    draft.add(AppendMessage(message=Message(role=Role.TOOL, parts=parts, at=draft.at)))


def _proceed(batch: Batch, ctx: Context, draft: Draft) -> BatchStep:
    """Start what may start; leave when every call has its result."""
    # A batch ends in one message with all results, in call order, whatever order they came in: providers
    # reject a history in which a call has no result right behind it. Back in `Go` the limits are read
    # again.
    if not batch.settled:
        batch = start(batch, ctx, draft)
    now, is_output = batch.phases, False
    if phases.Held in now and now <= {phases.Held, phases.Settled}:
        batch, is_output = take_output(batch, draft)
    elif now != frozenset({phases.Settled}):
        return draft.to(_named(batch, now))
    append_results(batch, draft, ctx)
    if batch.stopping is Stopping.INTERRUPTED:
        # Straight to the end: in `Go` the model would be asked what to do about calls that a person has
        # stopped.
        return draft.to(Thinking(stage=End(reason=DoneReason.INTERRUPTED)))
    return draft.to(Thinking(stage=Checking(reason=DoneReason.END_TURN) if is_output else Go()))


def _within(result: ToolResult, config: Config) -> ToolResult:
    """*result* as the conversation holds it: of one that is too long the beginning and the end."""
    limit = config.compaction.result_limit
    if limit is None or len(result.content) <= limit:
        return result
    # Cut here and not in the tool, so that the full text is in the event, and the journal has it for
    # `read_result`.
    reader = READER if config.tool(READER) is not None else ""
    return attrs.evolve(result, content=model_messages.shortened(result.content, limit, result.call, reader))


# Answers: what a tool, a child, a hook or a person makes of one call


def _answered(batch: Batch, index: int, event: Answered, ctx: Context, draft: Draft) -> Batch | None:  # noqa: PLR0911  # one return for each kind of answer
    """*batch* after *event*, for the call at *index*; None where that call has asked something else."""
    call = batch.calls[index]
    match event, call.phase:
        case events.ToolFinished(), phases.Running():
            return _ran(batch, index, event, ctx, draft)
        case events.AgentFinished(), phases.RunningChild():
            return _ran(batch, index, event, ctx, draft)
        # A tool that was lost while a person had already asked it to stop is asked about no more; see
        # `asked_again`.
        case events.ToolLost(), phases.Running() as phase:
            return batch.with_call(index, _lost(call, phase, batch, ctx, draft))
        case events.ToolProgressed(text=text), phases.Running():
            draft.add(ToolOutput(call=call.call.id, text=text, at=draft.at))
            return batch
        case events.AgentProgressed(spent=spent), phases.RunningChild() as phase:
            return batch.with_call(index, call.at(attrs.evolve(phase, spent=spent)))
        case events.ApprovalGiven(), phases.Asked() as phase if event.request == phase.request:
            return _decided(batch, index, phase, event, ctx, draft)
        # A question has two requests: the approval and its timer. This is the timer.
        case events.TimerFired(), phases.Asked() as phase if event.request != phase.request:
            return _late(batch, index, event.request, ctx, draft)
        case events.HookAnswered() | events.CallInspected() as told, phase if isinstance(
            phase, phases.Looking
        ):
            return _told(batch, index, told, ctx, draft)
        case events.HookAnswered(), phases.Reviewed() as phase:
            record_answers(phase.hook, event, ctx, draft, call.call.id)
            return batch.with_call(index, call.at(phases.Settled(result=phase.result)))
        case _:
            return None


def _ran(batch: Batch, index: int, event: Ended, ctx: Context, draft: Draft) -> Batch:
    """*batch*, in which a call is over, and its use is known."""
    call = batch.calls[index]
    if isinstance(event, events.ToolFinished):
        # Never below 0: a clock may be set back while the tool runs.
        spent, files = Spent(seconds=max(0.0, event.seconds)), event.files
    else:
        # A child that failed may report less than before. The larger report counts, by tokens: they only
        # grow, and not every model has a price.
        told = call.phase.spent if isinstance(call.phase, phases.RunningChild) else Spent()
        most = event.spent if event.spent.usage.total >= told.usage.total else told
        # The child's turns do not count for its parent. Its tokens, USD and time do.
        spent, files = account_of(most), ()
    result = result_of(call, event.outcome, event.content, draft, spent.seconds, files)
    if spent != Spent():
        draft.add(AddUsage(spent=spent))
    ended = _over(call, result, batch, ctx, draft)
    # Looked at after each call and not only between turns: ten calls of one answer could use ten budgets.
    return within_budget(batch.with_call(index, ended), ctx, draft)


def _lost(call: Call, phase: phases.Running, batch: Batch, ctx: Context, draft: Draft) -> Call:
    """*call*, which may have run: a person is asked whether it runs again, or its model is told so."""
    # How long it worked is unknown, too, so no budget is checked here.
    if (asked := asked_again(call, phase, batch, ctx, draft)) is not None:
        return asked
    result = result_of(call, Outcome.UNKNOWN, model_messages.LOST, draft)
    return _over(call, result, batch, ctx, draft)


def _over(call: Call, result: ToolResult, batch: Batch, ctx: Context, draft: Draft) -> Call:
    """*call*, which ended with *result*; hooks look at that first, unless the run is being interrupted."""
    hook = Hook.POST_TOOL_USE_FAILURE if result.is_error else Hook.POST_TOOL_USE
    names = hooks_at(hook, ctx, call.call)
    # Hooks after a call are not asked in a run that is being interrupted: a person waits for its end.
    if batch.stopping is Stopping.INTERRUPTED or not names:
        return call.at(phases.Settled(result=result))
    told = told_of_result(result, arguments_of(call.call.arguments) or {})
    request = ask_hooks(hook, names, told, draft, call.call.id)
    return call.at(phases.Reviewed(request=request, hook=hook, result=result))


def _told(
    batch: Batch,
    index: int,
    event: events.HookAnswered | events.CallInspected,
    ctx: Context,
    draft: Draft,
) -> Batch | None:
    """*batch*, in which more is known of a call that has not started; None where it asked something else."""
    call = batch.calls[index]
    match event, call.phase:
        case events.HookAnswered(), phases.AwaitingHooks() | phases.AllowedAwaitingHooks() as phase:
            said = record_answers(Hook.PRE_TOOL_USE, event, ctx, draft, call.call.id)
            hooks = HookRound(asked=phase.hooks.asked, said=(*phase.hooks.said, *said.said))
            batch = batch.with_call(index, vetted(call, hooks, said.arguments, batch, ctx, draft))
            # Each hook may end the whole run, whatever the others said.
            return _stop_run(batch, draft) if said.interrupt else batch
        case events.CallInspected(), phases.Inspecting() | phases.AllowedInspecting() as phase:
            return batch.with_call(index, inspected(call, phase, batch, ctx, draft))
        case _:
            return None


def _decided(
    batch: Batch, index: int, phase: phases.Asked, event: events.ApprovalGiven, ctx: Context, draft: Draft
) -> Batch:
    """*batch* after a person's answer."""
    # A yes only allows the call. `start` decides when it runs, and a denial may still stop it.
    call, decision = batch.calls[index], event.decision
    # The process may have been down when the time ran out, so the timer has not fired. A yes from an
    # approval page that was open over night must not run anything. A no is never too late: it ends as the
    # deadline would, and its message tells the model more.
    timed = isinstance(phase.deadline, Timer) and event.at >= phase.deadline.due
    if timed and not isinstance(decision, events.Deny):
        return _late(batch, index, event.request, ctx, draft)
    withdraw(call, draft, closed=event.request)
    draft.add(ApprovalResolved(request=event.request, decision=decision, by=event.by, at=draft.at))
    match decision:
        case events.Approve(arguments=edited):
            return batch.with_call(index, approved(call, phase, edited, batch, ctx, draft))
        # This question was only about running a lost call again. So "always" counts as one yes and grants
        # nothing.
        case events.ApproveAlways() if call.tried is PriorAttempt.LOST:
            return batch.with_call(index, approved(call, phase, "", batch, ctx, draft))
        case events.ApproveAlways(where=where):
            # The grant is as wide as the person said. Without globs it is for every call of the tool.
            rule = Rule(verdict=Verdict.ALLOW, tool=call.call.name, where=where)
            draft.add(GrantRule(rule=rule, outvotes=phase.asked_by))
            yes = approved(call, phase, "", batch, ctx, draft)
            return _answered_too(batch.with_call(index, yes), rule, ctx, draft)
        # The message of the person goes to the model as it is. It is the best hint there is what to do
        # instead.
        case events.Deny(message=message):
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
        if spec is None or not isinstance(phase, phases.Asked) or call.tried is PriorAttempt.LOST:
            continue
        if not allowing((rule,), spec, arguments, phase.finding):
            continue
        # A hook that asks for a person is not answered by a rule that a person made without seeing this call.
        found = law(ctx.config, ctx.memory, draft.effects).judge(
            spec, arguments, opinion(phase.hooks.said), phase.finding
        )
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
    # The person refused only to run it again. It may have run before, so `on_denial` does not apply.
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
    """*batch*, given up because the run is to end."""
    # Once: a hook and a person may both end the run, and watchers hear of one interrupt.
    if batch.stopping is not Stopping.INTERRUPTED:
        draft.add(InterruptRequested(at=draft.at))
    return give_up(batch, Stopping.INTERRUPTED, draft)
