"""
Events: what came back or came in, in the past tense.

Each carries *at*, in seconds since the epoch: the only clock there is. An answer names its request. What
comes from outside carries an id of its sender's, so that a repeated post is one input.
"""

from __future__ import annotations

from enum import StrEnum
from math import isfinite
from typing import TYPE_CHECKING, TypeVar, final

import attrs

from .config import Steering
from .hooks import HookSaid
from .messages import Binary, Outcome, StopReason
from .pieces import Piece
from .records import Change
from .usage import Spent, Usage
from .validators import globs

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")


def _finite(instance: object, attribute: attrs.Attribute[T], value: T) -> None:
    # JSON has no word for the others, so they would come back as something else.
    if isinstance(value, float) and not isfinite(value):
        msg = f"{type(instance).__name__}.{attribute.name} must be a finite number; got {value!r}"
        raise ValueError(msg)


class Failure(StrEnum):
    """Why a model call failed, by what may be done about it."""

    RATE_LIMIT = "rate_limit"
    OVERLOADED = "overloaded"
    SERVER = "server"
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    # The stream ended without an end, or with an error in its middle.
    CUT = "cut"
    # The conversation is larger than the model's window.
    OVERFLOW = "overflow"
    AUTH = "auth"
    NOT_FOUND = "not_found"
    BAD_REQUEST = "bad_request"
    CANCELLED = "cancelled"
    # The process that waited for the answer is gone.
    LOST = "lost"
    # The request was never sent: its worker drained.
    UNBEGUN = "unbegun"
    INTERNAL = "internal"


@final
@attrs.frozen(kw_only=True)
class Entered:
    """A state that waits for nothing was entered; the time is that of the event that led there."""

    at: float


@final
@attrs.frozen(kw_only=True)
class ModelStreamed:
    """
    Pieces of an answer arrived. *before* is how many came earlier, *count* how many these stand for.

    Where *before* is not what the state has seen, the event does not apply.
    """

    at: float
    request: str
    before: int
    count: int
    pieces: tuple[Piece, ...]

    @property
    def fits(self) -> bool:
        """Whether its numbers can be: each piece stands for at least one that arrived."""
        return 0 < len(self.pieces) <= self.count


@final
@attrs.frozen(kw_only=True)
class ModelFinished:
    """
    A model answered. *pieces* are the last ones, or all of an answer that was not streamed.

    *seconds* is how long it took; *sequence* the stop sequence it met.
    """

    at: float
    request: str
    stop: StopReason = attrs.field(converter=StopReason)
    usage: Usage
    pieces: tuple[Piece, ...] = ()
    seconds: float = attrs.field(default=0.0, validator=_finite)
    sequence: str = ""


@final
@attrs.frozen(kw_only=True)
class ModelFailed:
    """
    A model call failed. *retry_after* is what the provider asked to wait, in seconds, *jitter* in [0, 1).

    The performer draws the jitter, since a transition draws nothing.
    """

    at: float
    request: str
    failure: Failure
    message: str
    retry_after: float | None = attrs.field(default=None, validator=_finite)
    jitter: float = attrs.field(default=0.0, validator=_finite)
    usage: Usage | None = None
    seconds: float = attrs.field(default=0.0, validator=_finite)


@final
@attrs.frozen(kw_only=True)
class ToolProgressed:
    """A running tool reported progress, for watchers."""

    at: float
    request: str
    text: str


@final
@attrs.frozen(kw_only=True)
class ToolFinished:
    """A tool ended, one way or another; *content* and *files* are what the model will read."""

    at: float
    request: str
    content: str
    outcome: Outcome = attrs.field(default=Outcome.OK, converter=Outcome)
    seconds: float = attrs.field(default=0.0, validator=_finite)
    files: tuple[Binary, ...] = ()


@final
@attrs.frozen(kw_only=True)
class ToolLost:
    """
    The process is gone in which a tool was at work: it may have run.

    Told of those only that must not run twice unknowingly.
    """

    at: float
    request: str


@final
@attrs.frozen(kw_only=True)
class Approve:
    """Yes. *arguments*, where given, take the place of the model's: JSON text, checked as theirs were."""

    arguments: str = ""


@final
@attrs.frozen(kw_only=True)
class ApproveAlways:
    """
    Yes, and do not ask about this tool again in this session, where its arguments match the globs *where*.
    """

    where: tuple[tuple[str, str], ...] = attrs.field(default=(), validator=globs)


@final
@attrs.frozen
class Deny:
    """No. The model reads *message*; with *interrupt* the run ends, too."""

    message: str = ""
    interrupt: bool = attrs.field(default=False, kw_only=True)


# What a person can say to a question.
Decision = Approve | ApproveAlways | Deny


@final
@attrs.frozen(kw_only=True)
class ApprovalGiven:
    """A question was answered. It names the request, never a call. *by* is who answered, in free words."""

    at: float
    request: str
    decision: Decision
    by: str = ""


@final
@attrs.frozen(kw_only=True)
class HookAnswered:
    """Hooks answered, each for itself, in the order they were asked."""

    at: float
    request: str
    said: tuple[HookSaid, ...] = ()


@final
@attrs.frozen(kw_only=True)
class InstructionsRead:
    """The instruction files were read: their *text*, and what went wrong with some of them as *faults*."""

    at: float
    request: str
    text: str
    faults: tuple[str, ...] = ()


@final
@attrs.frozen(kw_only=True)
class AgentProgressed:
    """A child is at work and has *spent* so much until now, which is not lost whatever becomes of it."""

    at: float
    request: str
    spent: Spent


@final
@attrs.frozen(kw_only=True)
class AgentFinished:
    """A child ended; *spent* is all it used, *content* what the parent's model will read."""

    at: float
    request: str
    content: str
    outcome: Outcome = attrs.field(default=Outcome.OK, converter=Outcome)
    spent: Spent = Spent()


@final
@attrs.frozen(kw_only=True)
class TimerFired:
    """A timer's time has come."""

    at: float
    request: str


@final
@attrs.frozen(kw_only=True)
class UserSent:
    """
    A prompt came, for a run of its own. *id* is the sender's own.

    *sender* is who and through which channel, in free words: prompts of one sender may become one.
    """

    at: float
    id: str
    text: str
    files: tuple[Binary, ...] = ()
    sender: str = ""


@final
@attrs.frozen(kw_only=True)
class UserSteered:
    """A person said something meant for the run that is under way. *id* is the sender's own."""

    at: float
    id: str
    text: str
    how: Steering = attrs.field(default=Steering.AFTER_TOOL, converter=Steering)
    files: tuple[Binary, ...] = ()


@final
@attrs.frozen(kw_only=True)
class Interrupted:
    """A person asked to stop. Asked twice, nothing is waited for."""

    at: float


@final
@attrs.frozen(kw_only=True)
class ControlReceived:
    """A person changed a setting of the run that is under way. *id* is the sender's own."""

    at: float
    id: str
    change: Change


@final
@attrs.frozen(kw_only=True)
class CallCancelled:
    """A person gave up the one call whose id, which is ours, is *call*."""

    at: float
    call: str


# The events that close a request.
Answer = (
    ModelFinished
    | ModelFailed
    | ToolFinished
    | ToolLost
    | ApprovalGiven
    | HookAnswered
    | InstructionsRead
    | AgentFinished
    | TimerFired
)

# The events that come from outside, from any process.
Post = ApprovalGiven | UserSent | UserSteered | Interrupted | ControlReceived | CallCancelled

# Everything that can happen to a machine.
Event = Entered | ModelStreamed | ToolProgressed | AgentProgressed | Answer | Post


def joined(events: Sequence[ModelStreamed]) -> ModelStreamed:
    """*events*, which follow each other in one stream, as one event. Their pieces stay as they are."""
    first, last = events[0], events[-1]
    if first is last:
        return first
    return ModelStreamed(
        at=last.at,
        request=first.request,
        before=first.before,
        count=sum([event.count for event in events]),
        pieces=tuple([piece for event in events for piece in event.pieces]),
    )
