"""A machine stepped by hand, in the words of a test: what is said, ended, answered, interrupted."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TypeVar, final

from ..effects import Effect
from ..effects.config import Config, ModelSpec
from ..effects.events import (
    AgentFinished,
    ApprovalGiven,
    Decision,
    Event,
    Failure,
    Interrupted,
    ModelFailed,
    ModelFinished,
    ModelStreamed,
    TimerFired,
    ToolFinished,
    UserSent,
)
from ..effects.messages import Outcome, StopReason
from ..effects.pieces import CallPiece, Piece, TextPiece
from ..effects.usage import Spent, Usage
from ..engine.machine import Machine
from ..states.state import Asked, Batch, Delegated, Done, Running

E = TypeVar("E")

MODEL = ModelSpec(name="wire:model")
"""A model for tests: no price, the usual window."""

USED = Usage(input=10, output=5)
"""What an answer uses where nothing else is said."""


def call(index: int, tool: str, /, **arguments: object) -> CallPiece:
    """The whole call number *index* of an answer."""
    return CallPiece(index, f"wire-{index}", tool, json.dumps(arguments))


@final
class ByHand:
    """
    A machine under *config* that has begun with *prompt*, and the world around it in your hands.

    Every method feeds one event, a second after the one before, and gives its effects; `effects` are the last
    ones, `told` all of them.
    """

    def __init__(self, config: Config, prompt: str = "hello") -> None:
        self.machine = Machine.start(config, prompt, run="r")
        self.now = 0.0
        self.effects: tuple[Effect, ...] = self.machine.advance()
        self.told: list[Effect] = list(self.effects)

    # What happens

    def feed(self, event: Event) -> tuple[Effect, ...]:
        """*event* happens."""
        self.now = max(self.now, event.at)
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
        calls = any(isinstance(piece, CallPiece) for piece in said)
        ended = stop or (StopReason.TOOL_USE if calls else StopReason.END_TURN)
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

    def report(self, tool: str, content: str = "found it", spent: Spent = Spent()) -> tuple[Effect, ...]:  # noqa: B008  # a frozen value
        """The first child that *tool* started comes back."""
        request = self._waiting(tool, Delegated)
        return self.feed(AgentFinished(at=self._tick(), request=request, content=content, spent=spent))

    def decide(self, tool: str, decision: Decision) -> tuple[Effect, ...]:
        """A person answers the first open question about *tool*."""
        request = self._waiting(tool, Asked)
        return self.feed(ApprovalGiven(at=self._tick(), request=request, decision=decision))

    def interrupt(self) -> tuple[Effect, ...]:
        """A person wants it to stop."""
        return self.feed(Interrupted(at=self._tick()))

    def send(self, text: str) -> tuple[Effect, ...]:
        """A person says something more."""
        at = self._tick()
        return self.feed(UserSent(at=at, id=f"sender-{at}", text=text))

    def wake(self, due: float) -> tuple[Effect, ...]:
        """The timer that is open fires at *due*."""
        return self.feed(TimerFired(at=due, request=self.machine.state.open[0]))

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
    def results(self) -> list[tuple[str, str, str]]:
        """Tool, outcome and content of every result in the history."""
        results = [result for message in self.machine.memory.history for result in message.results]
        return [(result.name, result.outcome.value, result.content) for result in results]

    @property
    def talk(self) -> list[tuple[str, str]]:
        """Role and text of every message of the history."""
        return [(message.role.value, message.text) for message in self.machine.memory.history]

    def _tick(self) -> float:
        return self.now + 1.0

    def _waiting(self, tool: str, phase: type[Running | Delegated | Asked]) -> str:
        batch = getattr(self.machine.state, "batch", Batch(calls=()))
        for one in batch.calls:
            if one.call.name == tool and isinstance(one.phase, phase):
                return str(one.phase.request)
        msg = f"no call of {tool!r} is {phase.__name__.lower()} in {self.machine!r}"
        raise LookupError(msg)


def _of(kind: type[E], effects: Iterable[object]) -> list[E]:
    return [effect for effect in effects if isinstance(effect, kind)]
