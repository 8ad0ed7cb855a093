"""
Requests: what a transition asks of the world. Each gets exactly one answer, an event that names its id.

An id is ``run-counter``. It is made in the transition and is also the idempotency key of the work: a
request that is performed again after a crash has the id it had before. `Cancel` names a request and gets no
answer of its own; cancelled models, tools and children still give theirs, while questions, hooks and timers
die with their Cancel.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, TypeGuard, cast, final, get_args

import attrs

from .config import Limits
from .hooks import Hook
from .output import OutputMode
from .permissions import PermissionMode, runs_again


class Purpose(StrEnum):
    """What a model is called for. Only a `TURN` counts as one."""

    TURN = "turn"
    SUMMARY = "summary"
    TITLE = "title"


@final
@attrs.frozen(kw_only=True)
class Conversation:
    """
    The first *length* messages of the history at *revision*.

    Of those before index *cleared*, long tool results are left out; that there were some is seen.
    """

    revision: int
    length: int
    cleared: int = 0


@final
@attrs.frozen(kw_only=True)
class Transcript:
    """
    The first *length* messages of the history at *revision*, rendered as one text to be summarised.

    It has at most *limit* estimated tokens; what is left out is taken from its middle.
    """

    revision: int
    length: int
    limit: int


# Which messages a model sees: by reference, so that a request costs the same at any length.
View = Conversation | Transcript


@final
@attrs.frozen(kw_only=True)
class CallModel:
    """
    Ask a model. *tools* are the names offered in this very request: no other may run.

    A performer may offer fewer, and says so in its answer.
    *system* is the system prompt, which stays the same through a session; *instructions* are added behind it
    for this request. *thinking* is how many tokens it may think, None for the provider's own way;
    *max_output* is how many it may answer with, None for what is configured. *tool_choice* is ``"auto"``,
    ``"required"``, or the name of the tool that the answer must call; empty for the provider's own way.
    *output* is how the output of the run is asked for, None where it is text.
    Answered by any number of `ModelStreamed` and one `ModelFinished` or `ModelFailed`.
    """

    id: str
    model: str
    view: View
    system: str = ""
    thinking: int | None = None
    max_output: int | None = None
    tools: tuple[str, ...] = ()
    purpose: Purpose = Purpose.TURN
    instructions: str = ""
    attempt: int = 1
    tool_choice: str = ""
    output: OutputMode | None = None


@final
@attrs.frozen(kw_only=True)
class RunTool:
    """
    Run a tool. *call* is our id of the call, *timeout* in seconds. Answered by one `ToolFinished`.

    *again*: it may have done its work before, under this id, in a process that was lost. Then no answer
    says that it has not.
    """

    id: str
    call: str
    tool: str
    arguments: str
    timeout: float | None = None
    again: bool = False


@final
@attrs.frozen(kw_only=True)
class AskApproval:
    """
    Ask a person whether a call may run, *why* says what made it a question.

    *due* is when it is too late, in seconds since the epoch, or None. Answered by one `ApprovalGiven`,
    whenever that comes. *session*, *run* and *agent*, empty for the first agent, are where it is asked; a
    machine knows no session, so they are filled in for approvers.
    """

    id: str
    call: str
    tool: str
    arguments: str
    why: str = ""
    due: float | None = None
    session: str = ""
    run: str = ""
    agent: str = ""

    @property
    def values(self) -> dict[str, Any]:
        """The arguments by their names; a change in there changes no call."""
        found: dict[str, Any] = json.loads(self.arguments or "{}")
        return found

    @property
    def again(self) -> bool:
        """Whether the call may have run before, in a process that was lost: a yes makes it run again."""
        return runs_again(self.why)


@final
@attrs.frozen(kw_only=True)
class FireHook:
    """
    Ask the host's hooks, by their *names* and in that order; each sees the arguments the one before gave.

    *payload* is JSON text. Answered by one `HookAnswered`.
    """

    id: str
    hook: Hook
    names: tuple[str, ...]
    payload: str = "{}"
    call: str = ""


@final
@attrs.frozen(kw_only=True)
class InspectCall:
    """
    Look at what the *arguments* of a call of *tool* reach and run. Answered by one `CallInspected`.

    *globs* are those that rules have for paths: what a path reaches is told in their spelling, too.
    """

    id: str
    call: str
    tool: str
    arguments: str
    globs: tuple[str, ...] = ()


@final
@attrs.frozen(kw_only=True)
class ReadInstructions:
    """Read the instruction *files* of the place where the agent works. Answered by one `InstructionsRead`."""

    id: str
    files: tuple[str, ...]


@final
@attrs.frozen(kw_only=True)
class DecodeOutput:
    """
    Make the output of the run out of *text*, JSON that fits its schema. Answered by one `OutputDecoded`.

    It changes nothing in the world, so it may be done again.
    """

    id: str
    text: str


@final
@attrs.frozen(kw_only=True)
class RunAgent:
    """
    Run a child agent to its end, with these *tools* and no others, in the permission *mode* of its parent.

    Answered by one `AgentFinished`.
    """

    id: str
    call: str
    agent: str
    prompt: str
    tools: tuple[str, ...] = ()
    limits: Limits = Limits()
    mode: PermissionMode = PermissionMode.DEFAULT


@final
@attrs.frozen(kw_only=True)
class SetTimer:
    """Wake the machine at *due*, in seconds since the epoch. Answered by one `TimerFired`."""

    id: str
    due: float


@final
@attrs.frozen(kw_only=True)
class Cancel:
    """Stop the work of *request*, as soon as it can be."""

    request: str


# Every effect that gets an answer.
Request = (
    CallModel
    | RunTool
    | AskApproval
    | FireHook
    | InspectCall
    | ReadInstructions
    | DecodeOutput
    | RunAgent
    | SetTimer
)

# By exact type, since the classes are final: a step asks this of every effect.
_REQUESTS: frozenset[type] = frozenset(get_args(Request))
_ORDERS = _REQUESTS | {Cancel}


def is_request(effect: object) -> TypeGuard[Request]:
    """Whether *effect* gets an answer."""
    return type(effect) in _REQUESTS


def orders_in(effects: Iterable[object]) -> list[Request | Cancel]:
    """The requests and cancels among *effects*, in their order."""
    # One call for a step and not one for each effect.
    return cast("list[Request | Cancel]", [effect for effect in effects if type(effect) in _ORDERS])
