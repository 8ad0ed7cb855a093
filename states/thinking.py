"""
Thinking: between model calls.

A turn's request leaves from `Go` and from nowhere else: a timer, a person or a finished batch only leads back
there, so limits, steers and compaction are never bypassed. A run ends through `End` and through nothing else,
so what it reports is all it used; only a hook's answer may stand between `End` and the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..effects.events import (
    Entered,
    HookAnswered,
    InstructionsRead,
    Interrupted,
    TimerFired,
    UserSteered,
)
from ..effects.hooks import Hook
from ..effects.messages import user
from ..effects.notices import (
    DoneReason,
    InputReceived,
    InterruptRequested,
    RunEnded,
    Warned,
)
from ..effects.policy import Steering
from ..effects.records import AppendMessage, CountContinue, Lane
from ..effects.requests import Cancel
from .draft import Draft, ignore
from .going import go
from .hooking import ask_hooks, heard
from .inputs import received
from .opening import admit, admitted, began, blocked, greeted, opened
from .rules import texts
from .rules.hooks import asked_at, told
from .rules.inputs import next_prompt
from .state import (
    Admitting,
    Compacting,
    Done,
    End,
    Ending,
    Go,
    Opening,
    Prompt,
    Reading,
    Retry,
    Start,
    Steer,
    Streaming,
    Thinking,
    Waiting,
)

if TYPE_CHECKING:
    from ..effects import Effect
    from .context import Context

Step = tuple[Thinking | Streaming | Compacting | Done, tuple["Effect", ...]]

NATURAL = frozenset({DoneReason.END_TURN, DoneReason.STOP_SEQUENCE})
"""Ends that nothing forces: a steer that came before them, or a hook, makes the run go on."""


def handle(state: Thinking, ctx: Context) -> Step:
    """What *ctx*'s event does to a thinking agent."""
    event, stage = ctx.event, state.stage
    if isinstance(event, Entered):
        return _entered(state, ctx)
    if isinstance(stage, Waiting):
        if isinstance(event, Interrupted):
            return _interrupted(stage, ctx)
        if isinstance(stage, Retry) and isinstance(event, UserSteered) and event.how is Steering.NOW:
            draft = Draft(ctx)
            draft.add(Cancel(request=stage.request), InputReceived(id=event.id))
            return draft.to(Thinking(stage=Go(), attempt=state.attempt))
        if getattr(event, "request", None) == stage.request:
            return _answered(state, stage, ctx)
    return state, received(state, ctx)


def _entered(state: Thinking, ctx: Context) -> Step:
    match state.stage:
        case Start():
            return began(ctx)
        case Prompt():
            return admit(next_prompt(ctx.memory.mail, ctx.config.policy.coalesce), state, ctx)
        case Steer():
            return admit(tuple([mail.id for mail in ctx.memory.waiting(Lane.STEER)]), state, ctx)
        case Go():
            return go(state, ctx)
        case End():
            return _end(state.stage, ctx)
        case Reading() | Opening() | Admitting() | Retry() | Ending():
            return state, ignore(state, ctx)


def _answered(state: Thinking, stage: Waiting, ctx: Context) -> Step:
    """What the answer to *stage*'s request leads to, if *ctx*'s event is one."""
    match stage, ctx.event:
        case Retry(), TimerFired():
            return Draft(ctx).to(Thinking(stage=Go(), attempt=state.attempt))
        case Reading(), InstructionsRead() as event:
            return opened(event, ctx)
        case Opening(), HookAnswered() as event:
            return greeted(stage, event, ctx)
        case Admitting(), HookAnswered() as event:
            return admitted(state, stage, event, ctx)
        case Ending(), HookAnswered() as event:
            return _may_end(stage, event, ctx)
        case _:
            return state, ignore(state, ctx)


def _interrupted(stage: Waiting, ctx: Context) -> Step:
    """What was waited for is given up; a prompt that had not come in yet never will."""
    draft = Draft(ctx)
    draft.add(Cancel(request=stage.request), InterruptRequested())
    if isinstance(stage, Reading | Opening | Admitting):
        blocked(stage, texts.INTERRUPTED_BEFORE, draft, ctx)
    return draft.to(Thinking(stage=End(reason=DoneReason.INTERRUPTED)))


# The run ends


def _end(stage: End, ctx: Context) -> Step:
    """
    End, unless somebody has said something before a natural end, or hooks are to be asked about it.

    Everything the run used is in the memory now, children and cut streams included.
    """
    draft = Draft(ctx)
    if stage.reason not in NATURAL:
        return _done(stage.reason, stage.detail, draft, ctx)
    if ctx.memory.waiting(Lane.STEER):
        return draft.to(Thinking(stage=Go()))
    hook = Hook.SUBAGENT_STOP if ctx.config.agent else Hook.STOP
    names = asked_at(ctx.config, hook)
    if not names:
        return _done(stage.reason, stage.detail, draft, ctx)
    if ctx.memory.continues >= ctx.config.policy.continues:
        draft.add(Warned(text=f"hooks made this run go on {ctx.memory.continues} times; it ends now"))
        return _done(stage.reason, stage.detail, draft, ctx)
    payload = told(reason=stage.reason, continued=ctx.memory.continues)
    request = ask_hooks(hook, names, payload, draft)
    return draft.to(Thinking(stage=Ending(request=request, reason=stage.reason, detail=stage.detail)))


def _may_end(stage: Ending, event: HookAnswered, ctx: Context) -> Step:
    """Go on where a hook wants to or somebody has said something meanwhile, and end otherwise."""
    draft = Draft(ctx)
    said = heard(Hook.SUBAGENT_STOP if ctx.config.agent else Hook.STOP, event, draft)
    if said.go_on is not None:
        # The history ends with the model's answer; it goes on when it is told something.
        draft.add(AppendMessage(message=user(said.go_on or texts.CONTINUE, ctx.now)), CountContinue())
        return draft.to(Thinking(stage=Go()))
    if ctx.memory.waiting(Lane.STEER):
        return draft.to(Thinking(stage=Go()))
    return _done(stage.reason, stage.detail, draft, ctx)


def _done(reason: DoneReason, detail: str, draft: Draft, ctx: Context) -> Step:
    memory = ctx.memory
    draft.add(RunEnded(run=memory.run, reason=reason, spent=memory.spent, at=ctx.now, detail=detail))
    return draft.to(Done(reason=reason, spent=memory.spent, detail=detail))
