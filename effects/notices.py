"""Notices: effects for subscribers and readers. Nothing depends on them, and no journal keeps them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TypeGuard, cast, final, get_args

import attrs

from .events import Decision, Failure
from .hooks import Hook, HookSaid
from .messages import Message, Outcome, StopReason, ToolCall
from .permissions import Basis, PermissionMode, Verdict
from .records import Change, Record
from .requests import AskApproval, Cancel, Request
from .usage import Spent, Usage

# Notices of what keeps a long run going; part of the union in `notices`.


@final
@attrs.frozen(kw_only=True)
class RequestDelayed:
    """
    The request is not sent before *due*, in seconds since the epoch, and why: others were told to wait.
    """

    request: str
    due: float
    reason: str


@final
@attrs.frozen(kw_only=True)
class FallbackUsed:
    """*model* is asked for the rest of the run instead of *instead_of*, which failed; *message* says how."""

    model: str
    instead_of: str
    failure: Failure
    message: str


class LoopStage(StrEnum):
    """What was done about a model that goes in circles."""

    WARNED = "warned"
    WITHDRAWN = "withdrawn"
    STOPPED = "stopped"


@final
@attrs.frozen(kw_only=True)
class LoopDetected:
    """The model repeats itself: *tools* were called alike *count* times; *text* explains what was done."""

    stage: LoopStage
    tools: tuple[str, ...]
    count: int
    text: str


@final
@attrs.frozen(kw_only=True)
class ResultsCleared:
    """The model is no longer shown *count* old tool results, of about *tokens* tokens."""

    count: int
    tokens: int


class DoneReason(StrEnum):
    """Why a run ended."""

    END_TURN = "end_turn"
    STOP_SEQUENCE = "stop_sequence"
    # The model said no, or its provider did for it.
    REFUSAL = "refusal"
    MAX_TOKENS = "max_tokens"
    MAX_TURNS = "max_turns"
    TOKEN_BUDGET = "token_budget"  # noqa: S105  # a budget of tokens, no secret
    MAX_BUDGET = "max_budget"
    TIME_BUDGET = "time_budget"
    INTERRUPTED = "interrupted"
    # The task that waited for the run was cancelled, or ran out of time.
    ABORTED = "aborted"
    # A hook did not let the prompt in.
    BLOCKED = "blocked"
    LOOP_DETECTED = "loop_detected"
    # The model gave no output that is right, however often it was asked again.
    OUTPUT_INVALID = "output_invalid"
    ERROR = "error"


@final
@attrs.frozen(kw_only=True)
class RunStarted:
    """The first notice of a run: what it works with, in which mode and where."""

    run: str
    model: str
    tools: tuple[str, ...]
    at: float
    mode: PermissionMode = PermissionMode.DEFAULT
    cwd: str = ""


@final
@attrs.frozen(kw_only=True)
class HookAsked:
    """The host's hooks *names* are being asked, about *call* where there is one."""

    request: str
    hook: Hook
    names: tuple[str, ...]
    call: str = ""


@final
@attrs.frozen(kw_only=True)
class HookEnded:
    """Hooks answered; those with a fault had no say."""

    request: str
    hook: Hook
    said: tuple[HookSaid, ...]
    call: str = ""


@final
@attrs.frozen(kw_only=True)
class CallJudged:
    """
    Whether *call* may run was decided, and on what *ground*; *detail* names the rule, hook or mode.

    A verdict of `ASK` is followed by a question, and then by another judgement with a person's verdict.
    """

    call: str
    tool: str
    verdict: Verdict
    ground: Basis
    detail: str = ""


@final
@attrs.frozen(kw_only=True)
class SettingChanged:
    """A person's *change* holds from now on."""

    change: Change


@final
@attrs.frozen(kw_only=True)
class SettingRefused:
    """A person's *change* cannot be made, and why; everything stays as it is."""

    change: Change
    reason: str


@final
@attrs.frozen(kw_only=True)
class InputTaken:
    """Inputs, by their senders' *ids*, became *messages* of the conversation."""

    ids: tuple[str, ...]
    messages: tuple[Message, ...]


@final
@attrs.frozen(kw_only=True)
class InputBlocked:
    """A hook did not let the inputs *ids* in, and why; the conversation stays as it is."""

    ids: tuple[str, ...]
    reason: str


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
@attrs.frozen
class CallDelta:
    """
    A bit of the call number *index* of the answer, counted from 0, as it arrived.

    *tool* stands in one bit of a call, mostly the first. *arguments* are a fragment of JSON; the whole call,
    if it is kept, comes with the end of the turn.
    """

    index: int
    tool: str = ""
    arguments: str = ""


@final
@attrs.frozen(kw_only=True)
class AnswerDropped:
    """What was streamed of *request* so far is void: it failed and its text is not part of the history."""

    request: str


@final
@attrs.frozen(kw_only=True)
class AnswerKept:
    """A person cut the answer to *request* short; *message* is what the history keeps of it."""

    request: str
    message: Message


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
class ToolOutput:
    """A running tool said something."""

    call: str
    text: str


@final
@attrs.frozen(kw_only=True)
class CallSettled:
    """A call has its result, whether it ran or not; *seconds* is how long it ran."""

    call: str
    tool: str
    outcome: Outcome
    content: str
    seconds: float = 0.0


@final
@attrs.frozen(kw_only=True)
class ApprovalRequested:
    """A question is open. Answer it by its *request*, until *due* where that is not None."""

    request: str
    call: str
    tool: str
    arguments: str
    why: str = ""
    due: float | None = None

    @classmethod
    def of(cls, question: AskApproval) -> ApprovalRequested:
        """The notice that *question* is open."""
        return cls(
            request=question.id,
            call=question.call,
            tool=question.tool,
            arguments=question.arguments,
            why=question.why,
            due=question.due,
        )


@final
@attrs.frozen(kw_only=True)
class ApprovalResolved:
    """A question was answered; *by* is who did, in free words."""

    request: str
    decision: Decision
    by: str = ""


@final
@attrs.frozen(kw_only=True)
class ApprovalWithdrawn:
    """A question is no longer open, unanswered; *late*: its deadline has passed."""

    request: str
    late: bool = False


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
    """
    A model completed its response to *request*. *turn* counts from 1 within the run, *usage* is this one's.

    *message* is all of it, also where the history does not keep it: an answer of nothing but thought.
    *calls* are those that entered the history, run or not; *sequence* is the stop sequence it met.
    """

    request: str
    turn: int
    message: Message
    stop: StopReason
    usage: Usage
    calls: tuple[ToolCall, ...] = ()
    sequence: str = ""


@final
@attrs.frozen(kw_only=True)
class CompactionStarted:
    """The conversation is being summarised, and for which *reason*; *size* is its estimated tokens."""

    size: int
    reason: str


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
class InputDropped:
    """A person took back the prompt or steer *id* before a model read it; *id* is the sender's."""

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
class NoticesMissed:
    """In the place of *count* notices that this subscriber was too slow for; no other one sees it."""

    count: int


@final
@attrs.frozen(kw_only=True)
class Ignored:
    """*event* did not apply in *state* and changed nothing: late, repeated or out of place."""

    event: str
    state: str


@final
@attrs.frozen(kw_only=True)
class RunEnded:
    """
    The last notice of a run, which was over *at*. *detail* says more where *reason* is not enough.

    *output* is JSON where one was asked for; after `output_invalid` it is what the model gave instead.
    """

    run: str
    reason: DoneReason
    spent: Spent
    at: float
    detail: str = ""
    output: str = ""


class LeftBecause(StrEnum):
    """Why a run is left in this process."""

    LEFT = "left"
    """Its caller left it, or was cancelled."""
    CLOSED = "closed"
    DRAINED = "drained"
    TAKEN_OVER = "taken_over"
    FAILED = "failed"
    """An error ended the work, such as a store that failed."""


@final
@attrs.frozen(kw_only=True)
class RunLeft:
    """
    No more is done for the unfinished *run* in this process, and *why*; `Session.resume` goes on with it.

    An empty *run* means that none could be begun for the prompts in the queue. *detail* is the error.
    """

    run: str
    why: LeftBecause
    detail: str = ""


_OfRun = (
    RunStarted
    | TurnEnded
    | LoopDetected
    | InterruptRequested
    | Warned
    | NoticesMissed
    | Ignored
    | RunEnded
    | RunLeft
)
_OfInput = InputReceived | InputTaken | InputBlocked | InputDropped | SettingChanged | SettingRefused
_OfHooks = HookAsked | HookEnded
_OfModel = ModelCalled | TextDelta | ReasoningDelta | CallDelta | AnswerDropped | AnswerKept
_OfTries = RetryScheduled | RequestDelayed | FallbackUsed
_OfHistory = ResultsCleared | CompactionStarted | Compacted | CompactionFailed
_OfCalls = CallJudged | ToolStarted | ToolOutput | CallSettled | AgentStarted | AgentNoticed
_OfQuestions = ApprovalRequested | ApprovalResolved | ApprovalWithdrawn

# Everything a watcher can see.
Notice = _OfRun | _OfInput | _OfHooks | _OfModel | _OfTries | _OfHistory | _OfCalls | _OfQuestions

# Pieces of an answer.
Delta = TextDelta | ReasoningDelta | CallDelta

# The notices that complete the text of an answer; others, such as an input, do not wait for it.
ENDS = TurnEnded | AnswerKept | RunEnded

# The notices without which a reader could not say which answer a run gave, and to what.
OUTCOMES = InputTaken | InputBlocked | InputDropped | RunLeft | ENDS

# The notices that no journal leads to again: whether they came, and how many, was a matter of the moment.
PASSING = Delta | ToolOutput | AgentNoticed | RequestDelayed | Ignored | RunLeft

# Everything that a transition can return.
Effect = Request | Cancel | Record | Notice

# By exact type, since the classes are final: a step asks this of every effect.
_NOTICES: frozenset[type] = frozenset(get_args(Notice))


def is_notice(effect: object) -> TypeGuard[Notice]:
    """Whether *effect* is for subscribers."""
    return type(effect) in _NOTICES


def notices_in(effects: Iterable[object]) -> list[Notice]:
    """The notices among *effects*, in their order."""
    # One call for a step and not one for each effect.
    return cast("list[Notice]", [effect for effect in effects if type(effect) in _NOTICES])


def lasting_notices(effects: Iterable[object]) -> list[Notice]:
    """Those among *effects* that a journal leads to again, in their order: an id has the place in it."""
    return [notice for notice in notices_in(effects) if not isinstance(notice, PASSING)]


def is_delta(notice: Notice) -> bool:
    """Whether *notice* is a piece of an answer, also of a child's."""
    while isinstance(notice, AgentNoticed):
        notice = notice.notice
    return isinstance(notice, Delta)
