"""
The seven states, on one page: the discriminated union that says where an agent is.

Rules of this file:

- No flags. What a state waits for is a closed union or an enum field with a name, so "what is it waiting
  for?" has one answer and no combination of fields is meaningless.
- A state names every request that is open, and nothing that the memory knows already.
- `label` is the name the table uses: the state and, where it has them, its stage.

One handler module per state decides what happens next: `thinking`, `streaming`, `executing`, `confirming`,
`dispatching`, `compacting`, `done`.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import final

import attrs

from ..effects.messages import ToolCall, ToolResult
from ..effects.notices import DoneReason
from ..effects.pieces import Rope
from ..effects.requests import Hook
from ..effects.usage import Spent


class Stopping(IntEnum):
    """
    How much of a state's work is being given up. It only rises.

    Denied skips queued calls and leaves open questions; steered withdraws questions too; over budget starts
    nothing any more; interrupted also cancels what runs.
    """

    NONE = 0
    DENIED = 1
    STEERED = 2
    OVER_BUDGET = 3
    INTERRUPTED = 4


@final
@attrs.frozen(kw_only=True)
class Hooked:
    """Waits for what the host's hooks say; a stage of thinking or compacting, or a phase of a call."""

    hook: Hook
    request: str


@final
@attrs.frozen(kw_only=True)
class Retry:
    """Waits for *due*, in seconds since the epoch, to try again. *request* is the timer."""

    request: str
    due: float


# Thinking: between model calls. A turn's request leaves from `Go` and from nowhere else, and a run ends
# through `End` and through nothing else, so no limit is bypassed on the way in and no total on the way out.


@final
@attrs.frozen(kw_only=True)
class Start:
    """The run begins."""


@final
@attrs.frozen(kw_only=True)
class Prompt:
    """The prompt is taken out of the mail."""


@final
@attrs.frozen(kw_only=True)
class Go:
    """Decide whether the model is called now: limits, compaction, then the request."""


@final
@attrs.frozen(kw_only=True)
class End:
    """The run is about to end for *reason*."""

    reason: DoneReason
    detail: str = ""


Stage = Start | Prompt | Go | Retry | End | Hooked
"""Where in its thinking an agent is."""


@final
@attrs.frozen(kw_only=True)
class Thinking:
    """Between model calls. *attempt* counts the tries of the call that is being prepared, from 1."""

    stage: Stage = Go()
    attempt: int = 1

    @property
    def label(self) -> str:
        """The table's name for this."""
        return f"thinking.{type(self.stage).__name__.lower()}"

    @property
    def open(self) -> tuple[str, ...]:
        """The ids of the requests that are open."""
        return (self.stage.request,) if isinstance(self.stage, Retry | Hooked) else ()


@final
@attrs.frozen(kw_only=True)
class Streaming:
    """A model answers. *offered* are the tools of this very request; *pieces* what has come so far."""

    request: str
    attempt: int = 1
    offered: tuple[str, ...] = ()
    pieces: Rope = attrs.field(factory=Rope.of)
    stopping: Stopping = Stopping.NONE

    @property
    def label(self) -> str:
        """The table's name for this."""
        return "streaming.stopping" if self.stopping else "streaming"

    @property
    def open(self) -> tuple[str, ...]:
        """The ids of the requests that are open."""
        return (self.request,)


# The batch: the calls of one assistant message, under three names. Each call has its own phase.


@final
@attrs.frozen(kw_only=True)
class Queued:
    """Its turn has not come."""


@final
@attrs.frozen(kw_only=True)
class Asked:
    """A person was asked."""

    request: str


@final
@attrs.frozen(kw_only=True)
class Allowed:
    """It may run when its turn comes."""


@final
@attrs.frozen(kw_only=True)
class Running:
    """A tool is at work."""

    request: str


@final
@attrs.frozen(kw_only=True)
class Delegated:
    """A child agent is at work."""

    request: str


@final
@attrs.frozen(kw_only=True)
class Settled:
    """It has its result."""

    result: ToolResult


Phase = Queued | Hooked | Asked | Allowed | Running | Delegated | Settled
"""Where a call is on its way to its result."""


@final
@attrs.frozen(kw_only=True)
class Call:
    """One call of a batch. *call* has the arguments it will run with, which a person may have edited."""

    call: ToolCall
    phase: Phase = Queued()

    @property
    def open(self) -> tuple[str, ...]:
        """The id of this call's open request, if there is one."""
        return (self.phase.request,) if isinstance(self.phase, Hooked | Asked | Running | Delegated) else ()


@final
@attrs.frozen(kw_only=True)
class Batch:
    """
    All calls of one assistant message, in the model's order.

    *offered* are the tools of the request that was answered: no other runs, whatever is configured later.
    """

    calls: tuple[Call, ...]
    offered: tuple[str, ...] = ()
    stopping: Stopping = Stopping.NONE

    @property
    def open(self) -> tuple[str, ...]:
        """The ids of the requests that are open."""
        return tuple([request for call in self.calls for request in call.open])

    def find(self, request: str, phase: type[Running | Delegated | Asked]) -> int | None:
        """The index of the call that is in *phase* with *request* open, or None."""
        for index, call in enumerate(self.calls):
            if isinstance(call.phase, phase) and call.phase.request == request:
                return index
        return None

    def with_call(self, index: int, call: Call) -> Batch:
        """This batch with *call* at *index*."""
        return self.with_calls([*self.calls[:index], call, *self.calls[index + 1 :]], self.stopping)

    def with_calls(self, calls: list[Call], stopping: Stopping) -> Batch:
        """This batch with *calls* in place of its own, and *stopping*."""
        return Batch(calls=tuple(calls), offered=self.offered, stopping=stopping)

    @property
    def suffix(self) -> str:
        """What a state's label gets where the batch is being given up."""
        return ".stopping" if self.stopping else ""


@final
@attrs.frozen(kw_only=True)
class Executing:
    """Tools are at work, or about to be."""

    batch: Batch

    @property
    def label(self) -> str:
        """The table's name for this."""
        return f"executing{self.batch.suffix}"

    @property
    def open(self) -> tuple[str, ...]:
        """The ids of the requests that are open."""
        return self.batch.open


@final
@attrs.frozen(kw_only=True)
class Confirming:
    """At least one question is open; other calls of the batch may be at work meanwhile."""

    batch: Batch

    @property
    def label(self) -> str:
        """The table's name for this."""
        return f"confirming{self.batch.suffix}"

    @property
    def open(self) -> tuple[str, ...]:
        """The ids of the requests that are open."""
        return self.batch.open


@final
@attrs.frozen(kw_only=True)
class Dispatching:
    """No question is open and at least one child agent is at work."""

    batch: Batch

    @property
    def label(self) -> str:
        """The table's name for this."""
        return f"dispatching{self.batch.suffix}"

    @property
    def open(self) -> tuple[str, ...]:
        """The ids of the requests that are open."""
        return self.batch.open


class CompactReason(StrEnum):
    """Why the context is being shrunk."""

    THRESHOLD = "threshold"
    MAX_TOKENS = "max_tokens"
    OVERFLOW = "overflow"


@final
@attrs.frozen(kw_only=True)
class Weigh:
    """Decide whether and where to cut."""


@final
@attrs.frozen(kw_only=True)
class Summary:
    """A model summarises the messages before index *cut*."""

    request: str
    cut: int
    pieces: Rope = attrs.field(factory=Rope.of)


CompactStage = Weigh | Hooked | Summary | Retry
"""Where a compaction is."""


@final
@attrs.frozen(kw_only=True)
class Compacting:
    """The context is being shrunk."""

    reason: CompactReason
    stage: CompactStage = Weigh()
    stopping: Stopping = Stopping.NONE

    @property
    def label(self) -> str:
        """The table's name for this."""
        return "compacting.stopping" if self.stopping else f"compacting.{type(self.stage).__name__.lower()}"

    @property
    def open(self) -> tuple[str, ...]:
        """The ids of the requests that are open."""
        return () if isinstance(self.stage, Weigh) else (self.stage.request,)


@final
@attrs.frozen(kw_only=True)
class Done:
    """The run is over. *spent* is all of it, children and summaries included."""

    reason: DoneReason
    spent: Spent = Spent()
    detail: str = ""

    @property
    def label(self) -> str:
        """The table's name for this."""
        return "done"

    @property
    def open(self) -> tuple[str, ...]:
        """Nothing is open."""
        return ()


State = Thinking | Streaming | Executing | Confirming | Dispatching | Compacting | Done
"""Where an agent is: exactly one of seven."""
