"""
Going: the one place from which a turn's request leaves.

Whatever stands against it is looked at in one order: limits first, since what is not paid for any more need
not be read or summarised; then what a person said; then old results, which are left out before anything is
summarised, since that costs nothing and may be enough; then loops, then the size of the context. What is done
about one of them leads back here, so none is passed over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..effects.notices import DoneReason, ModelCalled
from ..effects.notices_upkeep import LoopDetected, LoopStage, ResultsCleared
from ..effects.records import ClearResults, Lane, WithdrawTool
from ..effects.requests import CallModel, Conversation
from .draft import Draft
from .rules import clearing, compaction, loops
from .rules.limits import may_not_go_on
from .rules.sizes import saved
from .state import Compacting, CompactReason, End, Go, Steer, Streaming, Thinking

if TYPE_CHECKING:
    from ..effects import Effect
    from .context import Context

Step = tuple[Thinking | Streaming | Compacting, tuple["Effect", ...]]


def go(state: Thinking, ctx: Context) -> Step:
    """Call the model, unless something stands against it."""
    config, memory, draft = ctx.config, ctx.memory, Draft(ctx)
    if reason := may_not_go_on(config, memory.spent, memory.earlier):
        return draft.to(Thinking(stage=End(reason=reason)))
    if memory.mail and memory.waiting(Lane.STEER):
        return draft.to(Thinking(stage=Steer(), attempt=state.attempt))
    before = clearing.before(config.compaction, memory.history, memory.cleared, memory.results)
    if before is not None:
        return _clear(before, state, ctx)
    loop = loops.found(memory.history, config, memory.withdrawn, memory.spent.turns)
    if loop is not None and loop.acts:
        return _looped(loop, state, ctx)
    if _too_long(ctx):
        return draft.to(Compacting(reason=CompactReason.THRESHOLD))
    return _call(state, loop, ctx)


def _too_long(ctx: Context) -> bool:
    """Whether the conversation is to be shortened, and has something old that can be."""
    config, memory, window = ctx.config, ctx.memory, ctx.model.window
    if not compaction.wanted(memory.size, window, config, memory.compactions, memory.compaction_failures):
        return False
    return compaction.worth_it(memory.history, ctx.cut(window), window)


def _clear(before: int, state: Thinking, ctx: Context) -> Step:
    """From now on leave out old results, those in the messages before index *before*."""
    draft, memory = Draft(ctx), ctx.memory
    count = clearing.count(memory.history, memory.cleared, before)
    if count:
        draft.add(ResultsCleared(count=count, tokens=saved(memory.history, memory.cleared, before)))
    draft.add(ClearResults(before=before))
    return draft.to(Thinking(stage=Go(), attempt=state.attempt))


def _looped(loop: loops.Loop, state: Thinking, ctx: Context) -> Step:
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


def _call(state: Thinking, loop: loops.Loop | None, ctx: Context) -> Step:
    """
    Ask the model, which reads what is to be said of a *loop* behind what hooks have to say.

    Whoever watches is told of it once, and not again with each try. The request names a revision and a length
    of the history instead of carrying it, so a turn costs the same however long it is.
    """
    memory, model, draft = ctx.memory, ctx.model.name, Draft(ctx)
    history, said = memory.history, memory.pending_context
    if loop is not None:
        if not loop.done and state.attempt == 1:
            draft.add(_told(loop))
        said = (*said, loop.text)
    offered = tuple([tool.name for tool in ctx.config.tools])
    if memory.withdrawn:
        away = loops.away(memory.withdrawn, memory.spent.turns)
        offered = tuple([tool for tool in offered if tool not in away])
    request = draft.new_id()
    draft.add(
        CallModel(
            id=request,
            model=model,
            view=Conversation(revision=history.revision, length=history.length, cleared=memory.cleared),
            system=ctx.system,
            thinking=ctx.thinking,
            tools=offered,
            instructions="\n".join(said),
            attempt=state.attempt,
        ),
        ModelCalled(request=request, model=model, attempt=state.attempt),
    )
    return draft.to(Streaming(request=request, model=model, attempt=state.attempt, offered=offered))
