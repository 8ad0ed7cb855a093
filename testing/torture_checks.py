"""
What must hold of a life that was ended with -9 again and again: its store is held against what was noted.

Theory of operation. The notes were written by the world and not by us: each start and end of a tool, each
whole answer of the model, each question that was put to somebody, each input that was accepted. The journals
say what we believe of all that. Both are read by a process that took no part, and nothing is compared but
these two, and the conversation with that of a life that nobody disturbed.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import attrs

from ..effects.errors import JournalError
from ..effects.events import ApprovalGiven, Failure, ModelFailed, ModelFinished, TimerFired, ToolFinished
from ..effects.messages import Message, Outcome
from ..effects.notices import RunEnded, RunStarted, ToolEnded
from ..effects.records import AppendMessage, ReplaceHistory
from ..effects.requests import AskApproval, RunTool
from ..effects.usage import Usage, cost
from ..engine.entries import Entry, RunOpened, Stepped, TakenOver, Titled
from .invariants import state_faults
from .journals import Kept, journal_faults
from .points import Notebook
from .torture_life import NOTES, PRICE, PROMPTS, SESSION, STORE, TOOLS

if TYPE_CHECKING:
    from ..effects import Effect
    from ..effects.events import Event
    from ..engine.folding import Folded

Note = dict[str, Any]
Shape = list[object]

UNSAFE, IDEMPOTENT = (
    frozenset({each.spec.name for each in TOOLS if each.spec.side_effect == kind})
    for kind in ("unsafe", "idempotent")
)
ASKED = "pay"
"""The tool that somebody has to say yes to."""

FILES = {STORE, f"{STORE}-wal", f"{STORE}-shm", NOTES}


@final
@attrs.define
class Trail:
    """
    What the journal of *session* says, for whoever compares it with the world.

    *open* are the requests that were open after so many entries. By request: *tools* are those that were to
    be run, *ended* how they did, *asks* the calls that people were asked about, *answers* how often models
    answered and *lost* how often that was lost. *allowed* are the entries with which people answered, by
    call, *told* is how each call ended, *paid* what all answers used, *shape* the conversation. *claims* are
    the entries with which somebody began or took over.
    """

    session: str
    kept: Kept
    open: list[frozenset[str]] = attrs.field(factory=lambda: [frozenset[str]()])
    tools: dict[str, RunTool] = attrs.field(factory=dict)
    ended: dict[str, ToolFinished] = attrs.field(factory=dict)
    asks: dict[str, str] = attrs.field(factory=dict)
    allowed: dict[str, int] = attrs.field(factory=dict)
    answers: Counter[str] = attrs.field(factory=Counter)
    paid: Usage = Usage()
    lost: Counter[str] = attrs.field(factory=Counter)
    fired: dict[str, float] = attrs.field(factory=dict)
    shape: Shape = attrs.field(factory=list)
    told: dict[str, Outcome] = attrs.field(factory=dict)
    runs: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    claims: list[int] = attrs.field(factory=list)

    @classmethod
    def of(cls, entries: list[bytes], session: str) -> Trail:
        """What *entries* say. Raises `JournalError` where they cannot be read."""
        trail: Trail

        def look(entry: Entry, number: int, effects: tuple[Effect, ...], folded: Folded) -> None:
            trail.take(entry, number, effects)
            machine = folded.machine
            trail.open.append(frozenset() if machine is None else frozenset(machine.state.open))

        trail = cls(session, Kept(session))
        trail.kept = Kept.of(entries, session, look)
        return trail

    def take(self, entry: Entry, number: int, effects: tuple[Effect, ...]) -> None:
        """Note what *entry*, which has this *number*, says, and what the machine said to it."""
        match entry:
            case Stepped(event=event):
                self._event(event, number)
            case RunOpened() | TakenOver():
                self.claims.append(number)
            case Titled(spent=spent):
                self.paid += spent.usage
            case _:
                pass
        for effect in effects:
            self._effect(effect)

    def _event(self, event: Event, number: int) -> None:
        match event:
            case ModelFinished(request=request, usage=usage):
                self.answers[request] += 1
                self.paid += usage
            case ModelFailed(request=request, failure=Failure.LOST):
                self.lost[request] += 1
            case ToolFinished(request=request):
                self.ended[request] = event
            case ApprovalGiven(request=request):
                self.allowed[self.asks[request]] = number
            case TimerFired(request=request, at=at):
                self.fired[request] = at
            case _:
                pass

    def _effect(self, effect: Effect) -> None:
        match effect:
            case RunTool(id=request):
                self.tools[request] = effect
            case AskApproval(id=request, call=call):
                self.asks[request] = call
            case AppendMessage(message=message):
                self.shape.append(_shape(message))
            case ReplaceHistory():
                self.shape.append("a summary")
            case ToolEnded(call=call, outcome=outcome):
                self.told[call] = outcome
            case RunStarted(run=run):
                self.runs["start", run] += 1
            case RunEnded(run=run, reason=reason):
                self.runs["end", run] += 1
                self.shape.append(f"the end: {reason}")
            case _:
                pass


def _shape(message: Message) -> object:
    """*message* without what differs from run to run; what may have run counts as what did."""
    results = [
        (result.name, "ok" if result.outcome is Outcome.UNKNOWN and result.name in UNSAFE else result.content)
        if result.outcome in {Outcome.OK, Outcome.UNKNOWN}
        else (result.name, result.outcome, result.content)
        for result in message.results
    ]
    told = [(name, "ok" if name in UNSAFE else content) for name, content, *_ in results]
    calls = [(call.name, call.arguments) for call in message.calls]
    return (message.role.value, message.text, calls, told)


@final
@attrs.frozen(kw_only=True)
class Remains:
    """What is left of a life: its *trails* by session, its *notes*, and what is wrong with its files."""

    trails: dict[str, Trail]
    notes: list[Note]
    faults: list[str]

    @classmethod
    def of(cls, folder: Path) -> Remains:
        """What is left in *folder*."""
        trails: dict[str, Trail] = {}
        faults = [f"the folder has a file {path.name}" for path in folder.iterdir() if path.name not in FILES]
        journals, wrong = stored(folder / STORE)
        for session, entries in journals.items():
            try:
                trails[session] = Trail.of(entries, session)
            except JournalError as error:
                faults.append(f"{session!r} cannot be read: {error}")
        return cls(trails=trails, notes=Notebook.read(folder / NOTES), faults=faults + wrong)

    def of_kind(self, kind: str) -> list[Note]:
        """The notes of this *kind*, in the order they were written."""
        return [note for note in self.notes if note["kind"] == kind]

    @property
    def main(self) -> Trail:
        """The session itself, beside its children."""
        return self.trails[SESSION]

    @property
    def shapes(self) -> list[Shape]:
        """The conversations, the session's first."""
        return [trail.shape for _, trail in sorted(self.trails.items())]


def stored(path: Path) -> tuple[dict[str, list[bytes]], list[str]]:
    """The journals in the store at *path*, and what is wrong with it as a file."""
    faults: list[str] = []
    journals: dict[str, list[bytes]] = {}
    with closing(sqlite3.connect(path)) as db:
        (said,) = db.execute("pragma integrity_check").fetchone()
        faults += [f"the store is damaged: {said}"] if said != "ok" else []
        tables = {name for (name,) in db.execute("select name from sqlite_master where type = 'table'")}
        faults += [f"the store has tables {sorted(tables)}"] if tables != {"sessions", "entries"} else []
        for session, seq, body in db.execute("select session, seq, body from entries order by session, seq"):
            journal = journals.setdefault(session, [])
            faults += [f"entry {seq} of {session} comes after {len(journal)}"] if seq != len(journal) else []
            journal.append(body)
        lengths = dict(db.execute("select session, length from sessions").fetchall())
    counted = {session: len(journal) for session, journal in journals.items()}
    return journals, faults + ([f"it has {counted}, and says {lengths}"] if counted != lengths else [])


# What must hold


def life_faults(remains: Remains, undisturbed: list[Shape], title: str) -> Iterator[str]:
    """
    What is wrong with a life of which this *remains*, where an *undisturbed* one has those conversations.

    *title* is what its session is to be called, empty where that is not promised.
    """
    yield from remains.faults
    yield from [note["says"] for note in remains.of_kind("fault")]
    if SESSION not in remains.trails:
        yield "the session is gone"
        return
    if remains.shapes != undisturbed:
        yield from _differences(remains.shapes, undisturbed)
    if remains.main.kept.folded.title != title and title:
        yield f"it is called {remains.main.kept.folded.title!r}, not {title!r}"
    for trail in remains.trails.values():
        yield from _session_faults(trail, remains)
    yield from _money_faults(remains)
    yield from _question_faults(remains)
    for what, starts in _by(remains.of_kind("start"), "what").items():
        yield from _tool_faults(what, starts, remains)


def _differences(shapes: list[Shape], undisturbed: list[Shape]) -> Iterator[str]:
    if len(shapes) != len(undisturbed):
        yield f"there are {len(shapes)} sessions, undisturbed {len(undisturbed)}"
    for shape, due in zip(shapes, undisturbed, strict=False):
        for number, (one, other) in enumerate(zip(shape, due, strict=False)):
            if one != other:
                yield f"message {number} is {one}, undisturbed {other}"
                break
        else:
            if len(shape) != len(due):
                yield f"it says {len(shape)} things, undisturbed {len(due)}: {shape[len(due) :]}"


def _session_faults(trail: Trail, remains: Remains) -> Iterator[str]:
    """Whether a session is at its end, its journal in order, and what was told of it in its journal."""
    session, machine = trail.session, trail.kept.folded.machine
    accepted = [note["id"] for note in remains.of_kind("accepted")] if session == SESSION else []
    if session == SESSION and set(accepted) < {*PROMPTS, "steer", "third"}:
        yield f"accepted were {accepted}"
    yield from journal_faults(trail.kept, accepted, over=True)
    if machine is None:
        yield f"{session!r} never began"
        return
    yield from state_faults(machine.state, machine.memory)
    if not machine.done or trail.kept.folded.posted:
        yield f"{session!r} is not over: {machine}, {trail.kept.folded.posted}"
    yield from [
        f"{what} of run {run} is there {count} times"
        for (what, run), count in trail.runs.items()
        if count != 1
    ]
    for kind, word in (("begun", "start"), ("ended", "end")):
        told = Counter(note["run"] for note in remains.of_kind(kind) if note["session"] == session)
        yield from [f"{word} of run {run} was told {count} times" for run, count in told.items() if count > 1]
        yield from [f"{word} of run {run} was told and not kept" for run in told if not trail.runs[word, run]]
    for note in remains.of_kind("told"):
        if note["session"] == session and trail.told.get(note["call"]) != note["outcome"]:
            yield f"told was {note}, kept is {trail.told.get(note['call'])}"
    looked = {note["call"] for note in remains.of_kind("hook") if note["hook"] == "post_tool_use"}
    yield from [f"no hook saw {call}" for call in trail.kept.ran - looked]
    for timer, notes in _by(remains.of_kind("timer"), "request").items():
        due = {note["due"] for note in notes}
        if len(due) != 1 or trail.fired.get(timer, max(due)) < max(due):
            yield f"timer {timer} is due at {due} and fired at {trail.fired.get(timer)}"


def _money_faults(remains: Remains) -> Iterator[str]:
    """
    Whether every answer that a journal has is paid for, and every other one is known to be lost.

    An answer may be missing from the account only where it never reached the journal: then the journal says
    that its request was lost with the process, or it was the title's, which is asked beside the runs.
    """
    paid = sum([trail.paid for trail in remains.trails.values()], Usage())
    spent = remains.main.kept.folded.spent
    if spent.usage.total - spent.usage.estimated != paid.total:
        yield f"answers for {paid} are kept, the account says {spent.usage}"
    if spent.cost != cost(spent.usage, PRICE):
        yield f"the account says {spent.cost}, {spent.usage} cost {cost(spent.usage, PRICE)}"
    given = Counter(
        (note["session"], note["request"]) for note in remains.of_kind("answer") if note["purpose"] != "title"
    )
    for trail in remains.trails.values():
        for request, count in trail.answers.items():
            if count != 1 or not given[trail.session, request]:
                yield f"{request} was answered {given[trail.session, request]} times, kept are {count}"
        for (session, request), count in given.items():
            if session == trail.session and count > trail.answers[request] + trail.lost[request]:
                yield f"{request} was answered {count} times, and that is neither kept nor known to be lost"


def _question_faults(remains: Remains) -> Iterator[str]:
    """Whether nobody was asked what was answered before: at most once in a process, and never after."""
    known: set[str] = set()
    asked: set[str] = set()
    for note in remains.notes:
        if note["kind"] == "process":
            known, asked = set(note["settled"]), set()
        elif note["kind"] == "asked":
            request = note["request"]
            yield from [f"{request} is asked again although its answer was kept"] if request in known else []
            yield from [f"{request} is asked twice by one process"] if request in asked else []
            asked.add(request)


def _tool_faults(what: str, starts: list[Note], remains: Remains) -> Iterator[str]:
    """Whether the tool that does *what* was run as its side effect allows, and the journal knows."""
    name, trail = starts[0]["tool"], remains.trails[starts[0]["session"]]
    ends = [note for note in remains.of_kind("finish") if note["what"] == what]
    keys = {note["key"] for note in starts}
    ended = [trail.ended[key].outcome for key in keys if key in trail.ended]
    outcome = ended[0] if ended else None
    if len(keys) > 1 or len(ended) != 1:
        yield f"{what} has the keys {keys}, and ended {ended}"
    for number, note in enumerate(starts):
        yield from _start_faults(note, number, trail)
    if name in UNSAFE:
        if len(starts) > 1 or len(ends) > 1:
            yield f"{name} was started {len(starts)} times for {what}, and finished {len(ends)} times"
        if outcome not in {Outcome.OK, Outcome.UNKNOWN} or (outcome is Outcome.OK and not ends):
            yield f"{name} ended {outcome} for {what}, finished {len(ends)} times"
    elif outcome is not Outcome.OK or not ends:
        yield f"{name} ended {outcome} for {what}, finished {len(ends)} times"


def _start_faults(note: Note, before: int, trail: Trail) -> Iterator[str]:
    """Whether the journal knew of a start when it came, and who starts again had taken over first."""
    key, known = note["key"], note["known"]
    if known >= len(trail.open) or key not in trail.open[known]:
        yield f"{note['what']} was started after {known} entries, which have nothing of {key}"
    if sum(claim < known for claim in trail.claims) <= before:
        yield f"{note['what']} was started {before + 1} times, and nobody took over in between"
    request = trail.tools.get(key)
    if note["tool"] == ASKED and request is not None and trail.allowed.get(request.call, known) >= known:
        yield f"{note['what']} was started, and nobody had said yes"


def _by(notes: list[Note], key: str) -> dict[str, list[Note]]:
    found: dict[str, list[Note]] = {}
    for note in notes:
        found.setdefault(note[key], []).append(note)
    return found
