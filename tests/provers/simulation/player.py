"""
The world as a player: it plays a machine with whole, weighted moves and checks every promise at every step.

Uniformly random events mostly do not apply. Whole answers, whole batches and a world that mostly does what it
was asked to do reach the corners; where a run gets to a state that few get to, the player takes some glances
at what might follow from there before it goes on. Everything it decides comes from its `Choices`: a seed
repeats a run, and a shrinking source makes it short.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import final

import attrs

from provers.audit.settings import inherited_faults
from provers.choices import (
    Choices,
    Seeded,
    chance,
    pick,
    weighted,
)
from provers.simulation import (
    findings,
    habits,
    hooking,
    outputs,
    replies,
    settings,
)
from provers.simulation.absorbing import absorbed_faults
from provers.simulation.people import People
from provers.simulation.plans import (
    CRASHES,
    GLANCE,
    HASTE,
    MIXED,
    MOODS,
    PLANS,
    PLANS_THERE,
    RARE,
    USUAL,
    WANTED,
)
from provers.simulation.story import Claim
from provers.simulation.strays import stray
from provers.simulation.watched import (
    PromiseBroken,
    Rebuild,
    Row,
    Watched,
)
from provers.steps import Happening
from turnwheel.effects import Effect
from turnwheel.effects.config import Config, SideEffect, Steering
from turnwheel.effects.events import (
    AgentFinished,
    ApprovalGiven,
    Approve,
    CallInspected,
    Decision,
    Deny,
    Event,
    Failure,
    HookAnswered,
    InstructionsRead,
    Interrupted,
    ModelStreamed,
    OutputDecoded,
    Post,
    TimerFired,
    ToolFinished,
)
from turnwheel.effects.history import Piece
from turnwheel.effects.hooks import HookAnswer, HookSaid
from turnwheel.effects.permissions import PermissionMode, Verdict
from turnwheel.effects.records import SetMode
from turnwheel.effects.requests import (
    AskApproval,
    CallModel,
    DecodeOutput,
    FireHook,
    InspectCall,
    Purpose,
    ReadInstructions,
    Request,
    RunAgent,
    RunTool,
    SetTimer,
)
from turnwheel.effects.usage import Spent
from turnwheel.engine.core.machine import Machine, calls_at
from turnwheel.engine.core.recovery import recover
from turnwheel.engine.journal.entries import RunOpened
from turnwheel.states.batch.batch import Running, Settled
from turnwheel.states.state import State, Streaming

WORDS: Mapping[str, Decision] = {"yes": Approve(), "no": Deny()}
NO = HookAnswer(verdict=Verdict.DENY, interrupt=True)
STEERS = {"hurry": Steering.NOW, "later": Steering.WHEN_DONE}
MODES = {
    "ask again": SetMode(mode=PermissionMode.DEFAULT),
    "plan only": SetMode(mode=PermissionMode.PLAN),
}
FIRST: Mapping[str, type[Request] | UnionType] = {
    "hook": FireHook,
    "end": FireHook,
    "work": RunTool,
    "spend": RunTool | RunAgent,
    "squander": RunAgent,
    "late": SetTimer,
    "yes": AskApproval,
    "no": AskApproval,
    "look": InspectCall,
    "caught": InspectCall,
    "last words": CallModel,
}
"""What is answered first where a plan says so."""

ANSWERS = {"answer", *FIRST}
"""Moves that answer what is open."""

MUCH = 100.0
"""More seconds than any limit allows."""

MODEL_CALLS = 14
"""After so many a played model only talks, so that every run ends."""

MOVES = 400
"""No run needs so many."""


@final
@attrs.frozen(kw_only=True)
class Play:
    """
    A finished run: how it *began*, what happened to it, all effects, the *path* of rows taken and the *end*.

    *rows* are also those that it might have taken.

    *states* are those the machine rested in: the first, and one after each entry of the journal.
    """

    began: Machine
    journal: list[Happening]
    effects: list[Effect]
    rows: frozenset[Row]
    path: list[Row]
    states: list[State]
    end: Machine


def play(seed: int, rebuild: Rebuild | None = None, kind: str = "") -> Play:
    """
    The run that *seed* determines, from settings to end, in a world of this *kind*, or any.

    Raises `PromiseBroken`.
    """
    choices = Seeded(seed)
    return Player(choices, rebuild, config=settings.config(choices, kind)).play()


def opened(
    config: Config, posts: tuple[Post, ...], before: Machine | None = None, run: str = "r", session: str = ""
) -> Machine:
    """The machine of a run under *config* that begins with what was posted, over the run *before* it."""
    return Machine.open(RunOpened(at=0.0, run=run, config=config), before, posts, session=session)


@final
class Player:
    """
    One world around one machine, under *config* or any settings, over the run *before* it if there was one.

    *rebuild*, where given, replaces the machine after every step. *session* is what the run belongs to.
    """

    def __init__(
        self,
        choices: Choices,
        rebuild: Rebuild | None = None,
        *,
        config: Config | None = None,
        before: Machine | None = None,
        run: str = "r",
        session: str = "",
    ) -> None:
        self.choices = choices
        self.config = settings.config(choices) if config is None else config
        self.people = People(choices, run)
        self.posts = self.people.beginning()
        machine = opened(self.config, self.posts, before, run, session)
        self._run = Watched.of(machine, rebuild)
        if before is not None and (faults := inherited_faults(before, self.posts, machine)):
            self._run.broken(faults)
        self._streams: dict[str, tuple[replies.Speech, int]] = {}
        self._called = 0
        self._now = 0.0
        self._haste = HASTE[choices.below(len(HASTE))]
        self._habit = habits.habit(choices, self.config)
        self._mood = MOODS[weighted(choices, {name: weight for name, (weight, _) in MOODS.items()})][1]

    def play(self) -> Play:
        """Play to the end, and a little beyond it."""
        self._run.feed(None)
        moves = 0
        while not self._run.machine.done:
            for _ in range(self._curiosity()):
                self._glance()
            self._move({**USUAL, **self._mood})
            moves += 1
            if moves > MOVES:
                self._run.broken([f"not done after {moves} moves"])
        for _ in range(2):
            self._stray()
        run = self._run
        return Play(
            began=run.began,
            journal=run.journal,
            effects=run.effects,
            rows=frozenset(run.rows),
            path=run.path,
            states=run.states,
            end=run.machine,
        )

    # What may happen next

    def _curiosity(self) -> int:
        """How many glances are taken at what may follow: more where calls are in many phases at once."""
        state = self._run.machine.state
        wanted = isinstance(state, Streaming) and self._run.machine.config.output is not None
        whole, rest = divmod(RARE.get(state.label, 0) + WANTED * wanted, 100)
        whole += self._doubtful
        if calls := calls_at(state):
            whole += MIXED[min(len({type(call.phase) for call in calls} - {Settled}), 3)]
        return whole + chance(self.choices, rest)

    @property
    def _doubtful(self) -> bool:
        """Whether a tool is at work that must not run twice unknowingly."""
        machine = self._run.machine
        at_work = [call for call in calls_at(machine.state) if isinstance(call.phase, Running)]
        specs = [machine.config.tool(call.call.name) for call in at_work]
        return any(spec is None or spec.side_effect is SideEffect.UNSAFE for spec in specs)

    def _glance(self) -> None:
        """Look at what follows from a few moves, every promise checked, and be back as if nothing was."""
        here, streams, now, called = self._run, dict(self._streams), self._now, self._called
        self._run = here.fork()
        there = PLANS_THERE.get(here.machine.state.label, {})
        for move in weighted(self.choices, {**PLANS, **there, **(CRASHES if self._doubtful else {})}):
            if not self._run.machine.done:
                self._move({move: 1} if move else GLANCE)
        self._run, self._streams, self._now, self._called = here, streams, now, called

    def _move(  # noqa: C901, PLR0912  # one branch for each move
        self, weights: Mapping[str, int]
    ) -> None:
        """Make one move, as likely as *weights* say."""
        self._now += self.choices.below(3) / 2
        run, at = self._run, self._now
        # Each steer makes a run longer.
        long = self._called >= MODEL_CALLS and len(weights) > 1
        match weighted(self.choices, {**weights, "steer": 0} if long else weights):
            case "yes":
                self._answer(run.requests[next(iter(self._ready("yes")))], "yes")
            case how if how in ANSWERS:
                self._answer(run.requests[weighted(self.choices, self._ready(how))], how)
            case "no to all" | "look at all" as how:
                one = how.split()[0]
                while asked := self._ready(one, others=False):
                    self._answer(run.requests[next(iter(asked))], one)
            case "stray":
                self._stray()
            case "progress":
                request = run.requests[pick(self.choices, run.machine.state.open)]
                run.feed(replies.progressed(self.choices, request, at))
            case "interrupt":
                run.feed(Interrupted(at=at, aborted=int(at) % 3 == 0))
            case "steer":
                run.feed(self.people.steer(at))
            case "hurry" | "later" as how:
                run.feed(attrs.evolve(self.people.steer(at), how=STEERS[how]))
            case "control":
                run.feed(self.people.control(at))
            case "cancel" | "give up" as how:
                run.feed(self.people.cancel(at, run.machine.state, first=how == "give up"))
            case "withdraw":
                run.feed(self.people.withdraw(at, [mail.id for mail in run.machine.memory.session.mail]))
            case "reconfigure":
                run.reconfigure(settings.changed(self.choices, run.machine.config))
            case "ask again" | "plan only" as how:
                run.feed(self.people.change(at, MODES[how]))
            case "crash":
                self._crash()
            case _ as change if change in settings.CHANGES:
                run.reconfigure(settings.CHANGES[change](run.machine.config))
            case _:
                run.feed(self.people.prompt(at))

    def _crash(self) -> None:
        """
        The process is lost, or handed over what it had not begun; the next one may be set up differently.
        """
        run, state = self._run, self._run.machine.state
        if chance(self.choices, 30):
            run.reconfigure(settings.changed(self.choices, run.machine.config))
        # Now and then nothing of what was open had begun.
        unbegun = frozenset(state.open if self._now % 5 == 0 and not self._heard_of(state) else ())
        for event in recover(run.machine, self._now, unbegun).events:
            if not run.feed(event):
                run.broken([f"{event} is what became of an open request and was ignored"])

    def _heard_of(self, state: State) -> bool:
        """Whether anything was heard of what is open in *state*, so that somebody has begun it."""
        return any(name in self._streams for name in state.open)

    def _ready(self, how: str, *, others: bool = True) -> dict[str, int]:
        """
        What is open, and how soon it is answered; what can be answered *how* it is wanted, before *others*.
        """
        open_ = [self._run.requests[name] for name in self._run.machine.state.open]
        wanted = [one for one in open_ if isinstance(one, FIRST.get(how, ()))]
        if wanted or not others:
            return {request.id: 1 for request in wanted}
        return {request.id: self._haste.get(type(request), 1) for request in open_}

    def _stray(self) -> None:
        """Something late, repeated or out of place, which must change nothing."""
        run = self._run
        open_ = [run.requests[name] for name in run.machine.state.open]
        event = stray(self.choices, open_, run.requests, run.journal, self._now)
        if run.feed(event):
            fault = f"{event} is out of place and was applied"
            raise PromiseBroken([fault], run.began, run.journal[:-1], Claim(absorbed_faults, (event,)))

    # What the world answers

    def _answer(self, request: Request, how: str) -> None:
        if isinstance(request, SetTimer):
            self._now = max(self._now, request.due)
        event = self._spoken(request, how) if isinstance(request, CallModel) else self._done(request)
        if isinstance(event, ApprovalGiven) and how in WORDS:
            event = attrs.evolve(event, decision=WORDS[how])
        elif isinstance(event, HookAnswered) and how == "end":
            event = attrs.evolve(
                event, said=tuple([HookSaid(name=said.name, answer=NO) for said in event.said])
            )
        elif isinstance(event, CallInspected) and how == "caught":
            event = attrs.evolve(event, finding=findings.caught(event.finding))
        elif isinstance(event, ToolFinished) and how == "spend":
            event = attrs.evolve(event, seconds=MUCH)
        elif isinstance(event, AgentFinished) and how in {"spend", "squander"}:
            event = attrs.evolve(event, spent=Spent(seconds=MUCH))
        if not self._run.feed(event):
            self._run.broken([f"{event} answers an open request and was ignored"])

    def _done(  # noqa: PLR0911  # one return for each kind of request
        self,
        request: RunTool
        | AskApproval
        | RunAgent
        | FireHook
        | InspectCall
        | ReadInstructions
        | DecodeOutput
        | SetTimer,
    ) -> Event:
        """The answer to *request*."""
        choices, at, name = self.choices, self._now, request.id
        match request:
            case RunTool():
                return replies.worked(choices, name, at, cancelled=name in self._run.cancelled)
            case AskApproval(tool=tool):
                return ApprovalGiven(at=at, request=name, decision=self.people.decision(tool), by="they")
            case RunAgent():
                return replies.returned(choices, request, at)
            case FireHook():
                return HookAnswered(at=at, request=name, said=hooking.said(choices, request))
            case InspectCall():
                return CallInspected(at=at, request=name, finding=findings.found(choices, request))
            case DecodeOutput():
                fault = weighted(choices, {"": 75, "it is too small": 25})
                return OutputDecoded(at=at, request=name, fault=fault)
            case ReadInstructions():
                faults = pick(choices, ((), ("not there",)))
                text = pick(choices, ("", "be brief"))
                return InstructionsRead(at=at, request=name, text=text, faults=faults)
            case SetTimer():
                return TimerFired(at=at, request=name)

    def _spoken(self, request: CallModel, how: str) -> Event:
        """The next part of a model's answer: some of its pieces, or its end; or its last words at once."""
        if how == "last words" and request.id not in self._streams:
            said = outputs.last_words(self.choices, request)
            return said.end(request.id, self._now, said.pieces, self.choices)
        said, before = self._streams.get(request.id) or (self._reply(request), 0)
        left = said.pieces[before:]
        if request.id in self._run.cancelled and chance(self.choices, 60):
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
        others = tuple([one.name for one in self._run.machine.config.tools if one.name not in request.tools])
        may_call = self._called < MODEL_CALLS
        offered = tuple([name for name in request.tools if name != "output"])
        said = replies.reply(self.choices, offered, others, self._habit, may_call=may_call)
        return outputs.with_output(self.choices, said, request)
