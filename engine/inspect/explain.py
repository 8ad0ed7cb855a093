"""
Why a call ran, or did not: the account of one call, read from the journal and from nothing else.

The journal holds what happened and not what was decided. But the machine is pure, so folding the journal
again yields every decision with its grounds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, assert_never, final

import attrs

from ... import effects
from ..core.machine import calls_at, calls_in
from ..journal.entries import (
    Branched,
    Entry,
    Forked,
    HandedOver,
    Posted,
    RunOpened,
    Stepped,
    TakenOver,
    Titled,
)
from .replay import ReplayedStep, replayed


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
class Wishes:
    """The calls that the model of *session* wished, with the steps at which it did, and the *children*."""

    def __init__(self, entries: Sequence[bytes], session: str) -> None:
        # By our own ids: a provider repeats its ids from turn to turn.
        self.calls: dict[str, int] = {}
        self.children: list[str] = []
        # Calls of a copied run come out as well: a fork explains what it took over without the original's
        # file.
        for step in replayed(entries, session):
            for effect in step.effects:
                if isinstance(effect, effects.TurnEnded):
                    self.calls |= dict.fromkeys([call.id for call in effect.calls], step.number)
                elif isinstance(effect, effects.AgentStarted):
                    # A child that was begun before a fork is kept under the original's name.
                    self.children.append(f"{step.session}.{effect.call}")

    def named(self, call: str) -> list[tuple[str, int]]:
        """The calls whose id is *call*, or ends with it where none is, each with its step."""
        # A full id first: it may be the end of another one, and then it still means itself.
        if call in self.calls:
            return [(call, self.calls[call])]
        # People type the number at the end of an id, with or without the dash before it.
        end = f"-{call.removeprefix('-')}"
        return [(name, number) for name, number in self.calls.items() if name.endswith(end)]


def find_wish(entries: Sequence[bytes], call: str) -> int | None:
    """The step of *entries* at which *call*, by its full id, can only have been wished; None if unknown."""
    # An id is its run's name and a number, and numbers only grow: a call's is the next behind the request of
    # the answer that has it. No text can look like that, for quotes within one are escaped.
    run, _, number = call.rpartition("-")
    asked = re.compile(rb'"request":"' + re.escape(run.encode()) + rb'-([0-9]{1,18})"')
    wish = None
    for at, data in enumerate(entries):
        if number.isdecimal() and b'"ModelFinished"' in data and (request := asked.search(data)):
            wish = at if int(request[1]) < int(number) else wish
    return wish


def account(steps: Iterable[ReplayedStep], call: str, session: str) -> Explanation | None:
    """The account of *call* of *session*, from *steps* that begin with its wish; None where they do not."""
    occurrences = list(_occurrences(_with_call(steps, call)))
    turns = [one.what for one in occurrences if isinstance(one.what, effects.TurnEnded)]
    wish = next((wish for turn in turns for wish in turn.calls if wish.id == call), None)
    if wish is None:
        return None
    # Answers name the question only, so the account remembers which ones are its own.
    asked: set[str] = set()
    moments = [
        Moment(at=one.at, what=what, text=text)
        for one in occurrences
        for what, text in _words(call, asked, one)
    ]
    return Explanation(
        session=session,
        call=call,
        tool=wish.name,
        arguments=wish.arguments,
        # An answer may be dated before the step that applied it. Moments of one time stay in the
        # journal's order.
        moments=tuple(sorted(moments, key=lambda moment: moment.at)),
    )


def _with_call(steps: Iterable[ReplayedStep], call: str) -> Iterator[ReplayedStep]:
    """Those of *steps* until the batch of *call* is over: nothing that comes later is about it."""
    for step in steps:
        yield step
        if call not in [one.call.id for one in calls_at(step.state)]:
            return


def _occurrences(steps: Iterable[ReplayedStep]) -> Iterator[_Occurrence]:
    """Each effect and each interference of *steps*."""
    now = 0.0
    for step in steps:
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
        case Stepped() | Forked() | RunOpened() | Posted() | Branched() | Titled():
            return None
        case _:
            assert_never(entry)


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
