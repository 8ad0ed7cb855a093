"""The environment of a session: its configuration, performers, clock, and the protocol of child sessions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, cast, final

import attrs

from ...display.notebook import Card, Displayed
from ...effects.errors import Choice, RunFailed
from ...effects.notices import DoneReason
from ...effects.usage import Spent
from ...performers.base import noop
from .completed_texts import Delivery
from .feed import Reader
from .wanted_outputs import WantedOutputs

if TYPE_CHECKING:
    from ...effects.config import Config, Steering
    from ...effects.events import Decision
    from ...effects.history import History
    from ...effects.messages import Binary
    from ...effects.output import OutputSpec
    from ...effects.permissions import Rule
    from ...effects.records import Change, SetMode
    from ...effects.requests import AskApproval
    from ...performers.base import Clock, Performers
    from ...performers.logs import Redact
    from ...performers.output import Output
    from ...performers.redactor import Redactor
    from ...performers.stores.base import Store
    from ...performers.telemetry.otel import OpenTelemetry
    from ...states.context import Mail
    from ..core.inputs import Input
    from ..core.machine import Machine


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # The type of what a run comes to: text, unless an output is asked for.
    Output_co = TypeVar("Output_co", covariant=True, default=str)

    # The same of the runs of a session. `Session` alone is any session.
    AgentOutput_co = TypeVar("AgentOutput_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    Output_co = TypeVar("Output_co", covariant=True)
    AgentOutput_co = TypeVar("AgentOutput_co", covariant=True)


class Titles(Choice):
    """
    How sessions get titles: not at all, from the first line of the first prompt, or from a model.

    A model is asked once, after the first run, in the background. Where no title has come when the session is
    closed, the first line stands in.
    """

    OFF = "off"
    INLINE = "inline"
    MODEL = "model"


class OnHostError(Choice):
    """
    What becomes of an exception of the host's code: of a tool, a hook, an approver or a performer.

    It is an answer that the run goes on with, and is logged; or it ends the work and is raised to the caller.
    """

    REPORT = "report"
    RAISE = "raise"


# Seconds between two looks at what other processes write. Half a second: a person who approves in another
# process hardly notices, and a store does not either.
POLL_PAUSE = 0.5

# Ends the work of a running session, and lets go; see `Session.drain`.
Drain = Callable[["float | None"], Awaitable[None]]


@final
@attrs.frozen(kw_only=True)
class Environment:
    """
    What a session works with: its *config* and *clock*, and its *performers*.

    *ended* is called with the session's id and the reason of its last run when the session is closed.
    Every *poll* seconds a running session reads the inputs of other processes from its store. *watch* says
    what subscribers see. *redactor* takes secrets out of approvals. *at_work* holds the running sessions.
    For a child, *task* is its first prompt, and *rested* is called when it waits only for people. *retired*
    are names of tools without which a run goes on that had them, *lifted* rules of earlier runs that hold no
    more. A process that works on a session says so
    every few seconds, and is taken for gone after *lease* seconds; *worker* is its name there. *ready*
    raises `ConfigError` where a model that it is given the names of cannot be asked. *on_error* says what
    becomes of exceptions of the host's code. *outputs* are those that callers here want of its runs, and
    *output_spec* says how models are asked for one. *telemetry* makes the spans of its runs, where they are
    wanted.
    """

    config: Config
    performers: Performers
    clock: Clock
    # Passed in, so that a test can have the same ids twice.
    new_id: Callable[[], str]
    # None where no hook listens: closing a session then costs no event.
    ended: Callable[[str, str], Awaitable[None]] | None = None
    poll: float = POLL_PAUSE
    # Off unless asked for: a model's title costs a request that no caller sees.
    titles: Titles = Titles.OFF
    watch: Delivery = Delivery()
    # A child that is only looked at has none: that is how `check_not_child` tells the two apart.
    task: Input | None = None
    redactor: Redactor | None = None
    # How to drain each running session. Shared and mutable, on purpose: one set for all of an agent.
    at_work: set[Drain] = attrs.field(factory=set)
    rested: Callable[[], None] = noop
    retired: tuple[str, ...] = ()
    lifted: tuple[Rule, ...] = ()
    # Long enough for a disk that stalls or a tool that blocks the event loop for a moment.
    lease: float = 15.0
    worker: str = ""
    # Raises for models that cannot be asked here: a run is not begun for them.
    ready: Callable[..., None] = noop
    on_error: OnHostError = OnHostError.REPORT
    outputs: WantedOutputs = attrs.field(factory=WantedOutputs)
    output_spec: Callable[[Output[Any]], OutputSpec] | None = None
    telemetry: OpenTelemetry | None = None

    @property
    def redact(self) -> Redact | None:
        """What takes the secrets out of texts that are logged."""
        return None if self.redactor is None else self.redactor.logged

    def of_fork(self) -> Environment:
        """That of a copy of the session, which has runs of its own."""
        return attrs.evolve(self, outputs=WantedOutputs(self.outputs.known))

    @property
    def sender_trace(self) -> str:
        """The ``traceparent`` of the caller that sends an input; empty without telemetry or a span."""
        return "" if self.telemetry is None else self.telemetry.sender()


# Reasons after which a run counts as failed. After a limit, what it found is worth reading.
FAILED_REASONS = frozenset({DoneReason.ERROR, DoneReason.ABORTED, DoneReason.BLOCKED, DoneReason.REFUSAL})

# Reasons with which the model has given its answer.
ANSWERED_REASONS = frozenset({DoneReason.END_TURN, DoneReason.STOP_SEQUENCE})

# What a caller may do about ends that have no detail which says so.
_WAYS_ON = {
    DoneReason.MAX_TOKENS: "the answer was cut; raise max_output of the ModelSpec",
    DoneReason.MAX_TURNS: "raise Limits(turns=...), or send a prompt to go on",
    DoneReason.TOKEN_BUDGET: "raise Limits(tokens=...)",
    DoneReason.MAX_BUDGET: "raise Limits(usd=...)",
    DoneReason.TIME_BUDGET: "raise Limits(seconds=...)",
    DoneReason.INTERRUPTED: "send a prompt to go on",
    DoneReason.OUTPUT_INVALID: "its text has what the model gave; raise Retries(output=...)",
}


@final
@attrs.frozen(kw_only=True)
class Result(Displayed, Generic[Output_co]):
    """
    A run that has ended, or rests.

    *text* is the last answer. *reason* is why it ended, None where it rests; *waiting* are the open questions
    then. *spent* is its account (turns, tokens, USD, seconds). *detail* adds to *reason*, such as the
    provider's error message.
    """

    session: str
    run: str
    text: str
    reason: DoneReason | None
    spent: Spent
    waiting: tuple[AskApproval, ...] = ()
    detail: str = ""
    # Read when it is asked for: most callers of runs without an output want the text alone.
    _read: Callable[[], Any] | None = attrs.field(default=None, repr=False, eq=False, alias="read")
    if not TYPE_CHECKING:
        # As `Agent` has it.
        __class_getitem__ = classmethod(GenericAlias)

    @cached_property
    def output(self) -> Output_co:
        """
        What the run came to: a value of the type that was asked for, else the text.

        Raises `RunFailed` where it came to nothing, as `raise_for_error` does.
        """
        self.raise_for_error()
        return cast("Output_co", self.text if self._read is None else self._read())

    def raise_for_error(self) -> Self:
        """
        This result; raises `RunFailed` where *text* is no answer.

        Only `end_turn` and `stop_sequence` are answers. A run that failed, met a limit, went in circles or
        was stopped has none, and neither has one that rests on a question.
        """
        if self.reason in ANSWERED_REASONS:
            return self
        if self.reason is None:
            raise RunFailed(self.session, self.run, "", self._unanswered())
        way = _WAYS_ON.get(self.reason)
        if self.detail.startswith("ended by session_limits"):
            # A further prompt would end in the same way.
            way = "raise Agent(session_limits=...)"
        detail = "; ".join(filter(None, (self.detail, way)))
        raise RunFailed(self.session, self.run, self.reason, detail)

    def _unanswered(self) -> str:
        """What a run that is not over waits for, and how it goes on."""
        if not self.waiting:
            return "its work was left; go on with session.resume()"
        asked = ", ".join([f"{question.id!r} (tool {question.tool!r})" for question in self.waiting])
        return f"open questions: {asked}; answer with session.approve(id), then call session.resume()"

    def _card(self) -> Card:
        # It knows all states, and an agent is made without them.
        from ...display.rendering import line_of, printable, spent_of  # noqa: PLC0415  # see above

        reason = "rests" if self.reason is None else str(self.reason)
        questions = [f"waits for {line_of(one)}" for one in self.waiting]
        # The answer is text of a model: each line of it stands, and none of its control characters.
        said = [printable(line) for line in (*self.detail.splitlines(), *self.text.splitlines())]
        spent = spent_of(self.spent) or "nothing spent"
        return Card(title="Result", beside=f"of {self.run}: {reason}, {spent}", lines=(*questions, *said))


# Children are sessions and sessions have children. Protocols keep the two modules out of an import circle;
# their members are documented at `Result` and `Session`.
# ruff: noqa: D102  # see above


# Only what a parent uses, so that the two classes can change apart from each other.
class ChildSession(Protocol):
    """A session as its parent uses it."""

    id: str

    @property
    def machine(self) -> Machine | None: ...
    @property
    def history(self) -> History: ...
    @property
    def unfinished(self) -> bool: ...
    @property
    def resting(self) -> bool: ...
    @property
    def waiting(self) -> tuple[AskApproval, ...]: ...
    @property
    def queue(self) -> tuple[Mail, ...]: ...
    @property
    def spent(self) -> Spent: ...
    def result(self) -> Result: ...
    async def load(self) -> Self: ...
    async def work(self, task: str | None, reader: Reader) -> None: ...
    # These pass on what a person did at the parent.
    async def approve(self, request: str, decision: Decision = ..., *, by: str = "") -> None: ...
    async def check_answer(self, request: str, decision: Decision) -> None: ...
    async def take_mode(self, change: SetMode) -> None: ...
    async def interrupt(self) -> None: ...
    async def drain(self, within: float | None = None) -> None: ...
    async def close(self) -> None: ...


class SpokenSession(Protocol):
    """A session as a handle speaks to it."""

    id: str

    async def send(self, text: str, *, files: Sequence[Binary], id: str, start: bool) -> str: ...
    async def steer(
        self, text: str, how: Steering | None, *, files: Sequence[Binary], id: str, start: bool
    ) -> str: ...
    async def control(self, change: Change) -> None: ...
    async def interrupt(self) -> None: ...


# Any, and not ChildSession: its parameters are wider here than the ones that `Session` takes.
# Makes the session of a child: `Session` itself.
OpenSession = Callable[["str", Environment, "Store | None"], Any]
