"""
Between a model's wish and its start: the tool, the arguments, the hooks, the rules, a person.

Whoever changes the arguments has what they made of it checked again: the schema and the denials, always.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from ..effects.config import ToolSpec
from ..effects.hooks import Hook
from ..effects.messages import Outcome, ToolCall
from ..effects.notices import ApprovalRequested, CallJudged
from ..effects.permissions import Ground, Verdict
from ..effects.policy import Gates
from ..effects.records import GrantRule
from ..effects.requests import AskApproval, SetTimer
from .batch import Allowed, Asked, Batch, Call, Forever, Hearing, Hooked, Timer, Vetted
from .hooking import ask_hooks, heard
from .rules import texts
from .rules.gate import Judgement, Law
from .rules.hooks import Opinion, asked_at, opinion, told_of_call
from .rules.schema import arguments_of, problem
from .settling import settled

if TYPE_CHECKING:
    from ..effects.events import HookAnswered
    from .context import Context
    from .draft import Draft


def spec_of(batch: Batch, call: Call, ctx: Context) -> ToolSpec | None:
    """
    The tool of *call* as it is configured now, if it was offered then.

    Both matter: a run may be taken over under another configuration while a call waits for its turn, and
    neither a tool that is gone nor one that has come since may run for it.
    """
    name = call.call.name
    return ctx.config.tool(name) if name in batch.offered else None


def law(ctx: Context, draft: Draft) -> Law:
    """What judges calls now, with what a person granted in this very step."""
    granted = [effect.rule for effect in draft.effects if isinstance(effect, GrantRule)]
    memory = ctx.memory
    return Law(mode=memory.mode, rules=ctx.config.rules, granted=(*memory.granted, *granted))


def fault_in(wish: ToolCall, spec: ToolSpec | None, offered: tuple[str, ...]) -> str:
    """
    Why *wish* cannot run, as its model will read it; empty where it can.

    Checked before a person is asked: nobody should be bothered about a call that cannot run.
    """
    if spec is None:
        return texts.not_found(wish.name, offered)
    arguments = arguments_of(wish.arguments)
    if arguments is None:
        return texts.invalid_arguments(wish.name, "they are no valid JSON object")
    found = problem(spec.schema, arguments, spec.secrets)
    return texts.invalid_arguments(wish.name, found) if found else ""


def consider(call: Call, batch: Batch, ctx: Context, draft: Draft) -> Call:
    """*call*, whose turn to be judged has come: allowed, asked about, with the hooks, or settled."""
    spec = spec_of(batch, call, ctx)
    fault = fault_in(call.call, spec, batch.offered)
    if spec is None or fault:
        return settled(call, Outcome.ERROR, fault, draft)
    if ctx.config.policy.gates is Gates.HOOKS_FIRST and (names := unheard(call.call, Hearing(), ctx)):
        request, hooks = _ask_hooks(call.call, names, Hearing(), draft)
        return call.at(Hooked(request=request, hooks=hooks))
    return judged(call, spec, Hearing(), ctx, draft)


def unheard(wish: ToolCall, hooks: Hearing, ctx: Context) -> tuple[str, ...]:
    """The hooks that are to be asked before *wish* runs with its arguments, and have not been."""
    if not ctx.config.hooks:
        return ()
    names = asked_at(ctx.config, Hook.PRE_TOOL_USE, wish.name, arguments_of(wish.arguments))
    return tuple([name for name in names if name not in hooks.asked])


def _ask_hooks(wish: ToolCall, names: tuple[str, ...], hooks: Hearing, draft: Draft) -> tuple[str, Hearing]:
    """Ask *names*; the id of the request, and whose opinions there will be then."""
    payload = told_of_call(wish.name, arguments_of(wish.arguments) or {})
    request = ask_hooks(Hook.PRE_TOOL_USE, names, payload, draft, wish.id)
    return request, Hearing(asked=(*hooks.asked, *names), said=hooks.said)


def judged(call: Call, spec: ToolSpec, hooks: Hearing, ctx: Context, draft: Draft) -> Call:
    """*call* after the rules have spoken, in the light of what the *hooks* said."""
    arguments = arguments_of(call.call.arguments) or {}
    found = law(ctx, draft).judge(spec, arguments, opinion(hooks.said))
    tell_judged(call, found, draft)
    match found.verdict:
        case Verdict.DENY:
            return settled(call, Outcome.DENIED, texts.denied(found), draft)
        case Verdict.ASK:
            return ask(call, found, hooks, ctx, draft)
        case Verdict.ALLOW:
            return cleared(call, found.ground, hooks, ctx, draft)


def tell_judged(call: Call, found: Judgement, draft: Draft) -> None:
    """Tell whoever watches what was *found* about *call*."""
    wish = call.call
    draft.add(
        CallJudged(
            call=wish.id, tool=wish.name, verdict=found.verdict, ground=found.ground, detail=found.detail
        )
    )


def ask(call: Call, found: Judgement, hooks: Hearing, ctx: Context, draft: Draft) -> Call:
    """*call*, about which a person is asked, because of what was *found*."""
    wish, within = call.call, ctx.config.policy.answer_within
    request = draft.new_id()
    deadline = Forever() if within is None else Timer(request=draft.new_id(), due=ctx.now + within)
    why = f"{found.ground}: {found.detail}"
    phase = Asked(request=request, ground=found.ground, why=why, hooks=hooks, deadline=deadline)
    asked = question(wish, phase)
    draft.add(asked)
    if isinstance(deadline, Timer):
        draft.add(SetTimer(id=deadline.request, due=deadline.due))
    draft.add(
        ApprovalRequested(
            request=request,
            call=wish.id,
            tool=wish.name,
            arguments=wish.arguments,
            why=why,
            due=asked.due,
        )
    )
    return call.at(phase)


def question(wish: ToolCall, asked: Asked) -> AskApproval:
    """The question whether *wish* may run, as it was *asked*."""
    return AskApproval(
        id=asked.request,
        call=wish.id,
        tool=wish.name,
        arguments=wish.arguments,
        why=asked.why,
        due=asked.deadline.due if isinstance(asked.deadline, Timer) else None,
    )


def cleared(call: Call, ground: Ground, hooks: Hearing, ctx: Context, draft: Draft) -> Call:
    """*call*, which was allowed on *ground*; hooks that have not been heard are asked now."""
    names = unheard(call.call, hooks, ctx)
    if not names:
        return call.at(Allowed(ground=ground))
    request, asked = _ask_hooks(call.call, names, hooks, draft)
    return call.at(Vetted(request=request, ground=ground, hooks=asked))


# The hooks answered


def hooks_answered(
    call: Call, phase: Hooked | Vetted, event: HookAnswered, batch: Batch, ctx: Context, draft: Draft
) -> tuple[Call, Opinion]:
    """
    *call* after the hooks answered, with the arguments they gave it, and what these said.

    Hooks that are for other arguments than the model's are asked when it comes to have such.
    """
    latest = heard(Hook.PRE_TOOL_USE, event, draft, call.call.id)
    hooks = Hearing(asked=phase.hooks.asked, said=(*phase.hooks.said, *event.said))
    said = opinion(hooks.said)
    # What is denied is denied as the model wrote it: it would not know what was wrong with anything else.
    if latest.arguments and said.verdict is not Verdict.DENY:
        call = call.given(latest.arguments)
    spec = spec_of(batch, call, ctx)
    fault = fault_in(call.call, spec, batch.offered)
    if spec is None or fault:
        return settled(call, Outcome.ERROR, fault, draft), latest
    if isinstance(phase, Vetted) and phase.ground is Ground.PERSON:
        # A person has said yes to it, and is not asked twice; a denial still holds.
        denied = denied_now(call, spec, said, ctx, draft)
        return denied or cleared(call, Ground.PERSON, hooks, ctx, draft), latest
    if said.verdict is not Verdict.DENY and (names := unheard(call.call, hooks, ctx)):
        request, asked = _ask_hooks(call.call, names, hooks, draft)
        return call.at(attrs.evolve(phase, request=request, hooks=asked)), latest
    return judged(call, spec, hooks, ctx, draft), latest


def denied_now(call: Call, spec: ToolSpec, said: Opinion | None, ctx: Context, draft: Draft) -> Call | None:
    """*call*, settled, where a rule, a hook or the mode denies it whoever has allowed it; None where not."""
    found = law(ctx, draft).denial(spec, arguments_of(call.call.arguments) or {}, said)
    if found is None:
        return None
    tell_judged(call, found, draft)
    return settled(call, Outcome.DENIED, texts.denied(found), draft)


def still_allowed(call: Call, spec: ToolSpec, ctx: Context, draft: Draft) -> bool:
    """Whether rules, mode and tool allow *call* now, hooks aside."""
    found = law(ctx, draft).judge(spec, arguments_of(call.call.arguments) or {})
    return found.verdict is Verdict.ALLOW


def approved(call: Call, phase: Asked, edited: str, batch: Batch, ctx: Context, draft: Draft) -> Call:
    """
    *call*, to which a person said yes, with their arguments where they *edited* them.

    No second question is asked: arguments that do not fit are an error result, since the person has had
    their say and the model can try again. Denials are looked up when it starts. The history keeps what the
    model wrote: it is what the model said.
    """
    if edited:
        call = call.given(edited)
    tell_judged(
        call, Judgement(Verdict.ALLOW, Ground.PERSON, "with other arguments" if edited else ""), draft
    )
    if fault := fault_in(call.call, spec_of(batch, call, ctx), batch.offered):
        return settled(call, Outcome.ERROR, fault, draft)
    return cleared(call, Ground.PERSON, phase.hooks, ctx, draft)
