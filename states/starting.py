"""
Starting calls: which may be judged, which may run, and what that asks of the world.

Serial by default: a call is judged when its turn comes. Where reads run in parallel, a read starts when no
earlier call that is none is left, anything else when nothing earlier is, and all may be asked about ahead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from ..effects.config import Concurrency, Grant, SideEffect, ToolKind, ToolSpec
from ..effects.messages import Outcome, ToolCall
from ..effects.notices import AgentStarted, ApprovalRequested, ToolStarted
from ..effects.records import AddUsage, GrantRule
from ..effects.requests import AskApproval, RunAgent, RunTool
from .rules import texts
from .rules.children import child_prompt, child_tools, remainder
from .rules.gate import must_ask
from .rules.limits import over_budget
from .rules.schema import arguments_of, problem
from .settling import give_up, settled
from .state import Allowed, Asked, Batch, Call, Delegated, Queued, Running, Settled, Stopping

if TYPE_CHECKING:
    from ..effects.config import ChildSpec, Config
    from ..effects.usage import Spent
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


def _account(ctx: Context, draft: Draft) -> Spent:
    """
    What the run has spent, with what this very step has recorded.

    A handler does not see its own records in the memory, and a child that is started right after another
    one ended must not be given what that one used.
    """
    spent = ctx.memory.spent
    for effect in draft.effects:
        if isinstance(effect, AddUsage):
            spent += effect.spent
    return spent


def _grants(ctx: Context, draft: Draft) -> tuple[Grant, ...]:
    """The rules that answer questions beforehand, with those granted in this very step."""
    granted = [effect.grant for effect in draft.effects if isinstance(effect, GrantRule)]
    return (*ctx.config.allow, *ctx.memory.granted, *granted)


def within_budget(batch: Batch, ctx: Context, draft: Draft) -> Batch:
    """
    *batch*, given up where the budget is used up.

    What has not started never will; what runs is let finish, since it is paid for.
    """
    if over_budget(ctx.config.limits, _account(ctx, draft)) is None:
        return batch
    return give_up(batch, Stopping.OVER_BUDGET, draft)


@final
@attrs.frozen
class _Room:
    """
    What the calls before this one leave room for.

    One pass in call order is enough: what a call may do depends on those before it only, and a call that is
    settled on the spot (no such tool, wrong arguments) makes room in the same pass.
    """

    concurrency: Concurrency
    free: int
    unsettled: int = 0
    unsettled_writes: int = 0

    def may_be_judged(self) -> bool:
        """In a serial batch a call is judged when its turn comes; otherwise all may be asked ahead."""
        return self.concurrency is Concurrency.PARALLEL_READS or self.unsettled == 0

    def may_run(self, spec: ToolSpec | None) -> bool:
        """A read runs beside reads; anything else runs when nothing earlier is left."""
        if self.concurrency is Concurrency.PARALLEL_READS and reads(spec):
            return self.unsettled_writes == 0 and self.free > 0
        return self.unsettled == 0

    def after(self, call: Call, spec: ToolSpec | None, *, newly: bool) -> _Room:
        """The room behind *call*, which *newly* came into its phase or was counted as at work before."""
        left = 0 if isinstance(call.phase, Settled) else 1
        started = newly and isinstance(call.phase, Running | Delegated)
        return _Room(
            self.concurrency,
            self.free - started,
            self.unsettled + left,
            self.unsettled_writes + (left and not reads(spec)),
        )


def reads(spec: ToolSpec | None) -> bool:
    """Whether *spec* is a tool that only reads; one that is not there might be anything."""
    return spec is not None and spec.side_effect is SideEffect.READ_ONLY


def start(batch: Batch, ctx: Context, draft: Draft) -> Batch:
    """*batch* with everything judged and started whose turn it is."""
    policy = ctx.config.policy
    at_work = sum([isinstance(call.phase, Running | Delegated) for call in batch.calls])
    room = _Room(policy.concurrency, policy.max_parallel - at_work)
    calls: list[Call] = []
    for queued in batch.calls:
        call = queued
        spec = spec_of(batch, call, ctx)
        if isinstance(call.phase, Queued) and room.may_be_judged():
            call = _judge(call, spec, batch.offered, ctx, draft)
        if isinstance(call.phase, Allowed) and room.may_run(spec):
            call = _run(call, spec, batch.offered, ctx, draft)
        room = room.after(call, spec, newly=call is not queued)
        calls.append(call)
    return batch.with_calls(calls, batch.stopping)


# The requests of a call: made when it starts, and again when a process that was lost left one open


def question(wish: ToolCall, request: str) -> AskApproval:
    """The question whether *wish* may run."""
    return AskApproval(id=request, call=wish.id, tool=wish.name, arguments=wish.arguments)


def tool_run(wish: ToolCall, spec: ToolSpec, request: str) -> RunTool:
    """The order to run *wish* with the tool *spec*."""
    return RunTool(id=request, call=wish.id, tool=wish.name, arguments=wish.arguments, timeout=spec.timeout)


def child_run(wish: ToolCall, child: ChildSpec, config: Config, spent: Spent, request: str) -> RunAgent:
    """The order to run *child* for *wish*, with no more than a parent that has *spent* so much can give."""
    _, prompt = child_prompt(arguments_of(wish.arguments) or {})
    return RunAgent(
        id=request,
        call=wish.id,
        agent=child.name,
        prompt=prompt,
        tools=child_tools(config, child),
        limits=remainder(child.limits, config.limits, spent),
    )


def fault_in(call: Call, spec: ToolSpec) -> str:
    """
    Why *call* cannot run with its arguments, as its model will read it; empty where it can.

    Checked before a person is asked: nobody should be bothered about a call that cannot run.
    """
    wish = call.call
    arguments = arguments_of(wish.arguments)
    if arguments is None:
        return texts.invalid_arguments(wish.name, "they are no valid JSON object")
    found = problem(spec.schema, arguments)
    return texts.invalid_arguments(wish.name, found) if found else ""


def _judge(call: Call, spec: ToolSpec | None, offered: tuple[str, ...], ctx: Context, draft: Draft) -> Call:
    """*call*, allowed, asked about, or settled with what is wrong with it."""
    wish = call.call
    if spec is None:
        return settled(call, Outcome.ERROR, texts.not_found(wish.name, offered), draft)
    if fault := fault_in(call, spec):
        return settled(call, Outcome.ERROR, fault, draft)
    if not must_ask(spec, ctx.memory.mode, _grants(ctx, draft), arguments_of(wish.arguments) or {}):
        return Call(call=wish, phase=Allowed())
    request = draft.new_id()
    draft.add(
        question(wish, request),
        ApprovalRequested(request=request, call=wish.id, tool=wish.name, arguments=wish.arguments),
    )
    return Call(call=wish, phase=Asked(request=request))


def _run(call: Call, spec: ToolSpec | None, offered: tuple[str, ...], ctx: Context, draft: Draft) -> Call:
    """*call* at work. The id of its request is its idempotency key, also when it is run again."""
    wish = call.call
    # Looked up again: the configuration may be another one than when the call was judged.
    if spec is None:
        return settled(call, Outcome.ERROR, texts.not_found(wish.name, offered), draft)
    if spec.kind is ToolKind.AGENT:
        return _delegate(call, ctx, draft)
    request = draft.new_id()
    draft.add(
        tool_run(wish, spec, request),
        ToolStarted(call=wish.id, tool=wish.name, arguments=wish.arguments),
    )
    return Call(call=wish, phase=Running(request=request))


def _delegate(call: Call, ctx: Context, draft: Draft) -> Call:
    """*call* in the hands of a child, with a subset of the tools and no more than what is left."""
    wish = call.call
    name, prompt = child_prompt(arguments_of(wish.arguments) or {})
    child = ctx.config.child(name)
    if child is None:
        there = ", ".join(child.name for child in ctx.config.children) or "none"
        return settled(call, Outcome.ERROR, f"No agent named {name!r}. There are: {there}.", draft)
    if not prompt:
        fault = texts.invalid_arguments(wish.name, "prompt must be a text that says what to do")
        return settled(call, Outcome.ERROR, fault, draft)
    request = draft.new_id()
    draft.add(
        child_run(wish, child, ctx.config, _account(ctx, draft), request),
        AgentStarted(call=wish.id, agent=name, prompt=prompt),
    )
    return Call(call=wish, phase=Delegated(request=request))
