"""Answers to questions over HTTP: decisions, and what became of a question that is open no more."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from http import HTTPStatus
from typing import TYPE_CHECKING

from ...effects import events, notices
from ...effects.errors import UnknownRequest
from ...engine.inspect.replay import replayed
from ...engine.journal.entries import Posted, Stepped
from ...engine.journal.fold import initial_state, read
from ...performers.approvals import approval_event
from ...performers.slices import Slices
from .bodies import ApprovalForAll, ApprovalForOne, Denial
from .problems import Refused

if TYPE_CHECKING:
    from ...engine.session.session import Session
    from .bodies import NewDecision

# What withdraws a question, as a person knows it.
WITHDRAWERS: dict[type, str] = {
    events.UserSteered: "a steer",
    events.Interrupted: "an interrupt",
    events.CallCancelled: "a cancel",
    events.TimerFired: "its deadline",
    events.ApprovalGiven: "the answer to another question",
}


def decision_of(given: NewDecision) -> events.Decision:
    """The decision that was *given*."""
    match given:
        case ApprovalForOne(arguments=arguments):
            return events.Approve() if arguments is None else events.Approve(arguments=arguments)
        case ApprovalForAll():
            return events.ApproveAlways()
        case Denial(reason=reason):
            return events.Deny(reason or "")


async def approve_all(session: Session, answers: Sequence[tuple[str, events.Decision]], by: str) -> None:
    """
    Answer several questions of *session*, all or none.

    Raises `UnknownRequest` where one is not open, and `AnswerRefused` where one is not taken.
    """
    waiting = [asked.id for asked in session.waiting]
    if len(dict(answers)) < len(answers):
        detail = "a question has two answers; send one for each"
        raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
    for request, decision in answers:
        # Of its form, which needs no time.
        approval_event(request, decision, 0, by)
        if request in waiting:
            await session.check_answer(request, decision)
    # First those that are not known here: where one is refused, none is given.
    for number, (request, decision) in enumerate(sorted(answers, key=lambda one: one[0] in waiting)):
        try:
            await session.approve(request, decision, by=by)
        except UnknownRequest:
            # One of these answers may close the question of another, such as a yes for all calls.
            if not number or request not in waiting:
                raise


async def answers_to(
    request: str, entries: Sequence[bytes], session: str
) -> AsyncGenerator[events.ApprovalGiven, None]:
    """The answers to the question *request* in the journal *entries* of *session*."""
    async for entry, _ in Slices(read(entries, session, initial_state(entries))):
        event = entry.event if isinstance(entry, Posted | Stepped) else None
        if isinstance(event, events.ApprovalGiven) and event.request == request:
            yield event


async def fate(request: str, entries: Sequence[bytes], session: str) -> str:
    """
    Who or what closed the question *request* of *session*; empty where it was never asked, or is open.
    """
    closed = ""
    async with aclosing(answers_to(request, entries, session)) as answers:
        async for given in answers:
            closed = f"was answered by {given.by or 'a person'}"
            break
    async for step in Slices(replayed(entries, session)):
        for effect in step.effects:
            if isinstance(effect, notices.ApprovalWithdrawn) and effect.request == request:
                # An answer that came too late is in the journal, too, and did not count.
                closed = f"was withdrawn by {WITHDRAWERS.get(type(step.event), 'the end of its call')}"
    return closed
