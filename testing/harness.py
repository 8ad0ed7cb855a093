"""A machine stepped by hand, in the words of a test: what is said, ended, answered, interrupted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any, TypeVar, final

import attrs

from ..effects import Effect
from ..effects.config import (
    Approval,
    ChildSpec,
    Config,
    ModelSpec,
    SideEffect,
    Steering,
    ToolKind,
    ToolSpec,
)
from ..effects.errors import InternalError
from ..effects.events import (
    AgentFinished,
    AgentProgressed,
    ApprovalGiven,
    CallCancelled,
    ControlReceived,
    Decision,
    Entered,
    Event,
    Failure,
    HookAnswered,
    InstructionsRead,
    Interrupted,
    ModelFailed,
    ModelFinished,
    ModelStreamed,
    TimerFired,
    ToolFinished,
    ToolLost,
    UserSent,
    UserSteered,
)
from ..effects.hooks import HookAnswer, HookSaid
from ..effects.messages import Outcome, StopReason
from ..effects.notices import CallJudged
from ..effects.pieces import CallPiece, Piece, TextPiece
from ..effects.records import Change
from ..effects.requests import FireHook, RunTool, SetTimer
from ..effects.usage import Spent, Usage
from ..engine.machine import MAX_ENTERED, Machine
from ..engine.transition import advance, ignored
from ..states.batch.batch import (
    Asked,
    Batch,
    Call,
    Running,
    RunningChild,
    Settled,
    Stopping,
    Timer,
)
from ..states.context import Memory
from ..states.state import Done, State

# Throwing a machine away and restoring it, as a process that ends and another one do.


KEY = bytes(range(32))
"""A key for tests, which is no secret."""


def restore_from_snapshot(machine: Machine) -> Machine:
    """*machine*, written down, signed and read, over the history and the settings that it goes with."""
    return Machine.restore(machine.snapshot(KEY), machine.config, machine.memory.history, KEY)


# One transition with all that surrounds it: what the checks look at.


Happening = Event | Config
"""What can happen to a played machine: an event, or that it is gone on with under other settings."""


@final
@attrs.frozen(kw_only=True)
class Step:
    """One transition under *config*: what was, what happened, what is and what is to be done."""

    config: Config
    state: State
    memory: Memory
    event: Event
    following: State
    remembered: Memory
    effects: tuple[Effect, ...]

    @property
    def row(self) -> tuple[str, type[Event], str]:
        """The row of the table this is."""
        return self.state.label, type(self.event), self.following.label


def step(config: Config, state: State, memory: Memory, event: Event) -> Step:
    """The transition from *state* on *event*."""
    following, remembered, effects = advance(config, state, memory, event)
    return Step(
        config=config,
        state=state,
        memory=memory,
        event=event,
        following=following,
        remembered=remembered,
        effects=effects,
    )


def remember(memory: Memory, **changes: Any) -> Memory:  # noqa: ANN401  # of all types that its fields have
    """*memory* with these fields changed, in whichever of its groups they are."""
    groups: dict[str, Any] = {}
    for name in ("session", "conversation", "progress"):
        group = getattr(memory, name)
        mine = {field.name for field in attrs.fields(type(group))} & changes.keys()
        groups[name] = attrs.evolve(group, **{each: changes.pop(each) for each in mine})
    return attrs.evolve(memory, **groups, **changes)


def steps(machine: Machine, event: Event | None) -> Iterator[Step]:
    """
    The transitions that `machine.advance(event)` would make; the machine stays as it is.

    That of *event*, and those of the states that are passed through behind it.

    Raises `InternalError` where a machine would.
    """
    state, memory, following = machine.state, machine.memory, event
    for _ in range(MAX_ENTERED):
        if following is None and (state.open or isinstance(state, Done)):
            return
        now = step(machine.config, state, memory, following or Entered(at=0.0 if event is None else event.at))
        yield now
        state, memory, following = now.following, now.remembered, None
    msg = f"{MAX_ENTERED} states in a row waited for nothing, last {state.label}"
    raise InternalError(msg)


def stopping(state: State) -> Stopping:
    """How much of its work *state* is giving up."""
    found: Stopping = getattr(getattr(state, "batch", state), "stopping", Stopping.NONE)
    return found


E = TypeVar("E")

MODEL = ModelSpec(name="wire:model")
"""A model for tests: no price, the usual window."""

USED = Usage(input=10, output=5)
"""What an answer uses where nothing else is said."""

PATH = '{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}'
"""The schema of a tool that takes a path, and takes anything else besides."""

TOOLS = (
    ToolSpec(name="look", schema=PATH, side_effect=SideEffect.READ_ONLY),
    ToolSpec(name="peek", schema=PATH, side_effect=SideEffect.READ_ONLY, approval=Approval.ALWAYS),
    ToolSpec(name="write", schema=PATH),
    ToolSpec(name="edit", schema=PATH, side_effect=SideEffect.IDEMPOTENT, edits=True),
    ToolSpec(name="note", schema=PATH, side_effect=SideEffect.IDEMPOTENT, approval=Approval.NEVER),
    ToolSpec(name="send", kind=ToolKind.AGENT, approval=Approval.NEVER),
    ToolSpec(name="hire", kind=ToolKind.AGENT),
)
"""One tool of each kind: a read, one that asks, a write, an edit, one that never asks, two for children."""

CHILDREN = (ChildSpec(name="kid"), ChildSpec(name="heir", tools=("write", "send", "nowhere")))
"""A child with its parent's reads, and one that names its tools."""

_CONFIG = Config(model=MODEL, tools=TOOLS, children=CHILDREN)


def config(**settings: Any) -> Config:  # noqa: ANN401  # the fields of `Config`, which checks them
    """A configuration with a tool of each kind, and these *settings* in place of what it would have."""
    return attrs.evolve(_CONFIG, **settings)


def call(index: int, tool: str, /, **arguments: object) -> CallPiece:
    """The whole call number *index* of an answer."""
    return CallPiece(index, f"wire-{index}", tool, json.dumps(arguments))


def calls(*tools: str, path: str = "a") -> list[CallPiece]:
    """Whole calls of *tools*, in their order, with arguments that fit any of `TOOLS`."""
    return [call(index, tool, path=path, agent="kid", prompt="go") for index, tool in enumerate(tools)]


@final
class MachineHarness:
    """
    A machine that has begun, and the world around it in your hands.

    It is under *settings* and begins with *prompt*, or is the machine that was given in their place. Every
    method feeds one event, a second after the one before, and gives its effects. `effects` are the last ones,
    `told` all of them; `rows` are the ways through the table that the last event led.
    """

    def __init__(self, settings: Config | Machine = _CONFIG, prompt: str = "hello") -> None:
        if isinstance(settings, Config):
            settings = Machine.start(settings, prompt, run="r")
        self.machine = settings
        self.now = 0.0
        self.rows = [step.row for step in steps(self.machine, None)]
        self.effects: tuple[Effect, ...] = self.machine.advance()
        self.told: list[Effect] = list(self.effects)

    # What happens

    def feed(self, event: Event) -> tuple[Effect, ...]:
        """*event* happens."""
        self.now = max(self.now, event.at)
        self.rows = [step.row for step in steps(self.machine, event) if not ignored(step.effects)]
        self.effects = self.machine.advance(event)
        self.told += self.effects
        return self.effects

    def stream(self, *pieces: Piece) -> tuple[Effect, ...]:
        """The model says *pieces*, and has not finished."""
        state = self.machine.state
        before = getattr(state, "pieces", getattr(getattr(state, "stage", None), "pieces", None))
        return self.feed(
            ModelStreamed(
                at=self._tick(),
                request=state.open[0],
                before=0 if before is None else before.count,
                count=len(pieces),
                pieces=pieces,
            )
        )

    def say(
        self, *pieces: Piece | str, stop: StopReason | None = None, usage: Usage = USED
    ) -> tuple[Effect, ...]:
        """The model answers with *pieces*, where strings are text. Where it calls, that is why it ends."""
        said = tuple([TextPiece(piece) if isinstance(piece, str) else piece for piece in pieces])
        called = any(isinstance(piece, CallPiece) for piece in said)
        ended = stop or (StopReason.TOOL_USE if called else StopReason.END_TURN)
        request = self.machine.state.open[0]
        return self.feed(
            ModelFinished(at=self._tick(), request=request, stop=ended, usage=usage, pieces=said)
        )

    def fail(
        self,
        failure: Failure,
        *,
        retry_after: float | None = None,
        jitter: float = 0.0,
        usage: Usage | None = None,
    ) -> tuple[Effect, ...]:
        """The model's answer fails."""
        request = self.machine.state.open[0]
        return self.feed(
            ModelFailed(
                at=self._tick(),
                request=request,
                failure=failure,
                message="as told",
                retry_after=retry_after,
                jitter=jitter,
                usage=usage,
            )
        )

    def end(
        self, tool: str, content: str = "fine", outcome: Outcome = Outcome.OK, *, seconds: float = 0.0
    ) -> tuple[Effect, ...]:
        """The first call of *tool* that is at work ends."""
        request = self._waiting(tool, Running)
        return self.feed(
            ToolFinished(at=self._tick(), request=request, content=content, outcome=outcome, seconds=seconds)
        )

    def lose(self, tool: str) -> tuple[Effect, ...]:
        """The process is gone in which the first call of *tool* that is at work was: it may have run."""
        return self.feed(ToolLost(at=self._tick(), request=self._waiting(tool, Running)))

    def report(self, tool: str, content: str = "found it", spent: Spent = Spent()) -> tuple[Effect, ...]:  # noqa: B008  # a frozen value
        """The first child that *tool* started comes back."""
        request = self._waiting(tool, RunningChild)
        return self.feed(AgentFinished(at=self._tick(), request=request, content=content, spent=spent))

    def progress(self, tool: str, spent: Spent) -> tuple[Effect, ...]:
        """The first child that *tool* started has *spent* so much until now."""
        request = self._waiting(tool, RunningChild)
        return self.feed(AgentProgressed(at=self._tick(), request=request, spent=spent))

    def decide(self, tool: str, decision: Decision, by: str = "") -> tuple[Effect, ...]:
        """A person answers the first open question about *tool*."""
        request = self._waiting(tool, Asked)
        return self.feed(ApprovalGiven(at=self._tick(), request=request, decision=decision, by=by))

    def expire(self, tool: str) -> tuple[Effect, ...]:
        """Nobody answers the first open question about *tool* in time."""
        match self._call(tool, Asked).phase:
            case Asked(deadline=Timer(request=request, due=due)):
                return self.feed(TimerFired(at=due, request=request))
            case _:
                msg = f"the question about {tool!r} waits for ever in {self.machine!r}"
                raise LookupError(msg)

    def answer(self, *answers: HookAnswer | str, tool: str = "") -> tuple[Effect, ...]:
        """
        The hooks that were asked first, or first about a call of *tool*, answer in their order.

        A string is what went wrong with a hook; those that *answers* do not reach say nothing.
        """
        asked = self._asked(tool)
        said = [_said(name, answer) for name, answer in zip_longest(asked.names, answers) if name is not None]
        return self.feed(HookAnswered(at=self._tick(), request=asked.id, said=tuple(said)))

    def read(self, text: str, *faults: str) -> tuple[Effect, ...]:
        """The instruction files say *text*."""
        request = self.machine.state.open[0]
        return self.feed(InstructionsRead(at=self._tick(), request=request, text=text, faults=faults))

    def interrupt(self) -> tuple[Effect, ...]:
        """A person wants it to stop."""
        return self.feed(Interrupted(at=self._tick()))

    def send(self, text: str, sender: str = "") -> tuple[Effect, ...]:
        """A person says something more."""
        at = self._tick()
        return self.feed(UserSent(at=at, id=f"sender-{at}", text=text, sender=sender))

    def steer(self, text: str, how: Steering = Steering.AFTER_TOOL) -> tuple[Effect, ...]:
        """A person says something into the run."""
        at = self._tick()
        return self.feed(UserSteered(at=at, id=f"steer-{at}", text=text, how=how))

    def change(self, change: Change) -> tuple[Effect, ...]:
        """A person changes a setting."""
        at = self._tick()
        return self.feed(ControlReceived(at=at, id=f"control-{at}", change=change))

    def cancel(self, tool: str) -> tuple[Effect, ...]:
        """A person gives up the first call of *tool* that is not over."""
        return self.feed(CallCancelled(at=self._tick(), call=self._call(tool).call.id))

    def wake(self, due: float | None = None) -> tuple[Effect, ...]:
        """The timer that is open fires: at *due*, or where nothing is said, when it is."""
        request = self.machine.state.open[0]
        if due is None:
            due = next(timer.due for timer in self.all(SetTimer) if timer.id == request)
        return self.feed(TimerFired(at=due, request=request))

    def work(self, *pieces: Piece | str, content: str = "fine", times: int = 1) -> None:
        """The model answers with *pieces*, and all tools it calls end with *content*; so many *times*."""
        for _ in range(times):
            self.say(*pieces)
            while isinstance(batch := getattr(self.machine.state, "batch", None), Batch):
                self.end(
                    next(one.call.name for one in batch.calls if isinstance(one.phase, Running)), content
                )

    # What came of it

    def got(self, kind: type[E]) -> list[E]:
        """Those of the last effects that are of this *kind*."""
        return _of(kind, self.effects)

    def all(self, kind: type[E]) -> list[E]:
        """Those of all effects so far that are of this *kind*."""
        return _of(kind, self.told)

    @property
    def label(self) -> str:
        """The table's name for where the machine is."""
        return self.machine.state.label

    @property
    def reason(self) -> str:
        """Why the run ended, or nothing where it has not."""
        state = self.machine.state
        return state.reason.value if isinstance(state, Done) else ""

    @property
    def started(self) -> list[str]:
        """The tools that were started by the last event."""
        return [request.tool for request in self.got(RunTool)]

    @property
    def asked(self) -> list[tuple[str, tuple[str, ...]]]:
        """Where hooks were asked by the last event, and which."""
        return [(request.hook.value, request.names) for request in self.got(FireHook)]

    @property
    def judged(self) -> list[tuple[str, str, str]]:
        """Tool, verdict and ground of every judgement that the last event led to."""
        return [(one.tool, one.verdict.value, one.ground.value) for one in self.got(CallJudged)]

    @property
    def results(self) -> list[tuple[str, str, str]]:
        """Tool, outcome and content of every result in the history."""
        results = [result for message in self.machine.memory.history for result in message.results]
        return [(result.name, result.outcome.value, result.content) for result in results]

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        """Tool and outcome of every result in the history."""
        return [(tool, outcome) for tool, outcome, _ in self.results]

    @property
    def talk(self) -> list[tuple[str, str]]:
        """Role and text of every message of the history."""
        return [(message.role.value, message.text) for message in self.machine.memory.history]

    def _tick(self) -> float:
        return self.now + 1.0

    def _waiting(self, tool: str, phase: type[Running | RunningChild | Asked]) -> str:
        return str(self._call(tool, phase).open[0])

    def _call(self, tool: str, phase: type | None = None) -> Call:
        """The first call of *tool* that is in *phase*, or not over."""
        batch = getattr(self.machine.state, "batch", Batch(calls=()))
        for one in batch.calls:
            there = isinstance(one.phase, phase) if phase else not isinstance(one.phase, Settled)
            if one.call.name == tool and there:
                return one
        wanted = f"in the phase {phase.__name__}" if phase else "under way"
        msg = f"no call of {tool!r} is {wanted} in {self.machine!r}"
        raise LookupError(msg)

    def _asked(self, tool: str) -> FireHook:
        """The first open request to hooks, or the first about a call of *tool*."""
        batch = getattr(self.machine.state, "batch", Batch(calls=()))
        about = {one.call.id for one in batch.calls if one.call.name == tool}
        for request in self.all(FireHook):
            if request.id in self.machine.state.open and (not tool or request.call in about):
                return request
        msg = f"no hook is asked about {tool or 'anything'!r} in {self.machine!r}"
        raise LookupError(msg)


def _said(name: str, answer: HookAnswer | str | None) -> HookSaid:
    if isinstance(answer, str):
        return HookSaid(name=name, fault=answer)
    return HookSaid(name=name, answer=answer or HookAnswer())


def _of(kind: type[E], effects: Iterable[object]) -> list[E]:
    return [effect for effect in effects if isinstance(effect, kind)]
