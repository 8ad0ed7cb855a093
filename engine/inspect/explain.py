"""
Why a call ran, or did not: the account of one call, read from the journal and from nothing else.

The journal holds what happened and not what was decided; but the machine is pure, so folding it again tells
every decision with its grounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from ...effects.errors import UnknownCall, UnknownSession
from ...effects.events import (
    Approve,
    ApproveAlways,
    CallCancelled,
    Deny,
    Interrupted,
    Post,
)
from ...effects.notices import (
    AgentStarted,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalWithdrawn,
    CallJudged,
    CallSettled,
    HookAsked,
    HookEnded,
    ToolStarted,
    TurnEnded,
)
from ..journal.entries import (
    Forked,
    HandedOver,
    Stepped,
    TakenOver,
)
from ..open_work import calls_in
from .replay import replayed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...effects import Effect
    from ...effects.events import Decision
    from ...effects.hooks import HookSaid
    from ...effects.messages import ToolCall
    from ...performers.stores.base import Store
    from ..journal.entries import Entry


@final
@attrs.frozen(kw_only=True)
class Moment:
    """Something that happened to a call, *at* seconds since the epoch: *what* in one word, *text* in full."""

    at: float
    what: str
    text: str


@final
@attrs.frozen(kw_only=True)
class Explanation:
    """The account of *call*, which the model wished of *tool* with *arguments*, from wish to result."""

    session: str
    call: str
    tool: str
    arguments: str
    moments: tuple[Moment, ...]


async def explain(store: Store, session: str, call: str) -> Explanation:
    """
    Why *call* of *session* ran, or did not. The end of its id is enough where no other call has it.

    It may be a call of one of the session's children, too: what a child did is in a session of its own, which
    the account of the call that started it names. Raises `UnknownSession`, `UnknownCall` with the calls it
    may be, and `JournalError` for what cannot be read.
    """
    told = await _read(store, session)
    if not told:
        raise UnknownSession(session)
    wished = _wished(told)
    found = [(wish, told, session) for wish in _meant(call, wished)]
    if not found:
        for name in [f"{one.session}.{one.what.call}" for one in told if isinstance(one.what, AgentStarted)]:
            theirs = await _read(store, name)
            found += [(wish, theirs, name) for wish in _meant(call, _wished(theirs))]
    if len(found) != 1:
        raise UnknownCall(call, tuple([wish.id for wish, _, _ in found] or wished))
    return _account(*found[0])


@final
@attrs.frozen
class _Befell:
    """What came over *calls* that were not over, from outside: *kind* in one word, *text* in full."""

    calls: tuple[str, ...]
    kind: str
    text: str


@final
@attrs.frozen
class _Told:
    """*what* the machine said, or what came over it, *at* a time in *session*."""

    at: float
    session: str
    what: Effect | _Befell


async def _read(store: Store, session: str) -> list[_Told]:
    return list(_told(await store.load(session), session))


def _wished(told: Sequence[_Told]) -> dict[str, ToolCall]:
    """The calls that the model made, by their ids."""
    ended = [one.what for one in told if isinstance(one.what, TurnEnded)]
    return {wish.id: wish for turn in ended for wish in turn.calls}


def _meant(call: str, wished: dict[str, ToolCall]) -> list[ToolCall]:
    """Those of the calls that *call* may mean."""
    if call in wished:
        return [wished[call]]
    return [wish for name, wish in wished.items() if _ends(name, call)]


def _account(wish: ToolCall, told: Sequence[_Told], session: str) -> Explanation:
    story = _Story(wish.id)
    moments = [moment for one in told for moment in story.told(one)]
    return Explanation(
        session=session,
        call=wish.id,
        tool=wish.name,
        arguments=wish.arguments,
        moments=tuple(sorted(moments, key=lambda moment: moment.at)),
    )


def _ends(name: str, call: str) -> bool:
    return name.endswith(f"-{call.removeprefix('-')}")


def _told(entries: Sequence[bytes], session: str) -> Iterator[_Told]:
    """
    Everything the machine said and what came over it, as the journal is gone through again.

    What a person says has the time at which they said it. What follows from it is of when it was taken up,
    which may be by another process, much later.
    """
    now = 0.0
    for step in replayed(entries, session):
        posted = isinstance(step.event, Post)
        now = now if posted else max(now, step.at)
        if (befell := _befell(step.entry, calls_in(step.before))) is not None:
            yield _Told(step.at if posted else now, step.session, befell)
        for effect in step.effects:
            said = posted and isinstance(effect, ApprovalResolved)
            yield _Told(step.at if said else max(now, step.at), step.session, effect)


def _befell(entry: Entry, open_: tuple[str, ...]) -> _Befell | None:
    match entry:
        case TakenOver():
            text = "another process went on with the run, or the same one later, while the call was open"
            return _Befell(open_, "taken over", text)
        case Forked(session=other) if open_:
            return _Befell(open_, "copied", f"while it was open, from session {other}, where it went on")
        case HandedOver():
            text = "whoever ran it let what was at work end, and left the rest to whoever takes over"
            return _Befell(open_, "handed over", text)
        case Stepped(event=CallCancelled(call=call)):
            return _Befell((call,), "given up", "a person gave up this call")
        case Stepped(event=Interrupted()):
            return _Befell(open_, "interrupted", "the run was asked to stop")
        case _:
            return None


@final
class _Story:
    """What of all that was said is about the call *name*."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._questions: set[str] = set()

    def told(self, told: _Told) -> Iterator[Moment]:
        """The moments that *told* adds."""
        for what, text in self._words(told.what, told.session):
            yield Moment(at=told.at, what=what, text=text)

    def _words(self, effect: Effect | _Befell, session: str) -> Iterator[tuple[str, str]]:
        match effect:
            case TurnEnded(calls=calls):
                yield from (
                    ("wished", f"{wish.name} {wish.arguments}") for wish in calls if wish.id == self._name
                )
            case HookAsked(call=self._name, hook=hook, names=names):
                yield "hooks", f"asked at {hook}: {', '.join(names)}"
            case HookEnded(call=self._name, said=said):
                yield from (("hook", _hook(one)) for one in said)
            case CallJudged(call=self._name):
                detail = f": {effect.detail}" if effect.detail else ""
                yield "judged", f"{effect.verdict}, by {effect.ground}{detail}"
            case ToolStarted(call=self._name):
                yield "started", f"{effect.tool} {effect.arguments}"
            case AgentStarted(call=self._name):
                yield (
                    "started",
                    f"agent {effect.agent}, in session {session}.{self._name}: {effect.prompt}",
                )
            case CallSettled(call=self._name):
                yield "ended", f"{effect.outcome}: {effect.content}"
            case _Befell(calls=calls) if self._name in calls:
                yield effect.kind, effect.text
            case _:
                yield from self._question(effect)

    def _question(self, effect: Effect | _Befell) -> Iterator[tuple[str, str]]:
        match effect:
            case ApprovalRequested(call=self._name, request=request):
                self._questions.add(request)
                yield "asked", f"a person, because of {effect.why}; the question is {request}"
            case ApprovalResolved(request=request) if request in self._questions:
                by = f", by {effect.by}" if effect.by else ""
                yield "answered", f"{_decision(effect.decision)}{by}"
            case ApprovalWithdrawn(request=request) if request in self._questions:
                yield "withdrawn", "nobody answered in time" if effect.late else "the question was taken back"
            case _:
                pass


def _hook(said: HookSaid) -> str:
    if said.fault:
        return f"{said.name} has no say: {said.fault}"
    answer = said.answer
    words = [
        str(answer.verdict) if answer.verdict else "",
        f"because {answer.reason}" if answer.reason else "",
        f"with {answer.arguments}" if answer.arguments else "",
        "adds context" if answer.context else "",
    ]
    return f"{said.name}: {', '.join(filter(None, words)) or 'nothing to say'}"


def _decision(decision: Decision) -> str:
    match decision:
        case Approve(arguments=""):
            return "yes"
        case Approve(arguments=edited):
            return f"yes, with {edited}"
        case ApproveAlways(where=where):
            return "yes, always" + (f" where {where}" if where else "")
        case Deny(message=message, interrupt=ends):
            return f"no{f': {message}' if message else ''}{', and stop' if ends else ''}"
