"""
Why a call ran, or did not: the account of one call, read from the journal and from nothing else.

The journal holds what happened and not what was decided; but the machine is pure, so folding it again tells
every decision with its grounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from ..effects.errors import UnknownCall, UnknownSession
from ..effects.events import Approve, ApproveAlways, CallCancelled, Deny, Interrupted
from ..effects.notices import (
    AgentStarted,
    ApprovalAnswered,
    ApprovalRequested,
    ApprovalWithdrawn,
    CallJudged,
    HookAsked,
    HookReplied,
    ToolEnded,
    ToolStarted,
    TurnEnded,
)
from .entries import Posted, Stepped, TakenOver
from .folding import Folded, follow
from .recovery import calls_of
from .written import entry_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..effects import Effect
    from ..effects.events import Decision
    from ..effects.hooks import HookSaid
    from ..effects.messages import ToolCall
    from ..effects.performers.stores.base import Store
    from .entries import Entry


@final
@attrs.frozen(kw_only=True)
class Moment:
    """Something that happened to a call, *at* seconds since the epoch: *what* in one word, *text* in full."""

    at: float
    what: str
    text: str


@final
@attrs.frozen(kw_only=True)
class Why:
    """The account of *call*, which the model wished of *tool* with *arguments*, from wish to result."""

    session: str
    call: str
    tool: str
    arguments: str
    moments: tuple[Moment, ...]


async def why(store: Store, session: str, call: str) -> Why:
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
        for name in [f"{session}.{one.call}" for _, one in told if isinstance(one, AgentStarted)]:
            theirs = await _read(store, name)
            found += [(wish, theirs, name) for wish in _meant(call, _wished(theirs))]
    if len(found) != 1:
        raise UnknownCall(call, tuple([wish.id for wish, _, _ in found] or wished))
    return _account(*found[0])


Told = list[tuple[float, "Effect | _Befell"]]
"""What was said in a session and came over it, with its time."""


async def _read(store: Store, session: str) -> Told:
    return list(_told(await store.load(session), session))


def _wished(told: Told) -> dict[str, ToolCall]:
    """The calls that the model made, by their ids."""
    return {wish.id: wish for _, effect in told if isinstance(effect, TurnEnded) for wish in effect.calls}


def _meant(call: str, wished: dict[str, ToolCall]) -> list[ToolCall]:
    """Those of the calls that *call* may mean."""
    if call in wished:
        return [wished[call]]
    return [wish for name, wish in wished.items() if _ends(name, call)]


def _account(wish: ToolCall, told: Told, session: str) -> Why:
    story = _Story(wish.id, session)
    moments = [moment for at, effect in told for moment in story.told(at, effect)]
    return Why(
        session=session, call=wish.id, tool=wish.name, arguments=wish.arguments, moments=tuple(moments)
    )


def _ends(name: str, call: str) -> bool:
    return name.endswith(f"-{call.removeprefix('-')}")


@final
@attrs.frozen
class _Befell:
    """What came over *calls* that were not over, from outside: *what* in one word, *text* in full."""

    calls: tuple[str, ...]
    what: str
    text: str


def _told(entries: Sequence[bytes], session: str) -> Iterator[tuple[float, Effect | _Befell]]:
    """Everything the machine said and what came over it, with its time, as the journal is folded again."""
    folded = Folded()
    for number, data in enumerate(entries):
        entry = entry_of(data, f"entry {number} of session {session!r}")
        open_ = () if folded.machine is None else calls_of(folded.machine)
        effects = follow(folded, entry, number, session)
        at = entry.event.at if isinstance(entry, Posted | Stepped) else entry.at
        if (befell := _befell(entry, open_)) is not None:
            yield at, befell
        yield from ((at, effect) for effect in effects)


def _befell(entry: Entry, open_: tuple[str, ...]) -> _Befell | None:
    match entry:
        case TakenOver():
            text = "another process went on with the run, or the same one later, while the call was open"
            return _Befell(open_, "taken over", text)
        case Stepped(event=CallCancelled(call=call)):
            return _Befell((call,), "given up", "a person gave up this call")
        case Stepped(event=Interrupted()):
            return _Befell(open_, "interrupted", "the run was asked to stop")
        case _:
            return None


@final
class _Story:
    """What of all that was said in *session* is about the call *name*."""

    def __init__(self, name: str, session: str) -> None:
        self._name = name
        self._session = session
        self._questions: set[str] = set()

    def told(self, at: float, effect: Effect | _Befell) -> Iterator[Moment]:
        """The moments that *effect*, at the time *at*, adds."""
        for what, text in self._words(effect):
            yield Moment(at=at, what=what, text=text)

    def _words(self, effect: Effect | _Befell) -> Iterator[tuple[str, str]]:
        match effect:
            case TurnEnded(calls=calls):
                yield from (
                    ("wished", f"{wish.name} {wish.arguments}") for wish in calls if wish.id == self._name
                )
            case HookAsked(call=self._name, hook=hook, names=names):
                yield "hooks", f"asked at {hook}: {', '.join(names)}"
            case HookReplied(call=self._name, said=said):
                yield from (("hook", _hook(one)) for one in said)
            case CallJudged(call=self._name):
                detail = f": {effect.detail}" if effect.detail else ""
                yield "judged", f"{effect.verdict}, by {effect.ground}{detail}"
            case ToolStarted(call=self._name):
                yield "started", f"{effect.tool} {effect.arguments}"
            case AgentStarted(call=self._name):
                yield (
                    "started",
                    f"agent {effect.agent}, in session {self._session}.{self._name}: {effect.prompt}",
                )
            case ToolEnded(call=self._name):
                yield "ended", f"{effect.outcome}: {effect.content}"
            case _Befell(calls=calls) if self._name in calls:
                yield effect.what, effect.text
            case _:
                yield from self._question(effect)

    def _question(self, effect: Effect | _Befell) -> Iterator[tuple[str, str]]:
        match effect:
            case ApprovalRequested(call=self._name, request=request):
                self._questions.add(request)
                yield "asked", f"a person, because of {effect.why}; the question is {request}"
            case ApprovalAnswered(request=request) if request in self._questions:
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
