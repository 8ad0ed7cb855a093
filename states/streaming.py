"""Streaming: a model answers. Pieces fold into the state; the whole answer becomes a message and a batch."""

# Theory of operation.
#
# Nothing of an answer enters the history before the answer is whole. So an answer that fails leaves no trace
# that the next request would have to work around: no half message, no call without a result. What was
# streamed is in this state alone, as a rope, and a journal keeps it as one merged event.
#
# There is one exception: an answer that a person cut is kept as far as its text came, without its calls. An
# answer that was cancelled and still came whole is kept with its calls; each gets a result at once, and none
# runs.

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import assert_never

import attrs

from ..effects import Effect, messages, notices
from ..effects.config import Steering
from ..effects.events import Failure, Interrupted, ModelFailed, ModelFinished, ModelStreamed, UserSteered
from ..effects.history import CallPiece, Piece, ReasoningPiece, TextPiece
from ..effects.messages import (
    Citation,
    Finish,
    Message,
    Outcome,
    Part,
    ProviderCall,
    Role,
    StopReason,
    Text,
    ToolCall,
)

# Imported by name: this saves a look-up for each piece of an answer, about a hundred a second.
from ..effects.notices import CallDelta, DoneReason, ProviderCalled, ReasoningDelta, SourceCited, TextDelta
from ..effects.records import (
    AddUsage,
    AppendMessage,
    ClearContext,
    CountCompaction,
    CountPauses,
    MailKind,
    SetMaxOutput,
)
from ..effects.requests import Cancel
from .batch.batch import Batch, Call, Held, Queued, Stopping
from .batch.settle import UNSTARTED
from .builder import Draft, received, result_of
from .context import Context
from .output import said_all
from .rules import model_messages
from .rules.retry import answer_failed, fall_back, may_fall_back, not_waited_for, retry_delay, try_later
from .rules.schema import arguments_of
from .rules.token_estimates import usage_of
from .state import Compacting, CompactReason, End, Executing, Go, Retry, Steer, Streaming, Thinking

# Stop reasons after which calls may run. They are no reliable sign of calls: some servers say `stop` and send
# calls, so calls count there, too. After a cut or a refusal no call is trusted, since the last one may be
# incomplete.
TRUSTED = frozenset({StopReason.TOOL_USE, StopReason.END_TURN, StopReason.PAUSED, StopReason.UNKNOWN})

# Prefixes of the ids of calls that the provider runs itself. Some proxies show these among the others.
PROVIDER_RUN = ("srvtoolu_", "mcptoolu_")

# Calls of one answer that are kept: more than any provider documents, and few enough to look at each.
MAX_CALLS = 128

# How often an answer is asked for again with a lower limit. Once is mostly enough: the provider names the
# right number.
SHORTER_TRIES = 3

# Where a call begins: the output of the run is held until all other calls are settled.
QUEUED, HELD = Queued(), Held()

# Names of dropped calls in a warning; there may be thousands of others.
NAMED_CALLS = 10

StreamingStep = tuple[Streaming | Executing | Compacting | Thinking, tuple[Effect, ...]]


def handle(state: Streaming, ctx: Context) -> StreamingStep:
    """What *ctx*'s event does while a model answers."""
    event = ctx.event
    match event:
        # `before` must equal the number of pieces seen. A stream that is repeated or resumed may double or
        # skip text, which is worse than to ask again.
        case ModelStreamed(request=state.request, before=state.pieces.count) if event.fits:
            return _gathered(state, event), tuple(deltas(event.pieces, event.at))
        case ModelFinished(request=state.request):
            return _finished(state, event, ctx)
        case ModelFailed(request=state.request):
            return _cut_short(state, event, ctx) if state.stopping else _failed(state, event, ctx)
        case Interrupted():
            return _interrupted(state, ctx)
        case UserSteered(how=Steering.NOW) if state.stopping is Stopping.NONE:
            # The answer's own end is still waited for: it says what was used, and that was paid for.
            draft = Draft(ctx)
            draft.add(notices.InputReceived(id=event.id, at=draft.at), Cancel(request=state.request))
            return draft.to(attrs.evolve(state, stopping=Stopping.HURRIED))
        case _:
            return state, received(state, ctx)


def _gathered(state: Streaming, event: ModelStreamed) -> Streaming:
    # Written out and not evolved, which takes three times as long: this step comes a hundred times a second.
    return Streaming(
        request=state.request,
        model=state.model,
        attempt=state.attempt,
        offered=state.offered,
        pieces=state.pieces.extend(event.pieces, event.count),
        stopping=state.stopping,
    )


def deltas(pieces: Iterable[Piece], at: float) -> list[Effect]:
    """
    What a watcher sees of *pieces*, which came *at* that time: text, thinking and calls.

    And what the provider did with tools of its own, and the sources that it names.
    """
    return [
        TextDelta(piece.text, piece.begins, at=at) if isinstance(piece, TextPiece) else _shown(piece, at)
        for piece in pieces
        if (piece.text if isinstance(piece, TextPiece) else _is_shown(piece))
    ]


def _is_shown(piece: ReasoningPiece | CallPiece | ProviderCall | Citation) -> bool:
    match piece:
        case ReasoningPiece():
            return bool(piece.text)
        case CallPiece():
            return bool(piece.name or piece.arguments)
        case ProviderCall() | Citation():
            return True
        case _:
            assert_never(piece)


def _shown(piece: ReasoningPiece | CallPiece | ProviderCall | Citation, at: float) -> Effect:
    match piece:
        case ReasoningPiece():
            return ReasoningDelta(piece.text, at=at)
        case CallPiece():
            return CallDelta(piece.index, piece.name, piece.arguments, at=at)
        case ProviderCall():
            return ProviderCalled(
                at=at,
                id=piece.id,
                tool=piece.name,
                arguments=piece.arguments,
                status=piece.status,
                result=piece.result,
            )
        case Citation():
            return SourceCited(
                at=at,
                url=piece.url,
                title=piece.title,
                start=piece.start,
                end=piece.end,
                quote=piece.quote,
            )
        case _:
            assert_never(piece)


# A whole answer: its message, its usage, its turn, its next state.


def _finished(state: Streaming, event: ModelFinished, ctx: Context) -> StreamingStep:
    draft, memory, pieces = Draft(ctx), ctx.memory, state.pieces.pieces
    if event.pieces:  # most answers are streamed to their end
        draft.add(*deltas(event.pieces, draft.at))
        pieces = state.pieces.extend(event.pieces, len(event.pieces)).pieces
    stop = StopReason.INTERRUPTED if state.stopping else event.stop
    # From the event and so from the journal: a replay does not ask the host's function again. Never more than
    # the request had: a tool that was withdrawn stays so.
    shown = state.offered if event.offered is None else event.offered
    offered = tuple([name for name in state.offered if name in shown])
    kept, dropped = wishes(pieces, stop, offered)
    calls = {wish.index: _called(wish, draft) for wish in kept}
    # Appended before any call runs: a run that is lost then still knows what the model wanted.
    finish = Finish(reason=stop, sequence=event.sequence, detail=event.detail)
    message = _message(state, parts_of(pieces, calls), finish, ctx)
    _append(message, stop, draft)
    usage = usage_of(event.usage, memory.conversation.size, pieces, begun=True)
    spent = ctx.spent_on(state.model, usage, event.seconds, turns=1)
    made = tuple(calls.values())
    draft.add(
        AddUsage(spent=spent, context=0 if usage.estimated else usage.total),
        # The message itself and no copy: a subscriber that missed a delta has all of the answer here.
        notices.TurnEnded(
            at=draft.at,
            request=state.request,
            turn=memory.spent.turns + 1,
            message=message,
            stop=stop,
            usage=usage,
            calls=made,
            sequence=event.sequence,
            cost=spent.known_cost,
            seconds=spent.seconds,
            model=event.model,
            response=event.response,
            first_piece=event.first_piece,
        ),
    )
    _completed(dropped, stop, draft, ctx)
    if stop in TRUSTED and calls:
        return draft.to(Executing(batch=_begun(state.model, made, offered, ctx)))
    if calls:
        _answer_unrun(state, made, stop, draft, ctx)
    match stop:
        case StopReason.MAX_TOKENS:
            return draft.to(Compacting(reason=CompactReason.MAX_TOKENS))
        case StopReason.PAUSED:
            return draft.to(_paused(draft, ctx))
        case StopReason.INTERRUPTED:
            return draft.to(_stopped(state, ctx))
        case _:
            return draft.to(Thinking(stage=said_all(finish, ctx)))


def _paused(draft: Draft, ctx: Context) -> Thinking:
    """Where an answer without calls leads that the provider paused."""
    pauses = ctx.memory.progress.pauses + 1
    draft.add(CountPauses(count=pauses))
    if pauses <= ctx.config.policy.pauses:
        return Thinking(stage=Go())
    # Each pause costs a request with all that was found so far, and a run need not have a limit.
    detail = f"the provider paused its answer {model_messages.count(pauses, 'time')} in a row"
    return Thinking(stage=End(reason=DoneReason.ERROR, detail=detail))


def _begun(model: str, made: Iterable[ToolCall], offered: tuple[str, ...], ctx: Context) -> Batch:
    """The calls *made* in an answer of *model*; one that gives the output is held until others have ended."""
    output = ctx.config.output
    tool = None if output is None else output.tool_for(model)
    if tool not in offered:
        tool = None
    calls = [Call(call=call, phase=HELD if call.name == tool else QUEUED) for call in made]
    return Batch(calls=tuple(calls), offered=offered)


def _called(wish: CallPiece, draft: Draft) -> ToolCall:
    # Calls get ids of our own. Those of the wire need not be unique, and some servers send none; they are
    # only kept to be sent back.
    return ToolCall(
        id=draft.new_id(),
        wire_id=wish.wire_id,
        name=wish.name,
        arguments=wish.arguments,
        opaque=wish.opaque,
    )


def wishes(
    pieces: Iterable[Piece], stop: StopReason, offered: tuple[str, ...]
) -> tuple[list[CallPiece], list[CallPiece]]:
    """The calls among *pieces* that enter the history, and those that count as never made."""
    kept: list[CallPiece] = []
    dropped: list[CallPiece] = []
    for piece in pieces:
        if isinstance(piece, CallPiece):
            wanted = len(kept) < MAX_CALLS and _keep(piece, stop, offered)
            (kept if wanted else dropped).append(piece)
    return kept, dropped


def _keep(piece: CallPiece, stop: StopReason, offered: tuple[str, ...]) -> bool:
    if not piece.name or piece.wire_id.startswith(PROVIDER_RUN):
        return False
    if stop in TRUSTED:
        # A model that means to call gets every call answered, so that it learns what was wrong with one.
        # Where it claims to be finished, a call to a tool that was not offered is taken for the provider's
        # own: some proxies show their server tools that way.
        return stop is StopReason.TOOL_USE or piece.name in offered
    # Only whole calls run: arguments that were cut off may be valid JSON by chance, and mean something else.
    # Empty ones are the most likely sign of a cut.
    return piece.name in offered and bool(piece.arguments) and arguments_of(piece.arguments) is not None


def parts_of(pieces: Iterable[Piece], calls: Mapping[int, ToolCall]) -> tuple[Part, ...]:
    """The parts of the message, in the order in which they began; *calls* are the kept ones by index."""
    parts: list[Part] = []
    for piece in pieces:
        match piece:
            case TextPiece():
                if piece.text:
                    parts.append(Text(text=piece.text))
            case CallPiece():
                if piece.index in calls:
                    parts.append(calls[piece.index])
            case ReasoningPiece():
                parts.append(messages.Reasoning(**attrs.asdict(piece)))
            case ProviderCall() | Citation():
                parts.append(piece)
            case _:
                assert_never(piece)
    return tuple(parts)


def _message(state: Streaming, parts: tuple[Part, ...], finish: Finish, ctx: Context) -> Message:
    return Message(role=Role.ASSISTANT, parts=(*parts, finish), at=ctx.event.at, model=state.model)


def _append(message: Message, stop: StopReason, draft: Draft) -> None:
    # An answer without text and calls counts as a turn, since it was paid for. It is not kept: providers
    # refuse an empty message. A paused answer may have calls of the provider alone, and goes on with those.
    kept = Text | ToolCall | ProviderCall if stop is StopReason.PAUSED else Text | ToolCall
    if any(isinstance(part, kept) for part in message.parts):
        draft.add(AppendMessage(message=message))


def _completed(dropped: list[CallPiece], stop: StopReason, draft: Draft, ctx: Context) -> None:
    """Reset what counts until an answer is complete, and say what was odd about this one."""
    memory = ctx.memory
    if memory.conversation.pending_context:
        # Cleared after the answer and not when it was sent: an answer that failed is asked for again, and
        # needs it.
        draft.add(ClearContext())
    if memory.progress.compactions:
        # A completed answer shows that the context fits again, so the next compaction may be tried.
        draft.add(CountCompaction(attempts=0, failures=memory.session.compaction_failures))
    if memory.progress.pauses and stop is not StopReason.PAUSED:
        draft.add(CountPauses(count=0))
    if dropped:
        names = ", ".join(piece.name or "(no name)" for piece in dropped[:NAMED_CALLS])
        if (more := len(dropped) - NAMED_CALLS) > 0:
            names += f" and {more:,} more"
        draft.add(
            notices.Warned(text=f"calls left out of an answer that ended with {stop}: {names}", at=draft.at)
        )
    if stop in {StopReason.UNKNOWN, StopReason.REFUSAL}:
        draft.add(notices.Warned(text=f"the model's answer ended with {stop}", at=draft.at))


def _answer_unrun(
    state: Streaming, calls: tuple[ToolCall, ...], stop: StopReason, draft: Draft, ctx: Context
) -> None:
    """Whole calls that will not run get their results at once, so the history stays valid."""
    outcome, content = Outcome.SKIPPED, model_messages.CUT_OFF
    if stop is StopReason.INTERRUPTED:
        outcome, content = UNSTARTED[state.stopping or Stopping.INTERRUPTED]
    results = [result_of(Call(call=call), outcome, content, draft) for call in calls]
    draft.add(AppendMessage(message=Message(role=Role.TOOL, parts=tuple(results), at=ctx.now)))


def _stopped(state: Streaming, ctx: Context) -> Thinking:
    """Where an answer leads that a person cut: to what they said instead, or to the end."""
    if state.stopping is Stopping.HURRIED:
        # Where they have taken back what they said, the history ends with the cut answer: the stage `Steer`
        # knows how to go on behind it.
        return Thinking(stage=Go() if ctx.memory.waiting(MailKind.STEER) else Steer())
    return Thinking(stage=End(reason=DoneReason.INTERRUPTED))


# The answer did not come to its end: try again later, shrink the context, or end.


def _failed(state: Streaming, event: ModelFailed, ctx: Context) -> StreamingStep:
    draft, lost = Draft(ctx), event.failure is Failure.LOST
    if state.pieces.count:
        draft.add(notices.AnswerDropped(request=state.request, at=draft.at))
    _account(state, event, draft, ctx)
    if event.failure is Failure.UNBEGUN:
        # A worker that drains hands the request over before it is sent. That is no failure, so no attempt is
        # counted and no time is lost.
        return draft.to(Thinking(stage=Go(), attempt=state.attempt))
    if event.failure is Failure.OVERFLOW:
        return draft.to(Compacting(reason=CompactReason.OVERFLOW, detail=event.message))
    limit, known = event.max_output, ctx.memory.progress.max_output
    if limit is not None and 0 < limit < (known or limit + 1) and state.attempt <= SHORTER_TRIES:
        # Not the conversation but the answer was too long, so a summary would not help.
        draft.add(SetMaxOutput(tokens=limit), notices.Warned(text=event.message, at=draft.at))
        return draft.to(Thinking(stage=Go(), attempt=state.attempt + 1))
    # If a person has seen text of it, an answer is not asked for again: the second one would differ. The
    # exception is a lost answer, since the process that showed it is gone. Thinking and calls do not count as
    # text that was seen.
    silent = lost or not state.pieces.count
    if not silent and event.should_retry is not False:
        pieces = [piece for piece in state.pieces.pieces if isinstance(piece, TextPiece)]
        silent = all(piece.text.isspace() for piece in pieces)
    delay = retry_delay(ctx.config.retries, event, state.attempt) if silent else None
    if silent and not ctx.memory.progress.fallback and may_fall_back(ctx.config, state.model, event, delay):
        # The other model is asked at once, and may fail as often as the first one might.
        draft.add(*fall_back(ctx.config, state.model, event))
        return draft.to(Thinking(stage=Go()))
    if delay is None:
        detail = f"{event.failure}: {event.message}"
        return draft.to(Thinking(stage=End(reason=DoneReason.ERROR, detail=detail)))
    attempt = state.attempt if lost else state.attempt + 1
    timer, due = draft.new_id(), ctx.now + delay
    draft.add(*try_later(timer, due, event, attempt))
    return draft.to(Thinking(stage=Retry(request=timer, due=due), attempt=attempt))


def _account(state: Streaming, event: ModelFailed, draft: Draft, ctx: Context) -> None:
    """A cut stream was paid for, even where it told no usage; a request that was refused was not."""
    begun = state.pieces.count > 0 or event.failure is Failure.LOST
    usage = usage_of(event.usage, ctx.memory.conversation.size, state.pieces.pieces, begun=begun)
    spent = ctx.spent_on(state.model, usage, event.seconds)
    if usage.total or event.seconds or state.stopping:
        draft.add(AddUsage(spent=spent))
    draft.add(answer_failed(event, spent))


def _cut_short(state: Streaming, event: ModelFailed, ctx: Context) -> StreamingStep:
    """A person stopped the answer: the text that was read is kept, calls are not."""
    draft = Draft(ctx)
    pieces = state.pieces.pieces
    # Thinking goes too: its signature comes last, and without one no provider takes it back.
    parts = tuple([Text(text=piece.text) for piece in pieces if isinstance(piece, TextPiece) and piece.text])
    if parts:
        message = _message(state, parts, Finish(reason=StopReason.INTERRUPTED), ctx)
        draft.add(
            AppendMessage(message=message),
            notices.AnswerKept(request=state.request, message=message, at=draft.at),
        )
    _account(state, event, draft, ctx)
    return draft.to(_stopped(state, ctx))


def _interrupted(state: Streaming, ctx: Context) -> StreamingStep:
    """Cancel the answer and wait for its end, which says what was used; the second time do not wait."""
    if state.stopping is Stopping.INTERRUPTED:
        # A provider may take long to notice that its reader is gone. What was read is kept as if the stream
        # had ended now, and what it costs is estimated.
        gone = not_waited_for(state.request, ctx.now)
        return _cut_short(state, gone, ctx)
    draft = Draft(ctx)
    if state.stopping is Stopping.NONE:  # a steer that could not wait has cancelled it already
        draft.add(Cancel(request=state.request))
    draft.add(notices.InterruptRequested(at=draft.at))
    return draft.to(attrs.evolve(state, stopping=Stopping.INTERRUPTED))
