"""
Why a call ran, or did not: the account of one call, read from the journal and from nothing else.

The journal holds what happened and not what was decided. But the machine is pure, so folding the journal
again yields every decision with its grounds.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, Iterator, Sequence
from operator import itemgetter
from typing import assert_never, final

import attrs

from ... import effects
from ...states.batch.start import child_session
from ..core.machine import calls_at, calls_in
from ..journal import entries as journal
from .replay import ReplayedStep


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
class Wishes:
    """The calls that the model of a session wished, with the steps at which it did, and the *children*."""

    def __init__(self) -> None:
        # By our own ids: a provider repeats its ids from turn to turn.
        self.calls: dict[str, int] = {}
        self.children: list[str] = []

    def follow(self, step: ReplayedStep) -> None:
        """Take in *step*, which comes next."""
        # Calls of a copied run come out as well: a fork explains what it took over without the original's
        # file.
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


async def account(steps: AsyncIterable[ReplayedStep], call: str, session: str) -> Explanation | None:
    """The account of *call* of *session*, from *steps* that begin with its wish; None where they do not."""
    wish: effects.ToolCall | None = None
    told: list[tuple[float, str, str]] = []
    # Answers name the question only, so the account remembers which ones are its own.
    asked: set[str] = set()
    now = 0.0
    async for step in steps:
        # An input has the time at which its sender sent it, which may be long before it is applied. Its
        # effects are of when it was applied, perhaps by another process: time must not run backwards.
        posted = isinstance(step.event, effects.Post)
        now = now if posted else max(now, step.at)
        # First, since it is the cause of the effects. The calls are those of before: an interrupt may have
        # settled them all by now.
        if call in calls_in(step.before):
            told += [(step.at if posted else now, *words) for words in _interference(step.entry, call)]
        for effect in step.effects:
            if isinstance(effect, effects.TurnEnded):
                wish = wish or next((each for each in effect.calls if each.id == call), None)
                told += [(max(now, step.at), *words) for words in _gives_output(effect, call, step)]
            # A decision counts from when the approver gave it: that is when the waiting ended.
            decided = posted and isinstance(effect, effects.ApprovalResolved)
            at = step.at if decided else max(now, step.at)
            told += [(at, *words) for words in _words(effect, call, asked, step.session)]
        # The batch of the call is over: nothing that comes later is about it.
        if call not in [one.call.id for one in calls_at(step.state)]:
            break
    if wish is None:
        return None
    # An answer may be dated before the step that applied it. Moments of one time stay in the journal's order.
    told.sort(key=itemgetter(0))
    return Explanation(
        session=session,
        call=call,
        tool=wish.name,
        arguments=wish.arguments,
        moments=tuple([Moment(at=at, what=what, text=text) for at, what, text in told]),
    )


def _gives_output(ended: effects.TurnEnded, call: str, step: ReplayedStep) -> Iterator[tuple[str, str]]:
    """That *call*, if it is among those of the answer that *ended*, is how the model gives the output."""
    config = step.config
    if config is None or config.output is None:
        return
    tool = config.output.tool_for(ended.message.model)
    if any(wish.id == call and wish.name == tool for wish in ended.calls):
        yield "output", f"the model was asked for the output of the run in the mode {effects.OutputMode.TOOL}"


def _interference(entry: journal.Entry, call: str) -> Iterator[tuple[str, str]]:
    """What *entry* did from outside to *call*, which was open: one word, and a text."""
    match entry:
        # The journal does not say which process it was, so neither does the account.
        case journal.TakenOver():
            text = "another process went on with the run, or the same one later, while the call was open"
            yield "taken over", text
        case journal.Forked(session=other):
            yield "copied", f"while it was open, from session {other}, where it went on"
        case journal.HandedOver():
            yield "handed over", "the worker let running calls end, and left the rest to the next worker"
        case journal.Stepped(event=effects.CallCancelled(call=cancelled)) if cancelled == call:
            yield "given up", "a person gave up this call"
        # An interrupt names no call: it met each that had no result.
        case journal.Stepped(event=effects.Interrupted()):
            yield "interrupted", "the run was asked to stop"
        case journal.Stepped() | journal.RunOpened() | journal.Posted():
            pass
        case journal.Branched() | journal.Titled():
            pass
        case _:
            assert_never(entry)


def _words(effect: effects.Effect, call: str, asked: set[str], session: str) -> Iterator[tuple[str, str]]:
    """What *effect* adds to the account of *call*: one word each, and a text; *asked* are its questions."""
    match effect:
        # A story begins with the model's own words for the call, before hooks may change its arguments.
        case effects.TurnEnded(calls=calls):
            yield from (("wished", f"{wish.name} {wish.arguments}") for wish in calls if wish.id == call)
        case effects.ApprovalResolved(request=request) if request in asked:
            by = f", by {effect.by}" if effect.by else ""
            yield "answered", f"{_decision(effect.decision)}{by}"
        # An auditor must tell silence from a question that was taken back: only the first waited in vain.
        case effects.ApprovalWithdrawn(request=request) if request in asked:
            yield "withdrawn", "no answer came in time" if effect.late else "the question was taken back"
        case effects.ApprovalRequested(request=request) if effect.call == call:
            asked.add(request)
            # With the id of the question: a person's own log of answers has that and not the call.
            yield "asked", f"a person, because of {effect.why}; the question is {request}"
        # Hooks of other occasions name no call, so they never match here.
        case _:
            if getattr(effect, "call", None) == call:
                yield from _of_call(effect, session)


def _of_call(effect: effects.Effect, session: str) -> Iterator[tuple[str, str]]:
    match effect:
        case effects.HookAsked(hook=hook, names=names):
            yield "hooks", f"asked at {hook}: {', '.join(names)}"
        # One moment for each hook, since each has its own reasons.
        case effects.HookEnded(said=said):
            yield from (("hook", _hook(one)) for one in said)
        # Possibly more than once: arguments that a person edited pass the rules again.
        case effects.CallJudged():
            detail = f": {effect.detail}" if effect.detail else ""
            yield "judged", f"{effect.verdict}, by {effect.ground}{detail}"
        # With the arguments that ran: hooks and approvers may have changed the model's.
        case effects.ToolStarted():
            yield "started", f"{effect.tool} {effect.arguments}"
        # With the session, where the child's own story is told.
        case effects.AgentStarted():
            yield (
                "started",
                f"agent {effect.agent}, in session {child_session(session, effect.call)}: {effect.prompt}",
            )
        # In full, unlike in a rendered line: the reason for an outcome may stand anywhere in it.
        case effects.CallSettled():
            yield "ended", f"{effect.outcome}: {effect.content}"
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
