"""Starting calls: which may be judged, which may run, and what that asks of the world."""

# Serial by default: a call is judged when its turn comes. Where calls may run side by side, one starts when
# no earlier call that it could disturb is left, and all may be judged ahead.

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import final

import attrs

from ...effects.config import ChildSpec, Concurrency, Config, Limits, SideEffect, ToolKind, ToolSpec
from ...effects.messages import Outcome, ToolCall
from ...effects.notices import AgentStarted, ToolStarted
from ...effects.permissions import PermissionMode, resolved
from ...effects.records import AddUsage
from ...effects.requests import RunAgent, RunTool
from ...effects.usage import Spent
from ..builder import Draft
from ..context import Context
from ..rules import model_messages
from ..rules.limits import child_prompt, child_tools, granted, left, may_not_go_on, over_budget
from ..rules.rule_fit import NO_FINDING
from ..rules.schema import arguments_of
from .batch import Allowed, Batch, Call, Held, Queued, Running, RunningChild, Settled, Stopping, Working
from .permission import doubted, finding_of, judge_queued, spec_of
from .settle import give_up, settled


def _account(ctx: Context, draft: Draft) -> Spent:
    """What the run has spent, with what this very step has recorded."""
    # A handler does not see its own records in the memory, and a child that is started right after another
    # one ended must not be given what that one used.
    spent = ctx.memory.spent
    for effect in draft.effects:
        if isinstance(effect, AddUsage):
            spent += effect.spent
    return spent


def within_budget(batch: Batch, ctx: Context, draft: Draft) -> Batch:
    """*batch*, given up where the budget is used up."""
    # Most runs have no budget, and sums are dear where this is asked after each call.
    if not ctx.config.budgeted:
        return batch
    # What has not started never will; what runs is let finish, since it is paid for.
    if may_not_go_on(ctx.config, _account(ctx, draft), ctx.memory.earlier, over_budget) is None:
        return batch
    # The turn that made these calls is paid for; what they would cost on top is not.
    return give_up(batch, Stopping.OVER_BUDGET, draft)


def start(batch: Batch, ctx: Context, draft: Draft) -> Batch:
    """*batch* with everything judged and started whose turn it is."""
    # One pass in call order is enough: what a call may do depends on those before it, and a call that is
    # settled on the spot (no such tool, wrong arguments) makes room in the same pass. What is at work behind
    # it counts too: a hook or a person may have led this call, by other arguments, to where that one is.
    policy = ctx.config.policy
    serial = policy.concurrency is Concurrency.SERIAL
    calls = list(batch.calls)
    before: list[ResourceUse] = []
    at_work = {
        place: _use_of(call, batch, ctx)
        for place, call in enumerate(batch.calls)
        if isinstance(call.phase, Working)
    }
    for place, queued in enumerate(batch.calls):
        # The output runs beside nothing, since nothing runs it.
        if isinstance(queued.phase, Settled | Held):
            continue
        call, use = queued, _use_of(queued, batch, ctx)
        # One at a time also means one question at a time: the answer to the first may make the second
        # needless.
        if isinstance(call.phase, Queued) and not (serial and before):
            call = judge_queued(call, batch, ctx, draft)
        # Free places are counted over the batch, so ten allowed reads do not open ten connections at once.
        if isinstance(call.phase, Allowed) and len(at_work) < policy.max_parallel:
            others = [*before, *[each for other, each in at_work.items() if other > place]]
            if all(use.apart_from(other) for other in others):
                # A call that was judged in this very pass needs no second look.
                if call is queued:
                    call = doubted(call, call.phase.ground, batch, ctx, draft)
                call = _run(call, batch, calls, ctx, draft)
        calls[place] = call
        if isinstance(call.phase, Working):
            at_work[place] = use
        if not isinstance(call.phase, Settled):
            before.append(use)
    return batch.with_calls(calls, batch.stopping)


def _use_of(call: Call, batch: Batch, ctx: Context) -> ResourceUse:
    concurrency = ctx.config.policy.concurrency
    if concurrency is Concurrency.SERIAL:
        return ResourceUse()  # it runs beside nothing
    # Resources count only where the policy lets writes run side by side. A read needs no key to be beside a
    # read.
    keyed = concurrency is Concurrency.PARALLEL
    return resource_use(spec_of(batch, call, ctx), arguments_of(call.call.arguments) if keyed else None)


# The requests of a call: made when it starts, and again when a process that was lost left one open


def tool_run(wish: ToolCall, spec: ToolSpec, request: str) -> RunTool:
    """The order to run *wish* with the tool *spec*."""
    return RunTool(id=request, call=wish.id, tool=wish.name, arguments=wish.arguments, timeout=spec.timeout)


def child_run(
    wish: ToolCall, child: ChildSpec, config: Config, limits: Limits, mode: PermissionMode, request: str
) -> RunAgent:
    """The order to run *child* for *wish* within the *limits* that are set aside for it."""
    _, prompt = child_prompt(arguments_of(wish.arguments) or {})
    return RunAgent(
        id=request,
        call=wish.id,
        agent=child.name,
        prompt=prompt,
        tools=child_tools(config, child),
        limits=limits,
        mode=mode,
    )


def child_session(session: str, call: str) -> str:
    """The id of the session of the child that works on *call* of *session*; empty where that has none."""
    # Made from the parent and the call: any process finds the child without a directory of them.
    return f"{session}.{call}" if session else ""


def _run(call: Call, batch: Batch, calls: Sequence[Call], ctx: Context, draft: Draft) -> Call:
    """*call* of *batch* at work, if it may; *calls* are how all its calls are by now."""
    wish, spec = call.call, spec_of(batch, call, ctx)
    # The id of its request is its idempotency key, also when it is run again.
    if spec is None or not isinstance(call.phase, Allowed):
        return call
    # A child is started by the loop and not by a performer of tools: what it may use depends on this batch.
    if spec.kind is ToolKind.AGENT:
        return _delegate(call, calls, ctx, draft)
    request = draft.new_id()
    draft.add(
        tool_run(wish, spec, request),
        ToolStarted(call=wish.id, tool=wish.name, arguments=wish.arguments, at=draft.at),
    )
    # Most calls were not looked at.
    finding = finding_of(call, ctx) if call.phase.inspection else None
    return call.at(Running(request=request, finding=finding or NO_FINDING))


def _delegate(call: Call, calls: Sequence[Call], ctx: Context, draft: Draft) -> Call:
    """*call* in the hands of a child, with a subset of the tools and no more than other *calls* leave."""
    wish = call.call
    name, prompt = child_prompt(arguments_of(wish.arguments) or {})
    # An error the model can read. It wrote the name, and it can pick another one.
    child = ctx.config.child(name)
    if child is None:
        there = ", ".join(child.name for child in ctx.config.children) or "none"
        return settled(call, Outcome.ERROR, f"No agent named {name!r}. There are: {there}.", draft)
    if not prompt:
        fault = model_messages.invalid_arguments(wish.name, "prompt must be a text that says what to do")
        return settled(call, Outcome.ERROR, fault, draft)
    # Also of children behind this call: they may have been approved first, and their share is not free.
    held = [one.phase.limits for one in calls if isinstance(one.phase, RunningChild)]
    # What this call was allowed says nothing about what is left: the budget is looked at when the child
    # starts.
    limits = granted(child.limits, left(ctx.config, _account(ctx, draft), ctx.memory.earlier), held)
    if isinstance(limits, str):
        return settled(
            call, Outcome.ERROR, model_messages.no_budget_for(name, limits, at_work=bool(held)), draft
        )
    request = draft.new_id()
    draft.add(
        child_run(wish, child, ctx.config, limits, ctx.memory.session.mode, request),
        AgentStarted(
            at=draft.at,
            call=wish.id,
            agent=name,
            prompt=prompt,
            session=child_session(ctx.memory.session.session_id, wish.id),
        ),
    )
    return call.at(RunningChild(request=request, limits=limits))


# What a call works on, and so which calls may run side by side.


@final
@attrs.frozen
class ResourceUse:
    """Whether a call only *reads*, and the *keys* of what it works on; None: it may touch anything."""

    reads: bool = False
    keys: frozenset[str] | None = None

    def apart_from(self, other: ResourceUse) -> bool:
        """Whether neither can disturb the other."""
        if self.reads and other.reads:
            return True
        return self.keys is not None and other.keys is not None and not self.keys & other.keys


def resource_use(spec: ToolSpec | None, arguments: Mapping[str, object] | None) -> ResourceUse:
    """What a call of *spec* reaches; its declared resources count where *arguments* are given."""
    if spec is None:
        return ResourceUse()
    reads = spec.side_effect is SideEffect.READ_ONLY
    # What is not declared may be anything, so such a call is apart only from reads, and only if it reads
    # itself.
    if spec.resources is None or arguments is None:
        return ResourceUse(reads)
    try:
        return ResourceUse(reads, frozenset([_filled(key, arguments) for key in spec.resources]))
    except KeyError:  # a key names an argument that is not there
        return ResourceUse(reads)


def _filled(key: str, arguments: Mapping[str, object]) -> str:
    """*key* with each ``{name}`` in it filled in."""
    return re.sub(r"\{(\w+)\}", lambda found: _plain(arguments[found[1]]), key)


def _plain(value: object) -> str:
    # `a/../b` and `b` are one file.
    return resolved(value) if isinstance(value, str) else json.dumps(value, sort_keys=True)
