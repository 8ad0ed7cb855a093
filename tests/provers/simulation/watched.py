"""
A machine that is watched: every step it makes goes through a ledger, and what happened to it can be told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn, final

import attrs

from provers.audit.run_auditor import RunAuditor
from provers.invariants import waits_faults
from provers.simulation.story import Claim, told
from provers.steps import Happening
from turnwheel.effects import Effect
from turnwheel.effects.config import Config
from turnwheel.effects.errors import InternalError
from turnwheel.effects.events import Event, ModelStreamed, joined
from turnwheel.effects.history import merged
from turnwheel.effects.requests import Cancel, Request
from turnwheel.engine.core.machine import Machine, ignored
from turnwheel.engine.inspect.transitions import Transition, step, steps
from turnwheel.states.context import Memory
from turnwheel.states.state import State

Row = tuple[str, type[Event], str]
Rebuild = Callable[[Machine, list[Happening]], Machine]
"""Makes a machine again from how it began and what happened to it."""


@final
class PromiseBroken(AssertionError):
    """
    *faults* were found after *journal*, from how *machine* began; its text is a test to paste.

    *claim* is how that test finds them where it does not on the way; *by_hand*: the machine was stepped.
    """

    def __init__(
        self,
        faults: list[str],
        machine: Machine,
        journal: Sequence[Happening],
        claim: Claim | None = None,
        *,
        by_hand: bool = False,
    ) -> None:
        self.faults = faults
        self.machine = machine
        self.journal = journal
        self.claim = claim
        self.by_hand = by_hand
        super().__init__(faults, machine, journal, claim)

    def __str__(self) -> str:
        test = told(self.machine, self.journal, self.claim, by_hand=self.by_hand)
        return "\n".join([*[f"# {fault}" for fault in self.faults], "", test])


def copied(machine: Machine) -> Machine:
    """A machine that is where *machine* is now, and goes its own way."""
    return Machine(machine.config, machine.state, machine.memory)


def happen(machine: Machine, what: Happening) -> tuple[Effect, ...]:
    """Let *what* happen to *machine*."""
    if isinstance(what, Config):
        machine.reconfigure(what)
        return ()
    return machine.advance(what)


def replay(began: Machine, journal: list[Happening]) -> Machine:
    """The machine that *journal* leads to from how it *began*."""
    machine = copied(began)
    machine.advance()
    for what in journal:
        happen(machine, what)
    return machine


def as_kept(journal: list[Happening]) -> list[Happening]:
    """*journal* as a store keeps it: neighbouring pieces of a stream in one event, merged."""
    kept: list[Happening] = []
    for event in journal:
        last = kept[-1] if kept else None
        if isinstance(event, ModelStreamed) and isinstance(last, ModelStreamed):
            both = joined((last, event))
            kept[-1] = attrs.evolve(both, pieces=merged(both.pieces))
        else:
            kept.append(event)
    return kept


@final
@attrs.define(kw_only=True, eq=False)
class Watched:
    """
    A *machine*, how it *began*, and all there is to know of its run: what happened, was said, and where.

    *journal* is what happened and was not ignored, *states* are those it rested in: the first, and one after
    each entry of the journal. *requests* are all it ever made, by id, *cancelled* those it took back. *rows*
    are shared by all that were forked from one, *path* has its own in their order. *rebuild*, where given,
    makes it anew after every step.
    """

    machine: Machine
    began: Machine
    ledger: RunAuditor
    rebuild: Rebuild | None = None
    forked: bool = False
    rows: set[Row] = attrs.field(factory=set)
    path: list[Row] = attrs.field(factory=list)
    journal: list[Happening] = attrs.field(factory=list)
    effects: list[Effect] = attrs.field(factory=list)
    states: list[State] = attrs.field(factory=list)
    requests: dict[str, Request] = attrs.field(factory=dict)
    cancelled: set[str] = attrs.field(factory=set)

    @classmethod
    def of(cls, machine: Machine, rebuild: Rebuild | None = None) -> Watched:
        """A watch over *machine*, which has not begun; feed it nothing, and it begins."""
        return cls(machine=machine, began=copied(machine), ledger=RunAuditor.of(machine), rebuild=rebuild)

    def fork(self) -> Watched:
        """The same at the same place; what happens to one of the two, the other knows nothing of."""
        return Watched(
            machine=copied(self.machine),
            began=self.began,
            ledger=self.ledger.copy(),
            forked=True,
            rows=self.rows,
            path=list(self.path),
            journal=list(self.journal),
            requests=dict(self.requests),
            cancelled=set(self.cancelled),
        )

    def feed(self, event: Event | None) -> bool:
        """
        Give *event* to the machine, look at each transition it makes of it; whether it was applied.

        Raises `PromiseBroken` for what is wrong.
        """
        machine = self.machine
        state, memory = machine.state, machine.memory
        expected: tuple[Effect, ...] = ()
        faults: list[str] = []
        try:
            for now in steps(machine, event):
                faults += self._took(now)
                state, memory, expected = now.following, now.remembered, expected + now.effects
            effects = self._advanced(event, state, memory, expected)
            if (machine.state, machine.memory, effects) != (state, memory, expected):
                faults.append("the machine did something else than its transitions")
        except InternalError as error:
            faults.append(str(error))
            effects = ()
        return self._felt(event, effects, faults + waits_faults(machine.state))

    def step(self, event: Event) -> bool:
        """As `feed`, but only the one transition: no state is passed through, unless `Entered` is fed."""
        machine = self.machine
        try:
            now = step(machine.config, machine.state, machine.memory, event)
        except InternalError as error:
            self.broken([str(error)], event)
        faults = self._took(now)
        machine.state, machine.memory = now.following, now.remembered
        return self._felt(event, now.effects, faults)

    def _took(self, now: Transition) -> list[str]:
        """The faults of the step *now*."""
        if not ignored(now.effects):
            self.rows.add(now.row)
            self.path.append(now.row)
        return self.ledger.take(now)

    def _felt(self, event: Event | None, effects: tuple[Effect, ...], faults: list[str]) -> bool:
        """Whether *event*, which led to *effects*, was applied; raises where there are *faults*."""
        if faults:
            self.broken(faults, event)
        applied = not ignored(effects)
        if applied:
            self._note(effects)
            self._happened(event)
        return applied

    def _advanced(
        self, event: Event | None, state: State, memory: Memory, effects: tuple[Effect, ...]
    ) -> tuple[Effect, ...]:
        """Advance the machine; a forked one is put to where its transitions led, which is quicker."""
        if not self.forked:
            return self.machine.advance(event)
        self.machine.state, self.machine.memory = state, memory
        return effects

    def reconfigure(self, config: Config) -> None:
        """Somebody goes on with the run who was set up differently."""
        self.ledger.reconfigured(config)
        self.machine.reconfigure(config)
        self._happened(config)

    def _note(self, effects: tuple[Effect, ...]) -> None:
        self.effects += effects
        for effect in effects:
            if isinstance(effect, Request):
                self.requests[effect.id] = effect
            elif isinstance(effect, Cancel):
                self.cancelled.add(effect.request)

    def _happened(self, what: Happening | None) -> None:
        if what is not None:
            self.journal.append(what)
        self.states.append(self.machine.state)
        if self.rebuild is not None:
            again = self.rebuild(self.began, self.journal)
            if again != self.machine:
                self.broken([f"rebuilt it is {again}, played it was {self.machine}"])
            self.machine = again

    def broken(self, faults: list[str], event: Event | None = None) -> NoReturn:
        """Raise `PromiseBroken`: *faults* were found, when *event* happened where one did."""
        raise PromiseBroken(faults, self.began, [*self.journal, *([] if event is None else [event])])
