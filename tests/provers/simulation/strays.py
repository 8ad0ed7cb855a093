"""Events that are late, repeated or out of place: none of them may change anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from provers.choices import Choices, chance, pick
from turnwheel.effects.config import Config
from turnwheel.effects.events import (
    AgentFinished,
    AgentProgressed,
    Answer,
    ApprovalGiven,
    Approve,
    CallCancelled,
    CallInspected,
    ControlReceived,
    Entered,
    Event,
    Failure,
    HookAnswered,
    InputWithdrawn,
    InstructionsRead,
    ModelFailed,
    ModelFinished,
    ModelStreamed,
    OutputDecoded,
    TimerFired,
    ToolFinished,
    ToolLost,
    ToolProgressed,
    UserSent,
    UserSteered,
)
from turnwheel.effects.history import TextPiece
from turnwheel.effects.messages import StopReason
from turnwheel.effects.requests import (
    AskApproval,
    CallModel,
    DecodeOutput,
    FireHook,
    InspectCall,
    ReadInstructions,
    Request,
    RunAgent,
    RunTool,
    SetTimer,
)
from turnwheel.effects.usage import Spent, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from provers.steps import Happening

REPEATED = 3
"""So many of the last answers and inputs come again."""


def stray(
    choices: Choices, open_: Sequence[Request], known: Iterable[str], journal: Sequence[Happening], at: float
) -> Event:
    """
    An event that does not apply: *open_* are open, *known* are all requests ever, and *journal* happened.
    """
    options: list[Event | None] = [
        CallCancelled(at=at, call="r-0"),
        Entered(at=at),
        *_last(journal, Answer),
        *_last(journal, UserSent | UserSteered | ControlReceived | InputWithdrawn),
        *[None] * 6,
    ]
    if (event := pick(choices, options)) is not None:
        return event
    if open_ and chance(choices, 60):
        request = pick(choices, open_)
        misfits = [event for event, fits in answers(request.id, at) if not isinstance(request, fits)]
        return pick(choices, [*misfits, *torn(request.id, at)])
    waiting = {request.id for request in open_}
    closed = [name for name in known if name not in waiting][-REPEATED:]
    return pick(choices, answers(pick(choices, ("", "r-0", "r-999", *closed)), at))[0]


def _last(journal: Sequence[Happening], kind: Any) -> list[Event]:  # a class, or several
    """The last events of *kind*, which come again."""
    found = [one for one in journal if not isinstance(one, Config) and isinstance(one, kind)]
    return found[-REPEATED:]


def torn(request: str, at: float) -> list[Event]:
    """Pieces of the answer to *request* that are not the next ones, or fewer than they say."""
    return [
        ModelStreamed(at=at, request=request, before=999, count=1, pieces=()),
        ModelStreamed(at=at, request=request, before=0, count=1, pieces=()),
    ]


def answers(request: str, at: float) -> list[tuple[Event, type[Request]]]:
    """Every event that can name *request*, and what it would have to be."""
    return [
        (ModelFinished(at=at, request=request, stop=StopReason.END_TURN, usage=Usage()), CallModel),
        (ModelFailed(at=at, request=request, failure=Failure.SERVER, message="no"), CallModel),
        (ModelStreamed(at=at, request=request, before=0, count=1, pieces=(TextPiece("no"),)), CallModel),
        (ToolFinished(at=at, request=request, content="no"), RunTool),
        (ToolLost(at=at, request=request), RunTool),
        (ToolProgressed(at=at, request=request, text="no"), RunTool),
        (ApprovalGiven(at=at, request=request, decision=Approve()), AskApproval),
        (HookAnswered(at=at, request=request), FireHook),
        (CallInspected(at=at, request=request), InspectCall),
        (InstructionsRead(at=at, request=request, text="no"), ReadInstructions),
        (OutputDecoded(at=at, request=request), DecodeOutput),
        (AgentProgressed(at=at, request=request, spent=Spent()), RunAgent),
        (AgentFinished(at=at, request=request, content="no"), RunAgent),
        (TimerFired(at=at, request=request), SetTimer),
    ]
