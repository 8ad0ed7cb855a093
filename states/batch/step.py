"""The batch: the one place that knows how tool calls go from the model's wish to their results."""

# Every event changes one call; then the batch is settled (what is being given up gets its result), started
# (what may go on does) and named (a question open: confirming; else a child at work: dispatching; else
# executing). When every call has its result, one message with all of them, in call order, enters the
# history and the batch ends. So a call can never be left without a result.

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from ...effects.config import READER, Steering
from ...effects.events import (
    AgentFinished,
    AgentProgressed,
    ApprovalGiven,
    CallCancelled,
    Entered,
    HookAnswered,
    Interrupted,
    TimerFired,
    ToolFinished,
    ToolLost,
    ToolProgressed,
    UserSteered,
)
from ...effects.messages import Message, Role, ToolResult
from ...effects.notices import DoneReason, InputReceived, InterruptRequested, ToolOutput
from ...effects.records import AppendMessage
from ..builder import Draft, received
from ..rules import model_messages
from ..rules.inputs import skips_rest
from ..state import Confirming, Dispatching, End, Executing, Go, Thinking
from .answers import answered
from .batch import (
    Allowed,
    AllowedAwaitingHooks,
    Asked,
    AwaitingHooks,
    Batch,
    Queued,
    Running,
    RunningChild,
    Settled,
    Stopping,
)
from .settle import abandon, give_up, told_to_stop, unstarted
from .start import start, within_budget

if TYPE_CHECKING:
    from ...effects import Effect
    from ...effects.config import Config
    from ...effects.usage import Spent
    from ..context import Context

# Where a batch can lead, with the effects.
# Every handler of a batch can lead to each of these: which name fits depends on what is open then, not on
# what was open before.
BatchStep = tuple[Executing | Confirming | Dispatching | Thinking, tuple["Effect", ...]]


def step(state: Executing | Confirming | Dispatching, ctx: Context) -> BatchStep:
    """What *ctx*'s event does to the batch of *state*."""
    # Call it from the handler of each of the three states, with nothing decided before: whether an answer
    # is for an open call is found out here.
    batch, draft = state.batch, Draft(ctx)
    changed = _changed(batch, ctx, draft)
    if changed is None:
        return state, received(state, ctx)
    # Progress starts nothing, so the pass over all calls is spared: a tool may report each line it prints.
    if isinstance(ctx.event, ToolProgressed | AgentProgressed):
        return draft.to(_named(changed))
    return _proceed(changed, ctx, draft)


def _changed(  # noqa: PLR0911  # one return for each kind of event
    batch: Batch, ctx: Context, draft: Draft
) -> Batch | None:
    """*batch* after *ctx*'s event; None where that leaves it as it is."""
    match ctx.event:
        case Entered() if not batch.open:
            # The answer's usage is in the memory by now, so a budget is seen before its first tool runs.
            return _steered(within_budget(batch, ctx, draft), ctx, draft)
        case (
            ToolFinished() | ToolLost() | AgentFinished() | ApprovalGiven() | HookAnswered() | TimerFired()
        ) as event:
            return answered(batch, event, ctx, draft)
        case ToolProgressed(request=request, text=text):
            return _progressed(batch, request, text, draft)
        case AgentProgressed(request=request, spent=spent):
            return _has_spent(batch, request, spent)
        # `WHEN_DONE` is no case of its own: it waits in the mail, and the calls of this answer run to the
        # last.
        case UserSteered(id=sender, how=how) if how is not Steering.WHEN_DONE:
            draft.add(InputReceived(id=sender))
            return give_up(batch, Stopping.HURRIED if how is Steering.NOW else Stopping.STEERED, draft)
        case CallCancelled(call=call):
            return _call_cancelled(batch, call, draft)
        case Interrupted():
            return _interrupted(batch, ctx, draft)
        case _:
            return None


def _steered(batch: Batch, ctx: Context, draft: Draft) -> Batch:
    """*batch*, given up where a person spoke while the model still answered: its calls are out of date."""
    return give_up(batch, Stopping.STEERED, draft) if skips_rest(ctx.memory.session.mail) else batch


def _progressed(batch: Batch, request: str, text: str, draft: Draft) -> Batch | None:
    index = batch.waiting_for(request)
    if index is None or not isinstance(batch.calls[index].phase, Running):
        return None
    draft.add(ToolOutput(call=batch.calls[index].call.id, text=text))
    return batch


def _has_spent(batch: Batch, request: str, spent: Spent) -> Batch | None:
    index = batch.waiting_for(request)
    phase = None if index is None else batch.calls[index].phase
    if index is None or not isinstance(phase, RunningChild):
        return None
    return batch.with_call(index, batch.calls[index].at(attrs.evolve(phase, spent=spent)))


def _call_cancelled(batch: Batch, name: str, draft: Draft) -> Batch | None:
    """*batch* without the call *name*: it does not start, or is told to stop and gives its own answer."""
    for index, call in enumerate(batch.calls):
        if call.call.id != name:
            continue
        match call.phase:
            case Queued() | AwaitingHooks() | Asked() | AllowedAwaitingHooks() | Allowed():
                # The others go on: only this call was given up, so the level of the batch stays.
                return batch.with_call(index, unstarted(call, Stopping.INTERRUPTED, draft))
            case _:
                stopped = told_to_stop(call, draft)
                return None if stopped is None else batch.with_call(index, stopped)
    return None


def _interrupted(batch: Batch, ctx: Context, draft: Draft) -> Batch:
    """*batch* after an interrupt: the first waits for what was cancelled, the second for nothing."""
    if batch.stopping is Stopping.INTERRUPTED:
        # The second interrupt. What still runs may never answer, and a person has said twice that they will
        # not wait.
        return abandon(batch, ctx.config, draft)
    draft.add(InterruptRequested())
    return give_up(batch, Stopping.INTERRUPTED, draft)


def _named(batch: Batch) -> Executing | Confirming | Dispatching:
    """*batch* under the name that answers "is it waiting for me?": a person comes first, then a child."""
    phases = [call.phase for call in batch.calls]
    # A question is the one thing that only a person can close, so it is named before all else.
    if any(isinstance(phase, Asked) for phase in phases):
        return Confirming(batch=batch)
    if any(isinstance(phase, RunningChild) for phase in phases):
        return Dispatching(batch=batch)
    return Executing(batch=batch)


def _proceed(batch: Batch, ctx: Context, draft: Draft) -> BatchStep:
    """Start what may start; leave when every call has its result."""
    # A batch ends in one message with all results, in call order, whatever order they came in: providers
    # reject a history in which a call has no result right behind it. Back in `Go` the limits are read
    # again.
    batch = start(batch, ctx, draft)
    results = [call.phase.result for call in batch.calls if isinstance(call.phase, Settled)]
    if len(results) < len(batch.calls):
        return draft.to(_named(batch))
    parts = tuple([_within(result, ctx.config) for result in results])
    draft.add(AppendMessage(message=Message(role=Role.TOOL, parts=parts, at=ctx.now)))
    if batch.stopping is Stopping.INTERRUPTED:
        # Straight to the end: in `Go` the model would be asked what to do about calls that a person has
        # stopped.
        return draft.to(Thinking(stage=End(reason=DoneReason.INTERRUPTED)))
    return draft.to(Thinking(stage=Go()))


def _within(result: ToolResult, config: Config) -> ToolResult:
    """*result* as the conversation holds it: of one that is too long the beginning and the end."""
    limit = config.compaction.result_limit
    if limit is None or len(result.content) <= limit:
        return result
    # Cut here and not in the tool, so that the full text is in the event, and the journal has it for
    # `read_result`.
    reader = READER if config.tool(READER) is not None else ""
    return attrs.evolve(result, content=model_messages.shortened(result.content, limit, result.call, reader))
