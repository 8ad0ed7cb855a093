"""
Notices: effects for subscribers and readers. Nothing depends on them, and no journal keeps them.

Each carries *at*, in seconds since the epoch: the time of the event that led to it. So a notice that is made
again from a journal equals the one that was seen live.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeGuard, cast, final, get_args

import attrs

from .events import Decision, Failure
from .hooks import Hook, HookSaid
from .messages import Message, Outcome, StopReason, ToolCall
from .output import OutputMode
from .permissions import Basis, PermissionMode, Verdict
from .records import Change, Record
from .requests import AskApproval, Cancel, Purpose, Request
from .usage import CacheMissReason, Spent, Usage


@attrs.frozen(kw_only=True)
class _Noticed:
    """What every notice has: when it came."""

    at: float


@final
@attrs.frozen(kw_only=True)
class RequestDelayed(_Noticed):
    """The request waits until *due*, in seconds since the epoch; *reason* says what it waits for."""

    request: str
    due: float
    reason: str


@final
@attrs.frozen(kw_only=True)
class FallbackUsed(_Noticed):
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
class LoopDetected(_Noticed):
    """The model repeats itself: *tools* were called alike *count* times; *text* explains what was done."""

    stage: LoopStage
    tools: tuple[str, ...]
    count: int
    text: str


@final
@attrs.frozen(kw_only=True)
class ResultsCleared(_Noticed):
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


@attrs.frozen(kw_only=True)
class _Begun(_Noticed):
    """
    What *run* works with, in which *mode* and where (*cwd*).

    *session* is empty for a machine without one, *agent* for all but children. *provider* is what the name of
    *model* begins with, empty where it names none.
    """

    run: str
    model: str
    tools: tuple[str, ...]
    session: str = ""
    agent: str = ""
    provider: str = ""
    mode: PermissionMode = PermissionMode.DEFAULT
    cwd: str = ""


@final
@attrs.frozen(kw_only=True)
class RunStarted(_Begun):
    """The first notice of a run."""


@final
@attrs.frozen(kw_only=True)
class RunResumed(_Begun):
    """
    An unfinished run goes on: in another process, which took it over, or in the same one later.

    What it works with may have changed since it began or was left.
    """


@final
@attrs.frozen(kw_only=True)
class HookAsked(_Noticed):
    """The host's hooks *names* are being asked, about *call* where there is one."""

    request: str
    hook: Hook
    names: tuple[str, ...]
    call: str = ""


@final
@attrs.frozen(kw_only=True)
class HookEnded(_Noticed):
    """Hooks answered; those with a fault had no say."""

    request: str
    hook: Hook
    said: tuple[HookSaid, ...]
    call: str = ""


@final
@attrs.frozen(kw_only=True)
class CallJudged(_Noticed):
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
class SettingChanged(_Noticed):
    """A person's *change* holds from now on."""

    change: Change


@final
@attrs.frozen(kw_only=True)
class SettingRefused(_Noticed):
    """A person's *change* cannot be made, and why; everything stays as it is."""

    change: Change
    reason: str


@final
@attrs.frozen(kw_only=True)
class InputTaken(_Noticed):
    """Inputs, by their senders' *ids*, became *messages* of the conversation."""

    ids: tuple[str, ...]
    messages: tuple[Message, ...]


@final
@attrs.frozen(kw_only=True)
class InputBlocked(_Noticed):
    """A hook did not let the inputs *ids* in, and why; the conversation stays as it is."""

    ids: tuple[str, ...]
    reason: str


@final
@attrs.frozen(kw_only=True)
class ModelCalled(_Noticed):
    """
    A model is being asked; text may follow, but not of a summary. *attempt* counts from 1.

    It ends in one `TurnEnded`, `SummaryEnded` or `AnswerFailed` of the same *request*. *tools* are offered.
    *output* is how the output of the run is asked for, None where it is text. The other settings are None or
    empty where the provider decides.
    """

    request: str
    model: str
    attempt: int
    purpose: Purpose = Purpose.TURN
    max_output: int | None = None
    thinking: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    tool_choice: str = ""
    tools: tuple[str, ...] = ()
    output: OutputMode | None = None


@final
@attrs.frozen
class TextDelta(_Noticed):
    """A bit of the answer, as it arrived. *begins*: of another text than the one before."""

    text: str
    begins: bool = False


@final
@attrs.frozen
class ReasoningDelta(_Noticed):
    """A bit of the model's thinking, as it arrived."""

    text: str


@final
@attrs.frozen
class CallDelta(_Noticed):
    """
    A bit of the call number *index* of the answer, counted from 0, as it arrived.

    *tool* stands in one bit of a call, mostly the first. *arguments* are a fragment of JSON; the whole call,
    if it is kept, comes with the end of the turn.
    """

    index: int
    tool: str = ""
    arguments: str = ""


@final
@attrs.frozen
class OutputDelta(_Noticed):
    """
    The output of the run as far as the model has written it: plain JSON, as Python reads it.

    *partial* is a beginning of the output: its texts, lists and objects may go on. It is no value of the type
    that was asked for, and the whole output is in `RunEnded`.
    """

    partial: Any


@final
@attrs.frozen(kw_only=True)
class ProviderCalled(_Noticed):
    """
    The provider ran one of its own tools while it answered: no rule and no person was asked here.

    *id* is the provider's, *status* its word for how the call ended. *arguments* and *result* are JSON texts,
    empty where the provider shows none.
    """

    id: str
    tool: str
    arguments: str = ""
    status: str = ""
    result: str = ""


@final
@attrs.frozen(kw_only=True)
class SourceCited(_Noticed):
    """The answer cites a source for the characters *start* to *end* of its text; *quote* is its own."""

    url: str
    title: str = ""
    start: int = 0
    end: int = 0
    quote: str = ""


@final
@attrs.frozen(kw_only=True)
class CacheMissed(_Noticed):
    """
    The provider read less of a prompt from its cache than the request before had put there, and why.

    Of the *expected* tokens, *cached* came from the cache of the model called *model*.
    """

    request: str
    model: str
    reason: CacheMissReason
    expected: int
    cached: int


@final
@attrs.frozen(kw_only=True)
class AnswerDropped(_Noticed):
    """What was streamed of *request* so far is void: it failed and its text is not part of the history."""

    request: str


@final
@attrs.frozen(kw_only=True)
class AnswerKept(_Noticed):
    """A person cut the answer to *request* short; *message* is what the history keeps of it."""

    request: str
    message: Message


@attrs.frozen(kw_only=True)
class _Charged(_Noticed):
    """
    What the model call *request* used. *cost* is in USD, None where no price is known.

    *seconds* is how long it took, without the wait before it was sent.
    """

    request: str
    usage: Usage
    cost: Decimal | None = None
    seconds: float = 0.0


@attrs.frozen(kw_only=True)
class _Answered(_Charged):
    """
    How the answer to a model call *stop*ped, and which *model* gave it, by its provider's name.

    *response* is the provider's id of it, *sequence* the stop sequence that was met. *first_piece* is how
    many seconds after the request its first piece came; None for an answer that was not streamed. Texts are
    empty where the provider told none.
    """

    stop: StopReason
    model: str = ""
    response: str = ""
    first_piece: float | None = None
    sequence: str = ""


@final
@attrs.frozen(kw_only=True)
class AnswerFailed(_Charged):
    """
    A model call ended without an answer, and why; what came until then is in *usage*.

    A person who stops it makes it fail as cancelled.
    """

    failure: Failure
    message: str


@final
@attrs.frozen(kw_only=True)
class RetryScheduled(_Noticed):
    """The model call *request* failed and will be tried again at *due*, in seconds since the epoch."""

    request: str
    attempt: int
    due: float
    failure: Failure
    message: str


@final
@attrs.frozen(kw_only=True)
class ToolStarted(_Noticed):
    """A tool was started."""

    call: str
    tool: str
    arguments: str


@final
@attrs.frozen(kw_only=True)
class ToolOutput(_Noticed):
    """A running tool said something."""

    call: str
    text: str


@final
@attrs.frozen(kw_only=True)
class CallSettled(_Noticed):
    """A call has its result, whether it ran or not; *seconds* is how long it ran."""

    call: str
    tool: str
    outcome: Outcome
    content: str
    seconds: float = 0.0


@final
@attrs.frozen(kw_only=True)
class ApprovalRequested(_Noticed):
    """A question is open. Answer it by its *request*, until *due* where that is not None."""

    request: str
    call: str
    tool: str
    arguments: str
    why: str = ""
    due: float | None = None

    @classmethod
    def of(cls, question: AskApproval, at: float) -> ApprovalRequested:
        """The notice that *question* is open, *at* that time."""
        return cls(
            at=at,
            request=question.id,
            call=question.call,
            tool=question.tool,
            arguments=question.arguments,
            why=question.why,
            due=question.due,
        )


@final
@attrs.frozen(kw_only=True)
class ApprovalResolved(_Noticed):
    """A question was answered; *by* is who did, in free words."""

    request: str
    decision: Decision
    by: str = ""


@final
@attrs.frozen(kw_only=True)
class ApprovalWithdrawn(_Noticed):
    """A question is no longer open, unanswered; *late*: its deadline has passed."""

    request: str
    late: bool = False


@final
@attrs.frozen(kw_only=True)
class AgentStarted(_Noticed):
    """A child was started, in a *session* of its own; that is empty where its parent has none."""

    call: str
    agent: str
    prompt: str
    session: str = ""


@final
@attrs.frozen(kw_only=True)
class AgentNoticed(_Noticed):
    """A child's own notice, passed on."""

    call: str
    notice: Notice


@final
@attrs.frozen(kw_only=True)
class TurnEnded(_Answered):
    """
    A model completed its response to *request*. *turn* counts from 1 within the run, *usage* is this one's.

    *message* is all of it, also where the history does not keep it: an answer of nothing but thought.
    *calls* are those that entered the history, run or not.
    """

    turn: int
    message: Message
    calls: tuple[ToolCall, ...] = ()


@final
@attrs.frozen(kw_only=True)
class CompactionStarted(_Noticed):
    """The conversation is being summarised, and for which *reason*; *size* is its estimated tokens."""

    size: int
    reason: str


@final
@attrs.frozen(kw_only=True)
class SummaryEnded(_Answered):
    """A model answered with a summary; whether that is of use, `Compacted` or `CompactionFailed` says."""


@final
@attrs.frozen(kw_only=True)
class Compacted(_Noticed):
    """The conversation was shortened, in estimated tokens."""

    before: int
    after: int


@final
@attrs.frozen(kw_only=True)
class CompactionFailed(_Noticed):
    """The conversation stays as it is, and why."""

    reason: str


@final
@attrs.frozen(kw_only=True)
class InputReceived(_Noticed):
    """A prompt or steer was accepted and waits for its turn; *id* is the sender's."""

    id: str


@final
@attrs.frozen(kw_only=True)
class InputDropped(_Noticed):
    """A person took back the prompt or steer *id* before a model read it; *id* is the sender's."""

    id: str


@final
@attrs.frozen(kw_only=True)
class InterruptRequested(_Noticed):
    """The run is stopping."""


@final
@attrs.frozen(kw_only=True)
class Warned(_Noticed):
    """Something was odd and the run goes on."""

    text: str


@final
@attrs.frozen(kw_only=True)
class NoticesMissed(_Noticed):
    """
    In the place of *count* notices that this subscriber was too slow for; no other one sees it.

    None of them came after *at*.
    """

    count: int


@final
@attrs.frozen(kw_only=True)
class Ignored(_Noticed):
    """*event* did not apply in *state* and changed nothing: late, repeated or out of place."""

    event: str
    state: str


@final
@attrs.frozen(kw_only=True)
class RunEnded(_Noticed):
    """
    The last notice of a run. *detail* says more where *reason* is not enough.

    *output* is JSON where one was asked for; after `output_invalid` it is what the model gave instead.
    """

    run: str
    reason: DoneReason
    spent: Spent
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
class RunLeft(_Noticed):
    """
    No more is done for the unfinished *run* in this process, and *why*; `Session.resume` goes on with it.

    An empty *run* means that none could be begun for the prompts in the queue. *detail* is the error.
    """

    run: str
    why: LeftBecause
    detail: str = ""


_OfRun = (
    RunStarted
    | RunResumed
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
_OfModel = ModelCalled | TextDelta | ReasoningDelta | CallDelta | OutputDelta | AnswerDropped | AnswerKept
_OfProvider = ProviderCalled | SourceCited | CacheMissed
_OfTries = AnswerFailed | RetryScheduled | RequestDelayed | FallbackUsed
_OfHistory = ResultsCleared | CompactionStarted | SummaryEnded | Compacted | CompactionFailed
_OfCalls = CallJudged | ToolStarted | ToolOutput | CallSettled | AgentStarted | AgentNoticed
_OfQuestions = HookAsked | HookEnded | ApprovalRequested | ApprovalResolved | ApprovalWithdrawn

# Everything a watcher can see.
Notice = _OfRun | _OfInput | _OfModel | _OfProvider | _OfTries | _OfHistory | _OfCalls | _OfQuestions

# Pieces of an answer.
Delta = TextDelta | ReasoningDelta | CallDelta | OutputDelta

# The notices that complete the text of an answer; others, such as an input, do not wait for it.
ENDS = TurnEnded | AnswerKept | RunEnded

# The notices without which a reader could not say which answer a run gave, and to what.
OUTCOMES = InputTaken | InputBlocked | InputDropped | RunLeft | ENDS

# The notices that no journal leads to again: whether they came, and how many, was a matter of the moment.
PASSING = Delta | _OfProvider | ToolOutput | AgentNoticed | RequestDelayed | Ignored | RunLeft

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
