"""Compacting: the context is being made smaller. A model summarises what is old; the summary replaces it."""

# Theory of operation.
#
# There are three reasons to be here, and they differ in what a failure means. Over the threshold there is
# room for an answer yet, so a run goes on with its context as it is. After an answer that was cut at its
# token limit, and after a request that was refused for its size, it cannot: without a smaller context the
# run ends.
#
# A summary is a model call, and it can fail in all the ways of one. It is also dangerous in a way of its
# own: it replaces what the model knows. So it must have come to its own end, must say something, and must
# be smaller than what it replaces. And it is bounded: by tries without an answer in between, and by
# failures in a row. A summary that cannot succeed would otherwise be paid for before each turn.
#
# What the summary covers is fixed when it is planned (`Plan.cut`), unless its performer chose itself and says
# so in its answer (`ModelFinished.covers`), which the journal keeps. Messages do not come in while one is
# written, since people's words wait in the mail until `thinking.go`.

from __future__ import annotations

import attrs

from ..effects import Effect, events, notices
from ..effects.config import ModelSpec, OnMaxTokens, Steering
from ..effects.events import Failure, ModelFailed, ModelFinished
from ..effects.history import TextPiece
from ..effects.hooks import Hook
from ..effects.messages import StopReason, user
from ..effects.notices import DoneReason
from ..effects.permissions import Verdict
from ..effects.records import AddUsage, AppendMessage, CountCompaction, ReplaceHistory
from ..effects.requests import CallModel, Cancel, Purpose, Transcript
from ..effects.usage import Spent
from . import state as stages
from .batch.batch import Stopping
from .builder import Draft, ask_hooks, hooks_at, received
from .context import Context
from .rules import compaction, loops, model_messages
from .rules.hooks import heard, told
from .rules.limits import may_not_go_on
from .rules.retry import answer_failed, fall_back, may_fall_back, not_waited_for, retry_delay, try_later
from .rules.standing import standing
from .rules.token_estimates import CHARACTERS_PER_TOKEN, history_size, message_size, saved, usage_of
from .state import Compacting, CompactReason, End, Go, Plan, Summary, Thinking

# Compactions, without an answer in between, of a conversation that was refused for its size.
TRIES_OF_LARGE = 2

# How often a summary is tried of half as much, where what there is to read is too much for its model.
SMALLER_TRIES = 3

# Ends after which a summary is one; a refusal, a call or half a summary must not take a history's place.
WHOLE_SUMMARY = frozenset({StopReason.END_TURN, StopReason.STOP_SEQUENCE})

CompactingStep = tuple[Compacting | Thinking, tuple[Effect, ...]]


def handle(state: Compacting, ctx: Context) -> CompactingStep:  # noqa: PLR0911  # one return for each kind of event
    """What *ctx*'s event does while the context is being shrunk."""
    event, stage = ctx.event, state.stage
    match stage, event:
        # As in `streaming`: pieces that repeat or skip some are of a stream that was taken up again.
        case Summary(), events.ModelStreamed() if (
            event.request == stage.request and event.before == stage.pieces.count and event.fits
        ):
            gathered = attrs.evolve(stage, pieces=stage.pieces.extend(event.pieces, event.count))
            return attrs.evolve(state, stage=gathered), ()
        case stages.Weigh(), events.Entered():
            return _weigh(state, ctx)
        case Summary(), ModelFinished() | ModelFailed() if event.request == stage.request:
            return _answered(state, stage, event, ctx)
        case stages.Consulting(), events.HookAnswered() if event.request == stage.request:
            return _heard(state, stage.cut, event, ctx)
        case Summary(), events.Interrupted():
            return _interrupted(state, stage, ctx)
        case stages.Pausing(), events.TimerFired() if event.request == stage.request:
            return _summarise(state, stage.plan, Draft(ctx), ctx)
        # A steer waits for a summary that is being written, since it can only be read after it. It does not
        # wait for a pause between two tries.
        case stages.Pausing(), events.UserSteered(how=Steering.NOW):
            draft = Draft(ctx)
            draft.add(Cancel(request=stage.request), notices.InputReceived(id=event.id, at=draft.at))
            return _summarise(state, stage.plan, draft, ctx)
        case stages.Consulting() | stages.Pausing(), events.Interrupted():
            draft = Draft(ctx)
            draft.add(Cancel(request=stage.request), notices.InterruptRequested(at=draft.at))
            return draft.to(Thinking(stage=End(reason=DoneReason.INTERRUPTED)))
        case _:
            return state, received(state, ctx)


def _weigh(state: Compacting, ctx: Context) -> CompactingStep:
    """Decide whether a summary is worth asking for, and where the cut goes."""
    config, memory = ctx.config, ctx.memory
    draft = Draft(ctx)
    if reason := may_not_go_on(config, memory.spent, memory.earlier):
        # A summary is a model call too, and nothing could follow it.
        return draft.to(Thinking(stage=End(reason=reason, detail=ctx.limit_detail(reason))))
    if state.reason is CompactReason.MAX_TOKENS and not _worth_it(ctx):
        return draft.to(Thinking(stage=End(reason=DoneReason.MAX_TOKENS)))
    if state.reason is CompactReason.OVERFLOW and memory.progress.compactions >= TRIES_OF_LARGE:
        # A conversation that was refused for its size may need a second, tighter one. For the other reasons
        # none is begun behind a summary that did not help.
        return _failed(state, "a summary was tried just before", draft, ctx, asked=False)
    window = ctx.model.window
    if state.reason is CompactReason.OVERFLOW:
        window = min(window, memory.conversation.size)  # it is smaller than it was taken for
    cut = ctx.cut(window)
    if cut == 0:
        return _failed(state, "there is nothing old enough to summarise", draft, ctx, asked=False)
    plan = _plan(cut, (), ctx)
    if short := _short(plan, ctx):
        return _unpaid(state, plan, short, draft, ctx)
    return _consult(state, plan, draft, ctx)


def _consult(state: Compacting, plan: Plan, draft: Draft, ctx: Context) -> CompactingStep:
    # Hooks are asked last, when all else speaks for a summary: they are told what is going to happen, and
    # not what might.
    names = hooks_at(Hook.PRE_COMPACT, ctx)
    if not names:
        return _summarise(state, plan, draft, ctx)
    request = ask_hooks(
        Hook.PRE_COMPACT, names, told(reason=state.reason, size=ctx.memory.conversation.size), draft
    )
    return draft.to(attrs.evolve(state, stage=stages.Consulting(request=request, cut=plan.cut)))


def _heard(state: Compacting, cut: int, event: events.HookAnswered, ctx: Context) -> CompactingStep:
    """The hooks answered: what they add is for the summary; one may be against it, or end the run."""
    draft = Draft(ctx)
    said = heard(event.said, ctx.config)
    draft.add(notices.HookEnded(request=event.request, hook=Hook.PRE_COMPACT, said=event.said, at=draft.at))
    if said.interrupt:
        draft.add(notices.InterruptRequested(at=draft.at))
        return draft.to(Thinking(stage=End(reason=DoneReason.INTERRUPTED, detail=said.because)))
    if said.verdict is Verdict.DENY:
        return _failed(state, f"a hook denied it: {said.because}", draft, ctx, asked=False)
    plan = _plan(cut, said.context, ctx)
    # While the hooks were asked, a person may have chosen a dearer model, or another process come.
    if short := _short(plan, ctx):
        return _unpaid(state, plan, short, draft, ctx)
    return _summarise(state, plan, draft, ctx)


def _plan(cut: int, wishes: tuple[str, ...], ctx: Context) -> Plan:
    """How the messages before index *cut* are summarised, with the *wishes* of hooks."""
    answer = ctx.config.compaction.tokens
    return Plan(cut=cut, wishes=wishes, limit=compaction.transcript_limit(_summariser(ctx).window, answer))


def _summariser(ctx: Context) -> ModelSpec:
    """Who summarises: the model that is configured for it, or the one in use."""
    name = ctx.config.compaction.model
    return ctx.config.spec(name) if name else ctx.model


def _short(plan: Plan, ctx: Context) -> DoneReason | None:
    """The budget that cannot pay all of the summary that *plan* describes, since half of one is of no use."""
    most = ctx.config.compaction.tokens
    answer = ctx.affordable(_summariser(ctx), _to_read(plan, ctx), most, most)
    return answer if isinstance(answer, DoneReason) else None


def _unpaid(state: Compacting, plan: Plan, short: DoneReason, draft: Draft, ctx: Context) -> CompactingStep:
    if state.reason is CompactReason.THRESHOLD:
        # There is room to answer without it, and for that the budget may do.
        return _failed(state, "the budget does not pay for one", draft, ctx, asked=plan.attempt > 1)
    return draft.to(Thinking(stage=End(reason=short, detail=ctx.limit_detail(short))))


def _summarise(state: Compacting, plan: Plan, draft: Draft, ctx: Context) -> CompactingStep:
    """Ask for the summary that *plan* describes."""
    memory, spec = ctx.memory, _summariser(ctx)
    model = spec.name
    request = draft.new_id()
    # Only the first try is news: a watcher learns of a retry from `RetryScheduled`.
    if plan.attempt == 1:
        draft.add(notices.CompactionStarted(size=memory.conversation.size, reason=state.reason, at=draft.at))
    draft.add(
        CallModel(
            id=request,
            model=model,
            # As one text and not as messages: a model that is shown a conversation goes on with it.
            view=Transcript(revision=memory.history.revision, length=plan.cut, limit=plan.limit),
            purpose=Purpose.SUMMARY,
            max_output=ctx.config.compaction.tokens,
            instructions="\n".join([compaction.SUMMARY_INSTRUCTIONS, *plan.wishes]),
            attempt=plan.attempt,
        ),
        notices.ModelCalled(
            at=draft.at,
            request=request,
            model=model,
            attempt=plan.attempt,
            purpose=Purpose.SUMMARY,
            max_output=ctx.config.compaction.tokens,
            temperature=spec.temperature,
            top_p=spec.top_p,
            seed=spec.seed,
        ),
    )
    return draft.to(attrs.evolve(state, stage=Summary(request=request, model=model, plan=plan)))


def _worth_it(ctx: Context) -> bool:
    """Whether a cut-off answer is followed by a compaction, by policy and size."""
    policy = ctx.config.policy
    match policy.on_max_tokens:
        case OnMaxTokens.COMPACT:
            return True
        case OnMaxTokens.STOP:
            return False
        case OnMaxTokens.COMPACT_OVER_THRESHOLD:
            return compaction.due(ctx.memory.conversation.size, ctx.model.window, policy.compact_at)


# What says nothing of the summary: its process is gone, or had not asked.
UNHEARD = frozenset({Failure.LOST, Failure.UNBEGUN})


def _answered(
    state: Compacting, stage: Summary, event: ModelFinished | ModelFailed, ctx: Context
) -> CompactingStep:
    """
    The summary came, or did not. Whatever it cost is in the account; a summary is no turn.
    """
    draft = Draft(ctx)
    # The account first, whatever follows: an answer that is of no use was paid for, too.
    last = event.pieces if isinstance(event, ModelFinished) else ()
    pieces = stage.pieces.extend(last, len(last)).pieces
    begun = isinstance(event, ModelFinished) or event.failure is Failure.LOST or bool(pieces)
    used = usage_of(event.usage, _to_read(stage.plan, ctx), pieces, begun=begun)
    spent = ctx.spent_on(stage.model, used, event.seconds)
    draft.add(AddUsage(spent=spent))
    draft.add(answer_failed(event, spent) if isinstance(event, ModelFailed) else _ended(event, spent))
    if state.stopping:
        return draft.to(Thinking(stage=End(reason=DoneReason.INTERRUPTED)))
    # Neither is a failure of the summary. Weighed again, since the process that goes on may have another
    # configuration.
    if isinstance(event, ModelFailed) and event.failure in UNHEARD and event.should_retry is not False:
        return draft.to(attrs.evolve(state, stage=stages.Weigh()))
    if isinstance(event, ModelFinished) and event.stop not in WHOLE_SUMMARY:
        return _failed(state, f"the summary ended with {event.stop}", draft, ctx)
    if isinstance(event, ModelFailed):
        return _refused(state, stage, event, draft, ctx)
    text = "".join([piece.text for piece in pieces if isinstance(piece, TextPiece)])
    cut = stage.plan.cut if event.covers is None else event.covers
    if not compaction.may_cut(ctx.memory.history, cut):
        return _failed(state, f"the summary was for {cut} messages, which cannot be cut off", draft, ctx)
    return _summarised(state, cut, text, draft, ctx)


def _ended(event: ModelFinished, spent: Spent) -> notices.SummaryEnded:
    return notices.SummaryEnded(
        at=event.at,
        request=event.request,
        usage=spent.usage,
        cost=spent.known_cost,
        seconds=spent.seconds,
        stop=event.stop,
        model=event.model,
        response=event.response,
        first_piece=event.first_piece,
        sequence=event.sequence,
    )


def _refused(
    state: Compacting, stage: Summary, event: ModelFailed, draft: Draft, ctx: Context
) -> CompactingStep:
    """Ask for the summary again, later or with less to read, where that may help."""
    # What this try cost is not there any more to pay for the next.
    ctx = attrs.evolve(ctx, memory=ctx.memory.record(draft.effects))
    plan = stage.plan
    again = attrs.evolve(plan, attempt=plan.attempt + 1)
    if (event.max_output or event.failure is Failure.OVERFLOW) and plan.attempt < SMALLER_TRIES:
        # The summariser's window is smaller than it is configured to be. Half of what it could not read is
        # found sooner than the right number.
        less = min(plan.limit, _to_read(plan, ctx)) // 2
        again = attrs.evolve(again, limit=less)
        if short := _short(again, ctx):
            return _unpaid(state, again, short, draft, ctx)
        return _summarise(state, again, draft, ctx)
    delay = retry_delay(ctx.config.retries, event, plan.attempt)
    # A model that is configured for summaries is not replaced: it was chosen for a reason, and the run's own
    # model can go on without a summary.
    own = not ctx.config.compaction.model and not ctx.memory.progress.fallback
    if own and may_fall_back(ctx.config, stage.model, event, delay):
        draft.add(*fall_back(ctx.config, stage.model, event))
        return draft.to(attrs.evolve(state, stage=stages.Weigh()))
    # Nothing forces a summary at the threshold, so it is not waited for as an answer would be.
    forced = state.reason is not CompactReason.THRESHOLD
    if delay is None or (not forced and delay > ctx.config.retries.fallback_after):
        return _failed(state, f"{event.failure}: {event.message}", draft, ctx)
    if short := _short(again, ctx):
        return _unpaid(state, again, short, draft, ctx)
    timer, due = draft.new_id(), ctx.now + delay
    draft.add(*try_later(timer, due, event, again.attempt))
    return draft.to(attrs.evolve(state, stage=stages.Pausing(request=timer, due=due, plan=again)))


def _to_read(plan: Plan, ctx: Context) -> int:
    """How many tokens the summariser has to read, as estimated."""
    return min(plan.limit, history_size(ctx.memory.history.slice(0, plan.cut)))


def _summarised(state: Compacting, cut: int, text: str, draft: Draft, ctx: Context) -> CompactingStep:
    """Put the summary in the place of the first *cut* messages, if that makes the context smaller."""
    # Only the part that was cut is compared, as it was shown: the rest stays as it is. Without this a
    # talkative summary could make things worse at each attempt.
    memory = ctx.memory
    history, cleared = memory.history, memory.conversation.cleared
    cut_off, before = history.slice(0, cut), memory.conversation.standing
    # A history that was shortened begins with a summary, which a model wrote.
    said = history.slice(1 if history.revision else 0, cut)
    stands = standing(text, said, before, _standing_room(ctx))
    summary = compaction.summary_message(stands.summary, stands.lines, ctx.now)
    old = history_size(cut_off) - saved(history, 0, min(cut, cleared))
    if not text.strip():
        return _failed(state, "the summary was empty", draft, ctx)
    if message_size(summary) >= old:
        return _failed(state, "the summary was not smaller than what it was to replace", draft, ctx)
    shown = history_size(history) - saved(history, 0, cleared)
    # A model that goes in circles would otherwise begin anew with each summary.
    kept = loops.remembered(cut_off, ctx.config.loops, memory.progress.summarised)
    if stands.left_out:
        draft.add(
            notices.Warned(text=model_messages.not_carried(stands.left_out, _standing_room(ctx)), at=draft.at)
        )
    draft.add(
        ReplaceHistory(head=(summary,), keep=cut, summarised=kept, standing=stands.lines),
        # One success ends the row of failures, and still counts as a try until a turn is completed.
        CountCompaction(attempts=memory.progress.compactions + 1, failures=0),
        notices.Compacted(before=shown, after=shown - old + message_size(summary), at=draft.at),
    )
    if state.reason is CompactReason.MAX_TOKENS:
        # The history ends with what the model got out; it goes on when it is asked to. The rest of an output
        # would be no output.
        go_on = model_messages.CONTINUE if ctx.config.output is None else model_messages.CONTINUE_TO_OUTPUT
        draft.add(AppendMessage(message=user(go_on, ctx.now)))
    return draft.to(Thinking(stage=Go()))


def _standing_room(ctx: Context) -> int:
    """Characters that people's own words may have in the context, however small its window is."""
    return min(
        ctx.config.compaction.standing, int(compaction.WORTH * ctx.model.window * CHARACTERS_PER_TOKEN)
    )


def _failed(state: Compacting, why: str, draft: Draft, ctx: Context, *, asked: bool = True) -> CompactingStep:
    """The context stays as it is, and the run goes on where it can."""
    # Counted, so that the same failure is not paid for again and again. Where no summary was *asked* for,
    # none has failed: another time it may be worth one.
    attempts = ctx.memory.progress.compactions + 1
    failures = ctx.memory.session.compaction_failures + asked
    draft.add(
        notices.CompactionFailed(reason=why, at=draft.at),
        CountCompaction(attempts=attempts, failures=failures),
    )
    match state.reason:
        case CompactReason.THRESHOLD:
            return draft.to(Thinking(stage=Go()))
        case CompactReason.MAX_TOKENS:
            # The history ends with a cut-off answer. To ask again with as little room would cut the next one.
            return draft.to(Thinking(stage=End(reason=DoneReason.MAX_TOKENS, detail=why)))
        case CompactReason.OVERFLOW:
            said = f" ({state.detail})" if state.detail else ""
            detail = f"the conversation is larger than the model's window, and {why}{said}"
            return draft.to(Thinking(stage=End(reason=DoneReason.ERROR, detail=detail)))


def _interrupted(state: Compacting, stage: Summary, ctx: Context) -> CompactingStep:
    """Cancel the summary and wait for its end, which tells what was used; asked twice, do not wait."""
    draft = Draft(ctx)
    if state.stopping:
        pieces = stage.pieces.pieces
        used = usage_of(None, _to_read(stage.plan, ctx), pieces, begun=bool(pieces))
        spent = ctx.spent_on(stage.model, used, 0.0)
        gone = not_waited_for(stage.request, draft.at)
        draft.add(AddUsage(spent=spent), answer_failed(gone, spent))
        return draft.to(Thinking(stage=End(reason=DoneReason.INTERRUPTED)))
    draft.add(Cancel(request=stage.request), notices.InterruptRequested(at=draft.at))
    return draft.to(attrs.evolve(state, stopping=Stopping.INTERRUPTED))
