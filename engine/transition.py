"""
`transition(state, ctx) -> (next, effects)`: one function per state, and nothing else.

A pure function: no clock, no random ids, no I/O. Add a state to the union and the type checker names every
place that does not know it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from ..effects.errors import IllegalTransition
from ..effects.notices import Ignored
from ..states import (
    compacting,
    confirming,
    dispatching,
    done,
    executing,
    streaming,
    thinking,
)
from ..states.context import INPUTS, Context
from ..states.state import (
    Compacting,
    Confirming,
    Dispatching,
    Done,
    Executing,
    Streaming,
    Thinking,
)
from ..states.table import LEGAL

if TYPE_CHECKING:
    from ..effects import Effect
    from ..effects.config import Config
    from ..effects.events import Event
    from ..states.context import Memory
    from ..states.state import State


def transition(state: State, ctx: Context) -> tuple[State, tuple[Effect, ...]]:
    """
    The state that follows *state* on *ctx*'s event, and what is to be done.

    An event that does not apply gives *state* itself and one `Ignored`. Raises `IllegalTransition` where a
    handler leaves the table, which is a bug of ours; nothing has changed then.
    """
    following, effects = _dispatch(state, ctx)
    if (state.label, type(ctx.event), following.label) not in LEGAL and not ignored(effects):
        raise IllegalTransition(state.label, type(ctx.event).__name__, following.label)
    return following, effects


def _dispatch(  # noqa: PLR0911  # one return for each state
    state: State, ctx: Context
) -> tuple[State, tuple[Effect, ...]]:
    match state:
        case Streaming():
            return streaming.handle(state, ctx)
        case Thinking():
            return thinking.handle(state, ctx)
        case Executing():
            return executing.handle(state, ctx)
        case Confirming():
            return confirming.handle(state, ctx)
        case Dispatching():
            return dispatching.handle(state, ctx)
        case Compacting():
            return compacting.handle(state, ctx)
        case Done():
            return done.handle(state, ctx)
        case _:
            assert_never(state)


def ignored(effects: tuple[Effect, ...]) -> bool:
    """Whether these are the effects of an event that did not apply."""
    return len(effects) == 1 and isinstance(effects[0], Ignored)


def advance(
    config: Config, state: State, memory: Memory, event: Event
) -> tuple[State, Memory, tuple[Effect, ...]]:
    """
    The whole engine: *event* is received, the state moves, the records fold into the memory.

    An event that does not apply touches neither. A repeated post is one that does not apply.
    """
    received = memory
    if isinstance(event, INPUTS):
        if memory.has(event):
            return state, memory, (Ignored(event=type(event).__name__, state=state.label),)
        received = memory.receive(event)
    following, effects = transition(state, Context(config, received, event))
    if ignored(effects):
        return state, memory, effects
    return following, received.record(effects), effects
