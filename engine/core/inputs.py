"""Turns inputs of people into events: checked and cleaned before an entry is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

import attrs

from ... import effects
from ...effects import validators
from ...performers.approvals import check_edit
from ...states.batch.batch import Stopping
from ...states.rules.inputs import refusal
from ..journal.fold import SessionState
from .machine import Machine, calls_in, questions, stopped_children


def _text(value: object) -> str:
    return validators.as_text(value, "the prompt")


def _id(value: object) -> str:
    return validators.as_text(value, "the id of a prompt")


def _sender(value: object) -> str:
    return validators.as_text(value, "the sender of a prompt")


def _as_files(files: object) -> tuple[effects.Binary, ...]:
    """*files* as a tuple; raises `ArgumentError` where they are no list or tuple of `Binary`."""
    if not isinstance(files, list | tuple):
        msg = f"files must be a list or tuple of Binary; got {files!r:.200}"
        raise effects.ArgumentError(msg)
    for file in cast("list[object]", files):
        # No path is read: the file of a worker on another machine is not that of the caller.
        if not isinstance(file, effects.Binary):
            msg = f"files must hold Binary(media_type=..., data=bytes); got {file!r:.200} (read a path first)"
            raise effects.ArgumentError(msg)
    return tuple(files)


@attrs.frozen(kw_only=True)
class Input:
    """
    A text with its *files*; *id* is the sender's own, *sender* names the person and the channel.

    *trace* is the ``traceparent`` of the span that it is sent in, and *output* what the run of a prompt comes
    to.
    """

    text: str = attrs.field(converter=_text)
    id: str = attrs.field(converter=_id)
    files: tuple[effects.Binary, ...] = attrs.field(default=(), converter=_as_files)
    sender: str = attrs.field(default="", converter=_sender)
    trace: str = ""
    output: effects.OutputWish = effects.AgentOutput()

    def __attrs_post_init__(self) -> None:
        # Before the checks that quote a value: an error never quotes an oversized text.
        validators.within("the text of a prompt", len(self.text), validators.MAX_PROMPT)
        validators.named("the id of a prompt", self.id)
        validators.named("the sender of a prompt", self.sender)
        # In all, too: files are stored in the journal and sent again with every request.
        validators.attached(self.files)
        # Providers refuse an empty message: refused here, it does not end a run later.
        if not self.text.strip() and not self.files:
            msg = "the prompt is empty; give text or a file"
            raise effects.ConfigError(msg)
        # An empty id would make every later prompt without one a duplicate.
        if not self.id:
            msg = f"id must not be empty; got {self.id!r} (leave it out to generate one)"
            raise effects.ConfigError(msg)
        # In the address of an input a client takes these for a step upwards: to the session, to be deleted.
        if self.id in {".", ".."}:
            msg = f"id must not be '.' or '..', which are steps in an address; got {self.id!r}"
            raise effects.ConfigError(msg)

    def sent(self, at: float) -> effects.UserSent:
        """As a prompt for a run of its own."""
        return effects.UserSent(
            at=at,
            id=self.id,
            text=self.text,
            files=self.files,
            sender=self.sender,
            trace=self.trace,
            output=self.output,
        )

    def steered(self, at: float, how: effects.Steering) -> effects.UserSteered:
        """As a steer into the running run."""
        return effects.UserSteered(
            at=at, id=self.id, text=self.text, how=how, files=self.files, trace=self.trace
        )


def steer_input(
    steer: Input, how: effects.Steering, state: SessionState, at: float, *, always: bool
) -> effects.UserSent | effects.UserSteered:
    """*steer* into the unfinished run; a prompt where there is none, unless *always*."""
    # The run may have ended while the person typed. The text is not lost then: it opens the next one.
    return steer.steered(at, how) if always or state.unfinished else steer.sent(at)


# The inputs that close a question, as an error names them.
CLOSES: dict[type, str] = {
    effects.UserSteered: "a steer",
    effects.Interrupted: "an interrupt",
    effects.CallCancelled: "a cancel",
    effects.ApprovalGiven: "an answer",
}
# The same for what has stopped a batch with its children. Of single calls, and of a batch that several things
# have stopped, it is not known any more.
STOPPED_BY = {
    Stopping.HURRIED: CLOSES[effects.UserSteered],
    Stopping.INTERRUPTED: CLOSES[effects.Interrupted],
}


def check_question(
    answer: effects.ApprovalGiven, state: SessionState, waiting: Iterable[effects.AskApproval]
) -> effects.ApprovalGiven:
    """
    The *answer*, where its question is open in *state* and the call can run with its arguments.

    Raises `UnknownRequest` with the questions that are *waiting*, and `AnswerRefused`.
    """
    for question in state.questions:
        if question.id == answer.request and state.machine is not None:
            check_edit(question, answer.decision, state.machine.config)
            return answer
    # Of two people who answer one question the second gets an error, and not the belief that it counted.
    asked = () if state.machine is None else questions(state.machine)
    call = next((question.call for question in asked if question.id == answer.request), "")
    raise closed(answer.request, state, call, waiting)


def closed(
    request: str, state: SessionState, call: str, waiting: Iterable[effects.AskApproval]
) -> effects.UnknownRequest:
    """The error for an answer to *request*, which *call* asked; the questions that are *waiting* are open."""
    open_ = tuple([question.id for question in waiting])
    return effects.UnknownRequest(request, open_, closers(state).get(call, ""))


def closers(state: SessionState) -> dict[str, str]:
    """The calls of *state* for which, or for whose child, no answer counts any more; with what is why."""
    # A child that was told to stop may not have heard of it yet: what it still asks will be withdrawn.
    stopped = [] if state.machine is None else stopped_children(state.machine.state)
    by = {call: STOPPED_BY.get(stopping, "a stop") for call, stopping in stopped}
    return by | {call: CLOSES.get(type(event), "") for call, event in state.overtaken.items()}


def cancel_event(call: str, machine: Machine | None, at: float) -> effects.CallCancelled:
    """The event that cancels *call* of *machine*; raises `UnknownCall` where it has a result already."""
    calls = () if machine is None else calls_in(machine.state)
    # With the calls that could be cancelled: the id often comes from a screen that is behind.
    if call not in calls:
        raise effects.UnknownCall(call, calls)
    return effects.CallCancelled(at=at, call=call)


def withdraw_event(name: str, state: SessionState, task: str, at: float) -> effects.InputWithdrawn:
    """
    The event that takes back the input *name*, which waits in *state*.

    Raises `UnknownInput` where none waits. *task* is what its parent gave a child, and stays.
    """
    unread = tuple([waiting for waiting in state.unread if waiting != task])
    # With the inputs that wait: the person saw it in a list, and a run may have read it since.
    if name not in unread:
        raise effects.UnknownInput(name, unread, state.knows(name))
    return effects.InputWithdrawn(at=at, input=name)


def check_room(event: effects.Post, state: SessionState, session: str) -> None:
    """
    Raise `QueueFull` where the queue of *session* in *state* is full.

    Approvals, interrupts, cancels and withdrawals always pass: they are what empties the queue.
    """
    # Both kinds wait: inputs that no step has taken in yet, and prompts in the machine's own queue.
    mail = () if state.machine is None else state.machine.memory.session.mail
    waiting = len(state.posted) + len(mail)
    if waiting < validators.MAX_WAITING or isinstance(
        event, effects.ApprovalGiven | effects.Interrupted | effects.CallCancelled | effects.InputWithdrawn
    ):
        return
    # A session without a run has each prompt that was taken back, and its withdrawal, until the next run.
    withdrawn = state.withdrawn
    posted = [one for one in state.posted if not isinstance(one, effects.InputWithdrawn)]
    names = [getattr(one, "id", "") for one in posted] + [one.id for one in mail]
    waiting = sum(name not in withdrawn for name in names)
    if waiting >= validators.MAX_WAITING:
        # Refused before it is journaled: the sender learns it, and can try again later.
        raise effects.QueueFull(session, waiting)


def _ceilings(config: effects.Config, machine: Machine | None) -> Iterator[effects.PermissionMode]:
    """The ceilings of a session with *machine* that goes on under *config*."""
    # A child's follows its parent's mode, which its settings do not say; any other's is that of its settings,
    # whatever an earlier agent had.
    is_child = machine is not None and bool(machine.config.agent)
    if machine is not None and is_child:
        yield machine.memory.session.ceiling
    if not (is_child and config.agent):
        yield config.ceiling


def control_event(
    change: effects.Change, config: effects.Config, at: float, name: str, machine: Machine | None
) -> effects.ControlReceived:
    """
    The *change* of a setting for *machine* as an event with the id *name*.

    Raises `ConfigError` where *config* refuses it, or the mode of a child's parent does.
    """
    # By type first: these values come from hosts and command lines, and are journaled as they are. As an
    # object: a checker holds the types for certain, and a host does not.
    match cast("object", change):
        case effects.SetModel(model=str()) | effects.SetThinking(tokens=int() | None) | effects.SetMode():
            pass
        case _:
            msg = f"change must be SetModel, SetMode or SetThinking; got {change!r}"
            raise effects.ArgumentError(msg)
    # The machine refuses it too, but later, when the caller is gone. Here the caller gets the reason.
    for ceiling in _ceilings(config, machine):
        if why := refusal(config, change, ceiling):
            msg = f"cannot apply {change!r}: {why}"
            raise effects.ConfigError(msg)
    return effects.ControlReceived(at=at, id=name, change=change)
