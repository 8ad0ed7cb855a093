"""
Taking over a run whose process is gone: what becomes of the requests that were open.

Theory of operation. A request in the journal may have been started, and may have finished; only its answer
would tell, and that is lost. So each kind of request is treated by the harm that doing it twice would do.
Models are asked again, and the pieces of the lost answer are dropped. Reads run again; idempotent tools run
again with the same key. Of any other tool the machine learns that it may have run, and its policy decides.
Questions, children and timers are open again, and hooks are asked again. Exactly once is never claimed.

A request that the worker before handed over as unbegun is begun for the first time, whatever it does. What
was begun again as often as the policy allows, and lost each time, may be what kills its process: it is not
begun once more. A child is, since each of its requests is counted in its own journal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never, final

import attrs

from ... import effects, states
from ...effects.hooks import Hook, HookSaid
from ...states.batch.batch import Forever, Order, Stopping
from ...states.batch.permission import fault_in, law, question
from ...states.batch.start import child_run, tool_run
from ...states.rules import hooks, model_messages
from ...states.rules.limits import child_prompt
from ...states.rules.rule_fit import NO_FINDING
from ...states.rules.schema import arguments_of
from ...states.thinking import source_of
from ..journal.fold import is_foreign, try_name
from .machine import Machine

# The message of the failure after which a model is asked once more. Texts of this module are in journals as
# part of events. A fold reads them from there, so a new wording changes no old run.
WHY = {
    effects.Failure.LOST: "the process that waited for the answer is gone",
    effects.Failure.UNBEGUN: "no process had begun to ask here",
}

# Why a model is not asked any more, and of a hook or the files of instructions its fault.
TOO_OFTEN = "its process was lost again and again while it was at work"

# What may become of a request that was open: it is performed again, or an event stands for its answer.
NextStep = effects.Request | effects.Cancel | effects.Answer

# Those of them whose request may have been begun too often.
OpenStep = effects.Request | effects.ModelFailed


@final
@attrs.frozen(kw_only=True)
class Recovery:
    """What to do with a run that is taken over: *again* are requests to perform, *events* to apply."""

    again: tuple[effects.Request | effects.Cancel, ...] = ()
    events: tuple[effects.Event, ...] = ()


def recover(
    machine: Machine,
    now: float,
    unbegun: frozenset[str] = frozenset(),
    tries: Mapping[str, int] | None = None,
) -> Recovery:
    """
    How *machine*, folded from its journal, goes on at the time *now*.

    *unbegun* are those of its open requests that no worker has begun, *tries* how often the others were taken
    over before, by their `try_name`.
    """
    known = tries or {}
    given_up = {
        request
        for request in {*machine.state.open} - unbegun
        if known.get(try_name(request, machine), 0) >= machine.config.policy.takeovers
    }
    steps = [
        _given_up(step, now) if isinstance(step, OpenStep) and _id(step) in given_up else step
        for step in _next_steps(machine, now, unbegun)
    ]
    return Recovery(
        again=tuple([step for step in steps if isinstance(step, effects.Request | effects.Cancel)]),
        events=tuple([step for step in steps if not isinstance(step, effects.Request | effects.Cancel)]),
    )


def _id(step: OpenStep) -> str:
    return step.request if isinstance(step, effects.ModelFailed) else step.id


def _given_up(step: OpenStep, now: float) -> NextStep:  # noqa: PLR0911  # one return for each kind of request
    """The event in place of *step*, whose request was begun too often; *step* itself if it does no harm."""
    match step:
        case effects.ModelFailed(failure=effects.Failure.LOST):
            return attrs.evolve(step, message=TOO_OFTEN, should_retry=False)
        case effects.RunTool():
            return effects.ToolLost(at=now, request=step.id)
        case effects.FireHook():
            answers = tuple([HookSaid(name=name, fault=TOO_OFTEN) for name in step.names])
            return effects.HookAnswered(at=now, request=step.id, said=answers)
        case effects.ReadInstructions():
            return effects.InstructionsRead(at=now, request=step.id, text="", faults=(TOO_OFTEN,))
        case effects.DecodeOutput():
            return effects.OutputDecoded(at=now, request=step.id, fault=TOO_OFTEN)
        case effects.ModelFailed() | effects.CallModel() | effects.AskApproval() | effects.InspectCall():
            return step
        case effects.RunAgent() | effects.SetTimer():
            return step
        case _:
            assert_never(step)


def _next_steps(machine: Machine, now: float, unbegun: frozenset[str]) -> list[NextStep]:
    state = machine.state
    # The matches here and below name every state, stage and phase: a wildcard would lose the open requests of
    # a new one, and its run would wait for ever.
    match state:
        case states.Streaming(request=request):
            return [_asked_anew(request, state.stopping, machine, now, unbegun)]
        case states.Thinking(stage=stage):
            # Hooks, reads and timers may be done twice, so nothing depends on whether they were begun.
            return [_stage(stage, machine, now)] if isinstance(stage, states.Waiting) else []
        case states.Compacting():
            return _compaction(state, machine, now, unbegun)
        case states.Executing(batch=batch) | states.Confirming(batch=batch) | states.Dispatching(batch=batch):
            return [step for call in batch.calls for step in _call(call, machine, now, unbegun)]
        case states.Done():
            return []
        case _:
            assert_never(state)


def _asked_anew(
    request: str, stopping: Stopping, machine: Machine, now: float, unbegun: frozenset[str]
) -> effects.ModelFailed:
    """The answer to *request* as failed, since its reader is gone."""
    # Not the same request again: people may have said more since, and the limits may be reached. A failure
    # lets the machine decide anew what it asks the model, if anything.
    unasked = request in unbegun or is_foreign(request, machine)
    # An unasked model cost nothing, a lost one is paid for by an estimate. One that was being stopped counts
    # as lost: an unbegun one would be asked again, against the person's wish.
    failure = effects.Failure.UNBEGUN if unasked and not stopping else effects.Failure.LOST
    return effects.ModelFailed(at=now, request=request, failure=failure, message=WHY[failure])


def _compaction(
    state: states.Compacting, machine: Machine, now: float, unbegun: frozenset[str]
) -> list[NextStep]:
    """The next step for the open request of a compaction; none where nothing is open."""
    stage = state.stage
    match stage:
        case states.Summary(request=request):
            return [_asked_anew(request, state.stopping, machine, now, unbegun)]
        case states.Consulting(request=request):
            # Payloads are made again and not stored: they come from the memory, which has not moved since.
            told = hooks.told(reason=state.reason, size=machine.memory.conversation.size)
            return [_hook(Hook.PRE_COMPACT, request, told, machine, now)]
        # The old due time: with a new wait after each crash, a process that keeps dying would never retry.
        case states.Pausing(request=request, due=due):
            return [effects.SetTimer(id=request, due=due)]
        case states.Weigh():
            return []
        case _:
            assert_never(stage)


def _stage(stage: states.Waiting, machine: Machine, now: float) -> NextStep:
    """What becomes of the open request of a *stage* of thinking."""
    memory = machine.memory
    match stage:
        # The time it was due at, not a new wait: crashes must not add up to a wait without end.
        case states.Retry(request=request, due=due):
            return effects.SetTimer(id=request, due=due)
        case states.Reading(request=request):
            # The files of today's settings. Nothing was read into the session yet, so no older text is
            # replaced.
            return effects.ReadInstructions(id=request, files=machine.config.instructions)
        case states.Opening(request=request):
            return _hook(Hook.SESSION_START, request, hooks.told(source=source_of(memory)), machine, now)
        case states.Admitting(request=request, ids=ids):
            # Only the prompts of this round: mail that came since has not been let in, and is asked about
            # later.
            told = hooks.told(prompts=[mail.text for mail in memory.session.mail if mail.id in ids])
            return _hook(Hook.USER_PROMPT_SUBMIT, request, told, machine, now)
        case states.Decoding(request=request, text=text):
            return effects.DecodeOutput(id=request, text=text)
        case states.Ending(request=request, reason=reason):
            # The machine made this distinction when it asked, so it must be made in the same way here.
            hook = Hook.SUBAGENT_STOP if machine.config.agent else Hook.STOP
            told = hooks.told(reason=reason, continued=memory.progress.continues)
            return _hook(hook, request, told, machine, now)
        case _:
            assert_never(stage)


def _hook(
    hook: Hook,
    request: str,
    payload: str,
    machine: Machine,
    now: float,
    call: effects.ToolCall | None = None,
) -> effects.FireHook | effects.HookAnswered:
    # Arguments decide which hooks hear of a call: a hook may be set for some paths only.
    arguments = {} if call is None else arguments_of(call.arguments)
    # Those of today's settings: the run may be taken over by an agent with other hooks.
    names = hooks.asked_at(machine.config, hook, "" if call is None else call.name, arguments)
    # With no hook left to ask, the answer is made here: the machine would wait for it for ever.
    if not names:
        return effects.HookAnswered(at=now, request=request)
    about = "" if call is None else call.id
    return effects.FireHook(id=request, hook=hook, names=names, payload=payload, call=about)


def _call(  # noqa: PLR0911  # one return for each phase
    call: states.Call, machine: Machine, now: float, unbegun: frozenset[str]
) -> tuple[NextStep, ...]:
    """What becomes of the open requests of *call*, if it has any."""
    wish, phase = call.call, call.phase
    match phase:
        case states.Asked(deadline=deadline):
            # Asked under the same id: an approver may have the question on screen, and that answer must
            # count.
            if isinstance(deadline, Forever):
                return (question(wish, phase),)
            # The person was given until then; a deadline that began anew would never come.
            return (question(wish, phase), effects.SetTimer(id=deadline.request, due=deadline.due))
        case (
            states.AwaitingHooks(request=request, hooks=hearing)
            | states.AllowedAwaitingHooks(request=request, hooks=hearing)
        ):
            return (_pending_hooks(wish, request, hearing, machine, now),)
        case states.Inspecting(request=request) | states.AllowedInspecting(request=request):
            return (_inspection(wish, request, machine, now),)
        case states.Reviewed(request=request, hook=hook, result=result):
            # The result is there already, so the tool is left alone: only the remark on it is still open.
            told = hooks.told_of_result(result, arguments_of(wish.arguments) or {})
            return (_hook(hook, request, told, machine, now, wish),)
        case states.RunningChild():
            return _child(call, phase, machine, now, begun=phase.request not in unbegun)
        case states.Running():
            return (_tool(call, phase, machine, now, begun=phase.request not in unbegun),)
        case states.Queued() | states.Held() | states.Allowed() | states.Settled():
            return ()
        case _:
            assert_never(phase)


def _pending_hooks(
    wish: effects.ToolCall, request: str, hearing: states.HookRound, machine: Machine, now: float
) -> effects.FireHook | effects.HookAnswered:
    """The hooks that were asked about *wish* and have not answered are asked again."""
    # Not those of today's settings, as elsewhere: the machine counts the answers of the round it began.
    there = {spec.name for spec in machine.config.hooks}
    said = {one.name for one in hearing.said}
    names = tuple([name for name in hearing.asked if name in there and name not in said])
    if not names:
        return effects.HookAnswered(at=now, request=request)
    payload = hooks.told_of_call(wish.name, arguments_of(wish.arguments) or {})
    return effects.FireHook(id=request, hook=Hook.PRE_TOOL_USE, names=names, payload=payload, call=wish.id)


def _inspection(
    wish: effects.ToolCall, request: str, machine: Machine, now: float
) -> effects.InspectCall | effects.CallInspected:
    """A look at *wish* may be taken twice; where its tool is gone, there is nothing to look at."""
    spec = machine.config.tool(wish.name)
    if spec is None:
        return effects.CallInspected(at=now, request=request)
    return law(machine.config, machine.memory).inspection(wish, spec, request)


def _denied(call: states.Call, spec: effects.ToolSpec, machine: Machine) -> bool:
    """Whether rules or mode deny *call* now: the configuration may be another one than when it began."""
    # Rules granted for good count here, too. Without them, each restart would deny what a person allowed.
    rules = law(machine.config, machine.memory)
    finding = getattr(call.phase, "finding", NO_FINDING)
    denial = rules.denial(spec, arguments_of(call.call.arguments) or {}, None, finding)
    # What may be denied was asked about when it began, unless no rule that is new spoke about it then.
    return denial is not None and (denial.verdict is effects.Verdict.DENY or finding == NO_FINDING)


def _tool(
    call: states.Call, phase: states.Running, machine: Machine, now: float, *, begun: bool
) -> effects.RunTool | effects.ToolFinished | effects.ToolLost:
    """What becomes of a tool: one that a worker has *begun* may have run, another runs if it still may."""
    name, request = call.call.name, phase.request
    spec, lost = machine.config.tool(name), effects.ToolLost(at=now, request=request)
    if spec is None and not begun:
        # An error and not a lost call: nothing ran, and the model may choose another tool.
        gone = model_messages.not_found(name, tuple([tool.name for tool in machine.config.tools]))
        return effects.ToolFinished(at=now, request=request, content=gone, outcome=effects.Outcome.ERROR)
    # A tool that is gone from the settings is treated as the worst kind: nothing here says what it did.
    if spec is None or (begun and spec.side_effect is effects.SideEffect.UNSAFE):
        return lost
    stops = phase.told is Order.STOP or _denied(call, spec, machine)
    if not begun or spec.side_effect is effects.SideEffect.READ_ONLY:
        # Cancelled is the truth of one that no worker began: it had no effect. Whether a read has run makes
        # no difference.
        text, outcome = model_messages.CANCELLED, effects.Outcome.CANCELLED
        cancelled = effects.ToolFinished(at=now, request=request, content=text, outcome=outcome)
        return cancelled if stops else tool_run(call.call, spec, request)
    # An idempotent tool may have had its effect: a result that says it was cancelled would be a lie. The same
    # holds where it cannot run again, because it takes other arguments by now.
    if stops or fault_in(call.call, spec, (), machine.config):
        return lost
    # Marked, since the first try may have had its effect: an error of this one proves nothing.
    return attrs.evolve(tool_run(call.call, spec, request), again=True)


def _child(
    call: states.Call, phase: states.RunningChild, machine: Machine, now: float, *, begun: bool
) -> tuple[effects.RunAgent | effects.Cancel | effects.AgentFinished, ...]:
    config, request, spent = machine.config, phase.request, phase.spent
    name, _ = child_prompt(arguments_of(call.call.arguments) or {})
    child, spec = config.child(name), config.tool(call.call.name)
    if child is None or spec is None:
        # Its settings are gone, so its session cannot be resumed. What it reported stays on the account.
        outcome = effects.Outcome.UNKNOWN if begun else effects.Outcome.ERROR
        text = model_messages.LOST if begun else f"No agent named {name!r}."
        return (effects.AgentFinished(at=now, request=request, content=text, outcome=outcome, spent=spent),)
    # With the limits it was given at first: a child must not get a fresh budget from a crash.
    again = child_run(call.call, child, config, phase.limits, machine.memory.session.mode, request)
    # A cancel that was accepted holds, also for the child, whose own journal may not have it. A child that is
    # denied by now is stopped, too. It is begun first in both cases. Only its own session knows what it did
    # and spent, or that it was over.
    stops = phase.told is Order.STOP or _denied(call, spec, machine)
    return (again, effects.Cancel(request=request)) if stops else (again,)
