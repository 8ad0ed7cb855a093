"""
Copying a session up to one of its steps, to go on from there in another way.

Theory of operation. The copy begins with the entries before that step, byte for byte. Then comes one that
says so, and gives the run that was under way another name: what it asks for from now on has ids of its own.
Then comes what happens instead of the step, if anything: it is applied here, so that whether it can be is
known at once, and what follows from it is begun by whoever goes on. What was open is classified by them as
after a lost process. Nothing is performed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from ...effects import is_request
from ...effects.errors import (
    ArgumentError,
    ConfigError,
    TooLarge,
    UnknownSession,
)
from ...effects.events import (
    AgentFinished,
    Answer,
    ApprovalGiven,
    Approve,
    ApproveAlways,
    ControlReceived,
    Decision,
    Deny,
    Event,
    ModelFinished,
    Post,
    ToolFinished,
    UserSent,
    UserSteered,
)
from ...effects.messages import StopReason
from ...effects.pieces import TextPiece
from ...effects.records import (
    Change,
    SetMode,
    SetModel,
    SetThinking,
)
from ...effects.usage import Usage
from ...effects.validators import MAX_PROMPT, clean, of_kind, within
from ...states.batch.batch import Running, RunningChild
from ...states.state import (
    Compacting,
    Confirming,
    Dispatching,
    Executing,
    Streaming,
    Summary,
)
from ..codec import encode
from ..inputs import Input, approval_event, control_event
from ..journal.encoding import decode_entry, encode_entry
from ..journal.entries import (
    Forked,
    HandedOver,
    Posted,
    Stepped,
    time_of,
)
from ..journal.fold import apply_entry, fold
from ..journal.summary import SessionSummary, summarize
from ..machine import Machine
from ..open_work import links_of, questions
from ..transition import ignored
from .forked_run import is_foreign
from .replay import replayed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..journal.entries import Entry
    from ..journal.fold import SessionState

Replacement = str | Change | Decision | Answer | Post
"""
What may happen in a copy in place of a step: an event, such as the one that stands there with something
changed; another setting; another answer to the question; or another text in place of what was said or came
back there.
"""

SHOWN = 200
"""Characters of a value that are shown in an error."""

POSTED = UserSent | UserSteered | ControlReceived
"""The events that wait for the next run where none is under way."""


@final
@attrs.frozen(kw_only=True)
class ForkPoint:
    """
    How a session is copied: up to step *at*, at the time *now*, and what happens *instead* of it.

    *new_id* makes up what nobody is called.
    """

    at: int = attrs.field(validator=of_kind(int))
    now: float
    new_id: Callable[[], str]
    instead: Replacement | None = None


def check_replacement(instead: object) -> None:
    """
    Raise `ArgumentError` or `ConfigError` for what cannot come in place of a step, wherever that is.

    It comes from the caller and is kept, so nobody may take it apart, and no journal have it, before this.
    """
    match instead:
        case None | SetModel() | SetMode() | SetThinking():
            return  # `changed` knows what can be changed here
        case str():
            within("what comes in place of a step", len(instead), MAX_PROMPT)
        case Approve() | ApproveAlways() | Deny():
            approval_event("", instead, 0.0, "")
        case UserSent(text=text, id=id, files=files, sender=sender):
            Input(text=text, id=id, files=files, sender=sender)
            _check_kept(instead)
        case UserSteered(text=text, id=id, files=files):
            Input(text=text, id=id, files=files)
            _check_kept(instead)
        case _ if isinstance(instead, Answer | Post):
            _check_kept(instead)
        case _:
            msg = f"what happens instead is an event, a change, a decision or a text, not {instead!r}"
            raise ArgumentError(msg)


def _check_kept(event: Answer | Post) -> None:
    """Refuse an *event* that nobody could read in a journal, or that would be another one there."""
    entry = Stepped(event=event, label="")
    try:
        same = decode_entry(encode_entry(entry)) == entry
    except TooLarge:
        raise
    except Exception:  # noqa: BLE001  # whatever its fields are, and whoever stumbles over them
        same = False
    if not same:
        msg = f"{repr(event)[:SHOWN]} cannot be kept: a field is not of its type, or no finite number"
        raise ArgumentError(msg)


def fork_entries(
    entries: Sequence[bytes], session: str, name: str, cut: ForkPoint
) -> tuple[list[bytes], bytes]:
    """
    The journal of *name*, a copy of that of *session*, whose *entries* these are, and what it is about.

    Raises `ConfigError` and `ArgumentError` for a *cut* that cannot be made, and says why.
    """
    if not 0 <= cut.at <= len(entries):
        has = f"it has {len(entries)} steps, the first is 0" if entries else "it has none"
        msg = f"session {session!r} cannot be forked at step {cut.at!r}: {has}"
        raise ConfigError(msg)
    folded = fold(entries[: cut.at], session)
    if folded.machine is None:
        raise _not_begun(entries, session, cut.at)
    copy = _Copy(folded, folded.machine, name, cut.at)
    copy.add(Forked(at=cut.now, session=session, run=cut.new_id() if folded.unfinished else ""))
    if cut.instead is not None:
        there = decode_entry(entries[cut.at]) if cut.at < len(entries) else None
        copy.happen(_event(cut.instead, there, copy.machine, cut), cut.now)
    _check_children(copy.machine, entries, session, cut.at)
    line = encode(summarize(folded, name), SessionSummary)
    return [*entries[: cut.at], *map(encode_entry, copy.added)], line


@final
@attrs.define
class _Copy:
    """The session *name*, made of another one's first *length* entries and those that were *added*."""

    folded: SessionState
    machine: Machine
    name: str
    length: int
    added: list[Entry] = attrs.Factory(list)

    def add(self, entry: Entry) -> None:
        """Let *entry* be the next one."""
        apply_entry(self.folded, entry, self.length + len(self.added), self.name)
        self.added.append(entry)
        self.machine = self.folded.machine or self.machine

    def happen(self, event: Event, now: float) -> None:
        """Let *event* happen; what follows from it is begun by whoever goes on."""
        machine = self.machine
        if machine.done and isinstance(event, POSTED):
            self.add(Posted(event=event))
            return
        tried = Machine(machine.config, machine.state, machine.memory)
        effects = tried.advance(event)
        if ignored(effects):
            kind, label = type(event).__name__, machine.state.label
            msg = f"{kind} changes nothing at step {self.length}, where the run is in the state {label}"
            raise ConfigError(msg)
        self.add(Stepped(event=event, label=tried.state.label))
        asked = tuple([effect.id for effect in effects if is_request(effect)])
        if unbegun := tuple([name for name in self.machine.state.open if name in asked]):
            self.add(HandedOver(at=now, unbegun=unbegun))


def _not_begun(entries: Sequence[bytes], session: str, at: int) -> Exception:
    """Why there is nothing to copy yet *at* this step."""
    steps = replayed(entries, session)
    first = next((step.number for step in steps if step.state is not None), None)
    if first is None:
        return UnknownSession(session)
    msg = f"at step {at} nothing has been said yet in session {session!r}: fork at {first + 1} or later"
    return ConfigError(msg)


# Children


def _check_children(machine: Machine, entries: Sequence[bytes], session: str, at: int) -> None:
    """Refuse a copy in which a child is at work: it has a session of its own, and is at work there."""
    state = machine.state
    if not isinstance(state, Executing | Confirming | Dispatching):
        return
    theirs = [
        one.call.id
        for one in state.batch.calls
        if isinstance(one.phase, RunningChild) and is_foreign(one.phase.request, machine)
    ]
    for child in [link for link in links_of(state, session) if link.call in theirs]:
        free = _childless(entries, session)
        ways = [f"{max(one for one in free if one < at)}, before it began"]
        ways += [f"{one}, when it was over" for one in free if one > at][:1]
        msg = (
            f"at step {at} the agent {child.agent!r} is at work for call {child.call!r}, in a session of its "
            f"own that a copy does not have, {child.session!r}: fork at {', or at '.join(ways)}; or say what "
            "it answers instead"
        )
        raise ConfigError(msg)


def _childless(entries: Sequence[bytes], session: str) -> list[int]:
    """The steps at which no child is at work."""
    return [step.number + 1 for step in replayed(entries, session) if step.state and not step.children]


# What happens instead


def _event(instead: Replacement, there: Entry | None, machine: Machine, cut: ForkPoint) -> Event:
    """What happens to *machine*: *instead*, in place of *there* and at the time of that: nothing is late."""
    event = there.event if isinstance(there, Posted | Stepped) else None
    at = cut.now if there is None else time_of(there)
    if isinstance(instead, str):
        return _said(clean(instead), event, machine, at, cut)
    if isinstance(instead, Decision):
        return approval_event(_question(event, machine, cut.at), instead, at, by=f"a fork at step {cut.at}")
    if isinstance(instead, Change):
        return control_event(instead, machine.config, at, cut.new_id())
    return instead


def _said(text: str, event: Event | None, machine: Machine, at: float, cut: ForkPoint) -> Event:
    """That *text* comes in place of *event*: from a model, a tool, an agent or a person."""
    if isinstance(event, UserSteered):
        return Input(text=text, id=cut.new_id(), files=event.files).steered(event.at, event.how)
    if machine.done or isinstance(event, UserSent):
        return Input(text=text, id=cut.new_id()).sent(at)
    awaited = _awaited(machine)
    answered = getattr(event, "request", None)
    request = answered if answered in awaited else next(iter(awaited), None)
    if request is None or (request != answered and len(awaited) > 1):
        open_ = ", ".join(awaited) or "none"
        msg = (
            f"a text takes the place of an answer, a result or a prompt, and step {cut.at} is none of these; "
            f"awaited there: {open_}"
        )
        raise ConfigError(msg)
    kind = awaited[request]
    if kind is not ModelFinished:
        return kind(at=at, request=request, content=text)
    # It stands for an answer to the same conversation, which has the same size.
    usage = event.usage if isinstance(event, ModelFinished) else Usage()
    pieces = (TextPiece(text),)
    return ModelFinished(at=at, request=request, stop=StopReason.END_TURN, usage=usage, pieces=pieces)


def _awaited(machine: Machine) -> dict[str, type[ModelFinished | ToolFinished | AgentFinished]]:
    """The requests of *machine* that a text answers, and which event that is."""
    state = machine.state
    match state:
        case Streaming(request=request) | Compacting(stage=Summary(request=request)):
            return {request: ModelFinished}
        case Executing(batch=batch) | Confirming(batch=batch) | Dispatching(batch=batch):
            return {
                phase.request: AgentFinished if isinstance(phase, RunningChild) else ToolFinished
                for call in batch.calls
                if isinstance(phase := call.phase, Running | RunningChild)
            }
        case _:
            return {}


def _question(event: Event | None, machine: Machine, at: int) -> str:
    """The question that is answered in place of *event*: the one that this answers, or the only one."""
    asked = [question.id for question in questions(machine)]
    if isinstance(event, ApprovalGiven) and event.request in asked:
        return event.request
    if len(asked) == 1:
        return asked[0]
    msg = (
        f"a decision takes the place of an answer to a question, and step {at} is none; "
        f"open there: {', '.join(asked) or 'none'}"
    )
    raise ConfigError(msg)
