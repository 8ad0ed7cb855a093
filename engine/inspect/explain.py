"""
Why a call ran, or did not: the account of one call, read from the journal and from nothing else.

The journal holds what happened and not what was decided. But the machine is pure, so folding the journal
again yields every decision with its grounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, final

import attrs

from ... import effects
from ..journal.entries import Entry, Forked, HandedOver, Stepped, TakenOver
from ..machine import calls_in
from .replay import replayed


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


@final
class _Interference(NamedTuple):
    """Something from outside that met open *calls*: *kind* in one word, *text* in full."""

    calls: tuple[str, ...]
    kind: str
    text: str


@final
class _Occurrence(NamedTuple):
    """*what* the machine did, or what came from outside, *at* a time in *session*."""

    at: float
    session: str
    what: effects.Effect | _Interference


@final
class Timeline:
    """The journal *entries* of *session* as the calls of its model went through it."""

    def __init__(self, entries: Sequence[bytes], session: str) -> None:
        self._session = session
        # A list, since each account goes through all of it, and to fold the journal costs the most.
        self._occurrences = list(_occurrences(entries, session))
        # By our own ids: a provider repeats its ids from turn to turn.
        turns = [one.what for one in self._occurrences if isinstance(one.what, effects.TurnEnded)]
        # Calls of a copied run come out as well: a fork explains what it took over without the original's
        # file.
        self.calls: dict[str, effects.ToolCall] = {call.id: call for turn in turns for call in turn.calls}

    @property
    def children(self) -> list[str]:
        """The sessions of the children that calls started."""
        return [
            # A child that was begun before a fork is kept under the original's name.
            f"{one.session}.{one.what.call}"
            for one in self._occurrences
            if isinstance(one.what, effects.AgentStarted)
        ]

    def explain(self, call: str) -> list[Explanation]:
        """The accounts of the calls whose id is *call*, or ends with it where none is."""
        # A full id first: it may be the end of another one, and then it still means itself.
        if call in self.calls:
            return [self._account(self.calls[call])]
        # People type the number at the end of an id, with or without the dash before it.
        end = f"-{call.removeprefix('-')}"
        return [self._account(wish) for name, wish in self.calls.items() if name.endswith(end)]

    def _account(self, wish: effects.ToolCall) -> Explanation:
        # Answers name the question only, so the account remembers which ones are its own.
        asked: set[str] = set()
        # A pass over all occurrences for one call: asking why is rare, and an index would take as long.
        moments = [
            Moment(at=one.at, what=what, text=text)
            for one in self._occurrences
            for what, text in _words(wish.id, asked, one)
        ]
        return Explanation(
            session=self._session,
            call=wish.id,
            tool=wish.name,
            arguments=wish.arguments,
            # An answer may be dated before the step that applied it. Moments of one time stay in the
            # journal's order.
            moments=tuple(sorted(moments, key=lambda moment: moment.at)),
        )


def _occurrences(entries: Sequence[bytes], session: str) -> Iterator[_Occurrence]:
    """Each effect and each interference, as the journal is gone through again."""
    now = 0.0
    for step in replayed(entries, session):
        # An input has the time at which its sender sent it, which may be long before it is applied. Its
        # effects are of when it was applied, perhaps by another process: time must not run backwards.
        posted = isinstance(step.event, effects.Post)
        now = now if posted else max(now, step.at)
        # First, since it is the cause of the effects. The calls are those of before: an interrupt may have
        # settled them all by now.
        if (met := _interference(step.entry, calls_in(step.before))) is not None:
            yield _Occurrence(step.at if posted else now, step.session, met)
        for effect in step.effects:
            # A decision counts from when the approver gave it: that is when the waiting ended.
            decided = posted and isinstance(effect, effects.ApprovalResolved)
            yield _Occurrence(step.at if decided else max(now, step.at), step.session, effect)


def _interference(entry: Entry, open_: tuple[str, ...]) -> _Interference | None:
    match entry:
        # The journal does not say which process it was, so neither does the account.
        case TakenOver():
            text = "another process went on with the run, or the same one later, while the call was open"
            return _Interference(open_, "taken over", text)
        # A fork of a session at rest met no call.
        case Forked(session=other) if open_:
            return _Interference(
                open_, "copied", f"while it was open, from session {other}, where it went on"
            )
        case HandedOver():
            text = "the worker let running calls end, and left the rest to the next worker"
            return _Interference(open_, "handed over", text)
        case Stepped(event=effects.CallCancelled(call=call)):
            return _Interference((call,), "given up", "a person gave up this call")
        # An interrupt names no call: it met each that had no result.
        case Stepped(event=effects.Interrupted()):
            return _Interference(open_, "interrupted", "the run was asked to stop")
        case _:
            return None


def _words(call: str, asked: set[str], one: _Occurrence) -> Iterator[tuple[str, str]]:
    """What *one* adds to the account of *call*: one word each, and a text; *asked* are its questions."""
    match one.what:
        # A story begins with the model's own words for the call, before hooks may change its arguments.
        case effects.TurnEnded(calls=calls):
            yield from (("wished", f"{wish.name} {wish.arguments}") for wish in calls if wish.id == call)
        case _Interference() as met if call in met.calls:
            yield met.kind, met.text
        case effects.ApprovalResolved(request=request) as what if request in asked:
            by = f", by {what.by}" if what.by else ""
            yield "answered", f"{_decision(what.decision)}{by}"
        # An auditor must tell silence from a question that was taken back: only the first waited in vain.
        case effects.ApprovalWithdrawn(request=request) as what if request in asked:
            yield "withdrawn", "no answer came in time" if what.late else "the question was taken back"
        case effects.ApprovalRequested(request=request) as what if what.call == call:
            asked.add(request)
            # With the id of the question: a person's own log of answers has that and not the call.
            yield "asked", f"a person, because of {what.why}; the question is {request}"
        # Hooks of other occasions name no call, so they never match here.
        case what:
            if getattr(what, "call", None) == call:
                yield from _of_call(what, one.session)


def _of_call(what: effects.Effect | _Interference, session: str) -> Iterator[tuple[str, str]]:
    match what:
        case effects.HookAsked(hook=hook, names=names):
            yield "hooks", f"asked at {hook}: {', '.join(names)}"
        # One moment for each hook, since each has its own reasons.
        case effects.HookEnded(said=said):
            yield from (("hook", _hook(one)) for one in said)
        # Possibly more than once: arguments that a person edited pass the rules again.
        case effects.CallJudged():
            detail = f": {what.detail}" if what.detail else ""
            yield "judged", f"{what.verdict}, by {what.ground}{detail}"
        # With the arguments that ran: hooks and approvers may have changed the model's.
        case effects.ToolStarted():
            yield "started", f"{what.tool} {what.arguments}"
        # With the session, where the child's own story is told.
        case effects.AgentStarted():
            yield "started", f"agent {what.agent}, in session {session}.{what.call}: {what.prompt}"
        # In full, unlike in a rendered line: the reason for an outcome may stand anywhere in it.
        case effects.CallSettled():
            yield "ended", f"{what.outcome}: {what.content}"
        case _:
            pass


def _hook(said: effects.HookSaid) -> str:
    # Rules pass over a failed hook, so its answer is no part of the account.
    if said.fault:
        return f"{said.name} failed: {said.fault}"
    answer = said.answer
    words = [
        str(answer.verdict) if answer.verdict else "",
        f"because {answer.reason}" if answer.reason else "",
        f"with {answer.arguments}" if answer.arguments else "",
        "adds context" if answer.context else "",
    ]
    # A silent hook is told, too: it explains why the rules had the last word.
    return f"{said.name}: {', '.join(filter(None, words)) or 'nothing to say'}"


def _decision(decision: effects.Decision) -> str:
    match decision:
        # Edited arguments are quoted: what ran is not what the model wished.
        case effects.Approve(arguments=edited):
            return f"yes, with {edited}" if edited else "yes"
        case effects.ApproveAlways(where=where):
            # Without a condition, the yes holds for every later call of the tool.
            return "yes, always" + (f" where {where}" if where else "")
        case effects.Deny(message=message, interrupt=ends):
            return f"no{f': {message}' if message else ''}{', and stop' if ends else ''}"
