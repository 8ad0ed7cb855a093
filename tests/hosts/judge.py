"""
What must hold of sessions whatever their host does: their journals are held against what the world noted.

And two journals of one script are compared, up to times, ids, takeovers and the order of what goes on at the
same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from provers.audit.journals import Kept, journal_faults
from provers.invariants import state_faults

from hosts.desk import UNSAFE
from turnwheel.effects import events
from turnwheel.effects.messages import Message, Outcome
from turnwheel.engine.inspect.replay import replayed
from turnwheel.engine.journal.encoding import decode_entry
from turnwheel.engine.journal.entries import RunOpened, Stepped
from turnwheel.states.state import Done

Journals = Mapping[str, Sequence[bytes]]
Note = Mapping[str, Any]


def by_session(notes: Iterable[Note]) -> Mapping[str, Sequence[Note]]:
    """The *notes* of each session."""
    found: dict[str, list[Note]] = {}
    for note in notes:
        found.setdefault(note["session"], []).append(note)
    return found


def faults(
    session: str, journals: Journals, notes: Mapping[str, Iterable[Note]], accepted: Sequence[str]
) -> Iterator[str]:
    """
    What is wrong with *session*, of which clients know that the inputs *accepted* were taken.

    *notes* are those of each session.
    """
    for name, entries in journals.items():
        kept = Kept.of(entries, name)
        machine = kept.folded.machine
        if machine is None or not machine.done:
            yield f"{name} did not end: {machine}"
            continue
        yield from journal_faults(kept, accepted if name == session else (), over=True)
        yield from state_faults(machine.state, machine.memory)
        yield from _tool_faults(kept, notes.get(name, ()))
        *_, last = replayed(entries, name)
        if (last.state, last.memory) != (machine.state, machine.memory):
            yield f"{name} is replayed to {last.state}, and is {machine.state}"


def _tool_faults(kept: Kept, notes: Iterable[Note]) -> Iterator[str]:
    """Whether nothing unsafe was begun twice, and what may have run was said to be so."""
    begun = Counter((note["tool"], note["key"]) for note in notes if note["kind"] == "begun")
    ended = {(note["tool"], note["call"]) for note in notes if note["kind"] == "ended"}
    for (tool, key), count in begun.items():
        if tool in UNSAFE and count > 1:
            yield f"{kept.session}: {tool} {key} began {count} times"
    calls = {note["call"] for note in notes if note["kind"] == "begun" and note["tool"] in UNSAFE}
    for told in kept.ended:
        if told.tool in UNSAFE and told.outcome is Outcome.OK and (told.tool, told.call) not in ended:
            yield f"{kept.session}: {told.call} of {told.tool} is said to have ended, and did not"
        if told.call in calls and told.outcome is Outcome.DENIED:
            yield f"{kept.session}: {told.call} of {told.tool} is said to be denied, and began"


# Equal journals


def story(journals: Journals) -> list[object]:
    """What the *journals* of *session* say, without what differs from run to run."""
    return [_story(entries, name) for name, entries in journals.items()]


def _story(entries: Sequence[bytes], session: str) -> object:
    found: list[object] = []
    together: list[str] = []
    for entry in map(decode_entry, entries):
        match entry:
            case RunOpened():
                found += [sorted(together), "a run"]
                together = []
            case Stepped(event=events.ModelFinished() | events.ModelFailed() as event):
                # What came since the answer before may have come in any order.
                found += [sorted(together), _told(event)]
                together = []
            case Stepped(event=event) if not isinstance(event, PASSING):
                together.append(_told(event))
            case _:
                pass
    machine = Kept.of(entries, session).folded.machine
    assert machine is not None
    spent = machine.memory.spent
    messages = [_shape(machine.memory.history[place]) for place in range(len(machine.memory.history))]
    state = machine.state
    how = (state.reason, state.detail) if isinstance(state, Done) else state
    return found, sorted(together), how, spent.turns, spent.usage, messages


# What may come in more or fewer pieces; and a prompt for a later run, which stands in the history.
PASSING = events.ModelStreamed | events.ToolProgressed | events.AgentProgressed | events.UserSent


def _told(event: object) -> str:
    fields = ("stop", "failure", "text", "outcome", "change", "decision")
    return " ".join([type(event).__name__, *[str(getattr(event, field, "")) for field in fields]])


def _shape(message: Message) -> object:
    calls = [(call.name, str(call.arguments)) for call in message.calls]
    results = [(result.outcome, result.content) for result in message.results]
    return message.role, message.text, calls, results
