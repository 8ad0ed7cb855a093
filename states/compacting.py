"""
Compacting: the context is being shrunk.

A model summarises what is old; the summary takes its place. It must make the context smaller, or says that
it cannot. What follows a failure depends on why it was tried: a context over its threshold goes on as it is,
an answer that was cut off or refused for its size cannot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..effects.config import OnMaxTokens
from ..effects.events import (
    Entered,
    Failure,
    HookAnswered,
    Interrupted,
    ModelFailed,
    ModelFinished,
    ModelStreamed,
)
from ..effects.hooks import Hook
from ..effects.messages import StopReason, user
from ..effects.notices import (
    Compacted,
    CompactionFailed,
    CompactionStarted,
    DoneReason,
    HookReplied,
    InterruptRequested,
)
from ..effects.permissions import Verdict
from ..effects.pieces import Piece, TextPiece
from ..effects.records import AddUsage, AppendMessage, CountCompaction, ReplaceHistory
from ..effects.requests import CallModel, Cancel, Purpose, Transcript
from ..effects.usage import Usage
from .batch import Stopping
from .draft import Draft
from .hooking import ask_hooks
from .inputs import received
from .rules import compaction, texts
from .rules.hooks import asked_at, opinion, told
from .rules.limits import exceeded
from .rules.sizes import estimated_usage, history_size, message_size
from .state import Compacting, CompactReason, Consulting, End, Go, Summary, Thinking, Weigh

if TYPE_CHECKING:
    from ..effects import Effect
    from .context import Context

WHOLE = frozenset({StopReason.END_TURN, StopReason.STOP_SEQUENCE})
"""Ends after which a summary is one; a refusal, a call or half a summary must not take a history's place."""

Step = tuple[Compacting | Thinking, tuple["Effect", ...]]


def handle(  # noqa: PLR0911  # one return for each kind of event
    state: Compacting, ctx: Context
) -> Step:
    """What *ctx*'s event does while the context is being shrunk."""
    event, stage = ctx.event, state.stage
    match event:
        case Entered() if isinstance(stage, Weigh):
            return _weigh(state, ctx)
        case ModelStreamed(request=request) if (
            isinstance(stage, Summary)
            and request == stage.request
            and event.before == stage.pieces.count
            and event.fits
        ):
            pieces = stage.pieces.extend(event.pieces, event.count)
            gathered = Summary(request=stage.request, model=stage.model, cut=stage.cut, pieces=pieces)
            return Compacting(reason=state.reason, stage=gathered, stopping=state.stopping), ()
        case ModelFinished() | ModelFailed() if isinstance(stage, Summary) and event.request == stage.request:
            return _answered(state, stage, event, ctx)
        case HookAnswered(request=request) if isinstance(stage, Consulting) and request == stage.request:
            return _heard(state, stage, event, ctx)
        case Interrupted() if isinstance(stage, Summary):
            return _interrupted(state, stage, ctx)
        case Interrupted() if isinstance(stage, Consulting):
            draft = Draft(ctx)
            draft.add(Cancel(request=stage.request), InterruptRequested())
            return draft.to(Thinking(stage=End(reason=DoneReason.INTERRUPTED)))
        case _:
            return state, received(state, ctx)


def _weigh(state: Compacting, ctx: Context) -> Step:
    """Decide whether a summary is worth asking for, and where the cut goes."""
    config, memory = ctx.config, ctx.memory
    draft = Draft(ctx)
    if reason := exceeded(config.limits, memory.spent):
        # A summary is a model call too, and nothing could follow it.
        return draft.to(Thinking(stage=End(reason=reason)))
    if state.reason is CompactReason.MAX_TOKENS and not _worth_it(ctx):
        return draft.to(Thinking(stage=End(reason=DoneReason.MAX_TOKENS)))
    if memory.compactions:
        return _failed(state, "the context was compacted just before", draft, ctx)
    cut = compaction.cut_index(memory.history, ctx.model.window)
    if cut == 0:
        return _failed(state, "there is nothing old enough to summarise", draft, ctx)
    names = asked_at(config, Hook.PRE_COMPACT)
    if not names:
        return _summarise(state, cut, (), draft, ctx)
    request = ask_hooks(Hook.PRE_COMPACT, names, told(reason=state.reason, size=memory.size), draft)
    return draft.to(Compacting(reason=state.reason, stage=Consulting(request=request, cut=cut)))


def _heard(state: Compacting, stage: Consulting, event: HookAnswered, ctx: Context) -> Step:
    """The hooks answered: what they add is for whoever summarises; one may be against it, or end the run."""
    draft = Draft(ctx)
    said = opinion(event.said)
    draft.add(HookReplied(request=event.request, hook=Hook.PRE_COMPACT, said=event.said))
    if said.interrupt:
        draft.add(InterruptRequested())
        return draft.to(Thinking(stage=End(reason=DoneReason.INTERRUPTED, detail=said.because)))
    if said.verdict is Verdict.DENY:
        return _failed(state, f"a hook denied it: {said.because}", draft, ctx)
    return _summarise(state, stage.cut, said.context, draft, ctx)


def _summarise(state: Compacting, cut: int, wishes: tuple[str, ...], draft: Draft, ctx: Context) -> Step:
    """Ask the model for a summary of what is before *cut*, in which the *wishes* of hooks are heard."""
    memory = ctx.memory
    request = draft.new_id()
    draft.add(
        CompactionStarted(size=memory.size, reason=state.reason),
        CallModel(
            id=request,
            model=memory.model,
            view=Transcript(revision=memory.history.revision, length=cut),
            purpose=Purpose.SUMMARY,
            instructions="\n".join([compaction.INSTRUCTIONS, *wishes]),
        ),
    )
    return draft.to(
        Compacting(reason=state.reason, stage=Summary(request=request, model=memory.model, cut=cut))
    )


def _worth_it(ctx: Context) -> bool:
    """Whether a cut-off answer is followed by a compaction, by policy and size."""
    policy = ctx.config.policy
    match policy.on_max_tokens:
        case OnMaxTokens.COMPACT:
            return True
        case OnMaxTokens.STOP:
            return False
        case OnMaxTokens.COMPACT_OVER_THRESHOLD:
            return compaction.due(ctx.memory.size, ctx.model.window, policy.compact_at)


def _answered(state: Compacting, stage: Summary, event: ModelFinished | ModelFailed, ctx: Context) -> Step:
    """
    The summary came, or did not. Whatever it cost is in the account; a summary is no turn.
    """
    draft = Draft(ctx)
    last = event.pieces if isinstance(event, ModelFinished) else ()
    pieces = stage.pieces.extend(last, len(last)).pieces
    _account(stage, pieces, event.usage, event.seconds, draft, ctx)
    if state.stopping:
        return draft.to(Thinking(stage=End(reason=DoneReason.INTERRUPTED)))
    if isinstance(event, ModelFailed) and event.failure is Failure.LOST:
        return draft.to(Compacting(reason=state.reason))
    if isinstance(event, ModelFinished) and event.stop not in WHOLE:
        return _failed(state, f"the summary ended with {event.stop}", draft, ctx)
    if isinstance(event, ModelFailed):
        return _failed(state, f"{event.failure}: {event.message}", draft, ctx)
    text = "".join([piece.text for piece in pieces if isinstance(piece, TextPiece)])
    return _summarised(state, stage, text, draft, ctx)


def _account(  # what a summary may have used, and where it goes
    stage: Summary,
    pieces: tuple[Piece, ...],
    told: Usage | None,
    seconds: float,
    draft: Draft,
    ctx: Context,
) -> None:
    """What was used, as it was *told*, or estimated where *pieces* came and nothing was told."""
    usage = told or Usage()
    if pieces and not usage.total:
        usage = estimated_usage(history_size(ctx.memory.history.slice(0, stage.cut)), pieces)
    draft.add(AddUsage(spent=ctx.spent_on(stage.model, usage, seconds)))


def _summarised(state: Compacting, stage: Summary, text: str, draft: Draft, ctx: Context) -> Step:
    """
    Put the summary in the place of what it covers, if that makes the context smaller.

    Only the part that was cut is compared: the rest stays as it is. Without this a talkative summary could
    make things worse at each attempt.
    """
    memory = ctx.memory
    summary = compaction.summary_message(text, ctx.now)
    old = history_size(memory.history.slice(0, stage.cut))
    if not text.strip():
        return _failed(state, "the summary was empty", draft, ctx)
    if message_size(summary) >= old:
        return _failed(state, "the summary was not smaller than what it was to replace", draft, ctx)
    draft.add(
        ReplaceHistory(head=(summary,), keep=stage.cut),
        CountCompaction(attempts=memory.compactions + 1, failures=0),
        Compacted(
            before=history_size(memory.history),
            after=history_size(memory.history) - old + message_size(summary),
        ),
    )
    if state.reason is CompactReason.MAX_TOKENS:
        # The history ends with what the model got out; it goes on when it is asked to.
        draft.add(AppendMessage(message=user(texts.CONTINUE, ctx.now)))
    return draft.to(Thinking(stage=Go()))


def _failed(state: Compacting, why: str, draft: Draft, ctx: Context) -> Step:
    """The context stays as it is. Counted, so that the same failure is not repeated for ever."""
    memory = ctx.memory
    draft.add(
        CompactionFailed(reason=why),
        CountCompaction(attempts=memory.compactions + 1, failures=memory.compaction_failures + 1),
    )
    match state.reason:
        case CompactReason.THRESHOLD:
            return draft.to(Thinking(stage=Go()))
        case CompactReason.MAX_TOKENS:
            return draft.to(Thinking(stage=End(reason=DoneReason.MAX_TOKENS, detail=why)))
        case CompactReason.OVERFLOW:
            detail = f"the conversation is larger than the model's window, and {why}"
            return draft.to(Thinking(stage=End(reason=DoneReason.ERROR, detail=detail)))


def _interrupted(state: Compacting, stage: Summary, ctx: Context) -> Step:
    """Cancel the summary and wait for its end, which tells what was used; asked twice, do not wait."""
    draft = Draft(ctx)
    if state.stopping:
        _account(stage, stage.pieces.pieces, None, 0.0, draft, ctx)
        return draft.to(Thinking(stage=End(reason=DoneReason.INTERRUPTED)))
    draft.add(Cancel(request=stage.request), InterruptRequested())
    return draft.to(Compacting(reason=state.reason, stage=stage, stopping=Stopping.INTERRUPTED))
