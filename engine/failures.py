"""The answer that is given for a performer that failed to give one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, assert_never

from ..effects.events import (
    AgentFinished,
    ApprovalGiven,
    Deny,
    Event,
    Failure,
    HookAnswered,
    ModelFailed,
    ToolFinished,
)
from ..effects.messages import Outcome
from ..effects.requests import AskApproval, CallModel, FireHook, RunAgent, RunTool, SetTimer
from ..states.rules import texts

if TYPE_CHECKING:
    from ..effects.requests import Request


def answer_for(request: Request, error: BaseException, at: float) -> Event | None:
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
            return ToolFinished(at=at, request=request.id, content=content, outcome=outcome)
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
            return None if cancelled else HookAnswered(at=at, request=request.id)
        case SetTimer():
            return None
        case _:
            assert_never(request)


def _work(error: BaseException, *, cancelled: bool) -> tuple[str, Outcome]:
    if cancelled:
        return texts.CANCELLED, Outcome.CANCELLED
    return f"Tool execution crashed: {_said(error)}", Outcome.CRASHED


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
