"""Going on with a run that another process left, or that was handed over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...effects.events import ApprovalGiven
from ...effects.notices import ApprovalRequested
from ...effects.requests import AskApproval
from ..recovery import recover
from .children import in_mode

if TYPE_CHECKING:
    from ...effects import Effect
    from ...effects.config import Config
    from ...effects.events import Event
    from .session_state import SessionLog


async def take_over(
    log: SessionLog, config: Config, at: float
) -> tuple[tuple[Effect, ...], tuple[Event, ...]]:
    """
    Go on under *config* with the run of *log* that is not over: what is done again, and what has happened.

    A question that somebody has answered meanwhile is not asked again.
    """
    unbegun = log.folded.unbegun
    machine = await log.take_over(config, at)
    recovery = recover(machine, at, unbegun)
    answered = {event.request for event in log.pending if isinstance(event, ApprovalGiven)}
    again = [
        in_mode(one, log.pending)
        for one in recovery.again
        if not isinstance(one, AskApproval) or one.id not in answered
    ]
    asked = [_asked(request) for request in again if isinstance(request, AskApproval)]
    return (*again, *asked), recovery.events


def _asked(question: AskApproval) -> ApprovalRequested:
    """What whoever watches a run that is taken over is told of a question that was open."""
    return ApprovalRequested(
        request=question.id,
        call=question.call,
        tool=question.tool,
        arguments=question.arguments,
        why=question.why,
        due=question.due,
    )
