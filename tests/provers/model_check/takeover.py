"""
What must hold where whoever drives a run is lost, and somebody else takes it over.

Nothing that was asked for is forgotten, and nothing is asked for that was not: each open request is made
again, word for word and with the id that is its key, or is answered. Work is done again only where that is
safe, and of what is not nobody claims to know what it did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from provers.audit.endings import faulty
from provers.audit.permission_oracle import Case
from turnwheel.effects.config import SideEffect
from turnwheel.effects.events import (
    AgentFinished,
    Answer,
    CallInspected,
    Failure,
    HookAnswered,
    ModelFailed,
    ToolFinished,
    ToolLost,
)
from turnwheel.effects.findings import Finding
from turnwheel.effects.history import Rope
from turnwheel.effects.messages import Outcome
from turnwheel.effects.requests import (
    CallModel,
    Cancel,
    FireHook,
    InspectCall,
    Request,
    RunAgent,
    RunTool,
)
from turnwheel.engine.core.machine import Machine
from turnwheel.engine.core.recovery import recover
from turnwheel.states.state import Compacting, Streaming, Summary

if TYPE_CHECKING:
    from provers.audit.run_auditor import Booked, RunAuditor
    from provers.steps import Happening
    from turnwheel.effects.config import Config
    from turnwheel.states.state import State


@final
@attrs.frozen(kw_only=True)
class TakenOver:
    """What happens to a run that is taken over, in this order, and what is wrong with it."""

    happenings: tuple[Happening, ...]
    faults: list[str]


def taken_over(run: Booked, config: Config, at: float, *, drained: bool = False) -> TakenOver:
    """
    What happens when somebody who is set up as *config* takes *run* over at the time *at*; it stays.

    *drained*: whoever drove it has said that no tool was begun that is open, and no model asked.
    """
    machine, ledger = run.machine, run.ledger
    theirs = Machine(machine.config, machine.state, machine.memory)
    happenings: tuple[Happening, ...] = ()
    if not theirs.under(config):
        theirs.reconfigure(config)
        happenings = (config,)
    kinds = RunTool if _pieces(machine.state).count else RunTool | CallModel
    unbegun = [name for name, one in ledger.open.items() if drained and isinstance(one, kinds)]
    recovery = recover(theirs, at, frozenset(unbegun))
    again = {one.id: one for one in recovery.again if not isinstance(one, Cancel)}
    answers = {event.request: event for event in recovery.events if isinstance(event, Answer)}
    told = {one.request for one in recovery.again if isinstance(one, Cancel)}
    faults = [f"{event} answers nothing" for event in recovery.events if not isinstance(event, Answer)]
    if sorted([*again, *answers]) != sorted(ledger.open):
        faults.append(f"open were {sorted(ledger.open)}, made again {again}, answered {answers}")
    else:
        look = _Look(ledger, theirs, frozenset(unbegun))
        for name, request in ledger.open.items():
            faults += (
                look.again(request, again[name]) if name in again else look.answered(request, answers[name])
            )
        faults += look.stopped(told, set(again))
    return TakenOver(happenings=(*happenings, *recovery.events), faults=faults)


def _pieces(state: State) -> Rope:
    """What has come of an answer that is awaited in *state*."""
    match state:
        case Streaming(pieces=pieces) | Compacting(stage=Summary(pieces=pieces)):
            return pieces
        case _:
            return Rope.of()


def takeover_faults(run: Booked, config: Config, at: float) -> list[str]:
    """What is wrong where somebody who is set up as *config* takes *run* over at the time *at*."""
    return taken_over(run, config, at).faults + taken_over(run, config, at, drained=True).faults


@final
@attrs.frozen
class _Look:
    """
    At what becomes of the open requests of *ledger*, in the hands of whoever has *machine* now.

    Those that are *unbegun* nobody ever worked on.
    """

    ledger: RunAuditor
    machine: Machine
    unbegun: frozenset[str]

    def again(self, request: Request, again: Request) -> list[str]:
        """What is wrong with making *request* again, as *again*."""
        faults: list[str] = []
        match request, again:
            case CallModel(), _:
                faults.append(f"{request} is sent again, and what it had said is not dropped")
            case RunTool(), RunTool():
                if not self._repeatable(request) or self._stops(request) or self._unfit(request):
                    faults.append(f"{request} may have run, was stopped or is denied, and runs again")
                if again.again is not self._leaves_a_mark(request):
                    faults.append(f"that {request} may have run is {again.again} to who runs it again")
                again = attrs.evolve(again, timeout=request.timeout, again=request.again)
            case FireHook(), FireHook(names=names):
                if not set(names) <= set(request.names):
                    faults.append(f"{again} asks others than {request}")
                again = attrs.evolve(again, names=request.names)
            case InspectCall(), InspectCall():
                # Rules may be others by now.
                again = attrs.evolve(again, globs=request.globs)
            case RunAgent(), RunAgent():
                # Its tools and its mode are those of whoever goes on with its parent.
                again = attrs.evolve(again, tools=request.tools, mode=request.mode)
            case _:
                pass
        return faults if again == request else [*faults, f"{request} is made again as {again}"]

    def answered(self, request: Request, answer: Answer) -> list[str]:
        """What is wrong with answering *request*, which nobody works on any more, by *answer*."""
        config = self.machine.config
        match request, answer:
            case CallModel(), ModelFailed(failure=Failure.UNBEGUN):
                right = request.id in self.unbegun - self.ledger.cancelled
            case CallModel(), ModelFailed(failure=Failure.LOST):
                right = request.id not in self.unbegun - self.ledger.cancelled
            case FireHook(), HookAnswered(said=()):
                right = not {spec.name for spec in config.hooks if spec.hook is request.hook} & {
                    *request.names
                }
            case InspectCall(), CallInspected():
                right = config.tool(request.tool) is None
            case RunTool(), ToolLost():
                stays = self._stops(request) or self._unfit(request)
                right = not self._repeatable(request) or (self._leaves_a_mark(request) and stays)
            case RunTool(), ToolFinished(outcome=Outcome.CANCELLED):
                repeatable = self._repeatable(request) and not self._leaves_a_mark(request)
                right = repeatable and self._stops(request)
            case RunAgent(), AgentFinished(outcome=Outcome.UNKNOWN, spent=spent):
                gone = config.child(request.agent) is None
                right = gone and spent == self.ledger.purse.told[request.id]
            case _:
                right = False
        return [] if right else [f"{request} is answered by {answer}, and nobody knows that"]

    def stopped(self, told: set[str], again: set[str]) -> list[str]:
        """What is wrong with telling those who are *told* to stop, of those who are at work *again*."""
        due = {name for name in again & self.ledger.cancelled if isinstance(self.ledger.open[name], RunAgent)}
        late = {name for name in told - due if not self._stops(self.ledger.open[name])}
        return [f"to stop were {due}, told are {told}"] if due - told or late else []

    def _repeatable(self, request: RunTool) -> bool:
        """Whether *request* may be done, perhaps for the second time."""
        spec = self.machine.config.tool(request.tool)
        safe = spec is not None and spec.side_effect is not SideEffect.UNSAFE
        return safe or (spec is not None and request.id in self.unbegun)

    def _leaves_a_mark(self, request: RunTool) -> bool:
        """Whether *request* may have done something in the world by now."""
        spec = self.machine.config.tool(request.tool)
        reads = spec is not None and spec.side_effect is SideEffect.READ_ONLY
        return not reads and request.id not in self.unbegun

    def _unfit(self, request: RunTool) -> bool:
        """Whether *request* may have done something, and its tool takes other arguments by now."""
        entry = self.ledger.calls.calls[request.call]
        return self._leaves_a_mark(request) and faulty(entry, (entry.name,), self.machine.config)

    def _stops(self, request: Request) -> bool:
        """Whether *request* was told to stop, or is denied by now."""
        if request.id in self.ledger.cancelled or not isinstance(request, RunTool | RunAgent):
            return True
        entry = self.ledger.calls.calls[request.call]
        spec = self.machine.config.tool(entry.name)
        memory = self.machine.memory
        if spec is None:
            return True
        case = Case(
            config=self.machine.config,
            spec=spec,
            given=entry.arguments,
            mode=memory.session.mode,
            granted=memory.session.granted,
            finding=entry.known,
        )
        # What may be denied was asked about, unless it was never looked at.
        return case.denied or (case.doubted and entry.known == Finding())
