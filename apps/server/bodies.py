"""What requests and answers have in JSON; docs/server.md and /openapi.json are about these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Generic, Literal, TypeVar, final

import msgspec

from ...effects.permissions import PermissionMode
from ...effects.validators import MAX_DENIAL, MAX_PROMPT, MAX_PROMPT_FILES, MAX_WORD
from .operations import LARGEST

T = TypeVar("T")

# Ids that need no escaping in a path but the obvious one, and are no path of their own. In Python `$` also
# matches before a line end, so nothing may follow it.
SESSION_ID = r"^(?!\.{1,2}$)[A-Za-z0-9._~:@+=,-]{1,200}$(?![\s\S])"


class _Given(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of a request: an unknown field is a mistake of its sender."""


# What msgspec checks stands in the schema, too: what the document allows is taken, or is not there or over.
# Blanks are those of Python and of ECMAScript, whose sets differ: each reader of the document agrees.
SPOKEN = r"[^\s\u001c-\u001f\u0085\ufeff]"
SpokenText = Annotated[str, msgspec.Meta(pattern=SPOKEN, max_length=MAX_PROMPT)]
GivenId = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_WORD)]
NewId = Annotated[str, msgspec.Meta(pattern=SESSION_ID)]
BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


@final
class FileBody(_Given):
    """A file that comes with a prompt; *data* is Base64."""

    media_type: Annotated[str, msgspec.Meta(max_length=MAX_WORD)]
    data: Annotated[bytes, msgspec.Meta(extra_json_schema={"pattern": BASE64})]
    name: Annotated[str, msgspec.Meta(max_length=MAX_WORD)] = ""


Files = Annotated[tuple[FileBody, ...], msgspec.Meta(max_length=MAX_PROMPT_FILES)]


@final
class NewSession(_Given):
    """A session to begin; without *id* it gets one, and with a *prompt* it begins to run."""

    agent: str | None = None
    id: NewId | None = None
    prompt: SpokenText | None = None
    files: Files = ()


@final
class NewMessage(_Given):
    """
    A prompt in the queue, or a steer: read after the running tools, or now. *id* is the sender's own.

    It has a text or a file.
    """

    text: Annotated[str, msgspec.Meta(max_length=MAX_PROMPT)] = ""
    mode: Literal["queue", "steer", "now"] = "queue"
    id: GivenId | None = None
    files: Files = ()


class _Decided(_Given, tag_field="decision"):
    """An answer to a question."""


@final
class ApprovalForOne(_Decided, tag="approve"):
    """Yes; *arguments* take the place of the model's."""

    arguments: dict[str, Any] | None = None


@final
class ApprovalForAll(_Decided, tag="always"):
    """Yes, and to each such call from now on."""


@final
class Denial(_Decided, tag="deny"):
    """No; *reason* is for the model."""

    reason: Annotated[str, msgspec.Meta(max_length=MAX_DENIAL)] | None = None


NewDecision = ApprovalForOne | ApprovalForAll | Denial


@final
class NewSettings(_Given):
    """Settings to change: at least one. Without a limit, *thinking* is null."""

    model: SpokenText | msgspec.UnsetType = msgspec.UNSET
    mode: PermissionMode | msgspec.UnsetType = msgspec.UNSET
    thinking: Annotated[int, msgspec.Meta(ge=1, le=LARGEST)] | msgspec.UnsetType | None = msgspec.UNSET


def _event(tag: str, **fields: dict[str, Any]) -> dict[str, Any]:
    properties = {"type": {"const": tag}, **fields}
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


_ANY_TEXT = {"type": "string"}
_ID = {"type": "string", "minLength": 1, "maxLength": MAX_WORD}
_SPOKEN = {"type": "string", "maxLength": MAX_PROMPT, "pattern": SPOKEN}
_DECISIONS = {"oneOf": [_event(tag) for tag in ("Approve", "ApproveAlways", "Deny")]}
# The inputs of people. `moves` has the others as a whole, ready to be tried.
EVENTS_OF_PEOPLE = {
    "oneOf": [
        _event("UserSent", id=_ID, text=_SPOKEN),
        _event("UserSteered", id=_ID, text=_SPOKEN),
        _event("ApprovalGiven", request=_ANY_TEXT, decision=_DECISIONS),
        _event("InputWithdrawn", input=_ANY_TEXT),
        _event("CallCancelled", call=_ANY_TEXT),
        _event("Interrupted"),
    ]
}
_TEXT_OR_NULL = ({"type": "string"}, {"type": "null"})

# What a schema of fields cannot say of a body as a whole.
RULES: dict[str, dict[str, Any]] = {
    "NewSettings": {"minProperties": 1},
    "NewMessage": {
        "anyOf": [
            {"required": ["text"], "properties": {"text": {"pattern": SPOKEN}}},
            {"required": ["files"], "properties": {"files": {"minItems": 1}}},
        ]
    },
    "NewFork": {"allOf": [{"properties": {"instead": {"anyOf": [*_TEXT_OR_NULL, EVENTS_OF_PEOPLE]}}}]},
}

GivenEvent = Annotated[dict[str, Any], msgspec.Meta(extra_json_schema=EVENTS_OF_PEOPLE)]


@final
class BranchPoint(_Given):
    """The run to go back to; empty for the beginning."""

    run: str


@final
class NewFork(_Given):
    """A fork before step *at*, or at the end; *instead* is a text, an event, a decision or a change."""

    id: NewId | None = None
    at: Annotated[int, msgspec.Meta(ge=0, le=LARGEST)] | None = None
    # Its schema stands in `RULES`: msgspec 0.22 frees that of a union of annotated types twice.
    instead: str | dict[str, Any] | None = None


@final
class TriedEvent(_Given):
    """An event to try, as `moves` has it."""

    event: GivenEvent


# Posts of front ends, as far as they are read. Of the messages only the last one is, which no schema can say:
# so all have to be well made.
_POSTED_LIST = {"type": ["array", "null"]}
_POSTED_SESSION = {"type": "string", "pattern": SESSION_ID}
_MIME = {"type": "string", "maxLength": MAX_WORD}


def _object(required: Sequence[str], **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": [*required], "properties": properties}


def _if(condition: dict[str, Any], then: dict[str, Any], otherwise: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "if": condition, "then": then, "else": otherwise}


def _is(name: str, value: str) -> dict[str, Any]:
    return _object([name], **{name: {"const": value}})


_TEXT_PART = _object(["type", "text"], type={"const": "text"}, text=_ANY_TEXT)
_SPOKEN_PART = _object(["type", "text"], type={"const": "text"}, text=_SPOKEN)

_DATA = _object(
    ["type", "value", "mimeType"],
    type={"const": "data"},
    value={"type": "string", "pattern": BASE64},
    mimeType=_MIME,
)
_AG_UI_FILE = _object(["source"], type={"not": {"const": "text"}}, source=_DATA)
_AG_UI_PROMPT = _object(
    ["id", "content"],
    id=_ID,
    content={
        "anyOf": [
            _SPOKEN,
            {
                "type": "array",
                "items": {"anyOf": [_TEXT_PART, _AG_UI_FILE]},
                "contains": {"anyOf": [_SPOKEN_PART, _AG_UI_FILE]},
            },
        ]
    },
)
_APPROVED = _object(
    ["approved"],
    approved={"type": "boolean"},
    always={"type": ["boolean", "null"]},
    arguments={"type": ["object", "null"]},
    reason={"type": ["string", "null"], "maxLength": MAX_DENIAL},
)
_RESUME_ENTRY = {
    **_object(["interruptId"], interruptId=_ANY_TEXT),
    "anyOf": [
        _is("status", "cancelled"),
        _object(["payload"], payload={"anyOf": [{"type": "boolean"}, _APPROVED]}),
    ],
}
_AG_UI_POST = {
    "properties": {
        "threadId": _POSTED_SESSION,
        "runId": _ANY_TEXT,
        "messages": {**_POSTED_LIST, "items": _if(_is("role", "user"), _AG_UI_PROMPT, {})},
        "resume": {**_POSTED_LIST, "items": _RESUME_ENTRY},
    },
    "required": ["threadId", "runId"],
    "examples": [
        {"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "Hello"}]}
    ],
}

_URL_OF_DATA = rf"^data:([^,]*;base64,{BASE64[1:-1]}|(?![^,]*;base64,)[^,]*,[\s\S]*)$"
_UI_FILE = _object(
    ["type", "url", "mediaType"],
    type={"const": "file"},
    url={"type": "string", "pattern": _URL_OF_DATA},
    mediaType=_MIME,
    filename={"type": ["string", "null"], "maxLength": MAX_WORD},
)
_UI_OTHER = _object([], type={"not": {"enum": ["text", "file"]}})
_UI_PROMPT = _object(
    ["id", "parts"],
    id=_ID,
    parts={
        "type": "array",
        "items": {"anyOf": [_TEXT_PART, _UI_FILE, _UI_OTHER]},
        "contains": {"anyOf": [_SPOKEN_PART, _UI_FILE]},
    },
)
_UI_APPROVAL = _object(
    ["id", "approved"],
    id=_ANY_TEXT,
    approved={"type": "boolean"},
    reason={"type": ["string", "null"], "maxLength": MAX_DENIAL},
)
_UI_ANSWERS = _object(
    [],
    parts={
        **_POSTED_LIST,
        "items": _if(_is("state", "approval-responded"), _object(["approval"], approval=_UI_APPROVAL), {}),
    },
)
_UI_MESSAGES_POST = {
    "properties": {
        "id": _POSTED_SESSION,
        "messages": {
            **_POSTED_LIST,
            "items": _if(_is("role", "user"), _UI_PROMPT, _if(_is("role", "assistant"), _UI_ANSWERS, {})),
        },
        "trigger": {"const": "submit-message"},
    },
    "required": ["id"],
    "examples": [
        {"id": "t", "messages": [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}]}
    ],
}
AgUiPost = Annotated[dict[str, Any], msgspec.Meta(extra_json_schema=_AG_UI_POST)]
UiMessagesPost = Annotated[dict[str, Any], msgspec.Meta(extra_json_schema=_UI_MESSAGES_POST)]


class _Shown(msgspec.Struct, kw_only=True):
    """A part of an answer."""


@final
class Listing(_Shown, Generic[T]):
    """A part of a list; *next* is the cursor of the next part, null at the end."""

    items: list[T]
    next: str | int | None = None


@final
class AgentBody(_Shown):
    """
    An agent; *models* are all that a session may switch to, *specs* describe its *tools*.

    *attached* are the bytes of the files that may come with a prompt.
    """

    name: str
    model: str
    tools: list[str]
    models: list[str]
    specs: list[ToolBody]
    attached: int


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

    *updated* is in seconds since the epoch. *running* is whether a run goes on in this process, *steps* how
    many the session has.
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
    steps: int


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
