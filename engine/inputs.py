"""What people say to a session, as events: checked and cleaned before anything is kept."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, get_args

import attrs

from ..effects.config import Steering
from ..effects.errors import (
    ArgumentError,
    ConfigError,
    QueueFull,
    UnknownCall,
    UnknownRequest,
)
from ..effects.events import (
    ApprovalGiven,
    Approve,
    ApproveAlways,
    CallCancelled,
    ControlReceived,
    Decision,
    Deny,
    Interrupted,
    Post,
    UserSent,
    UserSteered,
)
from ..effects.messages import Binary
from ..effects.permissions import PermissionMode
from ..effects.records import (
    Change,
    SetMode,
    SetModel,
    SetThinking,
)
from ..effects.validators import (
    MAX_CALL_ARGUMENTS,
    MAX_DENIAL,
    MAX_GLOBS,
    MAX_PROMPT,
    MAX_WAITING,
    attached,
    clean,
    named,
    tuple_of,
    within,
)
from ..states.rules.inputs import refusal
from .open_work import calls_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..effects.config import Config
    from ..effects.requests import AskApproval
    from .journal.fold import SessionState
    from .machine import Machine

DECISIONS = frozenset(get_args(Decision))
MODES = tuple(PermissionMode)


def _text(value: object) -> str:
    """*value* as text that can be written down; `ArgumentError` where it is none."""
    if not isinstance(value, str):
        msg = f"prompt, id and sender must be text; got {value!r}"
        raise ArgumentError(msg)
    # Almost every text is one that can be written: the check is cheaper than the cleaning.
    return value if value.isascii() else clean(value)


@attrs.frozen(kw_only=True)
class Input:
    """A text, its *files*, and who said it: *id* is the sender's own, *sender* who that is."""

    text: str = attrs.field(converter=_text)
    id: str = attrs.field(converter=_text)
    files: tuple[Binary, ...] = attrs.field(default=(), validator=tuple_of(Binary))
    sender: str = attrs.field(default="", converter=_text)

    def __attrs_post_init__(self) -> None:
        within("the text of a prompt", len(self.text), MAX_PROMPT)
        named("the id of a prompt", self.id)
        if self.sender:
            named("the sender of a prompt", self.sender)
        if self.files:
            attached(self.files)
        if not self.text.strip() and not self.files:
            msg = f"a prompt has to say something; got {self.text!r}"
            raise ConfigError(msg)
        if not self.id:
            msg = f"an id tells one prompt from another; got {self.id!r}: leave it out to have one made up"
            raise ConfigError(msg)

    def sent(self, at: float) -> UserSent:
        """As a prompt for a run of its own."""
        return UserSent(at=at, id=self.id, text=self.text, files=self.files, sender=self.sender)

    def steered(self, at: float, how: Steering) -> UserSteered:
        """As something said into the run that is under way."""
        return UserSteered(at=at, id=self.id, text=self.text, how=how, files=self.files)


def prompt_input(said: Input, state: SessionState, at: float) -> UserSent | None:
    """What was *said*, as a prompt; None where *state* knows of it already."""
    return None if state.knows(said.id) else said.sent(at)


def steer_input(
    said: Input, how: Steering, state: SessionState, at: float, *, always: bool
) -> UserSent | UserSteered | None:
    """As `sent`, but into the run that is under way, or where *always*; where there is none, as a prompt."""
    if state.knows(said.id):
        return None
    return said.steered(at, how) if always or state.unfinished else said.sent(at)


def check_question(
    answer: ApprovalGiven, state: SessionState, waiting: Iterable[AskApproval]
) -> ApprovalGiven:
    """
    The *answer*, where *state* has its question open.

    Raises `UnknownRequest` with the questions that are *waiting*.
    """
    if answer.request not in [question.id for question in state.questions]:
        raise UnknownRequest(answer.request, tuple([question.id for question in waiting]))
    return answer


def cancel_event(call: str, machine: Machine | None, at: float) -> CallCancelled:
    """That *call* of *machine* is given up; raises `UnknownCall` where it is not under way."""
    open_ = () if machine is None else calls_of(machine)
    if call not in open_:
        raise UnknownCall(call, open_)
    return CallCancelled(at=at, call=call)


def approval_event(request: str, decision: Decision, at: float, by: str) -> ApprovalGiven:
    """The answer *decision* to the question *request*, given *by* somebody."""
    if type(decision) not in DECISIONS:
        # What somebody answers may have a secret in it: only its kind is said.
        msg = f"a decision is Approve(), ApproveAlways() or Deny(), not a {type(decision).__name__}"
        raise ArgumentError(msg)
    if not _can_be_kept(decision):
        kinds = [f"{name}: {type(value).__name__}" for name, value in _fields(decision)]
        msg = f"arguments (JSON) and message are text, and interrupt is a bool; got {', '.join(kinds)}"
        raise ArgumentError(msg)
    match decision:
        case Deny(message=message):
            within("the message of a no", len(message), MAX_DENIAL)
            decision = attrs.evolve(decision, message=clean(message))
        case Approve(arguments=arguments):
            within("the arguments of a call", len(arguments), MAX_CALL_ARGUMENTS)
            decision = attrs.evolve(decision, arguments=clean(arguments))
        case ApproveAlways(where=where):
            within("a yes for all such calls", len(where), MAX_GLOBS, "arguments")
            for part in chain.from_iterable(where):
                named("an argument of a yes for all such calls, or its glob,", part)
    answer = ApprovalGiven(at=at, request=request, decision=decision, by=_text(by))
    named("the name of who answers", answer.by)
    return answer


def check_room(event: Post, state: SessionState, session: str) -> None:
    """
    Raise `QueueFull` where as much waits for a session in *state* as may.

    Who stops it or answers it is always heard, or nothing would ever wait any less.
    """
    waiting = len(state.posted) + (0 if state.machine is None else len(state.machine.memory.session.mail))
    if waiting >= MAX_WAITING and not isinstance(event, ApprovalGiven | Interrupted | CallCancelled):
        raise QueueFull(session, waiting)


def _fields(decision: Decision) -> list[tuple[str, object]]:
    return [(field.name, getattr(decision, field.name)) for field in attrs.fields(type(decision))]


def _can_be_kept(decision: object) -> bool:
    """Whether a journal with *decision* can be read again."""
    match decision:
        case Approve(arguments=str()) | ApproveAlways() | Deny(message=str(), interrupt=bool()):
            return True
        case _:
            return False


def control_event(change: Change, config: Config, at: float, name: str) -> ControlReceived:
    """The *change* of a setting under *config*, with the id *name*; `ConfigError` where it cannot be made."""
    match change:
        case SetModel(model=str()) | SetThinking(tokens=int() | None):
            pass
        case SetMode(mode=mode) if mode in MODES:
            change = SetMode(mode=PermissionMode(mode))  # a mode's bare name is none to those who compare
        case _:
            msg = f"a change is SetModel(a name), SetMode(a mode) or SetThinking(a number), not {change!r}"
            raise ArgumentError(msg)
    if why := refusal(config, change):
        msg = f"{change!r} cannot be made: {why}"
        raise ConfigError(msg)
    return ControlReceived(at=at, id=name, change=change)
