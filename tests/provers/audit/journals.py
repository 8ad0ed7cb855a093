"""What must hold of a session's journal: every input in it is one, comes in once and in order, and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import final

import attrs

from turnwheel.effects import Effect
from turnwheel.effects.events import (
    ControlReceived,
    Event,
    Interrupted,
    UserSent,
    UserSteered,
)
from turnwheel.effects.messages import Outcome
from turnwheel.effects.notices import (
    CallSettled,
    DoneReason,
    InputBlocked,
    InputTaken,
    RunEnded,
)
from turnwheel.effects.usage import Spent
from turnwheel.engine.journal.encoding import decode_entry
from turnwheel.engine.journal.entries import (
    Entry,
    Forked,
    Posted,
    RunOpened,
    Stepped,
    TakenOver,
)
from turnwheel.engine.journal.fold import SessionState, apply_entry, initial_state
from turnwheel.states.state import batch_of

INPUTS = UserSent | UserSteered | ControlReceived

Look = Callable[[Entry, int, tuple[Effect, ...], SessionState], None]
"""Is shown an entry once it has happened, its number, what the machine said to it and where it led to."""


@final
@attrs.define
class Kept:
    """
    What the journal of *session* says, read entry by entry.

    *posted* are the inputs in the order they came, *applied* how often each was, *taken* those that became
    messages or were refused, in that order. *stopped* are the runs that were interrupted while they rested.
    *spent* is what the runs used that are over.
    """

    session: str
    folded: SessionState = attrs.field(factory=SessionState)
    posted: list[Event] = attrs.field(factory=list)
    applied: Counter[str] = attrs.field(factory=Counter)
    taken: list[str] = attrs.field(factory=list)
    stopped: set[str] = attrs.field(factory=set)
    ended: list[CallSettled] = attrs.field(factory=list)
    spent: Spent = Spent()
    faults: list[str] = attrs.field(factory=list)

    @classmethod
    def of(cls, entries: Sequence[bytes], session: str, look: Look | None = None) -> Kept:
        """What *entries* say. Each is shown to *look*, too, with what the machine said to it."""
        kept = cls(session, folded=initial_state(entries))
        read = [decode_entry(data, f"an entry of {session!r}") for data in entries]
        for number, entry in enumerate(read):
            effects = kept._follow(entry, number, read[number + 1 :])
            if look is not None:
                look(entry, number, effects, kept.folded)
        return kept

    def _follow(self, entry: Entry, number: int, rest: list[Entry]) -> tuple[Effect, ...]:
        match entry:
            case Posted(event=event):
                self.posted.append(event)
                if isinstance(event, Interrupted) and self._rests(rest):
                    self.stopped.add(self._run)
            case RunOpened():
                self.applied.update({one.id for one in self.folded.posted if isinstance(one, INPUTS)})
            case Stepped(event=event) if isinstance(event, INPUTS):
                self.applied[event.id] += 1
            case _:
                pass
        effects = apply_entry(self.folded, entry, number, self.session)
        for effect in effects:
            self._said(effect)
        if isinstance(entry, Forked):
            # What waits is answered where it was said, and what was spent is paid for there.
            mine = {*self.taken, *self._read_here}
            self.posted = [one for one in self.posted if isinstance(one, INPUTS) and one.id in mine]
            self.spent = Spent()
        return effects

    @property
    def _read_here(self) -> list[str]:
        """The inputs that wait in the mail of a run."""
        machine = self.folded.machine
        return [] if machine is None else [mail.id for mail in machine.memory.session.mail]

    @property
    def _run(self) -> str:
        machine = self.folded.machine
        return "" if machine is None else machine.memory.run

    def _rests(self, rest: list[Entry]) -> bool:
        """Whether only questions are open, and nobody drives: the next who does takes the run over."""
        machine = self.folded.machine
        driven = next((one for one in rest if not isinstance(one, Posted)), None)
        state = None if machine is None else machine.state
        batch = None if state is None else batch_of(state)
        return batch is not None and batch.rests and isinstance(driven, TakenOver)

    def _said(self, effect: Effect) -> None:
        match effect:
            case InputTaken(ids=ids) | InputBlocked(ids=ids):
                self.taken += ids
            case CallSettled():
                self.ended.append(effect)
            case RunEnded(run=run, reason=reason, spent=spent):
                self.spent += spent
                if run in self.stopped and reason not in {DoneReason.INTERRUPTED, DoneReason.ABORTED}:
                    self.faults.append(
                        f"run {run!r} was interrupted while it rested, and ended with {reason}"
                    )
            case _:
                pass

    @property
    def money_faults(self) -> list[str]:
        """Whether the account is that of all its runs, on every branch, spent here, and of its title."""
        machine = self.folded.machine
        if machine is None:
            return []
        runs = self.spent if machine.done else self.spent + machine.memory.spent
        total, mine = runs + self.folded.title_spent - self.folded.copied_spent, self.folded.spent
        return [] if mine == total else [f"the runs of {self.session!r} used {total}, its account is {mine}"]

    @property
    def ran(self) -> set[str]:
        """The calls that ended well, but for those that gave an output: nothing runs for them."""
        machine = self.folded.machine
        output = None if machine is None else machine.config.output
        gives = "" if output is None else output.name
        return {told.call for told in self.ended if told.outcome is Outcome.OK and told.tool != gives}


def journal_faults(kept: Kept, accepted: Iterable[str], *, over: bool) -> list[str]:
    """
    What is wrong with what was *kept*, where the inputs *accepted* were.

    *over*: nothing goes on any more, so every prompt has come in.
    """
    faults = [*kept.faults, *kept.money_faults]
    inputs = [event for event in kept.posted if isinstance(event, INPUTS)]
    ids = [event.id for event in inputs]
    faults += [f"{name} was posted {count} times" for name, count in Counter(ids).items() if count > 1]
    faults += [f"{name} was applied {count} times" for name, count in kept.applied.items() if count > 1]
    faults += [f"{name} was accepted, and is not kept" for name in accepted if name not in ids]
    waiting = {event.id for event in kept.folded.posted if isinstance(event, INPUTS)}
    faults += [f"{name} was not applied" for name in ids if not kept.applied[name] and name not in waiting]
    faults += [f"{name} came in {count} times" for name, count in Counter(kept.taken).items() if count > 1]
    prompts = [event for event in inputs if isinstance(event, UserSent)]
    for sender in {event.sender for event in prompts}:
        queue = [event.id for event in prompts if event.sender == sender]
        came = [name for name in kept.taken if name in queue]
        if came != (queue if over else queue[: len(came)]):
            faults.append(f"{queue} wait, and came in as {came}")
    return faults
