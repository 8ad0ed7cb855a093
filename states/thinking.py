"""Thinking: between model calls."""

# A turn's request leaves from `Go` and from nowhere else: a timer, a person or a finished batch only leads
# back there, so limits, steers and compaction are never bypassed. A run ends through `End` and through
# nothing else, so what it reports is all it used; only a hook's answer may stand between `End` and the end.

from __future__ import annotations

from typing import TYPE_CHECKING

from ..effects.config import Steering
from ..effects.events import Entered, HookAnswered, InstructionsRead, Interrupted, TimerFired, UserSteered
from ..effects.hooks import Hook
from ..effects.messages import Finish, Role, StopReason, user
from ..effects.notices import (
    DoneReason,
    InputBlocked,
    InputReceived,
    InputTaken,
    InterruptRequested,
    LoopDetected,
    LoopStage,
    ModelCalled,
    ResultsCleared,
    RunEnded,
    RunStarted,
    Warned,
)
from ..effects.permissions import Verdict
from ..effects.records import (
    AppendMessage,
    ClearResults,
    CountContinue,
    MailKind,
    SetInstructions,
    TakeMail,
    WithdrawTool,
)
from ..effects.requests import CallModel, Cancel, Conversation, ReadInstructions
from .builder import Draft, ask_hooks, ignore, received, record_answers
from .rules import compaction, loops, model_messages
from .rules.hooks import asked_at, told
from .rules.inputs import messages, next_prompt
from .rules.limits import may_not_go_on
from .rules.token_estimates import saved
from .state import (
    Admitting,
    Compacting,
    CompactReason,
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
    from .context import Context, Memory

# How a run begins: the session's instructions and hooks, once; then what is said, if it may come in.


AdmissionStep = tuple[Thinking, tuple["Effect", ...]]


# The session, once


def began(ctx: Context) -> AdmissionStep:
    """The run says what it works with; the first of a session reads its instructions and asks its hooks."""
    draft, config, memory = Draft(ctx), ctx.config, ctx.memory
    draft.add(
        RunStarted(
            run=memory.run,
            model=memory.session.model,
            tools=tuple([tool.name for tool in config.tools]),
            at=ctx.now,
            mode=memory.session.mode,
            cwd=config.cwd,
        )
    )
    if isinstance(memory.session.instructions, SetInstructions):
        return draft.to(Thinking(stage=Prompt()))
    if not config.instructions:
        return _greet("", draft, ctx)
    request = draft.new_id()
    draft.add(ReadInstructions(id=request, files=config.instructions))
    return draft.to(Thinking(stage=Reading(request=request)))


def opened(event: InstructionsRead, ctx: Context) -> AdmissionStep:
    """The instructions are read; they hold for the whole session, whatever becomes of the files."""
    draft = Draft(ctx)
    draft.add(*[Warned(text=fault) for fault in event.faults])
    return _greet(event.text, draft, ctx)


def _greet(instructions: str, draft: Draft, ctx: Context) -> AdmissionStep:
    names = asked_at(ctx.config, Hook.SESSION_START)
    if not names:
        draft.add(SetInstructions(text=instructions))
        return draft.to(Thinking(stage=Prompt()))
    request = ask_hooks(Hook.SESSION_START, names, told(source=source_of(ctx.memory)), draft)
    return draft.to(Thinking(stage=Opening(request=request, instructions=instructions)))


def source_of(memory: Memory) -> str:
    """What a session's hooks are told it begins with: nothing, or a conversation from elsewhere."""
    return "resume" if len(memory.history) else "startup"


def greeted(stage: Opening, event: HookAnswered, ctx: Context) -> AdmissionStep:
    """The session's hooks answered: it begins, or its first prompt does not come in."""
    draft = Draft(ctx)
    said = record_answers(Hook.SESSION_START, event, draft)
    if said.verdict is not Verdict.DENY:
        # Only now has the session begun: one that was refused asks again.
        draft.add(SetInstructions(text=stage.instructions))
        return draft.to(Thinking(stage=Prompt()))
    blocked(stage, said.because, draft, ctx)
    return draft.to(Thinking(stage=End(reason=DoneReason.BLOCKED, detail=said.because)))


# What is said


def admit(ids: tuple[str, ...], state: Thinking, ctx: Context) -> AdmissionStep:
    """The inputs *ids* become messages, where no hook is to be asked first."""
    draft = Draft(ctx)
    names = asked_at(ctx.config, Hook.USER_PROMPT_SUBMIT) if ids else ()
    if not names:
        return _let_in(ids, state, draft, ctx)
    prompts = [mail.text for mail in ctx.memory.session.mail if mail.id in ids]
    request = ask_hooks(Hook.USER_PROMPT_SUBMIT, names, told(prompts=prompts), draft)
    return draft.to(Thinking(stage=Admitting(request=request, ids=ids), attempt=state.attempt))


def admitted(state: Thinking, stage: Admitting, event: HookAnswered, ctx: Context) -> AdmissionStep:
    """The hooks let the inputs in, or not."""
    # Without its prompt a run has nothing to do, nor has one that would begin a conversation with nothing
    # said; without what was said on the way it goes on.
    draft = Draft(ctx)
    said = record_answers(Hook.USER_PROMPT_SUBMIT, event, draft)
    if said.verdict is not Verdict.DENY:
        return _let_in(stage.ids, state, draft, ctx)
    blocked(stage, said.because, draft, ctx)
    prompted = any(mail.lane is MailKind.PROMPT for mail in ctx.memory.session.mail if mail.id in stage.ids)
    if prompted or not ctx.memory.history:
        return draft.to(Thinking(stage=End(reason=DoneReason.BLOCKED, detail=said.because)))
    if said.interrupt:
        draft.add(InterruptRequested())
        return draft.to(Thinking(stage=End(reason=DoneReason.INTERRUPTED, detail=said.because)))
    return _without(state, draft, ctx)


def _without(state: Thinking, draft: Draft, ctx: Context) -> AdmissionStep:
    """Go on without what was said on the way: there may be nothing left to answer, or an answer was cut."""
    last = ctx.memory.history[-1]
    finish = last.parts[-1] if last.role is Role.ASSISTANT else None
    if isinstance(finish, Finish):
        if finish.reason is not StopReason.INTERRUPTED:
            stopped = finish.reason is StopReason.STOP_SEQUENCE
            reason = DoneReason.STOP_SEQUENCE if stopped else DoneReason.END_TURN
            return draft.to(Thinking(stage=End(reason=reason)))
        draft.add(AppendMessage(message=user(model_messages.CONTINUE, ctx.now)))
    return draft.to(Thinking(stage=Go(), attempt=state.attempt))


def _let_in(ids: tuple[str, ...], state: Thinking, draft: Draft, ctx: Context) -> AdmissionStep:
    if ids:
        made = messages(ctx.memory.session.mail, ids)
        draft.add(*[AppendMessage(message=message) for message in made])
        draft.add(TakeMail(ids=ids), InputTaken(ids=ids, messages=made))
    return draft.to(Thinking(stage=Go(), attempt=state.attempt))


def blocked(stage: Reading | Opening | Admitting, why: str, draft: Draft, ctx: Context) -> None:
    """What this run was to begin with does not come in, and waits no longer."""
    if isinstance(stage, Admitting):
        ids = stage.ids
    else:
        ids = next_prompt(ctx.memory.session.mail, ctx.config.policy.coalesce)
    draft.add(TakeMail(ids=ids), InputBlocked(ids=ids, reason=why))


# Going: the one place from which a turn's request leaves.


CallStep = tuple[Thinking | Streaming | Compacting, tuple["Effect", ...]]


def go(state: Thinking, ctx: Context) -> CallStep:
    """Call the model, unless something stands against it."""
    config, memory, draft = ctx.config, ctx.memory, Draft(ctx)
    if reason := may_not_go_on(config, memory.spent, memory.earlier):
        return draft.to(Thinking(stage=End(reason=reason)))
    if memory.session.mail and memory.waiting(MailKind.STEER):
        return draft.to(Thinking(stage=Steer(), attempt=state.attempt))
    before = compaction.before(
        config.compaction, memory.history, memory.conversation.cleared, memory.conversation.results
    )
    if before is not None:
        return _clear(before, state, ctx)
    loop = loops.found(memory.history, config, memory.progress.withdrawn, memory.spent.turns)
    if loop is not None and loop.acts:
        return _looped(loop, state, ctx)
    if _too_long(ctx):
        return draft.to(Compacting(reason=CompactReason.THRESHOLD))
    return _call(state, loop, ctx)


def _too_long(ctx: Context) -> bool:
    """Whether the conversation is to be shortened, and has something old that can be."""
    config, memory, window = ctx.config, ctx.memory, ctx.model.window
    if not compaction.wanted(
        memory.conversation.size,
        window,
        config,
        memory.progress.compactions,
        memory.session.compaction_failures,
    ):
        return False
    return compaction.worth_it(memory.history, ctx.cut(window), window)


def _clear(before: int, state: Thinking, ctx: Context) -> CallStep:
    """From now on leave out old results, those in the messages before index *before*."""
    draft, memory = Draft(ctx), ctx.memory
    count = compaction.count(memory.history, memory.conversation.cleared, before)
    if count:
        draft.add(
            ResultsCleared(count=count, tokens=saved(memory.history, memory.conversation.cleared, before))
        )
    draft.add(ClearResults(before=before))
    return draft.to(Thinking(stage=Go(), attempt=state.attempt))


def _looped(loop: loops.Loop, state: Thinking, ctx: Context) -> CallStep:
    """The model was warned before; now its tools are taken away for a while, or the run ends."""
    draft = Draft(ctx)
    draft.add(_told(loop))
    if loop.stage is LoopStage.STOPPED:
        return draft.to(Thinking(stage=End(reason=DoneReason.LOOP_DETECTED, detail=loop.text)))
    until = ctx.memory.spent.turns + ctx.config.loops.turns
    draft.add(*[WithdrawTool(tool=tool, until=until, count=loop.count) for tool in loop.tools])
    return draft.to(Thinking(stage=Go(), attempt=state.attempt))


def _told(loop: loops.Loop) -> LoopDetected:
    return LoopDetected(stage=loop.stage, tools=loop.tools, count=loop.count, text=loop.text)


def _call(state: Thinking, loop: loops.Loop | None, ctx: Context) -> CallStep:
    """Ask the model, which reads what is to be said of a *loop* behind what hooks have to say."""
    # Whoever watches is told of it once, and not again with each try. The request names a revision and a
    # length of the history instead of carrying it, so a turn costs the same however long it is.
    memory, model, draft = ctx.memory, ctx.model.name, Draft(ctx)
    history, said = memory.history, memory.conversation.pending_context
    if loop is not None:
        if not loop.done and state.attempt == 1:
            draft.add(_told(loop))
        said = (*said, loop.text)
    offered = tuple([tool.name for tool in ctx.config.tools])
    if memory.progress.withdrawn:
        away = loops.away(memory.progress.withdrawn, memory.spent.turns)
        offered = tuple([tool for tool in offered if tool not in away])
    request = draft.new_id()
    draft.add(
        CallModel(
            id=request,
            model=model,
            view=Conversation(
                revision=history.revision, length=history.length, cleared=memory.conversation.cleared
            ),
            system=ctx.system,
            thinking=ctx.thinking,
            tools=offered,
            instructions="\n".join(said),
            attempt=state.attempt,
        ),
        ModelCalled(request=request, model=model, attempt=state.attempt),
    )
    return draft.to(Streaming(request=request, model=model, attempt=state.attempt, offered=offered))


ThinkingStep = tuple[Thinking | Streaming | Compacting | Done, tuple["Effect", ...]]

# Ends that nothing forces: a steer that came before them, or a hook, makes the run go on.
NATURAL_ENDS = frozenset({DoneReason.END_TURN, DoneReason.STOP_SEQUENCE})


def handle(state: Thinking, ctx: Context) -> ThinkingStep:
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


def _entered(state: Thinking, ctx: Context) -> ThinkingStep:
    match state.stage:
        case Start():
            return began(ctx)
        case Prompt():
            return admit(next_prompt(ctx.memory.session.mail, ctx.config.policy.coalesce), state, ctx)
        case Steer():
            return admit(tuple([mail.id for mail in ctx.memory.waiting(MailKind.STEER)]), state, ctx)
        case Go():
            return go(state, ctx)
        case End():
            return _end(state.stage, ctx)
        case Reading() | Opening() | Admitting() | Retry() | Ending():
            return state, ignore(state, ctx)


def _answered(state: Thinking, stage: Waiting, ctx: Context) -> ThinkingStep:
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


def _interrupted(stage: Waiting, ctx: Context) -> ThinkingStep:
    """What was waited for is given up; a prompt that had not come in yet never will."""
    draft = Draft(ctx)
    draft.add(Cancel(request=stage.request), InterruptRequested())
    if isinstance(stage, Reading | Opening | Admitting):
        blocked(stage, model_messages.INTERRUPTED_BEFORE, draft, ctx)
    return draft.to(Thinking(stage=End(reason=DoneReason.INTERRUPTED)))


# The run ends


def _end(stage: End, ctx: Context) -> ThinkingStep:
    """End, unless somebody has said something before a natural end, or hooks are to be asked about it."""
    # Everything the run used is in the memory now, children and cut streams included.
    draft = Draft(ctx)
    if stage.reason not in NATURAL_ENDS:
        return _done(stage.reason, stage.detail, draft, ctx)
    if ctx.memory.waiting(MailKind.STEER):
        return draft.to(Thinking(stage=Go()))
    hook = Hook.SUBAGENT_STOP if ctx.config.agent else Hook.STOP
    names = asked_at(ctx.config, hook)
    if not names:
        return _done(stage.reason, stage.detail, draft, ctx)
    if ctx.memory.progress.continues >= ctx.config.policy.continues:
        draft.add(
            Warned(text=f"hooks made this run go on {ctx.memory.progress.continues} times; it ends now")
        )
        return _done(stage.reason, stage.detail, draft, ctx)
    payload = told(reason=stage.reason, continued=ctx.memory.progress.continues)
    request = ask_hooks(hook, names, payload, draft)
    return draft.to(Thinking(stage=Ending(request=request, reason=stage.reason, detail=stage.detail)))


def _may_end(stage: Ending, event: HookAnswered, ctx: Context) -> ThinkingStep:
    """Go on where a hook wants to or somebody has said something meanwhile, and end otherwise."""
    draft = Draft(ctx)
    said = record_answers(Hook.SUBAGENT_STOP if ctx.config.agent else Hook.STOP, event, draft)
    if said.go_on is not None:
        # The history ends with the model's answer; it goes on when it is told something.
        draft.add(
            AppendMessage(message=user(said.go_on or model_messages.CONTINUE, ctx.now)), CountContinue()
        )
        return draft.to(Thinking(stage=Go()))
    if ctx.memory.waiting(MailKind.STEER):
        return draft.to(Thinking(stage=Go()))
    return _done(stage.reason, stage.detail, draft, ctx)


def _done(reason: DoneReason, detail: str, draft: Draft, ctx: Context) -> ThinkingStep:
    memory = ctx.memory
    draft.add(RunEnded(run=memory.run, reason=reason, spent=memory.spent, at=ctx.now, detail=detail))
    return draft.to(Done(reason=reason, spent=memory.spent, detail=detail))
