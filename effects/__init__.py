"""
The words between the machine and the world: four closed unions of frozen values, and the values in them.

`Effect` is what a transition returns: a `Request` that gets one answer, a `Cancel`, a `Record` that changes
the memory, or a `Notice` for subscribers. `Event` is what comes back or in. `performers` do the work.
"""

from __future__ import annotations

from typing import TypeGuard, get_args

from .config import (
    Approval as Approval,
    ChildSpec as ChildSpec,
    Compaction as Compaction,
    Concurrency as Concurrency,
    Config as Config,
    Gates as Gates,
    Limits as Limits,
    Loops as Loops,
    ModelSpec as ModelSpec,
    OnDenial as OnDenial,
    OnLost as OnLost,
    OnMaxTokens as OnMaxTokens,
    Policy as Policy,
    Price as Price,
    Retries as Retries,
    SideEffect as SideEffect,
    Steering as Steering,
    ToolKind as ToolKind,
    ToolSpec as ToolSpec,
)
from .errors import (
    ArgumentError as ArgumentError,
    CallerError as CallerError,
    ConfigError as ConfigError,
    IllegalTransition as IllegalTransition,
    InternalError as InternalError,
    JournalError as JournalError,
    NewerVersion as NewerVersion,
    NoPerformer as NoPerformer,
    QueueFull as QueueFull,
    SessionBusy as SessionBusy,
    SessionClosed as SessionClosed,
    StoreConflict as StoreConflict,
    StoreError as StoreError,
    TooLarge as TooLarge,
    ToolDefinitionError as ToolDefinitionError,
    TurnwheelError as TurnwheelError,
    UnknownCall as UnknownCall,
    UnknownRequest as UnknownRequest,
    UnknownRun as UnknownRun,
    UnknownSession as UnknownSession,
    WorldError as WorldError,
)
from .events import (
    AgentFinished as AgentFinished,
    AgentProgressed as AgentProgressed,
    Answer as Answer,
    ApprovalGiven as ApprovalGiven,
    Approve as Approve,
    ApproveAlways as ApproveAlways,
    CallCancelled as CallCancelled,
    ControlReceived as ControlReceived,
    Decision as Decision,
    Deny as Deny,
    Entered as Entered,
    Event as Event,
    Failure as Failure,
    HookAnswered as HookAnswered,
    InstructionsRead as InstructionsRead,
    Interrupted as Interrupted,
    ModelFailed as ModelFailed,
    ModelFinished as ModelFinished,
    ModelStreamed as ModelStreamed,
    Post as Post,
    TimerFired as TimerFired,
    ToolFinished as ToolFinished,
    ToolLost as ToolLost,
    ToolProgressed as ToolProgressed,
    UserSent as UserSent,
    UserSteered as UserSteered,
)
from .history import History as History, clear_results as clear_results
from .hooks import Hook as Hook, HookAnswer as HookAnswer, HookSaid as HookSaid, HookSpec as HookSpec
from .messages import (
    Binary as Binary,
    Finish as Finish,
    Message as Message,
    Outcome as Outcome,
    Part as Part,
    Reasoning as Reasoning,
    Role as Role,
    StopReason as StopReason,
    Text as Text,
    ToolCall as ToolCall,
    ToolResult as ToolResult,
    user as user,
)
from .notices import (
    AgentNoticed as AgentNoticed,
    AgentStarted as AgentStarted,
    AnswerDropped as AnswerDropped,
    ApprovalRequested as ApprovalRequested,
    ApprovalResolved as ApprovalResolved,
    ApprovalWithdrawn as ApprovalWithdrawn,
    CallJudged as CallJudged,
    CallSettled as CallSettled,
    Compacted as Compacted,
    CompactionFailed as CompactionFailed,
    CompactionStarted as CompactionStarted,
    DoneReason as DoneReason,
    FallbackUsed as FallbackUsed,
    HookAsked as HookAsked,
    HookEnded as HookEnded,
    Ignored as Ignored,
    InputBlocked as InputBlocked,
    InputReceived as InputReceived,
    InputTaken as InputTaken,
    InterruptRequested as InterruptRequested,
    LoopDetected as LoopDetected,
    LoopStage as LoopStage,
    ModelCalled as ModelCalled,
    Notice as Notice,
    ReasoningDelta as ReasoningDelta,
    RequestDelayed as RequestDelayed,
    ResultsCleared as ResultsCleared,
    RetryScheduled as RetryScheduled,
    RunEnded as RunEnded,
    RunStarted as RunStarted,
    SettingChanged as SettingChanged,
    SettingRefused as SettingRefused,
    TextDelta as TextDelta,
    ToolOutput as ToolOutput,
    ToolStarted as ToolStarted,
    TurnEnded as TurnEnded,
    Warned as Warned,
)
from .permissions import Basis as Basis, PermissionMode as PermissionMode, Rule as Rule, Verdict as Verdict
from .pieces import (
    CallPiece as CallPiece,
    Piece as Piece,
    ReasoningPiece as ReasoningPiece,
    Rope as Rope,
    TextPiece as TextPiece,
    merged as merged,
)
from .records import (
    AddContext as AddContext,
    AddUsage as AddUsage,
    AppendMessage as AppendMessage,
    Change as Change,
    ClearContext as ClearContext,
    ClearResults as ClearResults,
    CountCompaction as CountCompaction,
    CountContinue as CountContinue,
    GrantRule as GrantRule,
    MailKind as MailKind,
    Record as Record,
    ReplaceHistory as ReplaceHistory,
    SetInstructions as SetInstructions,
    SetMode as SetMode,
    SetModel as SetModel,
    SetThinking as SetThinking,
    TakeMail as TakeMail,
    UseFallback as UseFallback,
    UseIds as UseIds,
    WithdrawTool as WithdrawTool,
)
from .requests import (
    AskApproval as AskApproval,
    CallModel as CallModel,
    Cancel as Cancel,
    Conversation as Conversation,
    FireHook as FireHook,
    Purpose as Purpose,
    ReadInstructions as ReadInstructions,
    Request as Request,
    RunAgent as RunAgent,
    RunTool as RunTool,
    SetTimer as SetTimer,
    Transcript as Transcript,
    View as View,
)
from .secrets import Secrets as Secrets, is_secret as is_secret
from .usage import Spent as Spent, Usage as Usage, cost as cost
from .validators import clean as clean

Effect = Request | Cancel | Record | Notice
"""Everything a transition can return."""

# By exact type, since the classes are final: a step asks this of every effect.
_REQUESTS: frozenset[type] = frozenset(get_args(Request))
_RECORDS: frozenset[type] = frozenset(get_args(Record))
_NOTICES: frozenset[type] = frozenset(get_args(Notice))


def is_request(effect: Effect) -> TypeGuard[Request]:
    """Whether *effect* gets an answer."""
    return type(effect) in _REQUESTS


def is_record(effect: Effect) -> TypeGuard[Record]:
    """Whether *effect* changes the memory."""
    return type(effect) in _RECORDS


def is_notice(effect: Effect) -> TypeGuard[Notice]:
    """Whether *effect* is for subscribers."""
    return type(effect) in _NOTICES
