"""
`MachineHarness`: a machine stepped by hand. A test feeds events by methods and asserts effects and state.

Below it are a configuration with a tool of each kind, and the calls that a model makes of them.
"""

from __future__ import annotations

import json
from itertools import zip_longest
from typing import Any, TypeVar, final

import attrs

from ..effects import Effect, events
from ..effects.config import Approval, ChildSpec, Config, ModelSpec, SideEffect, Steering, ToolKind, ToolSpec
from ..effects.findings import Finding
from ..effects.history import CallPiece, Piece, Rope, TextPiece
from ..effects.hooks import HookAnswer, HookSaid
from ..effects.messages import Outcome, StopReason
from ..effects.notices import CallJudged
from ..effects.records import Change
from ..effects.requests import FireHook, RunTool, SetTimer
from ..effects.usage import Spent, Usage
from ..engine.core.machine import Machine, ignored
from ..engine.inspect.transitions import steps
from ..performers.approvals import approval_event
from ..states.batch.batch import (
    AllowedInspecting,
    Asked,
    AtWork,
    Batch,
    Call,
    Inspecting,
    Running,
    RunningChild,
    Settled,
    Timer,
)
from ..states.state import Done, State

E = TypeVar("E", bound=Effect)


# The usage of an answer unless a test gives another.
USED = Usage(input=10, output=5)

# The schema of a tool that needs a path and takes any other argument.
PATH = '{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}'

# One tool of each kind: two reads, a write, an edit, one that never needs approval, two for children.
TOOLS = (
    ToolSpec(name="look", schema=PATH, side_effect=SideEffect.READ_ONLY),
    ToolSpec(name="peek", schema=PATH, side_effect=SideEffect.READ_ONLY, approval=Approval.ALWAYS),
    ToolSpec(name="write", schema=PATH),
    ToolSpec(name="edit", schema=PATH, side_effect=SideEffect.IDEMPOTENT, edits=True),
    ToolSpec(name="note", schema=PATH, side_effect=SideEffect.IDEMPOTENT, approval=Approval.NEVER),
    ToolSpec(name="send", kind=ToolKind.AGENT, approval=Approval.NEVER),
    ToolSpec(name="hire", kind=ToolKind.AGENT),
)

# A child with the read-only tools of its parent, and one that names its tools.
CHILDREN = (ChildSpec(name="kid"), ChildSpec(name="heir", tools=("write", "send", "nowhere")))

_CONFIG = Config(model=ModelSpec(name="wire:model"), tools=TOOLS, children=CHILDREN)


def config(**settings: Any) -> Config:  # noqa: ANN401  # the fields of `Config`, which checks them
    """A configuration with a tool of each kind, changed by *settings*."""
    return attrs.evolve(_CONFIG, **settings)


def call(index: int, tool: str, /, **arguments: object) -> CallPiece:
    """A complete call of *tool*, the one at *index* in an answer."""
    return CallPiece(index, f"wire-{index}", tool, json.dumps(arguments))


def calls(*tools: str, path: str = "a") -> list[CallPiece]:
    """Complete calls of *tools*, in order, with arguments that fit any of `TOOLS`."""
    return [call(index, tool, path=path, agent="kid", prompt="go") for index, tool in enumerate(tools)]


def streamed(state: State) -> Rope:
    """The pieces of an answer that have arrived in *state*."""
    rope: Rope = getattr(getattr(state, "stage", state), "pieces", Rope.of())
    return rope


@final
class MachineHarness:
    """
    A machine that has begun, and a method for each event that can happen to it.

    It starts from a configuration and *prompt*, or is the machine given in their place. Each method feeds
    one event, a second after the one before, and returns its effects. `effects` holds the last ones, `told`
    all of them, and `rows` the rows of the table that the last event took.
    """

    def __init__(self, settings: Config | Machine = _CONFIG, prompt: str = "hello") -> None:
        if isinstance(settings, Config):
            settings = Machine.start(settings, prompt, run="r")
        self.machine = settings
        self.now = 0.0
        self.rows = [step.row for step in steps(self.machine, None)]
        self.effects: tuple[Effect, ...] = self.machine.advance()
        self.told: list[Effect] = list(self.effects)

    def __repr__(self) -> str:
        effects = ", ".join(type(effect).__name__ for effect in self.effects) or "none"
        return f"<MachineHarness at {self.now:g} s: {self.machine!r}; last effects: {effects}>"

    # Events

    def feed(self, event: events.Event) -> tuple[Effect, ...]:
        """Feed *event*."""
        self.now = max(self.now, event.at)
        self.rows = [step.row for step in steps(self.machine, event) if not ignored(step.effects)]
        self.effects = self.machine.advance(event)
        self.told += self.effects
        return self.effects

    def _happens(self, kind: type, **fields: Any) -> tuple[Effect, ...]:  # noqa: ANN401  # of all types that events have
        """Feed an event of *kind* with these *fields*."""
        # Events apart in time, so that what depends on durations and deadlines shows.
        return self.feed(kind(at=self.now + 1.0, **fields))

    def stream(self, *pieces: Piece) -> tuple[Effect, ...]:
        """The model streams *pieces* and has not finished."""
        before = streamed(self.machine.state).count
        return self._happens(
            events.ModelStreamed, request=self._open, before=before, count=len(pieces), pieces=pieces
        )

    def say(
        self, *pieces: Piece | str, stop: StopReason | None = None, usage: Usage = USED
    ) -> tuple[Effect, ...]:
        """The model answers with *pieces*; a string is text. *stop*: tool use or end of turn."""
        said = tuple([TextPiece(piece) if isinstance(piece, str) else piece for piece in pieces])
        called = any(isinstance(piece, CallPiece) for piece in said)
        ended = stop or (StopReason.TOOL_USE if called else StopReason.END_TURN)
        return self._happens(events.ModelFinished, request=self._open, stop=ended, usage=usage, pieces=said)

    def fail(
        self,
        failure: events.Failure,
        *,
        retry_after: float | None = None,
        jitter: float = 0.0,
        usage: Usage | None = None,
    ) -> tuple[Effect, ...]:
        """The call of the model fails."""
        more = {"message": "as told", "retry_after": retry_after, "jitter": jitter, "usage": usage}
        return self._happens(events.ModelFailed, request=self._open, failure=failure, **more)

    def end(
        self, tool: str, content: str = "fine", outcome: Outcome = Outcome.OK, *, seconds: float = 0.0
    ) -> tuple[Effect, ...]:
        """The first running call of *tool* ends."""
        ended = {"content": content, "outcome": outcome, "seconds": seconds}
        return self._happens(events.ToolFinished, request=self._waiting(tool, Running), **ended)

    def lose(self, tool: str) -> tuple[Effect, ...]:
        """The process of the first running call of *tool* died: the tool may have run."""
        return self._happens(events.ToolLost, request=self._waiting(tool, Running))

    def report(self, tool: str, content: str = "found it", spent: Spent = Spent()) -> tuple[Effect, ...]:  # noqa: B008  # a frozen value
        """The first child that *tool* started reports."""
        request = self._waiting(tool, RunningChild)
        return self._happens(events.AgentFinished, request=request, content=content, spent=spent)

    def progress(self, tool: str, spent: Spent) -> tuple[Effect, ...]:
        """The first child that *tool* started has *spent* this much so far."""
        return self._happens(events.AgentProgressed, request=self._waiting(tool, RunningChild), spent=spent)

    def decide(self, tool: str, decision: events.Decision, by: str = "") -> tuple[Effect, ...]:
        """An approver decides the first open question about *tool*."""
        given = approval_event(self._waiting(tool, Asked), decision, self.now, by)
        return self._happens(events.ApprovalGiven, request=given.request, decision=given.decision, by=by)

    def expire(self, tool: str) -> tuple[Effect, ...]:
        """The first open question about *tool* times out."""
        match self._call(tool, Asked).phase:
            case Asked(deadline=Timer(request=request, due=due)):
                return self.feed(events.TimerFired(at=due, request=request))
            case _:
                msg = f"the question about {tool!r} waits for ever in {self.machine!r}"
                raise LookupError(msg)

    def answer(self, *answers: HookAnswer | str, tool: str = "") -> tuple[Effect, ...]:
        """
        The hooks of the first open request answer in order; *tool*: of the first one about a call of it.

        A string is the fault of a hook. Hooks without one of *answers* have no say.
        """
        asked = self._asked(tool)
        said = [_said(name, answer) for name, answer in zip_longest(asked.names, answers) if name is not None]
        return self._happens(events.HookAnswered, request=asked.id, said=tuple(said))

    def inspect(self, tool: str, finding: Finding = Finding()) -> tuple[Effect, ...]:  # noqa: B008  # a frozen value
        """The first call of *tool* that is being looked at was; this was found."""
        request = self._waiting(tool, Inspecting, AllowedInspecting)
        return self._happens(events.CallInspected, request=request, finding=finding)

    def read(self, text: str, *faults: str) -> tuple[Effect, ...]:
        """The instruction files are read: they hold *text*."""
        return self._happens(events.InstructionsRead, request=self._open, text=text, faults=faults)

    def decode(self, fault: str = "") -> tuple[Effect, ...]:
        """The class of the output takes it, or refuses it for *fault*."""
        return self._happens(events.OutputDecoded, request=self._open, fault=fault)

    def interrupt(self) -> tuple[Effect, ...]:
        """A person interrupts the run."""
        return self._happens(events.Interrupted)

    def send(self, text: str, sender: str = "") -> tuple[Effect, ...]:
        """A person sends another prompt."""
        return self._happens(events.UserSent, id=f"sender-{self.now + 1.0}", text=text, sender=sender)

    def steer(self, text: str, how: Steering = Steering.AFTER_TOOL) -> tuple[Effect, ...]:
        """A person steers the run."""
        return self._happens(events.UserSteered, id=f"steer-{self.now + 1.0}", text=text, how=how)

    def withdraw(self, input: str = "") -> tuple[Effect, ...]:  # noqa: A002  # the word of the event
        """A person takes back the prompt or steer with the id *input*, or the latest that waits."""
        waiting = [mail.id for mail in self.machine.memory.session.mail]
        return self._happens(events.InputWithdrawn, input=input or next(reversed(waiting), ""))

    def change(self, change: Change) -> tuple[Effect, ...]:
        """A person changes a setting."""
        return self._happens(events.ControlReceived, id=f"control-{self.now + 1.0}", change=change)

    def cancel(self, tool: str) -> tuple[Effect, ...]:
        """A person cancels the first call of *tool* that is not over."""
        return self._happens(events.CallCancelled, call=self._call(tool).call.id)

    def wake(self, due: float | None = None) -> tuple[Effect, ...]:
        """The open timer fires, at *due* or at its own time."""
        if due is None:
            due = next(timer.due for timer in self.all(SetTimer) if timer.id == self._open)
        return self.feed(events.TimerFired(at=due, request=self._open))

    def work(self, *pieces: Piece | str, content: str = "fine", times: int = 1) -> None:
        """The model answers with *pieces* and each called tool ends with *content*, this many *times*."""
        for _ in range(times):
            self.say(*pieces)
            while isinstance(batch := getattr(self.machine.state, "batch", None), Batch):
                running = [one.call.name for one in batch.calls if isinstance(one.phase, Running)]
                self.end(running[0], content)

    # Outcomes

    def got(self, kind: type[E]) -> list[E]:
        """The last effects that are of *kind*."""
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def all(self, kind: type[E]) -> list[E]:
        """All effects so far that are of *kind*."""
        return [effect for effect in self.told if isinstance(effect, kind)]

    @property
    def label(self) -> str:
        """The state and its stage, as the table names them."""
        return self.machine.state.label

    @property
    def reason(self) -> str:
        """Why the run ended; empty before that."""
        state = self.machine.state
        return state.reason.value if isinstance(state, Done) else ""

    @property
    def started(self) -> list[str]:
        """The tools that the last event started."""
        return [request.tool for request in self.got(RunTool)]

    @property
    def asked(self) -> list[tuple[str, tuple[str, ...]]]:
        """The places where the last event asked hooks, and the names of those."""
        return [(request.hook.value, request.names) for request in self.got(FireHook)]

    @property
    def judged(self) -> list[tuple[str, str, str]]:
        """Tool, verdict and basis of each call that the last event judged."""
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

    @property
    def _open(self) -> str:
        return self.machine.state.open[0]

    def _waiting(self, tool: str, *phases: type[AtWork]) -> str:
        return str(self._call(tool, *phases).open[0])

    def _call(self, tool: str, *phases: type[AtWork]) -> Call:
        """The first call of *tool* in one of *phases*; without any, the first that is not over."""
        batch = getattr(self.machine.state, "batch", Batch(calls=()))
        for one in batch.calls:
            there = isinstance(one.phase, phases) if phases else not isinstance(one.phase, Settled)
            if one.call.name == tool and there:
                return one
        names = " or ".join([phase.__name__ for phase in phases])
        wanted = f"in the phase {names}" if phases else "under way"
        msg = f"no call of {tool!r} is {wanted} in {self.machine!r}"
        raise LookupError(msg)

    def _asked(self, tool: str) -> FireHook:
        """The first open request to hooks; *tool*: the first about a call of it."""
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
