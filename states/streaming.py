"""Streaming: a model answers."""

# Pieces fold into the state as they come. When the answer is whole its message enters the history and its
# calls become a batch; where it fails nothing of it is kept, unless a person stopped it and read what there
# was.

from __future__ import annotations

from typing import TYPE_CHECKING

from ..effects.config import Steering
from ..effects.events import Failure, Interrupted, ModelFailed, ModelFinished, ModelStreamed, UserSteered
from ..effects.messages import Finish, Message, Outcome, Part, Role, StopReason, Text, ToolCall, ToolResult
from ..effects.notices import (
    AnswerDropped,
    DoneReason,
    InputReceived,
    InterruptRequested,
    ReasoningDelta,
    RetryScheduled,
    TextDelta,
    TurnEnded,
    Warned,
)
from ..effects.pieces import Piece, ReasoningPiece, TextPiece
from ..effects.records import AddUsage, AppendMessage, ClearContext, CountCompaction
from ..effects.requests import Cancel, SetTimer
from .batch.batch import Batch, Call, Stopping
from .batch.settle import tell
from .builder import Draft, received
from .rules import model_messages
from .rules.answer_parts import TRUSTED, Wishes, parts_of, wishes
from .rules.retry import fall_back, may_fall_back, wait
from .rules.token_estimates import usage_of
from .state import Compacting, CompactReason, End, Executing, Go, Retry, Streaming, Thinking

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..effects import Effect
    from .context import Context

# Calls that were left out whose names are told; there may be thousands of others.
NAMED_CALLS = 10

StreamingStep = tuple[Streaming | Executing | Compacting | Thinking, tuple["Effect", ...]]


def handle(state: Streaming, ctx: Context) -> StreamingStep:
    """What *ctx*'s event does while a model answers."""
    event = ctx.event
    match event:
        case ModelStreamed(request=state.request, before=state.pieces.count) if event.fits:
            return _streamed(state, event)
        case ModelFinished(request=state.request):
            return _finished(state, event, ctx)
        case ModelFailed(request=state.request):
            return _cut_short(state, event, ctx) if state.stopping else _failed(state, event, ctx)
        case Interrupted():
            return _interrupted(state, ctx)
        case UserSteered(how=Steering.NOW) if state.stopping is Stopping.NONE:
            draft = Draft(ctx)
            draft.add(InputReceived(id=event.id), Cancel(request=state.request))
            return draft.to(_stopping(state, Stopping.HURRIED))
        case _:
            return state, received(state, ctx)


def deltas(pieces: Iterable[Piece]) -> list[Effect]:
    """What a watcher sees of *pieces*: text and thinking, as they arrived."""
    return [
        TextDelta(piece.text) if isinstance(piece, TextPiece) else ReasoningDelta(piece.text)
        for piece in pieces
        if isinstance(piece, TextPiece | ReasoningPiece) and piece.text
    ]


def _streamed(state: Streaming, event: ModelStreamed) -> StreamingStep:
    # The hot path: one of these per network chunk, so the state is built directly.
    following = Streaming(
        request=state.request,
        model=state.model,
        attempt=state.attempt,
        offered=state.offered,
        pieces=state.pieces.extend(event.pieces, event.count),
        stopping=state.stopping,
    )
    return following, tuple(deltas(event.pieces))


# The answer is whole


def _finished(state: Streaming, event: ModelFinished, ctx: Context) -> StreamingStep:
    """The answer is whole: one message, one account, one turn, and what its end asks for."""
    # Calls get our own ids here. The message goes into the history before a call runs, so a run that is
    # lost in the middle of its tools still knows what the model wanted.
    draft = Draft(ctx)
    draft.add(*deltas(event.pieces))
    pieces = state.pieces.extend(event.pieces, len(event.pieces)).pieces
    stop = StopReason.INTERRUPTED if state.stopping else event.stop
    sorted_ = wishes(pieces, stop, state.offered)
    calls = {
        wish.index: ToolCall(
            id=draft.new_id(), wire_id=wish.wire_id, name=wish.name, arguments=wish.arguments
        )
        for wish in sorted_.kept
    }
    _append(state, parts_of(pieces, calls), Finish(reason=stop, sequence=event.sequence), draft, ctx)
    usage = usage_of(event.usage, ctx.memory.conversation.size, pieces, begun=True)
    spent = ctx.spent_on(state.model, usage, event.seconds, turns=1)
    draft.add(
        AddUsage(spent=spent, context=0 if usage.estimated else usage.total),
        TurnEnded(
            turn=ctx.memory.spent.turns + 1,
            stop=stop,
            usage=usage,
            calls=tuple(calls.values()),
            sequence=event.sequence,
        ),
    )
    if ctx.memory.conversation.pending_context:
        draft.add(ClearContext())
    if ctx.memory.progress.compactions:
        draft.add(CountCompaction(attempts=0, failures=ctx.memory.session.compaction_failures))
    _warn(sorted_, stop, draft)
    if stop in TRUSTED and calls:
        batch = Batch(calls=tuple([Call(call=call) for call in calls.values()]), offered=state.offered)
        return draft.to(Executing(batch=batch))
    return _after(state, stop, tuple(calls.values()), draft, ctx)


def _append(state: Streaming, parts: tuple[Part, ...], finish: Finish, draft: Draft, ctx: Context) -> None:
    """Add the message; an empty answer counts as a turn and is not kept, since no provider takes it back."""
    if parts:
        message = Message(role=Role.ASSISTANT, parts=(*parts, finish), at=ctx.now, model=state.model)
        draft.add(AppendMessage(message=message))


def _warn(sorted_: Wishes, stop: StopReason, draft: Draft) -> None:
    """Tell whoever watches what was odd about the answer; the run goes on."""
    if sorted_.dropped:
        names = ", ".join(piece.name or "(no name)" for piece in sorted_.dropped[:NAMED_CALLS])
        if (more := len(sorted_.dropped) - NAMED_CALLS) > 0:
            names += f" and {more:,} more"
        draft.add(Warned(text=f"calls left out of an answer that ended with {stop}: {names}"))
    if stop in {StopReason.UNKNOWN, StopReason.REFUSAL}:
        draft.add(Warned(text=f"the model's answer ended with {stop}"))


def _after(
    state: Streaming, stop: StopReason, calls: tuple[ToolCall, ...], draft: Draft, ctx: Context
) -> StreamingStep:
    """Where an answer without calls to run leads, by how it ended."""
    if calls:
        _answer_unrun(state, calls, stop, draft, ctx)
    match stop:
        case StopReason.MAX_TOKENS:
            return draft.to(Compacting(reason=CompactReason.MAX_TOKENS))
        case StopReason.STOP_SEQUENCE:
            return draft.to(Thinking(stage=End(reason=DoneReason.STOP_SEQUENCE)))
        case StopReason.INTERRUPTED:
            return draft.to(_stopped(state))
        case _:
            return draft.to(Thinking(stage=End(reason=DoneReason.END_TURN)))


def _stopped(state: Streaming) -> Thinking:
    """Where an answer leads that a person cut: to what they said instead, or to the end."""
    if state.stopping is Stopping.HURRIED:
        return Thinking(stage=Go())
    return Thinking(stage=End(reason=DoneReason.INTERRUPTED))


def _answer_unrun(
    state: Streaming, calls: tuple[ToolCall, ...], stop: StopReason, draft: Draft, ctx: Context
) -> None:
    """Whole calls that will not run get their results at once, so the history stays valid."""
    match stop, state.stopping:
        case StopReason.INTERRUPTED, Stopping.HURRIED:
            outcome, content = Outcome.SKIPPED, model_messages.SKIPPED_AFTER_STEER
        case StopReason.INTERRUPTED, _:
            outcome, content = Outcome.CANCELLED, model_messages.CANCELLED
        case _:
            outcome, content = Outcome.SKIPPED, model_messages.CUT_OFF
    results = tuple(
        [
            ToolResult(call=call.id, wire_id=call.wire_id, name=call.name, content=content, outcome=outcome)
            for call in calls
        ]
    )
    for result in results:
        tell(result, 0.0, draft)
    draft.add(AppendMessage(message=Message(role=Role.TOOL, parts=results, at=ctx.now)))


# The answer did not come to its end


def _failed(state: Streaming, event: ModelFailed, ctx: Context) -> StreamingStep:
    """Try again later, shrink the context, or end."""
    # An answer of which something was seen is not asked for again: what was shown cannot be taken back, and
    # a second answer would be another one. A lost answer is the exception, since nobody is left who saw it.
    draft = Draft(ctx)
    _account_for_failure(state, event, draft, ctx)
    if event.failure is Failure.UNBEGUN:
        return draft.to(Thinking(stage=Go(), attempt=state.attempt))
    if event.failure is Failure.OVERFLOW:
        return draft.to(Compacting(reason=CompactReason.OVERFLOW))
    lost = event.failure is Failure.LOST
    silent = lost or not state.pieces.count
    delay = wait(ctx.config.retries, event, state.attempt) if silent else None
    if silent and not ctx.memory.progress.fallback and may_fall_back(ctx.config, state.model, event, delay):
        return _fall_back(state, event, draft, ctx)
    if delay is None:
        detail = f"{event.failure}: {event.message}"
        return draft.to(Thinking(stage=End(reason=DoneReason.ERROR, detail=detail)))
    timer = draft.new_id()
    due = ctx.now + delay
    attempt = state.attempt if lost else state.attempt + 1
    draft.add(
        SetTimer(id=timer, due=due),
        RetryScheduled(attempt=attempt, due=due, failure=event.failure, message=event.message),
    )
    return draft.to(Thinking(stage=Retry(request=timer, due=due), attempt=attempt))


def _fall_back(state: Streaming, event: ModelFailed, draft: Draft, ctx: Context) -> StreamingStep:
    """Ask the other model, at once; it may fail as often as the first one might."""
    draft.add(*fall_back(ctx.config, state.model, event))
    return draft.to(Thinking(stage=Go()))


def _account_for_failure(state: Streaming, event: ModelFailed, draft: Draft, ctx: Context) -> None:
    """A cut stream was paid for, even where it told no usage; a request that was refused was not."""
    if state.pieces.count:
        draft.add(AnswerDropped(request=state.request))
    usage = usage_of(
        event.usage, ctx.memory.conversation.size, state.pieces.pieces, begun=_begun(state, event)
    )
    if usage.total or event.seconds:
        draft.add(AddUsage(spent=ctx.spent_on(state.model, usage, event.seconds)))


def _cut_short(state: Streaming, event: ModelFailed, ctx: Context) -> StreamingStep:
    """A person stopped the answer: the text that was read is kept, calls are not."""
    draft = Draft(ctx)
    pieces = state.pieces.pieces
    parts = tuple([Text(text=piece.text) for piece in pieces if isinstance(piece, TextPiece) and piece.text])
    _append(state, parts, Finish(reason=StopReason.INTERRUPTED), draft, ctx)
    usage = usage_of(event.usage, ctx.memory.conversation.size, pieces, begun=_begun(state, event))
    draft.add(AddUsage(spent=ctx.spent_on(state.model, usage, event.seconds)))
    return draft.to(_stopped(state))


def _begun(state: Streaming, event: ModelFailed) -> bool:
    """Whether the answer that failed had begun: something came of it, or nobody is left who knows better."""
    return state.pieces.count > 0 or event.failure is Failure.LOST


def _interrupted(state: Streaming, ctx: Context) -> StreamingStep:
    """Cancel the answer and wait for its end, which tells what was used; asked twice, do not wait."""
    if state.stopping is Stopping.INTERRUPTED:
        # Asked twice: the answer is not waited for. What was read is kept as if the stream had ended now.
        gone = ModelFailed(
            at=ctx.now, request=state.request, failure=Failure.CANCELLED, message="interrupted twice"
        )
        return _cut_short(state, gone, ctx)
    draft = Draft(ctx)
    if state.stopping is Stopping.NONE:
        draft.add(Cancel(request=state.request))
    draft.add(InterruptRequested())
    return draft.to(_stopping(state, Stopping.INTERRUPTED))


def _stopping(state: Streaming, level: Stopping) -> Streaming:
    return Streaming(
        request=state.request,
        model=state.model,
        attempt=state.attempt,
        offered=state.offered,
        pieces=state.pieces,
        stopping=level,
    )
