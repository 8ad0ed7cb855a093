"""
A run that is gone on with in a copy of its session, from the middle of it: what of it is the copy's.

The copy knows all that was said and decided, and did none of it. What is still open in it was begun by the
other session, where it goes on: so nobody here waits for a model, and what a tool may have done meanwhile is
what it is after a process was lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from ...effects.pieces import Rope
from ...effects.records import MailKind
from ...effects.usage import Spent
from ...states.batch.batch import RunningChild, Stopping
from ...states.rules.inputs import next_prompt
from ...states.state import (
    Admitting,
    Compacting,
    Confirming,
    Dispatching,
    Executing,
    Opening,
    Prompt,
    Reading,
    Start,
    Streaming,
    Summary,
)
from ..machine import Machine

if TYPE_CHECKING:
    from ...states.batch.batch import Call
    from ...states.context import Mail
    from ...states.state import State


def forked_run(machine: Machine, run: str) -> Machine:
    """
    *machine* as it goes on in a copy of its session, where its run is called *run*.

    What this run has used counts for its limits; what earlier ones spent, and what children tell, is on the
    other session's bill. Prompts that wait for a run of their own are answered there, and an answer that was
    under way is given there.
    """
    session = attrs.evolve(machine.memory.session, mail=_mail(machine))
    memory = attrs.evolve(machine.memory, run=run, earlier=Spent(), session=session)
    return Machine(machine.config, _state(machine.state), memory)


def _mail(machine: Machine) -> tuple[Mail, ...]:
    """What was said into the run and is still to be read, and what it begins with."""
    mail, stage = machine.memory.session.mail, getattr(machine.state, "stage", None)
    first: tuple[str, ...] = ()
    if isinstance(stage, Admitting):
        first = stage.ids
    elif isinstance(stage, Start | Reading | Opening | Prompt):
        first = next_prompt(mail, machine.config.policy.coalesce)
    return tuple([one for one in mail if one.lane is MailKind.STEER or one.id in first])


def _state(state: State) -> State:
    match state:
        case Streaming(stopping=Stopping.NONE):
            return attrs.evolve(state, pieces=Rope.of())
        case Compacting(stage=Summary() as stage, stopping=Stopping.NONE):
            return attrs.evolve(state, stage=attrs.evolve(stage, pieces=Rope.of()))
        case Executing(batch=batch) | Confirming(batch=batch) | Dispatching(batch=batch):
            calls = [_call(call) for call in batch.calls]
            return type(state)(batch=batch.with_calls(calls, batch.stopping))
        case _:
            return state


def _call(call: Call) -> Call:
    if isinstance(call.phase, RunningChild):
        return attrs.evolve(call, phase=attrs.evolve(call.phase, spent=Spent()))
    return call


def is_foreign(request: str, machine: Machine) -> bool:
    """Whether *request* was made before *machine*'s run was copied: its id begins with who made it."""
    return request.rpartition("-")[0] != machine.memory.run
