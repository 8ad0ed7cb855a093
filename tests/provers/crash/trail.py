"""What is left of a life: what its journals say of it, and what the world noted."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import attrs

from provers.audit.journals import Kept
from provers.crash.life import TOOLS
from provers.crash.points import Notebook
from provers.crash.script import NOTES, SESSION, STORE
from turnwheel.effects.config import SideEffect
from turnwheel.effects.errors import JournalError
from turnwheel.effects.events import (
    ApprovalGiven,
    Approve,
    Deny,
    Failure,
    ModelFailed,
    ModelFinished,
    TimerFired,
    ToolFinished,
    ToolLost,
)
from turnwheel.effects.messages import Message, Outcome
from turnwheel.effects.notices import CallSettled, RunEnded, RunStarted
from turnwheel.effects.records import AddUsage, AppendMessage, ReplaceHistory
from turnwheel.effects.requests import AskApproval, RunTool
from turnwheel.effects.usage import Usage
from turnwheel.engine.journal.entries import (
    Entry,
    RunOpened,
    Stepped,
    TakenOver,
    Titled,
)
from turnwheel.performers.stores import sqlite as layout

if TYPE_CHECKING:
    from turnwheel.effects import Effect
    from turnwheel.effects.events import Event
    from turnwheel.engine.journal.fold import SessionState

Note = dict[str, Any]
"""A line that was noted: its *kind*, and what there is to say."""

Shape = list[object]
"""A conversation, without what differs from life to life."""

UNSAFE = frozenset({each.spec.name for each in TOOLS if each.spec.side_effect is SideEffect.UNSAFE})
"""The tools that are not run again."""

FILES = {STORE, f"{STORE}-wal", f"{STORE}-shm", NOTES}
"""What there may be in the folder of a life."""


@final
@attrs.define
class Trail:
    """
    What the journal of *session* says, for whoever compares it with the world.

    *open* are the requests that were open after so many entries. By request: *tools* are those that were to
    be run, *ended* how they did, *doubted* those that may have run, *asks* the calls that people were asked
    about, *again* those of which they were asked once more, *answers* the tokens that answers of models used,
    *lost* how often one was lost, *unpaid* where nothing was estimated for that, *fired* the times of timers.
    By call: *allowed* are the entries with which people said yes, *denied* those to which they said no before
    anything ran, *told* is how it ended. *runs* are the starts and ends there are, *paid* is what all answers
    used, *outputs* what runs came to, *shape* the conversation. *claims* are the entries with which somebody
    began or took over.
    """

    session: str
    kept: Kept
    open: list[frozenset[str]] = attrs.field(factory=lambda: [frozenset[str]()])
    tools: dict[str, RunTool] = attrs.field(factory=dict)
    ended: dict[str, ToolFinished] = attrs.field(factory=dict)
    asks: dict[str, str] = attrs.field(factory=dict)
    again: set[str] = attrs.field(factory=set)
    doubted: set[str] = attrs.field(factory=set)
    allowed: dict[str, list[int]] = attrs.field(factory=dict)
    denied: set[str] = attrs.field(factory=set)
    answers: dict[str, list[int]] = attrs.field(factory=dict)
    outputs: dict[str, str] = attrs.field(factory=dict)
    paid: Usage = Usage()
    lost: Counter[str] = attrs.field(factory=Counter)
    unpaid: list[str] = attrs.field(factory=list)
    fired: dict[str, float] = attrs.field(factory=dict)
    shape: Shape = attrs.field(factory=list)
    told: dict[str, Outcome] = attrs.field(factory=dict)
    runs: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    claims: list[int] = attrs.field(factory=list)

    @classmethod
    def of(cls, entries: list[bytes], session: str) -> Trail:
        """What *entries* say. Raises `JournalError` where they cannot be read."""
        trail: Trail

        def look(entry: Entry, number: int, effects: tuple[Effect, ...], folded: SessionState) -> None:
            trail.take(entry, number, effects)
            machine = folded.machine
            trail.open.append(frozenset() if machine is None else frozenset(machine.state.open))

        trail = cls(session, Kept(session))
        trail.kept = Kept.of(entries, session, look)
        return trail

    def outcome(self, key: str) -> Outcome | None:
        """What became of the tool that was to run under *key*; None where that is not known."""
        if key in self.ended:
            return self.ended[key].outcome
        return Outcome.UNKNOWN if key in self.doubted else None

    def take(self, entry: Entry, number: int, effects: tuple[Effect, ...]) -> None:
        """Note what *entry*, which has this *number*, says, and what the machine said to it."""
        match entry:
            case Stepped(event=event):
                self._event(event, number)
                if isinstance(event, ModelFailed) and event.failure is Failure.LOST:
                    used = [effect.spent.usage for effect in effects if isinstance(effect, AddUsage)]
                    self.unpaid += [] if any(usage.estimated for usage in used) else [event.request]
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
                self.answers.setdefault(request, []).append(usage.total)
                self.paid += usage
            case ModelFailed(request=request, failure=Failure.LOST):
                self.lost[request] += 1
            case ToolFinished(request=request):
                self.ended[request] = event
            case ToolLost(request=request):
                self.doubted.add(request)
            case ApprovalGiven(request=request, decision=Approve()):
                self.allowed.setdefault(self.asks[request], []).append(number)
            case ApprovalGiven(request=request, decision=Deny()) if request not in self.again:
                self.denied.add(self.asks[request])
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
                self.again |= {request} if effect.again else set()
            case AppendMessage(message=message):
                self.shape.append(_shape(message))
            case ReplaceHistory():
                self.shape.append("a summary")
            case CallSettled(call=call, outcome=outcome):
                self.told[call] = outcome
            case RunStarted(run=run):
                self.runs["start", run] += 1
            case RunEnded(run=run, reason=reason, output=output):
                self.runs["end", run] += 1
                self.outputs[run] = output
                self.shape.append(f"the end: {reason} {output}")
            case _:
                pass


def _shape(message: Message) -> object:
    """*message* without what differs from life to life; an unsafe tool that may have run counts as run."""
    results = [
        (result.name, "ran")
        if result.name in UNSAFE and result.outcome in {Outcome.OK, Outcome.UNKNOWN}
        else (result.name, result.outcome, result.content)
        for result in message.results
    ]
    return message.role, message.text, [(call.name, call.arguments) for call in message.calls], results


@final
@attrs.frozen(kw_only=True)
class Remains:
    """What is left of a life: its *trails* by session, its *notes*, and what is wrong with its files."""

    trails: dict[str, Trail]
    notes: list[Note]
    faults: list[str]

    @classmethod
    def read(cls, folder: Path) -> Remains:
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

    def of(self, kind: str, session: str | None = None) -> list[Note]:
        """The notes of this *kind*, of one *session* or of all, in the order they were written."""
        return [
            note
            for note in self.notes
            if note["kind"] == kind and (session is None or note["session"] == session)
        ]

    @property
    def main(self) -> Trail:
        """The session itself, beside its children."""
        return self.trails[SESSION]

    @property
    def shapes(self) -> list[Shape]:
        """The conversations, the session's first."""
        return [trail.shape for _, trail in sorted(self.trails.items())]


def stored(path: Path) -> tuple[dict[str, list[bytes]], list[str]]:
    """
    The journals in the store at *path*, and what is wrong with it as a file.

    Read in this thread, since whoever forks has no other.
    """
    with closing(sqlite3.connect(path)) as db:
        (said,) = db.execute("pragma integrity_check").fetchone()
        if not db.execute("select count(*) from sqlite_master").fetchone()[0]:
            return {}, ["there is nothing in the store"]
        infos = layout.list_sessions(None, None, "", db)
        journals = {info.session: [*layout.load(info.session, 0, None, "", db)] for info in infos}
        (entries,) = db.execute("select count(*) from entries").fetchone()
    found = {session: len(journal) for session, journal in journals.items()}
    told = {info.session: info.length for info in infos}
    faults = [f"the store is damaged: {said}"] if said != "ok" else []
    if told != found or entries != sum(found.values()):
        faults.append(f"the store has {entries} entries, those of its sessions are {found}, it says {told}")
    return journals, faults
