"""
A session step by step, as it was: nothing is performed, and only its journal is read.

A step is an entry of the journal and has its number. The journal holds the events. The machine is pure, so it
makes the same states and effects of them again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, cast, final

import attrs

from ...display.effects_table import Effects
from ...display.notebook import Card, Displayed
from ...display.rendering import line_of
from ...effects import Effect
from ...effects.config import Config
from ...effects.errors import InternalError, JournalError
from ...effects.events import Event, ModelStreamed
from ...effects.usage import Spent
from ...states.context import Memory
from ...states.state import State
from ..core.codec import TAG, converter, in_json
from ..core.machine import ChildLink, Machine, links_of
from ..journal.entries import Entry, Forked, Posted, RunOpened, Stepped, time_of
from ..journal.fold import SessionState, entries_of, initial_state, read
from .transitions import steps as transitions


@final
@attrs.frozen(kw_only=True)
class ReplayedStep(Displayed):
    """
    Entry *number* of the journal of *session*, written *at* seconds since the epoch, and its consequences.

    The machine was in the state *before*; now it is in *state*, with *memory*, under *config*. They are None
    before the first run. *effects* are those of the step. *spent* is the account of the session until now,
    *children* are those at work now, each with its session.

    *session* is the journal it was written to: in a fork, a copied step has the original's name.
    """

    session: str
    number: int
    at: float
    entry: Entry
    before: State | None
    # Values and no machine: the fold moves its machine on, and a kept step must stay as it was.
    state: State | None
    memory: Memory | None
    config: Config | None
    effects: tuple[Effect, ...] = attrs.field(default=(), converter=Effects)
    spent: Spent = Spent()
    children: tuple[ChildLink, ...] = ()
    # Where the step began, to make its transitions again. Equal steps began alike, so it is not compared.
    began: Machine | None = attrs.field(default=None, eq=False, repr=False)

    @property
    def event(self) -> Event | None:
        """What happened; None for an entry that is about the run or the session as a whole."""
        # A posted event is shown twice: when it came, and at the step that applied it. The time between is
        # how long it waited.
        return self.entry.event if isinstance(self.entry, Posted | Stepped) else None

    @property
    def machine(self) -> Machine | None:
        """A machine that is where this one was, to be stepped by hand; None before the first run."""
        # A new one each time, so that stepping it by hand does not disturb the replay or another caller.
        # The three are known together, from the first run on.
        if self.state is None:
            return None
        return Machine(cast("Config", self.config), self.state, cast("Memory", self.memory))

    @property
    def label(self) -> str:
        """The table's name for the state; empty before the first run."""
        return "" if self.state is None else self.state.label

    @property
    def way(self) -> tuple[str, ...]:
        """The labels that the machine went through, with the first and the last; none where it rested."""
        entry = self.entry
        if self.began is None or not isinstance(entry, RunOpened | Stepped):
            return ()
        first = self.began.state.label
        # Nothing follows a piece of an answer, nor the opening of a run that a bug of ours kept at its start.
        if first == self.label and (isinstance(entry, RunOpened) or isinstance(entry.event, ModelStreamed)):
            return (first,)
        # A handler that failed would fail again; the run went straight to its end.
        if isinstance(entry, Stepped) and entry.failed:
            return (first, self.label)
        steps = transitions(self.began, self.event, at=self.at)
        return (first, *[step.following.label for step in steps])

    @property
    def run(self) -> str:
        """The run that was under way, or over; empty before the first."""
        return "" if self.memory is None else self.memory.run

    def _card(self) -> Card:
        what = type(self.entry).__name__ if self.event is None else line_of(self.event)
        lines = tuple([line_of(effect) for effect in self.effects])
        title = f"Step {self.number}"
        return Card(title=title, beside=what, lines=lines, folded="effects", label=self.label)


def replayed(
    entries: Sequence[bytes], session: str, state: SessionState | None = None, known: int = 0
) -> Iterator[ReplayedStep]:
    """
    The steps in the journal *entries* of *session*; with *state*, which *known* entries led to, those behind.

    Raises `JournalError` for the first entry that cannot be read or does not follow from those before it. All
    steps before it are yielded first.
    """
    # Looked up before the fold: whose an entry is depends on the forks that come after it.
    copies = [(known + number, entry.session) for number, entry in entries_of(Forked, entries)]
    state = initial_state(entries) if state is None else state
    # The reading moves this one state on. A copy for each step would cost a long session too much.
    reading = read(entries, session, state, known)
    # Counted here, since an entry that fails is never handed over and could not say its number.
    for number in range(known, known + len(entries)):
        began, posted, unbilled = _copied(state.machine), state.posted, state.unbilled
        before = None if began is None else began.state
        try:
            entry, effects = next(reading)
        # A handler that fails on a journal from outside is a fault of the journal, to the reader of it.
        except InternalError as error:
            msg = f"entry {number} of session {session!r} makes no sense here: {error}"
            raise JournalError(msg) from error
        # A run begins with what was posted before it, which its own machine has taken already.
        if isinstance(entry, RunOpened):
            began = Machine.open(entry, began, posted, unbilled)
        machine = state.machine
        # A copied step belongs to its original: children are found under that name, and audits by it.
        name = next((origin for copied, origin in copies if number < copied), session)
        yield ReplayedStep(
            session=name,
            number=number,
            at=time_of(entry),
            entry=entry,
            before=before,
            state=None if machine is None else machine.state,
            memory=None if machine is None else machine.memory,
            config=None if machine is None else machine.config,
            effects=effects,
            spent=state.spent,
            # Under the name from above: children that were begun before a fork are the original's.
            children=() if machine is None else links_of(machine.state, name),
            began=began,
        )


def _copied(machine: Machine | None) -> Machine | None:
    # The reading moves the machine itself on.
    return None if machine is None else Machine(machine.config, machine.state, machine.memory)


def path_of(steps: Iterable[ReplayedStep]) -> Counter[tuple[str, str]]:
    """How often *steps* went from one label to another, for `turnwheel.diagrams.chart`."""
    return Counter([edge for step in steps for edge in pairwise(step.way) if edge[0] != edge[1]])


# Steps as data


def plain_effects(effects: Iterable[Effect]) -> list[dict[str, Any]]:
    """*effects* as what JSON is made of, with their tags."""
    return [{TAG: type(one).__name__, **converter.unstructure(one)} for one in effects]


def as_plain(step: ReplayedStep) -> dict[str, Any]:
    """
    *step* as what JSON is made of; tags and fields as in a journal, and fields at their default left out.

    The memory is not in it: it is the fold of the records among the effects.
    """
    return {
        "number": step.number,
        "at": step.at,
        "session": step.session,
        "run": step.run,
        "entry": plain_entry(step.entry),
        # The label alone: the state itself is in the step before.
        "before": "" if step.before is None else step.before.label,
        "label": step.label,
        # In full, unlike in a journal: a reader of JSON has no machine to make it with.
        "state": None if step.state is None else converter.unstructure(step.state, State),
        # With the tag, as in its union: a cancel is in none.
        "effects": plain_effects(step.effects),
        # Always written, also where it is nothing: a program that adds up needs no case of its own.
        "spent": converter.unstructure(step.spent, Spent),
        "children": [converter.unstructure(child, ChildLink) for child in step.children],
    }


def plain_entry(entry: Entry) -> dict[str, Any]:
    """*entry* as what JSON is made of, without the version that it is written with."""
    # As the union and not as its own class: only the union writes the tag.
    plain: dict[str, Any] = converter.unstructure(entry, Entry)
    return plain


def line(step: ReplayedStep) -> bytes:
    """*step* as one line of JSON."""
    # One line for each step, so that a long session is written and read without being held.
    return in_json(as_plain(step))
