"""
Giving calls their results: the one a tool gave, or the one it gets for not having run.

`Batch.stopping` only rises, and raising it settles at once whatever has not started. What runs is cancelled,
where it is to be, but keeps its place until its own answer has come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..effects.config import SideEffect
from ..effects.messages import Outcome, ToolResult
from ..effects.notices import ApprovalWithdrawn, ToolEnded
from ..effects.requests import Cancel
from .rules import texts
from .state import Allowed, Asked, Batch, Call, Delegated, Queued, Running, Settled, Stopping

if TYPE_CHECKING:
    from ..effects.config import Config
    from .draft import Draft


def settled(call: Call, outcome: Outcome, content: str, draft: Draft, *, seconds: float = 0.0) -> Call:
    """*call* with its result, which is told to whoever watches."""
    wish = call.call
    result = ToolResult(call=wish.id, wire_id=wish.wire_id, name=wish.name, content=content, outcome=outcome)
    draft.add(ToolEnded(call=wish.id, tool=wish.name, outcome=outcome, content=content, seconds=seconds))
    return Call(call=wish, phase=Settled(result=result))


def give_up(batch: Batch, level: Stopping, draft: Draft) -> Batch:
    """*batch* with `stopping` raised to *level*: what has not started gets its result now."""
    if level <= batch.stopping:
        return batch
    return batch.with_calls([_given_up(call, level, draft) for call in batch.calls], level)


def _given_up(call: Call, level: Stopping, draft: Draft) -> Call:
    """
    *call* when its batch rises to *level*.

    A denial leaves alone what a person has allowed or is still being asked about. Work is cancelled only by
    an interrupt, and stays where it is until its answer comes: it may have done something worth telling.
    """
    match call.phase:
        case Queued():
            return _unstarted(call, level, draft)
        case Allowed() if level > Stopping.DENIED:
            return _unstarted(call, level, draft)
        case Asked(request=request) if level > Stopping.DENIED:
            draft.add(Cancel(request=request), ApprovalWithdrawn(request=request))
            return _unstarted(call, level, draft)
        case Running(request=request) | Delegated(request=request) if level is Stopping.INTERRUPTED:
            draft.add(Cancel(request=request))
            return call
        case _:
            return call


def _unstarted(call: Call, level: Stopping, draft: Draft) -> Call:
    """*call*, which will not run, with the result that tells its model why."""
    match level:
        case Stopping.DENIED:
            return settled(call, Outcome.SKIPPED, texts.SKIPPED_AFTER_DENIAL, draft)
        case Stopping.OVER_BUDGET:
            return settled(call, Outcome.CANCELLED, texts.OVER_BUDGET, draft)
        case _:
            return settled(call, Outcome.CANCELLED, texts.CANCELLED, draft)


def abandon(batch: Batch, config: Config, draft: Draft) -> Batch:
    """*batch* with nothing waited for any more: what was at work may have done its work."""
    calls = [
        _abandoned(call, config, draft) if isinstance(call.phase, Running | Delegated) else call
        for call in batch.calls
    ]
    return batch.with_calls(calls, batch.stopping)


def _abandoned(call: Call, config: Config, draft: Draft) -> Call:
    """*call*, which is not waited for: a read did nothing, of anything else nobody knows."""
    spec = config.tool(call.call.name)
    if spec is not None and spec.side_effect is SideEffect.READ_ONLY:
        return settled(call, Outcome.CANCELLED, texts.CANCELLED, draft)
    return settled(call, Outcome.UNKNOWN, texts.MAY_HAVE_RUN, draft)
