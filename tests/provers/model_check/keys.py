"""
When two places of a search are the same one.

A key says all of a place that anything can depend on that comes later: what the machine does, what the world
may do to it, and what its ledger will find wrong. It leaves out

- the numbers in ids: they are compared with each other and nothing else, so they are numbered anew, in the
  order in which they are named;
- how much was used, in units without a limit: it is added to and reported, and nothing looks at it;
- what was said before the last message, in worlds where nothing asks for it: there is nothing to summarise,
  to leave out or to find a circle in before the window is full or there was a second batch;
- in which words the last message was said, unless an output in it may still be checked;
- requests and calls that are over, and what of the ledger is held against the memory or the state at every
  step, so that it cannot be something else.

That this is enough is argued here and tried by the search, which compares places with equal keys by what
follows from them.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from operator import attrgetter
from typing import TYPE_CHECKING

import attrs

from provers.audit.outputs import taken_call
from turnwheel.effects.messages import Finish, Role, StopReason, ToolCall, ToolResult
from turnwheel.effects.requests import CallModel, Request
from turnwheel.states.context import ConversationMemory, RunProgress, SessionMemory
from turnwheel.states.rules.token_estimates import message_size
from turnwheel.states.state import (
    Done,
    State,
    Thinking,
    batch_of,
)

if TYPE_CHECKING:
    from provers.audit.run_auditor import Booked, RunAuditor
    from provers.model_check.worlds import World
    from turnwheel.effects.messages import Message, Part
    from turnwheel.engine.core.machine import Machine
    from turnwheel.states.context import Memory

ID = re.compile(r"\br-(\d+)")

UNTOLD = frozenset({"history", "next_id", "size", "spent", "results", "received"})
GROUPS = {"session": SessionMemory, "conversation": ConversationMemory, "progress": RunProgress}
TOLD = attrgetter(
    *[
        f"{name}.{field.name}"
        for name, group in GROUPS.items()
        for field in attrs.fields(group)
        if field.name not in UNTOLD
    ]
)
"""What of a memory is said as it is, and what is not."""


def key(run: Booked, world: World) -> bytes:
    """The same for all places that are one, and for no two that are not, as far as 128 bits can tell."""
    machine, ledger = run.machine, run.ledger
    said = (
        _where(machine.state),
        _remembered(machine.memory, world),
        _to_check(machine),
        world.configs.index(machine.config),
    )
    text = f"{said!r} {_booked(machine, ledger)!r}"
    numbers: dict[str, str] = {}
    anew = ID.sub(lambda found: numbers.setdefault(found[1], f"r-{len(numbers)}"), text)
    return blake2b(anew.encode(), digest_size=16).digest()


def _where(state: State) -> State:
    """*state* without the account that its end gives."""
    return Done(reason=state.reason, detail=state.detail) if isinstance(state, Done) else state


def _remembered(memory: Memory, world: World) -> tuple[object, ...]:
    """What of *memory* can matter in *world*."""
    history = memory.history
    # A first answer may not come because there is too much to read already.
    back = world.looks_back or not memory.spent.turns
    seen = history if back else history.slice(max(0, len(history) - 1), len(history))
    conversation = (history.revision, [_shape(message) for message in seen])
    # Of a message that is to be summarised it matters how long it is, too.
    each = [message_size(message) for message in seen]
    sizes = (memory.conversation.size, memory.conversation.results, each) if back else ()
    return (*TOLD(memory), len(memory.session.received), conversation, sizes, world.counted(memory.spent))


def _to_check(machine: Machine) -> str:
    """What *machine* may still check for an output: also where a steer came, and was taken back."""
    output, history = machine.config.output, machine.memory.history
    if output is None or not history or not isinstance(machine.state, Thinking):
        return ""
    # Beside calls there is text, too, which is none. Nor is that of an answer that the provider paused.
    last = history[-1]
    text = last.text if last.role is Role.ASSISTANT and last.stop is not StopReason.PAUSED else ""
    return taken_call(history.slice(max(0, len(history) - 2), len(history)), output.name) or text


def _booked(machine: Machine, ledger: RunAuditor) -> tuple[object, ...]:
    """What of *ledger* can matter that *machine* does not say."""
    calls, hooks = ledger.calls, ledger.hooks
    batch: tuple[object, ...] = ()
    if batch_of(machine.state) is not None:
        met = [(calls.calls[name], hooks.asked.get(name, ())) for name in calls.batch]
        batch = (met, calls.skips, calls.loose, calls.offered)
    asked = [_unseen(request) for request in ledger.open.values()]
    stopped = [name for name in ledger.open if name in ledger.cancelled]
    purse = (ledger.purse.held, ledger.purse.told, ledger.purse.unplanned) if ledger.purse.held else ()
    people = (ledger.mail.begun, ledger.mail.refused, ledger.mail.asked, ledger.interrupted)
    return (
        batch,
        asked,
        stopped,
        purse,
        people,
        (hooks.read, hooks.wishes),
        (ledger.tries, ledger.shrink, ledger.text),
    )


def _unseen(request: Request) -> object:
    """*request* without what its model is shown, which is the conversation that there is."""
    if not isinstance(request, CallModel):
        return request
    return (request.id, request.model, request.purpose, request.thinking, request.tools, request.instructions)


def _shape(message: Message) -> tuple[str, ...]:
    """What of *message* can matter: who says it, what of, and how it ended; not in which words."""
    return (message.role.value, *[_part(part) for part in message.parts])


def _part(part: Part) -> str:
    match part:
        case ToolCall(name=name):
            return f"call {name}"
        case ToolResult(name=name, outcome=outcome):
            return f"{outcome.value} {name}"
        case Finish(reason=reason):
            return reason.value
        case _:
            return type(part).__name__
