"""
A machine from a snapshot that anybody may have written: it goes on, and is allowed nothing by it.

Theory of operation. What a snapshot says is what its writer wants. So it is asked only for what a person
could as well have said: inputs that wait, and what came of calls, as text. Rules, mode and model are those of
the configuration; instructions are read and the session's hooks asked anew. No request is open: a late answer
to one that was is for nobody, and what is asked again has an id of its own. Calls without a result are judged
from the beginning. One that may be at work in some other process does not run again, unless it only reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from ..effects.config import SideEffect
from ..effects.errors import JournalError
from ..effects.hooks import Hook
from ..effects.messages import (
    Binary,
    Finish,
    Message,
    Outcome,
    Role,
    StopReason,
    ToolCall,
    ToolResult,
)
from ..effects.notices import DoneReason
from ..effects.usage import Spent
from ..effects.validators import clean
from ..states.batch.batch import (
    Batch,
    Call,
    PriorAttempt,
    Reviewed,
    Running,
    RunningChild,
    Settled,
    Stopping,
)
from ..states.context import RECALL, Memory
from ..states.rules import model_messages
from ..states.rules.history_check import history_faults
from ..states.rules.hooks import asked_at
from ..states.rules.token_estimates import history_size, results_in
from ..states.state import (
    Compacting,
    Confirming,
    Dispatching,
    Done,
    End,
    Ending,
    Executing,
    Start,
    State,
    Streaming,
    Thinking,
)
from ..states.thinking import NATURAL
from .machine import Machine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..effects.config import Config
    from ..effects.history import History
    from .snapshots import Snapshot

PREFIX = "foreign-"
"""What the ids of such a machine begin with."""

DIGITS = 32
"""Digits of a digest behind it: too many to find another snapshot that has them by trying."""

MOST = 2**53
"""What no account can come to."""

REASONS = {
    StopReason.INTERRUPTED: DoneReason.INTERRUPTED,
    StopReason.MAX_TOKENS: DoneReason.MAX_TOKENS,
    StopReason.STOP_SEQUENCE: DoneReason.STOP_SEQUENCE,
}
"""Why a run was over whose last answer ended so; else of its own accord."""


def restore_untrusted(snapshot: Snapshot, config: Config, history: History, name: str) -> Machine:
    """
    What can be had of *snapshot* at no risk, over *history* and under *config*; *name* is a digest of it.

    Raises `JournalError` where the two do not go together.
    """
    calls = _calls(snapshot, history)
    memory = _memory(snapshot, config, history, PREFIX + name[:DIGITS])
    if not calls:
        return Machine(config, _between(snapshot.state, memory), memory)
    batch = _batch(snapshot.state)
    settled = tuple([_call(wish, told, batch.stopping, config) for wish, told in calls])
    begins = config.instructions or asked_at(config, Hook.SESSION_START)
    if not begins and not batch.stopping:
        return Machine(config, Executing(batch=Batch(calls=settled, offered=batch.offered)), memory)
    # The session has to begin first, and then these calls would be out of place.
    results = tuple([_given_up(call) for call in settled])
    memory = _with(memory, Message(role=Role.TOOL, parts=results, at=history[-1].at))
    if batch.stopping is Stopping.INTERRUPTED:
        return Machine(config, Done(reason=DoneReason.INTERRUPTED, spent=memory.spent), memory)
    return Machine(config, Thinking(stage=Start()), memory)


# The memory


def _memory(snapshot: Snapshot, config: Config, history: History, run: str) -> Memory:
    """
    What a run begins with, and of *snapshot* the inputs that wait.

    The account is taken as it is told: whoever makes it smaller has no more than who begins anew.
    """
    return Memory(
        run=run,
        model=config.model.name,
        mode=config.policy.mode,
        history=history,
        size=history_size(history),
        results=results_in(history),
        mail=tuple({mail.id: mail for mail in snapshot.mail}.values()),
        received=snapshot.received[-RECALL:],
        spent=_account(snapshot.spent),
        earlier=_account(snapshot.earlier),
    )


def _with(memory: Memory, message: Message) -> Memory:
    history = memory.history.append(message)
    return attrs.evolve(memory, history=history, size=history_size(history), results=results_in(history))


def _account(spent: Spent) -> Spent:
    """*spent*, if an account can be so; what was less than nothing would be a limit to nothing."""
    usage: tuple[int, ...] = attrs.astuple(spent.usage)
    counts = (spent.turns, spent.unpriced, *usage)
    sane = all(0 <= count <= MOST for count in counts) and 0 <= spent.cost <= MOST
    sane = sane and 0 <= spent.seconds <= MOST
    if not sane:
        msg = f"this snapshot has an account that cannot be: {spent!r}"
        raise JournalError(msg)
    return spent


# Between calls


def _between(state: State, memory: Memory) -> Thinking | Done:
    """
    Where a run with *memory* goes on that was in *state*: it begins again, where there is something to do.

    What was over, or was being given up, stays so: to end grants nothing.
    """
    match state:
        case Done(reason=reason):
            return Done(reason=reason, spent=memory.spent)
        case Thinking(stage=End(reason=reason) | Ending(reason=reason)) if reason not in NATURAL:
            return Done(reason=reason, spent=memory.spent)
        case Streaming(stopping=Stopping.INTERRUPTED) | Compacting(stopping=Stopping.INTERRUPTED):
            return Done(reason=DoneReason.INTERRUPTED, spent=memory.spent)
        case _:
            last = memory.history[-1] if memory.history else None
    if memory.mail or (last is not None and last.role is not Role.ASSISTANT):
        return Thinking(stage=Start())
    finish = None if last is None else last.parts[-1]
    stop = finish.reason if isinstance(finish, Finish) else StopReason.END_TURN
    return Done(reason=REASONS.get(stop, DoneReason.END_TURN), spent=memory.spent)


# Calls


def _batch(state: State) -> Batch:
    """The batch of *state*, an empty one where it has none."""
    return state.batch if isinstance(state, Executing | Confirming | Dispatching) else Batch(calls=())


def _calls(snapshot: Snapshot, history: History) -> Sequence[tuple[ToolCall, Call]]:
    """The calls of *history* without a result, each with what *snapshot* says of it."""
    wishes = history[-1].calls if history else ()
    told = _batch(snapshot.state).calls
    mine, theirs = [wish.id for wish in wishes], [call.call.id for call in told]
    if faults := history_faults(history, mine):
        msg = f"this history cannot be gone on with: {'; '.join(faults)}"
        raise JournalError(msg)
    if mine != theirs:
        msg = f"this snapshot goes with a history whose open calls are {theirs}, not {mine}"
        raise JournalError(msg)
    return list(zip(wishes, told, strict=True))


def _call(wish: ToolCall, told: Call, stopping: Stopping, config: Config) -> Call:
    """*wish*, as the model wrote it, with the result that is *told* of it, or to be judged anew."""
    phase = told.phase
    if isinstance(phase, Settled | Reviewed):
        result = phase.result
        return _settled(wish, result.outcome, clean(result.content), result.files)
    if (isinstance(phase, Running | RunningChild) or told.tried is PriorAttempt.LOST) and not _reads(
        wish, config
    ):
        return _settled(wish, Outcome.UNKNOWN, model_messages.LOST)
    return _settled(wish, Outcome.CANCELLED, model_messages.CANCELLED) if stopping else Call(call=wish)


def _reads(wish: ToolCall, config: Config) -> bool:
    spec = config.tool(wish.name)
    return spec is not None and spec.side_effect is SideEffect.READ_ONLY


def _settled(wish: ToolCall, outcome: Outcome, content: str, files: tuple[Binary, ...] = ()) -> Call:
    return Call(call=wish, phase=Settled(result=_result(wish, outcome, content, files)))


def _result(wish: ToolCall, outcome: Outcome, content: str, files: tuple[Binary, ...] = ()) -> ToolResult:
    return ToolResult(
        call=wish.id, wire_id=wish.wire_id, name=wish.name, content=content, outcome=outcome, files=files
    )


def _given_up(call: Call) -> ToolResult:
    """The result of *call*, which will not run where it has none."""
    if isinstance(call.phase, Settled):
        return call.phase.result
    return _result(call.call, Outcome.SKIPPED, model_messages.FROM_OUTSIDE)
