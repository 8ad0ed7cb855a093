"""
Events: what came back or came in, in the past tense.

Each carries *at*, in seconds since the epoch: the only clock there is. An answer names its request. What
comes from outside carries an id of its sender's, so that a repeated post is one input.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from math import isfinite
from typing import final

import attrs

from .config import Steering
from .findings import Finding
from .history import Piece
from .hooks import HookSaid
from .messages import Binary, Outcome, StopReason
from .output import AgentOutput, OutputWish
from .permissions import ArgumentGlobs
from .records import Change
from .usage import Spent, Usage
from .validators import as_arguments, as_globs, globs, must, of_kind, spelled

# JSON has no word for the others, so they would come back as something else.
_finite = must(
    "be a finite number", lambda value: not isinstance(value, float) or isfinite(value), ValueError
)


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


@attrs.frozen(kw_only=True)
class _Happening:
    """What every event has: when it happened."""

    at: float


@attrs.frozen(kw_only=True)
class _Reply(_Happening):
    """What every event of the work on a request has: its id."""

    request: str


@attrs.frozen(kw_only=True)
class _Input(_Happening):
    """What every input of a person has: the sender's own id, so that a repeated post is one input."""

    id: str


@final
@attrs.frozen(kw_only=True)
class Entered(_Happening):
    """A state that waits for nothing was entered; the time is that of the event that led there."""


@final
@attrs.frozen(kw_only=True)
class ModelStreamed(_Reply):
    """
    Pieces of an answer arrived. *before* is how many came earlier, *count* how many these stand for.

    Where *before* is not what the state has seen, the event does not apply.
    """

    before: int
    count: int
    pieces: tuple[Piece, ...]

    @property
    def fits(self) -> bool:
        """Whether its numbers can be: each piece stands for at least one that arrived."""
        return 0 < len(self.pieces) <= self.count


@final
@attrs.frozen(kw_only=True)
class ModelFinished(_Reply):
    """
    A model answered. *pieces* are the last ones, or all of an answer that was not streamed.

    *seconds* is how long it took; *sequence* the stop sequence it met. *offered* are the tools that it was
    shown where its performer showed it fewer than the request has: no other may run. None: it saw them all.
    *covers* is how many of the earliest messages a summary stands for, where its performer chose that itself.
    *response* is the provider's id of the answer, *model* its name of the model that gave it, *detail* why it
    refused, each empty where it told none. *first_piece* is how many seconds after the request the first
    piece came, None for an answer that was not streamed.
    """

    stop: StopReason = attrs.field(converter=StopReason)
    usage: Usage
    pieces: tuple[Piece, ...] = ()
    seconds: float = attrs.field(default=0.0, validator=_finite)
    sequence: str = ""
    offered: tuple[str, ...] | None = None
    covers: int | None = attrs.field(default=None, validator=attrs.validators.optional(of_kind(int)))
    response: str = ""
    model: str = ""
    detail: str = ""
    first_piece: float | None = attrs.field(default=None, validator=_finite)


@final
@attrs.frozen(kw_only=True)
class ModelFailed(_Reply):
    """
    A model call failed. *retry_after* is what the provider asked to wait, in seconds, *jitter* in [0, 1).

    The performer draws the jitter, since a transition draws nothing. *should_retry* is what the provider said
    of trying the same again, None where it said nothing. *max_output* is the most tokens that an answer may
    have, where the provider refused to give one of more.
    """

    failure: Failure
    message: str
    retry_after: float | None = attrs.field(default=None, validator=_finite)
    jitter: float = attrs.field(default=0.0, validator=_finite)
    usage: Usage | None = None
    seconds: float = attrs.field(default=0.0, validator=_finite)
    should_retry: bool | None = None
    max_output: int | None = None


@final
@attrs.frozen(kw_only=True)
class ToolProgressed(_Reply):
    """A running tool reported progress, for watchers."""

    text: str


@final
@attrs.frozen(kw_only=True)
class ToolFinished(_Reply):
    """A tool ended, one way or another; *content* and *files* are what the model will read."""

    content: str
    outcome: Outcome = attrs.field(default=Outcome.OK, converter=Outcome)
    seconds: float = attrs.field(default=0.0, validator=_finite)
    files: tuple[Binary, ...] = ()


@final
@attrs.frozen(kw_only=True)
class ToolLost(_Reply):
    """
    The process is gone in which a tool was at work: it may have run.

    Told of those only that must not run twice unknowingly.
    """


@final
@spelled
@attrs.frozen
class Approve:
    """
    Yes. *arguments*, a dict, take the place of the model's and are checked as theirs were.

    They are kept as JSON text.
    """

    arguments: str = attrs.field(default="", converter=as_arguments)


@final
@spelled
@attrs.frozen
class ApproveAlways:
    """
    Yes, and do not ask about this tool again in this session, where its arguments match the globs *where*.

    These are a mapping such as ``{"path": "src/*"}``, and are kept as pairs.
    """

    where: ArgumentGlobs = attrs.field(default=(), converter=as_globs, validator=globs)


@final
@spelled
@attrs.frozen
class Deny:
    """No. The model reads *message*; with *interrupt* the run ends, too."""

    message: str = ""
    interrupt: bool = attrs.field(default=False, kw_only=True)


# What a person can say to a question.
Decision = Approve | ApproveAlways | Deny


@final
@attrs.frozen(kw_only=True)
class ApprovalGiven(_Reply):
    """A question was answered. It names the request, never a call. *by* is who answered, in free words."""

    decision: Decision
    by: str = ""


@final
@attrs.frozen(kw_only=True)
class HookAnswered(_Reply):
    """Hooks answered, each for itself, in the order they were asked."""

    said: tuple[HookSaid, ...] = ()


@final
@attrs.frozen(kw_only=True)
class CallInspected(_Reply):
    """The arguments of a call were looked at: what they reach and run."""

    finding: Finding = Finding()


@final
@attrs.frozen(kw_only=True)
class InstructionsRead(_Reply):
    """The instruction files were read: their *text*, and what went wrong with some of them as *faults*."""

    text: str
    faults: tuple[str, ...] = ()


@final
@attrs.frozen(kw_only=True)
class OutputDecoded(_Reply):
    """The output was made; or it was not, and the model reads *fault*, which says why."""

    fault: str = ""


@final
@attrs.frozen(kw_only=True)
class AgentProgressed(_Reply):
    """A child is at work and has *spent* so much until now, which is not lost whatever becomes of it."""

    spent: Spent


@final
@attrs.frozen(kw_only=True)
class AgentFinished(_Reply):
    """A child ended; *spent* is all it used, *content* what the parent's model will read."""

    content: str
    outcome: Outcome = attrs.field(default=Outcome.OK, converter=Outcome)
    spent: Spent = Spent()


@final
@attrs.frozen(kw_only=True)
class TimerFired(_Reply):
    """A timer's time has come."""


@final
@attrs.frozen(kw_only=True)
class UserSent(_Input):
    """
    A prompt came, for a run of its own. *id* is the sender's own.

    *sender* is who and through which channel, in free words: prompts of one sender may become one. *trace* is
    the ``traceparent`` of the span that it was sent in, empty for none. *output* is what its run comes to.
    """

    text: str
    files: tuple[Binary, ...] = ()
    sender: str = ""
    trace: str = ""
    output: OutputWish = AgentOutput()


@final
@attrs.frozen(kw_only=True)
class UserSteered(_Input):
    """
    A person said something meant for the run that is under way. *id* is the sender's own.

    *trace* is as in `UserSent`.
    """

    text: str
    how: Steering = attrs.field(default=Steering.AFTER_TOOL, converter=Steering)
    files: tuple[Binary, ...] = ()
    trace: str = ""


@final
@attrs.frozen(kw_only=True)
class InputWithdrawn(_Happening):
    """
    A person took back the prompt or steer with the id *input*, which still waited.

    It has no id of its own: an input is taken back once, and its id stays known.
    """

    input: str


@final
@attrs.frozen(kw_only=True)
class Interrupted(_Happening):
    """
    A person asked to stop, or *aborted*: the task that waited for the run was cancelled.

    Asked twice, nothing is waited for.
    """

    aborted: bool = False


@final
@attrs.frozen(kw_only=True)
class ControlReceived(_Input):
    """
    A person changed a setting of the run that is under way. *id* is the sender's own.

    Or the run's parent did (*from_parent*), whose mode changed: the run is in no wider one from then on.
    """

    change: Change
    from_parent: bool = False


@final
@attrs.frozen(kw_only=True)
class CallCancelled(_Happening):
    """A person gave up the one call whose id, which is ours, is *call*."""

    call: str


_CallAnswer = ToolFinished | ToolLost | AgentFinished | ApprovalGiven

# The events that close a request.
Answer = (
    ModelFinished
    | ModelFailed
    | _CallAnswer
    | HookAnswered
    | CallInspected
    | InstructionsRead
    | OutputDecoded
    | TimerFired
)

# The events that come from outside, from any process.
Post = ApprovalGiven | UserSent | UserSteered | InputWithdrawn | Interrupted | ControlReceived | CallCancelled

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
