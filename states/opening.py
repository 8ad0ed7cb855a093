"""How a run begins: the session's instructions and hooks, once; then what is said, if it may come in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..effects.hooks import Hook
from ..effects.messages import Finish, Role, StopReason, user
from ..effects.notices import DoneReason, InputBlocked, InputTaken, InterruptRequested, RunStarted, Warned
from ..effects.permissions import Verdict
from ..effects.records import AppendMessage, Lane, SetInstructions, TakeMail
from ..effects.requests import ReadInstructions
from .draft import Draft
from .hooking import ask_hooks, heard
from .rules import texts
from .rules.hooks import asked_at, told
from .rules.inputs import messages, next_prompt
from .state import Admitting, End, Go, Opening, Prompt, Reading, Thinking

if TYPE_CHECKING:
    from ..effects import Effect
    from ..effects.events import HookAnswered, InstructionsRead
    from .context import Context, Memory

Step = tuple[Thinking, tuple["Effect", ...]]


# The session, once


def began(ctx: Context) -> Step:
    """The run says what it works with; the first of a session reads its instructions and asks its hooks."""
    draft, config, memory = Draft(ctx), ctx.config, ctx.memory
    draft.add(
        RunStarted(
            run=memory.run,
            model=memory.model,
            tools=tuple([tool.name for tool in config.tools]),
            at=ctx.now,
            mode=memory.mode,
            cwd=config.cwd,
        )
    )
    if isinstance(memory.instructions, SetInstructions):
        return draft.to(Thinking(stage=Prompt()))
    if not config.instructions:
        return _greet("", draft, ctx)
    request = draft.new_id()
    draft.add(ReadInstructions(id=request, files=config.instructions))
    return draft.to(Thinking(stage=Reading(request=request)))


def opened(event: InstructionsRead, ctx: Context) -> Step:
    """The instructions are read; they hold for the whole session, whatever becomes of the files."""
    draft = Draft(ctx)
    draft.add(*[Warned(text=fault) for fault in event.faults])
    return _greet(event.text, draft, ctx)


def _greet(instructions: str, draft: Draft, ctx: Context) -> Step:
    names = asked_at(ctx.config, Hook.SESSION_START)
    if not names:
        draft.add(SetInstructions(text=instructions))
        return draft.to(Thinking(stage=Prompt()))
    request = ask_hooks(Hook.SESSION_START, names, told(source=source_of(ctx.memory)), draft)
    return draft.to(Thinking(stage=Opening(request=request, instructions=instructions)))


def source_of(memory: Memory) -> str:
    """What a session's hooks are told it begins with: nothing, or a conversation from elsewhere."""
    return "resume" if len(memory.history) else "startup"


def greeted(stage: Opening, event: HookAnswered, ctx: Context) -> Step:
    """The session's hooks answered: it begins, or its first prompt does not come in."""
    draft = Draft(ctx)
    said = heard(Hook.SESSION_START, event, draft)
    if said.verdict is not Verdict.DENY:
        # Only now has the session begun: one that was refused asks again.
        draft.add(SetInstructions(text=stage.instructions))
        return draft.to(Thinking(stage=Prompt()))
    blocked(stage, said.because, draft, ctx)
    return draft.to(Thinking(stage=End(reason=DoneReason.BLOCKED, detail=said.because)))


# What is said


def admit(ids: tuple[str, ...], state: Thinking, ctx: Context) -> Step:
    """The inputs *ids* become messages, where no hook is to be asked first."""
    draft = Draft(ctx)
    names = asked_at(ctx.config, Hook.USER_PROMPT_SUBMIT) if ids else ()
    if not names:
        return _let_in(ids, state, draft, ctx)
    prompts = [mail.text for mail in ctx.memory.mail if mail.id in ids]
    request = ask_hooks(Hook.USER_PROMPT_SUBMIT, names, told(prompts=prompts), draft)
    return draft.to(Thinking(stage=Admitting(request=request, ids=ids), attempt=state.attempt))


def admitted(state: Thinking, stage: Admitting, event: HookAnswered, ctx: Context) -> Step:
    """
    The hooks let the inputs in, or not.

    Without its prompt a run has nothing to do, nor has one that would begin a conversation with nothing said;
    without what was said on the way it goes on.
    """
    draft = Draft(ctx)
    said = heard(Hook.USER_PROMPT_SUBMIT, event, draft)
    if said.verdict is not Verdict.DENY:
        return _let_in(stage.ids, state, draft, ctx)
    blocked(stage, said.because, draft, ctx)
    prompted = any(mail.lane is Lane.PROMPT for mail in ctx.memory.mail if mail.id in stage.ids)
    if prompted or not ctx.memory.history:
        return draft.to(Thinking(stage=End(reason=DoneReason.BLOCKED, detail=said.because)))
    if said.interrupt:
        draft.add(InterruptRequested())
        return draft.to(Thinking(stage=End(reason=DoneReason.INTERRUPTED, detail=said.because)))
    return _without(state, draft, ctx)


def _without(state: Thinking, draft: Draft, ctx: Context) -> Step:
    """Go on without what was said on the way: there may be nothing left to answer, or an answer was cut."""
    last = ctx.memory.history[-1]
    finish = last.parts[-1] if last.role is Role.ASSISTANT else None
    if isinstance(finish, Finish):
        if finish.reason is not StopReason.INTERRUPTED:
            stopped = finish.reason is StopReason.STOP_SEQUENCE
            reason = DoneReason.STOP_SEQUENCE if stopped else DoneReason.END_TURN
            return draft.to(Thinking(stage=End(reason=reason)))
        draft.add(AppendMessage(message=user(texts.CONTINUE, ctx.now)))
    return draft.to(Thinking(stage=Go(), attempt=state.attempt))


def _let_in(ids: tuple[str, ...], state: Thinking, draft: Draft, ctx: Context) -> Step:
    if ids:
        made = messages(ctx.memory.mail, ids)
        draft.add(*[AppendMessage(message=message) for message in made])
        draft.add(TakeMail(ids=ids), InputTaken(ids=ids, messages=made))
    return draft.to(Thinking(stage=Go(), attempt=state.attempt))


def blocked(stage: Reading | Opening | Admitting, why: str, draft: Draft, ctx: Context) -> None:
    """What this run was to begin with does not come in, and waits no longer."""
    if isinstance(stage, Admitting):
        ids = stage.ids
    else:
        ids = next_prompt(ctx.memory.mail, ctx.config.policy.coalesce)
    draft.add(TakeMail(ids=ids), InputBlocked(ids=ids, reason=why))
