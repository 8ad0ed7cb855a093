"""
The batch: the one place that knows how tool calls go from the model's wish to their results.

Every event changes one call; then the batch is settled (what is being given up gets its result), started
(what may go on does) and named (a question open: confirming; else a child at work: dispatching; else
executing). When every call has its result, one message with all of them, in call order, enters the history
and the batch ends. So a call can never be left without a result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from ..effects.config import Concurrency, Grant, OnDenial, SideEffect, ToolKind, ToolSpec
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
from ..effects.messages import Message, Outcome, Role, ToolResult
from ..effects.notices import (
    AgentStarted,
    ApprovalAnswered,
    ApprovalRequested,
    ApprovalWithdrawn,
    DoneReason,
    InputReceived,
    InterruptRequested,
    ToolEnded,
    ToolProgress,
    ToolStarted,
)
from ..effects.records import AddUsage, AppendMessage, GrantRule
from ..effects.requests import AskApproval, Cancel, RunAgent, RunTool
from ..effects.usage import Spent
from .draft import Draft
from .rules import texts
from .rules.children import child_prompt, child_tools, remainder
from .rules.gate import must_ask
from .rules.limits import over_budget
from .rules.schema import arguments_of, problem
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
    Queued,
    Running,
    Settled,
    Stopping,
    Thinking,
)

if TYPE_CHECKING:
    from ..effects import Effect
    from .context import Context

Step = tuple[Executing | Confirming | Dispatching | Thinking, tuple["Effect", ...]]
"""Where a batch can lead, with the effects."""


def step(batch: Batch, ctx: Context) -> Step | None:
    """What *ctx*'s event does to *batch*; None where it does not apply."""
    draft = Draft(ctx)
    match ctx.event:
        case Entered() if not batch.open:
            return _proceed(_within_budget(batch, ctx, draft), ctx, draft)
        case ToolFinished() | AgentFinished() | ApprovalGiven() as event:
            changed = _answered(batch, event, ctx, draft)
            return changed and _proceed(changed, ctx, draft)
        case ToolProgressed(request=request, text=text):
            index = _index(batch, request, Running)
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


def _index(batch: Batch, request: str, phase: type[Running | Delegated | Asked]) -> int | None:
    for index, call in enumerate(batch.calls):
        if isinstance(call.phase, phase) and call.phase.request == request:
            return index
    return None


def _put(batch: Batch, index: int, call: Call) -> Batch:
    return _with(batch, [*batch.calls[:index], call, *batch.calls[index + 1 :]], batch.stopping)


def _with(batch: Batch, calls: list[Call], stopping: Stopping) -> Batch:
    return Batch(calls=tuple(calls), offered=batch.offered, stopping=stopping)


def _spec(batch: Batch, call: Call, ctx: Context) -> ToolSpec | None:
    """The tool of *call* as it is configured now, if it was offered then."""
    name = call.call.name
    return ctx.config.tool(name) if name in batch.offered else None


def _account(ctx: Context, draft: Draft) -> Spent:
    """What the run has spent, with what this very step has recorded."""
    spent = ctx.memory.spent
    for effect in draft.effects:
        if isinstance(effect, AddUsage):
            spent += effect.spent
    return spent


def _grants(ctx: Context, draft: Draft) -> tuple[Grant, ...]:
    """The rules that answer questions beforehand, with those of this very step."""
    granted = [effect.grant for effect in draft.effects if isinstance(effect, GrantRule)]
    return (*ctx.config.allow, *ctx.memory.granted, *granted)


# One call changes


def _answered(
    batch: Batch, event: ToolFinished | AgentFinished | ApprovalGiven, ctx: Context, draft: Draft
) -> Batch | None:
    match event:
        case ToolFinished():
            index = _index(batch, event.request, Running)
            spent = Spent(seconds=event.seconds)
        case AgentFinished():
            index = _index(batch, event.request, Delegated)
            # A child's turns are its own; everything else it used, its parent used.
            spent = attrs.evolve(event.spent, turns=0)
        case ApprovalGiven():
            index = _index(batch, event.request, Asked)
            return None if index is None else _decided(batch, index, event, ctx, draft)
    if index is None:
        return None
    call = settled(batch.calls[index], event.outcome, event.content, draft, seconds=spent.seconds)
    if spent != Spent():
        draft.add(AddUsage(spent=spent))
    return _within_budget(_put(batch, index, call), ctx, draft)


def settled(call: Call, outcome: Outcome, content: str, draft: Draft, *, seconds: float = 0.0) -> Call:
    """*call* with its result, which is told to whoever watches."""
    wish = call.call
    result = ToolResult(
        call=wish.id, wire_id=wish.wire_id, name=wish.name, content=content, outcome=outcome
    )
    draft.add(ToolEnded(call=wish.id, tool=wish.name, outcome=outcome, content=content, seconds=seconds))
    return Call(call=wish, phase=Settled(result=result))


def _decided(batch: Batch, index: int, event: ApprovalGiven, ctx: Context, draft: Draft) -> Batch:
    call = batch.calls[index]
    draft.add(ApprovalAnswered(request=event.request, decision=event.decision))
    match event.decision:
        case Approve(arguments=""):
            return _put(batch, index, Call(call=call.call, phase=Allowed()))
        case Approve(arguments=edited):
            return _put(batch, index, _edited(call, edited, _spec(batch, call, ctx), draft))
        case ApproveAlways():
            draft.add(GrantRule(grant=Grant(tool=call.call.name)))
            return _answered_too(_put(batch, index, Call(call=call.call, phase=Allowed())), call, draft)
        case Deny(message=message):
            denied = settled(call, Outcome.DENIED, message or texts.DENIED, draft)
            return _denied(_put(batch, index, denied), ctx, draft)


def _answered_too(batch: Batch, always: Call, draft: Draft) -> Batch:
    """*batch*, where the tool of the call *always* is asked about no more: its other questions are answered."""
    calls: list[Call] = []
    for call in batch.calls:
        if isinstance(call.phase, Asked) and call.call.name == always.call.name:
            draft.add(Cancel(request=call.phase.request), ApprovalWithdrawn(request=call.phase.request))
            calls.append(Call(call=call.call, phase=Allowed()))
        else:
            calls.append(call)
    return _with(batch, calls, batch.stopping)


def _edited(call: Call, arguments: str, spec: ToolSpec | None, draft: Draft) -> Call:
    """*call* with a person's arguments, checked as the model's were; no second question is asked."""
    edited = Call(call=attrs.evolve(call.call, arguments=arguments), phase=Allowed())
    fault = texts.not_found(call.call.name, ()) if spec is None else _fault(edited, spec)
    return settled(edited, Outcome.ERROR, fault, draft) if fault else edited


def _denied(batch: Batch, ctx: Context, draft: Draft) -> Batch:
    match ctx.config.policy.on_denial:
        case OnDenial.GO_ON:
            return batch
        case OnDenial.SKIP_REST:
            return _give_up(batch, Stopping.DENIED, draft)
        case OnDenial.INTERRUPT:
            draft.add(InterruptRequested())
            return _give_up(batch, Stopping.INTERRUPTED, draft)


def _interrupted(batch: Batch, ctx: Context, draft: Draft) -> Batch:
    if batch.stopping is not Stopping.INTERRUPTED:
        draft.add(InterruptRequested())
        return _give_up(batch, Stopping.INTERRUPTED, draft)
    # Asked twice: nothing is waited for, and what was at work may have done its work.
    calls = [
        _abandoned(call, ctx, draft) if isinstance(call.phase, Running | Delegated) else call
        for call in batch.calls
    ]
    return _with(batch, calls, batch.stopping)


def _abandoned(call: Call, ctx: Context, draft: Draft) -> Call:
    spec = ctx.config.tool(call.call.name)
    if spec is not None and spec.side_effect is SideEffect.READ_ONLY:
        return settled(call, Outcome.CANCELLED, texts.CANCELLED, draft)
    return settled(call, Outcome.UNKNOWN, texts.MAY_HAVE_RUN, draft)


# The batch is settled


def _within_budget(batch: Batch, ctx: Context, draft: Draft) -> Batch:
    """*batch*, given up where the budget is used up."""
    if over_budget(ctx.config.limits, _account(ctx, draft)) is None:
        return batch
    return _give_up(batch, Stopping.OVER_BUDGET, draft)


def _give_up(batch: Batch, level: Stopping, draft: Draft) -> Batch:
    """*batch* with `stopping` raised to *level*: what has not started gets its result now."""
    if level <= batch.stopping:
        return batch
    return _with(batch, [_given_up(call, level, draft) for call in batch.calls], level)


def _given_up(call: Call, level: Stopping, draft: Draft) -> Call:
    match call.phase:
        case Queued():
            return _unstarted(call, level, draft)
        case Allowed() if level > Stopping.DENIED:
            return _unstarted(call, level, draft)
        case Asked(request=request) if level > Stopping.DENIED:
            draft.add(Cancel(request=request), ApprovalWithdrawn(request=request))
            return _unstarted(call, level, draft)
        case Running(request=request) | Delegated(request=request) if level is Stopping.INTERRUPTED:
            draft.add(Cancel(request=request))
            return call
        case _:
            return call


def _unstarted(call: Call, level: Stopping, draft: Draft) -> Call:
    match level:
        case Stopping.DENIED:
            return settled(call, Outcome.SKIPPED, texts.SKIPPED_AFTER_DENIAL, draft)
        case Stopping.OVER_BUDGET:
            return settled(call, Outcome.CANCELLED, texts.OVER_BUDGET, draft)
        case _:
            return settled(call, Outcome.CANCELLED, texts.CANCELLED, draft)


# The batch goes on


@final
@attrs.define
class _Turn:
    """What the calls before this one leave room for."""

    concurrency: Concurrency
    free: int
    unsettled: int = 0
    unsettled_writes: int = 0

    def may_be_judged(self) -> bool:
        """In a serial batch a call is judged when its turn comes; otherwise all may be asked ahead."""
        return self.concurrency is Concurrency.PARALLEL_READS or self.unsettled == 0

    def may_run(self, spec: ToolSpec | None) -> bool:
        """A read runs beside reads; anything else runs when nothing earlier is left."""
        if self.concurrency is Concurrency.PARALLEL_READS and _reads(spec):
            return self.unsettled_writes == 0 and self.free > 0
        return self.unsettled == 0

    def pass_over(self, call: Call, spec: ToolSpec | None) -> None:
        """Count *call* as an earlier one."""
        if isinstance(call.phase, Settled):
            return
        self.unsettled += 1
        self.unsettled_writes += not _reads(spec)


def _reads(spec: ToolSpec | None) -> bool:
    return spec is not None and spec.side_effect is SideEffect.READ_ONLY


def _start(batch: Batch, ctx: Context, draft: Draft) -> Batch:
    policy = ctx.config.policy
    at_work = sum([isinstance(call.phase, Running | Delegated) for call in batch.calls])
    turn = _Turn(policy.concurrency, policy.max_parallel - at_work)
    calls: list[Call] = []
    for queued in batch.calls:
        call = queued
        spec = _spec(batch, call, ctx)
        if isinstance(call.phase, Queued) and turn.may_be_judged():
            call = _judge(call, spec, batch.offered, ctx, draft)
        if isinstance(call.phase, Allowed) and turn.may_run(spec):
            call = _run(call, spec, batch.offered, ctx, draft)
            turn.free -= 1
        turn.pass_over(call, spec)
        calls.append(call)
    return _with(batch, calls, batch.stopping)


def _fault(call: Call, spec: ToolSpec) -> str:
    """Why *call* cannot run with its arguments, as its model will read it; empty where it can."""
    wish = call.call
    arguments = arguments_of(wish.arguments)
    if arguments is None:
        return texts.invalid_arguments(wish.name, "they are no valid JSON object")
    found = problem(spec.schema, arguments)
    return texts.invalid_arguments(wish.name, found) if found else ""


def _judge(
    call: Call, spec: ToolSpec | None, offered: tuple[str, ...], ctx: Context, draft: Draft
) -> Call:
    wish = call.call
    if spec is None:
        return settled(call, Outcome.ERROR, texts.not_found(wish.name, offered), draft)
    if fault := _fault(call, spec):
        return settled(call, Outcome.ERROR, fault, draft)
    if not must_ask(spec, ctx.memory.mode, _grants(ctx, draft), arguments_of(wish.arguments) or {}):
        return Call(call=wish, phase=Allowed())
    request = draft.new_id()
    draft.add(
        AskApproval(id=request, call=wish.id, tool=wish.name, arguments=wish.arguments),
        ApprovalRequested(request=request, call=wish.id, tool=wish.name, arguments=wish.arguments),
    )
    return Call(call=wish, phase=Asked(request=request))


def _run(
    call: Call, spec: ToolSpec | None, offered: tuple[str, ...], ctx: Context, draft: Draft
) -> Call:
    wish = call.call
    # Looked up again: the configuration may be another one than when the call was judged.
    if spec is None:
        return settled(call, Outcome.ERROR, texts.not_found(wish.name, offered), draft)
    if spec.kind is ToolKind.AGENT:
        return _delegate(call, ctx, draft)
    request = draft.new_id()
    draft.add(
        RunTool(id=request, call=wish.id, tool=wish.name, arguments=wish.arguments, timeout=spec.timeout),
        ToolStarted(call=wish.id, tool=wish.name, arguments=wish.arguments),
    )
    return Call(call=wish, phase=Running(request=request))


def _delegate(call: Call, ctx: Context, draft: Draft) -> Call:
    wish = call.call
    name, prompt = child_prompt(arguments_of(wish.arguments) or {})
    child = ctx.config.child(name)
    if child is None:
        there = ", ".join(child.name for child in ctx.config.children) or "none"
        return settled(call, Outcome.ERROR, f"No agent named {name!r}. There are: {there}.", draft)
    request = draft.new_id()
    draft.add(
        RunAgent(
            id=request,
            call=wish.id,
            agent=name,
            prompt=prompt,
            tools=child_tools(ctx.config, child),
            limits=remainder(child.limits, ctx.config.limits, _account(ctx, draft)),
        ),
        AgentStarted(call=wish.id, agent=name, prompt=prompt),
    )
    return Call(call=wish, phase=Delegated(request=request))


# The batch gets its name, or ends


def _named(batch: Batch) -> Executing | Confirming | Dispatching:
    phases = [call.phase for call in batch.calls]
    if any(isinstance(phase, Asked) for phase in phases):
        return Confirming(batch=batch)
    if any(isinstance(phase, Delegated) for phase in phases):
        return Dispatching(batch=batch)
    return Executing(batch=batch)


def _proceed(batch: Batch, ctx: Context, draft: Draft) -> Step:
    batch = _start(batch, ctx, draft)
    results = [call.phase.result for call in batch.calls if isinstance(call.phase, Settled)]
    if len(results) < len(batch.calls):
        return draft.to(_named(batch))
    draft.add(AppendMessage(message=Message(role=Role.TOOL, parts=tuple(results), at=ctx.now)))
    if batch.stopping is Stopping.INTERRUPTED:
        return draft.to(Thinking(stage=End(reason=DoneReason.INTERRUPTED)))
    return draft.to(Thinking(stage=Go()))
