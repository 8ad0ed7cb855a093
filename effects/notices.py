"""Notices: effects for whoever watches. Nothing depends on anybody watching."""

from __future__ import annotations

from enum import StrEnum
from typing import final

import attrs

from .events import Decision, Failure
from .messages import Outcome, StopReason
from .usage import Spent, Usage


class DoneReason(StrEnum):
    """Why a run ended."""

    END_TURN = "end_turn"
    STOP_SEQUENCE = "stop_sequence"
    MAX_TOKENS = "max_tokens"
    MAX_TURNS = "max_turns"
    TOKEN_BUDGET = "token_budget"  # noqa: S105  # a budget of tokens, no secret
    MAX_BUDGET = "max_budget"
    TIME_BUDGET = "time_budget"
    INTERRUPTED = "interrupted"
    ABORTED = "aborted"
    LOOP_DETECTED = "loop_detected"
    ERROR = "error"


@final
@attrs.frozen(kw_only=True)
class RunStarted:
    """The first notice of a run: what it works with."""

    run: str
    model: str
    tools: tuple[str, ...]
    at: float


@final
@attrs.frozen(kw_only=True)
class ModelCalled:
    """A model is being asked; text may follow. *attempt* counts from 1."""

    request: str
    model: str
    attempt: int


@final
@attrs.frozen
class TextDelta:
    """A bit of the answer, as it arrived."""

    text: str


@final
@attrs.frozen
class ReasoningDelta:
    """A bit of the model's thinking, as it arrived."""

    text: str


@final
@attrs.frozen(kw_only=True)
class AnswerDropped:
    """What was streamed of *request* so far is void: it failed and its text is not part of the history."""

    request: str


@final
@attrs.frozen(kw_only=True)
class RetryScheduled:
    """A model call failed and will be tried again at *due*, in seconds since the epoch."""

    attempt: int
    due: float
    failure: Failure
    message: str


@final
@attrs.frozen(kw_only=True)
class ToolStarted:
    """A tool was started."""

    call: str
    tool: str
    arguments: str


@final
@attrs.frozen(kw_only=True)
class ToolProgress:
    """A running tool said something."""

    call: str
    text: str


@final
@attrs.frozen(kw_only=True)
class ToolEnded:
    """A call has its result, whether it ran or not; *seconds* is how long it ran."""

    call: str
    tool: str
    outcome: Outcome
    content: str
    seconds: float = 0.0


@final
@attrs.frozen(kw_only=True)
class ApprovalRequested:
    """A question is open. Answer it by its *request*."""

    request: str
    call: str
    tool: str
    arguments: str


@final
@attrs.frozen(kw_only=True)
class ApprovalAnswered:
    """A question was answered."""

    request: str
    decision: Decision


@final
@attrs.frozen(kw_only=True)
class ApprovalWithdrawn:
    """A question is no longer open, and nobody answered it."""

    request: str


@final
@attrs.frozen(kw_only=True)
class AgentStarted:
    """A child was started."""

    call: str
    agent: str
    prompt: str


@final
@attrs.frozen(kw_only=True)
class AgentNoticed:
    """A child's own notice, passed on."""

    call: str
    notice: Notice


@final
@attrs.frozen(kw_only=True)
class TurnEnded:
    """A model completed a response. *turn* counts from 1 within the run, *usage* is this response's."""

    turn: int
    stop: StopReason
    usage: Usage


@final
@attrs.frozen(kw_only=True)
class CompactionStarted:
    """The conversation is being summarised; *size* is its estimated tokens."""

    size: int


@final
@attrs.frozen(kw_only=True)
class Compacted:
    """The conversation was shortened, in estimated tokens."""

    before: int
    after: int


@final
@attrs.frozen(kw_only=True)
class CompactionFailed:
    """The conversation stays as it is, and why."""

    reason: str


@final
@attrs.frozen(kw_only=True)
class InputReceived:
    """A prompt or steer was accepted and waits for its turn; *id* is the sender's."""

    id: str


@final
@attrs.frozen(kw_only=True)
class InterruptRequested:
    """The run is stopping."""


@final
@attrs.frozen(kw_only=True)
class Warned:
    """Something was odd and the run goes on."""

    text: str


@final
@attrs.frozen(kw_only=True)
class Ignored:
    """*event* did not apply in *state* and changed nothing: late, repeated or out of place."""

    event: str
    state: str


@final
@attrs.frozen(kw_only=True)
class RunEnded:
    """The last notice of a run. *detail* says more where *reason* is not enough."""

    run: str
    reason: DoneReason
    spent: Spent
    detail: str = ""


Notice = (
    RunStarted
    | ModelCalled
    | TextDelta
    | ReasoningDelta
    | AnswerDropped
    | RetryScheduled
    | ToolStarted
    | ToolProgress
    | ToolEnded
    | ApprovalRequested
    | ApprovalAnswered
    | ApprovalWithdrawn
    | AgentStarted
    | AgentNoticed
    | TurnEnded
    | CompactionStarted
    | Compacted
    | CompactionFailed
    | InputReceived
    | InterruptRequested
    | Warned
    | Ignored
    | RunEnded
)
"""Everything a watcher can see."""
