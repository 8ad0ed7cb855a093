"""One transition with all that surrounds it: what the checks look at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import attrs

from ..effects import Effect
from ..effects.config import Config
from ..effects.errors import InternalError
from ..effects.events import Entered, Event
from ..engine.machine import MAX_ENTERED, Machine
from ..engine.transition import advance
from ..states.batch import Stopping
from ..states.context import Memory
from ..states.state import Done, State

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
