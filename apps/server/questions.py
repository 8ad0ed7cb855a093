"""Answers to questions over HTTP: decisions, and what became of a question that is open no more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING

from ...effects import events, notices
from ...engine.inspect.replay import replayed
from ...engine.journal.entries import Posted, Stepped
from ...engine.journal.fold import initial_state, read
from ...states.rules.schema import problem as schema_problem
from .bodies import ApprovalForAll, ApprovalForOne, Denial
from .problems import Refused

if TYPE_CHECKING:
    from ...effects.config import Config
    from ...effects.requests import AskApproval
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
        case Denial():
            return events.Deny(given.reason or "")


def check_arguments(given: NewDecision, asked: AskApproval, config: Config) -> None:
    """Refuse arguments that do not fit the schema of the tool that was *asked* about."""
    spec = config.tool(asked.tool)
    if not isinstance(given, ApprovalForOne) or given.arguments is None or spec is None:
        return
    if wrong := schema_problem(spec.schema, given.arguments):
        detail = f"invalid arguments for {asked.tool!r}: {wrong}"
        raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, detail)


def answers_to(request: str, entries: Sequence[bytes], session: str) -> Iterator[events.ApprovalGiven]:
    """The answers to the question *request* in the journal *entries* of *session*."""
    for entry, _ in read(entries, session, initial_state(entries)):
        event = entry.event if isinstance(entry, Posted | Stepped) else None
        if isinstance(event, events.ApprovalGiven) and event.request == request:
            yield event


def fate(request: str, entries: Sequence[bytes], session: str) -> str:
    """
    Who or what closed the question *request* of *session*; empty where it was never asked, or is open.
    """
    given = next(answers_to(request, entries, session), None)
    closed = "" if given is None else f"was answered by {given.by or 'a person'}"
    for step in replayed(entries, session):
        for effect in step.effects:
            if isinstance(effect, notices.ApprovalWithdrawn) and effect.request == request:
                # An answer that came too late is in the journal, too, and did not count.
                closed = f"was withdrawn by {WITHDRAWERS.get(type(step.event), 'the end of its call')}"
    return closed
