"""
Thinking: between model calls.

A turn's request leaves from `Go` and from nowhere else: a timer, a person or a finished batch only leads back
there, so limits and compaction are never bypassed. A run ends through `End` and through nothing else, so
what it reports is all it used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..effects.events import Entered, Interrupted, TimerFired, UserSent
from ..effects.messages import user
from ..effects.notices import (
    DoneReason,
    InputReceived,
    InterruptRequested,
    ModelCalled,
    RunEnded,
    RunStarted,
)
from ..effects.records import AppendMessage, Lane, TakeMail
from ..effects.requests import CallModel, Cancel, Conversation
from .draft import Draft, ignore
from .rules import compaction
from .rules.limits import exceeded
from .state import (
    Compacting,
    CompactReason,
    Done,
    End,
    Go,
    Hooked,
    Prompt,
    Retry,
    Start,
    Streaming,
    Thinking,
)

if TYPE_CHECKING:
    from ..effects import Effect
    from .context import Context

Step = tuple[Thinking | Streaming | Compacting | Done, tuple["Effect", ...]]


def handle(state: Thinking, ctx: Context) -> Step:
    """What *ctx*'s event does to a thinking agent."""
    match ctx.event:
        case Entered():
            return _entered(state, ctx)
        case TimerFired(request=request) if isinstance(state.stage, Retry) and request == state.stage.request:
            return Draft(ctx).to(Thinking(stage=Go(), attempt=state.attempt))
        case Interrupted() if isinstance(state.stage, Retry):
            draft = Draft(ctx)
            draft.add(Cancel(request=state.stage.request), InterruptRequested())
            return draft.to(Thinking(stage=End(reason=DoneReason.INTERRUPTED)))
        case UserSent(id=sender):
            draft = Draft(ctx)
            draft.add(InputReceived(id=sender))
            return draft.to(state)
        case _:
            return state, ignore(state, ctx)


def _entered(state: Thinking, ctx: Context) -> Step:
    match state.stage:
        case Start():
            return _start(ctx)
        case Prompt():
            return _prompt(ctx)
        case Go():
            return _go(state, ctx)
        case End():
            return _end(state.stage, ctx)
        case Retry() | Hooked():
            return state, ignore(state, ctx)


def _start(ctx: Context) -> Step:
    """The run says what it works with. Hooks of a session's start will be asked here."""
    draft = Draft(ctx)
    memory = ctx.memory
    tools = tuple([tool.name for tool in ctx.config.tools])
    draft.add(RunStarted(run=memory.run, model=memory.model, tools=tools, at=ctx.now))
    return draft.to(Thinking(stage=Prompt()))


def _prompt(ctx: Context) -> Step:
    """
    Every prompt that waits becomes a message, in the order they came.

    Usually it is one; a run that was over before it took its mail leaves it to the next.
    """
    draft = Draft(ctx)
    for mail in ctx.memory.mail:
        if mail.lane is Lane.PROMPT:
            draft.add(AppendMessage(message=user(mail.text, mail.at)))
    draft.add(TakeMail(lane=Lane.PROMPT))
    return draft.to(Thinking(stage=Go()))


def _go(state: Thinking, ctx: Context) -> Step:
    """
    Call the model, unless a limit or the size of the context stands against it.

    Limits come first: what is not paid for any more need not be summarised. The request names a revision
    and a length of the history instead of carrying it, so a turn costs the same however long it is.
    """
    config, memory = ctx.config, ctx.memory
    draft = Draft(ctx)
    if reason := exceeded(config.limits, memory.spent):
        return draft.to(Thinking(stage=End(reason=reason)))
    if compaction.wanted(
        memory.size,
        config.model.window,
        config.policy.compact_at,
        memory.compactions,
        memory.compaction_failures,
    ):
        return draft.to(Compacting(reason=CompactReason.THRESHOLD))
    request = draft.new_id()
    offered = tuple([tool.name for tool in config.tools])
    history = memory.history
    draft.add(
        CallModel(
            id=request,
            model=memory.model,
            view=Conversation(revision=history.revision, length=history.length),
            tools=offered,
            instructions="\n".join(memory.pending_context),
            attempt=state.attempt,
        ),
        ModelCalled(request=request, model=memory.model, attempt=state.attempt),
    )
    return draft.to(Streaming(request=request, attempt=state.attempt, offered=offered))


def _end(stage: End, ctx: Context) -> Step:
    """Say how the run ended. Everything it used is in the memory now, children and cut streams included."""
    draft = Draft(ctx)
    memory = ctx.memory
    draft.add(RunEnded(run=memory.run, reason=stage.reason, spent=memory.spent, detail=stage.detail))
    return draft.to(Done(reason=stage.reason, spent=memory.spent, detail=stage.detail))
