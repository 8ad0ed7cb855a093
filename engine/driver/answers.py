"""The answer that is given for a performer that failed to give one."""

from __future__ import annotations

import asyncio
from typing import assert_never

import attrs

from ...effects.events import (
    AgentFinished,
    Answer,
    ApprovalGiven,
    Deny,
    Event,
    Failure,
    HookAnswered,
    InstructionsRead,
    ModelFailed,
    ModelFinished,
    TimerFired,
    ToolFinished,
)
from ...effects.hooks import HookSaid
from ...effects.messages import Outcome
from ...effects.requests import (
    AskApproval,
    CallModel,
    FireHook,
    ReadInstructions,
    Request,
    RunAgent,
    RunTool,
    SetTimer,
)
from ...states.rules import model_messages

ANSWERS: dict[type[Request], tuple[type[Event], ...]] = {
    CallModel: (ModelFinished, ModelFailed),
    RunTool: (ToolFinished,),
    AskApproval: (ApprovalGiven,),
    FireHook: (HookAnswered,),
    ReadInstructions: (InstructionsRead,),
    RunAgent: (AgentFinished,),
    SetTimer: (TimerFired,),
}
"""What each request may be answered with."""


def check_answer(request: Request, answer: Answer | None, at: float) -> Event | None:
    """
    *answer*; or that the performer is broken, where it is none to *request*: nobody waits for ever.

    None is an answer in two cases: whoever was asked a question leaves it to somebody else, and a child that
    rests on one is left until it is answered.
    """
    if answer is None and isinstance(request, AskApproval | RunAgent):
        return None
    if isinstance(answer, ANSWERS[type(request)]) and answer.request == request.id:
        return _honest(request, answer)
    fault = TypeError(f"whoever performs {type(request).__name__} answered {request.id} with {answer!r}")
    return failed_answer(request, fault, at)


def failed_answer(  # noqa: PLR0911  # one return for each kind of request
    request: Request, error: BaseException, at: float
) -> Event | None:
    """
    What *error*, raised by whoever performed *request*, means; None where a cancelled request dies.

    Work always gives its one answer. A question whose asker failed is a no, since nobody said yes.
    """
    cancelled = isinstance(error, asyncio.CancelledError)
    match request:
        case CallModel():
            failure = Failure.CANCELLED if cancelled else Failure.INTERNAL
            return ModelFailed(at=at, request=request.id, failure=failure, message=_said(error))
        case RunTool():
            content, outcome = _work(error, cancelled=cancelled)
            return _honest(request, ToolFinished(at=at, request=request.id, content=content, outcome=outcome))
        case RunAgent():
            content, outcome = _work(error, cancelled=cancelled)
            return AgentFinished(at=at, request=request.id, content=content, outcome=outcome)
        case AskApproval():
            message = f"Nobody could be asked: {_said(error)}"
            return (
                None
                if cancelled
                else ApprovalGiven(at=at, request=request.id, decision=Deny(message=message))
            )
        case FireHook():
            said = tuple([HookSaid(name=name, fault=_said(error)) for name in request.names])
            return None if cancelled else HookAnswered(at=at, request=request.id, said=said)
        case ReadInstructions():
            faults = (f"the instructions cannot be read: {_said(error)}",)
            return None if cancelled else InstructionsRead(at=at, request=request.id, text="", faults=faults)
        case SetTimer():
            return (
                None if cancelled else TimerFired(at=at, request=request.id)
            )  # late or early, but not never
        case _:
            assert_never(request)


def _honest(request: Request, answer: Answer) -> Answer:
    """*answer* to *request*; where an earlier try may have done the work, one that failed says so, too."""
    if not isinstance(request, RunTool) or not isinstance(answer, ToolFinished) or not request.again:
        return answer
    match answer.outcome:
        case Outcome.OK | Outcome.UNKNOWN:
            return answer
        case Outcome.CANCELLED:
            outcome = Outcome.UNKNOWN
        case outcome:
            pass
    return attrs.evolve(answer, outcome=outcome, content=model_messages.run_again(answer.content))


def _work(error: BaseException, *, cancelled: bool) -> tuple[str, Outcome]:
    if cancelled:
        return model_messages.CANCELLED, Outcome.CANCELLED
    return f"Tool execution crashed: {_said(error)}", Outcome.CRASHED


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
