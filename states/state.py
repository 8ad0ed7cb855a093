"""The states, on one page: the discriminated union that says where an agent is."""

# Rules of this file:
#
# - No flags. What a state waits for is a closed union or an enum field with a name. So there is one answer to
#   "what is it waiting for?", and no combination of fields is without a meaning.
# - A state names every request that is open, and nothing that the memory knows already. After a crash the
#   state alone says which requests are to be made again.
# - `label` is the name that the table uses: the state and, where it has them, its stage.
# - A state is written to snapshots field by field, and the label of each step to the journal. So a field or a
#   label keeps its name: what is stored knows no other.
#
# One handler module per state decides what happens next: `thinking`, `streaming`, `executing`,
# `confirming`, `dispatching`, `compacting`, `done`.

from __future__ import annotations

from enum import StrEnum
from typing import assert_never, final, get_args

import attrs

from ..effects.history import Rope
from ..effects.notices import DoneReason
from ..effects.usage import Spent
from .batch.batch import Batch, Stopping

# Thinking: between model calls. A turn's request leaves from `Go` and from nowhere else, and a run ends
# through `End` and through nothing else, so no limit is bypassed on the way in and no total on the way out.


@final
@attrs.frozen(kw_only=True)
class Start:
    """The run begins."""


@final
@attrs.frozen(kw_only=True)
class Reading:
    """The session begins: instruction files are read."""

    request: str


@final
@attrs.frozen(kw_only=True)
class Opening:
    """The session begins, with these *instructions*: hooks are asked whether it may."""

    request: str
    instructions: str = ""


@final
@attrs.frozen(kw_only=True)
class Prompt:
    """The prompt is about to be taken out of the mail."""


@final
@attrs.frozen(kw_only=True)
class Steer:
    """What a person said into the run is about to be taken out of the mail."""


# The stages that take inputs out of the mail.
Intake = Prompt | Steer


@final
@attrs.frozen(kw_only=True)
class Admitting:
    """Hooks are asked whether the inputs *ids* may come in, which the stage *source* was about to take."""

    request: str
    ids: tuple[str, ...]
    source: Intake


@final
@attrs.frozen(kw_only=True)
class Go:
    """Decide whether the model is called now: limits, steers, compaction, then the request."""


@final
@attrs.frozen(kw_only=True)
class Retry:
    """Waits for *due*, in seconds since the epoch, to try again. *request* is the timer."""

    request: str
    due: float


@final
@attrs.frozen(kw_only=True)
class Checking:
    """The answer is there with which the run would end for *reason*: whether it is the output is judged."""

    reason: DoneReason


@final
@attrs.frozen(kw_only=True)
class Decoding:
    """The output *text* fits its schema: its class has the last word before the run ends for *reason*."""

    request: str
    reason: DoneReason
    text: str


@final
@attrs.frozen(kw_only=True)
class Ending:
    """The run would end for *reason*, with *output*: hooks are asked whether it may."""

    request: str
    reason: DoneReason
    detail: str = ""
    output: str = ""


@final
@attrs.frozen(kw_only=True)
class End:
    """The run is about to end for *reason*, with *output*: JSON, empty where the output is text."""

    reason: DoneReason
    detail: str = ""
    # Here and not in the memory: where the run goes on after all, another output takes its place.
    output: str = ""


# Stages that wait for an answer to their *request*.
Waiting = Reading | Opening | Admitting | Retry | Decoding | Ending

# Where in its thinking an agent is.
Stage = Start | Prompt | Steer | Go | Checking | End | Waiting

# The table's name for each.
STAGE_LABELS = {stage: f"thinking.{stage.__name__.lower()}" for stage in get_args(Stage)}


@final
@attrs.frozen(kw_only=True)
class Thinking:
    """Between model calls. *attempt* counts the tries of the call that is being prepared, from 1."""

    stage: Stage = Go()
    # Not in the memory: it counts the tries of one request, and the next one begins at 1.
    attempt: int = 1

    @property
    def label(self) -> str:
        """The table's name for this."""
        return STAGE_LABELS[type(self.stage)]

    @property
    def open(self) -> tuple[str, ...]:
        """The ids of the requests that are open."""
        return (self.stage.request,) if isinstance(self.stage, Waiting) else ()


@final
@attrs.frozen(kw_only=True)
class Streaming:
    """A model answers: *model*. *offered* are the tools of this request, *pieces* what has come so far."""

    request: str
    # A person may change the model in the memory while this one answers. The bill is for this one.
    model: str
    attempt: int = 1
    # As they were at the time of the request. A tool that is configured later was not seen by the model,
    # and a call to it is a guess.
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


@attrs.frozen(kw_only=True)
class _OfBatch:
    """One batch of calls, under one of three names."""

    batch: Batch

    @property
    def label(self) -> str:
        """The table's name for this."""
        return f"{type(self).__name__.lower()}{'.stopping' if self.batch.stopping else ''}"

    @property
    def open(self) -> tuple[str, ...]:
        """The ids of the requests that are open."""
        return self.batch.open


@final
@attrs.frozen(kw_only=True)
class Executing(_OfBatch):
    """Tools are at work, or about to be."""


@final
@attrs.frozen(kw_only=True)
class Confirming(_OfBatch):
    """At least one question is open; other calls of the batch may be at work meanwhile."""


@final
@attrs.frozen(kw_only=True)
class Dispatching(_OfBatch):
    """A child agent is at work, and no question is open."""


# Kept to the end of a compaction, since it says what a failure leads to.
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
class Consulting:
    """Hooks are asked about a summary of the messages before index *cut*."""

    request: str
    cut: int


@final
@attrs.frozen(kw_only=True)
class Plan:
    """
    A summary of the messages before index *cut*, with the *wishes* of hooks.

    *limit* is how many tokens of them are shown to the summariser. *attempt* counts the tries from 1.
    """

    cut: int
    limit: int
    wishes: tuple[str, ...] = ()
    attempt: int = 1


@final
@attrs.frozen(kw_only=True)
class Summary:
    """The *model* summarises as *plan* says."""

    request: str
    model: str
    plan: Plan
    pieces: Rope = attrs.field(factory=Rope.of)


@final
@attrs.frozen(kw_only=True)
class Pausing:
    """Waits for *due*, in seconds since the epoch, to ask for the summary again. *request* is the timer."""

    request: str
    due: float
    plan: Plan


# Where a compaction is.
CompactStage = Weigh | Consulting | Summary | Pausing


@final
@attrs.frozen(kw_only=True)
class Compacting:
    """The context is being shrunk. *detail* are the words of a provider that refused it for its size."""

    reason: CompactReason
    stage: CompactStage = Weigh()
    stopping: Stopping = Stopping.NONE
    detail: str = ""

    @property
    def label(self) -> str:
        """The table's name for this."""
        return "compacting.stopping" if self.stopping else f"compacting.{type(self.stage).__name__.lower()}"

    @property
    def open(self) -> tuple[str, ...]:
        """The ids of the requests that are open."""
        # Weighing waits for nothing, so it is fed `Entered` and goes on by itself.
        return () if isinstance(self.stage, Weigh) else (self.stage.request,)


@final
@attrs.frozen(kw_only=True)
class Done:
    """
    The run is over. *spent* is all of it, children and summaries included.

    *output* is JSON where an output was asked for; after `output_invalid` what the model gave for it.
    """

    reason: DoneReason
    # Beside the memory's account, which may go on behind a branch: this bill is closed.
    spent: Spent = Spent()
    detail: str = ""
    output: str = ""

    @property
    def label(self) -> str:
        """The table's name for this."""
        return "done"

    @property
    def open(self) -> tuple[str, ...]:
        """Nothing is open."""
        return ()


# Where an agent is: exactly one of these.
State = Thinking | Streaming | Executing | Confirming | Dispatching | Compacting | Done


def batch_of(state: State) -> Batch | None:
    """The batch of *state*; None for a state without one."""
    match state:
        case Executing(batch=batch) | Confirming(batch=batch) | Dispatching(batch=batch):
            return batch
        case Thinking() | Streaming() | Compacting() | Done():
            return None
        case _:
            assert_never(state)
