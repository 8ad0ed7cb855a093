"""
The decisions: seven states and their stages, a handler module for each, shared rules, and the table.

Everything here is pure: no clock, no randomness, no I/O. A test holds the short list of allowed imports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import exports

if TYPE_CHECKING:
    from .batch.batch import (
        Allowed as Allowed,
        AllowedAwaitingHooks as AllowedAwaitingHooks,
        AllowedInspecting as AllowedInspecting,
        Asked as Asked,
        AwaitingHooks as AwaitingHooks,
        Batch as Batch,
        Call as Call,
        HookRound as HookRound,
        Inspecting as Inspecting,
        Phase as Phase,
        PriorAttempt as PriorAttempt,
        Queued as Queued,
        Reviewed as Reviewed,
        Running as Running,
        RunningChild as RunningChild,
        Settled as Settled,
        Stopping as Stopping,
        Timer as Timer,
    )
    from .context import Context as Context, Mail as Mail, Memory as Memory
    from .state import (
        Admitting as Admitting,
        Compacting as Compacting,
        CompactReason as CompactReason,
        CompactStage as CompactStage,
        Confirming as Confirming,
        Consulting as Consulting,
        Dispatching as Dispatching,
        Done as Done,
        End as End,
        Ending as Ending,
        Executing as Executing,
        Go as Go,
        Opening as Opening,
        Pausing as Pausing,
        Plan as Plan,
        Prompt as Prompt,
        Reading as Reading,
        Retry as Retry,
        Stage as Stage,
        Start as Start,
        State as State,
        Steer as Steer,
        Streaming as Streaming,
        Summary as Summary,
        Thinking as Thinking,
        Waiting as Waiting,
        Weigh as Weigh,
    )
    from .table import TABLE as TABLE, Row as Row

# A caller that only builds an agent needs no state, and their classes take long to make.
_MODULES = {
    "batch.batch": (
        "Allowed",
        "AllowedAwaitingHooks",
        "AllowedInspecting",
        "Asked",
        "AwaitingHooks",
        "Batch",
        "Call",
        "HookRound",
        "Inspecting",
        "Phase",
        "PriorAttempt",
        "Queued",
        "Reviewed",
        "Running",
        "RunningChild",
        "Settled",
        "Stopping",
        "Timer",
    ),
    "context": (
        "Context",
        "Mail",
        "Memory",
    ),
    "state": (
        "Admitting",
        "Compacting",
        "CompactReason",
        "CompactStage",
        "Confirming",
        "Consulting",
        "Dispatching",
        "Done",
        "End",
        "Ending",
        "Executing",
        "Go",
        "Opening",
        "Pausing",
        "Plan",
        "Prompt",
        "Reading",
        "Retry",
        "Stage",
        "Start",
        "State",
        "Steer",
        "Streaming",
        "Summary",
        "Thinking",
        "Waiting",
        "Weigh",
    ),
    "table": (
        "TABLE",
        "Row",
    ),
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__, _MODULES)
