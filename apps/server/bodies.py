"""What requests and answers have in JSON; docs/server.md and /openapi.json are about these."""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar, final

import msgspec

T = TypeVar("T")


class _Given(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of a request: an unknown field is a mistake of its sender."""


@final
class FileBody(_Given):
    """A file that comes with a prompt; *data* is Base64."""

    media_type: str
    data: bytes
    name: str = ""


@final
class NewSession(_Given):
    """A session to begin; without *id* it gets one, and with a *prompt* it begins to run."""

    agent: str | None = None
    id: str | None = None
    prompt: str | None = None
    files: tuple[FileBody, ...] = ()


@final
class NewMessage(_Given):
    """A prompt in the queue, or a steer: read after the running tools, or now. *id* is the sender's own."""

    text: str
    mode: Literal["queue", "steer", "now"] = "queue"
    id: str | None = None
    files: tuple[FileBody, ...] = ()


@final
class NewDecision(_Given):
    """The answer to a question; *arguments* take the place of the model's, *reason* is for the model."""

    decision: Literal["approve", "always", "deny"]
    arguments: dict[str, Any] | None = None
    reason: str | None = None


@final
class NewSettings(_Given):
    """Settings to change: at least one. Without a limit, *thinking* is null."""

    model: str | msgspec.UnsetType = msgspec.UNSET
    mode: str | msgspec.UnsetType = msgspec.UNSET
    thinking: int | msgspec.UnsetType | None = msgspec.UNSET


@final
class BranchPoint(_Given):
    """The run to go back to; empty for the beginning."""

    run: str = ""


@final
class NewFork(_Given):
    """A fork before step *at*, or at the end; *instead* is a text, an event, a decision or a change."""

    id: str | None = None
    at: int | None = None
    instead: str | dict[str, Any] | None = None


@final
class TriedEvent(_Given):
    """An event to try, as `moves` has it."""

    event: dict[str, Any]


class _Shown(msgspec.Struct, kw_only=True):
    """A part of an answer."""


@final
class Listing(_Shown, Generic[T]):
    """A part of a list; *next* is the cursor of the next part, null at the end."""

    items: list[T]
    next: str | int | None = None


@final
class AgentBody(_Shown):
    """An agent; *models* are all that a session may switch to, *specs* describe its *tools*."""

    name: str
    model: str
    tools: list[str]
    models: list[str]
    specs: list[ToolBody]


@final
class ToolBody(_Shown):
    """A tool; *parameters* is the JSON Schema of its arguments."""

    name: str
    description: str
    side_effect: str
    parameters: dict[str, Any]


@final
class QuestionBody(_Shown):
    """An open question; *due* is when it is too late, in seconds since the epoch."""

    id: str
    call: str
    tool: str
    arguments: dict[str, Any]
    why: str
    due: float | None
    session: str
    agent: str


@final
class AnsweredBody(_Shown):
    """A question that was answered, by whom and how."""

    id: str
    decision: str
    by: str


@final
class QueuedBody(_Shown):
    """A prompt that waits for a run."""

    id: str
    text: str
    at: float
    sender: str


@final
class SpendBody(_Shown):
    """What was used; *usd* is exact, as text. *unpriced* tokens are not in it."""

    turns: int
    input: int
    output: int
    cached: int
    reasoning: int
    usd: str
    seconds: float
    unpriced: int


@final
class LimitsBody(_Shown):
    """What a run may use; null is no limit."""

    turns: int | None
    tokens: int | None
    usd: str | None
    seconds: float | None


@final
class SessionBody(_Shown):
    """
    A session. *state* is the label of its machine, ``new`` before the first run, ``done`` at the end of one.

    *updated* is in seconds since the epoch. *running* is whether a run goes on in this process.
    """

    id: str
    agent: str
    title: str
    state: str
    reason: str | None
    questions: list[QuestionBody]
    queue: list[QueuedBody]
    spend: SpendBody
    limits: LimitsBody
    updated: float
    created: float
    kind: str
    parent: str
    run: str
    model: str
    mode: str
    running: bool


@final
class AcceptedBody(_Shown):
    """An input that was taken in."""

    id: str


class StepBody(_Shown):
    """
    A step. *event* is what happened; of a step without an event, the entry of the journal.

    *before* and *state* are labels; *values* are the fields of the state.
    """

    number: int
    at: float
    event: dict[str, Any]
    before: str
    state: str
    effects: list[dict[str, Any]]
    run: str
    entry: str
    values: dict[str, Any] | None
    spend: SpendBody


@final
class StepInFull(StepBody):
    """A step with the *memory* of the machine after it, and the *history* that the model was to see."""

    memory: dict[str, Any] | None
    history: list[dict[str, Any]]


@final
class MoveBody(_Shown):
    """An event that is legal now."""

    title: str
    event: dict[str, Any]


@final
class PreviewBody(_Shown):
    """What would follow: the label of the next *state*, its *values*, and the *effects*."""

    state: str
    effects: list[dict[str, Any]]
    values: dict[str, Any]
