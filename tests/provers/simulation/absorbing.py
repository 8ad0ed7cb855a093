"""
What must change nothing, wherever a run is.

Answers that are late, repeated or for something else, inputs that came before, calls that are over; and where
the run is over, anything at all.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from provers.simulation.strays import answers, torn
from turnwheel.effects.config import Steering
from turnwheel.effects.events import (
    CallCancelled,
    ControlReceived,
    Entered,
    Event,
    InputWithdrawn,
    Interrupted,
    ModelStreamed,
    UserSent,
    UserSteered,
)
from turnwheel.effects.history import TextPiece
from turnwheel.effects.records import SetThinking
from turnwheel.engine.core.machine import advance, calls_at, ignored
from turnwheel.states.batch.batch import Order, Reviewed, Settled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provers.audit.run_auditor import Booked
    from turnwheel.effects.requests import Request
    from turnwheel.engine.core.machine import Machine

AT = 2.0
NOBODY = "r-0"
"""The id of a request that nobody ever made."""


def absorbed(run: Booked) -> Iterator[Event]:
    """
    Every event that must change nothing where *run* is.

    Each request that is closed is answered once more; the last of them by everything, as are a call, and one
    that never was. Each that is open is answered by all that is no answer to it.
    """
    machine, ledger = run.machine, run.ledger
    closed = [name for name, kind in ledger.known.items() if kind is not None and name not in ledger.open]
    for name in closed:
        yield from [event for event, fits in _answers(name) if fits is ledger.known[name]]
    for name in (NOBODY, *closed[-1:], *list(ledger.calls.calls)[-1:]):
        yield from [event for event, _ in _answers(name)]
    for request in ledger.open.values():
        yield from [event for event, fits in _answers(request.id) if fits is not type(request)]
        yield from _torn(request.id)
    for name in machine.memory.session.received:
        yield from _said(name)
    for call in (NOBODY, *[call for call in ledger.calls.calls if call not in _going_on(machine)]):
        yield CallCancelled(at=AT, call=call)
    # Of those that came, all that wait no more: they were read or taken back. Another may be on its way.
    unread = [NOBODY, *[mail.id for mail in machine.memory.session.mail]]
    for name in (NOBODY, *machine.memory.session.received):
        if machine.done or name not in unread:
            yield InputWithdrawn(at=AT, input=name)
    if machine.state.open or machine.done:
        yield Entered(at=AT)
    if machine.done:
        yield Interrupted(at=AT)
        yield from _said("somebody new")


def absorbed_faults(run: Booked, event: Event) -> list[str]:
    """Whether *event*, one of `absorbed`, changes nothing where *run* is, and is told as ignored."""
    state, memory = run.machine.state, run.machine.memory
    following, remembered, effects = advance(run.machine.config, state, memory, event)
    if ignored(effects) and following is state and remembered is memory:
        return []
    return [f"{event} is out of place in {state.label} and led to {following.label} with {effects}"]


@lru_cache(maxsize=256)
def _answers(name: str) -> tuple[tuple[Event, type[Request]], ...]:
    return tuple(answers(name, AT))


@lru_cache(maxsize=256)
def _torn(name: str) -> tuple[Event, ...]:
    later = ModelStreamed(at=AT, request=name, before=999, count=1, pieces=(TextPiece("no"),))
    return (*torn(name, AT), later)


@lru_cache(maxsize=16)
def _said(sender: str) -> tuple[Event, ...]:
    """Every input that can come from *sender*."""
    return (
        UserSent(at=AT, id=sender, text="again"),
        UserSteered(at=AT, id=sender, text="again", how=Steering.NOW),
        ControlReceived(at=AT, id=sender, change=SetThinking(tokens=1)),
    )


def _going_on(machine: Machine) -> set[str]:
    """The calls that can be given up where *machine* is."""
    return {
        call.call.id
        for call in calls_at(machine.state)
        if not isinstance(call.phase, Settled | Reviewed)
        and getattr(call.phase, "told", Order.RUN) is Order.RUN
    }
