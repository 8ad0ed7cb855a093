"""A call that may have run when the process was lost in which it was at work: whether it is asked about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..effects.permissions import Ground, PermissionMode, Verdict
from ..effects.policy import OnLost
from .batch import Call, Hearing, Order, Running, Stopping, Tried
from .judging import ask, fault_in, law, spec_of, tell_judged, unheard
from .rules import texts
from .rules.gate import Judgement
from .rules.schema import arguments_of

if TYPE_CHECKING:
    from .batch import Batch
    from .context import Context
    from .draft import Draft


def asked_again(call: Call, phase: Running, batch: Batch, ctx: Context, draft: Draft) -> Call | None:
    """
    *call*, which was at work in *phase*, and a person asked whether it runs again; None where nobody is.

    That is so by policy, in a mode in which nobody is asked, and where it would not run whatever they said.
    Hooks that looked at its arguments have done so.
    """
    if ctx.config.policy.on_lost is not OnLost.ASK or ctx.memory.mode is PermissionMode.DONT_ASK:
        return None
    if batch.stopping > Stopping.DENIED or phase.told is Order.STOP or not _may_run(call, batch, ctx, draft):
        return None
    found = Judgement(Verdict.ASK, Ground.LOST, texts.AGAIN)
    tell_judged(call, found, draft)
    doubted = Call(call=call.call, phase=phase, tried=Tried.LOST)
    return ask(doubted, found, Hearing(asked=unheard(call.call, Hearing(), ctx)), ctx, draft)


def _may_run(call: Call, batch: Batch, ctx: Context, draft: Draft) -> bool:
    """Whether the tool of *call* is there, takes its arguments, and nothing denies it."""
    spec = spec_of(batch, call, ctx)
    if spec is None or fault_in(call.call, spec, batch.offered):
        return False
    return law(ctx, draft).denial(spec, arguments_of(call.call.arguments) or {}) is None
