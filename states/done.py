"""Done: the run is over, and nothing that comes changes anything; and the end of a run that a bug ends."""

from __future__ import annotations

from typing import assert_never

from ..effects import Effect
from ..effects.events import Failure, ModelFailed, ModelFinished, ModelStreamed
from ..effects.notices import AnswerDropped, DoneReason, RunEnded
from ..effects.records import AddUsage
from ..effects.requests import Cancel
from .batch.batch import Stopping
from .batch.settle import abandon, give_up
from .batch.step import append_results
from .builder import Draft, ignore
from .context import Context
from .rules.retry import answer_failed
from .rules.token_estimates import usage_of
from .state import (
    Compacting,
    Confirming,
    Dispatching,
    Done,
    Executing,
    Start,
    State,
    Streaming,
    Summary,
    Thinking,
)
from .thinking import UNREAD, block, started


def handle(state: Done, ctx: Context) -> tuple[Done, tuple[Effect, ...]]:
    """The same state, whatever *ctx*'s event is."""
    # Not an error: answers of cancelled work may still be under way when a run ends. A prompt does not wake
    # it: the session opens a run of its own for each.
    return state, ignore(state, ctx)


def failed(state: State, ctx: Context, error: str) -> tuple[Done, tuple[Effect, ...]]:
    """
    The end of a run whose handler raised *error* in *state* on *ctx*'s event; nothing is waited for.

    It is no row of the table, which has what handlers decide.
    """
    # The history stays valid and the account whole: the next run of the session goes on over both.
    draft = Draft(ctx)
    match state:
        case Thinking(stage=stage):
            if isinstance(stage, Start):
                draft.add(started(ctx))  # a watcher sees no end of what never began
            draft.add(*[Cancel(request=request) for request in state.open])
            if isinstance(stage, UNREAD):
                # Left in the mail, the prompt would begin the next run, and that might fail at it, too.
                block(stage, error, draft, ctx)
        case Streaming() | Compacting():
            draft.add(*[Cancel(request=request) for request in state.open])
            _drop_answer(state, error, draft, ctx)
        case Done():
            pass
        case Executing(batch=batch) | Confirming(batch=batch) | Dispatching(batch=batch):
            batch = give_up(batch, Stopping.INTERRUPTED, draft)
            append_results(abandon(batch, ctx.config, draft), draft, ctx)
        case _:
            assert_never(state)
    memory = ctx.memory.record(draft.effects)
    draft.add(RunEnded(run=memory.run, reason=DoneReason.ERROR, spent=memory.spent, at=ctx.now, detail=error))
    return draft.to(Done(reason=DoneReason.ERROR, spent=memory.spent, detail=error))


def _drop_answer(state: Streaming | Compacting, error: str, draft: Draft, ctx: Context) -> None:
    """Pay for the answer that *state* reads, which is dropped for an *error*."""
    read = state if isinstance(state, Streaming) else state.stage
    if not isinstance(read, Streaming | Summary):
        return
    if isinstance(state, Streaming) and state.pieces.count:
        draft.add(AnswerDropped(request=state.request, at=draft.at))
    event, told, seconds = ctx.event, None, 0.0
    if isinstance(event, ModelFinished | ModelFailed) and event.request == read.request:
        told, seconds = event.usage, event.seconds
    begun = read.pieces.count > 0 or isinstance(event, ModelStreamed)
    usage = usage_of(told, ctx.memory.conversation.size, read.pieces.pieces, begun=begun)
    spent = ctx.spent_on(read.model, usage, seconds)
    if usage.total or seconds:
        draft.add(AddUsage(spent=spent))
    failed = ModelFailed(at=draft.at, request=read.request, failure=Failure.INTERNAL, message=error)
    draft.add(answer_failed(failed, spent))
