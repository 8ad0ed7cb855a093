"""Giving calls their results: the one a tool gave, or the one it gets for not having run."""

# `Batch.stopping` only rises. Then each call that has not started gets its result at once. After a denial,
# open questions stay, and so do calls that a person allowed. A running call keeps its phase until its own
# answer comes, also when it is cancelled.

from __future__ import annotations

from typing import assert_never

import attrs

from ...effects.config import Config, SideEffect
from ...effects.messages import Outcome
from ...effects.notices import ApprovalWithdrawn, ToolStarted
from ...effects.permissions import Basis
from ...effects.records import AddUsage
from ...effects.requests import Cancel
from ...effects.usage import Spent
from ..builder import Draft, result_of
from ..rules import model_messages
from . import batch as phases
from .batch import Batch, Call, Order, Stopping

# What becomes of a call that does not start, by how much is given up.
UNSTARTED = {
    Stopping.DENIED: (Outcome.SKIPPED, model_messages.SKIPPED_AFTER_DENIAL),
    Stopping.STEERED: (Outcome.SKIPPED, model_messages.SKIPPED_AFTER_STEER),
    Stopping.HURRIED: (Outcome.SKIPPED, model_messages.SKIPPED_AFTER_STEER),
    Stopping.OVER_BUDGET: (Outcome.CANCELLED, model_messages.OVER_BUDGET),
    Stopping.INTERRUPTED: (Outcome.CANCELLED, model_messages.CANCELLED),
}


def settled(call: Call, outcome: Outcome, content: str, draft: Draft) -> Call:
    """*call* with its result, which watchers see."""
    return call.at(phases.Settled(result=result_of(call, outcome, content, draft)))


def give_up(batch: Batch, level: Stopping, draft: Draft) -> Batch:
    """*batch* with `stopping` raised to *level*: what has not started gets its result now."""
    # Work is told to stop only by who will not wait for it, and stays where it is until its answer comes:
    # it may have done something worth telling.
    # It only rises. A denial that comes after an interrupt must not make the run go on.
    if level > batch.stopping:
        batch = batch.with_calls([_given_up(call, level, draft) for call in batch.calls], level)
    # Lower levels let finish what runs: it is paid for, and half a change may be worse than a whole one.
    if level not in {Stopping.HURRIED, Stopping.INTERRUPTED}:
        return batch
    return batch.with_calls([told_to_stop(call, draft) or call for call in batch.calls], batch.stopping)


def _given_up(call: Call, level: Stopping, draft: Draft) -> Call:  # noqa: PLR0911  # one return for each kind of phase
    """*call* when its batch rises to *level*."""
    # A denial leaves alone what a person has allowed or is still being asked about.
    phase = call.phase
    match phase:
        case phases.Queued() | phases.AwaitingHooks() | phases.Inspecting():
            return unstarted(call, level, draft)
        # An output costs nothing more: a budget that is used up with it takes nothing away.
        case phases.Held():
            return call if level is Stopping.OVER_BUDGET else unstarted(call, level, draft)
        # Next to a denied call, one to which a person has said yes still runs: that yes was about this call
        # and not about the answer.
        case (
            phases.Allowed(ground=ground)
            | phases.AllowedAwaitingHooks(ground=ground)
            | phases.AllowedInspecting(ground=ground)
        ):
            stays = level <= Stopping.DENIED and ground is Basis.PERSON
            return call if stays else unstarted(call, level, draft)
        case phases.Asked():
            return unstarted(call, level, draft) if level > Stopping.DENIED else call
        # It has its result already; only the hooks that look at it are given up.
        case phases.Reviewed(request=request, result=result):
            if level is not Stopping.INTERRUPTED:
                return call
            draft.add(Cancel(request=request))
            return call.at(phases.Settled(result=result))
        case phases.Running() | phases.RunningChild() | phases.Settled():
            return call
        case _:
            assert_never(phase)


def told_to_stop(call: Call, draft: Draft) -> Call | None:
    """*call*, told to stop where it is at work and has not been told; None where that is not so."""
    phase = call.phase
    # Told once: a second `Cancel` would say nothing new, and stand in every journal.
    if not isinstance(phase, phases.Working) or phase.told is Order.STOP:
        return None
    draft.add(Cancel(request=phase.request))
    return call.at(attrs.evolve(phase, told=Order.STOP))


def unstarted(call: Call, level: Stopping, draft: Draft) -> Call:
    """*call*, which will not run, with the result that tells its model why; its questions are withdrawn."""
    # Before the result, so that an approval page closes the question before the call is over.
    withdraw(call, draft)
    return settled(call, *UNSTARTED[level], draft)


def withdraw(call: Call, draft: Draft, *, closed: str = "", late: bool = False) -> None:
    """
    Wait no longer for what is asked about *call*, before it starts; *closed* is a request that is over.
    """
    # A question that was not answered is shown as withdrawn, so that an approval page can close it.
    phase = call.phase
    if not isinstance(phase, phases.Asked | phases.Looking):
        return
    # The deadline too: a timer that fires for a question that is over would be one event more in each
    # journal.
    draft.add(*[Cancel(request=request) for request in call.open if request != closed])
    if isinstance(phase, phases.Asked) and (late or closed != phase.request):
        draft.add(ApprovalWithdrawn(request=phase.request, late=late, at=draft.at))


def take_output(batch: Batch, draft: Draft) -> tuple[Batch, bool]:
    """*batch*, of which outputs alone have no result, with these; and whether the first of them is taken."""
    # What a model gives beside calls it wrote before it saw their results. Where all went well, these hardly
    # change it; else the model has to know what did not.
    ends = [call.phase.result.outcome for call in batch.calls if isinstance(call.phase, phases.Settled)]
    is_taken = {*ends} <= {Outcome.OK}
    outcome, content = Outcome.SKIPPED, model_messages.OUTPUT_NOT_TAKEN
    if is_taken:
        outcome, content = Outcome.OK, model_messages.OUTPUT_TAKEN
    calls: list[Call] = []
    for call in batch.calls:
        if isinstance(call.phase, phases.Held):
            if outcome is Outcome.OK:
                # Nothing runs, but a watcher of calls sees each that ends well begin.
                wish = call.call
                draft.add(ToolStarted(call=wish.id, tool=wish.name, arguments=wish.arguments, at=draft.at))
            calls.append(settled(call, outcome, content, draft))
            if is_taken:
                outcome, content = Outcome.SKIPPED, model_messages.ONE_OUTPUT
        else:
            calls.append(call)
    return batch.with_calls(calls, batch.stopping), is_taken


def account_of(child: Spent) -> Spent:
    """What of a *child*'s account is its parent's: all but the turns, which are its own."""
    # The parent's limit on turns counts the answers of its own model.
    return attrs.evolve(child, turns=0)


def abandon(batch: Batch, config: Config, draft: Draft) -> Batch:
    """*batch* with nothing waited for any more: what was at work may have done its work."""
    return batch.with_calls([_abandoned(call, config, draft) for call in batch.calls], batch.stopping)


def _abandoned(call: Call, config: Config, draft: Draft) -> Call:
    """*call*, which is not waited for: a read did nothing, anything else may have run."""
    if not isinstance(call.phase, phases.Working):
        return call
    # The child's own end does not come any more, so its last report is the best account there is.
    if isinstance(call.phase, phases.RunningChild) and call.phase.spent != Spent():
        draft.add(AddUsage(spent=account_of(call.phase.spent)))
    # For anything but a read the model must not believe that nothing happened: it would do it again.
    spec = config.tool(call.call.name)
    if spec is not None and spec.side_effect is SideEffect.READ_ONLY:
        return settled(call, Outcome.CANCELLED, model_messages.CANCELLED, draft)
    return settled(call, Outcome.UNKNOWN, model_messages.MAY_HAVE_RUN, draft)
