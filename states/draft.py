"""Collecting the effects of one transition, and numbering its requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, final

from ..effects.notices import Ignored
from ..effects.records import UseIds

if TYPE_CHECKING:
    from ..effects import Effect
    from .context import Context
    from .state import State

S = TypeVar("S")


@final
class Draft:
    """
    The effects of one transition while it is being decided. It never outlives the transition.

    Ids are ``run-counter``; the counter comes from the memory, and `to` records how far it got.
    """

    __slots__ = ("_first", "_next", "_run", "effects")

    def __init__(self, ctx: Context) -> None:
        self._run = ctx.memory.run
        self._first = self._next = ctx.memory.next_id
        self.effects: list[Effect] = []

    def new_id(self) -> str:
        """An id that no other request or call of this run has."""
        number = self._next
        self._next = number + 1
        return f"{self._run}-{number}"

    def add(self, *effects: Effect) -> None:
        """Add *effects*, in this order."""
        self.effects.extend(effects)

    def to(self, state: S) -> tuple[S, tuple[Effect, ...]]:
        """The transition to *state* with everything collected."""
        if self._next != self._first:
            self.effects.append(UseIds(next=self._next))
        return state, tuple(self.effects)


def ignore(state: State, ctx: Context) -> tuple[Ignored, ...]:
    """The effects of an event that does not apply in *state*: it is named and nothing is touched."""
    return (Ignored(event=type(ctx.event).__name__, state=state.label),)
