"""
The search: breadth first over the real machine, to every place that a small world can get to.

A place is a machine and what its ledger knows of it. Places with equal keys are one, and looked at once; see
`keys` for what a key says and why no more. Where a way leads to a place that is known already, both are
compared by what follows from them, so that a key that says too little is found out: all of them in a small
world, and the first two hundred and then every so often in a larger one.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, final

import attrs

from provers.audit.run_auditor import RunAuditor
from provers.invariants import waits_faults
from provers.model_check.keys import key
from provers.model_check.snapshots import snapshot_faults
from provers.model_check.takeover import taken_over, takeover_faults
from provers.model_check.ways import AT, events
from provers.simulation.absorbing import absorbed, absorbed_faults
from provers.simulation.story import Claim
from provers.simulation.watched import PromiseBroken, Row, happen
from provers.steps import Happening, restore_from_snapshot
from turnwheel.effects.config import Config
from turnwheel.effects.errors import InternalError
from turnwheel.effects.events import Answer, Entered, Event
from turnwheel.engine.core.machine import Machine, ignored
from turnwheel.engine.inspect.transitions import step, steps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from provers.audit.run_auditor import Booked
    from provers.model_check.worlds import World
    from turnwheel.engine.inspect.transitions import Transition

ALL, COMPARED = 200, 50
"""Ways that lead to a known place are compared with the way that led there first: so many, then one of 50."""

Way = tuple[Happening, ...]
"""What happens between one place and the next: an event, or all that a take-over brings about."""


@final
@attrs.frozen(eq=False)
class Trail:
    """The way *how* behind the trail *before*: *length* ways from the beginning."""

    before: Trail | None = None
    how: Way = ()
    length: int = 0

    @property
    def journal(self) -> list[Happening]:
        """All that happened on it."""
        trail, backwards = self, list[Way]()
        while trail.before is not None:
            backwards.append(trail.how)
            trail = trail.before
        return [one for how in reversed(backwards) for one in how]


@final
@attrs.frozen(eq=False)
class At:
    """A *machine* and its *ledger*, neither of which is changed any more, at the end of a *trail*."""

    machine: Machine
    ledger: RunAuditor
    trail: Trail


@final
@attrs.define(eq=False)
class Place:
    """
    Somewhere that a world can get to, on a *trail* than which none is shorter; *done*: a run is over there.

    *following* are the places behind it, by number, and whether nobody has a hand in it but who answers.
    """

    trail: Trail
    done: bool
    following: list[tuple[int, bool]] = attrs.field(factory=list)


@final
@attrs.frozen(kw_only=True)
class Proof:
    """
    What a search of the world *name* saw: so many *states*, and *ways* between them.

    *length* is how far the last of them is from the beginning. *rows* of the table were taken, so many events
    *absorbed*, places *taken_over*, and places that were known already *compared*.
    """

    name: str
    states: int
    ways: int
    length: int
    rows: frozenset[Row]
    absorbed: int
    taken_over: int
    compared: int


Key = Callable[["Booked", "World"], bytes]
"""When two places are the same one: see `keys`."""


def search(world: World, key: Key = key) -> Proof:
    """
    Every place that *world* can get to, of which those with the same *key* are one.

    Raises `PromiseBroken` with the shortest way to where a promise does not hold.
    """
    return _Search(world, key).all()


@final
class _Search:
    """One search, while it goes on."""

    def __init__(self, world: World, key: Key) -> None:
        self._world = world
        self._key = key
        began = Machine.start(world.config, world.prompt, run="r")
        self._began = Machine(began.config, began.state, attrs.evolve(began.memory, earlier=world.earlier))
        self._places: list[Place] = []
        self._known: dict[bytes, int] = {}
        self._waiting: deque[tuple[Place, At]] = deque()
        self._twins: list[tuple[At, Place]] = []
        self._rows: set[Row] = set()
        self._met = self._absorbed = self._taken_over = 0

    def all(self) -> Proof:
        """Go everywhere."""
        began = self._began
        start = At(Machine(began.config, began.state, began.memory), RunAuditor.of(began), Trail())
        self._arrive(start if self._world.by_hand else self._on(start, None))
        while self._waiting:
            self._leave(*self._waiting.popleft())
        for twin, known in self._twins:
            self._compare(twin, known)
        self._all_can_end(by_answers=False)
        self._all_can_end(by_answers=True)
        return Proof(
            name=self._world.name,
            states=len(self._places),
            ways=sum(len(place.following) for place in self._places),
            length=max(place.trail.length for place in self._places),
            rows=frozenset(self._rows),
            absorbed=self._absorbed,
            taken_over=self._taken_over,
            compared=len(self._twins),
        )

    # From one place to the next

    def _arrive(self, run: At) -> int:
        """The number of the place where *run* is, which is looked at if it is new."""
        number = self._known.setdefault(self._key(run, self._world), len(self._places))
        if number == len(self._places):
            place = Place(run.trail, run.machine.done)
            self._places.append(place)
            self._waiting.append((place, run))
            return number
        self._met += 1
        if self._met <= ALL or self._met % COMPARED == 0:
            self._twins.append((run, self._places[number]))
        return number

    def _leave(self, place: Place, run: At) -> None:
        """Look at *place*, where *run* is, and take every way from it."""
        again = self._looked_at(run)
        for how in self._from(again):
            answers = all(isinstance(one, Answer | Entered) for one in how)
            place.following.append((self._arrive(self._go(again, how)), answers))

    def _from(self, run: At) -> Iterator[Way]:
        """Every way that leads on from where *run* is."""
        for event in events(run, self._world):
            yield (event,)
        if not self._world.crashes or run.machine.done:
            return
        mine = run.machine.config
        for config in (mine, *(self._world.others if mine == self._world.config else ())):
            for drained in (False, True):
                over = taken_over(run, config, AT, drained=drained)
                self._taken_over += 1
                if over.faults:
                    raise self._broken(over.faults, run, claim=Claim(takeover_faults, (config, AT)))
                if over.happenings and not self._world.by_hand:
                    yield over.happenings

    def _go(self, run: At, how: Way) -> At:
        """Where *how* leads from *run*, which stays as it is."""
        there = run
        for index, what in enumerate(how):
            before = Trail(run.trail, how[:index], run.trail.length)
            there = self._on(At(there.machine, there.ledger, before), what)
        return At(there.machine, there.ledger, Trail(run.trail, how, run.trail.length + 1))

    def _on(self, run: At, what: Happening | None) -> At:
        """Where *what* leads from *run*; nothing: it begins."""
        machine, ledger = run.machine, run.ledger.copy()
        following = Machine(machine.config, machine.state, machine.memory)
        faults: list[str] = []
        if isinstance(what, Config):
            happen(following, what)
            ledger.reconfigured(what)
        else:
            try:
                for now in self._steps(machine, what):
                    faults += self._took(now, ledger)
                    following.state, following.memory = now.following, now.remembered
            except InternalError as error:
                faults.append(str(error))
        if not self._world.by_hand:
            faults += waits_faults(following.state)
        if faults:
            raise self._broken(faults, run, what)
        return At(following, ledger, run.trail)

    def _steps(self, machine: Machine, event: Event | None) -> Iterable[Transition]:
        if self._world.by_hand and event is not None:
            return [step(machine.config, machine.state, machine.memory, event)]
        return steps(machine, event)

    def _took(self, now: Transition, ledger: RunAuditor) -> list[str]:
        """The faults of the step *now*, in the eyes of *ledger*; whatever is done to a world applies."""
        faults = ledger.take(now)
        if ignored(now.effects):
            return [*faults, f"{now.event} was ignored in {now.state.label}"]
        self._rows.add(now.row)
        return faults

    # What holds at each place

    def _looked_at(self, run: At) -> At:
        """*run*, written down and read again, after a look at whether what has to hold holds where it is."""
        for event in absorbed(run):
            self._absorbed += 1
            if faults := absorbed_faults(run, event):
                raise self._broken(faults, run, claim=Claim(absorbed_faults, (event,)))
        machine = restore_from_snapshot(run.machine)
        if machine != run.machine:
            raise self._broken(snapshot_faults(run), run, claim=Claim(snapshot_faults))
        # From here on with what was written down: whatever that does otherwise, the ledger sees.
        return At(machine, run.ledger, run.trail)

    # What holds of all places together

    def _compare(self, twin: At, known: Place) -> None:
        """Whether the same follows from *twin* as from the *known* place with an equal key."""
        reached = [self._known.get(self._key(self._go(twin, how), self._world)) for how in self._from(twin)]
        mine, theirs = Counter(reached), Counter([number for number, _ in known.following])
        if mine != theirs:
            fault = f"what follows is not what follows from {known.trail.journal}, which has the same key"
            raise self._broken([fault], twin)

    def _all_can_end(self, *, by_answers: bool) -> None:
        """From every place there is a way to the end; *by_answers*: one on which nobody interrupts."""
        before: dict[int, list[int]] = {}
        for number, place in enumerate(self._places):
            for following, answers in place.following:
                if answers or not by_answers:
                    before.setdefault(following, []).append(number)
        ending = [number for number, place in enumerate(self._places) if place.done]
        seen = set(ending)
        while ending:
            for number in before.get(ending.pop(), ()):
                if number not in seen:
                    seen.add(number)
                    ending.append(number)
        for number, place in enumerate(self._places):
            if number not in seen:
                claim = Claim(ended_faults)
                raise self._told(["no way leads to the end from here"], place.trail.journal, claim)

    def _broken(
        self, faults: list[str], run: At, last: Happening | None = None, claim: Claim | None = None
    ) -> PromiseBroken:
        """*faults* were found where *run* is: after *last*, if that broke a promise, or by *claim*."""
        return self._told(faults, [*run.trail.journal, *([] if last is None else [last])], claim)

    def _told(self, faults: list[str], journal: list[Happening], claim: Claim | None) -> PromiseBroken:
        return PromiseBroken(faults, self._began, journal, claim, by_hand=self._world.by_hand)


def ended_faults(run: Booked) -> list[str]:
    """Whether *run* is over, which it should be able to be where a search found no way."""
    return [] if run.machine.done else [f"no way leads to the end from {run.machine}"]
