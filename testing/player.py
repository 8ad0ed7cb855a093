"""
The world as a player: it plays a machine with whole, weighted moves and checks every promise at every step.

Uniformly random events mostly do not apply. Whole answers, whole batches and a world that mostly does what it
was asked to do reach the corners. Everything a player decides comes from its `Choices`: a seed repeats a run,
and a shrinking source makes it short.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import attrs

from ..effects import Effect
from ..effects.errors import InternalError
from ..effects.events import (
    AgentFinished,
    ApprovalGiven,
    Approve,
    ApproveAlways,
    ControlReceived,
    Decision,
    Deny,
    Event,
    Failure,
    HookAnswered,
    Interrupted,
    ModelFinished,
    ModelStreamed,
    TimerFired,
    ToolFinished,
    ToolProgressed,
    UserSent,
    UserSteered,
    joined,
)
from ..effects.messages import Outcome, StopReason
from ..effects.pieces import Piece, merged
from ..effects.records import SetModel
from ..effects.requests import AskApproval, CallModel, Cancel, FireHook, Purpose, Request, RunAgent, RunTool
from ..effects.usage import Spent, Usage
from ..engine.machine import Machine
from ..engine.transition import ignored
from ..states.state import State
from . import replies, settings
from .choices import Choices, Seeded, chance, pick, weighted
from .invariants import waits_faults
from .ledger import Ledger
from .steps import steps
from .story import told

Row = tuple[str, type[Event], str]
Rebuild = Callable[[Machine, list[Event]], Machine]
"""Makes a machine again from how it began and the events that were applied to it."""

RARE = {"thinking.retry": 4, "compacting.summary": 4, "compacting.stopping": 4, "confirming.stopping": 2}
"""States that few runs get into: while one is there, so many times as much as usual happens to it."""

MODEL_CALLS = 14
"""After so many a played model only talks, so that every run ends."""

MOVES = 400
"""No run needs so many."""


@final
class PromiseBroken(AssertionError):
    """*faults* were found after *journal*, from how *machine* began; its text is a test to paste."""

    def __init__(self, faults: list[str], machine: Machine, journal: list[Event]) -> None:
        self.faults = faults
        self.machine = machine
        self.journal = journal
        super().__init__(faults, machine, journal)

    def __str__(self) -> str:
        return "\n".join([*self.faults, "", told(self.machine, self.journal)])


@final
@attrs.frozen(kw_only=True)
class Play:
    """
    A finished run: how it *began*, the events that were applied, all effects, the rows taken and the *end*.

    *states* are those the machine rested in: the first, and one after each event of the journal.
    """

    began: Machine
    journal: list[Event]
    effects: list[Effect]
    rows: frozenset[Row]
    states: list[State]
    end: Machine


def replay(began: Machine, journal: list[Event]) -> Machine:
    """The machine that *journal* leads to from how it *began*."""
    machine = Machine(began.config, began.state, began.memory)
    machine.advance()
    for event in journal:
        machine.advance(event)
    return machine


def play(seed: int, rebuild: Rebuild | None = None) -> Play:
    """The run that *seed* determines, from settings to end. Raises `PromiseBroken`."""
    return Player(Seeded(seed), rebuild).play()


def as_kept(journal: list[Event]) -> list[Event]:
    """*journal* as a store keeps it: neighbouring pieces of a stream in one event, merged."""
    kept: list[Event] = []
    for event in journal:
        last = kept[-1] if kept else None
        if isinstance(event, ModelStreamed) and isinstance(last, ModelStreamed):
            both = joined((last, event))
            kept[-1] = attrs.evolve(both, pieces=merged(both.pieces))
        else:
            kept.append(event)
    return kept


@final
class Player:
    """One world around one machine. *rebuild*, where given, replaces the machine after every step."""

    def __init__(
        self, choices: Choices, rebuild: Rebuild | None = None, machine: Machine | None = None
    ) -> None:
        self.choices = choices
        self.machine = machine or Machine.start(settings.config(choices), "the prompt", run="r")
        self.began = Machine(self.machine.config, self.machine.state, self.machine.memory)
        self.journal: list[Event] = []
        self._rebuild = rebuild
        self._ledger = Ledger.of(self.machine)
        self._requests: dict[str, Request] = {}
        self._cancelled: set[str] = set()
        self._streams: dict[str, tuple[replies.Speech, int]] = {}
        self._effects: list[Effect] = []
        self._rows: set[Row] = set()
        self._states: list[State] = []
        self._answered: list[Event] = []
        self._called = 0
        self._sent = 0
        self._now = 0.0
        self._hasty = weighted(choices, {2: 60, 12: 25, 0: 15})

    def play(self) -> Play:
        """Play to the end, and a little beyond it."""
        self._feed(None)
        moves = 0
        while not self.machine.done:
            self._move()
            moves += 1
            if moves > MOVES:
                self._broken([f"not done after {moves} moves"])
        for _ in range(2):
            self._stray()
        return Play(
            began=self.began,
            journal=self.journal,
            effects=self._effects,
            rows=frozenset(self._rows),
            states=self._states,
            end=self.machine,
        )

    # What is fed is checked

    def _feed(self, event: Event | None) -> tuple[Effect, ...]:
        """Give *event* to the machine and look at each transition it makes of it."""
        machine = self.machine
        state, memory = machine.state, machine.memory
        expected: tuple[Effect, ...] = ()
        faults: list[str] = []
        try:
            for now in steps(machine, event):
                faults += self._ledger.take(now)
                if not ignored(now.effects):
                    self._rows.add(now.row)
                state, memory, expected = now.following, now.remembered, expected + now.effects
            effects = machine.advance(event)
        except InternalError as error:
            journal = self.journal if event is None else [*self.journal, event]
            raise PromiseBroken([str(error)], self.began, journal) from error
        if (machine.state, machine.memory, effects) != (state, memory, expected):
            faults.append("the machine did something else than its transitions")
        self._keep(event, effects)
        if faults := faults + waits_faults(machine.state):
            self._broken(faults)
        return effects

    def _keep(self, event: Event | None, effects: tuple[Effect, ...]) -> None:
        self._effects += effects
        for effect in effects:
            if isinstance(effect, Request):
                self._requests[effect.id] = effect
            elif isinstance(effect, Cancel):
                self._cancelled.add(effect.request)
        if event is None or not ignored(effects):
            self._states.append(self.machine.state)
            if event is not None:
                self.journal.append(event)
            if self._rebuild is not None:
                again = self._rebuild(self.began, self.journal)
                if again != self.machine:
                    self._broken([f"rebuilt it is {again}, played it was {self.machine}"])
                self.machine = again

    def _broken(self, faults: list[str]) -> None:
        raise PromiseBroken(faults, self.began, self.journal)

    # What may happen next

    def _move(self) -> None:
        self._now += self.choices.below(3) / 2
        rare = RARE.get(self.machine.state.label, 1)
        haste = self._hasty * rare
        moves = {"answer": 72, "stray": 8, "progress": 7 * rare, "interrupt": haste, "prompt": 5 * rare}
        move = weighted(self.choices, moves)
        match move:
            case "answer":
                self._answer(self._requests[pick(self.choices, self.machine.state.open)])
            case "stray":
                self._stray()
            case "progress":
                request = pick(self.choices, self.machine.state.open)
                self._feed(ToolProgressed(at=self._now, request=request, text="half way"))
            case "interrupt":
                self._feed(Interrupted(at=self._now))
            case _:
                self._feed(self._prompt())

    def _prompt(self) -> UserSent:
        self._sent += 1
        return UserSent(at=self._now, id=f"sender-{self._sent}", text="and another thing")

    def _answer(self, request: Request) -> None:
        match request:
            case CallModel():
                event = self._spoken(request)
            case RunTool(id=name):
                event = self._worked(name)
            case AskApproval(id=name, tool=tool):
                event = ApprovalGiven(at=self._now, request=name, decision=self._decision(tool))
            case RunAgent(id=name):
                event = self._returned(name)
            case FireHook(id=name):
                event = HookAnswered(at=self._now, request=name)
            case _:
                self._now = max(self._now, request.due)
                event = TimerFired(at=self._now, request=request.id)
        if not isinstance(event, ModelStreamed):
            self._answered.append(event)
        if ignored(self._feed(event)):
            self._broken([f"{event} answers an open request and was ignored"])

    def _spoken(self, request: CallModel) -> Event:
        """The next part of a model's answer: some of its pieces, or its end."""
        said, before = self._streams.get(request.id) or (self._reply(request), 0)
        left = said.pieces[before:]
        if request.id in self._cancelled and chance(self.choices, 60):
            said, left = attrs.evolve(said, failure=Failure.CANCELLED), ()
        elif left and (said.failure is not None or chance(self.choices, 50)):
            count = 1 + self.choices.below(len(left))
            self._streams[request.id] = (said, before + count)
            return self._piece(request, before, left[:count])
        return said.end(request.id, self._now, left, self.choices)

    def _piece(self, request: CallModel, before: int, pieces: tuple[Piece, ...]) -> ModelStreamed:
        return ModelStreamed(
            at=self._now, request=request.id, before=before, count=len(pieces), pieces=pieces
        )

    def _reply(self, request: CallModel) -> replies.Speech:
        if request.purpose is Purpose.SUMMARY:
            return replies.summary(self.choices)
        self._called += 1
        return replies.reply(self.choices, request.tools, may_call=self._called < MODEL_CALLS)

    def _worked(self, request: str) -> ToolFinished:
        weights = {
            Outcome.OK: 70,
            Outcome.ERROR: 10,
            Outcome.CRASHED: 5,
            Outcome.TIMED_OUT: 5,
            Outcome.UNKNOWN: 2,
        }
        outcome = Outcome.CANCELLED if request in self._cancelled and chance(self.choices, 70) else None
        return ToolFinished(
            at=self._now,
            request=request,
            content=pick(self.choices, ("fine", "", "much to read " * 20)),
            outcome=outcome or weighted(self.choices, weights),
            seconds=self.choices.below(12) / 2,
        )

    def _returned(self, request: str) -> AgentFinished:
        return AgentFinished(
            at=self._now,
            request=request,
            content="found it",
            outcome=weighted(self.choices, {Outcome.OK: 80, Outcome.ERROR: 10, Outcome.CANCELLED: 10}),
            spent=Spent(
                turns=2, usage=Usage(input=40 * self.choices.below(20)), seconds=self.choices.below(20) / 2
            ),
        )

    def _decision(self, tool: str) -> Decision:
        match weighted(self.choices, {"yes": 45, "no": 30, "edited": 15, "always": 10}):
            case "yes":
                return Approve()
            case "edited":
                return Approve(arguments=replies.arguments(self.choices, tool))
            case "always":
                return ApproveAlways()
            case _:
                return Deny(message=pick(self.choices, ("", "not today")))

    def _stray(self) -> None:
        """Something late, repeated or out of place, which must change nothing."""
        event = pick(self.choices, self._strays())
        if not ignored(self._feed(event)):
            self._broken([f"{event} is out of place and was applied"])

    def _strays(self) -> list[Event]:
        now, state = self._now, self.machine.state
        waits = state.open[0] if state.open else "r-1"
        return [
            *self._answered[-3:],
            *[mail for mail in self.journal if isinstance(mail, UserSent)][-1:],
            ModelFinished(at=now, request="r-999", stop=StopReason.END_TURN, usage=Usage()),
            ModelStreamed(at=now, request=waits, before=999, count=1, pieces=()),
            ToolFinished(at=now, request="r-0", content=""),
            ApprovalGiven(at=now, request="", decision=Approve()),
            AgentFinished(at=now, request="r-0", content=""),
            TimerFired(at=now, request="r-0"),
            HookAnswered(at=now, request=waits),
            UserSteered(at=now, id="steer", text="left"),
            ControlReceived(at=now, id="control", change=SetModel(model="wire:other")),
        ]
