"""Thinking: between model calls. A turn's request leaves from exactly one place, and a run ends in one."""

# Theory of operation.
#
# Every way into a model call goes through the stage `Go`: a timer that fired, a person who could not wait, a
# batch whose last result came and a summary that was written all lead back to it, and only `_call` below
# makes a `CallModel` for a turn. So there is one place where limits are read, where people's words become
# messages before the model is asked again, and where the context is weighed. A second place that asks a
# model would have to repeat all of that, and would forget some of it.
#
# In the same way every end goes through the stage `End`. By then all records of the run are in the memory, so
# the account that it reports is complete: children and answers that were cut off are in it.
#
# In between, hooks may have a say at four places. Each is a stage of its own (`Opening`, `Admitting`,
# `Ending`; `Compacting` has the fourth), so that a process that is lost while they think asks them again.
#
# Where an output was asked for, `output` judges the answer that would end the run, in the stages `Checking`
# and `Decoding`.

from __future__ import annotations

from typing import TypeVar, assert_never

from ..effects import Effect, notices, records
from ..effects.config import (
    AUTO_CHOICE,
    NO_CHOICE,
    REQUIRED_CHOICE,
    Config,
    ModelSpec,
    Steering,
    ToolKind,
)
from ..effects.events import (
    Entered,
    HookAnswered,
    InputWithdrawn,
    InstructionsRead,
    Interrupted,
    OutputDecoded,
    TimerFired,
    UserSteered,
)
from ..effects.hooks import Hook
from ..effects.messages import Finish, Role, StopReason, user
from ..effects.notices import DoneReason
from ..effects.output import OutputMode, OutputSpec
from ..effects.permissions import Verdict
from ..effects.requests import CallModel, Cancel, Conversation, ReadInstructions
from . import state as stages
from .builder import Draft, ask_hooks, dropped, hooks_at, ignore, received, record_answers
from .context import Context, Memory
from .output import checked, decoded, said_all
from .rules import compaction, loops, model_messages
from .rules.hooks import told
from .rules.inputs import messages, next_prompt, prompt_group
from .rules.limits import ROOM_TO_THINK, SMALL_ANSWER, may_not_go_on
from .rules.token_estimates import saved
from .state import Compacting, CompactReason, Done, End, Go, Streaming, Thinking

ThinkingStep = tuple[Thinking | Streaming | Compacting | Done, tuple[Effect, ...]]

RunNotice = TypeVar("RunNotice", notices.RunStarted, notices.RunResumed)

# Ends that nothing forces. Before one of these a steer that came late is still answered, and a hook may make
# the run go on; a limit, an error or an interrupt is not to be talked out of.
NATURAL_ENDS = frozenset({DoneReason.END_TURN, DoneReason.STOP_SEQUENCE, DoneReason.REFUSAL})


def handle(state: Thinking, ctx: Context) -> ThinkingStep:
    """What *ctx*'s event does to a thinking agent."""
    event, stage = ctx.event, state.stage
    if isinstance(event, Entered):
        return _entered(state, ctx)
    if isinstance(event, InputWithdrawn):
        return _withdrawn(state, event.input, ctx)
    if isinstance(stage, stages.Waiting):
        if isinstance(event, Interrupted):
            return _interrupted(stage, ctx)
        if isinstance(stage, stages.Retry) and isinstance(event, UserSteered) and event.how is Steering.NOW:
            # A wait for a provider may be an hour long. A person who says something now has a reason not to
            # sit it out, so it is tried at once; the attempt is still counted.
            draft = Draft(ctx)
            draft.add(Cancel(request=stage.request), notices.InputReceived(id=event.id, at=draft.at))
            return draft.to(Thinking(stage=Go(), attempt=state.attempt))
        # By its id and not by its type: a late answer to a request of an earlier stage is for nothing here.
        if getattr(event, "request", None) == stage.request:
            return _answered(state, stage, ctx)
    return state, received(state, ctx)


def _entered(state: Thinking, ctx: Context) -> ThinkingStep:  # noqa: PLR0911  # one return for each stage
    match state.stage:
        case stages.Start():
            return _begin(ctx)
        case stages.Prompt() as stage:
            return _admit(next_prompt(ctx.memory.session.mail, ctx.config.policy), stage, state, ctx)
        case stages.Steer() as stage:
            ids = tuple([mail.id for mail in ctx.memory.waiting(records.MailKind.STEER)])
            return _admit(ids, stage, state, ctx)
        case Go():
            return _go(state, ctx)
        case stages.Checking():
            return checked(state.stage, ctx)
        case End():
            return _end(state.stage, ctx)
        case stages.Reading() | stages.Opening() | stages.Admitting() | stages.Retry():
            return state, ignore(state, ctx)
        case stages.Decoding() | stages.Ending():
            return state, ignore(state, ctx)
        case _:
            assert_never(state.stage)


def _answered(state: Thinking, stage: stages.Waiting, ctx: Context) -> ThinkingStep:
    """What the answer to *stage*'s request leads to, if *ctx*'s event is one."""
    event = ctx.event
    match stage:
        case stages.Retry():
            if isinstance(event, TimerFired):
                return Draft(ctx).to(Thinking(stage=Go(), attempt=state.attempt))
        case stages.Reading():
            if isinstance(event, InstructionsRead):
                draft = Draft(ctx)
                # A missing file does not stop the run: subscribers are warned, and the other files count.
                draft.add(*[notices.Warned(text=fault, at=draft.at) for fault in event.faults])
                return _greet(event.text, draft, ctx)
        case stages.Decoding():
            if isinstance(event, OutputDecoded):
                return decoded(stage, event, ctx)
        case stages.Opening() | stages.Admitting() | stages.Ending():
            if isinstance(event, HookAnswered):
                return _heard(state, stage, event, ctx)
        case _:
            # A stage without a case here would wait for ever.
            assert_never(stage)
    return state, ignore(state, ctx)


def _heard(
    state: Thinking,
    stage: stages.Opening | stages.Admitting | stages.Ending,
    event: HookAnswered,
    ctx: Context,
) -> ThinkingStep:
    match stage:
        case stages.Opening():
            return _greeted(stage, event, ctx)
        case stages.Admitting():
            return _admitted(state, stage, event, ctx)
        case stages.Ending():
            return _may_end(stage, event, ctx)
        case _:
            assert_never(stage)


def _interrupted(stage: stages.Waiting, ctx: Context) -> ThinkingStep:
    draft = Draft(ctx)
    draft.add(Cancel(request=stage.request), notices.InterruptRequested(at=draft.at))
    if isinstance(stage, UNREAD):
        # A prompt that had not come in yet never will. Left in the mail it would begin the next run, which
        # is the last thing that a person wants who has just said stop.
        block(stage, model_messages.INTERRUPTED_BEFORE, draft, ctx)
    return draft.to(Thinking(stage=End(reason=DoneReason.INTERRUPTED)))


# The session begins, once: instruction files, then hooks.


def started(ctx: Context) -> notices.RunStarted:
    """The notice that a run begins."""
    return _told(notices.RunStarted, ctx.config, ctx.memory, ctx.now)


def resumed(config: Config, memory: Memory, at: float) -> notices.RunResumed:
    """The notice that the run of *memory* goes on under *config*, *at* this time."""
    return _told(notices.RunResumed, config, memory, at)


def _told(kind: type[RunNotice], config: Config, memory: Memory, at: float) -> RunNotice:
    session = memory.session
    return kind(
        at=at,
        run=memory.run,
        session=session.session_id,
        agent=config.agent,
        provider=config.spec(session.model).provider,
        model=session.model,
        tools=tuple([tool.name for tool in config.tools]),
        mode=session.mode,
        cwd=config.cwd,
    )


def _begin(ctx: Context) -> ThinkingStep:
    draft, config, memory = Draft(ctx), ctx.config, ctx.memory
    draft.add(started(ctx))
    if isinstance(memory.session.instructions, records.SetInstructions):
        # An earlier run has begun the session. Files are not read again: a system prompt that changes in the
        # middle of a conversation costs the provider's cache of all that came before.
        return draft.to(Thinking(stage=stages.Prompt()))
    if not config.instructions:
        return _greet("", draft, ctx)
    request = draft.new_id()
    draft.add(ReadInstructions(id=request, files=config.instructions))
    return draft.to(Thinking(stage=stages.Reading(request=request)))


def _greet(instructions: str, draft: Draft, ctx: Context) -> ThinkingStep:
    names = hooks_at(Hook.SESSION_START, ctx)
    if not names:
        # Set even where the text is empty: it also says that the session has begun.
        draft.add(records.SetInstructions(text=instructions))
        return draft.to(Thinking(stage=stages.Prompt()))
    request = ask_hooks(Hook.SESSION_START, names, told(source=source_of(ctx.memory)), draft)
    return draft.to(Thinking(stage=stages.Opening(request=request, instructions=instructions)))


def source_of(memory: Memory) -> str:
    """What a session's hooks are told that it begins with: nothing, or a conversation from elsewhere."""
    return "resume" if len(memory.history) else "startup"


def _greeted(stage: stages.Opening, event: HookAnswered, ctx: Context) -> ThinkingStep:
    draft = Draft(ctx)
    said = record_answers(Hook.SESSION_START, event, ctx, draft)
    if said.verdict is not Verdict.DENY:
        # Setting the instructions marks the session as begun. If a hook refused, the next run asks its hooks
        # for the start of a session again.
        draft.add(records.SetInstructions(text=stage.instructions))
        return draft.to(Thinking(stage=stages.Prompt()))
    block(stage, said.because, draft, ctx)
    return draft.to(Thinking(stage=End(reason=DoneReason.BLOCKED, detail=said.because)))


# Inputs come in: a prompt at the beginning of a run, steers before any later call.


def _admit(ids: tuple[str, ...], source: stages.Intake, state: Thinking, ctx: Context) -> ThinkingStep:
    """The inputs *ids* become messages, where no hook is to be asked first; there may be none any more."""
    draft = Draft(ctx)
    if not ids:
        # A host may open a run on nothing, to go on with the conversation.
        begins = isinstance(source, stages.Prompt)
        return draft.to(Thinking(stage=Go())) if begins else _without(state, draft, ctx)
    names = hooks_at(Hook.USER_PROMPT_SUBMIT, ctx)
    if not names:
        return _let_in(ids, state, draft, ctx)
    # The inputs stay in the mail until the hooks have answered. If the process is lost meanwhile, the answer
    # is asked for again about the same ids, and no word of a person is gone.
    prompts = [mail.text for mail in ctx.memory.session.mail if mail.id in ids]
    request = ask_hooks(Hook.USER_PROMPT_SUBMIT, names, told(prompts=prompts), draft)
    stage = stages.Admitting(request=request, ids=ids, source=source)
    return draft.to(Thinking(stage=stage, attempt=state.attempt))


def _admitted(state: Thinking, stage: stages.Admitting, event: HookAnswered, ctx: Context) -> ThinkingStep:
    """The hooks let the inputs in, or not."""
    draft = Draft(ctx)
    said = record_answers(Hook.USER_PROMPT_SUBMIT, event, ctx, draft)
    if said.verdict is not Verdict.DENY:
        return _let_in(stage.ids, state, draft, ctx)
    block(stage, said.because, draft, ctx)
    if isinstance(stage.source, stages.Prompt) or not ctx.memory.history:
        # Without its prompt a run has nothing to do, nor has one that would begin a conversation with a steer
        # that was blocked: no provider answers an empty list of messages.
        return draft.to(Thinking(stage=End(reason=DoneReason.BLOCKED, detail=said.because)))
    if said.interrupt:
        draft.add(notices.InterruptRequested(at=draft.at))
        return draft.to(Thinking(stage=End(reason=DoneReason.INTERRUPTED, detail=said.because)))
    return _without(state, draft, ctx)


def _withdrawn(state: Thinking, name: str, ctx: Context) -> ThinkingStep:
    """The input *name* is dropped, if it waits; a run that has nothing left to begin with ends."""
    stage, draft = state.stage, Draft(ctx)
    source = stage.source if isinstance(stage, stages.Admitting) else stage
    mail, policy = ctx.memory.session.mail, ctx.config.policy
    begun = tuple([mine.id for mine in prompt_group(mail, policy)]) or next_prompt(mail, policy)
    # What else waits gets runs of its own.
    ends = isinstance(source, UNREAD) and begun == (name,)
    asked = isinstance(stage, stages.Admitting) and name in stage.ids
    if isinstance(stage, Go) and _was_answered(name, ctx):
        draft.add(*dropped(name, draft.at))
        return _without(state, draft, ctx)
    if not (ends or asked):
        return state, received(state, ctx)
    if isinstance(stage, stages.Start):
        draft.add(started(ctx))  # a watcher sees no end of what never began
    draft.add(*[Cancel(request=request) for request in state.open], *dropped(name, draft.at))
    if ends:
        return _taken_back(draft)
    # The answer under way is for all of these inputs together: a hook may refuse the rest without this one.
    return draft.to(Thinking(stage=source, attempt=state.attempt))


def _was_answered(name: str, ctx: Context) -> bool:
    """Whether without the steer *name* there is nothing that the model has not answered."""
    # Before the end of a run, or behind an answer that a person cut, a steer alone leads to `Go`.
    steers, history = ctx.memory.waiting(records.MailKind.STEER), ctx.memory.history
    return [mail.id for mail in steers] == [name] and bool(history) and history[-1].role is Role.ASSISTANT


def _taken_back(draft: Draft) -> ThinkingStep:
    """The end of a run that has no input to begin with."""
    # Without one the model would go on with the conversation as the run before left it.
    draft.add(notices.InterruptRequested(at=draft.at))
    return draft.to(Thinking(stage=End(reason=DoneReason.INTERRUPTED, detail=model_messages.TAKEN_BACK)))


def _without(state: Thinking, draft: Draft, ctx: Context) -> ThinkingStep:
    """Go on without a steer: there may be nothing left to answer, or an answer was cut."""
    if not ctx.memory.history:
        # No provider answers an empty list of messages.
        return _taken_back(draft)
    last = ctx.memory.history[-1]
    finish = last.parts[-1] if last.role is Role.ASSISTANT else None
    if isinstance(finish, Finish) and finish.reason is not StopReason.PAUSED:
        if finish.reason is not StopReason.INTERRUPTED:
            # The model had said all it had to say, and the steer was the only reason to ask it again. To ask
            # all the same would send a history that ends with its own answer, which some providers refuse.
            return draft.to(Thinking(stage=said_all(finish, ctx)))
        # The steer cut this answer off. It is not to be lost for words that never came in.
        draft.add(records.AppendMessage(message=user(model_messages.CONTINUE, ctx.now)))
    return draft.to(Thinking(stage=Go(), attempt=state.attempt))


def _let_in(ids: tuple[str, ...], state: Thinking, draft: Draft, ctx: Context) -> ThinkingStep:
    made = messages(ctx.memory.session.mail, ids)
    # Record and notice in one transition: a watcher never sees an input taken that a crash could still lose.
    draft.add(*[records.AppendMessage(message=message) for message in made])
    draft.add(records.TakeMail(ids=ids), notices.InputTaken(ids=ids, messages=made, at=draft.at))
    return draft.to(Thinking(stage=Go(), attempt=state.attempt))


# The stages in which a run has not read the inputs that it begins with.
UNREAD = stages.Start | stages.Reading | stages.Opening | stages.Prompt | stages.Admitting


def block(stage: stages.Stage, why: str, draft: Draft, ctx: Context) -> None:
    """Take the inputs that this run was to begin with out of the mail, unread."""
    if isinstance(stage, stages.Admitting):
        ids = stage.ids
    else:
        # No input was let in yet. These are the ids that the stage `Prompt` would take.
        ids = next_prompt(ctx.memory.session.mail, ctx.config.policy)
    # All of it may have been taken back.
    if ids:
        draft.add(records.TakeMail(ids=ids), notices.InputBlocked(ids=ids, reason=why, at=draft.at))


# The one place from which a turn's request leaves.


def _go(state: Thinking, ctx: Context) -> ThinkingStep:
    """Call the model, unless something stands against it."""
    # The order matters. A limit comes first: what follows it costs tokens or makes promises. Steers come
    # before the context is weighed, since they are a part of it. Old results are cleared before loops are
    # looked for and before a summary is thought of: clearing is free, and may make a summary needless.
    config, memory, model, draft = ctx.config, ctx.memory, ctx.model, Draft(ctx)
    if reason := may_not_go_on(config, memory.spent, memory.earlier):
        return draft.to(Thinking(stage=End(reason=reason, detail=ctx.limit_detail(reason))))
    # What cannot be answered any more is left for the next run.
    steered = memory.session.mail and memory.waiting(records.MailKind.STEER)
    if steered and not isinstance(_affordable(model, _longest(model, ctx), ctx), DoneReason):
        return draft.to(Thinking(stage=stages.Steer(), attempt=state.attempt))
    talk = memory.conversation
    before = compaction.before(config.compaction, talk.history, talk.cleared, talk.results)
    if before is not None:
        return _clear(before, state, ctx)
    run = memory.progress
    loop = loops.found(memory.history, config, run.withdrawn, memory.spent.turns, draft.at, run.summarised)
    if loop is not None and loop.acts:
        return _break_loop(loop, state, ctx)
    if _too_long(model.window, ctx):
        return draft.to(Compacting(reason=CompactReason.THRESHOLD))
    return _call(state, model, loop, ctx)


def _too_long(window: int, ctx: Context) -> bool:
    """Whether the conversation is to be shortened for this *window*, and has something old that can be."""
    memory = ctx.memory
    tried, failures = memory.progress.compactions, memory.session.compaction_failures
    if not compaction.wanted(memory.conversation.size, window, ctx.config, tried, failures):
        return False
    return compaction.worth_it(memory.history, ctx.cut(window), window)


def _clear(before: int, state: Thinking, ctx: Context) -> ThinkingStep:
    """From now on leave out old results, those in the messages before index *before*."""
    draft, now = Draft(ctx), ctx.memory.conversation
    if count := compaction.count(now.history, now.cleared, before):
        draft.add(
            notices.ResultsCleared(count=count, tokens=saved(now.history, now.cleared, before), at=draft.at)
        )
    # Recorded even where all of them were short and nothing is left out. Otherwise the next round would look
    # at the same messages again, and the one after it.
    draft.add(records.ClearResults(before=before))
    return draft.to(Thinking(stage=Go(), attempt=state.attempt))


def _break_loop(loop: loops.Loop, state: Thinking, ctx: Context) -> ThinkingStep:
    """The model was warned before; now its tools are taken away for a while, or the run ends."""
    draft = Draft(ctx)
    seen = loop.notice
    draft.add(seen)
    if seen.stage is notices.LoopStage.STOPPED:
        return draft.to(Thinking(stage=End(reason=DoneReason.LOOP_DETECTED, detail=seen.text)))
    # Taken away for some turns and not for good: the same tool may be what is needed once the model has
    # tried something else. It goes on in `Go`, where the loop now counts as done and the call is made.
    until = ctx.memory.spent.turns + ctx.config.loops.turns
    draft.add(*[records.WithdrawTool(tool=tool, until=until, count=seen.count) for tool in seen.tools])
    return draft.to(Thinking(stage=Go(), attempt=state.attempt))


def _longest(model: ModelSpec, ctx: Context) -> int:
    """How many tokens an answer of *model* has at most where no budget is short."""
    # A model without a limit of its own answers no more than it can read.
    return ctx.memory.progress.max_output or model.max_output or model.window


def _affordable(model: ModelSpec, most: int, ctx: Context) -> int | DoneReason:
    """How many tokens, *most* or fewer, can be paid, or the budget that pays for none worth its input."""
    return ctx.affordable(model, None, most, min(most, SMALL_ANSWER))


def _tools_of(spec: ModelSpec, ctx: Context) -> tuple[tuple[str, ...], str]:
    """The names of the tools that *spec* is offered for this answer, and the choice that is asked for."""
    memory, choice = ctx.memory, spec.tool_choice
    if choice == NO_CHOICE:
        return (), ""
    offered = tuple([tool.name for tool in ctx.config.tools if tool.kind is not ToolKind.OUTPUT])
    if memory.progress.withdrawn:
        away = loops.away(memory.progress.withdrawn, memory.spent.turns)
        offered = tuple([tool for tool in offered if tool not in away])
    if choice not in {"", AUTO_CHOICE}:
        # Of a run's first answer only: a model that must call a tool each time can never end the run.
        fits = choice == REQUIRED_CHOICE or choice in offered
        choice = choice if fits and not memory.spent.turns else ""
    return offered, choice


def _with_output_tool(
    output: OutputSpec, thinking: int | None, offered: tuple[str, ...], choice: str
) -> tuple[tuple[str, ...], str]:
    """The tools *offered* and the one of *output*, and the *choice* where another was made."""
    # A call of it ends the run, so one may be required of each answer. Some providers refuse that of a model
    # that is to think.
    if not choice and thinking is None:
        choice = REQUIRED_CHOICE
    return (*offered, output.name), choice


def _call(state: Thinking, spec: ModelSpec, loop: loops.Loop | None, ctx: Context) -> ThinkingStep:
    """Ask the model of *spec*, if that can be paid, with a word about a *loop* behind the words of hooks."""
    memory, model, draft = ctx.memory, spec.name, Draft(ctx)
    limit, thinking, most = memory.progress.max_output or None, ctx.thinking, _longest(spec, ctx)
    answer = _affordable(spec, most, ctx)
    # Here and not with the other limits: cleared results may be what makes it payable.
    if isinstance(answer, DoneReason):
        return draft.to(Thinking(stage=End(reason=answer, detail=ctx.limit_detail(answer))))
    if answer < most:
        limit = answer
        # Thinking counts against the answer, and providers refuse a limit that leaves nothing beside it.
        thinking = thinking if thinking and answer > max(thinking, ROOM_TO_THINK) else None
    now, said = memory.conversation, memory.conversation.pending_context
    if loop is not None:
        if not loop.done and state.attempt == 1:  # a retry is no second detection
            draft.add(loop.notice)
        # In this request only: in the history it would be summarised, and confuse the model ever after.
        said = (*said, loop.notice.text)
    (offered, choice), output, mode = _tools_of(spec, ctx), ctx.config.output, None
    if output is not None:
        mode = output.mode_of(model)
        if mode is OutputMode.TOOL:
            offered, choice = _with_output_tool(output, thinking, offered, choice)
        elif mode is OutputMode.PROMPTED:
            said = (*said, model_messages.wanted_output(output.schema, output.description))
    request = draft.new_id()
    # It names the history and does not carry it: a request costs the same at message 10 and at 10,000.
    view = Conversation(revision=now.history.revision, length=now.history.length, cleared=now.cleared)
    call = CallModel(
        id=request,
        model=model,
        view=view,
        system=ctx.system,
        thinking=thinking,
        max_output=limit,
        tools=offered,
        instructions="\n".join(said),
        attempt=state.attempt,
        tool_choice=choice,
        output=mode,
    )
    draft.add(call, _called(call, spec, draft.at))
    return draft.to(Streaming(request=request, model=model, attempt=state.attempt, offered=offered))


def _called(call: CallModel, spec: ModelSpec, at: float) -> notices.ModelCalled:
    return notices.ModelCalled(
        at=at,
        request=call.id,
        model=call.model,
        attempt=call.attempt,
        max_output=call.max_output or spec.max_output,
        thinking=call.thinking,
        temperature=spec.temperature,
        top_p=spec.top_p,
        seed=spec.seed,
        tool_choice=call.tool_choice,
        tools=call.tools,
        output=call.output,
    )


# The one place in which a run ends.


def _end(stage: End, ctx: Context) -> ThinkingStep:
    draft, policy, continues = Draft(ctx), ctx.config.policy, ctx.memory.progress.continues
    if stage.reason not in NATURAL_ENDS:
        return _done(stage, draft, ctx)
    # A steer that came while the last words were streamed has no other run to go to.
    if ctx.memory.waiting(records.MailKind.STEER):
        return draft.to(Thinking(stage=Go()))
    names = hooks_at(_stop_hook(ctx), ctx)
    if not names:
        return _done(stage, draft, ctx)
    if continues >= policy.continues:
        # A hook that always wants one more round would keep the run, and its bill, going for ever.
        times = model_messages.count(continues, "time")
        draft.add(notices.Warned(text=f"hooks made this run go on {times}; it ends now", at=draft.at))
        return _done(stage, draft, ctx)
    request = ask_hooks(_stop_hook(ctx), names, told(reason=stage.reason, continued=continues), draft)
    ending = stages.Ending(request=request, reason=stage.reason, detail=stage.detail, output=stage.output)
    return draft.to(Thinking(stage=ending))


def _stop_hook(ctx: Context) -> Hook:
    return Hook.SUBAGENT_STOP if ctx.config.agent else Hook.STOP


def _may_end(stage: stages.Ending, event: HookAnswered, ctx: Context) -> ThinkingStep:
    """Go on where a hook wants to or a person has said something meanwhile, and end otherwise."""
    draft = Draft(ctx)
    said = record_answers(_stop_hook(ctx), event, ctx, draft)
    if said.go_on is not None:
        # The history ends with the model's own answer. It has to read something to have something to answer.
        more = user(said.go_on or model_messages.CONTINUE, ctx.now)
        draft.add(records.AppendMessage(message=more), records.CountContinue())
        return draft.to(Thinking(stage=Go()))
    if ctx.memory.waiting(records.MailKind.STEER):
        return draft.to(Thinking(stage=Go()))
    return _done(stage, draft, ctx)


def _done(stage: End | stages.Ending, draft: Draft, ctx: Context) -> ThinkingStep:
    run, spent, reason = ctx.memory.run, ctx.memory.spent, stage.reason
    # On the way here an abort is an interrupt, since both stop the work in the same way.
    if reason is DoneReason.INTERRUPTED:
        reason = ctx.memory.progress.stopped
    detail, output = stage.detail, stage.output
    draft.add(notices.RunEnded(run=run, reason=reason, spent=spent, at=ctx.now, detail=detail, output=output))
    return draft.to(Done(reason=reason, spent=spent, detail=detail, output=output))
