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
    The state that follows *state* on *ctx*'s event, and the effects.

    An event that does not apply gives *state* itself and one `Ignored`. Raises `IllegalTransition` where a
    handler leaves the table, which is a bug of turnwheel; nothing has changed then.
    """
    following, effects = _dispatch(state, ctx)
    # Checked in production too: diagrams, docs and provers rely on the table, and a step outside it is better
    # refused before it is journaled than found when the journal is read.
    # By label, which has the stage: by class alone, a step from a wrong stage would pass.
    # The table has no rows for events that do not apply: they may come in any state.
    if (state.label, type(ctx.event), following.label) not in LEGAL and not ignored(effects):
        raise IllegalTransition(state.label, type(ctx.event).__name__, following.label)
    return following, effects


def _dispatch(  # noqa: PLR0911  # one return for each state
    state: State, ctx: Context
) -> tuple[State, tuple[Effect, ...]]:
    # By class and by hand, not through a dict: the type checker sees that no state is missing, and each
    # handler gets its own class. Streaming comes first, since each piece of an answer passes here.
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
            # A new state without a line above fails the type check, before any run can meet it.
            assert_never(state)


def ignored(effects: tuple[Effect, ...]) -> bool:
    """Whether these are the effects of an event that did not apply."""
    # By the effects, not by an unchanged state: an event may apply and leave the state as it is.
    return len(effects) == 1 and isinstance(effects[0], Ignored)


def advance(
    config: Config, state: State, memory: Memory, event: Event
) -> tuple[State, Memory, tuple[Effect, ...]]:
    """
    The whole engine: *event* is received, the state moves, and the records change the memory.

    An event that does not apply touches neither. A repeated post is one that does not apply.
    """
    received = memory
    if isinstance(event, INPUTS):
        # A sender that lost the connection posts again under the same id; a crash may apply a post twice.
        if memory.has(event):
            # Answered for all states at once: seven handlers could forget it in seven places.
            return state, memory, (Ignored(event=type(event).__name__, state=state.label),)
        # Before the handler: it decides with the input already in the mail.
        received = memory.receive(event)
    following, effects = transition(state, Context(config, received, event))
    # The memory from before, too: an input that does not apply must count as never received.
    if ignored(effects):
        return state, memory, effects
    # All records at once, behind the step: a handler that read its own would decide on half of it.
    return following, received.record(effects), effects
