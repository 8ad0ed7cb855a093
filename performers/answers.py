"""The one answer of a performer: that it fits its request, and what stands for one where it failed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import assert_never

import attrs

from ..effects import events, requests
from ..effects.config import Config
from ..effects.errors import AnswerRefused
from ..effects.events import Event
from ..effects.hooks import HookSaid
from ..effects.messages import Outcome
from ..effects.requests import AskApproval, Request, SetTimer
from ..states.rules import model_messages
from .approvals import check_edit
from .base import noop

# The events that answer each type of request.
ANSWERS: dict[type[Request], tuple[type[Event], ...]] = {
    requests.CallModel: (events.ModelFinished, events.ModelFailed),
    requests.RunTool: (events.ToolFinished,),
    AskApproval: (events.ApprovalGiven,),
    requests.FireHook: (events.HookAnswered,),
    requests.InspectCall: (events.CallInspected,),
    requests.ReadInstructions: (events.InstructionsRead,),
    requests.DecodeOutput: (events.OutputDecoded,),
    requests.RunAgent: (events.AgentFinished,),
    SetTimer: (events.TimerFired,),
}


def check_answer(
    request: Request, answer: events.Answer | None, at: float, misfit: Callable[[TypeError], object] = noop
) -> Event | None:
    """
    *answer* as the event that *request* waits for; a failure where the performer gave anything else.

    *misfit* is told of that one. None answers a question only: the approver leaves it to another one.
    """
    if answer is None and isinstance(request, AskApproval):
        return None
    # The id, too: a host's performer that answers another request would leave this one open for ever.
    if isinstance(answer, ANSWERS[type(request)]) and answer.request == request.id:
        return _marked_again(request, answer)
    fault = TypeError(f"the performer of {type(request).__name__} answered {request.id} with {answer!r}")
    misfit(fault)
    return failed_answer(request, fault, at)


def answer_fault(question: AskApproval, answer: object, config: Config) -> AnswerRefused | None:
    """Why the *answer* of any performer to *question* is not taken; None where it is, or is no decision."""
    if isinstance(answer, events.ApprovalGiven):
        try:
            check_edit(question, answer.decision, config)
        except AnswerRefused as error:
            return error
    return None


def failed_answer(  # noqa: PLR0911  # one return for each kind of request
    request: Request, error: BaseException, at: float
) -> Event | None:
    """The answer of *request* after its performer raised *error*; None where no answer is due."""
    cancelled = isinstance(error, asyncio.CancelledError)
    text = f"{type(error).__name__}: {error}"
    # A model, a tool or a child may have done something, so the machine waits for word of them even after a
    # cancel. The others it forgets when it withdraws them: an answer would only be ignored.
    if cancelled and not isinstance(request, requests.CallModel | requests.RunTool | requests.RunAgent):
        return None
    match request:
        case requests.CallModel():
            failure = events.Failure.CANCELLED if cancelled else events.Failure.INTERNAL
            return events.ModelFailed(at=at, request=request.id, failure=failure, message=text)
        case requests.RunTool() | requests.RunAgent():
            content = model_messages.CANCELLED if cancelled else f"Tool execution crashed: {text}"
            outcome = Outcome.CANCELLED if cancelled else Outcome.CRASHED
            finished = events.ToolFinished if isinstance(request, requests.RunTool) else events.AgentFinished
            answer = finished(at=at, request=request.id, content=content, outcome=outcome)
            return _marked_again(request, answer)
        case AskApproval():
            # No person agreed, so a broken approver counts as a denial.
            denied = events.Deny(message=f"The approver failed: {text}")
            return events.ApprovalGiven(at=at, request=request.id, decision=denied)
        case requests.FireHook():
            # For each hook by itself: the machine decides by its name whether a fault stops the call.
            faulty = tuple([HookSaid(name=name, fault=text) for name in request.names])
            return events.HookAnswered(at=at, request=request.id, said=faulty)
        case requests.InspectCall():
            # Nothing was found, so each rule that could speak about the call makes it a question.
            return events.CallInspected(at=at, request=request.id)
        case requests.ReadInstructions():
            # The run goes on without them, and its subscribers see the fault.
            faults = (f"the instructions cannot be read: {text}",)
            return events.InstructionsRead(at=at, request=request.id, text="", faults=faults)
        case requests.DecodeOutput():
            # The model is asked again: most often the class refuses what it was not written for.
            fault = f"the check of it failed: {text}"
            return events.OutputDecoded(at=at, request=request.id, fault=fault)
        case SetTimer():
            # The clock failed. The timer fires now: the wrong time is better than never.
            return events.TimerFired(at=at, request=request.id)
        case _:
            assert_never(request)


# Outcomes of a second try that hold for the first one, too.
SETTLING = frozenset({Outcome.OK, Outcome.UNKNOWN})


def _marked_again(request: Request, answer: events.Answer) -> events.Answer:
    """*answer*, with a note for the model where it failed and an earlier try may have done the work."""
    match request, answer:
        # The first try was in a process that is gone. A success settles it; a failure of the second try says
        # nothing about the first, and the model must not conclude that nothing happened.
        case requests.RunTool(again=True), events.ToolFinished(outcome=outcome) if outcome not in SETTLING:
            outcome = Outcome.UNKNOWN if outcome is Outcome.CANCELLED else outcome
            return attrs.evolve(answer, outcome=outcome, content=model_messages.run_again(answer.content))
        case _:
            return answer
