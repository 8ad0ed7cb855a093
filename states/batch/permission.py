"""Between a model's wish and its start: the tool, the arguments, the hooks, the rules, a person."""

# Four voices may speak about a call: its tool, the rules, the hooks and a person. The order in which they
# do is policy, but one thing is not: each change of the arguments, by a hook or a person, is checked again
# by the schema and by the denials. Otherwise an edit would be a way around both.
#
# None of the checks here is final before the call starts. It may wait for its turn for an hour, and
# meanwhile the configuration, the mode or a grant may have changed; `doubted` looks once more.

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TypeGuard

from ...effects.config import AutoAllow, Config, Gates, OnLost, ToolSpec
from ...effects.events import CallInspected
from ...effects.findings import Finding
from ...effects.hooks import Hook
from ...effects.messages import Outcome, ToolCall
from ...effects.notices import ApprovalRequested, CallJudged, Effect
from ...effects.permissions import Basis, PermissionMode, Verdict
from ...effects.records import GrantRule
from ...effects.requests import AskApproval, SetTimer
from ..builder import Draft, ask_hooks, hooks_at
from ..context import Context, Memory
from ..rules import model_messages
from ..rules.hooks import Opinion, opinion, told_of_call
from ..rules.permission import RUN_AGAIN, Judgement, PermissionPolicy, said_yes
from ..rules.rule_fit import NO_FINDING
from ..rules.schema import arguments_of, defaults_of, problem, same_arguments
from . import batch as phases
from .batch import Batch, Call, Forever, HookRound, Order, PriorAttempt, Stopping, Timer
from .settle import UNSTARTED, settled

# A call that may have run when the process was lost in which it was at work: whether it is asked about.


def asked_again(call: Call, phase: phases.Running, batch: Batch, ctx: Context, draft: Draft) -> Call | None:
    """*call*, which was at work in *phase*, and a person asked whether it runs again; None where none is."""
    # No person is asked where the policy says so, in a mode that forbids it, or where the call could not run
    # anyway. Its hooks have looked at these arguments already.
    if ctx.config.policy.on_lost is not OnLost.ASK or ctx.memory.session.mode is PermissionMode.DONT_ASK:
        return None
    spec = spec_of(batch, call, ctx)
    if batch.stopping > Stopping.DENIED or phase.told is Order.STOP or spec is None:
        return None
    # A person is not asked to run again what would be refused the moment they said yes.
    denied = law(ctx.config, ctx.memory, draft.effects).denial(
        spec, arguments_of(call.call.arguments) or {}, None, phase.finding
    )
    if _denies(denied) or fault_in(call.call, spec, batch.offered, ctx.config):
        return None
    tell_judged(call, RUN_AGAIN, draft)
    # Marked for good: whatever becomes of the question, no result may say that the call has not run.
    doubted = Call(call=call.call, phase=phase, tried=PriorAttempt.LOST)
    return ask(doubted, RUN_AGAIN, _as_heard(call, ctx), phase.finding, ctx, draft)


def _denies(found: Judgement | None) -> TypeGuard[Judgement]:
    # What only may be denied was asked about when it began.
    return found is not None and found.verdict is Verdict.DENY


def _as_heard(call: Call, ctx: Context) -> HookRound:
    """All hooks that are asked before *call* runs, as if they had been."""
    return HookRound(asked=hooks_at(Hook.PRE_TOOL_USE, ctx, call.call))


def spec_of(batch: Batch, call: Call, ctx: Context) -> ToolSpec | None:
    """The tool of *call* as it is configured now, if it was offered then."""
    # Both matter: a run may be taken over under another configuration while a call waits for its turn, and
    # neither a tool that is gone nor one that has come since may run for it.
    name = call.call.name
    return ctx.config.tool(name) if name in batch.offered else None


def law(config: Config, memory: Memory, effects: Iterable[Effect] = ()) -> PermissionPolicy:
    """What judges calls now, with what a person granted among the *effects* of this very step."""
    # A grant of this very step is not in the memory yet, and may be what the next call in line is waiting
    # for.
    session, granted = memory.session, [effect for effect in effects if isinstance(effect, GrantRule)]
    return PermissionPolicy(
        mode=session.mode,
        rules=config.rules,
        granted=(*session.granted, *granted),
        protected=config.protected,
        allows_sandboxed=config.policy.auto_allow is AutoAllow.SANDBOXED,
    )


def fault_in(wish: ToolCall, spec: ToolSpec | None, offered: tuple[str, ...], config: Config) -> str:
    """Why *wish* cannot run, as its model will read it; empty where it can."""
    # Checked before a person is asked: no question is worth their time about a call that cannot run.
    if spec is None:
        # What was offered and is still there: neither what has gone since nor what has come would run.
        return model_messages.not_found(wish.name, tuple([name for name in offered if config.tool(name)]))
    found = _misfit(wish, spec)
    return model_messages.invalid_arguments(wish.name, found) if found else ""


def _misfit(wish: ToolCall, spec: ToolSpec) -> str:
    arguments = arguments_of(wish.arguments)
    if arguments is None:
        return "they are no valid JSON object"
    return problem(spec.schema, arguments, spec.secrets)


def edit_fault(tool: str, edited: str, config: Config) -> str:
    """Why a call of *tool* would not run with the arguments that a person *edited*; empty where it would."""
    # Told to the person while the question is open. What depends on more than the arguments is left to the
    # machine when the call starts: the mode, hooks, and what a path reaches or a command runs.
    spec = config.tool(tool)
    if spec is None:
        return ""
    call = Call(call=ToolCall(id="", wire_id="", name=tool, arguments=edited))
    if found := _misfit(call.call, spec):
        return found
    arguments = arguments_of(completed(call, spec).call.arguments) or {}
    rules = PermissionPolicy(mode=PermissionMode.DEFAULT, rules=config.rules)
    denied = rules.denial(spec, arguments)
    return f"denied by the rule {denied.detail!r}" if _denies(denied) else ""


def completed(call: Call, spec: ToolSpec) -> Call:
    """*call* with the defaults of *spec* for the arguments that its model left out."""
    # Before anything is decided by them: what a rule, a hook or a person sees is what the tool will get.
    defaults = defaults_of(spec.schema) if spec.fills else {}
    if not defaults:
        return call
    given = arguments_of(call.call.arguments) or {}
    missing = {name: value for name, value in defaults.items() if name not in {*given, *spec.secrets}}
    return call.given(json.dumps({**given, **missing}, ensure_ascii=False)) if missing else call


def judge_queued(call: Call, batch: Batch, ctx: Context, draft: Draft) -> Call:
    """*call*, whose turn to be judged has come: allowed, asked about, with the hooks, or settled."""
    spec = spec_of(batch, call, ctx)
    fault = fault_in(call.call, spec, batch.offered, ctx.config)
    if spec is None or fault:
        return settled(call, Outcome.ERROR, fault, draft)
    call = completed(call, spec)
    # Hooks first: rules then judge the arguments that hooks have made of the model's. Rules first: a call
    # that is denied anyway troubles no hook.
    if ctx.config.policy.gates is Gates.HOOKS_FIRST and (
        asked := _hooks_asked(call, None, HookRound(), ctx, draft)
    ):
        return asked
    return judged(call, spec, HookRound(), ctx, draft)


def _hooks_asked(
    call: Call, ground: Basis | None, hooks: HookRound, ctx: Context, draft: Draft
) -> Call | None:
    """
    *call*, of which the hooks are asked that are not among *hooks*; None where there are no others.

    It was allowed on *ground*, or has not been judged.
    """
    wish = call.call
    names = tuple([name for name in hooks_at(Hook.PRE_TOOL_USE, ctx, wish) if name not in hooks.asked])
    if not names:
        return None
    # With the arguments as they are now: what an earlier hook has rewritten is what this one judges.
    payload = told_of_call(wish.name, arguments_of(wish.arguments) or {})
    request = ask_hooks(Hook.PRE_TOOL_USE, names, payload, draft, wish.id)
    asked = HookRound(asked=(*hooks.asked, *names), said=hooks.said)
    if ground is None:
        return call.at(phases.AwaitingHooks(request=request, hooks=asked))
    return call.at(phases.AllowedAwaitingHooks(request=request, ground=ground, hooks=asked))


def judged(call: Call, spec: ToolSpec, hooks: HookRound, ctx: Context, draft: Draft) -> Call:
    """*call* after the rules have spoken, in the light of what the *hooks* said."""
    arguments = arguments_of(call.call.arguments) or {}
    # Most calls have no hooks to judge by.
    said = opinion(hooks.said) if hooks.said else None
    rules, finding = law(ctx.config, ctx.memory, draft.effects), NO_FINDING
    # Most tools have nothing to look at.
    if spec.paths or spec.command:
        found_now = finding_of(call, ctx)
        # What is denied as it is written need not be looked at.
        if found_now is None and rules.looks_at(spec) and not _denies(rules.denial(spec, arguments, said)):
            request = draft.new_id()
            draft.add(rules.inspection(call.call, spec, request))
            return call.at(phases.Inspecting(request=request, hooks=hooks))
        finding = found_now or NO_FINDING
    found = rules.judge(spec, arguments, said, finding)
    tell_judged(call, found, draft)
    match found.verdict:
        case Verdict.DENY:
            return settled(call, Outcome.DENIED, model_messages.denied(found), draft)
        case Verdict.ASK:
            return ask(call, found, hooks, finding, ctx, draft)
        case Verdict.ALLOW:
            return cleared(call, found.ground, hooks, ctx, draft)


def finding_of(call: Call, ctx: Context) -> Finding | None:
    """What was found of *call* in this very step; None where it was not inspected in it."""
    # Never what was found in an earlier step: a link may lead elsewhere by now.
    match ctx.event, call.phase:
        case (
            CallInspected(request=answered, finding=finding),
            phases.Inspecting(request=request)
            | phases.AllowedInspecting(request=request)
            | phases.Allowed(inspection=request),
        ) if answered == request:
            return finding
        case _:
            return None


def inspected(
    call: Call, phase: phases.Inspecting | phases.AllowedInspecting, batch: Batch, ctx: Context, draft: Draft
) -> Call:
    """*call* after its arguments were looked at."""
    if isinstance(phase, phases.AllowedInspecting):
        return call.at(phases.Allowed(ground=phase.ground, inspection=phase.request))
    spec = spec_of(batch, call, ctx)
    fault = fault_in(call.call, spec, batch.offered, ctx.config)
    if spec is None or fault:
        return settled(call, Outcome.ERROR, fault, draft)
    # Another process may have gone on with the run meanwhile, and have more hooks.
    hooks_first = ctx.config.policy.gates is Gates.HOOKS_FIRST
    if hooks_first and (asked := _hooks_asked(call, None, phase.hooks, ctx, draft)):
        return asked
    return judged(call, spec, phase.hooks, ctx, draft)


def tell_judged(call: Call, found: Judgement, draft: Draft) -> None:
    """Show watchers what was *found* about *call*."""
    wish = call.call
    draft.add(
        CallJudged(
            call=wish.id,
            tool=wish.name,
            verdict=found.verdict,
            ground=found.ground,
            detail=found.detail,
            at=draft.at,
        )
    )


def ask(call: Call, found: Judgement, hooks: HookRound, finding: Finding, ctx: Context, draft: Draft) -> Call:
    """*call*, about which a person is asked, because of what was *found*."""
    wish, within = call.call, ctx.config.policy.answer_within
    request = draft.new_id()
    # A point in time and not a span, so that a process that comes back after the deadline does not begin it
    # anew.
    deadline = Forever() if within is None else Timer(request=draft.new_id(), due=ctx.now + within)
    why = f"{found.ground}: {found.detail}{_where(wish, ctx.config)}"
    phase = phases.Asked(
        request=request,
        ground=found.ground,
        why=why,
        asked_by=found.asked_by,
        hooks=hooks,
        deadline=deadline,
        finding=finding,
    )
    asked = question(wish, phase)
    draft.add(asked)
    if isinstance(deadline, Timer):
        draft.add(SetTimer(id=deadline.request, due=deadline.due))
    draft.add(ApprovalRequested.of(asked, draft.at))
    return call.at(phase)


def _where(wish: ToolCall, config: Config) -> str:
    """Whether *wish* runs in the sandbox, behind the reason of a question; empty where there is none."""
    if config.sandbox is None:
        return ""
    spec = config.tool(wish.name)
    is_sandboxed = spec is not None and spec.sandboxed
    network = " with network" if config.sandbox.network else ""
    return f"; it runs in the sandbox{network}" if is_sandboxed else "; it runs outside the sandbox"


def question(wish: ToolCall, asked: phases.Asked) -> AskApproval:
    """The question whether *wish* may run, as it was *asked*."""
    return AskApproval(
        id=asked.request,
        call=wish.id,
        tool=wish.name,
        arguments=wish.arguments,
        why=asked.why,
        due=asked.deadline.due if isinstance(asked.deadline, Timer) else None,
    )


def cleared(call: Call, ground: Basis, hooks: HookRound, ctx: Context, draft: Draft) -> Call:
    """*call*, which was allowed on *ground*; hooks that have not been heard are asked now."""
    # Rules first: hooks have their say about what rules and a person allowed, once each.
    if asked := _hooks_asked(call, ground, hooks, ctx, draft):
        return asked
    match ctx.event:
        case CallInspected(request=request) if finding_of(call, ctx) is not None:
            return call.at(phases.Allowed(ground=ground, inspection=request))
        case _:
            return call.at(phases.Allowed(ground=ground))


def vetted(call: Call, hooks: HookRound, given: str, batch: Batch, ctx: Context, draft: Draft) -> Call:
    """*call* after its *hooks* answered, the latest of which have *given* it other arguments, if any."""
    # All hooks of this call count, in however many rounds they were asked: a denial of the first round is
    # not outvoted in the second.
    said, seen = opinion(hooks.said), call.call.arguments
    # What is denied is denied as the model wrote it: it would not know what was wrong with anything else.
    if given and said.verdict is not Verdict.DENY:
        call = call.given(given)
    spec = spec_of(batch, call, ctx)
    fault = fault_in(call.call, spec, batch.offered, ctx.config)
    if spec is None or fault:
        return settled(call, Outcome.ERROR, fault, draft)
    call = completed(call, spec)
    ground = call.phase.ground if isinstance(call.phase, phases.AllowedAwaitingHooks) else None
    # A person's yes is to the arguments that they saw: other ones are judged anew, or skipped where the batch
    # is given up.
    if ground is Basis.PERSON and not same_arguments(call.call.arguments, seen):
        ground = None
        if batch.stopping:
            return settled(call, *UNSTARTED[batch.stopping], draft)
    if ground is Basis.PERSON:
        # A person has said yes to just this; a denial still holds.
        denied = _denied_now(call, spec, said, ctx, draft)
        return denied or cleared(call, ground, hooks, ctx, draft)
    # New arguments may match further hooks: those are asked now.
    if said.verdict is not Verdict.DENY and (again := _hooks_asked(call, ground, hooks, ctx, draft)):
        return again
    return judged(call, spec, hooks, ctx, draft)


def doubted(call: Call, ground: Basis, batch: Batch, ctx: Context, draft: Draft) -> Call:
    """*call*, which was allowed on *ground*; settled or asked about where it may not run any more."""
    # Configuration and mode may be others than when it was judged. Only a denial takes back what a person
    # has allowed, and only a denial or a rule that asks what a hook has allowed.
    spec = spec_of(batch, call, ctx)
    fault = fault_in(call.call, spec, batch.offered, ctx.config)
    if spec is None or fault:
        return settled(call, Outcome.ERROR, fault, draft)
    if denied := _denied_now(call, spec, None, ctx, draft):
        return denied
    rules, finding = law(ctx.config, ctx.memory, draft.effects), finding_of(call, ctx)
    if finding is None and (spec.paths or spec.command) and rules.looks_at(spec):
        request = draft.new_id()
        draft.add(rules.inspection(call.call, spec, request))
        return call.at(phases.AllowedInspecting(request=request, ground=ground))
    if ground is Basis.PERSON:
        return call
    arguments, finding = arguments_of(call.call.arguments) or {}, finding or NO_FINDING
    held = rules.denial(spec, arguments, None, finding) or rules.rule_question(spec, arguments, finding)
    if ground is Basis.HOOK and held is None:
        return call
    found = rules.judge(spec, arguments, None, finding)
    return call if found.verdict is Verdict.ALLOW else judged(call, spec, _as_heard(call, ctx), ctx, draft)


def _denied_now(call: Call, spec: ToolSpec, said: Opinion | None, ctx: Context, draft: Draft) -> Call | None:
    """*call*, settled, where a rule, a hook or the mode denies it although it was allowed; None where not."""
    finding = finding_of(call, ctx) or NO_FINDING
    found = law(ctx.config, ctx.memory, draft.effects).denial(
        spec, arguments_of(call.call.arguments) or {}, said, finding
    )
    if not _denies(found):
        return None
    tell_judged(call, found, draft)
    return settled(call, Outcome.DENIED, model_messages.denied(found), draft)


def approved(call: Call, phase: phases.Asked, edited: str, batch: Batch, ctx: Context, draft: Draft) -> Call:
    """*call*, to which a person said yes, with their arguments where they *edited* them."""
    # Edited arguments are refused where they are given (`edit_fault`). Those of another journal may not fit,
    # nor those of this one under another configuration: that is an error result, and no second question.
    # Denials are looked up when it starts. The history keeps what the model wrote; the model sees in the
    # result what ran.
    if edited:
        call = call.given(edited)
    tell_judged(call, said_yes(edited), draft)
    spec = spec_of(batch, call, ctx)
    fault = fault_in(call.call, spec, batch.offered, ctx.config)
    if spec is None or fault:
        return settled(call, Outcome.ERROR, fault, draft)
    return cleared(completed(call, spec), Basis.PERSON, phase.hooks, ctx, draft)
