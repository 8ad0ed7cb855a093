"""The transitions of a machine, one by one: state and memory before and after, and the effects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import attrs

from ...effects import Effect
from ...effects.config import Config
from ...effects.errors import InternalError
from ...effects.events import Entered, Event
from ...states.context import Memory
from ...states.state import Done, State
from ..core.machine import MAX_ENTERED, Machine, advance


@final
@attrs.frozen
class Transition:
    """One transition under *config*: state and memory before *event* and after it, and the *effects*."""

    config: Config
    state: State
    memory: Memory
    event: Event
    following: State
    remembered: Memory
    effects: tuple[Effect, ...]

    @property
    def row(self) -> tuple[str, type[Event], str]:
        """The row of the table that it takes."""
        return self.state.label, type(self.event), self.following.label


def step(config: Config, state: State, memory: Memory, event: Event) -> Transition:
    """The transition from *state* on *event*."""
    return Transition(config, state, memory, event, *advance(config, state, memory, event))


def steps(machine: Machine, event: Event | None, *, at: float = 0.0) -> Iterator[Transition]:
    """
    The transitions that ``machine.advance(event, at=at)`` would make; the machine stays as it is.

    The first takes *event*; others follow while a state waits for nothing. Raises `InternalError`.
    """
    state, memory, following = machine.state, machine.memory, event
    for _ in range(MAX_ENTERED):
        if following is None and (state.open or isinstance(state, Done)):
            return
        now = step(machine.config, state, memory, following or Entered(at=at if event is None else event.at))
        yield now
        state, memory, following = now.following, now.remembered, None
    msg = f"{MAX_ENTERED} states in a row waited for nothing, last {state.label}"
    raise InternalError(msg)
